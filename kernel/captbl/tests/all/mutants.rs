//! A scenario for each rule that keeps capability tables safe one step at a time: the register of mutants names those
//! that fail without a rule. Rules about races are in `loom_slots.rs` and
//! `loom_edges.rs`, those about caches in `incoherent.rs`.

use crate::common;

use std::sync::atomic::Ordering::Relaxed;

use common::*;
use dyad_abi::Error;
use dyad_abi::cap::{CapType, Rights};
use dyad_captbl::{
    Contents, FrameRange, GuardRef, Narrowed, Pins, Refused, RootEntry, SlotHeader, Table, narrow,
};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_shm::frame::{FrameRef, WeakRef};

fn not_yet(mem: &HostMem, world: &World, slot: u32) {
    let t = table(mem, 0);
    let fill = || t.slot_activate(place(LEAF, slot), &sample(8), world);
    for n in [1, 0] {
        assert_eq!(fill(), Err(Refused::NotQuiesced), "slot filled too early");
        world.round(n);
    }
    assert_eq!(fill(), Ok(()));
}

#[test]
fn emptied_slots_wait_for_a_round() {
    let (mem, world) = (HostMem::new(), World::default());
    let (t, at) = (table(&mem, 0), place(LEAF, 5));
    t.slot_activate(at, &sample(7), &world).unwrap();
    t.slot_deactivate(at, None, &world).unwrap();
    not_yet(&mem, &world, 5);
}

#[test]
fn emptied_entries_wait_for_a_round() {
    let (mem, world, nodes) = (HostMem::new(), World::default(), Nodes::default());
    let t = table(&mem, 0);
    let cons = |leaf| t.cons(weak(ROOT), 3, weak(leaf), &nodes, &world);
    cons(LEAF).unwrap();
    t.decons(weak(ROOT), 3, &nodes, &world).unwrap();
    for n in [1, 0] {
        let early = cons(OTHER_LEAF);
        assert_eq!(early, Err(Refused::NotQuiesced), "entry used too early");
        world.round(n);
    }
    assert_eq!(cons(OTHER_LEAF), Ok(()));
}

const ALL: Narrowed = Narrowed {
    rights: Rights::ALL,
    guard: None,
};

fn memory(rights: Rights, guard: Option<GuardRef>) -> Contents {
    Contents {
        ty: CapType::Memory,
        rights,
        object: None,
        guard,
        payload: FrameRange::new(frame(8), 4).unwrap().payload(),
    }
}

#[test]
fn only_what_may_be_copied_is() {
    let mem = HostMem::new();
    let copy = table(&mem, 0).copied(&memory(Rights(0b11), None), ALL, |_, p| Ok(p));
    assert_eq!(copy, Err(Refused::Denied), "copied without the right");
}

#[test]
fn copies_permit_no_more() {
    let mem = HostMem::new();
    let source = memory(Rights(0b11).or(Rights::COPY), None);
    let copy = table(&mem, 0).copied(&source, ALL, |_, p| Ok(p));
    assert_eq!(copy.unwrap().rights, source.rights, "permits more");
}

#[test]
fn copies_refer_to_no_more() {
    let mem = HostMem::new();
    let part = |ty, payload| narrow(ty, payload, 1, 2);
    let copy = table(&mem, 0).copied(&memory(Rights::ALL, None), ALL, part);
    let range = FrameRange::from_payload(copy.unwrap().payload);
    assert_eq!(range, FrameRange::new(frame(9), 2), "refers to more");
}

fn alive(t: &Table<'_, HostMem>, cap: &Contents) -> bool {
    let live = |f: WeakRef| f == weak(LIVENESS);
    cap.guard.is_none_or(|g| t.guard_alive(g, live).is_ok())
}

#[test]
fn copies_die_with_their_source() {
    let (mem, world) = (HostMem::new(), World::default());
    let t = table(&mem, 0);
    let guard = t.expected(weak(LIVENESS), 1).unwrap();
    let source = memory(Rights::ALL, Some(guard));
    let copy = t.copied(&source, ALL, |_, p| Ok(p)).unwrap();
    t.revoke(frame(LIVENESS), 1, &world).unwrap();
    assert!(!alive(&t, &copy), "outlives its revocation");
}

#[test]
fn guards_are_not_replaced() {
    let (mem, world) = (HostMem::new(), World::default());
    let t = table(&mem, 0);
    let guard = |entry| t.expected(weak(LIVENESS), entry).unwrap();
    let source = memory(Rights::ALL, Some(guard(1)));
    let how = Narrowed {
        guard: Some(guard(2)),
        ..ALL
    };
    let copy = t.copied(&source, how, |_, p| Ok(p));
    t.revoke(frame(LIVENESS), 1, &world).unwrap();
    assert!(
        copy.is_err() || !alive(&t, &copy.unwrap()),
        "outlives its revocation"
    );
}

