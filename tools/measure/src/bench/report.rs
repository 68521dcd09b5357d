//! The results for people and for programs.
//!
//! The JSON form has the schema `dyad.bench/1`:
//!
//! | member | |
//! |---|---|
//! | `schema`, `suite` | `dyad.bench/1`, `kernel` |
//! | `ok` | nothing failed and nothing is missing |
//! | `failure` | why not, or null |
//! | `runs` | per run: `nodes`, `logs` |
//! | `rows` | per operation, ISA and memory: see below |
//! | `missing` | rows that should be there: `op`, `isa`, `memory` |
//! | `masked` | the longest stretches with interrupts masked: `what`, `isa`, `longest` (instructions), `n`, `bound` |
//!
//! A row has `op`, `isa`, `memory`; `instructions` (the median), `min`, `max` of instructions; `n`
//! (samples) and `interrupted` (repetitions that gave none); the medians of `lines`,
//! `fused_lines`, `accesses`, `devices`, `atomics`, `flushes`, `fences`; `cycles` and `cycles_p99`
//! if time was simulated; and `sel4`, `linux`, `goal` for comparison. Null is where there is none.

use std::fmt::Write as _;
use std::path::PathBuf;

use dyad_abi::Isa;
use serde_json::{Value, json};

use super::cycles::Cycles;
use super::longest::Longest;
use super::peers::peers;
use super::results::{Counts, Key, Results, Row};
use dyad_launcher::paths;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "dyad.bench/1";

/// A run of the benchmark program.
#[derive(Clone, Debug)]
pub struct BenchRun {
    /// ISA of each node.
    pub nodes: Vec<Isa>,
    /// Where its logs are.
    pub logs: PathBuf,
}

/// The outcome of the benchmark.
#[derive(Clone, Debug, Default)]
pub struct BenchReport {
    /// The runs.
    pub runs: Vec<BenchRun>,
    /// What was counted.
    pub results: Results,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// The longest stretches with interrupts masked.
    pub longest: Longest,
    /// Rows that should be there.
    pub missing: Vec<Key>,
    /// What operations take in simulated time, if that was asked for.
    pub cycles: Cycles,
}

impl BenchReport {
    /// The JSON form.
    pub fn json(&self) -> Value {
        let runs: Vec<Value> = self
            .runs
            .iter()
            .map(|run| json!({ "nodes": names(&run.nodes), "logs": run.logs }))
            .collect();
        let rows = self.results.rows.iter();
        let rows = rows.filter_map(|(&key, row)| Some(self.row(key, row, row.counts?)));
        let missing = self.missing.iter().map(|key| key_json(*key));
        json!({
            "schema": SCHEMA,
            "suite": "kernel",
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "runs": runs,
            "rows": rows.collect::<Vec<_>>(),
            "missing": missing.collect::<Vec<_>>(),
            "masked": self.longest.json(),
        })
    }

    fn row(&self, key: Key, row: &Row, counts: Counts) -> Value {
        let peers = peers(key.op);
        let cycles = self.cycles.rows.get(&key);
        let mut value = key_json(key);
        let more = json!({
            "instructions": counts.instructions.median,
            "min": counts.instructions.min,
            "max": counts.instructions.max,
            "n": row.n,
            "interrupted": row.interrupted,
            "lines": counts.lines.median,
            "fused_lines": counts.fused_lines.median,
            "accesses": counts.accesses.median,
            "devices": counts.devices.median,
            "atomics": counts.atomics.median,
            "flushes": counts.flushes.median,
            "fences": counts.fences.median,
            "cycles": cycles.map(|c| c.median),
            "cycles_p99": cycles.map(|c| c.p99),
            "sel4": peers.sel4_on(key.isa),
            "linux": peers.linux_on(key.isa),
            "goal": self.results.goal(key),
        });
        if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
            value.extend(more);
        }
        value
    }

    /// What is wrong with the results, in one text.
    pub fn problem(&self) -> Option<String> {
        if let Some(failure) = &self.failure {
            return Some(failure.clone());
        }
        if self.missing.is_empty() {
            return None;
        }
        let mut text = format!("{} rows are missing:", self.missing.len());
        // One line per operation; they are in order.
        for same in self.missing.chunk_by(|a, b| a.op == b.op) {
            let _ = write!(text, "\n  {:<24}", same[0].op);
            for key in same {
                let _ = write!(text, "  {} {}", key.isa, key.memory.name());
                let few = self.results.rows.get(key).map_or(0, |row| row.n);
                if few > 0 {
                    let _ = write!(text, " ({few} samples only)");
                }
            }
        }
        Some(text)
    }

    /// The rows as a table.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<24} {:<7} {:<6} {:>6} {:>6} {:>6} {:>4} {:>5} {:>5} {:>5} {:>6} {:>6} {:>6} {:>6} {:>6}\n",
            "operation",
            "isa",
            "memory",
            "min",
            "median",
            "max",
            "n",
            "lines",
            "fused",
            "atom.",
            "flush.",
            "fences",
            "seL4",
            "Linux",
            "goal"
        );
        for (&key, row) in &self.results.rows {
            let Some(c) = row.counts else {
                let _ = writeln!(out, "{key}: interrupted {} times", row.interrupted);
                continue;
            };
            let peers = peers(key.op);
            let goal = self.results.goal(key);
            let verdict = match goal {
                Some(goal) if c.instructions.median > goal => "  missed",
                Some(_) => "  met",
                None => "",
            };
            let _ = writeln!(
                out,
                "{:<24} {:<7} {:<6} {:>6} {:>6} {:>6} {:>4} {:>5} {:>5} {:>5} {:>6} {:>6} {:>6} {:>6} {:>6}{verdict}",
                key.op,
                key.isa,
                key.memory.name(),
                c.instructions.min,
                c.instructions.median,
                c.instructions.max,
                row.n,
                c.lines.median,
                c.fused_lines.median,
                c.atomics.median,
                c.flushes.median,
                c.fences.median,
                or_dash(peers.sel4_on(key.isa)),
                or_dash(peers.linux_on(key.isa)),
                or_dash(goal),
            );
        }
        if !self.cycles.rows.is_empty() {
            let _ = write!(out, "\n{}\n", self.cycles.table());
        }
        for run in &self.runs {
            let nodes = names(&run.nodes).join(",");
            let _ = writeln!(out, "nodes {nodes}: logs in {}", paths::shown(&run.logs));
        }
        out
    }
}

