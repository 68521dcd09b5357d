//! Model checks of the ring: records are not lost, torn, repeated or put in another order, in any
//! interleaving and with any weak order; and each order is needed, shown by taking it away.

use crate::common;

use std::sync::Arc;

use common::Loom;
use dyad_coherence::model::mutant::{Kind, Orders, Site, try_each};
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_msg::record::{self, Header};
use dyad_msg::ring::{Consumer, Producer, RingError, RingSpan, ring_words};
use loom::thread;

const LINES: u64 = 4;
const PLACE: RingSpan = RingSpan::new(0, LINES);

/// An empty ring at position `start`. Of each line the first word is tracked, the fifth as well
/// (inline contents); the others cost too much, and behave as those do.
fn ring(lacks: Lacks, orders: &Orders, start: u64) -> Arc<Loom> {
    let mut tracked = vec![(0, start), (8, 0), (64, start)];
    let mut plain = vec![];
    for word in 16..ring_words(LINES) {
        match word % 8 {
            0 | 4 => tracked.push((8 * word, 0)),
            _ => plain.push(8 * word),
        }
    }
    let mem = LoomMem::new(lacks, &tracked, &plain);
    Arc::new(Loom(mem.with_orders(orders)))
}

/// Message `n`: of one, two or three lines.
fn message(n: u64) -> Vec<u8> {
    vec![n as u8; [8, 40, 100][n as usize % 3]]
}

fn transfer(lacks: Lacks, orders: &Orders, start: u64, numbers: std::ops::Range<u64>) {
    let w = ring(lacks, orders, start);
    let mut producer = Producer::attach(&*w, PLACE);
    let mut consumer = Consumer::resume(&*w, PLACE);
    let sender = {
        let w = w.clone();
        let numbers = numbers.clone();
        thread::spawn(move || {
            let mut sent = 0;
            for n in numbers {
                let bytes = message(n);
                let header = Header::new(record::Kind::Message, 0, n, bytes.len());
                match producer.push(&*w, &header, &bytes) {
                    Ok(()) => sent += 1,
                    Err(RingError::Full) => break,
                    Err(e) => panic!("{e}"),
                }
            }
            sent
        })
    };
    let first = numbers.start;
    let mut received = 0;
    let mut receive = |received: &mut u64| {
        let Some(header) = consumer.peek(&*w).expect("nothing is impossible") else {
            return false;
        };
        let expected = message(first + *received);
        let mut bytes = vec![];
        consumer.pop(&*w, &mut bytes);
        *received += 1;
        assert!(
            header.bytes == expected.len() && bytes == expected,
            "lost, torn or stale"
        );
        true
    };
    for _ in numbers {
        receive(&mut received);
    }
    let sent = sender.join().unwrap();
    while receive(&mut received) {}
    assert_eq!(received, sent, "a message was lost");
}

#[test]
fn records_arrive_once_whole_and_in_order() {
    // Three lines, one and two: the second and third need room that only the reader can make.
    explore(Some(4), || {
        transfer(Lacks::Nothing, &Orders::all(), 0, 2..5)
    });
}

#[test]
fn positions_wrap() {
    explore(Some(4), || {
        transfer(Lacks::Nothing, &Orders::all(), u64::MAX - 1, 2..5)
    });
}

#[test]
#[should_panic]
fn mutant_tail_without_release() {
    explore(Some(3), || {
        transfer(Lacks::Release, &Orders::all(), 0, 0..2)
    });
}

#[test]
#[should_panic]
fn mutant_indices_without_acquire() {
    explore(Some(3), || {
        transfer(Lacks::Acquire, &Orders::all(), 0, 2..5)
    });
}

/// Each order in the source by itself. The release of `head` orders loads before a store, whose
/// exchange loom does not explore.
#[test]
fn every_order_is_needed() {
    let verdict = try_each(|orders| {
        let orders = orders.clone();
        explore(Some(3), move || transfer(Lacks::Nothing, &orders, 0, 2..5));
    });
    let kinds = |sites: &[Site]| sites.iter().map(|s| s.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&verdict.caught), [Kind::Release, Kind::Acquire]);
    assert_eq!(kinds(&verdict.survived), [Kind::Acquire, Kind::Release]);
}
