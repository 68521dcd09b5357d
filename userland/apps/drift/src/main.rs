//! Plain threads that are moved while they compute, by request to init: stopped at whatever instruction
//! they have come to, interpreted on the other ISA up to their next migration point, and native from there
//! on, with all their frames. With `cargo xtask run --app drift -- --trips 20`.
//!
//! | option | meaning |
//! |---|---|
//! | `--trips N` | moves of the first thread; 20 by default |
//! | `--turns N` | turns of the loop between two points; 60 by default |
//! | `--threads N` | other threads, which are moved at the same time; 3 by default |
//! | `--thread-trips N` | moves of each of them; 4 by default |
//! | `--asked N` | instead of all that, waits to be moved from outside (`cargo xtask migrate --emulate`): refuses once, moves N times, refuses once more |
//!
//! | check | what |
//! |---|---|
//! | `drift.moved` | each move ends on the node that was asked for, at a point, natively |
//! | `drift.intact` | canaries in registers, frames and on the heap, and references into callers' frames, are what they were |
//! | `drift.refused` | at an instruction that is not interpreted a thread goes back, is told which, goes on natively with nothing lost, and is not moved by what is left of the request; from both ISAs |
//! | `drift.threads` | the same of the other threads |
//! | `drift.asked` | with `--asked`, it has been moved and has come back so often, with nothing lost |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

mod strange;
mod trip;
mod work;

use core::ops::RangeInclusive;

use dyad::prelude::*;
use dyad::{emulation, report, thread};

use trip::{Sum, Trips};

#[dyad::main]
fn main(args: Args) -> Result<()> {
    let names = [
        "--trips",
        "--turns",
        "--threads",
        "--thread-trips",
        "--asked",
    ];
    args.expect_options(&names)?;
    // What is multiplied with each other stays a number; and there are threads beside the first.
    const MANY: RangeInclusive<u64> = 1..=1_000_000_000;
    const MOST: u64 = thread::MAX as u64 - 1;
    let [name_trips, name_turns, name_threads, name_each, name_asked] = names;
    let turns = args.number(name_turns, 60, MANY)?;
    let mut first = Trips::new(0, args.number(name_trips, 20, MANY)?, turns);
    let (threads, each) = (
        args.number(name_threads, 3, 0..=MOST)?,
        args.number(name_each, 4, MANY)?,
    );

    emulation::enable()?;
    match args.number(name_asked, 0, 0..=*MANY.end())? {
        0 => {}
        asked => return strange::asked(asked, turns),
    }
    let begin = Instant::now();
    let sum = first.go()?;
    let took = begin.elapsed();
    println!("{sum}, in {} us", took.as_micros());
    report::check(
        "drift.moved",
        sum.moved == first.trips,
        format_args!("{} of {}", sum.moved, first.trips),
    );
    report::check(
        "drift.intact",
        sum.rounds > 0 && sum.damaged == 0,
        format_args!("{} rounds, {} damaged", sum.rounds, sum.damaged),
    );
    report::counter("drift.moves", sum.moved);
    report::counter("drift.steps", sum.steps);
    report::counter("drift.calls", sum.calls);

    strange::refused()?;

    let mut others = Sum::default();
    let mut handles = Vec::new();
    for n in 0..threads {
        handles.push(thread::spawn(move || {
            let number = thread::current().number() as u64;
            Trips::new(number, each, turns + n).go()
        })?);
    }
    for handle in handles {
        others.add(&handle.join()??);
    }
    println!("{threads} threads: {others}");
    report::check(
        "drift.threads",
        others.moved == threads * each && others.damaged == 0,
        format_args!(
            "{} of {}, {} damaged",
            others.moved,
            threads * each,
            others.damaged
        ),
    );
    Ok(())
}
