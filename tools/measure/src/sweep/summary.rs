//! What the repetitions of each combination say together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::{Planned, Row, Rows};
use crate::statistics::Summary;

/// The columns that are summarised, if they are known.
const COLUMNS: [&str; 15] = [
    "elapsed_ps",
    "time_ps",
    "cycles",
    "instructions",
    "accesses",
    "l1d_misses",
    "l2_misses",
    "l3_misses",
    "local",
    "remote",
    "pool",
    "snp_data",
    "snp_inv",
    "traps",
    "fences",
];

/// A node in the whole run or in a region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The node.
    pub node: String,
    /// Its ISA.
    pub isa: String,
    /// The region; `run` for the whole run.
    pub region: String,
    /// What the good runs say, by column.
    pub columns: BTreeMap<&'static str, Summary>,
}

/// A combination of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Combination {
    /// What is varied, with its values.
    pub varied: String,
    /// Good runs.
    pub n: usize,
    /// Runs that failed, which are left out.
    pub failed: usize,
    /// Nodes and regions, in the order of the table.
    pub parts: Vec<Part>,
}

/// Summarises the runs of a plan that are in a table; `regions` too, if that is asked for.
pub fn combinations(plan: &[Planned], rows: &Rows, regions: bool) -> Vec<Combination> {
    let same = plan.chunk_by(|a, b| a.fingerprint == b.fingerprint);
    same.map(|runs| combination(runs, rows, regions)).collect()
}

fn combination(runs: &[Planned], rows: &Rows, regions: bool) -> Combination {
    let all: Vec<Row<'_>> = runs.iter().flat_map(|run| rows.of(run)).collect();
    let number_of = |good: bool| {
        let those = all.iter().filter(|row| row.is_good() == good);
        let repeats: BTreeSet<&str> = those.map(|row| row.cell("repeat")).collect();
        repeats.len()
    };
    let mut parts: Vec<Part> = Vec::new();
    let mut values: Vec<BTreeMap<&'static str, Vec<f64>>> = Vec::new();
    let wanted = |row: &&Row<'_>| {
        row.is_good() && (regions || row.cell("region") == dyad_launcher::csv::WHOLE)
    };
    for row in all.iter().filter(wanted) {
        let part = Part {
            node: row.cell("node").into(),
            isa: row.cell("isa").into(),
            region: row.cell("region").into(),
            columns: BTreeMap::new(),
        };
        let at = parts.iter().position(|p| *p == part);
        let at = at.unwrap_or_else(|| {
            parts.push(part);
            values.push(BTreeMap::new());
            parts.len() - 1
        });
        for column in COLUMNS {
            if let Some(n) = row.number(column) {
                values[at].entry(column).or_default().push(n as f64);
            }
        }
    }
    for (part, values) in parts.iter_mut().zip(values) {
        let summaries = values.into_iter();
        let summaries = summaries.filter_map(|(c, v)| Some((c, Summary::of(&v)?)));
        part.columns = summaries.collect();
    }
    Combination {
        varied: runs[0].varied.clone(),
        n: number_of(true),
        failed: number_of(false),
        parts,
    }
}

impl Combination {
    /// As a table for people.
    pub fn table(&self) -> String {
        let mut out = format!("{}: n = {}", self.varied, self.n);
        if self.failed > 0 {
            out += &format!(", {} failed and left out", self.failed);
        }
        out.push('\n');
        for part in &self.parts {
            let Part {
                node, isa, region, ..
            } = part;
            let title = format!("  {region}, node {node} ({isa})");
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{title:<36} {:>20} {:>16} {:>20}",
                "mean", "sd", "95 % (Student t)"
            );
            let known = COLUMNS.iter().filter_map(|c| part.columns.get_key_value(c));
            for (column, s) in known {
                let number = |v: f64| format!("{v:.1}");
                let sd = s.sd.map_or("-".into(), number);
                let half = s
                    .half_width_95
                    .map_or("n = 1".into(), |h| format!("± {}", number(h)));
                let mean = number(s.mean);
                let _ = writeln!(out, "    {column:<32} {mean:>20} {sd:>16} {half:>20}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_launcher::config::RunConfig;

    #[test]
    fn all_summarised_columns_are_columns_of_the_table() {
        let header = super::super::rows::header();
        for column in COLUMNS {
            assert!(header.iter().any(|h| h == column), "{column}");
        }
    }

    fn rows(cells: &[[(&str, &str); 6]]) -> Rows {
        let dir = std::env::temp_dir().join(format!("dyad-summary-{}", std::process::id()));
        let header = super::super::rows::header();
        let row = |cells: &[(&str, &str); 6]| -> Vec<String> {
            let cell = |column: &String| {
                let cell = cells.iter().find(|(c, _)| c == column);
                cell.map_or(String::new(), |(_, v)| v.to_string())
            };
            header.iter().map(cell).collect()
        };
        let all = std::iter::once(header.clone()).chain(cells.iter().map(row));
        let text: String = all.map(|row| dyad_launcher::csv::line(&row)).collect();
        std::fs::write(&dir, text).unwrap();
        let rows = Rows::read(&dir);
        std::fs::remove_file(&dir).unwrap();
        rows.unwrap()
    }

    #[test]
    fn failed_runs_are_left_out_and_counted() {
        let config = RunConfig::default();
        let plan: Vec<Planned> = (1..=4)
            .map(|repeat| Planned::new("a=1".into(), repeat, config.clone()))
            .collect();
        let digest = plan[0].fingerprint.as_str();
        let row = |repeat, ok, region, cycles| {
            [
                ("fingerprint", digest),
                ("repeat", repeat),
                ("ok", ok),
                ("node", "0"),
                ("region", region),
                ("cycles", cycles),
            ]
        };
        let rows = rows(&[
            row("1", "true", "run", "10"),
            row("1", "true", "0x8000", "5"),
            row("2", "true", "run", "12"),
            row("2", "true", "0x8000", "5"),
            row("3", "false", "run", "9999"),
            row("4", "true", "run", "14"),
            row("5", "true", "run", "7777"),
        ]);
        let all = combinations(&plan, &rows, false);
        assert_eq!(all.len(), 1);
        let c = &all[0];
        assert_eq!((c.n, c.failed, c.parts.len()), (3, 1, 1));
        let cycles = c.parts[0].columns["cycles"];
        assert_eq!((cycles.n, cycles.mean, cycles.sd), (3, 12.0, Some(2.0)));
        let table = c.table();
        for words in ["a=1: n = 3, 1 failed and left out", "12.0", "± 5.0"] {
            assert!(table.contains(words), "{words:?} not in:\n{table}");
        }
        let all = combinations(&plan, &rows, true);
        let region = &all[0].parts[1];
        assert_eq!((region.region.as_str(), all[0].parts.len()), ("0x8000", 2));
        assert_eq!(region.columns["cycles"].sd, Some(0.0));
        let one = &combinations(&plan[..1], &rows, false)[0];
        assert!(one.table().contains("n = 1"), "{}", one.table());
    }
}
