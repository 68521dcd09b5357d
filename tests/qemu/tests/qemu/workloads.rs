//! Workloads as plain threads. The NAS benchmarks: wherever the thread moves inside of phases, what it prints is
//! what it prints when it stays. In the tier `long` it moves in more ways.

use std::collections::BTreeMap;
use std::time::Duration;

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_launcher::config::RunConfig;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::times;

/// The kernels, in the order in which the program runs them.
const KERNELS: [&str; 4] = ["is", "cg", "mg", "ft"];

/// Migration schedules: at every Nth point, in phases that begin on the current ISA; in phases that begin on
/// the other ISA; and once in each kernel.
const SCHEDULES: [(u64, &str); 3] = [
    (3, "--hop off --every 3"),
    (7, "--every 7 --home aarch64"),
    (0, "--hop off --at 19 --home aarch64"),
];

/// More of that: each from both sides.
const MORE: [(u64, &str); 10] = [
    (1, "--hop off --every 1"),
    (2, "--hop off --every 2"),
    (5, "--hop off --every 5"),
    (13, "--every 13"),
    (29, "--every 29"),
    (0, "--hop off --at 1"),
    (0, "--hop off --at 2"),
    (0, "--hop off --at 10"),
    (0, "--hop off --at 19"),
    (0, "--at 20"),
];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    vec![
        times::test(
            Tiers::FULL,
            "workloads::npb_threads_print_the_same_however_it_moves",
            || all(&SCHEDULES.map(|(every, args)| (every, args.to_owned()))),
        ),
        times::test(
            Tiers::LONG,
            "workloads::npb_threads_move_in_many_ways",
            || {
                let from = |home: &'static str| {
                    MORE.map(|(every, args)| (every, format!("{args} --home {home}")))
                };
                all(&[from("x86_64"), from("aarch64")].concat())
            },
        ),
        times::test(Tiers::FULL, "workloads::micro_finds_what_it_left", micro),
        times::test(
            Tiers::FULL,
            "workloads::tasks_wait_for_each_other_and_for_time",
            tasks,
        ),
    ]
}

/// The small workloads check what they have touched, and what came back.
fn micro() -> Result<(), Failed> {
    let config = RunConfig {
        work: console::app("micro", "--pages 32 --depths 1,9 --times 4"),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    let (report, text) = console::good(&config)?;
    let good = |of: &str| {
        let checks = report.checks.iter();
        checks.filter(|c| c.ok && c.name.starts_with(of)).count()
    };
    match (good("pages."), good("depth.")) {
        (5, 8) => Ok(()),
        other => Err(format!("{other:?} checks\n\nconsole:\n{text}").into()),
    }
}

/// Tasks at home on both ISAs, and one more node.
fn tasks() -> Result<(), Failed> {
    for nodes in [&[X86_64, Aarch64][..], &[Aarch64, X86_64, Aarch64]] {
        let config = RunConfig {
            nodes: nodes.to_vec(),
            work: console::app("tasks", ""),
            timeout: Some(Duration::from_secs(120)),
            ..RunConfig::default()
        };
        let (report, text) = console::good(&config)?;
        let checks = report.checks.iter();
        let good = checks.filter(|c| c.ok && c.name.starts_with("tasks."));
        let good = good.count();
        if good != 6 {
            return Err(format!("{good} checks of 6\n\nconsole:\n{text}").into());
        }
    }
    Ok(())
}

/// What a run has printed, and its points and moves by kernel.
type Ran = (Vec<String>, BTreeMap<&'static str, [u64; 2]>);

fn run(args: &str) -> Result<Ran, Failed> {
    let config = RunConfig {
        work: console::app("npb", format!("--bench all --style thread {args}")),
        timeout: Some(Duration::from_secs(300)),
        ..RunConfig::default()
    };
    let (report, text) = console::run(&config);
    let because = |why: &str| Err(format!("{args}: {why}\n\nconsole:\n{text}").into());
    if let Some(why) = report.failure() {
        return because(&why);
    }
    let mut moves = BTreeMap::new();
    for kernel in KERNELS {
        let checked = |what: &str| {
            let name = format!("{kernel}.{what}");
            report.checks.iter().any(|c| c.ok && c.name == name)
        };
        let counted = |what| report.counters.get(&format!("{kernel}.{what}")).copied();
        match (counted("points"), counted("moves")) {
            (Some(p), Some(m)) if checked("verification") && checked("moves") => {
                moves.insert(kernel, [p, m]);
            }
            _ => return because("a kernel has not run, or is not verified"),
        }
    }
    // Between the first title and the last checksum, without the node's name and the time.
    let first = text.lines().position(|l| l.contains("] NPB "));
    let last = text.lines().collect::<Vec<_>>();
    let last = last
        .iter()
        .rposition(|l| l.contains("Checksum of all results"));
    let (Some(first), Some(last)) = (first, last) else {
        return because("there are no results");
    };
    let lines = text.lines().take(last + 1).skip(first);
    let own = lines.filter(|l| !l.contains("] check ") && !l.contains("] counter "));
    let printed = own.filter_map(|l| Some(l.split_once("] ")?.1.to_owned()));
    Ok((printed.collect(), moves))
}

fn all(schedules: &[(u64, String)]) -> Result<(), Failed> {
    let (still, none) = run("--hop off")?;
    if still.len() != 3 * KERNELS.len() || none.values().any(|&[_, moves]| moves != 0) {
        return Err(format!("{none:?}: {still:#?}").into());
    }
    for (every, args) in schedules {
        let (lines, moved) = run(args)?;
        if lines != still {
            return Err(format!("{args}: {lines:#?} instead of {still:#?}").into());
        }
        for (kernel, [points, moves]) in moved {
            // At the end, and at the start of phases that are at home, it may go home once more.
            let least = points.checked_div(*every).unwrap_or(1);
            if points < 20 || moves < least {
                let why = format!("{args}: {kernel} has moved {moves} times at {points} points");
                return Err(why.into());
            }
        }
    }
    Ok(())
}
