//! The sanitizer of runs without coherent caches: it finds nothing in kernels as they are, and each of
//! their flushes that is left out here, by the right name.
//!
//! Not every flush shows in a run: where a line is dropped all the time for the sake of its other words,
//! or its only reader sleeps, one more or less makes no difference. So each has the work in which it does:
//! a program, the storm of system calls, or in-kernel tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_launcher::config::{RunConfig, Sim, TestOptions, Work};
use dyad_launcher::launch::RunReport;
use dyad_launcher::sim::Setup;
use dyad_launcher::sim::sanitizer::Report;
use dyad_sim_model::config::Order;
use dyad_sim_model::incoherent::Kind;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::{console, times};

/// What makes a missing flush show.
#[derive(Clone, Copy)]
enum Under {
    /// The program `hop`.
    Hop,
    /// So many random system calls.
    Storm(u32),
    /// In-kernel tests.
    Tests(&'static [&'static str]),
}

/// A flush that kernels are to do without, and what has to be found.
struct Seed {
    /// Name of the test.
    name: &'static str,
    /// Where it is: a file, and what the line has in it that no earlier one has.
    file: &'static str,
    line: &'static str,
    under: Under,
    kind: Kind,
    structure: &'static str,
    field: &'static str,
}

/// Random system calls that come to a stale copy of whatever kernels share.
const STORM: u32 = 30_000;

/// In how many strict orders it has to be found. Whether a stale copy is read depends on who runs when;
/// in strict order that is the same each time.
const ORDERS: u64 = 12;

