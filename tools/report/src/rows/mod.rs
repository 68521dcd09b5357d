//! Rows: tables and figures of the papers, and some of ours.
//!
//! What a paper says is in our own words, with numbers of its text only: heights of bars are not in it.

mod chi;
mod flick;
mod migration;
mod ours;
mod read;
mod stramash;
mod stramash_micro;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::number::Reading;

/// Documents of measurements by name.
#[derive(Clone, Debug, Default)]
pub struct Documents<'a>(pub BTreeMap<&'static str, &'a Value>);

impl<'a> Documents<'a> {
    /// The document of a measurement; null if there is none.
    pub fn of(&self, measurement: &str) -> &'a Value {
        self.0.get(measurement).copied().unwrap_or(&Value::Null)
    }
}

/// How a row gets its verdict.
#[derive(Clone, Copy)]
pub enum How {
    /// By measurements, whose results give numbers.
    Measured {
        /// The measurements.
        by: &'static [&'static str],
        /// Reads numbers from their results.
        read: fn(&Documents<'_>) -> Reading,
        /// The reference that stands in the place of the paper's, if that cannot be had here.
        replaced_by: Option<&'static str>,
    },
    /// No command measures it yet.
    NotMeasured(&'static str),
    /// What it needs does not exist yet.
    NotBuilt(&'static str),
    /// It cannot be measured here.
    Unreachable(&'static str),
}

/// A row.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its name: paper, and T for a table, F for a figure.
    pub id: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What the paper did and says.
    pub says: &'static str,
    /// What is done here.
    pub ours: &'static str,
    /// How it gets its verdict.
    pub how: How,
}

impl Row {
    /// The measurements that it needs.
    pub fn measurements(&self) -> &'static [&'static str] {
        match self.how {
            How::Measured { by, .. } => by,
            _ => &[],
        }
    }
}

/// All rows, in the order of the document.
pub fn all() -> impl Iterator<Item = Row> {
    let papers = [
        stramash::ROWS,
        stramash_micro::ROWS,
        migration::ROWS,
        flick::ROWS,
        chi::ROWS,
        ours::ROWS,
    ];
    papers.into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_that_must_be_there_is_there_once() {
        let ids: Vec<&str> = all().map(|row| row.id).collect();
        let needed = "ST-T1 ST-T2 ST-T3 ST-T4 ST-F5 ST-F6 ST-F7 ST-F8 ST-F9 ST-F10 ST-F11 ST-F12 ST-F13 ST-F14 LY-F2 \
                      LY-F3 LY-6.3 LY-6.4 BA-F2 BA-F3 BA-F4 FL-T2 FL-T3 FL-T4 FL-F5a FL-F5b CH-F2 CH-T2 CH-F3 CH-F4";
        for id in needed.split(' ') {
            let n = ids.iter().filter(|i| **i == id).count();
            assert_eq!(n, 1, "{id}");
        }
        assert!((1..ids.len()).all(|n| !ids[..n].contains(&ids[n])));
        let not_built: Vec<&str> = all()
            .filter(|row| matches!(row.how, How::NotBuilt(_)))
            .map(|row| row.id)
            .collect();
        assert_eq!(not_built, ["ST-F14"]);
    }

    /// A document without anything gives gaps, never numbers.
    #[test]
    fn empty_documents_give_no_values() {
        let null = Value::Null;
        for row in all() {
            let How::Measured { by, read, .. } = row.how else {
                continue;
            };
            let documents = Documents(by.iter().map(|name| (*name, &null)).collect());
            let reading = read(&documents);
            for number in &reading.numbers {
                assert_eq!(number.value, None, "{} {}", row.id, number.name);
            }
            for figure in &reading.figures {
                assert_eq!(figure.svg(), None, "{} {}", row.id, figure.title);
            }
        }
    }
}
