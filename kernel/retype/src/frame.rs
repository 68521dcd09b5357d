//! The row `untyped -> Y` for one frame that is a block of its own: what the frame's record says is
//! looked at once. Whatever else it says is left to the long way, which says why not.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::frame::{Epoch, FrameRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::{EpochSource, Intents};

use crate::error::Refused;
use crate::retype::Claim;
use crate::table::{FrameTable, W1_OFFSET};
use crate::word::{StampWord, untyped_frame, version_in};

impl<M: GlobalMem + ?Sized> FrameTable<'_, M> {
    /// [`from_untyped_begin`](FrameTable::from_untyped_begin) for an untyped block of one frame.
    /// Says besides when it was last given up: at [`Epoch::ZERO`] it never was. `None`, and nothing
    /// has changed: it is no such block, or not any more.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`], [`Refused::NotQuiesced`]; nothing has changed.
    #[inline]
    pub fn claim_frame(
        &self,
        frame: FrameRef,
        epochs: &impl EpochSource,
        intents: &impl Intents,
    ) -> Result<Option<(Claim, Epoch)>, Refused> {
        let at = self.record(frame)?;
        let raw = self.mem.load_fresh(at, Ordering::Acquire);
        if !untyped_frame(raw) {
            return Ok(None);
        }
        // After the word: a stamp that comes later comes with another word, and the CAS fails.
        let stamp = self.mem.load_fresh(at.add(W1_OFFSET), Ordering::Acquire);
        let stamp = StampWord::from_bits(stamp).epoch;
        if !lacks!("frame::claim::stamp") && !epochs.quiesced(stamp) {
            return Err(Refused::NotQuiesced);
        }
        let version = version_in(raw);
        intents.begin(&IntentRecord::frame(Row::FromUntyped, frame, version));
        if self.mem.cas(at, raw, self.owned(version).bits()).is_err() {
            intents.clear();
            return Ok(None);
        }
        Ok(Some((Claim::of_frame(frame, version), stamp)))
    }
}
