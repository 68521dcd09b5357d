//! Memory that threads of all nodes share, as stores access it.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_msg::words::{Line, Words, lines};
use dyad_shm::PhysAddr;

/// Lines of words, zero at first. Addresses begin at 0. Caches are coherent: nothing is written back or dropped.
#[derive(Clone)]
pub struct Memory(Arc<[Line]>);

impl Memory {
    /// So many bytes, rounded up to lines.
    pub fn new(bytes: u64) -> Memory {
        Memory(lines(bytes.div_ceil(64) as usize))
    }
}

const fn word(at: PhysAddr) -> u64 {
    at.0 / 8
}

impl GlobalMem for Memory {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        let end = at.0.checked_add(len);
        end.is_some_and(|end| end <= self.0.count() * 8)
    }

    #[inline]
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.0.load(word(at), order)
    }

    #[inline]
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.0.store(word(at), value, order);
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        // No protocol of these stores uses it: each word has one writer.
        match self.0.load(word(at), Ordering::Acquire) {
            now if now == old => Ok(self.0.swap(word(at), new)),
            now => Err(now),
        }
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.0.swap(word(at), value)
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        // As `cas`.
        let now = self.0.load(word(at), Ordering::Acquire);
        self.0.swap(word(at), now.wrapping_add(n))
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.0.or(word(at), bits)
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.0.and(word(at), bits)
    }

    fn fence(&self) {
        self.0.fence();
    }

    #[inline]
    fn writeback(&self, _at: PhysAddr, _len: u64) {}

    #[inline]
    fn invalidate(&self, _at: PhysAddr, _len: u64) {}
}
