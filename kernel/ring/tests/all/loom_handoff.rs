//! Model checks of CPUs that spin: no thread that is handed over is lost, none runs twice, and the CPU
//! that takes it finds what it carries, in any interleaving, with any weak ordering; and each part of the
//! protocol is needed, shown by taking it away.

use std::sync::Arc;

use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_ring::handoff;
use dyad_shm::PhysAddr;
use dyad_shm::superblock::activity::{self, ATTENTIVE};
use loom::sync::atomic::Ordering;
use loom::sync::{Condvar, Mutex};
use loom::thread;

const OWNER: PhysAddr = PhysAddr(0x1000);
const ACTIVITY: PhysAddr = PhysAddr(0x1040);
const CARRIED: PhysAddr = PhysAddr(0x1080);

/// Owner words: the giver's, on its way, the receiver's.
const GIVERS: u64 = 1;
const HANDED: u64 = 2;
const TAKEN: u64 = 3;
/// What the thread carries.
const SOMETHING: u64 = 77;

fn doing() -> u64 {
    activity::spinning(0x7000)
}

fn is_here(word: u64) -> bool {
    word == HANDED
}

type Stop = fn(&LoomMem) -> Option<u64>;
type Take = fn(&LoomMem, u64) -> bool;
type Awaited = fn(&LoomMem) -> bool;

/// How the parts are done; the mutants have others.
#[derive(Clone, Copy)]
struct Parts {
    stop: Stop,
    take: Take,
    awaited: Awaited,
}

const WHOLE: Parts = Parts {
    stop: |mem| handoff::stop(mem, ACTIVITY, OWNER, is_here),
    take: |mem, word| handoff::claim(mem, OWNER, word, TAKEN),
    awaited: |mem| handoff::is_awaited(mem, ACTIVITY, doing()),
};

fn memory(lacks: Lacks) -> Arc<LoomMem> {
    let words = [(OWNER.0, GIVERS), (ACTIVITY.0, ATTENTIVE), (CARRIED.0, 0)];
    Arc::new(LoomMem::new(lacks, &words, &[]))
}

/// Puts down what the thread carries and hands it over; whether a message is needed.
fn give(mem: &LoomMem, parts: Parts) -> bool {
    mem.store(CARRIED, SOMETHING, Ordering::Relaxed);
    assert!(handoff::hand_over(mem, OWNER, GIVERS, HANDED));
    !(parts.awaited)(mem)
}

/// Takes the thread if it is there. A CPU that has taken it finds the words that it carries.
fn take(mem: &LoomMem, parts: Parts, word: Option<u64>) -> bool {
    let took = word.is_some_and(|word| (parts.take)(mem, word));
    if took {
        let carried = mem.load(CARRIED, Ordering::Relaxed);
        assert_eq!(carried, SOMETHING, "it carries what it carried before");
    }
    took
}

/// One CPU spins, looks as often as `looks` says, and stops; another one hands the thread over meanwhile.
/// What is told by a message is taken at the end.
fn spinning(lacks: Lacks, parts: Parts, looks: u32) {
    let mem = memory(lacks);
    handoff::begin(&*mem, ACTIVITY, doing());
    let giver = {
        let mem = mem.clone();
        thread::spawn(move || give(&mem, parts))
    };
    let mut took = (0..looks).any(|_| take(&mem, parts, handoff::poll(&*mem, OWNER, is_here)));
    if !took {
        let last = (parts.stop)(&mem);
        took = take(&mem, parts, last);
    }
    let told = giver.join().unwrap();
    if told && !took {
        took = take(&mem, parts, handoff::poll(&*mem, OWNER, is_here));
    }
    assert!(took, "the thread is lost");
}

