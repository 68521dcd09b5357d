//! Fused memory whose caches nobody keeps coherent: what a kernel forgets to write back or to drop.
//!
//! The emulator's memory is coherent, so a program under it never sees a stale byte. Here is kept
//! what it *would* have seen: for each line what memory holds, and for each node the copy that its
//! caches may still have. Where the bytes of an access differ from it, the program relied on
//! coherence: that is a [`Finding`]. The state lies in words that all machines of a system share.
//!
//! ```text
//!            load, store: fetch             store
//!   absent ───────────────────▶ clean ───────────────▶ dirty
//!     ▲                         │   ▲                  │   │
//!     ├──── flush, own RMW ─────┘   └── write back ────┘   │
//!     └──── flush, own RMW: write back ────────────────────┘
//! ```
//!
//! | access | acts on | is a finding if |
//! |---|---|---|
//! | load | the node's copy, fetched if there is none | [`Kind::StaleRead`]: the copy holds other bytes than the last ones written by another node |
//! | the same, where memory holds other bytes because their writer has not written them back | | [`Kind::Unpublished`]: it does not do so soon |
//! | store | the node's copy | - |
//! | write-back | memory, the whole line; the copy stays, clean | [`Kind::LostUpdate`]: it takes a word back that another node has changed in memory since |
//! | flush | write-back, then the copy is gone | the same |
//! | read-modify-write | memory | [`Kind::CachedRmw`]: this CPU has fetched a copy that is still there. Hardware would modify that |
//!
//! **Caches are lazy, not random.** A copy stays until its node drops it: no eviction makes a
//! missing flush good, whatever the size of the caches that are simulated beside. Nothing is
//! fetched unasked either, so that what is reported does not depend on chance; memory models with
//! random habits are `coherence::stale`, on the host. One eviction is assumed: when a node reads
//! what another has stored and not yet written back, which coherent memory shows it, then a legal
//! history with the same outcome is one in which the writer's cache has evicted the line just
//! before. The writer *owes* a write-back from then on. It mostly comes a few instructions later: the
//! reader was quick. If it does not come within [`GRACE`] accesses of the writing CPU, the reader
//! would have waited for ever, or gone on with old bytes.
//!
//! **A machine that dies** takes its caches with it: one that is switched on again has no copies. What
//! it had stored last the emulator's memory holds, so its cache has evicted that in time; what it has
//! never written back over something newer is lost, and no finding.
//!
//! **Hardware's own accesses** are not seen: walks of page tables, fetches of instructions.
//!
//! **Bytes decide, not versions**: a copy with the right bytes is right however old. A line that
//! has changed in another word than the one that is read is no finding, nor is a word that has
//! changed and changed back.
//!
//! **Order.** A machine reports an access after it has been made, so reports of two machines may
//! come in another order than the accesses. Accesses that the program has ordered are reported in
//! that order. For others the value that was loaded decides: it is compared with what is known to
//! have been written, and a value of unknown origin (its report is on the way; a launcher or a
//! device has written it) is no finding.
//!
//! | module | concern |
//! |---|---|
//! | [`shape`] | which lines there are, and where their words are |
//! | [`mod@line`] | the words of one line, and its lock |
//! | [`access`] | what accesses do |
//! | [`findings`] | each finding once |
//! | [`waiting`] | reads that wait for a write-back |
//! | [`frames`] | memory of users, which counts as coherent |

pub mod access;
pub mod findings;
pub mod frames;
pub mod line;
pub mod shape;
#[cfg(test)]
mod tests;
pub mod waiting;

pub use access::{Incoherent, Pending, Settled};
pub use findings::{Finding, Findings, Kind};
pub use frames::{Frames, Peek};
pub use line::Who;
pub use shape::Shape;
pub use waiting::Waiting;

/// Accesses to fused memory that a CPU may make between a store that another node has already seen
/// and the write-back: many more than there are in any row of the protocol that publishes.
pub const GRACE: u64 = 1024;
