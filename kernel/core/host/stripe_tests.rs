//! Regions in stripes: faults in their pieces are resolved, faults between them are not, by the slow path
//! and by what a CPU remembers.

use dyad_abi::cap::{RegionKind, Stripes};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;

use super::resolve_tests::{fault, seen, with_region};
use super::system::{System, VA, cx, this};
use dyad_machine::platform::FaultKind::{Read, Write};
use dyad_object::space::Region;
use dyad_space::resolve::Outcome;

/// Behind the region that is there already.
const START: u64 = VA + (1 << 30);
const STRIDE: u64 = 1 << 24;
const PIECE: u64 = 2 * PAGE_SIZE;
const COUNT: u64 = 4;
const KIND: u64 = RegionKind::Anonymous as u64 | 1 << 8;

/// A space with a striped region from [`START`] on.
fn striped() -> (System, WeakRef) {
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    let c = cx(s.x());
    let stripes = Stripes::new(STRIDE, PIECE).unwrap();
    let region = Region::new(START, COUNT * STRIDE, KIND | stripes.bits() << 16).unwrap();
    let words = c.words();
    this(&c, space)
        .space
        .add_region(words, c.node.id(), region)
        .unwrap();
    (s, space)
}

#[test]
fn pieces_are_filled_and_gaps_are_not() {
    let (s, space) = striped();
    for n in 0..COUNT {
        let top = START + (n + 1) * STRIDE;
        // Twice: the second time the CPU knows the place, as a piece or as a gap.
        for _ in 0..2 {
            for gap in [top - STRIDE, top - PIECE - 1, top - STRIDE / 2] {
                for kind in [Read, Write] {
                    let done = fault(s.x(), space, gap, kind);
                    assert_eq!(done, Err(Error::BadAddress), "{gap:#x}");
                }
            }
        }
        for page in [top - PIECE, top - PAGE_SIZE] {
            assert_eq!(fault(s.x(), space, page, Write), Ok(Outcome::Filled));
            assert_eq!(fault(s.x(), space, page + 8, Read), Ok(Outcome::Present));
            let here = seen(&s, space, Isa::X86_64, page);
            assert!(here.is_some() && seen(&s, space, Isa::Aarch64, page) == here);
        }
        // Next to a piece that has just been filled.
        let gap = top - PIECE - PAGE_SIZE;
        assert_eq!(fault(s.x(), space, gap, Write), Err(Error::BadAddress));
        assert_eq!(fault(s.a(), space, gap, Write), Err(Error::BadAddress));
        assert_eq!(seen(&s, space, Isa::X86_64, gap), None);
    }
    let behind = START + COUNT * STRIDE;
    assert_eq!(fault(s.x(), space, behind, Read), Err(Error::BadAddress));
}

#[test]
fn gaps_belong_to_the_region_and_go_with_it() {
    let (s, space) = striped();
    let c = cx(s.x());
    let t = this(&c, space);
    // No other region fits between the pieces.
    let between = Region::new(START, PAGE_SIZE, KIND).unwrap();
    assert_eq!(
        t.space.add_region(c.words(), c.node.id(), between),
        Err(Error::Exists)
    );
    let page = START + STRIDE - PAGE_SIZE;
    assert_eq!(fault(s.x(), space, page, Write), Ok(Outcome::Filled));
    t.space
        .remove_region(c.words(), c.node.id(), START)
        .unwrap();
    let other = START + 2 * STRIDE - PAGE_SIZE;
    assert_eq!(fault(s.x(), space, other, Write), Err(Error::BadAddress));
    t.space.add_region(c.words(), c.node.id(), between).unwrap();
    assert_eq!(fault(s.x(), space, START, Write), Ok(Outcome::Filled));
}

#[test]
fn stripes_that_there_cannot_be_are_refused() {
    let word = |stride: u64, piece: u64| KIND | (stride | piece << 8) << 16;
    let region = |start, len, kind| Region::new(start, len, kind).err();
    let refused = Some(Error::BadArgument);
    assert_eq!(region(START, 4 * STRIDE, word(24, 13)), None);
    for (start, len) in [
        (START + PAGE_SIZE, 4 * STRIDE),
        (START, 4 * STRIDE - PAGE_SIZE),
        (START + STRIDE / 2, STRIDE),
    ] {
        assert_eq!(region(start, len, word(24, 13)), refused, "{start:#x}");
    }
    for (stride, piece) in [
        (24, 24),
        (24, 25),
        (24, 11),
        (63, 13),
        (64, 13),
        (255, 255),
        (12, 12),
    ] {
        let kind = word(stride, piece);
        assert_eq!(region(START, 4 * STRIDE, kind), refused, "{stride} {piece}");
    }
    // Bits of no meaning, and no stripes at all but something above them.
    for kind in [
        KIND | 1 << 13,
        KIND | 1 << 15,
        word(24, 13) | 1 << 32,
        KIND | 1 << 63,
    ] {
        assert_eq!(region(START, 4 * STRIDE, kind), refused, "{kind:#x}");
    }
}
