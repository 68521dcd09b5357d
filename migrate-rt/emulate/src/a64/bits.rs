//! Fields of instruction words, and the arithmetic that several groups share.

/// `len` bits of `word` from bit `at` on.
pub(super) const fn field(word: u32, at: u32, len: u32) -> u32 {
    word >> at & ((1 << len) - 1)
}

/// Bit `at` of `word`.
pub(super) const fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

/// The value of [`field`] as a signed number.
pub(super) const fn signed(word: u32, at: u32, len: u32) -> i64 {
    ((word << (32 - at - len)) as i32 >> (32 - len)) as i64
}

/// The low `len` bits of `value`, as a signed number.
pub(super) const fn sign_extend(value: u64, len: u32) -> u64 {
    ((value << (64 - len)) as i64 >> (64 - len)) as u64
}

/// `len` ones, for `len` up to 64.
pub(super) const fn ones(len: u32) -> u64 {
    if len == 0 { 0 } else { u64::MAX >> (64 - len) }
}

/// Bits of a register.
pub(super) const fn width(wide: bool) -> u32 {
    if wide { 64 } else { 32 }
}

/// AddWithCarry: the sum and its flags.
pub(super) fn add_with_carry(a: u64, b: u64, carry: bool, wide: bool) -> (u64, u64) {
    let bits = width(wide);
    let (a, b) = (a & ones(bits), b & ones(bits));
    let sum = u128::from(a) + u128::from(b) + u128::from(carry);
    let result = sum as u64 & ones(bits);
    let top = bits - 1;
    let overflow = (a ^ result) & (b ^ result);
    let flags = (result >> top & 1) << 31
        | u64::from(result == 0) << 30
        | ((sum >> bits) as u64 & 1) << 29
        | (overflow >> top & 1) << 28;
    (result, flags)
}

/// Flags of a logical result.
pub(super) fn logical_flags(result: u64, wide: bool) -> u64 {
    (result >> (width(wide) - 1) & 1) << 31 | u64::from(result == 0) << 30
}

/// `value` rotated right by `by` in `bits` bits, for `by < bits`.
pub(super) const fn rotate(value: u64, by: u32, bits: u32) -> u64 {
    if by == 0 {
        value
    } else {
        (value >> by | value << (bits - by)) & ones(bits)
    }
}

/// A shift of a register's bits: LSL, LSR, ASR, ROR, by less than its width.
pub(super) fn shift(value: u64, kind: u32, by: u32, wide: bool) -> u64 {
    let bits = width(wide);
    let value = value & ones(bits);
    match kind {
        0 => value << by & ones(bits),
        1 => value >> by,
        2 => ((sign_extend(value, bits) as i64) >> by) as u64 & ones(bits),
        _ => rotate(value, by, bits),
    }
}

/// ExtendReg: a register's low bits, extended and shifted left.
pub(super) fn extend(value: u64, option: u32, by: u32) -> u64 {
    let bits = 8 << (option & 3);
    let value = if option & 4 != 0 {
        sign_extend(value, bits)
    } else {
        value & ones(bits)
    };
    value << by
}

/// DecodeBitMasks: the rotated run of ones and, for bitfield moves, the run of the field. `None` is
/// reserved.
pub(super) fn masks(n: u32, imms: u32, immr: u32, logical: bool) -> Option<(u64, u64)> {
    let highest = 31u32.checked_sub((n << 6 | (!imms & 0x3f)).leading_zeros())?;
    if highest == 0 {
        return None;
    }
    let levels = (1 << highest) - 1;
    let (s, r) = (imms & levels, immr & levels);
    if logical && s == levels {
        return None;
    }
    let element = 1 << highest;
    let repeat = |value: u64| {
        let mut value = value;
        let mut len = element;
        while len < 64 {
            value |= value << len;
            len *= 2;
        }
        value
    };
    let run = rotate(ones(s + 1), r, element);
    let field = ones((s.wrapping_sub(r) & levels) + 1);
    Some((repeat(run), repeat(field)))
}
