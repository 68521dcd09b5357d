//! Frames that page faults take: from the memory that the owner of the address space has supplied
//! for the node.
//!
//! A supply has up to five runs of frames. A cursor goes round over them, that which was added last
//! first; each fault tries those it points at until one can
//! be had. Larger untyped blocks are split down to the frame on the way. If all it may try are in use
//! the fault comes again and goes on behind them: there is no memory only when the cursor has gone all
//! the way round in vain.
//!
//! Where there are several runs, page tables are taken from the first one, from its end on, as long as
//! it has free frames there, and its last quarter is not for pages: the others can then be emptied of
//! pages ([`evacuate`](crate::evacuate)) and taken away, which is impossible with a table.
//!
//! Bounds: at most [`TRIES`] frames are tried for each frame taken, twice as many for each table; a fault
//! takes at most seven (three tables for each ISA, one page). Splits and frames take what they cost from the
//! fault's [`budget`], and so does each free frame that cannot be had yet: all of them can be so until the next round.
//! A fault that needs more comes again, and finds smaller blocks, and tables. One frame is zeroed by
//! each, if it has ever been used: one that no stamp has been put on since the pools were created
//! is zero still.

use dyad_abi::{Error, NodeId, Result};
use dyad_pgtbl::{Level, MapError, Pte, PteSlot};
use dyad_retype::{FrameType, Refused, Use};
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};

use crate::Platform;
use crate::mapping::{Driver, SpaceCtx, refusal, table_kind};
use crate::memory::Words;

/// Frames that are tried before there is none.
pub const TRIES: u32 = 16;
/// The cost limit of one fault, in instructions, roughly: enough for four tables and a page.
const BUDGET: u32 = 13_500;
/// The cost limit where caches are not coherent, in the same units; each step costs more there. It is enough
/// for three tables and a page.
const BUDGET_INCOHERENT: u32 = 10_500;
/// A split.
const SPLIT: u32 = 950;
/// A frame that is taken, and linked or mapped.
const TAKEN: u32 = 2_600;
/// An attempt at a free frame that cannot be had yet.
const REFUSED: u32 = 650;
/// Looks at the tables on the way to a page: one per level, and some for others' changes.
const LOOKS: u32 = 8;

/// The budget of one fault.
pub fn budget(words: &Words) -> u32 {
    match words.is_coherent() {
        true => BUDGET,
        false => BUDGET_INCOHERENT,
    }
}

/// Whether a frame that was refused is free, or was a moment ago: not yet quiet, or in the hands of another CPU that
/// splits the block it is in; or the budget did not cover a split.
fn is_free(refused: Refused) -> bool {
    matches!(
        refused,
        Refused::NotQuiesced
            | Refused::Busy
            | Refused::Contended
            | Refused::Frozen
            | Refused::Stale
    )
}

