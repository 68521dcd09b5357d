//! Rings on one machine: order, fullness, wrap-around, attaching, and peers that lie.

use std::iter::once;
use std::sync::atomic::Ordering;
use std::thread;

use dyad_coherence::{GlobalMem, HostMem};
use dyad_ring::{Consumer, Corrupt, Message, Producer, PushError, RING_BYTES, SLOTS};
use dyad_shm::PhysAddr;

const FRAME: u64 = 0x40_0010_0000;
const TAIL: PhysAddr = PhysAddr(FRAME);
const HEAD: PhysAddr = PhysAddr(FRAME + 64);

/// Memory that ends close behind the ring: an index out of bounds panics.
fn memory() -> HostMem {
    HostMem::with_ranges(once(FRAME..FRAME + RING_BYTES.next_multiple_of(4096)))
}

fn message(n: u64) -> Message {
    Message([n, !n, n ^ 1, n, n, n, n << 1, n.wrapping_mul(31)])
}

#[test]
fn a_zeroed_ring_is_empty_and_holds_exactly_its_slots() {
    let mem = memory();
    let mut p = Producer::attach(&mem, TAIL);
    let mut c = Consumer::attach(&mem, TAIL);
    assert_eq!(c.pop(&mem), Ok(None));
    for n in 0..SLOTS {
        assert_eq!(p.push(&mem, &message(n)), Ok(()));
    }
    assert_eq!(p.push(&mem, &message(99)), Err(PushError::Full));
    assert_eq!(c.pop(&mem), Ok(Some(message(0))));
    assert_eq!(p.push(&mem, &message(SLOTS)), Ok(()));
    assert_eq!(p.push(&mem, &message(99)), Err(PushError::Full));
    // What was refused was not sent. Who comes after counts on.
    assert_eq!(p.sent(), SLOTS + 1);
    assert_eq!(Producer::attach(&mem, TAIL).sent(), SLOTS + 1);
    for n in 1..=SLOTS {
        assert_eq!(c.pop(&mem), Ok(Some(message(n))));
    }
    assert_eq!(c.pop(&mem), Ok(None));
}

#[test]
fn message_numbers_wrap_around() {
    let mem = memory();
    let start = u64::MAX - 100;
    mem.store(TAIL, start, Ordering::Relaxed);
    mem.store(HEAD, start, Ordering::Relaxed);
    let mut p = Producer::attach(&mem, TAIL);
    let mut c = Consumer::resume(&mem, TAIL);
    for n in 0..300 {
        p.push(&mem, &message(n)).unwrap();
        if n % 2 == 1 {
            assert_eq!(c.pop(&mem), Ok(Some(message(n - 1))));
            assert_eq!(c.pop(&mem), Ok(Some(message(n))));
        }
    }
    assert_eq!(mem.load(TAIL, Ordering::Relaxed), start.wrapping_add(300));
    assert_eq!(mem.load(HEAD, Ordering::Relaxed), start.wrapping_add(300));
}

#[test]
fn each_side_writes_its_own_line_and_slots_only() {
    let mem = memory();
    let mut p = Producer::attach(&mem, TAIL);
    p.push(&mem, &message(5)).unwrap();
    assert_eq!(mem.load(HEAD, Ordering::Relaxed), 0);
    let mut c = Consumer::resume(&mem, TAIL);
    mem.store(TAIL, 1, Ordering::Relaxed);
    c.pop(&mem).unwrap();
    assert_eq!(mem.load(TAIL, Ordering::Relaxed), 1);
    for unused in (8..64).chain(72..128).chain(192..4096).step_by(8) {
        assert_eq!(mem.load(TAIL.add(unused), Ordering::Relaxed), 0);
    }
}

#[test]
fn a_new_producer_goes_on_where_the_old_one_stopped() {
    let mem = memory();
    let mut c = Consumer::attach(&mem, TAIL);
    for n in 0..3 * SLOTS {
        // The ring is full at the first attachment of each lap.
        Producer::attach(&mem, TAIL)
            .push(&mem, &message(n))
            .unwrap();
        if n >= SLOTS - 1 {
            assert_eq!(c.pop(&mem), Ok(Some(message(n + 1 - SLOTS))));
        }
    }
}

