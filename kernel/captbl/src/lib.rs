//! Capability tables: which capabilities a component has, and how they come and go.
//!
//! A component's table is one root of 512 entries; an entry leads to a leaf of 64 slots; a slot is
//! one cache line and holds one capability. A [`CapIndex`](dyad_abi::cap::CapIndex) is the index of
//! the entry and that of the slot. Roots and leaves are frames, retyped by their owners; zeroed
//! ones are empty. A component with the right to change a node may do so on any machine, at the same time as others.
//!
//! ```text
//! root entry   state:8 | 0:8 | epoch:48                                Empty: 0
//!              state:8 | 0:24 | frame:32                               Present: 1
//!              state:8 | 0:16 | node:8 | incarnation:32                Closing: 2
//!
//! slot   w0    0:8 | state:8 | node:8 | type:8 | rights or incarnation:32
//!        w1    0:16 | epoch:48             when the slot was last given up
//!        w2    version:32 | frame:32       the object; all ones: none
//!        w3    version:32 | frame:32       the liveness frame that guards it; all ones: none
//!        w4    entry:16 | expected:48      of the guard; 0 if there is none
//!        w5-w7                             payload, by type
//! ```
//!
//! # States
//!
//! ```text
//!              reserve                      publish
//!      FREE ───────────▶ RESERVED(owner) ───────────▶ ACTIVE(type, rights)
//!      ▲  ▲ not quiet yet:     │                              │
//!      │  └─── give back ──────┤ owner dead                   │ close
//!      │                       ▼                              ▼
//!      └──── stamp ───── CLOSING(owner) ◀──────────── CLOSING(owner)
//!                          └─ owner dead: CLOSING(recoverer) ─┘
//!
//!                cons                decons
//!   Empty(s) ───────────▶ Present ───────────▶ Closing(owner) ──── stamp, recover ────▶ Empty(s)
//! ```
//!
//! An owner is a node in one of its incarnations, so that what a dead node left behind is told from
//! what its next incarnation is doing. A slot that has been given up is not filled again before
//! every node has been quiet since its stamp: **a slot that was found ACTIVE keeps its contents
//! until the CPU that found it leaves the kernel**, whatever becomes of its header. So nothing is
//! read twice.
//!
//! # Order of steps
//!
//! | row | steps, in order | why in this order |
//! |---|---|---|
//! | lookup | load entry; load header; load the rest (acquire, acquire, plain) | a header shows what was written before it |
//! | activate | intent; CAS FREE -> RESERVED; load w1; quiesced (or back to FREE); fill; write-back; CAS -> ACTIVE; log; intent cleared | a stamp read before the reserve may be of an earlier life (S3) |
//! | deactivate | intent; CAS ACTIVE -> CLOSING; log; fence, load E; w1; write-back; CAS -> FREE; intent cleared | a stamp from before the CAS is older than the last use (C1b); in the log before it can be stamped |
//! | copy | rights and payload narrowed; activate | - |
//! | cons | intent; pin root; pin leaf; load entry; quiesced; CAS Empty(s) -> Present; log; intent cleared | an edge never exists without its pins (P1) |
//! | decons | intent; neither leaf nor root is frozen; CAS Present -> Closing; log; fence, load E; CAS -> Empty(s); unpin leaf; unpin root; intent cleared | as for deactivate: the stamp is older than the last use otherwise (C1b) |
//! | recover a slot | CAS RESERVED or CLOSING(dead) -> CLOSING(own); then as deactivate | one recoverer at a time stores to the line |
//! | recover an entry | fence, load E; CAS Closing(dead) -> Empty(s); log | idempotent |
//! | revoke | add 1 to the entry; log; fence, load E | - |
//!
//! Every step is bounded: no row waits or tries again, however many others are at work.
//!
//! # Lines
//!
//! On incoherent machines a line is stored to by one node at a time, or changed by
//! read-modify-writes only. Entries of roots and liveness frames are of the second kind. Headers
//! are too, but the other words of a slot are stored to, by the owner of RESERVED or CLOSING,
//! and written back before the CAS that hands the line on; no other CPU changes any word of the line
//! meanwhile, not even a recoverer, which makes itself the owner first. So no write-back undoes
//! anything.
//!
//! Rows decide by what is in memory. Lookups do not: they read this node's view, so that they
//! cost no more than on private memory. What they see is late by at most one round of their node,
//! which drops the lines that [`Log`] has been told of.
//!
//! A leaf that has been taken out keeps its slots, ACTIVE ones as well: it may be hung in elsewhere
//! at once, and copies of its lines are as good there. They must not survive the leaf. The row that
//! gives the frame up sees to that: a leaf with another version is found through lines
//! that were dropped in the round its frame has waited for.
//!
//! # Recovery
//!
//! Intents say where a dead node was at work. By the time they are read, the leaf may have been
//! given up and be something else: the recoverer checks first that it still has the version in the
//! intent, as for every weak reference, and only then calls [`Table::recover_slot`]. For edges, it
//! freezes leaf and root, waits for a round, calls [`Table::recover_entry`], counts
//! ([`Table::entry`]) and unfreezes.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use(lacks)]
extern crate dyad_coherence;

mod contents;
mod edge;
mod entry;
mod error;
mod header;
mod line;
mod liveness;
mod range;
mod recover;
pub mod slot;
mod table;

use dyad_shm::LayoutHash;

pub use contents::{Contents, GuardRef};
pub use dyad_shm::protocol::{Log, Parts, Services};
pub use edge::{Deconsed, Pins};
pub use entry::RootEntry;
pub use error::Refused;
pub use header::{Owner, SlotHeader, plain};
pub use line::Line;
pub use range::{FrameRange, Span, narrow};
pub use slot::{Filling, Narrowed, SlotPlace, activate, deactivate};
pub use table::{Found, Slot, Table};

/// Bytes of a slot: one cache line.
pub const SLOT_BYTES: u64 = dyad_coherence::LINE_BYTES;
/// Counts in a liveness frame.
pub const LIVENESS_ENTRIES: u64 = dyad_abi::user::PAGE_SIZE / 8;

/// Adds what the words of capability tables mean to the layout hash.
#[must_use]
pub const fn layout(h: LayoutHash) -> LayoutHash {
    contents::samples(entry::samples(header::samples(h.text("capability tables"))))
}
