//! Attackers with capabilities of their own, and victims that check themselves: some seconds of each kind of system,
//! or ten million operations in the tier `long`. `DYAD_SEED` gives another seed; every failure says how to repeat it.
//!
//! And non-interference: in strict order, what the victim observes is the same whatever the attacker does, and without
//! one.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::{RunConfig, Sim};
use dyad_launcher::launch::RunReport;
use dyad_launcher::sim::Setup;
use dyad_sim_model::config::Order;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console::{self, because};
use crate::kill::{self, Kill};
use crate::times;

/// Operations of the long form, on each kind of system.
const LONG: u64 = 10_000_000;
/// Fused time of the other forms, in seconds.
const SECONDS: [u64; 2] = [2, 6];
/// Moments at which a node dies: full, long form.
const KILLS: [u64; 2] = [2, 50];
/// Seeds of the attacker for non-interference: full, long form.
const SEEDS: [u64; 2] = [1, 200];
/// Rounds of the victim for non-interference.
const ROUNDS: u64 = 240;

const PAIR: &[Isa] = &[X86_64, Aarch64];
const REVERSED: &[Isa] = &[Aarch64, X86_64];
const THREE: &[Isa] = &[X86_64, Aarch64, X86_64];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = |tiers, name: &str, nodes: &'static [Isa], cpus, coherent| {
        times::test(tiers, format!("adversary::{name}"), move || {
            attack(nodes, cpus, coherent)
        })
    };
    vec![
        test(Tiers::QUICK.and(Tiers::LONG), "on_the_pair", PAIR, 1, true),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "in_reversed_order_with_two_cpus",
            REVERSED,
            2,
            true,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "on_three_nodes",
            THREE,
            1,
            true,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "on_a_pair_whose_caches_count_as_incoherent",
            PAIR,
            1,
            false,
        ),
        times::test(
            Tiers::FULL.and(Tiers::LONG),
            "adversary::a_node_with_an_attacker_dies",
            deaths,
        ),
        times::test(
            Tiers::FULL.and(Tiers::LONG),
            "adversary::what_the_victim_observes_does_not_depend_on_the_attacker",
            interference,
        ),
        times::test(Tiers::LONG, "adversary::time_is_a_channel", time),
    ]
}

/// The long form of a number, or the one of the other tiers.
fn form([full, long]: [u64; 2]) -> u64 {
    size(full, full, long)
}

fn seed() -> u64 {
    let seed = std::env::var("DYAD_SEED").ok();
    seed.and_then(|s| s.parse().ok()).unwrap_or(1)
}

fn config(nodes: &[Isa], cpus: usize, coherent: bool, args: String, seconds: u64) -> RunConfig {
    RunConfig {
        timeout: Some(Duration::from_secs(seconds)),
        ..console::bare(nodes, cpus, coherent, console::app("adversary", args))
    }
}

/// Fails unless the run was good, and its checks were made.
fn judge(report: &RunReport, text: &str, args: &str) -> Result<(), Failed> {
    if let Some(why) = report.failure() {
        return because(text, format_args!("{args}: {why}"));
    }
    for name in [
        "adversary.nothing-found",
        "adversary.victims",
        "adversary.variety",
        "tables.agree",
    ] {
        match report.checks.iter().find(|c| c.name == name) {
            Some(check) => eprintln!("{name}: {}", check.detail),
            None => return because(text, format_args!("{args}: no check {name}")),
        }
    }
    Ok(())
}

fn attack(nodes: &[Isa], cpus: usize, coherent: bool) -> Result<(), Failed> {
    let seed = seed();
    let for_seconds = |seconds| (format!("--seed {seed} --seconds {seconds}"), 150);
    let [quick, full] = SECONDS.map(for_seconds);
    let long = (format!("--seed {seed} --ops {LONG}"), 7200);
    let (args, timeout) = size(quick, full, long);
    let (report, text) = console::run(&config(nodes, cpus, coherent, args.clone(), timeout));
    judge(&report, &text, &args)
}

/// A node dies with an attacker and a thread of the victim on it. The others go on.
fn deaths() -> Result<(), Failed> {
    for kill in 0..form(KILLS) {
        let seed = seed() + kill;
        let args = format!("--seed {seed} --seconds 3 --deaths");
        let mut config = config(PAIR, 1, true, args.clone(), 150);
        config.on_death = OnDeath::Survive;
        // What the dead node was just changing stays as it is.
        config.audit = false;
        let moment = Duration::from_micros(seed.wrapping_mul(dyad_random::GOLDEN) % 2_500_000);
        let ended = kill::run(&config, Kill::after(1, moment), kill::speaks);
        let wrong = ended.report.checks.iter().find(|c| !c.ok);
        if let Some(check) = wrong {
            return ended.because(format_args!("{args}: {}: {}", check.name, check.detail));
        }
        if !ended.passed("adversary.victims") {
            return ended.because(format_args!("{args}: the run did not end"));
        }
    }
    Ok(())
}

/// What the victim has observed in a run in strict order.
fn observed(seed: u64, more: &str) -> Result<String, Failed> {
    let args = format!("--seed {seed} --rounds {ROUNDS} {more}");
    let mut config = config(PAIR, 1, true, args.clone(), 600);
    config.sim = Sim::Count;
    config.setup = Setup {
        order: Order::Strict { seed },
        ..Setup::default()
    };
    let (report, text) = console::run(&config);
    judge(&report, &text, &args)?;
    match report.checks.iter().find(|c| c.name == "adversary.trace") {
        Some(trace) => Ok(trace.detail.clone()),
        None => because(&text, format_args!("{args}: no trace")),
    }
}

fn interference() -> Result<(), Failed> {
    let alone = observed(seed(), "--attackers 0")?;
    eprintln!("without an attacker: {alone}");
    for seed in seed()..seed() + form(SEEDS) {
        let beside = observed(seed, "")?;
        if beside != alone {
            return Err(format!(
                "the victim observes {beside} beside attackers of seed {seed}, and {alone} alone"
            )
            .into());
        }
    }
    Ok(())
}

/// The comparison sees a channel where there is one: when the victim notes the time, too.
fn time() -> Result<(), Failed> {
    let alone = observed(seed(), "--attackers 0 --note-time")?;
    let beside = observed(seed(), "--note-time")?;
    match alone == beside {
        false => Ok(()),
        true => Err(format!("times are the same beside an attacker: {alone}").into()),
    }
}
