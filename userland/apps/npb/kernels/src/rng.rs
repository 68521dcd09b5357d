//! The generator of the benchmarks: `x' = a x mod 2^46`, in double-precision arithmetic.
//!
//! Every intermediate value is an integer below 2^53, so every operation is exact and the
//! sequence is the same on every machine with IEEE doubles.

const TWO_23: f64 = 8_388_608.0;
const TWO_46: f64 = TWO_23 * TWO_23;
const INV_23: f64 = 1.0 / TWO_23;
const INV_46: f64 = 1.0 / TWO_46;

/// The multiplier of all benchmarks, 5^13.
pub const MULTIPLIER: f64 = 1_220_703_125.0;
/// The seed of all benchmarks.
pub const SEED: f64 = 314_159_265.0;

/// A value below 2^46 in two halves of 23 bits.
#[derive(Clone, Copy, Debug)]
struct Halves {
    high: f64,
    low: f64,
}

fn floor(x: f64) -> f64 {
    // Positive and below 2^53 wherever it is used.
    x as i64 as f64
}

fn split(x: f64) -> Halves {
    let high = floor(x * INV_23);
    Halves {
        high,
        low: x - high * TWO_23,
    }
}

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Randlc {
    x: f64,
    a: Halves,
}

impl Randlc {
    /// The sequence that starts at `seed`, with multiplier `a`.
    pub fn new(seed: f64, a: f64) -> Randlc {
        Randlc {
            x: seed,
            a: split(a),
        }
    }

    /// The next number, in (0, 1).
    pub fn next_f64(&mut self) -> f64 {
        let x = split(self.x);
        // a x = (high terms that vanish mod 2^46) + 2^23 cross + low low
        let cross = self.a.high * x.low + self.a.low * x.high;
        let cross = cross - floor(cross * INV_23) * TWO_23;
        let sum = cross * TWO_23 + self.a.low * x.low;
        self.x = sum - floor(sum * INV_46) * TWO_46;
        self.x * INV_46
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_integer_arithmetic() {
        let mut rng = Randlc::new(SEED, MULTIPLIER);
        let mut x = SEED as u64;
        for _ in 0..100_000 {
            x = (u128::from(x) * MULTIPLIER as u128 % (1 << 46)) as u64;
            assert_eq!(rng.next_f64().to_bits(), (x as f64 * INV_46).to_bits());
        }
    }
}
