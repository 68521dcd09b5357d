//! What it costs to move a plain thread wherever it is, for `cargo xtask bench migration`: it is stopped in
//! the middle of a loop, interpreted on the other ISA up to its next migration point, and lands there.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--home` | `x86_64`, `aarch64`: from where | where it starts |
//! | `--times` | how often, 4 to 10000 | 32 |
//! | `--turns` | turns of the loop between two points, 1 to 100000 | 200 |
//! | `--loop` | `integer`: integers and memory; `mixed`: branches and floating point as well | `integer` |
//!
//! With `--loop mixed` the operation is `interpret_instruction`: one interpreted instruction, on average over all of
//! them, and what comes before the first one and after the last one. Its times are those of the phase *there* alone.
//!
//! What is reported is in the module [`figures`](crate::figures); the operation is `emulate_to_point`, and ends
//! when the thread is on the other side: nothing of the way back counts. Its phases by the clock are
//! *out*, until interpreting begins; *there*, until the point; *back*, until the thread runs natively
//! behind it. Its window is that of the runtime (`dyad::emulation::WINDOW`), on the other side: from
//! the first interpreted instruction to the landing. More figures:
//!
//! | figure | what |
//! |---|---|
//! | `interpreted` | instructions that were interpreted each time, on average |
//! | `stop_ns` | the part of *out* until the thread had been stopped and its registers were in memory |

use core::hint::black_box;

use crate::figures::{Direction, away};
use dyad::emulation::WINDOW;
use dyad::emulation::{self, status};
use dyad::prelude::thread::*;
use dyad::sys::marker;
use dyad::{report, sys, thread};

const OP: &str = "emulate_to_point";
/// One interpreted instruction.
const INSTRUCTION: &str = "interpret_instruction";
const SLOT: u16 = 128;
const _: () = assert!(away(SLOT) == WINDOW);
/// Repetitions that do not count.
const WARM_UP: u64 = 2;
/// How long a move may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is computed between two points: one value of every turn depends on the one before.
#[inline(never)]
fn turns(seed: u64, turns: u64) -> u64 {
    let mut table = [seed; 16];
    let mut value = seed | 1;
    for turn in 0..turns {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(turn);
        let at = (value >> 60) as usize;
        table[at] ^= value.rotate_left(17);
        value ^= black_box(table[at & 7]) >> 7;
    }
    table.into_iter().fold(value, |h, v| h.rotate_left(5) ^ v)
}

/// As [`turns`], with floating point, bytes, and branches that depend on values.
#[inline(never)]
fn mixed(seed: u64, turns: u64) -> u64 {
    let mut sums = [1.0; 16];
    let mut bytes = [seed as u8; 64];
    let mut value = seed | 1;
    let mut rare = 0;
    for turn in 0..turns {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(turn);
        let at = (value >> 60) as usize;
        let part = black_box((value >> 33) as i32 & 0xffff);
        sums[at] = sums[at] * 0.75 + f64::from(part) / 3.0;
        if sums[at] > 60_000.0 {
            sums[at] -= 50_000.0;
            rare += 1;
        }
        let byte = &mut bytes[(value >> 40) as usize & 63];
        *byte = byte.wrapping_add(part as u8);
        match *byte & 3 {
            0 => value ^= value >> 29,
            1 => value = value.rotate_left(11),
            2 if *byte > 200 => value = value.wrapping_sub(turn),
            _ => rare += u64::from(*byte),
        }
    }
    let all = sums.into_iter().map(f64::to_bits);
    let all = all.chain(bytes.into_iter().map(u64::from));
    all.fold(value ^ rare, |h, v| h.rotate_left(5) ^ v)
}

/// What is computed between two points, and what the operation is called.
#[derive(Clone, Copy)]
struct Loop {
    op: &'static str,
    is_mixed: bool,
}

impl Loop {
    #[inline(never)]
    fn turns(self, seed: u64, turns: u64) -> u64 {
        match self.is_mixed {
            true => mixed(seed, turns),
            false => self::turns(seed, turns),
        }
    }
}

