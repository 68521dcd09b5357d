//! The library's unstable sort, of random 32-bit words.

use alloc::vec;
use alloc::vec::Vec;

use crate::Load;
use crate::rng::Xorshift;

/// Number of words that the speed is measured with.
pub const DEFAULT: usize = 1 << 16;

/// Words to be sorted.
#[derive(Clone, Debug)]
pub struct Sort {
    words: Vec<u32>,
    rng: Xorshift,
    /// The generator before the last pass.
    before: Xorshift,
}

impl Sort {
    /// Sorts `n` words in each pass.
    pub fn new(n: usize) -> Sort {
        Sort {
            words: vec![0; n],
            rng: Xorshift::new(),
            before: Xorshift::new(),
        }
    }
}

impl Load for Sort {
    /// Fills the array with new numbers and sorts it.
    #[inline(never)]
    fn pass(&mut self) {
        self.before = self.rng;
        let mut rng = self.rng;
        for word in &mut self.words {
            *word = rng.draw() as u32;
        }
        self.rng = rng;
        self.words.sort_unstable();
    }

    fn steps(&self) -> u64 {
        self.words.len() as u64
    }

    /// In order, and the sum of the words and that of their squares are those of the input.
    fn check(&self) -> bool {
        let mut rng = self.before;
        let mut left = [0u64; 2];
        for &word in &self.words {
            let (put, got) = (u64::from(rng.draw() as u32), u64::from(word));
            left[0] = left[0].wrapping_add(put).wrapping_sub(got);
            left[1] = left[1].wrapping_add(put * put).wrapping_sub(got * got);
        }
        left == [0, 0] && self.words.is_sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_loss_are_seen() {
        let mut s = Sort::new(1000);
        assert!(!s.check());
        s.pass();
        assert!(s.check());
        let first = s.words.clone();
        s.pass();
        assert!(s.check());
        assert_ne!(s.words, first, "each pass sorts other numbers");
        s.words.swap(3, 4);
        assert!(!s.check());
        s.words.swap(3, 4);
        s.words[4] = s.words[3];
        assert!(!s.check());
    }
}
