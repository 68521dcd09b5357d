//! Kernels of the NAS Parallel Benchmarks, written for Dyad: pure computation in steps, so that
//! the caller decides where each step runs.
//!
//! | module | benchmark |
//! |---|---|
//! | [`is`] | IS, integer sort |
//! | [`cg`] | CG, conjugate gradients |
//! | [`mod@class`] | sizes of problems |
//! | [`rng`] | the generator they share |
//! | [`checksum`] | FNV-1a-64, for comparing results between runs |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cg;
pub mod checksum;
pub mod class;
pub mod is;
pub mod rng;
