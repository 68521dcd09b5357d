//! What the rows of the reclamation protocol need from outside: time, and a place for intents.
//!
//! The rows that change frames, capability tables and page tables take these traits, so that none
//! of them depends on how epochs and intents are kept.
//!
//! | call | order | otherwise |
//! |---|---|---|
//! | [`EpochSource::now`] | after the compare-and-swap that unpublishes: full fence, then load E at memory | a stamp older than the last use |
//! | [`EpochSource::quiesced`] | after the load of the stamp; acquires what the nodes have published | reuse under a node that still looks |
//! | [`Intents::begin`] | in memory before the first compare-and-swap of the row | a death that nobody can repair |
//! | [`Intents::clear`] | released after the last change of the row | a row that looks done and is not |

use crate::frame::Epoch;
use crate::intent::IntentRecord;

/// Time, as reclamation knows it.
pub trait EpochSource {
    /// The current epoch: a full fence, then a load of the shared epoch word at memory. Called
    /// *after* the compare-and-swap that unpublishes what is to be stamped.
    fn now(&self) -> Epoch;

    /// Whether every node that counts (live or suspect) has been quiet since `stamp`: it has
    /// published an epoch strictly greater. Once true it stays true. Acquires: what follows comes
    /// after the last use by any of them.
    fn quiesced(&self, stamp: Epoch) -> bool;
}

/// Where one CPU records its intents.
pub trait Intents {
    /// Records what this CPU begins; the record before has been cleared. The whole record is in
    /// memory when this returns, and a CPU that dies before has recorded nothing.
    fn begin(&self, record: &IntentRecord);

    /// Nothing is under way any more. All changes of the row come before.
    fn clear(&self);
}
