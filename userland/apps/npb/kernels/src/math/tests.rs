//! Against fixed-point arithmetic of 112 binary places.

use std::vec::Vec;

use super::*;
use crate::rng::{MULTIPLIER, Randlc, SEED};

/// Binary places.
const PLACES: u32 = 112;
/// One.
const ONE: i128 = 1 << PLACES;
/// Results below this negative power of two have errors that the oracle cannot tell.
const SMALLEST: u32 = 55;
/// Half of pi and the logarithm of two, cut off.
const HALF_PI_FIXED: i128 = 0x1_921f_b544_42d1_8469_898c_c517_01b8;
/// The next 96 places of half of pi.
const HALF_PI_MORE: i128 = 0x39a252049c1114cf98e80417;
const LN_2_FIXED: i128 = 0xb172_17f7_d1cf_79ab_c9e3_b398_03f2;

/// What a double is; below 2^15 in size, and no bit is below the last place.
fn fixed(x: f64) -> i128 {
    let bits = x.abs().to_bits();
    let exponent = (bits >> 52) as i32 - 1023 - 52 + PLACES as i32;
    if x == 0.0 {
        return 0;
    }
    assert!((0..=74).contains(&exponent), "{x} cannot be represented");
    let size = i128::from(bits & ((1 << 52) - 1) | 1 << 52) << exponent;
    if x < 0.0 { -size } else { size }
}

fn times(a: i128, b: i128) -> i128 {
    let (x, y) = (a.unsigned_abs(), b.unsigned_abs());
    let halves = |v: u128| (v >> 64, v & u128::from(u64::MAX));
    let ((xh, xl), (yh, yl)) = (halves(x), halves(y));
    let middle = xh * yl + ((xl * yl) >> 64);
    let size = ((xh * yh) << 16) + (middle >> 48) + ((xl * yh) >> 48);
    if (a < 0) == (b < 0) {
        size as i128
    } else {
        -(size as i128)
    }
}

/// `first + first x / ((n+1)...(n+step)) + ...`
fn taylor(first: i128, mut n: i128, step: i128, x: i128) -> i128 {
    let (mut sum, mut term) = (first, first);
    while term != 0 {
        term = times(term, x);
        for _ in 0..step {
            n += 1;
            term /= n;
        }
        sum += term;
    }
    sum
}

