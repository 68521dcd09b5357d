//! Heaps with memory of a particular node, in addition to the general heap, whose pages belong to the node
//! that touches them first.
//!
//! ```text
//!   alloc ──▶ does the thread want a node? ──no──▶ the general heap
//!                 │ yes
//!                 ▼
//!             that node's heap
//!   dealloc, realloc ──▶ the heap that the block's address is in, whatever the thread wants
//! ```
//!
//! If a thread is lost with its node while it changes a heap, the blocks of that heap stay as they are, and new ones come from
//! the general heap, or if that is lost, from a spare one; three of them.
//!
//! What a thread wants is a word of its control block, so it keeps it when it changes its node. In an
//! invocation nothing is wanted.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;

use super::{Heap, HeapUse, Lost, Source};

/// Slot of the thread control block that says on which node the thread wants memory: 0, or 1 and its
/// number.
#[cfg(target_os = "none")]
const SLOT: usize = 2;

/// How often the general heap may be lost.
const SPARES: usize = 3;

/// The general heap, and one for each node; meant to be the `#[global_allocator]`.
pub struct Heaps {
    general: Heap,
    /// What stands in for a heap that is lost.
    spare: [Heap; SPARES],
    placed: [Heap; MAX_NODES],
    /// Whether any but the general one has ever been asked for memory.
    any: AtomicBool,
}

impl Heaps {
    /// Empty heaps that take memory from the pager.
    pub const fn new() -> Heaps {
        let mut placed = [const { Heap::new() }; MAX_NODES];
        let mut n = 0;
        while n < MAX_NODES {
            if let Some(node) = NodeId::new(n as u64) {
                placed[n].source = Source::Of(node);
            }
            n += 1;
        }
        Heaps {
            general: Heap::new(),
            spare: [const { Heap::new() }; SPARES],
            placed,
            any: AtomicBool::new(false),
        }
    }

    /// Size and use of the general heap.
    pub fn usage(&self) -> HeapUse {
        self.general.usage()
    }

    /// Size and use of the heap of a node.
    pub fn usage_on(&self, node: NodeId) -> HeapUse {
        self.placed[node.index()].usage()
    }

    /// The heap that a block is in, if it is another one than the general one.
    fn owner(&self, block: *mut u8) -> Option<&Heap> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.others().find(|h| h.owns(block))
    }

    fn others(&self) -> impl Iterator<Item = &Heap> {
        self.placed.iter().chain(&self.spare)
    }

    /// A block of a heap, or of another one if that is lost; or null.
    fn take(&self, heap: &Heap, layout: Layout) -> *mut u8 {
        heap.take(layout)
            .unwrap_or_else(|Lost| self.take_elsewhere(layout))
    }

    #[cold]
    #[inline(never)]
    fn take_elsewhere(&self, layout: Layout) -> *mut u8 {
        self.any.store(true, Ordering::Relaxed);
        let mut others = [&self.general].into_iter().chain(&self.spare);
        let block = others.find_map(|heap| heap.take(layout).ok());
        block.unwrap_or(ptr::null_mut())
    }
}

impl Default for Heaps {
    fn default() -> Heaps {
        Heaps::new()
    }
}

