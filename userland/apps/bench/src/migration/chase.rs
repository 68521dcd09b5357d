//! A list that lies on the other side, followed for some steps between two migrations, or from
//! here.
//!
//! | figure of `pointer_chase_N` | what |
//! |---|---|
//! | `n`, `ns` | visits of `N` steps, with migrations |
//! | `stay_ns` | as many, following from here |
//! | `work_ns`, `work_stay_ns` | the same, with about 100 us of other work before each visit |
//!
//! and of `pointer_chase`:
//!
//! | figure | what |
//! |---|---|
//! | `n`, `ns` | visits without any step: migrations there and back |
//! | `steps`, `far_ns`, `near_ns` | steps in one go, and how long they took from here and from there |
//! | `works`, `works_ns` | how often the other work was done, and how long it took |

use dyad::prelude::task::*;
use dyad::sys::marker;
use dyad::{heap, report};
use workloads::micro::chase::Chase;

use crate::figures::{Direction, at_home, away, nanos};

/// Steps between two migrations.
pub const SIZES: [u32; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];
const FIRST_SLOT: u16 = 8;
/// Steps of all visits of a size together, and visits at least and at most. All that are made are
/// some 110,000: together with what fits into 4 MiB of the last level of a cache fewer than the list of
/// 16 MiB has, so that none comes to a line that is still there from the first time round.
const STEPS: u32 = 2048;
const VISITS: (u32, u32) = (8, 64);
/// Steps in one go.
const RUN: u32 = 8192;
/// How long the other work is to take.
const WORK: Duration = Duration::from_micros(100);

/// Lists of this size, with these numbers of steps; on the other side, or on a node of choice.
pub async fn measure(
    direction: &Direction,
    sizes: &[u32],
    bytes: usize,
    on: Option<NodeId>,
) -> Result<()> {
    direction.go().await?;
    let mut chase = match on {
        // Made where it is to lie.
        None => Chase::new(bytes, RUN, 0),
        Some(node) => heap::on(node)?.run(|| Chase::new(bytes, RUN, 0)),
    };
    let lies = heap::node_of(chase.first());
    println!(
        "The list lies in memory of node {}",
        lies.map_or("?".into(), |n| n.to_string())
    );
    if on.is_some() && !report::check("chase.placed", lies == on, "") {
        return Err(Error::msg("the list lies elsewhere"));
    }
    let around = (bytes / workloads::LINE) as u32;
    let mut long = [Duration::ZERO; 2];
    // From both direction once all around: no page is new afterwards, and what a cache that is smaller
    // still has is what will be needed last.
    long[1] = follow(&mut chase, around);
    direction.come_back().await?;
    long[0] = follow(&mut chase, around);

    chase.set(0, 0);
    visit::<{ at_home(FIRST_SLOT) }, { away(FIRST_SLOT) }>(&mut chase, direction).await?;
    let idle = visits(&mut chase, direction, VISITS.1).await?;
    direction.took("pointer_chase", VISITS.1.into(), idle);
    direction.figure("pointer_chase", "steps", RUN.into());
    for (name, time) in ["far_ns", "near_ns"].into_iter().zip(long) {
        direction.figure("pointer_chase", name, nanos(time));
    }
    let work = calibrate(&mut chase, direction);

    for &size in sizes {
        let n = (STEPS / size).clamp(VISITS.0, VISITS.1);
        chase.set(size, 0);
        let slot = counted(&mut chase, direction, size, n).await?;
        let moving = visits(&mut chase, direction, n).await?;
        let staying = stay(&mut chase, n);
        let op = format!("pointer_chase_{size}");
        direction.figure(&op, "slot", slot.into());
        direction.took(&op, n.into(), moving);
        direction.figure(&op, "stay_ns", nanos(staying));

        chase.set(size, work);
        let moving = visits(&mut chase, direction, n).await?;
        let staying = stay(&mut chase, n);
        direction.figure(&op, "work_ns", nanos(moving));
        direction.figure(&op, "work_stay_ns", nanos(staying));
    }
    match report::check("chase.list", chase.check(), "") {
        true => Ok(()),
        false => Err(Error::msg("the list has led elsewhere")),
    }
}

/// Goes once around, and then on for [`RUN`] steps; how long these take.
fn follow(chase: &mut Chase, around: u32) -> Duration {
    chase.set(around, 0);
    chase.follow();
    chase.set(RUN, 0);
    let start = Instant::now();
    chase.follow();
    start.elapsed()
}

/// Other work, then a visit.
async fn visit<const HOME: u16, const AWAY: u16>(
    chase: &mut Chase,
    direction: &Direction,
) -> Result<()> {
    marker::begin::<HOME>();
    chase.work();
    direction.go().await?;
    marker::end::<AWAY>();
    marker::begin::<AWAY>();
    chase.follow();
    direction.come_back().await?;
    marker::end::<HOME>();
    Ok(())
}

/// Visits in windows, as many and one more, so that the other side sees the end of the last. The
/// slot.
async fn counted(chase: &mut Chase, direction: &Direction, size: u32, n: u32) -> Result<u16> {
    macro_rules! by_size {
        ($($i:literal),*) => {
            match size {
                $(size if size == SIZES[$i] => {
                    for _ in 0..=n {
                        visit::<{ at_home(FIRST_SLOT + 1 + $i) }, { away(FIRST_SLOT + 1 + $i) }>(
                            chase, direction,
                        )
                        .await?;
                    }
                    Ok(FIRST_SLOT + 1 + $i)
                })*
                _ => Err(Error::msg("there is no window for so many steps")),
            }
        };
    }
    by_size!(0, 1, 2, 3, 4, 5, 6, 7, 8)
}

/// Visits by the clock.
async fn visits(chase: &mut Chase, direction: &Direction, n: u32) -> Result<Duration> {
    let start = Instant::now();
    for _ in 0..n {
        chase.work();
        direction.go().await?;
        chase.follow();
        direction.come_back().await?;
    }
    Ok(start.elapsed())
}

/// As many from here.
fn stay(chase: &mut Chase, n: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..n {
        chase.work();
        chase.follow();
    }
    start.elapsed()
}

/// How many rounds of other work take about [`WORK`]; reports how long they do.
fn calibrate(chase: &mut Chase, direction: &Direction) -> u32 {
    const ROUNDS: u32 = 10_000;
    const TIMES: u32 = 4;
    let timed = |chase: &mut Chase, rounds: u32| {
        chase.set(0, rounds);
        chase.work();
        let start = Instant::now();
        for _ in 0..TIMES {
            chase.work();
        }
        nanos(start.elapsed())
    };
    let ns = timed(chase, ROUNDS).max(1);
    let rounds = nanos(WORK) * u64::from(TIMES) * u64::from(ROUNDS) / ns;
    let rounds = u32::try_from(rounds).unwrap_or(ROUNDS).max(1);
    let ns = timed(chase, rounds);
    direction.figure("pointer_chase", "works", TIMES.into());
    direction.figure("pointer_chase", "works_ns", ns);
    rounds
}
