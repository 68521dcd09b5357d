//! The places of records, and the path from a frame to the head of its block.

use core::ops::Range;
use core::sync::atomic::Ordering;

use dyad_abi::NodeId;
use dyad_coherence::{GlobalMem, Word};
use dyad_shm::FrameEntry;
use dyad_shm::frame::{Epoch, FrameRef, Version};
use dyad_shm::pool::{MAX_POOLS, PhysAddr, PoolId};

use crate::error::Refused;
use crate::row::{self, Record, RecordAt};
use crate::word::{FrameType, FrameWord, Order, StampWord};

const ENTRY_BYTES: u64 = size_of::<FrameEntry>() as u64;
pub(crate) const W1_OFFSET: u64 = core::mem::offset_of!(FrameEntry, w1) as u64;
const INDEX_LIMIT: u64 = 1 << 28;

/// The places of the records of each pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTables {
    /// Start of the records and number of frames, by pool.
    pools: [(PhysAddr, u64); MAX_POOLS],
}

impl PoolTables {
    /// Tables without any pool.
    pub const fn new() -> PoolTables {
        PoolTables {
            pools: [(PhysAddr(0), 0); MAX_POOLS],
        }
    }

    /// A copy of the table with one more pool: `frames` frames whose records start at `records`.
    #[must_use]
    pub const fn with(mut self, pool: PoolId, records: PhysAddr, frames: u64) -> PoolTables {
        let frames = if frames < INDEX_LIMIT {
            frames
        } else {
            INDEX_LIMIT
        };
        self.pools[pool.index()] = (records, frames);
        self
    }

    /// Address of a frame's record.
    #[inline]
    pub fn record(&self, frame: FrameRef) -> Option<PhysAddr> {
        let (records, frames) = self.pools[frame.pool().index()];
        (frame.index() < frames).then(|| records.add(frame.index() * ENTRY_BYTES))
    }
}

/// The frames of all pools, as one node works on them.
#[derive(Debug)]
pub struct FrameTable<'m, M: ?Sized> {
    pub(crate) mem: &'m M,
    pools: PoolTables,
    pub(crate) node: NodeId,
}

impl<M: ?Sized> Clone for FrameTable<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: ?Sized> Copy for FrameTable<'_, M> {}

impl<'m, M: GlobalMem + ?Sized> FrameTable<'m, M> {
    /// The frames of `pools`, changed in the name of `node`.
    pub const fn new(mem: &'m M, pools: PoolTables, node: NodeId) -> FrameTable<'m, M> {
        FrameTable { mem, pools, node }
    }

    /// The first word of a frame's own record.
    ///
    /// # Errors
    ///
    /// As [`read`](FrameTable::read).
    #[inline]
    pub fn look(&self, frame: FrameRef) -> Result<FrameWord, Refused> {
        Ok(self.word(frame)?.1)
    }

    /// The words of a frame's own record.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`], [`Refused::Corrupt`].
    pub fn read(&self, frame: FrameRef) -> Result<(FrameWord, StampWord), Refused> {
        let (_, word) = self.word(frame)?;
        Ok((word, self.stamp_of(frame)?))
    }

    /// The head of the block that a frame is in, and the head's word.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`]; [`Refused::Corrupt`]; [`Refused::Stale`] if the block is being split
    /// just now.
    pub fn head(&self, frame: FrameRef) -> Result<(FrameRef, FrameWord), Refused> {
        let (head, _, word) = self.find_head(frame)?;
        Ok((head, word))
    }

    /// The order of the block that `head` heads, as its tails have it. Good for frames whose own
    /// word does not say it, as long as those do not change.
    pub fn order_by_tails(&self, head: FrameRef) -> Order {
        let mut order = Order::FRAME;
        while let Some(larger) = order.double() {
            let tail = offset(head, order.frames()).filter(|_| aligned(head, larger));
            match tail.map(|t| self.word(t)) {
                Some(Ok((_, word))) if word.ty == FrameType::Tail(order) => order = larger,
                _ => break,
            }
        }
        order
    }

    /// Writes the records of some frames of a pool that is not in use yet, as if all frames in `usable` had
    /// never been used: as few untyped blocks as possible. `piece` is the part to write now. Frames outside
    /// of `usable` stay RESERVED.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`] if `piece` reaches beyond the pool or `usable`.
    pub fn format(
        &self,
        pool: PoolId,
        usable: &Range<u64>,
        piece: Range<u64>,
    ) -> Result<(), Refused> {
        if piece.is_empty() {
            return Ok(());
        }
        let (records, frames) = self.pools.pools[pool.index()];
        if piece.start < usable.start || piece.end > usable.end.min(frames) {
            return Err(Refused::NoFrame);
        }
        for index in piece.clone() {
            let word = FrameWord::new(Version(0), first_type(index, usable));
            let at = records.add(index * ENTRY_BYTES);
            self.mem.store(at, word.bits(), Ordering::Relaxed);
            self.mem.store(at.add(W1_OFFSET), 0, Ordering::Relaxed);
        }
        // To memory, and no copy stays: this node is not told when others use the frames.
        let start = records.add(piece.start * ENTRY_BYTES);
        self.mem
            .invalidate(start, (piece.end - piece.start) * ENTRY_BYTES);
        Ok(())
    }

    /// Address of a frame's record; `None` if no pool has the frame.
    #[inline]
    pub fn record_at(&self, frame: FrameRef) -> Option<PhysAddr> {
        self.pools.record(frame)
    }

    #[inline]
    pub(crate) fn record(&self, frame: FrameRef) -> Result<PhysAddr, Refused> {
        self.pools.record(frame).ok_or(Refused::NoFrame)
    }

    /// The record of a frame.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`].
    #[inline]
    pub fn record_of(&self, frame: FrameRef) -> Result<RecordAt<'m, M>, Refused> {
        Ok(RecordAt {
            mem: self.mem,
            at: self.record(frame)?,
        })
    }

