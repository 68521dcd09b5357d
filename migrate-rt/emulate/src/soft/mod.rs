//! IEEE 754 arithmetic on bits, with integers only.
//!
//! What the two ISAs do differently is in [`Env`]: which NaN comes out of an operation, whether a
//! result counts as tiny before or after rounding, and whether denormal operands are noted.
//!
//! Sources: IEEE 754-2019; Intel SDM volume 1, sections 4.8 and 11.5; Arm ARM (DDI 0487), section
//! A1.5 and the functions FPAdd, FPMulAdd, FPRound, FPProcessNaNs and their neighbours in J1.3.

mod arithmetic;
mod convert;

pub(crate) use arithmetic::{add, div, mul, mul_add, sqrt, sub};
pub(crate) use convert::{convert, from_int, round_to_integral, to_int};

/// A binary interchange format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the exponent.
    exponent: u32,
    /// Bits of the fraction.
    fraction: u32,
}

pub(crate) const F16: Format = Format {
    exponent: 5,
    fraction: 10,
};
pub(crate) const F32: Format = Format {
    exponent: 8,
    fraction: 23,
};
pub(crate) const F64: Format = Format {
    exponent: 11,
    fraction: 52,
};

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The exponent field of infinities and NaNs.
    fn top(self) -> u64 {
        (1 << self.exponent) - 1
    }

    pub(crate) fn sign_bit(self) -> u64 {
        1 << (self.exponent + self.fraction)
    }

    /// The bit that makes a NaN quiet.
    fn quiet_bit(self) -> u64 {
        1 << (self.fraction - 1)
    }

    pub(crate) fn infinity(self, sign: bool) -> u64 {
        self.signed(sign, self.top() << self.fraction)
    }

    /// The largest finite number.
    fn largest(self, sign: bool) -> u64 {
        self.signed(sign, (self.top() << self.fraction) - 1)
    }

    fn signed(self, sign: bool, bits: u64) -> u64 {
        if sign { bits | self.sign_bit() } else { bits }
    }

    pub(crate) fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign_bit() - 1) > self.top() << self.fraction
    }

    pub(crate) fn is_signalling(self, bits: u64) -> bool {
        self.is_nan(bits) && bits & self.quiet_bit() == 0
    }

    pub(crate) fn is_zero(self, bits: u64) -> bool {
        bits & (self.sign_bit() - 1) == 0
    }

    fn is_denormal(self, bits: u64) -> bool {
        !self.is_zero(bits) && bits & self.top() << self.fraction == 0
    }
}

/// How results are rounded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    NearestEven,
    Down,
    Up,
    Zero,
    NearestAway,
}

/// An operation has no result.
pub(crate) const INVALID: u32 = 1;
/// An operand is denormal; noted for x86-64 only.
pub(crate) const DENORMAL: u32 = 1 << 1;
/// Division by zero.
pub(crate) const DIVISION: u32 = 1 << 2;
pub(crate) const OVERFLOW: u32 = 1 << 3;
pub(crate) const UNDERFLOW: u32 = 1 << 4;
pub(crate) const INEXACT: u32 = 1 << 5;

/// An ISA's floating-point environment.
pub(crate) struct Env {
    pub rounding: Rounding,
    /// x86-64, otherwise AArch64.
    pub x86: bool,
    /// Exceptions so far, as in MXCSR.
    pub flags: u32,
}

impl Env {
    /// Notes exceptions.
    pub(crate) fn raise(&mut self, flags: u32) {
        self.flags |= flags;
    }

    /// The result of an operation that has none.
    pub(crate) fn default_nan(&self, f: Format) -> u64 {
        f.infinity(self.x86) | f.quiet_bit()
    }

    /// The result of an operation that has none, which is noted.
    fn invalid(&mut self, f: Format) -> u64 {
        self.raise(INVALID);
        self.default_nan(f)
    }

    /// The NaN that comes out of an operation with these operands, in the order in which the ISA
    /// looks at them, if there is one among them.
    pub(crate) fn nan(&mut self, f: Format, operands: &[u64]) -> Option<u64> {
        let signalling = operands.iter().find(|&&o| f.is_signalling(o));
        if signalling.is_some() {
            self.raise(INVALID);
        }
        let first = operands.iter().find(|&&o| f.is_nan(o))?;
        // AArch64 prefers those that signal.
        let chosen = if self.x86 {
            first
        } else {
            signalling.unwrap_or(first)
        };
        Some(chosen | f.quiet_bit())
    }

    /// Notes denormal operands.
    pub(crate) fn note_denormals(&mut self, f: Format, operands: &[u64]) {
        if self.x86 && operands.iter().any(|&o| f.is_denormal(o)) {
            self.raise(DENORMAL);
        }
    }
}

