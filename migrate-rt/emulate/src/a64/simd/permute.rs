//! UZP, TRN, ZIP, EXT, TBL, TBX.

use super::super::State;
use super::super::bits::{bit, field};
use super::{Shape, registers};
use crate::Stop;
use crate::lanes::{get, put};

/// UZP1, TRN1, ZIP1, UZP2, TRN2, ZIP2.
pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    let opcode = field(word, 12, 3);
    if opcode & 3 == 0 {
        return Err(Stop::Unknown);
    }
    let shape = Shape::sized(word)?;
    let (d, n, m) = registers(word);
    let (a, b) = (state.v[n], state.v[m]);
    let second = opcode >> 2;
    let half = shape.lanes / 2;
    state.v[d] = shape.build(&mut |at| {
        let (from, lane) = match opcode & 3 {
            1 => (at >= half, 2 * (at % half) + second),
            2 => (at & 1 == 1, (at & !1) + second),
            _ => (at & 1 == 1, at / 2 + second * half),
        };
        get(if from { b } else { a }, lane, shape.log2)
    });
    Ok(())
}

/// EXT.
pub(super) fn extract(state: &mut State, word: u32) -> Result<(), Stop> {
    let (q, first) = (bit(word, 30), field(word, 11, 4));
    if !q && first >= 8 {
        return Err(Stop::Unknown);
    }
    let (d, n, m) = registers(word);
    let (a, b) = (state.v[n], state.v[m]);
    let by = 8 * first;
    state.v[d] = if q {
        a.unbounded_shr(by) | b.unbounded_shl(128 - by)
    } else {
        let low = u128::from(u64::MAX);
        ((b & low) << 64 | a & low) >> by & low
    };
    Ok(())
}

/// TBL, TBX.
pub(super) fn table(state: &mut State, word: u32) -> Result<(), Stop> {
    let (d, n, m) = registers(word);
    let bytes = 16 * (field(word, 13, 2) as usize + 1);
    let indices = state.v[m];
    let keeps = bit(word, 12);
    let mut value = state.v[d];
    for at in 0..16 {
        let index = get(indices, at, 0) as usize;
        let byte = if index < bytes {
            get(state.v[(n + index / 16) % 32], index as u32 % 16, 0)
        } else if keeps {
            get(value, at, 0)
        } else {
            0
        };
        put(&mut value, at, 0, byte);
    }
    let kept = if bit(word, 30) {
        u128::MAX
    } else {
        u128::MAX >> 64
    };
    state.v[d] = value & kept;
    Ok(())
}
