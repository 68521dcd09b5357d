//! The simulator's clock on real machines: what happens, and when, is the same in every run, and
//! timers come when they are due.
//!
//! In the tier `long` runs are repeated twenty times, every other one on a host that is busy with
//! something else:
//!
//! ```text
//! cargo xtask test long clock::
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::console::{Line, Record};
use dyad_launcher::launch::{self, Event, RunReport};
use dyad_launcher::sim::{Outcome, Setup};
use dyad_sim_model::config::{Level as SimLevel, Order};
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console::{self, Kept};
use crate::times;

/// From ringing to the interrupt, in nanoseconds, by the default configuration.
const IPI_NS: u64 = 2000;
/// What comes on top: sending the message, and from when the interrupt is due to the reading of the
/// clock. A CPU at work looks for interrupts about every 500 ns.
const AROUND_NS: u64 = 1500;
/// Most instructions of a block: QEMU's `TCG_MAX_INSNS`.
const BLOCK: u64 = 512;
/// In-kernel tests of ticks, and by how much the tests themselves see them come late: they pass time
/// asleep, or work for so long between two looks for interrupts; and then the kernel takes the
/// interrupt, which is some hundred instructions.
const TICKS: [(&str, u64); 4] = [
    (ASLEEP, 150),
    ("simulated_ticks_at_work", 1000),
    ("simulated_ticks_at_work_for_long", 1000),
    (ON_MEMORY, 1600),
];
const ASLEEP: &str = "simulated_ticks_asleep";
const ON_MEMORY: &str = "simulated_ticks_at_work_on_memory";
const DOORBELLS: &str = "simulated_doorbells";
/// Deadlines of all these tests of ticks.
const ALL_TICKS: u64 = 3104;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("clock");
    vec![
        test(
            Tiers::FULL.and(Tiers::LONG),
            "ticks_and_doorbells_have_one_history",
            histories,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "latencies_do_not_make_timers_late",
            latencies,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "strict_order_repeats_a_run",
            strict,
        ),
    ]
}

/// How often a run is repeated: `quick` times, or twenty times in the long form.
pub fn repetitions(quick: usize) -> usize {
    size(quick, quick, 20)
}

/// A simulated system, at the level that is quickest.
pub fn base() -> RunConfig {
    RunConfig {
        sim: Sim::Count,
        timeout: Some(Duration::from_secs(200)),
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        ..RunConfig::default()
    }
}

fn hop() -> RunConfig {
    RunConfig {
        work: console::app("hop", ""),
        ..base()
    }
}

