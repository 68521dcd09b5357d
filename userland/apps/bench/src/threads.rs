//! What it costs a plain thread to change its ISA, for `cargo xtask bench migration`: migrations
//! there and back at the bottom of stacks of known depth.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--home` | `x86_64`, `aarch64`: from where | where it starts |
//! | `--times` | how often each is done, 8 to 100000 | 32 |
//! | `--kinds` | `all`, or one kind of frames: `empty`, `lookup`, `copy` | `all` |
//!
//! What is reported is in the module [`figures`](crate::figures); operations are
//! `thread_ping_pong_depth_N`, below `N` frames with nothing in them, `thread_ping_pong_KIND_depth_N`
//! with others, and `thread_ping_pong_depth4`, below four frames full of what is needed again.

use crate::figures::{Direction, at_home, away, nanos};
use dyad::prelude::thread::*;
use dyad::sys::marker;
use dyad::{report, thread};
use workloads::micro::depth::{Bottom, Kind, descend, expected};

/// Frames above the place where the thread migrates.
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const FIRST_SLOT: u16 = 64;
/// Repetitions that do not count.
const WARM_UP: u32 = 8;

/// What a migration gives: an error that owns nothing, so that nothing has to be dropped on the way.
type Moved<T = ()> = core::result::Result<T, dyad::sys::Error>;

/// Times are measured below 0, 1, 2 and 3 further frames with nothing in them, a fourth of the repetitions
/// each; instructions, which are the same at every place, below none. Frame records take 16 bytes: on which lines of the cache they fall, together with
/// what both direction write to all the time, changes a migration by as much as seven frames do, and
/// says nothing about how many frames there are. Four places in a line are all there are.
const PLACES: u32 = 4;

/// Repetitions by the clock are in so many groups at each place, of which the median counts: in some of
/// them a CPU has something else to do, which takes as long as leaving twenty frames does.
const GROUPS: usize = 16;

/// Repetitions at each place.
const fn at_each_place(times: u32) -> u32 {
    times / PLACES
}

/// Repetitions of a group.
fn each(times: u32) -> u32 {
    (times / GROUPS as u32).max(1)
}

/// How long migrations took, at all places together.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Those of the median groups.
    whole: u64,
    phased: u64,
    phases: [u64; 3],
}

fn go(direction: &Direction) -> Moved {
    thread::migrate_to(direction.away)
}

fn come_back(direction: &Direction) -> Moved {
    thread::migrate_to(direction.home)
}

/// Moves there and back, `times` times.
fn trips(direction: &Direction, times: u32) -> Moved {
    for _ in 0..times {
        go(direction)?;
        come_back(direction)?;
    }
    Ok(())
}

/// There and back in windows.
#[inline(never)]
fn counted<const HOME: u16, const AWAY: u16>(direction: &Direction, times: u32) -> Moved {
    trips(direction, WARM_UP)?;
    for i in 0..times {
        marker::begin::<HOME>();
        go(direction)?;
        // A window of the other side is from one arrival to the next.
        if i > 0 {
            marker::end::<AWAY>();
        }
        marker::begin::<AWAY>();
        come_back(direction)?;
        marker::end::<HOME>();
    }
    go(direction)?;
    marker::end::<AWAY>();
    come_back(direction)
}

/// There and back by the clock, and by the clock with looks at it in between.
#[inline(never)]
fn timed(direction: &Direction, times: u32, taken: &mut Taken) -> Moved {
    trips(direction, WARM_UP)?;
    let mut groups = [0; GROUPS];
    for group in &mut groups {
        let start = Instant::now();
        trips(direction, each(times))?;
        *group = nanos(start.elapsed());
    }
    groups.sort_unstable();
    taken.whole += groups[GROUPS / 2];

    let start = Instant::now();
    let mut last = start;
    for _ in 0..times {
        go(direction)?;
        let there = Instant::now();
        taken.phases[0] += nanos(there - last);
        let leaving = Instant::now();
        taken.phases[1] += nanos(leaving - there);
        come_back(direction)?;
        last = Instant::now();
        taken.phases[2] += nanos(last - leaving);
    }
    taken.phased += nanos(start.elapsed());
    Ok(())
}

