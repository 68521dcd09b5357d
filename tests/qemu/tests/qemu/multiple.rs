//! Several kernels that only exchange messages: programs end as they do over one fused kernel, each fault that needs the
//! other node takes two messages on two nodes, and all frames come back. The tier `long` runs each fifty times.

mod deaths;

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::record::name;
use dyad_abi::service::peer::{Counted, Kernels, RingPlace, Transport};
use dyad_launcher::config::{RunConfig, Sim};
use dyad_launcher::launch::{Check, RunReport};
use dyad_launcher::paths;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::{console, times};

const PAIR: &[Isa] = &[X86_64, Aarch64];
const REVERSED: &[Isa] = &[Aarch64, X86_64];
/// Two nodes of one ISA, and one between them.
const TWO_OF_ONE: &[Isa] = &[X86_64, Aarch64, X86_64];

/// The transport of a run whose command line names none.
const RINGS: (Transport, RingPlace) = (Transport::Ring, RingPlace::Receiver);

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("multiple");
    vec![
        test(
            Tiers::QUICK.and(Tiers::LONG),
            "a_thread_that_moves_in_each_phase",
            || npb(PAIR, "is", "thread", RINGS),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_thread_that_moves_over_every_transport",
            || {
                let near = RingPlace::Receiver;
                npb(PAIR, "is", "thread", (Transport::Poll, near))?;
                npb(REVERSED, "is", "thread", (Transport::Tcp, near))?;
                npb(PAIR, "is", "thread", (Transport::Ring, RingPlace::Cxl))
            },
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "threads_and_tasks_on_the_pair",
            || all(PAIR),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "programs_of_threads_on_the_pair",
            || programs(PAIR),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "programs_of_threads_in_reversed_order",
            || programs(REVERSED),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "threads_and_tasks_in_reversed_order",
            || all(REVERSED),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_sort_in_buckets_takes_two_messages_for_each_page_that_it_writes",
            sort_in_buckets,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "pages_are_there_before_the_thread_that_brings_them",
            pages_before_the_thread,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "plain_threads_share_work_out",
            || shared_out(REVERSED, 2),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "plain_threads_share_work_out_on_three_nodes",
            || shared_out(TWO_OF_ONE, 3),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "threads_begin_on_three_nodes_and_move_between_nodes_of_one_isa",
            three,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "machines_find_pages_on_their_own_nodes_only",
            witnessed,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_page_of_another_node_is_found",
            foreign_page,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "random_accesses_find_what_was_written",
            oracle,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "threads_begin_while_the_program_ends",
            begin_and_exit,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_group_ends_with_its_first_node",
            deaths::of_the_origin,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_group_outlives_its_other_nodes",
            deaths::of_another_node,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "no_thread_finds_an_old_page_after_a_death",
            deaths::in_the_middle,
        ),
        test(Tiers::LONG, "two_writers_of_a_page_for_long", writers),
    ]
}

/// The simulator sees where the pages are that a program uses, and how long its CPUs only wait for messages.
fn witnessed() -> Result<(), Failed> {
    let config = |kernels| RunConfig {
        kernels,
        work: console::app("hop", ""),
        sim: Sim::Timing,
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    };
    let (report, text) = console::good(&config(Kernels::Multiple))?;
    let seen = |c: &&Check| c.name == "sim.separation" && c.ok && !c.detail.starts_with("0 ");
    let nodes = report.checks.iter().filter(seen).count();
    let waits = |report: &RunReport| -> Vec<u64> {
        let nodes = report.simulation.iter().flat_map(|s| &s.nodes);
        nodes.map(|n| n.total.breakdown_ps.msg_wait).collect()
    };
    let waited = waits(&report);
    if nodes != 2 || waited.len() != 2 || waited.contains(&0) {
        let why = format_args!("{nodes} nodes have seen pages, waits of {waited:?} ps");
        return console::because(&text, why);
    }
    let (fused, text) = console::good(&config(Kernels::Fused))?;
    match waits(&fused)[..] {
        [0, 0] => Ok(()),
        ref waits => console::because(&text, format_args!("fused: waits of {waits:?} ps")),
    }
}

