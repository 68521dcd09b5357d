//! The results as text and as data.
//!
//! The JSON form has the schema `dyad.bench/1`, with the suite `migration`:
//!
//! | member | |
//! |---|---|
//! | `schema`, `suite`, `quick` | `dyad.bench/1`, `migration`, whether less of everything was done |
//! | `ok`, `failure` | every run was good and every row that was asked for has all its figures; why not, or null |
//! | `simulated` | `profile`, `model`, `ipi_ns`, or null |
//! | `rows` | see below |
//! | `pointer_chase` | per ISA: the curves, see [`Chase`] |
//! | `bfs` | per ISA: the searches, see [`Searches`] |
//! | `goals` | `what`, `isa`, `goal`, `figure`, `met` |
//! | `missing` | operations without a row: `op`, `reason` |
//! | `logs` | directories of the runs |
//!
//! A row has `op`, `isa`; `instructions` of both CPUs together, `sim_ns`, `host_ns`; `n` and
//! `interrupted`; `phases` (of instructions) and `sim_phases` (of simulated time), lists of `name`
//! and `value`, the latter with what they add up to, `phased_ns`: time with looks at the clock in
//! between; and what else was reported, by name. Null is where there is none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use dyad_abi::Isa;
use dyad_sim_model::config::SimConfig;
use serde_json::{Value, json};

use super::curves::Chase;
use super::goals::{Goal, goals};
use super::rows::{COST, EXPECTED, Key, PER_FRAME, Phase, Row, rows};
use super::searches::Searches;
use super::{Figures, Options};
use crate::bench::SCHEMA;
use dyad_launcher::paths;

/// The results of a measurement.
#[derive(Clone, Debug, Default)]
pub struct MigrationReport {
    /// Costs by operation and ISA.
    pub rows: BTreeMap<Key, Row>,
    /// The curves of following a list.
    pub chases: BTreeMap<Isa, Chase>,
    /// The searches.
    pub searches: BTreeMap<Isa, Searches>,
    /// Goals for the figures.
    pub goals: Vec<Goal>,
    /// Operations without results, and the reasons.
    pub missing: Vec<(String, String)>,
    /// Descriptions of failures.
    pub failures: Vec<String>,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
    quick: bool,
    config: Option<SimConfig>,
    logs: Vec<PathBuf>,
}

/// Names are those of a family if they end with `_`.
fn is_of(op: &str, expected: &str) -> bool {
    match expected.ends_with('_') {
        true => op.starts_with(expected),
        false => op == expected,
    }
}

impl MigrationReport {
    pub(super) fn new(
        figures: Figures,
        mut failures: Vec<String>,
        logs: Vec<PathBuf>,
        options: &Options,
        interrupted: bool,
    ) -> MigrationReport {
        let rows = rows(&figures);
        let chase = |&isa: &Isa| Some((isa, Chase::of(&figures, &rows, isa)?));
        let chases: BTreeMap<Isa, Chase> = Isa::ALL.iter().filter_map(chase).collect();
        let search = |&isa: &Isa| Some((isa, Searches::of(&rows, isa)?));
        let searches: BTreeMap<Isa, Searches> = Isa::ALL.iter().filter_map(search).collect();
        for (key, row) in &rows {
            // What is made of other rows lacks what they lack; costs are of instructions only. Nobody
            // expects rows to be complete who has ended it.
            if interrupted || key.op == PER_FRAME || key.op.starts_with(COST) {
                continue;
            }
            let figures = [
                ("instructions", row.instructions.is_some()),
                ("simulated time", row.sim_ns.is_some()),
                ("time of the host", row.host_ns.is_some()),
            ];
            for (what, _) in figures.iter().filter(|(_, there)| !there) {
                failures.push(format!("{key} has no {what}"));
            }
        }
        let missing = EXPECTED.iter().filter(|(expected, _)| {
            let mut of = rows.keys().filter(|key| is_of(&key.op, expected));
            of.next().is_none()
        });
        let reason = |&(op, group): &(&str, _)| {
            let reason = match options.groups.contains(&group) {
                true => "its runs have failed, or were not made",
                false => "it was not asked for",
            };
            let n = if op.ends_with('_') { "N" } else { "" };
            (format!("{op}{n}"), reason.to_string())
        };
        MigrationReport {
            goals: goals(&rows, &chases, &searches),
            missing: missing.map(reason).collect(),
            rows,
            chases,
            searches,
            failures,
            interrupted,
            quick: options.quick,
            config: figures.config,
            logs,
        }
    }

