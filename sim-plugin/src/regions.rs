// SPDX-License-Identifier: GPL-2.0-or-later
//! Regions of interest: what a CPU has counted between the markers of a window, added up by window.
//!
//! A CPU has at most one open region; the states are those of [`dyad_abi::marker`].

use std::collections::BTreeMap;
use std::ops::{Add, Sub};

use dyad_abi::marker::{Marker, MarkerOp, WindowId};

/// Passes of which it is kept how long each took.
pub const KEPT: usize = 1 << 16;

/// Something of which a part is time.
pub trait Timed {
    /// That part, in picoseconds.
    fn time_ps(&self) -> u64;
}

/// All passes through a region on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region<T> {
    /// Number of passes.
    pub n: u64,
    /// What was counted in all of them.
    pub sum: T,
    /// How long the first [`KEPT`] of them took.
    pub times_ps: Vec<u64>,
}

/// The regions of a CPU.
#[derive(Clone, Debug, Default)]
pub struct Regions<T> {
    open: Option<(WindowId, T)>,
    closed: BTreeMap<WindowId, Region<T>>,
}

impl<T: Copy + Default + Timed + Add<Output = T> + Sub<Output = T>> Regions<T> {
    /// Follows a marker; `now` is what the CPU has counted so far.
    pub fn marker(&mut self, marker: Marker, now: T) {
        match (marker.op, self.open) {
            (MarkerOp::Begin, _) => self.open = Some((marker.id, now)),
            (MarkerOp::End, Some((id, then))) if id == marker.id => {
                self.open = None;
                let region = self.closed.entry(id).or_default();
                region.n += 1;
                let passed = now - then;
                region.sum = region.sum + passed;
                if region.times_ps.len() < KEPT {
                    region.times_ps.push(passed.time_ps());
                }
            }
            (MarkerOp::Abandon, _) => self.open = None,
            (MarkerOp::Forget, _) => {
                self.closed.remove(&marker.id);
            }
            _ => {}
        }
    }

    /// The regions that were passed through, by window.
    pub fn closed(&self) -> &BTreeMap<WindowId, Region<T>> {
        &self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for u64 {
        fn time_ps(&self) -> u64 {
            *self
        }
    }

    fn mark(regions: &mut Regions<u64>, op: MarkerOp, now: u64) {
        let id = WindowId(1);
        regions.marker(Marker { op, id }, now);
    }

    #[test]
    fn each_pass_has_a_time_as_long_as_there_is_room() {
        let mut regions = Regions::<u64>::default();
        let passes = KEPT as u64 + 2;
        for n in 0..passes {
            mark(&mut regions, MarkerOp::Begin, 1000 * n);
            mark(&mut regions, MarkerOp::End, 1000 * n + n % 7);
        }
        let region = &regions.closed()[&WindowId(1)];
        assert_eq!(region.n, passes);
        let times = (0..KEPT as u64).map(|n| n % 7);
        assert!(region.times_ps.iter().copied().eq(times));
    }

    #[test]
    fn passes_add_up_and_only_matching_ends_count() {
        let mut regions = Regions::<u64>::default();
        let mut mark = |op, id, now| {
            let id = WindowId(id);
            regions.marker(Marker { op, id }, now);
        };
        mark(MarkerOp::End, 1, 5);
        mark(MarkerOp::Begin, 1, 10);
        mark(MarkerOp::End, 2, 15);
        mark(MarkerOp::End, 1, 30);
        mark(MarkerOp::Begin, 1, 100);
        mark(MarkerOp::End, 1, 103);
        mark(MarkerOp::Begin, 2, 200);
        mark(MarkerOp::Begin, 3, 300);
        mark(MarkerOp::End, 3, 301);
        mark(MarkerOp::Begin, 4, 400);
        mark(MarkerOp::Abandon, 0, 401);
        mark(MarkerOp::End, 4, 402);
        let closed = regions.closed().iter();
        let all: Vec<_> = closed.map(|(id, r)| (id.0, r.n, r.sum)).collect();
        assert_eq!(all, [(1, 2, 23), (3, 1, 1)]);
        let id = WindowId(1);
        regions.marker(
            Marker {
                op: MarkerOp::Forget,
                id,
            },
            500,
        );
        assert!(!regions.closed().contains_key(&id));
    }
}
