//! Two nodes at the same page: one does something as a whole between any two steps of the other
//! one. By the fast paths of mappings and by the long ones.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;
use std::vec::Vec;

use dyad_abi::cap::{RegionKind, TableAt, Woken};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_pgtbl::{Leaf, Level, Perms, Pte, PteSlot};
use dyad_retype::FrameType;
use dyad_shm::frame::{FrameRef, WeakRef};

use super::resolve_tests::{fault, with_region};
use super::system::{PAIR, System, VA, cx, frame_cap, this};
use super::{Machine, MockA64, MockX86, crash};
use crate::run_loop::messages;
use crate::syscall::ops::space::{translate, unlink, unmap};
use dyad_machine::capcache::CachedCap;
use dyad_machine::platform::FaultKind;
use dyad_object::endpoint::{Endpoints, Line};
use dyad_object::space::Region;
use dyad_object::thread::Thread;
use dyad_object::{find, linked};
use dyad_space::mapping::{Driver, FastRows, NotMapped, SpaceCtx, page, resolve_fastpath};
use dyad_space::shootdown;

/// More steps than any of these operations makes.
const ENOUGH: u32 = 400;
const PERMS: Perms = Perms::READ.union(Perms::WRITE).union(Perms::MAY_WRITE);

/// Runs a test in which another CPU interferes before step 0, 1, 2 ... until the test says that it
/// was over before. What has come out is collected.
fn everywhere<T: Ord>(test: impl Fn(u32) -> (bool, T)) -> std::collections::BTreeSet<T> {
    let mut seen = std::collections::BTreeSet::new();
    for steps in 0..ENOUGH {
        let (came, outcome) = test(steps);
        seen.insert(outcome);
        if !came {
            assert!(steps > 1, "it makes hardly any steps");
            return seen;
        }
    }
    panic!("it does not end");
}

/// Something another machine does meanwhile, and whether it has succeeded.
fn meanwhile(
    (here, there): (Machine, Machine),
    act: impl FnOnce() -> bool + 'static,
) -> (Rc<Cell<bool>>, impl FnOnce() + 'static) {
    let done = Rc::new(Cell::new(false));
    let told = done.clone();
    let act = move || {
        there.enter();
        told.set(act());
        here.enter();
    };
    (done, act)
}

/// What the table of an ISA says about an address.
fn at(t: &SpaceCtx<'_>, isa: Isa) -> (Driver, PteSlot, Option<Leaf>) {
    let d = t.driver(isa).unwrap();
    let place = d.find(VA, Level::L1).unwrap();
    let leaf = match d.meaning(&place) {
        Pte::Leaf(leaf) => Some(leaf),
        _ => None,
    };
    (d, place, leaf)
}

/// Maps the first page of a block by one of the two ways.
fn map(t: &SpaceCtx<'_>, isa: Isa, head: WeakRef, short: bool) -> bool {
    if short {
        let Some(known) = CachedCap::of_block(t.cx, &frame_cap(head, 1)) else {
            return false;
        };
        let (block, pa) = known.page(head.frame.address(), 0);
        let perms = PERMS | Perms::USER;
        return t.fast().map(isa, VA, &block, pa, perms).is_some();
    }
    let (d, place, _) = at(t, isa);
    t.map(&d, &place, head, page(head.frame.address(), PERMS))
        .is_ok()
}

/// Shows the other ISA's page by one of the two ways.
fn show(m: Machine, space: WeakRef, isa: Isa, short: bool) -> Option<Result<()>> {
    let c = cx(m);
    if short {
        let shown = resolve_fastpath(c.local, isa, space.bits(), VA, FaultKind::Write);
        return shown.map(|r| r.map(|_| ()));
    }
    let t = this(&c, space);
    let (from, to) = (at(&t, isa.other()), at(&t, isa));
    let (source, there, Some(leaf)) = from else {
        return None;
    };
    let done = t.copy((&source, &there, &leaf), (&to.0, &to.1), VA);
    Some(done.map_err(|why| match why {
        NotMapped::Exists(_) => Error::Exists,
        NotMapped::Refused(e) => e,
    }))
}

fn region(m: Machine, space: WeakRef) {
    let c = cx(m);
    let r = Region::new(VA, PAGE_SIZE, RegionKind::Shared as u64 | 1 << 8).unwrap();
    this(&c, space)
        .space
        .add_region(c.words(), c.node.id(), r)
        .unwrap();
}

