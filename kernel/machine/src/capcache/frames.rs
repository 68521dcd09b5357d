//! Ranges of frames that this CPU has cached: their records, and what the rows to and from untyped need
//! besides. For blocks of one frame, and coherent caches only.
//!
//! | checked before each use | also relies on |
//! |---|---|
//! | nothing: a range has no object, and records never move | the slot is unchanged ([the capability cache](super)) |
//!
//! [`dyad_retype::row`] defines the steps and their order.

use core::cell::Cell;
use core::sync::atomic::AtomicU64;

use dyad_captbl::FrameRange;
use dyad_retype::plain;
use dyad_retype::row;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::{FrameEntry, PhysAddr};

use super::services::Known;
use super::{NO_LINE, NOTHING};
use crate::cpu::CpuLocal;
use crate::kernel_ctx::{KernelCtx, Operand};
use crate::memory::{CoherentRecord, CoherentWords};

/// Words of this CPU that rows need.
pub(crate) struct OwnWords {
    /// The line of its intents.
    intent: Cell<&'static [AtomicU64; 8]>,
    /// The shared epoch.
    epoch: Cell<&'static AtomicU64>,
    /// The low half of the word of a frame that this node is retyping.
    retyping: Cell<u64>,
}

impl OwnWords {
    pub(super) const fn new() -> OwnWords {
        OwnWords {
            intent: Cell::new(&NO_LINE),
            epoch: Cell::new(&NOTHING),
            retyping: Cell::new(0),
        }
    }
}

/// The frames of a Memory capability, where caches are coherent.
#[derive(Clone, Copy)]
pub struct Range {
    words: CoherentWords,
    records: &'static [FrameEntry],
}

impl Range {
    /// The range of a Memory capability. Also caches the CPU's own words.
    pub fn of(cx: &KernelCtx, o: &Operand) -> Option<Range> {
        let words = cx.words().if_coherent()?;
        let range = FrameRange::from_payload(o.payload)?;
        let (map, own) = (cx.node.map, &cx.local.cache.own);
        own.intent.set(map.get(cx.intents().line())?);
        own.epoch.set(&cx.node.sb.epoch);
        own.retyping.set(plain::retyping(cx.node.id()));
        let records = cx.frames().record_at(range.first())?;
        // The last one has a record, too: the range is within its pool, and so is everything between.
        let last = u32::try_from(range.count() - 1).ok()?;
        let last = range.first().bits().checked_add(last)?;
        cx.frames().record_at(FrameRef::from_bits(last)?)?;
        Some(Range {
            words,
            records: map.all(records, range.count())?,
        })
    }

    /// Frame `at` of the range; `first` is the capability's number of its first frame.
    #[inline(always)]
    pub fn frame(self, local: &'static CpuLocal, first: u64, at: u64) -> Option<OneFrame> {
        Some(OneFrame {
            own: &local.cache.own,
            record: CoherentRecord {
                words: self.words,
                at: self.records.get(at as usize)?,
            },
            // All of them are in one pool: frames are numbered through.
            number: first.wrapping_add(at),
        })
    }
}

/// A frame of a range, ready for a row.
#[derive(Clone, Copy)]
pub struct OneFrame {
    own: &'static OwnWords,
    record: CoherentRecord,
    number: u64,
}

impl OneFrame {
    /// The address of the frame.
    pub fn address(&self) -> Option<PhysAddr> {
        FrameRef::from_bits(self.number as u32).map(FrameRef::address)
    }

    #[inline(always)]
    fn services<Q: Fn(Epoch) -> bool>(&self, quiet: Q) -> Known<Q> {
        Known {
            words: self.record.words,
            intent: self.own.intent.get(),
            epoch: self.own.epoch.get(),
            quiet,
        }
    }

    /// The row [`untyped -> Y`](row::retype): the frame gets the use in `used`, the low half of its new word.
    /// `quiet` tells whether a stamp is quiesced; `zero` fills the frame with zeros. Returns `None` if
    /// nothing has been done; the slow path finds the error.
    #[inline(always)]
    pub fn retype(
        &self,
        used: u64,
        quiet: impl Fn(Epoch) -> bool,
        zero: impl FnOnce() -> bool,
    ) -> Option<()> {
        let frame = WeakRef::from_checked(self.number).frame;
        let words = (self.own.retyping.get(), used);
        row::retype(&self.record, frame, words, zero, &self.services(quiet)).ok()?;
        Some(())
    }

    /// The row [`X -> untyped`](row::give_up_frame), for user memory, or for an object of one of these kinds
    /// (bits by number). Returns the stamp, or `None` if nothing has been done; the slow path finds the
    /// error.
    #[inline(always)]
    pub fn untype(&self, kinds: u32) -> Option<Epoch> {
        let frame = WeakRef::from_checked(self.number).frame;
        let retyping = self.own.retyping.get();
        row::give_up_frame(
            &self.record,
            frame,
            retyping,
            kinds,
            &self.services(|_| false),
        )
        .ok()
    }
}
