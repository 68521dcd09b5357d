//! All tests of this package, in one program: what they stand on is linked once.

mod common;
mod hostile;
mod loom_group;
mod loom_ring;
mod loom_wake;
mod sequences;
mod station;
mod threads;
