//! Markers: instructions that do nothing, by which code tells the simulator where a measurement
//! begins and ends.
//!
//! They can be executed in user mode and in the kernel. Hardware, and machines without the
//! simulator's plugin, execute them as no-operations; the plugin recognises them when it
//! translates code. Nothing here is executable: who emits markers writes the words of a
//! [`Marker`] into its code, in `userland/sys` for programs.
//!
//! # Encoding
//!
//! A marker is one word, the *marker word*, which is an AArch64 instruction:
//!
//! | bits | contents |
//! |---|---|
//! | 31..24 | `0xd8`: PRFM (literal), a prefetch hint that never faults |
//! | 23..21 | [`MarkerOp`] |
//! | 20..5 | [`WindowId`] |
//! | 4..0 | 15: a reserved kind of prefetch, which processors ignore and compilers do not emit |
//!
//! Programs are compiled once for all ISAs, so what they contain must be a no-operation on each.
//! They put [`PREFIX`] before the marker word, and get the same eight bytes everywhere:
//!
//! | ISA | what the eight bytes are |
//! |---|---|
//! | x86-64 | one instruction, `nop dword ptr [rax + rbx*8 + disp32]`, whose displacement is the marker word; compilers pad with displacement 0 only |
//! | AArch64 | two instructions: PRFM (literal) again, which means nothing, and the marker word |
//!
//! AArch64 kernels may leave the prefix out.
//!
//! # Windows
//!
//! A *window* is what a CPU executes from [`MarkerOp::Begin`] to the [`MarkerOp::End`] of the same
//! number. Markers themselves are not counted. A CPU has at most one open window:
//!
//! ```text
//!         Begin(a)               End(a): one more sample of a
//! closed ──────────▶ open(a) ──────────────────────────────▶ closed
//!                     │  ▲ Begin(b): the open one is abandoned
//!                     └──┘ End(b), b ≠ a: unmatched, nothing changes
//!                     │
//!                     └─ Abandon ─▶ closed, no sample
//! ```
//!
//! What a CPU executes while it waits is in no window, though one is open: kernels say where a wait
//! begins and ends ([`MarkerOp::Idle`]). So a window can be open on a CPU that gives something to
//! another one and gets it back, and counts both, but not how long it waited in between.

use core::fmt;

/// Goes before the marker word in code that is the same on every ISA.
///
/// It has the form of a marker word, of an operation that will never be given a meaning.
pub const PREFIX: u32 = 0xd884_1f0f;

/// The bits that all marker words share: PRFM (literal) with the reserved operation 15.
const FIXED: u32 = 0xd800_000f;
const FIXED_MASK: u32 = 0xff00_001f;
const OP_SHIFT: u32 = 21;
const ID_SHIFT: u32 = 5;

/// Number of a window, chosen by the program that measures.
///
/// Numbers below [`WindowId::FREE`] belong to the benchmark of the kernel ([`BenchOp`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowId(pub u16);

impl WindowId {
    /// The first number that programs may use as they like.
    pub const FREE: u16 = 0x8000;

    /// The window around an operation of a type of capability, by their numbers, for programs that search for
    /// the longest stretch with interrupts masked. Type 0 is for windows without an operation.
    pub const fn of_operation(ty: u32, op: u32) -> WindowId {
        assert!(ty < 32 && op < 32, "no type or operation has that number");
        WindowId(WindowId::FREE | (ty << 5 | op) as u16)
    }

    /// Type and operation of a window that [`of_operation`](WindowId::of_operation) has made.
    pub const fn operation(self) -> Option<(u32, u32)> {
        match self.0 {
            n @ WindowId::FREE..0x8400 => Some(((n as u32 >> 5) & 31, n as u32 & 31)),
            _ => None,
        }
    }
}

/// The operation of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MarkerOp {
    /// A window begins after this instruction.
    Begin = 1,
    /// The window ends before this instruction.
    End = 2,
    /// The counts of the open window, whatever its number, are discarded.
    Abandon = 3,
    // 4 is what `PREFIX` looks like.
    /// The samples that this machine has of the window so far are of no use: they were for
    /// warming up. Opens and closes nothing.
    Forget = 5,
    /// A call of the simulator's clock; the number says which: [`ClockCall`](crate::clock::ClockCall).
    /// Has nothing to do with windows.
    Clock = 6,
    /// This CPU only waits from here on, with the number [`Marker::WAITS`]; with [`Marker::WORKS`] the wait
    /// ends. Instructions between the two do not count.
    Idle = 7,
}

