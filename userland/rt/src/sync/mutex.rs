//! A lock that sleeps.
//!
//! ```text
//!            lock                        a thread waits
//!   0 ──────────────▶ owner ─────────────────────────────────▶ owner | CONTENDED
//!   ▲                   │ unlock                                 │ unlock: wakes one
//!   └───────────────────┴────────────────────────────────────────┘
//! ```
//!
//! The word names the owner, so that those who wait can find out whether it has been lost. Who has
//! waited takes the lock as contended, because others may wait still.
//!
//! | step | order |
//! |---|---|
//! | take: exchange 0 for the owner | acquire |
//! | give back: swap 0; if it was contended, wake one | release |

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::{Error, Result};

use super::{AWAITED as CONTENDED, SPINS, is_lost, me, owner, refused, wait_for};
use crate::futex::{self, What};

/// A value that one thread at a time uses.
///
/// ```
/// use dyad_rt::sync::Mutex;
///
/// static TOTAL: Mutex<u64> = Mutex::new(0);
///
/// *TOTAL.lock() += 5;
/// assert_eq!(*TOTAL.lock(), 5);
/// ```
pub struct Mutex<T> {
    pub(super) word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: 1. One guard exists at a time, so sharing the mutex moves the value between threads but
// never shares it; that is what `Send` allows.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An open mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            word: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the mutex if it is open. `None` in an invocation.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.try_lock_as(me().ok()?)
    }

    fn try_lock_as(&self, me: u32) -> Option<MutexGuard<'_, T>> {
        self.word
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| MutexGuard::of(self))
    }

    /// Takes the mutex, waiting for it if need be.
    ///
    /// # Panics
    ///
    /// If the thread that has it was lost with its node: what it protects may be half changed. If the calling thread
    /// has it already; in an invocation.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.lock_or_lost() {
            Ok(guard) => guard,
            Err(e) => refused("a mutex", e),
        }
    }

    /// As [`lock`](Mutex::lock), with an error for a thread that was lost.
    ///
    /// # Errors
    ///
    /// `NodeDead` if the thread that has it was lost with its node. It stays taken;
    /// [`take_from_lost`](Mutex::take_from_lost) takes it over. `Denied` in an invocation.
    ///
    /// # Panics
    ///
    /// If the calling thread has it already.
    pub fn lock_or_lost(&self) -> Result<MutexGuard<'_, T>> {
        let me = me()?;
        match self.try_lock_as(me) {
            Some(guard) => Ok(guard),
            None => self.lock_contended(me),
        }
    }

    #[cold]
    fn lock_contended(&self, me: u32) -> Result<MutexGuard<'_, T>> {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == 0
                && let Some(guard) = self.try_lock_as(me)
            {
                return Ok(guard);
            }
            dyad_sys::raw::relax();
        }
        loop {
            let now = self.word.load(Ordering::Relaxed);
            if is_lost(now) {
                return Err(Error::NodeDead);
            }
            assert!(
                now & !CONTENDED != me,
                "a thread waits for a mutex that it has itself"
            );
            // Others may wait still, so a thread that has waited takes it as contended.
            let next = if now == 0 { me } else { now } | CONTENDED;
            if now != next
                && self
                    .word
                    .compare_exchange(now, next, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            if now == 0 {
                return Ok(MutexGuard::of(self));
            }
            // Whatever ends the wait: the owner is looked at again.
            let _ = wait_for((What::Mutex, owner(next)), &self.word, next);
        }
    }

    /// Takes the mutex over from a thread that was lost; `None` if it was not, and in an invocation. The value is as
    /// that thread has left it.
    ///
    /// # Safety
    ///
    /// No thread that lives uses a reference that the guard of the lost thread has given out. A thread can have one if
    /// the lost thread has lent the value, or a part of it, to threads of a scope, or has leaked its guard.
    pub unsafe fn take_from_lost(&self) -> Option<MutexGuard<'_, T>> {
        let me = me().ok()?;
        let now = self.word.load(Ordering::Relaxed);
        (is_lost(now)
            && self
                .word
                .compare_exchange(now, me | CONTENDED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok())
        .then(|| MutexGuard::of(self))
    }

    /// The value, of a mutex that no other thread has.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

