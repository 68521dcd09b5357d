//! Model checks of slots: rows that race with each other and with lookups, in all interleavings
//! and with all weak orderings. The register of mutants takes away each rule that only races need.

use crate::common;
use crate::common::races;

use std::sync::Arc;
use std::sync::atomic as plain;

use common::{owner, place, sample, table};
use dyad_captbl::{Found, Refused, SlotHeader, SlotPlace};
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_shm::frame::Epoch;
use dyad_shm::protocol::EpochSource;
use loom::sync::atomic::Ordering;
use loom::thread;
use races::*;

fn at() -> SlotPlace {
    place(common::LEAF, 1)
}

/// The words of a slot with the capability that says `n`, or without any.
fn words(n: Option<u32>) -> [u64; 8] {
    let (mem, world) = (HostMem::new(), common::World::default());
    if let Some(n) = n {
        let t = table(&mem, 0);
        t.slot_activate(at(), &sample(n), &world).unwrap();
    }
    core::array::from_fn(|i| mem.load(at().address().add(8 * i as u64), Ordering::Relaxed))
}

/// A slot, its header, stamp, first and last word tracked; and the words of rounds.
fn memory(lacks: Lacks, slot: [u64; 8]) -> Arc<LoomMem> {
    let word = |i: u64| at().address().add(8 * i);
    let mut tracked: Vec<_> = [0, 1, 2, 7].map(|i| (word(i).0, slot[i as usize])).to_vec();
    tracked.extend([(EPOCH.0, 1), (PUBLISHED.0, 1)]);
    let plain = [3, 4, 5, 6].map(|i| word(i).0);
    let mem = LoomMem::new(lacks, &tracked, &plain);
    for i in 3..7 {
        mem.store(word(i), slot[i as usize], Ordering::SeqCst);
    }
    Arc::new(mem)
}

/// Does what a system call does: finds a capability and reads it. The capability is one that a thread has
/// written.
fn look(m: &LoomMem) -> Option<u32> {
    let t = table(m, 1);
    let found: Found = t.found(at().address()).ok()?;
    let n = found.rights.0;
    assert_eq!(t.contents(&found), Ok(sample(n)), "not what was found");
    Some(n)
}

fn left(m: &LoomMem) -> (SlotHeader, Epoch) {
    let slot = table(m, 0).read(at().address()).unwrap();
    (slot.header, slot.stamp)
}

fn active(n: u32) -> SlotHeader {
    SlotHeader::Active {
        ty: sample(n).ty,
        rights: sample(n).rights,
    }
}

fn fill(m: &LoomMem, node: u64, n: u32) -> Result<(), Refused> {
    table(m, node).slot_activate(at(), &sample(n), &Loud)
}

fn empty(m: &LoomMem, node: u64) -> Result<Epoch, Refused> {
    table(m, node).slot_deactivate(at(), None, &Loud)
}

/// I4: a slot is filled while another thread looks at it.
fn fill_and_look(lacks: Lacks) {
    let mem = memory(lacks, words(None));
    let (seen, filled) = race(&mem, look, |m| fill(m, 0, 7));
    assert_eq!(filled, Ok(()));
    assert!(matches!(seen, None | Some(7)));
}

#[test]
fn whoever_finds_a_capability_sees_all_of_it() {
    explore(None, || fill_and_look(Lacks::Nothing));
}

#[test]
#[should_panic(expected = "not what was found")]
fn mutant_i4_published_without_a_release() {
    explore(None, || fill_and_look(Lacks::RmwOrder));
}

/// Two fill the same slot.
fn two_fill() {
    let mem = memory(Lacks::Nothing, words(None));
    let (a, b) = race(&mem, |m| fill(m, 1, 7), |m| fill(m, 0, 8));
    assert!(a.is_ok() != b.is_ok(), "both have it, or neither");
    let why = a.and(b).unwrap_err();
    assert!(matches!(why, Refused::Busy | Refused::Occupied), "{why}");
    assert_eq!(look(&mem), Some(if a.is_ok() { 7 } else { 8 }));
}

#[test]
fn one_of_two_fills_a_slot() {
    explore(None, two_fill);
}

#[test]
fn one_of_two_empties_a_slot() {
    explore(None, || {
        let mem = memory(Lacks::Nothing, words(Some(7)));
        let (a, b) = race(&mem, |m| empty(m, 1), |m| empty(m, 0));
        assert!(a.is_ok() != b.is_ok());
        let why = a.and(b).unwrap_err();
        assert!(matches!(why, Refused::Busy | Refused::NoCap), "{why}");
        assert_eq!(left(&mem), (SlotHeader::Free, Loud.now()));
    });
}

#[test]
fn a_slot_is_filled_before_it_is_emptied() {
    explore(None, || {
        let mem = memory(Lacks::Nothing, words(None));
        let (emptied, filled) = race(&mem, |m| empty(m, 1), |m| fill(m, 0, 7));
        assert_eq!(filled, Ok(()));
        match emptied {
            Ok(stamp) => assert_eq!(left(&mem), (SlotHeader::Free, stamp)),
            Err(why) => {
                assert!(matches!(why, Refused::Busy | Refused::NoCap), "{why}");
                assert_eq!(left(&mem), (active(7), Epoch::ZERO));
            }
        }
    });
}

