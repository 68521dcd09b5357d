//! What a program in the place of init has (`cargo xtask run --bare`), and a store of frames, slots and addresses
//! that it makes components of.

#![allow(unsafe_code)]

use core::ops::Range;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use dyad_abi::bundle::Bundle;
use dyad_abi::cap::{CapIndex, ObjectKind, RegionKind, Rights, TableAt};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::{
    ARCHIVE_BASE, INVOKE_STACK_STRIDE, INVOKE_STACKS, MAX_THREAD_IDS, archive, slot,
};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_sys::cap::{
    Access, Cap, Captbl, Component, Frame, Kind, Memory, Narrow, PageTable, Place, Space,
};

use crate::frames::{Account, Arena};
use crate::image::table_kind;
use crate::pool::PoolMemory;
use crate::rt;
use crate::takedown::{self, Patience};

/// The program's own table.
pub const TABLE: Cap<Captbl> = Cap::at(slot::TABLE);
/// The space of the program.
pub const SPACE: Cap<Space> = Cap::at(slot::SPACE);
/// The capability for the program's own component.
pub const COMPONENT: Cap<Component> = Cap::at(slot::COMPONENT);
/// The node that its first thread runs on.
pub const HOME: NodeId = NodeId::new(0).unwrap();
/// Number of the CXL pool.
pub const CXL: usize = MAX_NODES;
/// The first slot that the kernel has left empty.
pub const FIRST_SLOT: u32 = 40;
/// The largest block that is zeroed in one operation, as the logarithm of its frames.
const MAX_BLOCK: u32 = 4;
/// How long an operation is repeated while it is refused with `Again` or `NotReady`.
const PATIENCE_NS: u64 = 4_000_000_000;
/// The address at which a store maps pages to fill them.
const WINDOW: u64 = 0x2000_0000_0000;

/// The program's bundle.
///
/// # Errors
///
/// `BadBundle` if the archive is not what it was.
pub fn bundle() -> Result<Bundle<'static>> {
    let len = usize::try_from(rt::info()?.archive_len).map_err(|_| Error::BadBundle)?;
    let start = with_exposed_provenance(ARCHIVE_BASE as usize);
    // SAFETY: 1. The kernel has mapped the archive there, read-only, all of it. 2. It does not change.
    let file: &'static [u8] = unsafe { core::slice::from_raw_parts(start, len) };
    let image = archive::find(file, "init").ok_or(Error::BadBundle)?;
    Bundle::parse(image).map_err(|_| Error::BadBundle)
}

/// Ends the run.
pub fn shut_down(code: u32) -> ! {
    loop {
        let _ = rt::hardware(HOME).shutdown(code);
        dyad_sys::raw::relax();
    }
}

/// A wait of at most four seconds of fused time. It calls a function again and again, so that others go on.
pub struct Waits {
    end: Option<u64>,
    pause: fn(),
}

impl Waits {
    /// A new wait.
    pub const fn new(pause: fn()) -> Waits {
        Waits { end: None, pause }
    }
}

impl Patience for Waits {
    fn pause(&mut self) -> Result<()> {
        let now = rt::hardware(HOME).now()?;
        if now > *self.end.get_or_insert(now + PATIENCE_NS) {
            return Err(Error::TimedOut);
        }
        (self.pause)();
        Ok(())
    }
}

/// Initial size of a [`Store`].
#[derive(Clone, Copy, Debug)]
pub struct StoreSize {
    /// Frames of the CXL pool for objects and pages that stay.
    pub frames: u64,
    /// One past the last slot for what stays.
    pub slots: u32,
    /// Leaves of the table, which begins with one.
    pub leaves: u32,
    /// Pages of the window in which the store maps pages.
    pub window: u64,
    /// Called when an operation has to wait.
    pub pause: fn(),
}

/// Frames, slots, addresses.
pub struct Store {
    pools: [PoolMemory; MAX_NODES + 1],
    accounts: [Account; MAX_NODES + 1],
    own: Arena,
    slots: Range<u32>,
    shown: u64,
    window: u64,
    pause: fn(),
    /// ISAs of the system, by bit.
    pub isas: u8,
    /// Nodes.
    pub nodes: u64,
    /// CPUs of each.
    pub cpus: u64,
    /// The ISA that the first thread runs on.
    pub here: Isa,
}

