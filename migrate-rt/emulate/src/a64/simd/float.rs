//! Floating point in vectors.

use super::super::State;
use super::super::bits::{bit, field};
use super::{Shape, registers, rounding, single_or_double};
use crate::Stop;
use crate::lanes::{get, put};
use crate::soft::{self, Env, F16, F32, F64, Format, Rounding};
use core::cmp::Ordering;

/// Which of two numbers.
#[derive(Clone, Copy)]
pub(super) struct Extreme {
    largest: bool,
    /// A number is preferred to a quiet NaN.
    of_numbers: bool,
}

impl Extreme {
    pub(super) const MAX: Extreme = Extreme {
        largest: true,
        of_numbers: false,
    };
    pub(super) const MIN: Extreme = Extreme {
        largest: false,
        of_numbers: false,
    };

    pub(super) const fn of_numbers(self) -> Extreme {
        Extreme {
            of_numbers: true,
            ..self
        }
    }
}

/// FPMax, FPMin, FPMaxNum, FPMinNum.
pub(super) fn extreme(env: &mut Env, f: Format, a: u64, b: u64, which: Extreme) -> u64 {
    let quiet = |x| f.is_nan(x) && !f.is_signalling(x);
    if which.of_numbers {
        match (quiet(a), quiet(b)) {
            (true, false) if !f.is_nan(b) => return b,
            (false, true) if !f.is_nan(a) => return a,
            _ => {}
        }
    }
    if let Some(nan) = env.nan(f, &[a, b]) {
        return nan;
    }
    if f.is_zero(a) && f.is_zero(b) {
        return if which.largest { a & b } else { a | b };
    }
    let order = soft::compare(env, f, a, b, false);
    if (order == Some(Ordering::Greater)) == which.largest {
        a
    } else {
        b
    }
}

/// What is done with lanes of two vectors.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Add,
    Sub,
    Mul,
    Div,
    /// The destination plus the product.
    MulAdd,
    /// The destination minus the product.
    MulSub,
    Difference,
    Extreme(Extreme),
    Equal,
    /// The flag: of magnitudes.
    GreaterEqual(bool),
    Greater(bool),
}

impl Op {
    pub(super) fn apply(self, env: &mut Env, f: Format, a: u64, b: u64, d: u64) -> u64 {
        let mask = |holds: bool| u64::from(holds).wrapping_neg();
        let magnitude = |x: u64, yes: bool| if yes { x & !f.sign_bit() } else { x };
        match self {
            Op::Add => soft::add(env, f, a, b),
            Op::Sub => soft::sub(env, f, a, b),
            Op::Mul => soft::mul(env, f, a, b),
            Op::Div => soft::div(env, f, a, b),
            Op::MulAdd => soft::mul_add(env, f, d, a, b),
            Op::MulSub => soft::mul_add(env, f, d, a ^ f.sign_bit(), b),
            Op::Difference => soft::sub(env, f, a, b) & !f.sign_bit(),
            Op::Extreme(which) => extreme(env, f, a, b, which),
            Op::Equal => mask(soft::compare(env, f, a, b, false) == Some(Ordering::Equal)),
            Op::GreaterEqual(m) => {
                let order = soft::compare(env, f, magnitude(a, m), magnitude(b, m), true);
                mask(matches!(order, Some(Ordering::Greater | Ordering::Equal)))
            }
            Op::Greater(m) => {
                let order = soft::compare(env, f, magnitude(a, m), magnitude(b, m), true);
                mask(order == Some(Ordering::Greater))
            }
        }
    }
}

/// Three registers of one size.
pub(super) fn same(state: &mut State, word: u32) -> Result<(), Stop> {
    let scalar = bit(word, 28);
    let (f, log2) = single_or_double(bit(word, 22));
    let key = (bit(word, 29), bit(word, 23), field(word, 11, 5) & 7);
    let (op, pairwise) = match key {
        (false, false, 0) => (Op::Extreme(Extreme::MAX.of_numbers()), false),
        (false, true, 0) => (Op::Extreme(Extreme::MIN.of_numbers()), false),
        (true, false, 0) => (Op::Extreme(Extreme::MAX.of_numbers()), true),
        (true, true, 0) => (Op::Extreme(Extreme::MIN.of_numbers()), true),
        (false, false, 1) => (Op::MulAdd, false),
        (false, true, 1) => (Op::MulSub, false),
        (false, false, 2) => (Op::Add, false),
        (false, true, 2) => (Op::Sub, false),
        (true, false, 2) => (Op::Add, true),
        (true, true, 2) => (Op::Difference, false),
        (true, false, 3) => (Op::Mul, false),
        (false, false, 4) => (Op::Equal, false),
        (true, false, 4) => (Op::GreaterEqual(false), false),
        (true, true, 4) => (Op::Greater(false), false),
        (true, false, 5) => (Op::GreaterEqual(true), false),
        (true, true, 5) => (Op::Greater(true), false),
        (false, false, 6) => (Op::Extreme(Extreme::MAX), false),
        (false, true, 6) => (Op::Extreme(Extreme::MIN), false),
        (true, false, 6) => (Op::Extreme(Extreme::MAX), true),
        (true, true, 6) => (Op::Extreme(Extreme::MIN), true),
        (true, false, 7) => (Op::Div, false),
        _ => return Err(Stop::Unknown),
    };
    let has_scalar_form = matches!(
        op,
        Op::Difference | Op::Equal | Op::GreaterEqual(_) | Op::Greater(_)
    );
    if scalar && !has_scalar_form {
        return Err(Stop::Unknown);
    }
    let shape = Shape::of(word, log2)?;
    let (d, n, m) = registers(word);
    let (a, b, old) = (state.v[n], state.v[m], state.v[d]);
    let mut env = state.float_env()?;
    state.v[d] = shape.build(&mut |at| {
        let lane = |v| get(v, at, log2);
        if pairwise {
            let (x, y) = pair(shape, a, b, at);
            op.apply(&mut env, f, x, y, 0)
        } else {
            op.apply(&mut env, f, lane(a), lane(b), lane(old))
        }
    });
    state.note_exceptions(&env);
    Ok(())
}

