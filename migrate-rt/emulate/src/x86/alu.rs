//! Integer arithmetic and its flags (volume 1, section 3.4.3.1).

use super::context::{cut, extend};

pub(super) const CF: u64 = 1;
pub(super) const PF: u64 = 1 << 2;
pub(super) const AF: u64 = 1 << 4;
pub(super) const ZF: u64 = 1 << 6;
pub(super) const SF: u64 = 1 << 7;
pub(super) const DF: u64 = 1 << 10;
pub(super) const OF: u64 = 1 << 11;
/// All status flags.
pub(super) const STATUS: u64 = CF | PF | AF | ZF | SF | OF;

/// Flags by the result alone: PF, ZF, SF.
pub(super) fn result_flags(result: u64, size: u32) -> u64 {
    let even = (result as u8).count_ones().is_multiple_of(2);
    u64::from(even) << 2 | u64::from(result == 0) << 6 | (result >> (8 * size - 1) & 1) << 7
}

/// Operations in the order of the opcode map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Add,
    Or,
    Adc,
    Sbb,
    And,
    Sub,
    Xor,
    Cmp,
}

impl Op {
    pub(super) fn of(bits: u8) -> Op {
        match bits & 7 {
            0 => Op::Add,
            1 => Op::Or,
            2 => Op::Adc,
            3 => Op::Sbb,
            4 => Op::And,
            5 => Op::Sub,
            6 => Op::Xor,
            _ => Op::Cmp,
        }
    }

    /// The result and all status flags; `flags` are those before.
    pub(super) fn apply(self, a: u64, b: u64, size: u32, flags: u64) -> (u64, u64) {
        let carry = flags & CF;
        match self {
            Op::Add => add(a, b, 0, size),
            Op::Adc => add(a, b, carry, size),
            Op::Sub | Op::Cmp => subtract(a, b, 0, size),
            Op::Sbb => subtract(a, b, carry, size),
            Op::Or => logical(a | b, size),
            Op::And => logical(a & b, size),
            Op::Xor => logical(a ^ b, size),
        }
    }
}

pub(super) fn logical(result: u64, size: u32) -> (u64, u64) {
    (result, result_flags(result, size))
}

pub(super) fn add(a: u64, b: u64, carry: u64, size: u32) -> (u64, u64) {
    let sum = u128::from(a) + u128::from(b) + u128::from(carry);
    let result = cut(sum as u64, size);
    let carries = u64::from(sum >> (8 * size) != 0);
    let overflows = (a ^ result) & (b ^ result);
    (
        result,
        sum_flags(a ^ b ^ result, carries, overflows, result, size),
    )
}

pub(super) fn subtract(a: u64, b: u64, borrow: u64, size: u32) -> (u64, u64) {
    let result = cut(a.wrapping_sub(b).wrapping_sub(borrow), size);
    let borrows = u64::from(u128::from(a) < u128::from(b) + u128::from(borrow));
    let overflows = (a ^ b) & (a ^ result);
    (
        result,
        sum_flags(a ^ b ^ result, borrows, overflows, result, size),
    )
}

/// `halves`: bit 4 is the carry out of the low four bits. `overflows`: the sign bit is OF.
fn sum_flags(halves: u64, carry: u64, overflows: u64, result: u64, size: u32) -> u64 {
    let overflow = overflows >> (8 * size - 1) & 1;
    carry | halves & AF | overflow << 11 | result_flags(result, size)
}

