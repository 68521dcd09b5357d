//! Opens windows of measurement around code whose counts are known, on every ISA. The tests of
//! the simulator's plugin compare what it reports.
//!
//! | window | contents | what must be counted |
//! |---|---|---|
//! | `FREE` | nothing | 0 of everything |
//! | `FREE + 1` | seven no-operations | 7 instructions |
//! | `FREE + 2` | one atomic addition | 1 atomic, 1 access, 1 line |
//! | `FREE + 3` | a read of each of 16 lines | 16 accesses, 16 lines |
//! | `FREE + 4` | a system call | the same each time |
//! | `FREE + 5` | abandoned | no sample |
//! | `FREE + 6` | a full fence | a fence, or the atomic that a compiler takes for one |
//! | `FREE + 7` | sleep, so an interrupt | no sample but interrupted ones |
//! | `FREE + 8` | never ended: another one begins | no sample |
#![no_std]
#![no_main]
// Assembly, in one function.
#![deny(unsafe_code)]

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad::prelude::task::*;
use dyad::report;
use dyad::sys::{self, marker};
use dyad_abi::clock::{ClockCall, SimCounter};
use dyad_abi::marker::WindowId;

/// How often each window is opened per ISA.
const REPETITIONS: u64 = 40;
const FIRST: u16 = WindowId::FREE;

/// A cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

#[allow(unsafe_code)]
#[inline(always)]
fn seven_nops() {
    // SAFETY: 1. Has no effect on any ISA.
    unsafe {
        core::arch::asm!(
            "nop",
            "nop",
            "nop",
            "nop",
            "nop",
            "nop",
            "nop",
            options(nostack, preserves_flags)
        );
    }
}

// Each window is a function of its own: nothing else is in it that the compiler could move about.

#[inline(never)]
fn empty() {
    marker::begin::<FIRST>();
    marker::end::<FIRST>();
}

#[inline(never)]
fn nops() {
    marker::window::<{ FIRST + 1 }, _>(seven_nops);
}

#[inline(never)]
fn add(word: &AtomicU64) {
    marker::window::<{ FIRST + 2 }, _>(|| word.fetch_add(1, Ordering::Relaxed));
}

#[inline(never)]
fn read(lines: &[Line; 16]) {
    marker::begin::<{ FIRST + 3 }>();
    for line in lines {
        // Atomic, so that each is one load that is neither left out nor merged.
        line.0.load(Ordering::Relaxed);
    }
    marker::end::<{ FIRST + 3 }>();
}

#[inline(never)]
fn call() -> Result<()> {
    Ok(marker::window::<{ FIRST + 4 }, _>(sys::where_am_i).map(drop)?)
}

#[inline(never)]
fn abandoned() {
    marker::begin::<{ FIRST + 5 }>();
    seven_nops();
    marker::abandon();
    marker::end::<{ FIRST + 5 }>();
}

#[inline(never)]
fn full_fence() {
    marker::window::<{ FIRST + 6 }, _>(|| fence(Ordering::SeqCst));
}

#[inline(never)]
fn sleep_a_little() -> Result<()> {
    let soon = sys::now()? + 2_000_000;
    Ok(marker::window::<{ FIRST + 7 }, _>(|| {
        sys::sleep_until(soon)
    })?)
}

/// Whether time goes on as before after this program has made every call of the clock that changes something.
fn clock_calls_are_the_kernel_s() -> Result<bool> {
    let before = sys::now()?;
    marker::clock::<{ ClockCall::Sync as u16 }>();
    marker::clock::<{ ClockCall::Ring as u16 }>();
    marker::clock::<{ ClockCall::Console as u16 }>();
    marker::clock::<{ ClockCall::Pause as u16 }>();
    marker::clock::<{ ClockCall::Exit as u16 }>();
    let after = sys::now()?;
    sys::sleep_until(after + 1_000_000)?;
    let slept = sys::now()? - after;
    Ok(before < after && (1_000_000..10_000_000).contains(&slept))
}

/// Whether the simulator's count of instructions, read by the program itself, grows by the same number
/// each time that it is read.
fn counters_grow() -> Result<bool> {
    let read = || sys::sim_count(SimCounter::Instructions);
    // The first calls of an operation are longer.
    let _ = (read()?, read()?);
    let (a, b, c) = (read()?, read()?, read()?);
    Ok(a < b && b - a == c - b)
}

fn once(lines: &[Line; 16]) -> Result<()> {
    empty();
    nops();
    add(&lines[0].0);
    read(lines);
    call()?;
    abandoned();
    full_fence();
    marker::begin::<{ FIRST + 8 }>();
    Ok(())
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&[])?;
    let lines: Box<[Line; 16]> = black_box(Box::default());
    let (mut counted, mut goes_on) = (true, true);
    for _ in Isa::ALL {
        // The first call on a node is longer.
        sys::where_am_i()?;
        for _ in 0..REPETITIONS {
            once(&lines)?;
        }
        counted &= counters_grow()?;
        sleep_a_little()?;
        goes_on &= clock_calls_are_the_kernel_s()?;
        migrate(isa().other()).await?;
    }
    let total = lines[0].0.load(Ordering::Relaxed);
    report::check("sim-windows.made", total == 2 * REPETITIONS, total);
    report::check("sim-windows.counters", counted, "read by the program");
    let what = "calls of the clock by the program";
    report::check("sim-windows.clock", goes_on, what);
    Ok(())
}
