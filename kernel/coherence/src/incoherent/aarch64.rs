//! The instructions of AArch64.

use core::arch::asm;

use super::Unsupported;
use crate::LINE_BYTES;

/// An instruction that acts on a line of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// DC CIVAC: writes back and drops.
    Civac,
    /// DC CVAC: writes back.
    Cvac,
}

impl Instruction {
    pub(super) const ALL: [Instruction; 2] = [Self::Civac, Self::Cvac];

    /// The name of the instruction.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Civac => "DC CIVAC",
            Self::Cvac => "DC CVAC",
        }
    }

    /// Whether the line stays in the caches.
    pub const fn keeps(self) -> bool {
        matches!(self, Self::Cvac)
    }

    /// Executes the instruction on the line at `va`. Stores are written back, none is lost.
    ///
    /// # Safety
    ///
    /// 1. The CPU has the instruction. 2. `va` is mapped.
    #[inline(always)]
    pub(super) unsafe fn execute(self, va: u64) {
        // SAFETY: 1. every CPU has them; 2. the address is mapped (contract); 3. it changes no
        // value that any program of this node can read.
        unsafe {
            match self {
                Self::Civac => {
                    asm!("dc civac, {}", in(reg) va, options(nostack, preserves_flags));
                }
                Self::Cvac => {
                    asm!("dc cvac, {}", in(reg) va, options(nostack, preserves_flags));
                }
            }
        }
    }
}

/// The instructions of this CPU. There is no choice: every AArch64 CPU has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cache;

impl Cache {
    /// Reads the cache parameters from CTR_EL0.
    pub(super) fn detect() -> Result<Cache, Unsupported> {
        let ctr: u64;
        // SAFETY: 1. CTR_EL0 is readable at EL1, and where the system allows it at EL0;
        // 2. reading it changes nothing.
        unsafe {
            asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags));
        }
        // DminLine: log2 of the words of four bytes in the smallest line of any data cache.
        match 4u64 << (ctr >> 16 & 0xf) {
            LINE_BYTES => Ok(Cache),
            other => Err(Unsupported::LineBytes(other)),
        }
    }

    /// Whether there is such an instruction.
    pub(super) const fn has(self, _: Instruction) -> bool {
        true
    }

    /// Writes the line at `va` back, to the point of coherency; it may stay cached.
    ///
    /// # Safety
    ///
    /// 1. `va` is mapped.
    #[inline]
    pub(super) unsafe fn clean(self, va: u64) {
        // SAFETY: 1. every CPU has it; 2. the contract is the same.
        unsafe { Instruction::Cvac.execute(va) };
    }

    /// Writes the line at `va` back if it is dirty, and drops it.
    ///
    /// # Safety
    ///
    /// 1. `va` is mapped.
    #[inline]
    pub(super) unsafe fn flush(self, va: u64) {
        // SAFETY: 1. every CPU has it; 2. the contract is the same.
        unsafe { Instruction::Civac.execute(va) };
    }
}

/// Puts write-backs before all that comes later.
#[inline]
pub(super) fn cleaned() {
    barrier();
}

/// Puts loads, stores and flushes before all that comes later, on every machine.
#[inline]
pub(super) fn barrier() {
    // SAFETY: 1. a barrier has no operand and changes nothing.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}
