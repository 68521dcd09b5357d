//! Memory that threads of all nodes share, as stores access it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad::Result;
use dyad::cache::{self, IncoherentWords};
use dyad_coherence::{GlobalMem, LINE_BYTES, atomic};
use dyad_shm::PhysAddr;

const WORDS: u64 = LINE_BYTES / 8;

/// A line, at a multiple of its size.
#[derive(Default)]
#[repr(align(64))]
pub struct Line([AtomicU64; WORDS as usize]);

/// Lines of words, zero at first. Addresses begin at 0.
#[derive(Clone)]
pub enum Memory {
    /// All that nodes store, other nodes see.
    Coherent(Arc<[Line]>),
    /// Lines are written back and dropped, but for a mistake.
    Incoherent(Arc<IncoherentWords>, Option<Mistake>),
}

/// What is forgotten, so that the simulator has something to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing is written back.
    NoWriteBack,
    /// Nothing is dropped.
    NoDrop,
}

impl Memory {
    /// So many bytes, rounded up to lines, with coherent caches.
    pub fn new(bytes: u64) -> Memory {
        let lines = 0..bytes.div_ceil(LINE_BYTES);
        Memory::Coherent(lines.map(|_| Line::default()).collect())
    }

    /// The same, without coherent caches.
    pub fn incoherent(bytes: u64, mistake: Option<Mistake>) -> Result<Memory> {
        let words = bytes.div_ceil(LINE_BYTES) * WORDS;
        let words = IncoherentWords::new(words as usize)?;
        Ok(Memory::Incoherent(Arc::new(words), mistake))
    }

    /// The words of these bytes, if there is something to do about them.
    #[inline]
    fn to_flush(&self, at: PhysAddr, len: u64, forgets: Mistake) -> Option<&[AtomicU64]> {
        let Memory::Incoherent(words, mistake) = self else {
            return None;
        };
        if *mistake == Some(forgets) {
            return None;
        }
        words.get((at.0 / 8) as usize..(at.0 + len).div_ceil(8) as usize)
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
        match self {
            Memory::Coherent(lines) => {
                let (line, word) = (at.0 / LINE_BYTES, at.0 / 8 % WORDS);
                &lines[line as usize].0[word as usize]
            }
            Memory::Incoherent(words, _) => &words[(at.0 / 8) as usize],
        }
    }
}

impl GlobalMem for Memory {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        let end = at.0.checked_add(len);
        let bytes = match self {
            Memory::Coherent(lines) => lines.len() as u64 * LINE_BYTES,
            Memory::Incoherent(words, _) => words.len() as u64 * 8,
        };
        end.is_some_and(|end| end <= bytes)
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
        self.to_flush(at, len, Mistake::NoWriteBack)
            .into_iter()
            .for_each(cache::write_back);
    }

    #[inline]
    fn invalidate(&self, at: PhysAddr, len: u64) {
        self.to_flush(at, len, Mistake::NoDrop)
            .into_iter()
            .for_each(cache::flush);
    }
}
