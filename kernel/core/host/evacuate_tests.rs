//! Pages that are moved to other frames.

use std::vec::Vec;

use dyad_abi::cap::{RegionKind, Step};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_pgtbl::{Level, Perms};
use dyad_retype::FrameType;
use dyad_shm::frame::WeakRef;

use super::resolve_tests::{fault, seen, with_region};
use super::system::{System, VA, cx, frame, memory_cap, this};
use super::{MockA64, MockX86, crash};
use crate::syscall::ops::evacuate::evacuate;
use crate::syscall::ops::reclaim::reclaim;
use crate::syscall::ops::space::{map, protect, supply_run, translate, unmap};
use dyad_machine::platform::FaultKind::{Read, Write};
use dyad_space::copy::{copy_in, copy_out};
use dyad_space::resolve::Outcome;

/// The range that is emptied: the second run of a supply, in pool 0.
const FIRST: u64 = 8;
const RANGE: (u64, u64) = (40, 16);
const PAGES: u64 = 10;

/// A step for so many pages, in as many calls as it takes: what was looked at, and what was done.
fn step(
    s: &System,
    space: WeakRef,
    step: Step,
    va: u64,
    pages: u64,
) -> dyad_abi::Result<(u64, u64)> {
    let mut all = once(s, space, step, va, pages)?;
    while all.0 < pages {
        match once(s, space, step, va + all.0 * PAGE_SIZE, pages - all.0) {
            Ok((looked, done)) => all = (all.0 + looked, all.1 + done),
            Err(_) => break,
        }
    }
    Ok(all)
}

/// One call.
fn once(
    s: &System,
    space: WeakRef,
    step: Step,
    va: u64,
    pages: u64,
) -> dyad_abi::Result<(u64, u64)> {
    let c = cx(s.a());
    let memory = memory_cap(frame(0, FIRST), 200);
    let what = pages | (step as u64) << 48;
    let value = evacuate::<MockA64>(&this(&c, space), (va, what), &memory, RANGE)?;
    Ok((value & ((1 << 40) - 1), value >> 40))
}

/// Pages of node 0 in the range, each with its number in it; tables and other pages lie before.
fn filled() -> (System, WeakRef) {
    let (s, space) = with_region(32, RegionKind::Anonymous, true);
    let c = cx(s.x());
    let t = this(&c, space);
    let memory = memory_cap(frame(0, FIRST), 200);
    supply_run(&t, 0, Some(&memory), 1, RANGE).unwrap();
    for page in 0..PAGES {
        let va = VA + page * PAGE_SIZE;
        assert_eq!(fault(s.x(), space, va, Write), Ok(Outcome::Filled));
        copy_out::<MockX86>(&c, space, va + 8, &[page as u8 + 1; 64]).unwrap();
    }
    assert_eq!(in_range(&s), PAGES as usize);
    // From here on faults of the node take frames elsewhere.
    supply_run(&t, 0, None, 1, (0, 0)).unwrap();
    (s, space)
}

fn in_range(s: &System) -> usize {
    let all = (RANGE.0..RANGE.0 + RANGE.1).map(|i| s.word(frame(0, FIRST + i)).ty);
    all.filter(|ty| matches!(ty, FrameType::User(_))).count()
}

fn contents(s: &System, space: WeakRef, page: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    let va = VA + page * PAGE_SIZE + 8;
    copy_in::<MockA64>(&cx(s.a()), space, va, &mut bytes).unwrap();
    bytes
}

fn places(s: &System, space: WeakRef) -> Vec<[Option<u64>; 2]> {
    (0..PAGES)
        .map(|page| Isa::ALL.map(|isa| seen(s, space, isa, VA + page * PAGE_SIZE)))
        .collect()
}

