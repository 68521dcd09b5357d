//! Model checks of arrivals: no thread that is handed to a CPU is left there unnoticed, in any interleaving, with
//! any weak ordering; and each part of the protocol is needed, shown by taking it away.
//!
//! A lost bit leaves the receiver asleep with no giver left: loom reports it as a deadlock.

use std::sync::Arc;

use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_ring::arrivals::{self, Arrivals, Batch, IDS};
use dyad_ring::wake::{self, WakeLine};
use dyad_shm::PhysAddr;
use dyad_shm::superblock::activity::{ASLEEP, ATTENTIVE};
use loom::sync::atomic::Ordering;
use loom::sync::{Condvar, Mutex};
use loom::thread;

const LINE: WakeLine = WakeLine {
    pending: PhysAddr(0x1000),
    activity: PhysAddr(0x1040),
};
const ARRIVALS: Arrivals = Arrivals {
    summary: PhysAddr(0x1080),
    words: PhysAddr(0x2000),
};

type Post = fn(&LoomMem, u32);
type Take = fn(&LoomMem, &mut u32) -> Batch;

/// How the parts are done; the mutants have others.
#[derive(Clone, Copy)]
struct Parts {
    post: Post,
    take: Take,
}

const WHOLE: Parts = Parts {
    post: |mem, id| assert!(arrivals::post(mem, &ARRIVALS, id)),
    take: |mem, next| arrivals::take(mem, &ARRIVALS, next),
};
/// One at a time, so that there are always some left.
const SINGLY: Parts = Parts {
    take: |mem, next| arrivals::take_up_to(mem, &ARRIVALS, next, 1),
    ..WHOLE
};

/// An interrupt line: stays pending until it is taken.
struct Doorbell {
    pending: Mutex<bool>,
    wakes: Condvar,
}

impl Doorbell {
    fn ring(&self) {
        *self.pending.lock().unwrap() = true;
        self.wakes.notify_one();
    }

    fn wait(&self) {
        let mut pending = self.pending.lock().unwrap();
        while !*pending {
            pending = self.wakes.wait(pending).unwrap();
        }
        *pending = false;
    }
}

fn owner(id: u32) -> PhysAddr {
    PhysAddr(0x8000 + 8 * id as u64)
}

/// Each giver hands its threads over, by their owner words, and notes that; the receiver takes them, and sleeps
/// whenever there are none, until it has all.
fn deliver(lacks: Lacks, givers: &'static [&'static [u32]], parts: Parts) {
    let mut words = vec![
        (LINE.pending.0, 0),
        (LINE.activity.0, ATTENTIVE),
        (ARRIVALS.summary.0, 0),
    ];
    for &id in givers.iter().copied().flatten() {
        words.push((owner(id).0, 0));
        words.push((ARRIVALS.words.0 + 8 * (id as u64 / 64), 0));
    }
    words.sort_unstable();
    words.dedup();
    let mem = Arc::new(LoomMem::new(lacks, &words, &[]));
    let doorbell = Arc::new(Doorbell {
        pending: Mutex::new(false),
        wakes: Condvar::new(),
    });
    let threads: Vec<_> = (0..)
        .zip(givers)
        .map(|(giver, ids)| {
            let (mem, doorbell) = (mem.clone(), doorbell.clone());
            thread::spawn(move || {
                for &id in *ids {
                    mem.store(owner(id), 1, Ordering::Release);
                    (parts.post)(&mem, id);
                    if wake::notify(&*mem, &LINE, giver) {
                        doorbell.ring();
                    }
                }
            })
        })
        .collect();
    let (mut missing, mut next) = (givers.iter().map(|ids| ids.len()).sum::<usize>(), 0);
    while missing != 0 {
        if wake::take_pending(&*mem, &LINE) != 0 {
            let batch = (parts.take)(&mem, &mut next);
            for id in batch.ids() {
                // By the owner word: a bit alone gives no CPU a thread.
                missing -= mem.cas(owner(id), 1, 2).is_ok() as usize;
            }
            if batch.more {
                let _ = wake::notify(&*mem, &LINE, 63);
            }
        }
        if missing != 0 && wake::prepare(&*mem, &LINE, ASLEEP) {
            doorbell.wait();
            wake::attentive(&*mem, &LINE);
        }
    }
    for t in threads {
        t.join().unwrap();
    }
}

#[test]
fn a_thread_that_is_handed_over_arrives() {
    explore(None, || deliver(Lacks::Nothing, &[&[5]], WHOLE));
}

#[test]
fn threads_of_one_giver_arrive() {
    explore(Some(4), || deliver(Lacks::Nothing, &[&[5, 6]], WHOLE));
    explore(Some(4), || deliver(Lacks::Nothing, &[&[5, 70]], WHOLE));
}