#[test]
fn what_is_revoked_is_dead() {
    let (mem, world) = (HostMem::new(), World::default());
    let t = table(&mem, 0);
    let cap = memory(Rights::ALL, Some(t.expected(weak(LIVENESS), 1).unwrap()));
    assert!(alive(&t, &cap));
    t.revoke(frame(LIVENESS), 1, &world).unwrap();
    assert!(!alive(&t, &cap), "outlives its revocation");
}

#[test]
fn guards_die_with_their_frame() {
    let mem = HostMem::new();
    let t = table(&mem, 0);
    let guard = t.expected(weak(LIVENESS), 1).unwrap();
    // The frame has been retyped; what is in it now happens to be the count.
    let dead = t.guard_alive(guard, |_| false);
    assert_eq!(dead, Err(Refused::Revoked), "guarded by what is no guard");
}

#[test]
fn failed_edges_leave_no_reference() {
    let (mem, world, nodes) = (HostMem::new(), World::default(), Nodes::default());
    let t = table(&mem, 0);
    let cons = |leaf| t.cons(weak(ROOT), 3, weak(leaf), &nodes, &world);
    cons(LEAF).unwrap();
    cons(OTHER_LEAF).unwrap_err();
    let refs = (nodes.refs(ROOT), nodes.refs(OTHER_LEAF));
    assert_eq!(refs, (1, 0), "references leak");
}

/// References that look at the entry when they are given back.
struct Watched<'m>(&'m HostMem, Nodes);

impl Pins for Watched<'_> {
    fn pin_leaf(&self, leaf: WeakRef) -> Result<(), Error> {
        self.1.pin_leaf(leaf)
    }

    fn pin_root(&self, root: WeakRef) -> Result<(), Error> {
        self.1.pin_root(root)
    }

    fn unpin(&self, node: FrameRef) -> Result<(), Error> {
        let entry = RootEntry::from_bits(self.0.load(entry_place(3), Relaxed));
        assert!(
            matches!(entry, Some(RootEntry::Empty(_))),
            "a lookup leads to a leaf without a reference"
        );
        self.1.unpin(node)
    }

    fn may_unpin(&self, leaf: FrameRef, root: FrameRef) -> Result<(), Error> {
        self.1.may_unpin(leaf, root)
    }

    fn current(&self, frame: FrameRef) -> Result<WeakRef, Error> {
        self.1.current(frame)
    }
}

#[test]
fn references_outlive_the_edge() {
    let (mem, world) = (HostMem::new(), World::default());
    let nodes = Watched(&mem, Nodes::default());
    let t = table(&mem, 0);
    t.cons(weak(ROOT), 3, weak(LEAF), &nodes, &world).unwrap();
    t.decons(weak(ROOT), 3, &nodes, &world).unwrap();
    assert_eq!(nodes.1.refs(LEAF), 0);
}

#[test]
fn closing_slots_are_recovered() {
    let (mem, world) = (HostMem::new(), World::default());
    let (t, at, dead) = (table(&mem, 0), place(LEAF, 5), owner(1, 1));
    for left in [SlotHeader::Reserved(dead), SlotHeader::Closing(dead)] {
        mem.store(at.address(), left.bits(), Relaxed);
        let recovered = t.recover_slot(at, dead, &world);
        assert_eq!(recovered, Ok(true), "leaks for ever");
    }
}

#[test]
fn the_next_incarnation_keeps_what_it_has() {
    let (mem, world) = (HostMem::new(), World::default());
    let (t, at) = (table(&mem, 0), place(LEAF, 5));
    let (dead, next) = (owner(1, 1), owner(1, 2));
    mem.store(at.address(), SlotHeader::Reserved(next).bits(), Relaxed);
    mem.store(entry_place(3), RootEntry::Closing(next).bits(), Relaxed);
    let slot = t.recover_slot(at, dead, &world);
    let entry = t.recover_entry(weak(ROOT), 3, dead, &world);
    let neither = (Ok(false), Ok(false));
    assert_eq!((slot, entry), neither, "taken from a node that lives");
}

#[test]
fn recovered_slots_wait_for_a_round() {
    let (mem, world) = (HostMem::new(), World::default());
    let (at, dead) = (place(LEAF, 5), owner(1, 1));
    mem.store(at.address(), SlotHeader::Closing(dead).bits(), Relaxed);
    let recovered = table(&mem, 0).recover_slot(at, dead, &world);
    assert_eq!(recovered, Ok(true));
    not_yet(&mem, &world, 5);
}