impl MarkerOp {
    const fn from_bits(bits: u32) -> Option<MarkerOp> {
        match bits {
            1 => Some(MarkerOp::Begin),
            2 => Some(MarkerOp::End),
            3 => Some(MarkerOp::Abandon),
            5 => Some(MarkerOp::Forget),
            6 => Some(MarkerOp::Clock),
            7 => Some(MarkerOp::Idle),
            _ => None,
        }
    }
}

/// A marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The operation.
    pub op: MarkerOp,
    /// About which window.
    pub id: WindowId,
}

impl Marker {
    /// A wait begins after this instruction.
    pub const WAITS: Marker = Marker {
        op: MarkerOp::Idle,
        id: WindowId(1),
    };
    /// From here on this CPU only waits for messages of other kernels, until [`Marker::COMES`]: nothing else on it has
    /// anything to do. Its time is accounted for apart; what it executes is counted all the same.
    pub const AWAITS: Marker = Marker {
        op: MarkerOp::Idle,
        id: WindowId(2),
    };
    /// It has something to do again.
    pub const COMES: Marker = Marker {
        op: MarkerOp::Idle,
        id: WindowId(3),
    };
    /// The wait ends before this instruction, if there was one.
    pub const WORKS: Marker = Marker {
        op: MarkerOp::Idle,
        id: WindowId(0),
    };

    /// The marker word.
    pub const fn word(self) -> u32 {
        FIXED | (self.op as u32) << OP_SHIFT | (self.id.0 as u32) << ID_SHIFT
    }

    /// The marker with this word.
    pub const fn from_word(word: u32) -> Option<Marker> {
        if word & FIXED_MASK != FIXED {
            return None;
        }
        match MarkerOp::from_bits(word >> OP_SHIFT & 7) {
            Some(op) => Some(Marker {
                op,
                id: WindowId((word >> ID_SHIFT) as u16),
            }),
            None => None,
        }
    }
}

/// The meaning of one instruction, as a possible part of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A marker.
    Marker(Marker),
    /// The prefix of one, where that is an instruction of its own.
    Prefix,
    /// Any other instruction.
    Other,
}

/// Decodes the instruction `code` of `isa`.
pub fn decode(isa: crate::Isa, code: &[u8]) -> Decoded {
    let word = |at: usize| -> Option<u32> {
        let bytes = code.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let found = match isa {
        crate::Isa::X86_64 if code.len() == 8 && word(0) == Some(PREFIX) => word(4),
        crate::Isa::X86_64 => None,
        crate::Isa::Aarch64 if word(0) == Some(PREFIX) => return Decoded::Prefix,
        crate::Isa::Aarch64 => word(0),
    };
    match found.and_then(Marker::from_word) {
        Some(marker) => Decoded::Marker(marker),
        None => Decoded::Other,
    }
}

/// The memory of the objects of a benchmarked operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BenchMemory {
    /// The pool of the node that performs it.
    Local = 0,
    /// The CXL pool.
    Fused = 1,
}

impl BenchMemory {
    /// Both.
    pub const ALL: [BenchMemory; 2] = [BenchMemory::Local, BenchMemory::Fused];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            BenchMemory::Local => "local",
            BenchMemory::Fused => "fused",
        }
    }
}

