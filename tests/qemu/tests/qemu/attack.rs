//! The attack suite: each attack by name; all attacks of one system are played in one boot of it.
//!
//! Usually the pair in its default order. The tier `full` plays the attacks that repeat, exhaust or cross nodes in time, in both
//! orders. In the tier `long` also two CPUs, three nodes and caches that count as incoherent, and fifty runs of each.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use attack_list::{ATTACKS, Attack};
use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_launcher::config::{RunConfig, Sim};
use dyad_launcher::launch::RunReport;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::times;

/// Runs of each system in the long form.
const LONG_RUNS: usize = 50;
/// Limit of a run, in seconds.
const TIMEOUT: u64 = 300;

/// A kind of system on which the suite is played.
#[derive(Clone, Copy)]
struct System {
    /// Part of the names of tests; empty for the one that is always played.
    name: &'static str,
    tiers: Tiers,
    nodes: &'static [Isa],
    cpus: usize,
    coherent: bool,
    /// The part of the attacks that is played.
    part: Part,
}

/// A part of the attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    /// Those of the tier `quick`.
    Quick,
    /// The others.
    Rest,
}

impl Part {
    fn has(self, attack: &Attack) -> bool {
        match self {
            Part::All => true,
            Part::Quick => attack.is_quick(),
            Part::Rest => !attack.is_quick(),
        }
    }

    fn options(self) -> &'static str {
        match self {
            Part::All => "",
            Part::Quick => "--part quick",
            Part::Rest => "--part rest",
        }
    }
}

const PAIR: System = System {
    name: "",
    tiers: Tiers::QUICK.and(Tiers::LONG),
    nodes: &[X86_64, Aarch64],
    cpus: 1,
    coherent: true,
    part: Part::Quick,
};

const OTHERS: [System; 6] = [
    System {
        name: "in_time::",
        tiers: Tiers::FULL.and(Tiers::LONG),
        part: Part::Rest,
        ..PAIR
    },
    System {
        name: "in_time_reversed::",
        tiers: Tiers::FULL.and(Tiers::LONG),
        nodes: &[Aarch64, X86_64],
        part: Part::Rest,
        ..PAIR
    },
    System {
        name: "reversed::",
        tiers: Tiers::LONG,
        nodes: &[Aarch64, X86_64],
        ..PAIR
    },
    System {
        name: "two_cpus::",
        tiers: Tiers::LONG,
        cpus: 2,
        part: Part::All,
        ..PAIR
    },
    System {
        name: "three_nodes::",
        tiers: Tiers::LONG,
        nodes: &[X86_64, Aarch64, X86_64],
        part: Part::All,
        ..PAIR
    },
    System {
        name: "incoherent::",
        tiers: Tiers::LONG,
        coherent: false,
        part: Part::All,
        ..PAIR
    },
];

/// What the runs of a system have shown.
type Played = Vec<(RunReport, String)>;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let runs = size(1, 1, LONG_RUNS);
    let mut trials = Vec::new();
    for system in [PAIR].into_iter().chain(OTHERS) {
        let played: Arc<OnceLock<Played>> = Arc::default();
        for attack in ATTACKS.iter().filter(|a| system.part.has(a)) {
            let played = played.clone();
            let name = format!("attack::{}{}", system.name, attack.name);
            let f = move || held(played.get_or_init(|| plays(system, runs)), attack.name);
            trials.push(times::test(system.tiers, name, f));
        }
        let f = move || ended(played.get_or_init(|| plays(system, runs)));
        let name = format!("attack::{}ends_in_order", system.name);
        trials.push(times::test(system.tiers, name, f));
    }
    trials
}

/// Several runs of a system.
fn plays(system: System, runs: usize) -> Played {
    (0..runs).map(|_| play(system)).collect()
}

/// Plays its attacks.
fn play(system: System) -> (RunReport, String) {
    let config = RunConfig {
        timeout: Some(Duration::from_secs(TIMEOUT)),
        sim: match system.coherent {
            true => Sim::Off,
            false => Sim::Cache,
        },
        ..console::bare(
            system.nodes,
            system.cpus,
            system.coherent,
            console::app("attack", system.part.options()),
        )
    };
    console::run(&config)
}

/// An attack must have been tried and refused, in every run.
fn held(played: &Played, attack: &str) -> Result<(), Failed> {
    let name = format!("attack.{attack}");
    for (n, (report, text)) in played.iter().enumerate() {
        match report.checks.iter().find(|c| c.name == name) {
            Some(c) if c.ok => {}
            Some(c) => return console::because(text, format!("run {n}: {name}: {}", c.detail)),
            None => return console::because(text, format!("run {n}: {name} was not played")),
        }
    }
    Ok(())
}

/// No run may end otherwise than by the program's own decision, or leave tables that disagree.
fn ended(played: &Played) -> Result<(), Failed> {
    for (n, (report, text)) in played.iter().enumerate() {
        if let Some(why) = report.failure() {
            return console::because(text, format!("run {n}: {why}"));
        }
        if !report.checks.iter().any(|c| c.name == "tables.agree") {
            return console::because(text, format!("run {n}: the tables were not compared"));
        }
    }
    Ok(())
}
