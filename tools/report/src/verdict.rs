//! What numbers and bounds say of a row.

use std::fmt;

use serde::Serialize;

use crate::bounds::{Bound, Bounds};
use crate::measurements::Size;
use crate::number::{Number, Reading};
use crate::show::shown;

/// What a row's numbers show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// All bounds hold.
    Reproduced,
    /// A bound does not hold.
    Differs,
    /// The paper's reference cannot be had here; bounds against another reference hold.
    Replaced,
    /// It cannot be measured here.
    Unreachable,
    /// What the row needs does not exist yet.
    NotBuilt,
    /// Something is missing: a measurement, a record, a point.
    Incomplete,
}

impl Kind {
    /// The words of the document.
    pub const fn words(self) -> &'static str {
        match self {
            Kind::Reproduced => "reproduced",
            Kind::Differs => "differs, because",
            Kind::Replaced => "replaced by",
            Kind::Unreachable => "unreachable, because",
            Kind::NotBuilt => "not built yet",
            Kind::Incomplete => "INCOMPLETE",
        }
    }

    /// Its name in data and in style sheets.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Reproduced => "reproduced",
            Kind::Differs => "differs",
            Kind::Replaced => "replaced",
            Kind::Unreachable => "unreachable",
            Kind::NotBuilt => "not-built",
            Kind::Incomplete => "incomplete",
        }
    }
}

/// A verdict and its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Which.
    pub kind: Kind,
    /// Why.
    pub because: Vec<String>,
}

impl Verdict {
    /// A verdict with one reason.
    pub fn new(kind: Kind, because: impl Into<String>) -> Verdict {
        Verdict {
            kind,
            because: vec![because.into()],
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.words())?;
        match self.because.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.because.join("; ")),
        }
    }
}

/// How a bound fares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The bound.
    pub bound: Bound,
    /// Whether it holds; null if it was not judged: at another size, or without a number.
    pub holds: Option<bool>,
    /// What speaks against it.
    pub because: Vec<String>,
}

/// Judges the bounds of a row.
pub fn judge(bounds: &Bounds, row: &str, size: Size, reading: &Reading) -> Vec<Judged> {
    let of = bounds.of(row);
    of.map(|bound| judged(bound, size, reading)).collect()
}

fn judged(bound: &Bound, size: Size, reading: &Reading) -> Judged {
    let outcome = |holds, because| Judged {
        bound: bound.clone(),
        holds,
        because,
    };
    if !bound.is_judged(size) {
        let sizes: Vec<&str> = bound.sizes.iter().map(|s| s.name()).collect();
        let why = format!("judged at size {} only", sizes.join(", "));
        return outcome(None, vec![why]);
    }
    let numbers: Vec<&Number> = reading.named(&bound.name).collect();
    if numbers.is_empty() {
        return outcome(None, vec![format!("missing: {}", bound.name)]);
    }
    let gaps = numbers.iter().filter(|n| n.value.is_none());
    let gaps: Vec<String> = gaps.map(|n| format!("missing: {}", n.name)).collect();
    let wrong = numbers.iter().filter_map(|n| {
        let value = n.value.filter(|v| !bound.includes(*v))?;
        let unit = if n.unit.is_empty() { "" } else { " " };
        Some(format!(
            "{} is {}{unit}{}, bound {}",
            n.name,
            shown(value),
            n.unit,
            bound.range()
        ))
    });
    let wrong: Vec<String> = wrong.collect();
    match (wrong.is_empty(), gaps.is_empty()) {
        (false, _) => outcome(Some(false), wrong),
        (true, false) => outcome(None, gaps),
        (true, true) => outcome(Some(true), Vec::new()),
    }
}

