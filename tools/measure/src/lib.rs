//! Measurements: what operations and migrations cost, how fast the simulator is, whether it counts rightly.
//!
//! | module | what for |
//! |---|---|
//! | [`bench`](mod@bench) | runs, statistics, tables and pages of `cargo xtask bench` |
//! | [`sweep`](mod@sweep) | matrices of settings and their table |
//! | [`compare`] | fused kernels against kernels that only exchange messages |
//! | [`sensitivity`] | which conclusions depend on which extension of the simulator |
//! | [`statistics`] | mean, deviation and confidence of repeated measurements |
//! | [`gallery`](mod@gallery) | programs on crates from the registry, compared with the host |
//! | [`npb`] | names of kernels and classes |
//! | [`held`] | many runs, of which only those that fail leave logs |
//! | [`validate`] | comparisons of `cargo xtask validate-sim` |
//! | [`qemu_plugins`] | plugins of others that both compare with |
//!
//! Everything is measured in runs of `dyad-launcher`; the command line is `xtask`.
#![forbid(unsafe_code)]

#[macro_use]
extern crate dyad_launcher;

pub mod bench;
pub mod compare;
pub mod gallery;
pub mod held;
pub mod npb;
pub mod qemu_plugins;
pub mod sensitivity;
pub mod statistics;
pub mod sweep;
pub mod validate;
