//! Building the kernel half of an address space: what both ISAs' `mmu` modules share.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_abi::boot::BootParams;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, NodeId};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{FrameSource, Leaf, Level, MapError, Memory, Perms, RemoteCpu};
use dyad_shm::pool::MAX_POOLS;
use dyad_shm::{FUSED_BASE, PhysAddr, PoolId};

/// A machine's private RAM, where its kernel's page tables are.
pub trait PrivateRam {
    /// Physical addresses of what the kernel may use.
    fn range() -> Range<u64>;
    /// The word at an aligned physical address in that range. Panics on any other address.
    fn word(at: PhysAddr) -> &'static AtomicU64;
}

/// Private RAM as the page-table code wants it.
#[derive(Debug)]
pub struct PrivateMem<R>(PhantomData<R>);

impl<R: PrivateRam> PrivateMem<R> {
    /// Access to it.
    pub const NEW: PrivateMem<R> = PrivateMem(PhantomData);

    fn word(at: PhysAddr) -> &'static AtomicU64 {
        R::word(at)
    }
}

impl<R: PrivateRam> GlobalMem for PrivateMem<R> {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        let range = R::range();
        range.contains(&at.0) && len <= range.end - at.0
    }
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        Self::word(at).load(order)
    }
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        Self::word(at).store(value, order);
    }
    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        Self::word(at).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        Self::word(at).swap(value, Ordering::AcqRel)
    }
    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        Self::word(at).fetch_add(n, Ordering::AcqRel)
    }
    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        Self::word(at).fetch_or(bits, Ordering::AcqRel)
    }
    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        Self::word(at).fetch_and(bits, Ordering::AcqRel)
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
    // No other machine sees private RAM.
    fn writeback(&self, _at: PhysAddr, _len: u64) {}
    fn invalidate(&self, _at: PhysAddr, _len: u64) {}
}

/// Frames of private RAM, given out once, zero-filled, and never taken back.
#[derive(Debug)]
pub struct BootFrames<R> {
    next: Cell<u64>,
    ram: PhantomData<R>,
}

impl<R: PrivateRam> BootFrames<R> {
    /// All frames of private RAM.
    pub fn all() -> BootFrames<R> {
        BootFrames {
            next: Cell::new(R::range().start),
            ram: PhantomData,
        }
    }

    /// A source without frames, for mappings whose tables exist already.
    pub fn none() -> BootFrames<R> {
        BootFrames {
            next: Cell::new(u64::MAX),
            ram: PhantomData,
        }
    }
}

impl<R: PrivateRam> FrameSource for BootFrames<R> {
    fn alloc_table(&self) -> Option<PhysAddr> {
        let pa = self.next.get();
        if pa >= R::range().end {
            return None;
        }
        self.next.set(pa + PAGE_SIZE);
        for i in 0..PAGE_SIZE / 8 {
            PrivateMem::<R>::NEW.store(PhysAddr(pa + 8 * i), 0, Ordering::Relaxed);
        }
        Some(PhysAddr(pa))
    }

    fn free_table(&self, _pa: PhysAddr) {}
}

/// Builds the kernel half of one address space.
pub struct Builder<'a, R: PrivateRam> {
    table: RemoteCpu<'a, PrivateMem<R>>,
    frames: &'a BootFrames<R>,
}

impl<'a, R: PrivateRam> Builder<'a, R> {
    /// A builder that adds to the table at `root`, in the format of `isa`.
    pub fn new(isa: Isa, root: PhysAddr, frames: &'a BootFrames<R>) -> Builder<'a, R> {
        Builder {
            table: RemoteCpu::new(&PrivateMem::NEW, isa, root),
            frames,
        }
    }

    /// Maps a range; see [`map_range`].
    ///
    /// # Errors
    ///
    /// As [`RemoteCpu::map`].
    pub fn map(
        &self,
        va: Range<u64>,
        pa: u64,
        perms: Perms,
        memory: Memory,
    ) -> Result<(), MapError> {
        map_range(&self.table, self.frames, va, pa, perms, memory)
    }

    /// Maps the parts of the kernel's image: where each begins and ends, and what may be done with it.
    /// `to_physical` is where the image lies.
    ///
    /// # Errors
    ///
    /// As [`RemoteCpu::map`].
    pub fn map_image(
        &self,
        parts: [(*const u8, *const u8, Perms); 3],
        to_physical: impl Fn(u64) -> u64,
    ) -> Result<(), MapError> {
        for (start, end, perms) in parts {
            let va = start as u64..end as u64;
            let pa = to_physical(va.start);
            self.map(va, pa, perms, Memory::Normal)?;
        }
        Ok(())
    }

    /// Maps a range to new frames, readable and writable.
    ///
    /// # Errors
    ///
    /// As [`RemoteCpu::map`].
    pub fn map_new(&self, va: Range<u64>) -> Result<(), MapError> {
        for page in va.step_by(PAGE_SIZE as usize) {
            let frame = self.frames.alloc_table().ok_or(MapError::NoMemory)?;
            let range = page..page + PAGE_SIZE;
            self.map(range, frame.0, Perms::WRITE, Memory::Normal)?;
        }
        Ok(())
    }
}

/// Maps a range with the largest pages that fit.
///
/// # Errors
///
/// As [`RemoteCpu::map`].
pub fn map_range<M: GlobalMem>(
    table: &RemoteCpu<'_, M>,
    frames: &impl FrameSource,
    range: Range<u64>,
    pa: u64,
    perms: Perms,
    memory: Memory,
) -> Result<(), MapError> {
    let (mut va, mut pa) = (range.start, pa);
    while va < range.end {
        let level = [Level::L3, Level::L2]
            .into_iter()
            .find(|l| (va | pa).is_multiple_of(l.size()) && range.end - va >= l.size())
            .unwrap_or(Level::L1);
        let leaf = Leaf::kernel(PhysAddr(pa), perms, memory);
        table.map(va, leaf, level, frames)?;
        pa += level.size();
        // The last page of the address space has no address behind it.
        let Some(next) = va.checked_add(level.size()) else {
            break;
        };
        va = next;
    }
    Ok(())
}

/// The pools that the parameters tell of: size and virtual address, by pool index.
pub fn pools(params: &BootParams<'_>) -> [(u64, u64); MAX_POOLS] {
    let mut pools = [(0, 0); MAX_POOLS];
    for n in NodeId::first(params.node_count) {
        let id = PoolId::Local(n);
        pools[id.index()] = (params.local_size, FUSED_BASE + id.base().0);
    }
    pools[PoolId::Cxl.index()] = (params.cxl_size, FUSED_BASE + PoolId::Cxl.base().0);
    pools
}
