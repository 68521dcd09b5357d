//! Pseudorandom numbers of tests, test programs and host back ends: the same for a seed on every ISA and in every version, so that a
//! seed in a message repeats what it found.
//!
//! [`SplitMix64`] is that of G. Steele, D. Lea and C. Flood ("Fast splittable pseudorandom number generators", 2014).
//! Crates of the registry may change their algorithm with a version, and have no function of one number
//! ([`mix`]), by which both sides of a test know the same numbers without a common generator.
#![no_std]
#![forbid(unsafe_code)]

/// Odd, and 2^64 divided by the golden ratio: multiples of it are spread evenly.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scatters the bits of a number: one to one.
pub const fn scatter(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// The first number that [`SplitMix64`] gives for this seed: says nothing about the number of another seed.
pub const fn mix(seed: u64) -> u64 {
    scatter(seed.wrapping_add(GOLDEN))
}

/// A hash of a sequence of values, with one more value.
pub const fn hash(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(GOLDEN).rotate_left(29)
}

/// A generator of 64-bit numbers; the field is its state, at first the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        scatter(self.0)
    }

    /// A number below `n`, which is not 0.
    pub const fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the published generator.
    #[test]
    fn numbers_are_those_of_the_literature() {
        let mut random = SplitMix64(1_234_567);
        let first = [(); 5].map(|()| random.next());
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
        assert_eq!(mix(1_234_567), first[0]);
        assert!((0..100).all(|_| random.below(7) < 7));
    }

    #[test]
    fn hashes_depend_on_order() {
        assert_ne!(hash(hash(0, 1), 2), hash(hash(0, 2), 1));
    }
}