const SEEDS: [Seed; 20] = [
    Seed {
        name: "messages_written_back",
        file: "kernel/ring/src/spsc.rs",
        line: "mem.writeback(slot, LINE_BYTES);",
        under: Under::Hop,
        kind: Kind::Unpublished,
        structure: "inboxes",
        field: "of a message",
    },
    Seed {
        name: "count_of_messages_written_back",
        file: "kernel/ring/src/spsc.rs",
        line: "mem.store_through(self.place.tail(), tail",
        under: Under::Hop,
        kind: Kind::Unpublished,
        structure: "inboxes",
        field: "tail",
    },
    Seed {
        name: "count_of_messages_read_at_memory",
        file: "kernel/ring/src/spsc.rs",
        line: "let tail = mem.load_fresh(self.place.tail()",
        under: Under::Hop,
        kind: Kind::StaleRead,
        structure: "inboxes",
        field: "tail",
    },
    Seed {
        name: "activity_read_at_memory",
        file: "kernel/ring/src/wake.rs",
        line: "let doing = mem.load_fresh(line.activity",
        under: Under::Hop,
        kind: Kind::StaleRead,
        structure: "superblock",
        field: ".activity",
    },
    Seed {
        name: "barrier_read_at_memory",
        file: "kernel/core/src/run_loop/barrier.rs",
        line: "node.words.read(&node.sb.node(n).barrier)",
        under: Under::Hop,
        kind: Kind::StaleRead,
        structure: "superblock",
        field: ".barrier",
    },
    Seed {
        name: "publications_read_at_memory",
        file: "kernel/quiesce/src/words.rs",
        line: "Publication(self.mem.load_fresh(self.published(node)",
        under: Under::Hop,
        kind: Kind::StaleRead,
        structure: "quiesce",
        field: ".published",
    },
    Seed {
        name: "frames_pinned_at_memory",
        file: "kernel/retype/src/row.rs",
        line: "match word.replace(raw, raw + 1) {",
        under: Under::Hop,
        kind: Kind::CachedRmw,
        structure: "frame record",
        field: "w0",
    },
    Seed {
        name: "messages_dropped_before_they_are_read",
        file: "kernel/ring/src/spsc.rs",
        line: "mem.invalidate(slot, LINE_BYTES);",
        under: Under::Tests(&["full_rings_refuse_and_recover"]),
        kind: Kind::StaleRead,
        structure: "inboxes",
        field: "of a message",
    },
    Seed {
        name: "messages_taken_counted_at_memory",
        file: "kernel/ring/src/spsc.rs",
        line: "let head = mem.load_fresh(self.place.head()",
        under: Under::Tests(&["full_rings_refuse_and_recover"]),
        kind: Kind::StaleRead,
        structure: "inboxes",
        field: "head",
    },
    Seed {
        name: "threads_handed_over_in_memory",
        file: "kernel/core/src/migrate/handoff.rs",
        line: "if !t.change(cx.words(), mine, handed)",
        under: Under::Hop,
        kind: Kind::CachedRmw,
        structure: "thread",
        field: "owner",
    },
    Seed {
        name: "log_entries_written_back",
        file: "kernel/quiesce/src/log.rs",
        line: "q.mem.store_through(at, what.bits()",
        under: Under::Storm(STORM),
        kind: Kind::Unpublished,
        structure: "quiesce",
        field: ".entries",
    },
    Seed {
        name: "log_entries_read_at_memory",
        file: "kernel/quiesce/src/log.rs",
        line: "let word = q.mem.load_fresh(entry(log, cursor)",
        under: Under::Storm(STORM),
        kind: Kind::StaleRead,
        structure: "quiesce",
        field: ".entries",
    },
    Seed {
        name: "logs_counted_at_memory",
        file: "kernel/quiesce/src/log.rs",
        line: "q.mem.load_fresh(q.log(index)",
        under: Under::Storm(STORM),
        kind: Kind::StaleRead,
        structure: "quiesce",
        field: ".head",
    },
    Seed {
        name: "what_logs_name_dropped",
        file: "kernel/core/src/sched/quiet.rs",
        line: "self.cx.words().invalidate(at, len)",
        under: Under::Storm(STORM),
        kind: Kind::StaleRead,
        structure: "capability table of level 0",
        field: "slot.contents",
    },
    Seed {
        name: "formatted_frames_written_back",
        file: "kernel/retype/src/retype.rs",
        line: "mem.invalidate(frame.address(), PAGE_SIZE)",
        under: Under::Storm(STORM),
        kind: Kind::LostUpdate,
        structure: "unused frame",
        field: "+0x",
    },
    Seed {
        name: "running_components_looked_at_in_rounds",
        file: "kernel/core/src/sched/quiet.rs",
        line: "c.parts(cx.words())",
        under: Under::Tests(&["components_run_with_the_table_that_another_node_sets"]),
        kind: Kind::StaleRead,
        structure: "component",
        field: "captbl",
    },
    Seed {
        name: "requests_to_stop_looked_for_without_a_copy",
        file: "kernel/core/src/syscall/ops/stop.rs",
        line: "words.refresh(info, size_of_val(info) as u64);",
        under: Under::Tests(&["requests_to_stop_from_another_node_are_found"]),
        kind: Kind::StaleRead,
        structure: "thread",
        field: "frames[..].info",
    },
    Seed {
        name: "components_dropped_before_they_are_entered",
        file: "kernel/machine/src/capcache.rs",
        line: "?.parts(cx.words())",
        under: Under::Tests(&["components_are_left_for_the_table_that_another_node_sets"]),
        kind: Kind::StaleRead,
        structure: "component",
        field: "captbl",
    },
    Seed {
        name: "components_dropped_before_they_are_remembered",
        file: "kernel/machine/src/capcache.rs",
        line: "?.parts(cx.words())",
        under: Under::Tests(&["components_that_another_node_moves_are_not_entered_here"]),
        kind: Kind::StaleRead,
        structure: "component",
        field: "home",
    },
    Seed {
        name: "components_dropped_before_their_home_is_read",
        file: "kernel/machine/src/capcache.rs",
        line: "?.parts(cx.words())",
        under: Under::Tests(&["guarded_ways_to_components_that_move_lead_nowhere"]),
        kind: Kind::StaleRead,
        structure: "component",
        field: "home",
    },
];

/// How many seeds are looked for at the same time: machines of a system in strict order take turns, and
/// together keep one core busy.
const AT_ONCE: usize = 2;

/// The seeds that are to be found, and whether they have been, once all have been looked for.
struct Seeds {
    names: Vec<&'static str>,
    found: OnceLock<BTreeMap<&'static str, Result<(), String>>>,
}