    /// What is wrong with the measurement, in one text. Goals that are missed are not: they are
    /// results.
    pub fn problem(&self) -> Option<String> {
        match (self.failures.as_slice(), self.rows.is_empty()) {
            ([], false) => None,
            ([], true) => Some("nothing was measured".into()),
            (failures, _) => Some(failures.join("; ")),
        }
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let config = self.config.as_ref();
        let simulated = config
            .map(|c| json!({ "profile": c.profile, "model": c.model, "ipi_ns": c.clock.ipi_ns }));
        let goal = |goal: &Goal| {
            json!({
                "what": goal.what,
                "isa": goal.isa.name(),
                "goal": goal.goal,
                "figure": goal.figure.is_finite().then_some(goal.figure),
                "met": goal.met,
            })
        };
        let missing = |(op, reason): &(String, String)| json!({ "op": op, "reason": reason });
        let chase = |(isa, chase): (&Isa, &Chase)| (isa.name().to_string(), chase_json(chase));
        let search = |(isa, s): (&Isa, &Searches)| (isa.name().to_string(), s.json());
        json!({
            "schema": SCHEMA,
            "suite": "migration",
            "quick": self.quick,
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "simulated": simulated,
            "rows": self.rows.iter().map(|(key, row)| row_json(key, row)).collect::<Vec<_>>(),
            "pointer_chase": self.chases.iter().map(chase).collect::<serde_json::Map<_, _>>(),
            "bfs": self.searches.iter().map(search).collect::<serde_json::Map<_, _>>(),
            "goals": self.goals.iter().map(goal).collect::<Vec<_>>(),
            "missing": self.missing.iter().map(missing).collect::<Vec<_>>(),
            "logs": self.logs,
        })
    }

    /// The rows, with `start`, `between` and `end` around their fields; by the kind of field
    /// names, then figures.
    fn lines(&self, line: &mut dyn FnMut(&Key, [String; 5])) {
        let mut keys: Vec<&Key> = self.rows.keys().collect();
        keys.sort_by_key(|key| (order(&key.op), key.isa));
        for key in keys {
            let row = &self.rows[key];
            let ns = |ns: Option<f64>| ns.map_or("-".into(), |ns| format!("{ns:.0}"));
            let phases = |row: &Row| {
                let values = row.phases.iter().map(|p| p.value.to_string());
                values.collect::<Vec<_>>().join(" + ")
            };
            let sim_phases = |row: &Row| {
                let values = row.sim_phases.iter().map(|p| format!("{:.0}", p.value));
                values.collect::<Vec<_>>().join(" + ")
            };
            let instructions = row.instructions.map_or("-".into(), |n| n.to_string());
            let fields = [
                instructions,
                ns(row.sim_ns),
                ns(row.host_ns),
                phases(row),
                sim_phases(row),
            ];
            line(key, fields);
        }
    }

    /// The rows, the curves and the goals as tables.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<34} {:<7} {:>12} {:>11} {:>11}  {}\n",
            "operation", "isa", "instructions", "sim ns", "host ns", "phases"
        );
        // Writing to a string cannot fail.
        self.lines(&mut |key, [instructions, sim, host, phases, times]| {
            let phases = match (phases.is_empty(), times.is_empty()) {
                (true, true) => String::new(),
                (false, true) => phases,
                (_, false) => format!("{phases}; ns {times}"),
            };
            let _ = writeln!(
                out,
                "{:<34} {:<7} {instructions:>12} {sim:>11} {host:>11}  {phases}",
                key.op, key.isa
            );
        });
        for (isa, chase) in &self.chases {
            let _ = writeln!(out, "\npointer chase from {isa}: {}", chase_text(chase));
        }
        let searches: Vec<String> = self.searches();
        if !searches.is_empty() {
            let _ = writeln!(out, "\n{}", searches.join("\n"));
        }
        if !self.goals.is_empty() {
            let _ = writeln!(out);
        }
        for goal in &self.goals {
            let verdict = if goal.met { "met" } else { "missed" };
            let _ = writeln!(
                out,
                "goal {:<7} {:<44} {:<8} {:>12.2}  ({})",
                verdict, goal.what, goal.isa, goal.figure, goal.goal
            );
        }
        for (op, reason) in &self.missing {
            let _ = writeln!(out, "missing {op}: {reason}");
        }
        if let Some(last) = self.logs.last() {
            let _ = writeln!(
                out,
                "{} runs; logs of the last in {}",
                self.logs.len(),
                paths::shown(last)
            );
        }
        out
    }

    /// Which side searches faster, by edges for each vertex.
    fn searches(&self) -> Vec<String> {
        let all = self.searches.iter();
        all.flat_map(|(isa, searches)| searches.text(*isa))
            .collect()
    }

    /// The rows and goals as a page of the book.
    pub fn page(&self) -> String {
        let mut out = String::from(HEAD);
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "| operation | from | instructions | simulated ns | host ns | phases, instructions | \
             phases, ns |\n|---|---|---:|---:|---:|---|---|\n"
        );
        self.lines(&mut |key, fields| {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} |",
                key.op,
                key.isa,
                fields.join(" | ")
            );
        });
        let _ = writeln!(out, "\n## Curves\n");
        for (isa, chase) in &self.chases {
            let _ = writeln!(out, "- Pointer chase from {isa}: {}.", chase_text(chase));
        }
        for search in self.searches() {
            let _ = writeln!(out, "- {search}.");
        }
        let _ = write!(
            out,
            "\n## Goals\n\n| what | from | goal | figure | |\n|---|---|---|---:|---|\n"
        );
        for goal in &self.goals {
            let verdict = if goal.met { "met" } else { "missed" };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {:.2} | {verdict} |",
                goal.what, goal.isa, goal.goal, goal.figure
            );
        }
        if !self.missing.is_empty() {
            let _ = writeln!(out, "\n## Missing\n");
        }
        for (op, reason) in &self.missing {
            let _ = writeln!(out, "- `{op}`: {reason}");
        }
        out
    }
}

