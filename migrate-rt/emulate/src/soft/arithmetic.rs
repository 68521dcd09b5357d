//! Addition, multiplication, division, square root, fused multiply-add.

use super::{DIVISION, Env, Format, Kind, Number, Rounding, round, shift_jam};

pub(crate) fn add(env: &mut Env, f: Format, a: u64, b: u64) -> u64 {
    if let Some(nan) = env.nan(f, &[a, b]) {
        return nan;
    }
    let (x, y) = (Number::of(f, a), Number::of(f, b));
    if x.kind == Kind::Infinity && y.kind == Kind::Infinity && x.sign != y.sign {
        return env.invalid(f);
    }
    env.note_denormals(f, &[a, b]);
    sum(env, f, Part::of(x), Part::of(y))
}

pub(crate) fn sub(env: &mut Env, f: Format, a: u64, b: u64) -> u64 {
    // A NaN keeps its sign.
    match env.nan(f, &[a, b]) {
        Some(nan) => nan,
        None => add(env, f, a, b ^ f.sign_bit()),
    }
}

/// A number with 127 bits of significand, `significand / 2^126 * 2^exponent`.
#[derive(Clone, Copy)]
struct Part {
    sign: bool,
    kind: PartKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Zero,
    Infinity,
    Finite { exponent: i32, significand: u128 },
}

impl Part {
    fn of(n: Number) -> Part {
        let kind = match n.kind {
            Kind::Zero => PartKind::Zero,
            Kind::Infinity => PartKind::Infinity,
            Kind::Finite {
                exponent,
                significand,
            } => PartKind::Finite {
                exponent,
                significand: u128::from(significand) << 63,
            },
        };
        Part { sign: n.sign, kind }
    }
}

/// The sum of two numbers, of which at most one is infinite, or both with one sign.
fn sum(env: &mut Env, f: Format, x: Part, y: Part) -> u64 {
    use PartKind::{Finite, Infinity, Zero};
    let empty = env.rounding == Rounding::Down;
    match (x.kind, y.kind) {
        (Infinity, _) => f.infinity(x.sign),
        (_, Infinity) => f.infinity(y.sign),
        (Zero, Zero) => {
            let sign = if x.sign == y.sign { x.sign } else { empty };
            f.signed(sign, 0)
        }
        (
            Zero,
            Finite {
                exponent,
                significand,
            },
        ) => round(env, f, y.sign, exponent, significand << 1),
        (
            Finite {
                exponent,
                significand,
            },
            Zero,
        ) => round(env, f, x.sign, exponent, significand << 1),
        (
            Finite {
                exponent: e,
                significand: s,
            },
            Finite {
                exponent: o,
                significand: t,
            },
        ) => {
            // What is shifted out is at least two places below the last one of the result: a sum
            // that loses more than one place at the top comes of numbers that are near each other,
            // which lose nothing here.
            let exponent = e.max(o);
            let s = shift_jam(s, (exponent - e) as u32);
            let t = shift_jam(t, (exponent - o) as u32);
            let (sign, total) = if x.sign == y.sign {
                (x.sign, s + t)
            } else if s >= t {
                (x.sign, s - t)
            } else {
                (y.sign, t - s)
            };
            if total == 0 {
                return f.signed(empty, 0);
            }
            let zeros = total.leading_zeros();
            round(env, f, sign, exponent + 1 - zeros as i32, total << zeros)
        }
    }
}

pub(crate) fn mul(env: &mut Env, f: Format, a: u64, b: u64) -> u64 {
    if let Some(nan) = env.nan(f, &[a, b]) {
        return nan;
    }
    let (x, y) = (Number::of(f, a), Number::of(f, b));
    let sign = x.sign != y.sign;
    match (x.kind, y.kind) {
        (Kind::Infinity, Kind::Zero) | (Kind::Zero, Kind::Infinity) => return env.invalid(f),
        _ => env.note_denormals(f, &[a, b]),
    }
    match product(x, y) {
        PartKind::Infinity => f.infinity(sign),
        PartKind::Zero => f.signed(sign, 0),
        PartKind::Finite {
            exponent,
            significand,
        } => round(env, f, sign, exponent, significand << 1),
    }
}

