//! Elementary functions, the same bits on every ISA.
//!
//! Only additions, multiplications and divisions in a fixed order: the compiler neither contracts
//! them to fused operations nor reorders them, so every machine with IEEE doubles computes the
//! same. Errors of [`sin_cos`] and [`exp`] are below one unit in the last place, that of
//! [`sqrt`] too.

/// Added to and subtracted from a number of at most 2^51, rounds it to the nearest integer.
const ROUND: f64 = 1.5 * (1u64 << 52) as f64;

/// Half of pi in three parts. The first two have 33 bits, so that their products with integers
/// below 2^20 are exact.
const HALF_PI: [f64; 3] = [
    f64::from_bits(0x3ff9_21fb_5440_0000),
    f64::from_bits(0x3dd0_b461_1a60_0000),
    f64::from_bits(0x3ba3_198a_2e03_7073),
];

/// The natural logarithm of two in two parts, of which the first has 33 bits.
const LN_2: [f64; 2] = [
    f64::from_bits(0x3fe6_2e42_fef0_0000),
    f64::from_bits(0x3dd4_73de_6af2_78ed),
];

/// `1 / n!`, correctly rounded, as factorials up to 20! are exact.
const fn inverse_factorial(n: u64) -> f64 {
    let (mut product, mut i) = (1u64, 2);
    while i <= n {
        product *= i;
        i += 1;
    }
    1.0 / product as f64
}

/// Coefficients `first`, `first + step`, ... of the exponential series.
const fn series<const N: usize>(first: u64, step: u64) -> [f64; N] {
    let mut terms = [0.0; N];
    let mut i = 0;
    while i < N {
        terms[i] = inverse_factorial(first + step * i as u64);
        i += 1;
    }
    terms
}

/// `c[0] + c[1] x + c[2] x^2 + ...`.
fn polynomial(c: &[f64], x: f64) -> f64 {
    let terms = c.iter().rev();
    terms.copied().reduce(|sum, c| sum * x + c).unwrap_or(0.0)
}

/// `a - b` and what rounding has taken off it.
fn subtract(a: f64, b: f64) -> (f64, f64) {
    let difference = a - b;
    let of_b = a - difference;
    let of_a = difference + of_b;
    (difference, (a - of_a) - (b - of_b))
}

/// `2 / (2 n + 1)` for the first `n`: the series of `ln((1 + s) / (1 - s))` by powers of the square of `s`.
const LN_SERIES: [f64; 12] = {
    let mut terms = [0.0; 12];
    let mut n = 0;
    while n < terms.len() {
        terms[n] = 2.0 / (2 * n + 1) as f64;
        n += 1;
    }
    terms
};

/// The natural logarithm of a positive normal number. Its error is below two units in the last place, but near one.
pub fn ln(x: f64) -> f64 {
    // A mantissa between the roots of 1/2 and 2 makes the series short.
    const ROOT_2: u64 = 0x3ff6_a09e_667f_3bcd;
    let bits = x.to_bits();
    let mantissa = bits & ((1 << 52) - 1) | 0x3ff << 52;
    let is_large = mantissa > ROOT_2;
    let exponent = (bits >> 52) as i64 - 0x3ff + i64::from(is_large);
    let m = f64::from_bits(mantissa - (u64::from(is_large) << 52));
    let s = (m - 1.0) / (m + 1.0);
    let k = exponent as f64;
    k * LN_2[0] + (s * polynomial(&LN_SERIES, s * s) + k * LN_2[1])
}

/// Sine and cosine of an angle of at most 2^19.
///
/// Larger angles give numbers without meaning.
pub fn sin_cos(angle: f64) -> (f64, f64) {
    // angle = turns * pi / 2 + r + tail, where |r| <= pi / 4 and tail is below half a unit of r.
    let turns = angle * core::f64::consts::FRAC_2_PI + ROUND - ROUND;
    let (rest, lost) = subtract(angle - turns * HALF_PI[0], turns * HALF_PI[1]);
    let correction = lost - turns * HALF_PI[2];
    let r = rest + correction;
    let tail = (rest - r) + correction;

    let z = r * r;
    let sin = {
        const C: [f64; 8] = series(3, 2);
        r + (tail * (1.0 - 0.5 * z) - r * z * polynomial(&C, -z))
    };
    let cos = {
        const C: [f64; 7] = series(4, 2);
        let half = 0.5 * z;
        let head = 1.0 - half;
        head + (((1.0 - head) - half) + (z * z * polynomial(&C, -z) - r * tail))
    };
    match turns as i64 & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// The exponential of `x`; 0 where that is below the smallest normal number, infinite where it is
/// beyond the largest.
pub fn exp(x: f64) -> f64 {
    const C: [f64; 12] = series(2, 1);
    if x < -708.0 {
        return 0.0;
    }
    if x > 709.0 {
        return f64::INFINITY;
    }
    // x = power * ln 2 + r + tail
    let power = x * core::f64::consts::LOG2_E + ROUND - ROUND;
    let rest = x - power * LN_2[0];
    let correction = power * LN_2[1];
    let r = rest - correction;
    let tail = (rest - r) - correction;
    let mantissa = 1.0 + (r + (r * r * polynomial(&C, r) + tail));
    mantissa * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

/// Square root of a positive number, by Newton's method: the core library has none. 0 of others.
pub fn sqrt(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // Half the exponent is within a factor of two.
    let mut y = f64::from_bits((x.to_bits() >> 1) + (1023 << 51));
    for _ in 0..6 {
        y = 0.5 * (y + x / y);
    }
    y
}

#[cfg(test)]
mod tests;
