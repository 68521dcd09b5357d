//! Frames and slots: everything that is made, is made here.

use dyad_abi::cap::{CapIndex, LEAF_SLOTS, ObjectKind, Rights};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::slot;
use dyad_abi::{Error, Result};
use dyad_services::frames::{Account, Arena};
use dyad_services::pool::PoolMemory;
use dyad_sys::cap::{Cap, Captbl, Frame, Kind, Memory, Narrow, Place};

/// Init's own capability table.
pub const TABLE: Cap<Captbl> = Cap::at(slot::TABLE);
/// Frames of init for its own capability table.
const OWN_FRAMES: u64 = 256;
/// Largest block of user memory that is taken at once: what the kernel zeroes in one operation.
const MAX_BLOCK: u32 = 4;

/// Index of the CXL pool.
pub const CXL: usize = MAX_NODES;

/// All pools, and the slots of init's capability table.
pub struct Store {
    pools: [PoolMemory; MAX_NODES + 1],
    accounts: [Account; MAX_NODES + 1],
    own: Arena,
    next_slot: u32,
}

impl Store {
    /// Takes stock.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn new() -> Result<Store> {
        // There is none for nodes that the system does not have.
        let pools = core::array::from_fn(PoolMemory::or_none);
        let mut accounts = [Account::new(); MAX_NODES + 1];
        let own = accounts[CXL].carve(&pools[CXL], OWN_FRAMES)?;
        Ok(Store {
            pools,
            accounts,
            own,
            // The last slot of a leaf is for the next leaf.
            next_slot: LEAF_SLOTS - 1,
        })
    }

    /// The memory of a pool.
    pub fn pool(&self, pool: usize) -> &PoolMemory {
        &self.pools[pool]
    }

    /// Gives frames of a pool away.
    ///
    /// # Errors
    ///
    /// `NoMemory`, and as the kernel says.
    pub fn carve(&mut self, pool: usize, frames: u64) -> Result<Arena> {
        self.accounts[pool].carve(&self.pools[pool], frames)
    }

    /// The longest run of free frames of a pool: its first frame and its length. What is
    /// carved next begins there.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn longest(&mut self, pool: usize) -> Result<(u64, u64)> {
        self.accounts[pool].longest(&self.pools[pool])
    }

    /// The whole blocks of so many frames in that run: where the first begins, and how many there are.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn whole_blocks(&self, pool: usize, run: (u64, u64), frames: u64) -> Result<(u64, u64)> {
        Account::whole_blocks(&self.pools[pool], run, frames.ilog2())
    }

    /// An empty slot of init's table. Slots are not used twice, so no caller has to wait until one can
    /// be.
    ///
    /// # Errors
    ///
    /// `NoMemory` for a new leaf, and as the kernel says.
    pub fn slot(&mut self) -> Result<Place> {
        if self.next_slot % LEAF_SLOTS == LEAF_SLOTS - 1 {
            let cxl = self.pools[CXL];
            let at = self.own.take(&cxl, 0)?;
            cxl.cap.retype_kernel(at, ObjectKind::CaptblLeaf)?;
            let place = Place::of(TABLE, CapIndex(self.next_slot));
            let leaf: Cap<Captbl> = cxl.cap.activate(at, place, Rights::ALL)?;
            TABLE.cons(self.next_slot / LEAF_SLOTS + 1, leaf)?;
            self.next_slot += 1;
        }
        let index = CapIndex::new(self.next_slot.into()).ok_or(Error::Full)?;
        self.next_slot += 1;
        Ok(Place::of(TABLE, index))
    }

    /// Makes a kernel object of a frame of the CXL pool, with all rights to it.
    ///
    /// # Errors
    ///
    /// `NoMemory`, and as the kernel says.
    pub fn object<T: Kind>(&mut self, arena: &mut Arena, kind: ObjectKind) -> Result<Cap<T>> {
        let cxl = self.pools[CXL];
        let at = arena.take(&cxl, 0)?;
        cxl.cap.retype_kernel(at, kind)?;
        let place = self.slot()?;
        cxl.cap.activate(at, place, Rights::ALL)
    }

    /// Makes user memory of frames of a pool: at most `pages`, gives how many.
    ///
    /// # Errors
    ///
    /// `NoMemory`, and as the kernel says.
    pub fn user(
        &mut self,
        pool: usize,
        arena: &mut Arena,
        pages: u64,
    ) -> Result<(Cap<Frame>, u64)> {
        let pool = self.pools[pool];
        let order = pages.checked_ilog2().ok_or(Error::BadArgument)?;
        let order = order.min(MAX_BLOCK);
        let at = arena.take(&pool, order)?;
        pool.cap.retype_user(at, order)?;
        let place = self.slot()?;
        let frame = pool.cap.activate(at, place, Rights::ALL)?;
        Ok((frame, 1 << order))
    }

    /// A memory capability for a run of frames of a pool, with the rights a supply needs.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn supply(&mut self, pool: usize, arena: &Arena) -> Result<Cap<Memory>> {
        let place = self.slot()?;
        let narrow = Narrow::range(arena.first(), arena.frames());
        TABLE.copy_in(
            place.index(),
            self.pools[pool].cap,
            Rights::ALL,
            None,
            narrow,
        )
    }
}
