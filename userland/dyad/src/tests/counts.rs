//! Wake-ups by count: as many threads as there can be wait for one word, on both nodes, and each that is
//! woken is counted once, also when nodes die.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use core::time::Duration;

use dyad_rt::futex;

use super::{A, X, id, run};
use crate::{Instant, Result, rt, sys, thread};

/// All threads of a program but the one that wakes.
const WAITERS: usize = thread::MAX - 1;
/// How long a waiter waits at a time. One that was taken by a waker which did not come to wake it learns
/// that then.
const PIECE: Duration = Duration::from_millis(100);

/// Threads that wait for one word.
struct Crowd {
    word: AtomicU32,
    /// How many have come, and how many have been woken.
    come: AtomicU32,
    out: AtomicU32,
    /// Which have.
    is_out: [AtomicBool; WAITERS],
    /// Wake-ups by threads that were lost meanwhile.
    by_lost: AtomicU32,
}

impl Crowd {
    /// So many, each on the node that `place` says. Gives what can be joined.
    fn new(
        waiters: usize,
        place: fn(usize) -> usize,
    ) -> Result<(Arc<Crowd>, Vec<thread::JoinHandle<()>>)> {
        let crowd = Arc::new(Crowd {
            word: AtomicU32::new(0),
            come: AtomicU32::new(0),
            out: AtomicU32::new(0),
            is_out: [const { AtomicBool::new(false) }; _],
            by_lost: AtomicU32::new(0),
        });
        let threads = (0..waiters)
            .map(|n| {
                let crowd = crowd.clone();
                thread::spawn_on(id(place(n) as u64), move || crowd.wait(n))
            })
            .collect::<Result<_>>()?;
        until(|| crowd.come.load(SeqCst) == waiters as u32);
        Ok((crowd, threads))
    }

    fn wait(&self, n: usize) {
        self.come.fetch_add(1, SeqCst);
        loop {
            let end = Instant::now() + PIECE;
            match futex::wait(&self.word, 0, end.as_nanos()) {
                Ok(()) => break,
                Err(sys::Error::TimedOut | sys::Error::NodeDead) => {}
                Err(e) => panic!("a waiter is told {e}"),
            }
        }
        assert!(!self.is_out[n].swap(true, SeqCst));
        self.out.fetch_add(1, SeqCst);
    }

    /// Wakes exactly `count` threads, which wait or are about to.
    fn wake(&self, count: u32) {
        let mut woken = 0;
        until(|| {
            let more = futex::wake(&self.word, count - woken);
            assert!(more <= count - woken);
            woken += more;
            woken == count
        });
    }

    /// From now on just so many have been woken.
    fn are_out(&self, count: u32) {
        until(|| self.out.load(SeqCst) >= count);
        thread::sleep(Duration::from_millis(3));
        assert_eq!(self.out.load(SeqCst), count);
    }

    fn left_on(&self, node: usize) -> u32 {
        let waits = |n: &usize| in_turn(*n) == node && !self.is_out[*n].load(SeqCst);
        (0..WAITERS).filter(waits).count() as u32
    }
}

/// Waiters with even numbers are on the first node, the others on the second.
const fn in_turn(n: usize) -> usize {
    n % 2
}

/// Waits, but not for ever.
fn until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "it does not come to that");
        thread::yield_now();
    }
}

#[test]
fn of_many_as_many_are_woken_as_is_said() {
    async fn main() -> Result<()> {
        let (crowd, waiters) = Crowd::new(WAITERS, in_turn)?;
        let mut sum = 0;
        for count in [1, 3, 17, WAITERS as u32 - 21] {
            crowd.wake(count);
            sum += count;
            crowd.are_out(sum);
        }
        assert_eq!(futex::wake_all(&crowd.word), 0);
        for waiter in waiters {
            waiter.join()?;
        }
        // And all of them at once, whenever they come.
        let (crowd, waiters) = Crowd::new(WAITERS, in_turn)?;
        let mut woken = 0;
        until(|| {
            woken += futex::wake_all(&crowd.word);
            crowd.out.load(SeqCst) == WAITERS as u32
        });
        assert_eq!(woken, WAITERS as u32);
        for waiter in waiters {
            waiter.join()?;
        }
        Ok(())
    }
    assert_eq!(
        run(&[X, A], |a| rt::main_without_args(a, main)).code,
        0,
        "see the panic"
    );
}

/// Those that were lost with their node are still in the table; none of them is counted, and none takes a
/// wake-up away from another one.
#[test]
fn waiters_that_are_lost_are_not_counted() {
    async fn main() -> Result<()> {
        let (crowd, waiters) = Crowd::new(WAITERS, in_turn)?;
        crowd.wake(17);
        crowd.are_out(17);
        dyad_host::kill_node(id(1));
        let left = crowd.left_on(0);
        assert!(left > 3 && crowd.left_on(1) > 0);
        for count in [3, left - 3] {
            crowd.wake(count);
        }
        crowd.are_out(17 + left);
        assert_eq!(futex::wake_all(&crowd.word), 0);
        assert_eq!(sys::thread::lost().count_ones(), crowd.left_on(1));
        for (n, waiter) in waiters.into_iter().enumerate() {
            let lost = in_turn(n) == 1 && !crowd.is_out[n].load(SeqCst);
            let dead = waiter.join().err().and_then(|e| e.system());
            assert_eq!(dead, lost.then_some(sys::Error::NodeDead), "waiter {n}");
        }
        Ok(())
    }
    assert_eq!(
        run(&[X, A], |a| rt::main_without_args(a, main)).code,
        0,
        "see the panic"
    );
}

/// A waker that is lost has woken those that it has counted, and may have taken one more, who learns that
/// when its piece is over: everybody comes out, each of them once.
#[test]
fn a_waker_that_is_lost_leaves_nobody_behind() {
    async fn lost_after<const WAKES: u32>() -> Result<()> {
        let (crowd, waiters) = Crowd::new(WAITERS - 1, |_| 0)?;
        let wakes = crowd.clone();
        let waker = thread::spawn_on(id(1), move || -> u32 {
            loop {
                wakes.by_lost.fetch_add(futex::wake(&wakes.word, 1), SeqCst);
                thread::yield_now();
            }
        })?;
        until(|| crowd.by_lost.load(SeqCst) >= WAKES);
        // It gets no further than to its next call, which may be between taking a waiter and waking it.
        dyad_host::kill_node(id(1));
        let mut woken = 0;
        let all = WAITERS as u32 - 1;
        until(|| {
            woken += futex::wake(&crowd.word, 1);
            crowd.out.load(SeqCst) == all
        });
        let counted = woken + crowd.by_lost.load(SeqCst);
        assert!(
            counted == all || counted + 1 == all,
            "{counted} of {all} were counted"
        );
        for waiter in waiters {
            waiter.join()?;
        }
        let dead = waker.join().err().and_then(|e| e.system());
        assert_eq!(dead, Some(sys::Error::NodeDead));
        Ok(())
    }
    let codes = [
        run(&[X, A], |a| rt::main_without_args(a, lost_after::<1>)).code,
        run(&[X, A], |a| rt::main_without_args(a, lost_after::<7>)).code,
        run(&[X, A], |a| rt::main_without_args(a, lost_after::<40>)).code,
    ];
    assert_eq!(codes, [0; 3], "see the panic");
}
