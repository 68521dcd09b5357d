//! What a page fault that needs the other kernel costs (F), by its parts: several kernels that exchange messages, over each
//! transport and in each memory model.
//!
//! The program `micro` measures whole faults by its clock, and the peers their parts (`--fault-parts`). Whole faults are
//! measured in a run of their own, without the looks at the clock that parts take. The JSON form has the schema
//! `dyad.bench/1`, with the suite `faults`:
//!
//! | member | |
//! |---|---|
//! | `ok`, `failure` | whether parts add up and the network adds its delay; why not, or null |
//! | `rows` | per model, transport and touch: `model`, `transport`, `touch`, `whole_ns`, `parted_ns`, `parts` (ns by name), `access_ns`, `rest_ns` |

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use dyad_abi::Isa;
use dyad_abi::service::peer::{Counted, Kernels, RingPlace, Transport};
use dyad_sim_model::config::{MemoryModel, Order};
use serde_json::{Value, json};

use super::report::SCHEMA;
use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{self, RunReport, Sink};
use dyad_launcher::sim::{Profile, Setup};

/// Kinds of touches of `micro --what faults`.
const TOUCHES: [&str; 5] = ["read", "upgrade", "write", "return", "zero"];
/// Names of parts, in the order of their counters.
const PARTS: [&str; 8] = [
    "trap", "enter", "request", "out", "service", "back", "map", "leave",
];
/// By how much parts may differ from the whole, in thousandths. The second of two traps finds code and data in the caches that
/// the first did not: that is half a microsecond, which is more than a hundredth of a fault without contents.
const OPEN: u64 = 10;
const OPEN_WITHOUT_CONTENTS: u64 = 20;
/// By how much what the network adds may differ from its round trip, in thousandths.
const ADDED: u64 = 20;

/// A figure: nanoseconds of one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which memory is near.
    pub model: MemoryModel,
    /// How messages travel.
    pub transport: Transport,
    /// What was there, and what was done.
    pub touch: &'static str,
    /// By the program's clock.
    pub whole: u64,
    /// The same in the run in which parts were measured, in which each fault is taken twice.
    pub parted: u64,
    /// The parts, in the order of their counters: trap, enter, request, out, service, back, map, leave.
    pub parts: [u64; PARTS.len()],
    /// The access itself, when the page is there.
    pub access: u64,
}

impl Fault {
    /// What the parts leave unexplained.
    fn rest(&self) -> i64 {
        // It has trapped twice.
        let sum = self.parts.iter().sum::<u64>() + self.parts[0] + self.access;
        self.parted.cast_signed() - sum.cast_signed()
    }
}

/// All figures.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// By model, transport and touch.
    pub rows: Vec<Fault>,
    /// Why there are no more, if there should be.
    pub failure: Option<String>,
    /// Where the rings lay.
    pub ring_place: RingPlace,
    round_trip: u64,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Memory models.
    pub models: Vec<MemoryModel>,
    /// Transports.
    pub transports: Vec<Transport>,
    /// Where the rings lie.
    pub ring_place: RingPlace,
    /// Pages that are touched, in each run.
    pub pages: u64,
    /// The node where the program begins, and the other one.
    pub nodes: Vec<Isa>,
    /// What things cost.
    pub profile: Profile,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            models: MemoryModel::PAPER.to_vec(),
            transports: Transport::ALL.to_vec(),
            ring_place: RingPlace::Receiver,
            pages: 256,
            nodes: vec![Isa::X86_64, Isa::Aarch64],
            profile: Profile::default(),
        }
    }
}

/// Measures.
///
/// # Errors
///
/// If a run could not be made, or was interrupted. Runs that fail otherwise are in the result.
pub fn faults(plan: &Plan, sink: &mut dyn Sink) -> Result<Faults, Error> {
    let mut all = Faults {
        ring_place: plan.ring_place,
        ..Faults::default()
    };
    for &model in &plan.models {
        for &transport in &plan.transports {
            if let Err(why) = point(plan, (model, transport), &mut all, sink)? {
                let (model, transport) = (model.name(), transport.name());
                all.failure = Some(format!("{model}, {transport}: {why}"));
                return Ok(all);
            }
        }
    }
    Ok(all)
}

/// One model and transport. `Err` in the result: why its runs say nothing.
fn point(
    plan: &Plan,
    (model, transport): (MemoryModel, Transport),
    all: &mut Faults,
    sink: &mut dyn Sink,
) -> Result<Result<(), String>, Error> {
    let config = |touches: &str, fault_parts| {
        let args = format!("--what faults --pages {} --touches {touches}", plan.pages);
        let strict = strict(&plan.nodes, "micro", args, 600);
        RunConfig {
            kernels: Kernels::Multiple,
            transport,
            ring_place: plan.ring_place,
            fault_parts,
            setup: Setup {
                model,
                profile: plan.profile.clone(),
                ..strict.setup
            },
            ..strict
        }
    };
    // Each run has faults of one kind. Earlier faults would leave other lines in the caches. The reads that prepare an upgrade
    // would be counted among the parts of other reads; those that prepare a return are writes.
    for touch in TOUCHES {
        let whole = config(touch, false);
        all.round_trip = 2 * u64::from(whole.delay()?.message_ns);
        let whole = match run(&whole, sink)? {
            Ok(report) => report,
            Err(why) => return Ok(Err(why)),
        };
        let parted = match run(&config(touch, true), sink)? {
            Ok(report) => report,
            Err(why) => return Ok(Err(why)),
        };
        match row(&whole, &parted, (model, transport), touch) {
            Some(row) => all.rows.push(row),
            None => return Ok(Err(format!("{touch}: a counter is missing"))),
        }
    }
    Ok(Ok(()))
}

