//! Address spaces, page faults, copies from and to user memory.

use dyad_abi::user::{HEAP_BASE, HEAP_END, PAGE_SIZE, USER_END, USER_MIN, stack_slot};
use dyad_abi::{Error, Isa};

use super::{Left, MockA64, MockX86, World, result};
use crate::entry;
use crate::fault::resolve;
use crate::platform::{FaultKind, UserFault};
use crate::space::{Region, RegionKind, Space};
use crate::user_copy::{copy_in, copy_out};

const PAIR: [Isa; 2] = [Isa::X86_64, Isa::Aarch64];

fn region(start: u64, pages: u64, write: bool) -> Region {
    Region {
        start,
        end: start + pages * PAGE_SIZE,
        kind: RegionKind::Fixed,
        write,
    }
}

fn frame_at(space: &Space<'_>, isa: Isa, va: u64) -> Option<u64> {
    space
        .with_table(isa, |t| t.translate(va))
        .flatten()
        .map(|(pa, _, _)| pa.0)
}

#[test]
fn bad_and_overlapping_regions_are_refused() {
    let w = World::new(&PAIR, 20);
    let s = w.machine(0).space();
    let r = |start, end| Region {
        start,
        end,
        ..region(0, 0, true)
    };
    for (start, end) in [
        (0, PAGE_SIZE),
        (USER_MIN + 1, USER_MIN + PAGE_SIZE),
        (USER_MIN, USER_MIN + 8),
        (USER_MIN, USER_MIN),
        (USER_MIN + PAGE_SIZE, USER_MIN),
        (USER_MIN, USER_END + PAGE_SIZE),
    ] {
        assert_eq!(s.add_region(r(start, end)), Err(Error::BadArgument));
    }
    s.add_region(region(HEAP_BASE, 4, true)).unwrap();
    for at in [HEAP_BASE, HEAP_BASE + 3 * PAGE_SIZE] {
        assert_eq!(s.add_region(region(at, 4, true)), Err(Error::Exists));
    }
    s.add_region(region(HEAP_BASE + 4 * PAGE_SIZE, 1, true))
        .unwrap();
    assert_eq!(s.region_at(HEAP_BASE + 5 * PAGE_SIZE), None);
}

#[test]
fn both_tables_get_the_page_whoever_faults() {
    let w = World::new(&PAIR, 40);
    let (x, a) = (w.machine(0), w.machine(1));
    let s = x.space();
    let at_a = Space::find(a.node(), reference(&s)).unwrap();
    s.add_region(region(HEAP_BASE, 4, true)).unwrap();
    x.enter();
    resolve::<MockX86>(x.node(), &s, HEAP_BASE + 5, FaultKind::Write).unwrap();
    a.enter();
    resolve::<MockA64>(a.node(), &at_a, HEAP_BASE + PAGE_SIZE, FaultKind::Read).unwrap();
    for page in 0..2 {
        let va = HEAP_BASE + page * PAGE_SIZE;
        let here = frame_at(&s, Isa::X86_64, va);
        assert!(here.is_some());
        assert_eq!(here, frame_at(&s, Isa::Aarch64, va));
    }
    // Each from the pool of the node that touched it first.
    assert_eq!(frame_at(&s, Isa::X86_64, HEAP_BASE).unwrap() >> 34, 1);
    assert_eq!(
        frame_at(&s, Isa::X86_64, HEAP_BASE + PAGE_SIZE).unwrap() >> 34,
        2
    );
}

fn reference(s: &Space<'_>) -> u64 {
    let va = core::ptr::from_ref(s.frame()) as u64;
    let node = super::current_node().unwrap();
    let pa = node.map.physical(va).unwrap();
    dyad_shm::FrameRef::of(pa).unwrap().bits() as u64
}

