//! All tests of this package, in one program: what they stand on is linked once.

mod futex;
mod loom_futex;