/// Holds a [`Mutex`]; opens it when dropped.
///
/// It stays on its thread, which the mutex names:
///
/// ```compile_fail,E0277
/// fn is_send(_: impl Send) {}
/// is_send(dyad_rt::sync::Mutex::new(0).lock());
/// ```
///
/// Threads share it only if they may share the value:
///
/// ```compile_fail,E0277
/// use core::cell::Cell;
///
/// fn is_sync(_: impl Sync) {}
/// is_sync(dyad_rt::sync::Mutex::new(Cell::new(0)).lock());
/// ```
/// ```
/// fn is_sync(_: impl Sync) {}
/// is_sync(dyad_rt::sync::Mutex::new(0).lock());
/// ```
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Neither `Send` nor `Sync` by itself.
    of_thread: PhantomData<*const ()>,
}

// SAFETY: 1. All that a shared guard gives is a shared reference to the value, which `Sync` allows.
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T> MutexGuard<'a, T> {
    /// The calling thread has just taken the mutex.
    fn of(mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        MutexGuard {
            mutex,
            of_thread: PhantomData,
        }
    }

    /// The mutex it holds.
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: 1. The guard exists, so the thread that made it has the mutex. No other guard exists: the mutex is
        // taken from a thread only if that was lost and no reference of its guard is in use (`take_from_lost`).
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1. The guard exists, so its thread has the mutex. 2. `&mut self` excludes other references through this guard.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.mutex.word.swap(0, Ordering::Release) & CONTENDED != 0 {
            futex::wake(&self.mutex.word, 1);
        }
        #[cfg(test)]
        if let Some(act) = WHEN_GIVEN_BACK.take() {
            act();
        }
    }
}

#[cfg(test)]
std::thread_local! {
    /// What happens, once, when this thread has given a mutex back: for tests of what is missed then.
    pub(super) static WHEN_GIVEN_BACK: core::cell::Cell<Option<fn()>> =
        const { core::cell::Cell::new(None) };
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic::AtomicU64;

    use dyad_abi::{CpuId, NodeId};
    use dyad_host::{Config, run};
    use dyad_sys::{exit, thread};

    use super::*;

    /// Of three threads at a mutex one has it and two sleep. The one that is woken takes it as contended: it cannot
    /// know of the third, which no other thread would wake.
    #[test]
    fn a_thread_that_has_waited_wakes_those_that_wait_still() {
        static LOCK: Mutex<()> = Mutex::new(());
        /// The word that the woken thread has found, plus one.
        static FOUND: AtomicU64 = AtomicU64::new(0);

        fn entry(argument: u64) -> ! {
            let me = thread::Number::of_argument(argument).unwrap();
            if me != thread::Number::FIRST {
                let guard = LOCK.lock();
                let word = LOCK.word.load(Ordering::Relaxed);
                FOUND.store(u64::from(word) + 1, Ordering::Release);
                drop(guard);
                thread::end()
            }
            let guard = LOCK.lock();
            let (node, cpu) = (NodeId::new(0).unwrap(), CpuId::new(0).unwrap());
            thread::start(thread::Number::new(1).unwrap(), node, cpu).unwrap();
            // The other thread is about to sleep, or sleeps.
            while LOCK.word.load(Ordering::Relaxed) & CONTENDED == 0 {
                std::thread::yield_now();
            }
            drop(guard);
            let found = loop {
                match FOUND.load(Ordering::Acquire) {
                    0 => std::thread::yield_now(),
                    n => break n - 1,
                }
            };
            exit((found & u64::from(CONTENDED) != 0) as u32)
        }
        assert_eq!(run(Config::default(), entry).code, 1, "it is not marked");
    }
}
