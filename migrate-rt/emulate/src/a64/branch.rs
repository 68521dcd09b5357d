//! Branches, exceptions, hints, barriers and system registers (C4.1, "Branches, Exception
//! Generating and System instructions").

use super::bits::{bit, field, signed};
use super::{R31, State};
use crate::{Event, Feature, Memory, Stop, Trap};
use core::sync::atomic::{Ordering, fence};

pub(super) fn execute<M: Memory>(
    state: &mut State,
    memory: &mut M,
    word: u32,
) -> Result<Event, Stop> {
    let next = state.pc.wrapping_add(4);
    match field(word, 26, 6) {
        // B, BL
        0b000101 | 0b100101 => {
            let target = relative(state, signed(word, 0, 26));
            Ok(go(state, target, bit(word, 31)))
        }
        // CBZ, CBNZ, TBZ, TBNZ
        0b001101 | 0b101101 => {
            let value = state.x(field(word, 0, 5));
            let (set, offset) = if bit(word, 25) {
                let at = field(word, 19, 5) | field(word, 31, 1) << 5;
                (value >> at & 1 != 0, signed(word, 5, 14))
            } else {
                (
                    state.xw(field(word, 0, 5), bit(word, 31)) != 0,
                    signed(word, 5, 19),
                )
            };
            let taken = set == bit(word, 24);
            state.pc = if taken { relative(state, offset) } else { next };
            Ok(Event::Continue)
        }
        // B.cond
        0b010101 if !bit(word, 25) && !bit(word, 24) && !bit(word, 4) => {
            let taken = state.holds(field(word, 0, 4));
            let offset = signed(word, 5, 19);
            state.pc = if taken { relative(state, offset) } else { next };
            Ok(Event::Continue)
        }
        0b110101 => match field(word, 24, 2) {
            0 => exception(state, word, next),
            1 => system(state, memory, word, next),
            _ => register(state, word),
        },
        _ => Err(Stop::Unknown),
    }
}

/// The address `words` instructions from here.
fn relative(state: &State, words: i64) -> u64 {
    state.pc.wrapping_add_signed(words << 2)
}

/// Goes to `target`, with the address of the next instruction in X30 if it is a call.
fn go(state: &mut State, target: u64, call: bool) -> Event {
    let back = state.pc.wrapping_add(4);
    state.pc = target;
    if !call {
        return Event::Continue;
    }
    state.x[30] = back;
    Event::Call { target, back }
}

/// BR, BLR, RET.
fn register(state: &mut State, word: u32) -> Result<Event, Stop> {
    if field(word, 16, 5) != 0b11111 || field(word, 10, 6) != 0 || field(word, 0, 5) != 0 {
        return Err(Stop::Unknown);
    }
    let target = state.x(field(word, 5, 5));
    match field(word, 21, 5) {
        0b10000 => Ok(go(state, target, false)),
        0b10001 => Ok(go(state, target, true)),
        0b10010 => {
            state.pc = target;
            Ok(Event::Return)
        }
        _ => Err(Stop::Unknown),
    }
}

/// SVC, BRK.
fn exception(state: &mut State, word: u32, next: u64) -> Result<Event, Stop> {
    match (field(word, 21, 3), field(word, 0, 5)) {
        (0, 1) => {
            state.pc = next;
            Ok(Event::SystemCall)
        }
        (1, 0) => Ok(Event::Trap(Trap::Breakpoint)),
        _ => Err(Stop::Unknown),
    }
}

/// Hints, barriers, system registers.
fn system<M: Memory>(
    state: &mut State,
    memory: &mut M,
    word: u32,
    next: u64,
) -> Result<Event, Stop> {
    let rt = field(word, 0, 5);
    match field(word, 19, 5) {
        // What is not pstate: CRn selects.
        0 if rt == R31 && field(word, 16, 3) == 3 => {
            match (field(word, 12, 4), field(word, 5, 3)) {
                // NOP, YIELD, WFE and what processors without a feature take for NOP. A thread that
                // waits for an event may always be woken without one.
                (2, _) if word != WFI => core::hint::spin_loop(),
                // CLREX
                (3, 2) => state.monitor = super::Monitor::default(),
                // DSB (also of no access type, which is another instruction), DMB
                (3, 4) if !matches!(field(word, 8, 4), 0 | 4) => fence(Ordering::SeqCst),
                (3, 5) => fence(Ordering::SeqCst),
                // ISB
                (3, 6) => {}
                _ => return Err(Stop::Unknown),
            }
        }
        // DC CVAC, DC CIVAC
        1 if matches!(word & !R31, CVAC | CIVAC) => {
            memory.maintain(state.x(rt), word & !R31 == CVAC)?;
        }
        // SYS, SYSL: DC ZVA and its like.
        1 | 5 => return Err(Stop::Unsupported(Feature::Cache)),
        // MSR, MRS
        2 | 3 | 6 | 7 => system_register(state, word)?,
        _ => return Err(Stop::Unknown),
    }
    state.pc = next;
    Ok(Event::Continue)
}

/// A kernel decides whether user programs may wait for interrupts.
const WFI: u32 = 0xd503_207f;

/// Of x0.
const CVAC: u32 = 0xd50b_7a20;
const CIVAC: u32 = 0xd50b_7e20;

const NZCV: u32 = register_number(3, 4, 2, 0);
const FPCR: u32 = register_number(3, 4, 4, 0);
const FPSR: u32 = register_number(3, 4, 4, 1);
const TPIDR: u32 = register_number(3, 13, 0, 2);

/// Bits of FPSR that mean something in AArch64: QC and the cumulative exceptions.
const FPSR_BITS: u64 = 0x0800_009f;

/// The system register op0 = 3, `op1`, `crn`, `crm`, `op2` in bits 18 to 5 of MRS and MSR.
const fn register_number(op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    op1 << 11 | crn << 7 | crm << 3 | op2
}

/// MRS, MSR of what belongs to user level and is part of a thread.
fn system_register(state: &mut State, word: u32) -> Result<(), Stop> {
    let refused = Stop::Unsupported(Feature::SystemRegister);
    if !bit(word, 19) {
        return Err(refused);
    }
    let rt = field(word, 0, 5);
    let number = field(word, 5, 14);
    if bit(word, 21) {
        let value = match number {
            NZCV => state.nzcv,
            FPCR => state.fpcr,
            FPSR => state.fpsr,
            TPIDR => state.tpidr,
            _ => return Err(refused),
        };
        state.set_x(rt, value);
    } else {
        let value = state.x(rt);
        match number {
            NZCV => state.nzcv = value & 0xf000_0000,
            // Whether other bits stick depends on the processor.
            FPCR if value & !super::FPCR_ROUNDING == 0 => state.fpcr = value,
            FPSR if value & !FPSR_BITS == 0 => state.fpsr = value,
            TPIDR => state.tpidr = value,
            _ => return Err(refused),
        }
    }
    Ok(())
}
