//! What the warden makes things of: frames, slots of its own table, addresses at which it looks at pages.

use core::ops::{Deref, DerefMut};

use dyad_abi::cap::{CapIndex, ObjectKind, Rights};
use dyad_abi::{Error, Result};
use dyad_services::first::{self, CXL, HOME, StoreSize, TABLE, Waits};
use dyad_services::frames::{Arena, What};
use dyad_services::rt;
use dyad_services::takedown;
use dyad_sys::cap::{Cap, Frame, Kind, Memory, Narrow, Place, Stamp};

use crate::sched;

/// Passes over the frames of an arena that is given back.
const PASSES: u32 = 12;
/// Frames for attacks that need blocks, and the order of the blocks that are cut from them.
const BLOCKS: u64 = 4096;
const LARGE: u32 = 10;
/// Frames that stay: leaves, the warden's own objects, the image.
const FRAMES: u64 = 1408;
/// One past the last slot for what stays.
const KEPT: u32 = 64 * 16;
/// Slots for one attack.
const PASSING: core::ops::Range<u32> = KEPT..64 * 32;
/// Pages that the warden can look at: what one page table covers.
const WINDOW_PAGES: u64 = 512;

/// A new wait, which lets other threads run.
pub const fn waits() -> Waits {
    Waits::new(|| sched::turn(0))
}

/// Repeats an operation until it is not refused with `Again` or `NotReady`.
///
/// # Errors
///
/// As the operation; `TimedOut`.
pub fn patiently<T>(operation: impl FnMut() -> Result<T>) -> Result<T> {
    takedown::patiently(waits(), operation)
}

/// Frames, slots, addresses: what stays, and what one attack has.
pub struct Store {
    stays: first::Store,
    passing: u32,
    last: Stamp,
    /// Frames of the CXL pool in large blocks, for attacks that need blocks.
    pub blocks: Arena,
    large: [u64; 2],
    /// The first frame that the last attack has not given back.
    pub stuck: Option<Stuck>,
}

impl Deref for Store {
    type Target = first::Store;

    fn deref(&self) -> &first::Store {
        &self.stays
    }
}

impl DerefMut for Store {
    fn deref_mut(&mut self) -> &mut first::Store {
        &mut self.stays
    }
}

/// A frame that is not untyped at the end of all passes.
#[derive(Clone, Copy)]
pub struct Stuck {
    /// Number of its pool.
    pub pool: usize,
    /// Its number in the pool.
    pub at: u64,
    /// Its word in the frame table.
    pub word: u64,
    /// Status of the last attempt to give it up; 0: there was none, as it is neither an object nor user memory.
    pub status: u64,
}

impl Store {
    /// Takes stock, and makes the warden's table large enough.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn new() -> Result<Store> {
        let mut stays = first::Store::new(StoreSize {
            frames: FRAMES,
            slots: KEPT,
            leaves: PASSING.end / 64,
            window: WINDOW_PAGES,
            pause: || sched::turn(0),
        })?;
        let blocks = stays.carve(CXL, BLOCKS)?;
        let (mut cut, cxl) = (blocks, stays.pool(CXL));
        let large = [cut.take(&cxl, LARGE)?, cut.take(&cxl, LARGE)?];
        Ok(Store {
            stays,
            passing: PASSING.start,
            last: Stamp(1),
            blocks,
            large,
            stuck: None,
        })
    }

    /// A slot that is emptied after the attack.
    ///
    /// # Errors
    ///
    /// `Full`.
    pub fn slot(&mut self) -> Result<Place> {
        let at = self.passing;
        if at >= PASSING.end {
            return Err(Error::Full);
        }
        self.passing += 1;
        Ok(Place::of(TABLE, CapIndex(at)))
    }

    /// An object of an arena of the CXL pool, with all rights.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn object<T: Kind>(&mut self, arena: &mut Arena, kind: ObjectKind) -> Result<Cap<T>> {
        self.object_at(arena, kind).map(|(cap, _)| cap)
    }

    /// As [`object`](Store::object), and the frame's number in the pool.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn object_at<T: Kind>(
        &mut self,
        arena: &mut Arena,
        kind: ObjectKind,
    ) -> Result<(Cap<T>, u64)> {
        let place = self.slot()?;
        self.make(arena, kind, place)
    }

    /// A frame of user memory of an arena of the CXL pool, with all rights, and its number in the pool.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn user(&mut self, arena: &mut Arena) -> Result<(Cap<Frame>, u64)> {
        let place = self.slot()?;
        self.make_user(arena, 0, place)
    }

    /// A capability for a run of frames of a pool, with all rights.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn memory(&mut self, pool: usize, first: u64, frames: u64) -> Result<Cap<Memory>> {
        let place = self.slot()?;
        let from = self.pool(pool).cap;
        let part = Narrow::range(first, frames);
        patiently(|| TABLE.copy_in(place.index(), from, Rights::ALL, None, part))
    }

    /// A block of 1024 frames that nobody has used: a capability for all of it.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn large(&mut self) -> Result<Cap<Memory>> {
        self.memory(CXL, self.large[0], 1 << LARGE)
    }

    /// A capability for frames of another such block, which attacks share: no two name the same.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn small(&mut self, at: u64, frames: u64) -> Result<Cap<Memory>> {
        self.memory(CXL, self.large[1] + at, frames)
    }

    /// Empties the slots of the attack.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn clear_slots(&mut self) -> Result<()> {
        for n in PASSING.start..self.passing {
            match patiently(|| TABLE.deactivate(CapIndex(n))) {
                Ok(()) | Err(Error::NoCap) => {}
                Err(e) => return Err(e),
            }
        }
        self.passing = PASSING.start;
        Ok(())
    }

    /// Gives all frames of an arena back, as often as it takes. Gives how many are not untyped at the end.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn sweep(&mut self, pool: usize, arena: &Arena) -> Result<u64> {
        let memory = self.pool(pool);
        let end = arena.first() + arena.frames();
        let mut stuck = None;
        for _ in 0..PASSES {
            stuck = None;
            let mut at = arena.first();
            while at < end {
                let word = memory.cap.inspect(at)?;
                let what = What::of_word(word);
                let status = match what {
                    What::User { .. } | What::Kernel => match memory.cap.retype_untyped(at) {
                        Ok(stamp) => {
                            self.last = self.last.max(stamp);
                            None
                        }
                        // Something refers to it still: objects hold each other, and threads are on lists.
                        Err(
                            e @ (Error::Again | Error::Exists | Error::Denied | Error::NotReady),
                        ) => Some(e.code()),
                        Err(e) => return Err(e),
                    },
                    What::Other => Some(0),
                    What::Untyped { .. } | What::Tail => None,
                };
                if let (Some(status), None) = (status, stuck) {
                    stuck = Some(Stuck {
                        pool,
                        at,
                        word,
                        status,
                    });
                }
                at += what.frames();
            }
            if stuck.is_none() {
                break;
            }
            takedown::drain(sched::ENDPOINTS, 64);
            sched::turn(0);
        }
        self.stuck = self.stuck.or(stuck);
        Ok(arena.frames() - arena.free(&memory)?)
    }

    /// Waits until what has been given up can be used again.
    ///
    /// # Errors
    ///
    /// `TimedOut`; as the kernel says.
    pub fn quiesce(&self) -> Result<()> {
        patiently(|| match rt::hardware(HOME).quiesced(self.last)? {
            true => Ok(()),
            false => Err(Error::Again),
        })
    }
}
