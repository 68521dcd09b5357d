//! Marsaglia's xorshift generator of 64 bits: a few instructions, so that what uses it is measured.

/// A sequence of numbers. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xorshift(u64);

impl Xorshift {
    /// The sequence that all loads start with.
    pub const fn new() -> Xorshift {
        Xorshift(88_172_645_463_325_252)
    }

    /// The next number.
    #[inline(always)]
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`, which is not 0.
    #[inline(always)]
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n as u64) as usize
    }
}

impl Default for Xorshift {
    fn default() -> Xorshift {
        Xorshift::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Xorshift;

    #[test]
    fn the_sequence_is_the_one_computed_by_hand() {
        let mut rng = Xorshift::new();
        assert_eq!(rng.draw(), 8_748_534_153_485_358_512);
        assert_eq!(rng.draw(), 3_040_900_993_826_735_515);
        assert_eq!(rng.draw(), 3_453_997_556_048_239_312);
    }
}