#[test]
fn threads_of_two_givers_arrive() {
    explore(Some(3), || deliver(Lacks::Nothing, &[&[5], &[6]], WHOLE));
    explore(Some(3), || deliver(Lacks::Nothing, &[&[5], &[70]], WHOLE));
}

#[test]
fn threads_that_do_not_fit_arrive_later() {
    explore(Some(4), || deliver(Lacks::Nothing, &[&[5, 6]], SINGLY));
    explore(Some(3), || deliver(Lacks::Nothing, &[&[6], &[5]], SINGLY));
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_without_fences() {
    explore(None, || deliver(Lacks::Fences, &[&[5]], WHOLE));
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_read_modify_writes_without_order() {
    explore(None, || deliver(Lacks::RmwOrder, &[&[5]], WHOLE));
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_summary_before_the_bit() {
    let parts = Parts {
        post: |mem, id| {
            mem.or(ARRIVALS.summary, 1 << (id / 64));
            mem.or(ARRIVALS.words.add(8 * (id as u64 / 64)), 1 << (id % 64));
        },
        ..WHOLE
    };
    // The receiver comes for another thread in between.
    explore(Some(4), move || {
        deliver(Lacks::Nothing, &[&[5], &[6]], parts)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_notes_without_summary() {
    let parts = Parts {
        post: |mem, id| {
            mem.or(ARRIVALS.words.add(8 * (id as u64 / 64)), 1 << (id % 64));
        },
        ..WHOLE
    };
    explore(None, move || deliver(Lacks::Nothing, &[&[5]], parts));
}

/// As `arrivals::take`; the summary is cleared behind the words.
fn word_before_summary(mem: &LoomMem, next: &mut u32) -> Batch {
    let batch = arrivals::take(mem, &ARRIVALS, next);
    mem.swap(ARRIVALS.summary, 0);
    batch
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_takes_the_word_before_the_summary() {
    let parts = Parts {
        take: word_before_summary,
        ..WHOLE
    };
    explore(Some(4), move || {
        deliver(Lacks::Nothing, &[&[5], &[6]], parts)
    });
}

/// As `arrivals::take`; bits that come behind the look are cleared with the others.
fn clears_the_whole_word(mem: &LoomMem, next: &mut u32) -> Batch {
    let batch = arrivals::take(mem, &ARRIVALS, next);
    if batch.ids().next().is_some() {
        mem.swap(ARRIVALS.words, 0);
    }
    batch
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_clears_bits_that_it_has_not_seen() {
    let parts = Parts {
        take: clears_the_whole_word,
        ..WHOLE
    };
    explore(Some(4), move || {
        deliver(Lacks::Nothing, &[&[5], &[6]], parts)
    });
}

/// As `arrivals::take_up_to`; what does not fit has no summary bit.
fn forgets_what_is_left(mem: &LoomMem, next: &mut u32) -> Batch {
    let batch = arrivals::take_up_to(mem, &ARRIVALS, next, 1);
    if batch.more {
        mem.and(ARRIVALS.summary, 0);
    }
    batch
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_forgets_what_does_not_fit() {
    let parts = Parts {
        take: forgets_what_is_left,
        ..WHOLE
    };
    explore(Some(4), move || deliver(Lacks::Nothing, &[&[5, 6]], parts));
}

/// Every id has its turn, even if another id is posted without end.
#[test]
fn ids_have_their_turn_whichever_others_come() {
    loom::model(|| {
        let mut words: Vec<_> = (0..64).map(|w| (ARRIVALS.words.0 + 8 * w, 0)).collect();
        words.push((ARRIVALS.summary.0, 0));
        let mem = LoomMem::new(Lacks::Nothing, &words, &[]);
        let mut next = 0;
        for id in [IDS - 1, 70, 64, 63, 0] {
            assert!(arrivals::post(&mem, &ARRIVALS, id));
            let mut turns = 0;
            loop {
                // As many as are taken in a turn, again and again: the lowest ones.
                for other in (0..3).filter(|&o| o != id) {
                    assert!(arrivals::post(&mem, &ARRIVALS, other));
                }
                let batch = arrivals::take_up_to(&mem, &ARRIVALS, &mut next, 2);
                assert!(batch.ids().count() <= 2);
                if batch.ids().any(|taken| taken == id) {
                    break;
                }
                turns += 1;
                assert!(turns < 3, "thread {id} waits for ever");
            }
        }
        assert!(!arrivals::post(&mem, &ARRIVALS, IDS), "there is no such id");
    });
}