/// Sums.
#[derive(Clone, Copy, Default)]
struct Taken {
    interpreted: u64,
    /// Until it has been stopped, until interpreting begins, until the point, until it runs natively.
    phases: [u64; 4],
    good: bool,
}

/// Is moved once, and comes back natively.
fn once(direction: &Direction, work: Loop, each: u64, nth: u64, taken: &mut Taken) -> Result<()> {
    let expected = work.turns(nth, each);
    let asked = Instant::now();
    emulation::request(direction.away, asked)?;
    loop {
        taken.good &= work.turns(nth, each) == expected;
        dyad::thread::migrate_point();
        let now = Instant::now();
        let p = emulation::progress().ok_or(sys::Error::NotReady)?;
        if p.status == status::LANDED && p.landings == nth + 1 {
            let [stopped, began, landed] = p.times;
            let all = [asked.as_nanos(), stopped, began, landed, now.as_nanos()];
            for (phase, pair) in taken.phases.iter_mut().zip(all.windows(2)) {
                *phase += pair[1].saturating_sub(pair[0]);
            }
            taken.interpreted += p.steps;
            taken.good &= node() == direction.away;
            break;
        }
        if asked.elapsed() > PATIENCE || matches!(p.status, status::BACK | status::IDLE) {
            return Err(Error::msg(format!("{nth}: it {p}")));
        }
    }
    Ok(thread::migrate_to(direction.home)?)
}

fn measure(direction: &Direction, work: Loop, times: u64, each: u64) -> Result<()> {
    emulation::enable()?;
    let mut taken = Taken::default();
    for nth in 0..WARM_UP + times {
        if nth == WARM_UP {
            thread::migrate_to(direction.away)?;
            marker::forget::<WINDOW>();
            thread::migrate_to(direction.home)?;
            taken = Taken {
                good: true,
                ..Taken::default()
            };
        }
        once(direction, work, each, nth, &mut taken)?;
    }
    report::check("emulate.intact", taken.good, format_args!("{times} moves"));
    let [stop, start, there, back] = taken.phases;
    if work.is_mixed {
        for (what, value) in [
            ("slot", SLOT.into()),
            ("n", taken.interpreted),
            ("ns", there),
            ("interpreted", taken.interpreted / times),
        ] {
            direction.figure(work.op, what, value);
        }
        return Ok(());
    }
    for (what, value) in [
        ("slot", SLOT.into()),
        ("n", times),
        ("ns", stop + start + there + back),
        ("phased", times),
        ("phased_ns", stop + start + there + back),
        ("out_ns", stop + start),
        ("there_ns", there),
        ("back_ns", back),
        ("stop_ns", stop),
        ("interpreted", taken.interpreted / times),
    ] {
        direction.figure(work.op, what, value);
    }
    println!(
        "{times} moves from {}, {} instructions interpreted each",
        direction.isa,
        taken.interpreted / times
    );
    Ok(())
}

/// A number of the command line.
fn number(args: &Args, name: &str, default: u64, least: u64, most: u64) -> Result<u64> {
    match args.value(name).map(str::parse) {
        None => Ok(default),
        Some(Ok(n)) if (least..=most).contains(&n) => Ok(n),
        Some(_) => Err(Error::usage(format_args!(
            "{name} takes a number from {least} to {most}"
        ))),
    }
}

/// What the program does.
pub(crate) fn main(args: &Args) -> Result<()> {
    args.expect_options(&["--what", "--home", "--times", "--turns", "--loop"])?;
    let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
    let home = Isa::parse(home).unwrap_or(isa());
    let times = number(args, "--times", 32, 4, 10_000)?;
    let each = number(args, "--turns", 200, 1, 100_000)?;
    if let Err(e) = thread::migrate(home) {
        return Err(Error::msg(format_args!("cannot begin on {home}: {e}")));
    }
    let is_mixed = args.one_of("--loop", &["integer", "mixed"], "integer")? == "mixed";
    let op = if is_mixed { INSTRUCTION } else { OP };
    measure(&Direction::of_here()?, Loop { op, is_mixed }, times, each)
}
