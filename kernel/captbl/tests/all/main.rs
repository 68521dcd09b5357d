//! All tests of this package, in one program: what they stand on is linked once.

mod common;
mod given_up;
mod incoherent;
mod loom_edges;
mod loom_slots;
mod model;
mod mutants;
mod rows;
mod weak;
mod words;
