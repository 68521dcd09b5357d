//! Each row, one step at a time: what it answers, what it leaves in memory, what it records.

use crate::common;

use common::*;
use dyad_abi::Error;
use dyad_abi::cap::{CapIndex, CapType, Rights};
use dyad_captbl::{
    Contents, Deconsed, Log, Narrowed, Parts, Refused, RootEntry, SlotHeader, SlotPlace, Table,
    narrow,
};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_shm::frame::{Epoch, Version, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::{EpochSource, Intents};
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

fn epoch(n: u64) -> Epoch {
    Epoch::new(n).unwrap()
}

fn tables(mem: &HostMem) -> Table<'_, HostMem> {
    table(mem, 0)
}

/// A table whose entry 3 leads to [`LEAF`].
fn with_leaf(mem: &HostMem, world: &World, nodes: &Nodes) {
    let t = tables(mem);
    t.cons(weak(ROOT), 3, weak(LEAF), nodes, world).unwrap();
    world.took_lines();
}

#[test]
fn a_capability_is_put_in_found_and_taken_out() {
    let (mem, world, nodes) = (HostMem::new(), World::default(), Nodes::default());
    with_leaf(&mem, &world, &nodes);
    let (t, root) = (tables(&mem), frame(ROOT).address());
    assert_eq!(t.lookup(root, cap(3, 5)), Err(Refused::NoCap));
    assert_eq!(t.slot_activate(place(LEAF, 5), &sample(7), &world), Ok(()));
    let found = t.lookup(root, cap(3, 5)).unwrap();
    assert_eq!(found.slot, place(LEAF, 5).address());
    assert_eq!(t.contents(&found), Ok(sample(7)));
    let again = t.slot_activate(place(LEAF, 5), &sample(8), &world);
    assert_eq!(again, Err(Refused::Occupied));
    for missing in [cap(3, 4), cap(3, 6), cap(2, 5), cap(4, 5)] {
        assert_eq!(t.lookup(root, missing), Err(Refused::NoCap));
    }
    assert_eq!(
        t.slot_deactivate(place(LEAF, 5), None, &world),
        Ok(epoch(1))
    );
    assert_eq!(t.lookup(root, cap(3, 5)), Err(Refused::NoCap));
    let read = t.read(found.slot).unwrap();
    assert_eq!((read.header, read.stamp), (SlotHeader::Free, epoch(1)));
    let again = t.slot_activate(place(LEAF, 5), &sample(8), &world);
    assert_eq!(again, Err(Refused::NotQuiesced));
    assert_eq!(t.read(found.slot).unwrap().header, SlotHeader::Free);
    world.rounds();
    assert_eq!(t.slot_activate(place(LEAF, 5), &sample(8), &world), Ok(()));
    assert_eq!(t.read(found.slot).unwrap().contents, Some(sample(8)));
    assert_eq!(world.open.get(), None);
}

#[test]
fn index_zero_and_indices_beyond_the_table_hold_nothing() {
    let (mem, world, nodes) = (HostMem::new(), World::default(), Nodes::default());
    let (t, root) = (tables(&mem), frame(ROOT).address());
    t.cons(weak(ROOT), 0, weak(LEAF), &nodes, &world).unwrap();
    let last = weak(OTHER_LEAF);
    t.cons(weak(ROOT), 511, last, &nodes, &world).unwrap();
    for (leaf, slot) in [(LEAF, 0), (LEAF, 1), (OTHER_LEAF, 63)] {
        t.slot_activate(place(leaf, slot), &sample(7), &world)
            .unwrap();
    }
    assert_eq!(t.lookup(root, CapIndex::NONE), Err(Refused::NoCap));
    assert!(t.lookup(root, cap(0, 1)).is_ok());
    assert!(t.lookup(root, cap(511, 63)).is_ok());
    for beyond in [cap(512, 0), cap(512, 1), CapIndex(u32::MAX)] {
        assert_eq!(t.lookup(root, beyond), Err(Refused::NoCap));
    }
    assert_eq!(SlotPlace::new(weak(LEAF), 64), None);
    let beyond = t.cons(weak(ROOT), 512, weak(LEAF), &nodes, &world);
    assert_eq!(beyond, Err(Refused::BadIndex));
    let beyond = t.decons(weak(ROOT), 512, &nodes, &world);
    assert_eq!(beyond, Err(Refused::BadIndex));
    assert_eq!(t.entry(root, 512), Err(Refused::BadIndex));
}

