//! Model checks of the futex table: no wake-up is lost in any interleaving, with any weak ordering; a
//! wake-up is sent once for each thread that is taken, and none if no thread waits; and each part of the
//! protocol is needed, shown by taking it away.
//!
//! A lost wake-up leaves a waiter asleep with no thread left to wake it: loom reports it as a deadlock.

use std::sync::Arc;

use dyad_abi::{Error, Result};
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

/// Where a thread sleeps.
#[derive(Clone, Copy, Default)]
struct Line {
    /// Its bit has been set.
    sent: bool,
    /// Its deadline has come.
    late: bool,
}

/// What the threads share: the table, the word, and where each sleeps in the kernel.
struct World<const LACKS: u8> {
    table: Table<Modelled<LACKS>, THREADS, 1>,
    word: AtomicU32,
    lines: [(Mutex<Line>, Condvar); THREADS],
    /// `Send`s so far.
    sends: std::sync::atomic::AtomicU32,
}

impl<const LACKS: u8> World<LACKS> {
    fn new() -> Arc<Self> {
        Arc::new(World {
            table: Table::of(|| Modelled(AtomicU64::new(0))),
            word: AtomicU32::new(0),
            lines: std::array::from_fn(|_| (Mutex::new(Line::default()), Condvar::new())),
            sends: std::sync::atomic::AtomicU32::new(0),
        })
    }

    fn sends(&self) -> u32 {
        self.sends.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// `Receive`: whether the bit was set, or else the deadline has come.
    fn sleep(&self, n: u64) -> Result<bool> {
        let (line, come) = &self.lines[n as usize];
        let mut line = line.lock().unwrap();
        while !line.sent && !line.late {
            line = come.wait(line).unwrap();
        }
        Ok(std::mem::take(&mut line.sent))
    }

    /// The deadline of a thread comes.
    fn late(&self, n: u64) {
        let (line, come) = &self.lines[n as usize];
        line.lock().unwrap().late = true;
        come.notify_one();
    }

    /// `Send`.
    fn send(&self, n: u64) {
        let (line, come) = &self.lines[n as usize];
        line.lock().unwrap().sent = true;
        come.notify_one();
        self.sends
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// As `futex::wait`.
    fn wait(&self, n: u64, value: u32) -> Result<()> {
        let is_expected = || self.word.load(Ordering::Acquire) == value;
        self.table.wait(n, KEY, is_expected, || self.sleep(n))
    }

    /// As `futex::wait` if the word is another one: whether it was woken nevertheless.
    fn look(&self, n: u64) -> bool {
        let never = || unreachable!("it does not sleep");
        self.table.wait(n, KEY, || false, never).is_ok()
    }

    /// As `futex::wake`.
    fn wake(&self, count: u32) -> u32 {
        self.table.wake(KEY, count, |n| {
            self.send(n);
            true
        })
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
                let _ = world.wait(0, 0);
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
                        let _ = world.wait(n, 0);
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
                    let _ = world.wait(0, 0);
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

/// A waker that counts a thread has woken it, though its time is up: the thread says so. What it has not counted has timed
/// out. And the bit of a wake-up that was not slept for ends no later wait.
#[test]
fn a_wake_up_that_races_a_time_out_is_neither_lost_nor_counted_twice() {
    explore(|| {
        let world = World::<NOTHING>::new();
        let waiter = {
            let world = world.clone();
            thread::spawn(move || world.wait(0, 0))
        };
        let clock = {
            let world = world.clone();
            thread::spawn(move || world.late(0))
        };
        world.word.store(1, Ordering::Release);
        let woken = world.wake(1);
        clock.join().unwrap();
        let first = waiter.join().unwrap();
        match first {
            Ok(()) => assert_eq!(woken, 1),
            Err(Error::TimedOut | Error::Again) => assert_eq!(woken, 0, "{first:?}"),
            Err(e) => panic!("{e:?}"),
        }
        assert_eq!(world.sends(), woken);
        // No thread wakes it any more.
        assert_eq!(world.wait(0, 1), Err(Error::TimedOut));
    });
}

/// Of two waiters one has no time left. Whether it has taken the wake-up decides who passes it on: the other one does not
/// sleep for ever.
#[test]
fn a_waiter_whose_time_is_up_says_whether_it_has_taken_the_wake_up() {
    explore(|| {
        let world = World::<NOTHING>::new();
        world.late(1);
        let late = {
            let world = world.clone();
            thread::spawn(move || {
                if world.wait(1, 0).is_ok() {
                    world.wake(1);
                }
            })
        };
        let waiter = {
            let world = world.clone();
            thread::spawn(move || {
                while world.word.load(Ordering::Acquire) == 0 {
                    let _ = world.wait(0, 0);
                }
            })
        };
        world.word.store(1, Ordering::Release);
        world.wake(1);
        late.join().unwrap();
        waiter.join().unwrap();
    });
}

/// One that cannot be woken, because its node has died, counts for nothing: the next one is woken.
#[test]
fn a_wake_up_for_a_thread_that_is_lost_goes_to_the_next_one() {
    explore(|| {
        let world = World::<NOTHING>::new();
        for n in 0..2 {
            world.table.begin(n, KEY);
        }
        let mut asked = [false; THREADS];
        let woken = world.table.wake(KEY, 1, |n| {
            asked[n as usize] = true;
            n != 0
        });
        assert_eq!((woken, asked), (1, [true, true, false]));
        assert!(world.table.end(0, KEY) && world.table.end(1, KEY));
    });
}
