//! Rows with their verdicts, as data.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::bounds::Bounds;
use crate::measurements::{self, Size};
use crate::number::Reading;
use crate::records::{Fingerprint, Record};
use crate::rows::{Documents, How, Row};
use crate::verdict::{self, Judged, Kind, Verdict};

/// Name and version of the JSON form.
pub const SCHEMA: &str = "dyad.report/1";

/// Records of measurements by name, or why there is none.
pub type Records = BTreeMap<&'static str, Result<Record, String>>;

/// A row with its verdict.
pub struct Entry {
    /// The row.
    pub row: Row,
    /// The records that it was read from.
    pub records: Vec<Record>,
    /// What they give.
    pub reading: Reading,
    /// Its bounds.
    pub judged: Vec<Judged>,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether a record was measured when the row had other bounds.
    pub another_bound: bool,
    /// In what records differ from this version, if that was allowed.
    pub mixed: Vec<String>,
}

/// All of it.
pub struct Report {
    /// How much was measured.
    pub size: Size,
    /// This version.
    pub fingerprint: Fingerprint,
    /// The machine: names and values.
    pub machine: Vec<(&'static str, String)>,
    /// Rows in their order.
    pub entries: Vec<Entry>,
    /// Measurements that were not made, and why.
    pub not_run: Vec<(&'static str, String)>,
}

/// What verdicts are computed from, besides rows and records.
#[derive(Clone, Copy)]
pub struct Basis<'a> {
    /// How much was measured.
    pub size: Size,
    /// The bounds.
    pub bounds: &'a Bounds,
    /// This version.
    pub fingerprint: &'a Fingerprint,
    /// Whether records of other versions are shown.
    pub mixed: bool,
}

impl Entry {
    /// Computes the verdict on a row.
    pub fn of(row: Row, basis: Basis<'_>, records: &Records) -> Entry {
        let mut entry = Entry {
            row,
            records: Vec::new(),
            reading: Reading::default(),
            judged: Vec::new(),
            verdict: Verdict::new(Kind::Incomplete, "nothing was read"),
            another_bound: false,
            mixed: Vec::new(),
        };
        entry.verdict = match row.how {
            How::NotMeasured(why) => Verdict::new(Kind::Incomplete, format!("not measured: {why}")),
            How::NotBuilt(why) => Verdict::new(Kind::NotBuilt, why),
            How::Unreachable(why) => Verdict::new(Kind::Unreachable, why),
            How::Measured {
                by,
                read,
                replaced_by,
            } => entry.measured(by, read, replaced_by, basis, records),
        };
        entry
    }

