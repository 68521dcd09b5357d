//! The program's heap: first-fit areas that grow in chunks from `MapAnon`.
//!
//! All of it lies in memory that has the same address on every ISA, so what is allocated on one
//! can be used and freed on the other.
//!
//! ```text
//!  alloc ──▶ fits an area? ──yes──▶ done
//!              │ no
//!              ▼
//!       map a chunk ──adjoins an area──▶ extend it ──▶ retry
//!              └───────otherwise───────▶ new area  ──▶ retry
//! ```

mod limit;
mod placed;

pub use placed::{Heaps, choose, chosen};

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{NodeId, Result};
use linked_list_allocator::Heap as Area;

use crate::Lock;

/// Most areas that do not adjoin. The kernel hands out addresses in order, so one is the rule.
const AREAS: usize = 32;
/// First chunk; each further one is at least a quarter of the heap, within these bounds.
const MIN_CHUNK: u64 = 256 << 10;
const MAX_CHUNK: u64 = 32 << 20;
/// Bytes that an area needs in addition to the requested memory: its bookkeeping and the rounding of both
/// ends.
const SLACK: u64 = 256;

/// Source of chunks: zero-filled pages, owned by the caller.
///
/// It is no pointer to a function: a call through one may reach each function of its type, and if one of these reaches
/// a migration point, so would all code that allocates.
#[derive(Clone, Copy)]
enum Source {
    /// Pages of the node that touches them.
    Here,
    /// Pages of a node.
    Of(NodeId),
    /// Memory of a test: parts of leaked blocks, aligned to pages, each once.
    #[cfg(test)]
    Test(fn(u64) -> Result<NonNull<u8>>),
}

impl Source {
    /// Pages of that many bytes in all.
    fn map(self, len: u64) -> Result<NonNull<u8>> {
        match self {
            Source::Here => limit::here(len),
            Source::Of(node) => limit::on(len, node),
            #[cfg(test)]
            Source::Test(map) => map(len),
        }
    }
}

struct Areas {
    areas: [Area; AREAS],
    used: usize,
    mapped: u64,
}

// SAFETY: 1. Areas are reached through the lock only, and the memory they manage is not tied to
// a thread.
unsafe impl Send for Areas {}

/// A thread was lost with its node while it changed a heap, which cannot be changed any more. Blocks that it has handed out stay
/// usable.
#[derive(Clone, Copy, Debug)]
struct Lost;

/// A growing heap; meant to be the `#[global_allocator]`.
pub struct Heap {
    source: Source,
    state: Lock<Areas>,
    /// Bytes mapped from the kernel, for [`usage`](Heap::usage); written under the lock, read without it.
    mapped: AtomicU64,
    allocated: AtomicU64,
}

/// Size and use of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUse {
    /// Bytes mapped from the kernel.
    pub mapped: u64,
    /// Bytes allocated, with rounding.
    pub allocated: u64,
}

impl Heap {
    /// An empty heap that takes memory from `MapAnon`, as long as there are frames for it.
    pub const fn new() -> Heap {
        Heap::of(Source::Here)
    }

    /// An empty heap over a source.
    const fn of(source: Source) -> Heap {
        Heap {
            source,
            state: Lock::new(Areas {
                areas: [const { Area::empty() }; AREAS],
                used: 0,
                mapped: 0,
            }),
            mapped: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
        }
    }

    // Not inlined, so that the heap is a value in there: from a constant address among several back
    // ends compute the others, in registers, across calls in which a plain thread may migrate.

    /// A block, or null.
    #[inline(never)]
    fn take(&self, layout: Layout) -> core::result::Result<*mut u8, Lost> {
        let mut state = self.state.lock_or_lost().map_err(|_| Lost)?;
        loop {
            if let Some(block) = state.alloc(layout) {
                self.allocated.store(state.allocated(), Ordering::Relaxed);
                return Ok(block.as_ptr());
            }
            if state.grow(self.source, layout).is_none() {
                return Ok(ptr::null_mut());
            }
            self.mapped.store(state.mapped, Ordering::Relaxed);
        }
    }

