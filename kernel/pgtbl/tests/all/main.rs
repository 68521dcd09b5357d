//! All tests of this package, in one program: what they stand on is linked once.

mod common;
mod driver;
mod encoding;
mod incoherent;
mod interference;
mod loom_tables;
mod model;
mod places;
mod tables;
