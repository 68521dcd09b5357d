//! What programs expect of a standard library, on both machines.
//!
//! | scene | what it does |
//! |---|---|
//! | `all` | long lines from threads of both nodes at once; environment, random numbers, time of day, lazy values and names of threads, before and after moves |
//! | `math` | floating-point functions over many inputs, with moves in the middle |
//! | `input` | standard input, from threads of both nodes |
//! | `hang` | two threads wait for each other's mutexes, for ever |
//! | `reserve` | allocations that fail: one that is larger than memory, and many until there is none left |
//! | `exhaust` | memory until there is none left, in a vector |
//! | `panic` | a thread with a name panics |
#![no_std]
#![no_main]

extern crate alloc;

mod math;

use alloc::sync::Arc;

use dyad::io::stdin;
use dyad::prelude::thread::*;
use dyad::sync::{Barrier, LazyLock, Mutex};
use dyad::thread::Builder;
use dyad::{SystemTime, env, random, report};

const SCENES: [&str; 7] = [
    "all", "math", "input", "hang", "reserve", "exhaust", "panic",
];
/// Characters of a long line.
const LONG: usize = 3000;
/// Long lines of each thread.
const LINES: usize = 3;

static GREETING: LazyLock<String> = LazyLock::new(|| format!("made on {}", isa()));

#[dyad::main]
fn main(args: Args) -> Result<()> {
    args.expect_options(&["--scene"])?;
    match args.one_of("--scene", &SCENES, "all")? {
        "math" => math(),
        "input" => input(),
        "hang" => hang(),
        "reserve" => reserve(),
        "exhaust" => exhaust(),
        "panic" => {
            let worker = Builder::new()
                .name("worker")
                .spawn(|| panic!("by design"))?;
            worker.join()
        }
        _ => all(),
    }
}

/// A line of a thread: a number, and characters of two to four bytes.
fn line(thread: usize, number: usize) -> String {
    let characters = ['ä', '€', '😀', 'x'].into_iter().cycle();
    let text: String = characters.skip(number).take(LONG).collect();
    format!("long line {thread}.{number} {text} end")
}

fn all() -> Result<()> {
    let home = isa();
    let started = SystemTime::now();
    println!("random {:016x}", random::u64());
    println!(
        "variable {:?}, time {:?}",
        env::var("COLOUR"),
        started.duration_since(SystemTime::UNIX_EPOCH)
    );
    let made = GREETING.clone();

    let (here, there) = (node(), dyad::heap::on(home.other())?.node());
    let begin = Arc::new(Barrier::new(2));
    let writer = |thread: usize, at: NodeId| {
        let begin = begin.clone();
        Builder::new()
            .name(format!("writer {thread}"))
            .node(at)
            .spawn(move || {
                let _ = begin.wait();
                for number in 0..LINES {
                    println!("{}", line(thread, number));
                }
                dyad::thread::current().name()
            })
    };
    let writers = [writer(1, here)?, writer(2, there)?];
    let mut names = Vec::new();
    for writer in writers {
        names.push(writer.join()?);
    }
    let names: Vec<_> = names.iter().map(Option::as_deref).collect();
    let good = names == [Some("writer 1"), Some("writer 2")];
    report::check("std-pieces.names", good, format_args!("{names:?}"));

    migrate(home.other())?;
    println!("random {:016x}", random::u64());
    let (is_same, is_set) = (*GREETING == made, env::var("COLOUR").is_some());
    let goes_on = SystemTime::now() > started;
    migrate(home)?;
    report::check(
        "std-pieces.moved",
        is_same && goes_on,
        format_args!("{is_same}, {goes_on}"),
    );
    println!("the variable is set: {is_set}");
    Ok(())
}

fn math() -> Result<()> {
    let (mut moves, mut failed) = (0, 0);
    let move_on = || match migrate(isa().other()) {
        Ok(()) => moves += 1,
        Err(_) => failed += 1,
    };
    math::digests(move_on, |name, digest| {
        println!("math {name} {digest:016x}");
    });
    report::check(
        "std-pieces.math",
        moves >= 200 && failed == 0,
        format_args!("{moves} moves, {failed} failed"),
    );
    Ok(())
}

/// The first line on one node, the second on another, then all lines by two threads at once.
fn input() -> Result<()> {
    let home = isa();
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    println!("input {:?} on {}", line, isa());
    migrate(home.other())?;
    line.clear();
    stdin().read_line(&mut line)?;
    println!("input {:?} on {}", line, isa());
    migrate(home)?;
    let sum = || stdin().lines().try_fold((0, 0), count);
    let (here, there) = (node(), dyad::heap::on(home.other())?.node());
    let workers = [spawn_on(here, sum)?, spawn_on(there, sum)?];
    let mut all = (0, 0);
    for worker in workers {
        let (lines, sum) = worker.join()??;
        all = (all.0 + lines, all.1 + sum);
    }
    println!("input {} numbers, {}", all.0, all.1);
    Ok(())
}

fn count((lines, sum): (u64, u64), line: Result<String>) -> Result<(u64, u64)> {
    Ok((lines + 1, sum + line?.parse::<u64>()?))
}

static MUTEXES: [Mutex<u64>; 2] = [const { Mutex::new(0) }; 2];

/// Takes one mutex, waits until both threads have one, and then wants the other one.
fn take_both(first: usize, begin: &Barrier) -> Result<()> {
    let one = MUTEXES[first].lock();
    let _ = begin.wait()?;
    let two = MUTEXES[1 - first].lock();
    println!("{} and {}", *one, *two);
    Ok(())
}

fn hang() -> Result<()> {
    let begin = Arc::new(Barrier::new(2));
    let there = dyad::heap::on(isa().other())?.node();
    let begins = begin.clone();
    let first = spawn(move || take_both(0, &begin))?;
    let second = spawn_on(there, move || take_both(1, &begins))?;
    first.join()??;
    second.join()?
}

/// A vector of so many bytes, or an error; the bytes are written.
fn bytes(len: usize) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    all.try_reserve_exact(len)?;
    all.resize(len, 1);
    Ok(all)
}

fn reserve() -> Result<()> {
    const MIB: usize = 1 << 20;
    let e = bytes(8 << 30).map(drop).unwrap_err();
    println!("8 GiB: {e}");
    let mut held = Vec::new();
    let mut full = None;
    while full.is_none() && held.len() < 4096 {
        match bytes(MIB) {
            Ok(more) => held.push(more),
            Err(e) => full = Some(e),
        }
    }
    let mib = held.len();
    drop(held);
    let again = bytes(mib / 2 * MIB).is_ok();
    let good = full.is_some() && mib >= 64 && again;
    report::check(
        "std-pieces.reserve",
        good,
        format_args!("{mib} MiB, again {again}"),
    );
    Ok(())
}

fn exhaust() -> Result<()> {
    let mut all: Vec<u64> = Vec::new();
    loop {
        all.push(7);
    }
}