/// Rotates and shifts in the order of the opcode extension: ROL, ROR, RCL, RCR, SHL, SHR, SHL, SAR.
/// Gives the result, which flags change, and the flags.
pub(super) fn shift(op: u8, a: u64, count: u32, size: u32, flags: u64) -> (u64, u64, u64) {
    let bits = 8 * size;
    let count = count & if size == 8 { 63 } else { 31 };
    if count == 0 {
        return (a, 0, 0);
    }
    let top = |value: u64| value >> (bits - 1) & 1;
    let second = |value: u64| value >> (bits - 2) & 1;
    let flagged = |carry: u64, overflow: u64| carry | overflow << 11;
    match op & 7 {
        0 => {
            let r = rotate_left(a, count % bits, bits);
            (r, CF | OF, flagged(r & 1, r & 1 ^ top(r)))
        }
        1 => {
            let r = rotate_left(a, (bits - count % bits) % bits, bits);
            (r, CF | OF, flagged(top(r), top(r) ^ second(r)))
        }
        2 | 3 => {
            // Through the carry, a bit above the others.
            let all = u128::from(a) | u128::from(flags & CF) << bits;
            let count = count % (bits + 1);
            if count == 0 {
                let carry = flags & CF;
                let overflow = if op & 1 == 0 {
                    carry ^ top(a)
                } else {
                    top(a) ^ second(a)
                };
                return (a, CF | OF, flagged(carry, overflow));
            }
            let left = if op & 1 == 0 { count } else { bits + 1 - count };
            let mask = u128::MAX >> (127 - bits);
            let turned = (all << left | all >> (bits + 1 - left)) & mask;
            let (r, carry) = (cut(turned as u64, size), (turned >> bits) as u64);
            let overflow = if op & 1 == 0 {
                carry ^ top(r)
            } else {
                top(r) ^ second(r)
            };
            (r, CF | OF, flagged(carry, overflow))
        }
        4 | 6 => {
            let wide = u128::from(a) << count;
            let r = cut(wide as u64, size);
            let carry = (wide >> bits) as u64 & 1;
            let f = flagged(carry, carry ^ top(r)) | result_flags(r, size);
            (r, STATUS, f)
        }
        5 => {
            let r = a.unbounded_shr(count);
            let carry = a.unbounded_shr(count - 1) & 1;
            (r, STATUS, flagged(carry, top(a)) | result_flags(r, size))
        }
        _ => {
            let value = extend(a, size);
            let r = cut((value >> count.min(63)) as u64, size);
            let carry = (value >> (count - 1).min(63)) as u64 & 1;
            (r, STATUS, carry | result_flags(r, size))
        }
    }
}

fn rotate_left(a: u64, count: u32, bits: u32) -> u64 {
    if count == 0 {
        a
    } else {
        (a << count | a >> (bits - count)) & u64::MAX >> (64 - bits)
    }
}

/// SHLD, SHRD: shifts `a` and fills it from `b`. As [`shift`].
pub(super) fn double_shift(left: bool, a: u64, b: u64, count: u32, size: u32) -> (u64, u64, u64) {
    let bits = 8 * size;
    let count = count & if size == 8 { 63 } else { 31 };
    if count == 0 || count > bits {
        return (a, 0, 0);
    }
    let (a, b) = (u128::from(a), u128::from(b));
    let (r, carry) = if left {
        let all = (a << bits | b) << count;
        ((all >> bits) as u64, (a >> (bits - count)) as u64 & 1)
    } else {
        let all = b << bits | a;
        ((all >> count) as u64, (a >> (count - 1)) as u64 & 1)
    };
    let r = cut(r, size);
    let overflow = (r ^ a as u64) >> (bits - 1) & 1;
    (r, STATUS, carry | overflow << 11 | result_flags(r, size))
}

/// Whether a condition (the low four bits of its opcode) holds.
pub(super) fn holds(condition: u8, flags: u64) -> bool {
    let set = |f: u64| flags & f != 0;
    let base = match condition >> 1 & 7 {
        0 => set(OF),
        1 => set(CF),
        2 => set(ZF),
        3 => set(CF | ZF),
        4 => set(SF),
        5 => set(PF),
        6 => set(SF) != set(OF),
        _ => set(ZF) || set(SF) != set(OF),
    };
    base != (condition & 1 != 0)
}
