//! A storm of system calls: random operations on capabilities, from user mode, on all CPUs of all
//! nodes at once.
//!
//! It is run in the place of `init` (`cargo xtask run --bare --app storm`), because only the first
//! program has every capability there is. There are no services: the root thread of each CPU is a
//! *worker* of the storm.
//!
//! ```text
//!  first thread: carves storm memory, seeds capabilities, starts a worker on every CPU
//!     worker n:  operations ── runs guests that are ready ── drives its node's round ──┐
//!        ▲                                                                            │ until the
//!        └────────────────────────────────────────────────────────────────────────────┘ end
//!     guest k:   operations, migration, waiting, invocations that may fail or fault, bad accesses
//!  end: everything is taken back, all storm memory must become untyped, and be usable again
//! ```
//!
//! | option | values | default |
//! |---|---|---|
//! | `--seed` | seed of all generators; worker and guest numbers are mixed in | 1 |
//! | `--ops` | operations of all together | none |
//! | `--seconds` | fused time | 10, none with `--ops` |
//!
//! With `--deaths`, nodes other than the first may die and come back meanwhile: what they were just
//! changing may stay out of use.
//!
//! With `--hostile`, scenes of an attacker and a victim are played instead: see `hostile`.
//!
//! # What may fail how
//!
//! Everything random stays within *storm memory* and a window of addresses, so that the program
//! itself stays whole; arguments are valid, borderline and absurd, and slots, frames and tables are
//! shared by all workers. Which operation succeeds is a matter of luck; that none returns `Corrupt`,
//! or an error that its type of capability does not have, or a value beside an error, is checked
//! for each. Slots are divided by type of capability: a race must not turn an operation into one
//! that harms the program itself.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod actor;
#[cfg(target_os = "none")]
mod calls;
#[cfg(target_os = "none")]
mod deaths;
#[cfg(target_os = "none")]
mod guests;
#[cfg(target_os = "none")]
mod hostile;
#[cfg(target_os = "none")]
mod service;
#[cfg(target_os = "none")]
mod setup;
#[cfg(target_os = "none")]
mod takedown;
#[cfg(target_os = "none")]
mod wild;
#[cfg(target_os = "none")]
mod world;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this runs in the place of Dyad's init: cargo xtask run --bare --app storm");
}
