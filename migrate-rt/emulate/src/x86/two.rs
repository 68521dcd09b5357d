//! The two-byte opcode map but for SSE (volume 2, table A-3).

use super::alu::{CF, Op, STATUS, ZF, double_shift, holds};
use super::context::{Context, Flow, RAX, RCX, cut, extend};
use super::decode::Repeat;
use super::integer::{branch_if, multiply_to};
use super::sse;
use crate::{Event, Feature, Memory, Stop, Trap, Width};
use core::sync::atomic::{Ordering, fence};

pub(super) fn execute<M: Memory>(c: &mut Context<'_, M>) -> Result<Flow, Stop> {
    let opcode = c.i.opcode;
    let size = c.i.size();
    if c.i.lock && !lockable(opcode, c.i.group()) {
        return Err(Stop::Unknown);
    }
    match opcode {
        // SYSCALL
        0x05 => {
            c.state.gpr[usize::from(RCX)] = c.next;
            c.state.gpr[11] = c.state.rflags;
            c.state.rip = c.next;
            return Ok(Flow::Event(Event::SystemCall));
        }
        0x0b => return Ok(Flow::Event(Event::Trap(Trap::Undefined))),
        // Prefetches, ENDBR64 and NOP. (RDSSP is a NOP without shadow stacks, and no compiler's.)
        0x0d | 0x18 | 0x1f => {}
        0x1e if c.i.repeat == Repeat::F3 && c.i.modrm == 0xfa => {}
        // CMOVcc. Memory is read, and the upper half cleared, whether the condition holds or not.
        0x40..=0x4f => {
            let value = c.rm(size)?;
            let value = if holds(opcode, c.state.rflags) {
                value
            } else {
                c.reg(c.i.reg(), size)
            };
            c.set_reg(c.i.reg(), size, value);
        }
        0x80..=0x8f => return Ok(branch_if(c, holds(opcode, c.state.rflags))),
        0x90..=0x9f => {
            let value = holds(opcode, c.state.rflags);
            c.set_rm(1, value.into())?;
        }
        0xa2 => return Err(Stop::Unsupported(Feature::Identification)),
        0xa3 | 0xab | 0xb3 | 0xbb => bit_test(c, size, opcode >> 3 & 3)?,
        0xba if c.i.group() >= 4 => bit_test(c, size, c.i.group() & 3)?,
        0xa4 | 0xa5 | 0xac | 0xad => shift(c, size)?,
        0xae => return fences(c),
        0xaf => {
            let (a, b) = (c.reg(c.i.reg(), size), c.rm(size)?);
            multiply_to(c, size, a, b);
        }
        0xb0 => compare_exchange(c, 1)?,
        0xb1 => compare_exchange(c, size)?,
        // MOVZX, MOVSX
        0xb6 | 0xb7 | 0xbe | 0xbf => {
            let from = 1 + u32::from(opcode & 1);
            let value = c.rm(from)?;
            let value = if opcode & 8 == 0 {
                value
            } else {
                extend(value, from) as u64
            };
            c.set_reg(c.i.reg(), size, value);
        }
        0xbc | 0xbd => scan(c, size)?,
        0xc0 | 0xc1 => {
            let size = if opcode == 0xc0 { 1 } else { size };
            add_exchange(c, size)?;
        }
        // MOVNTI
        0xc3 if c.i.rm().is_none() && !c.i.operand16 && c.i.repeat == Repeat::None => {
            let (va, value) = (c.va(), c.reg(c.i.reg(), size));
            c.store(va, size, value)?;
        }
        0xc7 if c.i.group() == 1 && c.i.rm().is_none() => compare_exchange_pair(c)?,
        // BSWAP
        0xc8..=0xcf if size >= 4 => {
            let n = c.i.opcode_reg();
            let value = c.reg(n, size).swap_bytes() >> (64 - 8 * size);
            c.set_reg(n, size, value);
        }
        _ => sse::execute(c)?,
    }
    Ok(Flow::Next)
}

fn lockable(opcode: u8, group: u8) -> bool {
    match opcode {
        0xab | 0xb3 | 0xbb | 0xb0 | 0xb1 | 0xc0 | 0xc1 | 0xc7 => true,
        0xba => group >= 5,
        _ => false,
    }
}

/// BT, BTS, BTR, BTC.
fn bit_test<M: Memory>(c: &mut Context<'_, M>, size: u32, op: u8) -> Result<(), Stop> {
    let bits = 8 * size;
    let from_register = c.i.opcode != 0xba;
    let number = if from_register {
        extend(c.reg(c.i.reg(), size), size)
    } else {
        c.i.immediate & 0xff
    };
    let bit = 1 << (number as u32 % bits);
    let change = |a: u64| match op {
        1 => a | bit,
        2 => a & !bit,
        _ => a ^ bit,
    };
    // A register counts bits from the operand on, into its neighbours.
    let neighbour = if from_register {
        (number >> bits.trailing_zeros()) * i64::from(size)
    } else {
        0
    };
    let old = match (c.i.rm(), op) {
        (Some(_), 0) => c.rm(size)?,
        (Some(_), _) => c.modify(size, &mut |a| change(a))?,
        (None, 0) => {
            let va = c.va().wrapping_add_signed(neighbour);
            c.load(va, size)?
        }
        (None, _) => {
            let va = c.va().wrapping_add_signed(neighbour);
            c.modify_at(va, size, c.i.lock, &mut |a| change(a))?
        }
    };
    c.set_flags(CF, u64::from(old & bit != 0));
    Ok(())
}

