//! What the benchmark has been given, and how it makes objects of it.

#![allow(unsafe_code)]

use dyad::sys::cap::{
    Access, Cap, Captbl, Component, Frame, Kind, Memory, Narrow, ObjectKind, PageTable, Place,
    Rights, Space, TableAt,
};
use dyad::sys::{Error, Isa, NodeId, Result};
use dyad_abi::cap::{CapIndex, LEAF_SLOTS};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::marker::BenchMemory;
use dyad_abi::service::slot;
use dyad_abi::user::PAGE_SIZE;

/// The program's own table and address space.
pub const TABLE: Cap<Captbl> = Cap::at(slot::TABLE);
/// Its own address space.
pub const SPACE: Cap<Space> = Cap::at(slot::SPACE);

/// Type of a frame's word: untyped.
const UNTYPED: u64 = 1;

/// Untyped frames, taken in order. What has been taken does not come back.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// The authority over them.
    pub memory: Cap<Memory>,
    frames: u64,
    next: u64,
}

impl Pool {
    fn new(index: usize) -> Pool {
        let memory: Cap<Memory> = Cap::at(slot::memory(index));
        // None for nodes that the system does not have.
        let frames = memory.introspect().map_or(0, |i| i.detail);
        Pool {
            memory,
            frames,
            next: 0,
        }
    }

    /// Takes an untyped block of `2^order` frames.
    pub fn take(&mut self, order: u32) -> Result<u64> {
        while self.next < self.frames {
            let word = self.memory.inspect(self.next)?;
            let found = (word >> 24 & 31) as u32;
            if word >> 29 & 7 != UNTYPED {
                return Err(Error::Corrupt);
            }
            // Blocks are aligned: what is too small lies before one that is not.
            if found < order {
                self.next += 1 << found;
                continue;
            }
            for _ in order..found {
                self.memory.split(self.next)?;
            }
            let at = self.next;
            self.next += 1 << order;
            return Ok(at);
        }
        Err(Error::NoMemory)
    }
}

/// What objects are made from, and the program's own capability table, where they are named.
pub struct Stock {
    pools: [Pool; MAX_NODES + 1],
    next_slot: u32,
}

/// Which pool the objects of a benchmarked operation come from.
pub const fn pool_of(memory: BenchMemory, node: NodeId) -> usize {
    match memory {
        BenchMemory::Local => node.index(),
        BenchMemory::Fused => MAX_NODES,
    }
}

impl Stock {
    /// What has been given.
    pub fn new() -> Stock {
        Stock {
            pools: core::array::from_fn(Pool::new),
            next_slot: slot::FIRST_FREE.get(),
        }
    }

    /// A pool.
    pub fn pool(&mut self, index: usize) -> &mut Pool {
        &mut self.pools[index]
    }

    /// An empty slot of the program's own table.
    pub fn slot(&mut self) -> Result<Place> {
        // The runtime's leaves end somewhere; each leaf's last slot is for the next leaf.
        if self.next_slot % LEAF_SLOTS == LEAF_SLOTS - 1 {
            let place = Place::of(TABLE, CapIndex(self.next_slot));
            let leaf = self.object_at(MAX_NODES, ObjectKind::CaptblLeaf, place)?;
            match TABLE.cons(self.next_slot / LEAF_SLOTS + 1, leaf) {
                // The program was started with that one.
                Ok(()) | Err(Error::Exists) => {}
                Err(e) => return Err(e),
            }
            self.next_slot += 1;
        }
        let index = CapIndex::new(self.next_slot.into()).ok_or(Error::Full)?;
        self.next_slot += 1;
        Ok(Place::of(TABLE, index))
    }

    fn object_at<T: Kind>(
        &mut self,
        pool: usize,
        kind: ObjectKind,
        place: Place,
    ) -> Result<Cap<T>> {
        let at = self.pools[pool].take(0)?;
        let memory = self.pools[pool].memory;
        memory.retype_kernel(at, kind)?;
        memory.activate(at, place, Rights::ALL)
    }

