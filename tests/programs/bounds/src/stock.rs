//! What the operations are performed on.

use dyad_abi::cap::{CapIndex, LEAF_SLOTS, ObjectKind, Rights};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::slot;
use dyad_abi::{Error, Isa, NodeId, Result};
pub use dyad_services::first::{COMPONENT, HOME, SPACE, TABLE};
use dyad_services::frames::{Account, Arena, Pool, What};
use dyad_services::image::table_kind;
use dyad_services::pool::PoolMemory;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Captbl, Kind, Memory, PageTable, Place, Receive, Space, TableAt};

/// Endpoints.
pub const ENDPOINTS: Cap<Receive> = Cap::at(slot::ENDPOINT);

/// How long to wait for other nodes.
const WAIT_NS: u64 = 5_000_000;
/// Frames for objects.
const OBJECTS: u64 = 2048;
/// Slots in which the kernel has put the program's first capabilities.
const GIVEN: u32 = 40;

/// Memory and slots.
pub struct Stock {
    /// The pool that objects come from.
    pub pool: PoolMemory,
    /// Blocks that nobody has used.
    pub account: Account,
    objects: Arena,
    next_slot: u32,
    node: NodeId,
}

impl Stock {
    /// What there is. Objects come from the CXL pool.
    pub fn new(node: NodeId) -> Result<Stock> {
        let pool = PoolMemory::of(MAX_NODES)?;
        let mut account = Account::new();
        let objects = account.carve(&pool, OBJECTS)?;
        Ok(Stock {
            pool,
            account,
            objects,
            next_slot: GIVEN,
            node,
        })
    }

    /// The memory.
    pub fn memory(&self) -> Cap<Memory> {
        self.pool.cap
    }

    /// An empty slot. The last one of each leaf is for the leaf behind it.
    pub fn slot(&mut self) -> Result<Place> {
        if self.next_slot % LEAF_SLOTS == LEAF_SLOTS - 1 {
            let place = Place::of(TABLE, CapIndex(self.next_slot));
            let leaf: Cap<Captbl> = self.object_at(ObjectKind::CaptblLeaf, place)?;
            TABLE.cons(self.next_slot / LEAF_SLOTS + 1, leaf)?;
            self.next_slot += 1;
        }
        let index = CapIndex::new(self.next_slot.into()).ok_or(Error::Full)?;
        self.next_slot += 1;
        Ok(Place::of(TABLE, index))
    }

    /// An untyped frame.
    pub fn frame(&mut self) -> Result<u64> {
        self.objects.take(&self.pool, 0)
    }

    /// An object.
    pub fn object<T: Kind>(&mut self, kind: ObjectKind) -> Result<Cap<T>> {
        let place = self.slot()?;
        self.object_at(kind, place)
    }

    fn object_at<T: Kind>(&mut self, kind: ObjectKind, place: Place) -> Result<Cap<T>> {
        let at = self.frame()?;
        self.memory().retype_kernel(at, kind)?;
        self.memory().activate(at, place, Rights::ALL)
    }

    /// A page table.
    pub fn page_table(&mut self, at: TableAt) -> Result<Cap<PageTable>> {
        self.object(table_kind(at)?)
    }

    /// A space with a root for each ISA.
    pub fn space(&mut self) -> Result<Cap<Space>> {
        let space: Cap<Space> = self.object(ObjectKind::Space)?;
        for isa in Isa::ALL {
            let root = self.page_table(TableAt { isa, level: 4 })?;
            space.link(TableAt { isa, level: 4 }, 0, root)?;
        }
        Ok(space)
    }

    /// The first of the largest untyped blocks, and its order.
    pub fn largest(&self) -> Result<(u64, u32)> {
        let (mut at, mut best) = (0, (0, 0));
        while at < self.pool.frames() {
            let what = self.pool.inspect(at)?;
            if let What::Untyped { order } = what
                && order > best.1
            {
                best = (at, order);
            }
            at += what.frames();
        }
        Ok(best)
    }

    /// Drives rounds of this node, until memory that has been given up can be used again.
    pub fn settle(&self) -> Result<()> {
        let hardware = rt::hardware(self.node);
        for _ in 0..4 {
            while hardware.flush_step(64)?.is_none() {}
        }
        Ok(())
    }
}

/// Repeats what is refused for a moment, with rounds between.
pub fn patiently<T>(stock: &Stock, mut f: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..64 {
        match f() {
            Err(Error::Again) => {
                stock.settle()?;
                // Others count as quiet once they sleep.
                let hardware = rt::hardware(stock.node);
                let end = hardware.now()? + WAIT_NS;
                while hardware.now()? < end {}
            }
            done => return done,
        }
    }
    Err(Error::Again)
}
