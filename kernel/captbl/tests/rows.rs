//! Each row, one step at a time: what it answers, what it leaves in memory, what it records.

mod common;

use common::*;
use dyad_captbl::rules::Protocol;
use dyad_captbl::{Refused, SlotHeader, Table};
use dyad_coherence::HostMem;
use dyad_shm::frame::Epoch;

fn epoch(n: u64) -> Epoch {
    Epoch::new(n).unwrap()
}

fn tables(mem: &HostMem) -> Table<'_, HostMem, Protocol> {
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
