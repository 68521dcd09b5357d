//! Runtime of Dyad programs, below the crate `dyad`: what all threads of a program share, and how they wait.
//!
//! | module | what for |
//! |---|---|
//! | [`heap`] | the program's heap, and those of nodes |
//! | [`futex`] | waiting for a word of memory to change |
//! | [`sync`] | locks, conditions, barriers made of that |
//! | [`crossing`] | calls of functions that run on one ISA |
//! | [`spine`] | threads that change their ISA inside of plain functions |
//! | [`emulation`] | threads that are stopped anywhere and interpreted on another ISA |
//! | this one | [`Lock`], which services use too, and statics of a program's first thread |
//!
//! On the host all of it runs against an emulated system (crate `dyad-host`), for tests.
#![no_std]

#[cfg(not(target_os = "none"))]
extern crate std;

pub mod crossing;
pub mod emulation;
pub mod futex;
pub mod heap;
mod local;
mod lock;
pub mod spine;
pub mod sync;
mod words;

pub use local::ProgramLocal;
pub use lock::{Lock, LockGuard};
pub use words::IncoherentWords;

#[cfg(test)]
mod tests;
