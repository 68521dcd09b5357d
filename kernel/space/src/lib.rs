//! Address spaces: one page table per ISA, changed by every node through the drivers of [`dyad_pgtbl`], and
//! the resolution of page faults.
//!
//! | module | concern |
//! |---|---|
//! | [`mapping`] | the rows that change mappings |
//! | [`resolve`], [`supply`] | page faults, and the frames they take |
//! | [`evacuate`] | pages that are moved to other frames while programs run |
//! | [`copy`] | user memory, as the kernel reads and writes it |
//! | [`shootdown`] | translations that other CPUs hold, and translations of code |
//!
//! [`dyad_object::space`] has the objects, [`dyad_machine::capcache::page`] what a CPU caches of them.
//! Authority is checked above, in the operations of `dyad_core`: no capabilities are checked here.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use(lacks)]
extern crate dyad_coherence;

pub mod copy;
pub mod evacuate;
pub mod mapping;
pub mod resolve;
pub mod shootdown;
pub mod supply;

use dyad_machine::{Platform, capcache, cpu, inbox, kernel_ctx, platform};
use dyad_object as object;
use dyad_object::{memory, node};