impl Seeds {
    /// The seeds whose tests this run includes.
    fn of_this_run() -> Seeds {
        let chosen = |&(n, seed): &(usize, &Seed)| times::is_selected(tiers(n), &full(seed));
        Seeds {
            names: SEEDS
                .iter()
                .enumerate()
                .filter(chosen)
                .map(|(_, seed)| seed.name)
                .collect(),
            found: OnceLock::new(),
        }
    }

    fn result(&self, name: &str) -> Result<(), Failed> {
        let found = self.found.get_or_init(|| self.find());
        match found.get(name) {
            Some(result) => Ok(result.clone()?),
            None => Err("nobody has looked for it".into()),
        }
    }

    fn find(&self) -> BTreeMap<&'static str, Result<(), String>> {
        let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let worker = || {
            while let Some(name) = self.names.get(next.fetch_add(1, Ordering::Relaxed)) {
                let seed = SEEDS.iter().find(|seed| seed.name == *name);
                let result = seed.map_or_else(|| Err("no such seed".into()), finds);
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.insert(*name, result);
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(worker);
            }
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tiers that look for the seed of a number.
fn tiers(n: usize) -> Tiers {
    match n.is_multiple_of(4) {
        true => Tiers::FULL.and(Tiers::LONG),
        false => Tiers::LONG,
    }
}

/// The name of the test that looks for a seed.
fn full(seed: &Seed) -> String {
    format!("sanitizer::finds_{}_not", seed.name)
}

/// All of them. Seeds are looked for as soon as the first of their tests runs.
pub fn trials() -> Vec<Trial> {
    let test = |tiers, name: String, f: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        times::test(tiers, format!("sanitizer::{name}"), f)
    };
    let all = Arc::new(Seeds::of_this_run());
    let seeds = SEEDS.iter().enumerate().map(|(n, seed)| {
        let all = all.clone();
        times::test(tiers(n), full(seed), move || all.result(seed.name))
    });
    let hop = test(
        Tiers::FULL,
        "finds_nothing_where_nothing_is_missing".into(),
        Box::new(|| Ok(finds_nothing(Under::Hop, Order::Parallel)?)),
    );
    let storm = test(
        Tiers::FULL,
        "finds_nothing_in_a_storm".into(),
        Box::new(|| {
            finds_nothing(Under::Storm(2 * STORM), Order::Strict { seed: 1 })?;
            Ok(finds_nothing(Under::Storm(2 * STORM), Order::Parallel)?)
        }),
    );
    [hop, storm].into_iter().chain(seeds).collect()
}

fn run(seeded: String, under: Under, order: Order) -> (RunReport, String) {
    let work = match under {
        Under::Hop => console::app("hop", ""),
        Under::Storm(operations) => console::app("storm", format!("--seed 1 --ops {operations}")),
        Under::Tests(names) => Work::Ktest(names.iter().map(|&n| n.into()).collect()),
    };
    let config = RunConfig {
        nodes: vec![X86_64, Aarch64],
        work,
        sim: Sim::Cache,
        setup: Setup {
            order,
            ..Setup::default()
        },
        coherent: false,
        timeout: Some(Duration::from_secs(200)),
        test: TestOptions {
            seeded,
            bare: matches!(under, Under::Storm(_)),
            ..TestOptions::default()
        },
        ..RunConfig::default()
    };
    console::run(&config)
}

fn sanitizer(report: &RunReport, text: &str) -> Result<Report, String> {
    let found = report.simulation.as_ref().and_then(|s| s.sanitizer.clone());
    found.ok_or_else(|| format!("the sanitizer has left no report\n\nconsole:\n{text}"))
}

/// The kernels that seeds are left out of, without any.
fn finds_nothing(under: Under, order: Order) -> Result<(), String> {
    let (report, text) = run("none:0".into(), under, order);
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
        let (report, text) = run(place.clone(), seed.under, Order::Strict { seed: order });
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
    let path = dyad_launcher::paths::workspace_root().join(seed.file);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let line = text.lines().position(|l| l.contains(seed.line));
    let line = line.ok_or_else(|| format!("{} has no {:?}", seed.file, seed.line))?;
    Ok(format!("{}:{}", seed.file, line + 1))
}
