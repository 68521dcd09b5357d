//! Many readers, or one writer.
//!
//! ```text
//!   0 ──read──▶ 1 reader ──read──▶ n readers ──last one leaves──▶ 0
//!   0 ──write──▶ owner | WRITER ──leaves──▶ 0
//!   any ──a thread has to wait──▶ any | AWAITED ──becomes free──▶ 0: wakes all
//! ```
//!
//! A reader that comes while a thread waits has to wait too, so that writers are not kept out for ever. A thread that
//! reads must therefore not read a second time before it has left.
//!
//! | step | order |
//! |---|---|
//! | take | acquire |
//! | leave: readers count down, a writer swaps 0; the thread that leaves the lock free and awaited wakes all | release |

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::{Error, Result};

use super::{AWAITED, LostBefore, SPINS, is_lost, me, wait};
use crate::futex;

/// In the word: the rest names a writer, and does not count readers.
const WRITER: u32 = 1 << 30;

/// A value that many threads read, or one writes.
///
/// ```
/// use dyad_rt::sync::RwLock;
///
/// static NAMES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
///
/// NAMES.write().push("first");
/// let (one, two) = (NAMES.read(), NAMES.try_read().unwrap());
/// assert_eq!((one.len(), two.len()), (1, 1));
/// assert!(NAMES.try_write().is_none());
/// ```
pub struct RwLock<T> {
    word: AtomicU32,
    lost: LostBefore,
    value: UnsafeCell<T>,
}

// SAFETY: 1. Readers on several threads share references to the value, which `Sync` allows; a writer moves it between
// threads, which `Send` allows. The word lets no other thread in while there is a writer.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// A lock that no thread has.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock {
            word: AtomicU32::new(0),
            lost: LostBefore::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// The word after one more reader, if one may come in.
    fn with_reader(word: u32) -> Option<u32> {
        (word & (WRITER | AWAITED) == 0).then_some(word + 1)
    }

    /// The word after a writer has come in, if one may.
    fn with_writer(word: u32) -> Option<u32> {
        (word & !AWAITED == 0).then(|| word | WRITER | me())
    }

    fn try_take(&self, next: impl Fn(u32) -> Option<u32>) -> bool {
        self.word
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, next)
            .is_ok()
    }

    /// Reads, if no thread writes or waits.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.lost.used();
        let taken = self.try_take(Self::with_reader);
        taken.then(|| RwLockReadGuard { lock: self })
    }

    /// Writes, if no thread reads or writes.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.lost.used();
        let taken = self.try_take(Self::with_writer);
        taken.then(|| RwLockWriteGuard { lock: self })
    }

    /// Reads, once no thread writes.
    ///
    /// # Panics
    ///
    /// As [`write`](RwLock::write).
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.read_or_lost() {
            Ok(guard) => guard,
            Err(e) => panic!("a thread that holds a lock was lost: {e}"),
        }
    }

    /// Writes, once no thread reads or writes.
    ///
    /// # Panics
    ///
    /// If the thread that writes was lost with its node: the value may be half changed. If the same readers have the
    /// lock for [`PATIENCE_NS`](super::PATIENCE_NS), and a thread of the program was lost since the lock was first used:
    /// it may have been one of them.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.write_or_lost() {
            Ok(guard) => guard,
            Err(e) => panic!("a thread that holds a lock was lost: {e}"),
        }
    }

    /// As [`read`](RwLock::read), with an error where that panics.
    ///
    /// # Errors
    ///
    /// `NodeDead`.
    pub fn read_or_lost(&self) -> Result<RwLockReadGuard<'_, T>> {
        self.take(Self::with_reader)?;
        Ok(RwLockReadGuard { lock: self })
    }

    /// As [`write`](RwLock::write), with an error where that panics.
    ///
    /// # Errors
    ///
    /// `NodeDead`.
    pub fn write_or_lost(&self) -> Result<RwLockWriteGuard<'_, T>> {
        self.take(Self::with_writer)?;
        Ok(RwLockWriteGuard { lock: self })
    }

    fn take(&self, next: impl Fn(u32) -> Option<u32>) -> Result<()> {
        self.lost.used();
        for _ in 0..SPINS {
            if self.try_take(&next) {
                return Ok(());
            }
            dyad_sys::raw::relax();
        }
        loop {
            let now = self.word.load(Ordering::Relaxed);
            if let Some(new) = next(now) {
                let (take, look) = (Ordering::Acquire, Ordering::Relaxed);
                if self.word.compare_exchange(now, new, take, look).is_ok() {
                    return Ok(());
                }
                continue;
            }
            if now & WRITER != 0 && is_lost(now & !WRITER) {
                return Err(Error::NodeDead);
            }
            let awaited = now | AWAITED;
            if now != awaited
                && self
                    .word
                    .compare_exchange(now, awaited, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            let is_read = now & WRITER == 0;
            let timed_out = wait(&self.word, awaited) == Err(Error::TimedOut);
            // Readers have no names. Nothing has changed for long, so one of them may be the thread that was lost.
            if is_read && timed_out && self.lost.has_changed() {
                return Err(Error::NodeDead);
            }
        }
    }

    /// The lock is free; `word` is what it was before.
    fn left(&self, word: u32) {
        if word & AWAITED != 0 {
            futex::wake_all(&self.word);
        }
    }

    /// The value, of a lock that no other thread has.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

/// Reads the value of an [`RwLock`]; leaves it when dropped.
pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
}

/// Writes the value of an [`RwLock`]; leaves it when dropped.
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: 1. The word counts this reader, so no thread writes.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: 1. The word names this thread as the writer, so no other thread has access.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1. As above. 2. `&mut self` excludes other references through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        let word = &self.lock.word;
        let mut now = word.load(Ordering::Relaxed);
        loop {
            // The last one takes the mark of those who wait with it: it wakes them.
            let next = match now & !AWAITED {
                1 => 0,
                _ => now - 1,
            };
            match word.compare_exchange(now, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if next == 0 => return self.lock.left(now),
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        let before = self.lock.word.swap(0, Ordering::Release);
        self.lock.left(before);
    }
}
