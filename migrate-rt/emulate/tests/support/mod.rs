//! What the tests of the interpreters share.
#![allow(dead_code)] // Every test file uses a part of it.

pub mod a64;
pub mod machine;
pub mod memory;
pub mod x86;

use std::path::{Path, PathBuf};

use dyad_random::{GOLDEN, SplitMix64};
use dyad_tier::Tier;

/// Whether tests do what takes long, or needs tools that are not everywhere.
pub fn long() -> bool {
    Tier::now() == Tier::Long
}

pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A directory of this test run, empty.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Random numbers, the same in every run.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(name: &str, index: u64) -> Random {
        Random(SplitMix64(
            hash(name.as_bytes()) ^ index.wrapping_mul(GOLDEN),
        ))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// An integer, often one where something happens: few bits, or near a boundary.
    pub fn integer(&mut self) -> u64 {
        let random = self.next();
        match self.below(6) {
            0 => random & 0xff,
            1 => {
                let at = 1u64 << (random & 63);
                at.wrapping_add(self.below(3)).wrapping_sub(1)
            }
            2 => random as i16 as u64,
            3 => random & 0xffff_ffff,
            _ => random,
        }
    }

    /// Bits of a 64-bit number, or of two 32-bit ones, often a special one.
    pub fn float(&mut self) -> u64 {
        let double = self.below(2) == 0;
        let mut one = |exponent_bits: u32, mantissa_bits: u32| {
            let all = (1u64 << exponent_bits) - 1;
            let bias = all >> 1;
            let random = self.next();
            let full = random & ((1 << mantissa_bits) - 1);
            let exponent = match self.below(12) {
                0 => 0,
                1 => all,
                2 => 1,
                3 => all - 1,
                // Where conversions and roundings take place, and near each other so that sums
                // round and cancel.
                4..=7 => bias + self.below(u64::from(mantissa_bits) + 14) - 4,
                8..=10 => bias + self.below(4) - 2,
                _ => self.next() & all,
            };
            let mantissa = match self.below(6) {
                0 => 0,
                1 => 1 << self.below(mantissa_bits.into()),
                2 => full | 1 << (mantissa_bits - 1),
                3 => full >> self.below(mantissa_bits.into()) << self.below(8) & full,
                _ => full,
            };
            (random >> 63) << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa
        };
        if double {
            one(11, 52)
        } else {
            one(8, 23) | one(8, 23) << 32
        }
    }
}

/// FNV-1a.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}
