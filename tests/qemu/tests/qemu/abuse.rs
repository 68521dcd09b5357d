//! What programs must not do, done by the program `abuse`: the kernels take no harm.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::record::{EXIT_FAILED, name};
use dyad_abi::service::peer::Kernels;
use dyad_launcher::config::RunConfig;
use dyad_launcher::launch::{Check, RunReport};
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console::{self, because};
use crate::times;

/// A way to end, and what the report of it must contain (nothing: no fault is reported).
const FAULTS: [(&str, &[&str]); 9] = [
    (
        "null-read",
        &[
            "read of 0x0",
            ", in commit (tests/programs/abuse/src/fault.rs:",
        ],
    ),
    ("null-write", &["write to 0x0"]),
    ("exec-data", &["instruction fetch from 0x10"]),
    ("write-text", &["write to 0x41"]),
    (
        "stack-overflow",
        &["write to 0x7", ": its stack of 1024 KiB has run over"],
    ),
    (
        "jump-kernel",
        &["instruction fetch from 0xffffffff80000000"],
    ),
    ("bad-exit", &[]),
    ("huge-alloc", &[]),
    (
        "exhaust-memory",
        &["write to 0x10", ": no memory is left on node "],
    ),
];

const PAIR: &[Isa] = &[X86_64, Aarch64];
const REVERSED: &[Isa] = &[Aarch64, X86_64];
/// Attacks on services, each on a node of either ISA.
const ATTACKS: usize = 22;
/// Beside them, attacks on peers.
const ON_PEERS: usize = 11;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        times::test(
            Tiers::QUICK,
            "abuse::bad_calls_get_the_documented_errors",
            || calls(&[X86_64, Aarch64], 1, "--calls 12000"),
        ),
        times::test(Tiers::FULL, "abuse::bad_calls_on_nodes_of_two_cpus", || {
            calls(&[Aarch64, X86_64], 2, "--calls 4000 --seed 2")
        }),
        times::test(
            Tiers::FULL,
            "abuse::forged_pages_of_moves_hold_no_thread",
            || [(PAIR, 1), (REVERSED, 2)].into_iter().try_for_each(forged),
        ),
        times::test(
            Tiers::FULL,
            "abuse::a_program_ends_in_a_storm_of_moves",
            || [(PAIR, 1), (REVERSED, 2)].into_iter().try_for_each(storm),
        ),
        times::test(
            Tiers::FULL.and(Tiers::LONG),
            "abuse::a_thread_that_is_to_be_moved_asks_for_moves",
            || [(PAIR, 1), (REVERSED, 2)].into_iter().try_for_each(knot),
        ),
        times::test(
            Tiers::FULL.and(Tiers::LONG),
            "abuse::a_thread_that_moves_to_a_wild_place_ends_the_program_only",
            || [PAIR, REVERSED].into_iter().try_for_each(wild),
        ),
    ];
    for (name, nodes, cpus, kernels) in [
        (
            "services_refuse_what_is_not_granted",
            PAIR,
            1,
            Kernels::Fused,
        ),
        (
            "services_refuse_in_the_other_order",
            REVERSED,
            2,
            Kernels::Fused,
        ),
        (
            "peers_refuse_what_is_not_granted",
            PAIR,
            1,
            Kernels::Multiple,
        ),
        (
            "peers_refuse_in_the_other_order",
            REVERSED,
            1,
            Kernels::Multiple,
        ),
    ] {
        let f = move || services(nodes, cpus, kernels);
        trials.push(times::test(Tiers::FULL, format!("abuse::{name}"), f));
    }
    for (fault, says) in FAULTS {
        let name = format!("abuse::{}_ends_the_program_only", fault.replace('-', "_"));
        trials.push(times::test(Tiers::FULL, name, move || {
            let kernels = [Kernels::Fused, Kernels::Multiple];
            let all = kernels.into_iter().flat_map(|k| Isa::ALL.map(|on| (k, on)));
            all.into_iter()
                .try_for_each(|(kernels, on)| ends(fault, says, on, kernels))
        }));
    }
    trials
}

