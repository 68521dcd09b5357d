//! What it costs a program to reach pages of another node: by messages, which copy the page, and through shared memory.
//!
//! ```text
//!  micro --what pages ─▶ by memory model and system: patterns, with all lines of many pages
//!                                                   first touches from the other node, with n lines of each page
//! ```
//!
//! A page that is copied costs a fault once and then own memory for each line; a page that is shared costs the other node's memory
//! for each line. So of n lines the ratio of both is (F + n a) / (b + n r): the constants are fitted to the times of all n, by
//! system, and the ratios that they give are compared with those that were measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::Isa;
use dyad_abi::service::peer::{Kernels, Transport};
use dyad_launcher::error::Error;
use dyad_launcher::launch::Sink;
use dyad_sim_model::config::MemoryModel;
use serde_json::{Value, json};

use super::faults;
use super::report::SCHEMA;

/// Patterns of `micro`.
pub const PATTERNS: [&str; 5] = ["vanilla", "rao", "rao-nc", "oar", "oar-nc"];
/// Lines of a page that are touched.
pub const LINES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// By how much a fitted ratio may differ from the measured one.
const FITS: f64 = 0.10;

/// How nodes reach each other's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// By messages through rings.
    Messages,
    /// Through shared memory.
    Shared,
}

impl Access {
    const ALL: [Access; 2] = [Access::Messages, Access::Shared];

    /// The system.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Messages => "ring",
            Access::Shared => "fused",
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Memory models.
    pub models: Vec<MemoryModel>,
    /// Pages of the patterns.
    pub pages: u64,
    /// Pages of which some lines are touched.
    pub few: u64,
}

impl Default for Plan {
    /// 10 MiB, as in the papers.
    fn default() -> Plan {
        Plan {
            models: MemoryModel::PAPER.to_vec(),
            pages: 2560,
            few: 256,
        }
    }
}

/// Nanoseconds per page of loads, and of the stores that follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerPage {
    /// Of loads.
    pub load: f64,
    /// Of stores.
    pub store: f64,
}

/// All figures.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// By model, system and pattern.
    pub patterns: BTreeMap<(&'static str, Access, &'static str), PerPage>,
    /// First touches from the other node, by model, system and lines.
    pub lines: BTreeMap<(&'static str, Access, u64), PerPage>,
    /// Why there are no more, if there should be.
    pub failure: Option<String>,
}

/// Measures.
///
/// # Errors
///
/// If a run could not be made, or was interrupted. Runs that fail otherwise are in the result.
pub fn pages(plan: &Plan, sink: &mut dyn Sink) -> Result<Pages, Error> {
    let mut all = Pages::default();
    for &model in &plan.models {
        for way in Access::ALL {
            let whole = (plan.pages, 64);
            let patterns = run(model, way, whole, &PATTERNS, sink)?;
            let Some(patterns) = all.keep(model, way, patterns) else {
                return Ok(all);
            };
            for (pattern, touch) in patterns {
                all.patterns.insert((model.name(), way, pattern), touch);
            }
            for lines in LINES {
                let one = run(model, way, (plan.few, lines), &["rao"], sink)?;
                let Some(one) = all.keep(model, way, one) else {
                    return Ok(all);
                };
                let one = one
                    .into_iter()
                    .map(|(_, touch)| ((model.name(), way, lines), touch));
                all.lines.extend(one);
            }
        }
    }
    Ok(all)
}

