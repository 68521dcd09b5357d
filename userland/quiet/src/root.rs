//! Roots: lines of references. One node writes a root, all nodes read it.

use core::sync::atomic::Ordering;

use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::PhysAddr;

use crate::block::Ref;

/// References of a root.
pub const WORDS: usize = LINE_BYTES as usize / 8;

/// A line of references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root(PhysAddr);

impl Root {
    /// The line that begins at `at`.
    pub const fn at(at: PhysAddr) -> Root {
        assert!(at.0.is_multiple_of(LINE_BYTES));
        Root(at)
    }

    /// What memory has, for readers on any node. The caller is within a section.
    pub fn read(self, mem: &impl GlobalMem) -> [Option<Ref>; WORDS] {
        mem.invalidate(self.0, LINE_BYTES);
        self.words(mem)
    }

    /// The same, for the writer, whose node has the newest copy.
    pub fn own(self, mem: &impl GlobalMem) -> [Option<Ref>; WORDS] {
        self.words(mem)
    }

    fn words(self, mem: &impl GlobalMem) -> [Option<Ref>; WORDS] {
        core::array::from_fn(|n| {
            let word = mem.load(self.0.add(8 * n as u64), Ordering::Acquire);
            Ref::from_word(word)
        })
    }

    /// Replaces reference `n` (modulo [`WORDS`]). When this returns, each reader that begins finds it.
    pub fn write(self, mem: &impl GlobalMem, n: usize, to: Option<Ref>) {
        let at = self.0.add(8 * (n % WORDS) as u64);
        mem.store_through(at, to.map_or(0, Ref::word), Ordering::Release);
    }
}
