//! Plain threads that are moved while they compute, by request to init: stopped at whatever instruction
//! they have come to, interpreted on the other ISA up to their next migration point, and native from there
//! on, with all their frames. With `cargo xtask run --app emulate-threads -- --trips 20`.
//!
//! | option | meaning |
//! |---|---|
//! | `--trips N` | trips of the first thread, each there and back, two moves; 20 by default |
//! | `--turns N` | turns of the loops between two points; 60 by default |
//! | `--threads N` | other threads, which are moved at the same time; 3 by default |
//! | `--thread-trips N` | trips of each of them; 4 by default |
//! | `--asked N` | instead of all that, waits to be moved from outside (`cargo xtask migrate --emulate`): refuses once, moves N times, refuses once more |
//! | `--doomed N` | instead of all that, has node N die while threads are interpreted, which is of the other ISA and not the only one; then the first thread waits for the death of another one |
//!
//! | check | what |
//! |---|---|
//! | `emulate-threads.moved` | each move ends on the node that was asked for, at a point, natively, and each trip where it began |
//! | `emulate-threads.intact` | canaries in registers, frames, on the native stack and on the heap, and references into callers' frames, are what they were |
//! | `emulate-threads.between` | threads were stopped in the middle of code: most before a point, and some with canaries in registers of all kinds; only with 50 trips or more |
//! | `emulate-threads.refused` | at an instruction that is not interpreted a thread goes back, is told which, goes on natively with nothing lost, and is not moved by what is left of the request; from both ISAs |
//! | `emulate-threads.crosses` | a call that crosses to the other ISA sends the thread back, and crosses natively; one that by the thread's policy does not is interpreted; from both ISAs |
//! | `emulate-threads.outside` | at a point below a function that is entered from outside a thread goes back, natively; from both ISAs |
//! | `emulate-threads.withdrawn` | a thread comes to its point also if somebody takes the request back by which it would; from both ISAs |
//! | `emulate-threads.threads` | as the first two, of the other threads |
//! | `emulate-threads.asked` | with `--asked`, it has been moved and has come back so often, with nothing lost |
//! | `emulate-threads.doomed-*` | with `--doomed`: see the module of that name |
//!
//! | counter | of the first thread |
//! |---|---|
//! | `emulate-threads.trips` | times that it was there and is back |
//! | `emulate-threads.moves` | moves |
//! | `emulate-threads.rounds`, `emulate-threads.damaged` | rounds of work, after each of which all canaries are looked at; those that found something changed |
//! | `emulate-threads.between` | moves for which it was stopped before a point: instructions were interpreted |
//! | `emulate-threads.places` | different instructions at which it was stopped |
//! | `emulate-threads.held.ISA` | moves from there for which it was stopped with three integers, two floating-point numbers and a vector, all canaries, in registers, as its registers of that moment show |
//! | `emulate-threads.steps`, `emulate-threads.calls` | instructions that were interpreted, system calls among them |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

mod doomed;
mod odd;
mod strange;
mod trip;
mod work;

use core::ops::RangeInclusive;

use dyad::prelude::thread::*;
use dyad::{emulation, report, thread};

use trip::{Sum, Trips};

/// With fewer trips it is chance where threads are stopped.
const ENOUGH: u64 = 50;

#[dyad::main]
fn main(args: Args) -> Result<()> {
    let names = [
        "--trips",
        "--turns",
        "--threads",
        "--thread-trips",
        "--asked",
        "--doomed",
    ];
    args.expect_options(&names)?;
    // What is multiplied with each other stays a number; and there are threads beside the first.
    const MANY: RangeInclusive<u64> = 1..=1_000_000_000;
    const MOST: u64 = thread::MAX as u64 - 1;
    let [
        name_trips,
        name_turns,
        name_threads,
        name_each,
        name_asked,
        name_doomed,
    ] = names;
    let turns = args.number(name_turns, 60, MANY)?;
    let trips = args.number(name_trips, 20, 0..=*MANY.end())?;
    let (threads, each) = (
        args.number(name_threads, 3, 0..=MOST)?,
        args.number(name_each, 4, MANY)?,
    );
    let mut first = Trips::new(0, trips, turns);

    emulation::enable()?;
    let asked = args.number(name_asked, 0, 0..=*MANY.end())?;
    match (asked, args.number(name_doomed, 0, 0..=7)?) {
        (0, 0) => {}
        (0, node) => return doomed::all(node),
        (asked, _) => return strange::asked(asked, turns),
    }
    let begin = Instant::now();
    let sum = first.go()?;
    let took = begin.elapsed();
    println!("{sum}, in {} us", took.as_micros());
    tell(&sum, first.trips);

    strange::refused()?;
    odd::all()?;

    let mut others = Sum::default();
    let mut handles = Vec::new();
    println!("each of {threads} other threads is moved from here on");
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
        "emulate-threads.threads",
        others.moved == 2 * threads * each
            && others.returned == threads * each
            && others.damaged == 0,
        format_args!(
            "{} of {} moves, {} damaged",
            others.moved,
            2 * threads * each,
            others.damaged
        ),
    );
    Ok(())
}

/// What the first thread has found.
fn tell(sum: &Sum, trips: u64) {
    report::check(
        "emulate-threads.moved",
        sum.moved == 2 * trips && sum.returned == trips,
        format_args!("{} of {} moves", sum.moved, 2 * trips),
    );
    report::check(
        "emulate-threads.intact",
        (sum.rounds > 0 || trips == 0) && sum.damaged == 0,
        format_args!("{} rounds, {} damaged", sum.rounds, sum.damaged),
    );
    if trips >= ENOUGH {
        report::check(
            "emulate-threads.between",
            2 * sum.between > sum.moved && !sum.held.contains(&0),
            format_args!(
                "{} of {} moves, {:?} with canaries in registers",
                sum.between, sum.moved, sum.held
            ),
        );
    }
    for (name, value) in [
        ("emulate-threads.trips", sum.returned),
        ("emulate-threads.moves", sum.moved),
        ("emulate-threads.rounds", sum.rounds),
        ("emulate-threads.damaged", sum.damaged),
        ("emulate-threads.between", sum.between),
        ("emulate-threads.places", sum.places.len() as u64),
        ("emulate-threads.held.x86_64", sum.held[Isa::X86_64.index()]),
        (
            "emulate-threads.held.aarch64",
            sum.held[Isa::Aarch64.index()],
        ),
        ("emulate-threads.steps", sum.steps),
        ("emulate-threads.calls", sum.calls),
    ] {
        report::counter(name, value);
    }
}
