//! Floating-point arithmetic, comparison and conversion.

use super::super::alu::{CF, PF, STATUS, ZF};
use super::super::context::{Context, extend};
use super::Prefix;
use super::lanes::{get, put};
use crate::soft::{self, Env, F32, F64, Format, Rounding};
use crate::{Feature, Memory, Stop};
use core::cmp::Ordering;

/// Masks of all exceptions in MXCSR.
const MASKS: u64 = 0x1f80;
/// Flush to zero, denormals are zeros.
const REPLACED: u64 = 0x8040;

pub(super) fn execute<M: Memory>(c: &mut Context<'_, M>, prefix: Prefix) -> Result<(), Stop> {
    let mxcsr = c.state.mxcsr;
    if mxcsr & (MASKS | REPLACED) != MASKS {
        return Err(Stop::Unsupported(Feature::FloatControl));
    }
    let mut env = Env {
        rounding: match mxcsr >> 13 & 3 {
            0 => Rounding::NearestEven,
            1 => Rounding::Down,
            2 => Rounding::Up,
            _ => Rounding::Zero,
        },
        x86: true,
        flags: 0,
    };
    match c.i.opcode {
        0x2a => from_general(c, &mut env, prefix)?,
        0x2c | 0x2d => to_general(c, &mut env, prefix)?,
        0x2e | 0x2f => compare_to_flags(c, &mut env, prefix)?,
        0x5a => between_formats(c, &mut env, prefix)?,
        0x5b => packed_singles(c, &mut env, prefix)?,
        0xe6 => packed_doubles(c, &mut env, prefix)?,
        _ => arithmetic(c, &mut env, prefix)?,
    }
    c.state.mxcsr |= u64::from(env.flags);
    Ok(())
}

/// The format that the prefix chooses, and whether all lanes take part.
fn shape(prefix: Prefix) -> (Format, u32, bool) {
    match prefix {
        Prefix::None => (F32, 2, true),
        Prefix::P66 => (F64, 3, true),
        Prefix::F3 => (F32, 2, false),
        Prefix::F2 => (F64, 3, false),
    }
}

/// The second operand: a whole vector, or one number.
fn operand<M: Memory>(c: &mut Context<'_, M>, log2: u32, packed: bool) -> Result<u128, Stop> {
    if packed {
        c.vector()
    } else {
        Ok(c.scalar(1 << log2)?.into())
    }
}

/// SQRT, ADD, MUL, SUB, MIN, DIV, MAX, CMP.
fn arithmetic<M: Memory>(
    c: &mut Context<'_, M>,
    env: &mut Env,
    prefix: Prefix,
) -> Result<(), Stop> {
    let (f, log2, packed) = shape(prefix);
    if c.i.opcode == 0xc2 && !(0..8).contains(&c.i.immediate) {
        return Err(Stop::Unknown);
    }
    let b = operand(c, log2, packed)?;
    let a = c.xmm();
    let mut value = a;
    for at in 0..if packed { 16 >> log2 } else { 1 } {
        let (x, y) = (get(a, at, log2), get(b, at, log2));
        let result = match c.i.opcode {
            0x51 => soft::sqrt(env, f, y),
            0x58 => soft::add(env, f, x, y),
            0x59 => soft::mul(env, f, x, y),
            0x5c => soft::sub(env, f, x, y),
            0x5e => soft::div(env, f, x, y),
            // Unless it is less (or greater), the second operand, whatever it is.
            0x5d if soft::compare(env, f, x, y, true) == Some(Ordering::Less) => x,
            0x5f if soft::compare(env, f, x, y, true) == Some(Ordering::Greater) => x,
            0x5d | 0x5f => y,
            _ => {
                let holds = predicate(env, f, x, y, c.i.immediate as u32);
                u64::from(holds).wrapping_neg()
            }
        };
        put(&mut value, at, log2, result);
    }
    c.set_xmm(value);
    Ok(())
}

/// The predicates of CMP: EQ, LT, LE, UNORD and their opposites.
fn predicate(env: &mut Env, f: Format, a: u64, b: u64, number: u32) -> bool {
    let order = soft::compare(env, f, a, b, matches!(number & 3, 1 | 2));
    let holds = match number & 3 {
        0 => order == Some(Ordering::Equal),
        1 => order == Some(Ordering::Less),
        2 => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        _ => order.is_none(),
    };
    holds != (number & 4 != 0)
}

/// UCOMISS, UCOMISD, COMISS, COMISD.
fn compare_to_flags<M: Memory>(
    c: &mut Context<'_, M>,
    env: &mut Env,
    prefix: Prefix,
) -> Result<(), Stop> {
    let (f, log2) = match prefix {
        Prefix::None => (F32, 2),
        Prefix::P66 => (F64, 3),
        _ => return Err(Stop::Unknown),
    };
    let b = c.scalar(1 << log2)?;
    let a = get(c.xmm(), 0, log2);
    let flags = match soft::compare(env, f, a, b, c.i.opcode == 0x2f) {
        Some(Ordering::Greater) => 0,
        Some(Ordering::Less) => CF,
        Some(Ordering::Equal) => ZF,
        None => ZF | PF | CF,
    };
    c.set_flags(STATUS, flags);
    Ok(())
}

