//! DUP, INS, UMOV, SMOV, and vectors from immediates.

use super::super::State;
use super::super::bits::{bit, field, sign_extend};
use super::{Shape, expand_float, registers};
use crate::Stop;
use crate::lanes::{get, put};
use crate::soft::{F32, F64};

pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    let (imm5, imm4) = (field(word, 16, 5), field(word, 11, 4));
    let (q, scalar) = (bit(word, 30), bit(word, 28));
    // The size of lanes is where the lowest bit is, the number of the lane above it.
    let log2 = imm5.trailing_zeros();
    if log2 > 3 {
        return Err(Stop::Unknown);
    }
    let index = imm5 >> (log2 + 1);
    let (d, n, _) = registers(word);
    let general = state.x(n as u32);
    if bit(word, 29) {
        // INS of another register's lane
        if scalar || !q {
            return Err(Stop::Unknown);
        }
        let lane = get(state.v[n], imm4 >> log2, log2);
        put(&mut state.v[d], index, log2, lane);
        return Ok(());
    }
    match imm4 {
        // DUP
        0 => {
            let lane = get(state.v[n], index, log2);
            state.v[d] = Shape::of(word, log2)?.build(&mut |_| lane);
        }
        _ if scalar => return Err(Stop::Unknown),
        1 => state.v[d] = Shape::of(word, log2)?.build(&mut |_| general),
        // INS
        3 if q => put(&mut state.v[d], index, log2, general),
        // SMOV, UMOV
        5 if log2 < if q { 3 } else { 2 } => {
            let lane = get(state.v[n], index, log2);
            state.set_xw(d as u32, q, sign_extend(lane, 8 << log2));
        }
        7 if q == (log2 == 3) => {
            let lane = get(state.v[n], index, log2);
            state.set_x(d as u32, lane);
        }
        _ => return Err(Stop::Unknown),
    }
    Ok(())
}

/// MOVI, MVNI, ORR, BIC, FMOV with an immediate (AdvSIMDExpandImm).
pub(super) fn immediate(state: &mut State, word: u32) -> Result<(), Stop> {
    if bit(word, 11) {
        return Err(Stop::Unknown);
    }
    let (op, mode, q) = (bit(word, 29), field(word, 12, 4), bit(word, 30));
    let imm8 = field(word, 16, 3) << 5 | field(word, 5, 5);
    let imm = u64::from(imm8);
    let words = |value: u64| value | value << 32;
    let halves = |value: u64| words(value | value << 16);
    let pattern = match mode >> 1 {
        shifted @ 0..=3 => words(imm << (8 * shifted)),
        shifted @ (4 | 5) => halves(imm << (8 * (shifted & 1))),
        6 if mode & 1 == 0 => words(imm << 8 | 0xff),
        6 => words(imm << 16 | 0xffff),
        _ => match (mode & 1, op) {
            (0, false) => imm * 0x0101_0101_0101_0101,
            // A byte of ones for each bit.
            (0, true) => (0..8)
                .map(|at| ((imm >> at & 1) * 0xff) << (8 * at))
                .fold(0, |all, byte| all | byte),
            (_, false) => words(expand_float(F32, imm8)),
            (_, true) if q => expand_float(F64, imm8),
            _ => return Err(Stop::Unknown),
        },
    };
    let d = registers(word).0;
    let all = u128::from(pattern) | u128::from(pattern) << 64;
    let kept = if q { u128::MAX } else { u128::MAX >> 64 };
    // Odd modes below 12 change the register.
    state.v[d] = match (mode < 12 && mode & 1 != 0, op) {
        (true, false) => (state.v[d] | all) & kept,
        (true, true) => state.v[d] & !all & kept,
        (false, true) if mode < 14 => !all & kept,
        _ => all & kept,
    };
    Ok(())
}