#[test]
fn a_slot_is_emptied_only_by_who_knows_what_is_in_it() {
    let (mem, world) = (HostMem::new(), World::default());
    let (t, at) = (tables(&mem), place(LEAF, 5));
    assert_eq!(
        t.slot_deactivate(at, None, &world),
        Err(Refused::NoCap),
        "empty"
    );
    t.slot_activate(at, &sample(7), &world).unwrap();
    let found = t.found(at.address()).unwrap();
    let other = SlotHeader::Active {
        ty: found.ty,
        rights: Rights(6),
    };
    let refused = t.slot_deactivate(at, Some(other), &world);
    assert_eq!(refused, Err(Refused::Changed));
    assert!(t.slot_deactivate(at, Some(found.header()), &world).is_ok());
}

#[test]
fn who_comes_while_another_node_changes_a_slot_or_an_entry_is_told_to_come_again() {
    let (mem, world, nodes) = (HostMem::new(), World::default(), Nodes::default());
    let (t, at) = (tables(&mem), place(LEAF, 5));
    // Its own node's, too: the other one may be another CPU.
    for busy in [owner(1, 1), owner(0, 1)] {
        for header in [SlotHeader::Reserved(busy), SlotHeader::Closing(busy)] {
            mem.store(at.address(), header.bits(), Relaxed);
            let (filled, emptied) = (
                t.slot_activate(at, &sample(7), &world),
                t.slot_deactivate(at, None, &world),
            );
            assert_eq!((filled, emptied), (Err(Refused::Busy), Err(Refused::Busy)));
            assert_eq!(t.found(at.address()), Err(Refused::NoCap));
        }
        mem.store(entry_place(3), RootEntry::Closing(busy).bits(), Relaxed);
        let (cons, decons) = (
            t.cons(weak(ROOT), 3, weak(LEAF), &nodes, &world),
            t.decons(weak(ROOT), 3, &nodes, &world),
        );
        assert_eq!((cons, decons), (Err(Refused::Busy), Err(Refused::Busy)));
    }
    assert_eq!((nodes.refs(LEAF), nodes.refs(ROOT)), (0, 0));
    for damage in [5 << 48, u64::MAX] {
        mem.store(at.address(), damage, Relaxed);
        mem.store(entry_place(3), damage, Relaxed);
        let corrupt = Err(Refused::Corrupt);
        assert_eq!(t.slot_activate(at, &sample(7), &world), corrupt);
        assert_eq!(t.slot_deactivate(at, None, &world), Err(Refused::Corrupt));
        assert_eq!(t.cons(weak(ROOT), 3, weak(LEAF), &nodes, &world), corrupt);
    }
    assert_eq!((nodes.refs(LEAF), nodes.refs(ROOT)), (0, 0));
    assert_eq!(world.open.get(), None);
}

