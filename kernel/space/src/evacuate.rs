//! Moving pages to other frames while programs run, in order to empty a range of memory.
//!
//! Only pages that faults have put there are moved. They belong to the space and are mapped nowhere else, so
//! a walk over its tables finds them all.
//!
//! ```text
//!            park, in every table            all CPUs drop translations          move
//!  Leaf(f) ───────────────────────▶ Parked(f) ═══════════════════════▶ copy f to g ─┬─▶ Leaf(g)
//!     ▲                                 │       (the caller: shootdown)              │   f goes back
//!     └────────────── unpark ───────────┘                                            └ first one table,
//!                                                                                      then the others
//! ```
//!
//! A fault on a parked page is tried again until the page is back. Nothing else waits.
//!
//! | row | steps, in order |
//! |---|---|
//! | park | CAS leaf to parked; log the table |
//! | unpark | CAS parked to leaf; log the table |
//! | move | a new frame of the node's supply; copy; for each table: intent; pin the new frame; neither frame is being recovered; CAS parked(f) to leaf(g); log the table; intent of the old frame; unpin it; intent cleared; the old frame goes back with its last pin |
//!
//! # What can go wrong between two steps
//!
//! | | then |
//! |---|---|
//! | who parked pages does not go on | they stay parked; anybody may move or unpark them |
//! | it ends between the tables | one table has the page at its new frame: the CPU that goes on takes that frame for the other tables, since its contents may be newer |
//! | the page is unmapped | the new frame cannot be pinned any more, or the CAS fails; it goes back |
//! | the node dies within the row | both frames' references are counted; the entry is right, before the CAS and after it |
//!
//! That no CPU has a translation of a parked page when it is moved is the caller's business, as with
//! unmapping: it would lose what its own program writes meanwhile, and no other data: the old frame is not
//! used again before it is quiesced.
//!
//! Bounds: each step looks at as many entries, and moves as many pages, as the caller says: the
//! operation says at most how many.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::ident::ISA_COUNT;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Leaf, Level, Perms, Pte, PteSlot};
use dyad_quiesce::DirtyEntry;
use dyad_retype::{Order, Refused, Use};
use dyad_shm::frame::WeakRef;
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::Intents;
use dyad_shm::{FrameRef, PhysAddr};

use crate::Platform;
use crate::mapping::{Driver, SpaceCtx, refusal, refusal_of_known};
use crate::object::space::Supply;
use crate::supply::budget;

/// A page of the space in one table.
struct MappedPage {
    driver: Driver,
    place: PteSlot,
    pte: Pte,
}

/// The result of a step at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The next address: behind the page, or behind a range that is empty in all tables.
    pub next: u64,
    /// Whether the page has been parked, unparked or moved.
    pub done: bool,
}

/// A page that a fault has put there, which is not code. One that user code cannot use stays: when it is back, it would be
/// usable.
const fn is_movable(perms: Perms) -> bool {
    perms.contains(Perms::OWNED.union(Perms::USER)) && !perms.contains(Perms::EXECUTE)
}

fn lies_in(range: &Supply, pa: PhysAddr) -> bool {
    FrameRef::of(pa).is_some_and(|f| range.contains(f))
}

