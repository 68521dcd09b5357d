//! System tests of memory that nodes are given in blocks.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::RunConfig;
use dyad_launcher::console::{Line, Record};
use dyad_launcher::launch::{Event, RunReport};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::{self, because, run};
use crate::kill::{self, Kill};
use crate::times;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("memory");
    vec![
        test(
            Tiers::FULL,
            "blocks_are_assigned_at_seventy_per_cent",
            || filled(&[X86_64, Aarch64]),
        ),
        test(Tiers::FULL, "blocks_are_assigned_in_reversed_order", || {
            filled(&[Aarch64, X86_64])
        }),
        test(Tiers::FULL, "blocks_are_taken_from_the_other_node", || {
            evicted(&[X86_64, Aarch64])
        }),
        test(Tiers::FULL, "blocks_are_taken_in_reversed_order", || {
            evicted(&[Aarch64, X86_64])
        }),
        test(Tiers::FULL, "nodes_die_while_blocks_are_taken", || {
            [(0, 150), (0, 500), (1, 300)]
                .into_iter()
                .try_for_each(|(victim, ms)| dies(victim, ms))
        }),
        test(
            Tiers::FULL,
            "faults_on_the_other_node_send_no_messages",
            silent_faults,
        ),
        test(Tiers::FULL, "emptying_a_block_has_figures", figures),
        test(
            Tiers::FULL,
            "a_program_that_wants_more_than_there_is_ends",
            exhausted,
        ),
    ]
}

fn config(nodes: &[Isa], args: &str) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        mem_local: 64 << 20,
        mem_cxl: 128 << 20,
        work: console::app("blocks", args),
        audit: true,
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    }
}

fn counter(report: &RunReport, name: &str) -> u64 {
    report.json()["counters"][name].as_u64().unwrap_or(0)
}

/// A block of the own pool, those of the CXL pool, and the other node's: all that there are.
fn filled(nodes: &[Isa]) -> Result<(), Failed> {
    let (report, text) = console::good(&config(nodes, "--fill 100"))?;
    match counter(&report, "blocks_assigned") {
        4 => Ok(()),
        n => because(&text, format!("{n} blocks assigned")),
    }
}

/// The first node has all blocks and needs less than half of them; the second one asks for two. Pages are
/// moved while the program changes them.
fn evicted(nodes: &[Isa]) -> Result<(), Failed> {
    let (report, text) = console::good(&config(nodes, "--fill 110 --away 50"))?;
    match ["blocks_evicted", "pages_moved"].map(|name| counter(&report, name)) {
        [blocks, pages] if blocks >= 2 && pages > 0 => Ok(()),
        counts => because(&text, format!("evicted, moved: {counts:?}")),
    }
}

/// How long a run may take to end once a machine has died.
const PROMPT: Duration = Duration::from_secs(40);
/// Frames that a machine can have been changing when it died.
const LEAKED: u64 = 8;

/// A node dies while blocks are taken from the first one for the second: with the leader of the evictions,
/// or with who gets the blocks. Whoever waits for memory gets some or is told that there is none, and the run
/// ends.
fn dies(victim: usize, after_ms: u64) -> Result<(), Failed> {
    let config = RunConfig {
        on_death: OnDeath::Survive,
        audit: false,
        ..config(&[X86_64, Aarch64], "--fill 110 --away 50")
    };
    // What follows is filled on the other node.
    let is_time = |e: &Event<'_>| match e {
        Event::Line {
            line: Line::Record(Record::Check { name, .. }),
            ..
        } => name == "blocks.pressure",
        _ => false,
    };
    let kill = Kill::after(victim, Duration::from_millis(after_ms));
    let ended = kill::run(&config, kill, is_time);
    ended.within(PROMPT)?;
    // Whoever leads then says how the program has ended.
    if !(ended.report.checks.iter()).any(|c| c.name == "app.exit") {
        return ended.because("nobody has ended the program");
    }
    ended.lost_no_more_than(LEAKED)
}

/// Ten thousand pages that are touched on the other node, which has either ISA: from its memory, in the
/// tables of both ISAs. The node's kernel sends no message for any of them.
fn silent_faults() -> Result<(), Failed> {
    for nodes in [[X86_64, Aarch64], [Aarch64, X86_64]] {
        let mut c = config(&nodes, "--fill 1 --faults 10000");
        c.mem_local = 128 << 20;
        let (report, text) = run(&c);
        if let Some(why) = report.failure() {
            return because(&text, format_args!("faults on {}: {why}", nodes[1]));
        }
        let counted = (report.checks.iter()).any(|c| c.name == "faults.messages" && c.ok);
        if !counted || counter(&report, "messages_sent") == 0 {
            return because(&text, "messages were not counted");
        }
    }
    Ok(())
}

/// What `cargo xtask bench migration --only blocks` measures, for the smallest blocks: there is a time of
/// each operation, and somewhat less than half of the block's pages have been moved.
fn figures() -> Result<(), Failed> {
    let mut c = config(&[Aarch64, X86_64], "--home aarch64");
    c.mem_cxl = 64 << 20;
    let (report, text) = console::good(&c)?;
    let of = |what: &str| counter(&report, &format!("migration.aarch64.block_{what}"));
    let times = ["offline", "online", "online_fresh"].map(|op| of(&format!("{op}_8192.ns")));
    let moved = of("offline_8192.moved");
    match times.iter().all(|ns| *ns > 0) && (2048..6144).contains(&moved) {
        true => Ok(()),
        false => because(&text, format_args!("times {times:?}, {moved} pages moved")),
    }
}

fn exhausted() -> Result<(), Failed> {
    let (report, text) = run(&config(&[X86_64, Aarch64], "--fill 400"));
    let check = |name: &str, ok| report.checks.iter().any(|c| c.name == name && c.ok == ok);
    if !check("app.exit", false) || !text.contains(": no memory is left on node ") {
        return because(&text, "the program was not ended by a fault");
    }
    match check("frames.returned", true) {
        true => Ok(()),
        false => because(&text, "not all memory has come back"),
    }
}
