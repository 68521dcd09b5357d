//! Threads that meet: nothing is lost, nobody is in the way of another.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use dyad::prelude::task::*;
use dyad::report;
use dyad::sync::{Barrier, Condvar, Mutex, Once, RwLock, Semaphore, mpsc};
use dyad::thread;

use crate::{nodes, on_all};

/// Threads on each node.
const EACH: usize = 3;
const ROUNDS: u64 = 400;
/// Threads that are unparked when they begin.
const STARTS: usize = 100;
/// How long that may take.
const PROMPT: Duration = Duration::from_secs(20);

static TOTAL: Mutex<u64> = Mutex::new(0);
static ONCE: Once = Once::new();
static ONCES: AtomicU32 = AtomicU32::new(0);
static ROOM: Semaphore = Semaphore::new(2);
static INSIDE: AtomicU32 = AtomicU32::new(0);
static MOST: AtomicU32 = AtomicU32::new(0);
static QUEUE: Mutex<VecDeque<u64>> = Mutex::new(VecDeque::new());
static FILLED: Condvar = Condvar::new();
/// Two words that only writers may see different.
static PAIR: RwLock<[u64; 2]> = RwLock::new([0; 2]);

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
    rwlock()?;
    channel()?;
    parking()?;
    barrier()
}

/// Writers on all nodes change two words one after the other; no reader sees them different.
fn rwlock() -> Result<()> {
    let whole = on_all(EACH, |n| {
        let mut whole = true;
        for _ in 0..ROUNDS {
            if n.is_multiple_of(EACH) {
                let mut pair = PAIR.write();
                pair[0] += 1;
                let seen = core::hint::black_box(pair[0]);
                pair[1] = seen;
            } else {
                let pair = PAIR.read();
                whole &= pair[0] == core::hint::black_box(&pair)[1];
            }
        }
        whole
    })?;
    let writers = whole.len().div_ceil(EACH) as u64;
    let last = *PAIR.read();
    report::check(
        "threads.rwlock",
        whole.iter().all(|w| *w) && last == [writers * ROUNDS; 2],
        format_args!("{last:?} by {writers} writers"),
    );
    Ok(())
}

/// A channel with little room: what each thread sends comes in its order, and the channel ends with the last sender.
fn channel() -> Result<()> {
    let nodes = nodes()?;
    let (send, receive) = mpsc::sync_channel(4);
    let mut senders = Vec::new();
    for n in 0..EACH * nodes.len() {
        let send = send.clone();
        senders.push(thread::spawn_on(nodes[n % nodes.len()], move || {
            (0..ROUNDS).all(|i| send.send((n, i)).is_ok())
        })?);
    }
    drop(send);
    let mut next = vec![0; senders.len()];
    let mut in_order = true;
    for (from, i) in receive.iter() {
        in_order &= next[from] == i;
        next[from] += 1;
    }
    let mut sent = true;
    for sender in senders {
        sent &= sender.join()?;
    }
    report::check(
        "threads.channel",
        in_order && sent && next.iter().all(|n| *n == ROUNDS),
        format_args!("{next:?}"),
    );
    Ok(())
}

/// Two threads, on two nodes if there are two, that park and unpark each other in turn.
fn parking() -> Result<()> {
    let nodes = nodes()?;
    let turn = Arc::new(AtomicU32::new(0));
    let first = thread::current();
    let theirs = turn.clone();
    let last = nodes[nodes.len() - 1];
    let other = thread::spawn_on(last, move || {
        for n in (0..2 * ROUNDS as u32).step_by(2) {
            while theirs.load(Ordering::Acquire) != n + 1 {
                thread::park();
            }
            theirs.store(n + 2, Ordering::Release);
            first.unpark();
        }
    })?;
    for n in (0..2 * ROUNDS as u32).step_by(2) {
        turn.store(n + 1, Ordering::Release);
        other.thread().unpark();
        while turn.load(Ordering::Acquire) != n + 2 {
            if other.thread().is_lost() {
                // Nobody else will unpark this thread.
                return Err(sys::Error::NodeDead.into());
            }
            thread::park();
        }
    }
    other.join()?;
    // An unpark that comes before the thread has begun is not lost either.
    let end = Instant::now() + PROMPT;
    let mut woken = 0;
    for n in 0..STARTS {
        let parked = thread::spawn_on(nodes[n % nodes.len()], thread::park)?;
        parked.thread().unpark();
        while !parked.is_finished() && Instant::now() < end {
            thread::yield_now();
        }
        woken += usize::from(parked.is_finished());
        drop(parked);
    }
    let turns = turn.load(Ordering::Relaxed);
    let (start, time) = (Instant::now(), Duration::from_millis(3));
    // What is left of the last turn makes one wait none.
    for _ in 0..2 {
        thread::park_timeout(time);
    }
    let took = start.elapsed();
    report::check(
        "threads.parking",
        turns == 2 * ROUNDS as u32 && took >= time && woken == STARTS,
        format_args!("{turns} turns, {woken} of {STARTS} woken at their start, then {took:?}"),
    );
    Ok(())
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