/// The `at`th pair of neighbours of `a` and then `b`.
pub(super) fn pair(shape: Shape, a: u128, b: u128, at: u32) -> (u64, u64) {
    let half = shape.lanes / 2;
    let (from, first) = if at < half {
        (a, 2 * at)
    } else {
        (b, 2 * (at - half))
    };
    (
        get(from, first, shape.log2),
        get(from, first + 1, shape.log2),
    )
}

/// By one lane of a vector: FMLA, FMLS, FMUL.
pub(super) fn by_element(state: &mut State, word: u32) -> Result<(), Stop> {
    let op = match (bit(word, 29), field(word, 12, 4)) {
        (false, 1) => Op::MulAdd,
        (false, 5) => Op::MulSub,
        (false, 9) => Op::Mul,
        _ => return Err(Stop::Unknown),
    };
    let (f, log2) = single_or_double(bit(word, 22));
    if !bit(word, 23) || (log2 == 3 && bit(word, 21)) {
        return Err(Stop::Unknown);
    }
    let shape = Shape::of(word, log2)?;
    let index = if log2 == 3 {
        field(word, 11, 1)
    } else {
        field(word, 11, 1) << 1 | field(word, 21, 1)
    };
    let (d, n, m) = registers(word);
    let (a, b, old) = (state.v[n], get(state.v[m], index, log2), state.v[d]);
    let mut env = state.float_env()?;
    state.v[d] =
        shape.build(&mut |at| op.apply(&mut env, f, get(a, at, log2), b, get(old, at, log2)));
    state.note_exceptions(&env);
    Ok(())
}

/// Two registers: comparison with zero, FABS, FNEG, FSQRT, FRINT, conversions.
pub(super) fn misc(state: &mut State, word: u32) -> Result<(), Stop> {
    let scalar = bit(word, 28);
    let (u, high, opcode) = (bit(word, 29), bit(word, 23), field(word, 12, 5));
    if let (false, 0b10110 | 0b10111) = (high, opcode) {
        return if scalar || u {
            Err(Stop::Unknown)
        } else {
            lengthen_or_narrow(state, word)
        };
    }
    let (f, log2) = single_or_double(bit(word, 22));
    let shape = Shape::of(word, log2)?;
    let (d, n, _) = registers(word);
    let a = state.v[n];
    let sign = f.sign_bit();
    // What is no arithmetic does not look at the environment.
    if let (true, 0b01111) = (high, opcode) {
        if scalar {
            return Err(Stop::Unknown);
        }
        state.v[d] = shape.build(&mut |at| {
            let lane = get(a, at, log2);
            if u { lane ^ sign } else { lane & !sign }
        });
        return Ok(());
    }
    let mut env = state.float_env()?;
    let own = env.rounding;
    let e = &mut env;
    let to_int = |e: &mut Env, x, mode| {
        let (_, nearest) = soft::to_int(e, f, x, 0, mode, !u, shape.bits());
        nearest as u64
    };
    let mask = |holds: bool| u64::from(holds).wrapping_neg();
    let lane: &mut dyn FnMut(u64) -> u64 = match (high, opcode) {
        (true, 0b01100) => &mut |x| {
            if u {
                Op::GreaterEqual(false).apply(e, f, x, 0, 0)
            } else {
                Op::Greater(false).apply(e, f, x, 0, 0)
            }
        },
        (true, 0b01101) => &mut |x| {
            if u {
                let order = soft::compare(e, f, x, 0, true);
                mask(matches!(order, Some(Ordering::Less | Ordering::Equal)))
            } else {
                Op::Equal.apply(e, f, x, 0, 0)
            }
        },
        (true, 0b01110) if !u => {
            &mut |x| mask(soft::compare(e, f, x, 0, true) == Some(Ordering::Less))
        }
        (true, 0b11111) if u && !scalar => &mut |x| soft::sqrt(e, f, x),
        // FRINTN, FRINTM, FRINTA, FRINTX; FRINTP, FRINTZ, FRINTI
        (_, 0b11000 | 0b11001) if !scalar => {
            let (mode, exact) = match (u, high, opcode & 1) {
                (false, false, 0) => (Rounding::NearestEven, false),
                (false, false, _) => (Rounding::Down, false),
                (false, true, 0) => (Rounding::Up, false),
                (false, true, _) => (Rounding::Zero, false),
                (true, false, 0) => (Rounding::NearestAway, false),
                (true, false, _) => (own, true),
                (true, true, 0) => return Err(Stop::Unknown),
                (true, true, _) => (own, false),
            };
            &mut move |x| soft::round_to_integral(e, f, x, mode, exact)
        }
        // FCVTN, FCVTM; FCVTP, FCVTZ
        (_, 0b11010 | 0b11011) => {
            let mode = rounding((opcode & 1) << 1 | u32::from(high));
            &mut move |x| to_int(e, x, mode)
        }
        (false, 0b11100) => &mut |x| to_int(e, x, Rounding::NearestAway),
        (false, 0b11101) => &mut |x| from_lane(e, f, shape, x, u, 0),
        _ => return Err(Stop::Unknown),
    };
    state.v[d] = shape.build(&mut |at| lane(get(a, at, log2)));
    state.note_exceptions(&env);
    Ok(())
}

