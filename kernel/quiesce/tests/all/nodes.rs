//! Suspicion, death, recovery, rejoining.

use crate::common;

use common::*;
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use dyad_coherence::{GlobalMem, HostMem};
use dyad_quiesce::{EpochSource, Error, IntentRecord, Intents, Quiescence, Row};
use dyad_shm::superblock::{NodeState, Superblock};
use dyad_shm::{FrameRef, PhysAddr, Version, WeakRef};

#[test]
fn words_outside_of_memory_are_refused() {
    let mem = HostMem::new();
    let q = Quiescence::new(&mem, PhysAddr(0x1000), AREA);
    assert_eq!(q.unwrap_err(), Error::NoMemory);
    assert!(Quiescence::new(&mem, SUPERBLOCK.add(8), AREA).is_err());
}

#[test]
fn a_suspect_blocks_reuse_and_a_dead_node_does_not() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let stamp = q.now();
    whole_round(&q, 0, &mut a, &Hardware::default());
    q.suspect(node(1)).unwrap();
    assert_eq!(q.suspect(node(1)), Err(Error::State(NodeState::Suspect)));
    assert_eq!(q.quiesced(stamp).unwrap_err().node, node(1));
    q.trust(node(1)).unwrap();
    q.suspect(node(1)).unwrap();
    q.die(node(1)).unwrap();
    assert_eq!(q.quiesced(stamp), Ok(()));
    assert_eq!(q.trust(node(1)), Err(Error::State(NodeState::Dead)));
}

#[test]
fn a_damaged_state_word_blocks_reuse() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, mut b] = pair(&q);
    let stamp = q.now();
    whole_round(&q, 0, &mut a, &Hardware::default());
    let at = SUPERBLOCK.add(offset_of!(Superblock, nodes) as u64 + 128);
    mem.store(at, 99, Ordering::SeqCst);
    assert!(q.quiesced(stamp).is_err());
    assert_eq!(q.die(node(1)), Err(Error::Damaged));
    whole_round(&q, 1, &mut b, &Hardware::default());
    assert_eq!(q.quiesced(stamp), Ok(()));
}

#[test]
fn only_a_vacant_place_can_be_taken_and_the_newcomer_is_ahead_of_old_stamps() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    let join = || q.join(node(1), cpu(1), &hw).map(|(_, i)| i);
    assert_eq!(join(), Err(Error::State(NodeState::Live)));
    q.die(node(1)).unwrap();
    assert_eq!(join(), Err(Error::State(NodeState::Dead)));
    let claim = q.recover(node(1), node(0), cpu(0)).unwrap();
    assert_eq!((claim.victim(), claim.incarnation()), (node(1), 1));
    assert_eq!(join(), Err(Error::State(NodeState::Recovering)));
    q.recovered(claim).unwrap();
    assert_eq!(q.publication(node(1)).awake(), 0);
    let stamp = q.now();
    whole_round(&q, 0, &mut a, &hw);
    hw.take();
    assert_eq!(join(), Ok(2));
    assert_eq!(hw.take(), [Did::Everything, Did::Tlb]);
    assert_eq!(q.publication(node(1)).awake(), 0b10);
    assert_eq!(q.quiesced(stamp), Ok(()), "it has seen all of that");
    assert_eq!(q.quiesced(q.now()).unwrap_err().stamp, q.now());
}

#[test]
fn of_two_recoverers_one_works_and_the_other_takes_over_when_it_dies() {
    let mem = HostMem::new();
    let q = words(&mem);
    pair(&q);
    let hw = Hardware::default();
    q.join(node(2), cpu(0), &hw).unwrap();
    let refused = q.recover(node(2), node(0), cpu(0)).unwrap_err();
    assert_eq!(refused, Error::State(NodeState::Live));
    q.die(node(2)).unwrap();
    let first = q.recover(node(2), node(0), cpu(0)).unwrap();
    let refused = q.recover(node(2), node(1), cpu(0)).unwrap_err();
    assert_eq!(refused, Error::Claimed(node(0)));
    q.die(node(0)).unwrap();
    let second = q.recover(node(2), node(1), cpu(0)).unwrap();
    // The first cannot come back: it is dead. Should its claim be used nevertheless, it is void.
    assert_eq!(q.recovered(first), Err(Error::Contended));
    assert_eq!(q.node(node(2)).unwrap().state, NodeState::Recovering);
    q.recovered(second).unwrap();
    assert_eq!(q.node(node(2)).unwrap().state, NodeState::Vacant);
    let third = q.recover(node(0), node(1), cpu(0)).unwrap();
    q.recovered(third).unwrap();
    assert_eq!(q.join(node(0), cpu(0), &hw).unwrap().1, 2);
}

