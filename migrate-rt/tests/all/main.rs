//! All tests of this package, in one program: what they stand on is linked once.

mod align;
mod bundle;
mod common;
mod conventions;
mod invocation;
mod layout;
mod pipeline;
mod spine;
mod spine_code;
mod verify;
