//! The message layer between threads of a program on real machines: everything arrives, in order;
//! doorbells are few under load and one for each message when the receiver sleeps; a death is told.
//! In the tier `long` the stream has a million messages in each direction.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::RunConfig;
use dyad_launcher::launch::RunReport;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console::{self, because};
use crate::kill::{self, Ended, Kill, says};
use crate::times;

/// Messages of the long form.
const LONG: u64 = 1_000_000;
/// Messages to a receiver that sleeps, and by how many doorbells a run may differ from another one for
/// other reasons.
const IDLE: u64 = 500;
const OTHER_DOORBELLS: u64 = 25;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("messages");
    vec![
        test(Tiers::FULL, "scenes_on_the_pair", || {
            scenes(&[X86_64, Aarch64], 1)
        }),
        test(
            Tiers::FULL,
            "scenes_in_reversed_order_with_two_cpus",
            || scenes(&[Aarch64, X86_64], 2),
        ),
        test(Tiers::FULL, "scenes_on_three_nodes", || {
            scenes(&[X86_64, Aarch64, X86_64], 1)
        }),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_stream_is_whole_and_rings_seldom",
            stream,
        ),
        test(
            Tiers::FULL,
            "a_receiver_that_sleeps_costs_one_doorbell",
            idle,
        ),
        test(Tiers::FULL, "a_death_is_told", death),
    ]
}

fn config(nodes: &[Isa], cpus: usize, args: &str, seconds: u64) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        work: console::app("messages", args),
        timeout: Some(Duration::from_secs(seconds)),
        ..RunConfig::default()
    }
}

fn run(config: &RunConfig) -> Result<RunReport, Failed> {
    console::good(config).map(|(report, _)| report)
}

/// Checks that must be there; that they are good the run has said.
fn has(report: &RunReport, names: &[&str]) -> Result<(), Failed> {
    let missing = |name: &&&str| !report.checks.iter().any(|c| c.ok && c.name == **name);
    match names.iter().find(missing) {
        Some(name) => Err(format!("no check {name}").into()),
        None => Ok(()),
    }
}

fn counter(report: &RunReport, name: &str) -> Result<u64, Failed> {
    let value = report.json()["counters"][name].as_u64();
    value.ok_or_else(|| format!("no counter {name}").into())
}

fn scenes(nodes: &[Isa], cpus: usize) -> Result<(), Failed> {
    let report = run(&config(nodes, cpus, "--messages 2000", 240))?;
    has(
        &report,
        &[
            "messages.stream-there",
            "messages.stream-back",
            "messages.busy-there",
            "messages.busy-back",
            "messages.large",
            "messages.idle",
            "messages.priority",
            "messages.calls-polling",
            "messages.calls-doorbell",
            "messages.calls-adaptive",
            "messages.calls-tcp",
            "messages.group",
            "messages.slow-member",
            "messages.member-again",
            "messages.tasks",
        ],
    )?;
    // One write, whoever reads it.
    let written = counter(&report, "messages.multicasts")?;
    let members = counter(&report, "messages.multicast-members")?;
    if (written, members) != (200, 800) {
        return Err(format!("{written} writes for {members} receptions").into());
    }
    Ok(())
}

fn stream() -> Result<(), Failed> {
    let (count, seconds) = size((20_000, 240), (20_000, 240), (LONG, 3600));
    let args = format!("--scene stream --messages {count}");
    let report = run(&config(&[X86_64, Aarch64], 1, &args, seconds))?;
    has(&report, &["messages.stream-there", "messages.stream-back"])?;
    let sent = counter(&report, "messages.sent")?;
    let rung = counter(&report, "doorbells_rung")?;
    eprintln!("{rung} doorbells rung by the kernels for {sent} messages");
    if sent != 2 * count || rung >= sent {
        return Err(format!("{rung} doorbells for {sent} messages").into());
    }
    Ok(())
}

/// Two runs that differ in the number of messages only: what the kernels have rung differs as much.
fn idle() -> Result<(), Failed> {
    let rung = |messages: u64| -> Result<u64, Failed> {
        let args = format!("--scene idle --messages {}", 10 * messages);
        let report = run(&config(&[X86_64, Aarch64], 1, &args, 120))?;
        has(&report, &["messages.idle"])?;
        match counter(&report, "messages.idle-doorbells")? {
            n if n == messages => counter(&report, "doorbells_rung"),
            n => Err(format!("{n} doorbells for {messages} messages").into()),
        }
    };
    let few = rung(1)?;
    let more = rung(1 + IDLE)?;
    eprintln!("doorbells rung by the kernels: {few}, with {IDLE} messages more {more}");
    if more.saturating_sub(few).abs_diff(IDLE) > OTHER_DOORBELLS {
        return Err(format!("{few} and {more} doorbells, {IDLE} messages between them").into());
    }
    Ok(())
}

fn death() -> Result<(), Failed> {
    let config = RunConfig {
        on_death: OnDeath::Survive,
        ..config(&[X86_64, Aarch64], 1, "--scene lost", 120)
    };
    let ended = kill::run(&config, Kill::of(1), says("node 1 may die now"));
    ended.killed()?;
    let Ended { report, text, .. } = &ended;
    has(
        report,
        &[
            "messages.lost-call",
            "messages.lost-send",
            "messages.lost-group",
            "messages.lost-before-open",
            "messages.lost-others",
            "app.exit",
        ],
    )
    .or_else(|_| because(text, format_args!("{:?}", report.failure())))
}
