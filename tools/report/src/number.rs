//! Numbers that are read from results, and what a row's reader gives.

use crate::figure::Figure;

/// A number with a name. Without a value, the point is missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// What it is: bounds name it so.
    pub name: String,
    /// The value.
    pub value: Option<f64>,
    /// Its unit; empty for ratios and counts.
    pub unit: &'static str,
}

/// What the results of a row's measurements give.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Numbers, in the order of the document.
    pub numbers: Vec<Number>,
    /// Figures.
    pub figures: Vec<Figure>,
    /// Sentences with counts that explain the numbers, made from the results.
    pub counts: Vec<String>,
}

impl Reading {
    /// Adds a number.
    pub fn add(&mut self, name: impl Into<String>, value: Option<f64>, unit: &'static str) {
        self.numbers.push(Number {
            name: name.into(),
            value: value.filter(|v| v.is_finite()),
            unit,
        });
    }

    /// The numbers that a pattern names.
    pub fn named<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = &'a Number> {
        let is = |number: &&Number| crate::glob::matches(pattern, &number.name);
        self.numbers.iter().filter(is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_none_is_a_gap() {
        let mut reading = Reading::default();
        reading.add("a, x", Some(f64::NAN), "");
        reading.add("a, y", Some(1.0), "ns");
        assert_eq!(reading.named("a, *").count(), 2);
        assert_eq!(reading.numbers[0].value, None);
    }
}