/// An integer lane, with `places` of its bits behind the point, as a number.
pub(super) fn from_lane(
    env: &mut Env,
    f: Format,
    shape: Shape,
    lane: u64,
    unsigned: bool,
    places: u32,
) -> u64 {
    let value = super::number(lane, shape.bits(), unsigned);
    soft::from_int(env, f, value < 0, value.unsigned_abs() as u64, places)
}

/// FCVTL, FCVTN.
fn lengthen_or_narrow(state: &mut State, word: u32) -> Result<(), Stop> {
    // The shorter of the two formats.
    let (short, long, log2) = if bit(word, 22) {
        (F32, F64, 2)
    } else {
        (F16, F32, 1)
    };
    let (d, n, _) = registers(word);
    let upper = u32::from(bit(word, 30));
    let lanes = 8 >> log2;
    let (a, old) = (state.v[n], state.v[d]);
    let mut env = state.float_env()?;
    let mut value = 0;
    if field(word, 12, 1) == 1 {
        for at in 0..lanes {
            let lane = get(a, upper * lanes + at, log2);
            put(
                &mut value,
                at,
                log2 + 1,
                soft::convert(&mut env, short, long, lane),
            );
        }
    } else {
        if upper == 1 {
            value = old & u128::from(u64::MAX);
        }
        for at in 0..lanes {
            let lane = soft::convert(&mut env, long, short, get(a, at, log2 + 1));
            put(&mut value, upper * lanes + at, log2, lane);
        }
    }
    state.v[d] = value;
    state.note_exceptions(&env);
    Ok(())
}

/// All lanes of a vector to one, or the two of a pair: FMAXNM, FMAX, FMINNM, FMIN, FADD (pairs only).
pub(super) fn reduce(state: &mut State, word: u32) -> Result<(), Stop> {
    let scalar = bit(word, 28);
    let (f, log2) = single_or_double(bit(word, 22));
    let base = if bit(word, 23) {
        Extreme::MIN
    } else {
        Extreme::MAX
    };
    let op = match field(word, 12, 5) {
        0b01100 => Op::Extreme(base.of_numbers()),
        0b01111 => Op::Extreme(base),
        0b01101 if scalar && !bit(word, 23) => Op::Add,
        _ => return Err(Stop::Unknown),
    };
    if !scalar && (log2 == 3 || !bit(word, 30)) {
        return Err(Stop::Unknown);
    }
    let (d, n, _) = registers(word);
    let a = state.v[n];
    let mut env = state.float_env()?;
    let mut two = |x: u64, y: u64| op.apply(&mut env, f, x, y, 0);
    let lane = |at| get(a, at, log2);
    // As a tree, which decides which NaN is the result.
    let low = two(lane(0), lane(1));
    let result = if scalar {
        low
    } else {
        let high = two(lane(2), lane(3));
        two(low, high)
    };
    state.v[d] = result.into();
    state.note_exceptions(&env);
    Ok(())
}

/// SCVTF, UCVTF, FCVTZS, FCVTZU with `places` bits behind the point.
pub(super) fn fixed_point(state: &mut State, word: u32, places: u32) -> Result<(), Stop> {
    let log2 = field(word, 19, 4).ilog2();
    if log2 < 2 {
        return Err(Stop::Unknown);
    }
    let (f, _) = single_or_double(log2 == 3);
    let shape = Shape::of(word, log2)?;
    let unsigned = bit(word, 29);
    let (d, n, _) = registers(word);
    let a = state.v[n];
    let mut env = state.float_env()?;
    let to_integer = field(word, 11, 5) == 0b11111;
    state.v[d] = shape.build(&mut |at| {
        let lane = get(a, at, log2);
        if to_integer {
            let zero = Rounding::Zero;
            soft::to_int(&mut env, f, lane, places, zero, !unsigned, shape.bits()).1 as u64
        } else {
            from_lane(&mut env, f, shape, lane, unsigned, places)
        }
    });
    state.note_exceptions(&env);
    Ok(())
}
