//! Exhaustive model checks of the reclamation protocol, with stateright: every interleaving of its
//! steps within the bounds of a scenario, on sequentially consistent memory (orderings are loom's,
//! in the crates themselves).
//!
//! There are three models. [`Scenario`] is about frames, entries, slots, rounds and the life of
//! nodes; [`ThreadScenario`] about threads that cross between nodes that die;
//! [`dsm`] about pages of distributed shared memory. The README of this
//! package says which row of the protocol and which of its traces is in which test.
//!
//! | in the first model | not in it |
//! |---|---|
//! | a frame, a table, an entry of each of two nodes, a slot | several slots, upper tables |
//! | up to 3 nodes of up to 2 CPUs, each with TLB and current thread | what user code does |
//! | a node's cached copies of the entry and of the frame's contents | lines that overtake others |
//! | rounds, acknowledgements, idleness, crash, recovery, rejoin, suspicion | threads |
//!
//! Words are read and modified at memory, one step each. A [`Weakening`] takes something out of a
//! row; [`check`] must then find a violation, and without one it must find none. What is called
//! exhaustive is checked within the bounds, not proved.

pub mod dsm;
mod invariants;
mod mapping;
mod model;
mod ops;
mod recovery;
mod scenario;
mod state;
mod step;
mod threads;

pub use model::{Action, Report, Snapshot, Step, check};
pub use scenario::{Kind, Scenario, Weakening};
pub use threads::{
    ThreadReport, ThreadScenario, ThreadState, ThreadStep, ThreadWeakening, check_threads,
};