#[test]
fn a_translation_only_the_other_isa_has_is_copied() {
    let w = World::new(&PAIR, 40);
    let (x, a) = (w.machine(0), w.machine(1));
    let s = x.space();
    s.add_region(region(HEAP_BASE, 1, true)).unwrap();
    x.enter();
    let pa = x.node().frames().alloc().unwrap();
    s.map_in(
        Isa::X86_64,
        HEAP_BASE,
        Space::user_leaf(pa, true, false),
        &x.node().frames(),
    )
    .unwrap();
    let used = a.used();
    a.enter();
    let at_a = Space::find(a.node(), reference(&s)).unwrap();
    resolve::<MockA64>(a.node(), &at_a, HEAP_BASE, FaultKind::Write).unwrap();
    assert_eq!(frame_at(&s, Isa::Aarch64, HEAP_BASE), Some(pa.0));
    // Page tables only.
    assert_eq!(a.used() - used, 3);
}

#[test]
fn forbidden_accesses_are_refused() {
    let w = World::new(&PAIR, 40);
    let x = w.machine(0);
    let s = x.space();
    s.add_region(region(HEAP_BASE, 1, false)).unwrap();
    let try_ = |va, kind| resolve::<MockX86>(x.node(), &s, va, kind);
    for (va, kind) in [
        (0, FaultKind::Read),
        (HEAP_BASE - 1, FaultKind::Read),
        (HEAP_BASE, FaultKind::Write),
        (HEAP_BASE, FaultKind::Execute),
        (USER_END, FaultKind::Read),
        (!0, FaultKind::Execute),
        (dyad_shm::FUSED_BASE, FaultKind::Read),
    ] {
        assert_eq!(try_(va, kind), Err(Error::BadAddress), "{va:#x}");
    }
    try_(HEAP_BASE, FaultKind::Read).unwrap();
    assert_eq!(try_(HEAP_BASE, FaultKind::Write), Err(Error::BadAddress));
    assert_eq!(try_(HEAP_BASE, FaultKind::Execute), Err(Error::BadAddress));
}

/// Whatever frame the memory runs out at, everything is given back exactly once. A frame that one
/// table had already taken used to be freed while it was mapped, and again with the space.
#[test]
fn memory_may_run_out_at_any_frame() {
    for frames in 1..24 {
        let w = World::new(&PAIR, frames);
        let x = w.machine(0);
        x.enter();
        if let Ok((s, own)) = Space::create(x.node()) {
            s.add_region(region(HEAP_BASE, 8, true)).unwrap();
            let (bottom, top) = stack_slot(Isa::X86_64, 0);
            s.add_region(Region {
                start: bottom,
                end: top,
                ..region(0, 0, true)
            })
            .unwrap();
            for va in [HEAP_BASE, top - 8, HEAP_BASE + PAGE_SIZE, bottom] {
                let r = resolve::<MockX86>(x.node(), &s, va, FaultKind::Write);
                assert!(matches!(r, Ok(()) | Err(Error::NoMemory)), "{r:?}");
            }
            s.destroy(own);
        }
        assert_eq!(x.used(), 0, "with {frames} frames");
        let all: std::collections::BTreeSet<_> =
            core::iter::from_fn(|| x.node().frames().alloc().ok()).collect();
        assert_eq!(
            all.len() as u64,
            frames,
            "the free list names a frame twice"
        );
    }
}

#[test]
fn unmapping_costs_what_was_touched() {
    let w = World::new(&PAIR, 60);
    let x = w.machine(0);
    let s = x.space();
    // Page by page this would take hours.
    let len = HEAP_END - HEAP_BASE;
    let at = s.map_anonymous(len).unwrap();
    let used = x.used();
    for va in [at, at + len / 2, at + len - 1] {
        resolve::<MockX86>(x.node(), &s, va, FaultKind::Write).unwrap();
    }
    assert_eq!(s.unmap_region(at, len - PAGE_SIZE), Err(Error::BadArgument));
    s.unmap_region(at, len).unwrap();
    assert_eq!(s.unmap_region(at, len), Err(Error::BadArgument));
    for isa in PAIR {
        assert_eq!(frame_at(&s, isa, at), None);
    }
    // The three pages are back; what is left are the tables: two ISAs, three places far apart,
    // three levels.
    assert_eq!(x.used() - used, 2 * 3 * 3);
    assert_eq!(
        resolve::<MockX86>(x.node(), &s, at, FaultKind::Write),
        Err(Error::BadAddress)
    );
}