type Found = Result<Vec<(&'static str, PerPage)>, String>;

/// One run. `Err` in the result: why it says nothing.
fn run(
    model: MemoryModel,
    way: Access,
    (pages, lines): (u64, u64),
    patterns: &[&'static str],
    sink: &mut dyn Sink,
) -> Result<Found, Error> {
    let names = patterns.join(",");
    let args = format!("--what pages --patterns {names} --pages {pages} --lines {lines}");
    let mut config = faults::strict(&[Isa::X86_64, Isa::Aarch64], "micro", args, 1800);
    config.kernels = match way {
        Access::Messages => Kernels::Multiple,
        Access::Shared => Kernels::Fused,
    };
    config.transport = Transport::Ring;
    config.setup.model = model;
    let report = match faults::run(&config, sink)? {
        Ok(report) => report,
        Err(why) => return Ok(Err(why)),
    };
    let counter = |pattern: &str, what: &str| {
        let ns = report.counters.get(&format!("pages.{pattern}.{what}-ns"));
        ns.map(|&ns| ns as f64 / pages as f64)
            .ok_or_else(|| format!("the program has not said what pattern {pattern} took"))
    };
    let each = patterns.iter().map(|&pattern| {
        let touch = PerPage {
            load: counter(pattern, "load")?,
            store: counter(pattern, "store")?,
        };
        Ok((pattern, touch))
    });
    Ok(each.collect())
}

/// The line through points with the least squares of relative errors: where it begins, and its slope.
fn fitted(points: &[(f64, f64)]) -> (f64, f64) {
    let weighted =
        |f: fn(f64, f64) -> f64| -> f64 { points.iter().map(|&(x, y)| f(x, y) / (y * y)).sum() };
    let (one, x, y) = (weighted(|_, _| 1.0), weighted(|x, _| x), weighted(|_, y| y));
    let (xx, xy) = (weighted(|x, _| x * x), weighted(|x, y| x * y));
    let slope = (one * xy - x * y) / (one * xx - x * x);
    ((y - slope * x) / one, slope)
}

/// Constants of a system: what the first touch of a page costs beside its lines, and what each line costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Of a page.
    pub page: f64,
    /// Of a line.
    pub line: f64,
}

impl Pages {
    fn keep<T>(&mut self, model: MemoryModel, way: Access, found: Result<T, String>) -> Option<T> {
        let failed = |why| {
            self.failure = Some(format!("{}, {}: {why}", model.name(), way.name()));
        };
        found.map_err(failed).ok()
    }

    fn models(&self) -> Vec<&'static str> {
        let mut all: Vec<_> = self.lines.keys().map(|k| k.0).collect();
        all.dedup();
        all
    }

    /// The constants of a system in a model.
    pub fn cost(&self, model: &str, way: Access) -> Option<Cost> {
        let of = self
            .lines
            .iter()
            .filter(|(k, _)| (k.0, k.1) == (model, way));
        let points: Vec<(f64, f64)> = of.map(|(k, t)| (k.2 as f64, t.load)).collect();
        (points.len() > 1).then(|| {
            let (page, line) = fitted(&points);
            Cost { page, line }
        })
    }

    /// How much longer copying takes than sharing, of so many lines: as measured, and by the constants.
    fn ratios(&self, model: &'static str, lines: u64) -> Option<(f64, f64)> {
        let time = |way| Some(self.lines.get(&(model, way, lines))?.load);
        let by = |way| {
            self.cost(model, way)
                .map(|c| c.page + lines as f64 * c.line)
        };
        let measured = time(Access::Messages)? / time(Access::Shared)?;
        Some((measured, by(Access::Messages)? / by(Access::Shared)?))
    }

    /// What the figures do not show that they must.
    pub fn problem(&self) -> Option<String> {
        if let Some(why) = &self.failure {
            return Some(why.clone());
        }
        if self.lines.is_empty() {
            return Some("nothing was measured".into());
        }
        for model in self.models() {
            let mut before = f64::INFINITY;
            for lines in LINES {
                let Some((measured, by)) = self.ratios(model, lines) else {
                    return Some(format!("{model}: {lines} lines are missing"));
                };
                if (by / measured - 1.0).abs() > FITS {
                    return Some(format!(
                        "{model}, {lines} lines: copying takes {measured:.2} times as long, by the constants {by:.2}"
                    ));
                }
                if measured > before {
                    return Some(format!("{model}: the ratio rises at {lines} lines"));
                }
                before = measured;
            }
        }
        None
    }

    /// The figures as tables, in the form that the book has too.
    pub fn table(&self) -> String {
        let mut out = String::from(
            "| model | lines | ring | fused | ratio | by the constants |\n|---|---:|---:|---:|---:|---:|\n",
        );
        for model in self.models() {
            for lines in LINES {
                let time = |way| self.lines.get(&(model, way, lines)).map_or(0.0, |t| t.load);
                let (measured, by) = self.ratios(model, lines).unwrap_or_default();
                // Writing to a string cannot fail.
                let _ = writeln!(
                    out,
                    "| {model} | {lines} | {:.0} | {:.0} | {measured:.2} | {by:.2} |",
                    time(Access::Messages),
                    time(Access::Shared)
                );
            }
        }
        out.push_str("\n| model | system | a page | a line |\n|---|---|---:|---:|\n");
        for model in self.models() {
            for way in Access::ALL {
                if let Some(cost) = self.cost(model, way) {
                    let (page, line) = (cost.page, cost.line);
                    let _ = writeln!(out, "| {model} | {} | {page:.0} | {line:.1} |", way.name());
                }
            }
        }
        out.push_str(
            "\n| model | pattern | ring, loads | fused, loads | ratio | ring, stores | fused, stores |\n\
             |---|---|---:|---:|---:|---:|---:|\n",
        );
        for model in self.models() {
            for pattern in PATTERNS {
                let of = |way| self.patterns.get(&(model, way, pattern)).copied();
                if let (Some(ring), Some(fused)) = (of(Access::Messages), of(Access::Shared)) {
                    let _ = writeln!(
                        out,
                        "| {model} | {pattern} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} |",
                        ring.load,
                        fused.load,
                        ring.load / fused.load,
                        ring.store,
                        fused.store
                    );
                }
            }
        }
        out
    }

    /// The figures as a page of the book.
    pub fn page(&self) -> String {
        HEAD.to_owned() + &self.table()
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let lines = self.lines.iter().map(|(&(model, way, lines), touch)| {
            json!({
                "model": model, "system": way.name(), "lines": lines,
                "load_ns": touch.load, "store_ns": touch.store,
            })
        });
        let patterns = self.patterns.iter().map(|(&(model, way, pattern), touch)| {
            json!({
                "model": model, "system": way.name(), "pattern": pattern,
                "load_ns": touch.load, "store_ns": touch.store,
            })
        });
        let costs = self.models().into_iter().flat_map(|model| {
            Access::ALL.into_iter().filter_map(move |way| {
                let cost = self.cost(model, way)?;
                Some(json!({
                    "model": model, "system": way.name(),
                    "page_ns": cost.page, "line_ns": cost.line,
                }))
            })
        });
        json!({
            "schema": SCHEMA,
            "suite": "pages",
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "lines": lines.collect::<Vec<_>>(),
            "patterns": patterns.collect::<Vec<_>>(),
            "costs": costs.collect::<Vec<_>>(),
        })
    }
}

