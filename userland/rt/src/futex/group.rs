//! The table of a program that is a process on each node: at the first node, asked by way of the peers.
//!
//! ```text
//!   waiter: BEGIN ──▶ listed ──▶ looks at the word ──▶ sleeps ──▶ END: taken or not
//!   waker:  changes the word ──▶ WAKE ──▶ takes threads off the list ──▶ each is woken where it is
//! ```
//!
//! A waiter that is listed before a waker takes threads off sees its wake-up; one that is listed afterwards sees the word
//! that the waker has changed, since the page came to it after that.

use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::service::{process, slot};
use dyad_abi::{Error, Result};
use dyad_sys::cap::{Cap, Sinv};
use dyad_sys::thread;

const PROCESS: Cap<Sinv> = Cap::at(slot::PROCESS);

fn ask(what: u64, key: u64, count: u64) -> Result<u64> {
    PROCESS.request([what, key, count, 0])
}

/// As [`wait`](super::wait).
pub(super) fn wait(word: &AtomicU32, value: u32, deadline_ns: u64) -> Result<()> {
    let key = super::key(word);
    loop {
        ask(process::FUTEX_BEGIN, key, 0)?;
        let woken = match word.load(Ordering::SeqCst) == value {
            false => Err(Error::Again),
            true => thread::wait(deadline_ns),
        };
        match (ask(process::FUTEX_END, key, 0)?, woken) {
            (1.., _) => return Ok(()),
            // Meant an earlier wait of this thread, that had ended before.
            (0, Ok(true)) => {}
            (0, Ok(false)) => return Err(Error::TimedOut),
            (0, Err(e)) => return Err(e),
        }
    }
}

/// As [`wake`](super::wake). A group that has ended has no threads to wake.
pub(super) fn wake(key: u64, count: u32) -> u32 {
    ask(process::FUTEX_WAKE, key, count.into()).map_or(0, |woken| woken as u32)
}
