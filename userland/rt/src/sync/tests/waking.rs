//! What is given back wakes all who wait for it. A thread that is not woken goes on all the same when its patience ends. So
//! of several rounds the quickest must be quicker than that.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dyad_abi::CpuId;
use dyad_host::{Config, run};
use dyad_sys::{exit, thread};

use super::super::{Barrier, Mutex, Once, RwLock};
use super::{in_time, node};

const ROUNDS: usize = 5;
const WAITERS: u64 = 2;
const BARRIER: usize = 0;
const MUTEX: usize = 1;
const ONCE: usize = 2;
const RW_LOCK: usize = 3;

static BARRIERS: [Barrier; ROUNDS] = [const { Barrier::new(WAITERS as u32 + 1) }; ROUNDS];
static MUTEXES: [Mutex<()>; ROUNDS] = [const { Mutex::new(()) }; ROUNDS];
static ONCES: [Once; ROUNDS] = [const { Once::new() }; ROUNDS];
static RW_LOCKS: [RwLock<()>; ROUNDS] = [const { RwLock::new(()) }; ROUNDS];

/// By what is waited for: rounds that have begun, and waits that have ended.
static BEGUN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static ENDED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// The first thread has what the others wait for while it does something.
fn has<const WHAT: usize>(round: usize, meanwhile: impl FnOnce()) {
    match WHAT {
        BARRIER => {
            meanwhile();
            assert!(BARRIERS[round].wait().is_ok());
        }
        MUTEX => {
            let held = MUTEXES[round].lock();
            meanwhile();
            drop(held);
        }
        ONCE => ONCES[round].call_once(meanwhile),
        _ => {
            let held = RW_LOCKS[round].write();
            meanwhile();
            drop(held);
        }
    }
}

fn waits<const WHAT: usize>(round: usize) {
    match WHAT {
        BARRIER => assert!(BARRIERS[round].wait().is_ok()),
        MUTEX => drop(MUTEXES[round].lock()),
        ONCE => ONCES[round].call_once(|| unreachable!("the first thread does it")),
        _ => drop(RW_LOCKS[round].read()),
    }
}

fn entry<const WHAT: usize>(argument: u64) -> ! {
    let (begun, ended) = (&BEGUN[WHAT], &ENDED[WHAT]);
    if thread::Number::of_argument(argument) != Some(thread::Number::FIRST) {
        for round in 0..ROUNDS {
            while begun.load(Ordering::Acquire) <= round as u64 {
                std::thread::yield_now();
            }
            waits::<WHAT>(round);
            ended.fetch_add(1, Ordering::Release);
        }
        thread::end()
    }
    for n in 1..=WAITERS {
        let number = thread::Number::new(n).expect("a thread");
        thread::start(number, node(0), CpuId::new(0).expect("a CPU")).expect("it starts");
    }
    let mut quickest = Duration::MAX;
    for round in 0..ROUNDS {
        let mut begin = None;
        has::<WHAT>(round, || {
            begun.fetch_add(1, Ordering::Release);
            // The others are about to sleep, or sleep.
            std::thread::sleep(Duration::from_millis(30));
            begin = Some(Instant::now());
        });
        while ended.load(Ordering::Acquire) < WAITERS * (round as u64 + 1) {
            std::thread::yield_now();
        }
        quickest = quickest.min(begin.expect("it has had it").elapsed());
    }
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
    exit(12)
}

fn wakes_all<const WHAT: usize>() {
    in_time(|| assert_eq!(run(Config::default(), entry::<WHAT>).code, 12));
}

#[test]
fn the_last_one_at_a_barrier_wakes_all() {
    wakes_all::<BARRIER>();
}

#[test]
fn a_mutex_that_is_given_back_wakes_one_after_the_other() {
    wakes_all::<MUTEX>();
}

#[test]
fn what_has_happened_once_wakes_all() {
    wakes_all::<ONCE>();
}

#[test]
fn a_writer_that_leaves_wakes_all_readers() {
    wakes_all::<RW_LOCK>();
}
