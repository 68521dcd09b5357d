//! Model check of what a CPU remembers of quiescence: no stamp that is taken later, by a node that
//! slept when it was looked at, is taken for an older one.

use crate::common::model;

use core::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dyad_coherence::GlobalMem;
use dyad_coherence::model::mutant::Orders;
use dyad_coherence::model::{Lacks, explore};
use dyad_quiesce::{Epoch, Known};
use dyad_shm::PhysAddr;
use dyad_shm::superblock::Superblock;
use loom::thread;
use model::*;

const EPOCH: PhysAddr = PhysAddr(SUPERBLOCK + offset_of!(Superblock, epoch) as u64);
const ASLEEP: [(u64, u64); 1] = [(PUBLISHED, START << 16)];

/// Node 0 asks what is quiet, while a third one takes a new epoch and node 1 wakes up, finds the
/// object, takes it away with a stamp, and still has it in hand.
fn asks(orders: &Orders) {
    let remembered = Arc::new(AtomicBool::new(false));
    let (seen, orders) = (remembered.clone(), orders.clone());
    explore(None, move || {
        let mem = memory(Lacks::Nothing, &orders, &ASLEEP);
        let m = mem.clone();
        let other = thread::spawn(move || {
            m.add(EPOCH, 1);
        });
        let m = mem.clone();
        let user = thread::spawn(move || {
            let q = words(&m);
            q.wake(node1(), cpu(0));
            if !find(&m) {
                return None;
            }
            m.cas(THERE, 1, 0).unwrap();
            Some(q.now())
        });
        let known = Known::new();
        assert!(words(&mem).quiesced_or_known(&known, Epoch::ZERO));
        other.join().unwrap();
        if known.covers(Epoch::new(START).unwrap()) {
            seen.store(true, Relaxed);
        }
        if let Some(stamp) = user.join().unwrap() {
            assert!(!known.covers(stamp), "reused under a node that uses it");
        }
    });
    assert!(remembered.load(Relaxed), "nothing new was ever remembered");
}

#[test]
fn a_stamp_of_a_node_that_has_woken_up_is_not_taken_for_an_older_one() {
    asks(&Orders::all());
}