const HEAD: &str = "\
# Figures of migration

What it costs to change the ISA, as

```console
$ cargo xtask bench migration --page book/src/reference/figures-migration.md
```

has measured it. What operations and columns are is in [counting](measure.md#cargo-xtask-bench-migration). Times of
the host are those of an emulator on one machine, and say little.

";

/// Numbers in names in the order of numbers.
fn order(op: &str) -> (String, u64) {
    let digits = op.len() - op.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (name, number) = op.split_at(op.len() - digits);
    (name.into(), number.parse().unwrap_or(0))
}

fn chase_text(c: &Chase) -> String {
    let even = c
        .break_even
        .map_or("not reached".into(), |n| format!("{n:.1}"));
    let plateau = c.plateau.map_or("-".into(), |p| format!("{p:.3}"));
    format!(
        "a migration there and back takes {:.0} ns, a step {:.1} ns from here and {:.1} ns from there \
         (by the latencies {:.1} and {:.1}); break-even at {even} steps (by the model {:.1}), \
         plateau {plateau} (by the model {:.3}); with {:.0} steps {:.3} times as fast as staying, \
         with 100 us of other work {:.3} (by the model {:.3})",
        c.migration_ns,
        c.far_ns,
        c.near_ns,
        c.modelled_far_ns,
        c.modelled_near_ns,
        c.modelled_break_even,
        c.modelled_plateau,
        c.most,
        c.speedup,
        c.speedup_with_work,
        c.modelled_with_work,
    )
}

fn chase_json(c: &Chase) -> Value {
    json!({
        "migration_ns": c.migration_ns,
        "far_ns": c.far_ns,
        "near_ns": c.near_ns,
        "modelled_far_ns": c.modelled_far_ns,
        "modelled_near_ns": c.modelled_near_ns,
        "break_even": c.break_even,
        "modelled_break_even": c.modelled_break_even,
        "plateau": c.plateau,
        "modelled_plateau": c.modelled_plateau,
        "most": c.most,
        "speedup": c.speedup,
        "speedup_with_work": c.speedup_with_work,
        "modelled_with_work": c.modelled_with_work,
    })
}

fn row_json(key: &Key, row: &Row) -> Value {
    let counted = |p: &Phase<u64>| json!({ "name": p.name, "value": p.value });
    let timed = |p: &Phase<f64>| json!({ "name": p.name, "value": p.value });
    let mut value = json!({
        "op": key.op,
        "isa": key.isa.name(),
        "instructions": row.instructions,
        "sim_ns": row.sim_ns,
        "host_ns": row.host_ns,
        "n": row.n,
        "interrupted": row.interrupted,
        "phases": row.phases.iter().map(counted).collect::<Vec<_>>(),
        "phased_ns": row.phased_ns,
        "sim_phases": row.sim_phases.iter().map(timed).collect::<Vec<_>>(),
    });
    for (what, figure) in &row.more {
        value[what] = json!(figure);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::migration::Group;
    use crate::bench::migration::collect::{Measure, Reported, Sides};
    use dyad_sim_model::report::{Spread, WindowReport};

    fn options() -> Options {
        Options {
            quick: true,
            groups: Group::ALL.to_vec(),
            homes: Isa::ALL.to_vec(),
        }
    }

    fn figures(with_host: bool) -> Figures {
        let counters = |ns| {
            let pairs = [("n", 10), ("ns", ns), ("stay_ns", ns * 3)];
            pairs.map(|(what, v)| (what.to_string(), v))
        };
        let window = WindowReport {
            n: 10,
            total: 1000,
            instructions: Some(Spread {
                min: 99,
                median: 100,
                max: 101,
            }),
            ..WindowReport::default()
        };
        let mut reported = Reported {
            windows: Sides {
                home: Some(window),
                away: None,
            },
            ..Reported::default()
        };
        for (measure, ns) in [
            (Measure::Instructions, 1),
            (Measure::Simulated, 500),
            (Measure::Host, 70),
        ] {
            if measure != Measure::Host || with_host {
                reported.figures.insert(measure, counters(ns).into());
            }
        }
        let mut figures = Figures::default();
        for op in ["async_ping_pong", "thread_ping_pong_depth4"] {
            let op = op.to_string();
            let isa = Isa::Aarch64;
            figures.ops.insert(Key { op, isa }, reported.clone());
        }
        figures
    }

    fn report(with_host: bool, failures: Vec<String>) -> MigrationReport {
        let ended = false;
        MigrationReport::new(figures(with_host), failures, Vec::new(), &options(), ended)
    }

    #[test]
    fn rows_have_what_was_promised() {
        let report = report(true, Vec::new());
        assert_eq!(report.problem(), None);
        let json = report.json();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["suite"], "migration");
        let row = &json["rows"][0];
        assert_eq!(row["op"], "async_ping_pong");
        assert_eq!(row["isa"], "aarch64");
        assert_eq!(row["instructions"], 100);
        assert_eq!(row["sim_ns"], 50.0);
        assert_eq!(row["host_ns"], 7.0);
        assert_eq!(row["speedup"], 3.0);
        assert_eq!(json["goals"][0]["met"], true);
        let table = report.table();
        assert!(table.contains("async_ping_pong"), "{table}");
        assert!(table.contains("goal met"), "{table}");
        assert!(
            report
                .page()
                .contains("| `async_ping_pong` | aarch64 | 100 | 50 | 7 |")
        );
    }

    #[test]
    fn what_is_not_there_is_said() {
        let missing = report(true, Vec::new()).missing;
        let ops: Vec<&str> = missing.iter().map(|(op, _)| op.as_str()).collect();
        assert!(ops.contains(&"crossing_call_round_trip"), "{ops:?}");
        assert!(ops.contains(&"block_online_N"), "{ops:?}");
        assert!(!ops.contains(&"async_ping_pong"), "{ops:?}");
        assert!(missing.iter().all(|(_, reason)| !reason.is_empty()));
    }

    #[test]
    fn reasons_are_those_of_what_was_asked_for() {
        let options = Options {
            groups: vec![Group::Threads],
            ..options()
        };
        let report = MigrationReport::new(figures(true), vec![], vec![], &options, false);
        let reason = |op: &str| {
            let of = report.missing.iter().find(|missing| missing.0 == op);
            of.map_or("", |missing| &missing.1)
        };
        assert!(reason("thread_ping_pong_depth_N").contains("failed"));
        assert!(reason("emulate_to_point").contains("not asked for"));
    }

    #[test]
    fn what_was_ended_is_reported_as_far_as_it_has_come() {
        let failures = vec!["interrupted".into()];
        let report = MigrationReport::new(figures(false), failures, vec![], &options(), true);
        let json = report.json();
        assert_eq!(json["ok"], false);
        assert_eq!(json["failure"], "interrupted");
        assert_eq!(json["rows"][0]["sim_ns"], 50.0);
        assert!(json["rows"][0]["host_ns"].is_null());
    }

    #[test]
    fn incomplete_rows_and_failed_runs_are_failures() {
        let why = report(false, Vec::new()).problem().unwrap();
        assert!(
            why.contains("async_ping_pong from aarch64 has no time of the host"),
            "{why}"
        );
        let why = report(true, vec!["it broke".into()]).problem().unwrap();
        assert_eq!(why, "it broke");
        let nothing = MigrationReport::default().problem();
        assert_eq!(nothing.as_deref(), Some("nothing was measured"));
    }

    #[test]
    fn numbers_in_names_are_ordered_as_numbers() {
        let mut ops = ["a_16", "b", "a_4", "a_128"];
        ops.sort_by_key(|op| order(op));
        assert_eq!(ops, ["a_4", "a_16", "a_128", "b"]);
    }
}
