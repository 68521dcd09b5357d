//! The registers of a thread as a page, neutral enough for another ISA to read.
//!
//! `Unload` of a [thread](crate::cap::ThreadOp) writes a [`Registers`], `Load` reads one. It starts the
//! *emulation page* of the thread: whoever interprets the thread's code elsewhere finds them there, and
//! leaves them there for the thread to go on natively.
//!
//! | words | content | x86-64 | AArch64 |
//! |---|---|---|---|
//! | 0 | ISA | 0 | 1 |
//! | 1 | program counter | `rip` | `pc` |
//! | 2 | flags that are the program's own | `rflags` | `nzcv` in bits 28 to 31 |
//! | 3 | thread pointer | base of `fs` | `TPIDR_EL0` |
//! | 4 to 35 | general registers by DWARF number, the stack pointer among them | `rax rdx rcx rbx rsi rdi rbp rsp r8`..`r15`, then zeros | `x0`..`x30`, `sp` |
//! | 36 | floating-point control | `MXCSR` | `FPCR` |
//! | 37 | floating-point status | 0 (it is in `MXCSR`) | `FPSR` |
//! | 38 to 101 | vector registers, low word first | `xmm0`..`xmm15`, then zeros | `v0`..`v31` |
//!
//! There is no x87 or MMX state: `Load` sets the initial one, and no program of the build pipeline has any
//! other.

use crate::Isa;

/// General registers that there is room for.
pub const GENERAL: usize = 32;
/// Words of floating-point control, status and vector registers.
pub const FLOAT_WORDS: usize = 2 + 2 * 32;
/// Words of a [`Registers`].
pub const WORDS: usize = 4 + GENERAL + FLOAT_WORDS;

/// All registers of a thread on one ISA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    /// [`Isa`] index.
    pub isa: u64,
    /// Program counter.
    pub pc: u64,
    /// Flags.
    pub flags: u64,
    /// Thread pointer.
    pub thread_pointer: u64,
    /// General registers, by DWARF number.
    pub general: [u64; GENERAL],
    /// Floating-point control.
    pub float_control: u64,
    /// Floating-point status.
    pub float_status: u64,
    /// Vector registers, low word first.
    pub vector: [[u64; 2]; 32],
}

/// General registers of an ISA that have a number, the stack pointer among them. Program counter, flags and
/// thread pointer have the next three ([`ThreadOp::ReadRegister`](crate::cap::ThreadOp::ReadRegister)).
pub const fn general(isa: Isa) -> usize {
    match isa {
        Isa::X86_64 => 16,
        Isa::Aarch64 => 32,
    }
}

/// Number of the stack pointer among them.
pub const fn stack_pointer(isa: Isa) -> usize {
    match isa {
        Isa::X86_64 => 7,
        Isa::Aarch64 => 31,
    }
}

/// The floating-point control word that threads start with: round to nearest, no traps, subnormal numbers
/// are themselves.
pub const fn initial_float_control(isa: Isa) -> u64 {
    match isa {
        Isa::X86_64 => 0x1f80,
        Isa::Aarch64 => 0,
    }
}

impl Registers {
    /// What a thread starts with, at no address.
    pub const fn new(isa: Isa) -> Registers {
        Registers {
            isa: isa as u64,
            pc: 0,
            flags: 0,
            thread_pointer: 0,
            general: [0; GENERAL],
            float_control: initial_float_control(isa),
            float_status: 0,
            vector: [[0; 2]; 32],
        }
    }

    /// The words of the table above.
    pub const fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = self.isa;
        words[1] = self.pc;
        words[2] = self.flags;
        words[3] = self.thread_pointer;
        let mut i = 0;
        while i < GENERAL {
            words[4 + i] = self.general[i];
            words[4 + GENERAL + 2 + 2 * i] = self.vector[i][0];
            words[4 + GENERAL + 3 + 2 * i] = self.vector[i][1];
            i += 1;
        }
        words[4 + GENERAL] = self.float_control;
        words[5 + GENERAL] = self.float_status;
        words
    }

    /// The registers in these words.
    pub const fn from_words(words: &[u64; WORDS]) -> Registers {
        let mut registers = Registers {
            isa: words[0],
            pc: words[1],
            flags: words[2],
            thread_pointer: words[3],
            general: [0; GENERAL],
            float_control: words[4 + GENERAL],
            float_status: words[5 + GENERAL],
            vector: [[0; 2]; 32],
        };
        let mut i = 0;
        while i < GENERAL {
            registers.general[i] = words[4 + i];
            registers.vector[i][0] = words[4 + GENERAL + 2 + 2 * i];
            registers.vector[i][1] = words[4 + GENERAL + 3 + 2 * i];
            i += 1;
        }
        registers
    }
}

const _: () = {
    assert!(size_of::<Registers>() == 8 * WORDS && align_of::<Registers>() == 8);
    assert!(core::mem::offset_of!(Registers, float_control) == 8 * 36);
    assert!(core::mem::offset_of!(Registers, vector) == 8 * 38);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_memory() {
        let mut words = [0; WORDS];
        for (i, w) in words.iter_mut().enumerate() {
            *w = 0x100 + i as u64;
        }
        let registers = Registers::from_words(&words);
        assert_eq!(registers.to_words(), words);
        assert_eq!((registers.isa, registers.pc), (0x100, 0x101));
        assert_eq!(registers.general[31], 0x100 + 35);
        assert_eq!(registers.float_status, 0x100 + 37);
        assert_eq!(registers.vector[31], [0x100 + 100, 0x100 + 101]);
    }
}