#[test]
fn pages_are_moved_with_what_is_in_them() {
    let (s, space) = filled();
    let before = places(&s, space);
    assert_eq!(step(&s, space, Step::Park, VA, PAGES), Ok((PAGES, PAGES)));
    // Parked again, nothing is done.
    assert_eq!(step(&s, space, Step::Park, VA, PAGES), Ok((PAGES, 0)));
    let c = cx(s.x());
    for page in 0..PAGES {
        let va = VA + page * PAGE_SIZE;
        assert_eq!(fault(s.x(), space, va, Read), Err(Error::Again));
        assert_eq!(fault(s.a(), space, va, Write), Err(Error::Again));
        let t = this(&c, space);
        assert_eq!(translate(&t, Isa::X86_64, va), Err(Error::Again));
        assert_eq!(
            protect::<MockX86>(&t, Isa::X86_64, va, Perms::READ),
            Err(Error::Again)
        );
        let mut one = [0];
        assert_eq!(
            copy_in::<MockX86>(&c, space, va, &mut one),
            Err(Error::Again)
        );
    }
    assert_eq!(in_range(&s), PAGES as usize, "they are still there");
    assert_eq!(step(&s, space, Step::Move, VA, PAGES), Ok((PAGES, PAGES)));
    assert_eq!(in_range(&s), 0);
    let after = places(&s, space);
    for (page, (from, to)) in before.into_iter().zip(after).enumerate() {
        assert!(
            to[0].is_some() && to[0] == to[1] && from[0] != to[0],
            "page {page}"
        );
        assert_eq!(contents(&s, space, page as u64), [page as u8 + 1; 64]);
    }
    // Both ISAs write to the same frame.
    copy_out::<MockX86>(&c, space, VA + 8, &[9; 64]).unwrap();
    assert_eq!(contents(&s, space, 0), [9; 64]);
    // Everything goes back with its last mapping.
    let t = this(&c, space);
    let mut taken = 0;
    while taken < PAGES {
        taken += match reclaim(&t, VA + taken * PAGE_SIZE, PAGES - taken) {
            Err(Error::Again) => 0,
            looked => looked.unwrap(),
        };
    }
    s.rounds();
    let used = super::resolve_tests::used_frames(&s, 0, 32);
    assert!(used.iter().all(|(ty, _)| !matches!(ty, FrameType::User(_))));
}

#[test]
fn unparked_pages_are_where_they_were() {
    let (s, space) = filled();
    let before = places(&s, space);
    assert_eq!(step(&s, space, Step::Park, VA, 4), Ok((4, 4)));
    assert_eq!(step(&s, space, Step::Unpark, VA, PAGES), Ok((PAGES, 4)));
    assert_eq!(places(&s, space), before);
    assert_eq!(contents(&s, space, 3), [4; 64]);
    // What is not parked is not moved.
    assert_eq!(step(&s, space, Step::Move, VA, PAGES), Ok((PAGES, 0)));
    assert_eq!(places(&s, space), before);
}

/// Who puts the page back into one table while it is parked, for whatever reason, goes on using the old
/// frame: a copy made now would lack what is written to that.
#[test]
fn a_page_that_is_shown_again_is_not_moved() {
    let (s, space) = filled();
    let c = cx(s.x());
    let t = this(&c, space);
    let d = t.driver(Isa::Aarch64).unwrap();
    let shown = d.find(VA, Level::L1).unwrap();
    assert_eq!(step(&s, space, Step::Park, VA, 1), Ok((1, 1)));
    let parked = d.again(&shown);
    c.words().exchange(
        s.x().node().map.get(shown.entry).unwrap(),
        parked.raw,
        shown.raw,
    );
    assert_eq!(step(&s, space, Step::Move, VA, 1), Err(Error::Again));
    assert_eq!(in_range(&s), PAGES as usize);
    assert_eq!(step(&s, space, Step::Unpark, VA, 1), Ok((1, 1)));
    assert_eq!(contents(&s, space, 0), [1; 64]);
}

