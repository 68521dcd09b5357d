//! Figures of all points: the table, the JSON form, and what they say.

use std::fmt::Write as _;

use dyad_abi::marker::WindowId;
use dyad_launcher::sim::table::{grouped, time};
use dyad_sim_model::config::MemoryModel;
use serde_json::{Value, json};

use super::{Matrix, Point, System};
use crate::bench::SCHEMA;
use crate::bench::faults::Faults;
use crate::npb::Bench;
use crate::sweep::Rows;

/// What a run of a point has given. Counts are those of the timed phases, messages and pages those from the start of the program to
/// the end of the timed phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// From the beginning of the first timed phase to the end of the last one, in picoseconds.
    pub time_ps: u64,
    /// The same in cycles of the node where the program begins.
    pub cycles: u64,
    /// Messages: about pages over several kernels; between the kernels, if they share memory.
    pub messages: u64,
    /// Pages of which another node than the first has got a copy.
    pub pages: u64,
    /// Instructions of all CPUs.
    pub instructions: u64,
    /// Lines from memory near the node.
    pub local: u64,
    /// Lines from another node's memory, from the pool, and from another node's cache.
    pub remote: u64,
    /// How long CPUs have waited for messages only, in picoseconds.
    pub waiting_ps: u64,
    /// Faults of the timed phases that needed another node, of two nodes.
    pub faults: u64,
    /// Of these, those in which the contents of a page travelled.
    pub contents: u64,
    /// What the accesses of the timed phases took beyond the node's memory, in picoseconds: memory elsewhere, caches of
    /// other nodes, the links to them, their answers, and their stores.
    pub far_ps: u64,
}

/// Columns of what [`Figures::far_ps`] is the sum of.
const FAR: [&str; 7] = [
    "mem_remote_ps",
    "mem_pool_ps",
    "forward_ps",
    "link_ps",
    "queue_ps",
    "snoop_ps",
    "release_ps",
];

impl Figures {
    /// Faults of the timed phases in which contents travelled, or those in which none did.
    fn faults(&self, contents: bool) -> u64 {
        match contents {
            true => self.contents,
            false => self.faults.saturating_sub(self.contents),
        }
    }
}

/// What is known of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It verified.
    Good(Figures),
    /// It failed, and why.
    Failed(String),
    /// It was not run.
    Missing,
}

impl Outcome {
    fn good(&self) -> Option<&Figures> {
        match self {
            Outcome::Good(figures) => Some(figures),
            _ => None,
        }
    }
}

/// A point's row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The kernel.
    pub bench: Bench,
    /// The memory model.
    pub model: MemoryModel,
    /// The system.
    pub system: System,
    /// Its outcome.
    pub outcome: Outcome,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Results {
    pub(super) matrix: Matrix,
    /// In the order of the points.
    pub rows: Vec<Row>,
    /// What a fault costs.
    pub(super) faults: Option<Faults>,
}

/// What the rows of a run say.
fn outcome(point: &Point, table: &Rows) -> Outcome {
    let rows: Vec<_> = table.of(&point.planned).collect();
    if let Some(bad) = rows.iter().find(|row| !row.is_good()) {
        return Outcome::Failed(bad.cell("failure").into());
    }
    let Some(first) = rows.first() else {
        return Outcome::Missing;
    };
    let counter = |name: &str| rows.iter().find_map(|row| row.counter(name));
    let of_bench = |what: &str| counter(&format!("{}.{what}", point.bench.name()));
    let region = format!("{:#x}", WindowId::FREE);
    let timed = || rows.iter().filter(|row| row.cell("region") == region);
    let sum = |columns: &[&str]| -> u64 {
        let numbers = timed().flat_map(|row| columns.iter().filter_map(|c| row.number(c)));
        numbers.sum()
    };
    let ghz: f64 = first.cell("ghz").parse().unwrap_or(0.0);
    let Some(ns) = of_bench("timed-ns") else {
        return Outcome::Failed("the program has not said what its timed phases took".into());
    };
    let messages = match point.system.transport() {
        Some(_) => of_bench("page-messages"),
        None => counter("messages_sent"),
    };
    let waiting = rows.iter().filter(|row| row.cell("region") == "run");
    Outcome::Good(Figures {
        time_ps: ns * 1000,
        cycles: (ns as f64 * ghz).round() as u64,
        messages: messages.unwrap_or(0),
        pages: of_bench("replicas").unwrap_or(0),
        instructions: sum(&["instructions"]),
        local: sum(&["local"]),
        remote: sum(&["remote", "pool", "forwarded"]),
        waiting_ps: waiting.filter_map(|row| row.number("msg_wait_ps")).sum(),
        faults: of_bench("timed-messages").unwrap_or(0) / 2,
        contents: of_bench("timed-contents").unwrap_or(0),
        far_ps: sum(&FAR),
    })
}

fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

impl Results {
    /// The figures of points that are in a table.
    pub fn of(matrix: &Matrix, points: &[Point], table: &Rows, faults: Option<Faults>) -> Results {
        let row = |point: &Point| Row {
            bench: point.bench,
            model: point.model,
            system: point.system,
            outcome: outcome(point, table),
        };
        Results {
            matrix: matrix.clone(),
            rows: points.iter().map(row).collect(),
            faults,
        }
    }

    /// Points without figures.
    pub fn missing(&self) -> usize {
        let bad = |row: &&Row| row.outcome.good().is_none();
        self.rows.iter().filter(bad).count()
    }

    /// The figures of a point.
    pub fn figures(&self, bench: Bench, model: MemoryModel, system: System) -> Option<&Figures> {
        let is = |row: &&Row| (row.bench, row.model, row.system) == (bench, model, system);
        self.rows.iter().find(is)?.outcome.good()
    }

    /// Nanoseconds of a fault over a transport: with contents, of a page that comes back, as most pages do when iterations
    /// alternate; without, the mean of the kinds there are.
    fn fault_ns(&self, model: MemoryModel, system: System, contents: bool) -> Option<u64> {
        let rows = self.faults.as_ref()?.rows.iter().filter(|row| {
            let is_kind = match contents {
                true => row.touch == "return",
                false => matches!(row.touch, "upgrade" | "zero"),
            };
            row.model == model && Some(row.transport) == system.transport() && is_kind
        });
        let all: Vec<u64> = rows.map(|row| row.whole).collect();
        (all.iter().sum::<u64>()).checked_div(all.len() as u64)
    }

    /// How long a point is to take by its counts, in picoseconds. Where all memory is near, the program takes as long over
    /// fused kernels as it computes and moves. To that comes, of kernels that exchange messages, what the faults take that
    /// were counted; and of others, what accesses took beyond the node's memory.
    fn explained_ps(&self, row: &Row) -> Option<u64> {
        let f = row.outcome.good()?;
        let is_still = row.system == System::Vanilla;
        let computed = if is_still { row.system } else { System::Fused };
        let near = self.figures(row.bench, MemoryModel::FullyShared, computed)?;
        let far = match row.system.transport() {
            None => f.far_ps.saturating_sub(near.far_ps),
            Some(_) => {
                let all = |contents| {
                    Some(f.faults(contents) * self.fault_ns(row.model, row.system, contents)?)
                };
                (all(true)? + all(false)?) * 1000
            }
        };
        Some(near.time_ps + far)
    }

    /// Which part of a point's time its counts explain, in thousandths.
    fn explained(&self, row: &Row) -> Option<u64> {
        let time = row.outcome.good()?.time_ps;
        (self.explained_ps(row)? * 1000).checked_div(time)
    }

