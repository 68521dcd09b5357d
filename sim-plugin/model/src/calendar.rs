//! The calendar of a channel: when it carries which line.
//!
//! A channel has a bandwidth, so it carries a line of [`LINE_BYTES`] in a *slot* of a fixed length. Simulated time is cut
//! into slots. A request at a time gets the first free slot that begins no earlier than the slot of that time, and waits for
//! it. The times of CPUs differ by up to the lag and the quantum of the clock, so requests do not come in the order of
//! their times. A slot that is free stays so until somebody needs it, however late in the order of the host. The set of
//! slots that are taken, and thereby the sum of all waits, do not depend on the order in which requests come.
//!
//! With requests at random times (Poisson) the mean wait is that of a queue with one server and a fixed time of service
//! (M/D/1): `load / (2 (1 - load))` slots.
//!
//! ```text
//!  63      32 31      0
//! | round    | slots   |      word (slot / 32) mod words
//! ```
//!
//! A word has 32 slots, and says for which round of the ring they are. All zeros is a word of round 0 without a taken slot.
//! A word changes by one compare-and-swap, and nothing else depends on it: a process that ends anywhere leaves a calendar
//! that is whole. A request for a later round makes a word new. A request that is a whole ring behind another one waits for
//! nothing, and leaves no trace.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{ClockConfig, LINE_BYTES, SLACK_NS};

/// Slots of a word.
const SLOTS: u64 = 32;
/// Where a word has its round.
const ROUND: u32 = 32;
/// How many times the largest difference of two CPUs' times the ring of a calendar is long.
const SPREADS: u64 = 4;
/// Fewest words of a calendar. Its slots are eight times the lines of a last level of 4 MiB, which a CPU can write back at
/// once.
const LEAST_WORDS: u64 = 1 << 14;
/// Most words of a calendar.
const MOST_WORDS: u64 = 1 << 17;

/// Picoseconds of a slot of a channel with this bandwidth in MB/s. `None`: the channel has no limit.
pub const fn slot_ps(bandwidth: u64) -> Option<NonZeroU64> {
    if bandwidth == 0 {
        return None;
    }
    // Bytes by 10^6 bytes a second are microseconds.
    let nearest = (LINE_BYTES * 1_000_000 + bandwidth / 2) / bandwidth;
    NonZeroU64::new(if nearest == 0 { 1 } else { nearest })
}

/// Words of a calendar with such slots, where CPUs have a clock with these settings.
pub fn words(slot_ps: NonZeroU64, clock: &ClockConfig) -> usize {
    let spread_ns = clock.quantum_ns + clock.lag_ns + SLACK_NS;
    let ring_ps = SPREADS.saturating_mul(spread_ns).saturating_mul(1000);
    let words = ring_ps / (SLOTS * slot_ps.get());
    words.next_power_of_two().clamp(LEAST_WORDS, MOST_WORDS) as usize
}

/// The calendar of a channel. Initially all its words are zero.
#[derive(Clone, Copy, Debug)]
pub struct Calendar<'a> {
    words: &'a [AtomicU64],
    slot_ps: NonZeroU64,
}

/// What a word says to a request for one of its slots.
enum Answer {
    /// The slot, counted from the beginning of the word.
    Slot(u64),
    /// The slots that would do are taken.
    Full,
    /// The word is for a later round.
    Past,
}

impl<'a> Calendar<'a> {
    /// A calendar in these words.
    pub const fn new(words: &'a [AtomicU64], slot_ps: NonZeroU64) -> Calendar<'a> {
        Calendar { words, slot_ps }
    }

    /// Reserves a slot for a line that is asked for at a time in picoseconds. Returns the wait in picoseconds. If the
    /// whole ring is taken, the wait is as long as the ring.
    pub fn reserve(&self, at: u64) -> u64 {
        let asked = at / self.slot_ps;
        let first = asked / SLOTS;
        let mut from = asked % SLOTS;
        let mut group = first;
        while group < first + self.words.len() as u64 {
            match self.reserve_in(group, from) {
                Answer::Slot(slot) => {
                    from = slot;
                    break;
                }
                Answer::Past => break,
                Answer::Full => (group, from) = (group + 1, 0),
            }
        }
        (group * SLOTS + from - asked) * self.slot_ps.get()
    }

    /// Reserves the first free slot of a group of them, from slot `from` of the group on.
    fn reserve_in(&self, group: u64, from: u64) -> Answer {
        let words = self.words.len() as u64;
        let word = &self.words[(group % words) as usize];
        // Rounds return after 2^32 of them, which is more time than any run has.
        let round = (group / words) as u32;
        // A word publishes nothing but itself.
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let age = round.wrapping_sub((old >> ROUND) as u32) as i32;
            let reserved = match age {
                0 => old as u32,
                1.. => 0,
                _ => return Answer::Past,
            };
            let free = !reserved >> from << from;
            if free == 0 {
                return Answer::Full;
            }
            let slot = free.trailing_zeros();
            let new = u64::from(round) << ROUND | u64::from(reserved | 1 << slot);
            match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Answer::Slot(slot.into()),
                Err(changed) => old = changed,
            }
        }
    }

    /// How many slots the words say are taken, of all rounds.
    #[cfg(test)]
    pub(crate) fn reserved(&self) -> u64 {
        let slots =
            |word: &AtomicU64| u64::from((word.load(Ordering::Relaxed) as u32).count_ones());
        self.words.iter().map(slots).sum()
    }
}
