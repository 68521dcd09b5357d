//! Page-level distributed shared memory: three nodes, one page, one thread on each node, and the very step function
//! that peers run (`dyad_dsm`).
//!
//! The actions of a step are executed one at a time, and the thread of the node runs between any two of them. So
//! the order protect, quiesce, copy, send is checked, not assumed. A translation of the thread is as wide as the
//! leaf was when the thread used it, until the node quiesces. Rings are FIFO, have any delay and a bounded length.
//!
//! Contents are one bit: whether they are those of the last write. Sequence and transaction numbers count as equal or
//! not equal to the one that is awaited, so that states with other histories are the same state.

mod canon;

use std::fmt;

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_dsm::weakening::Rules;
use dyad_dsm::{
    Access, Action as Do, Body, Cause, Config, Copies, Dsm, Event, Incarnation, Item, Message,
    NodeSet, Outcome, Page, Port, Range, Record, Right, Source, ThreadNo, Time, Weakening,
};
use stateright::{Checker, HasDiscoveries, Model, Property};

const NODES: usize = 3;
const FRAMES: u32 = 1;
const LATE: Time = Time(u64::MAX);

type Node = Dsm<NODES, 1, 1, 1, 4, 1>;

/// The bounds of a search.
#[derive(Clone, Debug)]
pub struct DsmScenario {
    /// Accesses of the thread of each node.
    pub ops: [u8; NODES],
    /// Messages that a ring has room for.
    pub ring: usize,
    /// A node that may die, at any time.
    pub victim: Option<usize>,
    /// How often the region may be unmapped, and mapped again.
    pub unmaps: u8,
    /// What is left out.
    pub weakening: Option<Weakening>,
    /// States after which a search ends.
    pub limit: usize,
}

/// What the protocol does not know of a node: its thread, its address space, its frame, what it still has to do.
#[derive(Clone, Debug, PartialEq)]
struct Outside {
    ops: u8,
    want: Option<Access>,
    waits: bool,
    leaf: Right,
    translation: Right,
    /// Whether the frame has the contents of the last write.
    fresh: bool,
    copied: bool,
    received: bool,
    todo: Vec<Do>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Packet {
    message: Message,
    fresh: bool,
}

/// A state.
#[derive(Clone, Debug, PartialEq)]
pub struct DsmState {
    nodes: [Node; NODES],
    outside: [Outside; NODES],
    rings: [[Vec<Packet>; NODES]; NODES],
    /// Whether the page has been written since it was mapped.
    written: bool,
    dead: Option<usize>,
    told: bool,
    unmaps: u8,
    violation: Option<&'static str>,
}

/// A step and where it leads.
#[derive(Clone, Debug, PartialEq)]
pub struct DsmStep {
    node: usize,
    what: What,
    to: Box<DsmState>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Access(Access),
    Faults(Access),
    Does(Do),
    Receives(Body),
    HoldEnds,
    HasRoom(usize),
    Told(Event),
    Dies,
}

struct Recorder<'a> {
    rings: &'a [Vec<Packet>; NODES],
    ring: usize,
    todo: Vec<Do>,
}

impl Port for Recorder<'_> {
    fn has_room(&self, to: NodeId) -> bool {
        let sent = |a: &&Do| matches!(a, Do::Send { to: t, .. } if *t == to);
        self.rings[to.index()].len() + self.todo.iter().filter(sent).count() < self.ring
    }
    fn not_resumed(&self, _: u64) -> u64 {
        // How long a page stays is no matter of this model: orders come at any time.
        0
    }
    fn act(&mut self, action: Do) {
        self.todo.push(action);
    }
}

fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).expect("one of three nodes")
}

fn page() -> Page {
    Page::new(1).expect("in range")
}

