//! What programs expect of a standard library: lines of any length, environment, random numbers, the time of
//! day, allocations that fail.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_launcher::config::{RunConfig, Sim};
use dyad_launcher::sim::Setup;
use dyad_sim_model::config::Order;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::{self, because, good};
use crate::times;

#[path = "../../../programs/std-pieces/src/math.rs"]
mod math;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("std_pieces");
    vec![
        test(Tiers::FULL, "long_lines_are_whole", || both(long_lines)),
        test(Tiers::FULL, "what_is_random_repeats_with_its_seed", random),
        test(
            Tiers::FULL,
            "allocations_fail_before_memory_is_exhausted",
            || both(reserve),
        ),
        test(Tiers::FULL, "standard_input_is_read_on_both_nodes", || {
            both(input)
        }),
        test(
            Tiers::FULL,
            "standard_input_repeats_in_strict_order",
            strict_input,
        ),
        test(
            Tiers::FULL,
            "floating_point_functions_have_the_bits_of_the_host",
            || both(functions),
        ),
        test(Tiers::FULL, "who_waits_for_whom_is_said", || both(hang)),
        test(Tiers::FULL, "out_of_memory_is_said", exhaust),
        test(Tiers::FULL, "panics_name_their_thread", panics),
    ]
}

/// In both orders of nodes.
fn both(f: fn([Isa; 2]) -> Result<(), Failed>) -> Result<(), Failed> {
    f([X86_64, Aarch64])?;
    f([Aarch64, X86_64])
}

fn config(nodes: [Isa; 2], scene: &str) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        work: console::app("std-pieces", format!("--scene {scene}")),
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    }
}

/// The line that the program writes.
fn line(thread: usize, number: usize) -> String {
    let characters = ['ä', '€', '😀', 'x'].into_iter().cycle();
    let text: String = characters.skip(number).take(3000).collect();
    format!("long line {thread}.{number} {text} end")
}

fn long_lines(nodes: [Isa; 2]) -> Result<(), Failed> {
    let (_, text) = good(&config(nodes, "all"))?;
    for thread in [1, 2] {
        for number in 0..3 {
            let expected = line(thread, number);
            if !text.lines().any(|l| l.ends_with(&format!("] {expected}"))) {
                return because(&text, format_args!("line {thread}.{number} is not whole"));
            }
        }
    }
    Ok(())
}

fn random() -> Result<(), Failed> {
    let of = |random_seed| -> Result<Vec<String>, Failed> {
        let config = RunConfig {
            random_seed,
            env: vec!["COLOUR=dark blue".into()],
            ..config([X86_64, Aarch64], "all")
        };
        let (_, text) = good(&config)?;
        if !text.contains("variable Some(\"dark blue\"), time Ok(")
            || !text.contains("the variable is set: true")
        {
            return because(&text, "the environment is not there");
        }
        let numbers = text.lines().filter_map(|l| l.split_once("] random "));
        let numbers: Vec<String> = numbers.map(|(_, n)| n.into()).collect();
        match numbers.len() {
            2 => Ok(numbers),
            _ => because(&text, "there are not two random numbers"),
        }
    };
    let (one, again, two, host) = (of(Some(1))?, of(Some(1))?, of(Some(2))?, of(None)?);
    if one != again || one == two || one == host || one[0] == one[1] {
        return Err(format!("{one:?}, {again:?}, {two:?}, {host:?}").into());
    }
    Ok(())
}

fn functions(nodes: [Isa; 2]) -> Result<(), Failed> {
    let (_, text) = good(&config(nodes, "math"))?;
    let found = text.lines().filter_map(|l| l.split_once("] math "));
    let found: Vec<&str> = found.map(|(_, line)| line).collect();
    let mut expected = Vec::new();
    math::digests(|| (), |n, d| expected.push(format!("{n} {d:016x}")));
    let wrong: Vec<_> = found
        .iter()
        .zip(&expected)
        .filter(|(f, e)| *f != e)
        .collect();
    match found.len() == expected.len() && wrong.is_empty() {
        true => Ok(()),
        false => because(&text, format_args!("other than on the host: {wrong:?}")),
    }
}

/// A run that reads what it is given: two lines of text, and numbers on several pages.
fn reader(nodes: [Isa; 2]) -> RunConfig {
    let numbers = (0..4000).map(|n| format!("{n}\n"));
    let lines = ["one\n".into(), "\u{e4}\u{2028} two\n".into()].into_iter();
    RunConfig {
        input: lines.chain(numbers).collect::<String>().into_bytes(),
        ..config(nodes, "input")
    }
}