impl Store {
    /// Takes stock, and makes the program's table and the window.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn new(size: StoreSize) -> Result<Store> {
        let info = rt::info()?;
        let pools = core::array::from_fn(PoolMemory::or_none);
        let mut accounts = [Account::new(); MAX_NODES + 1];
        let own = accounts[CXL].carve(&pools[CXL], size.frames)?;
        let nodes = info.system.node_count as usize;
        let isas = info.system.nodes[..nodes]
            .iter()
            .filter_map(|node| Isa::from_index(node.isa.into()))
            .fold(0, |bits, isa| bits | 1 << isa.index());
        let mut store = Store {
            pools,
            accounts,
            own,
            slots: FIRST_SLOT..size.slots,
            shown: 0,
            window: size.window,
            pause: size.pause,
            isas,
            nodes: nodes as u64,
            cpus: info.cpus,
            here: rt::hardware(HOME).where_am_i()?.isa,
        };
        for entry in 1..size.leaves {
            let leaf: Cap<Captbl> = store.keep(ObjectKind::CaptblLeaf)?;
            TABLE.cons(entry, leaf)?;
        }
        for level in [3, 2, 1] {
            let at = TableAt {
                isa: store.here,
                level,
            };
            let covered = PAGE_SIZE << (9 * u64::from(level));
            for start in (0..size.window * PAGE_SIZE).step_by(covered as usize) {
                let table: Cap<PageTable> = store.keep(table_kind(at)?)?;
                SPACE.link(at, WINDOW + start, table)?;
            }
        }
        // Components that this program makes may invoke it, as deep as kernels have it.
        let stacks = (MAX_THREAD_IDS << 8) * INVOKE_STACK_STRIDE;
        SPACE.add_region(INVOKE_STACKS, stacks, RegionKind::Anonymous, true)?;
        Ok(store)
    }

    /// Repeats an operation until it is not refused with `Again` or `NotReady`.
    ///
    /// # Errors
    ///
    /// As the operation; `TimedOut`.
    pub fn patiently<T>(&self, operation: impl FnMut() -> Result<T>) -> Result<T> {
        takedown::patiently(Waits::new(self.pause), operation)
    }

    /// The memory of a pool.
    pub const fn pool(&self, pool: usize) -> PoolMemory {
        self.pools[pool]
    }

    /// Takes frames of a pool, for a new owner.
    ///
    /// # Errors
    ///
    /// `NoMemory`; as the kernel says.
    pub fn carve(&mut self, pool: usize, frames: u64) -> Result<Arena> {
        self.accounts[pool].carve(&self.pools[pool], frames)
    }

    /// A slot of the program's table.
    ///
    /// # Errors
    ///
    /// `Full`.
    pub fn kept_slot(&mut self) -> Result<Place> {
        let at = self.slots.next().ok_or(Error::Full)?;
        Ok(Place::of(TABLE, CapIndex(at)))
    }

    /// A kernel object of an arena of the CXL pool: its capability with all rights, at `place`, and its frame's number
    /// in the pool.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn make<T: Kind>(
        &self,
        arena: &mut Arena,
        kind: ObjectKind,
        place: Place,
    ) -> Result<(Cap<T>, u64)> {
        let cxl = self.pools[CXL];
        let at = arena.take(&cxl, 0)?;
        self.patiently(|| cxl.cap.retype_kernel(at, kind))?;
        let cap = self.patiently(|| cxl.cap.activate(at, place, Rights::ALL))?;
        Ok((cap, at))
    }

    /// A block of user memory of an arena of the CXL pool: its capability with all rights, at `place`, and its number
    /// in the pool.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn make_user(
        &self,
        arena: &mut Arena,
        order: u32,
        place: Place,
    ) -> Result<(Cap<Frame>, u64)> {
        let cxl = self.pools[CXL];
        let at = arena.take(&cxl, order)?;
        self.patiently(|| cxl.cap.retype_user(at, order))?;
        let cap = self.patiently(|| cxl.cap.activate(at, place, Rights::ALL))?;
        Ok((cap, at))
    }

    /// An object for good, with all rights.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn keep<T: Kind>(&mut self, kind: ObjectKind) -> Result<Cap<T>> {
        let (mut own, place) = (self.own, self.kept_slot()?);
        let made = self.make(&mut own, kind, place);
        self.own = own;
        made.map(|(cap, _)| cap)
    }

    /// A user block of at most `pages` pages for good: its capability, and how many it has.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn keep_user(&mut self, pages: u64) -> Result<(Cap<Frame>, u64)> {
        let order = pages.checked_ilog2().ok_or(Error::BadArgument)?;
        let order = order.min(MAX_BLOCK);
        let (mut own, place) = (self.own, self.kept_slot()?);
        let made = self.make_user(&mut own, order, place);
        self.own = own;
        Ok((made?.0, 1 << order))
    }

    /// A copy of a capability for a part, with all rights, for good.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn keep_part<T: Kind>(&mut self, of: Cap<T>, part: Narrow) -> Result<Cap<T>> {
        let place = self.kept_slot()?;
        self.patiently(|| TABLE.copy_in(place.index(), of, Rights::ALL, None, part))
    }

    /// Memory of a pool for a new owner, with all rights, for good.
    ///
    /// # Errors
    ///
    /// `NoMemory`; as the kernel says.
    pub fn keep_memory(&mut self, pool: usize, frames: u64) -> Result<Cap<Memory>> {
        let arena = self.carve(pool, frames)?;
        let part = Narrow::range(arena.first(), arena.frames());
        self.keep_part(self.pools[pool].cap, part)
    }

    /// Shows a page in the window. Gives the address.
    ///
    /// # Errors
    ///
    /// `Full`; as the kernel says.
    pub fn show(&mut self, frame: Cap<Frame>, page: u64) -> Result<u64> {
        if self.shown >= self.window {
            return Err(Error::Full);
        }
        let va = WINDOW + self.shown * PAGE_SIZE;
        self.shown += 1;
        let at = TableAt {
            isa: self.here,
            level: 1,
        };
        // SAFETY: 1. Nothing else of the program is in the window.
        self.patiently(|| unsafe { SPACE.map(at, va, frame, page, Access::Write) })?;
        Ok(va)
    }

    /// Takes a page out of the window.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn hide(&self, va: u64) -> Result<()> {
        takedown::unmap(&|| Waits::new(self.pause), SPACE, self.here, va)
    }

    /// Takes all pages out of the window.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn clear_window(&mut self) -> Result<()> {
        for page in 0..self.shown {
            self.hide(WINDOW + page * PAGE_SIZE)?;
        }
        self.shown = 0;
        Ok(())
    }

    /// Fills a page that has no other user yet. The page is in the window meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`show`](Store::show).
    pub fn fill(
        &mut self,
        frame: Cap<Frame>,
        page: u64,
        fill: impl FnOnce(&mut [u8; PAGE_SIZE as usize]),
    ) -> Result<()> {
        let va = self.show(frame, page)?;
        // SAFETY: 1. The page is mapped writable there, by `show`. 2. No program has the frame yet.
        fill(unsafe { &mut *with_exposed_provenance_mut::<[u8; 4096]>(va as usize) });
        self.hide(va)
    }
}
