//! Times of all points: tables, and which conclusions change.

use std::cmp::Ordering;
use std::fmt::Write as _;

use dyad_abi::marker::WindowId;
use dyad_launcher::sim::table::time;
use serde_json::{Map, Value, json};

use super::{EXTENSIONS, Matrix, PROFILE, Point, rows};
use crate::npb::Bench;
use crate::sweep::Rows;

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The extension; `base` for none, `all` for all.
    pub name: &'static str,
    /// Picoseconds in the timed region, by the compared systems; nothing, if there is no good run.
    pub times: Vec<Option<u64>>,
}

/// The table of an NPB kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfBench {
    /// The kernel.
    pub bench: Bench,
    /// The base, each extension, all.
    pub rows: Vec<Row>,
}

/// All tables.
#[derive(Clone, Debug)]
pub struct Results {
    matrix: Matrix,
    systems: Vec<&'static str>,
    /// By kernel.
    pub tables: Vec<OfBench>,
}

/// A conclusion that another row does not confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    row: &'static str,
    base: String,
    here: String,
}

/// How two times are to each other, in words.
fn relation(a: &str, order: Ordering, b: &str) -> String {
    match order {
        Ordering::Less => format!("{a} is faster than {b}"),
        Ordering::Greater => format!("{b} is faster than {a}"),
        Ordering::Equal => format!("{a} takes as long as {b}"),
    }
}

/// How much longer `new` is than `old`, in per cent.
fn percent(new: u64, old: u64) -> f64 {
    (new as f64 / old as f64 - 1.0) * 100.0
}

impl Row {
    /// The time of a system in relation to that of the first one.
    fn ratio(&self, system: usize) -> Option<f64> {
        Some(self.times[system]? as f64 / self.times[0]? as f64)
    }

    /// How two systems are to each other.
    fn order(&self, a: usize, b: usize) -> Option<Ordering> {
        Some(self.times[a]?.cmp(&self.times[b]?))
    }

    fn is_complete(&self) -> bool {
        self.times.iter().all(Option::is_some)
    }
}

impl OfBench {
    /// Change against the base, in per cent.
    fn change(&self, row: &Row, system: usize) -> Option<f64> {
        Some(percent(row.times[system]?, self.rows[0].times[system]?))
    }

    /// Pairs of systems.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let n = self.rows[0].times.len();
        (0..n).flat_map(move |a| (a + 1..n).map(move |b| (a, b)))
    }

    /// What the base says.
    fn conclusions(&self, systems: &[&str]) -> Vec<String> {
        let of = |(a, b)| {
            let order = self.rows[0].order(a, b)?;
            Some(relation(systems[a], order, systems[b]))
        };
        self.pairs().filter_map(of).collect()
    }

    /// What other rows say otherwise.
    fn changes(&self, systems: &[&str]) -> Vec<Change> {
        let mut all = Vec::new();
        for row in &self.rows[1..] {
            for (a, b) in self.pairs() {
                let (Some(base), Some(here)) = (self.rows[0].order(a, b), row.order(a, b)) else {
                    continue;
                };
                if base != here {
                    all.push(Change {
                        row: row.name,
                        base: relation(systems[a], base, systems[b]),
                        here: relation(systems[a], here, systems[b]),
                    });
                }
            }
        }
        all
    }

    /// What the rows say together: the lines that matter.
    fn verdict(&self, systems: &[&str]) -> String {
        let bench = self.bench.name();
        let conclusions = self.conclusions(systems);
        if conclusions.is_empty() {
            return format!("{bench}: no conclusion, since times of the base are missing\n");
        }
        let mut out = format!("{bench}: base: {}\n", conclusions.join(", "));
        let changes = self.changes(systems);
        for Change { row, here, .. } in &changes {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{bench}: CHANGES with {row}: {here}");
        }
        let open: Vec<&str> = (self.rows.iter())
            .filter(|row| !row.is_complete())
            .map(|row| row.name)
            .collect();
        if changes.is_empty() {
            let _ = match open[..] {
                [] => writeln!(out, "{bench}: no extension changes this"),
                _ => writeln!(out, "{bench}: no measured extension changes this"),
            };
        }
        if !open.is_empty() {
            let _ = writeln!(out, "{bench}: not known of {}", open.join(", "));
        }
        out
    }

    fn table(&self, class: &str, systems: &[&str]) -> String {
        let mut out = format!(
            "{}, class {class}: simulated time of the timed region, and its change against the base\n{:<16}",
            self.bench.name(),
            "extension"
        );
        // Writing to a string cannot fail.
        for system in systems {
            let _ = write!(out, " {system:>14} {:>9}", "change");
        }
        for system in &systems[1..] {
            let _ = write!(out, " {:>22}", format!("{system}/{}", systems[0]));
        }
        out.push('\n');
        for row in &self.rows {
            let _ = write!(out, "{:<16}", row.name);
            for (system, ps) in row.times.iter().enumerate() {
                let ps = ps.map_or("missing".into(), time);
                let change = self.change(row, system).filter(|_| row.name != "base");
                let change = change.map_or("-".into(), |c| format!("{c:+.2} %"));
                let _ = write!(out, " {ps:>14} {change:>9}");
            }
            for system in 1..systems.len() {
                let ratio = row.ratio(system).map_or("-".into(), |r| format!("{r:.4}"));
                let _ = write!(out, " {ratio:>22}");
            }
            out.push('\n');
        }
        out
    }

    fn json(&self, systems: &[&str]) -> Value {
        let by_system = |of: &dyn Fn(usize) -> Value| -> Map<String, Value> {
            let each = systems.iter().enumerate();
            each.map(|(i, s)| (s.to_string(), of(i))).collect()
        };
        let rows = self.rows.iter().map(|row| {
            json!({
                "extension": row.name,
                "time_ps": by_system(&|i| json!(row.times[i])),
                "change_percent": by_system(&|i| json!(self.change(row, i))),
                "ratio": by_system(&|i| json!(row.ratio(i))),
            })
        });
        let changes = self.changes(systems).into_iter();
        let changes =
            changes.map(|c| json!({ "extension": c.row, "base": c.base, "here": c.here }));
        json!({
            "kernel": self.bench.name(),
            "rows": rows.collect::<Vec<_>>(),
            "conclusions": self.conclusions(systems),
            "changes": changes.collect::<Vec<_>>(),
        })
    }
}

