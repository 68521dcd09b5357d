//! Kernels of the NAS Parallel Benchmarks, written for Dyad: pure computation in steps, so that
//! the caller decides where each step runs.
//!
//! | module | benchmark |
//! |---|---|
//! | [`is`] | IS, integer sort |
//! | [`cg`] | CG, conjugate gradients |
//! | [`mg`] | MG, multigrid |
//! | [`ft`] | FT, Fourier transform in three dimensions |
//! | [`kernel`] | what they have in common: named phases |
//! | [`mod@class`] | sizes of problems |
//! | [`rng`] | the generator they share |
//! | [`math`] | elementary functions, the same on every ISA |
//! | [`checksum`] | FNV-1a-64, for comparing results between runs |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cg;
pub mod checksum;
pub mod class;
pub mod ep;
pub mod ft;
pub mod is;
pub mod kernel;
pub mod math;
pub mod mg;
pub mod rng;
