//! A lock that sleeps.
//!
//! ```text
//!            lock                        somebody waits
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
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::{Error, Result};

use super::{AWAITED as CONTENDED, SPINS, is_lost, me, wait};
use crate::futex;

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
    word: AtomicU32,
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

    /// Takes the mutex if it is open.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.word
            .compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| MutexGuard { mutex: self })
    }

    /// Takes the mutex, waiting for it if need be.
    ///
    /// # Panics
    ///
    /// If the thread that has it was lost with its node: what it protects may be half changed.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.lock_or_lost() {
            Ok(guard) => guard,
            Err(e) => panic!("the thread that holds a mutex was lost: {e}"),
        }
    }

    /// As [`lock`](Mutex::lock), with an error for a thread that was lost.
    ///
    /// # Errors
    ///
    /// `NodeDead` if the thread that has it was lost with its node. It stays taken;
    /// [`take_from_lost`](Mutex::take_from_lost) is for those who know what to do.
    pub fn lock_or_lost(&self) -> Result<MutexGuard<'_, T>> {
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => self.lock_contended(),
        }
    }

    #[cold]
    fn lock_contended(&self) -> Result<MutexGuard<'_, T>> {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == 0
                && let Some(guard) = self.try_lock()
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
            // Others may wait still, so whoever has waited takes it as contended.
            let next = if now == 0 { me() } else { now } | CONTENDED;
            if now != next
                && self
                    .word
                    .compare_exchange(now, next, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            if now == 0 {
                return Ok(MutexGuard { mutex: self });
            }
            // Whatever ends the wait: the owner is looked at again.
            let _ = wait(&self.word, next);
        }
    }

    /// Whether the thread that has it was lost.
    fn is_lost(&self) -> bool {
        is_lost(self.word.load(Ordering::Relaxed))
    }

    /// Takes the mutex over from a thread that was lost; `None` if it was not. The value is as that
    /// thread has left it.
    pub fn take_from_lost(&self) -> Option<MutexGuard<'_, T>> {
        let now = self.word.load(Ordering::Relaxed);
        (self.is_lost()
            && self
                .word
                .compare_exchange(now, me() | CONTENDED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok())
        .then(|| MutexGuard { mutex: self })
    }

    /// The value, of a mutex that nobody else has.
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
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
}

impl<'a, T> MutexGuard<'a, T> {
    /// The mutex it holds.
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: 1. The guard exists, so this thread holds the mutex and nobody else has access.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1. As above. 2. `&mut self` excludes other references through this guard.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.mutex.word.swap(0, Ordering::Release) & CONTENDED != 0 {
            futex::wake(&self.mutex.word, 1);
        }
    }
}
