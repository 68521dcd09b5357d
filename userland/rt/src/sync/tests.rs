//! What invocations are refused, and what threads are told that wait for themselves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;

use dyad_abi::{CpuId, Error, Isa, NodeId};
use dyad_host::{Config, invoked, kill_node, run};
use dyad_sys::{exit, thread};

mod waking;

use super::{Barrier, Condvar, LostBefore, Mutex, Once, OnceLock, RwLock, Semaphore};
use crate::futex;

/// The message of the panic with which `f` ends.
fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it comes back");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => String::from(*other.downcast::<&str>().expect("a message")),
    }
}

#[test]
fn nothing_is_taken_in_an_invocation() {
    let (mutex, lock) = (Mutex::new(1), RwLock::new(2));
    let (once, value, none) = (Once::new(), OnceLock::new(), Semaphore::new(0));
    invoked(|| {
        assert!(mutex.try_lock().is_none());
        assert_eq!(mutex.lock_or_lost().err(), Some(Error::Denied));
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        assert_eq!(lock.read_or_lost().err(), Some(Error::Denied));
        assert_eq!(lock.write_or_lost().err(), Some(Error::Denied));
        let never = || unreachable!("it is refused before");
        assert_eq!(once.call_once_or_lost(never), Err(Error::Denied));
        assert_eq!(value.get_or_init_or_lost(|| 3), Err(Error::Denied));
        assert_eq!(none.acquire_or_lost(), Err(Error::Denied));
        assert!(!none.acquire_until(u64::MAX));
        assert_eq!(Barrier::new(2).wait(), Err(Error::Denied));
        for refused in [
            panic_of(|| drop(mutex.lock())),
            panic_of(|| drop(lock.read())),
            panic_of(|| drop(lock.write())),
            panic_of(|| once.call_once(never)),
            panic_of(|| _ = value.get_or_init(|| 3)),
            panic_of(|| none.acquire()),
        ] {
            assert!(refused.contains("in an invocation"), "{refused}");
        }
    });
    // All is as it was: threads take it.
    assert_eq!(*mutex.lock(), 1);
    assert_eq!(*lock.write(), 2);
    assert_eq!(*lock.read(), 2);
    once.call_once(|| ());
    assert_eq!(*value.get_or_init(|| 4), 4);
    none.release();
    // What is done, and what is there, invocations use.
    invoked(|| {
        assert_eq!(once.call_once_or_lost(|| unreachable!()), Ok(()));
        assert_eq!((value.get(), value.set(5)), (Some(&4), Err(5)));
        assert_eq!(none.acquire_or_lost(), Ok(()));
    });
}

/// An invocation of a service makes a value, and ends with a panic in the middle: those that come later are not kept
/// waiting.
#[test]
fn an_invocation_that_ends_early_leaves_nothing_taken() {
    static TABLE: OnceLock<u64> = OnceLock::new();
    static BOOK: Mutex<u64> = Mutex::new(0);
    let serve = || {
        let mut book = BOOK.lock_or_lost()?;
        *book += TABLE.get_or_init_or_lost(|| panic!("the client is taken down"))?;
        Ok::<u64, Error>(*book)
    };
    for _ in 0..2 {
        let reply = catch_unwind(|| invoked(serve));
        assert_eq!(reply.ok(), Some(Err(Error::Denied)));
    }
    assert_eq!(TABLE.set(7), Ok(()));
    assert!(BOOK.try_lock().is_some());
}

#[test]
fn a_thread_that_waits_for_itself_is_told() {
    let value = OnceLock::new();
    let inner = || *value.get_or_init(|| 1);
    let told = panic_of(|| _ = value.get_or_init(inner));
    assert!(told.contains("waits for itself"), "{told}");

    let mutex = Mutex::new(());
    let held = mutex.lock();
    let told = panic_of(|| drop(mutex.lock()));
    assert!(told.contains("that it has itself"), "{told}");
    drop(held);
    drop(mutex.lock());

    let lock = RwLock::new(());
    let reader = lock.read();
    let told = panic_of(|| drop(lock.write()));
    assert!(told.contains("that it has itself"), "{told}");
    drop(reader);
    let writer = lock.write();
    for told in [
        panic_of(|| drop(lock.read())),
        panic_of(|| drop(lock.write())),
    ] {
        assert!(told.contains("that it has itself"), "{told}");
    }
    drop(writer);
    drop(lock.write());
}

