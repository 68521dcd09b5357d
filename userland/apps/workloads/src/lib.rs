//! Small programs whose use of memory is known: what the simulator is validated with and what its
//! speed is measured on. Pure computation, the same in user programs and on the host.
//!
//! A [`Load`] does its work in *passes*, each of which does the same number of
//! [steps](Load::steps):
//!
//! | load | a step | what is known about it |
//! |---|---|---|
//! | [`matmul`] | a multiplication | good locality, most instructions in one loop |
//! | [`sort`] | an element | library code, branches |
//! | [`ring`] | a load that depends on the one before | hits or misses always, by size |
//! | [`random`] | an independent load | misses in the proportion in which memory exceeds a cache |
//! | [`stream`] | a load and a store of the next word | misses once per line |
//! | [`bench`](mod@bench) | an iteration of NPB IS or CG | real programs |
//!
//! Besides there are [`bfs`], searches of random graphs, and [`micro`], the small measurements of
//! earlier systems with hooks in the place of what they measure.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bench;
pub mod bfs;
pub mod matmul;
pub mod micro;
pub mod random;
pub mod ring;
pub mod rng;
pub mod sort;
pub mod stream;

/// Bytes of a cache line on every machine simulated.
pub const LINE: usize = 64;

/// A program that can be repeated.
pub trait Load {
    /// Does everything once.
    fn pass(&mut self);

    /// Steps of a pass.
    fn steps(&self) -> u64;

    /// Whether the last pass has done what it should. False before the first one.
    fn check(&self) -> bool;
}
