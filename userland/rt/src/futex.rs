//! Waiting for a word of memory to change, between threads on any nodes.
//!
//! Who waits and who wakes find each other in a table in the program's own memory, which all nodes
//! share; the kernel is asked only to put a thread to sleep, and to wake one that was found. No node
//! is responsible for a word, no lock is held, and no message goes from node to node:
//!
//! | | kernel operations |
//! |---|---|
//! | [`wait`] on a word that has changed | none |
//! | [`wait`] | one `Receive` for each time it is woken |
//! | [`wake`] when no thread waits | none |
//! | [`wake`] | one `Send` for each thread that it wakes: one doorbell at most |
//!
//! If the program is a process on each node, the table is at the node where the program has started, and is asked by message
//! (`group`).
//!
//! A thread that was lost with its node may still be in the table. A wake-up that it takes wakes
//! no other thread: so those who wait for ever wait in pieces, as [`sync`](crate::sync) does.
//!
//! When a thread of the program is lost, one wait of every other thread ends with `NodeDead`: the one that is under
//! way, or the next one. The waiter then looks whether the lost thread is the one that it waits for
//! ([`thread::is_lost`]), and waits again if not.

mod group;
mod table;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use dyad_abi::user::MAX_PROGRAM_THREADS;
use dyad_abi::user::waiting::Waiting;
use dyad_abi::{Error, Result};

use dyad_sys::thread::{self, Number};

pub use dyad_abi::user::waiting::What;
pub use table::{Table, Word};

/// The words of a program, and those of models with loom: with the same orders.
macro_rules! word {
    ($word:ty, $fence:path) => {
        impl Word for $word {
            fn get(&self) -> u64 {
                self.load(Ordering::Acquire)
            }

            fn put(&self, value: u64) {
                self.store(value, Ordering::Release);
            }

            fn set(&self, bits: u64) {
                self.fetch_or(bits, Ordering::SeqCst);
                $fence(Ordering::SeqCst);
            }

            fn clear(&self, bits: u64) {
                self.fetch_and(!bits, Ordering::Release);
            }

            fn exchange(&self, old: u64, new: u64) -> bool {
                // A thread that finds it taken sees what the taker has done before.
                self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
            }

            fn fence() {
                $fence(Ordering::SeqCst);
            }
        }
    };
}

word!(AtomicU64, fence);
#[cfg(test)]
word!(loom::sync::atomic::AtomicU64, loom::sync::atomic::fence);

crate::program_local! {
    static TABLE: Table<AtomicU64> = Table::new();
}
crate::program_local! {
    /// For each thread, the set of lost threads that its last wait was ended for. Written by that thread
    /// only.
    static TOLD: [AtomicU64; MAX_PROGRAM_THREADS as usize] =
        [const { AtomicU64::new(0) }; MAX_PROGRAM_THREADS as usize];
}

/// Waits until another thread wakes the threads that wait for `word`, if it is `value`, or until fused time
/// reaches `deadline_ns`. The wait may also end without a reason.
///
/// The caller sees everything that the waking thread wrote before the wake-up.
///
/// # Errors
///
/// `Again` if the word was not `value`; `TimedOut`; `NodeDead` if threads of the program were lost since a
/// wait of the calling thread last reported that; `Denied` in an invocation, whose thread belongs to another
/// program.
pub fn wait(word: &AtomicU32, value: u32, deadline_ns: u64) -> Result<()> {
    wait_for((What::Word, None), word, value, deadline_ns)
}

/// Waits like [`wait`]. While the thread waits, its control block names the kind of the word and the owner, for reports
/// about runs that hang.
///
/// # Errors
///
/// As [`wait`].
pub fn wait_for(
    (what, owner): (What, Option<u8>),
    word: &AtomicU32,
    value: u32,
    deadline_ns: u64,
) -> Result<()> {
    let me = thread::number().ok_or(Error::Denied)?;
    let waiting = Waiting {
        what,
        owner,
        at: key(word),
    };
    let told = &dyad_sys::tcb::block().waiting;
    told.store(waiting.pack(), Ordering::Relaxed);
    let done = match dyad_sys::is_multiple() {
        true => group::wait(word, value, deadline_ns),
        false => TABLE.with_any(|table| wait_in(table, me, word, value, deadline_ns)),
    };
    told.store(0, Ordering::Relaxed);
    done
}