/// An invocation does not know which threads were lost: what it finds is no loss for threads, nor theirs one for it.
#[test]
fn losses_are_those_that_threads_see() {
    fn entry(argument: u64) -> ! {
        let me = thread::Number::of_argument(argument);
        if me != Some(thread::Number::FIRST) {
            loop {
                dyad_sys::yield_now();
            }
        }
        let lose = |n: u64| {
            let number = thread::Number::new(n).expect("a thread");
            let node = NodeId::new(n).expect("a node");
            thread::start(number, node, CpuId::new(0).expect("a CPU")).expect("it starts");
            kill_node(node);
            assert!(thread::is_lost(number));
        };
        lose(1);
        let (by_thread, by_invocation) = (LostBefore::new(), LostBefore::new());
        invoked(|| by_invocation.used());
        by_thread.used();
        by_invocation.used();
        assert!(!by_thread.has_changed() && !by_invocation.has_changed());
        assert!(!invoked(|| by_thread.has_changed()));
        lose(2);
        assert!(by_thread.has_changed() && by_invocation.has_changed());
        exit(0)
    }
    let nodes = [Isa::X86_64, Isa::Aarch64, Isa::Aarch64].to_vec();
    let config = Config {
        nodes,
        ..Config::default()
    };
    assert_eq!(run(config, entry).code, 0);
}

/// Fails if `f` does not come back: a thread that is not woken sleeps for ever.
pub(super) fn in_time(f: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    let limit = std::time::Duration::from_secs(30);
    assert!(is_done.recv_timeout(limit).is_ok(), "it does not come back");
}

pub(super) fn node(n: u64) -> NodeId {
    NodeId::new(n).expect("a node")
}

pub(super) fn start_on(n: u64) -> thread::Number {
    let number = thread::Number::new(n).expect("a thread");
    thread::start(number, node(n), CpuId::new(0).expect("a CPU")).expect("it starts");
    number
}

/// At the entry of each thread: the first one goes on when another thread has been lost with its node.
pub(super) fn lose_a_thread(argument: u64) {
    if thread::Number::of_argument(argument) != Some(thread::Number::FIRST) {
        loop {
            dyad_sys::yield_now();
        }
    }
    start_on(1);
    kill_node(node(1));
}

/// What a lost thread has taken is refused to those who wait for it.
#[test]
fn what_a_lost_thread_has_is_not_waited_for() {
    use core::sync::atomic::{AtomicBool, Ordering};
    static TAKEN: AtomicBool = AtomicBool::new(false);
    static MUTEX: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    static READ: RwLock<()> = RwLock::new(());
    static WRITTEN: RwLock<()> = RwLock::new(());
    static LOCK: crate::lock::Lock<()> = crate::lock::Lock::new(());

    fn entry(argument: u64) -> ! {
        if thread::Number::of_argument(argument) != Some(thread::Number::FIRST) {
            ONCE.call_once(|| {
                let _all = (MUTEX.lock(), READ.read(), WRITTEN.write(), LOCK.lock());
                TAKEN.store(true, Ordering::Release);
                loop {
                    dyad_sys::yield_now();
                }
            });
        }
        let number = start_on(1);
        while !TAKEN.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        kill_node(node(1));
        assert!(thread::is_lost(number));
        assert_eq!(MUTEX.lock_or_lost().err(), Some(Error::NodeDead));
        assert_eq!(ONCE.call_once_or_lost(|| ()), Err(Error::NodeDead));
        assert_eq!(READ.write_or_lost().err(), Some(Error::NodeDead));
        assert_eq!(WRITTEN.read_or_lost().err(), Some(Error::NodeDead));
        assert!(READ.try_read().is_some());
        let told = panic_of(|| drop(LOCK.lock()));
        assert!(told.contains("was lost with its node"), "{told}");
        exit(5)
    }
    in_time(|| assert_eq!(run(Config::default(), entry).code, 5));
}

/// A permit that is given back wakes a thread that waits for it; one that comes without a wake-up is found when the time is
/// up.
#[test]
fn a_permit_is_found_by_who_waits_for_it() {
    use std::time::{Duration, Instant};
    static GIVEN_BACK: Semaphore = Semaphore::new(0);
    static UNTOLD: Semaphore = Semaphore::new(0);

    fn entry(argument: u64) -> ! {
        const SECOND: u64 = 1_000_000_000;
        let now = || dyad_sys::now().expect("a clock");
        if thread::Number::of_argument(argument) != Some(thread::Number::FIRST) {
            // The other one is about to sleep, or sleeps.
            std::thread::sleep(Duration::from_millis(50));
            GIVEN_BACK.release();
            std::thread::sleep(Duration::from_millis(50));
            UNTOLD
                .permits
                .store(1, core::sync::atomic::Ordering::Release);
            thread::end()
        }
        start_on(1);
        let begin = Instant::now();
        assert!(GIVEN_BACK.acquire_until(now() + 20 * SECOND));
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "it was not woken"
        );
        assert!(UNTOLD.acquire_until(now() + SECOND), "it is there");
        exit(6)
    }
    in_time(|| assert_eq!(run(Config::default(), entry).code, 6));
}

