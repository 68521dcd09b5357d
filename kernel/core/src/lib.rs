//! The ISA-neutral kernel, generic over [`Platform`].
//!
//! | module | concern |
//! |---|---|
//! | [`platform`] | what a machine must offer |
//! | [`node`], [`cpu`], [`memory`], [`tables`] | this machine's private state; the system's shared tables |
//! | [`clock`], [`meet`] | fused time over the machine's own clock; bounded waits for other nodes |
//! | [`entry`], [`cycle`] | traps; what a CPU does between two of them |
//! | [`ops`], [`cx`] | capabilities and the operations on them |
//! | [`object`] | kernel objects |
//! | [`invoke`], [`view`], [`dispatch`], [`handover`] | components, scheduling, threads that change nodes |
//! | [`mapping`], [`resolve`], [`supply`], [`shootdown`], [`copy`] | address spaces |
//! | [`quiet`], [`death`], [`recovery`] | quiescence; nodes that die |
//! | [`inbox`] | messages between CPUs of different nodes, doorbells |
//! | [`console`], [`end`], [`mod@panic`] | output, reports, orderly shutdown |
//!
//! What a node does once, before it enters [`cycle::run`], is in the crate `dyad-boot`, which calls
//! this one; nothing here calls it.
//!
//! There is no kernel heap: everything lives in the image, in per-CPU areas or in frames that users
//! have retyped. No lock is held across nodes; locks here are local to a node.
#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "host"))]
extern crate std;

#[macro_use]
mod mutants;

pub mod clock;
pub mod console;
pub mod copy;
pub mod cpu;
pub mod cx;
pub mod cycle;
pub mod death;
pub mod dispatch;
pub mod end;
pub mod entry;
pub mod handover;
#[cfg(any(test, feature = "host"))]
pub mod host;
pub mod inbox;
pub mod invoke;
#[cfg(any(test, feature = "ktest"))]
pub mod ktest;
pub mod mapping;
pub mod meet;
pub mod memory;
pub mod node;
pub mod object;
pub mod ops;
pub mod panic;
pub mod platform;
pub mod quiet;
pub mod recovery;
pub mod resolve;
pub mod shootdown;
pub mod short;
pub mod supply;
pub mod tables;
pub mod view;

pub use platform::Platform;

use dyad_shm::LayoutHash;

/// Hash over every structure that kernels share; see [`dyad_shm::layout`].
pub const LAYOUT_HASH: u64 = {
    let h: LayoutHash = dyad_shm::superblock::LAYOUT;
    let h = dyad_retype::layout(h);
    let h = dyad_captbl::layout(h);
    let h = object::layout(h);
    let h = inbox::layout(h);
    let h = dyad_pgtbl::layout(h);
    dyad_ring::layout(h).value()
};
