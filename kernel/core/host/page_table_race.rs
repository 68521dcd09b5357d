//! Page-table races: two nodes fault, unmap and take tables out at the same places at once, thousands of
//! times; after each round the tables and the frames in use are what they must be.
//!
//! Beside these: `race_pairs` does each operation between any two steps of each other one, and
//! `kernel/pgtbl/tests/loom_tables.rs` has all weakly ordered interleavings of two mappings.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

use dyad_abi::cap::RegionKind;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_retype::FrameType;
use dyad_tier::size;

use super::Machine;
use super::resolve_tests::{fault, seen, used_frames, with_region};
use super::system::{System, cx, this};
use crate::syscall::ops::reclaim::reclaim;
use dyad_machine::platform::FaultKind::Write;
use dyad_object::space::Region;
use dyad_shm::frame::WeakRef;

/// Frames of each supply.
const SUPPLY: u64 = 128;
const BASE: u64 = 1 << 39;

fn patiently(mut f: impl FnMut() -> dyad_abi::Result<()>) {
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(e) = f() {
        assert_eq!(e, Error::Again);
        // The other one may have been stopped in the middle of it.
        thread::yield_now();
        assert!(Instant::now() < end, "it does not come to that");
    }
}

/// Where all meet; not if one of them has failed.
#[derive(Default)]
struct Gate {
    come: AtomicUsize,
    failed: AtomicBool,
}

impl Gate {
    /// `nth`: how often this one has come.
    fn meet(&self, nth: &mut usize) {
        *nth += 1;
        self.come.fetch_add(1, AcqRel);
        while self.come.load(Acquire) < 3 * *nth {
            assert!(!self.failed.load(Acquire), "another one has failed");
            thread::yield_now();
        }
    }
}

/// Marks the gate as failed if the thread that has this value panics.
struct Tells<'a>(&'a Gate);

impl Drop for Tells<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed.store(true, Release);
        }
    }
}

fn touch(m: Machine, space: WeakRef, va: u64) {
    patiently(|| fault(m, space, va, Write).map(drop));
}

fn take(m: Machine, space: WeakRef, va: u64) {
    patiently(|| reclaim(&this(&cx(m), space), va, 1).map(drop));
}

/// What is in use of both supplies: pages, and tables.
fn in_use(s: &System) -> (usize, usize) {
    let mut used = used_frames(s, 0, SUPPLY);
    used.extend(used_frames(s, 1, SUPPLY));
    let pages = |u: &&(FrameType, u32)| matches!(u.0, FrameType::User(_));
    let pages = used.iter().filter(pages).count();
    (pages, used.len() - pages)
}

/// How often both nodes meet.
fn rounds() -> usize {
    size(100, 600, 6000)
}

/// Both nodes at these places at once, and `tables`: how many tables they need, of both ISAs.
fn race(places: &[u64], tables: usize, rounds: usize) {
    let (s, space) = with_region(SUPPLY, RegionKind::Anonymous, true);
    {
        let c = cx(s.x());
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        let region = Region::new(BASE, 2 << 39, kind).unwrap();
        this(&c, space)
            .space
            .add_region(c.words(), c.node.id(), region)
            .unwrap();
    }
    let gate = Gate::default();
    let worlds = [s.world.twin(), s.world.twin()];
    thread::scope(|scope| {
        for (which, w) in worlds.into_iter().enumerate() {
            let gate = &gate;
            scope.spawn(move || {
                let (m, mut met, _tells) = (w.machine(which), 0, Tells(gate));
                let n = places.len();
                for round in 0..rounds {
                    let first = if round.is_multiple_of(3) { 0 } else { which };
                    let each = (0..n).map(|i| BASE + places[(i + first) % n]);
                    gate.meet(&mut met);
                    each.clone().for_each(|va| touch(m, space, va));
                    gate.meet(&mut met);
                    // It is looked at.
                    gate.meet(&mut met);
                    let puts = round % 2 == 1 && which != round / 2 % 2;
                    each.clone().for_each(|va| match puts {
                        // It need not succeed: where a page has just gone there is none before a round.
                        true => {
                            let _ = fault(m, space, va, Write);
                        }
                        false => take(m, space, va),
                    });
                    each.for_each(|va| take(m, space, va));
                    gate.meet(&mut met);
                    m.local().cache.forget();
                    gate.meet(&mut met);
                }
            });
        }
        let (mut met, _tells) = (0, Tells(&gate));
        for round in 0..rounds {
            gate.meet(&mut met);
            gate.meet(&mut met);
            for place in places {
                let there = Isa::ALL.map(|isa| seen(&s, space, isa, BASE + place));
                assert!(
                    there[0].is_some() && there[0] == there[1],
                    "round {round}, {place:#x}: {there:x?}"
                );
            }
            assert_eq!(in_use(&s), (places.len(), tables), "round {round}");
            gate.meet(&mut met);
            gate.meet(&mut met);
            // One of the two has put pages there behind the other one.
            places
                .iter()
                .for_each(|place| take(s.x(), space, BASE + place));
            assert_eq!(in_use(&s), (0, 0), "round {round}");
            s.rounds();
            gate.meet(&mut met);
        }
    });
}

#[test]
fn page_table_race_in_one_leaf_table() {
    let pages: [u64; 6] = core::array::from_fn(|n| n as u64 * PAGE_SIZE);
    race(&pages, 2 * 3, rounds());
}

#[test]
fn page_table_race_for_one_page() {
    race(&[0], 2 * 3, rounds());
}

#[test]
fn page_table_race_for_missing_tables_of_every_level() {
    // Leaf tables 4, above them 3, and 2.
    race(&[0, PAGE_SIZE, 1 << 21, 1 << 30, 1 << 39], 2 * 9, rounds());
}
