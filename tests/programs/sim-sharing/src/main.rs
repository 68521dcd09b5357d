//! Patterns of sharing between a node of each ISA, whose messages are known exactly. The program
//! goes from one node to the other and does a step of a pattern on each, in a window.
//!
//! | pattern | first node | second node |
//! |---|---|---|
//! | `ping-pong` | stores to each line | stores to each line |
//! | `false-sharing` | stores to the first word of each line | stores to the last |
//! | `apart` | stores to its own lines | stores to its own lines |
//! | `atomics` | adds to each line | adds to each line |
//! | `producer` | stores to each line | loads each line |
//! | `readers` | loads each line | loads each line |
//! | `upgrade` | loads each line, which nobody has, and stores to it | nothing |
//!
//! | option | values | default |
//! |---|---|---|
//! | `--pattern` | a list of these | all |
//! | `--lines` | how many lines | 64 |
//! | `--rounds` | how often, after a round for warming up | 8 |
//! | `--first` | `x86_64`, `aarch64`: the first node | `x86_64` |
//! | `--rest` | how long, in microseconds, the program stays on a node: longer than the CPU that it has left looks out for it, and each move rings | 0 |
//! | `--evict` | MiB of other memory that make a cache forget all lines | 32 |
//!
//! The window of step `s` (0, 1) of pattern `p` is [`WINDOWS`]` + 2 p + s`.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::report;
use dyad::sys::marker;
use dyad_abi::marker::WindowId;

/// The first window.
const WINDOWS: u16 = WindowId::FREE + 0x20;

const PATTERNS: [&str; 7] = [
    "ping-pong",
    "false-sharing",
    "apart",
    "atomics",
    "producer",
    "readers",
    "upgrade",
];
const OPTIONS: [&str; 6] = [
    "--pattern",
    "--lines",
    "--rounds",
    "--first",
    "--rest",
    "--evict",
];

/// A line of memory.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// What a node does to a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Nothing,
    Load,
    Store(usize),
    Add,
    LoadAndStore,
}

/// What the nodes do in a pattern.
const fn steps(pattern: usize) -> [Access; 2] {
    use Access::{Add, Load, LoadAndStore, Nothing, Store};
    match pattern {
        0 | 2 => [Store(0), Store(0)],
        1 => [Store(0), Store(7)],
        3 => [Add, Add],
        4 => [Store(0), Load],
        5 => [Load, Load],
        _ => [LoadAndStore, Nothing],
    }
}

/// One node's turn. Nothing but the accesses touches memory: what the loop needs is in registers.
#[inline(never)]
fn turn<const ID: u16>(access: Access, lines: &[Line], value: u64) {
    // Stores are of atomics so that each is one access that is neither left out nor merged.
    match access {
        Access::Nothing => {}
        Access::Load => marker::window::<ID, _>(|| {
            for line in lines {
                line.0[0].load(Ordering::Relaxed);
            }
        }),
        Access::Store(0) => marker::window::<ID, _>(|| {
            for line in lines {
                line.0[0].store(value, Ordering::Relaxed);
            }
        }),
        Access::Store(_) => marker::window::<ID, _>(|| {
            for line in lines {
                line.0[7].store(value, Ordering::Relaxed);
            }
        }),
        Access::Add => marker::window::<ID, _>(|| {
            for line in lines {
                line.0[0].fetch_add(1, Ordering::Relaxed);
            }
        }),
        Access::LoadAndStore => marker::window::<ID, _>(|| {
            for line in lines {
                line.0[0].load(Ordering::Relaxed);
                line.0[0].store(value, Ordering::Relaxed);
            }
        }),
    }
}

/// [`turn`] in the window of a step, whose number is part of instructions. What was counted in it
/// when warming up, in which the node gets the code too, is forgotten.
fn step(pattern: usize, step: usize, lines: &[Line], value: u64, warm: bool) {
    let access = steps(pattern)[step];
    macro_rules! choose {
        ($($n:literal)*) => {
            match 2 * pattern + step {
                $($n => {
                    turn::<{ WINDOWS + $n }>(access, lines, value);
                    if warm {
                        marker::forget::<{ WINDOWS + $n }>();
                    }
                })*
                _ => {}
            }
        };
    }
    choose!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
}

