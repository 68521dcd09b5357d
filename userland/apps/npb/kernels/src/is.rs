//! IS: ranks keys by counting, ten times, and sorts them in the end.
//!
//! Serial, in the steps of an iteration:
//!
//! ```text
//!  generate ─▶ ┌─ stamp(t) ─▶ count ─▶ accumulate ─▶ verify_partial(t) ─┐ ─▶ sort ─▶ verify_full
//!              └──────────────────── t = 1 ..= 10 ◀────────────────────┘
//! ```
//!
//! With [buckets](Is::with_buckets), as the official program is built, keys are put into buckets before they are counted: each
//! iteration writes an array as large as that of the keys, so it needs less of the cache while it counts, and makes more pages
//! dirty. The keys are then sorted into their own array.
//!
//! A step that is called out of order works on what is there; verification then fails.

mod buckets;
mod run;
pub mod shared;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::checksum;
use crate::rng::{MULTIPLIER, Randlc, SEED};

pub use crate::class::Class;
use buckets::Buckets;
pub use run::Run;

/// Number of iterations, in every class.
pub const ITERATIONS: u32 = 10;
/// Keys whose rank is checked in each iteration.
pub const TEST_KEYS: usize = 5;
/// Verifications that must pass in a run with one partial verification per iteration.
pub const VERIFICATIONS: u32 = ITERATIONS * TEST_KEYS as u32 + 1;

/// How many keys are counted at a time.
const KEYS_PER_POINT: usize = 1 << 14;

impl Class {
    /// Number of keys.
    pub const fn keys(self) -> usize {
        match self {
            Class::S => 1 << 16,
            Class::W => 1 << 20,
            Class::A => 1 << 23,
        }
    }

    /// Keys are below this.
    pub const fn max_key(self) -> u32 {
        match self {
            Class::S => 1 << 11,
            Class::W => 1 << 16,
            Class::A => 1 << 19,
        }
    }

    /// Positions of the test keys and their ranks before the first iteration.
    const fn test_keys(self) -> [(usize, i64); TEST_KEYS] {
        match self {
            Class::S => [
                (48_427, 0),
                (17_148, 18),
                (23_627, 346),
                (62_548, 64_917),
                (4_431, 65_463),
            ],
            Class::W => [
                (357_773, 1_249),
                (934_767, 11_698),
                (875_723, 1_039_987),
                (898_999, 1_043_896),
                (404_505, 1_048_018),
            ],
            Class::A => [
                (2_112_377, 104),
                (662_041, 17_523),
                (5_336_171, 123_928),
                (3_642_833, 8_288_932),
                (4_250_760, 8_388_264),
            ],
        }
    }

    /// The rank that test key `i` must have in iteration `t`: each iteration adds one small and
    /// one large key, so ranks of small keys go up and those of large keys down.
    fn expected_rank(self, i: usize, t: u32) -> i64 {
        let (_, rank) = self.test_keys()[i];
        let t = i64::from(t);
        match self {
            Class::S if i <= 2 => rank + t,
            Class::S => rank - t,
            Class::W if i < 2 => rank + (t - 2),
            Class::W => rank - t,
            Class::A if i <= 2 => rank + (t - 1),
            Class::A => rank - (t - 1),
        }
    }
}

/// Checks the ranks of the test keys, which have these values, in iteration `t`. `rank` gives how many keys are at most a
/// value. Returns how many were checked.
fn partial(
    class: Class,
    test_values: &[u32; TEST_KEYS],
    t: u32,
    rank: impl Fn(u32) -> Option<u32>,
) -> Result<u32, WrongRank> {
    for (i, &key) in test_values.iter().enumerate() {
        let expected = class.expected_rank(i, t);
        // The rank of a key is the number of keys below it.
        let found = key.checked_sub(1).and_then(&rank).map(i64::from);
        if found != Some(expected) {
            return Err(WrongRank {
                iteration: t,
                test_key: i,
                expected,
                found,
            });
        }
    }
    Ok(TEST_KEYS as u32)
}

/// A rank that is not what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongRank {
    /// The iteration.
    pub iteration: u32,
    /// Which test key.
    pub test_key: usize,
    /// The rank it must have.
    pub expected: i64,
    /// The rank it has; `None` if its key is out of range.
    pub found: Option<i64>,
}

impl fmt::Display for WrongRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "iteration {}, test key {}: rank must be {}, ",
            self.iteration, self.test_key, self.expected
        )?;
        match self.found {
            Some(rank) => write!(f, "is {rank}"),
            None => f.write_str("but the key is out of range"),
        }
    }
}

impl core::error::Error for WrongRank {}

/// Two neighbours in the wrong order, or keys that are not those that were to be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSorted {
    /// The key at this position is smaller than the one before it.
    At(usize),
    /// The keys are in order, but some were lost or invented.
    OtherKeys,
}

impl fmt::Display for NotSorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSorted::At(i) => write!(f, "key {i} is smaller than key {}", i - 1),
            NotSorted::OtherKeys => f.write_str("the sorted keys are not the keys of the input"),
        }
    }
}

