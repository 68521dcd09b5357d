// SPDX-License-Identifier: GPL-2.0-or-later
//! What has passed on a CPU, and the part of it in which the CPU only waited for messages.

use std::ops::{Add, Sub};

use dyad_abi::marker::Marker;
use dyad_sim_model::account::Counters;
use dyad_sim_model::shared::PUBLISHED_WORDS;

use crate::regions::Measured;

/// What has passed on a CPU in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What was counted.
    pub counts: Counters,
    /// Simulated time; 0 without a clock.
    pub time_ps: u64,
    /// The part of it in which the CPU was halted.
    pub idle_ps: u64,
    /// The part of the time in which the CPU was halted and a doorbell was on its way.
    pub ipi_ps: u64,
}

// What is known of another CPU's sleep can be taken back later, so that a part can be less than nothing for a while: sums
// come out right nevertheless.
impl Add for Part {
    type Output = Part;
    fn add(self, other: Part) -> Part {
        Part {
            counts: self.counts + other.counts,
            time_ps: self.time_ps.wrapping_add(other.time_ps),
            idle_ps: self.idle_ps.wrapping_add(other.idle_ps),
            ipi_ps: self.ipi_ps.wrapping_add(other.ipi_ps),
        }
    }
}

impl Sub for Part {
    type Output = Part;
    fn sub(self, other: Part) -> Part {
        Part {
            counts: self.counts - other.counts,
            time_ps: self.time_ps.wrapping_sub(other.time_ps),
            idle_ps: self.idle_ps.wrapping_sub(other.idle_ps),
            ipi_ps: self.ipi_ps.wrapping_sub(other.ipi_ps),
        }
    }
}

impl Part {
    #[inline(always)]
    fn put(&self, put: &mut impl FnMut(u64)) {
        self.counts.each(&mut *put);
        [self.time_ps, self.idle_ps, self.ipi_ps]
            .into_iter()
            .for_each(put);
    }

    fn take(take: &mut impl FnMut() -> u64) -> Part {
        Part {
            counts: Counters::of(&mut *take),
            time_ps: take(),
            idle_ps: take(),
            ipi_ps: take(),
        }
    }

    fn with_sleep(mut self, more: u64) -> Part {
        self.time_ps += more;
        self.idle_ps += more;
        self
    }

    /// A CPU that was taken to sleep may have woken up before: what it then did in that time has been taken for sleep, of
    /// which less than nothing can be left. There was so much more time instead.
    pub fn without_debts(mut self) -> Part {
        for part in [&mut self.idle_ps, &mut self.ipi_ps] {
            let debt = (*part as i64).min(0).unsigned_abs();
            *part = part.wrapping_add(debt);
            self.time_ps = self.time_ps.wrapping_add(debt);
        }
        self
    }
}

/// What has passed on a CPU in some time, and in that part of it in which it only waited for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// All of it.
    pub all: Part,
    /// The part between [`Marker::AWAITS`] and [`Marker::COMES`].
    pub awaited: Part,
}

impl Add for Passed {
    type Output = Passed;
    fn add(self, other: Passed) -> Passed {
        Passed {
            all: self.all + other.all,
            awaited: self.awaited + other.awaited,
        }
    }
}

impl Sub for Passed {
    type Output = Passed;
    fn sub(self, other: Passed) -> Passed {
        Passed {
            all: self.all - other.all,
            awaited: self.awaited - other.awaited,
        }
    }
}

impl Measured for Passed {
    const WORDS: usize = PUBLISHED_WORDS;

    fn time_ps(&self) -> u64 {
        self.all.time_ps
    }

    #[inline(always)]
    fn put(&self, seldom: bool, put: &mut impl FnMut(u64)) {
        self.all.put(put);
        if seldom {
            self.awaited.put(put);
        }
    }

    fn take(take: &mut impl FnMut() -> u64) -> Passed {
        Passed {
            all: Part::take(take),
            awaited: Part::take(take),
        }
    }

    fn asleep_until(self, time_ps: u64, awaits: bool) -> Passed {
        let more = time_ps.saturating_sub(self.all.time_ps);
        Passed {
            all: self.all.with_sleep(more),
            awaited: self.awaited.with_sleep(if awaits { more } else { 0 }),
        }
    }
}

/// The waits of a CPU for messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Awaited {
    /// What had passed when the wait began that lasts.
    since: Option<Part>,
    /// What passed in those that are over.
    pub(super) sum: Part,
    /// Changes when what passed in waits does, other than while one lasts.
    changes: u64,
}

impl Awaited {
    /// Follows a marker; `now` is what has passed so far. Gives what of it passed in waits.
    pub(super) fn marker(&mut self, marker: Marker, now: Part) -> Part {
        self.changes += 1;
        match marker {
            Marker::AWAITS => self.since = self.since.or(Some(now)),
            Marker::COMES => {
                self.sum = self.at(now);
                self.since = None;
            }
            _ => {}
        }
        self.at(now)
    }

    /// What of `now` passed in waits.
    pub(super) fn at(&self, now: Part) -> Part {
        self.sum + self.since.map_or(Part::default(), |then| now - then)
    }

    /// A number that is another one whenever what passed in waits may be.
    pub(super) fn version(&mut self) -> u64 {
        self.changes += u64::from(self.lasts());
        self.changes
    }

    /// Whether a wait lasts.
    pub(super) fn lasts(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ps: u64) -> Part {
        Part {
            time_ps,
            ..Part::default()
        }
    }

    #[test]
    fn waits_for_messages_add_up_and_count_while_they_last() {
        let mut awaited = Awaited::default();
        let mut mark = |marker, now| awaited.marker(marker, at(now)).time_ps;
        // An end without a begin is none.
        assert_eq!(mark(Marker::COMES, 5), 0);
        assert_eq!(mark(Marker::AWAITS, 10), 0);
        // Halts within a wait are others' markers, and a second begin is none.
        assert_eq!(mark(Marker::WAITS, 14), 4);
        assert_eq!(mark(Marker::AWAITS, 15), 5);
        assert_eq!(mark(Marker::WORKS, 17), 7);
        assert_eq!(mark(Marker::COMES, 30), 20);
        assert_eq!(mark(Marker::WAITS, 40), 20);
        assert_eq!(mark(Marker::AWAITS, 100), 20);
        assert_eq!(mark(Marker::COMES, 103), 23);
        assert_eq!(awaited.sum.time_ps, 23);
    }
}