#[test]
fn a_leaf_is_hung_in_and_taken_out_with_its_references() {
    let (mem, world, nodes) = (HostMem::new(), World::default(), Nodes::default());
    let (t, root) = (tables(&mem), frame(ROOT).address());
    let cons = |entry, leaf| t.cons(weak(ROOT), entry, leaf, &nodes, &world);
    let refs = || (nodes.refs(ROOT), nodes.refs(LEAF), nodes.refs(OTHER_LEAF));
    assert_eq!(cons(3, weak(LEAF)), Ok(()));
    assert_eq!(t.entry(root, 3), Ok(RootEntry::Present(frame(LEAF))));
    assert_eq!(cons(3, weak(OTHER_LEAF)), Err(Refused::Occupied));
    assert_eq!(cons(4, weak(LEAF)), Ok(()), "a leaf may be shared");
    let old = WeakRef {
        version: Version(0),
        ..weak(OTHER_LEAF)
    };
    assert_eq!(cons(5, old), Err(Refused::Pin(Error::Revoked)));
    assert_eq!(cons(5, weak(ROOT)), Err(Refused::Pin(Error::WrongCap)));
    let into_leaf = t.cons(weak(LEAF), 3, weak(OTHER_LEAF), &nodes, &world);
    assert_eq!(into_leaf, Err(Refused::Pin(Error::WrongCap)));
    assert_eq!(refs(), (2, 2, 0));
    let taken = Deconsed {
        leaf: frame(LEAF),
        stamp: epoch(1),
    };
    assert_eq!(t.decons(weak(ROOT), 3, &nodes, &world), Ok(taken));
    assert_eq!(
        t.decons(weak(ROOT), 3, &nodes, &world),
        Err(Refused::NoLeaf)
    );
    assert_eq!(refs(), (1, 1, 0));
    assert_eq!(t.entry(root, 3), Ok(RootEntry::Empty(epoch(1))));
    assert_eq!(cons(3, weak(OTHER_LEAF)), Err(Refused::NotQuiesced));
    assert_eq!(refs(), (1, 1, 0));
    world.rounds();
    assert_eq!(cons(3, weak(OTHER_LEAF)), Ok(()));
    assert_eq!(refs(), (2, 1, 1));
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Begin(IntentRecord),
    /// With what the word says.
    Log(PhysAddr, u64),
    Now,
    Clear,
}

/// Writes down what a row does, in order.
struct Witness<'m>(&'m HostMem, RefCell<Vec<Event>>);

impl Log for Witness<'_> {
    fn line(&self, at: PhysAddr) {
        let word = self.0.load(at, Relaxed);
        self.1.borrow_mut().push(Event::Log(at, word));
    }

    fn object(&self, _: dyad_shm::FrameRef) {}
}

impl EpochSource for Witness<'_> {
    fn now(&self) -> Epoch {
        self.1.borrow_mut().push(Event::Now);
        epoch(1)
    }

    fn quiesced(&self, _: Epoch) -> bool {
        true
    }
}

impl Intents for Witness<'_> {
    fn begin(&self, record: &IntentRecord) {
        self.1.borrow_mut().push(Event::Begin(*record));
    }

    fn clear(&self) {
        self.1.borrow_mut().push(Event::Clear);
    }
}

/// The log has the line before the stamp is taken, and everything is within the intent.
#[test]
fn rows_record_change_log_and_stamp_in_this_order() {
    let (mem, nodes) = (HostMem::new(), Nodes::default());
    let (t, at) = (tables(&mem), place(LEAF, 5));
    let (slot, entry) = (at.address(), entry_place(3));
    let (root, me) = (Some(weak(ROOT)), owner(0, 1));
    let begin = |row, table, place| {
        Event::Begin(IntentRecord {
            row,
            frame: weak(LEAF),
            table,
            place,
        })
    };
    let w = Witness(&mem, RefCell::default());
    let events = || w.1.take();
    t.slot_activate(at, &sample(7), &w).unwrap();
    let active = t.found(slot).unwrap().header().bits();
    let begun = begin(Row::SlotActivate, None, slot);
    assert_eq!(events(), [begun, Event::Log(slot, active), Event::Clear]);
    t.slot_deactivate(at, None, &w).unwrap();
    let begun = begin(Row::SlotDeactivate, None, slot);
    let closing = Event::Log(slot, SlotHeader::Closing(me).bits());
    assert_eq!(events(), [begun, closing, Event::Now, Event::Clear]);
    t.cons(weak(ROOT), 3, weak(LEAF), &nodes, &w).unwrap();
    let begun = begin(Row::Cons, root, entry);
    let present = Event::Log(entry, RootEntry::Present(frame(LEAF)).bits());
    assert_eq!(events(), [begun, present, Event::Clear]);
    t.decons(weak(ROOT), 3, &nodes, &w).unwrap();
    let begun = begin(Row::Decons, root, entry);
    let closing = Event::Log(entry, RootEntry::Closing(me).bits());
    assert_eq!(events(), [begun, closing, Event::Now, Event::Clear]);
    // Of a node that died in the middle of it.
    let dead = owner(1, 1);
    let left = RootEntry::Closing(dead).bits();
    mem.store(entry, left, Relaxed);
    assert_eq!(t.recover_entry(weak(ROOT), 3, dead, &w), Ok(true));
    assert_eq!(events(), [Event::Log(entry, left), Event::Now]);
}