/// Init gives one process a page of the other one's: the program is none the worse for it, but the run fails.
fn foreign_page() -> Result<(), Failed> {
    let config = RunConfig {
        kernels: Kernels::Multiple,
        work: console::app("hop", ""),
        env: vec!["DYAD_TEST_FOREIGN_PAGE=1".into()],
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    let (report, text) = console::run(&config);
    let bad: Vec<&str> = (report.checks.iter().filter(|c| !c.ok))
        .map(|c| c.name.as_str())
        .collect();
    match bad[..] == [name::POOLS] {
        true => Ok(()),
        false => console::because(&text, format_args!("failed checks: {bad:?}")),
    }
}

fn all(nodes: &[Isa]) -> Result<(), Failed> {
    for style in ["thread", "task"] {
        for kernel in ["is", "cg", "mg"] {
            npb(nodes, kernel, style, RINGS)?;
        }
    }
    Ok(())
}

/// Programs whose threads start on both nodes, wait for each other and end, and one that shows where its pages are.
fn programs(nodes: &[Isa]) -> Result<(), Failed> {
    let serde_json = paths::workspace_root().join("tests/programs/gallery/serde-json");
    let serde_json = &*serde_json.to_string_lossy();
    for (app, arguments, check) in [
        ("threads", "--scene spawn", "threads.ids"),
        ("threads", "--scene sync", "threads.barrier"),
        ("threads", "--scene scope", "threads.scope-nested"),
        (
            "threads",
            "--scene writers --turns 100",
            "threads.writers-at-once",
        ),
        ("messages", "--messages 50", "messages.stream-back"),
        ("hop", "", "hop.pointers"),
        // Plain threads, with functions that may migrate behind pointers: each begins in its own function.
        ("migrate-threads", "", "constructs.intact"),
        (serde_json, "", "gallery.moved"),
    ] {
        let config = RunConfig {
            nodes: nodes.to_vec(),
            kernels: Kernels::Multiple,
            work: console::app(app, arguments),
            timeout: Some(Duration::from_secs(120)),
            ..RunConfig::default()
        };
        for _ in 0..size(1, 1, 50) {
            console::passed(&console::good(&config)?, [check, name::POOLS])?;
        }
    }
    Ok(())
}

/// A sort in buckets, of which each iteration runs on the other node than the one before. By the pages of its arrays it is known
/// what goes to and fro.
fn sort_in_buckets() -> Result<(), Failed> {
    const KEYS: u64 = 64;
    const RANKS: u64 = 2;
    const ITERATIONS: u64 = 10;
    for (nodes, style) in [(PAIR, "thread"), (REVERSED, "task")] {
        let config = |kernels| RunConfig {
            nodes: nodes.to_vec(),
            kernels,
            work: console::app(
                "npb",
                format!("--buckets on --place alternate --style {style}"),
            ),
            timeout: Some(Duration::from_secs(120)),
            ..RunConfig::default()
        };
        let fused = console::good(&config(Kernels::Fused))?;
        let (report, text) = console::good(&config(Kernels::Multiple))?;
        if checksum(&text)? != checksum(&fused.1)? {
            return Err("another checksum than over one fused kernel".into());
        }
        let counter = |report: &RunReport, name: &str| report.counters.get(name).copied();
        for name in ["is.page-messages", "is.replicas"] {
            if counter(&fused.0, name) != Some(0) {
                return Err(format!("{name} of fused kernels is not 0").into());
            }
        }
        // Beside the arrays there are stacks, small tables, and the program's data.
        let pages = KEYS + KEYS + RANKS;
        let replicas = counter(&report, "is.replicas").unwrap_or(0);
        let messages = counter(&report, "is.page-messages").unwrap_or(0);
        let least = 2 * (pages + ITERATIONS * (KEYS + RANKS));
        if !(pages..pages + 20).contains(&replicas) || !(least..least + 400).contains(&messages) {
            return Err(format!("{replicas} pages, {messages} messages, at least {least}").into());
        }
    }
    Ok(())
}

/// A process goes to the other node and back with a heap of 1 MiB: with its pages, which then cost next to no faults, and without.
fn pages_before_the_thread() -> Result<(), Failed> {
    const PAGES: u64 = 256;
    // Stacks and the program's data are touched meanwhile.
    const FEW: u64 = 4;
    for (nodes, way) in [(PAIR, "ahead"), (REVERSED, "ahead"), (PAIR, "demand")] {
        let config = RunConfig {
            nodes: nodes.to_vec(),
            kernels: Kernels::Multiple,
            work: console::app("micro", format!("--what process --heap 1 --way {way}")),
            timeout: Some(Duration::from_secs(120)),
            ..RunConfig::default()
        };
        for _ in 0..size(1, 1, 50) {
            let run = console::good(&config)?;
            console::passed(&run, ["process.intact", name::POOLS])?;
            let (report, text) = run;
            let counter = |name: &str| report.counters.get(name).copied().unwrap_or(u64::MAX);
            let ahead = counted(&report, Counted::Ahead)?;
            let faults = [counter("process.faults"), counter("process.faults-back")];
            let as_planned = match way {
                "ahead" => ahead >= 2 * PAGES && faults.iter().all(|&n| n <= FEW),
                _ => ahead == 0 && faults.iter().all(|&n| n >= PAGES),
            };
            if !as_planned {
                let why = format_args!("{way}: {ahead} pages before a thread, faults {faults:?}");
                return console::because(&text, why);
            }
            // A process without a thread keeps the frames of pages whose contents are elsewhere.
            let left = counter("process.frames-left");
            if !(PAGES..2 * PAGES).contains(&left) {
                return console::because(&text, format_args!("{way}: {left} frames are left"));
            }
            let (faults, messages) = (
                counted(&report, Counted::Faults)?,
                counted(&report, Counted::PageMessages)?,
            );
            if messages != 2 * faults || counted(&report, Counted::Refused)? != 0 {
                let why = format_args!("{way}: {messages} messages for {faults} faults");
                return console::because(&text, why);
            }
        }
    }
    Ok(())
}

/// Threads begin on three nodes and end, and a thread, plain or of tasks, moves between two nodes of one ISA.
fn three() -> Result<(), Failed> {
    let config = RunConfig {
        nodes: vec![Aarch64, Aarch64, X86_64],
        kernels: Kernels::Multiple,
        work: console::app("threads", "--scene spawn"),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    for _ in 0..size(1, 1, 50) {
        let done = console::good(&config)?;
        console::passed(&done, ["threads.ids", name::POOLS])?;
        let (faults, messages) = (
            counted(&done.0, Counted::Faults)?,
            counted(&done.0, Counted::PageMessages)?,
        );
        // A write asks each other node at most, and contents pass through the origin.
        if !(2 * faults..=4 * faults).contains(&messages) {
            return Err(format!("{faults} faults, {messages} messages").into());
        }
    }
    npb(&[X86_64, X86_64], "is", "thread", RINGS)?;
    npb(&[Aarch64, Aarch64], "is", "task", RINGS)
}

/// Plain threads share work out, one on each node.
fn shared_out(nodes: &[Isa], threads: u32) -> Result<(), Failed> {
    let config = |kernels| RunConfig {
        nodes: nodes.to_vec(),
        kernels,
        work: console::app(
            "npb",
            format!("--bench ep --style thread --threads {threads}"),
        ),
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    };
    let (_, fused) = console::good(&config(Kernels::Fused))?;
    let (_, text) = console::good(&config(Kernels::Multiple))?;
    match checksum(&text)? == checksum(&fused)? {
        true => Ok(()),
        false => Err("another checksum than over one fused kernel".into()),
    }
}

/// Threads of all nodes access the same pages at random: no thread finds a page that is old.
fn oracle() -> Result<(), Failed> {
    for n in 0..3usize {
        let config = RunConfig {
            nodes: [PAIR, REVERSED][n % 2].to_vec(),
            kernels: Kernels::Multiple,
            transport: [Transport::Ring, Transport::Tcp, Transport::Poll][n],
            work: console::app(
                "threads",
                format!(
                    "--scene oracle --players 3 --seed {n} --operations {}",
                    size(5_000, 8_000, 1_700_000)
                ),
            ),
            timeout: Some(Duration::from_secs(1800)),
            ..RunConfig::default()
        };
        console::passed(
            &console::good(&config)?,
            ["threads.oracle", "threads.oracle-sums"],
        )?;
    }
    Ok(())
}

/// A thread that begins when its program is ending is no failure of the peer that makes it.
fn begin_and_exit() -> Result<(), Failed> {
    for n in 0..size(2, 2, 60) {
        let config = RunConfig {
            nodes: [PAIR, REVERSED, TWO_OF_ONE][n as usize % 3].to_vec(),
            kernels: Kernels::Multiple,
            work: console::app(
                "threads",
                format!("--scene begin-and-exit --rounds {}", 3 + n * 9 % 17),
            ),
            timeout: Some(Duration::from_secs(60)),
            ..RunConfig::default()
        };
        let (_, text) = console::good(&config)?;
        // What services say of their own end.
        if let Some(said) = text.lines().find(|l| l.contains("service: peer")) {
            return console::because(&text, said);
        }
    }
    Ok(())
}

/// A million turns at one word, and as many at two words of a page.
fn writers() -> Result<(), Failed> {
    for (transport, turns) in [(Transport::Ring, 500_000), (Transport::Poll, 50_000)] {
        let config = RunConfig {
            kernels: Kernels::Multiple,
            transport,
            work: console::app("threads", format!("--scene writers --turns {turns}")),
            timeout: Some(Duration::from_secs(6 * 3600)),
            ..RunConfig::default()
        };
        console::passed(
            &console::good(&config)?,
            ["threads.writers-in-turn", "threads.writers-at-once"],
        )?;
    }
    Ok(())
}

/// What a run has counted.
fn counted(report: &RunReport, what: Counted) -> Result<u64, Failed> {
    let counter = report.counters.get(what.name());
    counter
        .copied()
        .ok_or_else(|| format!("no counter {}", what.name()).into())
}

/// The last line with a checksum.
fn checksum(text: &str) -> Result<&str, Failed> {
    let mut sums = text.lines().filter_map(|l| l.split_once("Checksum of "));
    Ok(sums.next_back().ok_or("no checksum is printed")?.1)
}

/// An NPB kernel of class S that goes to the other node and back in each phase.
fn npb(
    nodes: &[Isa],
    kernel: &str,
    style: &str,
    (transport, ring_place): (Transport, RingPlace),
) -> Result<(), Failed> {
    let arguments = format!("--class S --bench {kernel} --style {style}");
    let config = |kernels| RunConfig {
        nodes: nodes.to_vec(),
        kernels,
        transport,
        ring_place,
        work: console::app("npb", arguments.clone()),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    let (_, fused) = console::good(&config(Kernels::Fused))?;
    for n in 0..size(1, 1, 50) {
        let what = |e: &dyn std::fmt::Display| format!("{kernel}, {style}, run {n}: {e}");
        let (report, text) = console::good(&config(Kernels::Multiple))?;
        if checksum(&text)? != checksum(&fused)? {
            return Err(what(&"another checksum than over one fused kernel").into());
        }
        let (faults, messages) = (
            counted(&report, Counted::Faults)?,
            counted(&report, Counted::PageMessages)?,
        );
        if counted(&report, Counted::Received)? != messages {
            return Err(what(&"messages that were sent have not come").into());
        }
        if faults == 0 || messages != 2 * faults {
            return Err(what(&format_args!(
                "{faults} faults needed the other node, with {messages} messages"
            ))
            .into());
        }
        let separate = report.checks.iter().any(|c| c.name == name::POOLS && c.ok);
        if !separate {
            return Err(what(&"it was not looked where the pages are").into());
        }
        let refused = counted(&report, Counted::Refused)?;
        if refused != 0 {
            return Err(what(&format_args!("{refused} messages were refused")).into());
        }
        // Half of the moves are of each node's thread, and each is a message.
        if counted(&report, Counted::OtherMessages)? < 20 {
            return Err(what(&"its thread has not moved").into());
        }
    }
    Ok(())
}