#[test]
fn attaching_drops_and_resuming_keeps_what_is_there() {
    let mem = memory();
    let mut p = Producer::attach(&mem, TAIL);
    for n in 0..SLOTS {
        p.push(&mem, &message(n)).unwrap();
    }
    let mut kept = Consumer::resume(&mem, TAIL);
    assert_eq!(kept.pop(&mem), Ok(Some(message(0))));
    let mut kept = Consumer::resume(&mem, TAIL);
    assert_eq!(kept.pop(&mem), Ok(Some(message(1))));
    let mut dropped = Consumer::attach(&mem, TAIL);
    assert_eq!(dropped.pop(&mem), Ok(None));
    for n in 0..SLOTS {
        let all_free = p.push(&mem, &message(100 + n));
        assert_eq!(all_free, Ok(()), "slot {n}");
    }
    assert_eq!(dropped.pop(&mem), Ok(Some(message(100))));
}

/// Every index a lying producer can write is either plausible (at most a ring's worth ahead: some
/// messages, garbage but bounded) or reported; nothing changes when it is reported.
#[test]
fn lying_indices_are_reported_and_never_followed() {
    const STEP: usize = if cfg!(miri) { 23 } else { 1 };
    let lies: Vec<u64> = (0..64)
        .flat_map(|b| [1u64 << b, (1 << b) - 1, u64::MAX << b])
        .chain(990..1100)
        .step_by(STEP)
        .collect();
    for &at in &[0u64, 1000, u64::MAX - 3] {
        for &lie in &lies {
            let mem = memory();
            mem.store(TAIL, at, Ordering::Relaxed);
            mem.store(HEAD, at, Ordering::Relaxed);
            let mut p = Producer::attach(&mem, TAIL);
            let mut c = Consumer::resume(&mem, TAIL);

            mem.store(TAIL, lie, Ordering::Relaxed);
            let claimed = lie.wrapping_sub(at);
            let mut popped = 0;
            let end = loop {
                match c.pop(&mem) {
                    Ok(Some(_)) if popped < SLOTS => popped += 1,
                    other => break other,
                }
            };
            if claimed <= SLOTS {
                assert_eq!((popped, end), (claimed, Ok(None)));
            } else {
                assert_eq!((popped, end), (0, Err(Corrupt)));
                assert_eq!(mem.load(HEAD, Ordering::Relaxed), at);
                let mut again = Consumer::attach(&mem, TAIL);
                assert_eq!(again.pop(&mem), Ok(None), "attaching heals");
            }

            mem.store(TAIL, at, Ordering::Relaxed);
            mem.store(HEAD, lie, Ordering::Relaxed);
            let used = at.wrapping_sub(lie);
            let expected = match used {
                u if u > SLOTS => Err(PushError::Corrupt),
                SLOTS => Err(PushError::Full),
                _ => Ok(()),
            };
            assert_eq!(p.push(&mem, &message(1)), expected);
            let tail = at.wrapping_add(expected.is_ok() as u64);
            assert_eq!(mem.load(TAIL, Ordering::Relaxed), tail);
        }
    }
}

#[test]
fn two_threads_exchange_many_messages_in_order() {
    const COUNT: u64 = if cfg!(miri) { 300 } else { 50_000 };
    let mem = memory();
    let mut p = Producer::attach(&mem, TAIL);
    let mut c = Consumer::attach(&mem, TAIL);
    thread::scope(|s| {
        s.spawn(|| {
            for n in 0..COUNT {
                while p.push(&mem, &message(n)) == Err(PushError::Full) {
                    thread::yield_now();
                }
            }
        });
        for n in 0..COUNT {
            let m = loop {
                match c.pop(&mem).expect("indices are in order") {
                    Some(m) => break m,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(m, message(n));
        }
        assert_eq!(c.pop(&mem), Ok(None));
    });
}