#[test]
fn a_page_that_one_table_has_moved_is_moved_in_the_other_one_too() {
    for last in [Step::Move, Step::Unpark] {
        let (s, space) = filled();
        assert_eq!(step(&s, space, Step::Park, VA, 1), Ok((1, 1)));
        let c = cx(s.x());
        let t = this(&c, space);
        // As if the CPU that moved it had died between the tables.
        let d = t.driver(Isa::Aarch64).unwrap();
        let place = d.find(VA, Level::L1).unwrap();
        assert_eq!(step(&s, space, Step::Move, VA, 1), Ok((1, 1)));
        let to = seen(&s, space, Isa::X86_64, VA).unwrap();
        let moved = d.again(&place);
        c.words().exchange(
            s.x().node().map.get(place.entry).unwrap(),
            moved.raw,
            place.raw,
        );
        // Its references as they would be then.
        let old = match d.meaning(&place) {
            dyad_pgtbl::Pte::Parked { pa, .. } => pa,
            other => panic!("{other:?}"),
        };
        let frames = c.frames();
        let new = dyad_shm::FrameRef::of(dyad_shm::PhysAddr(to)).unwrap();
        frames.unpin(new).unwrap();
        s.rounds();
        let old = dyad_shm::FrameRef::of(old).unwrap();
        let weak =
            crate::syscall::ops::memory::claim::<MockX86>(&c, old, dyad_retype::Order::FRAME)
                .and_then(|claim| {
                    Ok(frames.from_untyped_finish(claim, dyad_retype::Use::User, &c.intents())?)
                })
                .unwrap();
        frames.pin_user(weak, dyad_retype::Order::FRAME).unwrap();
        // What has been written since must not be lost.
        copy_out::<MockX86>(&c, space, VA + 8, &[77; 64]).unwrap();
        assert_eq!(fault(s.a(), space, VA, Read), Err(Error::Again));
        assert_eq!(step(&s, space, last, VA, 1), Ok((1, 1)));
        assert_eq!(seen(&s, space, Isa::Aarch64, VA), Some(to));
        assert_eq!(contents(&s, space, 0), [77; 64]);
        assert_eq!(in_range(&s), PAGES as usize - 1);
    }
}

#[test]
fn pages_can_be_unmapped_while_they_are_parked() {
    let (s, space) = filled();
    assert_eq!(step(&s, space, Step::Park, VA, 2), Ok((2, 2)));
    let c = cx(s.x());
    let t = this(&c, space);
    assert_eq!(reclaim(&t, VA, 1), Ok(1));
    for isa in Isa::ALL {
        unmap(&t, isa, VA + PAGE_SIZE).unwrap();
    }
    assert_eq!(in_range(&s), PAGES as usize - 2);
    assert_eq!(step(&s, space, Step::Move, VA, 2), Ok((2, 0)));
    s.rounds();
    assert_eq!(fault(s.x(), space, VA, Write), Ok(Outcome::Filled));
    assert_eq!(contents(&s, space, 0), [0; 64]);
}

#[test]
fn what_others_have_mapped_and_what_lies_elsewhere_stays() {
    let (s, space) = filled();
    let c = cx(s.x());
    let t = this(&c, space);
    // A page by a capability: its owner knows where it is.
    let given = s.user(0);
    let at = dyad_abi::cap::TableAt {
        isa: Isa::X86_64,
        level: 1,
    };
    let perms = Perms::READ | Perms::WRITE;
    map::<MockX86>(&t, at, VA + 100 * PAGE_SIZE, &given, 0, perms).unwrap();
    assert_eq!(
        fault(s.a(), space, VA + 101 * PAGE_SIZE, Write),
        Ok(Outcome::Filled)
    );
    let memory = memory_cap(frame(0, 1), 300);
    let c = cx(s.x());
    let (mut looked, mut done) = (0, 0);
    while looked < 128 {
        let at = (VA + looked * PAGE_SIZE, 128 - looked);
        let parked = evacuate::<MockX86>(&this(&c, space), at, &memory, (0, 0)).unwrap();
        (looked, done) = (looked + (parked & 0xff), done + (parked >> 40));
    }
    assert_eq!((looked, done), (128, PAGES));
    assert_eq!(step(&s, space, Step::Unpark, VA, PAGES), Ok((PAGES, PAGES)));
}

