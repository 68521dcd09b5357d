//! The threads that the worker works with: one that yields, one that receives, one that answers.
//!
//! Two of them end windows that the worker has begun: what is measured ends where the other thread
//! goes on. Each keeps a count, by which the worker knows that it has had its turn.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use dyad::sys::cap::{Cap, Stopped, Thread};
use dyad::sys::{Error, Result, marker, raw};
use dyad_abi::cap::{ReceiveOp, SendOp, ThreadOp};
use dyad_abi::marker::{BenchMemory, BenchOp};

use super::worker::{ENDPOINT, PARTNERS, PRIORITY, THREAD, TO, word};

/// Numbers of [`TO`] and of the lines behind it.
pub mod line {
    pub const NOBODY: usize = 0;
    pub const SWITCH: usize = 1;
    pub const PONG: usize = 2;
    pub const BACK: usize = 3;
}

/// The endpoint behind a sender of [`TO`]: not one of the scheduler's.
pub const fn line_number(n: usize) -> u64 {
    60 + n as u64
}

/// Numbers of [`PARTNERS`].
pub mod partner {
    pub const YIELDS: usize = 0;
    pub const SWITCH: usize = 1;
    pub const PONG: usize = 2;
}

static DONE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// How often a partner has done its part.
pub fn done(n: usize) -> u64 {
    DONE[n].load(Ordering::Relaxed)
}

/// The partner that the worker wants to be brought to where it waits, plus one; 0: none.
static WANTED: AtomicU64 = AtomicU64::new(0);

/// In the worker: has a partner brought to where it waits, with a higher priority than the worker's. A dispatcher
/// hands on no more priority than it has, so the main task does it, to which the worker yields.
///
/// # Errors
///
/// [`Error::NotReady`] if the main task has not done it; else as the kernel says.
pub fn settle(n: usize) -> Result<()> {
    WANTED.store(n as u64 + 1, Ordering::Relaxed);
    THREAD.yield_now()?;
    match WANTED.swap(0, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Error::NotReady),
    }
}

/// In the main task: the partner that the worker wants to be settled.
pub fn wanted() -> Option<usize> {
    let wanted = WANTED.load(Ordering::Relaxed).checked_sub(1)?;
    usize::try_from(wanted).ok()
}

/// In the main task: brings `partner` to where it waits.
///
/// # Errors
///
/// [`Error::Corrupt`] if it has ended or faulted; else as the kernel says.
pub fn settle_wanted(partner: Cap<Thread>) -> Result<()> {
    bring(partner)?;
    WANTED.store(0, Ordering::Relaxed);
    Ok(())
}

fn bring(partner: Cap<Thread>) -> Result<()> {
    loop {
        match partner.dispatch(0, PRIORITY + 1, None) {
            Ok(stop) => match stop.why {
                Stopped::Blocked | Stopped::Yielded => return Ok(()),
                Stopped::Preempted | Stopped::Interrupted => {}
                _ => return Err(Error::Corrupt),
            },
            // It waits.
            Err(Error::NotReady) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

const DISPATCH: [u16; 2] = windows(BenchOp::Dispatch);
const SWITCH: [u16; 2] = windows(BenchOp::AsyncSendSwitch);

const fn windows(op: BenchOp) -> [u16; 2] {
    [
        op.window(BenchMemory::Local).0,
        op.window(BenchMemory::Fused).0,
    ]
}

fn count(n: usize) {
    DONE[n].fetch_add(1, Ordering::Relaxed);
}

/// Ends the window `ID` each time it gets the CPU, and gives it back.
extern "C" fn yields<const ID: u16>(_: u64) -> ! {
    let give = word(PARTNERS[partner::YIELDS], ThreadOp::Yield as u32);
    loop {
        // SAFETY: 1. The call takes nothing.
        let _ = unsafe { raw::call_raw(give, [0; 5]) };
        marker::end::<ID>();
        count(partner::YIELDS);
    }
}

/// Ends the window `ID` each time something comes.
extern "C" fn receives<const ID: u16>(_: u64) -> ! {
    let receive = word(ENDPOINT, ReceiveOp::Receive as u32);
    loop {
        let line = line_number(line::SWITCH);
        // SAFETY: 1. The call takes nothing.
        let _ = unsafe { raw::call_raw(receive, [line, 0, 0, 0, 0]) };
        marker::end::<ID>();
        count(partner::SWITCH);
    }
}

/// Answers each message.
extern "C" fn answers(_: u64) -> ! {
    let receive = word(ENDPOINT, ReceiveOp::Receive as u32);
    let send = word(TO[line::BACK], SendOp::Send as u32);
    loop {
        let line = line_number(line::PONG);
        // SAFETY: 1. The calls take nothing.
        unsafe {
            let _ = raw::call_raw(receive, [line, 0, 0, 0, 0]);
            let _ = raw::call_raw(send, [0; 5]);
        }
        count(partner::PONG);
    }
}

/// Where the partners start.
pub fn entries(memory: BenchMemory) -> [u64; 3] {
    let (yields, receives): (extern "C" fn(u64) -> !, extern "C" fn(u64) -> !) = match memory {
        BenchMemory::Local => (yields::<{ DISPATCH[0] }>, receives::<{ SWITCH[0] }>),
        BenchMemory::Fused => (yields::<{ DISPATCH[1] }>, receives::<{ SWITCH[1] }>),
    };
    [yields, receives, answers].map(|f| f as *const () as u64)
}
