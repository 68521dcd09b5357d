//! A machine and its CPUs: what the kernel needs from one, what a CPU keeps for itself, and the
//! ways out: messages to other CPUs, output, time.
//!
//! | module | concern |
//! |---|---|
//! | [`platform`] | what a machine must offer |
//! | [`cpu`], [`chain`] | the state of one CPU |
//! | [`kernel_ctx`], [`lookup`] | the tables, in the name of a CPU; capabilities of what runs there |
//! | [`capcache`] | what a CPU has cached of capabilities, components, leaves and pages, for the fast path |
//! | [`inbox`] | messages to CPUs of other nodes, doorbells |
//! | [`clock`] | fused time over the machine's own clock |
//! | [`fused`] | the simulator's clock as the machine's own |
//! | [`console`], [`mod@panic`] | output |
//!
//! It stands on the [objects](dyad_object) that all machines share. What the kernel does with all this
//! is in the crates above.
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
