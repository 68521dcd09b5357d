//! The small operations: a migration there and back, calls that cross, and the first touch of memory
//! from the other side.

use core::hint::black_box;
use core::mem::MaybeUninit;

use dyad::prelude::task::*;
use dyad::report;
use dyad::sys::marker;
use dyad_abi::clock::KernelCounter;
use dyad_abi::user::PAGE_SIZE;

use super::crossing;
use crate::figures::{Direction, at_home, away, nanos};

const PING_PONG: u16 = 0;
const FAULT: u16 = 1;
/// Repetitions that do not count.
const WARM_UP: u32 = 8;

/// Measures all small operations.
pub async fn measure(direction: &Direction, times: u32) -> Result<()> {
    ping_pong(direction, times).await?;
    crossing::measure(direction, times)?;
    remote_fault(direction, times).await
}

/// There and back, awaiting both: in windows, by the clock, and by the clock with looks at it in
/// between.
async fn ping_pong(direction: &Direction, times: u32) -> Result<()> {
    const OP: &str = "async_ping_pong";
    const HOME: u16 = at_home(PING_PONG);
    const AWAY: u16 = away(PING_PONG);
    for i in 0..WARM_UP + times {
        if i == WARM_UP {
            marker::forget::<HOME>();
        }
        marker::begin::<HOME>();
        direction.go().await?;
        // A window of the other side is from one arrival to the next.
        marker::end::<AWAY>();
        if i == WARM_UP {
            marker::forget::<AWAY>();
        }
        marker::begin::<AWAY>();
        direction.come_back().await?;
        marker::end::<HOME>();
    }
    direction.go().await?;
    marker::end::<AWAY>();
    direction.come_back().await?;
    direction.figure(OP, "slot", PING_PONG.into());

    let start = Instant::now();
    for _ in 0..times {
        direction.go().await?;
        direction.come_back().await?;
    }
    direction.took(OP, times.into(), start.elapsed());

    let mut phases = [0; 3];
    let start = Instant::now();
    let mut last = start;
    let mut pass = |phase: usize| {
        let now = Instant::now();
        phases[phase] += nanos(now - last);
        last = now;
    };
    for _ in 0..times {
        direction.go().await?;
        pass(0);
        pass(1);
        direction.come_back().await?;
        pass(2);
    }
    let whole = start.elapsed();
    direction.figure(OP, "phased", times.into());
    direction.figure(OP, "phased_ns", nanos(whole));
    for (name, ns) in ["out_ns", "there_ns", "back_ns"].into_iter().zip(phases) {
        direction.figure(OP, name, ns);
    }
    Ok(())
}

/// The first byte of a page that nobody has touched. Nothing else is in the window.
#[inline(never)]
fn touch(page: &mut MaybeUninit<u8>) {
    marker::window::<{ away(FAULT) }, _>(|| {
        black_box(page.write(1));
    });
}

/// Memory that the program has asked for where it began, touched first on the other side.
async fn remote_fault(direction: &Direction, times: u32) -> Result<()> {
    const OP: &str = "remote_fault";
    const PAGE: usize = PAGE_SIZE as usize;
    let pages = (WARM_UP + 3 * times) as usize;
    let mut memory: Vec<u8> = Vec::with_capacity((pages + 2) * PAGE);
    let spare = memory.spare_capacity_mut();
    // Nobody has written to the middle of the first page, nor to what comes after it; where the pages
    // begin does not matter.
    let mut fresh = spare.iter_mut().skip(PAGE + PAGE / 2).step_by(PAGE);
    let mut next = || {
        let page = fresh.next();
        page.ok_or(Error::msg("there are no pages left"))
    };
    direction.go().await?;
    for i in 0..WARM_UP + times {
        touch(next()?);
        if i + 1 == WARM_UP {
            marker::forget::<{ away(FAULT) }>();
        }
    }
    let start = Instant::now();
    let mut last = None;
    for _ in 0..times {
        last = Some(next()?.write(1));
    }
    let time = start.elapsed();
    let count = || dyad::sys::kernel_count(KernelCounter::Messages);
    let mut sent = 0;
    for _ in 0..times {
        let byte = next()?;
        let before = count()?;
        byte.write(1);
        sent += count()? - before;
    }
    let place = dyad::sys::translate(last.map_or(0, |b| (&raw const *b).addr() as u64), isa())?;
    direction.come_back().await?;
    let pool = system()?.pool_of(place.physical);
    let there = pool.is_some_and(|p| p.owner == Some(direction.away));
    let detail = match pool {
        Some(pool) => format!("touched on node {}, from the pool {pool}", direction.away),
        None => format!("touched on node {}, in no pool", direction.away),
    };
    if !report::check("fault.where", there, detail) {
        return Err(Error::msg("memory is not where it was touched first"));
    }
    // It is the other side that takes them.
    let faults = Direction {
        isa: direction.isa.other(),
        ..*direction
    };
    faults.figure(OP, "slot", FAULT.into());
    faults.took(OP, times.into(), time);
    faults.figure(OP, "messages_milli", sent * 1000 / u64::from(times));
    Ok(())
}
