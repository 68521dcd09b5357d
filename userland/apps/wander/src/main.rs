//! A plain program that changes its ISA at every Nth migration point, and must not notice.
//!
//! It goes through what Rust programs are made of (recursion, references into callers' frames,
//! closures, trait objects, generics, callbacks from `core` and `alloc`, collections, formatting,
//! 128-bit integers, floating point, threads that meet), passes migration points everywhere in between, and
//! prints what it has computed. Options decide where it moves and how often; the output is the same for all of them.
//!
//! | option | meaning |
//! |---|---|
//! | `--every N` | moves to the other ISA at every Nth point; 0, the default: never |
//! | `--at N` | moves once, at the Nth point |
//! | `--ways LIST` | does everything once for each of these: `N` for `--every N`, `@N` for `--at N` |
//! | `--start away` | goes to the other ISA before it begins |
//! | `--rounds N` | does everything N times; 1 by default |
//! | `--scene panic` | the first thread moves and panics, while another waits |
//! | `--scene panic-spawned` | another thread does |
//! | `--scene overflow` | the first thread calls itself until its stack has run over, passing points |
//! | `--scene asked` | `--threads` threads work for `--steps` steps, and until they have been moved `--moves` times from outside |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

mod arithmetic;
mod calls;
mod library;
mod stacks;
mod threads;
mod way;

use core::ops::RangeInclusive;

use dyad::prelude::*;
use dyad::report;

use way::Way;

#[dyad::main]
fn main(args: Args) -> Result<()> {
    args.expect_options(&[
        "--every",
        "--at",
        "--ways",
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
    let way = Way {
        every: args.number("--every", 0, ANY)?,
        at: args.number("--at", 0, ANY)?,
    };
    let ways = match args.value("--ways") {
        Some(list) => Way::list(list)?,
        None => vec![way],
    };
    let rounds = args.number("--rounds", 1, 1..=u64::MAX)?;
    let away = args.one_of("--start", &["home", "away"], "home")? == "away";
    way::between_two()?;
    way::begin(&way, away)?;
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
    for way in &ways {
        way::begin(way, away)?;
        good &= wander(rounds);
    }
    match good {
        true => Ok(()),
        false => Err(Error::msg("something was lost on the way")),
    }
}

/// Does everything so many times, in one way.
#[inline(never)]
fn wander(rounds: u64) -> bool {
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
    println!("{} points passed", way::points());
    report::counter("wander.migrations", way::moves());
    let (moves, mishaps) = (way::moves(), way::mishaps());
    good &= report::check(
        "wander.intact",
        good && mishaps == 0,
        format_args!("{moves} moves in {rounds} rounds, {mishaps} failed"),
    );
    good
}

/// Threads that do not move by themselves.
fn asked(threads: u64, steps: u64, moves: u64) -> Result<()> {
    let (hash, moves) = threads::asked(threads, steps, moves)?;
    println!("asked          {hash:016x}");
    report::counter("wander.migrations", moves);
    report::check("wander.done", true, format_args!("{steps} steps"));
    Ok(())
}