/// Below so many frames of a kind: in the windows of a slot, and by the clock at all places of a line.
fn below<const HOME: u16, const AWAY: u16>(
    direction: &Direction,
    kind: Kind,
    depth: u32,
    times: u32,
) -> Result<Taken> {
    let mut taken = Taken::default();
    for place in 0..PLACES {
        let mut outcome = Ok(());
        let mut as_it_was = false;
        let mut at_place = |_| {
            let found = descend(kind, depth, &mut |_| {
                outcome = match place {
                    0 => counted::<HOME, AWAY>(direction, times),
                    _ => Ok(()),
                };
                if outcome.is_ok() {
                    outcome = timed(direction, at_each_place(times), &mut taken);
                }
            });
            as_it_was = found == expected(kind, depth);
        };
        match place {
            0 => at_place(Bottom::default()),
            _ => {
                let found = descend(Kind::Empty, place, &mut at_place);
                as_it_was &= found == expected(Kind::Empty, place);
            }
        }
        let name = format!("depth.{}.{depth}.{place}", kind.name());
        if !report::check(&name, as_it_was, "") {
            return Err(Error::msg("a frame is not what it was"));
        }
        outcome?;
    }
    Ok(taken)
}

/// All depths of a kind.
fn depths(direction: &Direction, kind: Kind, times: u32) -> Result<()> {
    macro_rules! each {
        ($kind:literal: $($i:literal),*) => {
            $({
                const SLOT: u16 = FIRST_SLOT + $kind * DEPTHS.len() as u16 + $i;
                let depth = DEPTHS[$i];
                let taken = below::<{ at_home(SLOT) }, { away(SLOT) }>(direction, kind, depth, times)?;
                let op = match kind {
                    Kind::Empty => format!("thread_ping_pong_depth_{depth}"),
                    _ => format!("thread_ping_pong_{}_depth_{depth}", kind.name()),
                };
                tell(direction, &op, SLOT, times, &taken);
                if kind == Kind::Copy && depth == 4 {
                    tell(direction, "thread_ping_pong_depth4", SLOT, times, &taken);
                }
            })*
        };
    }
    match kind {
        Kind::Empty => {
            each!(0: 0, 1, 2, 3, 4, 5, 6);
        }
        Kind::Lookup => {
            each!(1: 0, 1, 2, 3, 4, 5, 6);
        }
        _ => {
            each!(2: 0, 1, 2, 3, 4, 5, 6);
        }
    }
    Ok(())
}

fn tell(direction: &Direction, op: &str, slot: u16, times: u32, taken: &Taken) {
    let figures = [
        ("slot", slot.into()),
        ("n", (PLACES * each(at_each_place(times))).into()),
        ("ns", taken.whole),
        ("phased", (PLACES * at_each_place(times)).into()),
        ("phased_ns", taken.phased),
        ("out_ns", taken.phases[0]),
        ("there_ns", taken.phases[1]),
        ("back_ns", taken.phases[2]),
    ];
    for (what, value) in figures {
        direction.figure(op, what, value);
    }
}

/// What the command line says: where to begin, how often, and which kinds.
#[inline(never)]
fn options(args: &Args) -> Result<(Isa, u32, Vec<Kind>)> {
    args.expect_options(&["--what", "--home", "--times", "--kinds"])?;
    let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
    let kinds = ["all", "empty", "lookup", "copy"];
    let kinds = args.one_of("--kinds", &kinds, "all")?;
    let times = match args.value("--times").map(str::parse) {
        None => 32,
        Some(Ok(n @ 8..=100_000)) => n,
        Some(_) => return Err(Error::usage("--times takes a number from 8 to 100000")),
    };
    let wanted = |k: &Kind| kinds == "all" || kinds == k.name();
    let kinds = [Kind::Empty, Kind::Lookup, Kind::Copy];
    let kinds = kinds.into_iter().filter(wanted).collect();
    Ok((Isa::parse(home).unwrap_or(isa()), times, kinds))
}

#[inline(never)]
fn measure(home: Isa, times: u32, kinds: &[Kind]) -> Result<()> {
    let direction = Direction::of_here()?;
    println!(
        "From node {} ({home}) to node {}",
        direction.home, direction.away
    );
    for &kind in kinds {
        depths(&direction, kind, times)?;
    }
    Ok(())
}

/// What the program does.
pub(crate) fn main(args: &Args) -> Result<()> {
    let (home, times, kinds) = options(args)?;
    match thread::migrate(home) {
        Ok(()) => measure(home, times, &kinds),
        Err(e) => Err(Error::msg(format_args!("cannot begin on {home}: {e}"))),
    }
}
