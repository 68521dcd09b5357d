//! What it costs to move a plain thread wherever it is, for `cargo xtask bench migration`: it is stopped in
//! the middle of a loop, interpreted on the other ISA up to its next migration point, and lands there.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--home` | `x86_64`, `aarch64`: from where | where it starts |
//! | `--times` | how often, 4 to 10000 | 32 |
//! | `--turns` | turns of the loop between two points, 1 to 100000 | 200 |
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

/// Sums.
#[derive(Clone, Copy, Default)]
struct Taken {
    interpreted: u64,
    /// Until it has been stopped, until interpreting begins, until the point, until it runs natively.
    phases: [u64; 4],
    good: bool,
}

/// Is moved once, and comes back natively.
fn once(direction: &Direction, each: u64, nth: u64, taken: &mut Taken) -> Result<()> {
    let expected = turns(nth, each);
    let asked = Instant::now();
    emulation::request(direction.away, asked)?;
    loop {
        taken.good &= turns(nth, each) == expected;
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

fn measure(direction: &Direction, times: u64, each: u64) -> Result<()> {
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
        once(direction, each, nth, &mut taken)?;
    }
    report::check("emulate.intact", taken.good, format_args!("{times} moves"));
    let [stop, start, there, back] = taken.phases;
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
        direction.figure(OP, what, value);
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
    args.expect_options(&["--what", "--home", "--times", "--turns"])?;
    let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
    let home = Isa::parse(home).unwrap_or(isa());
    let times = number(args, "--times", 32, 4, 10_000)?;
    let each = number(args, "--turns", 200, 1, 100_000)?;
    if let Err(e) = thread::migrate(home) {
        return Err(Error::msg(format_args!("cannot begin on {home}: {e}")));
    }
    measure(&Direction::of_here()?, times, each)
}
