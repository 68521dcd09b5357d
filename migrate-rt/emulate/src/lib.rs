//! Interpreters of user-level x86-64 and AArch64 code.
//!
//! A thread can be stopped at any instruction, but it changes ISA only at migration points. What
//! lies between is interpreted: the node that takes the thread over executes the code of the
//! thread's old ISA, instruction by instruction, until a migration point is reached.
//!
//! # Shape
//!
//! * [`a64::State`] and [`x86::State`] are the registers of a thread, laid out for kernels to fill.
//! * [`Memory`] is the thread's memory. Other threads of the program run natively meanwhile, so
//!   atomic instructions are atomic there.
//! * [`Cpu::step`] executes one instruction and says what it was. What cannot be executed is a
//!   [`Refusal`], which leaves registers and memory exactly as they were before the instruction: the
//!   thread can stay where it was and go on natively.
//! * [`run_to`] does so until an address is reached.
//! * [`Cpu::run`] does the same in a fraction of the time, and is what programs use.
//!
//! # Speed
//!
//! [`Cpu::run`] takes code apart once, into operations of 24 or 32 bytes with their operands, and keeps them in runs that end
//! with a branch. The cache is private to a thread and of a fixed size; code never changes, so nothing in it gets
//! stale. Frequent instructions have an operation each, executed in one `match` on a copy of the general
//! registers; an operation for all others calls [`Cpu::step`]. Status flags are kept as result and carries, and worked out
//! when something looks at them. Code is fetched ahead of execution, up to the end of its run: what cannot be fetched
//! or decoded is an error only when it is executed. Registers are complete, and the program counter is exact, whenever
//! `run` returns; it returns after `limit` instructions, and before every address at which it is to stop.
//!
//! [`Cpu::step`] defines what instructions do. Tests execute each form, random code, sequences of random instructions, and
//! whole programs both ways and compare registers, memory and outcomes.
//!
//! # Coverage
//!
//! x86-64: the integer instructions and SSE2 of the baseline (`-mcpu=x86-64`); no x87, no MMX.
//! AArch64: ARMv8.0 with Advanced SIMD and LSE atomics; no half-precision arithmetic, no polynomial
//! multiplication, no estimates of reciprocals. All of it at user level, little-endian, without
//! debug or trace state. The tests go over all instructions of the repository's user programs.
//!
//! # Decoders
//!
//! Both are written here. What this crate has to be (no allocation, no unsafe code, small enough to
//! be part of a user program, exact about what it does not know) is not what general decoders are
//! made for: their tables cover all of an instruction set's history, and their operands have to be
//! taken apart again before they can be executed. On AArch64 the fields of a word *are* its operands,
//! and decoding and executing is one `match`. x86-64 needs a decoder of prefixes, opcode and
//! addressing form, which is three hundred lines. That nothing is decoded wrongly is what
//! the differential tests show, and random code that is held against iced-x86 and disarm64: what those
//! call invalid, or an extension that is not covered, is refused.
//!
//! # Floating point
//!
//! Arithmetic is done on bits, with integers: results, rounding modes, NaNs and the cumulative
//! exceptions are those of the emulated ISA whatever the host's are, and no library of functions takes part.
//!
//! [`Cpu::run`] has the host compute where nothing can differ: operands are zero or normal, the result is zero or normal and far
//! from where anything overflows or is tiny, rounding is to nearest, and the emulated status says already that a result was
//! inexact, so that there is nothing to note. The host's thread rounds to nearest, which is how every thread begins.
#![no_std]
#![forbid(unsafe_code)]

pub mod a64;
mod blocks;
mod flags;
mod host;
mod lanes;
mod memory;
mod soft;
pub mod x86;

pub use memory::{Access, Fault, FaultKind, Memory, Update, Width};

/// Something that happened besides the execution of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An instruction was executed. For x86-64 string instructions: a part of it, with registers and
    /// program counter so that the rest follows.
    Continue,
    /// A call was executed; the program counter is at the target.
    Call {
        /// Where the called function starts.
        target: u64,
        /// The address to which the function will return.
        back: u64,
    },
    /// A return was executed; the program counter is at its target.
    Return,
    /// A system call. The program counter is behind it, and registers are those that the kernel
    /// would see; what it does is up to the caller.
    SystemCall,
    /// The instruction raises an exception. Nothing has changed, and the program counter is at the instruction.
    Trap(Trap),
}

