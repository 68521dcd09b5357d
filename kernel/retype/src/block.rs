//! Splitting and merging untyped blocks: two words change, whatever the size of the block.

use dyad_coherence::GlobalMem;
use dyad_shm::frame::FrameRef;
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::Intents;

use crate::error::Refused;
use crate::table::{FrameTable, aligned, offset};
use crate::word::{FrameType, FrameWord, Order};

impl<M: GlobalMem + ?Sized> FrameTable<'_, M> {
    /// Makes two blocks of half the size of the untyped block at `head`. Returns the head of the
    /// new one.
    ///
    /// # Errors
    ///
    /// [`Refused::WrongOrder`] if the block is one frame; otherwise the reason why the frame cannot be used.
    /// Nothing has changed, except with [`Refused::Lost`] and [`Refused::Corrupt`].
    pub fn split(&self, head: FrameRef, intents: &impl Intents) -> Result<FrameRef, Refused> {
        let (raw, word) = self.word(head)?;
        let FrameType::Untyped(order) = word.ty else {
            return Err(Refused::unusable(word.ty));
        };
        let half = order.half().ok_or(Refused::WrongOrder)?;
        let other = offset(head, half.frames()).ok_or(Refused::Corrupt)?;
        intents.begin(&IntentRecord::frame(Row::Split, head, word.version));
        let done = self.take(head, raw, word.version).and_then(|owned| {
            let cut = self.cut(head, other, half);
            // What the tails say is true also if they were not as expected.
            let order = if cut.is_ok() { half } else { order };
            self.publish(head, owned, FrameWord::given_up(word.version, order))?;
            cut
        });
        intents.clear();
        done.map(|()| other)
    }

    /// Makes a head of the tail in the middle of a block that this node holds.
    fn cut(&self, head: FrameRef, other: FrameRef, half: Order) -> Result<(), Refused> {
        let (raw, word) = self.word(other)?;
        if word.ty != FrameType::Tail(half) {
            return Err(Refused::Corrupt);
        }
        if !lacks!("block::split::stamp") {
            self.stamp(other, self.stamp_of(head)?.epoch)?;
        }
        // No other CPU changes a tail of a block in RETYPING.
        self.cas(other, raw, FrameWord::given_up(word.version, half))?
            .map_err(|_| Refused::Lost)
    }

    /// Merges the untyped block at `head` with the block of the same size behind it. Returns the order of the
    /// new block.
    ///
    /// # Errors
    ///
    /// [`Refused::WrongOrder`] if the blocks differ in size, or together are too large or not aligned;
    /// otherwise the reason why a frame cannot be used. Nothing has changed except `head`'s version, and
    /// except with [`Refused::Lost`].
    pub fn merge(&self, head: FrameRef, intents: &impl Intents) -> Result<Order, Refused> {
        match self.word(head)?.1.ty {
            FrameType::Untyped(order) => self.merge_of(head, order, intents),
            other => Err(Refused::unusable(other)),
        }
    }

    /// Merges a block that still has this size. It is for callers that own no larger block.
    ///
    /// # Errors
    ///
    /// As [`merge`](Self::merge); [`Refused::Contended`] if it has another size.
    pub fn merge_of(
        &self,
        head: FrameRef,
        size: Order,
        intents: &impl Intents,
    ) -> Result<Order, Refused> {
        let (raw, word) = self.word(head)?;
        let FrameType::Untyped(order) = word.ty else {
            return Err(Refused::unusable(word.ty));
        };
        if order != size {
            return Err(Refused::Contended);
        }
        let double = order
            .double()
            .filter(|&d| aligned(head, d))
            .ok_or(Refused::WrongOrder)?;
        let other = offset(head, order.frames()).ok_or(Refused::NoFrame)?;
        joinable(self.word(other)?.1, order)?;
        intents.begin(&IntentRecord::frame(Row::Merge, head, word.version));
        let done = self.take(head, raw, word.version).and_then(|owned| {
            let joined = self.join(head, other, order);
            let order = if joined.is_ok() { double } else { order };
            self.publish(head, owned, FrameWord::given_up(word.version, order))?;
            joined
        });
        intents.clear();
        done.map(|()| double)
    }

    /// Makes a tail of an untyped block behind one that this node holds.
    fn join(&self, head: FrameRef, other: FrameRef, order: Order) -> Result<(), Refused> {
        let (raw, word) = self.word(other)?;
        let tail = joinable(word, order)?;
        // After the word, as in a claim: a newer stamp comes with another word.
        if !lacks!("block::merge::stamp") {
            self.stamp(head, self.stamp_of(other)?.epoch)?;
        }
        self.cas(other, raw, tail)?.map_err(|_| Refused::Contended)
    }
}

/// The word of the second of two blocks after they are merged.
fn joinable(word: FrameWord, order: Order) -> Result<FrameWord, Refused> {
    match word.ty {
        FrameType::Untyped(o) if o == order => {}
        FrameType::Untyped(_) | FrameType::Tail(_) => return Err(Refused::WrongOrder),
        other => return Err(Refused::unusable(other)),
    }
    let next = word.version.next().ok_or(Refused::Retired)?;
    Ok(FrameWord::new(next, FrameType::Tail(order)))
}
