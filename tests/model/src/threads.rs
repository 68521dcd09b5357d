//! The part of the recover row that is about threads: one thread that crosses between nodes by
//! inboxes, and nodes that die and come back meanwhile.
//!
//! ```text
//! cross    push {node, incarnation} on the crossing stack; offer
//! return   pop the stack to the last live node; offer; none is left: fault
//! offer    entry {owner, incarnation of the receiver} into its inbox; fence; look at its state
//!          again; if it is gone: CAS owner {me, seq} -> {me, seq + 1}; return from there
//! take     look at the entry; CAS owner {sender, seq} -> {me, seq + 1}; remove the entry; run
//! recover  inbox of the dead: CAS owner of each entry -> me, remove the entry, return from there;
//!          then the same with threads whose owner is the dead incarnation
//! ```
//!
//! A thread is offered before it changes hands, and it is the receiver who changes its owner: at
//! every instant the owner word names somebody who knows what to do with it, or who is dead, and
//! then whoever recovers that one knows.

use std::fmt;

use stateright::{Checker, HasDiscoveries, Model, Property};

const NODES: usize = 3;
const DEPTH: usize = 2;
const PLACES: usize = 3;

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ThreadWeakening {
    /// The sender changes the owner, then makes the entry.
    OwnerBeforeOffer,
    /// The receiver removes the entry, then changes the owner.
    RemoveBeforeOwner,
    /// The sender does not look again whether the receiver is there.
    NoSecondLook,
    /// The inbox of the dead is left as it is.
    InboxNotDrained,
    /// Threads of the dead are left as they are.
    OwnedNotTaken,
    /// The owner word has no sequence number.
    NoSequence,
    /// Nobody compares incarnations.
    NoIncarnation,
}

use ThreadWeakening as W;

/// The bounds of a search.
#[derive(Clone, Debug)]
pub struct ThreadScenario {
    /// How often the thread may cross.
    pub crossings: u8,
    /// Nodes that may die, in this order.
    pub victims: &'static [u8],
    /// How often a vacant place may be taken again.
    pub joins: u8,
    /// What is left out.
    pub weakening: Option<ThreadWeakening>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    node: u8,
    incarnation: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    at: Place,
    seq: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    from: Owner,
    to: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    None,
    /// To make an entry.
    Offer(Place),
    /// To make an entry for a thread that is the receiver's already (a weakening).
    Give(Place),
    /// To look at the receiver again.
    Look(Place, u8),
    /// To take what the entry says.
    Take(Entry),
    /// To remove the entry; and whether to run then.
    Remove(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Live,
    Dead,
    Recovering { by: u8 },
    Vacant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    life: Life,
    incarnation: u8,
    runs: bool,
    task: Task,
    inbox: [Option<Entry>; PLACES],
}

/// A state: the thread's words, and the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadState {
    owner: Owner,
    stack: [Option<Place>; DEPTH],
    faulted: bool,
    forgotten: bool,
    nodes: [Node; NODES],
    crossings: u8,
    crashes: u8,
    joins: u8,
    recoveries: u8,
}

/// A step and where it leads.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadStep {
    node: u8,
    what: &'static str,
    to: ThreadState,
}

impl Node {
    fn put(&mut self, e: Entry) {
        if let Some(free) = self.inbox.iter_mut().find(|p| p.is_none()) {
            *free = Some(e);
        }
    }

    fn remove(&mut self) -> Option<Entry> {
        let first = self.inbox[0].take();
        self.inbox.rotate_left(1);
        first
    }
}

impl ThreadState {
    fn place(&self, n: usize) -> Place {
        Place {
            node: n as u8,
            incarnation: self.nodes[n].incarnation,
        }
    }

    fn is_live(&self, c: &ThreadScenario, p: Place) -> bool {
        let n = &self.nodes[usize::from(p.node)];
        let same = n.incarnation == p.incarnation || c.weakening == Some(W::NoIncarnation);
        n.life == Life::Live && same
    }

    fn owner_is(&self, c: &ThreadScenario, o: Owner) -> bool {
        match c.weakening {
            Some(W::NoSequence) => self.owner.at == o.at,
            _ => self.owner == o,
        }
    }

    fn own(&mut self, n: usize) {
        self.owner = Owner {
            at: self.place(n),
            seq: self.owner.seq + 1,
        };
    }

    /// The thread, which node `n` owns, goes back to the last live node on its stack.
    fn send_back(&mut self, c: &ThreadScenario, n: usize) {
        for i in (0..DEPTH).rev() {
            if let Some(p) = self.stack[i].take()
                && self.is_live(c, p)
            {
                self.send(c, n, p);
                return;
            }
        }
        self.faulted = true;
        self.nodes[n].task = Task::None;
    }

