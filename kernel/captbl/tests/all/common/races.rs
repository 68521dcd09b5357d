//! What the model checks of slots and of edges share.

use dyad_captbl::Log;
use dyad_coherence::GlobalMem;
use dyad_coherence::model::LoomMem;
pub use dyad_coherence::model::race;
use dyad_shm::frame::Epoch;
use dyad_shm::intent::IntentRecord;
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::{EpochSource, Intents};
use loom::sync::atomic::Ordering;

pub const EPOCH: PhysAddr = PhysAddr(0x1000);
/// What node 1 has published. Node 0 is always quiet.
pub const PUBLISHED: PhysAddr = PhysAddr(0x1040);

macro_rules! unrecorded {
    ($name:ty) => {
        impl Intents for $name {
            fn begin(&self, _: &IntentRecord) {}

            fn clear(&self) {}
        }

        impl Log for $name {
            fn line(&self, _: PhysAddr) {}

            fn object(&self, _: dyad_shm::FrameRef) {}
        }
    };
}

/// Services in which the epoch is 5 and no node has been quiet after epoch 4.
pub struct Loud;

impl EpochSource for Loud {
    fn now(&self) -> Epoch {
        Epoch::new(5).unwrap()
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        stamp.get() < 5
    }
}

unrecorded!(Loud);

/// The epoch word and node 1's publication, in the memory of the model.
pub struct Shared<'m>(pub &'m LoomMem);

impl EpochSource for Shared<'_> {
    fn now(&self) -> Epoch {
        self.0.fence();
        Epoch::saturating(self.0.load(EPOCH, Ordering::Relaxed))
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        self.0.load(PUBLISHED, Ordering::Acquire) > stamp.get()
    }
}

unrecorded!(Shared<'_>);

/// Node 1 goes through a round: it was quiet before, and comes back into the kernel.
pub fn round(m: &LoomMem) {
    let epoch = m.add(EPOCH, 1) + 1;
    m.fence();
    m.store(PUBLISHED, epoch, Ordering::Release);
}
