//! Ranges of frames that this CPU remembers: where their records are, and what the rows
//! `untyped -> Y` and `X -> untyped` need besides. Blocks of one frame, coherent caches only.
//!
//! | looked at before each use | what else it rests on |
//! |---|---|
//! | nothing: a range has no object, and records never move | the slot is what it was ([`view`](super)) |
//!
//! The steps and their order are those of the rows ([`dyad_retype`]); what is different is that words
//! are compared as they are ([`plain`]). Whenever one is not as expected nothing has been done, and
//! the long way says why.
//!
//! | step | order |
//! |---|---|
//! | put to use: word; stamp; intent; word -> RETYPING; zeros; word -> Y; no intent | the stamp after the word: a later one comes with another word |
//! | give up: word; intent; word -> RETYPING; fence, epoch; stamp; word -> UNTYPED, next version; no intent | the stamp after RETYPING: nobody begins with the frame after it |

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_captbl::FrameRange;
use dyad_retype::plain;
use dyad_shm::frame::{Epoch, FrameRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::{FrameEntry, PhysAddr};

use super::{NO_LINE, NOTHING};
use crate::cpu::CpuLocal;
use crate::cx::{Cx, Operand};
use crate::memory::CoherentWords;

/// What rows in the name of this CPU need.
pub(crate) struct OwnWords {
    /// Its intents.
    intent: Cell<&'static [AtomicU64; 8]>,
    /// The shared epoch.
    epoch: Cell<&'static AtomicU64>,
    /// Of frames that this node is changing: the low half of their word.
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
    /// Of a Memory capability. Has the CPU know its own words, too.
    pub fn of(cx: &Cx, o: &Operand) -> Option<Range> {
        let words = cx.words().if_coherent()?;
        let range = FrameRange::from_payload(o.payload)?;
        let (map, own) = (cx.node.map, &cx.local.views.own);
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

    /// Frame `at` of it; `first` is what the capability calls its first frame.
    #[inline(always)]
    pub fn frame(self, local: &'static CpuLocal, first: u64, at: u64) -> Option<OneFrame> {
        Some(OneFrame {
            own: &local.views.own,
            words: self.words,
            record: self.records.get(at as usize)?,
            // All of them are in one pool: frames are numbered through.
            number: first.wrapping_add(at),
        })
    }
}

/// A frame of a range.
#[derive(Clone, Copy)]
pub struct OneFrame {
    own: &'static OwnWords,
    words: CoherentWords,
    record: &'static FrameEntry,
    number: u64,
}

impl OneFrame {
    /// Its address.
    pub fn address(&self) -> Option<PhysAddr> {
        FrameRef::from_bits(self.number as u32).map(FrameRef::address)
    }

    #[inline(always)]
    fn begin(&self, row: Row, raw: u64) {
        let frame = plain::version(raw) | self.number;
        let record = [row as u64 + 1, frame, IntentRecord::NO_TABLE, 0];
        self.words.store_line(self.own.intent.get(), record);
    }

    #[inline(always)]
    fn end(&self) {
        self.words.store(&self.own.intent.get()[0], 0);
    }

    /// Row `untyped -> Y`: the frame becomes what `used`, the low half of its word, says. `quiet`
    /// tells whether a stamp is quiesced; `zero` fills the frame with zeros, if anybody has used it
    /// before. `None`: nothing has been done.
    #[inline(always)]
    pub fn put_to_use(
        &self,
        used: u64,
        quiet: impl FnOnce(Epoch) -> bool,
        zero: impl FnOnce() -> bool,
    ) -> Option<()> {
        let (words, w0) = (self.words, &self.record.w0);
        let raw = w0.load(Ordering::Acquire);
        let stamp = plain::stamp(self.record.w1.load(Ordering::Acquire));
        let ready = plain::is(raw, plain::UNTYPED)
            && (quiet(stamp) || lacks!("view::frames::put_to_use::stamp"));
        if !ready {
            return None;
        }
        let version = plain::version(raw);
        let taken = version | self.own.retyping.get();
        self.begin(Row::FromUntyped, raw);
        let mut done = false;
        if words.exchange(w0, raw, taken) {
            let fresh = stamp == Epoch::ZERO || lacks!("view::frames::put_to_use::zero");
            let after = match fresh || zero() {
                true => version | used,
                // It is as it was: not a word of it has been written.
                false => raw,
            };
            // Only a node that thinks this one dead has changed it meanwhile.
            done = words.exchange(w0, taken, after) && after != raw;
        }
        self.end();
        done.then_some(())
    }

    /// Row `X -> untyped`, of user memory, or of an object of one of these kinds (bits by number). The
    /// epoch since which everybody has to have been quiet. `None`: nothing has been done.
    #[inline(always)]
    pub fn give_up(&self, kinds: u32) -> Option<Epoch> {
        const USER: u64 = plain::used(dyad_retype::Use::User);
        let (words, FrameEntry { w0, w1 }) = (self.words, self.record);
        let raw = w0.load(Ordering::Acquire);
        if !plain::is(raw, USER) && !plain::is_unused_object(raw, kinds) {
            return None;
        }
        let after = plain::given_up(raw)?;
        let taken = plain::version(raw) | self.own.retyping.get();
        self.begin(Row::ToUntyped, raw);
        let mut stamp = None;
        if words.exchange(w0, raw, taken) {
            words.fence();
            let now = Epoch::saturating(self.own.epoch.get().load(Ordering::Acquire));
            let old = w1.load(Ordering::Acquire);
            // It fails if somebody notes just now that a node has executed it.
            let to = match words.exchange(w1, old, plain::stamped(old, now)) {
                true => after,
                false => raw,
            };
            // Only a node that thinks this one dead has changed it meanwhile.
            stamp = (words.exchange(w0, taken, to) && to != raw).then_some(now);
        }
        self.end();
        stamp
    }
}