macro_rules! bench_ops {
    ($($(#[$m:meta])* $name:ident = $n:literal, $text:literal, $required:literal;)*) => {
        /// An operation that the kernel benchmark measures.
        ///
        /// The benchmark program opens the window [`BenchOp::window`] around each repetition;
        /// the host finds operation and memory by the number. Operations that need no program,
        /// such as steps of reclamation, are marked by the kernel itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum BenchOp {
            $($(#[$m])* $name = $n,)*
        }

        /// All operations, in the order in which they are reported.
        pub const BENCH_OPS: &[BenchOp] = &[$(BenchOp::$name),*];

        impl BenchOp {
            /// Name in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(BenchOp::$name => $text,)*
                }
            }

            /// Whether the benchmark is incomplete without it.
            pub const fn is_required(self) -> bool {
                match self {
                    $(BenchOp::$name => $required,)*
                }
            }
        }
    };
}

bench_ops! {
    /// No operation: the control, which must count 0.
    Empty = 0, "empty", false;
    /// A system call that fails because there is no such operation.
    NullSyscall = 1, "null_syscall", true;
    /// Reading the clock through a system call.
    Now = 2, "now", false;
    /// Synchronous invocation of another component and its return, four words each way.
    IpcRoundTrip = 3, "ipc_round_trip", true;
    /// An invocation of a component on another ISA, and its return.
    IpcCrossIsaRoundTrip = 4, "ipc_cross_isa_round_trip", true;
    /// Switch to another thread, one way.
    Dispatch = 5, "dispatch", true;
    /// Asynchronous send without a waiter.
    AsyncSend = 6, "async_send", true;
    /// Asynchronous send with switch to the waiter.
    AsyncSendSwitch = 7, "async_send_switch", true;
    /// Two asynchronous sends, there and back, with switches.
    AsyncPingPong = 8, "async_ping_pong", true;
    /// Activation of a capability.
    CapActivate = 9, "cap_activate", true;
    /// Copy of a capability.
    CapCopy = 10, "cap_copy", true;
    /// Deactivation of a capability.
    CapDeactivate = 11, "cap_deactivate", true;
    /// Revocation with no copy.
    Revoke0 = 12, "revoke_0", true;
    /// Revocation with one copy.
    Revoke1 = 13, "revoke_1", true;
    /// Revocation with 64 copies.
    Revoke64 = 14, "revoke_64", true;
    /// Revocation with 10,000 copies.
    Revoke10000 = 15, "revoke_10000", true;
    /// Retype of a clean frame to a kernel object.
    RetypeKernelClean = 16, "retype_kernel_clean", true;
    /// Retype of a frame that must be zeroed to a kernel object.
    RetypeKernelZeroing = 17, "retype_kernel_zeroing", true;
    /// Retype of a frame back to untyped memory.
    RetypeUntyped = 18, "retype_untyped", true;
    /// Mapping a page in the table of the own ISA.
    Map = 19, "map", true;
    /// Changing the permissions of a page in the table of the own ISA.
    Protect = 20, "protect", true;
    /// Unmapping a page in the table of the own ISA.
    Unmap = 21, "unmap", true;
    /// Mapping a page in the table of the other ISA.
    MapForeign = 22, "map_foreign", true;
    /// Changing the permissions of a page in the table of the other ISA.
    ProtectForeign = 23, "protect_foreign", false;
    /// Unmapping a page in the table of the other ISA.
    UnmapForeign = 24, "unmap_foreign", true;
    /// A page fault, handled by a user-level handler that maps a page.
    PageFaultUser = 25, "page_fault_user", true;
    /// A page fault that the kernel resolves from the other ISA's table.
    PageFaultForeignTable = 26, "page_fault_foreign_table", true;
    /// One step of a quiescence round.
    FlushStep = 27, "flush_step", true;
    /// A flush of the translation buffer.
    TlbFlush = 28, "tlb_flush", true;
    /// [`BenchOp::IpcRoundTrip`] by a caller that has used floating-point or vector registers since its last
    /// invocation in either direction.
    IpcRoundTripFp = 29, "ipc_round_trip_fp", true;
    /// [`BenchOp::PageFaultUser`] of a thread that has used floating-point or vector registers.
    PageFaultUserFp = 30, "page_fault_user_fp", true;
    /// The first use of floating-point or vector registers after an invocation.
    FpFirstUse = 31, "fp_first_use", true;
    /// A call of a function that is on another ISA only, and its return.
    CrossingCallRoundTrip = 32, "crossing_call_round_trip", true;
}

/// The most parts of an operation.
pub const BENCH_PARTS: u16 = 4;
const PART_SHIFT: u32 = 12;

/// The subject of a window: an operation, the memory of its objects, and the part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BenchWindow {
    /// The operation.
    pub op: BenchOp,
    /// The memory of its objects.
    pub memory: BenchMemory,
    /// The part, below [`BENCH_PARTS`]; see [`BenchOp::part`].
    pub part: u16,
}

impl BenchWindow {
    /// The window with this number.
    pub fn from_id(id: WindowId) -> Option<BenchWindow> {
        let memory = BenchMemory::ALL[usize::from(id.0 & 1)];
        let number = id.0 >> 1 & ((1 << (PART_SHIFT - 1)) - 1);
        let op = *BENCH_OPS.iter().find(|op| **op as u16 == number)?;
        let part = id.0 >> PART_SHIFT;
        (part < BENCH_PARTS).then_some(BenchWindow { op, memory, part })
    }
}

impl BenchOp {
    /// The window around one repetition on one CPU.
    pub const fn window(self, memory: BenchMemory) -> WindowId {
        self.part(memory, 0)
    }

