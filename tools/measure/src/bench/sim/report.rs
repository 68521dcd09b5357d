//! Ratios, goals, and their forms for people and programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::Isa;
use serde_json::{Value, json};

use super::super::report::SCHEMA;
use super::{Level, MEASURED, Options, Times};
use crate::qemu_plugins::QemuPlugins;

/// Least, median and largest of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Least.
    pub min: f64,
    /// Median: of an even number, the lower one in the middle.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

impl Range {
    /// Of at least one number.
    fn of(mut numbers: Vec<f64>) -> Option<Range> {
        numbers.sort_by(f64::total_cmp);
        Some(Range {
            min: *numbers.first()?,
            median: numbers[(numbers.len() - 1) / 2],
            max: *numbers.last()?,
        })
    }
}

/// What was found out about a load at a level.
#[derive(Clone, Debug, PartialEq)]
pub struct SimRow {
    /// The load.
    pub workload: &'static str,
    /// The ISA.
    pub isa: Isa,
    /// The level.
    pub level: Level,
    /// CPU time, as a multiple of that of the plain machine.
    pub slowdown: Range,
    /// How many times faster than QEMU's model of the first level.
    pub over_l1: Option<Range>,
    /// Than that of two levels.
    pub over_l2: Option<Range>,
    /// Millions of instructions per second, if they were counted.
    pub mips: Option<f64>,
}

impl SimRow {
    fn json(&self) -> Value {
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        let median = |r: Option<Range>| r.map(|r| round(r.median));
        json!({
            "workload": self.workload,
            "isa": self.isa.name(),
            "level": self.level.name(),
            "slowdown_min": round(self.slowdown.min),
            "slowdown_median": round(self.slowdown.median),
            "slowdown_max": round(self.slowdown.max),
            "speedup_vs_contrib_l1": median(self.over_l1),
            "speedup_vs_contrib_l2": median(self.over_l2),
            "mips": self.mips.map(|m| (m * 10.0).round() / 10.0),
        })
    }
}

/// Something that must hold of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// What, for people.
    pub text: String,
    /// What was measured.
    pub measured: f64,
    /// Whether it holds.
    pub met: bool,
}

/// At least so many times faster than QEMU's model of two levels, where most work is in caches.
const MIN_SPEEDUP: f64 = 8.0;
/// At most so many times slower than a plain machine.
const MAX_SLOWDOWN: f64 = 6.0;

/// The outcome.
#[derive(Clone, Debug)]
pub struct SimReport {
    /// How it was measured.
    pub options: Options,
    /// What QEMU's plugins were built from.
    pub origin: String,
    /// Levels measured.
    pub levels: Vec<Level>,
    /// The rows.
    pub rows: Vec<SimRow>,
}

