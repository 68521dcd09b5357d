//! The ISA-neutral kernel, generic over [`Platform`].
//!
//! | module | concern |
//! |---|---|
//! | [`entry`], [`short`], [`cycle`] | traps; what is done at once; what a CPU does between two traps |
//! | [`ops`] | operations on capabilities |
//! | [`invoke`], [`dispatch`], [`handover`], [`crossing`], [`jump`], [`linger`] | components, scheduling, threads that change nodes |
//! | [`fp`] | floating-point registers, loaded when they are used |
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
//! # How a call goes through
//!
//! ```text
//!   arch ─▶ entry::fast_syscall ─▶ short ──what it expects is there──▶ done, back in registers
//!                                    │ else
//!                                    ▼
//!            ops::call ─▶ lookup, right, guard, version ─▶ ops::{captbl, memory, thread, ..}
//!                                                             │ value       │ another thread runs
//!                                                             ▼             ▼
//!                                             back in registers     cycle::switched ─▶ resume ─▶ arch
//!   arch ─▶ entry::interrupted ─▶ cycle::run: attend to others, choose, resume ─▶ arch
//! ```
//!
//! # What every function here may rely on, and what not
//!
//! - It runs to its end, with interrupts masked: nothing else happens on this CPU meanwhile. What is the
//!   CPU's own ([`cpu`]) needs no order.
//! - Other CPUs, of this node and of others, change shared words at any time. What is decided about one is
//!   decided by exchanging it, or looked at once more after something has been pinned.
//! - What was alive when it was looked at is not reused before this CPU has left the kernel, or has
//!   come by [`quiet::acknowledge`]: a reference that has been checked can be followed until then,
//!   even if what it refers to is given up meanwhile.
//! - What comes from user mode, from messages, or from words that a node which has died may have left is
//!   an allegation. It is checked before it is an index, an address or a state, and a wrong one is an
//!   error, never a panic.
//! - The machine may end at any instruction. What others would have to repair then is announced before it
//!   begins ([`dyad_shm::intent`]).
//!
//! There is no kernel heap: everything lives in the image, in per-CPU areas or in frames that users
//! have retyped. No lock is held across nodes; locks here are local to a node.
#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "host"))]
extern crate std;

#[macro_use(lacks)]
extern crate dyad_coherence;
pub extern crate dyad_object as object;

pub mod crossing;
pub mod cycle;
pub mod dispatch;
pub mod end;
pub mod entry;
pub mod faults;
pub mod fp;
pub mod handover;
#[cfg(any(test, feature = "host"))]
pub mod host;
pub mod invoke;
pub mod jump;
#[cfg(any(test, feature = "ktest"))]
pub mod ktest;
pub mod linger;
pub mod meet;
pub mod messages;
pub mod ops;
pub mod quiet;
pub mod report;
pub mod short;

pub use dyad_machine::{
    Platform, clock, console, cpu, cx, debug, error, fused, inbox, info, lookup, note, panic,
    platform, view, warn,
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
    let h = dyad_shm::clock::layout(h);
    let h = dyad_pgtbl::layout(h);
    dyad_ring::layout(h).value()
};
