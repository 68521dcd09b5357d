//! Scalar floating point: arithmetic, comparison, conversion, moves.

use super::super::State;
use super::super::bits::{bit, field, sign_extend, width};
use super::float::{Extreme, extreme};
use super::{expand_float, registers, rounding};
use crate::Stop;
use crate::lanes::get;
use crate::soft::{self, Env, F16, F32, F64, Format, Rounding};
use core::cmp::Ordering;

pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    if bit(word, 29) {
        return Err(Stop::Unknown);
    }
    if !bit(word, 24) && !bit(word, 21) {
        return fixed_point(state, word);
    }
    if !bit(word, 24) && field(word, 10, 6) == 0 {
        return integers(state, word);
    }
    if bit(word, 31) {
        return Err(Stop::Unknown);
    }
    if bit(word, 24) {
        return multiply_add(state, word);
    }
    match (field(word, 10, 2), field(word, 10, 3), field(word, 10, 5)) {
        (_, _, 0b10000) => one_source(state, word),
        (_, _, 0b01000) if field(word, 14, 2) == 0 => compare(state, word),
        (_, 0b100, _) => {
            if field(word, 5, 5) != 0 {
                return Err(Stop::Unknown);
            }
            let (f, _) = format(word)?;
            state.v[registers(word).0] = expand_float(f, field(word, 13, 8)).into();
            Ok(())
        }
        (1, ..) => conditional_compare(state, word),
        (2, ..) => two_sources(state, word),
        (3, ..) => {
            let (_, log2) = format(word)?;
            let (d, n, m) = registers(word);
            let from = if state.holds(field(word, 12, 4)) {
                n
            } else {
                m
            };
            state.v[d] = get(state.v[from], 0, log2).into();
            Ok(())
        }
        _ => Err(Stop::Unknown),
    }
}

/// Single or double precision.
fn format(word: u32) -> Result<(Format, u32), Stop> {
    match field(word, 22, 2) {
        0 => Ok((F32, 2)),
        1 => Ok((F64, 3)),
        _ => Err(Stop::Unknown),
    }
}

/// FMADD, FMSUB, FNMADD, FNMSUB.
fn multiply_add(state: &mut State, word: u32) -> Result<(), Stop> {
    let (f, log2) = format(word)?;
    let (d, n, m) = registers(word);
    let negate = |value: u64, yes: bool| if yes { value ^ f.sign_bit() } else { value };
    let (negate_sum, other) = (bit(word, 21), bit(word, 15));
    let a = negate(
        get(state.v[field(word, 10, 5) as usize], 0, log2),
        negate_sum,
    );
    let x = negate(get(state.v[n], 0, log2), negate_sum != other);
    let y = get(state.v[m], 0, log2);
    let mut env = state.float_env()?;
    let result = soft::mul_add(&mut env, f, a, x, y);
    state.v[d] = result.into();
    state.note_exceptions(&env);
    Ok(())
}

/// FMUL, FDIV, FADD, FSUB, FMAX, FMIN, FMAXNM, FMINNM, FNMUL.
fn two_sources(state: &mut State, word: u32) -> Result<(), Stop> {
    let (f, log2) = format(word)?;
    let (d, n, m) = registers(word);
    let (a, b) = (get(state.v[n], 0, log2), get(state.v[m], 0, log2));
    let mut env = state.float_env()?;
    let e = &mut env;
    let result = match field(word, 12, 4) {
        0 => soft::mul(e, f, a, b),
        1 => soft::div(e, f, a, b),
        2 => soft::add(e, f, a, b),
        3 => soft::sub(e, f, a, b),
        4 => extreme(e, f, a, b, Extreme::MAX),
        5 => extreme(e, f, a, b, Extreme::MIN),
        6 => extreme(e, f, a, b, Extreme::MAX.of_numbers()),
        7 => extreme(e, f, a, b, Extreme::MIN.of_numbers()),
        8 => soft::mul(e, f, a, b) ^ f.sign_bit(),
        _ => return Err(Stop::Unknown),
    };
    state.v[d] = result.into();
    state.note_exceptions(&env);
    Ok(())
}

/// FMOV, FABS, FNEG, FSQRT, FCVT, FRINT.
fn one_source(state: &mut State, word: u32) -> Result<(), Stop> {
    let opcode = field(word, 15, 6);
    let (d, n, _) = registers(word);
    if let 4 | 5 | 7 = opcode {
        return between_formats(state, word);
    }
    let (f, log2) = format(word)?;
    let a = get(state.v[n], 0, log2);
    let result = match opcode {
        0 => a,
        1 => a & !f.sign_bit(),
        2 => a ^ f.sign_bit(),
        _ => {
            let mut env = state.float_env()?;
            let result = match opcode {
                3 => soft::sqrt(&mut env, f, a),
                _ => {
                    let (mode, exact) = integral(&env, opcode & 7)?;
                    if opcode >> 3 != 1 {
                        return Err(Stop::Unknown);
                    }
                    soft::round_to_integral(&mut env, f, a, mode, exact)
                }
            };
            state.note_exceptions(&env);
            result
        }
    };
    state.v[d] = result.into();
    Ok(())
}

/// The mode of FRINTN, P, M, Z, A, X, I in this order (5 is reserved), and whether a difference is
/// noted.
fn integral(env: &Env, number: u32) -> Result<(Rounding, bool), Stop> {
    Ok(match number {
        0..=3 => (rounding(number), false),
        4 => (Rounding::NearestAway, false),
        6 => (env.rounding, true),
        7 => (env.rounding, false),
        _ => return Err(Stop::Unknown),
    })
}

