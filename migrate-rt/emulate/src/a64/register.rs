//! Data processing with registers (C4.1, "Data Processing -- Register").

use super::bits::{
    add_with_carry, bit, extend, field, logical_flags, ones, shift, sign_extend, width,
};
use super::{State, narrow};
use crate::Stop;

pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    let op2 = field(word, 21, 4);
    match (bit(word, 28), op2) {
        (false, 0..=7) => logical(state, word),
        (false, _) if op2 & 1 == 0 => add_shifted(state, word),
        (false, _) => add_extended(state, word),
        (true, 0) => add_carry(state, word),
        (true, 2) => compare(state, word),
        (true, 4) => select(state, word),
        (true, 6) if bit(word, 30) => one_source(state, word),
        (true, 6) => two_sources(state, word),
        (true, 8..) => three_sources(state, word),
        _ => Err(Stop::Unknown),
    }
}

/// The second operand of the shifted forms.
fn shifted(state: &State, word: u32) -> Result<u64, Stop> {
    let (wide, by) = (bit(word, 31), field(word, 10, 6));
    if by >= width(wide) {
        return Err(Stop::Unknown);
    }
    let value = state.x(field(word, 16, 5));
    Ok(shift(value, field(word, 22, 2), by, wide))
}

/// AND, BIC, ORR, ORN, EOR, EON, ANDS, BICS.
fn logical(state: &mut State, word: u32) -> Result<(), Stop> {
    let wide = bit(word, 31);
    let a = state.x(field(word, 5, 5));
    let b = shifted(state, word)?;
    let b = if bit(word, 21) { !b } else { b };
    let opc = field(word, 29, 2);
    let result = match opc {
        1 => a | b,
        2 => a ^ b,
        _ => a & b,
    };
    let result = narrow(result, wide);
    if opc == 3 {
        state.nzcv = logical_flags(result, wide);
    }
    state.set_x(field(word, 0, 5), result);
    Ok(())
}

/// ADD, ADDS, SUB, SUBS (shifted register).
fn add_shifted(state: &mut State, word: u32) -> Result<(), Stop> {
    if field(word, 22, 2) == 3 {
        return Err(Stop::Unknown);
    }
    let a = state.x(field(word, 5, 5));
    let b = shifted(state, word)?;
    let (result, flags) = sum(word, a, b);
    if bit(word, 29) {
        state.nzcv = flags;
    }
    state.set_x(field(word, 0, 5), result);
    Ok(())
}

/// ADD, ADDS, SUB, SUBS (extended register).
fn add_extended(state: &mut State, word: u32) -> Result<(), Stop> {
    let by = field(word, 10, 3);
    if field(word, 22, 2) != 0 || by > 4 {
        return Err(Stop::Unknown);
    }
    let a = state.x_sp(field(word, 5, 5));
    let b = extend(state.x(field(word, 16, 5)), field(word, 13, 3), by);
    let (result, flags) = sum(word, a, b);
    if bit(word, 29) {
        state.nzcv = flags;
        state.set_x(field(word, 0, 5), result);
    } else {
        state.set_x_sp(field(word, 0, 5), result);
    }
    Ok(())
}

/// The sum or the difference of two operands, and its flags.
fn sum(word: u32, a: u64, b: u64) -> (u64, u64) {
    let subtract = bit(word, 30);
    add_with_carry(a, if subtract { !b } else { b }, subtract, bit(word, 31))
}

/// ADC, ADCS, SBC, SBCS.
fn add_carry(state: &mut State, word: u32) -> Result<(), Stop> {
    if field(word, 10, 6) != 0 {
        return Err(Stop::Unknown);
    }
    let (a, b) = (state.x(field(word, 5, 5)), state.x(field(word, 16, 5)));
    let b = if bit(word, 30) { !b } else { b };
    let carry = state.nzcv >> 29 & 1 != 0;
    let (result, flags) = add_with_carry(a, b, carry, bit(word, 31));
    if bit(word, 29) {
        state.nzcv = flags;
    }
    state.set_x(field(word, 0, 5), result);
    Ok(())
}

/// CCMN, CCMP.
fn compare(state: &mut State, word: u32) -> Result<(), Stop> {
    if !bit(word, 29) || bit(word, 10) || bit(word, 4) {
        return Err(Stop::Unknown);
    }
    let operand = field(word, 16, 5);
    let b = if bit(word, 11) {
        u64::from(operand)
    } else {
        state.x(operand)
    };
    state.nzcv = if state.holds(field(word, 12, 4)) {
        sum(word, state.x(field(word, 5, 5)), b).1
    } else {
        u64::from(field(word, 0, 4)) << 28
    };
    Ok(())
}

