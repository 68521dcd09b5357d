//! Threads that migrate, all of them: started anywhere, nested, meeting under locks, ending wherever
//! they are.

use dyad::prelude::thread::*;
use dyad::sync::{Barrier, Condvar, Mutex};
use dyad::thread;

extern crate alloc;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Line, mix};
use crate::schedule::{self, node_in_turn, point};

/// Threads at a time.
const THREADS: u64 = 4;

/// What a thread computes: recursion, a sort and a box, points everywhere.
fn compute(seed: u64) -> u64 {
    fn down(n: u64, seen: &mut Vec<u64>) -> u64 {
        point();
        seen.push(mix(n, 5));
        match n {
            0 => 1,
            n => 1 + down(n - 1, seen),
        }
    }
    let mut seen = Vec::new();
    let depth = down(6 + seed, &mut seen);
    let mut compared = 0u64;
    seen.sort_by_key(|v| {
        point();
        compared += 1;
        *v
    });
    let boxed = Box::new(seen);
    point();
    boxed.iter().fold(depth ^ compared, |h, v| mix(h, *v))
}

/// Threads on every node, which are joined wherever they have ended.
fn spawned() -> Result<u64> {
    let me = thread::current();
    let mut handles = Vec::new();
    for seed in 0..THREADS {
        handles.push(thread::spawn_on(node_in_turn(seed), move || {
            let before = thread::current();
            let value = compute(seed);
            // It is the same thread wherever it is now.
            (thread::current() == before, before, value)
        })?);
    }
    let mut hash = 0;
    for handle in handles {
        point();
        let started = handle.thread();
        let (same, thread, value) = handle.join()?;
        if !same || thread != started || thread == me {
            return Err(Error::msg("a thread is another one"));
        }
        hash = mix(hash, value);
    }
    Ok(hash)
}

/// A tree of threads: each starts two in a scope of its own, and all write to the frames of those above.
fn tree(depth: u64, leaves: &mut [u64]) -> Result<()> {
    point();
    if depth == 0 {
        for leaf in leaves.iter_mut() {
            *leaf = compute(*leaf);
        }
        return Ok(());
    }
    let middle = leaves.len() / 2;
    let (left, right) = leaves.split_at_mut(middle);
    let mut mine = depth;
    thread::scope(|s| -> Result<()> {
        let mine = &mut mine;
        let one = s.spawn_on(node_in_turn(depth), move || {
            point();
            tree(depth - 1, left)
        })?;
        let two = s.spawn(move || {
            *mine += 1;
            point();
            tree(depth - 1, right)
        })?;
        point();
        one.join()??;
        two.join()?
    })?;
    point();
    match mine == depth + 1 {
        true => Ok(()),
        false => Err(Error::msg("a value of a frame above is lost")),
    }
}

fn scoped() -> Result<u64> {
    let mut leaves = [0u64, 1, 2, 3];
    tree(2, &mut leaves)?;
    Ok(leaves.iter().fold(0, |h, v| mix(h, *v)))
}

/// What threads pass to each other, and how many they are.
#[derive(Default)]
struct Meeting {
    queue: Mutex<VecDeque<u64>>,
    filled: Condvar,
    total: Mutex<u64>,
}

/// Mutexes and conditions that are held, and waited for, across moves; a barrier.
fn meeting() -> Result<u64> {
    const ROUNDS: u64 = 12;
    let here = Arc::new(Meeting::default());
    let barrier = Arc::new(Barrier::new(THREADS as u32));
    let mut handles = Vec::new();
    for n in 0..THREADS {
        let (here, barrier) = (here.clone(), barrier.clone());
        handles.push(thread::spawn_on(
            node_in_turn(n),
            move || -> Result<u64> {
                let mut sum = 0;
                for round in 0..ROUNDS {
                    // A read and a write with a move between them: two holders at once would lose one.
                    let mut total = here.total.lock();
                    let seen = *total;
                    point();
                    *total = seen + 1;
                    drop(total);
                    if n % 2 == 0 {
                        let mut queue = here.queue.lock();
                        point();
                        queue.push_back(round + 1);
                        here.filled.notify_one();
                    } else {
                        let mut queue = here.filled.wait_while(here.queue.lock(), |q| q.is_empty());
                        point();
                        sum += queue.pop_front().unwrap_or(0);
                    }
                    point();
                }
                barrier.wait()?;
                point();
                Ok(sum)
            },
        )?);
    }
    let mut sum = 0;
    for handle in handles {
        sum += handle.join()??;
    }
    let total = *here.total.lock();
    let expected = THREADS / 2 * ROUNDS * (ROUNDS + 1) / 2;
    let good = sum == expected && total == THREADS * ROUNDS && here.queue.lock().is_empty();
    match good {
        true => Ok(mix(sum, total)),
        false => Err(Error::msg("something was lost in a meeting")),
    }
}