impl SimReport {
    pub(super) fn new(
        options: Options,
        plugins: &QemuPlugins,
        levels: &[Level],
        times: &Times,
        instructions: &BTreeMap<(Isa, &'static str), f64>,
    ) -> SimReport {
        let mut rows = Vec::new();
        for (workload, _) in MEASURED {
            for isa in Isa::ALL {
                for &level in levels {
                    let get = |level| times.get(&(isa, workload, level));
                    // By round, so that what drifts during the benchmark drifts in both.
                    let ratios = |a: Level, b: Level| {
                        let pairs = get(a)?.iter().zip(get(b)?);
                        Range::of(pairs.map(|(a, b)| a / b).collect())
                    };
                    let Some(slowdown) = ratios(level, Level::Plain) else {
                        continue;
                    };
                    let seconds = get(level).and_then(|t| Range::of(t.clone()));
                    let n = instructions.get(&(isa, workload));
                    rows.push(SimRow {
                        workload,
                        isa,
                        level,
                        slowdown,
                        over_l1: ratios(Level::ContribL1, level),
                        over_l2: ratios(Level::ContribL2, level),
                        mips: seconds.zip(n).map(|(s, n)| n / s.median / 1e6),
                    });
                }
            }
        }
        SimReport {
            options,
            origin: plugins.origin.clone(),
            levels: levels.to_vec(),
            rows,
        }
    }

    /// Goals of the levels that model caches, and whether they are met.
    pub fn goals(&self) -> Vec<Goal> {
        let ours = |r: &&SimRow| matches!(r.level, Level::Cache | Level::Timing);
        let mut goals = Vec::new();
        for row in self.rows.iter().filter(ours) {
            let mut goal = |what: String, measured: f64, met: bool| {
                let place = format!("{} on {}, {}", row.workload, row.isa, row.level.name());
                let text = format!("{place}: {what}");
                goals.push(Goal {
                    text,
                    measured,
                    met,
                });
            };
            let least = match row.workload {
                "matmul" | "sort" => MIN_SPEEDUP,
                "chase" | "random" => 1.0,
                _ => continue,
            };
            if let Some(over) = row.over_l2.map(|r| r.median) {
                let what = format!("at least {least} times as fast as cache.c l2=on");
                goal(what, over, over >= least);
            }
            if least > 1.0 {
                let slow = row.slowdown.median;
                let what = format!("at most {MAX_SLOWDOWN} times as slow as a plain machine");
                goal(what, slow, slow <= MAX_SLOWDOWN);
            } else if let Some(over) = row.over_l1.map(|r| r.median) {
                let what = "not slower than cache.c".to_string();
                goal(what, over, over >= least);
            }
        }
        goals
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let goals = self.goals();
        let goal = |g: &Goal| json!({"goal": g.text, "measured": g.measured, "met": g.met});
        json!({
            "schema": SCHEMA,
            "suite": "sim",
            "ok": goals.iter().all(|g| g.met),
            "quick": self.options.quick,
            "rounds": self.options.repeat,
            "contrib": self.origin,
            "rows": self.rows.iter().map(SimRow::json).collect::<Vec<_>>(),
            "goals": goals.iter().map(goal).collect::<Vec<_>>(),
        })
    }

    /// Tables for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<8} {:<8} {:<14} {:>24} {:>10} {:>12} {:>9}",
            "load", "isa", "level", "slowdown (min..max)", "x cache.c", "x with l2=on", "MIPS"
        );
        for row in &self.rows {
            let s = row.slowdown;
            let slow = format!("{:.2} ({:.2}..{:.2})", s.median, s.min, s.max);
            let number = |n: Option<f64>, digits: usize| {
                n.map_or_else(|| "-".into(), |n| format!("{n:.digits$}"))
            };
            let over = |r: Option<Range>| number(r.map(|r| r.median), 2);
            let _ = writeln!(
                out,
                "{:<8} {:<8} {:<14} {slow:>24} {:>10} {:>12} {:>9}",
                row.workload,
                row.isa.name(),
                row.level.title(),
                over(row.over_l1),
                over(row.over_l2),
                number(row.mips, 0),
            );
        }
        for goal in self.goals() {
            let verdict = if goal.met { "met   " } else { "MISSED" };
            let _ = writeln!(out, "{verdict} {} ({:.2})", goal.text, goal.measured);
        }
        out
    }

    /// What is wrong, in one text: goals that are missed.
    pub fn problem(&self) -> Option<String> {
        let goals = self.goals();
        let missed = goals.iter().filter(|g| !g.met).count();
        (missed > 0).then(|| format!("{missed} of {} goals are missed", goals.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cache: f64, contrib: f64) -> SimReport {
        let mut times = Times::new();
        for isa in Isa::ALL {
            for (workload, _) in MEASURED {
                let mut put = |level, list: [f64; 3]| {
                    times.insert((isa, workload, level), list.to_vec());
                };
                put(Level::Plain, [1.0, 2.0, 1.0]);
                put(Level::Cache, [cache, 2.0 * cache, 3.0 * cache]);
                put(Level::ContribL1, [contrib, 2.0 * contrib, contrib]);
                put(
                    Level::ContribL2,
                    [2.0 * contrib, 4.0 * contrib, 2.0 * contrib],
                );
            }
        }
        let plugins = QemuPlugins {
            cache: "c".into(),
            insn: "i".into(),
            bb: "b".into(),
            origin: "qemu 10".into(),
        };
        let options = Options {
            repeat: 3,
            quick: false,
        };
        let instructions = BTreeMap::from([((Isa::X86_64, "sort"), 8e6)]);
        SimReport::new(options, &plugins, &Level::ALL, &times, &instructions)
    }

    #[test]
    fn ratios_are_made_within_rounds() {
        let r = report(4.0, 40.0);
        // Four levels were measured, of six.
        assert_eq!(r.rows.len(), 4 * 2 * MEASURED.len());
        let row = r
            .rows
            .iter()
            .find(|r| (r.workload, r.isa, r.level) == ("sort", Isa::X86_64, Level::Cache));
        let row = row.unwrap();
        let range = |min, median, max| Range { min, median, max };
        assert_eq!(row.slowdown, range(4.0, 4.0, 12.0));
        assert_eq!(row.over_l1, Some(range(40.0 / 12.0, 10.0, 10.0)));
        assert_eq!(row.over_l2.unwrap().median, 20.0);
        assert_eq!(row.mips, Some(1.0));
        let json = r.json();
        assert_eq!(
            (&json["schema"], &json["suite"]),
            (&json!("dyad.bench/1"), &json!("sim"))
        );
        let row = &json["rows"][1];
        assert_eq!(row["level"], "cache");
        assert_eq!(row["speedup_vs_contrib_l2"], 20.0);
        assert_eq!(row["mips"], Value::Null);
    }

    #[test]
    fn goals_are_met_or_missed() {
        let good = report(4.0, 40.0);
        assert_eq!(
            (good.problem(), good.json()["ok"].as_bool()),
            (None, Some(true))
        );
        // Two loads with two goals each and two with two, on both ISAs, at one level.
        assert_eq!(good.goals().len(), 16);
        let slow = report(7.0, 40.0);
        assert_eq!(slow.problem().unwrap(), "4 of 16 goals are missed");
        assert!(
            slow.table()
                .contains("MISSED matmul on x86_64, cache: at most 6 times")
        );
        let against = report(5.0, 4.0);
        let missed = "MISSED random on aarch64, cache: not slower";
        assert!(against.table().contains(missed));
    }
}
