//! The simulator's model: caches, coherence between nodes, the link, time. Nothing of QEMU is in
//! here, and nothing depends on the host: the same accesses give the same counts.
//!
//! | module | concern |
//! |---|---|
//! | [`config`] | what is simulated: levels, geometry, latencies, memory model |
//! | [`memory`] | physical lines: which are fused, and how far from a node |
//! | `rows` | sets of keys, as both kinds of cache keep them |
//! | [`cache`] | one CPU's own set-associative cache |
//! | [`first`] | the first level of data, and the memo in front of it |
//! | [`last`] | the last level: one CPU's, or several CPUs' |
//! | [`directory`] | who has a fused line: words, transitions |
//! | [`lines`] | the words and times of all fused lines |
//! | [`disturb`] | who is told that a fused line changes hands |
//! | [`calendar`] | when a channel of limited bandwidth carries which line |
//! | [`coherent`] | a CPU's levels in front of the directory |
//! | [`account`] | counters, and where time went |
//! | [`overlap`] | accesses that are under way beside each other |
//! | [`incoherent`] | what kernels forget to write back and to drop, if caches are not coherent |
//! | [`system`] | traps, fences and the like, and their prices |
//! | [`translation`] | TLBs, and the walks that their misses take |
//! | [`trace`] | recorded accesses, and replaying them |
//! | `naive` | the model again, as simply as possible, to compare with (feature `naive`) |
//! | [`clock`] | the fused clock: time, events and order of all CPUs |
//! | [`report`] | what each machine reports |
#![forbid(unsafe_code)]

pub mod account;
pub mod cache;
pub mod calendar;
pub mod clock;
pub mod coherent;
pub mod config;
pub mod directory;
pub mod disturb;
pub mod first;
pub mod incoherent;
pub mod last;
pub mod lines;
pub mod memory;
pub mod merge;
#[cfg(any(test, feature = "naive"))]
pub mod naive;
pub mod overlap;
pub mod report;
mod rows;
pub mod shared;
pub mod system;
pub mod trace;
pub mod translation;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
