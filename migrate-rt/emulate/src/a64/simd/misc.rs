//! Integers: one source register, and all lanes of a register to one.

use super::super::State;
use super::super::bits::{bit, field};
use super::float;
use super::{Shape, number, registers, saturate};
use crate::Stop;
use crate::lanes::{get, put};

pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    let (u, opcode, size) = (bit(word, 29), field(word, 12, 5), field(word, 22, 2));
    let scalar = bit(word, 28);
    let (d, n, _) = registers(word);
    let (a, old) = (state.v[n], state.v[d]);
    match opcode {
        0b01100..=0b01111 | 0b10110..=0b11111 => return float::misc(state, word),
        // XTN, SQXTUN, SQXTN, UQXTN
        0b10010 | 0b10100 => return narrow(state, word),
        // SHLL
        0b10011 if u && !scalar && size != 3 => {
            let lanes = 8 >> size;
            let first = if bit(word, 30) { lanes } else { 0 };
            let mut value = 0;
            for at in 0..lanes {
                let lane = get(a, first + at, size) << (8 << size);
                put(&mut value, at, size + 1, lane);
            }
            state.v[d] = value;
            return Ok(());
        }
        // ADDLP, ADALP
        0b00010 | 0b00110 if !scalar && size != 3 => {
            let lanes = (if bit(word, 30) { 8 } else { 4 }) >> size;
            let mut value = 0;
            for at in 0..lanes {
                let part = |at| number(get(a, at, size), 8 << size, u);
                let sum = part(2 * at) + part(2 * at + 1);
                let before = if opcode == 0b00110 {
                    get(old, at, size + 1)
                } else {
                    0
                };
                put(&mut value, at, size + 1, before.wrapping_add(sum as u64));
            }
            state.v[d] = value;
            return Ok(());
        }
        _ => {}
    }
    let allowed = match opcode {
        // REV64, REV32, REV16
        0b00000 => !scalar && size < if u { 2 } else { 3 },
        0b00001 => !scalar && !u && size == 0,
        // SUQADD, USQADD, SQABS, SQNEG
        0b00011 | 0b00111 => true,
        // CLS, CLZ
        0b00100 => !scalar && size != 3,
        // CNT, NOT, RBIT
        0b00101 => !scalar && size < if u { 2 } else { 1 },
        // CMGT, CMGE, CMEQ, CMLE, CMLT, ABS, NEG
        0b01000 | 0b01001 | 0b01011 => !scalar || size == 3,
        0b01010 => !u && (!scalar || size == 3),
        _ => false,
    };
    if !allowed {
        return Err(Stop::Unknown);
    }
    // NOT and RBIT are of bytes; the size tells them apart.
    let log2 = if opcode == 0b00101 { 0 } else { size };
    let shape = Shape::of(word, log2)?;
    let bits = shape.bits();
    let mut changed = false;
    let mask = |holds: bool| u64::from(holds).wrapping_neg();
    let value = shape.build(&mut |at| {
        let lane = get(a, at, log2);
        let x = number(lane, bits, false);
        match (opcode, u) {
            (0b00000 | 0b00001, _) => {
                // The lane at the mirrored place of its container.
                let container = match (opcode, u) {
                    (0, false) => 3,
                    (0, true) => 2,
                    _ => 1,
                };
                get(a, at ^ ((1 << (container - log2)) - 1), log2)
            }
            (0b00011, _) => {
                // An operand with a sign and one without.
                let sum = number(lane, bits, !u) + number(get(old, at, log2), bits, u);
                saturate(sum, bits, u, &mut changed) as u64
            }
            (0b00100, true) => u64::from(lane.leading_zeros() - (64 - bits)),
            (0b00100, false) => {
                let same = (x ^ x >> 127) as u64;
                u64::from(same.leading_zeros() - (64 - bits) - 1)
            }
            (0b00101, false) => lane.count_ones().into(),
            (0b00101, true) if size == 0 => !lane,
            (0b00101, true) => (lane as u8).reverse_bits().into(),
            (0b00111, false) => saturate(x.abs(), bits, false, &mut changed) as u64,
            (0b00111, true) => saturate(-x, bits, false, &mut changed) as u64,
            (0b01000, false) => mask(x > 0),
            (0b01000, true) => mask(x >= 0),
            (0b01001, false) => mask(x == 0),
            (0b01001, true) => mask(x <= 0),
            (0b01010, _) => mask(x < 0),
            (_, false) => x.unsigned_abs() as u64,
            (_, true) => lane.wrapping_neg(),
        }
    });
    state.v[d] = value;
    state.note_saturation(changed);
    Ok(())
}

