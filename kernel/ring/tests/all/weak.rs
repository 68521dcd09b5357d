//! Rings and sleep/wake on the back end of coherent machines, with the orders that kernels have:
//! threads on the host's CPUs, and under Miri on a machine that is as weak as the language allows,
//! once for each of many seeds (`cargo xtask miri`).

use std::sync::Barrier;
use std::thread;

use dyad_coherence::Coherent;
use dyad_ring::wake::{WakeLine, attentive, notify, prepare, take_pending};
use dyad_ring::{Consumer, Message, Producer, PushError};
use dyad_shm::superblock::activity::ASLEEP;
use dyad_shm::{FusedMap, PhysAddr, PoolId};

const RING: PhysAddr = PoolId::Cxl.base();
const LINE: WakeLine = WakeLine {
    pending: RING.add(4096),
    activity: RING.add(4096 + 64),
};
const PAGES: usize = 2;
/// Slots: few, so that the ring is full often.
const SLOTS: u64 = 4;

fn message(n: u64) -> Message {
    Message([n, !n, n ^ 1, n, n, n, n << 1, n.wrapping_mul(31)])
}

#[test]
fn messages_arrive_whole_and_in_order() {
    const COUNT: u64 = if cfg!(miri) { 10 } else { 20_000 };
    let map = FusedMap::leaked(PAGES);
    let mem = Coherent(&map);
    let mut p: Producer<SLOTS> = Producer::attach_sized(&mem, RING);
    let mut c: Consumer<SLOTS> = Consumer::attach_sized(&mem, RING);
    let mut wrong = None;
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
            // Not yet a failure: the sender waits for room.
            if m != message(n) {
                wrong.get_or_insert((n, m));
            }
        }
    });
    assert_eq!(wrong, None);
}

/// A receiver goes to sleep while a message comes: it notices the message, or is rung. A receiver that has
/// taken the bit finds the message.
#[test]
fn nobody_sleeps_through_a_message() {
    const TIMES: u64 = if cfg!(miri) { 4 } else { 5_000 };
    let map = FusedMap::leaked(PAGES);
    let mem = Coherent(&map);
    let mut p: Producer<SLOTS> = Producer::attach_sized(&mem, RING);
    let mut c: Consumer<SLOTS> = Consumer::attach_sized(&mem, RING);
    for n in 0..TIMES {
        attentive(&mem, &LINE);
        let start = Barrier::new(2);
        let (rung, (asleep, taken)) = thread::scope(|s| {
            let sender = s.spawn(|| {
                start.wait();
                p.push(&mem, &message(n)).unwrap();
                notify(&mem, &LINE, 9)
            });
            start.wait();
            let asleep = prepare(&mem, &LINE, ASLEEP);
            let mut taken = None;
            if !asleep {
                assert_eq!(take_pending(&mem, &LINE), 1 << 9);
                taken = c.pop(&mem).unwrap();
                assert_eq!(taken, Some(message(n)), "announced, but not there");
            }
            (sender.join().unwrap(), (asleep, taken))
        });
        assert!(rung || !asleep, "time {n}: sleeps on");
        if taken.is_none() {
            assert_eq!(take_pending(&mem, &LINE), 1 << 9);
            assert_eq!(c.pop(&mem), Ok(Some(message(n))));
        }
    }
}
