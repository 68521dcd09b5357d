//! Shifts by constants.

use super::super::State;
use super::super::bits::{bit, field};
use super::misc::narrow_lanes;
use super::same::shift;
use super::{Shape, float, number, registers, saturate};
use crate::Stop;
use crate::lanes::{get, put};

pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    let (u, opcode, both) = (bit(word, 29), field(word, 11, 5), field(word, 16, 7));
    let scalar = bit(word, 28);
    // The size of lanes is where the highest bit is, the count relative to it.
    let log2 = field(word, 19, 4).ilog2();
    let bits = 8 << log2;
    let (left, right) = (both - bits, 2 * bits - both);
    let allowed = match opcode {
        // SSHR, SSRA, SRSHR, SRSRA, SRI, SHL and SLI
        0b00000 | 0b00010 | 0b00100 | 0b00110 | 0b01010 => !scalar || log2 == 3,
        0b01000 => u && (!scalar || log2 == 3),
        // SQSHLU, SQSHL
        0b01100 => u,
        0b01110 => true,
        // SHRN, SQSHRUN and their rounding forms, SQSHRN, SQRSHRN
        0b10000 | 0b10001 => log2 != 3 && (u || !scalar),
        0b10010 | 0b10011 => log2 != 3,
        // SSHLL
        0b10100 => log2 != 3 && !scalar,
        0b11100 | 0b11111 => return float::fixed_point(state, word, right),
        _ => false,
    };
    if !allowed {
        return Err(Stop::Unknown);
    }
    match opcode {
        0b10000..=0b10011 => return narrow(state, word, log2, right),
        0b10100 => return lengthen(state, word, log2, left),
        _ => {}
    }
    let shape = Shape::of(word, log2)?;
    let (d, n, _) = registers(word);
    let (a, old) = (state.v[n], state.v[d]);
    let mut changed = false;
    let value = shape.build(&mut |at| {
        let (lane, before) = (get(a, at, log2), get(old, at, log2));
        let x = number(lane, bits, u);
        let moved = |rounds| shift(x, -(right as i32), rounds, bits) as u64;
        let all = u64::MAX >> (64 - bits);
        match opcode {
            0b00000 => moved(false),
            0b00010 => before.wrapping_add(moved(false)),
            0b00100 => moved(true),
            0b00110 => before.wrapping_add(moved(true)),
            // SRI, SLI keep the bits that are not shifted in.
            0b01000 => {
                let kept = !all.unbounded_shr(right);
                before & kept | lane.unbounded_shr(right)
            }
            0b01010 if u => before & !(all << left) | lane << left,
            0b01010 => lane << left,
            // Of a number with a sign to one without.
            0b01100 => {
                let value = shift(number(lane, bits, false), left as i32, false, bits);
                saturate(value, bits, true, &mut changed) as u64
            }
            _ => saturate(shift(x, left as i32, false, bits), bits, u, &mut changed) as u64,
        }
    });
    state.v[d] = value;
    state.note_saturation(changed);
    Ok(())
}

/// SHRN, RSHRN, SQSHRUN, SQRSHRUN, SQSHRN, SQRSHRN, UQSHRN, UQRSHRN to lanes of `1 << log2` bytes.
fn narrow(state: &mut State, word: u32, log2: u32, by: u32) -> Result<(), Stop> {
    let (u, opcode) = (bit(word, 29), field(word, 11, 5));
    let (rounds, saturates) = (opcode & 1 != 0, opcode & 2 != 0 || u);
    let unsigned_source = opcode & 2 != 0 && u;
    let mut changed = false;
    narrow_lanes(state, word, log2, &mut |lane| {
        let value = number(lane, 16 << log2, unsigned_source);
        let value = shift(value, -(by as i32), rounds, 16 << log2);
        if saturates {
            saturate(value, 8 << log2, u, &mut changed) as u64
        } else {
            value as u64
        }
    });
    state.note_saturation(changed);
    Ok(())
}

/// SSHLL, USHLL of lanes of `1 << log2` bytes.
fn lengthen(state: &mut State, word: u32, log2: u32, by: u32) -> Result<(), Stop> {
    let (d, n, _) = registers(word);
    let a = state.v[n];
    let lanes = 8 >> log2;
    let first = if bit(word, 30) { lanes } else { 0 };
    let mut value = 0;
    for at in 0..lanes {
        let lane = number(get(a, first + at, log2), 8 << log2, bit(word, 29));
        put(&mut value, at, log2 + 1, (lane << by) as u64);
    }
    state.v[d] = value;
    Ok(())
}
