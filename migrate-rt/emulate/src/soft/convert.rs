//! Conversions between formats, and to and from integers.

use super::{Env, Format, INEXACT, INVALID, Kind, Number, Rounding, round, round_shift};

/// A number in another format.
pub(crate) fn convert(env: &mut Env, from: Format, to: Format, a: u64) -> u64 {
    if let Some(nan) = env.nan(from, &[a]) {
        let sign = nan & from.sign_bit() != 0;
        // The payload keeps its upper bits.
        let payload = nan & ((1 << from.fraction) - 1);
        let payload = if from.fraction > to.fraction {
            payload >> (from.fraction - to.fraction)
        } else {
            payload << (to.fraction - from.fraction)
        };
        return to.infinity(sign) | payload;
    }
    env.note_denormals(from, &[a]);
    let x = Number::of(from, a);
    match x.kind {
        Kind::Zero => to.signed(x.sign, 0),
        Kind::Infinity => to.infinity(x.sign),
        Kind::Finite {
            exponent,
            significand,
        } => round(env, to, x.sign, exponent, u128::from(significand) << 64),
    }
}

/// `magnitude / 2^places`, with a sign.
pub(crate) fn from_int(env: &mut Env, to: Format, sign: bool, magnitude: u64, places: u32) -> u64 {
    if magnitude == 0 {
        return 0;
    }
    let zeros = magnitude.leading_zeros();
    let exponent = 63 - zeros as i32 - places as i32;
    round(
        env,
        to,
        sign,
        exponent,
        u128::from(magnitude << zeros) << 64,
    )
}

/// `a * 2^places`, rounded to an integer of `bits` bits, which may have a sign. `None` if it is a NaN
/// or does not fit; the second value is the nearest integer that does (zero for NaNs). The exceptions
/// are noted.
pub(crate) fn to_int(
    env: &mut Env,
    from: Format,
    a: u64,
    places: u32,
    rounding: Rounding,
    signed: bool,
    bits: u32,
) -> (Option<i128>, i128) {
    let (least, most) = if signed {
        (-1 << (bits - 1), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    };
    if from.is_nan(a) {
        env.raise(INVALID);
        return (None, 0);
    }
    let x = Number::of(from, a);
    let limit = if x.sign { least } else { most };
    let (value, exact) = match x.kind {
        Kind::Zero => (0, true),
        Kind::Infinity => {
            env.raise(INVALID);
            return (None, limit);
        }
        Kind::Finite {
            exponent,
            significand,
        } => {
            let exponent = exponent + places as i32;
            if exponent > 64 {
                env.raise(INVALID);
                return (None, limit);
            }
            // The number is a multiple of 2^-62, or rounds like one.
            let wide = u128::from(significand) << 62;
            let (value, exact) = round_shift(rounding, x.sign, wide, (125 - exponent) as u32);
            (value as i128, exact)
        }
    };
    let value = if x.sign { -value } else { value };
    if value < least || value > most {
        env.raise(INVALID);
        return (None, limit);
    }
    if !exact {
        env.raise(INEXACT);
    }
    (Some(value), value)
}

/// A number without fraction, near `a`. A difference is noted if `exact`.
pub(crate) fn round_to_integral(
    env: &mut Env,
    f: Format,
    a: u64,
    rounding: Rounding,
    exact: bool,
) -> u64 {
    if let Some(nan) = env.nan(f, &[a]) {
        return nan;
    }
    let x = Number::of(f, a);
    let Kind::Finite {
        exponent,
        significand,
    } = x.kind
    else {
        return a;
    };
    if exponent >= f.fraction as i32 {
        return a;
    }
    let by = (63 - exponent) as u32;
    let (value, same) = round_shift(rounding, x.sign, significand.into(), by);
    if exact && !same {
        env.raise(INEXACT);
    }
    let value = value as u64;
    if value == 0 {
        return f.signed(x.sign, 0);
    }
    // It fits: nothing is rounded again.
    let zeros = value.leading_zeros();
    let significand = u128::from(value << zeros) << 64;
    round(env, f, x.sign, 63 - zeros as i32, significand)
}
