//! The interface between kernels, user programs and host tools: identifiers, error codes, system calls,
//! user-visible structures, boot parameters, console records and the bundle format.
//!
//! This crate depends on nothing, allocates nothing and contains no unsafe code; it is compiled
//! into both kernels, into every user program and into the host tools. Changing anything here
//! that changes meaning requires a new [`ABI_VERSION`].
#![no_std]
#![forbid(unsafe_code)]

pub mod ask;
pub mod boot;
pub mod bundle;
pub mod cap;
pub mod clock;
pub mod emulation;
pub mod error;
pub mod ident;
pub mod marker;
pub mod patterns;
pub mod record;
pub mod service;
pub mod syscall;
pub mod user;

pub use error::{Error, Result};
pub use ident::{CpuId, Isa, NodeId};

/// Version of everything in this crate. Kernels refuse bundles and launchers of another version.
pub const ABI_VERSION: u32 = 1;
