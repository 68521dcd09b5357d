//! What threads and tasks wait with, in the emulated system: reader-writer locks, values made once, parking, timeouts.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{A, HALF, LONG, X, id, lose, run};
use crate::prelude::task::*;
use crate::sync::{OnceLock, RwLock};
use crate::task::{Either, Elapsed, select, timeout};
use crate::{rt, sys, thread};

#[test]
fn readers_see_what_writers_leave() {
    async fn main() -> Result<()> {
        const ROUNDS: u64 = 300;
        let pair = Arc::new(RwLock::new([0u64; 2]));
        let mut threads = Vec::new();
        for n in 0..6 {
            let pair = pair.clone();
            threads.push(thread::spawn_on(id(n % 2), move || {
                for _ in 0..ROUNDS {
                    if n < 3 {
                        let mut pair = pair.write();
                        pair[0] += 1;
                        thread::yield_now();
                        pair[1] += 1;
                    } else {
                        let pair = pair.read();
                        assert_eq!(pair[0], pair[1]);
                        thread::yield_now();
                        assert_eq!(pair[0], pair[1]);
                    }
                }
            })?);
        }
        for thread in threads {
            thread.join()?;
        }
        assert_eq!(*pair.read(), [3 * ROUNDS; 2]);
        // Readers share it; a writer does not, and neither comes in while the other is there.
        let (one, two) = (pair.read(), pair.try_read().unwrap());
        assert!(pair.try_write().is_none());
        drop((one, two));
        let writer = pair.try_write().unwrap();
        assert!(pair.try_read().is_none() && pair.try_write().is_none());
        drop(writer);
        assert!(pair.try_write().is_some());
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// A reader that comes after a waiting writer waits, too: readers that take turns do not keep a writer out.
#[test]
fn a_writer_that_waits_comes_before_later_readers() {
    async fn main() -> Result<()> {
        let lock = Arc::new(RwLock::new(0u32));
        let first = lock.read();
        let writer = {
            let lock = lock.clone();
            thread::spawn_on(id(1), move || *lock.write() = 1)?
        };
        while lock.try_read().is_some() {
            thread::yield_now();
        }
        let reader = {
            let lock = lock.clone();
            thread::spawn_on(id(0), move || *lock.read())?
        };
        thread::sleep(Duration::from_millis(2));
        assert!(!writer.is_finished() && !reader.is_finished());
        drop(first);
        writer.join()?;
        reader.join()?;
        assert_eq!(*lock.read(), 1);
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

#[test]
fn a_lock_of_a_lost_thread_is_named() {
    async fn lost_with<const WRITES: bool>() -> Result<()> {
        let lock = Arc::new(RwLock::new(0u32));
        let (holder, held) = (lock.clone(), Arc::new(AtomicBool::new(false)));
        let is_held = held.clone();
        let lost = thread::spawn_on(id(1), move || {
            let guards = match WRITES {
                true => (Some(holder.write()), None),
                false => (None, Some(holder.read())),
            };
            is_held.store(true, Ordering::Release);
            loop {
                thread::yield_now();
                core::hint::black_box(&guards);
            }
        })?;
        while !held.load(Ordering::Acquire) {
            thread::yield_now();
        }
        dyad_host::kill_node(id(1));
        let dead = |e: Option<sys::Error>| assert_eq!(e, Some(sys::Error::NodeDead));
        dead(lock.write_or_lost().err());
        if WRITES {
            dead(lock.read_or_lost().err());
        }
        dead(lost.join().err().and_then(|e: Error| e.system()));
        Ok(())
    }
    async fn write() -> Result<()> {
        lost_with::<true>().await
    }
    async fn read() -> Result<()> {
        lost_with::<false>().await
    }
    assert_eq!([code_of!(write), code_of!(read)], [0; 2]);
}

/// After a loss, readers that live are waited for as before.
#[test]
fn a_writer_waits_for_readers_that_live() {
    async fn main() -> Result<()> {
        let lock = Arc::new(RwLock::new(0u32));
        *lock.write() = 1;
        let lost = thread::spawn_on(id(1), || {
            loop {
                thread::yield_now();
            }
        })?;
        dyad_host::kill_node(id(1));
        let dead = lost.join().err().and_then(|e: Error| e.system());
        assert_eq!(dead, Some(sys::Error::NodeDead));
        let reader = lock.read();
        let other = lock.clone();
        let writer = thread::spawn(move || other.write_or_lost().map(|mut n| *n = 2))?;
        thread::sleep(Duration::from_millis(20));
        assert!(!writer.is_finished());
        drop(reader);
        assert_eq!(writer.join()?, Ok(()));
        assert_eq!(*lock.read(), 2);
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// Also if the lost thread has read before, and one of the readers that live leaves meanwhile.
#[test]
fn a_writer_waits_long_for_readers_that_live() {
    async fn main() -> Result<()> {
        let lock = Arc::new(RwLock::new(1u32));
        let theirs = lock.clone();
        lose(move || {
            let outer = theirs.read();
            let inner = theirs.try_read();
            drop(outer);
            drop(inner);
        })?;
        let stays = lock.read();
        let reads = Arc::new(AtomicBool::new(false));
        let (other, there) = (lock.clone(), reads.clone());
        let leaves = thread::spawn(move || {
            let guard = other.read();
            there.store(true, Ordering::Release);
            thread::sleep(HALF);
            *guard
        })?;
        // A reader that comes behind a waiting writer waits for the writer.
        while !reads.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let other = lock.clone();
        let writer = thread::spawn(move || other.write_or_lost().map(|mut n| *n = 2))?;
        assert_eq!(leaves.join()?, 1);
        thread::sleep(LONG);
        assert!(!writer.is_finished());
        drop(stays);
        assert_eq!(writer.join()?, Ok(()));
        assert_eq!(*lock.read(), 2);
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// A thread that has left one of two guards still reads.
#[test]
fn a_lost_reader_is_known_among_readers_that_live() {
    async fn main() -> Result<()> {
        let lock = Arc::new(RwLock::new(0u32));
        let theirs = lock.clone();
        let _stays = lock.read();
        lose(move || {
            let outer = theirs.read();
            core::mem::forget(theirs.try_read());
            drop(outer);
        })?;
        let start = Instant::now();
        let dead = Some(sys::Error::NodeDead);
        assert_eq!(lock.write_or_lost().err(), dead);
        assert!(start.elapsed() < HALF, "it is known at once");
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

#[test]
fn a_value_is_made_once() {
    async fn main() -> Result<()> {
        let made = Arc::new(AtomicU64::new(0));
        let value = Arc::new(OnceLock::new());
        let mut threads = Vec::new();
        for n in 0..6 {
            let (made, value) = (made.clone(), value.clone());
            threads.push(thread::spawn_on(id(n % 2), move || {
                *value.get_or_init(|| {
                    made.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(1));
                    n
                })
            })?);
        }
        let mut seen = Vec::new();
        for thread in threads {
            seen.push(thread.join()?);
        }
        assert!(seen.iter().all(|&n| Some(&n) == value.get()), "{seen:?}");
        assert_eq!((made.load(Ordering::Relaxed), value.set(7)), (1, Err(7)));
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

#[test]
fn no_unpark_is_lost() {
    async fn main() -> Result<()> {
        // One that comes first makes the next wait none.
        thread::current().unpark();
        thread::current().unpark();
        let start = Instant::now();
        thread::park();
        // The second one was not kept: this one waits.
        let wait = Duration::from_millis(3);
        thread::park_timeout(wait);
        assert!(start.elapsed() >= wait);

        const TURNS: u64 = 500;
        let turn = Arc::new(AtomicU64::new(0));
        let first = thread::current();
        let theirs = turn.clone();
        let other = thread::spawn_on(id(1), move || {
            for n in 0..TURNS {
                while theirs.load(Ordering::Acquire) != 2 * n + 1 {
                    thread::park();
                }
                theirs.store(2 * n + 2, Ordering::Release);
                first.unpark();
            }
        })?;
        for n in 0..TURNS {
            turn.store(2 * n + 1, Ordering::Release);
            other.thread().unpark();
            while turn.load(Ordering::Acquire) != 2 * n + 2 {
                thread::park();
            }
        }
        other.join()?;
        // What a thread was told is not for the next one with its number.
        let old = thread::spawn(|| ())?;
        let number = old.thread();
        old.join()?;
        number.unpark();
        let new = thread::spawn(move || {
            let start = Instant::now();
            thread::park_timeout(wait);
            (thread::current().number(), start.elapsed())
        })?;
        let (same, took) = new.join()?;
        assert_eq!(same, number.number());
        assert!(took >= wait, "{took:?}");
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// A thread that begins late finds that it was unparked before.
#[test]
fn no_unpark_of_a_thread_that_begins_is_lost() {
    fn late(argument: u64) -> ! {
        if !argument.is_multiple_of(dyad_abi::user::PAGE_SIZE) {
            std::thread::sleep(Duration::from_millis(2));
        }
        rt::main_without_args(argument, main)
    }
    async fn main() -> Result<()> {
        for n in 0..50 {
            let parked = thread::spawn_on(id(n % 2), thread::park)?;
            parked.thread().unpark();
            let end = Instant::now() + Duration::from_secs(10);
            while !parked.is_finished() {
                assert!(Instant::now() < end, "an unpark is lost");
                thread::yield_now();
            }
            parked.join()?;
        }
        Ok(())
    }
    assert_eq!(run(&[X, A], late).code, 0);
}

/// A loop around `park` ends by the loss of the thread that was to unpark, and a thread that was lost has finished.
#[test]
fn loops_that_wait_for_a_lost_thread_end() {
    async fn main() -> Result<()> {
        let lost = thread::spawn_on(id(1), || {
            loop {
                thread::yield_now();
            }
        })?;
        assert!(!lost.is_finished() && !lost.thread().is_lost());
        dyad_host::kill_node(id(1));
        while !lost.thread().is_lost() {
            thread::park();
        }
        assert!(lost.is_finished());
        let dead = lost.join().err().and_then(|e: Error| e.system());
        assert_eq!(dead, Some(sys::Error::NodeDead));
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

#[test]
fn the_first_future_counts_and_the_other_is_dropped() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    async fn main() -> Result<()> {
        let (long, short) = (Duration::from_secs(30), Duration::from_millis(2));
        let gone = Arc::new(AtomicBool::new(false));
        let told = Told(gone.clone());
        let slow = async move {
            sleep(long).await;
            drop(told);
        };
        let start = Instant::now();
        let quick = async { 7 };
        assert_eq!(select(slow, quick).await, Either::Right(7));
        assert!(gone.load(Ordering::Relaxed));
        assert_eq!(select(async { 1 }, async { 2 }).await, Either::Left(1));
        assert_eq!(timeout(short, sleep(long)).await, Err(Elapsed));
        assert!(start.elapsed() >= short && start.elapsed() < long);
        assert_eq!(timeout(long, async { "there" }).await, Ok("there"));
        // A migration that is given up does not happen later.
        let moved = timeout(Duration::ZERO, async {
            yield_now().await;
            migrate(A).await
        });
        assert_eq!(moved.await, Err(Elapsed));
        yield_now().await;
        assert_eq!(isa(), X);
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}