impl DsmState {
    fn first(c: &DsmScenario) -> DsmState {
        let rules = c.weakening.map_or(Rules::default(), Rules::without);
        let nodes = std::array::from_fn(|n| {
            Node::new(Config {
                me: node(n),
                origin: node(0),
                nodes: NodeSet::first(NODES),
                incarnations: [Incarnation(1); MAX_NODES],
                frames: FRAMES,
                rules,
            })
        });
        let outside = std::array::from_fn(|n| Outside {
            ops: c.ops[n],
            want: None,
            waits: false,
            leaf: Right::None,
            translation: Right::None,
            fresh: false,
            copied: false,
            received: false,
            todo: Vec::new(),
        });
        let mut s = DsmState {
            nodes,
            outside,
            rings: Default::default(),
            written: false,
            dead: None,
            told: false,
            unmaps: c.unmaps,
            violation: None,
        };
        let range = Range::one(page());
        s.event(c, 0, Time(0), Event::Map { range });
        s
    }

    fn record(&self, n: usize) -> Record<NODES> {
        *self.nodes[n].record(page()).unwrap_or(&Record::NEW)
    }

    fn is_live(&self, n: usize) -> bool {
        self.dead != Some(n)
    }

    fn live(&self) -> impl Iterator<Item = usize> + '_ {
        (0..NODES).filter(|&n| self.is_live(n))
    }

    fn can_use(&self, n: usize) -> Right {
        self.outside[n].leaf.max(self.outside[n].translation)
    }

    /// Gives a node an event. Returns whether it was accepted.
    fn event(&mut self, c: &DsmScenario, n: usize, now: Time, event: Event) -> bool {
        let mut port = Recorder {
            rings: &self.rings[n],
            ring: c.ring,
            todo: Vec::new(),
        };
        let done = self.nodes[n].step(now, event, &mut port);
        self.outside[n].todo = port.todo;
        self.nodes[n].clear_counters();
        done.is_ok()
    }

    fn fail(&mut self, what: &'static str) {
        self.violation.get_or_insert(what);
    }

    /// Executes the first action that a node has to do.
    fn act(&mut self, n: usize) {
        let action = self.outside[n].todo.remove(0);
        let o = &mut self.outside[n];
        match action {
            Do::Protect { right, .. } | Do::Map { right, .. } => o.leaf = right,
            Do::Quiesce { .. } => o.translation = o.translation.min(o.leaf),
            Do::Unmap { .. } => o.leaf = Right::None,
            Do::CopyOut { .. } => o.copied = o.fresh,
            Do::Fill { source, .. } => {
                o.fresh = match source {
                    Source::Zero => !self.written,
                    Source::Message => o.received,
                }
            }
            Do::Send { to, message } => {
                let fresh = message.body.has_contents() && o.copied;
                if self.is_live(to.index()) {
                    self.rings[n][to.index()].push(Packet { message, fresh });
                }
            }
            Do::Wake { outcome, .. } => {
                o.waits = false;
                match outcome {
                    Outcome::Retry => {}
                    Outcome::Refused(cause) => {
                        o.want = None;
                        if cause == Cause::Lost {
                            o.ops = 0;
                        }
                        if cause == Cause::NoMemory {
                            self.fail("memory is lost");
                        }
                    }
                    Outcome::Ended => self.fail("the group ends"),
                }
            }
            Do::Free { .. } if o.translation.max(o.leaf) != Right::None => {
                self.fail("a frame that is given back is still translated");
            }
            Do::Free { .. } => o.fresh = false,
            Do::Unmapped { .. } => {
                if self.live().any(|n| self.can_use(n) != Right::None) {
                    self.fail("a page is used after its region is gone");
                }
                self.written = false;
            }
            Do::End => self.fail("the group ends"),
            Do::Defer { .. } => {}
        }
    }

    /// Executes what a node has to do, up to the next message, or up to the next time when its thread may run: no
    /// step of another node lies between such actions that would not be the same before or after them.
    fn act_on(&mut self, n: usize) {
        loop {
            let sends = matches!(self.outside[n].todo.first(), Some(Do::Send { .. }));
            self.act(n);
            let o = &self.outside[n];
            let runs = !o.waits && (o.want.is_some() || o.ops > 0);
            if sends || runs || o.todo.is_empty() {
                return;
            }
        }
    }

    /// The thread of a node does its access.
    fn access(&mut self, n: usize, want: Access) {
        let o = &mut self.outside[n];
        if !o.translation.allows(want) {
            o.translation = o.leaf;
        }
        o.want = None;
        if want == Access::Read {
            if !o.fresh {
                self.fail("a read does not give the last write");
            }
            return;
        }
        self.written = true;
        for o in &mut self.outside {
            (o.fresh, o.copied, o.received) = (false, false, false);
        }
        for p in self.rings.iter_mut().flatten().flatten() {
            p.fresh = false;
        }
        self.outside[n].fresh = true;
    }

    fn steps(&self, c: &DsmScenario, out: &mut Vec<DsmStep>) {
        if self.violation.is_some() {
            return;
        }
        let mut add = |node: usize, what: What, to: DsmState| {
            let to = Box::new(to);
            out.push(DsmStep { node, what, to });
        };
        for n in self.live() {
            let o = &self.outside[n];
            let idle = o.todo.is_empty();
            let wants: &[Access] = match o.want {
                Some(Access::Read) => &[Access::Read],
                Some(Access::Write) => &[Access::Write],
                None if o.ops > 0 => &[Access::Read, Access::Write],
                None => &[],
            };
            for &want in wants.iter().filter(|_| !o.waits) {
                let mut s = self.clone();
                s.outside[n].ops -= u8::from(o.want.is_none());
                if self.can_use(n).allows(want) {
                    s.access(n, want);
                    add(n, What::Access(want), s);
                } else if idle {
                    s.outside[n].want = Some(want);
                    s.outside[n].waits = true;
                    let thread = ThreadNo::new(0).expect("in range");
                    let (page, pc) = (page(), 0);
                    let fault = Event::Fault {
                        thread,
                        page,
                        want,
                        pc,
                    };
                    s.event(c, n, Time(0), fault);
                    add(n, What::Faults(want), s);
                }
            }
            if let Some(action) = o.todo.first() {
                let mut s = self.clone();
                s.act_on(n);
                add(n, What::Does(*action), s);
                continue;
            }
            for from in 0..NODES {
                let Some(packet) = self.rings[from][n].first() else {
                    continue;
                };
                let mut s = self.clone();
                s.rings[from][n].remove(0);
                s.outside[n].received = packet.fresh;
                let (from, message) = (node(from), packet.message);
                s.event(c, n, Time(0), Event::Received { from, message });
                add(n, What::Receives(message.body), s);
            }
            if self.record(n).hold_until != Time(0) {
                let mut s = self.clone();
                s.event(c, n, LATE, Event::Expired { page: page() });
                add(n, What::HoldEnds, s);
            }
            for to in 0..NODES {
                if self.nodes[n].unsent(node(to)) > 0 && self.rings[n][to].len() < c.ring {
                    let mut s = self.clone();
                    s.event(c, n, Time(0), Event::Room { to: node(to) });
                    add(n, What::HasRoom(to), s);
                }
            }
            if n != 0 {
                continue;
            }
            let (range, has_region) = (Range::one(page()), self.nodes[0].regions().count() != 0);
            if !has_region || self.unmaps > 0 && self.nodes[0].regions().all(|r| r.is_live()) {
                let mut s = self.clone();
                let event = match has_region {
                    true => Event::Unmap { range },
                    false => Event::Map { range },
                };
                s.unmaps -= u8::from(has_region);
                s.event(c, 0, Time(0), event);
                add(0, What::Told(event), s);
            }
            if let Some(dead) = self.dead
                && !self.told
                && self.rings[dead][0].is_empty()
            {
                let mut s = self.clone();
                s.told = true;
                let event = Event::Down { node: node(dead) };
                s.event(c, 0, Time(0), event);
                add(0, What::Told(event), s);
            }
        }
        if let (Some(victim), None) = (c.victim, self.dead) {
            let mut s = self.clone();
            s.dead = Some(victim);
            for ring in &mut s.rings {
                ring[victim].clear();
            }
            s.outside[victim] = DsmState::first(c).outside[victim].clone();
            add(victim, What::Dies, s);
        }
    }

    /// What must never be.
    fn violated(&self) -> Option<&'static str> {
        if self.violation.is_some() {
            return self.violation;
        }
        let users: Vec<Right> = self.live().map(|n| self.can_use(n)).collect();
        let count = users.iter().filter(|r| **r != Right::None).count();
        if users.contains(&Right::Write) && count > 1 {
            return Some("a writer beside another user");
        }
        let directory = self.record(0);
        if directory.copies == Copies::Lost {
            if self.dead.is_none() {
                return Some("lost without a death");
            }
            if self.live().any(|n| self.record(n).right != Right::None) {
                return Some("lost beside a live copy");
            }
        }
        for n in self.live() {
            let used = u32::from(self.record(n).frame);
            if self.nodes[n].free_frames() + used != FRAMES {
                return Some("a frame is lost");
            }
        }
        let rings = self.rings.iter().flatten().all(Vec::is_empty);
        let unsent = |n: usize| (0..NODES).any(|to| self.nodes[n].unsent(node(to)) > 0);
        let at_work = |n: usize| {
            !self.outside[n].todo.is_empty() || self.record(n).deferred.is_some() || unsent(n)
        };
        let told = self.dead.is_none() || self.told;
        let waits = self.live().any(|n| self.outside[n].waits) || directory.busy.is_some();
        if rings && told && !self.live().any(at_work) {
            if waits {
                return Some("a thread waits for ever");
            }
            let has = |n: &usize| self.record(*n).right != Right::None;
            if self
                .live()
                .any(|n| has(&n) != directory.holders().has(node(n)))
            {
                return Some("directory and holders disagree");
            }
        }
        None
    }
}