    fn measured(
        &mut self,
        by: &[&'static str],
        read: fn(&Documents<'_>) -> Reading,
        replaced_by: Option<&str>,
        basis: Basis<'_>,
        records: &Records,
    ) -> Verdict {
        let mut missing = Vec::new();
        for name in by {
            let record = match records.get(name) {
                None => Err("it was not asked for".to_string()),
                Some(found) => found.clone(),
            };
            let record = match record {
                Ok(record) => record,
                Err(why) => {
                    missing.push(format!("{name}: {why}"));
                    continue;
                }
            };
            if let Some(how) = record.fingerprint.difference(basis.fingerprint) {
                match basis.mixed {
                    true => self.mixed.push(format!("{name}: {how}")),
                    false => {
                        let why = format!(
                            "{name}: the record is of another version: {how}; --mixed shows it"
                        );
                        missing.push(why);
                        continue;
                    }
                }
            }
            let then = record.bounds.get(self.row.id);
            self.another_bound |= then.is_some_and(|d| *d != basis.bounds.digest(self.row.id));
            self.records.push(record);
        }
        let documents = self.records.iter().map(|record| {
            let name = by.iter().find(|name| **name == record.measurement);
            (name.copied().unwrap_or_default(), &record.document)
        });
        let documents = Documents(documents.collect());
        self.reading = read(&documents);
        self.judged = verdict::judge(basis.bounds, self.row.id, basis.size, &self.reading);
        if !missing.is_empty() {
            return Verdict {
                kind: Kind::Incomplete,
                because: missing,
            };
        }
        let failures = self.records.iter().filter_map(Record::failure);
        let failures: Vec<String> = failures.collect();
        let failure = (!failures.is_empty()).then(|| failures.join("; "));
        verdict::verdict(
            &self.judged,
            basis.size,
            &self.reading,
            failure.as_deref(),
            replaced_by,
        )
    }

    /// What must be known beside the verdict.
    pub fn marks(&self) -> Vec<String> {
        let mut marks = Vec::new();
        if self.another_bound {
            marks.push("measured against another bound".to_string());
        }
        let mixed = self.mixed.iter().map(|how| format!("mixed: {how}"));
        marks.extend(mixed);
        marks
    }

    /// The commands that repeat the row.
    pub fn commands(&self, size: Size) -> Vec<String> {
        let all = self.row.measurements().iter();
        all.filter_map(|name| measurements::named(name)?.command(size))
            .collect()
    }
}

impl Report {
    /// Computes the verdicts.
    pub fn of(
        rows: &[Row],
        basis: Basis<'_>,
        records: &Records,
        machine: Vec<(&'static str, String)>,
    ) -> Report {
        let not_run = records.iter().filter_map(|(name, record)| {
            let why = record.as_ref().err()?;
            Some((*name, why.clone()))
        });
        Report {
            size: basis.size,
            fingerprint: basis.fingerprint.clone(),
            machine,
            entries: rows
                .iter()
                .map(|row| Entry::of(*row, basis, records))
                .collect(),
            not_run: not_run.collect(),
        }
    }

    /// How many rows have a verdict.
    pub fn count(&self, kind: Kind) -> usize {
        let is = |entry: &&Entry| entry.verdict.kind == kind;
        self.entries.iter().filter(is).count()
    }

    /// Whether no row is incomplete.
    pub fn is_complete(&self) -> bool {
        self.count(Kind::Incomplete) == 0
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let machine = self.machine.iter();
        let machine = machine.map(|(name, value)| ((*name).to_string(), json!(value)));
        let rows = self.entries.iter().map(|entry| {
            let numbers = entry.reading.numbers.iter();
            let numbers = numbers.map(|n| json!({"name": n.name, "value": n.value, "unit": n.unit}));
            let records = entry.records.iter().map(|r| {
                json!({
                    "measurement": r.measurement, "command": r.command, "fingerprint": r.fingerprint, "seconds": r.seconds,
                    "sha256": r.sha256,
                })
            });
            json!({
                "id": entry.row.id,
                "paper": entry.row.paper,
                "title": entry.row.title,
                "verdict": entry.verdict,
                "marks": entry.marks(),
                "numbers": numbers.collect::<Vec<_>>(),
                "bounds": entry.judged,
                "counts": entry.reading.counts,
                "commands": entry.commands(self.size),
                "records": records.collect::<Vec<_>>(),
            })
        });
        let not_run = self.not_run.iter();
        let not_run = not_run.map(|(name, why)| json!({"measurement": name, "reason": why}));
        json!({
            "schema": SCHEMA,
            "ok": self.is_complete(),
            "failure": (!self.is_complete()).then(|| self.summary()),
            "size": self.size,
            "fingerprint": self.fingerprint,
            "machine": machine.collect::<serde_json::Map<_, _>>(),
            "rows": rows.collect::<Vec<_>>(),
            "not_run": not_run.collect::<Vec<_>>(),
        })
    }

    /// All numbers as a table. A number without a value is an empty cell.
    pub fn csv(&self) -> String {
        let mut out = String::from("row,paper,verdict,number,value,unit,commit\n");
        for entry in &self.entries {
            let commit = entry.records.first().map(|r| r.fingerprint.commit.clone());
            let commit = commit.unwrap_or_default();
            let numbers = entry.reading.numbers.iter().map(|n| {
                let value = n.value.map_or(String::new(), |v| v.to_string());
                [n.name.clone(), value, n.unit.to_string()]
            });
            let mut numbers: Vec<[String; 3]> = numbers.collect();
            if numbers.is_empty() {
                numbers.push(Default::default());
            }
            for [name, value, unit] in numbers {
                let (id, paper) = (entry.row.id, entry.row.paper);
                let cells = [
                    id,
                    paper,
                    entry.verdict.kind.name(),
                    &name,
                    &value,
                    &unit,
                    &commit,
                ];
                let cells: Vec<String> = cells.iter().map(|c| quoted(c)).collect();
                out += &(cells.join(",") + "\n");
            }
        }
        out
    }

    /// One line.
    pub fn summary(&self) -> String {
        let kinds = [
            Kind::Reproduced,
            Kind::Differs,
            Kind::Replaced,
            Kind::Unreachable,
            Kind::NotBuilt,
            Kind::Incomplete,
        ];
        let counts = kinds.map(|kind| format!("{} {}", self.count(kind), kind.name()));
        format!("{} rows: {}", self.entries.len(), counts.join(", "))
    }
}

/// A cell of a table with commas.
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.into(),
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
pub(crate) mod tests;