fn names(nodes: &[Isa]) -> Vec<&'static str> {
    nodes.iter().map(|isa| isa.name()).collect()
}

fn key_json(key: Key) -> Value {
    json!({ "op": key.op.name(), "isa": key.isa.name(), "memory": key.memory.name() })
}

fn or_dash(figure: Option<u64>) -> String {
    figure.map_or("-".into(), |n| n.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::PLUGIN_SCHEMA;
    use dyad_abi::Isa::{Aarch64, X86_64};
    use dyad_abi::marker::BenchMemory::{Fused, Local};
    use dyad_abi::marker::{BENCH_OPS, BenchMemory, BenchOp};

    fn window(op: BenchOp, memory: BenchMemory, n: u64, instructions: u64) -> Value {
        let mut window = json!({ "id": op.window(memory).0, "n": n, "interrupted": 1 });
        if n > 0 {
            let names = "lines fused_lines accesses devices atomics flushes fences";
            for name in names.split(' ') {
                window[name] = json!({ "min": 0, "median": 0, "max": 0 });
            }
            let (min, max) = (instructions.saturating_sub(1), instructions);
            window["instructions"] = json!({ "min": min, "median": instructions, "max": max });
        }
        window
    }

    fn plugin(isa: Isa, windows: Vec<Value>) -> Value {
        json!({ "schema": PLUGIN_SCHEMA, "target": isa.name(), "windows": windows, "more": 1 })
    }

    /// Everything on both ISAs, with so many instructions.
    fn complete(instructions: u64) -> BenchReport {
        let mut report = BenchReport::default();
        for isa in Isa::ALL {
            let ops = BENCH_OPS.iter().flat_map(|&op| {
                let empty = op == BenchOp::Empty;
                let n = if empty { 0 } else { instructions };
                BenchMemory::ALL.map(|memory| window(op, memory, 64, n))
            });
            report.results.add(&plugin(isa, ops.collect())).unwrap();
        }
        report.missing = report.results.missing(&Isa::ALL);
        report
    }

    #[test]
    fn a_complete_report_is_good() {
        let report = complete(100);
        assert_eq!(report.problem(), None);
        assert_eq!(report.results.control(&Isa::ALL), Ok(()));
        let json = report.json();
        assert_eq!(
            (&json["schema"], &json["suite"]),
            (&json!(SCHEMA), &json!("kernel"))
        );
        assert_eq!(json["ok"], true);
        let row = json["rows"].as_array().unwrap().iter();
        let mut row = row.filter(|r| r["op"] == "map" && r["isa"] == "x86_64");
        let expected = json!({
            "op": "map", "isa": "x86_64", "memory": "local", "instructions": 100, "min": 99,
            "max": 100, "n": 64, "interrupted": 1, "lines": 0, "fused_lines": 0, "accesses": 0,
            "devices": 0, "atomics": 0, "flushes": 0, "fences": 0, "cycles": null, "cycles_p99": null,
            "sel4": 772, "linux": 5124, "goal": 300,
        });
        assert_eq!(row.next(), Some(&expected));
        assert_eq!(row.next().unwrap()["memory"], "fused");
    }

    #[test]
    fn what_is_missing_is_listed() {
        let mut report = complete(100);
        let key = |op, isa, memory| Key { op, isa, memory };
        let gone = key(BenchOp::Revoke64, Aarch64, Fused);
        report.results.rows.remove(&gone);
        let few = key(BenchOp::Map, X86_64, Local);
        report.results.rows.get_mut(&few).unwrap().n = 31;
        // Not required.
        let extra = key(BenchOp::Now, X86_64, Local);
        report.results.rows.remove(&extra);
        report.missing = report.results.missing(&Isa::ALL);
        assert_eq!(report.missing, [gone, few]);
        let text = report.problem().unwrap();
        assert!(text.contains("2 rows are missing"), "{text}");
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["revoke_64", "aarch64", "fused"]);
        assert_eq!(
            lines[2],
            ["map", "x86_64", "local", "(31", "samples", "only)"]
        );
        let json = report.json();
        assert_eq!(json["ok"], false);
        assert_eq!(json["missing"][0]["op"], "revoke_64");
        assert_eq!(report.results.missing(&[X86_64]), [few]);
    }

    #[test]
    fn goals_are_judged() {
        let mut report = complete(100);
        let own = Key {
            op: BenchOp::Map,
            isa: X86_64,
            memory: Local,
        };
        let foreign = Key {
            op: BenchOp::MapForeign,
            ..own
        };
        assert_eq!(report.results.goal(foreign), Some(130));
        let table = report.table();
        let line = |table: &str, start: &str| {
            let line = table.lines().find(|l| l.starts_with(start)).unwrap();
            line.to_string()
        };
        assert!(
            line(&table, "map_foreign").ends_with(" 130  met"),
            "{table}"
        );
        assert!(
            line(&table, "null_syscall").ends_with(" 90  missed"),
            "{table}"
        );
        assert!(line(&table, "flush_step").ends_with(" -"), "{table}");
        report.results.rows.remove(&own);
        assert_eq!(report.results.goal(foreign), None);
    }

    #[test]
    fn runs_are_put_together() {
        let mut results = Results::default();
        let null = |n, count| window(BenchOp::NullSyscall, Fused, n, count);
        for windows in [vec![null(40, 10)], vec![null(24, 30)], vec![null(0, 0)]] {
            results.add(&plugin(X86_64, windows)).unwrap();
        }
        let (_, row) = results.rows.first_key_value().unwrap();
        let instructions = row.counts.unwrap().instructions;
        assert_eq!((row.n, row.interrupted), (64, 3));
        assert_eq!(
            (instructions.min, instructions.median, instructions.max),
            (9, 30, 30)
        );
    }

    #[test]
    fn parts_are_added_up() {
        let mut results = Results::default();
        let op = BenchOp::IpcCrossIsaRoundTrip;
        let part = |part, n, count| {
            let mut window = window(op, Fused, n, count);
            window["id"] = json!(op.part(Fused, part).0);
            window
        };
        let caller = vec![part(0, 40, 100), part(2, 40, 20), part(1, 40, 7000)];
        let callee = vec![part(1, 33, 3)];
        for (isa, windows) in [(X86_64, caller), (Aarch64, callee)] {
            results.add(&plugin(isa, windows)).unwrap();
        }
        // Only the side that has begun it has a row.
        let (key, row) = results.rows.first_key_value().unwrap();
        assert_eq!((results.rows.len(), key.isa, row.n), (1, X86_64, 33));
        let instructions = row.counts.unwrap().instructions;
        assert_eq!((instructions.min, instructions.median), (120, 123));
    }

    #[test]
    fn a_control_that_counts_is_a_failure() {
        let mut results = complete(1).results;
        results
            .add(&plugin(Aarch64, vec![window(BenchOp::Empty, Local, 1, 2)]))
            .unwrap();
        let e = results.control(&Isa::ALL).unwrap_err();
        assert!(
            e.contains("control on aarch64 is not empty: up to 2 instructions"),
            "{e}"
        );
        assert_eq!(results.control(&[X86_64]), Ok(()));
        let e = Results::default().control(&[X86_64]).unwrap_err();
        assert!(e.contains("no control on x86_64"), "{e}");
    }

    #[test]
    fn reports_of_something_else_are_refused() {
        let mut results = Results::default();
        let mut refused = |report: Value, words: &str| {
            let e = results.add(&report).unwrap_err();
            assert!(e.contains(words), "{e}");
        };
        let good = plugin(X86_64, vec![]);
        let with = |name: &str, value: Value| {
            let mut report = good.clone();
            report[name] = value;
            report
        };
        refused(with("schema", json!("dyad.count/1")), "not \"dyad.sim/6\"");
        refused(with("target", json!("riscv64")), "riscv64");
        refused(with("windows", Value::Null), "windows=on");
        refused(json!(3), "cannot be read");
        let stray = json!([{ "id": 1000, "n": 0, "interrupted": 0 }]);
        refused(with("windows", stray), "window 1000 is of no operation");
        let own = json!([{ "id": 0x8000, "n": 0, "interrupted": 0 }]);
        assert_eq!(results.add(&with("windows", own)), Ok(()));
        assert!(results.rows.is_empty());
    }
}