// SAFETY: 1. Each heap keeps the contract for its own blocks, and a block goes back to the heap it came
// from: heaps have no memory in common, so its address says which. 2. `any` is set before the first block
// of a node's heap is handed out, and a thread that has the block has seen that.
unsafe impl GlobalAlloc for Heaps {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match chosen() {
            None => self.take(&self.general, layout),
            Some(node) => {
                self.any.store(true, Ordering::Relaxed);
                self.take(&self.placed[node.index()], layout)
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: 1. The block is of the heap that says so, by the contract of `dealloc` with this
        // layout.
        unsafe {
            if self.general.give_back(block, layout) || !self.any.load(Ordering::Relaxed) {
                return;
            }
            let _ = self.others().any(|h| h.give_back(block, layout));
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let heap = self.owner(block).unwrap_or(&self.general);
        // SAFETY: 1. By the contract of `realloc` the size, rounded up, fits.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let new = self.take(heap, new);
        if !new.is_null() {
            // SAFETY: 1. Both blocks are at least that long, and not the same. 2. The old one is of
            // this heap, and it is not used from here on.
            unsafe {
                ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                heap.give_back(block, layout);
            }
        }
        new
    }
}

/// The node on which the calling thread wants memory; `None`: wherever it is touched first.
pub fn chosen() -> Option<NodeId> {
    #[cfg(target_os = "none")]
    let word = own().map_or(0, |slot| slot.load(Ordering::Relaxed));
    #[cfg(not(target_os = "none"))]
    let word = host::WANTED.get();
    NodeId::new(word.wrapping_sub(1))
}

/// Sets on which node the calling thread wants memory from now on; gives what that was. In an invocation
/// it does nothing.
pub fn choose(node: Option<NodeId>) -> Option<NodeId> {
    let old = chosen();
    let word = node.map_or(0, |n| n.index() as u64 + 1);
    // Allocations stay on the side of this where they are written.
    compiler_fence(Ordering::SeqCst);
    #[cfg(target_os = "none")]
    if let Some(slot) = own() {
        slot.store(word, Ordering::Relaxed);
    }
    #[cfg(not(target_os = "none"))]
    host::WANTED.set(word);
    compiler_fence(Ordering::SeqCst);
    old
}

/// The slot of the calling thread; `None` in an invocation, where the control block is another program's.
#[cfg(target_os = "none")]
#[inline]
fn own() -> Option<&'static core::sync::atomic::AtomicU64> {
    dyad_sys::thread::id()?;
    Some(&dyad_sys::tcb::block().slots[SLOT])
}

#[cfg(not(target_os = "none"))]
mod host {
    use std::cell::Cell;

