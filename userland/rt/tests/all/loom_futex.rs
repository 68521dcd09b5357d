//! Model checks of the futex table: no wake-up is lost in any interleaving, with any weak ordering; a
//! wake-up is sent once for each thread that is taken, and none if no thread waits; and each part of the
//! protocol is needed, shown by taking it away.
//!
//! A lost wake-up leaves a waiter asleep with no thread left to wake it: loom reports it as a deadlock.

use std::sync::Arc;

use dyad_rt::futex::{Table, Word};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// What can be left out.
const NOTHING: u8 = 0;
const FENCE_OF_THE_WAITER: u8 = 1;
const FENCE_OF_THE_WAKER: u8 = 2;
const RELEASE: u8 = 3;
const ACQUIRE: u8 = 4;

/// A word of the model, without something.
struct Modelled<const LACKS: u8>(AtomicU64);

impl<const LACKS: u8> Word for Modelled<LACKS> {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn put(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn set(&self, bits: u64) {
        self.0.fetch_or(bits, Ordering::AcqRel);
        if LACKS != FENCE_OF_THE_WAITER {
            fence(Ordering::SeqCst);
        }
    }

    fn clear(&self, bits: u64) {
        self.0.fetch_and(!bits, Ordering::Release);
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        let (success, failure) = match LACKS {
            RELEASE => (Ordering::Acquire, Ordering::Acquire),
            ACQUIRE => (Ordering::Release, Ordering::Relaxed),
            _ => (Ordering::AcqRel, Ordering::Acquire),
        };
        self.0.compare_exchange(old, new, success, failure).is_ok()
    }

    fn fence() {
        if LACKS != FENCE_OF_THE_WAKER {
            fence(Ordering::SeqCst);
        }
    }
}

const KEY: u64 = 0x1000;
const THREADS: usize = 3;

/// What the threads share: the table, the word, and where each sleeps in the kernel.
struct World<const LACKS: u8> {
    table: Table<Modelled<LACKS>, THREADS, 1>,
    word: AtomicU32,
    lines: [(Mutex<bool>, Condvar); THREADS],
    /// `Send`s so far.
    sends: std::sync::atomic::AtomicU32,
}

impl<const LACKS: u8> World<LACKS> {
    fn new() -> Arc<Self> {
        Arc::new(World {
            table: Table::of(|| Modelled(AtomicU64::new(0))),
            word: AtomicU32::new(0),
            lines: std::array::from_fn(|_| (Mutex::new(false), Condvar::new())),
            sends: std::sync::atomic::AtomicU32::new(0),
        })
    }