/// A run of a program in strict order with simulated time, which repeats to the cycle; it ends after so many seconds.
pub(super) fn strict(nodes: &[Isa], app: &str, args: String, seconds: u64) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        sim: Sim::Timing,
        setup: Setup {
            order: Order::Strict { seed: 0 },
            ..Setup::default()
        },
        timeout: Some(Duration::from_secs(seconds)),
        work: Work::App {
            app: app.into(),
            args,
        },
        ..RunConfig::default()
    }
}

/// Makes a run. `Err` in the result: why it says nothing.
pub(super) fn run(
    config: &RunConfig,
    sink: &mut dyn Sink,
) -> Result<Result<RunReport, String>, Error> {
    let mut report = launch::run(config, sink);
    match report.error.take() {
        Some(e @ (Error::Usage(_) | Error::Setup(_) | Error::Build(_) | Error::Interrupted)) => {
            return Err(e);
        }
        other => report.error = other,
    }
    Ok(match report.failure() {
        Some(why) => Err(why),
        None => Ok(report),
    })
}

/// Nanoseconds of one touch by the program's clock: the first one, or the second (`again-ns`).
fn each(counters: &BTreeMap<String, u64>, touch: &str, ns: &str) -> Option<u64> {
    let counter = |what: &str| counters.get(&format!("faults.{touch}.{what}")).copied();
    counter(ns)?.checked_div(counter("n")?)
}

fn row(
    whole: &RunReport,
    parted: &RunReport,
    (model, transport): (MemoryModel, Transport),
    touch: &'static str,
) -> Option<Fault> {
    let first = match touch {
        "read" | "return" => Counted::Reads,
        _ => Counted::Writes,
    } as usize;
    let counter = |n: usize| {
        let name = Counted::ALL.get(first + n)?.name();
        parted.counters.get(name).copied()
    };
    let count = counter(0)?;
    let mut parts = [0; PARTS.len()];
    for (n, part) in parts.iter_mut().enumerate() {
        *part = counter(1 + n)?.checked_div(count)?;
    }
    Some(Fault {
        model,
        transport,
        touch,
        whole: each(&whole.counters, touch, "ns")?,
        parted: each(&parted.counters, touch, "ns")?,
        parts,
        access: each(&parted.counters, touch, "again-ns")?,
    })
}

/// Nanoseconds as microseconds.
fn us(ns: impl Into<f64>) -> String {
    format!("{:.2}", ns.into() / 1000.0)
}

impl Faults {
    /// What the figures do not show that they must: parts that add up, and a network that adds its round trip to what a ring
    /// takes.
    pub fn problem(&self) -> Option<String> {
        if let Some(why) = &self.failure {
            return Some(why.clone());
        }
        if self.rows.is_empty() {
            return Some("nothing was measured".into());
        }
        for row in &self.rows {
            let what = format!(
                "{}, {}, {}",
                row.model.name(),
                row.transport.name(),
                row.touch
            );
            let open = match row.touch {
                "read" | "write" | "return" => OPEN,
                _ => OPEN_WITHOUT_CONTENTS,
            };
            if row.rest().unsigned_abs() * 1000 > row.parted * open {
                return Some(format!(
                    "{what}: the parts leave {} of {} us unexplained",
                    us(row.rest() as f64),
                    us(row.parted as f64)
                ));
            }
            let same = |r: &&Fault| (r.model, r.touch) == (row.model, row.touch);
            let ring = self.rows.iter().filter(same);
            let ring = ring.into_iter().find(|r| r.transport == Transport::Ring);
            let (Transport::Tcp, Some(ring)) = (row.transport, ring) else {
                continue;
            };
            let added = row.whole.abs_diff(ring.whole);
            if added.abs_diff(self.round_trip) * 1000 > self.round_trip * ADDED {
                return Some(format!(
                    "{what}: the network adds {} us instead of {}",
                    us(added as f64),
                    us(self.round_trip as f64)
                ));
            }
        }
        None
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let parts: BTreeMap<&str, u64> = PARTS.into_iter().zip(row.parts).collect();
            json!({
                "model": row.model.name(),
                "transport": row.transport.name(),
                "touch": row.touch,
                "whole_ns": row.whole,
                "parted_ns": row.parted,
                "parts": parts,
                "access_ns": row.access,
                "rest_ns": row.rest(),
            })
        });
        json!({
            "schema": SCHEMA,
            "suite": "faults",
            "ring_place": self.ring_place.name(),
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "rows": rows.collect::<Vec<_>>(),
        })
    }

    /// The figures as a table, in the form that the book has too.
    pub fn table(&self) -> String {
        let mut out = String::from("| model | transport | touch | F |");
        for part in PARTS {
            // Writing to a string cannot fail.
            let _ = write!(out, " {part} |");
        }
        out.push_str(" access | rest |\n|---|---|---|---:|");
        out.push_str(&"---:|".repeat(PARTS.len() + 2));
        out.push('\n');
        for row in &self.rows {
            let _ = write!(
                out,
                "| {} | {} | {} | {} |",
                row.model.name(),
                row.transport.name(),
                row.touch,
                us(row.whole as f64)
            );
            for part in row.parts {
                let _ = write!(out, " {} |", us(part as f64));
            }
            let (access, rest) = (us(row.access as f64), us(row.rest() as f64));
            let _ = writeln!(out, " {access} | {rest} |");
        }
        out
    }

    /// The figures as a page of the book.
    pub fn page(&self) -> String {
        let mut models: Vec<&str> = self.rows.iter().map(|r| r.model.name()).collect();
        models.dedup();
        let mut which = match models.len() == MemoryModel::PAPER.len() {
            true => String::new(),
            false => format!(" --models {}", models.join(",")),
        };
        if self.ring_place != RingPlace::default() {
            // Writing to a string cannot fail.
            let _ = write!(which, " --ring-place {}", self.ring_place.name());
        }
        format!("{}{}", HEAD.replace("{which}", &which), self.table())
    }
}

