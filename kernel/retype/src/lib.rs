//! The frame table: the use of each 4 KiB frame of every pool, its references, and the condition for its
//! reuse.
//!
//! ```text
//! w0 = version:32 | type:3 | kind:5 | refs:24      (type, version and references change in one CAS)
//! w1 = asked:8 | epoch:48 | executed_on:8           (when the frame was given up; who ran code in it: [`executed`])
//! ```
//!
//! # States
//!
//! ```text
//!              from_untyped_begin                 from_untyped_finish
//!   UNTYPED v ────────────────────▶ RETYPING(n) v ────────────────────▶ User v, Kernel(kind) v
//!      ▲  ▲                           │  │  │  ▲                             │    ▲   │ pin, unpin:
//!      │  └── split, merge, abandon ──┘  │  │  └── to_untyped (refs = 0) ────┤    │   │ refs ± 1
//!      │         (version + 1)           │  │                         freeze │    │ unfreeze
//!      └──── to_untyped, recover_frame ──┘  └─▶ RETIRED                      ▼    │
//!                (stamp, version + 1)           (no version left)       FROZEN(was) v  unpin, recount
//!
//!   TAIL ◀── merge ── UNTYPED          RESERVED (zeroed memory): every row refuses it
//!   TAIL ── split ──▶ UNTYPED
//! ```
//!
//! | state | `kind` | may have references |
//! |---|---|---|
//! | RESERVED, RETIRED | 0 | no |
//! | UNTYPED, User | order of the block | User only |
//! | RETYPING | node | no |
//! | Kernel | what object it is | yes |
//! | FROZEN | as before; 31: User | yes |
//! | TAIL | trailing zeros of its index | no, its head has them |
//!
//! # Blocks
//!
//! A block of order k is 2^k frames, aligned to its size: a head, whose words stand for the whole
//! block, and tails. A tail's word says only that it is one and how large a block it could head,
//! so the way from a tail to its head is to clear the lowest bit of the index until the frame is
//! no tail (at most 20 steps), and splitting or merging changes two words however large the block
//! is. The order of a head whose word has no room for it is the number of tails that point at it.
//!
//! # Order of steps
//!
//! | row | steps, in order | why in this order |
//! |---|---|---|
//! | pin | CAS: type, version, refs < max, refs + 1 | one word decides: nothing can change between check and use |
//! | map | intent; pin table; pin frame; (entry) | an entry never exists without its pins |
//! | unmap | intent; fence, [neither is frozen](FrameTable::may_unpin); (entry cleared); unpin frame; unpin table; intent cleared | an entry never exists without its pins; references that are being counted are not given back |
//! | to_untyped | intent; CAS refs = 0 -> RETYPING; log the object and its word; fence, load E; w1; CAS -> UNTYPED v + 1 | a stamp read before the CAS is older than the last use; a round that counts for the stamp finds the log, and what it drops is not looked at again |
//! | from_untyped_begin, retype | load w0; load w1; quiesced; intent; CAS of the whole w0 | a change in between changes w0, and the CAS fails |
//! | from_untyped_finish | contents; write-back, own copies dropped; CAS -> Y; intent cleared | a CPU that sees Y sees the contents; this node is not told when they change |
//! | split | intent; CAS head -> RETYPING; w1 of the new head; CAS tail -> UNTYPED; CAS head -> UNTYPED v + 1 | the new head is never without a stamp |
//! | merge | intent; CAS head -> RETYPING; load w0, w1 of the other; w1 of the head; CAS other -> TAIL; CAS head -> UNTYPED v + 1 | the block has the newer stamp before the other half is gone |
//! | recover_frame | log; fence, load E; w1; CAS RETYPING(dead) -> UNTYPED v + 1 | idempotent: a recoverer that dies has changed only the stamp |
//!
//! Splitting and merging log nothing: no CPU has looked into an untyped block since its stamp.
//!
//! Every CAS acquires and releases. Words are read at memory. Loops end after [`TRIES`] attempts,
//! each of which fails only because another CPU's succeeded.
//!
//! A node that dies in the middle of any row leaves RETYPING(node) behind, which
//! [`recover_frame`](FrameTable::recover_frame) repairs in each case, or references too many, which
//! [`freeze`](FrameTable::freeze), [`recount`](FrameTable::recount) and
//! [`unfreeze`](FrameTable::unfreeze) repair.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use(lacks)]
extern crate dyad_coherence;

mod block;
mod error;
pub mod executed;
mod pins;
pub mod plain;
mod recover;
mod retype;
pub mod row;
pub mod table;
mod weak;
pub mod word;

use dyad_shm::LayoutHash;

pub use dyad_shm::frame::{Epoch, FrameRef, Version, WeakRef};
pub use dyad_shm::intent::{IntentRecord, Row};
pub use dyad_shm::protocol::{EpochSource, Intents, Log};

pub use error::Refused;
pub use retype::Claim;
pub use table::{FrameTable, PoolTables};
pub use word::{FrameType, FrameWord, KernelKind, Order, Refs, StampWord, Use};

/// Most attempts at one compare-and-swap: as many as there can be CPUs.
pub const TRIES: usize = dyad_abi::ident::MAX_NODES * dyad_abi::ident::MAX_CPUS;

/// Adds all that the reclamation protocol shares to the layout hash: what the words of frame
/// records mean, intents, and the [area](dyad_shm::quiesce::QuiesceArea) of rounds.
#[must_use]
pub const fn layout(h: LayoutHash) -> LayoutHash {
    let h = h.text("frame words").word(Order::MAX.get() as u64);
    dyad_shm::quiesce::layout(word::samples(h))
}