#[test]
fn copies_say_what_they_are_asked_for_and_no_more() {
    let (mem, world) = (HostMem::new(), World::default());
    let t = tables(&mem);
    let guard = t.expected(weak(LIVENESS), 9).unwrap();
    let memory = Contents {
        ty: CapType::Memory,
        rights: Rights(0b1011).or(Rights::COPY),
        object: None,
        guard: None,
        payload: [frame(8).bits() as u64, 4, 0],
    };
    let copy = |source, slot, rights, guard, at, n| {
        let how = Narrowed {
            rights: Rights(rights).or(Rights::COPY),
            guard,
        };
        let parts = |ty, payload| narrow(ty, payload, at, n);
        t.copy(source, place(LEAF, slot), how, parts, &world)
    };
    let part = Contents {
        rights: Rights(0b0011).or(Rights::COPY),
        guard: Some(guard),
        payload: [frame(9).bits() as u64, 2, 0],
        ..memory
    };
    assert_eq!(copy(&memory, 1, 0b0111, Some(guard), 1, 2), Ok(part));
    let read = t.read(place(LEAF, 1).address()).unwrap();
    assert_eq!(read.contents, Some(part));
    let again = copy(&part, 2, u32::MAX, None, 0, 0);
    assert_eq!(again, Ok(part), "as much as there is, guard included");
    let twice = copy(&part, 3, u32::MAX, Some(guard), 0, 0);
    assert_eq!(twice, Err(Refused::Guarded));
    let wider = copy(&part, 3, u32::MAX, None, 1, 2);
    assert_eq!(wider, Err(Refused::BadRange));
    let slot = t.read(place(LEAF, 3).address()).unwrap();
    assert_eq!(slot.header, SlotHeader::Free);
}

#[test]
fn a_revoked_entry_kills_what_it_guards_and_nothing_else() {
    let (mem, world) = (HostMem::new(), World::default());
    let t = tables(&mem);
    let live = |frame: WeakRef| frame == weak(LIVENESS);
    let guard = |entry| t.expected(weak(LIVENESS), entry).unwrap();
    let (mine, other) = (guard(9), guard(10));
    assert_eq!(t.guard_alive(mine, live), Ok(()));
    assert_eq!(t.guard_alive(mine, |_| false), Err(Refused::Revoked));
    assert_eq!(t.revoke(frame(LIVENESS), 9, &world), Ok(epoch(1)));
    let line = frame(LIVENESS).address().add(72);
    assert_eq!(world.took_lines(), [line]);
    assert_eq!(t.guard_alive(mine, live), Err(Refused::Revoked));
    assert_eq!(t.guard_alive(other, live), Ok(()));
    assert_eq!(t.guard_alive(guard(9), live), Ok(()), "made afterwards");
    let beyond = t.revoke(frame(LIVENESS), 512, &world);
    assert_eq!(beyond, Err(Refused::BadIndex));
    let beyond = t.expected(weak(LIVENESS), 512);
    assert_eq!(beyond, Err(Refused::BadIndex));
    mem.store(line, 1 << 48, Relaxed);
    let exhausted = t.expected(weak(LIVENESS), 9);
    assert_eq!(exhausted, Err(Refused::Exhausted));
}

#[test]
fn what_a_dead_node_left_is_recovered_once() {
    let (mem, world) = (HostMem::new(), World::default());
    let (t, at, dead) = (tables(&mem), place(LEAF, 5), owner(1, 3));
    for left in [SlotHeader::Reserved(dead), SlotHeader::Closing(dead)] {
        world.rounds();
        let now = world.now.get();
        mem.store(at.address(), left.bits(), Relaxed);
        for not_this in [owner(1, 2), owner(1, 4), owner(2, 3)] {
            assert_eq!(t.recover_slot(at, not_this, &world), Ok(false));
        }
        assert_eq!(t.recover_slot(at, dead, &world), Ok(true));
        assert_eq!(t.recover_slot(at, dead, &world), Ok(false));
        let slot = t.read(at.address()).unwrap();
        assert_eq!((slot.header, slot.stamp), (SlotHeader::Free, epoch(now)));
        let early = t.slot_activate(at, &sample(7), &world);
        assert_eq!(early, Err(Refused::NotQuiesced));
    }
    world.rounds();
    t.slot_activate(at, &sample(7), &world).unwrap();
    assert_eq!(t.recover_slot(at, dead, &world), Ok(false), "it is filled");
    assert_eq!(t.read(at.address()).unwrap().contents, Some(sample(7)));
    let now = world.now.get();
    mem.store(entry_place(3), RootEntry::Closing(dead).bits(), Relaxed);
    let recover = |dead| t.recover_entry(weak(ROOT), 3, dead, &world);
    assert_eq!(recover(owner(1, 2)), Ok(false));
    assert_eq!(recover(dead), Ok(true));
    assert_eq!(recover(dead), Ok(false));
    let entry = t.entry(frame(ROOT).address(), 3);
    assert_eq!(entry, Ok(RootEntry::Empty(epoch(now))));
}

