//! Quiescence: the condition after which no CPU can still hold what has been unpublished, so that frames and
//! slots may be reused; and the life of nodes, as far as reuse depends on it.
//!
//! A CPU that unpublishes something (unmaps, retypes, frees a slot) takes a *stamp* afterwards,
//! [`now`](Quiescence::now). Every node goes through *rounds*: it takes a new epoch, drops what its caches,
//! TLBs and CPUs may hold from before, and publishes the epoch. A frame or slot with a stamp may be reused
//! when every node that takes part has published a greater epoch: [`quiesced`](Quiescence::quiesced).
//!
//! # A round of a node
//!
//! ```text
//!        begin            logs read         request            all acknowledged
//! Quiet ────────▶ Lines ─────────────▶ Calling ──────▶ Waiting ──────────────────▶ Frames
//!   ▲               └─ a log ran over: everything ─▲                                  │
//!   └──────────────────────────────────── publish ────────────────────────────────────┘
//! ```
//!
//! | step | order | otherwise |
//! |---|---|---|
//! | begin: e = add(E, 1) + 1, then fence | before anything is dropped | stamps below e are missed |
//! | Lines: write back and invalidate lines and tables that have been changed | before the request | TLBs refill from stale lines; CPUs revalidate by them |
//! | [`acknowledge`](Quiescence::acknowledge), each awake CPU: revalidate, flush TLB, fence, store | after its last use, before its next | a use from before the round goes on |
//! | Frames: write back and invalidate unmapped user frames, frames of kernel objects that have been given up | after all acknowledgements (acquire) | a stale TLB entry, or a CPU that has the object in hand, brings their lines back |
//! | publish e | last | reuse under a CPU that still looks |
//!
//! Every step is bounded: [`Round::flush_step`] does at most as many as it is told. An
//! acknowledgement is given where the kernel is entered or left, with no shared reference in hand;
//! it acquires the request, so that later loads see everything stamped before the round.
//!
//! # Idle CPUs
//!
//! A node whose CPUs all sleep publishes that it is always quiet. The publication word says which
//! CPUs are awake, so that "the last one falls asleep" and "somebody woke up meanwhile" are
//! decided by one CAS:
//!
//! ```text
//!                    not the last: flush TLB, CAS
//!        ┌────────────────────────────────────────────┐
//!      awake ──last: LEAVING──▶ caches, then TLB ──CAS─▶ asleep ──wake: or(bit), fence──▶ awake
//!        ▲                                             │
//!        └──────── recheck finds work: wake ───────────┘
//! ```
//!
//! Nobody awake *is* the publication of MAX; the epoch field keeps what was published last. A CPU
//! that falls asleep takes LEAVING away, so that a flush done before it used shared memory does
//! not count (the word would otherwise look unchanged to the CPU that leaves last). The last one
//! drops everything its caches hold, not what logs name: a node that counts as quiet for ever may
//! not hold anything that others unpublish later.
//!
//! # Nodes
//!
//! ```text
//! VACANT ─join─▶ JOINING ─▶ LIVE ◀─suspect, trust─▶ SUSPECT
//!    ▲                        └──────── die ────────────┤
//!    └── recovered ── RECOVERING ◀── recover (claim) ── DEAD
//! ```
//!
//! See [`Quiescence::join`] and its neighbours. A suspect node still counts: suspicion blocks
//! reuse, and nothing else. Only a machine that is gone may be marked DEAD.
//!
//! # Fences and flushes
//!
//! | place | without it |
//! |---|---|
//! | fence of `now`; of a new epoch | a round that counts for a stamp has not seen what was stamped, or logged |
//! | fence of `wake`, of `join` | uses what is reused because it did not count yet |
//! | fence after a request | a CPU that wakes up is neither counted nor called |
//! | fence before the last look for work | sleeps through work |
//! | epoch, publications, states, claims: read at memory | too early reuse, or none; two recoverers |
//! | log: entry and head written through, in this order; both read at memory | stale lines after a round, or a full flush |
//! | intent: written back before the row, its end written through; read at memory | repairs that nobody makes, or too many |
//!
//! The fence of `acknowledge` and the order of its two words stand in for each other. Requests and
//! acknowledgements pass between CPUs of one node, whose caches are coherent; they are written
//! through so that a round that does not end can be looked at from outside. The tests leave out
//! each place, one after the other, and list what is not needed.
//!
//! # Logs
//!
//! Each CPU logs what it has changed that others may hold copies of ([`LogWriter`]); each node
//! reads every log with cursors of its own. A reader that has been lapped flushes everything
//! once. **What is logged must be in the log before it can be stamped**: an unmap logs the frame
//! before it gives up its reference, because another node may stamp the frame right after that.
#![no_std]
#![forbid(unsafe_code)]

mod error;
mod idle;
mod intent;
mod known;
mod life;
mod log;
mod round;
mod words;

pub use dyad_shm::frame::Epoch;
pub use dyad_shm::intent::{IntentRecord, Row};
pub use dyad_shm::protocol::{EpochSource, Intents};

pub use error::{Error, NotQuiesced};
pub use idle::Idle;
pub use intent::CpuIntents;
pub use known::Known;
pub use life::Claim;
pub use log::{DirtyEntry, LogWriter};
pub use round::{NodeHardware, Progress, Round};
pub use words::{Publication, Quiescence};
