//! Exhaustive model checks of the reclamation protocol: every interleaving of its steps within the
//! bounds of a [`Scenario`], on sequentially consistent memory (orderings are loom's, in the crates
//! themselves).
//!
//! | in the model | not in it |
//! |---|---|
//! | a frame, one page-table entry of node 1, a slot | several frames, pinned tables, protect |
//! | up to 3 nodes of up to 2 CPUs, each with TLB and current thread | what user code does |
//! | a node's cached copies of the entry and of the frame's contents | lines that are written late |
//! | rounds, acknowledgements, idleness, crash, recovery, rejoin | suspicion (it changes nothing) |
//!
//! Words are read and modified at memory, one step each. A [`Weakening`] takes something out of a
//! row; [`check`] must then find a violation, and without one it must find none. What is called
//! exhaustive is checked within the bounds, not proved.

mod checker;
mod ops;
mod recovery;
mod state;
mod step;

pub use checker::{Report, Step, check};
pub use state::{Kind, Scenario, Weakening};