/// SHLD, SHRD.
fn shift<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<(), Stop> {
    let count = if c.i.opcode & 1 == 0 {
        c.i.immediate as u32
    } else {
        c.reg(RCX, 1) as u32
    };
    let (left, b) = (c.i.opcode & 8 == 0, c.reg(c.i.reg(), size));
    let (mut mask, mut flags) = (0, 0);
    c.modify(size, &mut |a| {
        let (result, m, f) = double_shift(left, a, b, count, size);
        (mask, flags) = (m, f);
        result
    })?;
    c.set_flags(mask, flags);
    Ok(())
}

/// BSF, BSR, TZCNT and LZCNT. A compiler for the baseline uses TZCNT, which older processors take for BSF,
/// where both have the same result. Kernels demand LZCNT of their CPUs.
fn scan<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<(), Stop> {
    let a = c.rm(size)?;
    let zeros = a.trailing_zeros().min(8 * size);
    match (c.i.opcode, c.i.repeat) {
        (0xbc, Repeat::F3) => {
            c.set_reg(c.i.reg(), size, zeros.into());
            let flags = u64::from(a == 0) | u64::from(zeros == 0) << 6;
            c.set_flags(CF | ZF, flags);
        }
        (_, Repeat::F3) => {
            let zeros = (a.leading_zeros() + 8 * size).saturating_sub(u64::BITS);
            c.set_reg(c.i.reg(), size, zeros.into());
            let flags = u64::from(a == 0) | u64::from(zeros == 0) << 6;
            c.set_flags(CF | ZF, flags);
        }
        (_, Repeat::None) => {
            // Without a bit the destination stays as it is.
            if a != 0 {
                let at = if c.i.opcode == 0xbc { zeros } else { a.ilog2() };
                c.set_reg(c.i.reg(), size, at.into());
            }
            c.set_flags(ZF, u64::from(a == 0) << 6);
        }
        _ => return Err(Stop::Unknown),
    }
    Ok(())
}

/// CMPXCHG with memory. With a register, processors do not agree on its upper half.
fn compare_exchange<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<(), Stop> {
    if c.i.rm().is_some() {
        return Err(Stop::Unknown);
    }
    let (expected, new) = (c.reg(RAX, size), c.reg(c.i.reg(), size));
    let old = c.modify(size, &mut |a| if a == expected { new } else { a })?;
    let (_, flags) = Op::Cmp.apply(expected, old, size, 0);
    if old != expected {
        c.set_reg(RAX, size, old);
    }
    c.set_flags(STATUS, flags);
    Ok(())
}

/// CMPXCHG8B, CMPXCHG16B.
fn compare_exchange_pair<M: Memory>(c: &mut Context<'_, M>) -> Result<(), Stop> {
    let half = if c.i.wide() { 8 } else { 4 };
    let pair = |c: &Context<'_, M>, low: u8, high: u8| {
        u128::from(c.reg(low, half)) | u128::from(c.reg(high, half)) << (8 * half)
    };
    let (expected, new) = (pair(c, RAX, 2), pair(c, 3, RCX));
    let va = c.va();
    let width = if half == 8 { Width::B16 } else { Width::B8 };
    if half == 8 && !va.is_multiple_of(16) {
        return Err(super::context::unaligned(va, crate::Access::Update));
    }
    let old = c.memory.compare_exchange(va, width, expected, new)?;
    if old != expected {
        c.set_reg(RAX, half, cut(old as u64, half));
        c.set_reg(2, half, (old >> (8 * half)) as u64);
    }
    c.set_flags(ZF, u64::from(old == expected) << 6);
    Ok(())
}

/// XADD.
fn add_exchange<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<(), Stop> {
    let b = c.reg(c.i.reg(), size);
    let mut flags = 0;
    if let Some(n) = c.i.rm() {
        if c.i.lock {
            return Err(Stop::Unknown);
        }
        let a = c.reg(n, size);
        let (sum, f) = Op::Add.apply(a, b, size, 0);
        // The sum wins if both are one register.
        c.set_reg(c.i.reg(), size, a);
        c.set_reg(n, size, sum);
        flags = f;
    } else {
        let old = c.modify(size, &mut |a| {
            let (sum, f) = Op::Add.apply(a, b, size, 0);
            flags = f;
            sum
        })?;
        c.set_reg(c.i.reg(), size, old);
    }
    c.set_flags(STATUS, flags);
    Ok(())
}

/// LFENCE, MFENCE, SFENCE, LDMXCSR, STMXCSR.
fn fences<M: Memory>(c: &mut Context<'_, M>) -> Result<Flow, Stop> {
    if c.i.repeat != Repeat::None {
        return Err(Stop::Unknown);
    }
    // CLFLUSH, CLFLUSHOPT, CLWB
    if let (group @ (6 | 7), true) = (c.i.group(), c.i.rm().is_none())
        && (group == 7 || c.i.operand16)
    {
        let va = c.va();
        c.memory.maintain(va, group == 6)?;
        return Ok(Flow::Next);
    }
    if c.i.operand16 {
        return Err(Stop::Unknown);
    }
    match (c.i.group(), c.i.rm().is_some()) {
        (5..=7, true) => fence(Ordering::SeqCst),
        (2, false) => {
            let value = c.rm(4)?;
            // Setting reserved bits is an exception.
            if value >> 16 != 0 {
                return Err(Stop::Unsupported(Feature::FloatControl));
            }
            c.state.mxcsr = value;
        }
        (3, false) => c.set_rm(4, c.state.mxcsr)?,
        _ => return Err(Stop::Unknown),
    }
    Ok(Flow::Next)
}