/// A number that is not a NaN.
#[derive(Clone, Copy)]
struct Number {
    sign: bool,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Zero,
    Infinity,
    /// `significand / 2^63 * 2^exponent`, with bit 63 of the significand set.
    Finite {
        exponent: i32,
        significand: u64,
    },
}

impl Number {
    fn of(f: Format, bits: u64) -> Number {
        let sign = bits & f.sign_bit() != 0;
        let exponent = bits >> f.fraction & f.top();
        let fraction = bits & ((1 << f.fraction) - 1);
        let kind = if exponent == f.top() {
            Kind::Infinity
        } else if exponent == 0 && fraction == 0 {
            Kind::Zero
        } else {
            let (significand, exponent) = if exponent == 0 {
                (fraction, 1)
            } else {
                (fraction | 1 << f.fraction, exponent as i32)
            };
            let zeros = significand.leading_zeros();
            Kind::Finite {
                exponent: exponent - f.bias() + 63 - f.fraction as i32 - zeros as i32,
                significand: significand << zeros,
            }
        };
        Number { sign, kind }
    }
}

/// `value >> by`, with the lowest bit set if anything is lost.
fn shift_jam(value: u128, by: u32) -> u128 {
    match by {
        0 => value,
        1..=127 => value >> by | u128::from(value << (128 - by) != 0),
        _ => u128::from(value != 0),
    }
}

/// Whether a number is made larger that lies `rest` above a multiple of `2 * half`; `odd` says which.
fn rounds_up(rounding: Rounding, sign: bool, odd: bool, rest: u128, half: u128) -> bool {
    match rounding {
        Rounding::NearestEven => rest > half || (rest == half && odd),
        Rounding::NearestAway => rest >= half,
        Rounding::Down => sign && rest != 0,
        Rounding::Up => !sign && rest != 0,
        Rounding::Zero => false,
    }
}

/// `significand >> by`, rounded; and whether it was exact.
fn round_shift(rounding: Rounding, sign: bool, significand: u128, by: u32) -> (u128, bool) {
    // Far below half of the last place, all are alike.
    let (significand, by) = if by > 127 {
        (shift_jam(significand, by - 126), 126)
    } else {
        (significand, by)
    };
    if by == 0 {
        return (significand, true);
    }
    let kept = significand >> by;
    let rest = significand & !(u128::MAX << by);
    let up = rounds_up(rounding, sign, kept & 1 != 0, rest, 1 << (by - 1));
    (kept + u128::from(up), rest == 0)
}

/// The number `significand / 2^127 * 2^exponent`, with bit 127 of the significand set, as bits.
fn round(env: &mut Env, f: Format, sign: bool, exponent: i32, significand: u128) -> u64 {
    let least = 1 - f.bias();
    let drop = 127 - f.fraction;
    let below = (least - exponent).max(0) as u32;
    let (kept, exact) = round_shift(env.rounding, sign, significand, drop.saturating_add(below));
    // The leading bit of what is kept adds one to the exponent, as does a carry beyond it.
    let field = (exponent.max(least) - least) as u64;
    let bits = (field << f.fraction) + kept as u64;
    if bits >= f.top() << f.fraction {
        env.raise(OVERFLOW | INEXACT);
        let away = rounds_up(env.rounding, sign, true, 3, 2);
        return if away {
            f.infinity(sign)
        } else {
            f.largest(sign)
        };
    }
    if !exact {
        env.raise(INEXACT);
        let tiny = below > 0
            && !(env.x86 && below == 1 && {
                // After rounding, x86-64 says, as if the exponent had no least value.
                let (kept, _) = round_shift(env.rounding, sign, significand, drop);
                kept >> (f.fraction + 1) != 0
            });
        if tiny {
            env.raise(UNDERFLOW);
        }
    }
    f.signed(sign, bits)
}

/// How two numbers compare; `None` if one is a NaN. Notes the exceptions: quiet NaNs are one if
/// `signals`.
pub(crate) fn compare(
    env: &mut Env,
    f: Format,
    a: u64,
    b: u64,
    signals: bool,
) -> Option<core::cmp::Ordering> {
    if f.is_nan(a) || f.is_nan(b) {
        if signals || f.is_signalling(a) || f.is_signalling(b) {
            env.raise(INVALID);
        }
        return None;
    }
    env.note_denormals(f, &[a, b]);
    // Negative numbers count backwards from zero.
    let rank = |bits: u64| {
        let magnitude = (bits & (f.sign_bit() - 1)) as i64;
        if bits & f.sign_bit() != 0 {
            -magnitude
        } else {
            magnitude
        }
    };
    Some(rank(a).cmp(&rank(b)))
}