/// Runs a system; its console is in the error.
fn run(config: &RunConfig, each: impl FnMut(&Event<'_>)) -> Result<RunReport, String> {
    let mut kept = Kept::new(each);
    let report = launch::run(config, &mut kept);
    match report.failure() {
        Some(why) => Err(format!("{why}\n\nconsole:\n{}", kept.text(&report))),
        None => Ok(report),
    }
}

/// Threads that keep all processors busy as long as this lives.
pub struct Burners(std::sync::Arc<AtomicBool>);

impl Burners {
    /// That many.
    pub fn new(n: usize) -> Burners {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        for _ in 0..n {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Burners(stop)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What in-kernel tests remark, by node and test, and how long the host took for each.
type Remarks = BTreeMap<(usize, String), (String, Duration)>;

fn remarks(sim: Sim, names: &[&str]) -> Result<(Remarks, Outcome), String> {
    let config = RunConfig {
        work: Work::Ktest(names.iter().map(ToString::to_string).collect()),
        sim,
        ..base()
    };
    let mut began = BTreeMap::new();
    let mut all = BTreeMap::new();
    let report = run(&config, |event| {
        if let Event::Line {
            node,
            host,
            line:
                Line::Record(Record::Ktest {
                    name,
                    state,
                    detail,
                }),
            ..
        } = event
        {
            let key = (*node, name.clone());
            match state.as_str() {
                "start" => {
                    began.insert(key, *host);
                }
                _ => {
                    let took = host.saturating_sub(began.get(&key).copied().unwrap_or_default());
                    all.insert(key, (detail.clone(), took));
                }
            }
        }
    })?;
    let outcome = report.simulation.ok_or("nothing was simulated")?;
    Ok((all, outcome))
}

/// Whether every timer's interrupt was taken after the block that its deadline was in: it is late by
/// no more than what the block takes. What a kernel sees is more, because it has to take the interrupt
/// and be at a place where it may.
fn ensure_punctual(outcome: &Outcome, ticks: u64) -> Result<(), String> {
    for (node, config) in outcome.nodes.iter().zip(&outcome.config.nodes) {
        let clock = node.clock.ok_or("no clock")?;
        let disturbed = clock.outside + clock.given_up + clock.followed_ps;
        if disturbed + clock.handshake_timeouts > 0 || clock.timers < ticks {
            return Err(format!("not {ticks} undisturbed ticks: {clock:#?}"));
        }
        // With latencies there is no limit to what a block can take.
        let longest = match outcome.config.level {
            SimLevel::Timing => u64::MAX,
            SimLevel::Count | SimLevel::Cache => BLOCK * config.instruction_ps(),
        };
        if clock.max_overdue_ps > 0 || clock.max_late_ps > longest {
            return Err(format!("late by more than a block: {clock:#?}"));
        }
    }
    match outcome.nodes.len() {
        2 => Ok(()),
        n => Err(format!("{n} nodes have left a report")),
    }
}

/// The number before these words.
fn number_before(text: &str, words: &str) -> Result<u64, String> {
    let before = text.split(words).next().unwrap_or_default();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number
        .parse()
        .map_err(|_| format!("no number before {words:?} in {text:?}"))
}

fn histories() -> Result<(), Failed> {
    let names: Vec<_> = TICKS
        .iter()
        .map(|(name, _)| *name)
        .chain([DOORBELLS])
        .collect();
    let mut first: Option<BTreeMap<_, String>> = None;
    let mut quickest = Duration::MAX;
    for i in 0..repetitions(4) {
        // Every other time the host has something else to do.
        let _burners = Burners::new(2 * (i % 2));
        let (all, outcome) = remarks(Sim::Count, &names)?;
        ensure_punctual(&outcome, ALL_TICKS)?;
        for node in 0..2 {
            for (name, most) in TICKS {
                let (remark, took) = all
                    .get(&(node, name.to_string()))
                    .ok_or("a test did not end")?;
                if number_before(remark, " ns late")? > most {
                    return Err(format!("{name} on node {node}: {remark}").into());
                }
                if name == ASLEEP {
                    quickest = quickest.min(*took);
                }
            }
        }
        let (remark, _) = &all[&(1, DOORBELLS.to_string())];
        let (least, most) = (
            number_before(remark, " to ")?,
            number_before(remark, " ns")?,
        );
        if least < IPI_NS || most > IPI_NS + AROUND_NS {
            return Err(format!("doorbells do not take their time: {remark}").into());
        }
        let texts = all
            .into_iter()
            .map(|(k, (remark, _))| (k, remark))
            .collect();
        match &first {
            None => first = Some(texts),
            Some(first) if *first == texts => {}
            Some(first) => {
                return Err(format!("run {i} differs: {texts:#?}\nfirst: {first:#?}").into());
            }
        }
    }
    // A second of simulated time.
    match quickest < Duration::from_secs(1) {
        true => Ok(()),
        false => Err(format!("1000 ticks asleep took {quickest:?} at least").into()),
    }
}

/// Where accesses take time, deadlines are passed in the middle of blocks.
fn latencies() -> Result<(), Failed> {
    for burners in [0, 2] {
        let _burners = Burners::new(burners);
        let names = TICKS.map(|(name, _)| name);
        ensure_punctual(&remarks(Sim::Timing, &names)?.1, ALL_TICKS)?;
    }
    Ok(())
}

fn strict() -> Result<(), Failed> {
    let of_seed = |seed| -> Result<(String, Vec<Vec<u8>>), String> {
        let config = RunConfig {
            setup: Setup {
                order: Order::Strict { seed },
                ..Setup::default()
            },
            ..hop()
        };
        let report = run(&config, |_| {})?;
        let outcome = report.simulation.as_ref().ok_or("nothing was simulated")?;
        for node in &outcome.nodes {
            let clock = node.clock.ok_or("no clock")?;
            if (clock.turns_taken, clock.outside, clock.handshake_timeouts) != (0, 0, 0) {
                return Err(format!("something came from outside: {clock:?}"));
            }
        }
        let trace = outcome.trace_hash.clone().ok_or("no trace")?;
        let consoles = report.nodes.iter().map(|n| n.console.clone()).collect();
        Ok((trace, consoles))
    };
    let first = of_seed(1)?;
    for i in 1..repetitions(3) {
        let again = of_seed(1)?;
        if again.0 != first.0 {
            return Err(format!("run {i} has trace {}, the first {}", again.0, first.0).into());
        }
        if again.1 != first.1 {
            return Err(format!("run {i} has other consoles").into());
        }
    }
    match of_seed(2)?.0 == first.0 {
        false => Ok(()),
        true => Err("two seeds have the same trace".into()),
    }
}
