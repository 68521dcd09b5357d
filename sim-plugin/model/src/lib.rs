//! The simulator's model: caches, coherence between nodes, the link, time. Nothing of QEMU is in
//! here, and nothing depends on the host: the same accesses give the same counts.
//!
//! | module | concern |
//! |---|---|
//! | [`config`] | what is simulated: levels, geometry, latencies, memory model |
//! | [`report`] | what each machine reports |
#![forbid(unsafe_code)]

pub mod config;
pub mod report;