    #[inline]
    pub(crate) fn word(&self, frame: FrameRef) -> Result<(u64, FrameWord), Refused> {
        let raw = self.record_of(frame)?.w0().load();
        Ok((raw, FrameWord::from_bits(raw).ok_or(Refused::Corrupt)?))
    }

    pub(crate) fn find_head(&self, frame: FrameRef) -> Result<(FrameRef, u64, FrameWord), Refused> {
        let mut at = frame;
        // Each step clears a bit below those that the largest block's alignment leaves.
        for _ in 0..=Order::MAX.get() {
            let (raw, word) = self.word(at)?;
            let FrameType::Tail(order) = word.ty else {
                return match word.ty {
                    FrameType::Untyped(order) | FrameType::User(order)
                        if frame.index() - at.index() >= order.frames() =>
                    {
                        Err(Refused::Stale)
                    }
                    _ => Ok((at, raw, word)),
                };
            };
            let above = at.index() & (at.index().wrapping_sub(1));
            if at.index() == 0 || at.index() - above != order.frames() {
                return Err(Refused::Corrupt);
            }
            at = in_pool(at, above).ok_or(Refused::Corrupt)?;
        }
        Err(Refused::Corrupt)
    }

    /// Replaces a word; `Err` has the word that is there instead.
    #[inline]
    pub(crate) fn cas(
        &self,
        frame: FrameRef,
        old: u64,
        new: FrameWord,
    ) -> Result<Result<(), u64>, Refused> {
        let at = self.record(frame)?;
        Ok(self.mem.cas(at, old, new.bits()).map(|_| ()))
    }

    /// Replaces the word of a frame that this node holds in RETYPING.
    #[inline]
    pub(crate) fn publish(
        &self,
        frame: FrameRef,
        owned: FrameWord,
        new: FrameWord,
    ) -> Result<(), Refused> {
        row::publish(&self.record_of(frame)?, owned.bits(), new.bits())
    }

    pub(crate) fn stamp_of(&self, frame: FrameRef) -> Result<StampWord, Refused> {
        Ok(StampWord::from_bits(self.record_of(frame)?.w1().load()))
    }

    /// Makes the stamp of a frame at least `epoch`, and keeps the bits of the nodes that have executed it.
    pub(crate) fn stamp(&self, frame: FrameRef, epoch: Epoch) -> Result<(), Refused> {
        row::stamp(&self.record_of(frame)?, epoch)
    }
}

/// The frame with this index in the pool of `frame`.
fn in_pool(frame: FrameRef, index: u64) -> Option<FrameRef> {
    let pool = frame.bits() as u64 & !(INDEX_LIMIT - 1);
    (index < INDEX_LIMIT)
        .then_some((pool | index) as u32)
        .and_then(FrameRef::from_bits)
}

/// The frame `n` frames further on in the same pool.
pub(crate) fn offset(frame: FrameRef, n: u64) -> Option<FrameRef> {
    in_pool(frame, frame.index().checked_add(n)?)
}

/// Whether a block of this order can start at `frame`.
#[inline]
pub(crate) fn aligned(frame: FrameRef, order: Order) -> bool {
    frame.index().is_multiple_of(order.frames())
}

/// The type a frame has before anything has been done: the head or a tail of the largest block
/// around it that lies within `usable`.
fn first_type(index: u64, usable: &Range<u64>) -> FrameType {
    let mut order = Order::FRAME;
    let mut head = index;
    while let Some(larger) = order.double() {
        let start = index & !(larger.frames() - 1);
        if start < usable.start || start + larger.frames() > usable.end {
            break;
        }
        (order, head) = (larger, start);
    }
    if head == index {
        return FrameType::Untyped(order);
    }
    match Order::new(index.trailing_zeros() as u64) {
        Some(own) => FrameType::Tail(own),
        // No frame within a block is aligned more than the block.
        None => FrameType::Reserved,
    }
}