const HEAD: &str = "\
# Pages of another node

What it costs a program to reach pages of another node, by [messages that copy them](../architecture/multiple.md) (*ring*) and through shared
memory (*fused*), in nanoseconds of simulated time per page, as

```console
$ cargo xtask bench pages --page book/src/reference/pages.md
```

has measured it in strict order, profile `paper-big`. The program begins on x86-64. First: AArch64 loads so many lines of each of 256 pages that
x86-64 has written, for the first time. A copied page costs a fault and then own memory for each line, a shared page the other node's memory
for each line; the constants of both are fitted to all rows.

Then all lines of 10 MiB in order, loads and then stores, by pattern: `vanilla`, its own memory; `rao`, the remote side's first access to memory of the
origin; `rao-nc`, a later one; `oar` and `oar-nc`, the origin's access to memory that the remote side has touched first.

";

#[cfg(test)]
mod tests {
    use super::*;

    /// A system in which a copied page costs 50 us and 10 ns for each line, and a shared line as much as `remote` says.
    fn figures(remote: impl Fn(u64) -> f64) -> Pages {
        let mut all = Pages::default();
        for lines in LINES {
            let n = lines as f64;
            for (way, load) in [
                (Access::Messages, 50_000.0 + 10.0 * n),
                (Access::Shared, 400.0 + n * remote(lines)),
            ] {
                let touch = PerPage { load, store: load };
                all.lines.insert(("shared", way, lines), touch);
            }
        }
        all
    }

    #[test]
    fn constants_are_found_again() {
        let all = figures(|_| 300.0);
        let cost = all.cost("shared", Access::Messages).unwrap();
        assert!((cost.page - 50_000.0).abs() < 1.0 && (cost.line - 10.0).abs() < 0.01);
        assert_eq!(all.problem(), None);
        let table = all.table();
        assert!(
            table.contains("| shared | 1 | 50010 | 700 | 71.44 | 71.44 |"),
            "{table}"
        );
        assert!(all.page().contains("bench pages --page"));
        assert_eq!(all.json()["costs"][1]["system"], "fused");
    }

    #[test]
    fn times_that_are_no_line_are_said() {
        let all = figures(|lines| if lines == 8 { 900.0 } else { 300.0 });
        let why = all.problem().unwrap();
        assert!(why.contains("lines: copying takes"), "{why}");
        assert!(Pages::default().problem().is_some());
    }
}
