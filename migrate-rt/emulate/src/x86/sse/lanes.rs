//! What packed instructions do with lanes.

pub(super) use crate::lanes::{get, put};

/// Lane by lane.
pub(super) fn zip(a: u128, b: u128, log2: u32, f: &mut dyn FnMut(u64, u64) -> u64) -> u128 {
    let mut result = 0;
    for at in 0..16 >> log2 {
        put(&mut result, at, log2, f(get(a, at, log2), get(b, at, log2)));
    }
    result
}

/// Lanes of the low or high halves, in turn.
pub(super) fn unpack(a: u128, b: u128, log2: u32, high: bool) -> u128 {
    let half = 8 >> log2;
    let first = if high { half } else { 0 };
    let mut result = 0;
    for at in 0..half {
        put(&mut result, 2 * at, log2, get(a, first + at, log2));
        put(&mut result, 2 * at + 1, log2, get(b, first + at, log2));
    }
    result
}

/// AND, AND NOT, OR, XOR.
pub(super) fn logical(op: u8, a: u128, b: u128) -> u128 {
    match op {
        0 => a & b,
        1 => !a & b,
        2 => a | b,
        _ => a ^ b,
    }
}