/// The recoverer dies while it recovers; the next one goes by its intent.
#[test]
fn a_dead_recoverers_work_is_redone() {
    let mem = HostMem::new();
    let (at, dead) = (place(LEAF, 5), owner(1, 1));
    mem.store(at.address(), SlotHeader::Reserved(dead).bits(), Relaxed);
    let recoverer = World::default();
    let dies = Lines(|_: PhysAddr| panic!("dies here"));
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let services = Parts {
            epochs: &recoverer,
            intents: &recoverer,
            log: &dies,
        };
        tables(&mem).recover_slot(at, dead, &services)
    }));
    assert!(died.is_err());
    let t = table(&mem, 2);
    let world = World::default();
    assert_eq!(
        t.recover_slot(at, dead, &world),
        Ok(false),
        "not its any more"
    );
    let intent = recoverer.open.get().expect("an intent of the recoverer");
    let found = SlotPlace::of_intent(&intent).unwrap();
    assert_eq!((intent.row, found), (Row::SlotDeactivate, at));
    assert_eq!(t.recover_slot(found, owner(0, 1), &world), Ok(true));
    assert_eq!(t.read(at.address()).unwrap().header, SlotHeader::Free);
}

/// Another node takes this one for dead in the middle of a row.
#[test]
fn who_is_taken_for_dead_notices() {
    let (mem, world, nodes) = (HostMem::new(), World::default(), Nodes::default());
    with_leaf(&mem, &world, &nodes);
    let (t, survivor) = (tables(&mem), table(&mem, 1));
    let (at, me) = (place(LEAF, 5), owner(0, 1));
    let other = World::default();
    let recovers = Lines(|_: PhysAddr| {
        survivor.recover_slot(at, me, &other).unwrap();
        survivor.recover_entry(weak(ROOT), 3, me, &other).unwrap();
    });
    let services = Parts {
        epochs: &world,
        intents: &world,
        log: &recovers,
    };
    t.slot_activate(at, &sample(7), &world).unwrap();
    let emptied = t.slot_deactivate(at, None, &services);
    assert_eq!(emptied, Err(Refused::Lost));
    let out = t.decons(weak(ROOT), 3, &nodes, &services);
    assert_eq!(out, Err(Refused::Lost));
    assert_eq!(nodes.refs(LEAF), 1, "to be counted by the survivor");
}

/// While references are counted none are given back.
#[test]
fn nothing_is_taken_out_while_leaf_or_root_are_recovered() {
    let (mem, world, nodes) = (HostMem::new(), World::default(), Nodes::default());
    with_leaf(&mem, &world, &nodes);
    let t = tables(&mem);
    for frozen in [LEAF, ROOT] {
        nodes.frozen.set(Some(frame(frozen)));
        let out = t.decons(weak(ROOT), 3, &nodes, &world);
        assert_eq!(out, Err(Refused::Pin(Error::Again)));
        let entry = t.entry(frame(ROOT).address(), 3);
        assert_eq!(entry, Ok(RootEntry::Present(frame(LEAF))));
        assert_eq!((nodes.refs(ROOT), nodes.refs(LEAF)), (1, 1));
        assert_eq!(world.open.get(), None);
    }
    nodes.frozen.set(None);
    assert!(t.decons(weak(ROOT), 3, &nodes, &world).is_ok());
}
