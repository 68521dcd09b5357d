//! The storm of system calls: some seconds of it, or ten million operations in the tier `long`. `DYAD_SEED` gives
//! another seed; every run prints its own. And what one thread can take from others by doing what it
//! may: all scenes are played in one run.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_launcher::config::RunConfig;
use dyad_launcher::launch::RunReport;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::times;

/// Operations of the long form, on each kind of system.
const LONG: u64 = 10_000_000;
/// Seconds of fused time of the other forms.
const SECONDS: [u64; 2] = [3, 10];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = |tiers, name: &str, nodes: &'static [Isa], cpus, coherent| {
        times::test(tiers, format!("storm::{name}"), move || {
            storm(nodes, cpus, coherent)
        })
    };
    let pair = &[X86_64, Aarch64];
    let mut trials = vec![
        test(Tiers::QUICK.and(Tiers::LONG), "on_the_pair", pair, 1, true),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "in_reversed_order_with_two_cpus",
            &[Aarch64, X86_64],
            2,
            true,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "on_three_nodes",
            &[X86_64, Aarch64, X86_64],
            1,
            true,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "on_a_pair_whose_caches_count_as_incoherent",
            pair,
            1,
            false,
        ),
    ];
    let played = Arc::new(OnceLock::new());
    for attack in ATTACKS {
        let played = played.clone();
        let f = move || scene(played.get_or_init(play), attack);
        let name = format!("hostile::{}_does_not_stop_others", attack);
        trials.push(times::test(Tiers::FULL, name, f));
    }
    trials
}

/// Attacks, as the program calls them.
const ATTACKS: [&str; 14] = [
    "spin",
    "yield",
    "doorbells",
    "migrate",
    "fault",
    "recurse",
    "pointers",
    "forge",
    "map",
    "shootdown",
    "retype",
    "capabilities",
    "rounds",
    "memory",
];

/// Checks of all scenes, and what was printed.
type Played = (RunReport, String);

fn play() -> Played {
    run(&[X86_64, Aarch64], 1, true, "--hostile", 180)
}

/// A victim on the attacker's CPU and one on another node must have got their share: the program
/// says how much that is.
fn scene((report, text): &Played, attack: &str) -> Result<(), Failed> {
    for node in 0..2 {
        let name = format!("hostile.{attack}.node{node}");
        match report.checks.iter().find(|c| c.name == name) {
            Some(c) if c.ok => {}
            Some(c) => return Err(format!("{name}: {}\n\nconsole:\n{text}", c.detail).into()),
            None => return Err(format!("no {name}\n\nconsole:\n{text}").into()),
        }
    }
    Ok(())
}

/// Runs the program `storm` in the place of init.
fn run(
    nodes: &[Isa],
    cpus: usize,
    coherent: bool,
    args: &str,
    timeout: u64,
) -> (RunReport, String) {
    console::run(&RunConfig {
        timeout: Some(Duration::from_secs(timeout)),
        ..console::bare(nodes, cpus, coherent, console::app("storm", args))
    })
}

fn storm(nodes: &[Isa], cpus: usize, coherent: bool) -> Result<(), Failed> {
    let seed = std::env::var("DYAD_SEED").unwrap_or_else(|_| "1".into());
    let for_seconds = |seconds| (format!("--seed {seed} --seconds {seconds}"), 120);
    let [quick, full] = SECONDS.map(for_seconds);
    let (args, timeout) = size(quick, full, (format!("--seed {seed} --ops {LONG}"), 1800));
    let (report, text) = run(nodes, cpus, coherent, &args, timeout);
    match report.failure() {
        Some(why) => Err(format!("{args}: {why}\n\nconsole:\n{text}").into()),
        None if !report.checks.iter().any(|c| c.name == "tables.agree") => {
            Err(format!("{args}: nobody compared the tables\n\nconsole:\n{text}").into())
        }
        None => {
            for name in ["storm.variety", "tables.agree"] {
                let check = report.checks.iter().find(|c| c.name == name);
                eprintln!("{name}: {}", check.map_or("", |c| c.detail.as_str()));
            }
            Ok(())
        }
    }
}
