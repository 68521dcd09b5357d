// SPDX-License-Identifier: GPL-2.0-or-later
//! Regions of interest: what a CPU has counted between the markers of a window, added up by window.
//!
//! A CPU has at most one open region; the states are those of [`dyad_abi::marker`].

use std::collections::BTreeMap;
use std::ops::{Add, Sub};

use dyad_abi::marker::{Marker, MarkerOp, WindowId};

/// All passes through a region on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region<T> {
    /// Number of passes.
    pub n: u64,
    /// What was counted in all of them.
    pub sum: T,
}

/// The regions of a CPU.
#[derive(Clone, Debug, Default)]
pub struct Regions<T> {
    open: Option<(WindowId, T)>,
    closed: BTreeMap<WindowId, Region<T>>,
}

impl<T: Copy + Default + Add<Output = T> + Sub<Output = T>> Regions<T> {
    /// Follows a marker; `now` is what the CPU has counted so far.
    pub fn marker(&mut self, marker: Marker, now: T) {
        match (marker.op, self.open) {
            (MarkerOp::Begin, _) => self.open = Some((marker.id, now)),
            (MarkerOp::End, Some((id, then))) if id == marker.id => {
                self.open = None;
                let region = self.closed.entry(id).or_default();
                region.n += 1;
                region.sum = region.sum + (now - then);
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
        let all: Vec<_> = regions.closed().iter().map(|(id, r)| (id.0, *r)).collect();
        assert_eq!(
            all,
            [(1, Region { n: 2, sum: 23 }), (3, Region { n: 1, sum: 1 })]
        );
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
