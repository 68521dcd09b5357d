//! The instructions of x86-64.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};

use super::Unsupported;
use crate::LINE_BYTES;

/// An instruction that acts on a line of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// CLFLUSH: writes back and drops.
    Clflush,
    /// CLFLUSHOPT: the same, in no order with others.
    Clflushopt,
    /// CLWB: writes back.
    Clwb,
}

impl Instruction {
    pub(super) const ALL: [Instruction; 3] = [Self::Clflush, Self::Clflushopt, Self::Clwb];

    /// The name of the instruction.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clflush => "CLFLUSH",
            Self::Clflushopt => "CLFLUSHOPT",
            Self::Clwb => "CLWB",
        }
    }

    /// Whether the line stays in the caches.
    pub const fn keeps(self) -> bool {
        matches!(self, Self::Clwb)
    }

    /// Executes the instruction on the line at `va`. Stores are written back, none is lost.
    ///
    /// # Safety
    ///
    /// 1. The CPU has the instruction. 2. `va` is mapped.
    #[inline(always)]
    pub(super) unsafe fn execute(self, va: u64) {
        // SAFETY: 1. there is such an instruction, and 2. such an address (contract); 3. it
        // changes no value that any program of this node can read.
        unsafe {
            match self {
                Self::Clflush => {
                    asm!("clflush [{}]", in(reg) va, options(nostack, preserves_flags));
                }
                Self::Clflushopt => {
                    asm!("clflushopt [{}]", in(reg) va, options(nostack, preserves_flags));
                }
                Self::Clwb => {
                    asm!("clwb [{}]", in(reg) va, options(nostack, preserves_flags));
                }
            }
        }
    }
}

/// The flush instructions there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) clwb: bool,
    pub(super) clflushopt: bool,
}

impl Cache {
    /// Asks CPUID.
    pub(super) fn detect() -> Result<Cache, Unsupported> {
        let (highest, basic) = (__cpuid(0).eax, __cpuid(1));
        if basic.edx >> 19 & 1 == 0 {
            return Err(Unsupported::NoFlush);
        }
        let line = (basic.ebx >> 8 & 0xff) as u64 * 8;
        if line != LINE_BYTES {
            return Err(Unsupported::LineBytes(line));
        }
        let extended = if highest >= 7 {
            __cpuid_count(7, 0).ebx
        } else {
            0
        };
        Ok(Cache {
            clwb: extended >> 24 & 1 != 0,
            clflushopt: extended >> 23 & 1 != 0,
        })
    }

    /// Whether there is such an instruction.
    pub(super) const fn has(self, instruction: Instruction) -> bool {
        match instruction {
            Instruction::Clflush => true,
            Instruction::Clflushopt => self.clflushopt,
            Instruction::Clwb => self.clwb,
        }
    }

    /// Writes the line at `va` back; it may stay cached.
    ///
    /// # Safety
    ///
    /// 1. `va` is mapped.
    #[inline]
    pub(super) unsafe fn clean(self, va: u64) {
        if self.clwb {
            // SAFETY: 1. `detect` has found it; 2. the contract is the same.
            unsafe { Instruction::Clwb.execute(va) };
        } else {
            // SAFETY: 1. the contract is the same.
            unsafe { self.flush(va) };
        }
    }

    /// Writes the line at `va` back if it is dirty, and drops it.
    ///
    /// # Safety
    ///
    /// 1. `va` is mapped.
    #[inline]
    pub(super) unsafe fn flush(self, va: u64) {
        if self.clflushopt {
            // SAFETY: 1. `detect` has found it; 2. the contract is the same.
            unsafe { Instruction::Clflushopt.execute(va) };
        } else {
            // SAFETY: 1. `detect` requires it; 2. the contract is the same.
            unsafe { Instruction::Clflush.execute(va) };
        }
    }
}

/// Puts write-backs before all later stores.
#[inline]
pub(super) fn cleaned() {
    // SAFETY: 1. a barrier has no operand and changes nothing.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Puts loads, stores and flushes before all later ones.
#[inline]
pub(super) fn barrier() {
    // SAFETY: 1. a barrier has no operand and changes nothing.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) };
}
