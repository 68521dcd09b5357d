//! Wide integers and floating point across points.

use core::hint::black_box;

use super::{Line, mix};
use crate::schedule::point;

fn power(base: u128, exponent: u32, modulus: u128) -> u128 {
    point();
    match exponent {
        0 => 1,
        n if n % 2 == 0 => {
            let half = power(base, n / 2, modulus);
            half * half % modulus
        }
        n => base * power(base, n - 1, modulus) % modulus,
    }
}

/// 128-bit integers, overflow flags, shifts.
pub fn integers() -> Line {
    let modulus = black_box(0xffff_ffff_ffff_ffc5u128);
    let p = power(3, 1000, modulus);
    let mut wide = black_box(1u128) << 90;
    let mut carries = 0u64;
    for i in 0..40u32 {
        let (next, carry) = wide.overflowing_mul(u128::from(i) + 3);
        point();
        wide = next.rotate_left(i) ^ p;
        carries += u64::from(carry);
    }
    let narrow = (0..100u8).fold(0u8, |a, b| {
        point();
        a.wrapping_mul(31).wrapping_add(b)
    });
    let hash = mix(mix(p as u64, wide as u64), (wide >> 64) as u64);
    let hash = mix(mix(hash, carries), narrow.into());
    // 3^1000 mod (2^64 - 59), squared step by step.
    let mut check = 1u128;
    for _ in 0..1000 {
        check = check * 3 % modulus;
    }
    (
        "integers",
        if p == check { Ok(hash) } else { Err("a power") },
    )
}

fn root(x: f64, guess: f64, steps: u32) -> f64 {
    point();
    if steps == 0 {
        return guess;
    }
    root(x, 0.5 * (guess + x / guess), steps - 1)
}

fn simpson(f: &dyn Fn(f64) -> f64, a: f64, b: f64, depth: u32) -> f64 {
    let middle = 0.5 * (a + b);
    if depth == 0 {
        return (b - a) / 6.0 * (f(a) + 4.0 * f(middle) + f(b));
    }
    let left = simpson(f, a, middle, depth - 1);
    point();
    left + simpson(f, middle, b, depth - 1)
}

/// Floating point that lives across points, in locals, arrays and arguments.
pub fn floats() -> Line {
    let mut hash = 0;
    let two = root(2.0, 1.0, 8);
    let area = simpson(
        &|x| {
            point();
            x * x * x - 2.0 * x + 1.0
        },
        0.0,
        2.0,
        4,
    );
    let mut matrix = [[0.0f64; 4]; 4];
    for (i, row) in matrix.iter_mut().enumerate() {
        for (j, cell) in row.iter_mut().enumerate() {
            point();
            *cell = 1.0 / (i + j + 1) as f64;
        }
    }
    let mut vector = [1.0f64, 0.5, 0.25, 0.125];
    let (mut low, mut high) = (f32::MAX, f32::MIN);
    for _ in 0..6 {
        let mut next = [0.0; 4];
        for (n, row) in next.iter_mut().zip(&matrix) {
            *n = row.iter().zip(&vector).map(|(a, b)| a * b).sum();
            point();
            low = low.min(*n as f32);
            high = high.max(*n as f32);
        }
        vector = next;
    }
    for v in vector {
        hash = mix(hash, v.to_bits());
    }
    hash = mix(
        hash,
        u64::from(low.to_bits()) << 32 | u64::from(high.to_bits()),
    );
    let good = (two * two - 2.0).abs() < 1e-14 && (area - 2.0).abs() < 1e-12;
    ("floats", if good { Ok(hash) } else { Err("a result") })
}