    /// Whether it is known that a block is of this heap.
    #[inline(never)]
    fn owns(&self, block: *mut u8) -> bool {
        let Ok(state) = self.state.lock_or_lost() else {
            return false;
        };
        let mut areas = state.areas[..state.used].iter();
        areas.any(|a| (a.bottom()..a.top()).contains(&block))
    }

    /// Takes a block back if it is known to be of this heap; whether it is. Blocks of a heap that is lost stay where they are.
    ///
    /// # Safety
    ///
    /// As [`GlobalAlloc::dealloc`], if it is.
    #[inline(never)]
    unsafe fn give_back(&self, block: *mut u8, layout: Layout) -> bool {
        let Ok(mut state) = self.state.lock_or_lost() else {
            return false;
        };
        let used = state.used;
        let owner = state.areas[..used]
            .iter_mut()
            .find(|a| (a.bottom()..a.top()).contains(&block));
        let (Some(area), Some(block)) = (owner, NonNull::new(block)) else {
            return false;
        };
        // SAFETY: 1. By the contract of this function the block came from this heap with this
        // layout, and its address says from this area.
        unsafe { area.deallocate(block, layout) };
        self.allocated.store(state.allocated(), Ordering::Relaxed);
        true
    }

    /// The current size and use of the heap.
    pub fn usage(&self) -> HeapUse {
        HeapUse {
            mapped: self.mapped.load(Ordering::Relaxed),
            allocated: self.allocated.load(Ordering::Relaxed),
        }
    }
}

impl Default for Heap {
    fn default() -> Heap {
        Heap::new()
    }
}

impl Areas {
    /// Bytes allocated, with rounding. Nothing in here panics.
    #[inline(never)]
    fn allocated(&self) -> u64 {
        let areas = self.areas.iter().take(self.used);
        areas.map(|a| a.used() as u64).sum()
    }

    fn alloc(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.areas[..self.used]
            .iter_mut()
            .find_map(|a| a.allocate_first_fit(layout).ok())
    }

    fn grow(&mut self, source: Source, layout: Layout) -> Option<()> {
        let need = (layout.size() as u64)
            .checked_add(layout.align() as u64 + SLACK)?
            .checked_next_multiple_of(PAGE_SIZE)?;
        let step = (self.mapped / 4)
            .clamp(MIN_CHUNK, MAX_CHUNK)
            .next_multiple_of(PAGE_SIZE);
        // When memory is short the generous step may fail where the bare need does not.
        let (len, chunk) = match source.map(need.max(step)) {
            Ok(chunk) => (need.max(step), chunk),
            Err(_) if step > need => (need, source.map(need).ok()?),
            Err(_) => return None,
        };
        self.mapped += len;
        let start = chunk.as_ptr();
        if let Some(area) = self.areas[..self.used]
            .iter_mut()
            .find(|a| a.top() == start)
        {
            // SAFETY: 1. The chunk begins where the area ends. 2. It is the heap's for ever, by
            // the contract of the source.
            unsafe { area.extend(len as usize) };
        } else {
            let area = self.areas.get_mut(self.used)?;
            // SAFETY: 1. This area is still empty. 2. The chunk is the heap's for ever, by the
            // contract of the source, and page alignment is more than areas need.
            unsafe { area.init(start, len as usize) };
            self.used += 1;
        }
        Some(())
    }
}

