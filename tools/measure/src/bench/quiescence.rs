//! How long it takes until what was given up can be used again, in flush steps, on systems with
//! pools of different sizes.
//!
//! The program `quiescence` takes the steps and reports how many there were. The JSON form
//! has the schema `dyad.bench/1`, with the suite `quiescence`:
//!
//! | member | |
//! |---|---|
//! | `ok`, `failure` | whether steps are the same with every size and follow the lines; why not, or null |
//! | `runs` | per run: `nodes`, `pool` (bytes), `coherence`, `logs` |
//! | `rows` | per run, node and number of lines: `pool`, `coherence`, `isa`, `lines`, `steps`, `rounds` |

use std::fmt::Write as _;
use std::path::PathBuf;

use dyad_abi::Isa;
use dyad_abi::boot::{MIN_POOL, POOL_GRANULE};
use dyad_shm::quiesce::LOG_ENTRIES;
use serde_json::{Value, json};

use super::report::SCHEMA;
use dyad_launcher::config::{RunConfig, TestOptions, Work};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{self, RunReport, Sink};
use dyad_launcher::{paths, size};

/// The program that takes the steps.
pub const QUIESCENCE_APP: &str = "quiescence";
/// Sizes of pools unless told otherwise.
pub const DEFAULT_POOLS: [u64; 4] = [64 << 20, 256 << 20, 1 << 30, 4 << 30];

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Bytes of each pool.
    pub pool: u64,
    /// Whether caches are kept coherent.
    pub coherent: bool,
    /// The node that took the steps.
    pub node: usize,
    /// Its ISA.
    pub isa: Isa,
    /// Lines that were touched.
    pub lines: u64,
    /// Steps until they could be used again.
    pub steps: u64,
    /// Rounds that these were.
    pub rounds: u64,
}

/// All figures.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// By size, coherence, node and lines, in that order.
    pub rows: Vec<Latency>,
    /// Why there are no more, if there should be.
    pub failure: Option<String>,
    runs: Vec<(Vec<Isa>, u64, bool, PathBuf)>,
}

/// Measures on systems with these nodes and pools of these sizes, with coherent caches and
/// without.
///
/// # Errors
///
/// If a size cannot be that of a pool, if a run could not be made, or was interrupted. Runs that
/// fail otherwise are in the result.
pub fn quiescence(nodes: &[Isa], pools: &[u64], sink: &mut dyn Sink) -> Result<Latencies, Error> {
    for &pool in pools {
        if pool < MIN_POOL || !pool.is_multiple_of(POOL_GRANULE) {
            return Err(Error::Usage(format!(
                "a pool cannot have {}: give a multiple of {} from {} on",
                size::show(pool),
                size::show(POOL_GRANULE),
                size::show(MIN_POOL)
            )));
        }
    }
    let mut all = Latencies::default();
    for &pool in pools {
        for coherent in [true, false] {
            let config = RunConfig {
                nodes: nodes.to_vec(),
                mem_local: pool,
                mem_cxl: pool,
                work: Work::App {
                    app: QUIESCENCE_APP.into(),
                    args: String::new(),
                },
                coherent,
                test: TestOptions {
                    // Nobody else drives rounds.
                    bare: true,
                    ..TestOptions::default()
                },
                ..RunConfig::default()
            };
            let report = launch::run(&config, sink);
            if let Some(
                e @ (Error::Usage(_) | Error::Setup(_) | Error::Build(_) | Error::Interrupted),
            ) = report.error
            {
                return Err(e);
            }
            let run = (nodes.to_vec(), pool, coherent, report.dir.clone());
            all.runs.push(run);
            match collect(&report) {
                Ok(rows) => all.rows.extend(rows),
                Err(why) => {
                    let (pool, caches) = (size::show(pool), caches(coherent));
                    all.failure = Some(format!("pools of {pool}, {caches} caches: {why}"));
                    return Ok(all);
                }
            }
        }
    }
    Ok(all)
}

const fn caches(coherent: bool) -> &'static str {
    match coherent {
        true => "coherent",
        false => "incoherent",
    }
}

