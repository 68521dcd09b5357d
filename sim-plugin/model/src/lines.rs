//! What all CPUs share of each fused line: its words in the directory, one for each view, and at level timing its time.
//!
//! A miss in the model takes a word and the time of the same line, and each of them is a miss of the host as well. So the
//! time stands beside the word of the first view, in the same line of the host.

use std::sync::atomic::AtomicU64;

use crate::directory::{Word, read};
use crate::memory::Memory;

/// The words of the directory and the times of lines.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// The words of the directory; after each of them a time, if there are times. Of other views than the first no time is
    /// used.
    words: &'a [AtomicU64],
    /// 1 with times, or else 0.
    shift: u32,
    fused: usize,
}

impl<'a> Lines<'a> {
    /// How many words there are for the lines of a memory.
    pub fn words(memory: &Memory, times: bool) -> usize {
        memory.words() << u32::from(times)
    }

    /// # Panics
    ///
    /// If there are fewer words than [`Lines::words`] says.
    pub fn new(words: &'a [AtomicU64], memory: &Memory, times: bool) -> Lines<'a> {
        Lines {
            words: &words[..Lines::words(memory, times)],
            shift: times.into(),
            fused: memory.fused_lines(),
        }
    }

    /// The word with an index; `None` if the line is private.
    #[inline(always)]
    pub fn word(self, index: usize) -> Option<&'a AtomicU64> {
        // No index of a private line is so large that the shift would lose a bit.
        self.words.get(index << self.shift)
    }

    /// The time of the line with this index, in whichever view; `None` without times.
    #[inline(always)]
    pub fn time(self, index: usize) -> Option<&'a AtomicU64> {
        // Most lines are looked at in the first view, and a division takes as long as all the rest.
        let first = match index < self.fused {
            true => index,
            false => index.checked_rem(self.fused)?,
        };
        match self.shift {
            0 => None,
            _ => self.words.get(2 * first + 1),
        }
    }

    /// All words of the directory, by index.
    pub fn iter(self) -> impl Iterator<Item = Word> {
        self.words.iter().step_by(1 << self.shift).map(read)
    }
}
