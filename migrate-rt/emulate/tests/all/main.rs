//! All tests of this package, in one program: what they stand on is linked once.

mod a64;
mod a64_forms;
mod atomics;
mod census;
mod corners;
mod decoders;
mod programs;
mod sequences;
mod support;
mod x86;
mod x86_forms;
