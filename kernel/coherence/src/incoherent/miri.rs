//! Stands in for the instructions, which Miri does not know: what they ask of a caller is
//! checked.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::Unsupported;
use crate::LINE_BYTES;

/// Stands for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Writes back and drops.
    Flush,
    /// Writes back.
    Clean,
}

impl Instruction {
    pub(super) const ALL: [Instruction; 2] = [Self::Flush, Self::Clean];

    /// The name of the instruction.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Clean => "clean",
        }
    }

    /// Whether the line stays in the caches.
    pub const fn keeps(self) -> bool {
        matches!(self, Self::Clean)
    }

    /// # Safety
    ///
    /// 1. The CPU has the instruction. 2. `va` is mapped.
    pub(super) unsafe fn execute(self, va: u64) {
        // SAFETY: 1. the contract is the same.
        unsafe { Cache.clean(va) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cache;

impl Cache {
    pub(super) fn detect() -> Result<Cache, Unsupported> {
        Ok(Cache)
    }

    pub(super) const fn has(self, _: Instruction) -> bool {
        true
    }

    /// # Safety
    ///
    /// 1. `va` is mapped.
    pub(super) unsafe fn clean(self, va: u64) {
        for word in (va..va + LINE_BYTES).step_by(8) {
            // SAFETY: 1. the line of a mapped address is mapped, and consists of words.
            let word = unsafe { &*(word as usize as *const AtomicU64) };
            word.load(Ordering::Relaxed);
        }
    }

    /// # Safety
    ///
    /// 1. `va` is mapped.
    pub(super) unsafe fn flush(self, va: u64) {
        // SAFETY: 1. the contract is the same.
        unsafe { self.clean(va) };
    }
}

pub(super) fn cleaned() {
    fence(Ordering::Release);
}

pub(super) fn barrier() {
    fence(Ordering::SeqCst);
}
