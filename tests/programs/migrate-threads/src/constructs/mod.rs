//! What Rust programs are made of, one construct after the other, on a thread that changes its ISA at every Nth
//! migration point and must not notice.
//!
//! The constructs are recursion, references into callers' frames,
//! closures, trait objects, generics, callbacks from `core` and `alloc`, collections, formatting,
//! 128-bit integers, floating point, arguments that registers have no room for, values that vectorizers like,
//! futures that a plain thread polls, threads that meet. Migration points are passed
//! everywhere in between, and what was computed is printed. Options decide where threads move and how often; the output
//! is the same for all of them.
//!
//! | option | meaning |
//! |---|---|
//! | `--every N` | moves to the other ISA at every Nth point; 0, the default: never |
//! | `--at N` | moves once, at the Nth point |
//! | `--schedules LIST` | does everything once for each of these: `N` for `--every N`, `@N` for `--at N` |
//! | `--start away` | goes to the other ISA before it begins |
//! | `--rounds N` | does everything N times; 1 by default |
//! | `--scene panic` | the first thread moves and panics, while another waits |
//! | `--scene panic-spawned` | another thread does |
//! | `--scene overflow` | the first thread calls itself until its stack has run over, passing points |
//! | `--scene asked` | `--threads` threads work for `--steps` steps, and until they have been moved `--moves` times from outside |

mod arguments;
mod arithmetic;
mod calls;
mod futures;
mod lanes;
mod library;
mod stacks;
mod threads;

use core::ops::RangeInclusive;

use dyad::prelude::thread::*;
use dyad::report;

use crate::schedule::{self, Schedule};

/// Goes through all constructs, or plays one of the scenes with an end of its own.
pub(crate) fn main(args: &Args) -> Result<()> {
    args.expect_options(&[
        "--what",
        "--every",
        "--at",
        "--schedules",
        "--start",
        "--rounds",
        "--scene",
        "--threads",
        "--steps",
        "--moves",
    ])?;
    const ANY: RangeInclusive<u64> = 0..=u64::MAX;
    // Beside the first.
    const MOST: u64 = dyad::thread::MAX as u64 - 1;
    let schedule = Schedule {
        every: args.number("--every", 0, ANY)?,
        at: args.number("--at", 0, ANY)?,
    };
    let schedules = match args.value("--schedules") {
        Some(list) => Schedule::list(list)?,
        None => vec![schedule],
    };
    let rounds = args.number("--rounds", 1, 1..=u64::MAX)?;
    let away = args.one_of("--start", &["home", "away"], "home")? == "away";
    schedule::use_two_nodes()?;
    schedule::begin(&schedule, away)?;
    const SCENES: [&str; 5] = ["all", "panic", "panic-spawned", "overflow", "asked"];
    match args.one_of("--scene", &SCENES, "all")? {
        "panic" => return threads::panic(true),
        "panic-spawned" => return threads::panic(false),
        "overflow" => {
            stacks::bottomless(0);
            return Err(Error::msg("calls without end have ended"));
        }
        "asked" => {
            return asked(
                args.number("--threads", 1, 1..=MOST)?,
                args.number("--steps", 1000, ANY)?,
                args.number("--moves", 0, ANY)?,
            );
        }
        _ => {}
    }
    let mut good = true;
    for schedule in &schedules {
        schedule::begin(schedule, away)?;
        good &= constructs(rounds);
    }
    match good {
        true => Ok(()),
        false => Err(Error::msg("something was lost on the way")),
    }
}

/// Does everything `rounds` times, by one schedule.
#[inline(never)]
fn constructs(rounds: u64) -> bool {
    let mut good = true;
    for round in 0..rounds {
        let lines = [
            calls::recursion(),
            calls::references(),
            calls::closures(),
            calls::trait_objects(),
            calls::generics(),
            library::sorting(),
            library::collections(),
            library::formatting(),
            arithmetic::integers(),
            arithmetic::floats(),
            written("arguments", ARGUMENTS, arguments::run),
            written("lanes", LANES, lanes::run),
            written("futures", FUTURES, futures::run),
            stacks::canaries(),
            stacks::deep(),
        ];
        for (name, result) in lines.into_iter().chain(threads::all()) {
            if round == 0 || result.is_err() {
                match &result {
                    Ok(value) => println!("{name:<14} {value:016x}"),
                    Err(what) => println!("{name:<14} WRONG: {what}"),
                }
            }
            good &= result.is_ok();
        }
    }
    println!("{} points passed", schedule::points());
    report::counter("constructs.migrations", schedule::moves());
    let (moves, failures) = (schedule::moves(), schedule::failures());
    good &= report::check(
        "constructs.intact",
        good && failures == 0,
        format_args!("{moves} moves in {rounds} rounds, {failures} failed"),
    );
    good
}

/// What `arguments`, `lanes` and `futures` write in a program of the host that moves nowhere: hashes of the texts.
const ARGUMENTS: u64 = 0xb5eb_638a_08c6_abe8;
const LANES: u64 = 0x4889_07ba_71a9_4c88;
const FUTURES: u64 = 0x15fe_0973_cf3e_06c1;

/// Runs a construct that writes a text. The text must have the hash of the text that the same code writes on the host.
#[inline(never)]
fn written(name: &'static str, expected: u64, run: fn(&mut String)) -> Line {
    let mut text = String::new();
    run(&mut text);
    let hash = text.bytes().fold(0, |h, b| mix(h, b.into()));
    match hash == expected {
        true => (name, Ok(hash)),
        false => {
            print!("{text}");
            (name, Err("a text"))
        }
    }
}

/// Threads that do not move by themselves.
fn asked(threads: u64, steps: u64, moves: u64) -> Result<()> {
    let (hash, moves) = threads::asked(threads, steps, moves)?;
    println!("asked          {hash:016x}");
    report::counter("constructs.migrations", moves);
    report::check("constructs.done", true, format_args!("{steps} steps"));
    Ok(())
}

/// What a construct has to say: a hash of what it has computed, or what is wrong.
type Line = (&'static str, Result<u64, &'static str>);

pub(crate) use dyad_random::hash as mix;
