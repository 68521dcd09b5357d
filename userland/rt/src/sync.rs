//! Locks and meeting points of threads, on any nodes, made of [`futex`].
//!
//! | type | for |
//! |---|---|
//! | [`Mutex`] | one thread at a time |
//! | [`RwLock`] | many readers, or one writer |
//! | [`Condvar`] | waiting for something that a mutex protects |
//! | [`Semaphore`] | so many threads at a time |
//! | [`Barrier`] | waiting until all have come |
//! | [`Once`], [`OnceLock`], [`LazyLock`] | something that happens once, a value that is made once, by its first user |
//!
//! No thread holds anything that the kernel, or another node, would have to be asked for. What is not
//! contended costs one atomic operation; waking one thread costs one `Send`.
//!
//! # When threads are lost
//!
//! A thread can be lost with its node while it holds a mutex, or before it comes to a barrier. What names the lost
//! thread then fails at once with `NodeDead`, and those that wait already are woken with it: [`Mutex::lock_or_lost`],
//! [`Barrier::wait`], [`Semaphore::acquire_or_lost`]. [`Mutex::lock`] and [`Once::call_once`] panic then;
//! [`Condvar::wait`] comes back.
//!
//! Mutexes, once-functions and reader-writer locks name the threads that have them: the loss of another thread means
//! nothing to them. Barriers and semaphores name no thread: a loss counts for them if it came after they were first
//! used. After an earlier loss, which may be of an unrelated thread, a waiter gets `NodeDead` if no thread has come for
//! [`PATIENCE_NS`].
//!
//! # In invocations
//!
//! The thread of an [invocation](dyad_sys::in_invocation) is another program's. It cannot wait, this program does not
//! learn when it is lost, and a panic ends the invocation without giving anything back. So nothing of this module can be
//! taken there:
//!
//! | in an invocation | |
//! |---|---|
//! | `try_lock`, `try_read`, `try_write` | give `None` |
//! | what ends in `_or_lost`, [`Barrier::wait`] | `Denied` |
//! | [`Mutex::lock`], [`RwLock::read`], [`RwLock::write`], [`Once::call_once`], [`OnceLock::get_or_init`], [`Semaphore::acquire`] | panic, which ends the invocation with `Corrupt` |
//! | [`Once`], [`OnceLock`] that are done; permits that are there; notifying | as elsewhere |
//!
//! Services share their state behind a [`Lock`](crate::Lock).

mod barrier;
mod condvar;
mod lazy_lock;
mod mutex;
mod once;
mod once_lock;
mod rwlock;
mod semaphore;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dyad_abi::{Error, Result};

use dyad_sys::thread;

use crate::futex::{self, What};

pub use barrier::{Barrier, Last};
pub use condvar::Condvar;
pub use lazy_lock::LazyLock;
pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
pub use once_lock::OnceLock;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;

/// How long a wait without a deadline sleeps at most before it looks again at what it waits for, in nanoseconds.
pub const PATIENCE_NS: u64 = 200_000_000;
/// How often a thread looks before it sleeps.
const SPINS: u32 = 100;

/// In words that name a thread: others wait for it.
const AWAITED: u32 = 1 << 31;

/// The name of the calling thread in words: 1 to 64.
///
/// # Errors
///
/// `Denied` in an invocation: if it ended with a panic, no other thread could find out that its thread has gone.
fn me() -> Result<u32> {
    let number = thread::number().ok_or(Error::Denied)?;
    Ok(number.get() as u32 + 1)
}

/// Panics because `what` could not be taken.
#[cold]
fn refused(what: &str, why: Error) -> ! {
    match why {
        Error::Denied => panic!("{what} cannot be taken in an invocation"),
        why => panic!("a thread that has {what} was lost: {why}"),
    }
}

/// Whether the thread that a word names was lost.
fn is_lost(word: u32) -> bool {
    match word & !AWAITED {
        n @ 1..=64 => thread::lost() >> (n - 1) & 1 != 0,
        _ => false,
    }
}

/// Waits for a change of a word that is `value`, for [`PATIENCE_NS`] at most: in an invocation, which
/// cannot sleep, hardly at all. Also comes back for no reason.
///
/// # Errors
///
/// `TimedOut`; `NodeDead` if a thread of the program was lost, as [`futex::wait`].
pub fn wait(word: &AtomicU32, value: u32) -> Result<()> {
    wait_for((What::Word, None), word, value)
}

/// The thread that a word names, as waits tell it.
fn owner(word: u32) -> Option<u8> {
    match word & !AWAITED {
        n @ 1..=64 => Some(n as u8 - 1),
        _ => None,
    }
}

/// Waits like [`wait`], for something of which a thread may be the owner.
fn wait_for(what: (What, Option<u8>), word: &AtomicU32, value: u32) -> Result<()> {
    let deadline = dyad_sys::now().map_or(1, |now| now + PATIENCE_NS);
    let waited = futex::wait_for(what, word, value, deadline);
    #[cfg(test)]
    if let Some(act) = WHEN_WAITED.take() {
        act();
    }
    match waited {
        Err(Error::Denied) => {
            dyad_sys::raw::relax();
            Ok(())
        }
        Err(Error::Again) => Ok(()),
        done => done,
    }
}

/// Waits as long as a word is `value`, until fused time reaches `deadline_ns`. Also comes back when a thread is lost.
fn wait_until(what: What, word: &AtomicU32, value: u32, deadline_ns: u64) -> Result<()> {
    match futex::wait_for((what, None), word, value, deadline_ns) {
        Ok(()) | Err(Error::Again | Error::NodeDead) => Ok(()),
        Err(e) => Err(e),
    }
}

/// The threads that had been lost when a barrier or a semaphore was first used.
struct LostBefore(AtomicU64);

/// [`LostBefore`] of what has not been used yet. The first thread is never in the set: its loss ends the program.
const UNUSED: u64 = 1;

impl LostBefore {
    const fn new() -> LostBefore {
        LostBefore(AtomicU64::new(UNUSED))
    }

    /// Notes the first use by a thread of the program. In an invocation the lost threads are not known.
    fn used(&self) {
        if thread::number().is_some() && self.0.load(Ordering::Relaxed) == UNUSED {
            // Of two that are first, one is.
            let now = thread::lost();
            let _ = (self.0).compare_exchange(UNUSED, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether a thread has been lost since the first use. Not in an invocation, for which no thread is lost.
    fn has_changed(&self) -> bool {
        thread::lost() & !self.0.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
std::thread_local! {
    /// What happens, once, when a wait of this thread has ended and nothing has been done about it yet: for tests of
    /// what is looked at last.
    static WHEN_WAITED: core::cell::Cell<Option<fn()>> = const { core::cell::Cell::new(None) };
}

#[cfg(test)]
mod tests;
