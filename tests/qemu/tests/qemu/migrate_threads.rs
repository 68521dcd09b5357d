//! Plain threads on the pair, with the program `migrate-threads`: whatever it does when its threads change their
//! ISA, it prints what it prints when they stay.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_launcher::config::{RunConfig, Sim};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::{self, because};
use crate::times;

/// Points that a round of the constructs passes.
const POINTS: u64 = 4238;
/// Lines that it prints.
const LINES: usize = 21;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("migrate_threads");
    vec![
        test(
            Tiers::FULL,
            "output_is_the_same_wherever_it_moves",
            everywhere,
        ),
        test(Tiers::FULL, "ten_thousand_moves", many),
        test(Tiers::FULL, "nodes_of_one_isa", one_isa),
        test(Tiers::FULL, "a_thread_that_has_moved_panics", panics),
        test(Tiers::FULL, "a_stack_that_runs_over_is_named", overflow),
        test(Tiers::FULL, "points_that_no_source_line_names", implicit),
        test(
            Tiers::FULL,
            "nothing_is_stale_without_coherent_caches",
            incoherent,
        ),
    ]
}

fn config(nodes: &[Isa], args: &str) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        work: console::app("migrate-threads", args),
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    }
}

/// What the program has printed under one schedule, in lines, and how often it has moved.
type Ran = (Vec<String>, u64);

/// All schedules of a run. The program must report that all is well under each.
fn schedules(nodes: &[Isa], args: &str) -> Result<Vec<Ran>, Failed> {
    let (report, text) = console::run(&config(nodes, args));
    let because = |why: &str| Err(format!("{args}: {why}\n\nconsole:\n{text}").into());
    if let Some(why) = report.failure() {
        return because(&why);
    }
    let own = report
        .checks
        .iter()
        .filter(|c| c.name == "constructs.intact");
    let moves: Option<Vec<u64>> = own
        .map(|c| c.detail.split_once(" moves in ")?.0.parse().ok())
        .collect();
    let (mut printed, mut lines) = (Vec::new(), Vec::new());
    // Behind the name of the node and the time, which are not the program's.
    for line in text.lines().filter_map(|l| Some(l.split_once("] ")?.1)) {
        if lines.is_empty() && !line.starts_with("display ") {
            continue;
        }
        lines.push(line.to_owned());
        if line.ends_with(" points passed") {
            printed.push(std::mem::take(&mut lines));
        }
    }
    match moves {
        Some(moves) if moves.len() == printed.len() && !moves.is_empty() => {
            Ok(printed.into_iter().zip(moves).collect())
        }
        _ => because("there are no results, or not all of them"),
    }
}

/// The only schedule of a run.
fn run(nodes: &[Isa], args: &str) -> Result<Ran, Failed> {
    let mut ran = schedules(nodes, args)?;
    match (ran.pop(), ran.len()) {
        (Some(one), 0) => Ok(one),
        _ => Err(format!("{args}: it ran under more than one schedule").into()),
    }
}

/// A sample of points at which it moves once, in both directions, and of how often it moves.
fn everywhere() -> Result<(), Failed> {
    const ONCE: [u64; 7] = [1, 777, 1999, 2900, 3200, 3900, POINTS];
    const EVERY: [u64; 6] = [1, 2, 7, 13, 31, 100];
    let list = [0].iter().chain(&EVERY).map(u64::to_string);
    let list = list.chain(ONCE.map(|n| format!("@{n}")));
    let list = list.collect::<Vec<_>>().join(",");
    let expected = [0].into_iter().chain(EVERY.map(|n| POINTS / n));
    let expected: Vec<u64> = expected.chain(ONCE.map(|_| 1)).collect();

    let (still, none) = run(&[X86_64, Aarch64], "")?;
    if none != 0 || still.len() != LINES || still[LINES - 1] != format!("{POINTS} points passed") {
        return Err(format!("{none} moves, {still:#?}").into());
    }
    for start in ["home", "away"] {
        let args = format!("--schedules {list} --start {start}");
        let ran = schedules(&[X86_64, Aarch64], &args)?;
        let moves: Vec<u64> = ran.iter().map(|one| one.1).collect();
        if moves != expected {
            return Err(format!("{args}: {moves:?} moves instead of {expected:?}").into());
        }
        if let Some((lines, moves)) = ran.iter().find(|one| one.0 != still) {
            return Err(format!("{args}: {moves} moves: {lines:#?} instead of {still:#?}").into());
        }
    }
    Ok(())
}

