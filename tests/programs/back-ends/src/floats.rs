//! Minima, maxima and choices of floating-point numbers, bit by bit.

use core::hint::black_box;

use dyad::prelude::thread::*;

use crate::go;

/// Zeros, numbers, infinities, quiet and signalling NaNs of both signs.
const VALUES: [u64; 14] = [
    0,
    1 << 63,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    1,
    0x8000_0000_0000_0001,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0xfff8_0000_0000_0000,
    0x7ff4_0000_0000_0000,
    0xfff4_0000_0000_0001,
    0x4000_0000_0000_0000,
    0x3fe0_0000_0000_0000,
];

fn is_nan(bits: u64) -> bool {
    bits & !(1 << 63) > 0x7ff0_0000_0000_0000
}

/// A number that is ordered as the value is, -0 below +0.
fn ordered(bits: u64) -> i64 {
    bits as i64 ^ ((bits as i64 >> 63) as u64 >> 1) as i64
}

/// The smaller one, or the number if there is one only.
fn least(a: u64, b: u64) -> u64 {
    match (is_nan(a), is_nan(b)) {
        (true, _) => b,
        (_, true) => a,
        _ if ordered(a) < ordered(b) => a,
        _ => b,
    }
}

/// The larger one, or the number if there is one only.
fn most(a: u64, b: u64) -> u64 {
    match (is_nan(a), is_nan(b)) {
        (true, _) => b,
        (_, true) => a,
        _ if ordered(a) > ordered(b) => a,
        _ => b,
    }
}

/// One bit pattern for all NaNs.
fn without_payload(bits: u64) -> u64 {
    if is_nan(bits) { u64::MAX } else { bits }
}

/// A comparison with a NaN is false: then it is the constant.
#[inline(never)]
fn at_most_one(a: f64) -> f64 {
    if a < 1.0 { a } else { 1.0 }
}

#[inline(never)]
fn at_least_half(a: f64) -> f64 {
    if a > 0.5 { a } else { 0.5 }
}

/// Then it is the NaN.
#[inline(never)]
fn at_most_two(a: f64) -> f64 {
    if 2.0 < a { 2.0 } else { a }
}

/// Several at a time.
#[inline(never)]
fn all_at_most_one(values: &mut [f64]) {
    for a in values {
        *a = if *a < 1.0 { *a } else { 1.0 };
    }
}

#[inline(never)]
fn all(results: &mut Vec<u64>) {
    let values = black_box(VALUES).map(f64::from_bits);
    for &a in &values {
        for &b in &values {
            results.push(a.min(b).to_bits());
            results.push(a.max(b).to_bits());
        }
        results.push(at_most_one(a).to_bits());
        results.push(at_least_half(a).to_bits());
        results.push(at_most_two(a).to_bits());
    }
    let mut several = values;
    all_at_most_one(black_box(&mut several));
    results.extend(several.map(f64::to_bits));
    let many: Vec<f64> = (0..61).map(|i| values[(i * 5) % values.len()]).collect();
    for window in black_box(&many).windows(17) {
        results.push(
            window
                .iter()
                .copied()
                .fold(f64::INFINITY, f64::min)
                .to_bits(),
        );
        results.push(
            window
                .iter()
                .copied()
                .fold(f64::NEG_INFINITY, f64::max)
                .to_bits(),
        );
        results.push(window.iter().copied().fold(f64::NAN, f64::min).to_bits());
    }
}

fn expected(results: &mut Vec<u64>) {
    let [one, half, two] = [1.0f64, 0.5, 2.0].map(f64::to_bits);
    let below = |a: u64, b: u64| {
        let unordered = is_nan(a) || is_nan(b);
        let zeros = (a | b) << 1 == 0;
        !unordered && !zeros && ordered(a) < ordered(b)
    };
    for a in VALUES {
        for b in VALUES {
            results.push(least(a, b));
            results.push(most(a, b));
        }
        results.push(if below(a, one) { a } else { one });
        results.push(if below(half, a) { a } else { half });
        results.push(if below(two, a) { two } else { a });
    }
    results.extend(VALUES.map(|a| if below(a, one) { a } else { one }));
    let many: Vec<u64> = (0..61).map(|i| VALUES[(i * 5) % VALUES.len()]).collect();
    for window in many.windows(17) {
        let fold = |start: f64, of_two: fn(u64, u64) -> u64| {
            window.iter().fold(start.to_bits(), |a, b| of_two(a, *b))
        };
        results.push(fold(f64::INFINITY, least));
        results.push(fold(f64::NEG_INFINITY, most));
        results.push(fold(f64::NAN, least));
    }
}

/// Computes on both ISAs, and compares with what a computation on bits says.
///
/// # Errors
///
/// The ISA, the number of the result, the result and what it should be.
pub fn play() -> Result<usize, (Isa, usize, u64, u64)> {
    let mut wanted = Vec::new();
    expected(&mut wanted);
    for _ in 0..2 {
        let mut given = Vec::new();
        all(&mut given);
        for (n, (given, wanted)) in given.iter().zip(&wanted).enumerate() {
            if without_payload(*given) != without_payload(*wanted) {
                return Err((isa(), n, *given, *wanted));
            }
        }
        if given.len() != wanted.len() {
            return Err((isa(), given.len(), 0, 0));
        }
        let _ = go();
    }
    Ok(wanted.len())
}