#[test]
fn a_claim_of_an_earlier_incarnation_is_void() {
    let mem = HostMem::new();
    let q = words(&mem);
    pair(&q);
    let hw = Hardware::default();
    q.join(node(2), cpu(0), &hw).unwrap();
    q.die(node(2)).unwrap();
    let old = q.recover(node(2), node(0), cpu(0)).unwrap();
    q.die(node(0)).unwrap();
    let claim = q.recover(node(0), node(1), cpu(0)).unwrap();
    q.recovered(claim).unwrap();
    q.join(node(0), cpu(0), &hw).unwrap();
    let new = q.recover(node(2), node(0), cpu(0)).unwrap();
    assert_eq!(q.recovered(old), Err(Error::Contended));
    q.recovered(new).unwrap();
}

#[test]
fn intents_are_read_back_whole() {
    let mem = HostMem::new();
    let q = words(&mem);
    let frame = FrameRef::of(PhysAddr(AREA.0 + 0x5000)).unwrap();
    let weak = |v| WeakRef {
        frame,
        version: Version(v),
    };
    let whole = IntentRecord {
        row: Row::Decons,
        frame: weak(7),
        table: Some(weak(u32::MAX)),
        place: AREA.add(0x40),
    };
    let mine = q.intents(node(1), cpu(3));
    assert_eq!(mine.read(), None);
    for record in [whole, IntentRecord::frame(Row::Map, frame, Version(0))] {
        mine.begin(&record);
        assert_eq!(mine.read(), Some(record));
        assert_eq!(q.intents(node(1), cpu(2)).read(), None);
        mine.clear();
        assert_eq!(mine.read(), None);
    }
}

#[test]
fn epochs_end_with_an_error() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let at = SUPERBLOCK.add(offset_of!(Superblock, epoch) as u64);
    mem.store(at, u64::MAX, Ordering::SeqCst);
    let end = a.flush_step(&q, &Hardware::default(), 1);
    assert_eq!(end, Err(Error::EpochsExhausted));
    assert!(q.quiesced(q.now()).is_err());
    assert!(!EpochSource::quiesced(&q, EpochSource::now(&q)));
}

/// Frozen frames do not say who has frozen them, so that one CPU of the system recovers at a time.
#[test]
fn one_cpu_of_the_system_recovers_whoever_has_died() {
    let mem = HostMem::new();
    let q = words(&mem);
    pair(&q);
    let hw = Hardware::default();
    for n in [2, 3] {
        q.join(node(n), cpu(0), &hw).unwrap();
        q.die(node(n)).unwrap();
    }
    let first = q.recover(node(2), node(0), cpu(1)).unwrap();
    for victim in [2, 3] {
        for (by, c) in [(0, 0), (0, 2), (1, 0), (1, 1)] {
            let refused = q.recover(node(victim), node(by), cpu(c)).unwrap_err();
            assert_eq!(refused, Error::Claimed(node(0)), "{victim}, {by}, {c}");
        }
    }
    assert_eq!(q.node(node(3)).unwrap().state, NodeState::Dead);
    assert!(q.holds(&first));
    // A holder that dies loses the claim, also to one who has another victim in mind.
    q.die(node(0)).unwrap();
    let second = q.recover(node(3), node(1), cpu(0)).unwrap();
    assert!(!q.holds(&first) && q.holds(&second));
    assert_eq!(q.recovered(first), Err(Error::Contended));
    q.recovered(second).unwrap();
    // What the first one had begun is begun anew.
    for victim in [2, 0] {
        let claim = q.recover(node(victim), node(1), cpu(3)).unwrap();
        q.recovered(claim).unwrap();
    }
}

/// Another CPU of a node that joins may be awake before the node has published its first epoch: rounds wait for it.
#[test]
fn who_is_awake_while_its_node_joins_stays_awake() {
    let mem = HostMem::new();
    let q = words(&mem);
    pair(&q);
    q.wake(node(2), cpu(1));
    q.join(node(2), cpu(0), &Hardware::default()).unwrap();
    assert_eq!(q.publication(node(2)).awake(), 0b11);
}
