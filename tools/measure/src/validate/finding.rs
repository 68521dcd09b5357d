//! Comparisons and their forms for people and programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

/// Name and version of the JSON form.
pub const SCHEMA: &str = "dyad.validate/1";

/// How far apart what is compared may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Not at all.
    Exact,
    /// By this part of what is expected.
    Relative(f64),
    /// Upwards only.
    AtLeast,
}

/// A comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The group it belongs to.
    pub group: &'static str,
    /// What was compared.
    pub name: String,
    /// What came out.
    pub measured: f64,
    /// What was expected.
    pub expected: f64,
    /// How far apart they may be.
    pub tolerance: Tolerance,
    /// Why there is nothing to compare, if there is nothing.
    pub failure: Option<String>,
}

impl Finding {
    /// Whether they are near enough to each other.
    pub fn ok(&self) -> bool {
        let near = match self.tolerance {
            Tolerance::Exact => self.measured == self.expected,
            Tolerance::Relative(part) => {
                (self.measured - self.expected).abs() <= self.expected.abs() * part
            }
            Tolerance::AtLeast => self.measured >= self.expected,
        };
        near && self.failure.is_none()
    }

    /// By how much they differ, as a part of what is expected.
    fn off(&self) -> f64 {
        match self.measured == self.expected || self.tolerance == Tolerance::AtLeast {
            true => 0.0,
            false => (self.measured - self.expected) / self.expected.abs(),
        }
    }
}

/// Comparisons, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    list: Vec<Finding>,
    group: &'static str,
    /// Number of findings when the group began.
    before: usize,
    /// How long groups have taken.
    took: Vec<(&'static str, Duration)>,
}

impl Findings {
    pub(super) fn begin(&mut self, group: &'static str) {
        (self.group, self.before) = (group, self.list.len());
    }

    /// The group has taken so long. Without a comparison it has validated nothing.
    pub(super) fn end(&mut self, took: Duration) {
        self.took.push((self.group, took));
        if self.list.len() == self.before {
            self.failed("nothing was compared");
        }
    }

    /// Notes that the group cannot be made.
    pub(super) fn failed(&mut self, why: &str) {
        self.list.push(Finding {
            group: self.group,
            name: "made".into(),
            measured: 0.0,
            expected: 1.0,
            tolerance: Tolerance::Exact,
            failure: Some(why.into()),
        });
    }

    /// Compares two numbers that must be equal. Numbers of 2^53 and more lose their last digits.
    pub fn exact(&mut self, name: impl Into<String>, measured: u64, expected: u64) {
        self.add(name, measured as f64, expected as f64, Tolerance::Exact);
    }

    /// Compares two numbers that must be near each other.
    pub fn near(&mut self, name: impl Into<String>, measured: f64, expected: f64, part: f64) {
        self.add(name, measured, expected, Tolerance::Relative(part));
    }

    /// Notes a number that must not be smaller than another.
    pub fn at_least(&mut self, name: impl Into<String>, measured: u64, expected: u64) {
        self.add(name, measured as f64, expected as f64, Tolerance::AtLeast);
    }

    fn add(&mut self, name: impl Into<String>, measured: f64, expected: f64, t: Tolerance) {
        self.list.push(Finding {
            group: self.group,
            name: name.into(),
            measured,
            expected,
            tolerance: t,
            failure: None,
        });
    }