/// The figures of a run: counters `quiescence.LINES.nodeNODE.steps` and `.rounds`.
fn collect(report: &RunReport) -> Result<Vec<Latency>, String> {
    if let Some(why) = report.failure() {
        return Err(why);
    }
    let mut rows = Vec::new();
    for (name, &steps) in &report.counters {
        let words: Vec<&str> = name.split('.').collect();
        let &["quiescence", lines, node, "steps"] = words.as_slice() else {
            continue;
        };
        let node: Option<usize> = node.strip_prefix("node").and_then(|n| n.parse().ok());
        let rounds = report.counters.get(&name.replace(".steps", ".rounds"));
        let row = node.and_then(|node| {
            Some(Latency {
                pool: report.config.mem_cxl,
                coherent: report.config.coherent,
                node,
                isa: *report.config.nodes.get(node)?,
                lines: lines.parse().ok()?,
                steps,
                rounds: *rounds?,
            })
        });
        rows.push(row.ok_or_else(|| format!("the counter {name} makes no sense"))?);
    }
    rows.sort_by_key(|row| (row.node, row.lines));
    Ok(rows)
}

impl Latencies {
    /// Rows that differ in nothing but the size of pools, as lists of figures by size.
    fn by_size(&self) -> Vec<Vec<Latency>> {
        let mut lists: Vec<Vec<Latency>> = Vec::new();
        let of = |r: &Latency| (r.coherent, r.node, r.lines);
        for row in &self.rows {
            match lists.iter_mut().find(|list| of(&list[0]) == of(row)) {
                Some(list) => list.push(*row),
                None => lists.push(vec![*row]),
            }
        }
        lists
    }

    /// What the figures do not show that they must: steps that are the same with every size; with
    /// coherent caches, the same for any lines; without, more for more lines while a log holds
    /// them, and no more than for a full log when it does not.
    pub fn problem(&self) -> Option<String> {
        if let Some(why) = &self.failure {
            return Some(why.clone());
        }
        let lists = self.by_size();
        if lists.is_empty() {
            return Some("nothing was measured".into());
        }
        for list in &lists {
            if let Some(other) = list.iter().find(|row| row.steps != list[0].steps) {
                return Some(format!(
                    "{} steps with pools of {} but {} with {} ({}, {} lines, {} caches)",
                    list[0].steps,
                    size::show(list[0].pool),
                    other.steps,
                    size::show(other.pool),
                    other.isa,
                    other.lines,
                    caches(other.coherent)
                ));
            }
        }
        for few in &self.rows {
            for many in &self.rows {
                let same = |r: &Latency| (r.pool, r.coherent, r.node);
                if same(few) != same(many) || few.lines >= many.lines {
                    continue;
                }
                let logged = |row: &Latency| row.lines <= LOG_ENTRIES as u64;
                let right = match (few.coherent, logged(few), logged(many)) {
                    (true, _, _) => few.steps == many.steps,
                    (false, true, true) => few.steps < many.steps,
                    // Everything is dropped.
                    (false, true, false) => many.steps < few.steps + LOG_ENTRIES as u64,
                    (false, false, _) => few.steps == many.steps,
                };
                if !right {
                    return Some(format!(
                        "{} steps for {} lines but {} for {} ({}, {} caches)",
                        few.steps,
                        few.lines,
                        many.steps,
                        many.lines,
                        few.isa,
                        caches(few.coherent)
                    ));
                }
            }
        }
        None
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let runs = self.runs.iter().map(|(nodes, pool, coherent, logs)| {
            let nodes: Vec<&str> = nodes.iter().map(|isa| isa.name()).collect();
            json!({ "nodes": nodes, "pool": pool, "coherence": caches(*coherent), "logs": logs })
        });
        let rows = self.rows.iter().map(|row| {
            json!({
                "pool": row.pool,
                "coherence": caches(row.coherent),
                "isa": row.isa.name(),
                "node": row.node,
                "lines": row.lines,
                "steps": row.steps,
                "rounds": row.rounds,
            })
        });
        json!({
            "schema": SCHEMA,
            "suite": "quiescence",
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "runs": runs.collect::<Vec<_>>(),
            "rows": rows.collect::<Vec<_>>(),
        })
    }

    /// The figures as a table, one column per size, in the form that the book has too.
    pub fn table(&self) -> String {
        let lists = self.by_size();
        let mut out = String::from("| caches | node | lines | rounds |");
        let sizes = lists.iter().max_by_key(|list| list.len());
        let sizes: Vec<u64> = sizes.into_iter().flatten().map(|row| row.pool).collect();
        for size in &sizes {
            // Writing to a string cannot fail.
            let _ = write!(out, " {} |", size::show(*size));
        }
        out.push_str("\n|---|---|---:|---:|");
        out.push_str(&"---:|".repeat(sizes.len()));
        out.push('\n');
        for list in &lists {
            let row = list[0];
            let (caches, isa) = (caches(row.coherent), row.isa);
            let _ = write!(out, "| {caches} | {isa} | {} | {} |", row.lines, row.rounds);
            for row in list {
                let _ = write!(out, " {} |", row.steps);
            }
            out.push('\n');
        }
        out
    }

