//! What the warden makes things of: frames, slots of its own table, addresses at which it looks at pages.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance_mut;

use dyad_abi::cap::{CapIndex, ObjectKind, Rights, TableAt};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::slot;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_services::frames::{Account, Arena, Pool, What};
use dyad_services::pool::PoolMemory;
use dyad_services::rt;
use dyad_services::takedown::{self, Patience};
use dyad_sys::cap::{
    Access, Cap, Captbl, Frame, Kind, Memory, Narrow, PageTable, Place, Space, Stamp,
};

use crate::sched;

/// The warden's own table.
pub const TABLE: Cap<Captbl> = Cap::at(slot::TABLE);
/// Its space.
pub const SPACE: Cap<Space> = Cap::at(slot::SPACE);
/// Where the warden runs.
pub const HOME: NodeId = NodeId::new(0).unwrap();
/// Number of the CXL pool.
pub const CXL: usize = MAX_NODES;
/// The largest block that is zeroed in one operation.
const MAX_BLOCK: u32 = 6;
/// How long somebody else may be in the way of an operation.
const PATIENCE_NS: u64 = 4_000_000_000;
/// Passes over the frames of an arena that is given back.
const PASSES: u32 = 12;

/// Frames for attacks that need blocks, and the order of the blocks that are cut from them.
const BLOCKS: u64 = 4096;
const LARGE: u32 = 10;

/// Slots of the warden that stay: leaves, its own objects, the image.
const KEPT: core::ops::Range<u32> = 40..64 * 16;
/// Slots for one attack.
const PASSING: core::ops::Range<u32> = 64 * 16..64 * 32;
/// Where the warden looks at pages: what one page table covers.
const WINDOW: u64 = 0x2000_0000_0000;
/// Pages of it.
const WINDOW_PAGES: u64 = 512;

/// Waits, and lets other threads run meanwhile.
pub struct Waits {
    end: Option<u64>,
}

impl Waits {
    /// A new wait.
    pub const fn new() -> Waits {
        Waits { end: None }
    }
}

impl Patience for Waits {
    fn pause(&mut self) -> Result<()> {
        let now = rt::hardware(HOME).now()?;
        if now > *self.end.get_or_insert(now + PATIENCE_NS) {
            return Err(Error::TimedOut);
        }
        sched::turn(0);
        Ok(())
    }
}

/// Repeats an operation until it is not refused with `Again` or `NotReady`.
///
/// # Errors
///
/// As the operation; `TimedOut`.
pub fn patiently<T>(operation: impl FnMut() -> Result<T>) -> Result<T> {
    takedown::patiently(Waits::new(), operation)
}

/// Kind of the page table of an ISA and a level.
pub fn table_kind(at: TableAt) -> Result<ObjectKind> {
    let first = match at.isa {
        Isa::X86_64 => ObjectKind::PageTableX86L1,
        Isa::Aarch64 => ObjectKind::PageTableA64L1,
    };
    ObjectKind::from_number(first as u64 + u64::from(at.level) - 1).ok_or(Error::BadArgument)
}

