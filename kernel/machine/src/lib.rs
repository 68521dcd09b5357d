//! A machine and its CPUs: what the kernel requires of a machine, the private state of a CPU, and its
//! outputs: messages to other CPUs, console lines, time.
//!
//! | module | concern |
//! |---|---|
//! | [`platform`] | what a machine must offer |
//! | [`cpu`], [`chain`] | the state of one CPU |
//! | [`kernel_ctx`], [`lookup`] | the tables as a CPU accesses them; capabilities of the running component |
//! | [`capcache`] | capabilities, components, leaves and pages that a CPU has cached, for the fast path |
//! | [`inbox`] | messages to CPUs of other nodes, doorbells |
//! | [`clock`] | fused time over the machine's own clock |
//! | [`fused`] | the simulator's clock as the machine's own |
//! | [`console`], [`mod@panic`] | output |
//!
//! It is built on the [objects](dyad_object) that all machines share. The crates above implement the kernel's
//! operations with it.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use(lacks)]
extern crate dyad_coherence;

pub mod capcache;
pub mod chain;
pub mod clock;
pub mod console;
pub mod cpu;
pub mod fused;
pub mod inbox;
pub mod kernel_ctx;
pub mod lookup;
pub mod note;
mod of_modules;
pub mod panic;
pub mod platform;

pub use platform::Platform;

// For `platform_of_modules`.
#[doc(hidden)]
pub use {dyad_abi, dyad_pgtbl, dyad_shm};

use dyad_object as object;
use dyad_object::{memory, node};