#[test]
fn a_refused_mapping_gives_its_addresses_back() {
    let w = World::new(&PAIR, 60);
    let x = w.machine(0);
    let s = x.space();
    let slots = s.regions().count()..crate::space::MAX_REGIONS;
    let mut last = 0;
    for _ in slots {
        last = s.map_anonymous(PAGE_SIZE).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(s.map_anonymous(1 << 30), Err(Error::Full));
    }
    s.unmap_region(last, PAGE_SIZE).unwrap();
    assert_eq!(s.map_anonymous(PAGE_SIZE), Ok(last + PAGE_SIZE));
}

#[test]
fn user_copies_cross_pages_and_check_each() {
    let w = World::new(&PAIR, 60);
    let x = w.machine(0);
    let s = x.space();
    s.add_region(region(HEAP_BASE, 2, true)).unwrap();
    s.add_region(region(HEAP_BASE + 2 * PAGE_SIZE, 1, false))
        .unwrap();
    let text = [0x5a; 100];
    let at = HEAP_BASE + PAGE_SIZE - 50;
    copy_out::<MockX86>(x.node(), &s, at, &text).unwrap();
    let mut back = [0; 100];
    copy_in::<MockX86>(x.node(), &s, at, &mut back).unwrap();
    assert_eq!(back, text);
    let read_only = HEAP_BASE + 2 * PAGE_SIZE;
    for bad in [
        read_only - 50,
        read_only,
        HEAP_BASE - 1,
        0,
        u64::MAX - 20,
        USER_END - 99,
    ] {
        let r = copy_out::<MockX86>(x.node(), &s, bad, &text);
        assert_eq!(r, Err(Error::BadAddress), "{bad:#x}");
    }
    copy_in::<MockX86>(x.node(), &s, read_only - 50, &mut back).unwrap();
    // The part before the refused page had been written.
    assert_eq!((back[49], back[50]), (0x5a, 0));
    let r = copy_in::<MockX86>(x.node(), &s, read_only + PAGE_SIZE - 50, &mut back);
    assert_eq!(r, Err(Error::BadAddress));
    copy_out::<MockX86>(x.node(), &s, 0, &[]).unwrap();
}

/// The tables allow what the machine says it may not do: it must not go round for ever.
#[test]
fn a_fault_that_mapping_does_not_cure_ends_the_program() {
    let w = World::new(&PAIR, 60);
    let x = w.machine(0);
    let t = x.thread::<MockX86>();
    let left = x.kernel(|| {
        crate::sched::make_ready(x.node(), x.local(), t);
        crate::sched::run::<MockX86>()
    });
    assert_eq!(left, Left::User(0x4100_0000));
    let s = Space::find(
        x.node(),
        t.space.load(core::sync::atomic::Ordering::Relaxed),
    )
    .unwrap();
    s.add_region(region(HEAP_BASE, 1, true)).unwrap();
    let area = t.regs(Isa::X86_64);
    let fault = UserFault {
        kind: FaultKind::Read,
        address: HEAP_BASE,
        raw: 0,
    };
    let mut rounds = 0;
    let end = loop {
        match x.kernel(|| entry::user_fault::<MockX86>(area, fault)) {
            Left::User(_) => rounds += 1,
            other => break other,
        }
        assert!(rounds < 100_000, "goes round for ever");
    };
    assert!(matches!(end, Left::Exited(1)), "{end:?}");
    assert!(rounds > 100);
    assert_eq!(result::<MockX86>(t).0, 0);
}