impl Results {
    /// The times of points that are in a table.
    pub fn of(matrix: &Matrix, points: &[Point], table: &Rows) -> Results {
        let systems: Vec<_> = (matrix.compared.variants().iter())
            .map(|v| v.name)
            .collect();
        let empty = |name| Row {
            name,
            times: vec![None; systems.len()],
        };
        let mut tables: Vec<OfBench> = (matrix.benches.iter())
            .map(|&bench| OfBench {
                bench,
                rows: rows().into_iter().map(|(name, _)| empty(name)).collect(),
            })
            .collect();
        for point in points {
            let of = tables.iter_mut().find(|t| t.bench == point.bench);
            if let Some(of) = of {
                of.rows[point.row].times[point.variant] = timed(point, table);
            }
        }
        Results {
            matrix: matrix.clone(),
            systems,
            tables,
        }
    }

    /// Points without a time.
    pub fn missing(&self) -> usize {
        let rows = self.tables.iter().flat_map(|t| &t.rows);
        rows.flat_map(|r| &r.times).filter(|t| t.is_none()).count()
    }

    /// All tables for people, each with what it says.
    pub fn table(&self) -> String {
        let class = self.matrix.class.name();
        let of = |t: &OfBench| t.table(class, &self.systems) + &t.verdict(&self.systems) + "\n";
        self.tables.iter().map(of).collect()
    }

    /// Members of the JSON form.
    pub fn json(&self) -> Value {
        let extensions = EXTENSIONS.iter().map(|e| {
            let set: Map<String, Value> = (e.on.iter())
                .map(|(k, v)| (k.to_string(), json!(v)))
                .collect();
            json!({ "name": e.name, "set": set, "source": e.source })
        });
        json!({
            "class": self.matrix.class.name(),
            "compared": self.matrix.compared.name(),
            "profile": PROFILE,
            "extensions": extensions.collect::<Vec<_>>(),
            "kernels": self.tables.iter().map(|t| t.json(&self.systems)).collect::<Vec<_>>(),
            "missing": self.missing(),
        })
    }
}

/// The time of the timed region, of all nodes together: phases come one after the other, wherever they run.
fn timed(point: &Point, table: &Rows) -> Option<u64> {
    let region = format!("{:#x}", WindowId::FREE);
    let rows = table.of(&point.planned);
    let rows = rows.filter(|row| row.is_good() && row.cell("region") == region);
    let sum = rows.filter_map(|row| row.number("time_ps")).sum();
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[(&'static str, &[u64])]) -> OfBench {
        let row = |(name, times): &(&'static str, &[u64])| Row {
            name,
            times: times.iter().map(|t| (*t > 0).then_some(*t)).collect(),
        };
        OfBench {
            bench: Bench::Cg,
            rows: rows.iter().map(row).collect(),
        }
    }

    const KERNELS: [&str; 2] = ["fused", "multiple"];

    #[test]
    fn a_conclusion_that_changes_its_sign_is_said() {
        let table = of(&[
            ("base", &[2_000_000, 3_000_000]),
            ("hop", &[4_000_000, 3_000_000]),
            ("fence", &[2_500_000, 3_000_000]),
            ("traps", &[0, 3_000_000]),
        ]);
        assert_eq!(
            table.verdict(&KERNELS),
            "cg: base: fused is faster than multiple\n\
             cg: CHANGES with hop: multiple is faster than fused\n\
             cg: not known of traps\n"
        );
        let text = table.table("S", &KERNELS);
        for words in [
            "2.000 us",
            "+100.00 %",
            "+25.00 %",
            "1.5000",
            "0.7500",
            "missing",
        ] {
            assert!(text.contains(words), "{words:?} not in:\n{text}");
        }
        let json = table.json(&KERNELS);
        assert_eq!(json["changes"][0]["extension"], "hop");
        assert_eq!(json["rows"][3]["time_ps"]["fused"], Value::Null);
        assert_eq!(json["rows"][1]["ratio"]["multiple"], 0.75);
    }

    #[test]
    fn an_order_that_no_extension_changes_is_said_too() {
        let models = ["separated", "shared", "fully-shared"];
        let table = of(&[("base", &[2, 2, 1]), ("hop", &[9, 9, 8])]);
        assert_eq!(
            table.verdict(&models),
            "cg: base: separated takes as long as shared, fully-shared is faster than separated, \
             fully-shared is faster than shared\n\
             cg: no extension changes this\n"
        );
        // Equal times that come to differ are another conclusion.
        let table = of(&[("base", &[2, 2, 1]), ("hop", &[9, 10, 8])]);
        let changes = table.changes(&models);
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].here, "separated is faster than shared");
    }

    #[test]
    fn without_a_base_there_is_no_conclusion() {
        let table = of(&[("base", &[2, 0]), ("hop", &[9, 9])]);
        assert_eq!(
            table.verdict(&KERNELS),
            "cg: no conclusion, since times of the base are missing\n"
        );
        assert_eq!(table.changes(&KERNELS), []);
    }
}