// SAFETY: 1. Blocks come from areas of memory the heap owns, with the layout asked for, and no
// byte is handed out twice before it is given back (property of `linked_list_allocator`).
// 2. A block is given back to the area it came from, found by address. 3. No call unwinds:
// nothing here panics on any layout.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout).unwrap_or(ptr::null_mut())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: 1. The contract is the same.
        unsafe { self.give_back(block, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::vec::Vec;

    std::thread_local! {
        /// Bytes the test source may still give out, and whether its chunks adjoin.
        static LIMIT: Cell<u64> = const { Cell::new(0) };
        static GAPS: Cell<bool> = const { Cell::new(false) };
        static NEXT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    /// Chunks out of one big leaked block per thread.
    fn source(len: u64) -> Result<NonNull<u8>> {
        let left = LIMIT.get();
        if len > left {
            return Err(dyad_abi::Error::NoMemory);
        }
        LIMIT.set(left - len);
        let (mut next, mut end) = NEXT.get();
        if next == 0 {
            let layout = Layout::from_size_align(64 << 20, PAGE_SIZE as usize).unwrap();
            // SAFETY: 1. The layout is not empty.
            next = unsafe { std::alloc::alloc_zeroed(layout) } as usize;
            end = next + layout.size();
        }
        let gap = if GAPS.get() { PAGE_SIZE as usize } else { 0 };
        assert!(next + gap + len as usize <= end);
        NEXT.set((next + gap + len as usize, end));
        Ok(NonNull::new((next + gap) as *mut u8).unwrap())
    }

    fn heap() -> Heap {
        Heap::of(Source::Test(source))
    }

    /// Allocates, fills and frees in a fixed but irregular order; every block keeps its bytes.
    fn churn(heap: &Heap) {
        let mut live: Vec<(*mut u8, Layout, u8)> = Vec::new();
        let mut x = 12345u32;
        for round in 0..4000u32 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            if live.len() < 100 && x & 0x30000 != 0 {
                let size = 1 + (x >> 20) as usize * if x & 0x7000 == 0 { 60 } else { 1 };
                let layout = Layout::from_size_align(size, 1 << (x >> 8 & 7)).unwrap();
                // SAFETY: 1. The layout is not empty.
                let p = unsafe { heap.alloc(layout) };
                assert!(!p.is_null() && (p as usize).is_multiple_of(layout.align()));
                // SAFETY: 1. The block has that size and is ours.
                unsafe { p.write_bytes(round as u8, size) };
                live.push((p, layout, round as u8));
            } else if !live.is_empty() {
                let (p, layout, byte) = live.swap_remove((x as usize >> 8) % live.len());
                // SAFETY: 1. The block is live and has that size.
                let bytes = unsafe { core::slice::from_raw_parts(p, layout.size()) };
                assert!(bytes.iter().all(|&b| b == byte));
                // SAFETY: 1. Allocated above with this layout, freed once.
                unsafe { heap.dealloc(p, layout) };
            }
        }
        for (p, layout, _) in live {
            // SAFETY: 1. Allocated above with this layout, freed once.
            unsafe { heap.dealloc(p, layout) };
        }
    }

    #[test]
    fn adjoining_chunks_become_one_area() {
        LIMIT.set(48 << 20);
        let heap = heap();
        churn(&heap);
        assert_eq!(heap.usage().allocated, 0);
        assert_eq!(heap.state.lock().used, 1);
        let mapped = heap.usage().mapped;
        // Everything was given back and merged: it can be had again as one block.
        let layout = Layout::from_size_align(mapped as usize - 4096, 16).unwrap();
        // SAFETY: 1. The layout is not empty.
        assert!(!unsafe { heap.alloc(layout) }.is_null());
        assert_eq!(heap.usage().mapped, mapped);
    }

    #[test]
    fn scattered_chunks_become_areas() {
        LIMIT.set(48 << 20);
        GAPS.set(true);
        let heap = heap();
        churn(&heap);
        let big = Layout::from_size_align(3 << 20, 1 << 16).unwrap();
        // SAFETY: 1. The layout is not empty.
        let p = unsafe { heap.alloc(big) };
        assert!(!p.is_null() && (p as usize).is_multiple_of(big.align()));
        assert!(heap.state.lock().used > 1);
        // SAFETY: 1. Allocated above with this layout, freed once.
        unsafe { heap.dealloc(p, big) };
        assert_eq!(heap.usage().allocated, 0);
    }

    #[test]
    fn exhaustion_is_null_and_takes_the_bare_need_first() {
        // Room for one small block's pages, but not for the step the heap would like.
        LIMIT.set(2 * PAGE_SIZE);
        let heap = heap();
        let small = Layout::from_size_align(100, 8).unwrap();
        // SAFETY: 1. The layouts are not empty.
        unsafe {
            assert!(!heap.alloc(small).is_null());
            let huge = Layout::from_size_align(isize::MAX as usize - 64, 8).unwrap();
            assert!(heap.alloc(huge).is_null());
            assert!(
                heap.alloc(Layout::from_size_align(1 << 20, 8).unwrap())
                    .is_null()
            );
            assert!(!heap.alloc(small).is_null());
        }
    }
}
