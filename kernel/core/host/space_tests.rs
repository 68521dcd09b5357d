//! Address spaces: mappings in the tables of both ISAs, links, pins, permissions.
//! Faults and copies are in [`super::resolve_tests`], shootdowns in [`super::flush_tests`].

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::vec::Vec;

use dyad_abi::cap::{MAP_EXECUTE, MAP_WRITE, PageTableOp, RegionKind, TableAt};
use dyad_abi::user::{PAGE_SIZE, TRANSLATE_PA, TRANSLATE_WRITE, USER_END, USER_MIN};
use dyad_abi::{Error, Isa};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_pgtbl::{Level, Perms};
use dyad_retype::Use;
use dyad_shm::frame::WeakRef;

use super::system::{PAIR, System, VA, cx, frame_cap, memory_cap, node, round, this};
use super::{Machine, MockA64, MockX86, SYNCS};
use crate::run_loop::messages;
use crate::syscall::ops::space::{harvest, link, map, supply, translate, unlink, unmap};
use dyad_machine::inbox;
use dyad_machine::kernel_ctx::Operand;
use dyad_object::space::{MAX_REGIONS, Region, Space};
use dyad_object::tables;
use dyad_space::mapping::table_kind;

const RW: u64 = MAP_WRITE;

pub(super) fn l1(isa: Isa) -> TableAt {
    TableAt { isa, level: 1 }
}

pub(super) fn perms(bits: u64) -> Perms {
    let mut p = Perms::READ;
    p.set(Perms::WRITE, bits & MAP_WRITE != 0);
    p.set(Perms::EXECUTE, bits & MAP_EXECUTE != 0);
    p
}

/// Maps in the name of `m`.
pub(super) fn map_as(
    m: Machine,
    space: WeakRef,
    at: TableAt,
    va: u64,
    (frame, first): (&Operand, u64),
    bits: u64,
) -> dyad_abi::Result<u64> {
    let c = cx(m);
    map::<MockX86>(&this(&c, space), at, va, frame, first, perms(bits))
}

fn entry_word(
    m: Machine,
    space: WeakRef,
    isa: Isa,
    va: u64,
) -> &'static core::sync::atomic::AtomicU64 {
    let c = cx(m);
    let d = this(&c, space).driver(isa).unwrap();
    super::word(m.node(), d.find(va, Level::L1).unwrap().entry)
}

#[test]
fn pages_come_and_go_in_the_tables_of_both_isas_from_either_node() {
    for isa in PAIR {
        for which in 0..2 {
            let s = System::new(120);
            let space = s.space();
            let m = s.machines[which];
            let frame = s.user(0);
            let (user, pa) = (frame.object.unwrap(), frame.object.unwrap().frame.address());
            assert_eq!(
                map_as(m, space, l1(isa), VA, (&frame, 0), RW),
                Err(Error::NotFound),
                "no tables yet"
            );
            let tables = s.tables(space, isa, VA, Level::L1);
            map_as(m, space, l1(isa), VA, (&frame, 0), RW).unwrap();
            let c = cx(m);
            let t = this(&c, space);
            let seen = translate(&t, isa, VA + 5).unwrap();
            assert_eq!(seen & TRANSLATE_PA, pa.0 + 5);
            assert_ne!(seen & TRANSLATE_WRITE, 0);
            assert_eq!((s.refs(user), s.refs(tables[2])), (1, 2));
            assert_eq!(
                map_as(m, space, l1(isa), VA, (&frame, 0), 0),
                Err(Error::Exists)
            );
            assert_eq!((s.refs(user), s.refs(tables[2])), (1, 2), "undone");

            let stamp = unmap(&t, isa, VA).unwrap();
            assert_eq!((s.refs(user), s.refs(tables[2])), (0, 1));
            assert_eq!(translate(&t, isa, VA), Err(Error::BadAddress));
            assert_eq!(unmap(&t, isa, VA), Err(Error::BadAddress));
            // Another translation must wait until no CPU can hold the old one.
            assert_eq!(
                map_as(m, space, l1(isa), VA, (&frame, 0), 0),
                Err(Error::Again)
            );
            round(s.x());
            assert_eq!(
                map_as(m, space, l1(isa), VA, (&frame, 0), 0),
                Err(Error::Again),
                "one node is not all"
            );
            s.rounds();
            assert!(c.node.tables.quiesced(dyad_shm::Epoch::new(stamp).unwrap()));
            map_as(m, space, l1(isa), VA, (&frame, 0), 0).unwrap();
            assert_eq!(s.refs(user), 1);
            assert_eq!(c.intents().read(), None, "no intent is left");
        }
    }
}

