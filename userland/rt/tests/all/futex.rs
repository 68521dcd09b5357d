//! The futex table under load, with parking that has no deadline: a wake-up that is lost, or taken by
//! a thread that does not know it, leaves a thread asleep for ever.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;

use dyad_rt::futex::Table;

const THREADS: usize = 8;
/// All that there can be.
const ALL: usize = dyad_abi::user::MAX_PROGRAM_THREADS as usize;

struct Line {
    sent: Mutex<bool>,
    come: Condvar,
}

struct World {
    table: Table<AtomicU64>,
    lines: [Line; ALL],
    sends: AtomicU64,
    woken: AtomicU64,
}

impl World {
    fn new() -> World {
        World {
            table: Table::new(),
            lines: std::array::from_fn(|_| Line {
                sent: Mutex::new(false),
                come: Condvar::new(),
            }),
            sends: AtomicU64::new(0),
            woken: AtomicU64::new(0),
        }
    }

    fn key(word: &AtomicU32) -> u64 {
        std::ptr::from_ref(word) as u64
    }

    fn wait(&self, n: usize, word: &AtomicU32, value: u32) {
        let key = World::key(word);
        self.table.begin(n as u64, key);
        if word.load(Ordering::SeqCst) == value {
            let line = &self.lines[n];
            while self.table.waits(n as u64, key) {
                let mut sent = line.sent.lock().unwrap();
                while !*sent {
                    sent = line.come.wait(sent).unwrap();
                }
                *sent = false;
            }
        }
        if self.table.end(n as u64, key) {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wake(&self, word: &AtomicU32, count: u32) -> u32 {
        let key = World::key(word);
        let mut waiting = self.table.waiting(key);
        for woken in 0..count {
            let Some(n) = self.table.claim(key, &mut waiting) else {
                return woken;
            };
            let line = &self.lines[n as usize];
            *line.sent.lock().unwrap() = true;
            line.come.notify_one();
            self.sends.fetch_add(1, Ordering::Relaxed);
        }
        count
    }
}

/// Pairs of threads in turn, each pair with a word of its own; words share buckets.
#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn no_turn_is_lost() {
    let world = World::new();
    let words: [AtomicU32; THREADS / 2] = Default::default();
    thread::scope(|s| {
        for n in 0..THREADS {
            let (world, word) = (&world, &words[n / 2]);
            let mine = n as u32 % 2;
            s.spawn(move || {
                for _ in 0..5000 {
                    while word.load(Ordering::Acquire) != mine {
                        world.wait(n, word, 1 - mine);
                    }
                    word.store(1 - mine, Ordering::Release);
                    world.wake(word, 1);
                }
            });
        }
    });
    let sends = world.sends.load(Ordering::Relaxed);
    assert_eq!(sends, world.woken.load(Ordering::Relaxed));
}

/// All take and give the same few permits, woken one at a time.
#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn no_permit_is_lost() {
    let world = World::new();
    let permits = AtomicU32::new(2);
    let inside = AtomicU32::new(0);
    thread::scope(|s| {
        for n in 0..THREADS {
            let (world, permits, inside) = (&world, &permits, &inside);
            s.spawn(move || {
                for _ in 0..3000 {
                    while permits
                        .fetch_update(Ordering::Acquire, Ordering::Relaxed, |p| p.checked_sub(1))
                        .is_err()
                    {
                        world.wait(n, permits, 0);
                    }
                    assert!(inside.fetch_add(1, Ordering::Relaxed) < 2);
                    inside.fetch_sub(1, Ordering::Relaxed);
                    permits.fetch_add(1, Ordering::Release);
                    world.wake(permits, 1);
                }
            });
        }
    });
    assert_eq!(permits.into_inner(), 2);
    let sends = world.sends.load(Ordering::Relaxed);
    assert_eq!(sends, world.woken.load(Ordering::Relaxed));
}

/// As many threads as a table has room for wait for one word, without a deadline. Another thread wakes them: by
/// ones, threes and seventeens, the rest, and all at once.
#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn all_that_can_wait_are_woken_by_counts() {
    let rest = ALL as u32 - 21;
    for counts in [&[1, 3, 17, rest][..], &[rest, 17, 3, 1], &[ALL as u32]] {
        let world = World::new();
        let word = AtomicU32::new(0);
        thread::scope(|s| {
            for n in 0..ALL {
                let (world, word) = (&world, &word);
                s.spawn(move || world.wait(n, word, 0));
            }
            let mut sum = 0;
            for &count in counts {
                // Those that have not come to wait yet are waited for.
                let mut left = count;
                while left > 0 {
                    let woken = world.wake(&word, left);
                    assert!(woken <= left);
                    left -= woken;
                    thread::yield_now();
                }
                sum += u64::from(count);
                while world.woken.load(Ordering::Relaxed) < sum {
                    thread::yield_now();
                }
                assert_eq!(world.woken.load(Ordering::Relaxed), sum);
                assert_eq!(world.sends.load(Ordering::Relaxed), sum);
            }
            assert_eq!(world.wake(&word, u32::MAX), 0);
        });
        assert_eq!(world.woken.into_inner(), ALL as u64);
    }
}

/// No waiter is passed over as long as others are woken.
#[test]
fn turns_go_round() {
    let world = World::new();
    let word = AtomicU32::new(0);
    let key = World::key(&word);
    for n in 0..THREADS as u64 {
        world.table.begin(n, key);
    }
    let mut seen = [0; THREADS];
    for _ in 0..3 * THREADS {
        let mut waiting = world.table.waiting(key);
        let n = world.table.claim(key, &mut waiting).unwrap();
        seen[n as usize] += 1;
        assert!(world.table.end(n, key));
        // It waits again at once.
        world.table.begin(n, key);
    }
    assert_eq!(seen, [3; THREADS]);
    // At another word no thread waits, also if it is in the same bucket.
    for other in 1..200 {
        let key = key + 4 * other;
        let mut waiting = world.table.waiting(key);
        assert_eq!(world.table.claim(key, &mut waiting), None);
    }
}