#[test]
fn a_page_that_is_unmapped_while_it_is_shown_does_not_stay() {
    for (isa, short) in PAIR.into_iter().flat_map(|i| [(i, true), (i, false)]) {
        let seen = everywhere(|steps| {
            let s = System::new(120);
            let space = s.space();
            s.tables(space, isa, VA, Level::L1);
            s.tables(space, isa.other(), VA, Level::L1);
            let (m, owner) = (s.machines[isa.index()], s.machines[isa.other().index()]);
            region(m, space);
            let head = s.user(0).object.unwrap();
            assert!(map(&this(&cx(m), space), isa.other(), head, true));
            // The owner unmaps, and then looks for copies.
            let saw = Rc::new(Cell::new(false));
            let sees = saw.clone();
            let (gone, act) = meanwhile((m, owner), move || {
                let c = cx(owner);
                let t = this(&c, space);
                let gone = unmap(&t, isa.other(), VA).is_ok();
                sees.set(at(&t, isa).2.is_some());
                gone
            });
            let mut shown = None;
            let came = crash::between(steps, act, || shown = show(m, space, isa, short));
            let c = cx(m);
            let t = this(&c, space);
            let here = translate(&t, isa, VA).is_ok();
            assert_eq!(here, shown == Some(Ok(())), "{shown:?}");
            let secret = gone.get() && here && !saw.get();
            assert!(!secret, "a copy that the owner has not seen");
            let entries = here as u32 + !gone.get() as u32;
            assert_eq!(s.refs(head), entries, "references");
            assert_eq!(c.intents().read(), None);
            (came, here)
        });
        assert_eq!(seen.len(), 2, "{isa}, {short}: in each order");
    }
}

/// A page that a fault has put there is unmapped while it is shown to the other ISA: whichever CPU drops the last reference
/// gives the frame back.
#[test]
fn the_frame_of_a_page_that_is_unmapped_while_it_is_shown_is_given_back() {
    for (isa, short) in PAIR.into_iter().flat_map(|i| [(i, true), (i, false)]) {
        let seen = everywhere(|steps| {
            let (s, space) = with_region(64, RegionKind::Anonymous, true);
            let (m, owner) = (s.machines[isa.index()], s.machines[isa.other().index()]);
            fault(owner, space, VA, FaultKind::Write).unwrap();
            let c = cx(m);
            let t = this(&c, space);
            let pa = at(&t, isa.other()).2.unwrap().pa;
            let is_at = |isa| at(&t, isa).2.is_some_and(|leaf| leaf.pa == pa);
            if is_at(isa) {
                unmap(&t, isa, VA).unwrap();
                s.rounds();
            }
            let (gone, act) = meanwhile((m, owner), move || {
                let c = cx(owner);
                unmap(&this(&c, space), isa.other(), VA).is_ok()
            });
            let came = crash::between(steps, act, || _ = show(m, space, isa, short));
            let is_mapped = is_at(isa) || is_at(isa.other());
            let word = s.word(FrameRef::of(pa).unwrap());
            let in_use = matches!(word.ty, FrameType::User(_));
            assert_eq!(in_use, is_mapped, "{isa}, {short}, step {steps}");
            (came, (gone.get(), in_use))
        });
        assert!(seen.contains(&(true, false)), "{isa}, {short}: {seen:?}");
    }
}