#[test]
fn large_pages_and_parts_of_blocks() {
    let s = System::new(1300);
    let space = s.space();
    let (isa, large) = (
        Isa::Aarch64,
        TableAt {
            isa: Isa::Aarch64,
            level: 2,
        },
    );
    let block = s.user(9);
    let head = block.object.unwrap();
    s.tables(space, isa, VA, Level::L2);
    let size = Level::L2.size();
    assert_eq!(
        map_as(s.x(), space, large, VA + PAGE_SIZE, (&block, 0), RW),
        Err(Error::BadArgument)
    );
    assert_eq!(
        map_as(s.x(), space, large, VA, (&block, 1), RW),
        Err(Error::BadArgument),
        "more than there is"
    );
    assert_eq!(
        map_as(s.x(), space, large, VA, (&block, 0), MAP_EXECUTE),
        Err(Error::TooLarge)
    );
    for pages in [1, 511] {
        let part = Operand {
            payload: [0, pages, 0],
            ..block
        };
        assert_eq!(
            map_as(s.x(), space, large, VA, (&part, 0), RW),
            Err(Error::BadArgument),
            "a capability for {pages} pages of the block"
        );
    }
    map_as(s.x(), space, large, VA, (&block, 0), RW).unwrap();
    let c = cx(s.x());
    let t = this(&c, space);
    let pa = head.frame.address().0;
    let at = translate(&t, isa, VA + size - 1).unwrap();
    assert_eq!(at & TRANSLATE_PA, pa + size - 1);
    assert_eq!(s.refs(head), 1);
    // A table where a page is.
    let table = s.table(l1(isa));
    assert_eq!(link(&t, l1(isa), VA, &table), Err(Error::Exists));
    unmap(&t, isa, VA + 7 * PAGE_SIZE).unwrap();
    assert_eq!(s.refs(head), 0);
    s.rounds();
    link(&t, l1(isa), VA, &table).unwrap();
    // A part: pages 3 and 4 of the block only.
    let part = Operand {
        payload: [3, 2, 0],
        ..block
    };
    map_as(s.a(), space, l1(isa), VA, (&part, 1), 0).unwrap();
    let at = translate(&t, isa, VA).unwrap();
    assert_eq!(at & TRANSLATE_PA, pa + 4 * PAGE_SIZE);
    for first in [2, u64::MAX, 1 << 40] {
        assert_eq!(
            map_as(s.x(), space, l1(isa), VA + PAGE_SIZE, (&part, first), 0),
            Err(Error::BadArgument)
        );
    }
    unmap(&t, isa, VA).unwrap();
    assert_eq!(s.refs(head), 0);
}

#[test]
fn harvest_tells_what_hardware_has_noted() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        s.tables(space, isa, VA, Level::L1);
        let frame = s.user(0);
        map_as(s.x(), space, l1(isa), VA, (&frame, 0), RW).unwrap();
        let c = cx(s.a());
        let t = this(&c, space);
        assert_eq!(harvest(&t, isa, VA).unwrap(), 0);
        // What the manuals say that hardware does at a write.
        let word = entry_word(s.x(), space, isa, VA);
        match isa {
            Isa::X86_64 => {
                word.fetch_or(1 << 5 | 1 << 6, Ordering::Relaxed);
            }
            Isa::Aarch64 => {
                word.fetch_or(1 << 10, Ordering::Relaxed);
                word.fetch_and(!(1 << 7), Ordering::Relaxed);
            }
        }
        assert_eq!(harvest(&t, isa, VA).unwrap(), 3);
        assert_eq!(harvest(&t, isa, VA).unwrap(), 0);
        unmap(&t, isa, VA).unwrap();
        assert_eq!(s.refs(frame.object.unwrap()), 0);
    }
}

