//! Model checks of the ring: nothing lost, duplicated, reordered or torn, in any interleaving and
//! with any weak ordering. The register of mutants takes away each ordering.

use std::sync::Arc;

use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_ring::{Consumer, Corrupt, MESSAGE_WORDS, Message, Producer, PushError};
use dyad_shm::PhysAddr;
use loom::sync::atomic::Ordering;
use loom::thread;

const BASE: u64 = 0x40_0000_0000;
const LINE: u64 = 64;
/// Small, so that the producer has to wait for slots and reuses them.
const SLOTS: u64 = 2;

/// A ring whose indices start at `start`; of each slot the first and the last word are tracked.
fn ring(lacks: Lacks, start: u64) -> Arc<LoomMem> {
    let mut tracked = vec![(BASE, start), (BASE + LINE, start)];
    let mut plain = vec![];
    for slot in 0..SLOTS {
        for word in 0..MESSAGE_WORDS as u64 {
            let at = BASE + (2 + slot) * LINE + 8 * word;
            if word == 0 || word == MESSAGE_WORDS as u64 - 1 {
                tracked.push((at, 0));
            } else {
                plain.push(at);
            }
        }
    }
    Arc::new(LoomMem::new(lacks, &tracked, &plain))
}

/// One thread sends `1..=count`, another receives; whatever arrives must be the next whole one.
/// Both end when the other side keeps them waiting, so that executions are finite.
fn transfer(lacks: Lacks, start: u64, count: u64) {
    let mut consumer = None;
    transfer_by(lacks, start, count, move |mem| {
        consumer
            .get_or_insert_with(|| Consumer::<SLOTS>::resume_sized(mem, PhysAddr(BASE)))
            .pop(mem)
    });
}

type Popped = Result<Option<Message>, Corrupt>;

/// As [`transfer`], with another way to pop.
fn transfer_by(lacks: Lacks, start: u64, count: u64, mut pop: impl FnMut(&LoomMem) -> Popped) {
    let mem = ring(lacks, start);
    let mut producer = Producer::<SLOTS>::attach_sized(&*mem, PhysAddr(BASE));
    let sender = {
        let mem = mem.clone();
        thread::spawn(move || {
            let mut sent = 0;
            for n in 1..=count {
                match producer.push(&*mem, &Message([n; MESSAGE_WORDS])) {
                    Ok(()) => sent += 1,
                    Err(PushError::Full) => break,
                    Err(e) => panic!("{e}"),
                }
            }
            sent
        })
    };
    let mut received = 0;
    let mut receive = |received: &mut u64| {
        let message = pop(&mem).expect("indices are in order");
        if let Some(message) = message {
            *received += 1;
            assert_eq!(message.0, [*received; MESSAGE_WORDS], "lost, torn or stale");
        }
        message.is_some()
    };
    for _ in 0..count {
        receive(&mut received);
    }
    let sent = sender.join().unwrap();
    while receive(&mut received) {}
    assert_eq!(received, sent, "a message was lost");
}

#[test]
fn messages_arrive_once_whole_and_in_order() {
    explore(None, || transfer(Lacks::Nothing, 0, 3));
}

#[test]
fn message_numbers_wrap() {
    explore(None, || transfer(Lacks::Nothing, u64::MAX - 1, 3));
}

/// A consumer that gives a slot back before it has read it. This stands for a relaxed store of
/// head as well, whose reordering with *earlier loads* loom does not explore.
#[test]
#[should_panic(expected = "lost, torn or stale")]
fn mutant_slot_given_back_before_it_is_read() {
    explore(None, || {
        let mut head = 0;
        transfer_by(Lacks::Nothing, 0, 3, move |mem| {
            if mem.load(PhysAddr(BASE), Ordering::Acquire) == head {
                return Ok(None);
            }
            let slot = PhysAddr(BASE + (2 + head % SLOTS) * LINE);
            head += 1;
            mem.store(PhysAddr(BASE + LINE), head, Ordering::Release);
            let words = [0, 1, 2, 3, 4, 5, 6, 7].map(|w| slot.add(8 * w));
            Ok(Some(Message(
                words.map(|at| mem.load(at, Ordering::Relaxed)),
            )))
        });
    });
}

/// The consumer drops what an older incarnation left while the producer goes on sending: what
/// arrives is the end of what was sent, in order.
#[test]
fn attach_drops_a_prefix_only() {
    explore(None, || {
        let mem = ring(Lacks::Nothing, 0);
        let mut producer = Producer::<SLOTS>::attach_sized(&*mem, PhysAddr(BASE));
        producer
            .push(&*mem, &Message([1; MESSAGE_WORDS]))
            .expect("room");
        let sender = {
            let mem = mem.clone();
            thread::spawn(move || {
                producer
                    .push(&*mem, &Message([2; MESSAGE_WORDS]))
                    .expect("room");
            })
        };
        let mut consumer = Consumer::<SLOTS>::attach_sized(&*mem, PhysAddr(BASE));
        sender.join().unwrap();
        match consumer.pop(&*mem).expect("indices are in order") {
            None => {}
            Some(m) => {
                assert_eq!(m, Message([2; MESSAGE_WORDS]));
                assert_eq!(consumer.pop(&*mem), Ok(None));
            }
        }
    });
}