fn run(nodes: &[Isa], cpus: usize, kernels: Kernels, args: &str) -> (RunReport, String) {
    let config = RunConfig {
        kernels,
        nodes: nodes.to_vec(),
        cpus,
        // Small, so that memory is soon exhausted; a peer needs some for each process.
        mem_local: match kernels {
            Kernels::Fused => 32 << 20,
            Kernels::Multiple => 256 << 20,
        },
        work: console::app("abuse", args),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    console::run(&config)
}

fn calls(nodes: &[Isa], cpus: usize, args: &str) -> Result<(), Failed> {
    let (report, text) = run(nodes, cpus, Kernels::Fused, args);
    match report.failure() {
        Some(why) => because(&text, why),
        None => Ok(()),
    }
}

/// A program that writes what init does into the pages of its threads ends as others do.
fn forged((nodes, cpus): (&[Isa], usize)) -> Result<(), Failed> {
    let (report, text) = run(nodes, cpus, Kernels::Fused, "--moves yes");
    match report.failure() {
        Some(why) => because(&text, why),
        None if report
            .checks
            .iter()
            .any(|c| c.name == "abuse.moves.goes-on") =>
        {
            Ok(())
        }
        None => because(&text, "no move was asked for"),
    }
}

/// Threads forge the pages of each other while they are moved, and the program ends meanwhile: nothing of it stays. How it
/// ends is its own affair, since it may have stopped a thread by what it forges.
fn storm((nodes, cpus): (&[Isa], usize)) -> Result<(), Failed> {
    for seed in 0..3 {
        let args = format!("--moves storm --seed {seed}");
        ends_somehow(run(nodes, cpus, Kernels::Fused, &args), seed)?;
    }
    Ok(())
}

/// Threads ask for moves of each other. One of them that is to be moved itself may have the list of requests then, and has to be
/// dispatched to give it back.
fn knot((nodes, cpus): (&[Isa], usize)) -> Result<(), Failed> {
    for seed in 0..size(1, 2, 20) {
        let args = format!("--moves knot --seed {seed}");
        let (report, text) = run(nodes, cpus, Kernels::Fused, &args);
        if let Some(why) = report.failure() {
            return because(&text, format!("seed {seed}: {why}"));
        }
    }
    Ok(())
}

/// Over kernels that only exchange messages, a thread asks its peer for a move to a program counter or a stack where it
/// cannot go on.
fn wild(nodes: &[Isa]) -> Result<(), Failed> {
    const PLACES: u64 = 16;
    let step = size(8, 5, 1);
    for seed in (0..PLACES).step_by(step as usize) {
        let args = format!("--moves wild --seed {seed}");
        let (report, text) = run(nodes, 1, Kernels::Multiple, &args);
        if !report.checks.iter().any(|c| c.name == name::POOLS && c.ok) {
            return because(&text, format!("seed {seed}: the nodes are not separate"));
        }
        ends_somehow((report, text), seed)?;
    }
    Ok(())
}

/// However the program ends, nothing else fails, and nothing of it stays.
fn ends_somehow((report, text): (RunReport, String), seed: u64) -> Result<(), Failed> {
    let failed = |c: &&Check| !c.ok && c.name != name::EXIT;
    if let Some(check) = report.checks.iter().find(failed) {
        return because(&text, format!("seed {seed}: check {} failed", check.name));
    }
    let returned = |c: &Check| c.name == name::FRAMES;
    if report.error.is_some() || !report.checks.iter().any(returned) {
        return because(&text, format!("seed {seed}: the system has not ended it"));
    }
    Ok(())
}

/// Every attack on a service must have been tried, on both ISAs, and the services answer after each.
fn services(nodes: &[Isa], cpus: usize, kernels: Kernels) -> Result<(), Failed> {
    let (report, text) = run(nodes, cpus, kernels, "--services yes");
    if let Some(why) = report.failure() {
        return because(&text, why);
    }
    let played = |c: &&Check| c.ok && Isa::ALL.iter().any(|isa| c.name.ends_with(isa.name()));
    let all = match kernels {
        Kernels::Fused => ATTACKS,
        Kernels::Multiple => ATTACKS + ON_PEERS,
    };
    match report.checks.iter().filter(played).count() {
        n if n == 2 * all => Ok(()),
        n => because(&text, format!("{n} attacks were played")),
    }
}

fn ends(fault: &str, says: &[&str], on: Isa, kernels: Kernels) -> Result<(), Failed> {
    let args = format!("--fault {fault} --on {on}");
    let (report, text) = run(PAIR, 1, kernels, &args);
    if !text.contains(&format!("committing {fault} on {on}")) {
        return because(&text, "the fault was not committed");
    }
    if report.ok() || report.error.is_some() || text.contains("did no harm") {
        return because(&text, "the run must fail, and by the program's fault only");
    }
    if let Some(n) = report.nodes.iter().find(|n| n.exit != Some(EXIT_FAILED)) {
        return because(&text, format!("node {} exited with {:?}", n.id, n.exit));
    }
    let passed = |name: &str, ok| {
        let found = report
            .checks
            .iter()
            .filter(|c| c.name == name && c.ok == ok);
        found.count()
    };
    if passed("app.exit", false) != 1 || passed("frames.returned", true) != 1 {
        return because(&text, "not ended by init, or frames were not returned");
    }
    let reported = text.contains("thread 0: ");
    if reported == says.is_empty() || !says.iter().all(|s| text.contains(s)) {
        return because(&text, format!("the report must say {says:?}"));
    }
    // Where it was; registers are the handler's affair, which keeps none.
    if reported
        && !text.lines().any(|l| {
            l.contains("thread 0: ") && l.contains("at pc 0x") && l.contains(&format!(" on {on}"))
        })
    {
        return because(&text, "the place of the fault is missing");
    }
    Ok(())
}
