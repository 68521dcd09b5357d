//! A program of plain threads lets its threads be moved while they compute, and then gives its first thread to tasks. From
//! there on only that thread can be moved so, and ends where its executor is between two rounds.
//!
//! | check | what |
//! |---|---|
//! | `emulate-begin.refused` | a request for another thread is refused (`Denied`) |
//! | `emulate-begin.moved` | the first thread ends on the node that was asked for, natively, each way |
//! | `emulate-begin.result` | what was computed, partly natively, partly interpreted, is what was computed before |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use dyad::emulation::{self, Progress, status};
use dyad::prelude::thread::*;
use dyad::{report, sys, task, thread};

/// How long a move may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Moves, there and back.
const WAYS: u64 = 4;

static END: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn compute(seed: u64) -> u64 {
    (0..1000u64).fold(seed, |value, n| {
        value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(n)
            .rotate_left((value >> 58) as u32)
    })
}

#[dyad::main]
fn main(args: Args) -> Result<()> {
    args.expect_options(&[])?;
    emulation::enable()?;
    // It computes, and comes to no point.
    let other = thread::spawn(|| {
        while !END.load(Ordering::Acquire) {
            core::hint::black_box(compute(1));
        }
    })?;
    task::run(tasks(other))
}

fn progress() -> Result<Progress> {
    Ok(emulation::progress().ok_or(sys::Error::NotReady)?)
}

/// Moves the first thread to a node while it computes. Gives whether the thread has arrived, and whether all results were
/// right.
async fn go(to: NodeId, landings: u64) -> Result<(bool, bool)> {
    let (begin, expected) = (Instant::now(), compute(landings));
    emulation::request(to, begin)?;
    let mut same = true;
    loop {
        let p = progress()?;
        match p.status {
            status::EMULATED => break,
            // The node has died, for example.
            status::BACK | status::IDLE => return Err(Error::msg(format!("it {p}"))),
            _ if begin.elapsed() > PATIENCE => {
                return Err(Error::msg(format!("it {p}, for too long")));
            }
            _ => same &= compute(landings) == expected,
        }
    }
    same &= compute(landings) == expected;
    // The poll ends, and with it what is interpreted.
    task::yield_now().await;
    let p = progress()?;
    println!("to {to}: it {p}");
    let landed = p.status == status::LANDED && p.landings == landings;
    let there = sys::where_am_i()?.node;
    Ok((landed && there == to && dyad::node() == to, same))
}

async fn tasks(other: thread::JoinHandle<()>) -> Result<()> {
    let home = dyad::node();
    let away = dyad::system()?.nearest(isa().other(), home);
    let away = away.ok_or(sys::Error::NoIsa)?;
    let number = other.thread().number();
    let refused = emulation::request_thread(number, away, Instant::now());
    report::check(
        "emulate-begin.refused",
        refused == Err(sys::Error::Denied),
        format_args!("{refused:?}"),
    );
    let (mut moved, mut right) = (0, 0);
    for way in 0..WAYS {
        let to = if way % 2 == 0 { away } else { home };
        let (there, same) = go(to, way + 1).await?;
        moved += u64::from(there);
        right += u64::from(same);
    }
    report::check(
        "emulate-begin.moved",
        moved == WAYS,
        format_args!("{moved} of {WAYS}"),
    );
    report::check(
        "emulate-begin.result",
        right == WAYS,
        format_args!("{right} of {WAYS}"),
    );
    END.store(true, Ordering::Release);
    other.join()
}