    fn send(&mut self, c: &ThreadScenario, n: usize, to: Place) {
        self.nodes[n].task = match c.weakening {
            Some(W::OwnerBeforeOffer) => Task::Give(to),
            _ => Task::Offer(to),
        };
    }

    fn steps(&self, c: &ThreadScenario, out: &mut Vec<ThreadStep>) {
        for n in 0..NODES {
            match self.nodes[n].life {
                Life::Live if self.nodes[n].task != Task::None => out.push(self.go_on(c, n)),
                Life::Live => self.begin(c, n, out),
                Life::Vacant if self.joins < c.joins => {
                    let mut s = *self;
                    s.joins += 1;
                    s.nodes[n].incarnation += 1;
                    s.nodes[n].life = Life::Live;
                    out.push(step(n, "joins", s));
                }
                _ => {}
            }
            let next = c.victims.get(usize::from(self.crashes));
            if self.nodes[n].life == Life::Live && next == Some(&(n as u8)) {
                let mut s = *self;
                s.crashes += 1;
                let node = &mut s.nodes[n];
                (node.life, node.runs, node.task) = (Life::Dead, false, Task::None);
                out.push(step(n, "dies", s));
            }
        }
    }

    fn begin(&self, c: &ThreadScenario, n: usize, out: &mut Vec<ThreadStep>) {
        let depth = self.stack.iter().flatten().count();
        if self.nodes[n].runs {
            for to in (0..NODES).filter(|&to| to != n && self.nodes[to].life == Life::Live) {
                if self.crossings < c.crossings && depth < DEPTH {
                    let mut s = *self;
                    s.crossings += 1;
                    s.nodes[n].runs = false;
                    s.stack[depth] = Some(self.place(n));
                    s.send(c, n, self.place(to));
                    out.push(step(n, "cross: saves the thread", s));
                }
            }
            if depth > 0 {
                let mut s = *self;
                s.nodes[n].runs = false;
                s.send_back(c, n);
                out.push(step(n, "return: saves the thread", s));
            }
        }
        if let Some(e) = self.nodes[n].inbox[0] {
            let mut s = *self;
            s.nodes[n].task = Task::Take(e);
            if c.weakening == Some(W::RemoveBeforeOwner) {
                s.nodes[n].remove();
            }
            out.push(step(n, "take: looks at an entry", s));
        }
        for d in 0..NODES {
            let free = match self.nodes[d].life {
                Life::Dead => true,
                Life::Recovering { by } => {
                    by == n as u8 || self.nodes[usize::from(by)].life != Life::Live
                }
                _ => false,
            };
            if free {
                out.push(self.recover(c, n, d));
            }
        }
    }

    fn go_on(&self, c: &ThreadScenario, n: usize) -> ThreadStep {
        let mut s = *self;
        let me = self.place(n);
        let early = c.weakening == Some(W::RemoveBeforeOwner);
        let after = |task| if early { Task::None } else { task };
        let what = match self.nodes[n].task {
            Task::None => unreachable!("something is in progress"),
            Task::Offer(to) => {
                let from = self.owner;
                s.nodes[usize::from(to.node)].put(Entry { from, to });
                s.nodes[n].task = match c.weakening {
                    Some(W::NoSecondLook) => Task::None,
                    _ => Task::Look(to, from.seq),
                };
                "offer: makes an entry"
            }
            Task::Give(to) if self.owner.at == me => {
                s.owner = Owner {
                    at: to,
                    seq: self.owner.seq + 1,
                };
                "offer: changes the owner"
            }
            Task::Give(to) => {
                let from = self.owner;
                s.nodes[usize::from(to.node)].put(Entry { from, to });
                s.nodes[n].task = Task::None;
                "offer: makes an entry"
            }
            Task::Look(to, _) if self.is_live(c, to) => {
                s.nodes[n].task = Task::None;
                "offer: the receiver is there"
            }
            Task::Look(_, seq) => {
                s.nodes[n].task = Task::None;
                if self.owner_is(c, Owner { at: me, seq }) {
                    s.own(n);
                    s.send_back(c, n);
                }
                "offer: the receiver is gone"
            }
            Task::Take(e) => {
                let meant = e.to == me || c.weakening == Some(W::NoIncarnation);
                let mine = meant && self.owner_is(c, e.from);
                if mine {
                    s.own(n);
                    s.forgotten |= e.to != me;
                    s.nodes[n].runs |= early;
                }
                s.nodes[n].task = after(Task::Remove(mine));
                "take: changes the owner, if it is as offered"
            }
            Task::Remove(run) => {
                s.nodes[n].remove();
                s.nodes[n].runs |= run;
                s.nodes[n].task = Task::None;
                "take: removes the entry"
            }
        };
        step(n, what, s)
    }

