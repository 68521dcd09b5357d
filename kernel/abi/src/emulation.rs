//! The registers of a thread in a layout that other ISAs can read, and what programs and init agree on
//! about threads whose code is interpreted on another ISA.
//!
//! `Unload` of a [thread](crate::cap::ThreadOp) writes a [`Registers`], `Load` reads one.
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
//!
//! # Threads that are interpreted
//!
//! Init stops a thread wherever it is, puts its registers into its [`Page`], has it begin anew at the
//! program's entry on the node where it is wanted, and the program's runtime interprets it there. The
//! thread's code and constants of the ISA that it was stopped on are mapped read-only at
//! [`other_text`], the rest of its memory has the same addresses on every ISA.
//!
//! | addresses | what | mapped |
//! |---|---|---|
//! | [`other_text`]`(isa, va)` | text and constants of an ISA, for the others to read | by init, when a thread of the program is first asked to move |
//! | [`page`]`(n)` | [`Page`] of thread `n` of the program, all of them | by init, when a thread of the program is first asked to move |
//! | [`stack`]`(n)` | stack of what interprets it, the same on every ISA | when touched |
//!
//! ```text
//!              init: stopped, registers stored       the runtime, on the other node
//!   IDLE, LANDED, BACK ──────────────▶ PENDING ─────────────▶ EMULATED ──reached a point──▶ LANDED
//!        ▲      ▲                         │                      │
//!        │      └───── the runtime, natively where it was ◀──────┴── refused: BACK
//!        └── init: could not (outcome says why), or the node went away: RETURN ──the runtime──▶ BACK
//! ```

use crate::Isa;
use crate::user::{MAX_PROGRAM_THREADS, PAGE_SIZE, SHARED_BASE, TEXT_BASE};

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
    /// The initial registers of a thread on `isa`; the program counter is 0.
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

/// Start of the windows in which ISAs see each other's text and constants.
pub const OTHER_TEXT_BASE: u64 = 0x3000_0000_0000;
/// The address for the other ISAs of the byte at `va` of the text or constants of `isa`.
pub const fn other_text(isa: Isa, va: u64) -> u64 {
    OTHER_TEXT_BASE + isa as u64 * 0x1_0000_0000 + va
}
/// Addresses of text and constants, which are those that differ by ISA.
pub const PER_ISA: core::ops::Range<u64> = TEXT_BASE..SHARED_BASE;

/// The start of the interpreters' stacks, each at the end of a [`STACK_STRIDE`].
pub const STACKS_BASE: u64 = 0x3100_0000_0000;
/// Distance between these stacks; the rest of each stride is guard.
pub const STACK_STRIDE: u64 = 1 << 24;
/// Size of the stack of what interprets a thread.
pub const STACK_SIZE: u64 = 1 << 16;
const PAGES_BASE: u64 = 0x3100_8000_0000;

/// Address of the [`Page`] of thread `n` of the program.
pub const fn page(n: u64) -> u64 {
    PAGES_BASE + n * PAGE_SIZE
}

/// Address range `(bottom, top)` of the stack of what interprets thread `n` of the program.
pub const fn stack(n: u64) -> (u64, u64) {
    let top = STACKS_BASE + (n + 1) * STACK_STRIDE;
    (top - STACK_SIZE, top)
}

/// The values of [`Page::ready`] of a program's first thread.
pub mod ready {
    /// No thread can be interpreted.
    pub const NOT: u64 = 0;
    /// The first thread can be interpreted.
    pub const FIRST: u64 = 1;
    /// All threads can be interpreted.
    pub const ALL: u64 = 2;
}

/// Ranges of text and constants that a [`Page`] can name: text, the windows of functions of either ISA,
/// constants, those of them that hold addresses; and one more.
pub const WINDOWS: usize = 6;

