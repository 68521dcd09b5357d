//! Fast paths of mappings: that they are taken, and not when a word they rest on has changed.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapType, RegionKind, Rights, TableAt};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_captbl::{Contents, Filling, SlotPlace};
use dyad_pgtbl::{Level, Perms};
use dyad_retype::Use;
use dyad_shm::frame::WeakRef;

use super::system::{PAIR, System, VA, cx, this};
use super::{Machine, MockX86, word};
use crate::syscall::ops::space::{link, protect as no_access, unlink};
use dyad_machine::capcache::{CachedCap, leaf};
use dyad_machine::kernel_ctx::Operand;
use dyad_machine::platform::FaultKind;
use dyad_object::space::Region;
use dyad_space::mapping::{FastRows, resolve_fastpath};
use dyad_space::resolve::Outcome;

const RW: Perms = Perms::READ
    .union(Perms::USER)
    .union(Perms::WRITE)
    .union(Perms::MAY_WRITE);

/// Maps frame `n` of a block by the fast path alone.
fn map(m: Machine, space: WeakRef, isa: Isa, page: u64, frame: &Operand, n: u64) -> Option<()> {
    let c = cx(m);
    let known = CachedCap::of_block(&c, frame)?;
    let (block, pa) = known.page(frame.object.unwrap().frame.address(), n);
    let fast = this(&c, space).fast();
    fast.map(isa, VA + page * PAGE_SIZE, &block, pa, RW)
}

fn unmap(m: Machine, space: WeakRef, isa: Isa, page: u64) -> Option<()> {
    let c = cx(m);
    let done = this(&c, space).fast().unmap(isa, VA + page * PAGE_SIZE);
    done.map(|r| assert!(r.is_ok()))
}

fn protect(m: Machine, space: WeakRef, isa: Isa, page: u64, write: bool) -> Option<()> {
    let c = cx(m);
    this(&c, space)
        .fast()
        .protect(isa, VA + page * PAGE_SIZE, write)
        .map(|_| ())
}

fn fault(m: Machine, isa: Isa, space: WeakRef, page: u64) -> Option<dyad_abi::Result<Outcome>> {
    let c = cx(m);
    let va = VA + page * PAGE_SIZE;
    resolve_fastpath(c.local, isa, space.bits(), va, FaultKind::Write)
}

fn region(m: Machine, space: WeakRef, pages: u64, kind: RegionKind) {
    let c = cx(m);
    let r = Region::new(VA, pages * PAGE_SIZE, kind as u64 | 1 << 8).unwrap();
    this(&c, space)
        .space
        .add_region(c.words(), c.node.id(), r)
        .unwrap();
}

#[test]
fn pages_come_change_and_go_by_the_fast_path() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        let tables = s.tables(space, isa, VA, Level::L1);
        let frame = s.user(2);
        let m = s.a();
        for n in 0..4 {
            map(m, space, isa, n, &frame, n).unwrap();
        }
        assert_eq!(s.refs(frame.object.unwrap()), 4);
        assert_eq!(s.refs(tables[2]), 5);
        assert_eq!(map(m, space, isa, 0, &frame, 0), None, "there is a page");
        protect(m, space, isa, 0, false).unwrap();
        protect(m, space, isa, 0, true).unwrap();
        for n in 0..4 {
            unmap(m, space, isa, n).unwrap();
        }
        assert_eq!(unmap(m, space, isa, 0), None);
        assert_eq!(protect(m, space, isa, 0, true), None);
        assert_eq!(s.refs(frame.object.unwrap()), 0);
        assert_eq!(s.refs(tables[2]), 1);
        let again = map(m, space, isa, 0, &frame, 0);
        assert_eq!(again, None, "what was there is not quiesced");
        s.rounds();
        map(m, space, isa, 0, &frame, 0).unwrap();
        assert_eq!(cx(m).intents().read(), None);
    }
}

#[test]
fn a_table_that_has_been_taken_out_gets_no_page() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        let old = s.tables(space, isa, VA, Level::L1)[2];
        let frame = s.user(1);
        let m = s.a();
        map(m, space, isa, 0, &frame, 0).unwrap();
        unmap(m, space, isa, 0).unwrap();
        // The other node takes it out, and nobody has told this one.
        let c = cx(s.x());
        let at = TableAt { isa, level: 1 };
        unlink(&this(&c, space), at, VA).unwrap();
        assert_eq!(map(m, space, isa, 1, &frame, 0), None);
        assert_eq!(s.refs(old), 0);
        s.rounds();
        let table = s.table(at);
        let c = cx(s.x());
        link(&this(&c, space), at, VA, &table).unwrap();
        map(m, space, isa, 1, &frame, 0).unwrap();
        assert_eq!(s.refs(old), 0);
        assert_eq!(s.refs(table.object.unwrap()), 2);
    }
}

