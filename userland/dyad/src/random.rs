//! Random numbers, for everything but secrets.
//!
//! The seed comes from the computer that runs the machines, so that each run has other numbers. Runs in strict
//! order take it from `--seed`, and those with `--random-seed` from that: they repeat, as long as the program's
//! threads ask in the same order.
//!
//! ```no_run
//! let die = 1 + dyad::random::below(6);
//! dyad::println!("{die}, {:x}", dyad::random::u64());
//! ```
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), with one state for all threads. Who knows
//! some numbers can compute the others: do not make keys of them.

use core::sync::atomic::{AtomicU64, Ordering};

/// How far the state goes on with each number; the increment of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

dyad_rt::program_local! {
    /// How many numbers were made, times [`STEP`].
    static MADE: AtomicU64 = AtomicU64::new(0);
}

/// A number out of all.
pub fn u64() -> u64 {
    let (_, seed) = dyad_sys::wall_and_seed().unwrap_or_default();
    let made = MADE.with_any(|made| made.fetch_add(STEP, Ordering::Relaxed));
    mix(seed.wrapping_add(made).wrapping_add(STEP))
}

/// The output function of SplitMix64.
const fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number below `end`; all are equally likely.
///
/// # Panics
///
/// If `end` is 0.
pub fn below(end: u64) -> u64 {
    assert!(end != 0, "no number is below 0");
    // The numbers at the end, which do not make a whole round, are drawn again.
    let rounds = u64::MAX - u64::MAX % end;
    loop {
        let n = self::u64();
        if n < rounds {
            return n % end;
        }
    }
}

/// Fills `bytes` with random ones.
pub fn fill(bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let random = self::u64().to_le_bytes();
        chunk.copy_from_slice(&random[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::{STEP, mix};

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // Of the reference implementation, for the seed 1234567.
        let numbers = (1..=3u64).map(|n| mix(1_234_567u64.wrapping_add(STEP.wrapping_mul(n))));
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert!(numbers.eq(expected));
    }
}