/// M1 of the protocol.
#[test]
fn capabilities_of_earlier_uses_of_a_frame_map_nothing() {
    let s = System::new(120);
    let space = s.space();
    let isa = Isa::X86_64;
    let tables = s.tables(space, isa, VA, Level::L1);
    let old = s.user(0);
    let c = cx(s.x());
    let weak = old.object.unwrap();
    c.frames()
        .to_untyped(weak, Use::User, c.epochs(), &c.intents(), &c)
        .unwrap();
    assert_eq!(
        map_as(s.a(), space, l1(isa), VA, (&old, 0), 0),
        Err(Error::Revoked)
    );
    s.rounds();
    let mut claim = c
        .frames()
        .from_untyped_begin(weak.frame, None, c.epochs(), &c.intents())
        .unwrap();
    claim.frame_done(c.frames()).unwrap();
    let new = c
        .frames()
        .from_untyped_finish(claim, Use::User, &c.intents())
        .unwrap();
    assert_eq!(
        map_as(s.a(), space, l1(isa), VA, (&old, 0), 0),
        Err(Error::Revoked)
    );
    map_as(s.a(), space, l1(isa), VA, (&frame_cap(new, 1), 0), 0).unwrap();
    assert_eq!((s.refs(new), s.refs(tables[2])), (1, 2));
    // A table of an earlier life is not linked either.
    let table = s.table(l1(isa));
    let object = table.object.unwrap();
    let kind = Use::Kernel(table_kind(isa, Level::L1));
    c.frames()
        .to_untyped(object, kind, c.epochs(), &c.intents(), &c)
        .unwrap();
    let va = VA + Level::L2.size();
    assert_eq!(
        link(&this(&c, space), l1(isa), va, &table),
        Err(Error::Revoked)
    );
}

#[test]
fn tables_hang_at_one_place_and_leave_it_empty() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        let c = cx(s.a());
        let t = this(&c, space);
        let tables = s.tables(space, isa, VA, Level::L1);
        let refs = || -> Vec<_> { tables.iter().map(|&t| s.refs(t)).collect() };
        assert_eq!(refs(), [2, 2, 1], "by the link above and the entry in it");
        let l1_cap = Operand {
            guard: None,
            ty: dyad_abi::cap::CapType::PageTable,
            rights: PageTableOp::Link.right(),
            object: Some(tables[2]),
            payload: [l1(isa).bits(), 0, 0],
        };
        let elsewhere = VA + Level::L2.size();
        assert_eq!(
            link(&t, l1(isa), elsewhere, &l1_cap),
            Err(Error::Exists),
            "it hangs already"
        );
        let other = s.table(l1(isa));
        assert_eq!(link(&t, l1(isa), VA, &other), Err(Error::Exists));
        assert_eq!(
            link(&t, l1(isa), VA + PAGE_SIZE, &other),
            Err(Error::BadArgument)
        );
        let level2 = TableAt { isa, level: 2 };
        assert_eq!(link(&t, level2, VA, &other), Err(Error::BadArgument));
        let frame = s.user(0);
        map_as(s.x(), space, l1(isa), VA, (&frame, 0), RW).unwrap();
        assert_eq!(unlink(&t, l1(isa), VA), Err(Error::Exists));
        assert_eq!(
            unlink(&t, level2, VA & !(Level::L3.size() - 1)),
            Err(Error::Exists)
        );
        let root = TableAt { isa, level: 4 };
        assert_eq!(unlink(&t, root, 0), Err(Error::Exists));
        assert!(translate(&t, isa, VA).is_ok(), "it has stayed");
        unmap(&t, isa, VA).unwrap();
        unlink(&t, l1(isa), VA).unwrap();
        assert_eq!(unlink(&t, l1(isa), VA), Err(Error::NotFound));
        assert_eq!(refs(), [2, 1, 0]);
        // CPUs may still walk through it.
        assert_eq!(link(&t, l1(isa), elsewhere, &l1_cap), Err(Error::Again));
        assert_eq!(refs(), [2, 1, 0], "undone");
        s.rounds();
        link(&t, l1(isa), elsewhere, &l1_cap).unwrap();
        assert_eq!(refs(), [2, 2, 1]);
        unlink(&t, l1(isa), elsewhere).unwrap();
        unlink(&t, level2, VA & !(Level::L3.size() - 1)).unwrap();
        unlink(&t, TableAt { isa, level: 3 }, 0).unwrap();
        assert_eq!(refs(), [0, 0, 0]);
        unlink(&t, root, 0).unwrap();
        assert_eq!(unlink(&t, root, 0), Err(Error::NotFound));
        assert_eq!(translate(&t, isa, VA), Err(Error::NoIsa));
        assert_eq!(c.intents().read(), None);
    }
}

