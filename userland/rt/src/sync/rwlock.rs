//! Many readers, or one writer.
//!
//! ```text
//!   0 ──read──▶ 1 reader ──read──▶ n readers ──last one leaves──▶ 0
//!   0 ──write──▶ owner | WRITER ──leaves──▶ 0
//!   any ──a thread has to wait──▶ any | AWAITED ──becomes free──▶ 0: wakes all
//! ```
//!
//! A reader that comes while a thread waits has to wait too, so that writers are not kept out for ever. A thread that
//! reads must therefore not read a second time before it has left; if it has to wait then it panics.
//!
//! The word names a writer. Readers are named by a count of each thread, which only that thread changes: before it comes
//! in and after it has left. So the counts of lost threads say whether a lost thread reads. A thread that is lost within
//! the few instructions in between counts as a reader too.
//!
//! | step | order |
//! |---|---|
//! | a reader counts itself | before it comes in |
//! | take | acquire; release of the reader's count |
//! | leave: readers count down, a writer swaps 0; the thread that leaves the lock free and awaited wakes all | release |
//! | a reader does not count itself any more | after it has left |

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use dyad_abi::user::MAX_PROGRAM_THREADS;
use dyad_abi::{Error, Result};
use dyad_sys::thread;

use super::{AWAITED, SPINS, is_lost, me, owner, refused, wait_for};
use crate::futex::{self, What};

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
    /// By thread: how many guards it reads with.
    reading: [AtomicU16; MAX_PROGRAM_THREADS as usize],
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
            reading: [const { AtomicU16::new(0) }; _],
            value: UnsafeCell::new(value),
        }
    }

    /// Reads, if no thread writes or waits. `None` in an invocation.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let me = me().ok()?;
        self.try_take::<false>(me)
            .then(|| RwLockReadGuard::of(self, me))
    }

    /// Writes, if no thread reads or writes. `None` in an invocation.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.try_take::<true>(me().ok()?)
            .then(|| RwLockWriteGuard::of(self))
    }

    /// Reads, once no thread writes.
    ///
    /// # Panics
    ///
    /// As [`write`](RwLock::write).
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.read_or_lost() {
            Ok(guard) => guard,
            Err(e) => refused("a reader-writer lock", e),
        }
    }

    /// Writes, once no thread reads or writes.
    ///
    /// # Panics
    ///
    /// If a thread that has the lock was lost with its node: a writer may have left the value half changed, and a reader
    /// never leaves. If the calling thread has the lock already; in an invocation.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.write_or_lost() {
            Ok(guard) => guard,
            Err(e) => refused("a reader-writer lock", e),
        }
    }

    /// As [`read`](RwLock::read), with an error for a thread that was lost.
    ///
    /// # Errors
    ///
    /// `NodeDead` if a thread that has the lock was lost with its node; `Denied` in an invocation.
    ///
    /// # Panics
    ///
    /// If the calling thread waits for itself: it writes, or reads while another thread waits.
    pub fn read_or_lost(&self) -> Result<RwLockReadGuard<'_, T>> {
        let me = self.take::<false>()?;
        Ok(RwLockReadGuard::of(self, me))
    }

    /// As [`write`](RwLock::write), with an error for a thread that was lost.
    ///
    /// # Errors
    ///
    /// `NodeDead` if a thread that has the lock was lost with its node; `Denied` in an invocation.
    ///
    /// # Panics
    ///
    /// If the calling thread has the lock already.
    pub fn write_or_lost(&self) -> Result<RwLockWriteGuard<'_, T>> {
        self.take::<true>()?;
        Ok(RwLockWriteGuard::of(self))
    }

    /// The word after a thread has come in, if one may: a writer or a reader.
    fn with<const WRITES: bool>(me: u32, word: u32) -> Option<u32> {
        match WRITES {
            true => (word & !AWAITED == 0).then_some(word | WRITER | me),
            false => (word & (WRITER | AWAITED) == 0).then_some(word + 1),
        }
    }

    /// With how many guards a thread reads.
    fn reading(&self, me: u32) -> &AtomicU16 {
        &self.reading[me as usize - 1]
    }

    /// Comes in, if the calling thread may now.
    fn try_take<const WRITES: bool>(&self, me: u32) -> bool {
        let next = |word| Self::with::<WRITES>(me, word);
        if next(self.word.load(Ordering::Relaxed)).is_none() {
            return false;
        }
        #[cfg(test)]
        tests::looked();
        let reading = self.reading(me);
        let before = reading.load(Ordering::Relaxed);
        if !WRITES {
            let more = before.checked_add(1);
            reading.store(
                more.expect("a thread reads with too many guards"),
                Ordering::Relaxed,
            );
        }
        let (take, look) = (Ordering::AcqRel, Ordering::Relaxed);
        let taken = self.word.fetch_update(take, look, next).is_ok();
        if !WRITES && !taken {
            reading.store(before, Ordering::Relaxed);
        }
        taken
    }

    /// The thread that has the lock: the writer, or a reader.
    fn owner(&self, word: u32) -> Option<u8> {
        if word & WRITER != 0 {
            return owner(word & !WRITER);
        }
        let mut reading = self.reading.iter();
        let n = reading.position(|count| count.load(Ordering::Relaxed) != 0)?;
        u8::try_from(n).ok()
    }

    /// Whether a thread was lost while it read.
    fn has_lost_reader(&self) -> bool {
        let lost = thread::lost();
        let mut threads = self.reading.iter().enumerate();
        let has_lost =
            threads.any(|(n, count)| lost >> n & 1 != 0 && count.load(Ordering::Relaxed) != 0);
        #[cfg(test)]
        tests::looked();
        has_lost
    }

    /// Comes in, once the calling thread may. Gives what it is named by.
    fn take<const WRITES: bool>(&self) -> Result<u32> {
        let me = me()?;
        for _ in 0..SPINS {
            if self.try_take::<WRITES>(me) {
                return Ok(me);
            }
            dyad_sys::raw::relax();
        }
        loop {
            if self.try_take::<WRITES>(me) {
                return Ok(me);
            }
            let now = self.word.load(Ordering::Relaxed);
            if Self::with::<WRITES>(me, now).is_some() {
                continue;
            }
            let (is_mine, is_lost) = match now & WRITER {
                0 => {
                    let reads = self.reading(me).load(Ordering::Relaxed) != 0;
                    (reads, self.has_lost_reader())
                }
                _ => (now & !AWAITED == WRITER | me, is_lost(now & !WRITER)),
            };
            if is_lost {
                // The lost thread may have left just before.
                let taken = self.try_take::<WRITES>(me);
                return taken.then_some(me).ok_or(Error::NodeDead);
            }
            assert!(!is_mine, "a thread waits for a lock that it has itself");
            let awaited = now | AWAITED;
            if now != awaited
                && self
                    .word
                    .compare_exchange(now, awaited, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            // Whatever ends the wait: the word is looked at again.
            let what = if WRITES { What::Write } else { What::Read };
            let _ = wait_for((what, self.owner(now)), &self.word, awaited);
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
///
/// It stays on its thread, which the lock names:
///
/// ```compile_fail,E0277
/// fn is_send(_: impl Send) {}
/// is_send(dyad_rt::sync::RwLock::new(0).read());
/// ```
pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    /// What the thread is named by.
    me: u32,
    /// Neither `Send` nor `Sync` by itself.
    of_thread: PhantomData<*const ()>,
}

/// Writes the value of an [`RwLock`]; leaves it when dropped.
///
/// It stays on its thread, which the lock names:
///
/// ```compile_fail,E0277
/// fn is_send(_: impl Send) {}
/// is_send(dyad_rt::sync::RwLock::new(0).write());
/// ```
///
/// Threads share a guard if they may share the value:
///
/// ```
/// fn is_sync(_: impl Sync) {}
/// is_sync(dyad_rt::sync::RwLock::new(0).write());
/// is_sync(dyad_rt::sync::RwLock::new(0).read());
/// ```
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    /// Neither `Send` nor `Sync` by itself.
    of_thread: PhantomData<*const ()>,
}

// SAFETY: 1. All that a shared guard gives is a shared reference to the value, which `Sync` allows.
unsafe impl<T: Sync> Sync for RwLockReadGuard<'_, T> {}

// SAFETY: 1. All that a shared guard gives is a shared reference to the value, which `Sync` allows.
unsafe impl<T: Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<'a, T> RwLockReadGuard<'a, T> {
    /// The calling thread has just come in.
    fn of(lock: &'a RwLock<T>, me: u32) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard {
            lock,
            me,
            of_thread: PhantomData,
        }
    }
}

