//! A run of IS that several threads share, with or without buckets.
//!
//! The keys, and then the values of keys, are shared out. What a thread has written, others read behind a barrier.
//!
//! | without buckets | with buckets | between two barriers |
//! |---|---|---|
//! | count own keys, by value | count own keys, by bucket | |
//! | sum own values up over all threads | put own keys into the buckets | all counts of the step before |
//! | add what lies below own values | count and sum up own buckets | the sums, or all keys in their buckets |
//! | thread 0 looks at ranks, and changes two keys | the same | all ranks |
//!
//! Ranks do not depend on who has counted what, so results are those of one thread, to the bit.

use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use super::buckets::Buckets;
use super::{Class, ITERATIONS, Is, TEST_KEYS, VERIFICATIONS, WrongRank};
use crate::checksum::{self, Fnv};
use crate::kernel::Verdict;

/// Words that threads share. Barriers order what is done with them.
type Words = Vec<AtomicU32>;

fn words(count: usize) -> Words {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

fn values(words: &Words) -> Vec<u32> {
    words.iter().map(|w| w.load(Relaxed)).collect()
}

/// Adds one to a word that only the caller changes. Gives the value before.
fn count(word: &AtomicU32) -> u32 {
    let n = word.load(Relaxed);
    word.store(n.wrapping_add(1), Relaxed);
    n
}

/// The arrays of a run.
pub struct Shared {
    class: Class,
    threads: usize,
    /// By how much a key is shifted to the right to give the number of its bucket; without buckets: `None`.
    shift: Option<u32>,
    keys: Words,
    /// The keys in their buckets.
    spread: Words,
    /// Of each thread: its keys by value, or by bucket.
    counts: Vec<Words>,
    /// Of each thread: the keys of its values.
    sums: Words,
    ranks: Words,
    sorted: Words,
}

/// What thread 0 finds out.
#[derive(Clone, Debug)]
pub struct Findings {
    test_values: [u32; TEST_KEYS],
    passed: u32,
    wrong: Option<WrongRank>,
    sum: Fnv,
}

/// The part of a whole that is thread `n`'s.
fn part(len: usize, n: usize, threads: usize) -> Range<usize> {
    len * n / threads..len * (n + 1) / threads
}

impl Shared {
    /// Generates the keys, for so many threads.
    pub fn new(class: Class, buckets: bool, threads: u32) -> (Shared, Findings) {
        let keys = Is::generate_for(class, 0).keys;
        let mut sum = Fnv::new();
        sum.word(checksum::of_words(&keys));
        let shift = buckets.then(|| Buckets::shift_of(class));
        let threads = threads.max(1) as usize;
        let counted = class.max_key() as usize >> shift.unwrap_or(0);
        let shared = Shared {
            class,
            threads,
            shift,
            spread: words(if buckets { keys.len() } else { 0 }),
            counts: (0..threads).map(|_| words(counted)).collect(),
            sums: words(threads),
            ranks: words(class.max_key() as usize),
            sorted: words(keys.len()),
            keys: keys.into_iter().map(AtomicU32::new).collect(),
        };
        let findings = Findings {
            test_values: [0; TEST_KEYS],
            passed: 0,
            wrong: None,
            sum,
        };
        (shared, findings)
    }

    /// The part of thread `me` in all iterations. Thread 0 has the findings. `wait` waits until all threads have called it.
    ///
    /// # Errors
    ///
    /// Those of `wait`.
    pub fn iterate<E>(
        &self,
        me: u32,
        mut findings: Option<&mut Findings>,
        mut wait: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        for t in 1..=ITERATIONS {
            if let Some(findings) = &mut findings {
                findings.test_values = self.stamp(t);
            }
            wait()?;
            match self.shift {
                Some(shift) => self.rank_in_buckets(me as usize, shift, &mut wait)?,
                None => self.rank(me as usize, &mut wait)?,
            }
            if let Some(findings) = &mut findings {
                self.look(t, findings);
            }
        }
        Ok(())
    }

    /// The part of thread `me` in the sort at the end.
    ///
    /// # Errors
    ///
    /// Those of `wait`.
    pub fn sort<E>(&self, me: u32, mut wait: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        // Thread 0 has looked at the ranks.
        wait()?;
        let own = part(self.ranks.len(), me as usize, self.threads);
        let keys = match self.shift {
            Some(_) => &self.spread,
            None => &self.keys,
        };
        for key in keys.iter().map(|k| k.load(Relaxed)) {
            if own.contains(&(key as usize)) {
                let rank = &self.ranks[key as usize];
                let place = rank.load(Relaxed).wrapping_sub(1);
                rank.store(place, Relaxed);
                if let Some(sorted) = self.sorted.get(place as usize) {
                    sorted.store(key, Relaxed);
                }
            }
        }
        wait()
    }

    fn stamp(&self, t: u32) -> [u32; TEST_KEYS] {
        self.keys[t as usize].store(t, Relaxed);
        self.keys[(t + ITERATIONS) as usize].store(self.class.max_key() - t, Relaxed);
        let test_keys = self.class.test_keys();
        test_keys.map(|(at, _)| self.keys[at].load(Relaxed))
    }

    fn own_keys(&self, me: usize) -> impl Iterator<Item = u32> {
        let own = part(self.keys.len(), me, self.threads);
        self.keys[own].iter().map(|k| k.load(Relaxed))
    }

    fn rank<E>(&self, me: usize, wait: &mut impl FnMut() -> Result<(), E>) -> Result<(), E> {
        let own = &self.counts[me];
        own.iter().for_each(|n| n.store(0, Relaxed));
        for key in self.own_keys(me) {
            count(&own[key as usize]);
        }
        wait()?;
        let values = part(self.ranks.len(), me, self.threads);
        let mut sum = 0;
        for value in values.clone() {
            let counts = self.counts.iter().map(|c| c[value].load(Relaxed));
            sum += counts.sum::<u32>();
            self.ranks[value].store(sum, Relaxed);
        }
        self.sums[me].store(sum, Relaxed);
        wait()?;
        let below: u32 = self.sums[..me].iter().map(|s| s.load(Relaxed)).sum();
        for rank in &self.ranks[values] {
            rank.store(rank.load(Relaxed) + below, Relaxed);
        }
        wait()
    }

    fn rank_in_buckets<E>(
        &self,
        me: usize,
        shift: u32,
        wait: &mut impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let own = &self.counts[me];
        own.iter().for_each(|n| n.store(0, Relaxed));
        for key in self.own_keys(me) {
            count(&own[(key >> shift) as usize]);
        }
        wait()?;
        // Within a bucket, the keys of each thread lie behind those of the threads before it.
        let (mut starts, mut next) = (Vec::new(), Vec::new());
        let mut start = 0;
        for bucket in 0..own.len() {
            starts.push(start);
            for (thread, counts) in self.counts.iter().enumerate() {
                if thread == me {
                    next.push(start);
                }
                start += counts[bucket].load(Relaxed);
            }
        }
        starts.push(start);
        for key in self.own_keys(me) {
            let next = &mut next[(key >> shift) as usize];
            if let Some(place) = self.spread.get(*next as usize) {
                place.store(key, Relaxed);
            }
            *next += 1;
        }
        wait()?;
        // A thread has the buckets that begin in its part of the keys.
        let own = part(self.keys.len(), me, self.threads);
        for (bucket, bounds) in starts.windows(2).enumerate() {
            let is_last = me + 1 == self.threads && bounds[0] as usize == own.end;
            if !own.contains(&(bounds[0] as usize)) && !is_last {
                continue;
            }
            let ranks = &self.ranks[bucket << shift..(bucket + 1) << shift];
            ranks.iter().for_each(|rank| rank.store(0, Relaxed));
            for key in &self.spread[bounds[0] as usize..bounds[1] as usize] {
                count(&self.ranks[key.load(Relaxed) as usize]);
            }
            let mut sum = bounds[0];
            for rank in ranks {
                sum += rank.load(Relaxed);
                rank.store(sum, Relaxed);
            }
        }
        wait()
    }

    /// Looks at the ranks of an iteration.
    fn look(&self, t: u32, findings: &mut Findings) {
        let rank = |value: u32| self.ranks.get(value as usize).map(|r| r.load(Relaxed));
        match super::partial(self.class, &findings.test_values, t, rank) {
            Ok(n) => findings.passed += n,
            Err(e) => findings.wrong = findings.wrong.or(Some(e)),
        }
        if self.shift.is_none() {
            findings.sum.word(checksum::of_words(&values(&self.ranks)));
        }
    }

    /// The verdict at the end, and the checksum of all results.
    pub fn conclude(&self, mut findings: Findings) -> (Verdict, u64) {
        let (keys, sorted) = (values(&self.keys), values(&self.sorted));
        findings.sum.word(checksum::of_words(&sorted));
        let buckets = self.shift.map(|_| Buckets::of(values(&self.spread)));
        let is = Is {
            class: self.class,
            ranks: Vec::new(),
            test_values: findings.test_values,
            // With buckets the keys are sorted into their own array.
            keys: match buckets {
                Some(_) => sorted.clone(),
                None => keys,
            },
            sorted,
            buckets,
        };
        let order = is.verify_full();
        let passed = findings.passed + u32::from(order.is_ok());
        let detail = match (&findings.wrong, &order) {
            (Some(e), _) => format!("{e}"),
            (None, Err(e)) => format!("{e}"),
            _ => format!("{passed} of {VERIFICATIONS}"),
        };
        let ok = passed == VERIFICATIONS;
        (Verdict { ok, detail }, findings.sum.value())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::is::Run;
    use crate::kernel::{Kernel, run};

    fn with(threads: u32, buckets: bool) -> (Verdict, u64) {
        let (shared, mut findings) = Shared::new(Class::S, buckets, threads);
        let barrier = Barrier::new(threads as usize);
        let work = |me, findings: Option<&mut Findings>| {
            let wait = || {
                barrier.wait();
                Ok::<(), ()>(())
            };
            shared.iterate(me, findings, wait).unwrap();
            shared.sort(me, wait).unwrap();
        };
        thread::scope(|s| {
            for me in 1..threads {
                s.spawn(move || work(me, None));
            }
            work(0, Some(&mut findings));
        });
        shared.conclude(findings)
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn results_are_those_of_one_thread() {
        for (buckets, mut one) in [
            (false, Run::new(Class::S)),
            (true, Run::with_buckets(Class::S)),
        ] {
            run(&mut one, |_| (), || ());
            for threads in [1, 2, 3, 8, 64] {
                let (verdict, sum) = with(threads, buckets);
                assert_eq!((verdict.ok, sum), (true, one.checksum()), "{verdict:?}");
            }
        }
    }

    #[test]
    fn keys_that_are_lost_are_seen() {
        let (shared, mut findings) = Shared::new(Class::S, true, 1);
        let wait = || Ok::<(), ()>(());
        shared.iterate(0, Some(&mut findings), wait).unwrap();
        shared.sort(0, wait).unwrap();
        assert!(shared.conclude(findings.clone()).0.ok);
        let last = Class::S.keys() - 1;
        shared.sorted[last].store(0, Relaxed);
        assert!(!shared.conclude(findings).0.ok);
    }
}
