//! Plain threads on the pair: whatever a program does when its threads change their ISA, what it prints is
//! what it prints when they stay.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use libtest_mimic::{Failed, Trial};
use xtask::config::{RunConfig, Sim, Work};

use crate::console::{self, because};
use crate::times;

/// Points that a round of the program passes.
const POINTS: u64 = 3318;
/// Lines that it prints.
const LINES: usize = 18;

/// All of them.
pub fn trials() -> Vec<Trial> {
    let test = |name: &str, f: fn() -> Result<(), Failed>| {
        times::test(format!("wander::{name}"), f).with_kind("system")
    };
    vec![
        test("output_is_the_same_wherever_it_moves", everywhere),
        test("ten_thousand_moves", many),
        test("nodes_of_one_isa", one_isa),
        test("a_thread_that_has_moved_panics", panics),
        test("points_that_nobody_has_written", stroll),
        test("nothing_is_stale_without_coherent_caches", incoherent),
    ]
}

fn config(nodes: &[Isa], args: &str) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        work: Work::App {
            app: "wander".into(),
            args: args.into(),
        },
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    }
}

/// Results of a run, in lines, and its migrations. It must report that all is well.
fn run(nodes: &[Isa], args: &str) -> Result<(Vec<String>, u64), Failed> {
    let config = config(nodes, args);
    let (report, text) = console::run(&config);
    let because = |why: &str| Err(format!("{args}: {why}\n\nconsole:\n{text}").into());
    if let Some(why) = report.failure() {
        return because(&why);
    }
    if !report
        .checks
        .iter()
        .any(|c| c.ok && c.name == "wander.intact")
    {
        return because("the program does not say that it is intact");
    }
    let moves = report.json()["counters"]["wander.migrations"].as_u64();
    let first = text.lines().position(|l| l.contains(" display "));
    let last = text.lines().position(|l| l.ends_with("points passed"));
    let (Some(first), Some(last), Some(moves)) = (first, last, moves) else {
        return because("there are no results");
    };
    let lines = text.lines().take(last + 1).skip(first);
    // Behind the name of the node and the time, which are not the program's.
    let lines = lines.filter_map(|l| Some(l.split_once("] ")?.1.to_owned()));
    Ok((lines.collect(), moves))
}

fn expect(args: &str, still: &[String], moves: u64) -> Result<(), Failed> {
    let (lines, found) = run(&[X86_64, Aarch64], args)?;
    if lines != still {
        return Err(format!("{args}: {lines:#?} instead of {still:#?}").into());
    }
    match found == moves {
        true => Ok(()),
        false => Err(format!("{args}: {found} moves instead of {moves}").into()),
    }
}

/// A sample of points at which it moves once, in both directions, and of how often it moves.
fn everywhere() -> Result<(), Failed> {
    let (still, none) = run(&[X86_64, Aarch64], "")?;
    if none != 0 || still.len() != LINES || still[LINES - 1] != format!("{POINTS} points passed") {
        return Err(format!("{none} moves, {still:#?}").into());
    }
    expect("--start away", &still, 1)?;
    for at in [1, 777, 1999, 2900, 3200, POINTS] {
        expect(&format!("--at {at}"), &still, 1)?;
        expect(&format!("--at {at} --start away"), &still, 2)?;
    }
    for every in [1, 2, 13, 100] {
        expect(&format!("--every {every}"), &still, POINTS / every)?;
        expect(
            &format!("--every {every} --start away"),
            &still,
            POINTS / every + 1,
        )?;
    }
    Ok(())
}

/// More than ten thousand moves, with canaries in locals, registers and on the heap.
fn many() -> Result<(), Failed> {
    let (_, moves) = run(&[X86_64, Aarch64], "--every 1 --rounds 4")?;
    match moves == 4 * POINTS {
        true => Ok(()),
        false => Err(format!("{moves} moves instead of {}", 4 * POINTS).into()),
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
        let returned = |c: &xtask::launch::Check| c.name == "frames.returned" && c.ok;
        if !report.checks.iter().any(returned) {
            return Err(format!("{scene}: frames are lost\n{text}").into());
        }
    }
    Ok(())
}

/// A program that moves in loops and at system calls.
fn stroll() -> Result<(), Failed> {
    let config = RunConfig {
        work: Work::App {
            app: "stroll".into(),
            args: String::new(),
        },
        ..config(&[X86_64, Aarch64], "")
    };
    let (report, text) = console::run(&config);
    if let Some(why) = report.failure() {
        return Err(format!("{why}\n{text}").into());
    }
    for name in ["stroll.syscalls", "stroll.loops", "stroll.iterators"] {
        if !report.checks.iter().any(|c| c.name == name && c.ok) {
            return Err(format!("no check {name}\n{text}").into());
        }
    }
    Ok(())
}

/// Kernels that keep caches coherent themselves hand threads over in the middle of functions, and the
/// sanitizer finds nothing that they forget.
fn incoherent() -> Result<(), Failed> {
    let config = RunConfig {
        sim: Sim::Cache,
        coherent: false,
        ..config(&[X86_64, Aarch64], "--every 40")
    };
    let (report, text) = console::run(&config);
    let passed = |name: &str| report.checks.iter().any(|c| c.ok && c.name == name);
    match report.failure() {
        Some(why) => because(&text, why),
        None if passed("wander.intact") && passed("sim.sanitizer") => Ok(()),
        None => because(&text, "nobody has looked for what is stale"),
    }
}
