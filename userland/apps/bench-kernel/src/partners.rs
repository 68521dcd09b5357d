//! The threads that the worker works with: one that yields, one that receives, one that answers.
//!
//! Two of them end windows that the worker has begun: what is measured ends where the other thread
//! goes on. Each keeps a count, by which the worker knows that it has had its turn.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use dyad::sys::cap::Stopped;
use dyad::sys::{Error, Result, marker, raw};
use dyad_abi::cap::{ReceiveOp, SendOp, ThreadOp};
use dyad_abi::marker::{BenchMemory, BenchOp};

use crate::worker::{ENDPOINT, PARTNERS, PRIORITY, TO, word};

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

/// Brings a partner to where it waits.
///
/// # Errors
///
/// [`Error::Corrupt`] if it has ended or faulted; else as the kernel says.
pub fn settle(n: usize) -> Result<()> {
    loop {
        match PARTNERS[n].dispatch(0, PRIORITY + 1, None) {
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