/// More than ten thousand moves, with canaries in locals, registers and on the heap.
fn many() -> Result<(), Failed> {
    let (_, moves) = run(&[X86_64, Aarch64], "--every 1 --rounds 3")?;
    match moves == 3 * POINTS {
        true => Ok(()),
        false => Err(format!("{moves} moves instead of {}", 3 * POINTS).into()),
    }
}

/// A move to a node of the same ISA: nothing is transformed. And one between three nodes.
fn one_isa() -> Result<(), Failed> {
    let (still, _) = run(&[X86_64, Aarch64], "")?;
    for nodes in [
        &[Aarch64, X86_64][..],
        &[X86_64, X86_64],
        &[X86_64, Aarch64, X86_64],
    ] {
        let (lines, moves) = run(nodes, "--every 50")?;
        if lines != still || moves != POINTS / 50 {
            return Err(format!("{nodes:?}: {moves} moves, {lines:#?}").into());
        }
    }
    Ok(())
}

/// The program ends with the message of the thread that panicked, the first one or another, on the other
/// ISA, while a third one waits.
fn panics() -> Result<(), Failed> {
    for (scene, says, message) in [
        ("panic", "panic at ", "the first has moved to aarch64"),
        (
            "panic-spawned",
            "panic in thread 2 at ",
            "another has moved to aarch64",
        ),
    ] {
        let args = format!("--scene {scene}");
        let (report, text) = console::run(&config(&[X86_64, Aarch64], &args));
        let told = text
            .lines()
            .any(|l| l.contains(says) && l.contains(message));
        if !told || !text.contains("ended with code 101") {
            return Err(format!("{scene}: no message, or another code\n{text}").into());
        }
        let returned = |c: &dyad_launcher::launch::Check| c.name == "frames.returned" && c.ok;
        if !report.checks.iter().any(returned) {
            return Err(format!("{scene}: frames are lost\n{text}").into());
        }
    }
    Ok(())
}

/// A thread that calls itself without end, and moves on the way, ends at the guard of its stack.
fn overflow() -> Result<(), Failed> {
    for args in ["--every 3", "--every 2 --start away"] {
        let args = format!("--scene overflow {args}");
        let (report, text) = console::run(&config(&[X86_64, Aarch64], &args));
        let says = |what: &str| text.contains(what);
        if !says("data stack of 1024 KiB has run over") || !says("ended with code 102") {
            return because(&text, format_args!("{args}: no reason, or another code"));
        }
        let returned = |c: &dyad_launcher::launch::Check| c.name == "frames.returned" && c.ok;
        if !report.checks.iter().any(returned) {
            return because(&text, format_args!("{args}: frames are lost"));
        }
    }
    Ok(())
}

/// A program that moves in loops and at system calls.
fn implicit() -> Result<(), Failed> {
    let config = config(&[X86_64, Aarch64], "--what implicit");
    let names = ["implicit.syscalls", "implicit.loops", "implicit.iterators"];
    console::passed(&console::good(&config)?, names)
}

/// Kernels that keep caches coherent themselves hand threads over in the middle of functions, and the
/// sanitizer finds nothing that they forget.
fn incoherent() -> Result<(), Failed> {
    let config = RunConfig {
        sim: Sim::Cache,
        coherent: false,
        ..config(&[X86_64, Aarch64], "--every 40")
    };
    let names = ["constructs.intact", "sim.sanitizer"];
    console::passed(&console::good(&config)?, names)
}
