//! Memory that threads of all nodes share, as stores access it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad::cache;
use dyad_coherence::{GlobalMem, LINE_BYTES, atomic};
use dyad_shm::PhysAddr;

const WORDS: u64 = LINE_BYTES / 8;

/// A line, at a multiple of its size.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS as usize]);

/// Lines of words, zero at first. Addresses begin at 0.
#[derive(Clone)]
pub struct Memory {
    lines: Arc<[Line]>,
    /// Nobody keeps caches coherent: lines are written back and dropped.
    flushes: bool,
}

impl Memory {
    /// So many bytes, rounded up to lines.
    pub fn new(bytes: u64, flushes: bool) -> Memory {
        let lines = 0..bytes.div_ceil(LINE_BYTES);
        Memory {
            lines: lines.map(|_| Line::default()).collect(),
            flushes,
        }
    }

    /// The lines with these bytes, if there is something to do about them.
    #[inline]
    fn to_flush(&self, at: PhysAddr, len: u64) -> Option<&[Line]> {
        let end = (at.0 + len).div_ceil(LINE_BYTES) as usize;
        let lines = self.lines.get((at.0 / LINE_BYTES) as usize..end);
        lines.filter(|_| self.flushes)
    }

    /// A read-modify-write at memory: no copy of the line before, none afterwards.
    fn at_memory<R>(&self, at: PhysAddr, f: impl FnOnce(&AtomicU64) -> R) -> R {
        self.invalidate(at, 8);
        let result = f(self.word(at));
        self.invalidate(at, 8);
        result
    }

    #[inline]
    fn word(&self, at: PhysAddr) -> &AtomicU64 {
        let (line, word) = (at.0 / LINE_BYTES, at.0 / 8 % WORDS);
        &self.lines[line as usize].0[word as usize]
    }
}

impl GlobalMem for Memory {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        let end = at.0.checked_add(len);
        end.is_some_and(|end| end <= self.lines.len() as u64 * LINE_BYTES)
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
        self.at_memory(at, |word| atomic::exchange(word, old, new))
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.at_memory(at, |word| atomic::swap(word, value))
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.at_memory(at, |word| atomic::add(word, n))
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.at_memory(at, |word| atomic::or(word, bits))
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.at_memory(at, |word| atomic::and(word, bits))
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn writeback(&self, at: PhysAddr, len: u64) {
        self.to_flush(at, len)
            .into_iter()
            .for_each(cache::write_back);
    }

    #[inline]
    fn invalidate(&self, at: PhysAddr, len: u64) {
        self.to_flush(at, len).into_iter().for_each(cache::flush);
    }
}
