//! Regions of address spaces that a node was adding or taking away when it died.

use dyad_abi::Error;
use dyad_abi::cap::RegionKind;
use dyad_abi::user::PAGE_SIZE;
use dyad_core::host::crash;
use dyad_object::space::{MAX_REGIONS, Region};

use super::threads::sound;
use super::{Trio, VA, node, this};

/// A region of `pages` pages, behind those that there are.
fn region(at: u64, pages: u64) -> Region {
    let start = VA + (1 << 30) + at * PAGE_SIZE;
    Region::new(start, pages * PAGE_SIZE, RegionKind::Anonymous as u64).unwrap()
}

/// Node 1 dies before each of its changes in turn. Then the region is there, or it is not and the range is
/// free; all other slots can still be used. A region that a live node is just adding stays as it is.
#[test]
fn a_region_that_a_dead_node_was_changing_is_there_or_its_range_is_free() {
    for removes in [false, true] {
        let mut outcomes = [0; 2];
        for changes in 0.. {
            let s = Trio::new();
            let object = s.supplied_space();
            let (c, dying) = (s.cx(0), s.cx(1));
            let space = this(&c, object).space;
            let words = c.words();
            let (r, other) = (region(0, 4), region(8, 4));
            // Slots that have been in use before: adding a region is four changes up to its announcement.
            for i in 0..3 {
                space.add_region(words, node(0), region(20 + i, 1)).unwrap();
            }
            for i in 0..3 {
                let start = region(20 + i, 1).start;
                space.remove_region(words, node(0), start).unwrap();
            }
            // With one of the two that overlap.
            let now = space.regions(words).count() + 1;
            if removes {
                space.add_region(words, node(0), r).unwrap();
            }
            let whole = crash::after(changes, || match removes {
                false => space.add_region(dying.words(), node(1), r),
                true => space.remove_region(dying.words(), node(1), r.start),
            });
            // A live node is in the middle of adding another one meanwhile.
            let added = crash::after(4, || space.add_region(words, node(0), other));
            assert_eq!(added, None);
            s.dies(1);
            s.recover(0);
            let there = space.regions(words).any(|now| now == r);
            outcomes[usize::from(there)] += 1;
            assert!(whole.is_none() || there != removes);
            // What overlaps the region is refused as that says, and for ever by nothing else.
            let again = space.add_region(words, node(2), region(2, 4));
            let expected = if there { Err(Error::Exists) } else { Ok(()) };
            assert_eq!(
                again, expected,
                "removes {removes}, before change {changes}"
            );
            // The live node's slot is in use still.
            let clash = space.add_region(words, node(2), region(9, 1));
            assert_eq!(clash, Err(Error::Again), "the live node's");
            assert_eq!(space.regions(words).count(), now, "before change {changes}");
            for i in now..MAX_REGIONS - 1 {
                space
                    .add_region(words, node(2), region(100 + 2 * i as u64, 1))
                    .unwrap();
            }
            let full = space.add_region(words, node(2), region(1000, 1));
            assert_eq!(full, Err(Error::Full));
            sound(&s);
            if whole.is_some() {
                break;
            }
        }
        assert!(outcomes.iter().all(|&n| n != 0), "{outcomes:?}");
    }
}

/// Other CPUs' caches of regions are compared with the number of changes, which the dead node may not have
/// counted on.
#[test]
fn changes_of_regions_that_a_dead_node_has_not_counted_are_counted() {
    let s = Trio::new();
    let object = s.supplied_space();
    let c = s.cx(0);
    let space = this(&c, object).space;
    let before = c.words().read(&space.region_changes);
    let last = (0..)
        .find(|&changes| {
            let r = region(8 * u64::from(changes), 4);
            crash::after(changes, || space.add_region(c.words(), node(1), r)).is_some()
        })
        .unwrap();
    assert!(last > 4);
    let added = c.words().read(&space.region_changes);
    assert_eq!(added, before + 1, "one of them came so far");
    s.dies(1);
    s.recover(0);
    assert_eq!(c.words().read(&space.region_changes), added + 1);
}
