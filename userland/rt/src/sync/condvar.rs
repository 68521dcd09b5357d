//! Waiting for something that a mutex protects.

use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::{Error, Result};

use super::{MutexGuard, wait_for, wait_until};
use crate::futex::{self, What};

/// A condition: threads wait until others say that it may hold now.
///
/// The word counts notifications. A waiter reads it before it gives the mutex back, so that one that
/// comes in between is not missed.
pub struct Condvar {
    pub(super) count: AtomicU32,
}

impl Condvar {
    /// A condition that no thread waits for.
    pub const fn new() -> Condvar {
        Condvar {
            count: AtomicU32::new(0),
        }
    }

    /// Gives the mutex back, waits to be notified, and takes it again. Also comes back for no reason, and when a
    /// thread of the program is lost, which may be the one that would have notified: a caller that waits for one thread
    /// asks [`is_lost`](dyad_sys::thread::is_lost).
    ///
    /// # Panics
    ///
    /// As [`Mutex::lock`](super::Mutex::lock).
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        let count = self.count.load(Ordering::Relaxed);
        drop(guard);
        while wait_for((What::Condition, None), &self.count, count) == Err(Error::TimedOut) {}
        mutex.lock()
    }

    /// Waits as long as the condition says so. The condition is evaluated again when a thread of the program is lost.
    ///
    /// # Panics
    ///
    /// As [`wait`](Condvar::wait).
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// As [`wait`](Condvar::wait), until fused time reaches `deadline_ns` at most; `false`: it has.
    ///
    /// # Panics
    ///
    /// As [`wait`](Condvar::wait).
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline_ns: u64,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex = guard.mutex();
        let count = self.count.load(Ordering::Relaxed);
        drop(guard);
        let woken: Result<()> = wait_until(What::Condition, &self.count, count, deadline_ns);
        (mutex.lock(), woken != Err(Error::TimedOut))
    }

    /// Wakes one thread that waits. Gives how many were woken: 0 or 1.
    pub fn notify_one(&self) -> u32 {
        self.notify(1)
    }

    /// Wakes all threads that wait. Gives how many.
    pub fn notify_all(&self) -> u32 {
        self.notify(u32::MAX)
    }

    fn notify(&self, most: u32) -> u32 {
        self.count.fetch_add(1, Ordering::Release);
        futex::wake(&self.count, most)
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}