    fn sends(&self) -> u32 {
        self.sends.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// `Receive`.
    fn sleep(&self, n: u64) {
        let (bit, come) = &self.lines[n as usize];
        let mut bit = bit.lock().unwrap();
        while !*bit {
            bit = come.wait(bit).unwrap();
        }
        *bit = false;
    }

    /// `Send`.
    fn send(&self, n: u64) {
        let (bit, come) = &self.lines[n as usize];
        *bit.lock().unwrap() = true;
        come.notify_one();
        self.sends
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// As `futex::wait` without a deadline: whether it was woken.
    fn wait(&self, n: u64, value: u32) -> bool {
        self.table.begin(n, KEY);
        if self.word.load(Ordering::Acquire) != value {
            return self.table.end(n, KEY);
        }
        while self.table.waits(n, KEY) {
            self.sleep(n);
        }
        self.table.end(n, KEY)
    }

    /// As `futex::wait` with a deadline that has come.
    fn look(&self, n: u64) -> bool {
        self.table.begin(n, KEY);
        self.table.end(n, KEY)
    }

    /// As `futex::wake`.
    fn wake(&self, count: u32) -> u32 {
        let mut waiting = self.table.waiting(KEY);
        let mut woken = 0;
        while woken < count
            && let Some(n) = self.table.claim(KEY, &mut waiting)
        {
            self.send(n);
            woken += 1;
        }
        woken
    }
}

fn explore(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

fn fails(f: impl Fn() + Sync + Send + 'static) -> bool {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(f))).is_err();
    std::panic::set_hook(hook);
    failed
}

/// One waits until the word changes, one changes it and wakes.
fn one_each<const LACKS: u8>() {
    let world = World::<LACKS>::new();
    let waiter = {
        let world = world.clone();
        thread::spawn(move || {
            while world.word.load(Ordering::Acquire) == 0 {
                world.wait(0, 0);
            }
        })
    };
    world.word.store(1, Ordering::Release);
    let woken = world.wake(1);
    waiter.join().unwrap();
    // One for each that was taken, and no waiter is left to be taken.
    assert_eq!(world.sends(), woken);
    assert!(woken <= 1);
    assert_eq!(world.wake(u32::MAX), 0);
}

#[test]
fn no_wake_up_is_lost() {
    explore(one_each::<NOTHING>);
}

#[test]
fn without_fences_a_wake_up_is_lost() {
    assert!(fails(one_each::<FENCE_OF_THE_WAITER>));
    assert!(fails(one_each::<FENCE_OF_THE_WAKER>));
}

/// Who has been taken sees what the taker has written before, also if it has not slept.
fn seen<const LACKS: u8>() {
    let world = World::<LACKS>::new();
    let waiter = {
        let world = world.clone();
        thread::spawn(move || {
            if world.look(0) {
                assert_eq!(world.word.load(Ordering::Relaxed), 7);
            }
        })
    };
    world.word.store(7, Ordering::Relaxed);
    world.wake(1);
    waiter.join().unwrap();
}

#[test]
fn who_is_woken_sees_what_the_waker_has_written() {
    explore(seen::<NOTHING>);
    assert!(fails(seen::<ACQUIRE>));
    // The waker's fence, between the write and the exchange, does as much by itself.
    assert!(!fails(seen::<RELEASE>));
}

#[test]
fn waking_all_wakes_all() {
    explore(|| {
        let world = World::<NOTHING>::new();
        let waiters: Vec<_> = (0..2)
            .map(|n| {
                let world = world.clone();
                thread::spawn(move || {
                    while world.word.load(Ordering::Acquire) == 0 {
                        world.wait(n, 0);
                    }
                })
            })
            .collect();
        world.word.store(1, Ordering::Release);
        let woken = world.wake(u32::MAX);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(world.sends(), woken);
        assert!(woken <= 2);
    });
}

/// A wake-up of one goes to one that knows of it: a waiter that was about to leave says that it has taken it,
/// and can pass it on. So the other one does not sleep for ever.
#[test]
fn a_waiter_that_leaves_does_not_swallow_a_wake_up() {
    explore(|| {
        let world = World::<NOTHING>::new();
        let leaver = {
            let world = world.clone();
            thread::spawn(move || {
                if world.look(1) {
                    world.wake(1);
                }
            })
        };
        let waiter = {
            let world = world.clone();
            thread::spawn(move || {
                while world.word.load(Ordering::Acquire) == 0 {
                    world.wait(0, 0);
                }
            })
        };
        world.word.store(1, Ordering::Release);
        world.wake(1);
        leaver.join().unwrap();
        waiter.join().unwrap();
    });
}

/// Two wakers never send to the same sleep of the same thread.
#[test]
fn of_two_wakers_one_sends() {
    explore(|| {
        let world = World::<NOTHING>::new();
        let waker = {
            let world = world.clone();
            thread::spawn(move || world.wake(1))
        };
        world.table.begin(0, KEY);
        let mine = world.wake(1);
        let others = waker.join().unwrap();
        // This one was behind its own beginning, so it was taken, once.
        assert_eq!(mine + others, 1);
        assert_eq!(world.sends(), 1);
        assert!(world.table.end(0, KEY));
        assert_eq!(world.wake(1), 0);
    });
}
