//! Memory that threads of all nodes share, as stores access it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_coherence::{GlobalMem, LINE_BYTES, atomic};
use dyad_shm::PhysAddr;

const WORDS: u64 = LINE_BYTES / 8;

/// A line, at a multiple of its size.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS as usize]);

/// Lines of words, zero at first. Addresses begin at 0. Caches are coherent: nothing is written back or dropped.
#[derive(Clone)]
pub struct Memory(Arc<[Line]>);

impl Memory {
    /// So many bytes, rounded up to lines.
    pub fn new(bytes: u64) -> Memory {
        let lines = 0..bytes.div_ceil(LINE_BYTES);
        Memory(lines.map(|_| Line::default()).collect())
    }

    #[inline]
    fn word(&self, at: PhysAddr) -> &AtomicU64 {
        let (line, word) = (at.0 / LINE_BYTES, at.0 / 8 % WORDS);
        &self.0[line as usize].0[word as usize]
    }
}

impl GlobalMem for Memory {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        let end = at.0.checked_add(len);
        end.is_some_and(|end| end <= self.0.len() as u64 * LINE_BYTES)
    }

    #[inline]
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.word(at).load(order)
    }

    #[inline]
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.word(at).store(value, order);
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        atomic::exchange(self.word(at), old, new)
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        atomic::swap(self.word(at), value)
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        atomic::add(self.word(at), n)
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        atomic::or(self.word(at), bits)
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        atomic::and(self.word(at), bits)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn writeback(&self, _at: PhysAddr, _len: u64) {}

    #[inline]
    fn invalidate(&self, _at: PhysAddr, _len: u64) {}
}
