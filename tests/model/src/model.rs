//! The model as stateright sees it, and what comes out of a check.

use std::fmt;
use std::hash::{Hash, Hasher};

use stateright::{Checker, HasDiscoveries, Model, Path, Property};

use crate::scenario::Scenario;
use crate::state::State;

/// A step of the trace of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The node that acts.
    pub node: u8,
    /// The CPU that acts.
    pub cpu: u8,
    /// What it does.
    pub what: &'static str,
}

/// A step and where it leads: steps are found together with the states that follow, and would
/// otherwise be computed twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    step: Step,
    to: Snapshot,
}

/// A state as the checker keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot(State);

impl Hash for Snapshot {
    /// One write of some 150 bytes instead of as many writes: half the time of a check is hashing.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut packed = Packed {
            bytes: [0; Packed::MOST],
            len: 0,
        };
        self.0.hash(&mut packed);
        hasher.write(&packed.bytes[..packed.len]);
    }
}

/// Collects what is hashed. Everything in a state is a byte, or a variant's number.
struct Packed {
    bytes: [u8; Packed::MOST],
    len: usize,
}

impl Packed {
    const MOST: usize = 320;
}

impl Hasher for Packed {
    fn finish(&self) -> u64 {
        unreachable!("only collects")
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u8(b);
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.bytes[self.len] = n;
        self.len += 1;
    }
    fn write_isize(&mut self, n: isize) {
        self.write_u8(n as u8);
    }
    /// Lengths of arrays, which are always the same.
    fn write_usize(&mut self, _: usize) {}
}

const SAFE: &str = "no violation";
const REUSE: &str = "something is reused";
const RECOVERY: &str = "a node is recovered";
const UNTYPED: &str = "a frame is given up";
const FREED: &str = "a slot is freed";

impl Model for Scenario {
    type State = Snapshot;
    type Action = Action;

    fn init_states(&self) -> Vec<Snapshot> {
        vec![Snapshot(State::first(self))]
    }

    fn actions(&self, state: &Snapshot, actions: &mut Vec<Action>) {
        state.0.successors(self, actions);
    }

    fn next_state(&self, _: &Snapshot, action: Action) -> Option<Snapshot> {
        Some(action.to)
    }

    /// One property for all that must never be: which it is can be seen of the state.
    fn properties(&self) -> Vec<Property<Scenario>> {
        vec![
            Property::always(SAFE, |c: &Scenario, s: &Snapshot| {
                s.0.violation(c).is_none()
            }),
            Property::sometimes(REUSE, |_, s: &Snapshot| s.0.has_reused()),
            Property::sometimes(RECOVERY, |_, s: &Snapshot| s.0.has_recovered()),
            Property::sometimes(UNTYPED, |_, s: &Snapshot| s.0.has_given_up()),
            Property::sometimes(FREED, |_, s: &Snapshot| s.0.has_freed()),
        ]
    }
}

impl Action {
    pub(crate) fn new(step: Step, to: State) -> Action {
        Action {
            step,
            to: Snapshot(to),
        }
    }
}

/// What came out of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// All states were visited. Otherwise a violation may be further out, and so may be what follows here.
    pub complete: bool,
    /// Different states.
    pub states: usize,
    /// Something was reused in one of them: otherwise, nothing was shown.
    pub reused: bool,
    /// A node was recovered in one of them.
    pub recovered: bool,
    /// A frame became untyped in one of them.
    pub untyped: bool,
    /// A slot was freed in one of them.
    pub freed: bool,
    /// The violation and the steps that lead to it.
    pub violation: Option<(&'static str, Vec<Step>)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_not = |yes| if yes { "" } else { "no " };
        write!(
            f,
            "{} states, {}reuse, {}recovery",
            self.states,
            or_not(self.reused),
            or_not(self.recovered)
        )?;
        let Some((what, trace)) = &self.violation else {
            return f.write_str(", no violation");
        };
        write!(f, ": {what}")?;
        for s in trace {
            write!(f, "\n  node {} cpu {}: {}", s.node, s.cpu, s.what)?;
        }
        Ok(())
    }
}

/// Visits the states of a scenario, breadth first, up to the first violation or to `limit` steps between states. The
/// report says whether that were all.
pub fn check(scenario: &Scenario, limit: usize) -> Report {
    // With more than one thread, the first violation found would not always be the same one.
    let checker = scenario
        .clone()
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .target_state_count(limit)
        .spawn_bfs()
        .join();
    let violation = checker.discovery(SAFE).map(|path| {
        let what = path.last_state().0.violation(scenario);
        (what.unwrap_or(SAFE), steps(path))
    });
    Report {
        complete: violation.is_none() && checker.state_count() < limit,
        states: checker.unique_state_count(),
        reused: checker.discovery(REUSE).is_some(),
        recovered: checker.discovery(RECOVERY).is_some(),
        untyped: checker.discovery(UNTYPED).is_some(),
        freed: checker.discovery(FREED).is_some(),
        violation,
    }
}

fn steps(path: Path<Snapshot, Action>) -> Vec<Step> {
    let actions = path.into_actions();
    actions.into_iter().map(|a| a.step).collect()
}