/// Maps a page, or takes its table out.
type Act = fn(&SpaceCtx<'_>, Isa, WeakRef, bool) -> bool;

#[test]
fn a_page_comes_or_its_table_goes() {
    for (isa, short) in PAIR.into_iter().flat_map(|i| [(i, true), (i, false)]) {
        for unlinks in [false, true] {
            let seen = everywhere(|steps| {
                let s = System::new(120);
                let space = s.space();
                let table = s.tables(space, isa, VA, Level::L1)[2];
                let (m, other) = (s.x(), s.a());
                let head = s.user(0).object.unwrap();
                let both: [Act; 2] = [map, |t, isa, _, _| {
                    unlink(t, TableAt { isa, level: 1 }, VA).is_ok()
                }];
                let [mine, theirs] = match unlinks {
                    false => both,
                    true => [both[1], both[0]],
                };
                // Known, with the table in place.
                let c = cx(m);
                let t = this(&c, space);
                assert!(map(&t, isa, head, true));
                t.fast().unmap(isa, VA).unwrap().unwrap();
                s.rounds();
                let (done, act) = meanwhile((m, other), move || {
                    let c = cx(other);
                    theirs(&this(&c, space), isa, head, short)
                });
                let c = cx(m);
                let mut ended = false;
                let came = crash::between(steps, act, || {
                    ended = mine(&this(&c, space), isa, head, short);
                });
                let (mapped, unlinked) = match unlinks {
                    false => (ended, done.get()),
                    true => (done.get(), ended),
                };
                assert!(!(mapped && unlinked), "a page in a table that is gone");
                let refs = (s.refs(head), s.refs(table));
                let expected = (mapped as u32, mapped as u32 + !unlinked as u32);
                assert_eq!(refs, expected, "references");
                (came, (mapped, unlinked))
            });
            assert!(seen.contains(&(true, false)), "{isa}, {short}: it comes");
            assert!(seen.contains(&(false, true)), "{isa}, {short}: it goes");
        }
    }
}

/// Another CPU takes a table of a supply out, and does not give it back because a mapping has pinned it: the mapping is refused
/// and gives the table back.
#[test]
fn a_table_that_goes_while_a_refused_mapping_pins_it_is_given_back() {
    for isa in PAIR {
        let seen = everywhere(|steps| {
            let (s, space) = with_region(64, RegionKind::Anonymous, true);
            let (m, other) = (s.x(), s.a());
            fault(m, space, VA, FaultKind::Write).unwrap();
            let c = cx(m);
            let t = this(&c, space);
            let table = at(&t, isa).1.table();
            unmap(&t, isa, VA).unwrap();
            let head = s.user(0).object.unwrap();
            let known = CachedCap::of_block(t.cx, &frame_cap(head, 1)).unwrap();
            let (block, pa) = known.page(head.frame.address(), 0);
            let (unlinked, act) = meanwhile((m, other), move || {
                let c = cx(other);
                let t = this(&c, space);
                let d = t.driver(isa).unwrap();
                let place = d.find(VA, Level::L2).unwrap();
                t.unlink(&d, &place, table).is_ok()
            });
            let mut mapped = None;
            let came = crash::between(steps, act, || {
                // Nothing has been in this entry yet.
                let (va, perms) = (VA + PAGE_SIZE, Perms::READ | Perms::USER);
                mapped = t.fast().map(isa, va, &block, pa, perms);
            });
            assert!(mapped.is_none() || !unlinked.get(), "step {steps}");
            let word = s.word(FrameRef::of(table).unwrap());
            let given_back = matches!(word.ty, FrameType::Untyped(_));
            (came, (unlinked.get(), given_back))
        });
        assert!(seen.contains(&(true, true)), "{isa}: it is lost");
    }
}

#[test]
fn the_long_way_unmaps_with_a_stamp_and_nothing_that_is_frozen() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        let table = s.tables(space, isa, VA, Level::L1)[2];
        let head = s.user(0).object.unwrap();
        let c = cx(s.x());
        let t = this(&c, space);
        assert!(map(&t, isa, head, false));
        let unmap = || {
            let (d, place, leaf) = at(&t, isa);
            t.unmap(&d, &place, &leaf.unwrap())
        };
        for what in [head, table] {
            c.frames().freeze(what.frame).unwrap();
            assert_eq!(unmap().err(), Some(Error::Again));
            assert!(at(&t, isa).2.is_some(), "it has stayed");
            c.frames().unfreeze(what.frame).unwrap();
        }
        let stamp = unmap().unwrap();
        let (d, place, _) = at(&t, isa);
        assert_eq!(d.meaning(&place), Pte::Empty { epoch: stamp });
        assert!(!map(&t, isa, head, false), "what was there is not quiesced");
        s.rounds();
        cx(s.x());
        assert!(map(&t, isa, head, false));
    }
}

