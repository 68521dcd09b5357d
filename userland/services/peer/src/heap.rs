//! A fixed area for records of pages.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};

use linked_list_allocator::Heap;

/// Bytes of the area: records of all chunks of pages have room. It is zero, and gets frames where it is touched.
const AREA: usize = 44 << 20;

#[repr(align(4096))]
struct Area(UnsafeCell<[u8; AREA]>);

struct Allocator(UnsafeCell<Heap>);

// SAFETY: 1. The actor alone allocates: handlers have no allocation in any path.
unsafe impl Sync for Allocator {}
// SAFETY: 1. It is accessed by way of the allocator only.
unsafe impl Sync for Area {}

static MEMORY: Area = Area(UnsafeCell::new([0; AREA]));

#[global_allocator]
static HEAP: Allocator = Allocator(UnsafeCell::new(Heap::empty()));

/// Makes the area usable. To be called once, by the actor, before it allocates.
pub fn begin() {
    // SAFETY: 1. The actor calls this once, and nothing has been allocated. 2. The area is used by nothing else.
    unsafe { (*HEAP.0.get()).init(MEMORY.0.get().cast(), AREA) };
}

// SAFETY: 1. The heap gives out disjoint parts of an area that lives as long as the program. 2. One thread calls it.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. The actor alone allocates, so no other reference exists.
        let heap = unsafe { &mut *self.0.get() };
        heap.allocate_first_fit(layout)
            .map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if let Some(at) = NonNull::new(at) {
            // SAFETY: 1. The actor alone allocates, so no other reference exists. 2. The caller says that it comes from here, with this layout.
            unsafe { (*self.0.get()).deallocate(at, layout) };
        }
    }
}
