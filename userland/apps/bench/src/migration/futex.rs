//! Contended wake-ups: a thread on the other side waits for a word, the one here changes it and wakes
//! the other.
//!
//! | figure of `futex_contended_wake` | what |
//! |---|---|
//! | `n`, `ns` | wake-ups that have found a thread that waits; from before the wake-up until the other thread is back |
//! | `doorbells_milli`, `messages_milli` | thousandths of what was rung and sent between two readings of the kernel's counters just before and just after such a wake-up |
//! | `doorbells_most` | most doorbells of one of them |
//!
//! A window is around the call here, and around the call of the one that waits, from before it sleeps.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dyad::futex;
use dyad::prelude::task::*;
use dyad::sys::marker;
use dyad::thread;
use dyad_abi::clock::KernelCounter;

use crate::figures::{Direction, at_home, away};

const OP: &str = "futex_contended_wake";
const SLOT: u16 = 2;
/// Repetitions that do not count.
const WARM_UP: u32 = 8;
/// How long the other thread is given to fall asleep. More than an idle CPU polls.
const REST: Duration = Duration::from_micros(60);
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is waited for, and what both know of each other. The last two are in a line of their own.
struct Table {
    word: AtomicU32,
    other: Line,
}

#[repr(align(64))]
struct Line {
    /// How often the other thread has begun to wait.
    begun: AtomicU32,
    /// How often it is back.
    back: AtomicU32,
    /// When it was back last, in nanoseconds.
    when: AtomicU64,
}

static TABLE: Table = Table {
    word: AtomicU32::new(0),
    other: Line {
        begun: AtomicU32::new(0),
        back: AtomicU32::new(0),
        when: AtomicU64::new(0),
    },
};

/// Nothing else is in the window.
#[inline(never)]
fn wake() -> u32 {
    marker::window::<{ at_home(SLOT) }, _>(|| futex::wake(&TABLE.word, 1))
}

/// The window contains nothing else.
#[inline(never)]
fn wait(old: u32, deadline: u64) -> Result<(), dyad::sys::Error> {
    marker::window::<{ away(SLOT) }, _>(|| futex::wait(&TABLE.word, old, deadline))
}

/// The thread on the other side.
fn sleeper(times: u32) -> Result<(), dyad::sys::Error> {
    for n in 1..=times {
        if n == WARM_UP {
            marker::forget::<{ away(SLOT) }>();
        }
        TABLE.other.begun.store(n, Ordering::Release);
        let deadline = (Instant::now() + PATIENCE).as_nanos();
        while TABLE.word.load(Ordering::Acquire) < n {
            match wait(n - 1, deadline) {
                Ok(()) | Err(dyad::sys::Error::Again) => {}
                Err(e) => return Err(e),
            }
        }
        let now = Instant::now().as_nanos();
        TABLE.other.when.store(now, Ordering::Relaxed);
        TABLE.other.back.store(n, Ordering::Release);
    }
    Ok(())
}

/// Looks until the other thread has come so far.
fn until(reached: &AtomicU32, n: u32) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while reached.load(Ordering::Acquire) < n {
        if Instant::now() > end {
            return Err(Error::msg("the other thread does not come back"));
        }
    }
    Ok(())
}

/// Measures `times` wake-ups.
pub async fn measure(direction: &Direction, times: u32) -> Result<()> {
    let all = WARM_UP + times;
    let other = thread::spawn_on(direction.away, move || sleeper(all))?;
    let (mut contended, mut taken) = (0u64, 0);
    let (mut rung, mut most, mut sent) = (0, 0, 0);
    let count = dyad::sys::kernel_count;
    for n in 1..=all {
        until(&TABLE.other.begun, n)?;
        let rested = Instant::now() + REST;
        while Instant::now() < rested {}
        if n == WARM_UP {
            marker::forget::<{ at_home(SLOT) }>();
        }
        let start = Instant::now();
        TABLE.word.store(n, Ordering::Release);
        let (bells, messages) = (
            count(KernelCounter::Doorbells)?,
            count(KernelCounter::Messages)?,
        );
        let woken = wake();
        let bells = count(KernelCounter::Doorbells)?.saturating_sub(bells);
        let messages = count(KernelCounter::Messages)?.saturating_sub(messages);
        until(&TABLE.other.back, n)?;
        if n > WARM_UP && woken == 1 {
            contended += 1;
            rung += bells;
            most = bells.max(most);
            sent += messages;
            taken += TABLE
                .other
                .when
                .load(Ordering::Relaxed)
                .saturating_sub(start.as_nanos());
        }
    }
    other.join()??;
    if contended * 2 < times.into() {
        return Err(Error::msg(format_args!(
            "only {contended} of {times} wake-ups were contended"
        )));
    }
    direction.figure(OP, "slot", SLOT.into());
    direction.took(OP, contended, Duration::from_nanos(taken));
    direction.figure(OP, "doorbells_milli", rung * 1000 / contended);
    direction.figure(OP, "messages_milli", sent * 1000 / contended);
    direction.figure(OP, "doorbells_most", most);
    Ok(())
}