/// CVTSI2SS, CVTSI2SD.
fn from_general<M: Memory>(
    c: &mut Context<'_, M>,
    env: &mut Env,
    prefix: Prefix,
) -> Result<(), Stop> {
    let (f, log2, packed) = shape(prefix);
    if packed {
        return Err(Stop::Unknown);
    }
    let size = if c.i.wide() { 8 } else { 4 };
    let integer = extend(c.rm(size)?, size);
    let result = soft::from_int(env, f, integer < 0, integer.unsigned_abs(), 0);
    let mut value = c.xmm();
    put(&mut value, 0, log2, result);
    c.set_xmm(value);
    Ok(())
}

/// CVTTSS2SI, CVTTSD2SI, CVTSS2SI, CVTSD2SI.
fn to_general<M: Memory>(
    c: &mut Context<'_, M>,
    env: &mut Env,
    prefix: Prefix,
) -> Result<(), Stop> {
    let (f, log2, packed) = shape(prefix);
    if packed {
        return Err(Stop::Unknown);
    }
    let size = if c.i.wide() { 8 } else { 4 };
    let number = c.scalar(1 << log2)?;
    let result = integer(env, f, number, c.i.opcode == 0x2c, size);
    c.set_reg(c.i.reg(), size, result);
    Ok(())
}

/// A number as a signed integer of `size` bytes; the least one ("indefinite") if it does not fit.
fn integer(env: &mut Env, f: Format, number: u64, truncate: bool, size: u32) -> u64 {
    let rounding = if truncate {
        Rounding::Zero
    } else {
        env.rounding
    };
    let (value, _) = soft::to_int(env, f, number, 0, rounding, true, 8 * size);
    value.map_or(1 << (8 * size - 1), |value| value as u64)
}

/// CVTPS2PD, CVTPD2PS, CVTSS2SD, CVTSD2SS.
fn between_formats<M: Memory>(
    c: &mut Context<'_, M>,
    env: &mut Env,
    prefix: Prefix,
) -> Result<(), Stop> {
    let mut value = c.xmm();
    match prefix {
        Prefix::F3 | Prefix::F2 => {
            let (from, to, log2) = if prefix == Prefix::F3 {
                (F32, F64, 2)
            } else {
                (F64, F32, 3)
            };
            let number = c.scalar(1 << log2)?;
            let result = soft::convert(env, from, to, number);
            put(&mut value, 0, 5 - log2, result);
        }
        Prefix::None => {
            let both = c.scalar(8)?.into();
            for at in 0..2 {
                let result = soft::convert(env, F32, F64, get(both, at, 2));
                put(&mut value, at, 3, result);
            }
        }
        Prefix::P66 => {
            let both = c.vector()?;
            value = 0;
            for at in 0..2 {
                let result = soft::convert(env, F64, F32, get(both, at, 3));
                put(&mut value, at, 2, result);
            }
        }
    }
    c.set_xmm(value);
    Ok(())
}

/// CVTDQ2PS, CVTPS2DQ, CVTTPS2DQ.
fn packed_singles<M: Memory>(
    c: &mut Context<'_, M>,
    env: &mut Env,
    prefix: Prefix,
) -> Result<(), Stop> {
    if prefix == Prefix::F2 {
        return Err(Stop::Unknown);
    }
    let from = c.vector()?;
    let mut value = 0;
    for at in 0..4 {
        let lane = get(from, at, 2);
        let result = if prefix == Prefix::None {
            let integer = extend(lane, 4);
            soft::from_int(env, F32, integer < 0, integer.unsigned_abs(), 0)
        } else {
            integer(env, F32, lane, prefix == Prefix::F3, 4)
        };
        put(&mut value, at, 2, result);
    }
    c.set_xmm(value);
    Ok(())
}

/// CVTDQ2PD, CVTPD2DQ, CVTTPD2DQ.
fn packed_doubles<M: Memory>(
    c: &mut Context<'_, M>,
    env: &mut Env,
    prefix: Prefix,
) -> Result<(), Stop> {
    let mut value = 0;
    match prefix {
        Prefix::None => return Err(Stop::Unknown),
        Prefix::F3 => {
            let both = c.scalar(8)?.into();
            for at in 0..2 {
                let integer = extend(get(both, at, 2), 4);
                let result = soft::from_int(env, F64, integer < 0, integer.unsigned_abs(), 0);
                put(&mut value, at, 3, result);
            }
        }
        _ => {
            let from = c.vector()?;
            for at in 0..2 {
                let result = integer(env, F64, get(from, at, 3), prefix == Prefix::P66, 4);
                put(&mut value, at, 2, result);
            }
        }
    }
    c.set_xmm(value);
    Ok(())
}
