// SPDX-License-Identifier: GPL-2.0-or-later
//! A CPU's time.
//!
//! ```text
//! time at the end of the block that is being executed = base + q
//! ```
//! `q` is the word that blocks add their instructions' time to when they are entered, and the model
//! adds latencies to. A block that finds it at [`LIMIT`] or more calls the clock: so `q` is set that far
//! below the limit that the call comes when it is wanted, and `base` makes up for it.

use std::sync::atomic::{AtomicU64, Ordering};

use dyad_sim_model::clock::PS;

/// From here on blocks call the clock.
pub const LIMIT: u64 = 1 << 50;
/// Longest time between two calls.
const LONGEST: u64 = LIMIT / 2;

/// The longest pause, whatever a guest asks for, in nanoseconds.
const LONGEST_PAUSE_NS: u64 = 1_000_000;

/// When a pause ends that begins at `now` and is to take `ns` nanoseconds, if the CPU's next event is at `event`. Times are in
/// picoseconds.
pub fn pause_end(now: u64, ns: u64, event: u64) -> u64 {
    (now + ns.min(LONGEST_PAUSE_NS) * PS).min(event).max(now)
}

/// Where a CPU is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Phase {
    /// The CPU has executed nothing yet.
    New = 0,
    /// The CPU executes, or sleeps.
    Alive = 1,
    /// The machine ends: what the CPU still executes does not count.
    Ended = 2,
}

/// What turns the word `q` into time. Changed by the CPU's own thread; others may look. All times in
/// picoseconds.
#[derive(Debug, Default)]
pub struct Hand {
    base: AtomicU64,
    /// Time slept, or jumped over.
    idle: AtomicU64,
    /// Time slept while the doorbell that ended the sleep was on its way.
    ipi: AtomicU64,
    /// What the time was when the CPU's life was over.
    end: AtomicU64,
    phase: AtomicU64,
    /// The time at the end of the last block that ended with an instruction that halts, or since then as
    /// long as nothing has been executed.
    halt: AtomicU64,
}

fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

impl Hand {
    /// Time at the end of the block that the CPU executes.
    #[inline]
    pub fn time(&self, q: u64) -> u64 {
        get(&self.base).wrapping_add(q)
    }

    /// It is `now`, and the clock is to be called when it is `until`, or soon after: the new `q`.
    #[must_use]
    pub fn plan(&self, now: u64, until: u64) -> u64 {
        let q = LIMIT - until.saturating_sub(now).min(LONGEST);
        set(&self.base, now.wrapping_sub(q));
        q
    }

    /// The clock is to be called by then, if not before: the new `q`.
    #[must_use]
    pub fn look_by(&self, q: u64, until: u64) -> u64 {
        let now = self.time(q);
        let planned = now.saturating_add(LIMIT.saturating_sub(q));
        self.plan(now, planned.min(until))
    }

    /// The block that is being executed ends with an instruction that halts the CPU, unless an
    /// interrupt is pending.
    pub fn halts(&self, q: u64) {
        set(&self.halt, self.time(q));
    }

    /// Whether the CPU, which does not execute anything now, has halted. Otherwise somebody has stopped
    /// it between two blocks: time that has passed since it might have halted has passed in others.
    pub fn has_halted(&self, q: u64) -> bool {
        get(&self.halt) == self.time(q)
    }

    /// A CPU's thread goes on at `now`, because of nothing that wakes a CPU: somebody has stopped the machine,
    /// or lets it go on. If it has halted, it has still halted.
    pub fn nothing_came(&self, q: u64, now: u64) {
        if self.has_halted(q) {
            set(&self.halt, now);
        }
    }

    /// So much of the time until `now` was slept, or jumped over.
    pub fn slept(&self, since: u64, now: u64) {
        set(&self.idle, get(&self.idle) + now.saturating_sub(since));
    }

    /// So much of the time until `now` was slept, and a doorbell that was on its way for `flight` has ended
    /// it.
    pub fn slept_until_rung(&self, since: u64, now: u64, flight: u64) {
        let waited = now.saturating_sub(since).min(flight);
        set(&self.ipi, get(&self.ipi) + waited);
        self.slept(since, now - waited);
    }

    /// The CPU's life is over; its time was `time`.
    pub fn end(&self, time: u64) {
        set(&self.end, time);
        self.enter(Phase::Ended);
    }