#[test]
fn a_space_outlives_its_roots() {
    let s = System::new(120);
    let space = s.space();
    let c = cx(s.x());
    let used = Use::Kernel(Space::KIND);
    let give_up = || {
        c.frames()
            .to_untyped(space, used, c.epochs(), &c.intents(), &c)
            .map_err(Error::from)
    };
    assert_eq!(s.refs(space), 2);
    assert_eq!(give_up(), Err(Error::Exists));
    let t = this(&c, space);
    for isa in PAIR {
        unlink(&t, TableAt { isa, level: 4 }, 0).unwrap();
    }
    give_up().unwrap();
}

#[test]
fn a_root_gets_the_kernel_half_that_its_nodes_published() {
    let s = System::new(120);
    let node = s.x().node();
    let slots = dyad_shm::superblock::ROOT_SLOTS;
    for (i, e) in node.sb.roots[0].entries.iter().enumerate() {
        e.store(0xabc0_0001 + ((i as u64) << 12), Ordering::Relaxed);
    }
    let space = s.space();
    let c = cx(s.x());
    let root = this(&c, space).space.root(c.words(), Isa::X86_64).unwrap();
    for (i, slot) in slots.iter().enumerate() {
        let w = super::word(node, root.add(*slot as u64 * 8));
        assert_eq!(w.load(Ordering::Relaxed), 0xabc0_0001 + ((i as u64) << 12));
    }
}

#[test]
fn bad_requests_are_refused() {
    let s = System::new(120);
    let space = s.space();
    let isa = Isa::X86_64;
    s.tables(space, isa, VA, Level::L1);
    let frame = s.user(0);
    let try_ = |at, va| map_as(s.x(), space, at, va, (&frame, 0), 0);
    for va in [
        0,
        USER_MIN - PAGE_SIZE,
        USER_END,
        !0 - 4095,
        dyad_shm::FUSED_BASE,
    ] {
        assert_eq!(try_(l1(isa), va), Err(Error::BadAddress), "{va:#x}");
    }
    assert_eq!(try_(l1(isa), VA + 8), Err(Error::BadArgument));
    for level in [3, 4] {
        let at = TableAt { isa, level };
        assert_eq!(try_(at, VA), Err(Error::BadArgument));
    }
    let c = cx(s.x());
    let t = this(&c, space);
    let first = super::system::frame(0, 2);
    for (node, cap) in [
        (2, Some(memory_cap(first, 4))),
        (99, None),
        (u64::MAX, None),
    ] {
        assert_eq!(supply(&t, node, cap.as_ref()), Err(Error::NoSuchNode));
    }
    for frames in [0, 1 << 28, 1 << 33] {
        let cap = memory_cap(first, frames);
        assert_eq!(supply(&t, 0, Some(&cap)), Err(Error::BadArgument));
    }
    supply(&t, 0, Some(&memory_cap(first, 4))).unwrap();
    supply(&t, 0, None).unwrap();
    assert_eq!(t.space.supply(c.words(), c.node.id()), None);
}