/// The verdict on a row that was measured. `failure` is what the measurement says went wrong. `replaced_by`: the reference that
/// stands in the place of the paper's.
pub fn verdict(
    judged: &[Judged],
    size: Size,
    reading: &Reading,
    failure: Option<&str>,
    replaced_by: Option<&str>,
) -> Verdict {
    let at_size = || judged.iter().filter(|j| j.bound.is_judged(size));
    let gaps = at_size().filter(|j| j.holds.is_none());
    let gaps: Vec<String> = gaps.flat_map(|j| j.because.clone()).collect();
    if !gaps.is_empty() {
        let failure = failure.map(|why| format!("the measurement says: {why}"));
        return Verdict {
            kind: Kind::Incomplete,
            because: gaps.into_iter().chain(failure).collect(),
        };
    }
    if at_size().next().is_none() {
        return Verdict::new(Kind::Incomplete, "no bound is judged at this size");
    }
    let wrong = at_size().filter(|j| j.holds == Some(false));
    let wrong: Vec<String> = wrong.flat_map(|j| j.because.clone()).collect();
    if !wrong.is_empty() {
        let counts = reading.counts.iter().map(|c| format!("counts: {c}"));
        return Verdict {
            kind: Kind::Differs,
            because: wrong.into_iter().chain(counts).collect(),
        };
    }
    match (failure, replaced_by) {
        (Some(why), _) => Verdict::new(
            Kind::Incomplete,
            format!("the bounds hold, but the measurement says: {why}"),
        ),
        (None, Some(by)) => Verdict::new(Kind::Replaced, by),
        (None, None) => Verdict {
            kind: Kind::Reproduced,
            because: Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        let text = "[[bound]]\nrow = \"R\"\nname = \"x, *\"\nmin = 1.0\nmax = 2.0\nreason = \"r\"\n\
                    [[bound]]\nrow = \"R\"\nname = \"y\"\nmin = 9.0\nsizes = [\"a\"]\nreason = \"r\"\n";
        Bounds::parse(text).unwrap()
    }

    fn of(values: &[(&str, Option<f64>)], size: Size, failure: Option<&str>) -> Verdict {
        let mut reading = Reading::default();
        for (name, value) in values {
            reading.add(*name, *value, "");
        }
        reading.counts.push("22 messages".into());
        let judged = judge(&bounds(), "R", size, &reading);
        verdict(&judged, size, &reading, failure, None)
    }

    #[test]
    fn verdicts_follow_from_numbers() {
        let good = [("x, 1", Some(1.5)), ("x, 2", Some(2.0))];
        assert_eq!(of(&good, Size::W, None).kind, Kind::Reproduced);
        let bad = of(&[("x, 1", Some(1.5)), ("x, 2", Some(2.5))], Size::W, None);
        assert_eq!(bad.kind, Kind::Differs);
        assert_eq!(
            bad.to_string(),
            "differs, because: x, 2 is 2.500, bound 1 to 2; counts: 22 messages"
        );
        let gap = of(&[("x, 1", Some(1.5)), ("x, 2", None)], Size::W, None);
        assert_eq!(
            (gap.kind, gap.because),
            (Kind::Incomplete, vec!["missing: x, 2".into()])
        );
        assert_eq!(of(&[], Size::W, None).kind, Kind::Incomplete);
        // A bound of class A needs its number there.
        assert_eq!(of(&good, Size::A, None).kind, Kind::Incomplete);
        let failed = of(&good, Size::W, Some("no run"));
        assert_eq!(failed.kind, Kind::Incomplete);
    }

    #[test]
    fn a_row_without_bounds_at_its_size_is_incomplete() {
        let mut only = bounds();
        only.all.remove(0);
        let reading = Reading::default();
        let judged = judge(&only, "R", Size::Quick, &reading);
        let found = verdict(&judged, Size::Quick, &reading, None, None);
        assert_eq!(found.kind, Kind::Incomplete);
    }

    #[test]
    fn a_replaced_row_says_by_what() {
        let mut reading = Reading::default();
        reading.add("x, 1", Some(1.0), "");
        let judged = judge(&bounds(), "R", Size::W, &reading);
        let found = verdict(&judged, Size::W, &reading, None, Some("cachegrind"));
        assert_eq!(found.to_string(), "replaced by: cachegrind");
    }
}