/// CSEL, CSINC, CSINV, CSNEG.
fn select(state: &mut State, word: u32) -> Result<(), Stop> {
    if bit(word, 29) || bit(word, 11) {
        return Err(Stop::Unknown);
    }
    let value = if state.holds(field(word, 12, 4)) {
        state.x(field(word, 5, 5))
    } else {
        let other = state.x(field(word, 16, 5));
        match (bit(word, 30), bit(word, 10)) {
            (false, false) => other,
            (false, true) => other.wrapping_add(1),
            (true, false) => !other,
            (true, true) => other.wrapping_neg(),
        }
    };
    state.set_xw(field(word, 0, 5), bit(word, 31), value);
    Ok(())
}

/// RBIT, REV16, REV32, REV, CLZ, CLS.
fn one_source(state: &mut State, word: u32) -> Result<(), Stop> {
    let wide = bit(word, 31);
    if bit(word, 29) || field(word, 16, 5) != 0 {
        return Err(Stop::Unknown);
    }
    let bits = width(wide);
    let a = state.xw(field(word, 5, 5), wide);
    // The value at the top of a word, for what is counted or turned around from there.
    let top = a << (64 - bits);
    let result = match field(word, 10, 6) {
        0 => top.reverse_bits(),
        1 => (a & 0x00ff_00ff_00ff_00ff) << 8 | a >> 8 & 0x00ff_00ff_00ff_00ff,
        2 if wide => a.swap_bytes().rotate_left(32),
        2 | 3 if wide || field(word, 10, 6) == 2 => top.swap_bytes(),
        4 => u64::from(top.leading_zeros().min(bits)),
        5 => {
            let signs = sign_extend(a, bits);
            let same = (signs ^ (signs as i64 >> 63) as u64).leading_zeros();
            u64::from(same - 1 - (64 - bits))
        }
        _ => return Err(Stop::Unknown),
    };
    state.set_xw(field(word, 0, 5), wide, result);
    Ok(())
}

/// UDIV, SDIV, LSLV, LSRV, ASRV, RORV.
fn two_sources(state: &mut State, word: u32) -> Result<(), Stop> {
    let wide = bit(word, 31);
    if bit(word, 29) {
        return Err(Stop::Unknown);
    }
    let bits = width(wide);
    let (a, b) = (
        state.xw(field(word, 5, 5), wide),
        state.xw(field(word, 16, 5), wide),
    );
    let opcode = field(word, 10, 6);
    let result = match opcode {
        2 => a.checked_div(b).unwrap_or(0),
        3 => {
            let (a, b) = (sign_extend(a, bits) as i64, sign_extend(b, bits) as i64);
            if b == 0 { 0 } else { a.wrapping_div(b) as u64 }
        }
        8..=11 => shift(a, opcode & 3, (b % u64::from(bits)) as u32, wide),
        _ => return Err(Stop::Unknown),
    };
    state.set_xw(field(word, 0, 5), wide, result);
    Ok(())
}

/// MADD, MSUB, SMADDL, SMSUBL, SMULH, UMADDL, UMSUBL, UMULH.
fn three_sources(state: &mut State, word: u32) -> Result<(), Stop> {
    let wide = bit(word, 31);
    let (n, m) = (state.x(field(word, 5, 5)), state.x(field(word, 16, 5)));
    let (signed_n, signed_m) = (sign_extend(n, 32), sign_extend(m, 32));
    let (unsigned_n, unsigned_m) = (n & ones(32), m & ones(32));
    let product = match (field(word, 29, 2), field(word, 21, 3)) {
        (0, 0) => n.wrapping_mul(m),
        (0, 1) if wide => signed_n.wrapping_mul(signed_m),
        (0, 5) if wide => unsigned_n.wrapping_mul(unsigned_m),
        (0, high @ (2 | 6)) if wide && field(word, 10, 6) == 31 => {
            let product = if high == 2 {
                (i128::from(n as i64) * i128::from(m as i64)) as u128
            } else {
                u128::from(n) * u128::from(m)
            };
            state.set_x(field(word, 0, 5), (product >> 64) as u64);
            return Ok(());
        }
        _ => return Err(Stop::Unknown),
    };
    let a = state.x(field(word, 10, 5));
    let result = if bit(word, 15) {
        a.wrapping_sub(product)
    } else {
        a.wrapping_add(product)
    };
    state.set_xw(field(word, 0, 5), wide, result);
    Ok(())
}