const HEAD: &str = "\
# Cost of a page fault over messages

What it costs a program over [several kernels](../architecture/multiple.md) that a page is not there, in microseconds of simulated time, as

```console
$ cargo xtask bench faults{which} --page book/src/reference/faults.md
```

has measured it in strict order, profile `paper-big`, a program that begins on x86-64 and faults on AArch64. F is the mean over
256 pages by the program's clock: the first touch of a page that the other node has written (`read`, `write`), of one that was read
before (`upgrade`), of one that was here before the other node wrote it again (`return`), and of one that nothing was in (`zero`). The parts are those of `--fault-parts`, measured in runs of their
own with looks at the clock between them: a fault takes its trap twice there. `access` is the access itself, made once more when
the page is there, and `rest` is what the whole has beyond all of these.

";

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(transport: Transport, whole: u64, parts: [u64; PARTS.len()]) -> Fault {
        Fault {
            model: MemoryModel::Shared,
            transport,
            touch: "read",
            whole,
            parted: parts.iter().sum::<u64>() + parts[0] + 100,
            parts,
            access: 100,
        }
    }

    fn all(rows: Vec<Fault>) -> Faults {
        Faults {
            rows,
            round_trip: 75_000,
            ..Faults::default()
        }
    }

    #[test]
    fn parts_add_up_and_the_network_adds_its_round_trip() {
        let parts = [2_000, 3_000, 4_000, 15_000, 15_000, 4_000, 34_000, 6_000];
        let ring = fault(Transport::Ring, 87_000, parts);
        let tcp = fault(Transport::Tcp, 162_500, parts);
        assert_eq!(all(vec![ring.clone(), tcp.clone()]).problem(), None);
        let late = Fault {
            whole: 164_000,
            ..tcp
        };
        let why = all(vec![ring.clone(), late]).problem().unwrap();
        assert!(why.contains("adds 77.00 us instead of 75.00"), "{why}");
        let open = Fault {
            parted: 87_000,
            ..ring
        };
        let why = all(vec![open]).problem().unwrap();
        assert!(why.contains("1.90 of 87.00 us unexplained"), "{why}");
        assert!(all(Vec::new()).problem().is_some());
    }

    #[test]
    fn counters_of_parts_have_the_names_of_the_table() {
        for first in [Counted::Reads, Counted::Writes] {
            for (n, part) in PARTS.into_iter().enumerate() {
                let counted = Counted::ALL[first as usize + 1 + n];
                assert!(counted.name().ends_with(&format!(".{part}-ns")));
            }
        }
        assert_eq!(Counted::PARTS, PARTS.len() + 1);
    }

    #[test]
    fn the_table_has_a_column_for_each_part() {
        let row = fault(Transport::Poll, 1_234, [1_000; PARTS.len()]);
        let table = all(vec![row]).table();
        let lines: Vec<&str> = table.lines().collect();
        let columns = |l: &str| l.matches('|').count();
        assert_eq!(columns(lines[0]), columns(lines[1]));
        assert_eq!(columns(lines[0]), columns(lines[2]));
        assert!(lines[2].starts_with("| shared | poll | read | 1.23 | 1.00 |"));
        let page = all(vec![fault(Transport::Poll, 1, [1; PARTS.len()])]).page();
        assert!(page.contains("bench faults --models shared --page"));
    }
}