/// What the program says about its input.
fn read(config: &RunConfig) -> Result<Vec<String>, Failed> {
    let (_, text) = good(config)?;
    let said = text.lines().filter_map(|l| l.split_once("] input "));
    Ok(said.map(|(_, l)| l.to_owned()).collect())
}

fn input(nodes: [Isa; 2]) -> Result<(), Failed> {
    let said = read(&reader(nodes))?;
    let expected = [
        format!("{:?} on {}", "one\n", nodes[0]),
        format!("{:?} on {}", "\u{e4}\u{2028} two\n", nodes[1]),
        format!("4000 numbers, {}", 3999 * 4000 / 2),
    ];
    match said == expected {
        true => Ok(()),
        false => Err(format!("{said:?} instead of {expected:?}").into()),
    }
}

/// The whole console, with its times, is the same in two runs; with other input it is another.
fn strict_input() -> Result<(), Failed> {
    let strict = |input: &str| -> Result<Vec<String>, Failed> {
        let mut config = reader([X86_64, Aarch64]);
        config.input.extend(input.as_bytes());
        config.sim = Sim::Count;
        config.setup = Setup {
            order: Order::Strict { seed: 5 },
            ..Setup::default()
        };
        let (_, text) = good(&config)?;
        let timed = text.lines().filter(|l| l.contains("] input "));
        Ok(timed.map(str::to_owned).collect())
    };
    let (one, again, other) = (strict("1\n")?, strict("1\n")?, strict("2\n")?);
    match one.len() == 3 && one == again && one != other {
        true => Ok(()),
        false => Err(format!("{one:?}, {again:?}, {other:?}").into()),
    }
}

fn reserve(nodes: [Isa; 2]) -> Result<(), Failed> {
    let (_, text) = good(&config(nodes, "reserve"))?;
    match text.contains("8 GiB: memory allocation failed") {
        true => Ok(()),
        false => because(&text, "the first allocation did not fail"),
    }
}

/// At the time limit each thread is told with what it waits for, and the threads that wait for each other.
fn hang(nodes: [Isa; 2]) -> Result<(), Failed> {
    let config = RunConfig {
        timeout: Some(Duration::from_secs(10)),
        ..config(nodes, "hang")
    };
    let (report, text) = console::run(&config);
    let lock = |thread: u32, node: u32, owner: u32| {
        let start = format!("std-pieces: thread {thread} on node {node} waits for the mutex at 0x");
        let end = format!(", which thread {owner} has");
        let mut lines = text.lines();
        lines.any(|l| {
            l.find(&start).is_some_and(|at| {
                let address = l[at + start.len()..]
                    .find(&end)
                    .map(|n| &l[at + start.len()..][..n]);
                address.is_some_and(|a| u64::from_str_radix(a, 16).is_ok_and(|a| a != 0))
            })
        })
    };
    let says = |what: &str| text.contains(what);
    let good = lock(1, 0, 2)
        && lock(2, 1, 1)
        && says("std-pieces: thread 0 on node 0 waits for the end of thread 1")
        && says("std-pieces: threads 1, 2 wait for each other: they never go on");
    match good && report.failure().is_some_and(|f| f.contains("time limit")) {
        true => Ok(()),
        false => because(&text, "who waits for whom is not said"),
    }
}

fn exhaust() -> Result<(), Failed> {
    let (report, text) = console::run(&config([X86_64, Aarch64], "exhaust"));
    let is_said = text.contains("panic at ") && text.contains("memory allocation of ");
    // The line of the program that has asked for the memory.
    let program = include_str!("../../../programs/std-pieces/src/main.rs");
    let line = 1 + program
        .lines()
        .take_while(|l| l.trim() != "all.push(7);")
        .count();
    let place = format!("exhaust (tests/programs/std-pieces/src/main.rs:{line})");
    let caller = text.lines().find_map(|l| l.split_once("]   called from "));
    if !caller.is_some_and(|(_, first)| first.contains(&place)) {
        return because(&text, format_args!("{place} is not named"));
    }
    if !is_said || text.contains("no memory is left") || report.failure().is_none() {
        return because(
            &text,
            "the program did not end by the allocation error handler",
        );
    }
    Ok(())
}

fn panics() -> Result<(), Failed> {
    let (_, text) = console::run(&config([X86_64, Aarch64], "panic"));
    match text.contains("panic in thread 1 (worker) at ") && text.contains(": by design") {
        true => Ok(()),
        false => because(&text, "the panic does not name its thread"),
    }
}