fn wait_in(
    table: &Table<AtomicU64>,
    me: Number,
    word: &AtomicU32,
    value: u32,
    deadline_ns: u64,
) -> Result<()> {
    let is_expected = || word.load(Ordering::SeqCst) == value;
    table.wait(me.get(), key(word), is_expected, || {
        // Init sets the bit of a lost thread before it wakes this one, so no loss is slept through.
        match has_news(me) {
            true => Err(Error::NodeDead),
            false => thread::wait(deadline_ns),
        }
    })
}

/// Whether threads were lost of which no wait of this thread has told yet. It counts as told from now on.
fn has_news(me: Number) -> bool {
    let lost = thread::lost();
    TOLD.with_any(|told| {
        let told = &told[me.get() as usize];
        let news = told.load(Ordering::Relaxed) != lost;
        if news {
            told.store(lost, Ordering::Relaxed);
        }
        news
    })
}

/// Wakes up to `count` threads that wait for `word` and returns their number. Threads are woken in turns.
///
/// The caller must change the word first.
pub fn wake(word: &AtomicU32, count: u32) -> u32 {
    #[cfg(test)]
    if let Some(act) = WHEN_WAKING.take() {
        act();
    }
    let key = key(word);
    if dyad_sys::is_multiple() {
        return group::wake(key, count);
    }
    TABLE.with_any(|table| table.wake(key, count, |n| is_woken(Number::new(n).map(thread::wake))))
}

/// Whether a thread has been woken that a message was sent to. One that waited on a node that has died cannot be: then the
/// next one is.
fn is_woken(sent: Option<Result<()>>) -> bool {
    sent != Some(Err(Error::NodeDead))
}

/// Wakes all threads that wait for `word`, and gives their number.
pub fn wake_all(word: &AtomicU32) -> u32 {
    wake(word, u32::MAX)
}

fn key(word: &AtomicU32) -> u64 {
    core::ptr::from_ref(word) as u64
}

#[cfg(test)]
std::thread_local! {
    /// What happens, once, when this thread is about to wake others: for tests of what the woken threads find.
    pub(crate) static WHEN_WAKING: core::cell::Cell<Option<fn()>> =
        const { core::cell::Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicU32, AtomicU64};
    use loom::thread;

    use super::*;

    const KEY: u64 = 0x1000;

    /// A wake-up that a thread of a dead node has taken would leave the others asleep for ever.
    #[test]
    fn the_thread_after_one_of_a_dead_node_is_woken() {
        loom::model(|| {
            let table = Table::<AtomicU64, 3, 1>::of(|| AtomicU64::new(0));
            (0..3).for_each(|n| table.begin(n, KEY));
            let mut sent = std::vec::Vec::new();
            let woken = table.wake(KEY, 1, |n| {
                sent.push(n);
                // That it was sent before does not matter; that its node is dead does.
                is_woken(Some(if n == 0 {
                    Err(Error::NodeDead)
                } else {
                    Err(Error::Full)
                }))
            });
            assert_eq!((woken, sent), (1, std::vec![0, 1]));
            assert!(table.end(0, KEY) && table.end(1, KEY) && !table.end(2, KEY));
        });
    }

    /// The words of a program, with its orders: `loom_futex` shows that the table needs them.
    #[test]
    fn of_a_waiter_and_a_waker_one_sees_the_other() {
        loom::model(|| {
            let table = Table::<AtomicU64, 1, 1>::of(|| AtomicU64::new(0));
            let all = Arc::new((table, AtomicU32::new(0), AtomicU32::new(0)));
            let other = all.clone();
            let waiter = thread::spawn(move || {
                let (table, word, written) = &*other;
                table.begin(0, KEY);
                let looked = word.load(Ordering::Relaxed);
                if !table.waits(0, KEY) {
                    assert_eq!(written.load(Ordering::Relaxed), 7);
                }
                looked
            });
            let (table, word, written) = &*all;
            written.store(7, Ordering::Relaxed);
            word.store(1, Ordering::Relaxed);
            let woken = table.wake(KEY, 1, |_| true);
            let looked = waiter.join().unwrap();
            assert!(looked == 1 || woken == 1, "neither has seen the other");
            let is_woken = table.end(0, KEY);
            assert_eq!(
                woken,
                u32::from(is_woken),
                "a wake-up is lost, or one too many"
            );
        });
    }
}