    /// The comparisons.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.list.iter()
    }

    /// What is wrong, in one text.
    pub fn problem(&self) -> Option<String> {
        let bad: Vec<&Finding> = self.iter().filter(|f| !f.ok()).collect();
        if self.list.is_empty() {
            return Some("nothing was compared".into());
        }
        let first = bad.first()?;
        Some(format!(
            "{} of {} comparisons fail, first {}: {}",
            bad.len(),
            self.list.len(),
            first.group,
            first.name
        ))
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let one = |f: &Finding| {
            json!({
                "group": f.group,
                "check": f.name,
                "measured": f.measured,
                "expected": f.expected,
                "tolerance": match f.tolerance {
                    Tolerance::Exact => Some(0.0),
                    Tolerance::Relative(part) => Some(part),
                    Tolerance::AtLeast => None,
                },
                "ok": f.ok(),
                "failure": f.failure,
            })
        };
        json!({
            "schema": SCHEMA,
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "groups": self.took.iter().map(|(group, took)| {
                json!({ "group": group, "seconds": took.as_secs() })
            }).collect::<Vec<_>>(),
            "checks": self.iter().map(one).collect::<Vec<_>>(),
        })
    }

    /// A table for people: of all comparisons, or of those that fail and one line per group.
    pub fn table(&self, all: bool) -> String {
        let mut out = String::new();
        let shown: Vec<&Finding> = self.iter().filter(|f| all || !f.ok()).collect();
        let width = shown.iter().map(|f| f.name.len()).max().unwrap_or(0).max(5);
        // Writing to a string cannot fail.
        if shown.is_empty() {
            return self.summary();
        }
        let _ = writeln!(
            out,
            "{:<13} {:<width$} {:>18} {:>18} {:>10} {:>8}",
            "group", "check", "measured", "expected", "off", "allowed"
        );
        for f in shown {
            let mark = if f.ok() { "" } else { "  FAILED" };
            if let Some(why) = &f.failure {
                let _ = writeln!(out, "{:<13} {:<width$} {mark}: {why}", f.group, f.name);
                continue;
            }
            let allowed = match f.tolerance {
                Tolerance::Exact => "0".into(),
                Tolerance::AtLeast => "more".into(),
                Tolerance::Relative(part) => format!("{} %", part * 100.0),
            };
            let _ = writeln!(
                out,
                "{:<13} {:<width$} {:>18} {:>18} {:>10} {allowed:>8}{mark}",
                f.group,
                f.name,
                number(f.measured),
                number(f.expected),
                format!("{:.4} %", f.off() * 100.0),
            );
        }
        out + &self.summary()
    }

    /// A line per group.
    fn summary(&self) -> String {
        let mut out = String::new();
        for group in self.list.chunk_by(|a, b| a.group == b.group) {
            let good = group.iter().filter(|f| f.ok()).count();
            let off = group.iter().map(|f| f.off().abs()).fold(0.0, f64::max);
            let took = self.took.iter().find(|(name, _)| *name == group[0].group);
            let took = took.map_or_else(String::new, |(_, t)| format!("; {} s", t.as_secs()));
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{:<13} {good} of {} comparisons agree; the largest difference is {:.4} %{took}",
                group[0].group,
                group.len(),
                off * 100.0
            );
        }
        out
    }
}

/// Without a fraction where there is none.
fn number(n: f64) -> String {
    match n.fract() == 0.0 {
        true => format!("{n:.0}"),
        false => format!("{n:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        let mut f = Findings::default();
        f.begin("a");
        f.exact("equal", 7, 7);
        f.near("near", 100.4, 100.0, 0.005);
        f.at_least("enough", 11, 10);
        f.end(Duration::from_secs(12));
        f
    }

    #[test]
    fn all_must_agree() {
        let good = findings();
        assert_eq!(
            (good.problem(), good.json()["ok"].as_bool()),
            (None, Some(true))
        );
        let mut bad = findings();
        bad.exact("equal", 7, 8);
        bad.near("far", 101.0, 100.0, 0.005);
        bad.at_least("few", 9, 10);
        bad.near("not a number", f64::NAN, 100.0, 0.005);
        let why = bad.problem().unwrap();
        assert_eq!(why, "4 of 7 comparisons fail, first a: equal");
        assert_eq!(bad.table(false).matches("FAILED").count(), 4);
        assert!(bad.table(true).contains("near"));
        assert!(bad.table(false).contains("3 of 7 comparisons agree"));
        let json = bad.json();
        assert_eq!(json["groups"], json!([{ "group": "a", "seconds": 12 }]));
        assert!(
            good.table(false)
                .ends_with("difference is 0.4000 %; 12 s\n")
        );
        assert_eq!(json["checks"][0]["ok"], true);
        assert_eq!(json["checks"][4]["ok"], false);
    }

    #[test]
    fn what_was_not_compared_does_not_pass() {
        assert!(Findings::default().problem().is_some());
        let mut f = findings();
        f.begin("b");
        f.end(Duration::from_secs(12));
        assert_eq!(
            f.problem().unwrap(),
            "1 of 4 comparisons fail, first b: made"
        );
        assert!(f.table(false).contains("nothing was compared"));
    }

    #[test]
    fn nothing_expected_means_nothing_measured() {
        let mut f = Findings::default();
        f.begin("a");
        f.near("none", 0.0, 0.0, 0.01);
        assert_eq!(f.problem(), None);
        f.near("some", 1.0, 0.0, 0.01);
        assert!(f.problem().is_some());
    }
}