    /// A kernel object in a pool.
    pub fn object<T: Kind>(&mut self, pool: usize, kind: ObjectKind) -> Result<Cap<T>> {
        let place = self.slot()?;
        self.object_at(pool, kind, place)
    }

    /// `2^order` pages of user memory.
    pub fn user(&mut self, pool: usize, order: u32) -> Result<(Cap<Frame>, u64)> {
        let at = self.pools[pool].take(order)?;
        let memory = self.pools[pool].memory;
        memory.retype_user(at, order)?;
        let place = self.slot()?;
        Ok((memory.activate(at, place, Rights::ALL)?, at))
    }

    /// A part of a pool, for faults to take from.
    pub fn supply(&mut self, pool: usize, order: u32) -> Result<Cap<Memory>> {
        let at = self.pools[pool].take(order)?;
        let place = self.slot()?;
        let narrow = Narrow::range(at, 1 << order);
        let memory = self.pools[pool].memory;
        TABLE.copy_in(place.index(), memory, Rights::ALL, None, narrow)
    }

    /// A capability table with leaves for `slots` capabilities.
    pub fn table(&mut self, pool: usize, slots: u32) -> Result<Cap<Captbl>> {
        let root: Cap<Captbl> = self.object(pool, ObjectKind::CaptblRoot)?;
        for entry in 0..slots.div_ceil(LEAF_SLOTS) {
            let leaf = self.object(pool, ObjectKind::CaptblLeaf)?;
            root.cons(entry, leaf)?;
        }
        Ok(root)
    }

    /// An address space with roots for these ISAs.
    pub fn space(&mut self, pool: usize, isas: &[Isa]) -> Result<Cap<Space>> {
        let space: Cap<Space> = self.object(pool, ObjectKind::Space)?;
        for &isa in isas {
            let at = TableAt { isa, level: 4 };
            let root: Cap<PageTable> = self.object(pool, table_kind(at)?)?;
            space.link(at, 0, root)?;
        }
        Ok(space)
    }

    /// Sees to it that an address has page tables.
    pub fn tables(&mut self, pool: usize, space: Cap<Space>, isa: Isa, va: u64) -> Result<()> {
        for level in [3, 2, 1] {
            let at = TableAt { isa, level };
            let table: Cap<PageTable> = self.object(pool, table_kind(at)?)?;
            let start = va & !((PAGE_SIZE << (9 * u32::from(level))) - 1);
            match space.link(at, start, table) {
                Ok(()) | Err(Error::Exists) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Maps a page, with page tables if there are none.
    pub fn map(
        &mut self,
        pool: usize,
        (space, isa): (Cap<Space>, Isa),
        va: u64,
        (frame, page): (Cap<Frame>, u64),
        access: Access,
    ) -> Result<()> {
        let at = TableAt { isa, level: 1 };
        loop {
            // SAFETY: 1. Callers give addresses at which the program has nothing, or spaces that
            // are not its own.
            match unsafe { space.map(at, va, frame, page, access) } {
                Err(Error::NotFound) => self.tables(pool, space, isa, va)?,
                // Other nodes have to do something first.
                Err(Error::Again) => dyad::sys::yield_now(),
                done => return done,
            }
        }
    }

    /// A component of a table and a space; also where its frame is.
    pub fn component(
        &mut self,
        pool: usize,
        table: Cap<Captbl>,
        space: Cap<Space>,
    ) -> Result<Cap<Component>> {
        let component: Cap<Component> = self.object(pool, ObjectKind::Component)?;
        component.configure(table, space)?;
        Ok(component)
    }
}

/// Kind of the page table of an ISA and a level.
pub fn table_kind(at: TableAt) -> Result<ObjectKind> {
    let first = match at.isa {
        Isa::X86_64 => ObjectKind::PageTableX86L1,
        Isa::Aarch64 => ObjectKind::PageTableA64L1,
    };
    ObjectKind::from_number(first as u64 + at.level as u64 - 1).ok_or(Error::BadArgument)
}
