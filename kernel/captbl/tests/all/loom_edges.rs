//! Model checks of edges: cons, decons and lookups that race with each other and with a leaf that
//! is given up. The register of mutants takes away each rule that only races need.

use crate::common;
use crate::common::races;

use std::sync::Arc;
use std::sync::atomic as plain;

use common::{LEAF, OTHER_LEAF, ROOT, cap, entry_place, frame, owner, place, sample, table, weak};
use dyad_abi::Error;
use dyad_captbl::{Pins, Refused, RootEntry, SlotHeader, Table};
use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::EpochSource;
use loom::sync::atomic::Ordering;
use races::*;

/// References to a frame, in the memory of the model; [`GONE`]: it has been given up.
fn refs(f: FrameRef) -> PhysAddr {
    PhysAddr(0x2000 + f.index() * 64)
}

const GONE: u64 = 1 << 32;

struct Counted<'m>(&'m LoomMem);

impl Counted<'_> {
    fn pin(&self, f: FrameRef) -> Result<(), Error> {
        let mut old = self.0.load(refs(f), Ordering::Acquire);
        while old != GONE {
            match self.0.cas(refs(f), old, old + 1) {
                Ok(_) => return Ok(()),
                Err(now) => old = now,
            }
        }
        Err(Error::Revoked)
    }

    /// The owner of a leaf gives it up, if nothing refers to it.
    fn give_up(&self, leaf: u64) -> bool {
        self.0.cas(refs(frame(leaf)), 0, GONE).is_ok()
    }
}

impl Pins for Counted<'_> {
    fn pin_leaf(&self, leaf: WeakRef) -> Result<(), Error> {
        self.pin(leaf.frame)
    }

    fn pin_root(&self, root: WeakRef) -> Result<(), Error> {
        self.pin(root.frame)
    }

    fn unpin(&self, f: FrameRef) -> Result<(), Error> {
        let old = self.0.add(refs(f), u64::MAX);
        assert!(old != 0 && old < GONE, "references below zero");
        Ok(())
    }

    fn may_unpin(&self, _: FrameRef, _: FrameRef) -> Result<(), Error> {
        Ok(())
    }

    fn current(&self, frame: FrameRef) -> Result<WeakRef, Error> {
        Ok(weak(frame.index()))
    }
}

const ENTRY: u32 = 3;

/// A root with the leaf [`LEAF`] in the entry, or with nothing; references to the leaves tracked.
fn memory(lacks: Lacks, present: bool, more: &[(u64, u64)]) -> Arc<LoomMem> {
    let entry = match present {
        true => RootEntry::Present(frame(LEAF)),
        false => RootEntry::Empty(Epoch::ZERO),
    };
    let mut tracked = vec![
        (entry_place(ENTRY).0, entry.bits()),
        (refs(frame(LEAF)).0, present as u64),
        (refs(frame(OTHER_LEAF)).0, 0),
        (refs(frame(ROOT)).0, present as u64),
        (EPOCH.0, 1),
        (PUBLISHED.0, 1),
    ];
    tracked.extend_from_slice(more);
    Arc::new(LoomMem::new(lacks, &tracked, &[]))
}

fn cons(m: &LoomMem, node: u64, leaf: u64) -> Result<(), Refused> {
    let t = table(m, node);
    t.cons(weak(ROOT), ENTRY, weak(leaf), &Counted(m), &Loud)
}

fn decons(m: &LoomMem, node: u64) -> Result<Epoch, Refused> {
    let t = table(m, node);
    t.decons(weak(ROOT), ENTRY, &Counted(m), &Loud)
        .map(|done| done.stamp)
}

/// The leaf that a lookup comes to.
fn walk(m: &LoomMem) -> Option<u64> {
    let t: Table<'_, _> = table(m, 1);
    let slot = t.slot_at(frame(ROOT).address(), cap(ENTRY, 1)).ok()?;
    FrameRef::of(slot).map(|leaf| leaf.index())
}

