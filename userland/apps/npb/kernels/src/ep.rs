//! EP: makes pairs of normally distributed numbers and counts how large they are. Parts of the work need nothing of each other.
//!
//! The pairs come in batches, each with a place of its own in the sequence of random numbers, so any thread can make any batch. What
//! batches have given is added up in their order: the result is the same to the bit, however they were shared out.

use alloc::format;
use alloc::vec::Vec;

use crate::checksum::Fnv;
use crate::class::Class;
use crate::kernel::{Cursor, Kernel, Phase, Plan, Verdict, off};
use crate::math::{ln, sqrt};
use crate::rng::{MULTIPLIER, Randlc};

/// log2 of the pairs of a batch.
const BATCH_BITS: u32 = 16;
/// The seed of the official program.
const SEED: u64 = 271_828_183;
/// By how much sums may differ from the official ones, as a part of them.
const EPSILON: f64 = 1e-8;
/// Pairs are counted by the larger of their numbers, cut to an integer.
const RINGS: usize = 10;
/// Phases that a run is divided into: it is measured as a whole.
pub const ITERATIONS: u32 = 16;

impl Class {
    /// log2 of the number of pairs.
    const fn pairs(self) -> u32 {
        match self {
            Class::S => 24,
            Class::W => 25,
            Class::A => 28,
        }
    }

    /// The official sums.
    const fn normal_sums(self) -> [f64; 2] {
        match self {
            Class::S => [-3.247_834_652_034_74e3, -6.958_407_078_382_297e3],
            Class::W => [-2.863_319_731_645_753e3, -6.320_053_679_109_499e3],
            Class::A => [-4.295_875_165_629_892e3, -1.580_732_573_678_431e4],
        }
    }

    /// Number of batches.
    pub const fn batches(self) -> u32 {
        1 << (self.pairs() - BATCH_BITS)
    }
}

/// What a batch has given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Batch {
    /// Sums of the first and of the second number of each pair.
    sums: [f64; 2],
    /// Pairs by size.
    rings: [u32; RINGS],
}

/// `a^(2 k)` for each pair before a batch: where its random numbers begin.
fn seed_of(batch: u32) -> u64 {
    const MASK: u64 = (1 << 46) - 1;
    let times = |a: u64, b: u64| (u128::from(a) * u128::from(b)) as u64 & MASK;
    let (mut factor, mut power) = (1, MULTIPLIER as u64);
    let mut n = u64::from(batch) << (BATCH_BITS + 1);
    while n > 0 {
        if n & 1 == 1 {
            factor = times(factor, power);
        }
        power = times(power, power);
        n >>= 1;
    }
    times(SEED, factor)
}

impl Batch {
    /// Makes the pairs of a batch.
    pub fn make(batch: u32) -> Batch {
        let mut rng = Randlc::new(seed_of(batch) as f64, MULTIPLIER);
        let mut made = Batch::default();
        for _ in 0..1u32 << BATCH_BITS {
            let (x, y) = (2.0 * rng.next_f64() - 1.0, 2.0 * rng.next_f64() - 1.0);
            let square = x * x + y * y;
            if square <= 1.0 {
                let scale = sqrt(-2.0 * ln(square) / square);
                let (x, y) = (x * scale, y * scale);
                let size = if x.abs() > y.abs() { x.abs() } else { y.abs() };
                if let Some(ring) = made.rings.get_mut(size as usize) {
                    *ring += 1;
                }
                made.sums[0] += x;
                made.sums[1] += y;
            }
        }
        made
    }
}

/// What all batches have given, in their order.
#[derive(Clone, Debug)]
pub struct Sums {
    class: Class,
    sums: [f64; 2],
    rings: [u64; RINGS],
    batches: u32,
}