/// Three nodes: one looks at a slot, one empties it, one fills it. No node is quiet meanwhile.
fn empty_and_fill_under_a_reader() -> (Result<Epoch, Refused>, Result<(), Refused>) {
    let mem = memory(Lacks::Nothing, words(Some(7)));
    let (other, reader) = (mem.clone(), mem.clone());
    let emptied = thread::spawn(move || empty(&other, 0));
    let seen = thread::spawn(move || look(&reader));
    let filled = fill(&mem, 2, 8);
    // The reader's own check comes first: what it is for is what it sees.
    assert!(matches!(seen.join().unwrap(), None | Some(7 | 8)));
    (emptied.join().unwrap(), filled)
}

#[test]
fn a_slot_is_not_filled_again_under_a_reader() {
    explore(Some(3), || {
        let (emptied, filled) = empty_and_fill_under_a_reader();
        assert_eq!(emptied, Ok(Loud.now()));
        assert!(filled.is_err());
    });
}

/// C1: node 1 goes through a round and then looks at the slot, which node 0 empties and fills
/// again as soon as it may. Counts the executions in which it was filled.
fn empty_and_fill_around_a_round(lacks: Lacks, refilled: &plain::AtomicU32) {
    let mem = memory(lacks, words(Some(7)));
    let node1 = |m: &LoomMem| {
        round(m);
        look(m)
    };
    let (seen, filled) = race(&mem, node1, |m| {
        let (t, world) = (table(m, 0), Shared(m));
        t.slot_deactivate(at(), None, &world).unwrap();
        t.slot_activate(at(), &sample(8), &world)
    });
    assert!(matches!(seen, None | Some(7 | 8)));
    refilled.fetch_add(filled.is_ok() as u32, plain::Ordering::Relaxed);
}

fn explore_refill(lacks: Lacks) {
    let refilled = Arc::new(plain::AtomicU32::new(0));
    let count = refilled.clone();
    explore(None, move || empty_and_fill_around_a_round(lacks, &count));
    assert_ne!(refilled.load(plain::Ordering::Relaxed), 0, "never filled");
}

#[test]
fn a_slot_is_filled_again_after_a_round_and_not_before() {
    explore_refill(Lacks::Nothing);
}

#[test]
#[should_panic(expected = "not what was found")]
fn mutant_rounds_and_stamps_without_fences() {
    explore_refill(Lacks::Fences);
}

/// Two survivors recover a slot; one of them may be late.
#[test]
fn one_of_two_recovers_a_slot() {
    for slot in [
        SlotHeader::Closing(owner(2, 1)),
        SlotHeader::Reserved(owner(2, 1)),
    ] {
        explore(None, move || {
            let mut old = words(Some(7));
            old[0] = slot.bits();
            let mem = memory(Lacks::Nothing, old);
            let recover = |m: &LoomMem, n| {
                let t = table(m, n);
                t.recover_slot(at(), owner(2, 1), &Loud).unwrap()
            };
            let (a, b) = race(&mem, move |m| recover(m, 1), |m| recover(m, 0));
            assert!(a != b, "once");
            assert_eq!(left(&mem), (SlotHeader::Free, Loud.now()));
        });
    }
}

/// A survivor recovers a slot while a late one is still at it, and while the slot is filled by the
/// next incarnation of the node that died.
#[test]
fn recovery_does_not_touch_what_the_next_incarnation_does() {
    explore(Some(3), || {
        let mut old = words(None);
        old[0] = SlotHeader::Closing(owner(1, 1)).bits();
        let mem = memory(Lacks::Nothing, old);
        struct Quiet;
        impl dyad_shm::protocol::EpochSource for Quiet {
            fn now(&self) -> Epoch {
                Epoch::ZERO
            }
            fn quiesced(&self, _: Epoch) -> bool {
                true
            }
        }
        let services = || dyad_captbl::Parts {
            epochs: &Quiet,
            intents: &Loud,
            log: &Loud,
        };
        let recover = move |m: &LoomMem, n| {
            let t = table(m, n);
            t.recover_slot(at(), owner(1, 1), &services()).unwrap()
        };
        let (late, filled) = race(
            &mem,
            move |m| recover(m, 2),
            |m| {
                let first = recover(m, 0);
                let next = dyad_captbl::Table::new(m, owner(1, 2));
                (first, next.slot_activate(at(), &sample(7), &services()))
            },
        );
        match filled {
            (first, Ok(())) => {
                assert!(first != late);
                assert_eq!(left(&mem).0, active(7));
                assert_eq!(look(&mem), Some(7));
            }
            // The late one was faster, and still at it.
            (false, Err(Refused::Busy)) => assert!(late),
            other => panic!("taken from a node that lives: {other:?}"),
        }
    });
}

/// A node that is taken for dead goes on (D4: it must not, the launcher sees to that). It finds out
/// at its next step, and no lookup finds its capability.
#[test]
fn a_late_owner_loses_the_slot() {
    explore(None, || {
        let mem = memory(Lacks::Nothing, words(None));
        let (recovered, filled) = race(
            &mem,
            |m| {
                let t = table(m, 0);
                t.recover_slot(at(), owner(1, 1), &Loud).unwrap()
            },
            |m| fill(m, 1, 7),
        );
        match (recovered, filled) {
            (true, Err(Refused::Lost)) => {
                assert_eq!(left(&mem).0, SlotHeader::Free)
            }
            (false, Ok(())) => assert_eq!(look(&mem), Some(7)),
            other => panic!("both or neither: {other:?}"),
        }
    });
}