fn left(m: &LoomMem) -> RootEntry {
    let t: Table<'_, _> = table(m, 0);
    t.entry(frame(ROOT).address(), ENTRY).unwrap()
}

/// References as the entry has them, if no row is at work.
fn counted(m: &LoomMem) {
    let there = matches!(left(m), RootEntry::Present(_)) as u64;
    let root = m.load(refs(frame(ROOT)), Ordering::SeqCst);
    assert_eq!(root, there, "references of the root");
    for leaf in [LEAF, OTHER_LEAF] {
        let there = (left(m) == RootEntry::Present(frame(leaf))) as u64;
        let refs = m.load(refs(frame(leaf)), Ordering::SeqCst);
        assert_eq!(refs & (GONE - 1), there, "references of a leaf");
    }
}

/// P1: a leaf is hung in while its owner gives it up.
fn cons_and_give_up() {
    let mem = memory(Lacks::Nothing, false, &[]);
    let (gone, hung) = race(&mem, |m| Counted(m).give_up(LEAF), |m| cons(m, 0, LEAF));
    let there = left(&mem) == RootEntry::Present(frame(LEAF));
    assert!(!(gone && there), "an edge to what has been given up");
    assert_eq!(hung.is_ok(), there);
    counted(&mem);
}

#[test]
fn a_leaf_is_hung_in_or_given_up() {
    explore(None, cons_and_give_up);
}

/// A leaf is taken out, and given up as soon as it can be.
fn decons_and_give_up() {
    let mem = memory(Lacks::Nothing, true, &[]);
    let (there, out) = race(
        &mem,
        |m| Counted(m).give_up(LEAF) && walk(m) == Some(LEAF),
        |m| decons(m, 0),
    );
    assert!(!there, "a lookup comes to what has been given up");
    assert_eq!(out, Ok(Loud.now()));
    counted(&mem);
}

#[test]
fn a_leaf_is_given_up_after_it_has_been_taken_out() {
    explore(None, decons_and_give_up);
}

#[test]
fn one_of_two_leaves_is_hung_in() {
    explore(Some(3), || {
        let mem = memory(Lacks::Nothing, false, &[]);
        let (a, b) = race(&mem, |m| cons(m, 1, LEAF), |m| cons(m, 0, OTHER_LEAF));
        assert!(a.is_ok() != b.is_ok());
        assert_eq!(a.and(b), Err(Refused::Occupied));
        counted(&mem);
    });
}

#[test]
fn one_of_two_takes_a_leaf_out() {
    explore(Some(3), || {
        let mem = memory(Lacks::Nothing, true, &[]);
        let (a, b) = race(&mem, |m| decons(m, 1), |m| decons(m, 0));
        assert!(a.is_ok() != b.is_ok());
        let why = a.and(b).unwrap_err();
        assert!(matches!(why, Refused::Busy | Refused::NoLeaf), "{why}");
        counted(&mem);
    });
}

/// Three at once: a lookup comes to the leaf that is there, to that which has been hung in, or to
/// none.
#[test]
fn cons_decons_and_lookup() {
    explore(Some(2), || {
        let mem = memory(Lacks::Nothing, false, &[]);
        let (other, reader) = (mem.clone(), mem.clone());
        let out = loom::thread::spawn(move || decons(&other, 1));
        let seen = loom::thread::spawn(move || walk(&reader));
        assert_eq!(cons(&mem, 0, LEAF), Ok(()));
        assert!(matches!(seen.join().unwrap(), None | Some(LEAF)));
        let expected = match out.join().unwrap() {
            Ok(stamp) => RootEntry::Empty(stamp),
            Err(Refused::NoLeaf) => RootEntry::Present(frame(LEAF)),
            Err(why) => panic!("{why}"),
        };
        assert_eq!(left(&mem), expected);
        counted(&mem);
    });
}