    /// One step of recovering node `d`.
    fn recover(&self, c: &ThreadScenario, n: usize, d: usize) -> ThreadStep {
        let mut s = *self;
        s.nodes[d].life = Life::Recovering { by: n as u8 };
        let dead = self.place(d);
        if let Some(e) = self.nodes[d].inbox[0]
            && c.weakening != Some(W::InboxNotDrained)
        {
            if self.owner_is(c, e.from) {
                s.own(n);
                s.send_back(c, n);
                return step(n, "recover: takes what was offered to the dead", s);
            }
            s.nodes[d].remove();
            return step(n, "recover: removes an entry of the dead", s);
        }
        if self.owner.at == dead && !self.faulted && c.weakening != Some(W::OwnedNotTaken) {
            s.own(n);
            s.send_back(c, n);
            return step(n, "recover: takes what the dead had", s);
        }
        s.nodes[d].life = Life::Vacant;
        s.recoveries += 1;
        step(n, "recover: the place is vacant", s)
    }

    fn violation(&self) -> Option<&'static str> {
        let mut runs = (0..NODES).filter(|&n| self.nodes[n].runs);
        if let Some(n) = runs.next() {
            if runs.next().is_some() {
                return Some("a thread runs twice");
            }
            if self.owner.at != self.place(n) {
                return Some("a thread runs where it does not belong");
            }
        }
        if self.forgotten {
            return Some("a thread comes back to a node that knows nothing of it");
        }
        let busy = self.nodes.iter().any(|n| {
            matches!(n.life, Life::Dead | Life::Recovering { .. }) || n.task != Task::None
        });
        let somewhere = self.faulted
            || self.nodes.iter().any(|n| {
                let waits = n.inbox.iter().flatten().any(|e| e.from == self.owner);
                n.runs || n.life == Life::Live && waits
            });
        (!busy && !somewhere).then_some("a thread is lost")
    }
}

fn step(n: usize, what: &'static str, to: ThreadState) -> ThreadStep {
    ThreadStep {
        node: n as u8,
        what,
        to,
    }
}

impl Model for ThreadScenario {
    type State = ThreadState;
    type Action = ThreadStep;

    fn init_states(&self) -> Vec<ThreadState> {
        let node = Node {
            life: Life::Live,
            incarnation: 1,
            runs: false,
            task: Task::None,
            inbox: [None; PLACES],
        };
        let mut nodes = [node; NODES];
        nodes[0].runs = true;
        vec![ThreadState {
            owner: Owner {
                at: Place {
                    node: 0,
                    incarnation: 1,
                },
                seq: 0,
            },
            stack: [None; DEPTH],
            faulted: false,
            forgotten: false,
            nodes,
            crossings: 0,
            crashes: 0,
            joins: 0,
            recoveries: 0,
        }]
    }

    fn actions(&self, state: &ThreadState, actions: &mut Vec<ThreadStep>) {
        state.steps(self, actions);
    }

    fn next_state(&self, _: &ThreadState, action: ThreadStep) -> Option<ThreadState> {
        Some(action.to)
    }

    fn properties(&self) -> Vec<Property<ThreadScenario>> {
        vec![
            Property::always(SAFE, |_, s: &ThreadState| s.violation().is_none()),
            Property::sometimes(CROSSED, |c: &ThreadScenario, s: &ThreadState| {
                s.crossings == c.crossings && s.nodes[0].runs
            }),
            Property::sometimes(RECOVERED, |c: &ThreadScenario, s: &ThreadState| {
                usize::from(s.recoveries) == c.victims.len()
            }),
        ]
    }
}

const SAFE: &str = "no violation";
const CROSSED: &str = "the thread has come back from all crossings";
const RECOVERED: &str = "all victims have been recovered";

/// What came out of a check.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// Different states.
    pub states: usize,
    /// The thread came back from all its crossings, and all victims were recovered.
    pub complete: bool,
    /// What must never be, and the steps that lead to it.
    pub violation: Option<(&'static str, Vec<(u8, &'static str)>)>,
}

impl fmt::Display for ThreadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states", self.states)?;
        if let Some((what, steps)) = &self.violation {
            write!(f, ": {what}")?;
            for (node, step) in steps {
                write!(f, "\n  node {node}: {step}")?;
            }
        }
        Ok(())
    }
}

/// Visits every state, up to the first violation.
pub fn check_threads(scenario: &ThreadScenario) -> ThreadReport {
    let checker = scenario
        .clone()
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = |name| checker.discovery(name).is_some();
    let violation = checker.discovery(SAFE).map(|path| {
        let what = path.last_state().violation().unwrap_or(SAFE);
        let steps = path.into_actions();
        (what, steps.into_iter().map(|s| (s.node, s.what)).collect())
    });
    ThreadReport {
        states: checker.unique_state_count(),
        complete: found(CROSSED) && found(RECOVERED),
        violation,
    }
}
