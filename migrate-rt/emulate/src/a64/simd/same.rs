//! Integers: three registers with lanes of one size.

use super::super::State;
use super::super::bits::{bit, field};
use super::float::pair;
use super::{Shape, number, registers, saturate};
use crate::Stop;
use crate::lanes::get;

pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    let (u, opcode, size) = (bit(word, 29), field(word, 11, 5), field(word, 22, 2));
    let scalar = bit(word, 28);
    let (d, n, m) = registers(word);
    let (a, b, old) = (state.v[n], state.v[m], state.v[d]);
    if opcode == 0b00011 {
        if scalar {
            return Err(Stop::Unknown);
        }
        let kept = if bit(word, 30) {
            u128::MAX
        } else {
            u128::MAX >> 64
        };
        state.v[d] = logical(u, size, a, b, old) & kept;
        return Ok(());
    }
    let allowed = match opcode {
        // SQADD, SQSUB, SQSHL, SQRSHL
        0b00001 | 0b00101 | 0b01001 | 0b01011 => true,
        // CMGT, CMGE, SSHL, SRSHL, ADD, CMTST
        0b00110 | 0b00111 | 0b01000 | 0b01010 | 0b10000 | 0b10001 => !scalar || size == 3,
        // SQDMULH
        0b10110 => matches!(size, 1 | 2),
        0b10111 => !scalar && !u,
        // PMUL is not among what is known.
        0b10011 => !scalar && size != 3 && !u,
        0..0b11000 => !scalar && size != 3,
        _ => false,
    };
    if !allowed {
        return Err(Stop::Unknown);
    }
    let shape = Shape::sized(word)?;
    let mut changed = false;
    let value = shape.build(&mut |at| {
        let lane = |v: u128| get(v, at, shape.log2);
        let pairwise = matches!(opcode, 0b10100 | 0b10101 | 0b10111);
        let (x, y) = if pairwise {
            pair(shape, a, b, at)
        } else {
            (lane(a), lane(b))
        };
        let of = |v| number(v, shape.bits(), u);
        one(
            opcode,
            u,
            shape.bits(),
            of(x),
            of(y),
            lane(old).into(),
            &mut changed,
        ) as u64
    });
    state.v[d] = value;
    state.note_saturation(changed);
    Ok(())
}

/// AND, BIC, ORR, ORN, EOR, BSL, BIT, BIF.
fn logical(u: bool, size: u32, a: u128, b: u128, d: u128) -> u128 {
    match (u, size) {
        (false, 0) => a & b,
        (false, 1) => a & !b,
        (false, 2) => a | b,
        (false, _) => a | !b,
        (true, 0) => a ^ b,
        (true, 1) => d & a | !d & b,
        (true, 2) => b & a | !b & d,
        (true, _) => b & d | !b & a,
    }
}

/// One lane. `a` and `b` have signs unless `u`; of the result the low bits count.
fn one(opcode: u32, u: bool, bits: u32, a: i128, b: i128, d: i128, changed: &mut bool) -> i128 {
    let mask = |holds: bool| -i128::from(holds);
    match opcode {
        // HADD, RHADD, HSUB
        0b00000 => (a + b) >> 1,
        0b00010 => (a + b + 1) >> 1,
        0b00100 => (a - b) >> 1,
        // QADD, QSUB
        0b00001 => saturate(a + b, bits, u, changed),
        0b00101 => saturate(a - b, bits, u, changed),
        // CMGT, CMHI, CMGE, CMHS
        0b00110 => mask(a > b),
        0b00111 => mask(a >= b),
        // SHL, QSHL, RSHL, QRSHL, by a signed number
        0b01000..=0b01011 => {
            let (saturates, rounds) = (opcode & 1 != 0, opcode & 2 != 0);
            let value = shift(a, i32::from(b as i8), rounds, bits);
            if saturates {
                saturate(value, bits, u, changed)
            } else {
                value
            }
        }
        // MAX, MIN, of pairs too
        0b01100 | 0b10100 => a.max(b),
        0b01101 | 0b10101 => a.min(b),
        // ABD, ABA
        0b01110 => (a - b).abs(),
        0b01111 => d + (a - b).abs(),
        // ADD, SUB
        0b10000 => {
            if u {
                a - b
            } else {
                a + b
            }
        }
        // CMTST, CMEQ
        0b10001 => mask(if u { a == b } else { a & b != 0 }),
        // MLA, MLS, MUL
        0b10010 => {
            if u {
                d - a * b
            } else {
                d + a * b
            }
        }
        0b10011 => a * b,
        // SQDMULH, SQRDMULH, which have signs both
        0b10110 => {
            let signed = |v: i128| number(v as u64, bits, false);
            double_high(signed(a), signed(b), bits, u, changed)
        }
        // ADDP
        _ => a + b,
    }
}

/// The upper half of twice the product.
pub(super) fn double_high(a: i128, b: i128, bits: u32, rounds: bool, changed: &mut bool) -> i128 {
    let round = if rounds { 1 << (bits - 1) } else { 0 };
    saturate((2 * a * b + round) >> bits, bits, false, changed)
}

/// A shift left, or right by the opposite. A result that is too large for a lane of `bits` stays too
/// large.
pub(super) fn shift(a: i128, by: i32, rounds: bool, bits: u32) -> i128 {
    if by >= 0 {
        let by = by as u32;
        // Beyond its width nothing is left in a lane, and anything is too much.
        return if by < bits {
            a << by
        } else {
            a.signum() << (bits + 1)
        };
    }
    let by = by.unsigned_abs().min(126);
    let round = if rounds { 1 << (by - 1) } else { 0 };
    (a + round) >> by
}
