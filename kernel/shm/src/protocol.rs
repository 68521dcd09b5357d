//! The services that the rows of the reclamation protocol need: epochs, a place for intents, and a log of
//! changes that other nodes may hold copies of.
//!
//! The rows that change frames, capability tables and page tables take these traits, so that none of them
//! depends on how epochs, intents and logs are kept.
//!
//! | call | order | otherwise |
//! |---|---|---|
//! | [`EpochSource::now`] | after the compare-and-swap that unpublishes: full fence, then load E at memory | a stamp older than the last use |
//! | [`EpochSource::quiesced`] | after the load of the stamp; acquires what the nodes have published | reuse under a node that still looks |
//! | [`Intents::begin`] | in memory before the first compare-and-swap of the row | a death that recovery cannot repair |
//! | [`Intents::clear`] | released after the last change of the row | a row that looks done and is not |
//! | [`Log`] | after the compare-and-swap that unpublishes, before [`EpochSource::now`] | earlier: a round drops the copies, a CPU that still looks brings them back, and no round drops them again; later: a round that counts for the stamp has not read the log |

use crate::frame::{Epoch, FrameRef};
use crate::intent::IntentRecord;
use crate::pool::PhysAddr;

/// The source of epochs for reclamation.
pub trait EpochSource {
    /// The current epoch: a full fence, then a load of the shared epoch word at memory. Called
    /// *after* the compare-and-swap that unpublishes what is to be stamped.
    fn now(&self) -> Epoch;

    /// Whether every node that counts (live or suspect) has been quiet since `stamp`: it has
    /// published an epoch strictly greater. Once true it stays true. Acquires: what follows comes
    /// after the last use by any of them.
    fn quiesced(&self, stamp: Epoch) -> bool;
}

/// The place where one CPU records its intents.
pub trait Intents {
    /// Records what this CPU begins; the record before has been cleared. The whole record is in
    /// memory when this returns, and a CPU that dies before has recorded nothing.
    fn begin(&self, record: &IntentRecord);

    /// Clears the record, after all changes of the row.
    fn clear(&self);
}

/// The log in which one CPU records its changes, so that other nodes drop their copies in their next round.
/// Where caches are coherent, both methods do nothing.
pub trait Log {
    /// Logs that the line of this word has been changed. Other nodes drop older copies before their CPUs
    /// acknowledge a round, so that the CPUs then read the new contents.
    fn line(&self, at: PhysAddr);

    /// Logs that the kernel object in this frame has been untyped. Copies of its lines are dropped after all
    /// CPUs of a node have acknowledged a round: until then one of them may read it, and fetch the lines
    /// again.
    fn object(&self, frame: FrameRef);
}

/// All services that rows need. Implemented by every type that is an epoch source, intents and log of a CPU;
/// [`Parts`] combines three such values.
pub trait Services: EpochSource + Intents + Log {}

impl<S: EpochSource + Intents + Log> Services for S {}

/// [`Services`] combined from three values.
#[derive(Debug)]
pub struct Parts<'a, E, I, L> {
    /// The source of epochs.
    pub epochs: &'a E,
    /// The intents of this CPU.
    pub intents: &'a I,
    /// The log of this CPU.
    pub log: &'a L,
}

impl<E: EpochSource, I, L> EpochSource for Parts<'_, E, I, L> {
    fn now(&self) -> Epoch {
        self.epochs.now()
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        self.epochs.quiesced(stamp)
    }
}

impl<E, I: Intents, L> Intents for Parts<'_, E, I, L> {
    fn begin(&self, record: &IntentRecord) {
        self.intents.begin(record);
    }

    fn clear(&self) {
        self.intents.clear();
    }
}

impl<E, I, L: Log> Log for Parts<'_, E, I, L> {
    #[inline]
    fn line(&self, at: PhysAddr) {
        self.log.line(at);
    }

    #[inline]
    fn object(&self, frame: FrameRef) {
        self.log.object(frame);
    }
}
