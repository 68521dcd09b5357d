//! From power-on to the run loop: everything that a node does once.
//!
//! | module | concern |
//! |---|---|
//! | [`early`] | boot parameters, and what is kept while the boot CPU changes stacks |
//! | [`sequence`] | the order of it all; where `arch/*` enters |
//! | [`kernel_map`] | the kernel half of an address space |
//! | [`device`] | firmware configuration, doorbell |
//! | [`join`] | superblock, place in the node table, clock, LIVE |
//! | [`selftest`] | whether atomic operations are atomic between machines |
//! | [`start`] | the first program |
//!
//! Dependencies go one way: `arch/*` calls this crate, this crate calls the [core](dyad_core). The
//! core never calls back: what it needs from here is in the state that is handed to it
//! ([`dyad_object::node::init`], [`Node::set_incarnation`](dyad_object::node::Node::set_incarnation),
//! [`set_root`](dyad_object::node::Node::set_root)) before [`dyad_core::run_loop::run`] is called,
//! which does not return. So this crate need not be read for what a *running* kernel can do.
#![no_std]
#![deny(unsafe_code)]

pub mod device;
pub mod early;
pub mod join;
pub mod kernel_map;
pub mod selftest;
pub mod sequence;
pub mod start;

pub use sequence::{BootMachine, primary, refuse, secondary};
