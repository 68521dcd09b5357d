// SPDX-License-Identifier: GPL-2.0-or-later
//! The report: one JSON object, schema `dyad.count/2`.
//!
//! | member | |
//! |---|---|
//! | `schema` | `dyad.count/2` |
//! | `target` | ISA as QEMU calls it: `x86_64`, `aarch64` |
//! | `node` | the option of that name, or null |
//! | `unit` | what was counted at a time: `block`, `instruction` |
//! | `plugin_api` | version of QEMU's plugin interface |
//! | `instructions` | executed by all CPUs |
//! | `cpus` | per CPU: `cpu`, `instructions`, and its parts `lower_half` and `upper_half` |
//! | `windows` | only with `windows=on`: an array with one object per window, by number |
//! | `abandoned`, `unmatched` | only with `windows=on`: beginnings that gave no sample because of another beginning or a marker, and ends whose window was not open |
//!
//! A window's object:
//!
//! | member | |
//! |---|---|
//! | `id` | its number |
//! | `n` | samples |
//! | `interrupted` | windows that give no sample, because an interrupt was taken in them |
//! | `sites` | only with `sites=on`: pairs of an address and how often the instruction there was started in all samples |
//! | `instructions`, `lines`, `fused_lines`, `accesses`, `devices`, `atomics`, `flushes`, `fences` | `min`, `median`, `max` of a [`Metric`]; left out if `n` is 0 |
//!
//! The halves are those of the virtual address space: programs run in the lower half, the kernel
//! in the upper. Firmware and the first instructions of boot run in the lower half too.

use std::fmt::Write;

use dyad_abi::marker::WindowId;

use crate::options::Unit;
use crate::windows::{Metric, Record, Samples};

/// Executed instructions of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCount {
    /// At addresses of the lower half.
    pub lower: u64,
    /// At addresses of the upper half.
    pub upper: u64,
}

impl CpuCount {
    fn total(self) -> u64 {
        self.lower.wrapping_add(self.upper)
    }
}

/// Everything that is reported.
#[derive(Clone, Debug)]
pub struct Report {
    /// ISA as QEMU calls it.
    pub target: String,
    /// Number of the node, if it was given.
    pub node: Option<u8>,
    /// What was counted at a time.
    pub unit: Unit,
    /// Version of the plugin interface.
    pub plugin_api: i32,
    /// The CPUs.
    pub cpus: Vec<CpuCount>,
    /// Windows of measurement, if they were observed.
    pub windows: Option<Samples>,
}

impl Report {
    /// The report as JSON.
    pub fn to_json(&self) -> String {
        let total = self
            .cpus
            .iter()
            .fold(0u64, |sum, c| sum.wrapping_add(c.total()));
        let node = self.node.map_or("null".to_string(), |n| n.to_string());
        let cpus: Vec<String> = self
            .cpus
            .iter()
            .enumerate()
            .map(|(i, c)| {
                format!(
                    "{{\"cpu\":{i},\"instructions\":{},\"lower_half\":{},\"upper_half\":{}}}",
                    c.total(),
                    c.lower,
                    c.upper
                )
            })
            .collect();
        format!(
            "{{\"schema\":\"dyad.count/2\",\"target\":{},\"node\":{node},\"unit\":{},\
             \"plugin_api\":{},\"instructions\":{total},\"cpus\":[{}]{}}}\n",
            quoted(&self.target),
            quoted(self.unit.name()),
            self.plugin_api,
            cpus.join(","),
            self.windows.as_ref().map_or(String::new(), windows)
        )
    }
}

fn windows(samples: &Samples) -> String {
    let all: Vec<String> = samples.records.iter().map(window).collect();
    format!(
        ",\"windows\":[{}],\"abandoned\":{},\"unmatched\":{}",
        all.join(","),
        samples.abandoned,
        samples.unmatched
    )
}

fn window((id, record): (&WindowId, &Record)) -> String {
    let (n, interrupted) = (record.n(), record.interrupted());
    let mut out = format!("{{\"id\":{},\"n\":{n},\"interrupted\":{interrupted}", id.0);
    for metric in Metric::ALL {
        if let Some(s) = record.spread(metric) {
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                ",{}:{{\"min\":{},\"median\":{},\"max\":{}}}",
                quoted(metric.name()),
                s.min,
                s.median,
                s.max
            );
        }
    }
    if !record.sites().is_empty() {
        let sites = record.sites().iter().map(|(at, n)| format!("[{at},{n}]"));
        let sites: Vec<String> = sites.collect();
        let _ = write!(out, ",\"sites\":[{}]", sites.join(","));
    }
    out.push('}');
    out
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::windows::Outcome;

    #[test]
    fn golden() {
        let report = Report {
            target: "aarch64".into(),
            node: Some(1),
            unit: Unit::Block,
            plugin_api: 4,
            cpus: vec![
                CpuCount {
                    lower: 10,
                    upper: 5,
                },
                CpuCount::default(),
            ],
            windows: None,
        };
        assert_eq!(
            report.to_json(),
            concat!(
                "{\"schema\":\"dyad.count/2\",\"target\":\"aarch64\",\"node\":1,",
                "\"unit\":\"block\",\"plugin_api\":4,\"instructions\":15,\"cpus\":[",
                "{\"cpu\":0,\"instructions\":15,\"lower_half\":10,\"upper_half\":5},",
                "{\"cpu\":1,\"instructions\":0,\"lower_half\":0,\"upper_half\":0}]}\n"
            )
        );
    }

    #[test]
    fn windows_follow_the_cpus() {
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
        samples.note(Outcome::Unmatched);
        assert_eq!(
            windows(&samples),
            concat!(
                ",\"windows\":[{\"id\":5,\"n\":3,\"interrupted\":0,",
                "\"instructions\":{\"min\":10,\"median\":20,\"max\":30},",
                "\"lines\":{\"min\":11,\"median\":21,\"max\":31},",
                "\"fused_lines\":{\"min\":12,\"median\":22,\"max\":32},",
                "\"accesses\":{\"min\":13,\"median\":23,\"max\":33},",
                "\"devices\":{\"min\":14,\"median\":24,\"max\":34},",
                "\"atomics\":{\"min\":15,\"median\":25,\"max\":35},",
                "\"flushes\":{\"min\":16,\"median\":26,\"max\":36},",
                "\"fences\":{\"min\":17,\"median\":27,\"max\":37}},",
                "{\"id\":6,\"n\":0,\"interrupted\":1}],\"abandoned\":0,\"unmatched\":1"
            )
        );
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
