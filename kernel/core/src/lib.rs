//! The ISA-neutral kernel, generic over [`Platform`].
//!
//! | module | concern |
//! |---|---|
//! | [`platform`] | what a machine must offer |
//! | [`boot`], [`join`], [`selftest`] | from power-on to a live node |
//! | [`node`], [`cpu`] | this machine's private state; one CPU's private state |
//! | [`clock`] | fused time over the machine's own clock |
//! | [`frames`] | frames of the pools |
//! | [`inbox`] | messages between CPUs of different nodes, doorbells |
//! | [`space`], [`fault`], [`user_copy`] | address spaces with one page table per ISA |
//! | [`thread`], [`sched`], [`migrate`] | threads with one register area per ISA |
//! | [`entry`], [`syscall`] | what happens on traps |
//! | [`loader`] | bundles into address spaces |
//! | [`death`], [`end`] | nodes that die; orderly shutdown and reports |
//! | [`console`], [`mod@panic`] | output |
//! | [`device`], [`kernel_map`] | what both machines share |
//!
//! There is no kernel heap: everything lives in the image, in per-CPU areas or in frames of the
//! pools. No lock is held across nodes; locks here are local to a node.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod boot;
pub mod clock;
pub mod console;
pub mod cpu;
pub mod cx;
pub mod death;
pub mod device;
pub mod end;
pub mod entry;
pub mod fault;
pub mod frames;
#[cfg(test)]
mod host;
pub mod inbox;
pub mod join;
pub mod kernel_map;
#[cfg(feature = "ktest")]
pub mod ktest;
pub mod loader;
pub mod memory;
pub mod migrate;
pub mod node;
pub mod object;
pub mod panic;
pub mod platform;
pub mod sched;
pub mod selftest;
pub mod space;
pub mod syscall;
pub mod tables;
pub mod thread;
pub mod user_copy;

pub use platform::Platform;

use dyad_shm::LayoutHash;

/// Hash over every structure that kernels share; see [`dyad_shm::layout`].
pub const LAYOUT_HASH: u64 = {
    let h: LayoutHash = dyad_shm::superblock::LAYOUT;
    let h = thread::layout(h);
    let h = space::layout(h);
    let h = inbox::layout(h);
    let h = dyad_pgtbl::layout(h);
    dyad_ring::layout(h).value()
};