/// Frames, slots, addresses.
pub struct Store {
    pools: [PoolMemory; MAX_NODES + 1],
    accounts: [Account; MAX_NODES + 1],
    own: Arena,
    /// ISAs of the system, by bit.
    pub isas: u8,
    /// Nodes.
    pub nodes: u64,
    /// CPUs of each.
    pub cpus: u64,
    /// The ISA that the warden runs on.
    pub here: Isa,
    kept: u32,
    passing: u32,
    pages: u64,
    last: Stamp,
    /// Frames of the CXL pool in large blocks, for attacks that need blocks.
    pub blocks: Arena,
    large: [u64; 2],
    /// The first frame that the last attack has not given back.
    pub stuck: Option<Stuck>,
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
        let info = rt::info()?;
        let pools = core::array::from_fn(PoolMemory::or_none);
        let mut accounts = [Account::new(); MAX_NODES + 1];
        let own = accounts[CXL].carve(&pools[CXL], 256)?;
        let blocks = accounts[CXL].carve(&pools[CXL], BLOCKS)?;
        let mut cut = blocks;
        let large = [cut.take(&pools[CXL], LARGE)?, cut.take(&pools[CXL], LARGE)?];
        let nodes = info.system.node_count as usize;
        let isas = info.system.nodes[..nodes]
            .iter()
            .filter_map(|node| Isa::from_index(node.isa.into()))
            .fold(0, |bits, isa| bits | 1 << isa.index());
        let mut store = Store {
            pools,
            accounts,
            own,
            isas,
            nodes: nodes as u64,
            cpus: info.cpus,
            here: rt::hardware(HOME).where_am_i()?.isa,
            kept: KEPT.start,
            passing: PASSING.start,
            pages: 0,
            last: Stamp(1),
            blocks,
            large,
            stuck: None,
        };
        for entry in 1..PASSING.end / 64 {
            let leaf: Cap<Captbl> = store.keep(ObjectKind::CaptblLeaf)?;
            TABLE.cons(entry, leaf)?;
        }
        for level in [3, 2, 1] {
            let at = TableAt {
                isa: store.here,
                level,
            };
            let table: Cap<PageTable> = store.keep(table_kind(at)?)?;
            SPACE.link(at, WINDOW, table)?;
        }
        Ok(store)
    }

    /// Gives frames of a pool to somebody.
    ///
    /// # Errors
    ///
    /// `NoMemory`; as the kernel says.
    pub fn carve(&mut self, pool: usize, frames: u64) -> Result<Arena> {
        self.accounts[pool].carve(&self.pools[pool], frames)
    }

    /// A slot that stays in use.
    fn kept_slot(&mut self) -> Result<Place> {
        let at = self.kept;
        if at >= KEPT.end {
            return Err(Error::Full);
        }
        self.kept += 1;
        Ok(Place::of(TABLE, CapIndex(at)))
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

    /// An object of the warden's own, for good.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn keep<T: Kind>(&mut self, kind: ObjectKind) -> Result<Cap<T>> {
        let cxl = self.pools[CXL];
        let at = self.own.take(&cxl, 0)?;
        cxl.cap.retype_kernel(at, kind)?;
        let place = self.kept_slot()?;
        cxl.cap.activate(at, place, Rights::ALL)
    }

    /// A user block for good: its capability, and how many pages it has, at most `pages`.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn keep_user(&mut self, arena: &mut Arena, pages: u64) -> Result<(Cap<Frame>, u64)> {
        let cxl = self.pools[CXL];
        let order = pages.checked_ilog2().ok_or(Error::BadArgument)?;
        let order = order.min(MAX_BLOCK);
        let at = arena.take(&cxl, order)?;
        cxl.cap.retype_user(at, order)?;
        let place = self.kept_slot()?;
        Ok((cxl.cap.activate(at, place, Rights::ALL)?, 1 << order))
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
        let cxl = self.pools[CXL];
        let at = arena.take(&cxl, 0)?;
        patiently(|| cxl.cap.retype_kernel(at, kind))?;
        let place = self.slot()?;
        let cap = patiently(|| cxl.cap.activate(at, place, Rights::ALL))?;
        Ok((cap, at))
    }

    /// A frame of user memory of an arena of the CXL pool, with all rights, and its number in the pool.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn user(&mut self, arena: &mut Arena) -> Result<(Cap<Frame>, u64)> {
        let cxl = self.pools[CXL];
        let at = arena.take(&cxl, 0)?;
        patiently(|| cxl.cap.retype_user(at, 0))?;
        let place = self.slot()?;
        let cap = patiently(|| cxl.cap.activate(at, place, Rights::ALL))?;
        Ok((cap, at))
    }

    /// A capability for a run of frames of a pool, with all rights.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn memory(&mut self, pool: usize, first: u64, frames: u64) -> Result<Cap<Memory>> {
        let place = self.slot()?;
        let from = self.pools[pool].cap;
        let part = Narrow::range(first, frames);
        patiently(|| TABLE.copy_in(place.index(), from, Rights::ALL, None, part))
    }

    /// Shows a frame in the warden's own space until the end of the attack. Gives the address.
    ///
    /// # Errors
    ///
    /// `Full`; as the kernel says.
    pub fn show(&mut self, frame: Cap<Frame>, page: u64) -> Result<u64> {
        if self.pages >= WINDOW_PAGES {
            return Err(Error::Full);
        }
        let va = WINDOW + self.pages * PAGE_SIZE;
        self.pages += 1;
        let at = TableAt {
            isa: self.here,
            level: 1,
        };
        // SAFETY: 1. Nothing else of the warden is in the window.
        patiently(|| unsafe { SPACE.map(at, va, frame, page, Access::Write) })?;
        Ok(va)
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

    /// Takes a page out of the window.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn hide(&self, va: u64) -> Result<()> {
        takedown::unmap(&Waits::new, SPACE, self.here, va)
    }

    /// Gives a frame that nobody else has yet contents.
    ///
    /// # Errors
    ///
    /// As [`show`](Store::show).
    pub fn fill(
        &mut self,
        frame: Cap<Frame>,
        page: u64,
        fill: impl FnOnce(&mut [u8; PAGE_SIZE as usize]),
    ) -> Result<()> {
        let va = self.show(frame, page)?;
        // SAFETY: 1. The page is mapped writable there, by `show`. 2. Nobody else has the frame yet.
        fill(unsafe { &mut *with_exposed_provenance_mut::<[u8; 4096]>(va as usize) });
        Ok(())
    }

    /// Takes the pages out of the window.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn clear_window(&mut self) -> Result<()> {
        for page in 0..self.pages {
            let va = WINDOW + page * PAGE_SIZE;
            takedown::unmap(&Waits::new, SPACE, self.here, va)?;
        }
        self.pages = 0;
        Ok(())
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
        let memory = self.pools[pool];
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
