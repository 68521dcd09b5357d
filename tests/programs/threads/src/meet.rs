//! Threads that meet: nothing is lost, nobody is in the way of another.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use dyad::prelude::*;
use dyad::report;
use dyad::sync::{Barrier, Condvar, Mutex, Once, Semaphore};

use crate::{nodes, on_all};

/// Threads on each node.
const EACH: usize = 3;
const ROUNDS: u64 = 400;

static TOTAL: Mutex<u64> = Mutex::new(0);
static ONCE: Once = Once::new();
static ONCES: AtomicU32 = AtomicU32::new(0);
static ROOM: Semaphore = Semaphore::new(2);
static INSIDE: AtomicU32 = AtomicU32::new(0);
static MOST: AtomicU32 = AtomicU32::new(0);
static QUEUE: Mutex<VecDeque<u64>> = Mutex::new(VecDeque::new());
static FILLED: Condvar = Condvar::new();

/// A queue through which producers and consumers on all nodes pass numbers.
fn pass(n: usize) -> u64 {
    if n.is_multiple_of(2) {
        for i in 1..=ROUNDS {
            QUEUE.lock().push_back(i);
            FILLED.notify_one();
        }
        return 0;
    }
    let mut sum = 0;
    for _ in 0..ROUNDS {
        let mut queue = FILLED.wait_while(QUEUE.lock(), |q| q.is_empty());
        sum += queue.pop_front().unwrap_or(0);
    }
    sum
}

pub fn sync() -> Result<()> {
    let threads = (EACH * nodes()?.len()) as u64;
    on_all(EACH, |_| {
        for _ in 0..ROUNDS {
            // A read and a write, so that two holders at once would lose one.
            let mut total = TOTAL.lock();
            let seen = *total;
            *total = core::hint::black_box(seen) + 1;
        }
    })?;
    let total = *TOTAL.lock();
    report::check(
        "threads.mutex",
        total == threads * ROUNDS,
        format_args!("{total} of {}", threads * ROUNDS),
    );

    on_all(EACH, |_| {
        ONCE.call_once(|| {
            dyad::thread::sleep(Duration::from_millis(2));
            ONCES.fetch_add(1, Ordering::Relaxed);
        });
        assert!(ONCE.is_done() && ONCES.load(Ordering::Relaxed) == 1);
    })?;
    let onces = ONCES.load(Ordering::Relaxed);
    report::check("threads.once", onces == 1, format_args!("{onces}"));

    on_all(EACH, |_| {
        for _ in 0..20 {
            ROOM.acquire();
            let inside = INSIDE.fetch_add(1, Ordering::AcqRel) + 1;
            MOST.fetch_max(inside, Ordering::AcqRel);
            dyad::thread::yield_now();
            INSIDE.fetch_sub(1, Ordering::AcqRel);
            ROOM.release();
        }
    })?;
    let most = MOST.load(Ordering::Relaxed);
    report::check(
        "threads.semaphore",
        most <= 2,
        format_args!("{most} at most"),
    );

    // An even number of threads, half of which fill the queue.
    let sums = on_all(EACH + EACH % 2, pass)?;
    let sum: u64 = sums.iter().sum();
    let expected = sums.len() as u64 / 2 * ROUNDS * (ROUNDS + 1) / 2;
    report::check(
        "threads.condvar",
        sum == expected && QUEUE.lock().is_empty(),
        format_args!("{sum} of {expected}"),
    );
    barrier()
}

/// In each round all add, meet, look, and meet again.
fn barrier() -> Result<()> {
    let nodes = nodes()?;
    let threads = EACH * nodes.len();
    let gate = Arc::new((Barrier::new(threads as u32), AtomicU32::new(0)));
    let handles: Vec<_> = (0..threads)
        .map(|n| {
            let gate = gate.clone();
            dyad::thread::spawn_on(
                nodes[n % nodes.len()],
                move || -> Result<(u32, bool), sys::Error> {
                    let (barrier, count) = &*gate;
                    let (mut last, mut good) = (0, true);
                    for round in 1..=50 {
                        count.fetch_add(1, Ordering::Relaxed);
                        last += u32::from(barrier.wait()?.0);
                        good &= count.load(Ordering::Relaxed) == round * threads as u32;
                        last += u32::from(barrier.wait()?.0);
                    }
                    Ok((last, good))
                },
            )
        })
        .collect::<Result<_>>()?;
    let (mut lasts, mut good) = (0, true);
    for handle in handles {
        let (last, whole) = handle.join()??;
        lasts += last;
        good &= whole;
    }
    report::check(
        "threads.barrier",
        good && lasts == 100,
        format_args!("{lasts} of 100 rounds"),
    );
    // With a deadline nobody waits longer.
    let start = Instant::now();
    let (_, woken) = FILLED.wait_until(QUEUE.lock(), (start + Duration::from_millis(3)).as_nanos());
    report::check(
        "threads.deadline",
        !woken && start.elapsed() >= Duration::from_millis(3),
        format_args!("after {:?}", start.elapsed()),
    );
    Ok(())
}

use dyad::sys;