/// A notification that comes as soon as the mutex has been given back, before the thread sleeps, ends the wait: it is counted
/// before any thread is woken, so that a thread that is in no table yet does not sleep.
#[test]
fn a_notification_between_the_mutex_and_sleep_ends_the_wait() {
    static CHANGED: Condvar = Condvar::new();
    static TURN: Mutex<u32> = Mutex::new(0);

    fn entry(_: u64) -> ! {
        let notify = || {
            *TURN.lock() = 1;
            CHANGED.notify_one();
        };
        let turn = TURN.lock();
        super::mutex::WHEN_GIVEN_BACK.set(Some(notify));
        assert_eq!(*CHANGED.wait(turn), 1);
        *TURN.lock() = 0;
        let turn = TURN.lock();
        super::mutex::WHEN_GIVEN_BACK.set(Some(notify));
        futex::WHEN_WAKING.set(Some(|| {
            assert_eq!(CHANGED.count.load(core::sync::atomic::Ordering::Relaxed), 2);
        }));
        let late = dyad_sys::now().expect("a clock") + 60_000_000_000;
        let (turn, in_time) = CHANGED.wait_until(turn, late);
        assert!(in_time && *turn == 1);
        drop(turn);
        exit(8)
    }
    in_time(|| assert_eq!(run(Config::default(), entry).code, 8));
}

/// A permit may come between the end of a wait and the finding that a thread was lost: it is there.
#[test]
fn a_permit_that_has_come_is_found_after_a_loss() {
    static LATE: Semaphore = Semaphore::new(0);

    fn entry(argument: u64) -> ! {
        use core::sync::atomic::Ordering;
        lose_a_thread(argument);
        // A thread is told of a loss once.
        let word = core::sync::atomic::AtomicU32::new(0);
        assert_eq!(super::wait(&word, 0), Err(Error::NodeDead));
        super::WHEN_WAITED.set(Some(|| LATE.permits.store(1, Ordering::Release)));
        assert_eq!(LATE.acquire_or_lost(), Ok(()));
        assert_eq!(LATE.acquire_or_lost(), Err(Error::NodeDead));
        exit(13)
    }
    in_time(|| assert_eq!(run(Config::default(), entry).code, 13));
}

/// A thread learns of a loss by one wait. Its next one sleeps again: otherwise a thread that waits for another one, and not
/// for the lost one, would never sleep.
#[test]
fn a_loss_ends_one_wait_of_a_thread() {
    fn entry(argument: u64) -> ! {
        lose_a_thread(argument);
        let word = core::sync::atomic::AtomicU32::new(0);
        let soon = || dyad_sys::now().expect("a clock") + 1_000_000;
        let waited = [(); 3].map(|()| crate::futex::wait(&word, 0, soon()));
        assert_eq!(waited[0], Err(Error::NodeDead));
        assert_eq!(waited[1..], [Err(Error::TimedOut); 2]);
        exit(14)
    }
    in_time(|| assert_eq!(run(Config::default(), entry).code, 14));
}

/// Words name threads by 1 to 64, of which any can be lost. A mutex that one of several waiters takes over from a lost thread
/// stays contended: the others wait still.
#[test]
fn what_is_taken_over_from_a_lost_thread_wakes_the_others() {
    use core::sync::atomic::Ordering;
    static MUTEX: Mutex<()> = Mutex::new(());
    const LAST: u64 = dyad_abi::user::MAX_PROGRAM_THREADS - 1;

    fn entry(argument: u64) -> ! {
        if thread::Number::of_argument(argument) != Some(thread::Number::FIRST) {
            loop {
                dyad_sys::yield_now();
            }
        }
        let last = thread::Number::new(LAST).expect("a thread");
        thread::start(last, node(1), CpuId::new(0).expect("a CPU")).expect("it starts");
        kill_node(node(1));
        let names = LAST as u32 + 1;
        assert!(super::is_lost(names) && super::is_lost(names | super::AWAITED));
        assert!(!super::is_lost(names + 1) && !super::is_lost(names - 1));
        MUTEX.word.store(names | super::AWAITED, Ordering::Relaxed);
        // SAFETY: 1. No reference to the value has been given out.
        let taken = unsafe { MUTEX.take_from_lost() };
        assert!(taken.is_some());
        let word = MUTEX.word.load(Ordering::Relaxed);
        assert_eq!(word, super::AWAITED | 1);
        exit(17)
    }
    in_time(|| assert_eq!(run(Config::default(), entry).code, 17));
}