#[test]
fn neither_frozen_blocks_nor_frozen_tables_are_touched() {
    for isa in PAIR {
        for which in 0..2 {
            let s = System::new(120);
            let space = s.space();
            let table = s.tables(space, isa, VA, Level::L1)[2];
            let frame = s.user(1);
            let m = s.a();
            map(m, space, isa, 0, &frame, 0).unwrap();
            let what = [frame.object.unwrap(), table][which];
            let frames = &m.node().tables.frames;
            frames.freeze(what.frame).unwrap();
            let refs = s.word(what.frame).refs;
            assert_eq!(map(m, space, isa, 1, &frame, 1), None);
            assert_eq!(unmap(m, space, isa, 0), None);
            assert_eq!(s.word(what.frame).refs, refs);
            frames.unfreeze(what.frame).unwrap();
            map(m, space, isa, 1, &frame, 1).unwrap();
            unmap(m, space, isa, 0).unwrap();
        }
    }
}

#[test]
fn a_block_is_that_of_the_capability_and_not_a_later_one() {
    let isa = Isa::X86_64;
    let s = System::new(120);
    let space = s.space();
    s.tables(space, isa, VA, Level::L1);
    let old = s.user(1);
    let m = s.a();
    map(m, space, isa, 0, &old, 1).unwrap();
    unmap(m, space, isa, 0).unwrap();
    let head = old.object.unwrap();
    crate::syscall::ops::memory::to_untyped(&cx(s.x()), head.frame).unwrap();
    assert_eq!(map(m, space, isa, 1, &old, 1), None, "it is untyped");
    s.rounds();
    let c = cx(s.x());
    let (frames, intents) = (c.frames(), c.intents());
    let mut claim = frames
        .from_untyped_begin(head.frame, None, c.epochs(), &intents)
        .unwrap();
    while claim.next_frame().is_some() {
        claim.frame_done(frames).unwrap();
    }
    let now = frames
        .from_untyped_finish(claim, Use::User, &intents)
        .unwrap();
    assert_eq!(map(m, space, isa, 1, &old, 1), None, "it is another's");
    let new = super::system::frame_cap(now, 2);
    map(m, space, isa, 1, &new, 1).unwrap();
}

#[test]
fn faults_are_resolved_from_the_other_table_by_the_fast_path() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        let tables = s.tables(space, isa, VA, Level::L1);
        let m = s.machines[isa.index()];
        assert_eq!(fault(m, isa, space, 0), Some(Err(Error::BadAddress)));
        region(s.x(), space, 4, RegionKind::Shared);
        // The region is new, and the other ISA has no table.
        assert_eq!(fault(m, isa, space, 0), Some(Err(Error::BadAddress)));
        let others = s.tables(space, isa.other(), VA, Level::L1);
        assert_eq!(fault(m, isa, space, 0), Some(Err(Error::BadAddress)));
        let frame = s.user(1);
        map(m, space, isa.other(), 0, &frame, 1).unwrap();
        let refs = || (s.refs(frame.object.unwrap()), s.refs(tables[2]));
        assert_eq!((refs(), s.refs(others[2])), ((1, 1), 2));
        assert_eq!(fault(m, isa, space, 0), Some(Ok(Outcome::Copied)));
        assert_eq!((refs(), s.refs(others[2])), ((2, 2), 2));
        let c = cx(m);
        let t = this(&c, space);
        let seen = |isa| crate::syscall::ops::space::translate(&t, isa, VA);
        assert_eq!(seen(isa), seen(isa.other()));
        assert_eq!(t.space.faults_copied.load(Ordering::Relaxed), 1);
        assert_eq!(c.intents().read(), None);
        // What is there now is for the slow path, and so is what one may not write.
        assert_eq!(fault(m, isa, space, 0), None);
        map(m, space, isa.other(), 1, &frame, 0).unwrap();
        protect(m, space, isa.other(), 1, false).unwrap();
        assert_eq!(fault(m, isa, space, 1), None);
        // A region that has been taken away shows nothing any more.
        protect(m, space, isa.other(), 1, true).unwrap();
        let x = cx(s.x());
        this(&x, space)
            .space
            .remove_region(x.words(), x.node.id(), VA)
            .unwrap();
        assert_eq!(fault(m, isa, space, 1), Some(Err(Error::BadAddress)));
        assert_eq!(refs(), (3, 2));
    }
}

/// A capability table of this system: root, and a leaf that hangs in it at [`HUNG`].
fn table(s: &System) -> (WeakRef, WeakRef) {
    use dyad_object::kinds::{CAPTBL_LEAF, CAPTBL_ROOT};
    let (root, leaf) = (
        s.take(0, Use::Kernel(CAPTBL_ROOT), 0),
        s.take(0, Use::Kernel(CAPTBL_LEAF), 0),
    );
    let c = cx(s.a());
    c.captbls()
        .cons(root, HUNG as u32 / 64, leaf, &c, &c)
        .unwrap();
    (root, leaf)
}

const HUNG: u64 = 3 * 64;

