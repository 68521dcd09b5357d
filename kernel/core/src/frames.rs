//! Frames of the pools: allocation and release by any node.
//!
//! Each pool has a bump index and a free list in its superblock entry. The free list is a Treiber
//! stack: `tag:32 | index + 1:32`, the link lies in the first word of the free frame, and the tag
//! changes with every operation so that a stale head never matches again.
//!
//! | step | order |
//! |---|---|
//! | free: write link, CAS head | release (the link is visible before the frame is) |
//! | allocate: read head, read link, CAS head, zero | acquire |
//!
//! A node that dies between CAS and use leaks at most the frame it was moving.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Result};
use dyad_coherence::Coherent;
use dyad_pgtbl::FrameSource;
use dyad_shm::superblock::{CXL_FRAME_TABLE_OFFSET, PoolEntry};
use dyad_shm::{FrameEntry, FrameRef, FusedMap, PhysAddr, PoolId};

/// Allocates frames of one pool.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'m> {
    map: &'m FusedMap,
    pool: PoolId,
}

const INDEX: u64 = 0xffff_ffff;

impl<'m> Frames<'m> {
    /// The allocator of a pool.
    pub const fn new(map: &'m FusedMap, pool: PoolId) -> Frames<'m> {
        Frames { map, pool }
    }

    fn entry(&self) -> &'static PoolEntry {
        &self.map.superblock().pools[self.pool.index()]
    }

    /// Fills the pool's superblock entry and its frame table's place. Called by the node that
    /// formats (CXL pool) or by a pool's own node when it joins for the first time.
    ///
    /// `reserved` bytes at the start (before the frame table) and everything from `end` on are
    /// never handed out.
    pub fn format(&self, end: u64) {
        let size = self.map.size(self.pool);
        let table_at = match self.pool {
            PoolId::Cxl => CXL_FRAME_TABLE_OFFSET,
            PoolId::Local(_) => 0,
        };
        let frames = size / PAGE_SIZE;
        let table_end = table_at + frames * size_of::<FrameEntry>() as u64;
        let first = table_end.div_ceil(PAGE_SIZE);
        let e = self.entry();
        e.base.store(self.pool.base().0, Ordering::Relaxed);
        e.size.store(size, Ordering::Relaxed);
        e.frame_table
            .store(self.pool.base().0 + table_at, Ordering::Relaxed);
        e.first_frame.store(first, Ordering::Relaxed);
        e.end_frame
            .store((end.min(size) / PAGE_SIZE).max(first), Ordering::Relaxed);
        e.free.store(0, Ordering::Relaxed);
        e.used.store(0, Ordering::Relaxed);
        e.bump.store(first, Ordering::Release);
    }

    /// Whether the pool's entry has been filled.
    pub fn is_formatted(&self) -> bool {
        self.entry().bump.load(Ordering::Acquire) != 0
    }

    /// Frames in use (allocated and not freed).
    pub fn used(&self) -> u64 {
        self.entry().used.load(Ordering::Relaxed)
    }

    fn address(&self, index: u64) -> PhysAddr {
        self.pool.base().add(index * PAGE_SIZE)
    }

    /// A frame filled with zeros.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`]; [`Error::Corrupt`] if the free list names a frame outside the pool.
    pub fn alloc(&self) -> Result<PhysAddr> {
        self.alloc_zeroed_by(FusedMap::zero_frame)
    }

    /// As [`Frames::alloc`], with the machine's own way to fill the frame with zeros
    /// ([`Platform::zero_frame`](crate::Platform::zero_frame)).
    ///
    /// # Errors
    ///
    /// As for `alloc`.
    pub fn alloc_zeroed_by(&self, zero: fn(&FusedMap, PhysAddr) -> bool) -> Result<PhysAddr> {
        let e = self.entry();
        let (first, end) = (
            e.first_frame.load(Ordering::Acquire),
            e.end_frame.load(Ordering::Relaxed),
        );
        let pa = loop {
            let head = e.free.load(Ordering::Acquire);
            if head & INDEX == 0 {
                let n = e
                    .bump
                    .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| {
                        (n < end).then_some(n + 1)
                    })
                    .map_err(|_| Error::NoMemory)?;
                break self.address(n);
            }
            let index = (head & INDEX) - 1;
            if index < first || index >= end {
                return Err(Error::Corrupt);
            }
            let pa = self.address(index);
            // The link may be garbage if somebody else takes this frame now; then the CAS fails.
            let word: &AtomicU64 = self.map.get(pa).ok_or(Error::Corrupt)?;
            let link = word.load(Ordering::Acquire) & INDEX;
            let next = (head >> 32).wrapping_add(1) << 32 | link;
            if e.free
                .compare_exchange(head, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                break pa;
            }
        };
        if !zero(self.map, pa) {
            return Err(Error::Corrupt);
        }
        e.used.fetch_add(1, Ordering::Relaxed);
        Ok(pa)
    }

    /// The frame record of a frame of any pool.
    pub fn record(map: &FusedMap, pa: PhysAddr) -> Option<&'static FrameEntry> {
        let f = FrameRef::of(pa)?;
        let e = &map.superblock().pools[f.pool().index()];
        let table = e.frame_table.load(Ordering::Acquire);
        if table == 0 || pa.0 - f.pool().base().0 >= map.size(f.pool()) {
            return None;
        }
        map.get(PhysAddr(table).add(f.index() * size_of::<FrameEntry>() as u64))
    }

    /// Gives a frame back to the pool it is from.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if `pa` is not an allocatable frame.
    pub fn free(map: &FusedMap, pa: PhysAddr) -> Result<()> {
        let f = FrameRef::of(pa)
            .filter(|_| pa.offset() == 0)
            .ok_or(Error::BadArgument)?;
        let e = &map.superblock().pools[f.pool().index()];
        let range = e.first_frame.load(Ordering::Acquire)..e.end_frame.load(Ordering::Relaxed);
        if !range.contains(&f.index()) {
            return Err(Error::BadArgument);
        }
        let link: &AtomicU64 = map.get(pa).ok_or(Error::BadArgument)?;
        loop {
            let head = e.free.load(Ordering::Acquire);
            link.store(head & INDEX, Ordering::Release);
            let next = (head >> 32).wrapping_add(1) << 32 | (f.index() + 1);
            if e.free
                .compare_exchange(head, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                e.used.fetch_sub(1, Ordering::Relaxed);
                return Ok(());
            }
        }
    }
}

impl FrameSource for Frames<'_> {
    fn alloc_table(&self) -> Option<PhysAddr> {
        self.alloc().ok()
    }

    fn free_table(&self, pa: PhysAddr) {
        // Only frames that `alloc` returned come back here.
        let _ = Frames::free(self.map, pa);
    }
}

/// Access to words of the pools, as page tables and rings want it.
pub const fn words(map: &FusedMap) -> Coherent<'_> {
    Coherent(map)
}
