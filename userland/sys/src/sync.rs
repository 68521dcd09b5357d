//! Locks and meeting points of threads, on any nodes, made of [`futex`].
//!
//! | type | for |
//! |---|---|
//! | [`Mutex`] | one thread at a time |
//! | [`Condvar`] | waiting for something that a mutex protects |
//! | [`Semaphore`] | so many threads at a time |
//! | [`Barrier`] | waiting until all have come |
//! | [`Once`] | something that happens once |
//!
//! Nobody holds anything that the kernel, or another node, would have to be asked for. What is not
//! contended costs one atomic operation; waking one thread costs one `Send`.
//!
//! # When threads are lost
//!
//! A thread can be lost with its node while it holds a mutex, or before it comes to a barrier. Whoever
//! waits looks every [`PATIENCE_NS`] whether that has happened, and gets `NodeDead` instead of waiting
//! for ever: [`Mutex::lock_or_lost`], [`Barrier::wait`]. [`Mutex::lock`] and [`Once::call_once`]
//! panic then.

mod barrier;
mod condvar;
mod mutex;
mod once;
mod semaphore;

use core::sync::atomic::AtomicU32;

use dyad_abi::{Error, Result};

use crate::{futex, thread};

pub use barrier::{Barrier, Last};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
pub use semaphore::Semaphore;

/// How long somebody who waits for ever waits before it looks whether threads have been lost, in
/// nanoseconds.
pub const PATIENCE_NS: u64 = 200_000_000;
/// How often a thread looks before it sleeps.
const SPINS: u32 = 100;

/// In words that name a thread: others wait for it.
const AWAITED: u32 = 1 << 31;
/// A thread that is none of the program's: one of another's, in an invocation.
const STRANGER: u32 = AWAITED - 2;

/// What stands for the calling thread: never 0.
fn me() -> u32 {
    thread::number().map_or(STRANGER, |n| n.get() as u32 + 1)
}

/// Whether the thread that a word names was lost.
fn is_lost(word: u32) -> bool {
    match word & !AWAITED {
        n @ 1..=64 => lost() >> (n - 1) & 1 != 0,
        _ => false,
    }
}

/// Waits for a change of a word that is `value`, for [`PATIENCE_NS`] at most: in an invocation, which
/// cannot sleep, hardly at all. `false`: the time is over, and it is time to look for lost threads.
pub fn wait(word: &AtomicU32, value: u32) -> bool {
    let deadline = crate::now().map_or(1, |now| now + PATIENCE_NS);
    match futex::wait(word, value, deadline) {
        Err(Error::TimedOut) => false,
        Err(Error::Denied) => {
            crate::raw::relax();
            true
        }
        _ => true,
    }
}

/// Waits as long as a word is `value`, until fused time reaches `deadline_ns`.
fn wait_until(word: &AtomicU32, value: u32, deadline_ns: u64) -> Result<()> {
    match futex::wait(word, value, deadline_ns) {
        Ok(()) | Err(Error::Again) => Ok(()),
        Err(e) => Err(e),
    }
}

/// The threads that have been lost: bit by number. None if nobody can be asked.
fn lost() -> u64 {
    thread::lost().unwrap_or(0)
}
