// SPDX-License-Identifier: GPL-2.0-or-later
//! What has passed on a CPU, and the part of it in which the CPU only waited for messages.

use std::ops::{Add, Sub};

use dyad_abi::marker::Marker;
use dyad_sim_model::account::Counters;

use crate::regions::Timed;

/// A structure that is added and subtracted field by field.
macro_rules! by_field {
    ($name:ident: $($field:ident),*) => {
        impl Add for $name {
            type Output = $name;
            fn add(self, other: $name) -> $name {
                $name { $($field: self.$field + other.$field),* }
            }
        }

        impl Sub for $name {
            type Output = $name;
            fn sub(self, other: $name) -> $name {
                $name { $($field: self.$field - other.$field),* }
            }
        }
    };
}

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

by_field!(Part: counts, time_ps, idle_ps, ipi_ps);

/// What has passed on a CPU in some time, and in that part of it in which it only waited for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// All of it.
    pub all: Part,
    /// The part between [`Marker::AWAITS`] and [`Marker::COMES`].
    pub awaited: Part,
}

by_field!(Passed: all, awaited);

impl Timed for Passed {
    fn time_ps(&self) -> u64 {
        self.all.time_ps
    }
}

/// The waits of a CPU for messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Awaited {
    /// What had passed when the wait began that lasts.
    since: Option<Part>,
    /// What passed in those that are over.
    pub(super) sum: Part,
}

impl Awaited {
    /// Follows a marker; `now` is what has passed so far. Gives what of it passed in waits.
    pub(super) fn marker(&mut self, marker: Marker, now: Part) -> Part {
        let lasts = |since: Option<Part>| since.map_or(Part::default(), |then| now - then);
        match marker {
            Marker::AWAITS => self.since = self.since.or(Some(now)),
            Marker::COMES => self.sum = self.sum + lasts(self.since.take()),
            _ => {}
        }
        self.sum + lasts(self.since)
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
