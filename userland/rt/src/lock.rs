//! A lock for short critical sections, usable from both ISAs at once.
//!
//! | step | ordering | why |
//! |---|---|---|
//! | take: exchange 0 for the holder | Acquire | sees everything the last holder wrote |
//! | give back: store 0 | Release | shows the next holder everything written under the lock |
//!
//! A waiter spins a bounded number of times and then yields the CPU: the holder may be a thread of
//! the same CPU. In an invocation of a service it cannot yield, and spins until the holder has had
//! its turn: so threads that meet in a service should have one priority, or use
//! [`try_lock`](Lock::try_lock) and leave the waiting to the caller.
//!
//! The word names the holder. A waiter looks before each yield whether that thread was lost with its
//! node, and panics then, or is told: what the lock protects may be half changed, and no thread would open it.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dyad_abi::user::waiting::{Waiting, What};
use dyad_sys::{tcb, thread};

/// Tries between two yields.
const SPINS: u32 = 200;
/// A holder that is no thread of the program.
const STRANGER: u32 = u32::MAX;

/// A value behind a spin-then-yield lock.
///
/// ```
/// use dyad_rt::Lock;
///
/// static NAMES: Lock<[Option<&str>; 4]> = Lock::new([None; 4]);
///
/// NAMES.lock()[2] = Some("two");
/// let held = NAMES.lock();
/// assert!(NAMES.try_lock().is_none());
/// assert_eq!(held[2], Some("two"));
/// ```
pub struct Lock<T> {
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: 1. `lock` hands out one guard at a time, so sharing the lock moves the value between
// threads but never shares it; that is what `Send` allows.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An open lock.
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            taken: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock if it is open.
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        // Looking first keeps the line shared while another thread holds the lock.
        let open = self.taken.load(Ordering::Relaxed) == 0;
        // A guard that exists for a moment only would open the lock all the same.
        (open
            && self
                .taken
                .compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed)
                .is_ok())
        .then(|| LockGuard {
            lock: self,
            of_thread: PhantomData,
        })
    }

    /// The lock is held by that thread.
    #[cfg(test)]
    pub(crate) fn hold_as(&self, thread: u32) {
        self.taken.store(thread + 1, Ordering::Relaxed);
    }

    /// Takes the lock, waiting for it if need be.
    ///
    /// # Panics
    ///
    /// If its holder was lost with its node.
    pub fn lock(&self) -> LockGuard<'_, T> {
        match self.lock_or_lost() {
            Ok(guard) => guard,
            Err(holder) => panic!("thread {holder} was lost with its node while it held a lock"),
        }
    }

    /// Takes the lock, waiting for it if need be, or gives the number of the holder that was lost with its node: the lock never opens
    /// then.
    pub fn lock_or_lost(&self) -> Result<LockGuard<'_, T>, u32> {
        let mut waits = None;
        loop {
            for _ in 0..SPINS {
                if let Some(guard) = self.try_lock() {
                    if let Some(word) = waits {
                        tell(word, 0);
                    }
                    return Ok(guard);
                }
                dyad_sys::raw::relax();
            }
            let holder = self.taken.load(Ordering::Relaxed);
            if is_lost(holder) {
                if let Some(word) = waits {
                    tell(word, 0);
                }
                return Err(holder - 1);
            }
            if !dyad_sys::in_invocation() {
                let word = &tcb::block().waiting;
                let waiting = Waiting {
                    what: What::Spin,
                    owner: holder.checked_sub(1).and_then(|n| u8::try_from(n).ok()),
                    at: self.taken.as_ptr().expose_provenance() as u64,
                };
                tell(word, waiting.pack());
                waits = Some(word);
            }
            dyad_sys::yield_now();
        }
    }
}

/// Says in reports about runs that hang what the thread waits for.
#[cold]
fn tell(word: &AtomicU64, waiting: u64) {
    word.store(waiting, Ordering::Relaxed);
}

/// The number of the calling thread as a holder: never 0.
fn me() -> u32 {
    thread::number().map_or(STRANGER, |n| n.get() as u32 + 1)
}

/// Whether a holder is a thread of this program that was lost. Always `false` in services, which have no lost
/// threads.
#[cold]
fn is_lost(holder: u32) -> bool {
    matches!(holder, 1..=64)
        && !dyad_sys::in_invocation()
        && thread::lost() >> (holder - 1) & 1 != 0
}

/// Holds a [`Lock`]; opens it when dropped.
///
/// It stays on its thread, which the lock names:
///
/// ```compile_fail,E0277
/// fn is_send(_: impl Send) {}
/// is_send(dyad_rt::Lock::new(0).lock());
/// ```
///
/// Threads share it only if they may share the value:
///
/// ```compile_fail,E0277
/// use core::cell::Cell;
///
/// fn is_sync(_: impl Sync) {}
/// is_sync(dyad_rt::Lock::new(Cell::new(0)).lock());
/// ```
/// ```
/// fn is_sync(_: impl Sync) {}
/// is_sync(dyad_rt::Lock::new(0).lock());
/// ```
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
    /// Makes the type neither `Send` nor `Sync` by itself.
    of_thread: PhantomData<*const ()>,
}

// SAFETY: 1. All that a shared guard gives is a shared reference to the value, which `Sync` allows.
unsafe impl<T: Sync> Sync for LockGuard<'_, T> {}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: 1. The guard exists, so the thread that made it has the lock, and there is no other guard: a lock is
        // never taken from its holder.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1. The guard exists, so its thread has the lock. 2. `&mut self` excludes other references through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.taken.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;
    use std::thread;

    #[test]
    fn no_increment_is_lost() {
        let lock = Lock::new(0u64);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        // A read and a write, so that two holders at once would lose one.
                        let mut n = lock.lock();
                        let seen = *n;
                        *n = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
