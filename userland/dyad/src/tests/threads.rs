//! Threads in the emulated system: host threads, which really run at the same time.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use dyad_rt::futex;

use super::{A, X, id, run};
use crate::sync::{Barrier, Condvar, Mutex, Once, Semaphore};
use crate::{Error, Instant, NodeId, Result, rt, sys, thread};

/// What becomes of a program with this main task.
macro_rules! outcome_of {
    ($nodes:expr, $main:ident) => {
        run($nodes, |argument| rt::main_without_args(argument, $main))
    };
}

#[test]
fn threads_run_where_they_are_started_and_give_values_back() {
    async fn main() -> Result<()> {
        let here = thread::current();
        assert_eq!(here.number(), 0);
        let there = thread::spawn_on(id(1), || {
            (crate::node(), crate::isa(), thread::current().id())
        })?;
        let thread = there.thread();
        let (node, isa, seen) = there.join()?;
        assert_eq!((node, isa, seen), (id(1), A, thread.id()));
        assert_eq!(thread.id() - here.id(), thread.number() as u32);
        let values: Vec<_> = (0..8u64)
            .map(|n| thread::spawn(move || n * n))
            .collect::<Result<_>>()?;
        let mut sum = 0;
        for value in values {
            sum += value.join()?;
        }
        assert_eq!(sum, 140);
        Ok(())
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 0);
}

#[test]
fn threads_are_not_started_where_there_is_nothing() {
    async fn main() -> Result<()> {
        let error = |e: Result<thread::JoinHandle<()>>| e.err().and_then(|e| e.system());
        let nowhere = thread::spawn_on(id(2), || ());
        assert_eq!(error(nowhere), Some(sys::Error::NoSuchNode));
        dyad_host::kill_node(id(1));
        let dead = thread::spawn_on(id(1), || ());
        assert_eq!(error(dead), Some(sys::Error::NodeDead));
        // Neither has cost a number, or what it had captured.
        let kept = Arc::new(());
        for _ in 0..100 {
            let kept = kept.clone();
            let dead = thread::spawn_on(id(1), move || drop(kept));
            assert_eq!(error(dead), Some(sys::Error::NodeDead));
        }
        assert_eq!(Arc::strong_count(&kept), 1);
        thread::spawn(|| ())?.join()
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 0);
}

#[test]
fn scopes_wait_for_all_that_borrows() {
    async fn main() -> Result<()> {
        let mut parts = vec![0u64; 6];
        let total = AtomicU64::new(0);
        let inner = thread::scope(|s| -> Result<u64> {
            for (n, part) in parts.iter_mut().enumerate() {
                let total = &total;
                // Nobody joins it.
                let _ = s.spawn(move || {
                    thread::scope(|s| -> Result<()> {
                        s.spawn(|| *part = n as u64 + 1)?;
                        Ok(())
                    })
                    .map(|()| total.fetch_add(*part, Ordering::Relaxed))
                })?;
            }
            s.spawn_on(id(1), || 7)?.join()
        })?;
        assert_eq!(inner, 7);
        assert_eq!(parts, [1, 2, 3, 4, 5, 6]);
        assert_eq!(total.into_inner(), 21);
        Ok(())
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 0);
}

#[test]
fn locks_and_conditions_lose_nothing() {
    const ROUNDS: u64 = 2000;
    async fn main() -> Result<()> {
        let total = Mutex::new(0u64);
        let queue = (Mutex::new(VecDeque::new()), Condvar::new());
        let room = Semaphore::new(2);
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let once = (Once::new(), AtomicU32::new(0));
        let gate = Barrier::new(4);
        let sum = AtomicU64::new(0);
        thread::scope(|s| -> Result<()> {
            for n in 0..4 {
                let (total, queue, room, once, gate) = (&total, &queue, &room, &once, &gate);
                let (inside, most, sum) = (&inside, &most, &sum);
                s.spawn_on(id(n % 2), move || -> Result<(), sys::Error> {
                    once.0.call_once(|| {
                        once.1.fetch_add(1, Ordering::Relaxed);
                    });
                    assert_eq!(once.1.load(Ordering::Relaxed), 1);
                    for i in 1..=ROUNDS {
                        let mut held = total.lock();
                        let seen = *held;
                        *held = core::hint::black_box(seen) + 1;
                        drop(held);
                        room.acquire();
                        let now = inside.fetch_add(1, Ordering::AcqRel) + 1;
                        most.fetch_max(now, Ordering::AcqRel);
                        inside.fetch_sub(1, Ordering::AcqRel);
                        room.release();
                        if n < 2 {
                            queue.0.lock().push_back(i);
                            queue.1.notify_one();
                        } else {
                            let empty = |q: &mut VecDeque<u64>| q.is_empty();
                            let mut q = queue.1.wait_while(queue.0.lock(), empty);
                            sum.fetch_add(q.pop_front().unwrap_or(0), Ordering::Relaxed);
                        }
                    }
                    gate.wait().map(drop)
                })?;
            }
            Ok(())
        })?;
        assert_eq!(total.into_inner(), 4 * ROUNDS);
        assert_eq!(sum.into_inner(), ROUNDS * (ROUNDS + 1));
        assert!(most.into_inner() <= 2);
        Ok(())
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 0);
}

