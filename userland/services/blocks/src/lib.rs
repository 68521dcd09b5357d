//! The block allocator as decisions: which node owns which block of memory, who gets the next one,
//! and from whom it is taken if none is free. What is decided is carried out by init.
//!
//! Pools are divided into *blocks* of one size. Each node begins with as little as it can: what lies
//! beside the first whole block of its own pool, or that block if there is next to nothing beside it.
//! Everything else is known, and nobody's.
//!
//! ```text
//!            assign                 begin                     done
//!   FREE ───────────▶ OWNED(v) ───────────▶ LEAVING(v -> r) ───────▶ OWNED(r)
//!                        ▲                        │
//!                        └──────── abandon ───────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`book`] | the state of every block; which block, which victim |
//! | [`keeper`] | who has the books, and what becomes of them if that one is lost |
//! | [`holding`] | the frames of a node, as few runs, and how many of them are open to its faults |
//!
//! # Pressure
//!
//! The pressure of a node is the share of the frames it owns that are in use. Above
//! [`PRESSURE`](dyad_abi::service::memory::PRESSURE) per cent it asks for another block. To notice
//! that costs nothing: faults are shown no more than that share of what the node owns
//! ([`Holding::open`]), so the fault that finds none is the one that passes it.
//!
//! A block is taken from a node only if its pressure *after that* is below that of the node which
//! asks: the larger of the two pressures falls with every block, so it ends, and no node gives what
//! it needs.
//!
//! Everything here is bounded by the number of blocks and nodes, and allocates nothing.
#![no_std]
#![forbid(unsafe_code)]

pub mod book;
pub mod holding;
pub mod keeper;

pub use book::{Block, Book, Need, State};
pub use holding::{Holding, Run};
pub use keeper::Keeper;

/// Runs of frames that a node's holding can have: those that a supply of the kernel can have.
pub const MAX_RUNS: usize = 5;