const SAFE: &str = "no violation";
const DONE: &str = "all accesses are done";

impl Model for DsmScenario {
    type State = DsmState;
    type Action = DsmStep;

    fn init_states(&self) -> Vec<DsmState> {
        vec![DsmState::first(self)]
    }

    fn actions(&self, state: &DsmState, actions: &mut Vec<DsmStep>) {
        state.steps(self, actions);
    }

    fn next_state(&self, _: &DsmState, step: DsmStep) -> Option<DsmState> {
        Some(*step.to)
    }

    fn properties(&self) -> Vec<Property<DsmScenario>> {
        vec![
            Property::always(SAFE, |_, s: &DsmState| s.violated().is_none()),
            Property::sometimes(DONE, |_, s: &DsmState| {
                let done = |o: &Outside| o.ops == 0 && o.want.is_none();
                s.outside.iter().all(done) && s.unmaps == 0
            }),
        ]
    }
}

/// What came out of a check.
#[derive(Clone, Debug)]
pub struct DsmReport {
    /// Different states.
    pub states: usize,
    /// All states were visited.
    pub complete: bool,
    /// All accesses were done in one of them.
    pub done: bool,
    /// What must never be, and the steps that lead to it.
    pub violation: Option<(&'static str, Vec<(usize, String)>)>,
}

impl fmt::Display for DsmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.complete { "all" } else { "the first" };
        write!(f, "{all} {} states", self.states)?;
        if let Some((what, steps)) = &self.violation {
            write!(f, ": {what}")?;
            for (node, step) in steps {
                write!(f, "\n  node {node}: {step}")?;
            }
        }
        Ok(())
    }
}

/// Visits every state, breadth first, up to the first violation or the limit.
pub fn check_dsm(scenario: &DsmScenario) -> DsmReport {
    // With more than one thread, the first violation found would not always be the same one.
    let checker = scenario
        .clone()
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .target_state_count(scenario.limit)
        .spawn_bfs()
        .join();
    let violation = checker.discovery(SAFE).map(|path| {
        let what = path.last_state().violated().unwrap_or(SAFE);
        let steps = path.into_actions();
        (
            what,
            steps
                .into_iter()
                .map(|s| (s.node, format!("{:?}", s.what)))
                .collect(),
        )
    });
    DsmReport {
        states: checker.unique_state_count(),
        complete: violation.is_none() && checker.state_count() < scenario.limit,
        done: checker.discovery(DONE).is_some(),
        violation,
    }
}
