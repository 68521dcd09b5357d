//! Blocks: consecutive lines, each with a stamp and 56 bytes of payload.
//!
//! ```text
//!   line:       | stamp | 7 words of payload |
//!
//!   reference:   63     52 51           24 23      0
//!               | tag     | line          | stamp   |       0: none
//! ```
//!
//! A tag is the user's. Lines are numbered from 1 on.

use core::sync::atomic::Ordering;

use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::PhysAddr;
use dyad_shm::permitted::Permitted;

/// Words of payload of a line.
pub const PAYLOAD: usize = LINE_BYTES as usize / 8 - 1;

const STAMP_BITS: u32 = 24;
const STAMP: u64 = (1 << STAMP_BITS) - 1;
const LINE_BITS: u32 = 28;
const LINE: u64 = (1 << LINE_BITS) - 1;
const TAG_SHIFT: u32 = STAMP_BITS + LINE_BITS;

/// Most lines that references can name.
pub const MAX_LINES: u64 = LINE;
/// Number of tags.
pub const TAGS: u64 = 1 << (64 - TAG_SHIFT);

/// A reference to a block that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ref(u64);

impl Ref {
    pub(crate) const fn new(line: u64, stamp: u64, tag: u64) -> Ref {
        Ref(((tag % TAGS) << TAG_SHIFT) | (line & LINE) << STAMP_BITS | stamp & STAMP)
    }

    /// The reference that a word is, if it is one.
    pub const fn from_word(word: u64) -> Option<Ref> {
        match word >> STAMP_BITS & LINE {
            0 => None,
            _ => Some(Ref(word)),
        }
    }

    /// As a word, which is not 0.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The user's tag.
    pub const fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    /// The same block, with another tag.
    #[must_use]
    pub const fn tagged(self, tag: u64) -> Ref {
        Ref(self.0 & !((TAGS - 1) << TAG_SHIFT) | ((tag % TAGS) << TAG_SHIFT))
    }

    /// The number of its first line.
    pub const fn line(self) -> u64 {
        self.0 >> STAMP_BITS & LINE
    }

    pub(crate) const fn stamp(self) -> u64 {
        self.0 & STAMP
    }
}

/// Why a block cannot be read: it has been reused. Within a section that began before the reference was found, that does not happen
/// but to a reference that was forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The lines of all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    base: PhysAddr,
    lines: u64,
}

impl Blocks {
    /// `lines` lines from `base` on, which begins a line. They are numbered from 1.
    pub const fn new(base: PhysAddr, lines: u64) -> Blocks {
        assert!(base.0.is_multiple_of(LINE_BYTES) && lines <= MAX_LINES);
        Blocks { base, lines }
    }

    /// How many lines there are.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Where line `line` is; `None` if there is none.
    fn at(&self, line: u64) -> Option<PhysAddr> {
        let index = line.checked_sub(1).filter(|&n| n < self.lines)?;
        Some(self.base.add(index * LINE_BYTES))
    }

    /// The stamp that a line has in memory; 0 if there is no such line, or it has never been used.
    pub(crate) fn stamp(&self, mem: &impl GlobalMem, line: u64) -> u32 {
        let stamp = self
            .at(line)
            .map(|at| mem.load_fresh(at, Ordering::Acquire));
        (stamp.unwrap_or(0) & STAMP) as u32
    }

    /// Fills `lines` lines from `first` on with `payload` and zeros behind it, and gives the block with this stamp to
    /// all nodes. The caller has these lines to itself.
    ///
    /// # Panics
    ///
    /// If there are no such lines, or the payload has no room in them.
    pub fn publish(
        &self,
        mem: &impl GlobalMem,
        (first, lines): (u64, u64),
        stamp: u64,
        payload: &[u64],
    ) -> Ref {
        assert!(payload.len() <= lines as usize * PAYLOAD);
        let mut parts = payload.chunks(PAYLOAD);
        let start = self.at(first).expect("lines of the heap");
        for line in 0..lines {
            let at = self.at(first + line).expect("lines of the heap");
            let part = parts.next().unwrap_or_default();
            for n in 0..PAYLOAD {
                let word = part.get(n).copied().unwrap_or(0);
                mem.store(at.add(8 + 8 * n as u64), word, Ordering::Relaxed);
            }
            // Last: a cache that gives the line away before has a stamp that no reader means.
            mem.store(at, stamp & STAMP, Ordering::Release);
        }
        mem.writeback(start, lines * LINE_BYTES);
        Ref::new(first, stamp, 0)
    }

    /// Reads line `n` of a block.
    ///
    /// # Errors
    ///
    /// [`Gone`] if it is of another block, or there is no such line.
    pub fn read(&self, mem: &impl GlobalMem, block: Ref, n: u64) -> Result<[u64; PAYLOAD], Gone> {
        let at = self.at(block.line() + n).ok_or(Gone)?;
        // May be old: what is not the stamp that is meant is read again.
        let may_be_old = mem.load_permitted::<{ Permitted::Stamp as u32 }>(at, Ordering::Acquire);
        if may_be_old != block.stamp() {
            // A copy from before the lines were reused, or one that a cache has fetched since.
            mem.invalidate(at, LINE_BYTES);
            if mem.load(at, Ordering::Acquire) != block.stamp() {
                return Err(Gone);
            }
        }
        let mut words = [0; PAYLOAD];
        for (n, word) in words.iter_mut().enumerate() {
            *word = mem.load(at.add(8 + 8 * n as u64), Ordering::Relaxed);
        }
        Ok(words)
    }
}
