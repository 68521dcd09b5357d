//! Model checks of sleep and wake: no wake-up is lost in any interleaving, with any weak ordering;
//! and each part of the protocol is needed, shown by taking it away.
//!
//! A lost wake-up leaves the receiver waiting for a doorbell with no sender left: loom reports it
//! as a deadlock.

use std::sync::Arc;

use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_ring::wake::{self, WakeLine};
use dyad_ring::{Consumer, Message, Producer};
use dyad_shm::PhysAddr;
use dyad_shm::superblock::activity::{ASLEEP, ATTENTIVE, USER};
use loom::sync::atomic::Ordering;
use loom::sync::{Condvar, Mutex};
use loom::thread;

const LINE: WakeLine = WakeLine {
    pending: PhysAddr(0x1000),
    activity: PhysAddr(0x1040),
};
const MAILBOXES: u64 = 0x2000;

type Prepare = fn(&LoomMem, &WakeLine, u64) -> bool;
type Notify = fn(&LoomMem, &WakeLine, u32) -> bool;

/// An interrupt line: stays pending until it is taken.
struct Doorbell {
    pending: Mutex<bool>,
    wakes: Condvar,
}

impl Doorbell {
    fn new() -> Arc<Doorbell> {
        Arc::new(Doorbell {
            pending: Mutex::new(false),
            wakes: Condvar::new(),
        })
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

/// Each sender counts its mailbox up `each` times; the receiver looks only at the mailboxes whose
/// bits it takes, and goes away (`doing`) whenever nothing is pending, until it has seen all.
fn deliver(lacks: Lacks, senders: u32, each: u64, doing: u64, prepare: Prepare, notify: Notify) {
    let mailbox = |s: u32| PhysAddr(MAILBOXES + 64 * s as u64);
    let mut words = vec![(LINE.pending.0, 0), (LINE.activity.0, ATTENTIVE)];
    words.extend((0..senders).map(|s| (mailbox(s).0, 0)));
    let mem = Arc::new(LoomMem::new(lacks, &words, &[]));
    let doorbell = Doorbell::new();
    let threads: Vec<_> = (0..senders)
        .map(|s| {
            let (mem, doorbell) = (mem.clone(), doorbell.clone());
            thread::spawn(move || {
                for n in 1..=each {
                    mem.store(mailbox(s), n, Ordering::Relaxed);
                    if notify(&mem, &LINE, s) {
                        doorbell.ring();
                    }
                }
            })
        })
        .collect();
    let mut seen = vec![0; senders as usize];
    loop {
        let bits = wake::take_pending(&*mem, &LINE);
        for s in (0..senders).filter(|s| bits >> s & 1 != 0) {
            seen[s as usize] = mem.load(mailbox(s), Ordering::Relaxed);
        }
        if seen.iter().all(|&n| n == each) {
            break;
        }
        if prepare(&mem, &LINE, doing) {
            doorbell.wait();
            wake::attentive(&*mem, &LINE);
        }
    }
    for t in threads {
        t.join().unwrap();
    }
}

#[test]
fn a_sleeper_is_woken() {
    explore(None, || {
        deliver(Lacks::Nothing, 1, 1, ASLEEP, wake::prepare, wake::notify)
    });
}

#[test]
fn a_cpu_in_user_mode_is_interrupted() {
    explore(None, || {
        deliver(Lacks::Nothing, 1, 1, USER, wake::prepare, wake::notify)
    });
}

#[test]
fn bits_that_are_still_set_need_no_second_ring() {
    explore(Some(5), || {
        deliver(Lacks::Nothing, 1, 2, ASLEEP, wake::prepare, wake::notify)
    });
}

#[test]
fn two_senders_wake_one_receiver() {
    explore(Some(4), || {
        deliver(Lacks::Nothing, 2, 1, ASLEEP, wake::prepare, wake::notify)
    });
}

/// As `wake::prepare`, without the second look.
fn prepare_without_recheck(mem: &LoomMem, line: &WakeLine, doing: u64) -> bool {
    mem.store(line.activity, doing, Ordering::Relaxed);
    mem.fence();
    true
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_receiver_without_recheck() {
    explore(None, || {
        deliver(
            Lacks::Nothing,
            1,
            1,
            ASLEEP,
            prepare_without_recheck,
            wake::notify,
        )
    });
}

/// As `wake::notify`, looking before it sets the bit.
fn notify_looking_first(mem: &LoomMem, line: &WakeLine, sender: u32) -> bool {
    let doing = mem.load(line.activity, Ordering::Relaxed);
    mem.fence();
    let before = mem.or(line.pending, 1 << sender);
    before >> sender & 1 == 0 && doing != ATTENTIVE
}

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_sender_looks_before_it_tells() {
    explore(None, || {
        deliver(
            Lacks::Nothing,
            1,
            1,
            ASLEEP,
            wake::prepare,
            notify_looking_first,
        )
    });
}

/// A bit taken without acquire does not bring the message along: it is never looked at again.
#[test]
#[should_panic(expected = "deadlock")]
fn mutant_pending_without_order() {
    explore(None, || {
        deliver(Lacks::RmwOrder, 1, 1, ASLEEP, wake::prepare, wake::notify)
    });
}

/// Ring and wake-up together, as the kernel uses them.
fn ring_and_wake() {
    const BASE: PhysAddr = PhysAddr(0x4000);
    const COUNT: u64 = 2;
    let words = [
        (LINE.pending.0, 0),
        (LINE.activity.0, ATTENTIVE),
        (BASE.0, 0),
        (BASE.0 + 64, 0),
        (BASE.0 + 128, 0),
        (BASE.0 + 192, 0),
    ];
    let plain: Vec<_> = (0..2)
        .flat_map(|slot| (1..8).map(move |w| BASE.0 + 128 + 64 * slot + 8 * w))
        .collect();
    let mem = Arc::new(LoomMem::new(Lacks::Nothing, &words, &plain));
    let doorbell = Doorbell::new();
    let sender = {
        let (mem, doorbell) = (mem.clone(), doorbell.clone());
        let mut producer = Producer::<2>::attach_sized(&*mem, BASE);
        thread::spawn(move || {
            for n in 1..=COUNT {
                producer.push(&*mem, &Message([n; 8])).expect("room");
                if wake::notify(&*mem, &LINE, 9) {
                    doorbell.ring();
                }
            }
        })
    };
    let mut consumer = Consumer::<2>::resume_sized(&*mem, BASE);
    let mut received = 0;
    loop {
        if wake::take_pending(&*mem, &LINE) != 0 {
            while let Some(m) = consumer.pop(&*mem).expect("indices are in order") {
                received += 1;
                assert_eq!(m, Message([received; 8]));
            }
        }
        if received == COUNT {
            break;
        }
        if wake::prepare(&*mem, &LINE, ASLEEP) {
            doorbell.wait();
            wake::attentive(&*mem, &LINE);
        }
    }
    sender.join().unwrap();
}

#[test]
fn no_message_is_left_in_a_ring() {
    explore(Some(5), ring_and_wake);
}
