//! Integers: lanes of different sizes, and products by one lane.

use super::super::State;
use super::super::bits::{bit, field};
use super::same::double_high;
use super::{Shape, float, number, registers};
use crate::Stop;
use crate::lanes::{get, put};

/// Three registers, lanes of different sizes.
pub(super) fn different(state: &mut State, word: u32) -> Result<(), Stop> {
    let (u, opcode, log2) = (bit(word, 29), field(word, 12, 4), field(word, 22, 2));
    let upper = u32::from(bit(word, 30));
    if log2 == 3 || matches!(opcode, 9 | 11 | 13..) {
        return Err(Stop::Unknown);
    }
    let (d, n, m) = registers(word);
    let (a, b, old) = (state.v[n], state.v[m], state.v[d]);
    let lanes = 8 >> log2;
    let bits = 8 << log2;
    let mut value = 0;
    // ADDHN, RADDHN, SUBHN, RSUBHN
    if let 4 | 6 = opcode {
        if upper == 1 {
            value = old & u128::from(u64::MAX);
        }
        for at in 0..lanes {
            let (x, y) = (get(a, at, log2 + 1), get(b, at, log2 + 1));
            let total = if opcode == 4 {
                x.wrapping_add(y)
            } else {
                x.wrapping_sub(y)
            };
            let round = if u { 1 << (bits - 1) } else { 0 };
            let high = total.wrapping_add(round) >> bits;
            put(&mut value, upper * lanes + at, log2, high);
        }
        state.v[d] = value;
        return Ok(());
    }
    for at in 0..lanes {
        let part = |v| number(get(v, upper * lanes + at, log2), bits, u);
        let whole = |v| number(get(v, at, log2 + 1), 2 * bits, u);
        let y = part(b);
        let result = match opcode {
            // ADDL, ADDW, SUBL, SUBW
            0 => part(a) + y,
            1 => whole(a) + y,
            2 => part(a) - y,
            3 => whole(a) - y,
            // ABAL, ABDL
            5 => whole(old) + (part(a) - y).abs(),
            7 => (part(a) - y).abs(),
            // MLAL, MLSL, MULL
            8 => whole(old) + part(a) * y,
            10 => whole(old) - part(a) * y,
            _ => part(a) * y,
        };
        put(&mut value, at, log2 + 1, result as u64);
    }
    state.v[d] = value;
    Ok(())
}

/// By one lane of a vector.
pub(super) fn by_element(state: &mut State, word: u32) -> Result<(), Stop> {
    let (u, opcode, log2) = (bit(word, 29), field(word, 12, 4), field(word, 22, 2));
    if let 1 | 5 | 9 = opcode {
        return float::by_element(state, word);
    }
    let (index, m) = match log2 {
        1 => (
            field(word, 11, 1) << 2 | field(word, 20, 2),
            field(word, 16, 4) as usize,
        ),
        2 => (
            field(word, 11, 1) << 1 | field(word, 21, 1),
            field(word, 16, 5) as usize,
        ),
        _ => return Err(Stop::Unknown),
    };
    let scalar = bit(word, 28);
    let (d, n, _) = registers(word);
    let (a, element, old) = (state.v[n], get(state.v[m], index, log2), state.v[d]);
    let bits = 8 << log2;
    let shape = Shape::of(word, log2)?;
    let mut changed = false;
    let value = match (opcode, u) {
        // MLA, MLS, MUL
        (0, true) | (4, true) | (8, false) if !scalar => shape.build(&mut |at| {
            let lane = |v| get(v, at, log2);
            let product = lane(a).wrapping_mul(element);
            match opcode {
                0 => lane(old).wrapping_add(product),
                4 => lane(old).wrapping_sub(product),
                _ => product,
            }
        }),
        // SQDMULH, SQRDMULH
        (12 | 13, false) => shape.build(&mut |at| {
            let x = shape.number(a, at, false);
            let y = number(element, bits, false);
            double_high(x, y, bits, opcode == 13, &mut changed) as u64
        }),
        // MLAL, MLSL, MULL
        (2 | 6 | 10, _) if !scalar => {
            let lanes = 8 >> log2;
            let first = if bit(word, 30) { lanes } else { 0 };
            let mut value = 0;
            for at in 0..lanes {
                let x = number(get(a, first + at, log2), bits, u);
                let y = number(element, bits, u);
                let sum = number(get(old, at, log2 + 1), 2 * bits, u);
                let result = match opcode {
                    2 => sum + x * y,
                    6 => sum - x * y,
                    _ => x * y,
                };
                put(&mut value, at, log2 + 1, result as u64);
            }
            value
        }
        _ => return Err(Stop::Unknown),
    };
    state.v[d] = value;
    state.note_saturation(changed);
    Ok(())
}