/// FCVT.
fn between_formats(state: &mut State, word: u32) -> Result<(), Stop> {
    let of = |number: u32| match number {
        0 => Ok((F32, 2)),
        1 => Ok((F64, 3)),
        3 => Ok((F16, 1)),
        _ => Err(Stop::Unknown),
    };
    let ((from, log2), (to, _)) = (of(field(word, 22, 2))?, of(field(word, 15, 2))?);
    if from == to {
        return Err(Stop::Unknown);
    }
    let (d, n, _) = registers(word);
    let mut env = state.float_env()?;
    let result = soft::convert(&mut env, from, to, get(state.v[n], 0, log2));
    state.v[d] = result.into();
    state.note_exceptions(&env);
    Ok(())
}

/// NZCV of a comparison.
fn order_flags(order: Option<Ordering>) -> u64 {
    let flags = match order {
        Some(Ordering::Equal) => 0b0110,
        Some(Ordering::Less) => 0b1000,
        Some(Ordering::Greater) => 0b0010,
        None => 0b0011,
    };
    flags << 28
}

/// FCMP, FCMPE.
fn compare(state: &mut State, word: u32) -> Result<(), Stop> {
    if field(word, 0, 3) != 0 {
        return Err(Stop::Unknown);
    }
    let (f, log2) = format(word)?;
    let (_, n, m) = registers(word);
    let b = match (bit(word, 3), m) {
        (true, 0) => 0,
        // Should be zero; nobody writes anything else.
        (true, _) => return Err(Stop::Unknown),
        (false, m) => get(state.v[m], 0, log2),
    };
    let mut env = state.float_env()?;
    let a = get(state.v[n], 0, log2);
    state.nzcv = order_flags(soft::compare(&mut env, f, a, b, bit(word, 4)));
    state.note_exceptions(&env);
    Ok(())
}

/// FCCMP, FCCMPE.
fn conditional_compare(state: &mut State, word: u32) -> Result<(), Stop> {
    let (f, log2) = format(word)?;
    let (_, n, m) = registers(word);
    let mut env = state.float_env()?;
    if state.holds(field(word, 12, 4)) {
        let (a, b) = (get(state.v[n], 0, log2), get(state.v[m], 0, log2));
        state.nzcv = order_flags(soft::compare(&mut env, f, a, b, bit(word, 4)));
        state.note_exceptions(&env);
    } else {
        state.nzcv = u64::from(field(word, 0, 4)) << 28;
    }
    Ok(())
}

/// Conversions between numbers and integers in general registers, and FMOV between registers.
fn integers(state: &mut State, word: u32) -> Result<(), Stop> {
    let (mode, opcode) = (field(word, 19, 2), field(word, 16, 3));
    let (d, n, _) = registers(word);
    let wide = bit(word, 31);
    match (opcode, mode) {
        (0 | 1, _) => to_general(state, word, rounding(mode), 0),
        (2 | 3, 0) => from_general(state, word, 0),
        (4 | 5, 0) => to_general(state, word, Rounding::NearestAway, 0),
        (6 | 7, _) => {
            let top = match (wide, field(word, 22, 2), mode) {
                (false, 0, 0) | (true, 1, 0) => false,
                (true, 2, 1) => true,
                _ => return Err(Stop::Unknown),
            };
            if opcode == 6 {
                let value = get(state.v[n], u32::from(top), 3);
                state.set_xw(d as u32, wide, value);
            } else {
                let value = u128::from(state.xw(n as u32, wide));
                state.v[d] = if top {
                    state.v[d] & u128::from(u64::MAX) | value << 64
                } else {
                    value
                };
            }
            Ok(())
        }
        _ => Err(Stop::Unknown),
    }
}

/// Conversions of fixed-point numbers.
fn fixed_point(state: &mut State, word: u32) -> Result<(), Stop> {
    let places = 64 - field(word, 10, 6);
    if !bit(word, 31) && places > 32 {
        return Err(Stop::Unknown);
    }
    match (field(word, 19, 2), field(word, 16, 3)) {
        (0, 2 | 3) => from_general(state, word, places),
        (3, 0 | 1) => to_general(state, word, Rounding::Zero, places),
        _ => Err(Stop::Unknown),
    }
}

fn to_general(state: &mut State, word: u32, rounding: Rounding, places: u32) -> Result<(), Stop> {
    let (f, log2) = format(word)?;
    let wide = bit(word, 31);
    let mut env = state.float_env()?;
    let a = get(state.v[registers(word).1], 0, log2);
    let signed = !bit(word, 16);
    let (_, nearest) = soft::to_int(&mut env, f, a, places, rounding, signed, width(wide));
    state.set_xw(field(word, 0, 5), wide, nearest as u64);
    state.note_exceptions(&env);
    Ok(())
}

fn from_general(state: &mut State, word: u32, places: u32) -> Result<(), Stop> {
    let (f, _) = format(word)?;
    let wide = bit(word, 31);
    let mut env = state.float_env()?;
    let value = state.xw(field(word, 5, 5), wide);
    let result = if bit(word, 16) {
        soft::from_int(&mut env, f, false, value, places)
    } else {
        let value = sign_extend(value, width(wide)) as i64;
        soft::from_int(&mut env, f, value < 0, value.unsigned_abs(), places)
    };
    state.v[registers(word).0] = result.into();
    state.note_exceptions(&env);
    Ok(())
}
