//! Model checks of threads that go to sleep at an endpoint: none sleeps beside news, none is woken twice, and none sleeps
//! that no sender wakes, in any interleaving, with any weak ordering; and each part of
//! the protocol is needed, shown by taking it away. Its fences are taken away by the register of mutants.

use std::sync::Arc;

use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_ring::handoff::Words;
use dyad_ring::sleep::{self, Begun};
use dyad_shm::PhysAddr;
use loom::sync::atomic::Ordering;
use loom::thread;

const NEWS: PhysAddr = PhysAddr(0x1000);
const WAITER: PhysAddr = PhysAddr(0x1040);
const OWNER: PhysAddr = PhysAddr(0x1080);

/// The thread, in its first wait.
const WAIT: u64 = 0x7001;
/// Owner words.
const RUNNING: u64 = 1;
const ASLEEP: u64 = 2;
const READY: u64 = 3;

/// How a thread goes to sleep, and how a sender looks for it: parts that mutants have otherwise.
#[derive(Clone, Copy)]
struct Parts {
    looks_again: bool,
    exchanges: bool,
}

const WHOLE: Parts = Parts {
    looks_again: true,
    exchanges: true,
};

/// Whether the thread sleeps.
fn goes_to_sleep(mem: &LoomMem, parts: Parts) -> bool {
    let has_pending = || GlobalMem::load(mem, NEWS, Ordering::Relaxed) != 0;
    match sleep::begin(mem, WAITER, WAIT, has_pending) {
        Begun::Waits => {}
        Begun::Pending | Begun::TakenOff => return false,
        Begun::Busy => unreachable!("no other thread waits"),
    }
    assert!(sleep::block(mem, OWNER, RUNNING, ASLEEP));
    if !parts.looks_again || sleep::still_waits(mem, WAITER, WAIT) {
        return true;
    }
    !Words::exchange(mem, OWNER, ASLEEP, RUNNING)
}

/// Whether the sender has woken the thread.
fn sends(mem: &LoomMem, bit: u64, parts: Parts) -> bool {
    mem.or(NEWS, bit);
    sleep::post(mem);
    let Some(wait) = sleep::take_off(mem, WAITER, |wait| wait != 0) else {
        return false;
    };
    assert_eq!(wait, WAIT);
    let Some(asleep) = sleep::find_asleep(mem, OWNER, |word| word == ASLEEP) else {
        return false;
    };
    if !parts.exchanges {
        Words::store(mem, OWNER, READY);
        return true;
    }
    Words::exchange(mem, OWNER, asleep, READY)
}

fn memory() -> Arc<LoomMem> {
    let words = [(NEWS.0, 0), (WAITER.0, 0), (OWNER.0, RUNNING)];
    Arc::new(LoomMem::new(Lacks::Nothing, &words, &[]))
}

fn check(mem: &LoomMem, sleeps: bool, woken: u32) {
    assert!(woken <= 1, "woken twice");
    let owner = GlobalMem::load(mem, OWNER, Ordering::Relaxed);
    assert_eq!(owner == RUNNING, !sleeps, "it runs here and elsewhere");
    assert_eq!(owner == READY, woken == 1, "it runs here and elsewhere");
    assert_ne!(owner, ASLEEP, "it sleeps beside news");
}

/// A thread goes to sleep while a message comes.
fn one_sender(parts: Parts) {
    let mem = memory();
    let sender = {
        let mem = mem.clone();
        thread::spawn(move || sends(&mem, 1, parts))
    };
    let sleeps = goes_to_sleep(&mem, parts);
    let woken = sender.join().unwrap();
    check(&mem, sleeps, woken.into());
}

/// A thread goes to sleep while two messages come.
fn two_senders(parts: Parts) {
    let mem = memory();
    let senders = [1, 2].map(|bit| {
        let mem = mem.clone();
        thread::spawn(move || sends(&mem, bit, parts))
    });
    let sleeps = goes_to_sleep(&mem, parts);
    let woken = senders.map(|s| s.join().unwrap() as u32);
    check(&mem, sleeps, woken.iter().sum());
}

#[test]
fn a_thread_that_goes_to_sleep_misses_no_message() {
    explore(None, || one_sender(WHOLE));
}

#[test]
fn one_of_two_senders_wakes_a_thread() {
    explore(Some(3), || two_senders(WHOLE));
}

#[test]
#[should_panic(expected = "it sleeps beside news")]
fn mutant_the_thread_does_not_look_again() {
    let parts = Parts {
        looks_again: false,
        ..WHOLE
    };
    explore(None, move || one_sender(parts));
}

#[test]
#[should_panic(expected = "it runs here and elsewhere")]
fn mutant_the_thread_is_woken_without_an_exchange() {
    let parts = Parts {
        exchanges: false,
        ..WHOLE
    };
    explore(None, move || one_sender(parts));
}