/// Reads so much other memory that no cache has any of the lines.
#[inline(never)]
fn evict(other: &[Line]) {
    for line in other {
        black_box(line.0[0].load(Ordering::Relaxed));
    }
}

fn number(args: &Args, name: &str, default: usize, max: usize) -> Result<usize> {
    let Some(text) = args.value(name) else {
        return Ok(default);
    };
    let n = text.parse().ok().filter(|n| (1..=max).contains(n));
    n.ok_or_else(|| {
        Error::usage(format_args!(
            "{name} cannot be {text:?}; possible: 1 to {max}"
        ))
    })
}

fn patterns(args: &Args) -> Result<Vec<usize>> {
    let Some(list) = args.value("--pattern") else {
        return Ok((0..PATTERNS.len()).collect());
    };
    let find = |name: &str| {
        PATTERNS.iter().position(|p| *p == name).ok_or_else(|| {
            Error::usage(format_args!(
                "--pattern cannot have {name:?}; possible: {}",
                PATTERNS.join(", ")
            ))
        })
    };
    list.split(',').map(find).collect()
}

fn lines(n: usize) -> Vec<Line> {
    (0..n).map(|_| Line::default()).collect()
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&OPTIONS)?;
    let patterns = patterns(&args)?;
    let count = number(&args, "--lines", 64, 4096)?;
    let rounds = number(&args, "--rounds", 8, 10_000)?;
    let rest = Duration::from_micros(number(&args, "--rest", 0, 10_000)? as u64);
    let megabytes = number(&args, "--evict", 32, 256)?;
    let first = args.one_of("--first", &Isa::ALL.map(Isa::name), Isa::X86_64.name())?;
    let first = Isa::parse(first).unwrap_or(Isa::X86_64);
    let nodes = [first, first.other()];

    let mut right = true;
    for pattern in patterns {
        let name = PATTERNS[pattern];
        // Lines of its own for each node, and memory for forgetting, where they are used.
        let own = [lines(count), lines(if name == "apart" { count } else { 0 })];
        let other = lines(if name == "upgrade" {
            megabytes << 14
        } else {
            0
        });
        let mut last = 0;
        let mut start = Instant::now();
        for round in 0..=rounds {
            if round == 1 {
                start = Instant::now();
            }
            for (side, isa) in nodes.into_iter().enumerate() {
                let rested = Instant::now() + rest;
                while !rest.is_zero() && Instant::now() < rested {}
                migrate(isa)
                    .await
                    .map_err(|e| Error::msg(format_args!("cannot go to {isa}: {e}")))?;
                let lines = if name == "apart" { &own[side] } else { &own[0] };
                evict(&other);
                last = (round * 2 + side) as u64;
                step(pattern, side, lines, last, round == 0);
            }
        }
        let took = start.elapsed();
        let counter = |what: &str, n| report::counter(&format!("sim-sharing.{name}.{what}"), n);
        counter("ns", took.as_nanos() as u64);
        counter("moves", 2 * rounds as u64);
        let word = own[0][count - 1].0[0].load(Ordering::Relaxed);
        let expected = match steps(pattern) {
            [Access::Store(0), Access::Store(0)] if name != "apart" => last,
            [Access::Store(0) | Access::LoadAndStore, _] => last - 1,
            [Access::Add, _] => last + 1,
            _ => 0,
        };
        println!("{name}: {count} lines, {rounds} rounds, first {first}");
        let detail = format_args!("{word} is {expected}");
        right &= report::check(&format!("sim-sharing.{name}"), word == expected, detail);
    }
    match right {
        true => Ok(()),
        false => Err(Error::msg("memory is not what was stored")),
    }
}
