//! What the rows of a table were made with: rows of other versions are not to be added, since they cannot be compared.

use std::fmt;

use dyad_launcher::config::{RunConfig, Work};
use dyad_launcher::error::Error;
use dyad_launcher::sim::Versions;

/// The values of [`Versions::COLUMNS`].
pub(super) type Columns = [String; Versions::COLUMNS.len()];

/// A version that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The column.
    pub column: &'static str,
    /// Its value in the table.
    pub in_table: String,
    /// Its value of a run that would be added.
    pub here: String,
}

/// A table that was made with other versions than a run that would be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherVersions {
    /// The table.
    pub table: String,
    /// What differs; not empty.
    pub differences: Vec<Difference>,
}

impl fmt::Display for OtherVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot go on with {}: its rows were made with other versions, so that new rows could not be compared with them",
            self.table
        )?;
        for (i, d) in self.differences.iter().enumerate() {
            let sep = if i == 0 { ": " } else { ", " };
            let Difference {
                column,
                in_table,
                here,
            } = d;
            write!(
                f,
                "{sep}{column} is {in_table:?} in the table and {here:?} here"
            )?;
        }
        write!(
            f,
            "; name another file with --csv, or go back to the version of the table and add --resume again"
        )
    }
}

impl From<OtherVersions> for Error {
    fn from(other: OtherVersions) -> Error {
        Error::Usage(other.to_string())
    }
}

/// What decides which kernels are built for a run.
fn kernels(config: &RunConfig) -> (bool, bool, bool) {
    let is_test = matches!(config.work, Work::Ktest(_));
    (is_test, config.is_sanitized(), config.fastpaths)
}

/// What decides which programs a run has.
fn programs(config: &RunConfig) -> (Option<&str>, &[u8], bool, Option<&str>) {
    let app = match &config.work {
        Work::App { app, .. } => Some(app.as_str()),
        Work::Ktest(_) => None,
    };
    let test = &config.test;
    (app, &config.input, test.bare, test.beside.as_deref())
}

/// Compares a run with a row. `config` is that of the row, if it is known. Values that are not known do not differ.
pub(super) fn differences(
    (row, config): (&Columns, Option<&RunConfig>),
    (here, of): (&Columns, &RunConfig),
) -> Vec<Difference> {
    let has_one_value = |column: &str| match column {
        // Other settings need other images.
        _ if column.starts_with("kernel") => config.is_some_and(|c| kernels(c) == kernels(of)),
        "programs" => config.is_some_and(|c| programs(c) == programs(of)),
        _ => true,
    };
    let values = row.iter().zip(here);
    let all = Versions::COLUMNS.iter().zip(values);
    all.filter(|(column, (row, here))| {
        has_one_value(column) && !row.is_empty() && !here.is_empty() && row != here
    })
    .map(|(column, (in_table, here))| Difference {
        column,
        in_table: in_table.clone(),
        here: here.clone(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(values: &[(&str, &str)]) -> Columns {
        Versions::COLUMNS.map(|column| {
            let value = values.iter().find(|(c, _)| *c == column);
            value.map_or("same", |(_, v)| v).to_string()
        })
    }

    fn differing(row: &Columns, config: Option<&RunConfig>, of: &RunConfig) -> Vec<&'static str> {
        let all = differences((row, config), (&columns(&[]), of));
        all.into_iter().map(|d| d.column).collect()
    }

    #[test]
    fn versions_that_must_be_the_same_are_compared() {
        let config = RunConfig::default();
        let row = columns(&[("commit", "other"), ("plugin", "other"), ("xtask", "")]);
        assert_eq!(differing(&row, None, &config), ["commit", "plugin"]);
        let row = columns(&[("kernel_x86_64", "other"), ("programs", "other")]);
        let both = ["kernel_x86_64", "programs"];
        assert_eq!(differing(&row, Some(&config), &config), both);
        // It is not known which settings the row is of.
        assert_eq!(differing(&row, None, &config), [""; 0]);
        let slow = RunConfig {
            fastpaths: false,
            ..RunConfig::default()
        };
        assert_eq!(differing(&row, Some(&config), &slow), ["programs"]);
        let other = RunConfig {
            input: b"x".to_vec(),
            ..RunConfig::default()
        };
        assert_eq!(differing(&row, Some(&config), &other), ["kernel_x86_64"]);
    }

    #[test]
    fn the_message_says_what_differs_and_what_to_do() {
        let difference = |column| Difference {
            column,
            in_table: "a".into(),
            here: "b".into(),
        };
        let other = OtherVersions {
            table: "t.csv".into(),
            differences: vec![difference("commit"), difference("plugin")],
        };
        let text = other.to_string();
        for words in [
            "cannot go on with t.csv",
            ": commit is \"a\" in the table and \"b\" here, plugin is",
            "name another file with --csv",
        ] {
            assert!(text.contains(words), "{words:?} not in {text}");
        }
    }
}
