//! All tests of this package, in one program: what they stand on is linked once.

mod common;
mod deaths;
mod executed;
mod given_up;
mod incoherent;
mod loom_frames;
mod loom_recovery;
mod model;
mod mutants;
mod one_frame;
mod rows;
mod words;
