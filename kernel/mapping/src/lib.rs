//! The rows of the protocol that put a page into a page table and take it out, each written once ([`row`]).
//!
//! | row | steps, in order |
//! |---|---|
//! | [map](row::map) | intent; pin table; pin frame; fence, table still linked; quiesced(s); CAS Empty(s) -> leaf; log the table; intent cleared |
//! | [map from peer](row::copy) | map, with the frame's current version; fence; look at the source again; if it has changed, unmap; only then intent cleared |
//! | [unmap](row::unmap) | intent; fence, neither frame nor table is being recovered; CAS leaf -> Closing; log frame and table; fence, s = E; Closing -> Empty(s); unpin both; intent cleared |
//!
//! | instantiation | words | used by |
//! |---|---|---|
//! | [`Walked`] | found by a walk, at memory; pages of any size | operations, page faults, copies, evacuation |
//! | [`Plain`] | remembered, coherent caches; clean 4 KiB pages | fast paths of map, unmap and page faults |
//!
//! Every present entry pins the table it is in and the block of its page. *Map* looks at the link of the table after it has
//! pinned the table; *unlink* looks at the pins after it has closed the link: one of them sees the other. Every function does
//! a constant number of steps.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use(lacks)]
extern crate dyad_coherence;

mod plain;
pub mod row;
mod walked;

pub use plain::{Known, Pinned, Plain};
pub use row::{Entry, NotMapped, NotUnmapped};
pub use walked::{Around, Walked};