/// The state of a thread whose code is interpreted. Both sides access shared words by atomic accesses;
/// `status` says which side owns the other words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Page {
    /// A [`status`].
    pub status: u64,
    /// Number of the node on which the thread was stopped.
    pub origin: u64,
    /// Number of the node on which the thread is, or was to be, interpreted.
    pub target: u64,
    /// Instructions that have been interpreted since it was last stopped.
    pub steps: u64,
    /// System calls among them.
    pub calls: u64,
    /// After [`status::IDLE`]: 0, or the code of the [`Error`](crate::Error) that prevented the move. After
    /// [`status::BACK`]: a [`refused`].
    pub outcome: u64,
    /// After [`status::BACK`]: address of the refused instruction.
    pub refused_at: u64,
    /// After [`refused::UNKNOWN`]: the instruction's bytes, or its first ones, from the lowest on; the last
    /// byte is their number.
    pub refused_bytes: [u64; 2],
    /// A [`ready`] in the page of the first thread. The program writes it once it can interpret.
    pub ready: u64,
    /// How often the thread has landed.
    pub landings: u64,
    /// Fused time when it had been stopped and its registers were here.
    pub stopped_at: u64,
    /// Fused time when interpreting began.
    pub began_at: u64,
    /// Fused time when it had come to the point.
    pub landed_at: u64,
    /// The mapped parts of the text and constants of the ISA that the thread was stopped on: start and end.
    pub windows: [[u64; 2]; WINDOWS],
    /// The registers with which it was stopped; after a refusal, those with which it went back.
    pub registers: Registers,
}

/// Words of a [`Page`] before the registers.
pub const PAGE_WORDS: u64 = core::mem::offset_of!(Page, registers) as u64 / 8;

/// Status words of a [`Page`].
pub mod status {
    /// No move is under way. Init's.
    pub const IDLE: u64 = 0;
    /// The registers are there, the thread begins on its new node. The runtime's from here on.
    pub const PENDING: u64 = 1;
    /// The thread is being interpreted.
    pub const EMULATED: u64 = 2;
    /// The thread continues natively on its new node. Init's.
    pub const LANDED: u64 = 3;
    /// The thread was refused, and continues natively where it was stopped. Init's.
    pub const BACK: u64 = 4;
    /// The thread begins where it was stopped, and continues natively with the registers. The runtime's.
    pub const RETURN: u64 = 5;
    /// The move has been requested, and not been done yet. Init's.
    pub const ASKED: u64 = 6;
}

/// The reasons why an instruction was not interpreted.
pub mod refused {
    /// The instruction is unknown.
    pub const UNKNOWN: u64 = 1;
    /// The instruction uses memory that it may not use.
    pub const FAULT: u64 = 2;
    /// The instruction is known, but uses a feature that is not interpreted.
    pub const UNSUPPORTED: u64 = 3;
    /// The instruction raises an exception.
    pub const TRAP: u64 = 4;
    /// The instruction is a system call that a thread has to make natively.
    pub const CALL: u64 = 5;
    /// The instruction is a migration point that cannot be left: below a function that is entered from
    /// outside of the program, or with frames that do not fit the other stack.
    pub const POINT: u64 = 6;
    /// The instruction is a call of a function that the ISA where the thread was stopped does not run
    /// ([`away_window`](crate::user::away_window)): the thread crosses natively.
    pub const CROSSING: u64 = 7;

    /// A description of what the thread came to; `None` if the number is no reason.
    pub const fn text(why: u64) -> Option<&'static str> {
        Some(match why {
            UNKNOWN => "an instruction that is not known",
            FAULT => "memory that it may not use",
            UNSUPPORTED => "an instruction that is not interpreted",
            TRAP => "an instruction that is an exception",
            CALL => "a system call that it has to make natively",
            POINT => "a migration point that it cannot leave from",
            CROSSING => "a call that crosses to another ISA",
            _ => return None,
        })
    }
}

const _: () = {
    // An outcome is one of these, or that the node has died.
    assert!(refused::CROSSING < crate::Error::NodeDead.code());
    assert!(size_of::<Page>() as u64 <= PAGE_SIZE);
    assert!(STACKS_BASE + MAX_PROGRAM_THREADS * STACK_STRIDE <= PAGES_BASE);
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
