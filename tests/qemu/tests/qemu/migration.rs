//! What `cargo xtask bench migration` measures is complete, adds up, and follows its models.

use dyad_abi::Isa;
use dyad_measure::bench::migration::{self, Group, Key, MigrationReport, Options};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::Kept;
use crate::times;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("migration");
    vec![
        test(Tiers::FULL, "costs_something_on_both_sides", small),
        test(Tiers::FULL, "wakes_without_messages", wakes),
        test(Tiers::FULL, "pays_from_where_the_model_says", chase),
        test(
            Tiers::FULL,
            "searches_pay_from_where_the_model_says",
            search,
        ),
        test(Tiers::FULL, "costs_little_where_nobody_migrates", cost),
    ]
}

fn measure(group: Group, homes: &[Isa]) -> Result<MigrationReport, Failed> {
    let options = Options {
        quick: true,
        groups: vec![group],
        homes: homes.to_vec(),
    };
    let mut kept = Kept::new(|_| {});
    let report = migration::migration(&options, &mut |_| {}, &mut kept)?;
    match report.problem() {
        None => Ok(report),
        Some(why) => Err(format!("{why}\n{}", report.table()).into()),
    }
}

fn small() -> Result<(), Failed> {
    let report = measure(Group::Micro, &Isa::ALL)?;
    let wrong = |what: &str| Failed::from(format!("{what}\n{}", report.table()));
    for isa in Isa::ALL {
        for op in [
            "async_ping_pong",
            "crossing_call_round_trip",
            "crossing_call_round_trip_reverse",
            "remote_fault",
        ] {
            let op = op.to_string();
            let row = report.rows.get(&Key { op, isa });
            let row = row.ok_or_else(|| wrong("a row is missing"))?;
            if row
                .instructions
                .is_none_or(|n| !(300..100_000).contains(&n))
            {
                return Err(wrong("instructions are not what they can be"));
            }
            // Faults have one side and do not wait.
            let sum: u64 = row.phases.iter().map(|p| p.value).sum();
            let hundredth = row.instructions.unwrap_or(0) / 100;
            if !row.phases.is_empty()
                && row.instructions.is_none_or(|n| n.abs_diff(sum) > hundredth)
            {
                return Err(wrong("phases do not add up"));
            }
        }
    }
    // Others say how far there is to go.
    let phases = |goal: &&migration::Goal| goal.what.contains("phases");
    match report.goals.iter().filter(phases).find(|goal| !goal.met) {
        None if report.goals.iter().filter(phases).count() == 2 => Ok(()),
        None => Err(wrong("phases are missing")),
        Some(goal) => Err(wrong(&format!("{} is not {}", goal.what, goal.goal))),
    }
}

/// A thread that waits is woken without a message. Doorbells are those of everything that goes on
/// meanwhile, so how many there are is a figure, not a check.
fn wakes() -> Result<(), Failed> {
    let report = measure(Group::Futex, &[Isa::X86_64])?;
    let wrong = |what: &str| Failed::from(format!("{what}\n{}", report.table()));
    if report.goals.len() != 2 {
        return Err(wrong("messages and doorbells are not counted"));
    }
    let mut messages = report.goals.iter().filter(|g| g.goal.contains("messages"));
    match messages.next() {
        Some(goal) if goal.met => Ok(()),
        _ => Err(wrong("a wake-up is a message")),
    }
}

/// Times are simulated, so they do not depend on what else the computer does.
fn chase() -> Result<(), Failed> {
    let report = measure(Group::Chase, &[Isa::X86_64])?;
    let wrong = |what: &str| Failed::from(format!("{what}\n{}", report.table()));
    if report.goals.len() < 4 {
        return Err(wrong("curves are missing"));
    }
    match report.goals.iter().find(|goal| !goal.met) {
        None => Ok(()),
        Some(goal) => Err(wrong(&format!("{} is not {}", goal.what, goal.goal))),
    }
}

/// With few edges searching from here is faster, with many it is searching there; and both are rows whose phases
/// add up.
fn search() -> Result<(), Failed> {
    let report = measure(Group::Bfs, &[Isa::X86_64])?;
    let wrong = |what: &str| Failed::from(format!("{what}\n{}", report.table()));
    if report.goals.len() != 3 || report.rows.len() != 2 {
        return Err(wrong("graphs are missing"));
    }
    for row in report.rows.values() {
        let sum: u64 = row.phases.iter().map(|p| p.value).sum();
        let figures = ["edges", "calls", "near_ns", "stay_ns", "speedup"];
        if row.instructions != Some(sum) || !figures.iter().all(|f| row.more.contains_key(*f)) {
            return Err(wrong("phases do not add up, or figures are missing"));
        }
    }
    match report.goals.iter().find(|goal| !goal.met) {
        None => Ok(()),
        Some(goal) => Err(wrong(&format!("{} is not {}", goal.what, goal.goal))),
    }
}

/// The kernel with the shortest loops, on the ISA where the pass costs more.
fn cost() -> Result<(), Failed> {
    let report = measure(Group::Cost, &[Isa::Aarch64])?;
    match report.goals.as_slice() {
        [goal] if goal.met && goal.what == "transform_cost_mg" => Ok(()),
        _ => Err(report.table().into()),
    }
}