impl core::error::Error for NotSorted {}

/// The arrays of one run.
#[derive(Clone, Debug)]
pub struct Is {
    class: Class,
    keys: Vec<u32>,
    /// After `count`: how often each key occurs; after `accumulate`: how many keys are at most
    /// this one.
    ranks: Vec<u32>,
    /// Values of the test keys in this iteration.
    test_values: [u32; TEST_KEYS],
    /// Without buckets.
    sorted: Vec<u32>,
    buckets: Option<Buckets>,
}

impl Is {
    /// Generates the keys, for runs with buckets.
    pub fn with_buckets(class: Class) -> Is {
        let is = Is::generate_for(class, 0);
        let buckets = Buckets::new(class, &is.keys);
        Is {
            buckets: Some(buckets),
            ..is
        }
    }

    /// Generates the keys: each is the mean of four random numbers, scaled.
    pub fn generate(class: Class) -> Is {
        Is::generate_for(class, class.keys())
    }

    fn generate_for(class: Class, sorted: usize) -> Is {
        let mut rng = Randlc::new(SEED, MULTIPLIER);
        let scale = f64::from(class.max_key() / 4);
        let keys = (0..class.keys())
            .map(|_| {
                let mut sum = rng.next_f64();
                for _ in 0..3 {
                    sum += rng.next_f64();
                }
                (scale * sum) as u32
            })
            .collect();
        Is {
            class,
            keys,
            ranks: vec![0; class.max_key() as usize],
            test_values: [0; TEST_KEYS],
            sorted: vec![0; sorted],
            buckets: None,
        }
    }

    /// The class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The keys.
    pub fn keys(&self) -> &[u32] {
        &self.keys
    }

    /// Counts or ranks, by key.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// The sorted keys, after [`Is::sort`].
    pub fn sorted(&self) -> &[u32] {
        match self.buckets {
            Some(_) => &self.keys,
            None => &self.sorted,
        }
    }

    /// Gives the keys that iterations have changed the values that they have in `pristine`.
    pub fn restore(&mut self, pristine: &Is) {
        let changed = 1..=2 * ITERATIONS as usize;
        self.keys[changed.clone()].copy_from_slice(&pristine.keys[changed]);
    }

    /// Begins iteration `t`, of 1 to [`ITERATIONS`]: two keys change, and the test keys are noted.
    pub fn stamp(&mut self, t: u32) {
        self.keys[t as usize] = t;
        self.keys[(t + ITERATIONS) as usize] = self.class.max_key() - t;
        self.test_values = self.class.test_keys().map(|(at, _)| self.keys[at]);
    }

    /// Counts how often each key occurs.
    pub fn count(&mut self) {
        self.count_with(&mut || ());
    }

    /// Counts keys, and calls `point` at regular intervals.
    pub fn count_with(&mut self, point: &mut impl FnMut()) {
        let keys = match &mut self.buckets {
            Some(buckets) => buckets.fill(&self.keys, point),
            None => &self.keys,
        };
        self.ranks.fill(0);
        for keys in keys.chunks(KEYS_PER_POINT) {
            point();
            for &key in keys {
                self.ranks[key as usize] += 1;
            }
        }
    }

    /// Sums the counts up: how many keys are at most each key.
    pub fn accumulate(&mut self) {
        let mut sum = 0;
        for rank in &mut self.ranks {
            sum += *rank;
            *rank = sum;
        }
    }

    /// Checks the ranks of the test keys in iteration `t`. Returns how many were checked.
    ///
    /// # Errors
    ///
    /// The first wrong rank.
    pub fn verify_partial(&self, t: u32) -> Result<u32, WrongRank> {
        let rank = |value: u32| self.ranks.get(value as usize).copied();
        partial(self.class, &self.test_values, t, rank)
    }

    /// Puts every key at its rank. Uses the ranks up.
    pub fn sort(&mut self) {
        let (keys, sorted) = match &self.buckets {
            Some(buckets) => (buckets.keys(), &mut self.keys),
            None => (&self.keys[..], &mut self.sorted),
        };
        for &key in keys {
            let rank = &mut self.ranks[key as usize];
            *rank = rank.wrapping_sub(1);
            if let Some(place) = sorted.get_mut(*rank as usize) {
                *place = key;
            }
        }
    }

    /// Checks that the sorted keys are in order and that they are the keys.
    ///
    /// # Errors
    ///
    /// Where they are not.
    pub fn verify_full(&self) -> Result<(), NotSorted> {
        if let Some(i) = self.sorted().windows(2).position(|w| w[0] > w[1]) {
            return Err(NotSorted::At(i + 1));
        }
        if let Some(buckets) = &self.buckets {
            return match buckets.are_all_in(&self.keys) {
                true => Ok(()),
                false => Err(NotSorted::OtherKeys),
            };
        }
        // In order and with the same number of each key: nothing was lost or invented.
        let mut balance = vec![0i32; self.class.max_key() as usize];
        for (&a, &b) in self.keys.iter().zip(&self.sorted) {
            match balance.get_mut(b as usize) {
                Some(n) => *n -= 1,
                None => return Err(NotSorted::OtherKeys),
            }
            balance[a as usize] += 1;
        }
        if balance.iter().any(|&n| n != 0) {
            return Err(NotSorted::OtherKeys);
        }
        Ok(())
    }

