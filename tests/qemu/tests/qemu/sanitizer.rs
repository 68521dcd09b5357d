//! The sanitizer of runs without coherent caches: it finds nothing in kernels as they are, and each of
//! their flushes that is left out here, by the right name.
//!
//! Not every flush shows in a run: where a line is dropped all the time for the sake of its other words,
//! or its only reader sleeps, one more or less makes no difference.

use std::time::Duration;

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_sim_model::config::Order;
use dyad_sim_model::incoherent::Kind;
use libtest_mimic::{Failed, Trial};
use xtask::config::{RunConfig, Sim, TestOptions, Work};
use xtask::launch::{self, RunReport};
use xtask::sim::Setup;
use xtask::sim::sanitizer::Report;

use crate::console::Kept;

/// A flush that kernels are to do without, and what has to be found.
struct Seed {
    /// Name of the test.
    name: &'static str,
    /// Where it is: a file, and what the line has in it that no earlier one has.
    file: &'static str,
    line: &'static str,
    kind: Kind,
    structure: &'static str,
    field: &'static str,
}

/// In how many strict orders it has to be found. Whether a stale copy is read depends on who runs when;
/// in strict order that is the same each time.
const ORDERS: u64 = 12;

const SEEDS: [Seed; 7] = [
    Seed {
        name: "messages_written_back",
        file: "kernel/ring/src/spsc.rs",
        line: "mem.writeback(slot, LINE_BYTES);",
        kind: Kind::Unpublished,
        structure: "inboxes",
        field: "of a message",
    },
    Seed {
        name: "count_of_messages_written_back",
        file: "kernel/ring/src/spsc.rs",
        line: "mem.store_through(self.place.tail(), self.tail",
        kind: Kind::Unpublished,
        structure: "inboxes",
        field: "tail",
    },
    Seed {
        name: "count_of_messages_read_at_memory",
        file: "kernel/ring/src/spsc.rs",
        line: "let tail = mem.load_fresh(self.place.tail()",
        kind: Kind::StaleRead,
        structure: "inboxes",
        field: "tail",
    },
    Seed {
        name: "activity_read_at_memory",
        file: "kernel/ring/src/wake.rs",
        line: "let doing = mem.load_fresh(line.activity",
        kind: Kind::StaleRead,
        structure: "superblock",
        field: ".activity",
    },
    Seed {
        name: "barrier_read_at_memory",
        file: "kernel/core/src/meet.rs",
        line: "node.words.read(&node.sb.node(n).barrier)",
        kind: Kind::StaleRead,
        structure: "superblock",
        field: ".barrier",
    },
    Seed {
        name: "publications_read_at_memory",
        file: "kernel/quiesce/src/words.rs",
        line: "Publication(self.mem.load_fresh(self.published(node)",
        kind: Kind::StaleRead,
        structure: "quiesce",
        field: ".published",
    },
    Seed {
        name: "frames_pinned_at_memory",
        file: "kernel/retype/src/pins.rs",
        line: "self.mem.cas(at, raw, raw + 1)",
        kind: Kind::CachedRmw,
        structure: "frame record",
        field: "w0",
    },
];

/// All of them.
pub fn trials() -> Vec<Trial> {
    let test = |name: String, f: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        Trial::test(format!("sanitizer::{name}"), f).with_kind("system")
    };
    let seeds = SEEDS.iter().map(|seed| {
        let name = format!("finds_{}_not", seed.name);
        test(name, Box::new(move || Ok(finds(seed)?)))
    });
    let clean = test(
        "finds_nothing_where_nothing_is_missing".into(),
        Box::new(|| Ok(finds_nothing()?)),
    );
    [clean].into_iter().chain(seeds).collect()
}

fn run(seeded: String, order: Order) -> (RunReport, String) {
    let config = RunConfig {
        nodes: vec![X86_64, Aarch64],
        work: Work::App {
            app: "hop".into(),
            args: String::new(),
        },
        sim: Sim::Cache,
        setup: Setup {
            order,
            ..Setup::default()
        },
        coherent: false,
        timeout: Some(Duration::from_secs(200)),
        test: TestOptions {
            seeded,
            ..TestOptions::default()
        },
        ..RunConfig::default()
    };
    let mut kept = Kept::new(|_| {});
    let report = launch::run(&config, &mut kept);
    let text = kept.text(&report);
    (report, text)
}

fn sanitizer(report: &RunReport, text: &str) -> Result<Report, String> {
    let found = report.simulation.as_ref().and_then(|s| s.sanitizer.clone());
    found.ok_or_else(|| format!("the sanitizer has left no report\n\nconsole:\n{text}"))
}

/// The kernels that seeds are left out of, without any.
fn finds_nothing() -> Result<(), String> {
    let (report, text) = run("none:0".into(), Order::Parallel);
    let found = sanitizer(&report, &text)?;
    match report.failure() {
        Some(why) => Err(format!("{why}\n\n{}\n\nconsole:\n{text}", found.table())),
        None => Ok(()),
    }
}

fn finds(seed: &Seed) -> Result<(), String> {
    let place = place(seed)?;
    let mut others = String::new();
    for order in 0..ORDERS {
        let (report, text) = run(place.clone(), Order::Strict { seed: order });
        let found = sanitizer(&report, &text)?;
        let right = found.findings.iter().any(|f| {
            f.kind == seed.kind && f.structure == seed.structure && f.field.contains(seed.field)
        });
        let judged = report.checks.iter().find(|c| c.name == "sim.sanitizer");
        if right && judged.is_some_and(|c| !c.ok) {
            return Ok(());
        }
        others = found.table();
    }
    Err(format!(
        "without {place}, {} of {}...{} is not found in {ORDERS} orders; in the last one\n{others}",
        seed.kind.name(),
        seed.structure,
        seed.field,
    ))
}

/// The place of a seed, as kernels are told of it.
fn place(seed: &Seed) -> Result<String, String> {
    let path = xtask::paths::workspace_root().join(seed.file);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let line = text.lines().position(|l| l.contains(seed.line));
    let line = line.ok_or_else(|| format!("{} has no {:?}", seed.file, seed.line))?;
    Ok(format!("{}:{}", seed.file, line + 1))
}
