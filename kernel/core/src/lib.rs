//! The ISA-neutral kernel, generic over [`Platform`](dyad_machine::Platform).
//!
//! | room | concern | uses |
//! |---|---|---|
//! | [`sched`] | which thread a CPU runs: dispatch, waiting, floating-point state, quiescence | the crates below |
//! | [`migrate`] | threads that change nodes: handoff, jump, crossing calls, spinning | `sched` |
//! | [`run_loop`] | what a CPU does between two traps: messages, barriers, shutdown, reports of faults | `migrate`, `sched` |
//! | [`syscall`] | traps and system calls: entry, fast path, operations, invocation | all of them |
//!
//! A room uses rooms above it in this table only, and modules use each other without circles: the test `rooms` checks
//! both.
//!
//! Kernel objects are in [`dyad_object`], CPUs and capability caches in [`dyad_machine`], address spaces in
//! [`dyad_space`]. What a node does once, before it enters [`run_loop::run`], is in the crate `dyad-boot`.
//!
//! # How a call goes through
//!
//! ```text
//!   arch ─▶ entry::syscall ─▶ fastpath ──what it expects is there──▶ done, back in registers
//!                                    │ else
//!                                    ▼
//!            ops::call ─▶ lookup, right, guard, version ─▶ ops::{captbl, memory, thread, ..}
//!                                                             │ value       │ another thread runs
//!                                                             ▼             ▼
//!                                             back in registers     run_loop::switched ─▶ resume ─▶ arch
//!   arch ─▶ entry::interrupted ─▶ run_loop::run: attend to others, choose, resume ─▶ arch
//! ```
//!
//! # What every function here may rely on, and what not
//!
//! - It runs to its end, with interrupts masked: nothing else happens on this CPU meanwhile. What is the
//!   CPU's own ([`dyad_machine::cpu`]) needs no order.
//! - Other CPUs, of this node and of others, change shared words at any time. What is decided about one is
//!   decided by exchanging it, or looked at once more after something has been pinned.
//! - What was alive when it was looked at is not reused before this CPU has left the kernel, or has
//!   come by [`sched::quiet::acknowledge`]: a reference that has been checked can be followed until then,
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

#[cfg(any(test, feature = "host"))]
#[path = "../host/mod.rs"]
pub mod host;
#[cfg(any(test, feature = "ktest"))]
#[path = "../ktest/mod.rs"]
pub mod ktest;
pub mod migrate;
pub mod run_loop;
pub mod sched;
pub mod syscall;

use dyad_shm::LayoutHash;

/// Hash over every structure that kernels share; see [`dyad_shm::layout`].
pub const LAYOUT_HASH: u64 = {
    let h: LayoutHash = dyad_shm::superblock::LAYOUT;
    let h = dyad_retype::layout(h);
    let h = dyad_captbl::layout(h);
    let h = dyad_object::layout(h);
    let h = dyad_machine::inbox::layout(h);
    let h = dyad_shm::clock::layout(h);
    let h = dyad_pgtbl::layout(h);
    dyad_ring::layout(h).value()
};
