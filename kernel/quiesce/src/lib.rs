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
//! # The logs and CPUs that a round goes through
//!
//! A round costs steps for the logs and CPUs there are, not for those there can be. It looks which these
//! are once each:
//!
//! | set | read | otherwise |
//! |---|---|---|
//! | logs: each writer adds its own before its first entry; none is ever taken away | after the fence of the new epoch, at memory | a stamp below e names what this round has not read |
//! | CPUs awake, in the publication word | after all lines are dropped, before the request counts | a CPU that woke up meanwhile has fetched a line before it was dropped, and the round does not wait for it |
//!
//! *A log that comes later.* Let s < e be a stamp for something that CPU c has logged. c adds its log to the
//! set, then writes the entry; both happen before the stamp, also if another CPU takes it. The fence of the
//! stamp comes before that of e, or the stamp would not be below e; so the round, which looks at the
//! set after its fence, finds the log there, and the entry below its head. If it does not find the log, all
//! stamps for what that log names are e or more, and wait for the next round. The set only grows: when a node
//! dies, others have still to read what it has logged, and its next incarnation goes on in the same logs.
//! The word is changed and read at memory only, so no cache has an old copy of it.
//!
//! *A CPU that comes later*, because it is started or wakes up, sets its bit, executes a fence, and only then
//! uses anything shared. If the bit is not there when the round looks, that fence comes after the round's own
//! fence: the CPU sees everything that was unpublished for stamps below e, and fetches no line that the
//! round has dropped, because these are dropped already. If the bit is there, the CPU is asked and
//! waited for. It is past the request once it has acknowledged it, or once it is seen asleep, which it can
//! be at any time after the request: then it has dropped all it had, and comes back as one that comes
//! later. A node that joins drops everything and publishes before it is LIVE; the logs of its CPUs are in
//! the set before that, and its own first round reads every log from where it ended before that flush.
//!
//! A CPU of a node that dies is not waited for by anybody: the node's own round has died with it, and
//! others look at nodes, not at CPUs.
//!
//! Every step is bounded: [`Round::flush_step`] does at most as many as it is told. An
//! acknowledgement is given where the kernel is entered or left, with no shared reference in hand;
//! it acquires the request, so that later loads see everything stamped before the round.
//!
//! # Idle CPUs
//!
//! A node whose CPUs all sleep publishes that it is always quiet. The publication word says which
//! CPUs are awake, so that "the last one falls asleep" and "a CPU woke up meanwhile" are
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
//! A word without awake CPUs *is* the publication of MAX; the epoch field keeps what was published last. A CPU
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
//! | fence before the last look for work | sleeps through work |
//! | epoch, publications, states, claims, set of logs: read at memory | too early reuse, or none; two recoverers |
//! | log: entry and head written through, in this order; both read at memory | stale lines after a round, or a full flush |
//! | intent: written back before the row, its end written through; read at memory | repairs that are not made, or too many |
//!
//! The fence of `acknowledge` and the order of its two words stand in for each other. Requests and
//! acknowledgements pass between CPUs of one node, whose caches are coherent; they are written
//! through so that a round that does not end can be looked at from outside. The tests leave out
//! each place, one after the other, and list what is not needed.
//!
//! # Logs
//!
//! Each CPU logs what it has changed that others may hold copies of ([`LogWriter`]); each node
//! reads every log that is in the set with cursors of its own. A reader that has been lapped flushes everything
//! once. **What is logged must be in the log before it can be stamped**: an unmap logs the frame
//! before it gives up its reference, because another node may stamp the frame right after that.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use(lacks)]
extern crate dyad_coherence;

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
