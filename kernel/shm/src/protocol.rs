//! What the rows of the reclamation protocol need from outside: time, a place for intents, and a
//! log of what others may hold copies of.
//!
//! The rows that change frames, capability tables and page tables take these traits, so that none
//! of them depends on how epochs, intents and logs are kept.
//!
//! | call | order | otherwise |
//! |---|---|---|
//! | [`EpochSource::now`] | after the compare-and-swap that unpublishes: full fence, then load E at memory | a stamp older than the last use |
//! | [`EpochSource::quiesced`] | after the load of the stamp; acquires what the nodes have published | reuse under a node that still looks |
//! | [`Intents::begin`] | in memory before the first compare-and-swap of the row | a death that nobody can repair |
//! | [`Intents::clear`] | released after the last change of the row | a row that looks done and is not |
//! | [`Log`] | after the compare-and-swap that unpublishes, before [`EpochSource::now`] | earlier: a round drops the copies, a CPU that still looks brings them back, and nobody drops them again; later: a round that counts for the stamp has not read the log |

use crate::frame::{Epoch, FrameRef};
use crate::intent::IntentRecord;
use crate::pool::PhysAddr;

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

/// Where one CPU notes what it has changed, so that other nodes drop their copies in their next
/// round. Where caches are coherent, both do nothing.
pub trait Log {
    /// The line of this word has been changed. Copies of before are dropped before the CPUs of a
    /// node acknowledge a round: what they look at afterwards is what is so.
    fn line(&self, at: PhysAddr);

    /// The kernel object in this frame has been given up. Copies of its lines are dropped after all
    /// CPUs of a node have acknowledged a round: until then one of them may look at it, and bring
    /// them back.
    fn object(&self, frame: FrameRef);
}

/// All that rows need: implemented by whatever is time, intents and log of a CPU. [`Parts`] makes
/// it of three.
pub trait Services: EpochSource + Intents + Log {}

impl<S: EpochSource + Intents + Log> Services for S {}

/// [`Services`], put together.
#[derive(Debug)]
pub struct Parts<'a, E, I, L> {
    /// Time, as reclamation knows it.
    pub epochs: &'a E,
    /// Where this CPU records the row that it begins.
    pub intents: &'a I,
    /// Where this CPU notes the lines that it has changed.
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
