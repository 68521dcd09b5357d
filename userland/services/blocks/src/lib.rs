//! The block allocator: which node owns which block of memory, who gets the next one, from whom it is
//! taken if none is free, and how. What it needs of the kernel it calls by a trait ([`Kernel`]): init's
//! makes system calls, that of the tests is a model in which nodes die at every step.
//!
//! Pools are divided into *blocks* of one size. Each node begins with as little as it can: what lies
//! beside the first whole block of its own pool, or that block if there is next to nothing beside it.
//! Everything else is known, and has no owner.
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
//! | [`answers`] | what programs may ask about the books, without a lock |
//! | [`book`] | the state of every block; which block, which victim |
//! | [`books`] | all that is known, and what nodes wish; requests of nodes whose faults find no memory |
//! | [`evict`] | how a block is taken from a node, and what becomes of it if that goes wrong |
//! | [`holding`] | the frames of a node, as few runs, and how many of them are open to its faults |
//! | [`kernel`] | what is asked of the kernel |
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

pub mod answers;
pub mod book;
pub mod books;
pub mod evict;
pub mod holding;
pub mod kernel;

pub use answers::{Answers, Start};
pub use book::{Block, Book, Need, State};
pub use books::{Books, Wish};
pub use holding::{Holding, Run};
pub use kernel::{Cost, Kernel};

/// Runs of frames that a node's holding can have: those that a supply of the kernel can have.
pub const MAX_RUNS: usize = 5;
