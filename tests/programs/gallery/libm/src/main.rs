//! libm: all functions over seeded arguments, by the bits of their results, moving at the head of the loop.
#![no_std]
#![no_main]

use gallery::*;

/// Bits of a result; what is not a number counts as one value.
fn bits(v: f64) -> u64 {
    if v.is_nan() { u64::MAX } else { v.to_bits() }
}

type Of1 = (&'static str, fn(f64) -> f64);
type Of2 = (&'static str, fn(f64, f64) -> f64);
type OfF32 = (&'static str, fn(f32) -> f32);

const OF_ONE: [Of1; 36] = [
    ("acos", libm::acos),
    ("acosh", libm::acosh),
    ("asin", libm::asin),
    ("asinh", libm::asinh),
    ("atan", libm::atan),
    ("atanh", libm::atanh),
    ("cbrt", libm::cbrt),
    ("ceil", libm::ceil),
    ("cos", libm::cos),
    ("cosh", libm::cosh),
    ("erf", libm::erf),
    ("erfc", libm::erfc),
    ("exp", libm::exp),
    ("exp10", libm::exp10),
    ("exp2", libm::exp2),
    ("expm1", libm::expm1),
    ("fabs", libm::fabs),
    ("floor", libm::floor),
    ("j0", libm::j0),
    ("j1", libm::j1),
    ("lgamma", libm::lgamma),
    ("log", libm::log),
    ("log10", libm::log10),
    ("log1p", libm::log1p),
    ("log2", libm::log2),
    ("rint", libm::rint),
    ("round", libm::round),
    ("roundeven", libm::roundeven),
    ("sin", libm::sin),
    ("sinh", libm::sinh),
    ("sqrt", libm::sqrt),
    ("tan", libm::tan),
    ("tanh", libm::tanh),
    ("tgamma", libm::tgamma),
    ("trunc", libm::trunc),
    ("y0", libm::y0),
];

const OF_TWO: [Of2; 11] = [
    ("atan2", libm::atan2),
    ("copysign", libm::copysign),
    ("fdim", libm::fdim),
    ("fmax", libm::fmax),
    ("fmin", libm::fmin),
    ("fmod", libm::fmod),
    ("hypot", libm::hypot),
    ("nextafter", libm::nextafter),
    ("pow", libm::pow),
    ("remainder", libm::remainder),
    ("fma", |x, y| libm::fma(x, y, -x)),
];

const OF_F32: [OfF32; 14] = [
    ("ceilf", libm::ceilf),
    ("cosf", libm::cosf),
    ("expf", libm::expf),
    ("floorf", libm::floorf),
    ("logf", libm::logf),
    ("powf", |x| libm::powf(x.abs(), 1.7)),
    ("rintf", libm::rintf),
    ("roundf", libm::roundf),
    ("sinf", libm::sinf),
    ("sqrtf", libm::sqrtf),
    ("tanf", libm::tanf),
    ("tgammaf", libm::tgammaf),
    ("truncf", libm::truncf),
    ("fmaf", |x| libm::fmaf(x, x, -x)),
];

const SPECIAL: [f64; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f64::MIN_POSITIVE,
    f64::MAX,
];

/// Arguments: special ones, some near 1, and some of all sizes.
fn arguments(seed: &mut Seeded) -> Vec<f64> {
    let mut all = SPECIAL.to_vec();
    all.extend((0..60).map(|_| seed.unit() * 8.0 - 4.0));
    all.extend((0..60).map(|_| f64::from_bits(seed.word())));
    all
}

fn program() -> Result<()> {
    let mut seed = Seeded(4);
    let all = arguments(&mut seed);
    for (name, f) in OF_ONE {
        let results = all.iter().flat_map(|x| {
            hop_each(15);
            bits(f(*x)).to_le_bytes()
        });
        say!(
            "{name} {:016x} {:?}",
            digest(&results.collect::<Vec<_>>()),
            f(0.7)
        );
    }
    for (name, f) in OF_TWO {
        let pairs = all.iter().zip(all.iter().rev().skip(7));
        let results = pairs.flat_map(|(x, y)| {
            hop_each(15);
            bits(f(*x, *y)).to_le_bytes()
        });
        say!(
            "{name} {:016x} {:?}",
            digest(&results.collect::<Vec<_>>()),
            f(0.7, 3.3)
        );
    }
    for (name, f) in OF_F32 {
        let results = all.iter().flat_map(|x| {
            hop_each(15);
            bits(f64::from(f(*x as f32))).to_le_bytes()
        });
        say!(
            "{name} {:016x} {:?}",
            digest(&results.collect::<Vec<_>>()),
            f(0.7)
        );
    }
    for x in SPECIAL {
        let ((m, e), (f, i), (s, c)) = (libm::frexp(x), libm::modf(x), libm::sincos(x));
        let all = [m, f, i, s, c, libm::scalbn(x, -3), libm::ldexp(m, 9)].map(bits);
        say!("{x:?}: {} {:x?}", if x.is_finite() { e } else { 0 }, all);
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