#[test]
fn regions_are_found_and_do_not_overlap() {
    let s = System::new(120);
    let space = s.space();
    let c = cx(s.x());
    let (sp, words) = (this(&c, space).space, c.words());
    let kind = RegionKind::Anonymous as u64 | 1 << 8;
    for (start, len, kind) in [
        (0, PAGE_SIZE, kind),
        (USER_MIN + 1, PAGE_SIZE, kind),
        (USER_MIN, 8, kind),
        (USER_MIN, 0, kind),
        (USER_MIN, USER_END, kind),
        (USER_MIN, 0u64.wrapping_sub(PAGE_SIZE), kind),
        (USER_MIN, PAGE_SIZE, 0),
        (USER_MIN, PAGE_SIZE, 1 << 13 | 1),
    ] {
        assert_eq!(Region::new(start, len, kind), Err(Error::BadArgument));
    }
    let r = |i: u64| Region::new(VA + i * 4 * PAGE_SIZE, 2 * PAGE_SIZE, kind).unwrap();
    for i in 0..MAX_REGIONS as u64 {
        sp.add_region(words, node(0), r(i)).unwrap();
        assert_eq!(sp.add_region(words, node(0), r(i)), Err(Error::Exists));
    }
    assert_eq!(sp.add_region(words, node(0), r(1000)), Err(Error::Full));
    assert_eq!(sp.region_at(words, r(7).end - 1), Some(r(7)));
    assert_eq!(sp.region_at(words, r(7).end), None);
    sp.remove_region(words, node(0), r(7).start).unwrap();
    for start in [r(7).start, r(8).start + PAGE_SIZE, r(8).start | 1, 0, 1] {
        assert_eq!(
            sp.remove_region(words, node(0), start),
            Err(Error::NotFound)
        );
    }
    assert_eq!(sp.region_at(words, r(7).start), None);
    sp.add_region(words, node(0), r(1000)).unwrap();
    assert_eq!(sp.region_at(words, r(1000).start), Some(r(1000)));
}

#[test]
fn code_is_executable_once_all_that_ran_older_code_there_have_rewritten_it() {
    let s = System::new(120);
    let space = s.space();
    let isa = Isa::Aarch64;
    s.tables(space, isa, VA, Level::L1);
    let frame = s.user(0);
    let pa = frame.object.unwrap().frame.address();
    let record = tables::record(s.x().node().map, &s.x().node().tables, pa).unwrap();
    let word = super::word(s.x().node(), pa.add(8));
    word.store(77, Ordering::Relaxed);
    // Bits of both: that of the node of the other ISA does not matter.
    record.w1.fetch_or(0b11, Ordering::Relaxed);
    let try_ = || map_as(s.x(), space, l1(isa), VA, (&frame, 0), MAP_EXECUTE);
    assert_eq!(try_(), Err(Error::Again));
    assert_eq!(record.w1.load(Ordering::Relaxed) as u8, 0b11);
    s.a().enter();
    messages::drain::<MockA64>();
    assert_eq!(record.w1.load(Ordering::Relaxed) as u8, 0b01);
    assert_eq!(word.load(Ordering::Relaxed), 77);
    try_().unwrap();
    assert_eq!(
        record.w1.load(Ordering::Relaxed) as u8,
        0b11,
        "they may run it now"
    );
    // Its own stale translations this node drops itself.
    let c = cx(s.x());
    s.tables(space, Isa::X86_64, VA, Level::L1);
    map_as(s.x(), space, l1(Isa::X86_64), VA, (&frame, 0), MAP_EXECUTE).unwrap();
    let t = this(&c, space);
    assert!(translate(&t, Isa::X86_64, VA).is_ok());
}

