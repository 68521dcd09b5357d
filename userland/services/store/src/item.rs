//! Items: a key, a version, a value.

use alloc::vec::Vec;

use crate::key::Key;

/// Most bytes of a value.
pub const MAX_VALUE: usize = 4096;

/// Words before the value.
pub(crate) const HEAD: usize = 3;
const LENGTH_BITS: u32 = 16;

/// The version of a value: a later put of the same key has a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub(crate) u64);

impl Version {
    /// As a number below 2^48.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The version with this number.
    pub const fn from_number(n: u64) -> Version {
        Version(n & (u64::MAX >> LENGTH_BITS))
    }
}

/// Words of an item with a value of so many bytes.
pub(crate) const fn words(length: usize) -> usize {
    HEAD + length.div_ceil(8)
}

/// Lines of an item with a value of so many bytes.
pub const fn lines(length: usize) -> u64 {
    dyad_quiet::heap::lines_for(words(length))
}

pub(crate) fn encode(key: Key, version: Version, value: &[u8]) -> Vec<u64> {
    let [low, high] = key.words();
    let mut all = Vec::with_capacity(words(value.len()));
    all.extend([low, high, version.0 << LENGTH_BITS | value.len() as u64]);
    all.extend(value.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    }));
    all
}

/// The head of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub key: [u64; 2],
    pub version: Version,
    pub length: usize,
}

impl Head {
    pub(crate) const fn of(words: [u64; HEAD]) -> Head {
        let [low, high, rest] = words;
        Head {
            key: [low, high],
            version: Version(rest >> LENGTH_BITS),
            length: rest as usize & ((1 << LENGTH_BITS) - 1),
        }
    }
}