/// Fills a slot by the fast path alone.
fn activate(m: Machine, table: WeakRef, n: u64, what: &Contents) -> Option<()> {
    let c = cx(m);
    let slot = leaf::slot(c.local, table.bits(), true, n)?;
    slot.activate(&Filling::of(what), |s| c.node.tables.quiesced(s))
}

fn deactivate(m: Machine, table: WeakRef, n: u64) -> Option<()> {
    let slot = leaf::slot(cx(m).local, table.bits(), true, n)?;
    slot.deactivate().map(|_| ())
}

#[test]
fn slots_are_filled_and_emptied_by_the_fast_path_as_by_the_long_one() {
    let s = System::new(120);
    let (root, hung) = table(&s);
    let m = s.a();
    let what = Contents {
        ty: CapType::Frame,
        rights: Rights(0x8000_0005),
        object: s.user(1).object,
        guard: None,
        payload: [1, 2, 0],
    };
    activate(m, root, HUNG + 7, &what).unwrap();
    let c = cx(s.x());
    let place = SlotPlace::new(hung, 7).unwrap();
    let found = c.captbls().found(place.address()).unwrap();
    assert_eq!(c.captbls().contents(&found), Ok(what));
    assert_eq!(cx(m).intents().read(), None);
    assert_eq!(activate(m, root, HUNG + 7, &what), None, "it is taken");
    deactivate(m, root, HUNG + 7).unwrap();
    assert_eq!(cx(m).intents().read(), None);
    assert_eq!(activate(m, root, HUNG + 7, &what), None, "not quiesced");
    assert_eq!(deactivate(m, root, HUNG + 7).map(|()| 0), None, "empty");
    s.rounds();
    activate(m, root, HUNG + 7, &what).unwrap();
    // Index 0 names no slot, and there is nothing behind the last one.
    for n in [0, HUNG + 64, 512 * 64, u64::MAX] {
        assert_eq!(activate(m, root, n, &what), None, "{n}");
    }
}

#[test]
fn a_leaf_that_has_been_taken_out_gets_no_capability() {
    let s = System::new(120);
    let (root, _) = table(&s);
    let m = s.a();
    let what = Contents {
        ty: CapType::Frame,
        rights: Rights::ALL,
        object: s.user(1).object,
        guard: None,
        payload: [0, 2, 0],
    };
    activate(m, root, HUNG, &what).unwrap();
    // The other node takes it out, and nobody has told this one.
    let c = cx(s.x());
    c.captbls().decons(root, HUNG as u32 / 64, &c, &c).unwrap();
    assert_eq!(activate(m, root, HUNG + 1, &what), None);
    assert_eq!(deactivate(m, root, HUNG), None);
}

#[test]
fn faults_on_pages_that_lack_the_right_go_to_the_handler_by_the_fast_path() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        s.tables(space, isa, VA, Level::L1);
        let m = s.machines[isa.index()];
        let frame = s.user(1);
        map(m, space, isa, 0, &frame, 0).unwrap();
        let wanted = |kind| resolve_fastpath(cx(m).local, isa, space.bits(), VA, kind);
        let refused = Some(Err(Error::BadAddress));
        assert_eq!(wanted(FaultKind::Write), None, "it may be written");
        protect(m, space, isa, 0, false).unwrap();
        assert_eq!(wanted(FaultKind::Write), refused);
        assert_eq!(wanted(FaultKind::Read), None, "it may be read");
        assert_eq!(wanted(FaultKind::Execute), refused);
        let c = cx(m);
        no_access::<MockX86>(&this(&c, space), isa, VA, Perms::empty()).unwrap();
        assert_eq!(wanted(FaultKind::Read), refused, "no access");
        assert_eq!(wanted(FaultKind::Write), refused, "no access");
    }
}

#[test]
fn entries_that_are_being_closed_are_for_the_long_way() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        s.tables(space, isa, VA, Level::L1);
        s.tables(space, isa.other(), VA, Level::L1);
        let m = s.machines[isa.index()];
        region(m, space, 4, RegionKind::Shared);
        let frame = s.user(0);
        map(m, space, isa.other(), 0, &frame, 0).unwrap();
        let c = cx(m);
        let entry = |isa| {
            let d = this(&c, space).driver(isa).unwrap();
            word(m.node(), d.find(VA, Level::L1).unwrap().entry)
        };
        let closing = |isa| dyad_pgtbl::plain::closing(isa, m.node().id());
        let source = entry(isa.other());
        let page = source.swap(closing(isa.other()), Ordering::Relaxed);
        assert_eq!(fault(m, isa, space, 0), None);
        assert_eq!(unmap(m, space, isa.other(), 0), None);
        source.store(page, Ordering::Relaxed);
        entry(isa).store(closing(isa), Ordering::Relaxed);
        assert_eq!(fault(m, isa, space, 0), None);
        assert_eq!(map(m, space, isa, 0, &frame, 0), None);
        entry(isa).store(0, Ordering::Relaxed);
        assert_eq!(fault(m, isa, space, 0), Some(Ok(Outcome::Copied)));
        assert_eq!(s.refs(frame.object.unwrap()), 2);
    }
}