/// `Map` or `Protect` in a loop puts one message for a frame into the ring that all share, and a late one changes nothing.
#[test]
fn however_often_code_is_asked_for_there_is_one_request_and_a_late_one_changes_nothing() {
    let s = System::new(120);
    let space = s.space();
    let isa = Isa::Aarch64;
    s.tables(space, isa, VA, Level::L1);
    let frame = s.user(0);
    let pa = frame.object.unwrap().frame.address();
    let number = u64::from(frame.object.unwrap().frame.bits());
    let record = tables::record(s.x().node().map, &s.x().node().tables, pa).unwrap();
    let executed = || record.w1.load(Ordering::Relaxed) as u8;
    record.w1.fetch_or(0b10, Ordering::Relaxed);
    let map_it = || map_as(s.x(), space, l1(isa), VA, (&frame, 0), MAP_EXECUTE);
    let before = inbox::sent(s.x().node());
    for _ in 0..1000 {
        assert_eq!(map_it(), Err(Error::Again));
    }
    assert_eq!(inbox::sent(s.x().node()) - before, 1);
    s.a().enter();
    std::thread_local! {
        static STALE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    SYNCS.set(Some(|_, at| {
        let node = KernelCtx::here::<MockA64>().node;
        let record = tables::record(node.map, &node.tables, at).unwrap();
        let stale = record.w1.load(Ordering::Relaxed) as u8;
        STALE.set([STALE.take(), [stale].into()].concat());
    }));
    messages::drain::<MockA64>();
    SYNCS.set(None);
    // Else the frame could be mapped for this node before its code is fit to be executed.
    assert_eq!(
        STALE.take(),
        [0b10],
        "it counts as stale until that is done"
    );
    s.x().enter();
    map_it().unwrap();
    assert_eq!(executed(), 0b10);
    s.a().enter();
    for _ in 0..3 {
        let c = cx(s.a());
        messages::publish_code_here::<MockA64>(&c, number).unwrap();
    }
    assert_eq!(executed(), 0b10, "who executes it is asked again");
}

/// A request for a frame that is a kernel object by then stores nothing into the frame, and is not answered.
#[test]
fn a_request_for_code_does_not_touch_a_kernel_object() {
    let s = System::new(120);
    let object = s.take(0, Use::Kernel(dyad_retype::KernelKind::TIME), 0);
    let pa = object.frame.address();
    let record = tables::record(s.x().node().map, &s.x().node().tables, pa).unwrap();
    record.w1.fetch_or(0b10 << 56 | 0b10, Ordering::Relaxed);
    s.a().enter();
    let c = cx(s.a());
    let number = u64::from(object.frame.bits());
    messages::publish_code_here::<MockA64>(&c, number).unwrap();
    let w1 = record.w1.load(Ordering::Relaxed);
    assert_eq!((w1 >> 56, w1 as u8), (0b10, 0b10), "nothing was rewritten");
}

/// `Reclaim` takes an empty table out between the walk of a fault and its mapping: the fault is tried again, and the
/// program does not end for it.
#[test]
fn a_table_that_is_pruned_behind_a_walk_is_no_fault_of_the_program() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        let table = s.tables(space, isa, VA, Level::L1)[2];
        let c = cx(s.x());
        let t = this(&c, space);
        let d = t.driver(isa).unwrap();
        let place = d.find(VA, Level::L1).unwrap();
        assert_eq!(place.level, Level::L1);
        unlink(&t, l1(isa), VA).unwrap();
        s.rounds();
        crate::syscall::ops::memory::to_untyped(&c, table.frame).unwrap();
        let head = s.user(0).object.unwrap();
        let leaf = dyad_space::mapping::page(head.frame.address(), Perms::READ);
        let refused = t.map(&d, &place, head, leaf).map_err(Error::from);
        assert_eq!(refused, Err(Error::Again), "{isa}");
        assert_eq!(s.refs(head), 0);
    }
}
