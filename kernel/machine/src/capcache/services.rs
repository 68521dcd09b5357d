//! The services that rows need besides memory, for the fast path: words that this CPU has cached, where
//! caches are coherent.

use core::sync::atomic::AtomicU64;

use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef};
use dyad_shm::intent::IntentRecord;
use dyad_shm::protocol::{EpochSource, Intents, Log};

use crate::memory::{CoherentWords, load_coherent};

/// Epochs, intents and log of this CPU.
#[derive(Clone, Copy)]
pub(super) struct Known<Q> {
    pub words: CoherentWords,
    /// The line of its intents.
    pub intent: &'static [AtomicU64; 8],
    /// The shared epoch.
    pub epoch: &'static AtomicU64,
    /// Whether a stamp is quiesced.
    pub quiet: Q,
}

impl<Q: Fn(Epoch) -> bool> EpochSource for Known<Q> {
    #[inline(always)]
    fn now(&self) -> Epoch {
        self.words.fence();
        Epoch::saturating(load_coherent(self.epoch))
    }

    #[inline(always)]
    fn quiesced(&self, stamp: Epoch) -> bool {
        (self.quiet)(stamp)
    }
}

impl<Q> Intents for Known<Q> {
    #[inline(always)]
    fn begin(&self, record: &IntentRecord) {
        self.words.store_line(self.intent, record.words());
    }

    #[inline(always)]
    fn clear(&self) {
        self.words.store(&self.intent[0], 0);
    }
}

/// Does nothing: where caches are coherent, no node has to drop a line.
impl<Q> Log for Known<Q> {
    #[inline(always)]
    fn line(&self, _: PhysAddr) {}

    #[inline(always)]
    fn object(&self, _: FrameRef) {}
}
