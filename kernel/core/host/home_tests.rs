//! Regions whose pages are a node's, wherever they are touched.

use dyad_abi::cap::RegionKind;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, NodeId};

use super::resolve_tests::{fault, seen, used_frames, with_region};
use super::system::*;
use dyad_machine::platform::FaultKind::{Read, Write};
use dyad_object::space::Region;
use dyad_space::resolve::Outcome;

const KIND: u64 = RegionKind::Anonymous as u64 | 1 << 8;
/// Where the region with a home is.
const HOME: u64 = VA + (1 << 30);

fn home(n: u64) -> u64 {
    (n + 1) << 9
}

/// The system with a region of node `n` behind the one without a home.
fn with_home(frames: u64, n: u64) -> (System, dyad_shm::frame::WeakRef) {
    let (s, space) = with_region(frames, RegionKind::Anonymous, true);
    let c = cx(s.x());
    let region = Region::new(HOME, 1 << 30, KIND | home(n)).unwrap();
    let t = this(&c, space);
    t.space.add_region(c.words(), c.node.id(), region).unwrap();
    assert_eq!(t.space.region_at(c.words(), HOME), Some(region));
    (s, space)
}

#[test]
fn pages_are_of_their_home_whoever_touches_them() {
    for n in 0..2 {
        let (s, space) = with_home(64, n);
        assert_eq!(fault(s.x(), space, HOME, Write), Ok(Outcome::Filled));
        assert_eq!(
            fault(s.a(), space, HOME + PAGE_SIZE, Read),
            Ok(Outcome::Filled)
        );
        for page in 0..2 {
            let va = HOME + page * PAGE_SIZE;
            let there = seen(&s, space, Isa::X86_64, va).unwrap();
            assert_eq!(seen(&s, space, Isa::Aarch64, va), Some(there));
            assert_eq!(there >> 34, n + 1);
        }
        // Without a home nothing has changed.
        assert_eq!(fault(s.a(), space, VA, Write), Ok(Outcome::Filled));
        assert_eq!(seen(&s, space, Isa::X86_64, VA).unwrap() >> 34, 2);
    }
}

#[test]
fn tables_are_of_the_node_that_needs_them_and_the_handler_hears_whose_supply_is_short() {
    // Three tables for each ISA and one page fill the supply of node 0; its pages are of node 1.
    let (s, space) = with_home(7, 1);
    for page in 0..7 {
        assert_eq!(
            fault(s.x(), space, HOME + page * PAGE_SIZE, Write),
            Ok(Outcome::Filled)
        );
    }
    assert_eq!(used_frames(&s, 0, 7).len(), 6);
    assert_eq!(used_frames(&s, 1, 7).len(), 7);
    let short = || {
        (0..8)
            .map(|_| fault(s.x(), space, HOME + 7 * PAGE_SIZE, Write))
            .find(|e| *e != Err(Error::Again))
    };
    assert_eq!(short(), Some(Err(Error::NoMemory)));
    let c = cx(s.x());
    assert_eq!(c.local.short_of.get(), NodeId::new(1));
    // Elsewhere tables are missing, too: it is node 0 that has none.
    let none = (0..8)
        .map(|_| fault(s.x(), space, VA, Write))
        .find(|e| *e != Err(Error::Again));
    assert_eq!(none, Some(Err(Error::NoMemory)));
    assert_eq!(c.local.short_of.get(), NodeId::new(0));
}

#[test]
fn what_is_no_home_is_refused() {
    let of = |home: u64| Region::new(VA, PAGE_SIZE, KIND | home).err();
    assert_eq!(of(home(7)), None);
    assert_eq!(of(home(8)), Some(Error::NoSuchNode));
    assert_eq!(of(home(14)), Some(Error::NoSuchNode));
    assert_eq!(of(1 << 13), Some(Error::BadArgument));
    assert_eq!(of(1 << 15), Some(Error::BadArgument));
}
