//! All tests of this package, in one program: what they stand on is linked once.

mod ahead;
mod forged;
mod group;
mod mutants;
mod progress;
mod rows;
mod wire;
