//! Model checks of sleeping, waking and waiting for room: nobody sleeps for ever, in any
//! interleaving and with any weak order; and each part is needed, shown by taking it away.
//!
//! A lost wake-up leaves a thread waiting for a doorbell that nobody will ring: loom reports it as a
//! deadlock.

use crate::common;

use std::sync::Arc;

use common::Loom;
use dyad_coherence::model::mutant::{Orders, try_each};
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_msg::record::{Header, Kind};
use dyad_msg::ring::{Consumer, Producer, RingError, RingSpan, ring_words};
use dyad_msg::wake::{self, ASLEEP, ATTENTIVE, WakeLine};
use dyad_msg::words::Words;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::atomic::Ordering;

const LINES: u64 = 1;
const PLACE: RingSpan = RingSpan::new(0, LINES);
const AT: u64 = ring_words(LINES);
/// Of the receiver, and of the sender.
const WAKE: [WakeLine; 2] = [
    WakeLine {
        pending: AT,
        activity: AT + 8,
    },
    WakeLine {
        pending: AT + 16,
        activity: AT + 24,
    },
];

struct Doorbell {
    pending: Mutex<bool>,
    wakes: Condvar,
}

impl Doorbell {
    fn new() -> Doorbell {
        Doorbell {
            pending: Mutex::new(false),
            wakes: Condvar::new(),
        }
    }

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

type Prepare = fn(&Loom, &WakeLine) -> bool;
type Notify = fn(&Loom, &WakeLine, usize) -> bool;

/// What is as it is in the source, or not.
#[derive(Clone, Copy)]
struct Parts {
    prepare: Prepare,
    notify: Notify,
    /// The sender tries again after it has said what it wants.
    looks_again: bool,
    /// The receiver tells at once if there is room when it hears that some is wanted.
    tells_at_once: bool,
}

const ALL: Parts = Parts {
    prepare: wake::prepare,
    notify: wake::notify,
    looks_again: true,
    tells_at_once: true,
};

fn memory(lacks: Lacks, orders: &Orders) -> Arc<Loom> {
    let tracked: Vec<_> = [0, 1, 8, 16]
        .into_iter()
        .chain(WAKE.iter().flat_map(|l| [l.pending, l.activity]))
        .map(|word| (8 * word, 0))
        .collect();
    let plain: Vec<_> = (17..24).map(|word| 8 * word).collect();
    Arc::new(Loom(
        LoomMem::new(lacks, &tracked, &plain).with_orders(orders),
    ))
}

/// `count` messages through a ring that holds one; both sides sleep when they have nothing to do.
fn through_one_line(lacks: Lacks, orders: &Orders, parts: Parts, count: u64) {
    let w = memory(lacks, orders);
    let bells = Arc::new([Doorbell::new(), Doorbell::new()]);
    let mut producer = Producer::attach(&*w, PLACE);
    let mut consumer = Consumer::resume(&*w, PLACE);
    let sender = {
        let (w, bells) = (w.clone(), bells.clone());
        thread::spawn(move || {
            let tell = || {
                if (parts.notify)(&w, &WAKE[0], 1) {
                    bells[0].ring();
                }
            };
            for n in 1..=count {
                let header = Header::new(Kind::Message, n, n, 0);
                let mut push = || match producer.push(&*w, &header, &[]) {
                    Ok(()) => true,
                    Err(RingError::Full) => false,
                    Err(e) => panic!("{e}"),
                };
                if !push() {
                    loop {
                        w.store(1, 1, Ordering::Relaxed);
                        tell();
                        if parts.looks_again && push() {
                            break;
                        }
                        let _ = wake::take_pending(&*w, &WAKE[1]);
                        if push() {
                            break;
                        }
                        if (parts.prepare)(&w, &WAKE[1]) {
                            bells[1].wait();
                            wake::attentive(&*w, &WAKE[1]);
                        }
                    }
                    w.store(1, 0, Ordering::Relaxed);
                }
                tell();
            }
        })
    };
    let tell = || {
        if (parts.notify)(&w, &WAKE[1], 0) {
            bells[1].ring();
        }
    };
    let mut received = 0;
    loop {
        if wake::take_pending(&*w, &WAKE[0]) != 0 {
            consumer.note_want(&*w);
            if parts.tells_at_once && consumer.has_room_for_waiter(&*w) {
                tell();
            }
        }
        while let Some(header) = consumer.peek(&*w).expect("nothing is impossible") {
            received += 1;
            assert_eq!(header.tag, received);
            consumer.pop(&*w, &mut vec![]);
            if consumer.has_room_for_waiter(&*w) {
                tell();
            }
        }
        if received == count {
            break;
        }
        if (parts.prepare)(&w, &WAKE[0]) {
            bells[0].wait();
            wake::attentive(&*w, &WAKE[0]);
        }
    }
    sender.join().unwrap();
}

#[test]
fn a_sleeper_is_woken() {
    explore(None, || {
        through_one_line(Lacks::Nothing, &Orders::all(), ALL, 1)
    });
}

#[test]
fn who_waits_for_room_is_woken() {
    explore(Some(3), || {
        through_one_line(Lacks::Nothing, &Orders::all(), ALL, 2)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_without_fences() {
    explore(Some(3), || {
        through_one_line(Lacks::Fences, &Orders::all(), ALL, 1)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_room_is_told_of_after_a_pop_only() {
    let parts = Parts {
        tells_at_once: false,
        ..ALL
    };
    explore(Some(3), move || {
        through_one_line(Lacks::Nothing, &Orders::all(), parts, 2)
    });
}

fn prepare_without_recheck(w: &Loom, line: &WakeLine) -> bool {
    w.store(line.activity, ASLEEP, Ordering::Relaxed);
    w.fence();
    true
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_without_a_second_look() {
    let parts = Parts {
        prepare: prepare_without_recheck,
        ..ALL
    };
    explore(Some(3), move || {
        through_one_line(Lacks::Nothing, &Orders::all(), parts, 1)
    });
}

fn notify_looking_first(w: &Loom, line: &WakeLine, bit: usize) -> bool {
    let doing = w.load(line.activity, Ordering::Relaxed);
    w.fence();
    let before = w.or(line.pending, 1 << bit);
    before >> bit & 1 == 0 && doing != ATTENTIVE
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_sender_looks_before_it_tells() {
    let parts = Parts {
        notify: notify_looking_first,
        ..ALL
    };
    explore(Some(3), move || {
        through_one_line(Lacks::Nothing, &Orders::all(), parts, 1)
    });
}

/// Each fence and order of the wake-up by itself.
#[test]
fn every_fence_is_needed() {
    let verdict = try_each(|orders| {
        let orders = orders.clone();
        explore(Some(3), move || {
            through_one_line(Lacks::Nothing, &orders, ALL, 1)
        });
    });
    let survived: Vec<_> = verdict.survived.iter().map(|s| s.to_string()).collect();
    assert!(
        !survived.iter().any(|s| s.contains("wake.rs")),
        "survived: {survived:?}"
    );
    let fences = verdict.caught.iter().map(|s| s.to_string());
    assert_eq!(fences.filter(|s| s.contains("wake.rs")).count(), 2);
}
