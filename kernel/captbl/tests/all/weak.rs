//! Slots on the back end of coherent machines, with the orders that kernels have: threads on the
//! host's CPUs, and under Miri on a machine that is as weak as the language allows, once for each of
//! many seeds (`cargo xtask miri`).

use crate::common;

use std::sync::Barrier;
use std::thread;

use common::*;
use dyad_captbl::{Refused, Table};
use dyad_coherence::Coherent;
use dyad_shm::FusedMap;

/// Each time another slot of the leaf.
const TIMES: u32 = if cfg!(miri) { 3 } else { 63 };

/// Both at once, with the memory as nodes 0 and 1 see it.
fn race<A: Send, B>(
    map: &FusedMap,
    a: impl FnOnce(Table<'_, Coherent<'_>>) -> A + Send,
    b: impl FnOnce(Table<'_, Coherent<'_>>) -> B,
) -> (A, B) {
    let start = Barrier::new(2);
    let mem = Coherent(map);
    thread::scope(|s| {
        let a = s.spawn(|| {
            start.wait();
            a(table(&mem, 0))
        });
        start.wait();
        let b = b(table(&mem, 1));
        (a.join().unwrap(), b)
    })
}

#[test]
fn a_capability_is_seen_whole_or_not_at_all() {
    let map = FusedMap::leaked(4);
    for slot in 1..=TIMES {
        let at = place(LEAF, slot);
        let (filled, ()) = race(
            &map,
            |t| t.slot_activate(at, &sample(slot), &World::default()),
            |t| {
                for _ in 0..4 {
                    match t.found(at.address()) {
                        Ok(found) => assert_eq!(t.contents(&found), Ok(sample(slot))),
                        Err(why) => assert_eq!(why, Refused::NoCap),
                    }
                }
            },
        );
        assert_eq!(filled, Ok(()));
    }
}

#[test]
fn one_of_two_fills_a_slot_and_the_other_knows() {
    let map = FusedMap::leaked(4);
    for slot in 1..=TIMES {
        let at = place(LEAF, slot);
        let (a, b) = race(
            &map,
            |t| t.slot_activate(at, &sample(1), &World::default()),
            |t| t.slot_activate(at, &sample(2), &World::default()),
        );
        let (why, has) = match (a, b) {
            (Ok(()), Err(why)) => (why, 1),
            (Err(why), Ok(())) => (why, 2),
            both => panic!("{both:?}"),
        };
        assert!(matches!(why, Refused::Busy | Refused::Occupied), "{why}");
        let mem = Coherent(&map);
        let t = table(&mem, 0);
        let found = t.found(at.address()).unwrap();
        assert_eq!(t.contents(&found), Ok(sample(has)));
    }
}
