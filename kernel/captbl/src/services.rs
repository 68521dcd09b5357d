//! What the rows need from the kernel around them, besides memory.

use dyad_shm::frame::{Epoch, FrameRef};
use dyad_shm::intent::IntentRecord;
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::{EpochSource, Intents, Log};

/// All that rows need: implemented by whatever is time, intents and log of a CPU. [`Parts`] makes
/// it of three.
pub trait Services: EpochSource + Intents + Log {}

impl<S: EpochSource + Intents + Log> Services for S {}

/// [`Services`], put together.
#[derive(Debug)]
pub struct Parts<'a, E, I, L> {
    /// Time, as reclamation knows it.
    pub epochs: &'a E,
    /// Where this CPU records what it begins.
    pub intents: &'a I,
    /// Where this CPU notes what it has changed.
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