/// The CPU that stops and another one of its node, which has got the message, look at the same time.
fn two_takers(parts: Parts) {
    let mem = memory(Lacks::Nothing);
    handoff::begin(&*mem, ACTIVITY, doing());
    let inbox = Arc::new((Mutex::new(None), Condvar::new()));
    let other = {
        let (mem, inbox) = (mem.clone(), inbox.clone());
        thread::spawn(move || {
            let mut told = inbox.0.lock().unwrap();
            while told.is_none() {
                told = inbox.1.wait(told).unwrap();
            }
            *told == Some(true) && take(&mem, parts, handoff::poll(&*mem, OWNER, is_here))
        })
    };
    let giver = {
        let (mem, inbox) = (mem.clone(), inbox.clone());
        thread::spawn(move || {
            let told = give(&mem, parts);
            *inbox.0.lock().unwrap() = Some(told);
            inbox.1.notify_one();
        })
    };
    let last = (parts.stop)(&mem);
    let took = take(&mem, parts, last);
    giver.join().unwrap();
    let other = other.join().unwrap();
    assert!(took || other, "the thread is lost");
    assert!(!(took && other), "the thread runs twice");
}

#[test]
fn a_thread_that_is_handed_over_is_not_lost() {
    explore(None, || spinning(Lacks::Nothing, WHOLE, 1));
}

#[test]
fn a_thread_is_not_lost_however_long_one_looks() {
    explore(Some(3), || spinning(Lacks::Nothing, WHOLE, 3));
}

#[test]
fn a_thread_runs_once() {
    explore(Some(3), || two_takers(WHOLE));
}

/// A thread goes and comes back: its CPU says that it spins before it hands the thread over, so that it
/// is not told when it comes back while it does.
#[test]
fn who_comes_back_to_a_cpu_that_spins_needs_no_message() {
    explore(None, || {
        let mem = memory(Lacks::Nothing);
        handoff::begin(&*mem, ACTIVITY, doing());
        // To the other CPU, which has nothing to look at but the owner word.
        assert!(handoff::hand_over(&*mem, OWNER, GIVERS, HANDED));
        let other = {
            let mem = mem.clone();
            thread::spawn(move || {
                let word = handoff::poll(&*mem, OWNER, is_here);
                assert!(word.is_none_or(|word| handoff::claim(&*mem, OWNER, word, GIVERS)));
                word.is_none() || !give(&mem, WHOLE)
            })
        };
        assert!(other.join().unwrap(), "a message for a CPU that spins");
    });
}

#[test]
#[should_panic(expected = "it carries what it carried before")]
fn mutant_exchanges_without_order() {
    explore(None, || spinning(Lacks::RmwOrder, WHOLE, 1));
}

#[test]
#[should_panic(expected = "the thread is lost")]
fn mutant_stops_without_another_look() {
    let parts = Parts {
        stop: |mem| {
            handoff::Words::store(mem, ACTIVITY, ATTENTIVE);
            None
        },
        ..WHOLE
    };
    explore(None, move || spinning(Lacks::Nothing, parts, 1));
}

#[test]
#[should_panic(expected = "the thread is lost")]
fn mutant_looks_before_it_says_that_it_stops() {
    let parts = Parts {
        stop: |mem| {
            let last = handoff::poll(mem, OWNER, is_here);
            handoff::Words::fence(mem);
            handoff::Words::store(mem, ACTIVITY, ATTENTIVE);
            last
        },
        ..WHOLE
    };
    explore(None, move || spinning(Lacks::Nothing, parts, 1));
}

#[test]
#[should_panic(expected = "the thread runs twice")]
fn mutant_takes_without_exchange() {
    let parts = Parts {
        take: |mem, _| {
            handoff::Words::fence(mem);
            handoff::Words::store(mem, OWNER, TAKEN);
            true
        },
        ..WHOLE
    };
    explore(Some(3), move || two_takers(parts));
}

#[test]
#[should_panic(expected = "the thread is lost")]
fn mutant_never_sends_a_message() {
    let parts = Parts {
        awaited: |_| true,
        ..WHOLE
    };
    explore(None, move || spinning(Lacks::Nothing, parts, 1));
}