    /// Where the logs are.
    pub fn logs(&self) -> String {
        let mut out = String::new();
        for (_, pool, coherent, logs) in &self.runs {
            let (pool, caches) = (size::show(*pool), caches(*coherent));
            let _ = writeln!(
                out,
                "pools of {pool}, {caches}: logs in {}",
                paths::shown(logs)
            );
        }
        out
    }

    /// The table as a page of the book.
    pub fn page(&self) -> String {
        format!("{HEAD}{}", self.table())
    }
}

const HEAD: &str = "\
# Latency of quiescence

Flush steps of a node from the moment at which capability slots were emptied until they can be used again, by the size
of the pools (every local pool and the CXL pool), as

```console
$ cargo xtask bench quiescence --page book/src/reference/quiescence.md
```

has counted them. A slot is a line. All nodes are awake, have just published a round, and go through the next one side
by side; before every step it is checked that the slots are still refused, and after the last that all are free.

With coherent caches there is nothing to write back, and a round has the same steps whatever was touched. It goes over the
logs and CPUs there are, not those there can be:

| step | number |
|---|---:|
| take an epoch, read which logs there are | 1 |
| changed lines: where each log ends, and that it has been read; after the last | 2 for each CPU of the system, and 1 |
| go on to the request, ask the CPUs of the node that are awake | 2 |
| see that they have acknowledged; after the last | 1 for each of them, and 1 |
| frames given up: as for changed lines | 2 for each CPU of the system, and 1 |
| publish | 1 |

Without, each line adds a step to both passes. A log holds 504 lines; a reader that has been lapped drops everything instead,
which on x86-64 is one step, and on AArch64 one for every 16 KiB of the caches, so the steps become fewer and each longer.
The size of memory is nowhere in it. A round that was already going on when something was given up comes first, so the worst case is twice the figure.

";

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures as they should be, for two sizes.
    fn good() -> Latencies {
        let mut all = Latencies::default();
        for pool in [64 << 20, 4 << 30] {
            for coherent in [true, false] {
                for lines in [1, 64, 1000] {
                    let logged = if lines < 504 { 16 + 2 * lines } else { 10 };
                    all.rows.push(Latency {
                        pool,
                        coherent,
                        node: 0,
                        isa: Isa::X86_64,
                        lines,
                        steps: if coherent { 16 } else { logged },
                        rounds: 1,
                    });
                }
            }
        }
        all
    }

    #[test]
    fn figures_that_show_it_are_good() {
        assert_eq!(good().problem(), None);
        let json = good().json();
        assert_eq!(
            (&json["ok"], &json["failure"]),
            (&json!(true), &Value::Null)
        );
        assert_eq!(json["rows"].as_array().unwrap().len(), 12);
        let table = good().table();
        assert!(table.contains("| rounds | 64 MiB | 4 GiB |"), "{table}");
        assert!(table.contains("| incoherent | x86_64 | 64 | 1 | 144 | 144 |"));
    }

    #[test]
    fn others_are_not() {
        let bad = |change: fn(&mut Latencies), words: &str| {
            let mut all = good();
            change(&mut all);
            let why = all.problem().unwrap_or_default();
            assert!(why.contains(words), "{why:?}");
        };
        bad(|all| all.rows.clear(), "nothing was measured");
        bad(|all| all.failure = Some("no run".into()), "no run");
        // One step more with more memory.
        bad(|all| all.rows[9].steps += 1, "with pools of 64 MiB but");
        // Lines that make no difference, or one where there is none.
        bad(
            |all| {
                for row in all.rows.iter_mut().filter(|r| !r.coherent) {
                    row.steps = 16;
                }
            },
            "16 steps for 1 lines but 16 for 64",
        );
        bad(
            |all| {
                for row in all.rows.iter_mut().filter(|r| r.coherent) {
                    row.steps += row.lines;
                }
            },
            "coherent caches",
        );
        // A log that never ends.
        bad(
            |all| {
                for row in all.rows.iter_mut().filter(|r| r.lines == 1000) {
                    row.steps = if row.coherent { 16 } else { 2016 };
                }
            },
            "2016 for 1000",
        );
    }
}
