//! Independent loads at random places. In a cache of `C` bytes, `1 - C / W` of the loads from `W`
//! bytes miss, once it is warm.

use alloc::vec::Vec;

use crate::Load;
use crate::rng::Xorshift;

/// Bytes that the speed is measured with.
pub const DEFAULT: usize = 16 << 20;
/// Loads of a pass.
const STEPS: u64 = 1 << 18;

/// Memory to load from.
#[derive(Clone, Debug)]
pub struct Random {
    words: Vec<u64>,
    rng: Xorshift,
    /// The generator before the last pass, and what that has summed up.
    last: Option<(Xorshift, u64)>,
}

/// What is at a place.
fn word(at: usize) -> u64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Random {
    /// Loads from `bytes` of memory, which is a power of two of at least 8.
    pub fn new(bytes: usize) -> Random {
        Random {
            words: (0..bytes / 8).map(word).collect(),
            rng: Xorshift::new(),
            last: None,
        }
    }

    fn place(&self, rng: &mut Xorshift) -> usize {
        // The low bits of xorshift are its weakest.
        (rng.draw() >> 20) as usize & (self.words.len() - 1)
    }
}

impl Load for Random {
    #[inline(never)]
    fn pass(&mut self) {
        let before = self.rng;
        let mut rng = before;
        let mut sum = 0u64;
        for _ in 0..STEPS {
            sum = sum.wrapping_add(self.words[self.place(&mut rng)]);
        }
        self.rng = rng;
        self.last = Some((before, sum));
    }

    fn steps(&self) -> u64 {
        STEPS
    }

    /// The sum is that of what is at the same places by definition.
    fn check(&self) -> bool {
        let Some((mut rng, sum)) = self.last else {
            return false;
        };
        let words = (0..STEPS).map(|_| word(self.place(&mut rng)));
        words.fold(0, u64::wrapping_add) == sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_checked() {
        let mut r = Random::new(1 << 16);
        assert!(!r.check());
        r.pass();
        let first = r.last;
        assert!(r.check());
        r.pass();
        assert!(r.check());
        assert_ne!(r.last, first, "each pass goes to other places");
        r.last.as_mut().unwrap().1 ^= 1;
        assert!(!r.check());
    }

    #[test]
    fn places_are_even() {
        let r = Random::new(1 << 12);
        let (mut rng, mut hits) = (r.rng, [0u32; 64]);
        for _ in 0..STEPS {
            hits[r.place(&mut rng) * 8 / 64] += 1;
        }
        let mean = (STEPS / 64) as f64;
        for n in hits {
            assert!((f64::from(n) - mean).abs() < 6.0 * mean.sqrt(), "{hits:?}");
        }
    }
}
