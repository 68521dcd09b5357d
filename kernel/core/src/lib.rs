//! The ISA-neutral kernel, generic over [`Platform`].
//!
//! | module | concern |
//! |---|---|
//! | [`entry`], [`short`], [`cycle`] | traps; what is done at once; what a CPU does between two traps |
//! | [`ops`] | operations on capabilities |
//! | [`invoke`], [`dispatch`], [`handover`] | components, scheduling, threads that change nodes |
//! | [`quiet`] | quiescence |
//! | [`messages`], [`meet`] | what other CPUs ask for; bounded waits for other nodes |
//! | [`report`], [`end`] | what programs report; orderly shutdown |
//!
//! What all this is done to is in crates below, which are re-exported here: [`object`] (words, tables,
//! kernel objects; [`memory`], [`tables`], [`node`]), [`dyad_machine`] ([`platform`], [`cpu`], [`cx`],
//! [`lookup`], [`view`], [`inbox`], [`clock`], [`console`], [`mod@panic`]) and [`dyad_space`]
//! ([`mapping`], [`resolve`], [`supply`], [`copy`], [`shootdown`]). What a node does
//! once, before it enters [`cycle::run`], is in the crate `dyad-boot`, which calls this one; nothing
//! here calls it.
//!
//! There is no kernel heap: everything lives in the image, in per-CPU areas or in frames that users
//! have retyped. No lock is held across nodes; locks here are local to a node.
#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "host"))]
extern crate std;

#[macro_use(lacks)]
pub extern crate dyad_object as object;

pub mod cycle;
pub mod dispatch;
pub mod end;
pub mod entry;
pub mod fp;
pub mod handover;
#[cfg(any(test, feature = "host"))]
pub mod host;
pub mod invoke;
#[cfg(any(test, feature = "ktest"))]
pub mod ktest;
pub mod meet;
pub mod messages;
pub mod ops;
pub mod quiet;
pub mod report;
pub mod short;

pub use dyad_machine::{
    Platform, clock, console, cpu, cx, debug, error, inbox, info, lookup, panic, platform, view,
    warn,
};
pub use dyad_object::{memory, node, tables};
pub use dyad_space::{copy, mapping, resolve, shootdown, supply};

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
