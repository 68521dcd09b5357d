//! What is in a table.

use std::path::Path;

use dyad_launcher::csv;
use dyad_launcher::error::Error;

use super::{HEAD, Planned};

/// The rows of a table, of good runs and of others.
pub struct Rows {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A row.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    header: &'a [String],
    cells: &'a [String],
}

/// The names of all columns.
pub(super) fn header() -> Vec<String> {
    let head = HEAD.iter().map(ToString::to_string);
    head.chain(csv::header()).collect()
}

impl Rows {
    /// A table without rows.
    #[cfg(test)]
    pub(crate) fn none() -> Rows {
        Rows {
            header: header(),
            rows: Vec::new(),
        }
    }

    /// Reads a table.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has other columns.
    pub fn read(path: &Path) -> Result<Rows, Error> {
        let name = path.display();
        let usage = |why: String| Error::Usage(format!("cannot go on with {name}: {why}"));
        let text = std::fs::read_to_string(path).map_err(|e| usage(e.to_string()))?;
        // A row that was being written when the sweep was killed has no line end.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut rows = csv::parse(whole).map_err(usage)?;
        let header = header();
        if rows.first() != Some(&header) {
            return Err(usage(
                "its columns are not those that this version writes; name another file".into(),
            ));
        }
        rows.remove(0);
        rows.retain(|row| row.len() == header.len());
        Ok(Rows { header, rows })
    }

    /// All rows, in the order of the file.
    pub fn all(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row {
            header: &self.header,
            cells,
        })
    }

    /// The rows of a run.
    pub fn of<'a>(&'a self, planned: &'a Planned) -> impl Iterator<Item = Row<'a>> {
        let repeat = planned.repeat.to_string();
        self.all().filter(move |row| {
            row.cell("fingerprint") == planned.fingerprint && row.cell("repeat") == repeat
        })
    }
}

impl<'a> Row<'a> {
    /// The value of a column; empty, if there is no such column.
    pub fn cell(self, column: &str) -> &'a str {
        let at = self.header.iter().position(|h| h == column);
        at.map_or("", |at| &self.cells[at])
    }

    /// The value of a column that is a number, if it is known.
    pub fn number(self, column: &str) -> Option<u64> {
        self.cell(column).parse().ok()
    }

    /// A counter of the run, in the row that has them.
    pub fn counter(self, name: &str) -> Option<u64> {
        csv::counter(self.cell(csv::COUNTED), name)
    }

    /// Whether it is of a good run.
    pub fn is_good(self) -> bool {
        self.cell("ok") == "true"
    }

    /// All cells.
    pub fn cells(self) -> &'a [String] {
        self.cells
    }
}