    std::thread_local! {
        /// Stands for the slot.
        pub(super) static WANTED: Cell<u64> = const { Cell::new(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::NonNull;
    use dyad_abi::user::PAGE_SIZE;
    use dyad_abi::{Error, Result};
    use std::cell::Cell;
    use std::collections::BTreeMap;

    std::thread_local! {
        /// Bytes that each source may still give.
        static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    fn on(n: u64) {
        choose(NodeId::new(n));
    }

    /// A leaked block.
    fn source(len: u64) -> Result<NonNull<u8>> {
        let left = LEFT.get().checked_sub(len).ok_or(Error::NoMemory)?;
        LEFT.set(left);
        let layout = Layout::from_size_align(len as usize, PAGE_SIZE as usize).unwrap();
        // SAFETY: 1. The layout is not empty.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(Error::NoMemory)
    }

    fn heaps() -> Heaps {
        let heap = || Heap::of(Source::Test(source));
        on(u64::MAX);
        LEFT.set(u64::MAX);
        Heaps {
            general: heap(),
            spare: core::array::from_fn(|_| heap()),
            placed: core::array::from_fn(|_| heap()),
            any: AtomicBool::new(false),
        }
    }

    fn allocated(h: &Heaps) -> [u64; 3] {
        let on = |n| h.usage_on(NodeId::new(n).unwrap()).allocated;
        [h.usage().allocated, on(0), on(1)].map(|n| n.div_ceil(16))
    }

    const LAYOUT: Layout = Layout::new::<[u64; 8]>();

    #[test]
    fn blocks_go_back_to_where_they_are_from() {
        let h = heaps();
        // SAFETY: 1. The layout is not empty; blocks are freed once, with their layouts.
        unsafe {
            let general = h.alloc(LAYOUT);
            on(0);
            let zero = h.alloc(LAYOUT);
            on(1);
            let one = h.alloc(LAYOUT);
            assert_eq!(allocated(&h), [4, 4, 4]);
            // Whatever is wanted at the moment.
            h.dealloc(zero, LAYOUT);
            assert_eq!(allocated(&h), [4, 0, 4]);
            h.dealloc(general, LAYOUT);
            on(u64::MAX);
            assert_eq!(allocated(&h), [0, 0, 4]);
            h.dealloc(one, LAYOUT);
            assert_eq!(allocated(&h), [0, 0, 0]);
        }
    }

    #[test]
    fn what_grows_stays_where_it_is() {
        let h = heaps();
        // SAFETY: 1. The layouts are not empty; blocks are used within their sizes, and freed once.
        unsafe {
            let general = h.alloc(LAYOUT);
            on(1);
            let one = h.alloc(LAYOUT);
            one.write_bytes(7, 64);
            general.write_bytes(3, 64);
            let general = h.realloc(general, LAYOUT, 160);
            on(0);
            let one = h.realloc(one, LAYOUT, 160);
            assert_eq!(allocated(&h), [10, 0, 10]);
            assert_eq!(core::slice::from_raw_parts(one, 64), [7; 64]);
            assert_eq!(core::slice::from_raw_parts(general, 64), [3; 64]);
            let large = Layout::array::<u8>(160).unwrap().align_to(8).unwrap();
            let one = h.realloc(one, large, 32);
            assert_eq!(core::slice::from_raw_parts(one, 32), [7; 32]);
            assert_eq!(allocated(&h), [10, 0, 2]);
            // It stays as it is if there is no room.
            LEFT.set(0);
            let small = Layout::array::<u8>(32).unwrap().align_to(8).unwrap();
            assert!(h.realloc(one, small, 64 << 20).is_null());
            assert_eq!(core::slice::from_raw_parts(one, 32), [7; 32]);
            h.dealloc(one, small);
            h.dealloc(general, large);
            assert_eq!(allocated(&h), [0, 0, 0]);
        }
    }

    /// A thread dies while it allocates in a heap, again and again. What it had stays usable, and who lives finds memory elsewhere,
    /// until the last spare heap is lost.
    #[test]
    fn a_heap_whose_lock_is_lost_is_left_alone() {
        fn play() -> u32 {
            dyad_host::lose_threads(1 << 1);
            let h = heaps();
            // SAFETY: 1. The layouts are not empty; blocks are used within their sizes, and freed once.
            unsafe {
                let general = h.alloc(LAYOUT);
                on(3);
                let three = h.alloc(LAYOUT);
                three.write_bytes(7, 64);
                h.general.state.hold_as(1);
                on(u64::MAX);
                let spare = h.alloc(LAYOUT);
                assert_eq!(
                    (h.spare[0].usage().allocated, h.usage().allocated),
                    (64, 64)
                );
                // It is not known to be of any heap: it stays.
                h.dealloc(general, LAYOUT);
                assert_eq!(h.usage().allocated, 64);
                on(3);
                h.placed[3].state.hold_as(1);
                let three = h.realloc(three, LAYOUT, 160);
                assert_eq!(core::slice::from_raw_parts(three, 64), [7; 64]);
                assert_eq!(h.spare[0].usage().allocated, 64 + 160);
                let large = Layout::from_size_align(160, 8).unwrap();
                h.dealloc(three, large);
                h.dealloc(spare, LAYOUT);
                assert_eq!(h.spare[0].usage().allocated, 0);
                (h.spare[..2].iter()).for_each(|s| s.state.hold_as(1));
                let last = h.alloc(LAYOUT);
                assert_eq!(h.spare[2].usage().allocated, 64);
                h.spare[2].state.hold_as(1);
                assert!(h.alloc(LAYOUT).is_null());
                h.dealloc(last, LAYOUT);
            }
            0
        }
        assert_eq!(
            dyad_host::run(dyad_host::Config::default(), |_| dyad_sys::exit(play())).code,
            0
        );
    }

    #[test]
    fn many_blocks_keep_their_bytes_and_their_heaps() {
        let h = heaps();
        let mut live = BTreeMap::new();
        let mut x = 99u32;
        for round in 0..3000u32 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            on(u64::from(x >> 8 & 3).wrapping_sub(2));
            let key = x >> 20 & 63;
            let size = 16 + (x as usize >> 16 & 0xfff);
            let layout = Layout::from_size_align(size, 16).unwrap();
            // SAFETY: 1. The layout is not empty. 2. Blocks are filled within their sizes and freed once.
            unsafe {
                if let Some((block, layout, byte)) = live.remove(&key) {
                    let block: *mut u8 = block;
                    let layout: Layout = layout;
                    let bytes = core::slice::from_raw_parts(block, layout.size());
                    assert!(bytes.iter().all(|&b| b == byte));
                    h.dealloc(block, layout);
                } else {
                    let block = h.alloc(layout);
                    block.write_bytes(round as u8, size);
                    live.insert(key, (block, layout, round as u8));
                }
            }
        }
        on(u64::MAX);
        for (block, layout, _) in live.into_values() {
            // SAFETY: 1. Allocated above with this layout, freed once.
            unsafe { h.dealloc(block, layout) };
        }
        assert_eq!(allocated(&h), [0, 0, 0]);
    }

    #[test]
    fn a_thread_keeps_what_it_wants() {
        assert_eq!(chosen(), None);
        let node = NodeId::new(1);
        assert_eq!(choose(node), None);
        assert_eq!(chosen(), node);
        assert_eq!(std::thread::spawn(chosen).join().unwrap(), None);
        assert_eq!(choose(None), node);
    }
}