    /// Checksum of the keys.
    pub fn keys_checksum(&self) -> u64 {
        checksum::of_words(&self.keys)
    }

    /// Checksum of the counts or ranks.
    pub fn ranks_checksum(&self) -> u64 {
        checksum::of_words(&self.ranks)
    }

    /// Checksum of the sorted keys.
    pub fn sorted_checksum(&self) -> u64 {
        checksum::of_words(self.sorted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run as the official serial program makes it; returns the verifications passed.
    fn run(class: Class, disturb: impl FnMut(&mut Is, u32)) -> u32 {
        run_of(Is::generate(class), disturb)
    }

    fn run_of(mut is: Is, mut disturb: impl FnMut(&mut Is, u32)) -> u32 {
        let mut passed = 0;
        for t in 1..=ITERATIONS {
            is.stamp(t);
            is.count();
            is.accumulate();
            disturb(&mut is, t);
            passed += is.verify_partial(t).unwrap_or(0);
        }
        is.sort();
        passed + u32::from(is.verify_full().is_ok())
    }

    #[test]
    fn class_s_verifies() {
        assert_eq!(run(Class::S, |_, _| {}), VERIFICATIONS);
    }

    #[test]
    fn class_w_verifies() {
        assert_eq!(run(Class::W, |_, _| {}), VERIFICATIONS);
    }

    #[test]
    #[cfg_attr(debug_assertions, ignore = "takes long without optimisation")]
    fn class_a_verifies() {
        assert_eq!(run(Class::A, |_, _| {}), VERIFICATIONS);
    }

    #[test]
    fn classes_verify_with_buckets() {
        for class in [Class::S, Class::W] {
            assert_eq!(run_of(Is::with_buckets(class), |_, _| {}), VERIFICATIONS);
        }
    }

    #[test]
    #[cfg_attr(debug_assertions, ignore = "takes long without optimisation")]
    fn class_a_verifies_with_buckets() {
        assert_eq!(run_of(Is::with_buckets(Class::A), |_, _| {}), VERIFICATIONS);
    }

    #[test]
    fn buckets_change_no_rank() {
        let (mut plain, mut is) = (Is::generate(Class::S), Is::with_buckets(Class::S));
        for t in 1..=2 {
            for is in [&mut plain, &mut is] {
                is.stamp(t);
                is.count();
                is.accumulate();
            }
            assert_eq!(plain.ranks, is.ranks);
        }
        plain.sort();
        is.sort();
        assert_eq!(plain.sorted(), is.sorted());
        assert_eq!(is.verify_full(), Ok(()));
        // Others in the same order are seen.
        let same = is.keys.iter().position(|&k| k == is.keys[0] + 1);
        is.keys[0] += u32::from(same.is_some());
        is.keys.sort_unstable();
        assert_eq!(is.verify_full(), Err(NotSorted::OtherKeys));
    }

    #[test]
    fn restored_keys_are_those_that_were_generated() {
        let pristine = Is::generate(Class::S);
        let mut is = pristine.clone();
        for t in 1..=ITERATIONS {
            is.stamp(t);
        }
        assert_ne!(is.keys, pristine.keys);
        is.restore(&pristine);
        assert_eq!(is.keys, pristine.keys);
    }

    #[test]
    fn a_wrong_rank_fails_and_is_named() {
        let mut is = Is::generate(Class::S);
        is.stamp(1);
        is.count();
        is.accumulate();
        assert_eq!(is.verify_partial(1), Ok(5));
        let key = is.test_values[2];
        is.ranks[key as usize - 1] += 1;
        let wrong = is.verify_partial(1).unwrap_err();
        assert_eq!(
            (wrong.test_key, wrong.expected, wrong.found),
            (2, 347, Some(348))
        );
        // The ranks of one iteration are wrong in another.
        is.ranks[key as usize - 1] -= 1;
        assert!(is.verify_partial(2).is_err());
    }

    #[test]
    fn one_bad_iteration_shows_in_the_count() {
        let passed = run(Class::S, |is, t| {
            if t == 4 {
                is.test_values[0] = 0;
            }
        });
        assert_eq!(passed, VERIFICATIONS - 5);
    }

    #[test]
    fn full_verification_sees_order_and_loss() {
        let mut is = Is::generate(Class::S);
        is.count();
        is.accumulate();
        is.sort();
        assert_eq!(is.verify_full(), Ok(()));
        let last = is.sorted.len() - 1;
        is.sorted.swap(0, last);
        assert_eq!(is.verify_full(), Err(NotSorted::At(1)));
        is.sorted.swap(0, last);
        let n = is.sorted.iter().filter(|&&k| k == is.sorted[0]).count();
        is.sorted[n - 1] = is.sorted[n];
        assert_eq!(is.verify_full(), Err(NotSorted::OtherKeys));
    }
}