/// XTN, SQXTUN, SQXTN, UQXTN.
fn narrow(state: &mut State, word: u32) -> Result<(), Stop> {
    let (u, log2) = (bit(word, 29), field(word, 22, 2));
    let saturates = field(word, 12, 5) == 0b10100;
    let scalar = bit(word, 28);
    if log2 == 3 || (scalar && !saturates && !u) {
        return Err(Stop::Unknown);
    }
    let mut changed = false;
    // The source is unsigned for UQXTN, the result for SQXTUN too.
    let unsigned_source = saturates && u;
    narrow_lanes(state, word, log2, &mut |lane| {
        let value = number(lane, 16 << log2, unsigned_source);
        if saturates || u {
            saturate(value, 8 << log2, u, &mut changed) as u64
        } else {
            lane
        }
    });
    state.note_saturation(changed);
    Ok(())
}

/// Makes lanes of `1 << log2` bytes of ones twice as large: the lower half of the destination, with
/// zeros above, or its upper half, or one lane.
pub(super) fn narrow_lanes(state: &mut State, word: u32, log2: u32, f: &mut dyn FnMut(u64) -> u64) {
    let (d, n, _) = registers(word);
    let a = state.v[n];
    let scalar = bit(word, 28);
    let upper = !scalar && bit(word, 30);
    let lanes = if scalar { 1 } else { 8 >> log2 };
    let mut value = if upper {
        state.v[d] & u128::from(u64::MAX)
    } else {
        0
    };
    for at in 0..lanes {
        let to = if upper { lanes + at } else { at };
        put(&mut value, to, log2, f(get(a, at, log2 + 1)));
    }
    state.v[d] = value;
}

/// All lanes to one, or the two lanes of a pair.
pub(super) fn reduce(state: &mut State, word: u32) -> Result<(), Stop> {
    let (u, opcode, log2) = (bit(word, 29), field(word, 12, 5), field(word, 22, 2));
    let (d, n, _) = registers(word);
    let a = state.v[n];
    if let 0b01100 | 0b01101 | 0b01111 = opcode {
        return if u {
            float::reduce(state, word)
        } else {
            Err(Stop::Unknown)
        };
    }
    if bit(word, 28) {
        // ADDP
        if u || opcode != 0b11011 || log2 != 3 {
            return Err(Stop::Unknown);
        }
        state.v[d] = get(a, 0, 3).wrapping_add(get(a, 1, 3)).into();
        return Ok(());
    }
    // Less than four lanes are not reduced.
    if log2 == 3 || (log2 == 2 && !bit(word, 30)) {
        return Err(Stop::Unknown);
    }
    let shape = Shape::of(word, log2)?;
    let lanes = (0..shape.lanes).map(|at| shape.number(a, at, u));
    let (result, log2) = match (opcode, u) {
        // ADDLV, MAXV, MINV, ADDV
        (0b00011, _) => (lanes.sum::<i128>(), log2 + 1),
        (0b01010, _) => (lanes.fold(i128::MIN, i128::max), log2),
        (0b11010, _) => (lanes.fold(i128::MAX, i128::min), log2),
        (0b11011, false) => (lanes.sum(), log2),
        _ => return Err(Stop::Unknown),
    };
    let mut value = 0;
    put(&mut value, 0, log2, result as u64);
    state.v[d] = value;
    Ok(())
}