/// Why an instruction is an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// A breakpoint instruction.
    Breakpoint,
    /// The instruction that is undefined for ever: `ud2`, `udf`.
    Undefined,
    /// x86-64: a division by zero, or a quotient that is too large.
    Divide,
}

/// Why an instruction was not executed. Registers and memory are as they were before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The instruction is not known.
    Unknown {
        /// Its address.
        pc: u64,
        /// Its bytes, or what begins with them.
        bytes: [u8; 15],
        /// How many of the bytes there are.
        len: u8,
    },
    /// Memory could not be accessed.
    Fault {
        /// Address of the instruction.
        pc: u64,
        /// What could not be accessed.
        fault: Fault,
    },
    /// The instruction is known, but not what it is asked to do.
    Unsupported {
        /// Its address.
        pc: u64,
        /// The feature that the program asks for.
        feature: Feature,
    },
}

/// What instructions may ask for, but do not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Floating point with traps, or with denormal numbers or NaNs replaced.
    FloatControl,
    /// A system register, or a value of one, that user programs have no business with.
    SystemRegister,
    /// An instruction whose result depends on the processor, such as `cpuid`.
    Identification,
    /// Cache maintenance.
    Cache,
}

/// Why an instruction could not be executed, without where.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    Unknown,
    Fault(Fault),
    Unsupported(Feature),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl Stop {
    /// The refusal of the instruction at `pc` that begins with `bytes`.
    pub(crate) fn at(self, pc: u64, bytes: &[u8]) -> Refusal {
        match self {
            Stop::Unknown => {
                let mut start = [0; 15];
                let len = bytes.len().min(start.len());
                start[..len].copy_from_slice(&bytes[..len]);
                Refusal::Unknown {
                    pc,
                    bytes: start,
                    len: len as u8,
                }
            }
            Stop::Fault(fault) => Refusal::Fault { pc, fault },
            Stop::Unsupported(feature) => Refusal::Unsupported { pc, feature },
        }
    }
}

/// The registers of a thread, as something that executes instructions.
pub trait Cpu {
    /// Code of a program that has been taken apart, from one [`run`](Cpu::run) to the next.
    type Cache: Default;

    /// Address of the next instruction.
    fn pc(&self) -> u64;

    /// Executes one instruction.
    ///
    /// # Errors
    ///
    /// See [`Refusal`]; registers and memory are unchanged.
    fn step<M: Memory>(&mut self, memory: &mut M) -> Result<Event, Refusal>;

    /// Does what [`run_to`] does, in a fraction of the time: code is taken apart once. `cache` belongs to this
    /// code, which never changes.
    fn run<M: Memory>(
        &mut self,
        memory: &mut M,
        cache: &mut Self::Cache,
        stop: impl Fn(u64) -> bool,
        limit: u64,
    ) -> Run;
}

/// Why [`run_to`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The next instruction is one to stop at.
    Stop,
    /// The limit has been reached.
    Limit,
    /// A system call is to be made, [`Event::SystemCall`].
    SystemCall,
    /// The next instruction is an exception, [`Event::Trap`].
    Trap(Trap),
    /// The next instruction was refused.
    Refused(Refusal),
}

/// What [`run_to`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Instructions executed, a system call that ended it included.
    pub steps: u64,
    /// Why the interpretation ended.
    pub end: End,
}

/// Executes instructions until the next one is at an address for which `stop` holds, at most
/// `limit`. `stop` is asked before every instruction, the first one included.
pub fn run_to<C: Cpu, M: Memory>(
    cpu: &mut C,
    memory: &mut M,
    stop: impl Fn(u64) -> bool,
    limit: u64,
) -> Run {
    let mut steps = 0;
    let end = loop {
        if stop(cpu.pc()) {
            break End::Stop;
        }
        if steps == limit {
            break End::Limit;
        }
        match cpu.step(memory) {
            Ok(Event::Continue | Event::Call { .. } | Event::Return) => steps += 1,
            Ok(Event::SystemCall) => {
                steps += 1;
                break End::SystemCall;
            }
            Ok(Event::Trap(trap)) => break End::Trap(trap),
            Err(refusal) => break End::Refused(refusal),
        }
    };
    Run { steps, end }
}