impl SpaceCtx<'_> {
    /// Takes a zero-filled frame of this node's supply and retypes it. The frame has no pins.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`] if all frames of the supply are in use; [`Error::Again`] if not all have
    /// been looked at, or some can be had after a round.
    pub fn take<P: Platform>(&self, used: Use) -> Result<WeakRef> {
        self.take_for::<P>(self.cx.node.id(), used)
    }

    /// A frame of the supply of any node.
    ///
    /// # Errors
    ///
    /// As [`take`](SpaceCtx::take).
    pub fn take_for<P: Platform>(&self, node: NodeId, used: Use) -> Result<WeakRef> {
        let taken = self.take_from::<P>(node, used);
        if taken == Err(Error::NoMemory) {
            self.cx.local.short_of.set(Some(node));
        }
        taken
    }

    /// Takes a cost from what the fault may cost. If there is not enough left, nothing is.
    fn pay(&self, cost: u32) -> bool {
        let budget = &self.cx.local.fault_budget;
        match budget.get().checked_sub(cost) {
            Some(left) => {
                budget.set(left);
                true
            }
            None => {
                budget.set(0);
                false
            }
        }
    }

    /// Whether the fault's budget covers `frames` frames, if no block has to be split for them.
    pub(crate) fn affords(&self, frames: u32) -> bool {
        self.cx.local.fault_budget.get() >= frames * TAKEN
    }

    fn take_from<P: Platform>(&self, node: NodeId, used: Use) -> Result<WeakRef> {
        if !self.pay(TAKEN) {
            return Err(Error::Again);
        }
        let words = self.cx.words();
        let supply = self.space.supply(words, node).ok_or(Error::NoMemory)?;
        let slot = &self.space.supplies[node.index()];
        if let (Use::Kernel(_), Some(run)) = (used, supply.for_tables()) {
            for _ in 0..TRIES.min(run.frames.min(u32::MAX.into()) as u32) {
                let n = words.increase(&slot.tables, 1) % run.frames;
                let frame = run.frame(run.frames - 1 - n).ok_or(Error::Corrupt)?;
                match self.claim::<P>(frame, used) {
                    Ok(taken) => return Ok(taken),
                    Err(refused) if is_free(refused) && !self.pay(REFUSED) => {
                        return Err(Error::Again);
                    }
                    Err(_) => {}
                }
            }
        }
        let total = supply.frames();
        let mut in_vain = 0;
        let mut why = Error::NoMemory;
        for _ in 0..TRIES.min(total.min(u32::MAX.into()) as u32) {
            let n = words.increase(&slot.cursor, 1) % total;
            let frame = supply.frame(n).ok_or(Error::Corrupt)?;
            match self.claim::<P>(frame, used) {
                Ok(taken) => {
                    if words.read(&slot.in_vain) != 0 {
                        words.replace(&slot.in_vain, 0);
                    }
                    return Ok(taken);
                }
                // The next fault goes on behind it, and finds the block split so far.
                Err(refused) if is_free(refused) => match self.pay(REFUSED) {
                    true => why = Error::Again,
                    false => return Err(Error::Again),
                },
                Err(_) => in_vain += 1,
            }
        }
        if why == Error::NoMemory && words.increase(&slot.in_vain, in_vain) + in_vain < total {
            return Err(Error::Again);
        }
        // The next one that finds none goes all the way round again.
        words.replace(&slot.in_vain, 0);
        Err(why)
    }

    /// Takes one frame, if it lies in an untyped block. The block may be larger than the supply: the
    /// split-off rest stays untyped.
    fn claim<P: Platform>(
        &self,
        frame: FrameRef,
        used: Use,
    ) -> core::result::Result<WeakRef, Refused> {
        let frames = self.cx.frames();
        let intents = self.cx.intents();
        let (head, word) = frames.head(frame)?;
        let mut order = match word.ty {
            FrameType::Untyped(order) => order,
            FrameType::Retyping(_) => return Err(Refused::Busy),
            FrameType::Frozen(_) => return Err(Refused::Frozen),
            _ => return Err(Refused::WrongType),
        };
        let mut at = head;
        while let Some(half) = order.half() {
            if !self.pay(SPLIT) {
                return Err(Refused::Busy);
            }
            let other = frames.split(at, &intents)?;
            if frame >= other {
                at = other;
            }
            order = half;
        }
        let (word, stamp) = frames.read(frame)?;
        let mut claim = frames.from_untyped_begin(frame, Some(word.version), self.cx, &intents)?;
        if stamp.epoch != Epoch::ZERO && !P::zero_frame(self.cx.node.map, frame.address()) {
            frames.from_untyped_abandon(claim, &intents)?;
            return Err(Refused::NoFrame);
        }
        if let Err(why) = claim.frame_done(frames) {
            frames.from_untyped_abandon(claim, &intents)?;
            return Err(why);
        }
        frames.from_untyped_finish(claim, used, &intents)
    }

    /// The place of the page of size `lowest` at `va`; tables missing on the way are taken from the
    /// supply.
    ///
    /// # Errors
    ///
    /// As [`take`](SpaceCtx::take); [`Error::Exists`] if a larger page is there.
    pub fn place<P: Platform>(&self, d: &Driver, va: u64, lowest: Level) -> Result<PteSlot> {
        for _ in 0..LOOKS {
            let place = d.find(va, lowest).map_err(refusal)?;
            if place.level == lowest {
                return Ok(place);
            }
            match d.meaning(&place) {
                // Before a frame is taken in vain.
                Pte::Empty { epoch }
                    if epoch != Epoch::ZERO && !self.cx.node.tables.quiesced(epoch) =>
                {
                    return Err(Error::Again);
                }
                Pte::Empty { .. } if self.is_frozen(&place) => return Err(Error::Again),
                Pte::Empty { .. } => self.add_table::<P>(d, &place)?,
                Pte::Closing { .. } | Pte::Parked { .. } => return Err(Error::Again),
                Pte::Leaf(_) => return Err(Error::Exists),
                Pte::Table(_) => {}
                Pte::Other(_) => return Err(refusal(MapError::Conflict(place.level))),
            }
        }
        Err(Error::Again)
    }

    /// Whether recovery has the table of a place frozen: what a fault takes for it cannot be put there, and is not quiet
    /// when it has been given back.
    pub(crate) fn is_frozen(&self, place: &PteSlot) -> bool {
        let table = FrameRef::of(place.table()).and_then(|f| self.cx.frames().read(f).ok());
        table.is_some_and(|(word, _)| matches!(word.ty, FrameType::Frozen(_)))
    }

    /// Links a table from the supply. If another CPU has linked one first, that is no error.
    fn add_table<P: Platform>(&self, d: &Driver, place: &PteSlot) -> Result<()> {
        let level = place.level.below().ok_or(Error::Corrupt)?;
        let used = Use::Kernel(table_kind(d.isa(), level));
        let table = self.take::<P>(used)?;
        let linked = self.link(d, place, table);
        if linked.is_err() {
            self.give_back(table, used);
        }
        match linked {
            // The loop looks again.
            Ok(()) | Err(Error::Again | Error::Exists) => Ok(()),
            // The table of the place has been taken out since it was found.
            Err(_) if !self.is_linked(d, place) => Ok(()),
            Err(e) => Err(e),
        }
    }
}