impl SpaceCtx<'_> {
    /// All tables' entries for a page, and where the next page may be.
    fn seen(&self, va: u64) -> Result<([Option<MappedPage>; ISA_COUNT], u64)> {
        let mut all = [const { None }; ISA_COUNT];
        let mut next = u64::MAX;
        for isa in self.cx.node.isas() {
            // A space need not have a table for every ISA.
            let Ok(driver) = self.driver(isa) else {
                continue;
            };
            let place = driver.find(va, Level::L1).map_err(refusal)?;
            let size = place.level.size();
            next = next.min((va & !(size - 1)) + size);
            let pte = driver.meaning(&place);
            if let Pte::Closing { .. } = pte {
                return Err(Error::Again);
            }
            all[isa.index()] = Some(MappedPage { driver, place, pte });
        }
        Ok((all, next))
    }

    /// Parks the page at `va` in all tables, if it lies in `range`.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if another CPU is changing the page.
    pub fn park(&self, va: u64, range: &Supply) -> Result<Step> {
        let (all, next) = self.seen(va)?;
        let mut done = false;
        for seen in all.iter().flatten() {
            if let Pte::Leaf(leaf) = seen.pte
                && seen.place.level == Level::L1
                && is_movable(leaf.perms)
                && lies_in(range, leaf.pa)
            {
                let parked = seen.driver.park(&seen.place, &leaf);
                parked.map_err(refusal_of_known)?;
                self.cx.log(DirtyEntry::Table(seen.place.table()));
                done = true;
            }
        }
        Ok(Step { next, done })
    }

    /// Makes a parked page of `range` usable again, where it is.
    ///
    /// # Errors
    ///
    /// As [`park`](SpaceCtx::park).
    pub fn unpark(&self, va: u64, range: &Supply) -> Result<Step> {
        let (all, next) = self.seen(va)?;
        let mut done = false;
        for seen in all.iter().flatten() {
            let Pte::Parked { pa, perms } = seen.pte else {
                continue;
            };
            if !lies_in(range, pa) {
                continue;
            }
            match moved_to(&all, pa).filter(|_| !lacks!("evacuate::unpark::moved")) {
                Some(to) => self.replace(seen, pa, perms, to)?,
                None => {
                    let leaf = Leaf::unparked(pa, perms);
                    seen.driver.unpark(&seen.place, leaf).map_err(refusal)?;
                    self.cx.log(DirtyEntry::Table(seen.place.table()));
                }
            }
            done = true;
        }
        Ok(Step { next, done })
    }

    /// Moves a parked page of `range` to a frame of the supply of `node`.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`] if that has none; [`Error::Again`].
    pub fn move_parked<P: Platform>(&self, va: u64, range: &Supply, node: NodeId) -> Result<Step> {
        let (all, next) = self.seen(va)?;
        let parked = all.iter().flatten().find_map(|seen| match seen.pte {
            Pte::Parked { pa, .. } if lies_in(range, pa) => Some(pa),
            _ => None,
        });
        let Some(old) = parked else {
            return Ok(Step { next, done: false });
        };
        // A table that has not been parked, because the page has just been shown there.
        let usable = all.iter().flatten().any(|seen| {
            matches!(seen.pte, Pte::Leaf(leaf) if leaf.pa == old && !lacks!("evacuate::move_parked::usable"))
        });
        if usable {
            return Err(Error::Again);
        }
        let (to, mine) = match moved_to(&all, old) {
            Some(to) => (to, None),
            None => {
                self.cx.local.fault_budget.set(budget(self.cx.words()));
                let frame = self.take_for::<P>(node, Use::User)?;
                self.copy_frame(old, frame.frame.address())?;
                (frame.frame.address(), Some(frame))
            }
        };
        let mut result = Ok(());
        for seen in all.iter().flatten() {
            if let Pte::Parked { pa, perms } = seen.pte
                && pa == old
            {
                let replaced = self.replace(seen, old, perms, to);
                if result.is_ok() {
                    result = replaced;
                }
            }
        }
        // If no table has taken it.
        if let Some(frame) = mine {
            self.give_back(frame, Use::User);
        }
        result.map(|()| Step { next, done: true })
    }

    /// Copies a frame that no CPU writes.
    fn copy_frame(&self, from: PhysAddr, to: PhysAddr) -> Result<()> {
        const WORDS: usize = PAGE_SIZE as usize / 8;
        let map = self.cx.node.map;
        let source: &[AtomicU64; WORDS] = map.get(from).ok_or(Error::Corrupt)?;
        let target: &[AtomicU64; WORDS] = map.get(to).ok_or(Error::Corrupt)?;
        if lacks!("evacuate::copy_frame") {
            return Ok(());
        }
        for (to, from) in target.iter().zip(source) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // A CPU that finds the new frame in a table finds its contents.
        self.cx.words().fence();
        Ok(())
    }

    /// Row move, in one table: the parked page at `old` is the one at `new` from here on.
    fn replace(&self, seen: &MappedPage, old: PhysAddr, perms: Perms, new: PhysAddr) -> Result<()> {
        let frames = self.cx.frames();
        let intents = self.cx.intents();
        let current = |pa| {
            let frame = FrameRef::of(pa).ok_or(Error::Corrupt)?;
            Ok::<WeakRef, Error>(frames.current(frame)?)
        };
        let (old, new) = (current(old)?, current(new)?);
        intents.begin(&IntentRecord {
            row: Row::Replace,
            frame: new,
            table: Some(old),
            place: seen.place.entry,
        });
        let pinned = frames
            .may_unpin(old.frame, new.frame)
            .and_then(|()| frames.pin_user(new, Order::FRAME).map(drop));
        if let Err(why) = pinned {
            intents.clear();
            return Err(match why {
                // The page has been unmapped, and its frames with it.
                Refused::Stale | Refused::WrongType => Error::Again,
                why => why.into(),
            });
        }
        let leaf = Leaf::unparked(new.frame.address(), perms);
        let done = seen.driver.unpark(&seen.place, leaf);
        self.cx.log(DirtyEntry::Table(seen.place.table()));
        if done.is_ok() {
            // The same two, but if this node dies it is the old one that may be without references.
            intents.begin(&IntentRecord {
                row: Row::Replace,
                frame: old,
                table: Some(new),
                place: seen.place.entry,
            });
        }
        let loser = if done.is_ok() { old } else { new };
        let unpinned = frames.unpin(loser.frame);
        intents.clear();
        if done.is_ok() {
            self.give_back(old, Use::User);
        }
        unpinned?;
        done.map_err(refusal)
    }
}

/// Where a page has been moved to that is still parked at `old` in some table. That may be anywhere but
/// there, also in the range that the caller is about: who makes everything usable again names whole pools.
fn moved_to(all: &[Option<MappedPage>; ISA_COUNT], old: PhysAddr) -> Option<PhysAddr> {
    all.iter().flatten().find_map(|seen| match seen.pte {
        Pte::Leaf(leaf) if is_movable(leaf.perms) && leaf.pa != old => Some(leaf.pa),
        _ => None,
    })
}