impl Sums {
    /// Adds batches up.
    pub fn of(class: Class, batches: &[Batch]) -> Sums {
        let mut all = Sums {
            class,
            sums: [0.0; 2],
            rings: [0; RINGS],
            batches: batches.len() as u32,
        };
        for batch in batches {
            for (sum, more) in all.sums.iter_mut().zip(batch.sums) {
                *sum += more;
            }
            for (sum, more) in all.rings.iter_mut().zip(batch.rings) {
                *sum += u64::from(more);
            }
        }
        all
    }

    /// Compares the sums with the official ones.
    pub fn verify(&self) -> Verdict {
        let official = self.class.normal_sums();
        let differs = |n: usize| off(self.sums[n], official[n]);
        Verdict {
            ok: self.batches == self.class.batches() && (0..2).all(|n| differs(n) <= EPSILON),
            detail: format!("sums {:e} and {:e}", self.sums[0], self.sums[1]),
        }
    }

    /// Checksum, to the bit.
    pub fn checksum(&self) -> u64 {
        let mut sum = Fnv::new();
        for word in self.sums.map(f64::to_bits).into_iter().chain(self.rings) {
            sum.word(word);
        }
        sum.value()
    }
}

static PLAN: Plan<()> = Plan {
    start: &[],
    untimed: 0,
    each: &[()],
    iterations: ITERATIONS,
    end: &[],
};

/// A run by one thread.
#[derive(Clone, Debug)]
pub struct Run {
    class: Class,
    cursor: Cursor<()>,
    batches: Vec<Batch>,
}

impl Run {
    /// Nothing is made yet.
    pub fn new(class: Class) -> Run {
        Run {
            class,
            cursor: Cursor::new(&PLAN),
            batches: Vec::with_capacity(class.batches() as usize),
        }
    }

    fn sums(&self) -> Sums {
        Sums::of(self.class, &self.batches)
    }
}

impl Kernel for Run {
    fn next(&self) -> Option<Phase> {
        self.cursor.phase(|()| "make pairs")
    }

    fn advance(&mut self, point: &mut impl FnMut()) {
        let Some(((), t, _)) = self.cursor.step() else {
            return;
        };
        let end = self.class.batches() * t / ITERATIONS;
        while (self.batches.len() as u32) < end {
            point();
            let batch = Batch::make(self.batches.len() as u32);
            self.batches.push(batch);
        }
        self.cursor.pass();
    }

    fn verify(&self) -> Verdict {
        let verdict = self.sums().verify();
        Verdict {
            ok: verdict.ok && self.cursor.step().is_none(),
            ..verdict
        }
    }

    fn checksum(&self) -> u64 {
        self.sums().checksum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::run;

    #[test]
    fn batches_go_on_where_the_one_before_has_ended() {
        let mut rng = Randlc::new(seed_of(0) as f64, MULTIPLIER);
        for _ in 0..2u32 << BATCH_BITS {
            rng.next_f64();
        }
        let mut next = Randlc::new(seed_of(1) as f64, MULTIPLIER);
        assert_eq!(rng.next_f64().to_bits(), next.next_f64().to_bits());
    }

    #[test]
    #[cfg_attr(debug_assertions, ignore = "takes long without optimisation")]
    fn classes_verify() {
        for class in [Class::S, Class::W] {
            let mut whole = Run::new(class);
            let (mut phases, mut points) = (0, 0);
            run(&mut whole, |_| phases += 1, || points += 1);
            assert!(whole.verify().ok, "{:?}", whole.verify());
            assert_eq!((phases, points), (ITERATIONS, class.batches()));
        }
    }

    #[test]
    fn what_is_missing_or_made_twice_is_seen() {
        let batches: Vec<Batch> = (0..2).map(Batch::make).collect();
        assert_ne!(batches[0], batches[1]);
        let all = Sums::of(Class::S, &batches);
        assert!(!all.verify().ok);
        let swapped = Sums::of(Class::S, &[batches[1], batches[0]]);
        assert_eq!(all.rings, swapped.rings);
        assert!(!Run::new(Class::S).verify().ok);
    }
}