#[test]
fn pages_of_the_system_are_those_of_reserved_frames() {
    let (s, isa) = (System::new(120), Isa::X86_64);
    let space = s.space();
    s.tables(space, isa, VA, Level::L1);
    let head = s.user(0).object.unwrap();
    let c = cx(s.x());
    let t = this(&c, space);
    let (d, place, _) = at(&t, isa);
    let leaf = |pa| page(pa, Perms::READ);
    let denied = t.map_reserved(&d, &place, leaf(head.frame.address()));
    assert_eq!(denied, Err(Error::Denied));
    let first = dyad_shm::PoolId::Local(s.x().node().id()).base();
    assert_eq!(t.map_reserved(&d, &place, leaf(first)), Ok(()));
}

#[test]
fn a_fault_shows_nothing_where_a_page_has_just_been() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        s.tables(space, isa, VA, Level::L1);
        s.tables(space, isa.other(), VA, Level::L1);
        let m = s.machines[isa.index()];
        region(m, space);
        let head = s.user(0).object.unwrap();
        let c = cx(m);
        let t = this(&c, space);
        assert!(map(&t, isa, head, true) && map(&t, isa.other(), head, true));
        t.fast().unmap(isa, VA).unwrap().unwrap();
        for short in [true, true, false] {
            let shown = show(m, space, isa, short);
            assert!(!matches!(shown, Some(Ok(()))), "CPUs may hold the old page");
        }
        s.rounds();
        assert_eq!(show(m, space, isa, true), Some(Ok(())));
    }
}

/// A round is begun for the tickets that were given before its stamp: a CPU that flushes between the two holds what is
/// unmapped for a ticket that comes even later, whose CPU has just taken it, or has done all that it does.
#[test]
fn a_ticket_that_comes_while_a_round_begins_waits_for_another_flush() {
    for changes in [1, ENOUGH] {
        let early = everywhere(|steps| {
            let s = System::of(&[Isa::X86_64, Isa::Aarch64, Isa::X86_64], 120);
            let space = s.space();
            let [x, a, b] = [0, 1, 2].map(|n| s.machines[n]);
            let tickets = move || this(&cx(x), space).space.tickets.load(Ordering::Relaxed);
            let ticket = Rc::new(Cell::new(0));
            let given = ticket.clone();
            let act = move || {
                b.enter();
                shootdown::flush_here::<MockX86>(b.node(), b.local().id());
                a.enter();
                let t = cx(a);
                crash::after(changes, || shootdown::request::<MockA64>(&this(&t, space)));
                given.set(tickets());
                x.enter();
            };
            let mut own = 0;
            let came = crash::between(steps, act, || {
                own = shootdown::request::<MockX86>(&this(&cx(x), space));
            });
            let is_done =
                |ticket| shootdown::is_done::<MockX86>(&this(&cx(x), space), ticket) == Ok(true);
            let a_looks = || {
                a.enter();
                messages::drain::<MockA64>();
                x.enter();
            };
            for _ in 0..3 {
                let done = came && is_done(ticket.get());
                assert!(!done, "a CPU has not flushed since");
                a_looks();
            }
            for _ in 0..3 {
                b.enter();
                messages::drain::<MockX86>();
                a_looks();
                let _ = is_done(own);
            }
            assert!(is_done(own) && (!came || is_done(ticket.get())));
            (came, ticket.get() < own)
        });
        assert_eq!(early.len(), 2, "before it and behind it");
    }
}

/// Lists are closed although a thread is put on one of them, and a CPU begins to take it off, at any moment: what the CPU has
/// not put back yet is looked at once more.
#[test]
fn lists_are_not_closed_while_a_thread_is_taken_off() {
    for begun in 0..4 {
        let closed = everywhere(|steps| {
            let s = System::new(120);
            let (m, other) = (s.x(), s.a());
            let object = s.object(Endpoints::KIND);
            let ends: &'static Endpoints = find(m.node(), object, Endpoints::KIND).unwrap();
            let of = s.object(Thread::KIND);
            let thread: &'static Thread = find(m.node(), of, Thread::KIND).unwrap();
            let (_, act) = meanwhile((m, other), move || {
                let line = ends.line(3).unwrap();
                let pushed = line.push_event(other.node(), thread, Woken::Ready).is_ok();
                crash::after(begun, || line.take_thread(other.node()));
                pushed
            });
            let mut closed = false;
            let came = crash::between(steps, act, || closed = ends.close(m.node()).is_ok());
            let is_empty = |l: &Line| l.taken.load(Ordering::Relaxed) == 0;
            assert!(
                !closed || ends.lines.iter().all(is_empty),
                "{begun}, {steps}"
            );
            // A list that stayed closed would lose all later news.
            let is_open = |l: &Line| {
                let first = l.events.load(Ordering::Relaxed);
                first == 0 || linked(first).is_some()
            };
            assert!(closed || ends.lines.iter().all(is_open), "{begun}, {steps}");
            (came, closed)
        });
        assert_eq!(closed.len(), 2, "{begun}: it comes too late, and in time");
    }
}