/// What a thread can see of itself and of the system.
fn view() -> Result<u64> {
    let system = dyad::system()?;
    let mut hash = mix(system.cxl().start, system.cxl().len);
    for node in system.nodes() {
        let live = u64::from(node.live) | u64::from(node.incarnation) << 1;
        for value in [
            node.id.index() as u64,
            node.isa.index() as u64,
            u64::from(node.cpus),
            live,
            node.pool.start,
            node.pool.len,
        ] {
            hash = mix(hash, value);
        }
    }
    let me = thread::current();
    hash = mix(hash, u64::from(me.id()) << 8 | me.number() as u64);
    let parallel = thread::available_parallelism()?;
    hash = mix(hash, parallel.get() as u64);
    for text in Args::load()?.iter() {
        hash = text.bytes().fold(hash, |h, b| mix(h, b.into()));
    }
    Ok(hash)
}

/// The same is seen before and behind a move: ids, nodes, CPUs, arguments, what is on the heap. How much
/// there is on it is no part of that: threads that have been joined may still give back what they had.
fn sight() -> Result<u64> {
    let start = Box::new(17u64);
    let address = &raw const *start as usize;
    let first = view()?;
    for _ in 0..8 {
        point();
        if view()? != first || &raw const *start as usize != address || *start != 17 {
            return Err(Error::msg("another system is seen"));
        }
    }
    // And by another thread.
    let (one, two) = thread::spawn_on(node_in_turn(1), || -> Result<(u64, u64)> {
        let one = view()?;
        point();
        Ok((one, view()?))
    })?
    .join()??;
    match one == two {
        // What is seen differs between systems and options, so it is no part of the result.
        true => Ok(*start),
        false => Err(Error::msg("another system is seen by a thread")),
    }
}

fn line(name: &'static str, result: Result<u64>) -> Line {
    (
        name,
        result.map_err(|e| {
            eprintln!("{name}: {e}");
            "a thread"
        }),
    )
}

/// All of it.
pub fn all() -> [Line; 4] {
    [
        line("spawned", spawned()),
        line("scoped", scoped()),
        line("meeting", meeting()),
        line("sight", sight()),
    ]
}

/// A thread that has moved panics, while another one waits: the first one, or one that was started.
pub fn panic(first: bool) -> Result<()> {
    fn work(name: &str) -> Result<()> {
        let kept = format!("{name} has moved");
        schedule::go()?;
        panic!("{kept} to {}", isa());
    }
    let waiting = Arc::new(Meeting::default());
    let held = waiting.clone();
    let waiter = thread::spawn_on(node_in_turn(0), move || {
        point();
        drop(held.filled.wait_while(held.queue.lock(), |q| q.is_empty()));
    })?;
    match first {
        true => work("the first")?,
        false => thread::spawn_on(node_in_turn(0), || work("another"))?.join()??,
    }
    // Nobody comes here.
    waiter.join()
}

/// Works step by step, with a point in each, in several threads that are moved from outside; and on without
/// working until they have been moved `moves` times in all. Gives what they have computed, and how often
/// they found themselves on another node.
pub fn asked(threads: u64, steps: u64, moves: u64) -> Result<(u64, u64)> {
    static MOVED: AtomicU64 = AtomicU64::new(0);
    const PATIENCE: Duration = Duration::from_secs(100);
    fn work(seed: u64, steps: u64, moves: u64) -> u64 {
        let (mut hash, mut last, start) = (seed, node(), Instant::now());
        let mut n = 0;
        let open = || MOVED.load(Ordering::Relaxed) < moves && start.elapsed() < PATIENCE;
        while n < steps || open() {
            if n < steps {
                hash = mix(hash, n);
                n += 1;
            }
            thread::sleep(Duration::from_micros(500));
            dyad::thread::migrate_point();
            if node() != last {
                MOVED.fetch_add(1, Ordering::Relaxed);
                last = node();
            }
        }
        if moves > 0 {
            // Whoever has asked last wants to see it there.
            thread::sleep(Duration::from_secs(2));
        }
        hash
    }
    let handles: Vec<_> = (1..threads)
        .map(|n| thread::spawn_on(node_in_turn(n), move || work(n, steps, moves)))
        .collect::<Result<_>>()?;
    println!("to be moved: {threads} threads");
    let mut hash = work(0, steps, moves);
    for handle in handles {
        hash = mix(hash, handle.join()?);
    }
    Ok((hash, MOVED.load(Ordering::Relaxed)))
}
