//! The line of a slot, as the rows that change slots reach it: wherever it is, or, for a caller that
//! has found it already, without finding it again for each word.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::pool::PhysAddr;

use crate::SLOT_BYTES;
use crate::contents::Contents;
use crate::table::{STAMP, instead};

/// The words of one slot, with what [`GlobalMem`] promises of each operation.
pub trait Line {
    /// The header, at memory; acquires.
    fn header(&self) -> u64;

    /// Replaces the header `old` by `new`, and returns the old value.
    ///
    /// # Errors
    ///
    /// The present header, if it is not `old`.
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64>;

    /// The stamp, from this node's view: for a caller that has just taken the slot by
    /// [`replace`](Line::replace), which leaves no stale copy.
    fn stamp(&self) -> u64;

    /// Writes the stamp, through to memory.
    fn set_stamp(&self, stamp: u64);

    /// Writes what follows the stamp, and the line back.
    fn fill(&self, words: &[u64; Contents::WORDS]);
}

/// The line at an address.
pub(crate) struct LineAt<'m, M: ?Sized> {
    pub(crate) mem: &'m M,
    pub(crate) at: PhysAddr,
}

impl<M: GlobalMem + ?Sized> Line for LineAt<'_, M> {
    #[inline]
    #[track_caller]
    fn header(&self) -> u64 {
        self.mem.load_fresh(self.at, Ordering::Acquire)
    }

    #[inline]
    #[track_caller]
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.mem.cas(self.at, old, new)
    }

    #[inline]
    #[track_caller]
    fn stamp(&self) -> u64 {
        self.mem.load(self.at.add(STAMP), Ordering::Relaxed)
    }

    #[inline]
    #[track_caller]
    fn set_stamp(&self, stamp: u64) {
        let at = self.at.add(STAMP);
        self.mem.store_through(at, stamp, Ordering::Relaxed);
    }

    #[inline]
    #[track_caller]
    fn fill(&self, words: &[u64; Contents::WORDS]) {
        self.mem.fill_line(self.at, words);
        self.mem.writeback(self.at, SLOT_BYTES);
    }
}

/// Replaces a header if it is still `old`; otherwise fails with the error for the header that it has now.
#[inline]
#[track_caller]
pub(crate) fn change(line: &impl Line, old: u64, new: u64) -> Result<(), crate::Refused> {
    match line.replace(old, new) {
        Ok(_) => Ok(()),
        Err(now) => Err(instead(now)),
    }
}
