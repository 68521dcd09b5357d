//! Data processing with immediates (C4.1, "Data Processing -- Immediate").

use super::bits::{add_with_carry, bit, field, logical_flags, masks, rotate, signed, width};
use super::{State, narrow};
use crate::Stop;

pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    match field(word, 23, 3) {
        0 | 1 => address(state, word),
        2 => add(state, word),
        4 => return logical(state, word),
        5 => return wide_move(state, word),
        6 => return bitfield(state, word),
        7 => return extract(state, word),
        _ => return Err(Stop::Unknown),
    }
    Ok(())
}

/// ADR, ADRP.
fn address(state: &mut State, word: u32) {
    let offset = signed(word, 5, 19) << 2 | i64::from(field(word, 29, 2));
    let value = if bit(word, 31) {
        (state.pc & !0xfff).wrapping_add_signed(offset << 12)
    } else {
        state.pc.wrapping_add_signed(offset)
    };
    state.set_x(field(word, 0, 5), value);
}

/// ADD, ADDS, SUB, SUBS.
fn add(state: &mut State, word: u32) {
    let wide = bit(word, 31);
    let a = state.x_sp(field(word, 5, 5));
    let b = u64::from(field(word, 10, 12)) << if bit(word, 22) { 12 } else { 0 };
    let subtract = bit(word, 30);
    let b = if subtract { !b } else { b };
    let (result, flags) = add_with_carry(a, b, subtract, wide);
    if bit(word, 29) {
        state.nzcv = flags;
        state.set_x(field(word, 0, 5), result);
    } else {
        state.set_x_sp(field(word, 0, 5), result);
    }
}

/// AND, ORR, EOR, ANDS.
fn logical(state: &mut State, word: u32) -> Result<(), Stop> {
    let wide = bit(word, 31);
    let n = field(word, 22, 1);
    if !wide && n != 0 {
        return Err(Stop::Unknown);
    }
    let (mask, _) = masks(n, field(word, 10, 6), field(word, 16, 6), true).ok_or(Stop::Unknown)?;
    let (a, mask) = (state.xw(field(word, 5, 5), wide), narrow(mask, wide));
    let rd = field(word, 0, 5);
    match field(word, 29, 2) {
        0 => state.set_x_sp(rd, a & mask),
        1 => state.set_x_sp(rd, a | mask),
        2 => state.set_x_sp(rd, a ^ mask),
        _ => {
            state.nzcv = logical_flags(a & mask, wide);
            state.set_x(rd, a & mask);
        }
    }
    Ok(())
}

/// MOVN, MOVZ, MOVK.
fn wide_move(state: &mut State, word: u32) -> Result<(), Stop> {
    let (wide, half, rd) = (bit(word, 31), field(word, 21, 2), field(word, 0, 5));
    if !wide && half > 1 {
        return Err(Stop::Unknown);
    }
    let value = u64::from(field(word, 5, 16)) << (16 * half);
    let value = match field(word, 29, 2) {
        0 => !value,
        2 => value,
        3 => state.x(rd) & !(0xffff << (16 * half)) | value,
        _ => return Err(Stop::Unknown),
    };
    state.set_xw(rd, wide, value);
    Ok(())
}

/// SBFM, BFM, UBFM.
fn bitfield(state: &mut State, word: u32) -> Result<(), Stop> {
    let (wide, rd) = (bit(word, 31), field(word, 0, 5));
    let (n, immr, imms) = (field(word, 22, 1), field(word, 16, 6), field(word, 10, 6));
    if n != u32::from(wide) || (!wide && (immr | imms) & 0x20 != 0) {
        return Err(Stop::Unknown);
    }
    let (run, part) = masks(n, imms, immr, false).ok_or(Stop::Unknown)?;
    let source = state.xw(field(word, 5, 5), wide);
    let (signed, destination) = match field(word, 29, 2) {
        0 => (true, 0),
        1 => (false, state.x(rd)),
        2 => (false, 0),
        _ => return Err(Stop::Unknown),
    };
    let bottom = destination & !run | rotate(source, immr, width(wide)) & run;
    let top = if signed {
        (source >> imms & 1).wrapping_neg()
    } else {
        destination
    };
    state.set_xw(rd, wide, top & !part | bottom & part);
    Ok(())
}

/// EXTR.
fn extract(state: &mut State, word: u32) -> Result<(), Stop> {
    let (wide, lsb) = (bit(word, 31), field(word, 10, 6));
    let reserved =
        field(word, 29, 2) != 0 || bit(word, 21) || bit(word, 22) != wide || (!wide && lsb >= 32);
    if reserved {
        return Err(Stop::Unknown);
    }
    let high = state.xw(field(word, 5, 5), wide);
    let low = state.xw(field(word, 16, 5), wide);
    let both = u128::from(high) << width(wide) | u128::from(low);
    state.set_xw(field(word, 0, 5), wide, (both >> lsb) as u64);
    Ok(())
}
