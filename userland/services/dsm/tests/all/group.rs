//! A group of nodes with rings between them, and time that a test moves.

use std::collections::VecDeque;

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_dsm::weakening::Rules;
use dyad_dsm::{
    Access, Action, Config, Dsm, Event, Incarnation, Item, Message, NodeSet, Page, Port, Range,
    Record, Refusal, Right, ThreadNo, Time, Weakening,
};

pub const NODES: usize = 3;
pub const FRAMES: u32 = 8;
/// There is room for another node, which is none of the group.
pub type Node = Dsm<{ NODES + 1 }, 4, 4, 4, 32, 4>;

pub fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

pub fn page(n: u64) -> Page {
    Page::new(n).unwrap()
}

pub fn thread(n: u8) -> ThreadNo {
    ThreadNo::new(n).unwrap()
}

pub fn range(first: u64, pages: u64) -> Range {
    Range::new(page(first), pages).unwrap()
}

pub fn fault(p: u64, want: Access) -> Event {
    fault_at(0, p, want, p)
}

pub fn fault_at(t: u8, p: u64, want: Access, pc: u64) -> Event {
    Event::Fault {
        thread: thread(t),
        page: page(p),
        want,
        pc,
    }
}

pub fn config(me: usize, weakening: Option<Weakening>) -> Config {
    Config {
        me: node(me),
        origin: node(0),
        nodes: NodeSet::first(NODES),
        incarnations: [Incarnation(1); MAX_NODES],
        frames: FRAMES,
        rules: weakening.map_or(Rules::default(), Rules::without),
    }
}

/// Actions in order, and how many messages there is room for to each node.
pub struct Log {
    pub actions: Vec<Action>,
    pub room: [usize; NODES],
    pub not_resumed: u64,
}

impl Port for Log {
    fn has_room(&self, to: NodeId) -> bool {
        let sent = |a: &&Action| matches!(a, Action::Send { to: t, .. } if *t == to);
        self.actions.iter().filter(sent).count() < self.room[to.index()]
    }
    fn not_resumed(&self, threads: u64) -> u64 {
        threads & self.not_resumed
    }
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }
}

/// The nodes and what is on its way.
pub struct Group {
    pub nodes: [Node; NODES],
    pub rings: [[VecDeque<Message>; NODES]; NODES],
    pub now: u64,
    /// Messages that a ring has room for.
    pub ring: usize,
    /// By node: threads that have been woken and have not run since.
    pub not_resumed: [u64; NODES],
}

impl Group {
    /// Three nodes with a region of the pages 0 to 15.
    pub fn new(weakening: Option<Weakening>) -> Group {
        let mut group = Group {
            nodes: std::array::from_fn(|n| Node::new(config(n, weakening))),
            rings: Default::default(),
            now: 0,
            ring: 1_000,
            not_resumed: [0; NODES],
        };
        let range = range(0, 16);
        group.event(0, Event::Map { range }).unwrap();
        group
    }

    /// Gives a node an event; what it sends is put into rings.
    pub fn event(&mut self, n: usize, event: Event) -> Result<Vec<Action>, Refusal> {
        let room = [0, 1, 2].map(|to| self.ring - self.rings[n][to].len().min(self.ring));
        let actions = Vec::new();
        let not_resumed = self.not_resumed[n];
        let mut log = Log {
            actions,
            room,
            not_resumed,
        };
        let done = self.nodes[n].step(Time(self.now), event, &mut log);
        for action in &log.actions {
            if let Action::Send { to, message } = *action {
                self.rings[n][to.index()].push_back(message);
            }
        }
        done.map(|()| log.actions)
    }

    pub fn deliver(&mut self, from: usize, to: usize) -> Result<Vec<Action>, Refusal> {
        let message = self.rings[from][to].pop_front().expect("a message");
        let from = node(from);
        self.event(to, Event::Received { from, message })
    }

    /// Delivers all that is on its way, after all holds.
    pub fn settle_all(&mut self) -> Vec<(usize, Action)> {
        let mut all = Vec::new();
        for _ in 0..100 {
            self.now += 1_000_000;
            for n in 0..NODES {
                for p in 0..16 {
                    let done = self.event(n, Event::Expired { page: page(p) });
                    all.extend(done.into_iter().flatten().map(|a| (n, a)));
                }
                for to in 0..NODES {
                    let done = self.event(n, Event::Room { to: node(to) });
                    all.extend(done.into_iter().flatten().map(|a| (n, a)));
                }
                for from in 0..NODES {
                    while !self.rings[from][n].is_empty() {
                        let done = self.deliver(from, n);
                        all.extend(done.into_iter().flatten().map(|a| (n, a)));
                    }
                }
            }
        }
        all
    }

    /// A node faults, and all that follows happens.
    pub fn access(&mut self, n: usize, p: u64, want: Access) -> Vec<(usize, Action)> {
        let first = self.event(n, fault(p, want)).unwrap();
        let mut all: Vec<_> = first.into_iter().map(|a| (n, a)).collect();
        all.extend(self.settle_all());
        all
    }

    pub fn record(&self, n: usize, p: u64) -> Record<{ NODES + 1 }> {
        *self.nodes[n].record(page(p)).unwrap_or(&Record::NEW)
    }

    pub fn rights(&self, p: u64) -> [Right; NODES] {
        [0, 1, 2].map(|n| self.nodes[n].right(page(p)))
    }
}
