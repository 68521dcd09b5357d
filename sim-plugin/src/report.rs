// SPDX-License-Identifier: GPL-2.0-or-later
//! The report: one JSON object, schema `dyad.count/1`.
//!
//! | member | |
//! |---|---|
//! | `schema` | `dyad.count/1` |
//! | `target` | ISA as QEMU calls it: `x86_64`, `aarch64` |
//! | `node` | the option of that name, or null |
//! | `unit` | what was counted at a time: `block`, `instruction` |
//! | `plugin_api` | version of QEMU's plugin interface |
//! | `instructions` | executed by all CPUs |
//! | `cpus` | per CPU: `cpu`, `instructions`, and its parts `lower_half` and `upper_half` |
//!
//! The halves are those of the virtual address space: programs run in the lower half, the kernel
//! in the upper. Firmware and the first instructions of boot run in the lower half too.

use std::fmt::Write;

use crate::options::Unit;

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
#[derive(Clone, Debug, PartialEq, Eq)]
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
            "{{\"schema\":\"dyad.count/1\",\"target\":{},\"node\":{node},\"unit\":{},\
             \"plugin_api\":{},\"instructions\":{total},\"cpus\":[{}]}}\n",
            quoted(&self.target),
            quoted(self.unit.name()),
            self.plugin_api,
            cpus.join(",")
        )
    }
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
        };
        assert_eq!(
            report.to_json(),
            concat!(
                "{\"schema\":\"dyad.count/1\",\"target\":\"aarch64\",\"node\":1,",
                "\"unit\":\"block\",\"plugin_api\":4,\"instructions\":15,\"cpus\":[",
                "{\"cpu\":0,\"instructions\":15,\"lower_half\":10,\"upper_half\":5},",
                "{\"cpu\":1,\"instructions\":0,\"lower_half\":0,\"upper_half\":0}]}\n"
            )
        );
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
