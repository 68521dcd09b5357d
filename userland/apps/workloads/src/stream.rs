//! Every word of memory in order: loaded, and stored with one more. Misses once per line and pass
//! in every cache that is too small for all of it.

use alloc::vec::Vec;

use crate::Load;

/// Bytes that are known to exceed every first and second level.
pub const DEFAULT: usize = 16 << 20;

/// Memory to go through.
#[derive(Clone, Debug)]
pub struct Stream {
    words: Vec<u64>,
    passes: u64,
    digest: u64,
}

/// What the words have made of the digest so far, and the next one.
fn add(digest: u64, word: u64) -> u64 {
    // Depends on the order, so it is computed in this one, a word at a time.
    digest.rotate_left(1) ^ word
}

impl Stream {
    /// Goes through `bytes` of memory, at least 8.
    pub fn new(bytes: usize) -> Stream {
        Stream {
            words: (0..bytes as u64 / 8).collect(),
            passes: 0,
            digest: 0,
        }
    }
}

impl Load for Stream {
    #[inline(never)]
    fn pass(&mut self) {
        let mut digest = 0;
        for word in &mut self.words {
            *word += 1;
            digest = add(digest, *word);
        }
        self.digest = digest;
        self.passes += 1;
    }

    fn steps(&self) -> u64 {
        self.words.len() as u64
    }

    fn check(&self) -> bool {
        let words = (0..self.words.len() as u64).map(|i| i + self.passes);
        self.passes > 0 && words.fold(0, add) == self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_counts() {
        let mut s = Stream::new(4096);
        assert!(!s.check());
        s.pass();
        assert!(s.check());
        s.pass();
        assert!(s.check());
        s.words[77] += 1;
        s.pass();
        assert!(!s.check());
    }
}
