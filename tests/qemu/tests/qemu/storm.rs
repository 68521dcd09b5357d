//! The storm of system calls: quick forms here, long ones with `DYAD_LONG=1`. `DYAD_SEED` gives
//! another seed; every run prints its own. And what one thread can take from others by doing what it
//! may: all scenes are played in one run.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use libtest_mimic::{Failed, Trial};
use xtask::config::{RunConfig, TestOptions, Work};
use xtask::launch::{self, RunReport};

use crate::console::Kept;

/// Operations of the long form, on each kind of system.
const LONG: u64 = 10_000_000;
/// Seconds of fused time of the quick form.
const QUICK: u64 = 10;

/// Whether storms are among the trials that everybody runs. One in four still fails (see the book's
/// page of known bugs), so they are not, which is not to say that they may: `cargo test -- --ignored
/// storm` or `DYAD_LONG=1` runs them.
pub fn is_due() -> bool {
    std::env::var_os("DYAD_LONG").is_some()
}

/// All of them.
pub fn trials() -> Vec<Trial> {
    let test = |name: &str, nodes: &'static [Isa], cpus| {
        Trial::test(format!("storm::{name}"), move || storm(nodes, cpus))
            .with_kind("system")
            .with_ignored_flag(!is_due())
    };
    let mut trials = vec![
        test("on_the_pair", &[X86_64, Aarch64], 1),
        test("in_reversed_order_with_two_cpus", &[Aarch64, X86_64], 2),
        test("on_three_nodes", &[X86_64, Aarch64, X86_64], 1),
    ];
    let played = Arc::new(OnceLock::new());
    for attack in ATTACKS {
        let played = played.clone();
        let f = move || scene(played.get_or_init(play), attack);
        let name = format!("hostile::{}_does_not_stop_others", attack);
        trials.push(Trial::test(name, f).with_kind("system"));
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
    run(&[X86_64, Aarch64], 1, "--hostile", 180)
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
pub fn run(nodes: &[Isa], cpus: usize, args: &str, timeout: u64) -> (RunReport, String) {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        work: Work::App {
            app: "storm".into(),
            args: args.into(),
        },
        timeout: Some(Duration::from_secs(timeout)),
        test: TestOptions {
            bare: true,
            ..TestOptions::default()
        },
        ..RunConfig::default()
    };
    let mut kept = Kept::new(|_| {});
    let report = launch::run(&config, &mut kept);
    let text = kept.text(&report);
    (report, text)
}

fn storm(nodes: &[Isa], cpus: usize) -> Result<(), Failed> {
    let seed = std::env::var("DYAD_SEED").unwrap_or_else(|_| "1".into());
    let (args, timeout) = match std::env::var_os("DYAD_LONG") {
        Some(_) => (format!("--seed {seed} --ops {LONG}"), 1800),
        None => (format!("--seed {seed} --seconds {QUICK}"), 120),
    };
    let (report, text) = run(nodes, cpus, &args, timeout);
    match report.failure() {
        Some(why) => Err(format!("{args}: {why}\n\nconsole:\n{text}").into()),
        None => Ok(()),
    }
}