#[test]
fn one_of_each_round_of_a_barrier_is_the_last() {
    async fn main() -> Result<()> {
        let (gate, count, lasts) = (Barrier::new(3), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|s| -> Result<()> {
            for _ in 0..3 {
                s.spawn(|| -> Result<(), sys::Error> {
                    for round in 1..=200 {
                        count.fetch_add(1, Ordering::Relaxed);
                        lasts.fetch_add(gate.wait()?.0.into(), Ordering::Relaxed);
                        assert_eq!(count.load(Ordering::Relaxed), 3 * round);
                        lasts.fetch_add(gate.wait()?.0.into(), Ordering::Relaxed);
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        assert_eq!(lasts.into_inner(), 400);
        Ok(())
    }
    assert_eq!(outcome_of!(&[X], main).code, 0);
}

#[test]
fn waits_end_at_their_deadlines_and_with_changes() {
    async fn main() -> Result<()> {
        let word = AtomicU32::new(5);
        // There is another thread, so time does not jump.
        let (lock, never) = (Mutex::new(()), Condvar::new());
        thread::scope(|s| -> Result<()> {
            s.spawn(|| thread::sleep(Duration::from_millis(30)))?;
            let end = Instant::now() + Duration::from_millis(5);
            assert_eq!(
                futex::wait(&word, 4, end.as_nanos()),
                Err(sys::Error::Again)
            );
            assert_eq!(
                futex::wait(&word, 5, end.as_nanos()),
                Err(sys::Error::TimedOut)
            );
            assert!(Instant::now() >= end);
            let end = Instant::now() + Duration::from_millis(5);
            let (held, woken) = never.wait_until(lock.lock(), end.as_nanos());
            drop(held);
            assert!(!woken && Instant::now() >= end);
            // Nobody waits any more.
            assert_eq!((futex::wake_all(&word), never.notify_all()), (0, 0));
            Ok(())
        })
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 0);
}

#[test]
fn a_wake_up_wakes_as_many_as_it_says() {
    async fn main() -> Result<()> {
        let (word, out) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|s| -> Result<()> {
            for _ in 0..5 {
                s.spawn(|| {
                    let end = Instant::now() + Duration::from_secs(60);
                    let woken = futex::wait(&word, 0, end.as_nanos());
                    out.fetch_add(1, Ordering::AcqRel);
                    woken
                })?;
            }
            let mut woken = 0;
            while woken < 3 {
                woken += futex::wake(&word, 3 - woken);
                thread::yield_now();
            }
            while out.load(Ordering::Acquire) < 3 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(5));
            assert_eq!(out.load(Ordering::Acquire), 3);
            word.store(1, Ordering::Release);
            while out.load(Ordering::Acquire) < 5 {
                futex::wake_all(&word);
                thread::yield_now();
            }
            Ok(())
        })
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 0);
}

#[test]
fn any_thread_can_end_the_program() {
    async fn main() -> Result<()> {
        thread::spawn_on(id(1), || -> () { sys::exit(7) })?.join()
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 7);
}

#[test]
fn async_tasks_are_for_the_first_thread() {
    async fn main() -> Result<()> {
        thread::spawn(|| drop(crate::task::spawn(async {})))?.join()
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 101);
    // While one waits for a thread, a task on the first one goes on afterwards.
    async fn both() -> Result<()> {
        let task = crate::task::spawn(async { 3 });
        let thread = thread::spawn(|| 4)?;
        let sum = thread.join()? + task.await;
        (sum == 7).then_some(()).ok_or_else(|| Error::msg(sum))
    }
    assert_eq!(outcome_of!(&[X, A], both).code, 0);
}

#[test]
fn errors_of_threads_come_back_as_they_are() {
    async fn main() -> Result<()> {
        let failed = thread::spawn(|| -> Result<NodeId> { Err(sys::Error::NoIsa.into()) })?;
        let error = failed.join()?.err().and_then(|e| e.system());
        assert_eq!(error, Some(sys::Error::NoIsa));
        Ok(())
    }
    assert_eq!(outcome_of!(&[X, A], main).code, 0);
}