    /// The window around a part of an operation that CPUs of two nodes perform in turns.
    ///
    /// Windows are a CPU's own, and a CPU that waits for another executes who knows how much. So
    /// such an operation is measured in parts, each without waiting, and the host adds them up.
    /// Even parts are made by the node that wants the operation, odd ones by the node of the other
    /// ISA: part 0 until the request is sent, part 1 from its receipt to the answer, part 2 from
    /// the receipt of that. Kernels mark the ends that programs cannot see.
    ///
    /// Evaluated for a part that is not below [`BENCH_PARTS`] it panics, in a constant when
    /// compiling.
    pub const fn part(self, memory: BenchMemory, part: u16) -> WindowId {
        assert!(part < BENCH_PARTS, "operations have four parts");
        WindowId(part << PART_SHIFT | (self as u16) << 1 | memory as u16)
    }
}

impl fmt::Display for BenchOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    const ANY: Marker = Marker {
        op: MarkerOp::Begin,
        id: WindowId(0xa5c3),
    };

    /// The eight bytes of portable code.
    fn bytes(marker: Marker) -> [u8; 8] {
        let code = u64::from(marker.word()) << 32 | u64::from(PREFIX);
        code.to_le_bytes()
    }

    #[test]
    fn every_isa_reads_back_what_was_written() {
        use MarkerOp::{Abandon, Begin, Clock, End, Forget, Idle};
        for op in [Begin, End, Abandon, Forget, Clock, Idle] {
            for id in [0, 1, 0x8000, u16::MAX] {
                let id = WindowId(id);
                let marker = Marker { op, id };
                let code = bytes(marker);
                assert_eq!(decode(Isa::X86_64, &code), Decoded::Marker(marker));
                assert_eq!(decode(Isa::Aarch64, &code[..4]), Decoded::Prefix);
                assert_eq!(decode(Isa::Aarch64, &code[4..]), Decoded::Marker(marker));
            }
        }
    }

    #[test]
    fn windows_of_operations_name_them() {
        for ty in 0..32 {
            for op in 0..32 {
                let id = WindowId::of_operation(ty, op);
                assert_eq!(id.operation(), Some((ty, op)));
                assert_eq!(BenchWindow::from_id(id), None);
            }
        }
        for id in [0, WindowId::FREE - 1, 0x8400, u16::MAX] {
            assert_eq!(WindowId(id).operation(), None);
        }
    }

    /// The bytes are what processors' manuals say is a no-operation.
    #[test]
    fn the_encodings_are_no_operations() {
        let code = bytes(ANY);
        // 0f 1f: NOP r/m32. ModRM 84: a SIB byte and 32 bits of displacement follow. 8 bytes.
        assert_eq!(code[..3], [0x0f, 0x1f, 0x84]);
        for word in [PREFIX, ANY.word()] {
            // PRFM (literal): opc 11, 011, V 0, 00.
            assert_eq!(word >> 24, 0b1101_1000);
            // Prefetch operation: type 01, target 11 (reserved), policy 1.
            assert_eq!(word & 31, 0b01111);
        }
        assert_eq!(Marker::from_word(PREFIX), None);
    }

    #[test]
    fn what_compilers_emit_is_no_marker() {
        // Padding of assemblers and prefetches of programs.
        let pad = [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        assert_eq!(decode(Isa::X86_64, &pad), Decoded::Other);
        for word in [0xd503_201f_u32, 0xd800_0000, 0xd8ff_fff5, 0xf980_000f] {
            assert_eq!(decode(Isa::Aarch64, &word.to_le_bytes()), Decoded::Other);
        }
        assert_eq!(decode(Isa::Aarch64, &[]), Decoded::Other);
        assert_eq!(decode(Isa::X86_64, &bytes(ANY)[..7]), Decoded::Other);
    }

    #[test]
    fn windows_of_the_benchmark_name_their_operation() {
        for (i, &op) in BENCH_OPS.iter().enumerate() {
            assert_eq!(op as usize, i);
            for memory in BenchMemory::ALL {
                for part in 0..BENCH_PARTS {
                    let id = op.part(memory, part);
                    assert!(id.0 < WindowId::FREE);
                    let window = BenchWindow { op, memory, part };
                    assert_eq!(BenchWindow::from_id(id), Some(window));
                }
            }
        }
        for id in [WindowId::FREE, 1000, BENCH_PARTS << PART_SHIFT] {
            assert_eq!(BenchWindow::from_id(WindowId(id)), None);
        }
        let required = BENCH_OPS.iter().filter(|op| op.is_required());
        assert_eq!(required.count(), 30);
    }
}
