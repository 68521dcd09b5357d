//! AArch64 at EL0: ARMv8.0-A with Advanced SIMD, and the atomics of ARMv8.1 (LSE).
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), chapters C4 (encodings), C6
//! (base instructions), C7 (SIMD and floating point) and J1 (shared functions). The modules follow
//! the tables of C4.1: reserved and unallocated words are not known, and so are those whose
//! behaviour is CONSTRAINED UNPREDICTABLE.

mod bits;
mod branch;
mod fast;
mod immediate;
mod memory;
mod register;
mod simd;

use crate::{Access, Cpu, Event, Fault, FaultKind, Memory, Refusal, Run, Stop};
use bits::field;
pub use fast::Cache;

/// Number of the zero register, or of the stack pointer.
const R31: u32 = 31;

/// The rounding mode in FPCR.
const FPCR_ROUNDING: u64 = 3 << 22;

/// Registers of a thread.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// X0 to X30.
    pub x: [u64; 31],
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub pc: u64,
    /// Condition flags: N, Z, C, V in bits 31 to 28; other bits are zero.
    pub nzcv: u64,
    /// V0 to V31.
    pub v: [u128; 32],
    /// Floating-point control. Of it, only the rounding mode may be set.
    pub fpcr: u64,
    /// Floating-point status. Of it, bits of the cumulative exceptions and QC are set here.
    pub fpsr: u64,
    /// TPIDR_EL0, the thread pointer.
    pub tpidr: u64,
    /// What the last load-exclusive has read. A kernel's save area has none: exceptions lose it.
    pub monitor: Monitor,
}

/// The exclusive monitor: a store-exclusive succeeds if it finds what the load-exclusive has read.
///
/// A store of the same value by another thread in between goes unnoticed, which code with
/// load-exclusive loops in place of compare-and-swap cannot tell apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Monitor {
    /// Bytes that were read; 0 if there was no load-exclusive.
    pub bytes: u64,
    /// Address.
    pub va: u64,
    /// The value, low half first.
    pub value: [u64; 2],
}

impl State {
    /// General register, 31 is zero.
    fn x(&self, n: u32) -> u64 {
        if n == R31 { 0 } else { self.x[n as usize] }
    }

    /// General register, 31 is the stack pointer.
    fn x_sp(&self, n: u32) -> u64 {
        if n == R31 {
            self.sp
        } else {
            self.x[n as usize]
        }
    }

    /// The register or its low half.
    fn xw(&self, n: u32, wide: bool) -> u64 {
        narrow(self.x(n), wide)
    }

    /// Writes a register, 31 is none.
    fn set_x(&mut self, n: u32, value: u64) {
        if n != R31 {
            self.x[n as usize] = value;
        }
    }

    /// Writes a register, or its low half and zeros in the other one.
    fn set_xw(&mut self, n: u32, wide: bool, value: u64) {
        self.set_x(n, narrow(value, wide));
    }

    /// Writes a register, 31 is the stack pointer.
    fn set_x_sp(&mut self, n: u32, value: u64) {
        if n == R31 {
            self.sp = value;
        } else {
            self.x[n as usize] = value;
        }
    }

    /// Whether a condition (its 4-bit code) holds.
    fn holds(&self, condition: u32) -> bool {
        let flag = |at: u32| self.nzcv >> at & 1 != 0;
        let (n, z, c, v) = (flag(31), flag(30), flag(29), flag(28));
        let base = match condition >> 1 {
            0 => z,
            1 => c,
            2 => n,
            3 => v,
            4 => c && !z,
            5 => n == v,
            6 => n == v && !z,
            _ => return true,
        };
        base != (condition & 1 != 0)
    }
}

/// The low half if not `wide`.
fn narrow(value: u64, wide: bool) -> u64 {
    if wide { value } else { value & 0xffff_ffff }
}

impl Cpu for State {
    type Cache = Cache;

    fn run<M: Memory>(
        &mut self,
        memory: &mut M,
        cache: &mut Cache,
        stop: impl Fn(u64) -> bool,
        limit: u64,
    ) -> Run {
        fast::run(self, memory, cache, stop, limit)
    }

    fn pc(&self) -> u64 {
        self.pc
    }

    fn step<M: Memory>(&mut self, memory: &mut M) -> Result<Event, Refusal> {
        let pc = self.pc;
        let fault = |kind| Refusal::Fault {
            pc,
            fault: Fault {
                va: pc,
                access: Access::Fetch,
                kind,
            },
        };
        if !pc.is_multiple_of(4) {
            return Err(fault(FaultKind::Unaligned));
        }
        let mut bytes = [0; 4];
        match memory.fetch(pc, &mut bytes) {
            Ok(4) => {}
            Ok(_) => return Err(fault(FaultKind::Unmapped)),
            Err(fault) => return Err(Refusal::Fault { pc, fault }),
        }
        execute(self, memory, u32::from_le_bytes(bytes)).map_err(|stop| stop.at(pc, &bytes))
    }
}

/// Executes the instruction `word` at the program counter (C4.1).
fn execute<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<Event, Stop> {
    match field(word, 25, 4) {
        0b1000 | 0b1001 => immediate::execute(state, word)?,
        0b1010 | 0b1011 => return branch::execute(state, memory, word),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory::execute(state, memory, word)?,
        0b0101 | 0b1101 => register::execute(state, word)?,
        0b0111 | 0b1111 => simd::execute(state, word)?,
        // UDF
        0b0000 if word >> 16 == 0 => return Ok(Event::Trap(crate::Trap::Undefined)),
        _ => return Err(Stop::Unknown),
    }
    state.pc = state.pc.wrapping_add(4);
    Ok(Event::Continue)
}
