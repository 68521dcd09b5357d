// SPDX-License-Identifier: GPL-2.0-or-later
//! From what was counted to the report: [`dyad_sim_model::report`], schema `dyad.sim/6`.

use dyad_abi::marker::WindowId;
use dyad_sim_model::report::{MaskedReport, Spread, WindowReport};

use crate::masked::Stretches;
use crate::windows::{Metric, Record, Samples};

/// The windows of a machine.
pub fn windows(samples: &Samples) -> Vec<WindowReport> {
    samples.records.iter().map(window).collect()
}

fn window((id, record): (&WindowId, &Record)) -> WindowReport {
    let spread = |metric| {
        record.spread(metric).map(|s| Spread {
            min: s.min,
            median: s.median,
            max: s.max,
        })
    };
    WindowReport {
        id: id.0,
        n: record.n(),
        interrupted: record.interrupted(),
        total: record.total(),
        instructions: spread(Metric::Instructions),
        lines: spread(Metric::Lines),
        fused_lines: spread(Metric::FusedLines),
        accesses: spread(Metric::Accesses),
        devices: spread(Metric::Devices),
        atomics: spread(Metric::Atomics),
        flushes: spread(Metric::Flushes),
        fences: spread(Metric::Fences),
        lead: spread(Metric::Lead),
        waits: spread(Metric::Waits),
        sites: record.sites().iter().map(|(at, n)| (*at, *n)).collect(),
    }
}

/// The longest stretches with interrupts masked of a machine.
pub fn masked(stretches: &Stretches) -> Vec<MaskedReport> {
    let of = stretches.0.iter();
    of.map(|(key, longest)| MaskedReport {
        window: key.window.map(|id| id.0),
        entry: key.entry,
        n: longest.n,
        longest: longest.length,
        sites: longest.sites.iter().map(|(at, n)| (*at, *n)).collect(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masked::{Key, Stretch};
    use crate::windows::Outcome;

    #[test]
    fn windows_without_samples_have_no_metrics() {
        let mut samples = Samples::default();
        let id = WindowId(5);
        for n in 1..=3 {
            samples.note(Outcome::Closed {
                id,
                sample: std::array::from_fn(|i| n * 10 + i as u64),
                interrupted: false,
            });
        }
        samples.note(Outcome::Closed {
            id: WindowId(6),
            sample: [0; Metric::ALL.len()],
            interrupted: true,
        });
        let [full, empty] = &windows(&samples)[..] else {
            panic!("two windows");
        };
        assert_eq!((full.id, full.n, full.interrupted), (5, 3, 0));
        assert_eq!(full.total, 60);
        let spread = |min, median, max| Some(Spread { min, median, max });
        assert_eq!(full.instructions, spread(10, 20, 30));
        assert_eq!(full.fences, spread(17, 27, 37));
        assert_eq!(full.waits, spread(19, 29, 39));
        assert_eq!((empty.id, empty.n, empty.interrupted), (6, 0, 1));
        assert_eq!(empty.instructions, None);
    }

    #[test]
    fn the_longest_stretches_are_reported_by_window_and_entry() {
        let mut all = Stretches::default();
        let key = Key {
            window: Some(WindowId(9)),
            entry: 64,
        };
        let sites = vec![64, 68, 64];
        all.add(&Stretch {
            key,
            length: 3,
            sites,
        });
        let [one] = &masked(&all)[..] else {
            panic!("one key");
        };
        assert_eq!(
            (one.window, one.entry, one.n, one.longest),
            (Some(9), 64, 1, 3)
        );
        assert_eq!(one.sites, [(64, 2), (68, 1)]);
    }
}