    /// What tables say of a point: its time, that in relation to the program without moves, the counts, and how much of
    /// the time they explain.
    pub(super) fn cells(&self, row: &Row, f: &Figures) -> [String; 9] {
        let vanilla = self.figures(row.bench, row.model, System::Vanilla);
        let relative = vanilla.map(|v| format!("{:.3}", ratio(f.time_ps, v.time_ps)));
        [
            time(f.time_ps),
            relative.unwrap_or_else(|| "-".into()),
            grouped(f.messages),
            grouped(f.pages),
            grouped(f.instructions),
            grouped(f.local),
            grouped(f.remote),
            time(f.waiting_ps),
            self.explained(row).map_or_else(
                || "-".into(),
                |thousandths| format!("{:.1} %", thousandths as f64 / 10.0),
            ),
        ]
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for &bench in &self.matrix.benches {
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{}, class {}, {}",
                bench.name(),
                self.matrix.class.name(),
                self.matrix.place.name()
            );
            let _ = writeln!(
                out,
                "{:<13} {:<8} {:>12} {:>9} {:>10} {:>9} {:>15} {:>13} {:>13} {:>12} {:>9}",
                "model",
                "system",
                "time",
                "/vanilla",
                "messages",
                "pages",
                "instructions",
                "local lines",
                "remote lines",
                "waiting",
                "explained"
            );
            for row in self.rows.iter().filter(|row| row.bench == bench) {
                let (model, system) = (row.model.name(), row.system.name());
                let _ = match &row.outcome {
                    Outcome::Missing => writeln!(out, "{model:<13} {system:<8} missing"),
                    Outcome::Failed(why) => {
                        writeln!(out, "{model:<13} {system:<8} FAILED: {why}")
                    }
                    Outcome::Good(f) => {
                        let cells = self.cells(row, f);
                        let cells = cells.iter().zip([12, 9, 10, 9, 15, 13, 13, 12, 9]);
                        let cells: String = cells
                            .map(|(cell, width)| format!(" {cell:>width$}"))
                            .collect();
                        writeln!(out, "{model:<13} {system:<8}{cells}")
                    }
                };
            }
            out.push('\n');
        }
        if let Some(faults) = &self.faults {
            out.push_str("What a fault costs, in us:\n");
            out.push_str(&faults.table());
            out.push('\n');
        }
        for &bench in &self.matrix.benches {
            for line in self.verdicts(bench) {
                let _ = writeln!(out, "{line}");
            }
        }
        out
    }

    /// What the figures of a kernel say, a sentence for each memory model.
    pub(super) fn verdicts(&self, bench: Bench) -> Vec<String> {
        let of = |&model: &MemoryModel| self.verdict(bench, model);
        self.matrix.models.iter().filter_map(of).collect()
    }

    /// Who is faster, fused kernels or the best that exchanges messages, and why.
    fn verdict(&self, bench: Bench, model: MemoryModel) -> Option<String> {
        let fused = self.figures(bench, model, System::Fused)?;
        let others = self
            .matrix
            .systems
            .iter()
            .filter(|s| s.transport().is_some());
        let others = others.filter_map(|&s| Some((s, self.figures(bench, model, s)?)));
        let (system, best) = others.min_by_key(|(_, f)| f.time_ps)?;
        let (name, model_name) = (bench.name(), model.name());
        let mut out = match fused.time_ps <= best.time_ps {
            true => format!(
                "{name}, {model_name}: fused takes {:.2} of {}",
                ratio(fused.time_ps, best.time_ps),
                system.name()
            ),
            false => format!(
                "{name}, {model_name}: fused LOSES, {:.2} times {}",
                ratio(fused.time_ps, best.time_ps),
                system.name()
            ),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            ": {} page messages against {} remote lines in fused ({} in {})",
            grouped(best.messages),
            grouped(fused.remote),
            grouped(best.remote),
            system.name()
        );
        for (is_with, with) in [(true, "with"), (false, "without")] {
            let count = best.faults(is_with);
            if let Some(fault) = self.fault_ns(model, system, is_with) {
                let (each, all) = (time(fault * 1000), time(count * fault * 1000));
                let _ = write!(
                    out,
                    "; {} faults {with} contents of {each} each are {all}",
                    grouped(count)
                );
            }
        }
        let _ = write!(
            out,
            "; of fused, accesses to other memory take {}",
            time(fused.far_ps)
        );
        Some(out)
    }

    /// By how much the time over several kernels differs between memory models at most, of a system: largest by least.
    pub(super) fn spread(&self, bench: Bench, system: System) -> Option<f64> {
        let of = |&m: &MemoryModel| Some(self.figures(bench, m, system)?.time_ps);
        let times: Vec<u64> = self.matrix.models.iter().filter_map(of).collect();
        Some(ratio(*times.iter().max()?, *times.iter().min()?))
    }

    /// The JSON form, without what the command adds.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let ghz = row
                .outcome
                .good()
                .map(|f| ratio(f.cycles * 1000, f.time_ps));
            let fault_ns = self.fault_ns(row.model, row.system, true);
            let fault = fault_ns
                .zip(ghz)
                .map(|(ns, ghz)| (ns as f64 * ghz).round() as u64);
            let figure = |of: fn(&Figures) -> u64| row.outcome.good().map(of);
            let failure = match &row.outcome {
                Outcome::Good(_) => None,
                Outcome::Failed(why) => Some(why.as_str()),
                Outcome::Missing => Some("missing"),
            };
            json!({
                "bench": row.bench.name(),
                "class": self.matrix.class.name(),
                "place": match row.system {
                    System::Vanilla => "home",
                    _ => self.matrix.place.name(),
                },
                "system": row.system.name(),
                "kernels": row.system.kernels().name(),
                "transport": row.system.transport().map(|t| t.name()),
                "model": row.model.name(),
                "cycles": figure(|f| f.cycles),
                "time_ps": figure(|f| f.time_ps),
                "messages": figure(|f| f.messages),
                "pages_replicated": figure(|f| f.pages),
                "fault_cycles": fault,
                "instructions": figure(|f| f.instructions),
                "local": figure(|f| f.local),
                "remote": figure(|f| f.remote),
                "waiting_ps": figure(|f| f.waiting_ps),
                "timed_faults": figure(|f| f.faults),
                "timed_contents": figure(|f| f.contents),
                "far_ps": figure(|f| f.far_ps),
                "explained_thousandths": self.explained(row),
                "verified": row.outcome.good().is_some(),
                "failure": failure,
            })
        });
        let benches = self.matrix.benches.iter();
        let verdicts: Vec<String> = benches.flat_map(|&b| self.verdicts(b)).collect();
        json!({
            "schema": SCHEMA,
            "suite": "compare",
            "class": self.matrix.class.name(),
            "place": self.matrix.place.name(),
            "points": rows.collect::<Vec<_>>(),
            "faults": self.faults.as_ref().map(Faults::json),
            "conclusions": verdicts,
            "missing": self.missing(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::faults::Fault;
    use crate::compare::Placement;
    use crate::npb::Class;
    use dyad_abi::service::peer::Transport;

    /// Times in milliseconds, by model and system.
    pub fn results(times: [[u64; 4]; 2]) -> Results {
        let models = [MemoryModel::Separated, MemoryModel::Shared];
        let matrix = Matrix {
            benches: vec![Bench::Is],
            class: Class::S,
            place: Placement::Alternate,
            systems: System::USUAL.to_vec(),
            models: models.to_vec(),
        };
        let row = |model, system: System, ms: u64| Row {
            bench: Bench::Is,
            model,
            system,
            outcome: match ms {
                0 => Outcome::Missing,
                1 => Outcome::Failed("checksum".into()),
                ms => Outcome::Good(Figures {
                    time_ps: ms * 1_000_000_000,
                    cycles: ms * 2_000_000,
                    messages: if system.transport().is_some() {
                        2_000
                    } else {
                        0
                    },
                    remote: 5_000,
                    ..Figures::default()
                }),
            },
        };
        let rows = models.into_iter().zip(times).flat_map(|(model, times)| {
            let each = System::USUAL.into_iter().zip(times);
            each.map(move |(system, ms)| row(model, system, ms))
        });
        Results {
            matrix,
            rows: rows.collect(),
            faults: None,
        }
    }

    #[test]
    fn who_loses_is_said_with_the_counts() {
        let all = results([[10, 40, 20, 15], [10, 40, 20, 30]]);
        let table = all.table();
        for words in [
            "is, separated: fused takes 0.75 of ring: 2,000 page messages against 5,000 remote lines in fused",
            "is, shared: fused LOSES, 1.50 times ring",
            "4.000",
        ] {
            assert!(table.contains(words), "{words:?} not in:\n{table}");
        }
        assert_eq!(all.missing(), 0);
        assert_eq!(all.spread(Bench::Is, System::Fused), Some(2.0));
        let json = all.json();
        assert_eq!(json["points"][2]["system"], "ring");
        assert_eq!(json["points"][2]["cycles"], 40_000_000);
        assert_eq!(json["points"][0]["place"], "home");
        assert_eq!(json["points"][0]["transport"], Value::Null);
    }

    #[test]
    fn points_without_figures_are_shown_and_counted() {
        let all = results([[10, 0, 20, 15], [10, 40, 1, 30]]);
        let table = all.table();
        assert!(table.contains("separated     tcp      missing"), "{table}");
        assert!(
            table.contains("shared        ring     FAILED: checksum"),
            "{table}"
        );
        assert_eq!(all.missing(), 2);
        assert_eq!(all.json()["points"][6]["failure"], "checksum");
        assert_eq!(all.json()["points"][1]["verified"], false);
        // The best of those that are there.
        assert!(
            table.contains("is, shared: fused takes 0.75 of tcp"),
            "{table}"
        );
    }

    #[test]
    fn times_are_explained_by_faults_or_by_accesses_to_other_memory() {
        let mut all = results([[10, 40, 20, 15], [10, 40, 20, 12]]);
        let near = MemoryModel::FullyShared;
        for row in &mut all.rows {
            if row.model == MemoryModel::Shared {
                row.model = near;
            }
            if let Outcome::Good(f) = &mut row.outcome {
                (f.faults, f.contents) = (100, 60);
                f.far_ps = if row.model == near { 0 } else { 2_700_000_000 };
            }
        }
        let fault = |touch, us: u64| Fault {
            model: MemoryModel::Separated,
            transport: Transport::Ring,
            touch,
            whole: us * 1000,
            parted: 0,
            parts: [0; 8],
            access: 0,
        };
        let rows = [("read", 90), ("return", 100), ("upgrade", 30), ("zero", 20)];
        let mut faults = Faults::default();
        faults.rows = rows.map(|(touch, us)| fault(touch, us)).to_vec();
        all.faults = Some(faults);
        let explained = |system| {
            let is = |row: &&Row| row.system == system && row.model == MemoryModel::Separated;
            all.explained(all.rows.iter().find(is)?)
        };
        assert_eq!(explained(System::Fused), Some(980));
        // 12 ms, 60 faults of 100 us and 40 of 25 us, of 20 ms.
        assert_eq!(explained(System::Ring), Some(950));
        assert_eq!(
            explained(System::Tcp),
            None,
            "nobody knows what a fault costs"
        );
        assert_eq!(explained(System::Vanilla), Some(1270));
        assert!(all.table().contains("95.0 %"), "{}", all.table());
    }
}