#[test]
fn steps_are_bounded_and_bad_arguments_refused() {
    let (s, space) = filled();
    // Sixteen would fit; the supply has room for fewer than the range has pages.
    let (looked, done) = once(&s, space, Step::Park, VA, 1 << 20).unwrap();
    assert!(done == looked && looked < PAGES, "{looked}");
    let rest = (VA + looked * PAGE_SIZE, PAGES - looked);
    assert_eq!(
        step(&s, space, Step::Park, rest.0, rest.1),
        Ok((rest.1, rest.1))
    );
    let c = cx(s.a());
    let t = this(&c, space);
    let memory = memory_cap(frame(0, FIRST), 200);
    let call = |va, what, range| evacuate::<MockA64>(&t, (va, what), &memory, range);
    assert_eq!(call(VA + 1, 1, RANGE), Err(Error::BadArgument));
    assert_eq!(call(0, 1, RANGE), Err(Error::BadAddress));
    assert_eq!(call(VA, 1 << 36, RANGE), Err(Error::BadArgument));
    assert_eq!(call(VA, 1 | 3 << 48, RANGE), Err(Error::BadArgument));
    assert_eq!(call(VA, 1 | 2 << 40, RANGE), Err(Error::NoSuchNode));
    assert_eq!(call(VA, 1 | 9 << 40, RANGE), Err(Error::NoSuchNode));
    assert_eq!(call(VA, 1, (199, 2)), Err(Error::BadArgument));
    // Without a frame to move to it stays parked, and can be given free.
    supply_run(&t, 0, None, 0, (0, 0)).unwrap();
    assert_eq!(step(&s, space, Step::Move, VA, 1), Err(Error::NoMemory));
    assert_eq!(step(&s, space, Step::Unpark, VA, PAGES), Ok((PAGES, PAGES)));
    assert_eq!(contents(&s, space, 5), [6; 64]);
}

/// A CPU that gives a page back while another one parks it, moves it or shows it again is in the way for a moment, and
/// the reverse: neither operation reports that something is wrong.
#[test]
fn pages_that_go_meanwhile_are_no_error() {
    for what in [Step::Park, Step::Move, Step::Unpark] {
        let mut steps = 0;
        loop {
            let (s, space) = filled();
            if what != Step::Park {
                assert_eq!(step(&s, space, Step::Park, VA, 2), Ok((2, 2)));
            }
            let c = cx(s.x());
            let act = move || {
                let gone = reclaim(&this(&c, space), VA, 1);
                assert!(matches!(gone, Ok(1) | Err(Error::Again)), "{gone:?}");
            };
            let came = crash::between(steps, act, || {
                let done = step(&s, space, what, VA, 2);
                assert!(
                    matches!(done, Ok(_) | Err(Error::Again)),
                    "{what:?}, before step {steps}: {done:?}"
                );
            });
            if !came {
                break;
            }
            steps += 1;
        }
        assert!(steps > 2, "{what:?} changes nothing");
    }
}

/// A frame that a page was to be moved to is not lost if the page goes meanwhile.
#[test]
fn no_frame_is_lost_with_a_page_that_goes_meanwhile() {
    let mut steps = 0;
    loop {
        let (s, space) = filled();
        assert_eq!(step(&s, space, Step::Park, VA, 2), Ok((2, 2)));
        let c = cx(s.x());
        let act = move || {
            let _ = reclaim(&this(&c, space), VA, 1);
        };
        let came = crash::between(steps, act, || {
            let _ = step(&s, space, Step::Move, VA, 2);
        });
        let _ = step(&s, space, Step::Move, VA, 2);
        assert!(step(&s, space, Step::Unpark, VA, PAGES).is_ok());
        let c = cx(s.x());
        let t = this(&c, space);
        let mut taken = 0;
        for _ in 0..100 {
            if taken < PAGES {
                taken += reclaim(&t, VA + taken * PAGE_SIZE, PAGES - taken).unwrap_or(0);
            }
        }
        assert_eq!(taken, PAGES);
        s.rounds();
        let used = super::resolve_tests::used_frames(&s, 0, 32);
        let left = used
            .iter()
            .filter(|(ty, _)| matches!(ty, FrameType::User(_)));
        assert_eq!(left.count(), 0, "before step {steps}");
        if !came {
            break;
        }
        steps += 1;
    }
    assert!(steps > 2);
}

/// A page without access stays what it is.
#[test]
fn pages_without_access_are_not_parked() {
    let (s, space) = filled();
    let c = cx(s.x());
    let t = this(&c, space);
    for isa in Isa::ALL {
        protect::<MockX86>(&t, isa, VA, Perms::empty()).unwrap();
    }
    let before = places(&s, space);
    let seen = || Isa::ALL.map(|isa| translate(&t, isa, VA));
    let is = seen();
    assert_eq!(step(&s, space, Step::Park, VA, 1), Ok((1, 0)));
    assert_eq!(step(&s, space, Step::Move, VA, 1), Ok((1, 0)));
    assert_eq!(step(&s, space, Step::Unpark, VA, 1), Ok((1, 0)));
    assert_eq!((places(&s, space), seen()), (before, is));
}
