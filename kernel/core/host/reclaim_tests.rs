//! Memory that faults have taken: it comes zeroed, and goes back with the last entry that shows it.

use std::vec;

use dyad_abi::cap::RegionKind;
use dyad_abi::user::{PAGE_SIZE, TRANSLATE_PA, TRANSLATE_WRITE, USER_END};
use dyad_abi::{Error, Isa};
use dyad_pgtbl::{Level, Perms};
use dyad_retype::{FrameType, Order, Use};
use dyad_shm::{FrameRef, PhysAddr};

use super::resolve_tests::{fault, seen, used_frames, with_region};
use super::system::{PAIR, VA, cx, frame_cap, this};
use super::{MockA64, MockX86};
use crate::syscall::ops::reclaim::reclaim;
use crate::syscall::ops::space::{map, protect, translate, unmap};
use dyad_machine::platform::FaultKind::{Read, Write};
use dyad_space::copy::{copy_in, copy_out};
use dyad_space::mapping::{self, NotMapped, SpaceCtx};
use dyad_space::resolve::Outcome;

/// Pages that a test touches, and calls in which they are to be taken back.
const TOUCHED: u64 = 37;
/// Empty entries that are looked at besides: of one table of the lowest level, and of one above it.
const HOLES: u64 = 1024;

/// Reclaims the whole region, which is too large to be looked at page by page. Returns how
/// many calls it took.
fn reclaim_all(t: &SpaceCtx<'_>) -> u64 {
    let pages = 1 << 18;
    let (mut done, mut calls) = (0, 0);
    while done < pages {
        done += match reclaim(t, VA + done * PAGE_SIZE, pages - done) {
            // The first page has been done but for its tables.
            Err(Error::Again) => 0,
            looked => looked.unwrap(),
        };
        calls += 1;
        assert!(
            calls <= TOUCHED + HOLES / 8,
            "the work follows what was touched"
        );
    }
    assert_eq!(done, pages);
    calls
}

#[test]
fn what_faults_took_goes_back_and_what_was_mapped_stays() {
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    let pages = TOUCHED;
    for page in 0..pages {
        let m = s.machines[page as usize % 2];
        fault(m, space, VA + page * PAGE_SIZE, Write).unwrap();
    }
    let before = used_frames(&s, 0, 64).len() + used_frames(&s, 1, 64).len();
    assert_eq!(before as u64, pages + 6);
    // One more, by capability.
    let frame = s.take(0, Use::User, 0);
    let c = cx(s.a());
    let t = this(&c, space);
    let at = dyad_abi::cap::TableAt {
        isa: Isa::Aarch64,
        level: 1,
    };
    let last = VA + pages * PAGE_SIZE;
    map::<MockA64>(&t, at, last, &frame_cap(frame, 1), 0, Perms::READ).unwrap();
    assert!(reclaim_all(&t) > 1);
    assert_eq!(
        translate(&t, Isa::Aarch64, last).unwrap() & TRANSLATE_PA,
        frame.frame.address().0
    );
    assert_eq!(s.refs(frame), 1);
    unmap(&t, Isa::Aarch64, last).unwrap();
    reclaim_all(&t);
    assert!(
        used_frames(&s, 0, 64).is_empty(),
        "{:?}",
        used_frames(&s, 0, 64)
    );
    assert!(used_frames(&s, 1, 64).is_empty());
    // Not before everybody has forgotten.
    assert_eq!(fault(s.x(), space, VA, Write), Err(Error::Again));
    s.rounds();
    let pa = {
        fault(s.x(), space, VA, Write).unwrap();
        seen(&s, space, Isa::X86_64, VA).unwrap()
    };
    assert_ne!(pa, 0);
    for va in [VA + 1, 0, USER_END] {
        assert!(reclaim(&t, va, 1).is_err());
    }
    assert_eq!(reclaim(&t, VA, u64::MAX), Err(Error::BadArgument));
}

#[test]
fn frames_that_have_been_used_come_back_zeroed() {
    let (s, space) = with_region(8, RegionKind::Anonymous, true);
    let c = cx(s.x());
    fault(s.x(), space, VA, Write).unwrap();
    let pa = seen(&s, space, Isa::X86_64, VA).unwrap();
    copy_out::<MockX86>(&c, space, VA, &[0xff; 4096]).unwrap();
    let t = this(&c, space);
    reclaim_all(&t);
    s.rounds();
    let mut found = false;
    // Whichever frame each page gets: all are zero, and that one is among them or a table.
    for page in 0..4 {
        let va = VA + page * PAGE_SIZE;
        if fault(s.x(), space, va, Read).is_ok() {
            let mut bytes = vec![1; 4096];
            copy_in::<MockX86>(&c, space, va, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&b| b == 0));
            found |= seen(&s, space, Isa::X86_64, va) == Some(pa);
        }
    }
    let used = s.word(FrameRef::of(PhysAddr(pa)).unwrap());
    assert!(found || matches!(used.ty, FrameType::Kernel(_)), "{used}");
}

#[test]
fn an_owned_page_can_be_protected_and_goes_with_its_last_entry() {
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    fault(s.x(), space, VA, Write).unwrap();
    let c = cx(s.x());
    let t = this(&c, space);
    let pa = seen(&s, space, Isa::X86_64, VA).unwrap();
    let frame = FrameRef::of(PhysAddr(pa)).unwrap();
    for isa in PAIR {
        protect::<MockX86>(&t, isa, VA, Perms::READ).unwrap();
    }
    assert_eq!(fault(s.x(), space, VA, Write), Err(Error::BadAddress));
    assert_eq!(fault(s.x(), space, VA, Read), Ok(Outcome::Present));
    protect::<MockX86>(&t, Isa::X86_64, VA, Perms::READ | Perms::WRITE).unwrap();
    assert_ne!(translate(&t, Isa::X86_64, VA).unwrap() & TRANSLATE_WRITE, 0);
    unmap(&t, Isa::X86_64, VA).unwrap();
    assert!(matches!(s.word(frame).ty, FrameType::User(_)));
    // What the other ISA still has is not replaced by something else.
    assert_eq!(fault(s.x(), space, VA, Write), Err(Error::BadAddress));
    unmap(&t, Isa::Aarch64, VA).unwrap();
    assert_eq!(s.word(frame).ty, FrameType::Untyped(Order::FRAME));
}

/// A map of a page that has gone pins its table before it is refused. An unlink at that moment cannot give the table
/// back. The refused map gives the table back.
#[test]
fn a_refused_page_gives_the_table_back_that_it_has_pinned() {
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    fault(s.x(), space, VA, Write).unwrap();
    let c = cx(s.x());
    let t = this(&c, space);
    let pa = PhysAddr(seen(&s, space, Isa::X86_64, VA).unwrap());
    let (page, _) = c.frames().head_now(FrameRef::of(pa).unwrap()).unwrap();
    let d = t.driver(Isa::Aarch64).unwrap();
    let place = d.find(VA, Level::L1).unwrap();
    for isa in PAIR {
        unmap(&t, isa, VA).unwrap();
    }
    let above = d.find(VA, Level::L2).unwrap();
    t.unlink(&d, &above, place.table()).unwrap();
    // Not yet given back, as if it had been pinned while that was tried.
    let leaf = mapping::page(pa, Perms::READ);
    let done = t.map(&d, &place, page, leaf);
    assert_eq!(done, Err(NotMapped::Refused(Error::Again)));
    let table = s.word(FrameRef::of(place.table()).unwrap());
    assert_eq!(table.ty, FrameType::Untyped(Order::FRAME));
}
