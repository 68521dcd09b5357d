//! FNV-1a-64 over the bytes of results, little-endian on every ISA.

/// A checksum that is being computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv(u64);

impl Fnv {
    /// The checksum of nothing.
    pub const fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// Adds 32-bit words.
    pub fn words(&mut self, words: &[u32]) {
        self.bytes(words.iter().flat_map(|w| w.to_le_bytes()));
    }

    /// Adds one 64-bit word.
    pub fn word(&mut self, word: u64) {
        self.bytes(word.to_le_bytes());
    }

    /// Its value so far.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv::new()
    }
}

/// The checksum of 32-bit words.
pub fn of_words(words: &[u32]) -> u64 {
    let mut sum = Fnv::new();
    sum.words(words);
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::Fnv;

    #[test]
    fn matches_published_vectors() {
        for (text, sum) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            let mut fnv = Fnv::new();
            fnv.bytes(text.bytes());
            assert_eq!(fnv.value(), sum, "{text:?}");
        }
    }
}
