//! Which thread waits for which word.
//!
//! A word for each thread says what it waits for: the truth. A word for each *bucket* of addresses
//! says which threads may be waiting for one of them, a bit each, so that a wake-up looks at one word
//! if no thread waits: a hint, with more bits than there are waiters.
//!
//! ```text
//!   waits[n]:   0 ──begin──▶ key ──end──▶ 0
//!                             └──claim──▶ 0         one of the two: an exchange
//!   buckets[hash(key)]: bit n set by begin, cleared by end; both by thread n only
//! ```
//!
//! | waiter | waker |
//! |---|---|
//! | `waits[n]` = key (release) | changes the word |
//! | sets its bit (read-modify-write) | |
//! | full fence | full fence |
//! | looks at the word: has it changed? | looks at the bits: does anybody wait? |
//! | sleeps until `waits[n]` is not key any more | takes one: exchanges `waits[n]` from key to 0 |
//!
//! Both store and then look at what the other one stores, so at least one of them sees the other:
//! the waiter does not sleep, or the waker takes it. A thread is taken for the key that it waits for
//! now, or not at all, however often it has ended and begun meanwhile. Who has taken it must wake it. The
//! exchange releases what the waker has done before, and the waiter acquires it, whether it has slept or
//! not.
//!
//! Nothing here waits, and nothing is held: a node may die at any point. What stays is a thread that
//! seems to wait, and is taken once in vain.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use dyad_abi::{Error, Result};

/// One bit each.
const THREADS_OF_A_PROGRAM: usize = dyad_abi::user::MAX_PROGRAM_THREADS as usize;

/// A word of shared memory.
pub trait Word {
    /// The value, ordered before all later accesses.
    fn get(&self) -> u64;
    /// Stores a value, ordered after all earlier accesses.
    fn put(&self, value: u64);
    /// Sets bits, and is a full fence behind that.
    fn set(&self, bits: u64);
    /// Clears bits, ordered after all earlier accesses.
    fn clear(&self, bits: u64);
    /// Exchanges `old` for `new`, ordered after all earlier accesses; `false` if the value was another one.
    /// In either case ordered before all later accesses.
    fn exchange(&self, old: u64, new: u64) -> bool;
    /// A full fence.
    fn fence();
}

/// A line of memory for one thread, or one bucket.
#[repr(align(64))]
struct Line<W>(W);

/// The table for threads below `THREADS`, with `BUCKETS` buckets.
pub struct Table<W, const THREADS: usize = THREADS_OF_A_PROGRAM, const BUCKETS: usize = 64> {
    waits: [Line<W>; THREADS],
    buckets: [Line<W>; BUCKETS],
    /// For each bucket, the thread whose turn it is: a hint.
    turns: [AtomicU8; BUCKETS],
}

impl Table<AtomicU64> {
    /// A table in which no thread waits.
    pub const fn new() -> Self {
        Table {
            waits: [const { Line(AtomicU64::new(0)) }; _],
            buckets: [const { Line(AtomicU64::new(0)) }; _],
            turns: [const { AtomicU8::new(0) }; _],
        }
    }
}

impl Default for Table<AtomicU64> {
    fn default() -> Self {
        Table::new()
    }
}

/// Threads that a waker may still find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting(u64);

impl<W: Word, const THREADS: usize, const BUCKETS: usize> Table<W, THREADS, BUCKETS> {
    /// A table of words that are zero, made by `word`.
    pub fn of(word: impl Fn() -> W) -> Self {
        Table {
            waits: core::array::from_fn(|_| Line(word())),
            buckets: core::array::from_fn(|_| Line(word())),
            turns: core::array::from_fn(|_| AtomicU8::new(0)),
        }
    }

    /// Words lie at multiples of four; neighbours often belong to one lock.
    const fn bucket(key: u64) -> usize {
        ((key >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % BUCKETS
    }

    /// Registers that thread `n` is about to wait for `key`, which is not 0. The caller must then check the
    /// word.
    pub fn begin(&self, n: u64, key: u64) {
        self.waits[n as usize].0.put(key);
        self.buckets[Self::bucket(key)].0.set(1 << n);
    }

    /// Whether thread `n` still waits for `key`: no waker has taken it.
    pub fn waits(&self, n: u64, key: u64) -> bool {
        self.waits[n as usize].0.get() == key
    }

    /// Ends the wait of thread `n`. `true`: another thread has taken the waiter, and has woken it or will.
    pub fn end(&self, n: u64, key: u64) -> bool {
        let taken = !self.waits[n as usize].0.exchange(key, 0);
        self.buckets[Self::bucket(key)].0.clear(1 << n);
        taken
    }

    /// Waits as thread `n` for `key`, as long as its word is what the caller expects. `sleep` sleeps until the thread is
    /// woken (`true`: by a waker of this wait or of an earlier one), or until its deadline (`false`).
    ///
    /// # Errors
    ///
    /// `Again` if the word is another one; `TimedOut`; those of `sleep`. A waker that has taken this thread is never told of
    /// an error: its wake-up has come, whatever has ended the sleep.
    #[inline]
    pub fn wait(
        &self,
        n: u64,
        key: u64,
        is_expected: impl FnOnce() -> bool,
        mut sleep: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        self.begin(n, key);
        // Behind the fence of `begin`: a thread that has changed it before this looks, and finds this one.
        let why = if !is_expected() {
            Err(Error::Again)
        } else {
            loop {
                let woken = sleep();
                if !self.waits(n, key) {
                    break Ok(());
                }
                match woken {
                    // Meant an earlier wait of this thread, that had ended before.
                    Ok(true) => {}
                    Ok(false) => break Err(Error::TimedOut),
                    Err(e) => break Err(e),
                }
            }
        };
        match self.end(n, key) {
            true => Ok(()),
            false => why,
        }
    }

    /// Wakes up to `count` threads that wait for `key`, whose word has been changed before, and returns their number.
    /// `wake` wakes one; `false`: it cannot be woken any more, and the next one is.
    #[inline]
    pub fn wake(&self, key: u64, count: u32, mut wake: impl FnMut(u64) -> bool) -> u32 {
        let mut woken = 0;
        let mut waiting = self.waiting(key);
        while woken < count
            && let Some(n) = self.claim(key, &mut waiting)
        {
            woken += u32::from(wake(n));
        }
        woken
    }

    /// The threads that may wait for `key`, whose word has been changed before.
    pub fn waiting(&self, key: u64) -> Waiting {
        W::fence();
        Waiting(self.buckets[Self::bucket(key)].0.get())
    }

    /// Takes a thread of `waiting` that waits for `key`; `None` if there is none left. The caller must wake
    /// it. The turn goes round, so that every waiter is woken eventually.
    pub fn claim(&self, key: u64, waiting: &mut Waiting) -> Option<u64> {
        if waiting.0 == 0 {
            return None;
        }
        let turn = &self.turns[Self::bucket(key)];
        let first = u32::from(turn.load(Relaxed)) % u64::BITS;
        while waiting.0 != 0 {
            let ahead = waiting.0.rotate_right(first).trailing_zeros();
            let n = (first + ahead) % u64::BITS;
            waiting.0 &= !(1 << n);
            if self.waits[n as usize].0.exchange(key, 0) {
                turn.store(n as u8 + 1, Relaxed);
                return Some(n.into());
            }
        }
        None
    }
}
