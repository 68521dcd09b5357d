//! All tests of this package, in one program: what they stand on is linked once.

mod incoherent;
mod loom_arrivals;
mod loom_handoff;
mod loom_ring;
mod loom_sleep;
mod loom_wake;
mod ring;
mod wake;
mod weak;