/// A thread is reported anew while it is taken off its list, at any moment: the thread behind it stays on the list.
#[test]
fn a_thread_that_is_reported_while_it_is_taken_off_takes_no_other_along() {
    everywhere(|steps| {
        let s = System::new(120);
        let (m, other) = (s.x(), s.a());
        let object = s.object(Endpoints::KIND);
        let ends: &'static Endpoints = find(m.node(), object, Endpoints::KIND).unwrap();
        let line = ends.line(3).unwrap();
        let [behind, first] = [0, 1].map(|_| {
            let of = s.object(Thread::KIND);
            let t: &'static Thread = find(m.node(), of, Thread::KIND).unwrap();
            line.push_event(m.node(), t, Woken::Ready).unwrap();
            t
        });
        let (_, act) = meanwhile((m, other), move || {
            line.push_event(other.node(), first, Woken::Ready).is_ok()
        });
        let mut taken = Vec::new();
        let came = crash::between(steps, act, || taken.extend(line.take_thread(m.node())));
        taken.extend((0..3).filter_map(|_| line.take_thread(m.node())));
        let times = |t| taken.iter().filter(|(is, _)| core::ptr::eq(*is, t)).count();
        assert_eq!(times(behind), 1, "step {steps}");
        assert!(matches!(times(first), 1 | 2), "step {steps}");
        (came, times(first))
    });
}

/// Of two roots one is linked; the other one can be given up.
#[test]
fn of_two_roots_one_is_linked_and_the_other_is_free() {
    let mut steps = 0;
    loop {
        let s = System::new(120);
        let space = s.object(dyad_object::space::Space::KIND);
        let at = TableAt {
            isa: Isa::X86_64,
            level: 4,
        };
        let [one, two] = [s.table(at), s.table(at)].map(|t| t.object.unwrap());
        let (m, other) = (s.x(), s.a());
        let (theirs, act) = meanwhile((m, other), move || {
            let c = cx(other);
            this(&c, space).link_root(Isa::X86_64, two).is_ok()
        });
        let mut mine = false;
        let c = cx(m);
        let came = crash::between(steps, act, || {
            mine = this(&c, space).link_root(Isa::X86_64, one).is_ok();
        });
        let is = [mine, theirs.get()];
        if came {
            assert!(is[0] != is[1], "{is:?}");
        }
        assert_eq!(
            [one, two].map(|t| s.refs(t)),
            is.map(u32::from),
            "step {steps}"
        );
        if !came {
            break;
        }
        steps += 1;
    }
    assert!(steps > 1);
}

/// A root whose unlinking is refused is as it was.
#[test]
fn a_root_is_unlinked_or_stays() {
    let (mut steps, mut linked) = (0, false);
    loop {
        let s = System::new(120);
        let space = s.object(dyad_object::space::Space::KIND);
        let at = |level| TableAt {
            isa: Isa::X86_64,
            level,
        };
        let (root, below) = (s.table(at(4)).object.unwrap(), s.table(at(3)));
        let (m, other) = (s.x(), s.a());
        let c = cx(m);
        this(&c, space).link_root(Isa::X86_64, root).unwrap();
        let (theirs, act) = meanwhile((m, other), move || {
            let c = cx(other);
            crate::syscall::ops::space::link(&this(&c, space), at(3), 0, &below).is_ok()
        });
        let mut mine = false;
        let came = crash::between(steps, act, || {
            mine = this(&c, space).unlink_root(Isa::X86_64).is_ok();
        });
        let word = this(&c, space).space.roots[Isa::X86_64.index()].load(Ordering::Relaxed);
        let wanted = if mine { 0 } else { root.bits() };
        assert_eq!(word, wanted, "step {steps}: {mine} {}", theirs.get());
        linked |= theirs.get() && came;
        if !came {
            break;
        }
        steps += 1;
    }
    assert!(steps > 1 && linked);
}
