//! Findings, each of them once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::line::Who;
use crate::config::LINE_BYTES;

/// Most findings that a machine keeps apart; further ones are only counted.
pub const MAX_FINDINGS: usize = 1024;
/// Most addresses of one finding that are kept.
const MAX_PLACES: usize = 4;
/// Most pairs of values of one finding that are kept of late reads.
const MAX_LATE: usize = 64;

/// What a program did that it may not do without coherent caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It read a copy that is older than what another node has written: it has not dropped the
    /// line since.
    StaleRead,
    /// It read what its writer has not written back.
    Unpublished,
    /// It wrote a line back, and with it an old value over a newer one of another node.
    LostUpdate,
    /// It modified a word of which its caches held the line.
    CachedRmw,
}

impl Kind {
    /// Its name, as in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::StaleRead => "stale-read",
            Kind::Unpublished => "unpublished",
            Kind::LostUpdate => "lost-update",
            Kind::CachedRmw => "cached-rmw",
        }
    }
}

/// Something a program did that it may not do without coherent caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// Who did it: for a lost update, the write-back.
    pub who: Who,
    /// Physical address of the word.
    pub at: u64,
    /// Who wrote the word last, if that is known.
    pub writer: Option<Who>,
    /// Who fetched the copy, if it is about one.
    pub fetched: Option<Who>,
    /// For [`Kind::LostUpdate`]: the CPU that stored to the line, so that the line had to be written back.
    pub stored: Option<Who>,
    /// What is in the copy; for [`Kind::Unpublished`], what is in memory. 0 if unknown.
    pub old: u64,
    /// What the program got instead, or what is lost.
    pub new: u64,
    /// For [`Kind::StaleRead`]: the node has completed two rounds since the word was changed. What
    /// may be read from a copy until the next round may not then: the second began after the change.
    pub late: bool,
}

/// A finding in the report, with all its repetitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What.
    pub kind: Kind,
    /// Node that did it.
    pub node: u8,
    /// Its CPU, the first time.
    pub cpu: u8,
    /// Where in its code.
    pub pc: u64,
    /// Node that wrote the word last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_node: Option<u8>,
    /// Where in its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_pc: Option<u64>,
    /// Where the node fetched its copy, the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_pc: Option<u64>,
    /// Where the node stored to the line that it wrote back, the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_pc: Option<u64>,
    /// Physical addresses: the first few.
    pub at: Vec<u64>,
    /// The record of the frame, the first time: what kind it was of.
    pub frame: u64,
    /// Old and new value, the first time.
    pub values: (u64, u64),
    /// Old and new values when it was [late](Finding::late): the first few different ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<(u64, u64)>,
    /// How often it was late with values for which there was no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub later: u64,
    /// How often.
    pub count: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

type Key = (Kind, Who, Option<Who>, u64);

/// What has been found by one machine.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    rows: BTreeMap<Key, Row>,
    dropped: u64,
}

impl Findings {
    /// Takes note of a finding. Those of the same two instructions at the same place of a line are
    /// one. `frame` is the record of the frame it is in.
    pub fn note(&mut self, f: &Finding, frame: u64) {
        let any_cpu = |w: Who| Who { cpu: 0, ..w };
        let key = (
            f.kind,
            any_cpu(f.who),
            f.writer.map(any_cpu),
            f.at % LINE_BYTES,
        );
        if self.rows.len() >= MAX_FINDINGS && !self.rows.contains_key(&key) {
            self.dropped += 1;
            return;
        }
        let row = self.rows.entry(key).or_insert_with(|| Row {
            kind: f.kind,
            node: f.who.node,
            cpu: f.who.cpu,
            pc: f.who.pc,
            writer_node: f.writer.map(|w| w.node),
            writer_pc: f.writer.map(|w| w.pc),
            fetched_pc: f.fetched.map(|w| w.pc),
            stored_pc: f.stored.map(|w| w.pc),
            at: Vec::new(),
            frame,
            values: (f.old, f.new),
            late: Vec::new(),
            later: 0,
            count: 0,
        });
        row.count += 1;
        let values = (f.old, f.new);
        if f.late && !row.late.contains(&values) {
            match row.late.len() < MAX_LATE {
                true => row.late.push(values),
                false => row.later += 1,
            }
        }
        if row.at.len() < MAX_PLACES && !row.at.contains(&f.at) {
            row.at.push(f.at);
        }
    }

    /// They, in an order that does not depend on when they came.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.values().cloned().collect()
    }

    /// How many more there were for which there was no room, repetitions included.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(pc: u64, at: u64) -> Finding {
        let who = |node, pc| Who { node, cpu: 1, pc };
        Finding {
            kind: Kind::StaleRead,
            who: who(0, pc),
            at,
            writer: Some(who(1, 7)),
            fetched: None,
            stored: None,
            old: 1,
            new: 2,
            late: at >= 0x4000,
        }
    }

    #[test]
    fn the_same_place_of_two_lines_is_one_finding() {
        let mut all = Findings::default();
        for at in [0x1008, 0x2048, 0x1008, 0x3008, 0x4008, 0x5008] {
            all.note(&finding(3, at), 0);
        }
        all.note(&finding(3, 0x1010), 0);
        all.note(&finding(2, 0x1008), 0);
        let rows = all.rows();
        let short: Vec<_> = rows.iter().map(|r| (r.pc, r.at[0], r.count)).collect();
        assert_eq!(short, [(2, 0x1008, 1), (3, 0x1008, 6), (3, 0x1010, 1)]);
        assert_eq!(rows[1].at, [0x1008, 0x2048, 0x3008, 0x4008]);
        assert_eq!((&rows[0].late[..], rows[0].later), (&[][..], 0));
        assert_eq!((&rows[1].late[..], rows[1].later), (&[(1, 2)][..], 0));
        let text = serde_json::to_string(&rows).unwrap();
        assert!(text.contains("\"stale-read\""), "{text}");
        assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
    }

    #[test]
    fn there_is_a_bound() {
        let mut all = Findings::default();
        for pc in 0..MAX_FINDINGS as u64 + 5 {
            all.note(&finding(pc, 0), 0);
        }
        all.note(&finding(0, 0), 0);
        assert_eq!((all.rows().len(), all.dropped()), (MAX_FINDINGS, 5));
        assert_eq!(all.rows()[0].count, 2);
    }
}
