//! Scalar floating point and Advanced SIMD (C4.1, "Data Processing -- Scalar Floating-Point and
//! Advanced SIMD").
//!
//! Not known are half-precision arithmetic (conversions are), estimates of reciprocals and their
//! steps, polynomial and doubling multiplications but SQDMULH, and everything of later extensions.

mod copy;
mod float;
mod misc;
mod permute;
mod same;
mod scalar;
mod shift;
mod wide;

use super::State;
use super::bits::{bit, field};
use crate::lanes::{get, put};
use crate::soft::{
    DIVISION, Env, F32, F64, Format, INEXACT, INVALID, OVERFLOW, Rounding, UNDERFLOW,
};
use crate::{Feature, Stop};

pub(super) fn execute(state: &mut State, word: u32) -> Result<(), Stop> {
    // Scalar floating point: bit 30 is clear, bit 28 is set.
    if bit(word, 28) && !bit(word, 30) {
        return scalar::execute(state, word);
    }
    let vector = !bit(word, 28);
    if bit(word, 31) || (!vector && !bit(word, 30)) {
        return Err(Stop::Unknown);
    }
    if bit(word, 24) {
        return match (bit(word, 10), bit(word, 23)) {
            (true, false) if field(word, 19, 4) != 0 => shift::execute(state, word),
            (true, false) if vector => copy::immediate(state, word),
            (false, _) => wide::by_element(state, word),
            _ => Err(Stop::Unknown),
        };
    }
    if bit(word, 21) {
        return match (field(word, 10, 2), field(word, 17, 4)) {
            (1 | 3, _) if field(word, 14, 2) == 3 => float::same(state, word),
            (1 | 3, _) => same::execute(state, word),
            (0, _) if vector => wide::different(state, word),
            (2, 0) => misc::execute(state, word),
            (2, 8) => misc::reduce(state, word),
            _ => Err(Stop::Unknown),
        };
    }
    if bit(word, 15) {
        return Err(Stop::Unknown);
    }
    match (bit(word, 10), bit(word, 29)) {
        (true, _) if field(word, 22, 2) == 0 => copy::execute(state, word),
        (false, true) if vector && field(word, 22, 2) == 0 => permute::extract(state, word),
        (false, false) if vector && bit(word, 11) => permute::execute(state, word),
        (false, false) if vector && field(word, 22, 2) == 0 => permute::table(state, word),
        _ => Err(Stop::Unknown),
    }
}

/// Lanes that an instruction works on.
#[derive(Clone, Copy)]
struct Shape {
    /// A lane has `1 << log2` bytes.
    log2: u32,
    /// How many there are.
    lanes: u32,
}

impl Shape {
    /// By Q, or one lane for the scalar forms. A single lane of 8 bytes in a vector is reserved.
    fn of(word: u32, log2: u32) -> Result<Shape, Stop> {
        let q = bit(word, 30);
        if bit(word, 28) {
            return Ok(Shape { log2, lanes: 1 });
        }
        if log2 == 3 && !q {
            return Err(Stop::Unknown);
        }
        let bytes = if q { 16 } else { 8 };
        Ok(Shape {
            log2,
            lanes: bytes >> log2,
        })
    }

    /// The shape of the operands, with lanes of the size that the size field says.
    fn sized(word: u32) -> Result<Shape, Stop> {
        Shape::of(word, field(word, 22, 2))
    }

    /// Bits of a lane.
    fn bits(self) -> u32 {
        8 << self.log2
    }

    /// The vector that has `f` of its number as each lane, zeros above.
    fn build(self, f: &mut dyn FnMut(u32) -> u64) -> u128 {
        let mut value = 0;
        for at in 0..self.lanes {
            put(&mut value, at, self.log2, f(at));
        }
        value
    }

    /// A lane as a number.
    fn number(self, value: u128, at: u32, unsigned: bool) -> i128 {
        number(get(value, at, self.log2), self.bits(), unsigned)
    }
}

/// The low bits as a number.
fn number(lane: u64, bits: u32, unsigned: bool) -> i128 {
    if unsigned {
        i128::from(lane)
    } else {
        i128::from(super::bits::sign_extend(lane, bits) as i64)
    }
}

/// The nearest number that has so many bits; `changed` is set if it is another one.
fn saturate(value: i128, bits: u32, unsigned: bool, changed: &mut bool) -> i128 {
    let (least, most) = if unsigned {
        (0, (1 << bits) - 1)
    } else {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    };
    let nearest = value.clamp(least, most);
    *changed |= nearest != value;
    nearest
}

/// Numbers of the registers in the usual places: Rd, Rn, Rm.
fn registers(word: u32) -> (usize, usize, usize) {
    let at = |bit| field(word, bit, 5) as usize;
    (at(0), at(5), at(16))
}

impl State {
    /// Notes that a result was saturated.
    fn note_saturation(&mut self, changed: bool) {
        self.fpsr |= u64::from(changed) << 27;
    }

    /// The environment of floating-point instructions.
    fn float_env(&self) -> Result<Env, Stop> {
        if self.fpcr & !super::FPCR_ROUNDING != 0 {
            return Err(Stop::Unsupported(Feature::FloatControl));
        }
        Ok(Env {
            rounding: rounding((self.fpcr >> 22) as u32 & 3),
            x86: false,
            flags: 0,
        })
    }

    /// Notes the exceptions of an instruction.
    fn note_exceptions(&mut self, env: &Env) {
        for (flag, at) in [
            (INVALID, 0),
            (DIVISION, 1),
            (OVERFLOW, 2),
            (UNDERFLOW, 3),
            (INEXACT, 4),
        ] {
            self.fpsr |= u64::from(env.flags & flag != 0) << at;
        }
    }
}

/// A rounding mode by its number in FPCR and in opcodes.
fn rounding(mode: u32) -> Rounding {
    match mode {
        0 => Rounding::NearestEven,
        1 => Rounding::Up,
        2 => Rounding::Down,
        _ => Rounding::Zero,
    }
}

/// Single or double precision, by the bit that says so.
fn single_or_double(double: bool) -> (Format, u32) {
    if double { (F64, 3) } else { (F32, 2) }
}

/// VFPExpandImm: the number that 8 bits stand for.
pub(super) fn expand_float(f: Format, imm8: u32) -> u64 {
    let (exponent, fraction) = if f == F64 { (11, 52) } else { (8, 23) };
    let imm = u64::from(imm8);
    let high = imm >> 6 & 1;
    let repeated = if high != 0 {
        (1 << (exponent - 3)) - 1
    } else {
        0
    };
    let field = (high ^ 1) << (exponent - 1) | repeated << 2 | imm >> 4 & 3;
    imm >> 7 << (exponent + fraction) | field << fraction | (imm & 15) << (fraction - 4)
}
