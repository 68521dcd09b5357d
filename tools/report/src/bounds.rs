//! What numbers must be: `bounds.toml`, one reviewed file.
//!
//! A bound names a row and a number of it; `*` in the name stands for any characters. A record keeps the digest of the bounds that
//! its rows had when it was measured, so a bound that was changed later shows.

use serde::{Deserialize, Serialize};

use crate::measurements::Size;
use crate::records::sha256;

/// The bounds of this version.
const FILE: &str = include_str!("../bounds.toml");

/// What a number must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The row.
    pub row: String,
    /// Names of numbers.
    pub name: String,
    /// The least value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// The sizes of the report in which it is judged; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<Size>,
    /// Why this value.
    pub reason: String,
}

/// All bounds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// In the order of the file.
    #[serde(default, rename = "bound")]
    pub all: Vec<Bound>,
}

impl Bound {
    /// Whether a value is within the bound.
    pub fn includes(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }

    /// Whether a report of this size judges it.
    pub fn is_judged(&self, size: Size) -> bool {
        self.sizes.is_empty() || self.sizes.contains(&size)
    }

    /// The bound as text.
    pub fn range(&self) -> String {
        use crate::show::shown;
        match (self.min, self.max) {
            (Some(min), Some(max)) if min == max => format!("exactly {}", shown(min)),
            (Some(min), Some(max)) => format!("{} to {}", shown(min), shown(max)),
            (Some(min), None) => format!("at least {}", shown(min)),
            (None, Some(max)) => format!("at most {}", shown(max)),
            (None, None) => "any value".into(),
        }
    }
}

impl Bounds {
    /// Reads bounds.
    ///
    /// # Errors
    ///
    /// If the text is not of this form, or a bound bounds nothing or has no reason.
    pub fn parse(text: &str) -> Result<Bounds, String> {
        let bounds: Bounds = toml::from_str(text).map_err(|e| e.to_string())?;
        for bound in &bounds.all {
            let (row, name) = (&bound.row, &bound.name);
            if bound.min.is_none() && bound.max.is_none() {
                return Err(format!("{row}, {name}: neither min nor max"));
            }
            if bound.min.zip(bound.max).is_some_and(|(min, max)| min > max) {
                return Err(format!("{row}, {name}: min is above max"));
            }
            if bound.reason.trim().is_empty() {
                return Err(format!("{row}, {name}: no reason"));
            }
        }
        Ok(bounds)
    }

    /// The bounds of this version.
    ///
    /// # Errors
    ///
    /// If the file of the sources is not of this form.
    pub fn of_sources() -> Result<Bounds, String> {
        Bounds::parse(FILE)
    }

    /// The bounds of a row.
    pub fn of<'a>(&'a self, row: &'a str) -> impl Iterator<Item = &'a Bound> {
        self.all.iter().filter(move |bound| bound.row == row)
    }

    /// A digest of the bounds of a row: names, values and sizes, without reasons.
    pub fn digest(&self, row: &str) -> String {
        let of = |b: &Bound| format!("{}|{:?}|{:?}|{:?}\n", b.name, b.min, b.max, b.sizes);
        let text: String = self.of(row).map(of).collect();
        sha256(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[bound]]\nrow = \"A\"\nname = \"n\"\nmax = 2.0\nreason = \"r\"\n";

    #[test]
    fn bounds_are_read_and_checked() {
        let bounds = Bounds::parse(TEXT).unwrap();
        assert_eq!(bounds.all[0].range(), "at most 2");
        assert!(bounds.all[0].includes(2.0) && !bounds.all[0].includes(2.1));
        for (from, to, why) in [
            ("max = 2.0\n", "", "neither"),
            ("\"r\"", "\" \"", "no reason"),
            ("max", "most", "unknown field"),
            ("max = 2.0", "max = 2.0\nmin = 3.0", "above"),
        ] {
            let e = Bounds::parse(&TEXT.replace(from, to)).unwrap_err();
            assert!(e.contains(why), "{e}");
        }
    }

    #[test]
    fn a_changed_bound_has_another_digest_and_a_changed_reason_has_not() {
        let digest = |text: &str| Bounds::parse(text).unwrap().digest("A");
        assert_ne!(digest(TEXT), digest(&TEXT.replace("2.0", "2.5")));
        assert_eq!(digest(TEXT), digest(&TEXT.replace("\"r\"", "\"s\"")));
        assert_ne!(digest(TEXT), digest(&TEXT.replace("\"A\"", "\"B\"")));
    }

    #[test]
    fn bounds_of_the_sources_name_rows_that_there_are() {
        let bounds = Bounds::of_sources().unwrap();
        assert!(bounds.all.len() > 20);
        for bound in &bounds.all {
            let mut rows = crate::rows::all();
            assert!(rows.any(|row| row.id == bound.row), "{}", bound.row);
        }
    }
}
