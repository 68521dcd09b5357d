//! All tests of this package, in one program: what they stand on is linked once.

mod cached;
mod common;
mod incoherent;
mod loom_known;
mod loom_quiesce;
mod nodes;
mod rounds;
mod weak;
