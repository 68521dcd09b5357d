//! Nodes that resolve faults, unmap and take tables out at the same time.

use std::collections::BTreeSet;
use std::thread;
use std::vec;
use std::vec::Vec;

use dyad_abi::cap::RegionKind;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_pgtbl::{Level, Perms};
use dyad_retype::{FrameType, Order, Use};

use super::MockX86;
use super::resolve_tests::*;
use super::system::{VA, cx, frame_cap, this};
use crate::syscall::ops::space::{link, map, unlink, unmap};
use dyad_machine::platform::FaultKind::{Read, Write};

#[test]
fn two_nodes_that_fault_at_once_agree_about_every_page() {
    const PAGES: u64 = 40;
    for _ in 0..20 {
        let (s, space) = with_region(128, RegionKind::Anonymous, true);
        let worlds = [s.world.twin(), s.world.twin()];
        thread::scope(|scope| {
            for (which, w) in worlds.into_iter().enumerate() {
                scope.spawn(move || {
                    let m = w.machine(which);
                    for page in 0..PAGES {
                        let va = VA + page * PAGE_SIZE;
                        while let Err(e) = fault(m, space, va, Write) {
                            assert_eq!(e, Error::Again);
                        }
                    }
                });
            }
        });
        let mut frames = BTreeSet::new();
        for page in 0..PAGES {
            let va = VA + page * PAGE_SIZE;
            let pa = seen(&s, space, Isa::X86_64, va).unwrap();
            assert_eq!(seen(&s, space, Isa::Aarch64, va), Some(pa));
            assert!(frames.insert(pa));
        }
        // Pages with two pins, six tables; whatever else was taken has been given back.
        let mut used = used_frames(&s, 0, 128);
        used.extend(used_frames(&s, 1, 128));
        let pages = used
            .iter()
            .filter(|u| **u == (FrameType::User(Order::FRAME), 2))
            .count();
        assert_eq!((pages as u64, used.len() as u64), (PAGES, PAGES + 6));
    }
}

/// One node maps and unmaps, the other faults the page over: pins are right whatever happens when.
#[test]
fn unmapping_while_the_other_isa_looks_loses_no_pin() {
    let (s, space) = with_region(64, RegionKind::Shared, true);
    s.tables(space, Isa::X86_64, VA, Level::L1);
    s.tables(space, Isa::Aarch64, VA, Level::L1);
    let frame = s.take(0, Use::User, 0);
    let at = dyad_abi::cap::TableAt {
        isa: Isa::X86_64,
        level: 1,
    };
    let worlds = [s.world.twin(), s.world.twin()];
    let [owner, other] = worlds;
    let pages = 200;
    thread::scope(|scope| {
        scope.spawn(move || {
            let m = owner.machine(0);
            let c = cx(m);
            let t = this(&c, space);
            let cap = frame_cap(frame, 1);
            for page in 0..pages {
                let va = VA + page * PAGE_SIZE;
                map::<MockX86>(&t, at, va, &cap, 0, Perms::READ).unwrap();
                thread::yield_now();
                unmap(&t, Isa::X86_64, va).unwrap();
            }
        });
        scope.spawn(move || {
            let m = other.machine(1);
            for page in 0..pages {
                let _ = fault(m, space, VA + page * PAGE_SIZE, Read);
            }
        });
    });
    let c = cx(s.x());
    let t = this(&c, space);
    let mut left = 0;
    for page in 0..pages {
        let va = VA + page * PAGE_SIZE;
        assert_eq!(seen(&s, space, Isa::X86_64, va), None);
        if unmap(&t, Isa::Aarch64, va).is_ok() {
            left += 1;
        }
    }
    assert!(left <= pages);
    assert_eq!(s.refs(frame), 0);
}

/// Either the table is taken out or the page comes into it, also when both are tried at once.
#[test]
fn a_page_does_not_come_into_a_table_that_is_taken_out() {
    const TABLES: u64 = 100;
    let (s, space) = with_region(1, RegionKind::Shared, true);
    let isa = Isa::X86_64;
    let at = dyad_abi::cap::TableAt { isa, level: 1 };
    let va = |n: u64| VA + n * Level::L2.size();
    let mut tables = vec![s.tables(space, isa, VA, Level::L1)[2]];
    let c = cx(s.x());
    for n in 1..TABLES {
        let table = s.table(at);
        tables.push(table.object.unwrap());
        link(&this(&c, space), at, va(n), &table).unwrap();
    }
    let frame = s.take(0, Use::User, 0);
    let start = std::sync::Barrier::new(2);
    let worlds = [s.world.twin(), s.world.twin()];
    let [maps, unlinks] = worlds;
    let (mapped, unlinked) = thread::scope(|scope| {
        let start = &start;
        let maps = scope.spawn(move || {
            let c = cx(maps.machine(0));
            let t = this(&c, space);
            let cap = frame_cap(frame, 1);
            let one = |n| {
                start.wait();
                map::<MockX86>(&t, at, va(n), &cap, 0, Perms::READ).is_ok()
            };
            (0..TABLES).map(one).collect::<Vec<_>>()
        });
        let unlinks = scope.spawn(move || {
            let c = cx(unlinks.machine(1));
            let t = this(&c, space);
            let one = |n| {
                start.wait();
                unlink(&t, at, va(n)).is_ok()
            };
            (0..TABLES).map(one).collect::<Vec<_>>()
        });
        (maps.join().unwrap(), unlinks.join().unwrap())
    });
    let mut pins = 0;
    for (n, &table) in tables.iter().enumerate() {
        assert!(
            !(mapped[n] && unlinked[n]),
            "a page in a table that is gone"
        );
        assert_eq!(s.refs(table), !unlinked[n] as u32 + mapped[n] as u32);
        pins += mapped[n] as u32;
    }
    assert_eq!(s.refs(frame), pins);
}
