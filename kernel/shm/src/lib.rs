//! The fused memory of a system: the places of pools, the structures at their starts, and safe access to
//! them.
//!
//! Every node maps every pool at the same virtual address, [`FUSED_BASE`]` + physical address`, so an address
//! in shared memory means the same on all nodes. This crate defines the pools ([`pool`]) and the structures
//! in them ([`superblock`], [`frame`], [`quiesce`], [`intent`], [`clock`]). It computes the hash by which two
//! kernels compare those structures ([`layout`]), and turns physical addresses into checked references
//! ([`FusedMap`]). [`protocol`] has the traits between the crates of the reclamation protocol, and
//! [`permitted`] the reads that may be stale.
//!
//! Shared structures are made of naturally aligned atomic words only, are valid for every bit
//! pattern (zero included, which is what a new pool holds), and contain no pointer into one
//! node's image. The [`Shared`] trait is that promise.
//!
//! Unsafe code is confined to [`map`].
#![no_std]

#[cfg(any(test, feature = "host"))]
extern crate std;

pub mod clock;
pub mod frame;
pub mod intent;
pub mod layout;
pub mod map;
pub mod permitted;
pub mod pool;
pub mod protocol;
pub mod quiesce;
pub mod superblock;

pub use frame::{Epoch, FrameEntry, FrameRef, Version, WeakRef};
pub use intent::{IntentRecord, Row};
pub use layout::LayoutHash;
pub use map::{FusedMap, Shared};
pub use pool::{PhysAddr, PoolId};
pub use protocol::{EpochSource, Intents};
pub use superblock::Superblock;

/// Virtual address of physical address 0 in the fused direct map. Only pools are mapped there.
pub const FUSED_BASE: u64 = 0xFFFF_8000_0000_0000;
/// One past the last address of the fused direct map.
pub const FUSED_END: u64 = 0xFFFF_C000_0000_0000;
/// Start of the window onto a node's private RAM (below 4 GiB).
pub const PRIVATE_BASE: u64 = 0xFFFF_E000_0000_0000;
/// Start of the window onto a node's devices.
pub const MMIO_BASE: u64 = 0xFFFF_E800_0000_0000;
/// Start of per-CPU areas and kernel stacks.
pub const PERCPU_BASE: u64 = 0xFFFF_F000_0000_0000;
/// The address where kernel images are linked.
pub const IMAGE_BASE: u64 = 0xFFFF_FFFF_8000_0000;

/// Whether a kernel virtual address means the same on every node: the only kind of address that
/// may be stored in shared memory.
pub const fn is_fused(va: u64) -> bool {
    va >= FUSED_BASE && va < PRIVATE_BASE
}
