//! What the warden makes things of: frames, slots of its own table, addresses at which it looks at pages.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance_mut;

use dyad_abi::cap::{CapIndex, ObjectKind, Rights, TableAt};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::slot;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_services::frames::{Account, Arena};
use dyad_services::pool::PoolMemory;
use dyad_services::rt;
use dyad_sys::cap::{Access, Cap, Captbl, Frame, Kind, Memory, Narrow, PageTable, Place, Space};

/// The warden's own table.
pub const TABLE: Cap<Captbl> = Cap::at(slot::TABLE);
/// Its space.
const SPACE: Cap<Space> = Cap::at(slot::SPACE);
/// Where the warden runs.
pub const HOME: NodeId = NodeId::new(0).unwrap();
/// Number of the CXL pool.
pub const CXL: usize = MAX_NODES;
/// The largest block that is zeroed in one operation.
const MAX_BLOCK: u32 = 4;
/// Slots that the warden uses.
const SLOTS: core::ops::Range<u32> = 40..64 * 24;
/// Where the warden looks at pages.
const SHOWN: u64 = 0x2000_0000_0000;
/// Pages that it can look at.
const SHOWN_PAGES: u64 = 2048;
/// Attempts at an operation while another node is in the way.
const TRIES: u32 = 10_000_000;

/// Repeats an operation until it is not refused with `Again`.
///
/// # Errors
///
/// As the operation; `TimedOut`.
pub fn patiently<T>(mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        match operation() {
            Err(Error::Again) => {
                let _ = rt::hardware(HOME).flush_step(16);
            }
            result => return result,
        }
    }
    Err(Error::TimedOut)
}

/// Kind of the page table of an ISA and a level.
///
/// # Errors
///
/// `BadArgument` if there is none.
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
    here: Isa,
    slot: u32,
    shown: u64,
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
        let own = accounts[CXL].carve(&pools[CXL], 3072)?;
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
            here: rt::hardware(HOME).where_am_i()?.isa,
            slot: SLOTS.start,
            shown: 0,
        };
        for entry in 1..SLOTS.end / 64 {
            let leaf: Cap<Captbl> = store.object(ObjectKind::CaptblLeaf)?;
            TABLE.cons(entry, leaf)?;
        }
        let isa = store.here;
        for level in [3, 2, 1] {
            let at = TableAt { isa, level };
            let covered = PAGE_SIZE << (9 * u64::from(level));
            for start in (0..SHOWN_PAGES * PAGE_SIZE).step_by(covered as usize) {
                let table: Cap<PageTable> = store.object(table_kind(at)?)?;
                SPACE.link(at, SHOWN + start, table)?;
            }
        }
        Ok(store)
    }

    /// A slot of the warden's table.
    ///
    /// # Errors
    ///
    /// `Full`.
    pub fn slot(&mut self) -> Result<Place> {
        let at = self.slot;
        if at >= SLOTS.end {
            return Err(Error::Full);
        }
        self.slot += 1;
        Ok(Place::of(TABLE, CapIndex(at)))
    }

    /// A kernel object in the CXL pool, with all rights.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn object<T: Kind>(&mut self, kind: ObjectKind) -> Result<Cap<T>> {
        let cxl = self.pools[CXL];
        let at = self.own.take(&cxl, 0)?;
        cxl.cap.retype_kernel(at, kind)?;
        let place = self.slot()?;
        cxl.cap.activate(at, place, Rights::ALL)
    }

    /// A block of user memory in the CXL pool, of at most `pages` pages: with all rights, and how many it has.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn user(&mut self, pages: u64) -> Result<(Cap<Frame>, u64)> {
        let cxl = self.pools[CXL];
        let order = pages.checked_ilog2().ok_or(Error::BadArgument)?;
        let order = order.min(MAX_BLOCK);
        let at = self.own.take(&cxl, order)?;
        patiently(|| cxl.cap.retype_user(at, order))?;
        let place = self.slot()?;
        Ok((cxl.cap.activate(at, place, Rights::ALL)?, 1 << order))
    }

    /// Memory for somebody, of a pool: with all rights.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn memory(&mut self, pool: usize, frames: u64) -> Result<Cap<Memory>> {
        let arena = self.accounts[pool].carve(&self.pools[pool], frames)?;
        let part = Narrow::range(arena.first(), arena.frames());
        self.part(self.pools[pool].cap, part)
    }

    /// A copy of a capability for a part, with all rights.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn part<T: Kind>(&mut self, of: Cap<T>, part: Narrow) -> Result<Cap<T>> {
        let place = self.slot()?;
        TABLE.copy_in(place.index(), of, Rights::ALL, None, part)
    }

    /// Shows a page in the warden's own space. Gives the address.
    ///
    /// # Errors
    ///
    /// `Full`; as the kernel says.
    pub fn show(&mut self, frame: Cap<Frame>, page: u64) -> Result<u64> {
        if self.shown >= SHOWN_PAGES {
            return Err(Error::Full);
        }
        let va = SHOWN + self.shown * PAGE_SIZE;
        self.shown += 1;
        let at = TableAt {
            isa: self.here,
            level: 1,
        };
        // SAFETY: 1. Nothing else of the warden is at these addresses.
        patiently(|| unsafe { SPACE.map(at, va, frame, page, Access::Write) })?;
        Ok(va)
    }

    /// Gives a page that nobody else has yet contents, and takes it out of the warden's space again.
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
        let at = TableAt {
            isa: self.here,
            level: 1,
        };
        // SAFETY: 1. The only reference was passed to `fill`.
        patiently(|| unsafe { SPACE.unmap(at, va) }).map(drop)
    }
}