/// Node 1 hangs a leaf in and takes it out, all within one stay in the kernel, while node 0 wants
/// to hang in another one.
fn two_leaves_within_one_stay() {
    let mem = memory(Lacks::Nothing, false, &[]);
    let (other, mine) = race(
        &mem,
        |m| cons(m, 0, OTHER_LEAF),
        |m| {
            let mine = cons(m, 1, LEAF);
            if mine.is_ok() {
                decons(m, 1).unwrap();
                assert_eq!(walk(m), None, "another leaf under a reader");
            }
            mine
        },
    );
    // No node has been quiet: an entry that has been used is not used again.
    assert!(other.is_ok() != mine.is_ok(), "another leaf under a reader");
    counted(&mem);
}

#[test]
fn an_entry_leads_to_one_leaf_within_one_stay_in_the_kernel() {
    explore(Some(3), two_leaves_within_one_stay);
}

/// Node 1 goes through a round and then walks twice; node 0 takes the leaf out, and hangs another
/// one in as soon as it may. Counts the executions in which it did.
fn other_leaf_around_a_round(lacks: Lacks, hung: &plain::AtomicU32) {
    let mem = memory(lacks, true, &[]);
    let node1 = |m: &LoomMem| {
        round(m);
        (walk(m), walk(m))
    };
    let (seen, other) = race(&mem, node1, |m| {
        let (t, world) = (table(m, 0), Shared(m));
        t.decons(weak(ROOT), ENTRY, &Counted(m), &world).unwrap();
        t.cons(weak(ROOT), ENTRY, weak(OTHER_LEAF), &Counted(m), &world)
    });
    if let (Some(first), Some(second)) = seen {
        assert_eq!(first, second, "another leaf under a reader");
    }
    hung.fetch_add(other.is_ok() as u32, plain::Ordering::Relaxed);
}

fn explore_other(lacks: Lacks) {
    let hung = Arc::new(plain::AtomicU32::new(0));
    let count = hung.clone();
    explore(Some(3), move || other_leaf_around_a_round(lacks, &count));
    assert_ne!(hung.load(plain::Ordering::Relaxed), 0, "never hung in");
}

#[test]
fn another_leaf_is_hung_in_after_a_round_and_not_before() {
    explore_other(Lacks::Nothing);
}

/// A leaf whose frame was something else before is zeroed and linked while another thread looks it up.
fn new_leaf(lacks: Lacks) {
    let header = place(LEAF, 1).address();
    let before = SlotHeader::Active {
        ty: sample(7).ty,
        rights: sample(7).rights,
    };
    let mem = memory(lacks, false, &[(header.0, before.bits())]);
    let (seen, hung) = race(
        &mem,
        |m| {
            let t: Table<'_, _> = table(m, 1);
            t.lookup(frame(ROOT).address(), cap(ENTRY, 1))
        },
        move |m| {
            m.store(header, 0, Ordering::Relaxed);
            cons(m, 0, LEAF)
        },
    );
    assert_eq!(hung, Ok(()));
    assert_eq!(seen, Err(Refused::NoCap), "what was in the frame before");
}

#[test]
fn a_new_leaf_is_seen_with_its_slots() {
    explore(None, || new_leaf(Lacks::Nothing));
}

#[test]
#[should_panic(expected = "what was in the frame before")]
fn mutant_entry_published_without_a_release() {
    explore(None, || new_leaf(Lacks::RmwOrder));
}

#[test]
fn one_of_two_recovers_an_entry() {
    explore(None, || {
        let mem = memory(Lacks::Nothing, false, &[]);
        let closing = RootEntry::Closing(owner(2, 1)).bits();
        mem.store(entry_place(ENTRY), closing, Ordering::SeqCst);
        let recover = |m: &LoomMem, n| {
            let t: Table<'_, _> = table(m, n);
            t.recover_entry(weak(ROOT), ENTRY, owner(2, 1), &Loud)
                .unwrap()
        };
        let (a, b) = race(&mem, move |m| recover(m, 1), |m| recover(m, 0));
        assert!(a != b, "once");
        assert_eq!(left(&mem), RootEntry::Empty(Loud.now()));
    });
}