/// The magnitude of a product that is not of zero and infinity. It is exact: the low 22 bits are
/// zero, as significands have at most 53 bits.
fn product(x: Number, y: Number) -> PartKind {
    match (x.kind, y.kind) {
        (
            Kind::Finite {
                exponent: e,
                significand: s,
            },
            Kind::Finite {
                exponent: o,
                significand: t,
            },
        ) => {
            let wide = u128::from(s) * u128::from(t);
            let carry = (wide >> 127) as i32;
            PartKind::Finite {
                exponent: e + o + carry,
                significand: wide >> carry,
            }
        }
        (Kind::Infinity, _) | (_, Kind::Infinity) => PartKind::Infinity,
        _ => PartKind::Zero,
    }
}

/// `addend + a * b`, rounded once (FPMulAdd).
pub(crate) fn mul_add(env: &mut Env, f: Format, addend: u64, a: u64, b: u64) -> u64 {
    let (x, y, z) = (Number::of(f, a), Number::of(f, b), Number::of(f, addend));
    let number = |bits| !f.is_nan(bits);
    let impossible = number(a)
        && number(b)
        && matches!(
            (x.kind, y.kind),
            (Kind::Infinity, Kind::Zero) | (Kind::Zero, Kind::Infinity)
        );
    // Zero times infinity hides a quiet NaN that would be added.
    if impossible && !f.is_signalling(addend) {
        return env.invalid(f);
    }
    if let Some(nan) = env.nan(f, &[addend, a, b]) {
        return nan;
    }
    let product = Part {
        sign: x.sign != y.sign,
        kind: product(x, y),
    };
    let opposed = product.sign != z.sign;
    if product.kind == PartKind::Infinity && z.kind == Kind::Infinity && opposed {
        return env.invalid(f);
    }
    sum(env, f, Part::of(z), product)
}

pub(crate) fn div(env: &mut Env, f: Format, a: u64, b: u64) -> u64 {
    if let Some(nan) = env.nan(f, &[a, b]) {
        return nan;
    }
    let (x, y) = (Number::of(f, a), Number::of(f, b));
    let sign = x.sign != y.sign;
    match (x.kind, y.kind) {
        (Kind::Infinity, Kind::Infinity) | (Kind::Zero, Kind::Zero) => env.invalid(f),
        (Kind::Finite { .. }, Kind::Zero) => {
            env.raise(DIVISION);
            f.infinity(sign)
        }
        (Kind::Infinity, _) => {
            env.note_denormals(f, &[b]);
            f.infinity(sign)
        }
        (Kind::Zero, _) | (_, Kind::Infinity) => {
            env.note_denormals(f, &[a, b]);
            f.signed(sign, 0)
        }
        (
            Kind::Finite {
                exponent: e,
                significand: s,
            },
            Kind::Finite {
                exponent: o,
                significand: t,
            },
        ) => {
            env.note_denormals(f, &[a, b]);
            let (s, t) = (u128::from(s) << 64, u128::from(t));
            // Bit 64 or bit 63 leads.
            let quotient = (s / t) << 1 | u128::from(s % t != 0);
            let zeros = quotient.leading_zeros();
            let exponent = e - o + 62 - zeros as i32;
            round(env, f, sign, exponent, quotient << zeros)
        }
    }
}

pub(crate) fn sqrt(env: &mut Env, f: Format, a: u64) -> u64 {
    if let Some(nan) = env.nan(f, &[a]) {
        return nan;
    }
    let x = Number::of(f, a);
    match x.kind {
        Kind::Zero => a,
        _ if x.sign => env.invalid(f),
        Kind::Infinity => a,
        Kind::Finite {
            exponent,
            significand,
        } => {
            env.note_denormals(f, &[a]);
            // An even exponent: of the number as a multiple of 2^126, below 4.
            let odd = exponent & 1;
            let wide = u128::from(significand) << (63 + odd);
            let root = wide.isqrt();
            let inexact = u128::from(root * root != wide);
            // Bit 63 of the root leads.
            round(env, f, false, (exponent - odd) / 2, root << 64 | inexact)
        }
    }
}