fn sin_cos_fixed(angle: f64) -> (i128, i128) {
    let x = fixed(angle);
    let turns = (x + HALF_PI_FIXED / 2).div_euclid(HALF_PI_FIXED);
    let r = x - turns * HALF_PI_FIXED - ((turns * HALF_PI_MORE) >> 96);
    let minus_square = -times(r, r);
    let sin = taylor(r, 1, 2, minus_square);
    let cos = taylor(ONE, 0, 2, minus_square);
    match turns & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// How far `found` is from `right`, in units of the last place of a double of that size.
///
/// Numbers so small that the oracle does not know their last place have no error; there are few.
fn ulps(found: f64, right: i128) -> f64 {
    let size = right.unsigned_abs().max(1).ilog2();
    match size < PLACES - SMALLEST {
        true => 0.0,
        false => (fixed(found) - right).unsigned_abs() as f64 / 2f64.powi(size as i32 - 52),
    }
}

fn random(count: usize) -> Vec<f64> {
    let mut rng = Randlc::new(SEED, MULTIPLIER);
    (0..count).map(|_| rng.next_f64()).collect()
}

/// The largest error of sines and cosines of these angles.
fn worst(angles: impl Iterator<Item = f64>) -> f64 {
    angles.fold(0.0, |worst: f64, angle| {
        let ((sin, cos), (s, c)) = (sin_cos(angle), sin_cos_fixed(angle));
        worst.max(ulps(sin, s)).max(ulps(cos, c))
    })
}

#[test]
fn the_oracle_knows_what_everybody_knows() {
    let pi = core::f64::consts::PI;
    assert!(ulps(0.5, sin_cos_fixed(pi / 6.0).0) < 1.0);
    assert!(ulps(core::f64::consts::FRAC_1_SQRT_2, sin_cos_fixed(pi / 4.0).1) < 1.0);
    // The sine of pi as it is rounded is what rounding has taken off.
    assert!(ulps(1.224_646_799_147_353_2e-16, sin_cos_fixed(pi).0) < 1.0);
    assert_eq!(times(3 * ONE, -fixed(0.25)), -fixed(0.75));
    assert!(ulps(core::f64::consts::E, taylor(ONE, 0, 1, ONE)) < 1.0);
}

#[test]
fn sines_and_cosines_err_by_less_than_a_unit() {
    let pi = core::f64::consts::PI;
    // The angles of FT, up to class A.
    let roots = (0..9).flat_map(|m| {
        let n = 1 << m;
        (1..n).map(move |j| f64::from(j) * pi / f64::from(n))
    });
    assert!(worst(roots) < 1.0);
    for scale in [0.001, 1.0, 4.0, 100.0, 1000.0] {
        let angles = random(20_000).into_iter().map(|x| (x - 0.5) * scale);
        assert!(worst(angles) < 1.0, "up to {scale}");
    }
    // Where nearly everything cancels.
    let near = (1..600).flat_map(|n| {
        let x = f64::from(n) * core::f64::consts::FRAC_PI_2;
        [x.next_down(), x, x.next_up()]
    });
    let known = |x: &f64| {
        let (sin, cos) = sin_cos(*x);
        sin.abs().min(cos.abs()) > 2f64.powi(1 - SMALLEST as i32)
    };
    assert!(near.clone().filter(known).count() > 1750);
    assert!(worst(near) < 1.0);
    assert_eq!(sin_cos(0.0), (0.0, 1.0));
}

#[test]
fn exponentials_err_by_less_than_a_unit() {
    for scale in [0.01, 1.0, 8.0, 20.0] {
        for x in random(20_000) {
            let x = (x - 0.5) * scale;
            let n = (x * core::f64::consts::LOG2_E).round() as i32;
            let right = taylor(ONE, 0, 1, fixed(x) - i128::from(n) * LN_2_FIXED);
            let error = ulps(exp(x) * 2f64.powi(-n), right);
            assert!(error < 1.0, "{x}: {error}");
        }
    }
    assert_eq!(exp(0.0), 1.0);
    assert_eq!((exp(-1e4), exp(1e4)), (0.0, f64::INFINITY));
    for x in [-707.9, 708.9] {
        assert!((exp(x) / x.exp() - 1.0).abs() < 1e-15, "{x}");
    }
}

#[test]
fn roots_are_those_of_the_host() {
    for x in [1.0, 2.0, 1e-300, 0.25, 3.0e10, 1.7e308, 0.1] {
        let root = f64::sqrt(x);
        assert!((sqrt(x) - root).abs() <= root * 2.3e-16, "{x}");
    }
    assert_eq!((sqrt(0.0), sqrt(-1.0)), (0.0, 0.0));
}

/// A change of any of these bits is a change of results that are compared between runs and ISAs.
#[test]
fn bits_do_not_change() {
    let mut sum = crate::checksum::Fnv::new();
    for x in random(1000) {
        let (sin, cos) = sin_cos(x * 6.0);
        for y in [sin, cos, exp(-x), sqrt(x)] {
            sum.word(y.to_bits());
        }
    }
    assert_eq!(sum.value(), 0x72bf_31d6_97f0_4c7c);
}

#[test]
fn logarithms_are_right() {
    let mut x = 5e-8;
    while x < 1e6 {
        let (found, right) = (ln(x), f64::ln(x));
        let error = (found - right).abs();
        assert!(
            error <= 4.0 * f64::EPSILON * right.abs().max(0.1),
            "{x}: {found}, {right}"
        );
        x *= 1.000_37;
    }
    assert_eq!(ln(1.0), 0.0);
}