impl<'a, T> RwLockWriteGuard<'a, T> {
    /// The calling thread has just come in.
    fn of(lock: &'a RwLock<T>) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard {
            lock,
            of_thread: PhantomData,
        }
    }
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
        // SAFETY: 1. The word names this thread as the writer. 2. `&mut self` excludes other references through this guard.
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
            #[cfg(test)]
            tests::looked();
            match word.compare_exchange(now, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        let reading = self.lock.reading(self.me);
        reading.store(reading.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        if now & !AWAITED == 1 {
            self.lock.left(now);
        }
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        let before = self.lock.word.swap(0, Ordering::Release);
        self.lock.left(before);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::cell::Cell;

    use dyad_host::{Config, kill_node, run};
    use dyad_sys::exit;

    use super::*;
    use crate::sync::tests::{in_time, node, start_on};

    std::thread_local! {
        /// What happens, once, when this thread has looked at a lock and has not acted on what it saw.
        static WHEN_LOOKED: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    pub(super) fn looked() {
        if let Some(act) = WHEN_LOOKED.take() {
            act();
        }
    }

    /// A reader leaves the lock and is lost before it counts itself out. A writer that has found the lock taken just
    /// before has it nevertheless.
    #[test]
    fn a_lock_that_a_lost_reader_has_just_left_is_taken() {
        static LOCK: RwLock<()> = RwLock::new(());
        static READS: AtomicU32 = AtomicU32::new(0);

        fn entry(argument: u64) -> ! {
            if thread::Number::of_argument(argument) != Some(thread::Number::FIRST) {
                let _held = LOCK.read();
                READS.store(1, Ordering::Release);
                loop {
                    dyad_sys::yield_now();
                }
            }
            start_on(1);
            while READS.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            kill_node(node(1));
            WHEN_LOOKED.set(Some(|| LOCK.word.store(0, Ordering::Release)));
            assert!(LOCK.write_or_lost().is_ok(), "it is free");
            exit(10)
        }
        in_time(|| assert_eq!(run(Config::default(), entry).code, 10));
    }

    /// A thread that has found the lock free, and loses it to a writer, does not count as a reader: it may wait for the
    /// lock later, and its loss is nothing to others.
    #[test]
    fn who_comes_too_late_does_not_read() {
        static LOCK: RwLock<()> = RwLock::new(());
        const OTHER: u32 = WRITER | 2;

        fn entry(_: u64) -> ! {
            WHEN_LOOKED.set(Some(|| LOCK.word.store(OTHER, Ordering::Relaxed)));
            assert!(LOCK.try_read().is_none());
            assert_eq!(LOCK.word.swap(0, Ordering::Relaxed), OTHER);
            fn reads(count: &AtomicU16) -> bool {
                count.load(Ordering::Relaxed) != 0
            }
            assert!(
                !LOCK.reading.iter().any(reads),
                "a thread counts as a reader"
            );
            // The loss of a reader that leaves means something to others as long as the word counts the reader.
            let held = LOCK.read();
            WHEN_LOOKED.set(Some(|| {
                let counts = LOCK.reading.iter().any(reads);
                assert!(counts, "no thread counts as a reader");
            }));
            drop(held);
            assert!(WHEN_LOOKED.take().is_none());
            exit(11)
        }
        in_time(|| assert_eq!(run(Config::default(), entry).code, 11));
    }

    /// The mark of those who wait stays when a writer comes in, and goes with the last reader: readers would wait for it
    /// for ever.
    #[test]
    fn the_mark_of_those_who_wait_stays_as_long_as_there_are_any() {
        fn entry(_: u64) -> ! {
            let lock = RwLock::new(());
            lock.word.store(AWAITED, Ordering::Relaxed);
            let writer = lock.try_write().expect("it is free");
            assert_eq!(lock.word.load(Ordering::Relaxed), AWAITED | WRITER | 1);
            drop(writer);
            let readers = [lock.try_read(), lock.try_read()];
            lock.word.fetch_or(AWAITED, Ordering::Relaxed);
            let [first, last] = readers;
            drop(first);
            assert_eq!(lock.word.load(Ordering::Relaxed), AWAITED | 1);
            drop(last);
            assert!(lock.try_read().is_some(), "no thread waits");
            exit(16)
        }
        in_time(|| assert_eq!(run(Config::default(), entry).code, 16));
    }
}