    /// Its time, or what it was when its life was over.
    pub fn final_time(&self, q: u64) -> u64 {
        match self.phase() {
            Phase::Ended => get(&self.end),
            Phase::New | Phase::Alive => self.time(q),
        }
    }

    /// See [`Phase`].
    pub fn phase(&self) -> Phase {
        match get(&self.phase) {
            0 => Phase::New,
            1 => Phase::Alive,
            _ => Phase::Ended,
        }
    }

    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        set(&self.phase, phase as u64);
    }

    /// Time slept while the doorbell that ended the sleep was on its way.
    pub fn ipi(&self) -> u64 {
        get(&self.ipi)
    }

    /// Time slept or jumped over, without [`ipi`](Hand::ipi).
    pub fn idle(&self) -> u64 {
        get(&self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_at_the_next_event_and_is_bounded() {
        let now = 7 * PS;
        assert_eq!(pause_end(now, 10, u64::MAX), 17 * PS);
        assert_eq!(pause_end(now, 10, 9 * PS), 9 * PS);
        // An event that is overdue, and no pause.
        assert_eq!(pause_end(now, 10, 3 * PS), now);
        assert_eq!(pause_end(now, 0, u64::MAX), now);
        assert_eq!(
            pause_end(now, u64::MAX, u64::MAX),
            now + LONGEST_PAUSE_NS * PS
        );
    }

    #[test]
    fn plans_do_not_change_the_time() {
        let hand = Hand::default();
        assert_eq!(hand.time(0), 0);
        for (now, until) in [(0, 0), (0, 500), (1 << 49, u64::MAX), (1 << 62, 3)] {
            let q = hand.plan(now, until);
            assert_eq!(hand.time(q), now);
            assert_eq!(LIMIT - q, until.saturating_sub(now).min(LONGEST));
        }
    }

    #[test]
    fn calls_come_earlier_and_never_later() {
        let hand = Hand::default();
        let q = hand.plan(1000, 5000) + 100;
        let q = hand.look_by(q, 3000);
        assert_eq!((hand.time(q), LIMIT - q), (1100, 1900));
        let q = hand.look_by(q, 4000);
        assert_eq!((hand.time(q), LIMIT - q), (1100, 1900));
        let q = hand.look_by(q, 7);
        assert_eq!((hand.time(q), LIMIT - q), (1100, 0));
        // Overdue already.
        let q = hand.look_by(q + 50, 9000);
        assert_eq!((hand.time(q), LIMIT - q), (1150, 0));
    }

    #[test]
    fn who_has_halted_has_executed_nothing_since() {
        let hand = Hand::default();
        let q = hand.plan(1000, 5000) + 30;
        assert!(!hand.has_halted(q));
        hand.halts(q);
        assert!(hand.has_halted(q));
        assert!(hand.has_halted(hand.plan(1030, 7000)));
        assert!(!hand.has_halted(q + 1));
    }

    #[test]
    fn who_has_halted_stays_so_when_time_goes_by() {
        let hand = Hand::default();
        let q = hand.plan(1000, 5000) + 30;
        hand.nothing_came(q, 2000);
        assert!(!hand.has_halted(hand.plan(2000, 5000)), "it has not");
        let q = hand.plan(1000, 5000) + 30;
        hand.halts(q);
        hand.nothing_came(q, 2000);
        let q = hand.plan(2000, 2000);
        assert!(hand.has_halted(q));
        hand.nothing_came(q, 2000);
        assert!(hand.has_halted(q), "stopped, and let go on");
        assert!(!hand.has_halted(q + 1), "it has executed something");
        assert!(!hand.has_halted(hand.plan(3000, 3000)), "an event has come");
    }

    #[test]
    fn time_stands_still_after_the_end() {
        let hand = Hand::default();
        hand.enter(Phase::Alive);
        let q = hand.plan(10, 20);
        assert_eq!((hand.phase(), hand.final_time(q + 5)), (Phase::Alive, 15));
        hand.slept(10, 25);
        hand.slept(30, 25);
        hand.end(12);
        assert_eq!((hand.final_time(q + 50), hand.idle()), (12, 15));
        // A sleep shorter than the flight of the doorbell is all waiting for it.
        hand.slept_until_rung(100, 130, 20);
        assert_eq!((hand.idle(), hand.ipi()), (25, 20));
        hand.slept_until_rung(200, 205, 20);
        assert_eq!((hand.idle(), hand.ipi()), (25, 25));
    }
}
