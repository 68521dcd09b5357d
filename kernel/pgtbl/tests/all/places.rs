//! Entries that have been found: what is changed only if it still is what was seen; and the notes
//! that software keeps in leaves.

use crate::common;

use std::sync::atomic::Ordering;

use common::{Frames, at, hardware_use};
use dyad_abi::user::USER_END;
use dyad_abi::{Isa, NodeId};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_pgtbl::{
    FrameSource, Leaf, Level, MapError, Memory, Perms, Pte, RemoteCpu, decode, encode, plain,
};
use dyad_shm::PhysAddr;

const VA: u64 = 0x10_0000_3000;
const FRAME: PhysAddr = PhysAddr(0x40_0000_7000);

fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

fn on_both(test: impl Fn(&RemoteCpu<'_, HostMem>, &Frames<'_>, &HostMem)) {
    for isa in Isa::ALL {
        let mem = HostMem::new();
        let frames = Frames::new(&mem);
        let root = frames.alloc_table().unwrap();
        test(&RemoteCpu::new(&mem, isa, root), &frames, &mem);
    }
}

/// Hangs tables for [`VA`] in, one by one; returns them.
fn tables(t: &RemoteCpu<'_, HostMem>, frames: &Frames<'_>) -> Vec<PhysAddr> {
    [Level::L4, Level::L3, Level::L2]
        .into_iter()
        .map(|level| {
            let place = t.find(VA, Level::L1).unwrap();
            assert_eq!(place.level, level);
            let table = frames.alloc_table().unwrap();
            t.fill(&place, Pte::Table(table), |_| false).unwrap();
            table
        })
        .collect()
}

#[test]
fn a_place_is_filled_closed_and_emptied() {
    on_both(|t, frames, mem| {
        let below = tables(t, frames);
        let place = t.find(VA, Level::L1).unwrap();
        assert_eq!((place.level, place.table()), (Level::L1, below[2]));
        assert!(t.is_linked(&place));
        let leaf = Leaf::user(FRAME, Perms::WRITE);
        t.fill(&place, Pte::Leaf(leaf), |_| false).unwrap();
        assert_eq!(t.translate(VA), Some((FRAME, leaf, Level::L1)));
        assert_eq!(
            t.fill(&place, Pte::Leaf(leaf), |_| true),
            Err(MapError::Exists(leaf)),
            "the word seen is not there any more"
        );
        let place = t.again(&place);
        assert_eq!(t.meaning(&place), Pte::Leaf(leaf));
        // Use by the hardware does not keep it from being closed.
        let used = hardware_use(t.isa(), place.raw, true);
        mem.store(place.entry, used, Ordering::Relaxed);
        let gone = t.close(&place, &leaf, node(3)).unwrap();
        assert!(gone.dirty && gone.accessed && gone.same_mapping(&leaf));
        assert_eq!(t.close(&place, &leaf, node(3)), Err(MapError::Closing));
        assert_eq!(
            t.empty(&place, node(4), at(9)),
            Err(MapError::Contended),
            "another node's"
        );
        t.empty(&place, node(3), at(9)).unwrap();
        assert_eq!(t.close(&place, &leaf, node(3)), Err(MapError::NotMapped));
        let place = t.again(&place);
        assert_eq!(t.meaning(&place), Pte::Empty { epoch: at(9) });
        assert_eq!(
            t.fill(&place, Pte::Leaf(leaf), |e| e < at(9)),
            Err(MapError::NotQuiesced(at(9)))
        );
        t.fill(&place, Pte::Leaf(leaf), |e| e == at(9)).unwrap();
    });
}

#[test]
fn a_leaf_that_has_become_another_is_not_closed() {
    on_both(|t, frames, _| {
        tables(t, frames);
        let place = t.find(VA, Level::L1).unwrap();
        let leaf = Leaf::user(FRAME, Perms::WRITE);
        t.fill(&place, Pte::Leaf(leaf), |_| false).unwrap();
        let place = t.again(&place);
        t.protect(VA, Perms::READ).unwrap();
        assert_eq!(t.close(&place, &leaf, node(0)), Err(MapError::Contended));
        assert!(t.translate(VA).is_some());
    });
}

#[test]
fn a_table_is_closed_reopened_and_taken_out() {
    on_both(|t, frames, _| {
        let below = tables(t, frames);
        let inside = t.find(VA, Level::L1).unwrap();
        let link = t.find(VA, Level::L2).unwrap();
        assert_eq!(t.meaning(&link), Pte::Table(below[2]));
        t.close_table(&link, node(1)).unwrap();
        assert!(!t.is_linked(&inside), "a CPU that pins it now sees that");
        assert_eq!(t.find(VA, Level::L1).unwrap().level, Level::L2);
        t.reopen_table(&link, node(1), below[2]).unwrap();
        assert!(t.is_linked(&inside));
        t.close_table(&link, node(1)).unwrap();
        t.empty(&link, node(1), at(5)).unwrap();
        assert!(!t.is_linked(&inside));
        let link = t.again(&link);
        assert_eq!(t.meaning(&link), Pte::Empty { epoch: at(5) });
    });
}

#[test]
fn places_are_of_the_user_half_and_of_shared_memory() {
    let outside = PhysAddr(0x8_0000_0000);
    for isa in Isa::ALL {
        let mem = HostMem::with_ranges(std::iter::once(common::TABLES..common::TABLES + (1 << 20)));
        let frames = Frames::new(&mem);
        let root = frames.alloc_table().unwrap();
        let t = RemoteCpu::new(&mem, isa, root);
        for va in [USER_END, !0, 1 << 63] {
            assert_eq!(t.find(va, Level::L1), Err(MapError::BadAddress));
        }
        assert!(t.find(USER_END - 1, Level::L1).is_ok());
        let word = encode(isa, Pte::Table(outside), Level::L4).unwrap();
        let place = t.find(VA, Level::L1).unwrap();
        mem.store(place.entry, word, Ordering::Relaxed);
        assert!(matches!(t.find(VA, Level::L1), Err(MapError::Conflict(_))));
        assert_eq!(t.find(VA, Level::L4).unwrap().raw, word);
    }
}

/// The notes are kept by every format, mean nothing to the hardware's rules, and stay when
/// permissions change. What is filled in the fast path is what the format encodes.
#[test]
fn notes_of_software_stay_with_the_page() {
    const STEP: usize = if cfg!(miri) { 5 } else { 1 };
    let notes = [Perms::OWNED, Perms::MAY_WRITE, Perms::MAY_EXECUTE];
    on_both(|t, frames, mem| {
        tables(t, frames);
        for bits in (0..32u8).step_by(STEP) {
            let mut perms = Perms::READ | Perms::USER;
            perms.set(Perms::WRITE, bits & 8 != 0);
            perms.set(Perms::EXECUTE, bits & 16 != 0);
            for (i, note) in notes.into_iter().enumerate() {
                perms.set(note, bits >> i & 1 != 0);
            }
            let leaf = Leaf::user(FRAME, perms);
            let place = t.find(VA, Level::L1).unwrap();
            let filled = t.fill(&place, Pte::Leaf(leaf), |_| true);
            let Ok(word) = encode(t.isa(), Pte::Leaf(leaf), Level::L1) else {
                assert!(matches!(filled, Err(MapError::Encode(_))));
                continue;
            };
            filled.unwrap();
            assert_eq!(mem.load(place.entry, Ordering::Relaxed), word);
            assert_eq!(decode(t.isa(), word, Level::L1), Pte::Leaf(leaf));
            t.protect(VA, Perms::READ | Perms::OWNED).unwrap();
            let (_, now, _) = t.translate(VA).unwrap();
            assert_eq!(now.perms & Perms::KEPT, perms & Perms::KEPT);
            assert!(!now.perms.intersects(Perms::WRITE | Perms::EXECUTE));
            t.harvest(VA).unwrap();
            let (_, now, _) = t.translate(VA).unwrap();
            assert_eq!(now.perms & Perms::KEPT, perms & Perms::KEPT);
            t.unmap(VA, node(0), |_, _| (), || at(1)).unwrap();
        }
    });
}

/// Bare words are those of the format, and nothing but plain user pages is taken for one.
#[test]
fn plain_words_are_those_of_the_format() {
    for isa in Isa::ALL {
        assert_eq!(
            plain::closing(isa, node(3)),
            encode(isa, Pte::Closing { node: node(3) }, Level::L1).unwrap()
        );
        for epoch in [at(0), at(7), dyad_pgtbl::Epoch::MAX] {
            assert_eq!(
                plain::empty(isa, epoch),
                encode(isa, Pte::Empty { epoch }, Level::L1).unwrap()
            );
            let word = plain::empty(isa, epoch);
            assert_eq!(plain::empty_in(isa, word), Some(epoch));
            for other in (0..64)
                .map(|bit| word ^ 1 << bit)
                .chain([word, !0xff, 0xff])
            {
                let stamp = plain::empty_in(isa, other);
                if let Some(epoch) = stamp {
                    assert_eq!(decode(isa, other, Level::L1), Pte::Empty { epoch });
                }
                for limit in [at(0), at(6), at(7), at(8), dyad_pgtbl::Epoch::MAX] {
                    let old = stamp.is_some_and(|stamp| stamp <= limit);
                    assert_eq!(plain::is_empty_since(isa, other, limit), old, "{other:#x}");
                }
            }
        }
        for leaf in common::all_leaves(FRAME) {
            for notes in [Perms::empty(), Perms::MAY_WRITE, Perms::OWNED] {
                let leaf = Leaf {
                    perms: leaf.perms | notes,
                    ..leaf
                };
                let Ok(word) = encode(isa, Pte::Leaf(leaf), Level::L1) else {
                    continue;
                };
                let plain_page = leaf.perms.contains(Perms::USER)
                    && leaf.memory == Memory::Normal
                    && !leaf.global;
                assert_eq!(
                    plain::page_in(isa, word),
                    plain_page.then_some((FRAME, leaf.perms)),
                    "{leaf:?}"
                );
                if Leaf::user(FRAME, leaf.perms) == leaf {
                    assert_eq!(plain::page(isa, FRAME, leaf.perms), Some(word));
                    let used = Leaf {
                        accessed: true,
                        dirty: leaf.perms.contains(Perms::WRITE),
                        ..leaf
                    };
                    assert_eq!(
                        plain::used_page(isa, FRAME, leaf.perms),
                        encode(isa, Pte::Leaf(used), Level::L1).ok()
                    );
                }
                for write in [false, true] {
                    let mut perms = leaf.perms.difference(Perms::EXECUTE);
                    perms.set(Perms::WRITE, write);
                    let may = plain_page && (!write || leaf.perms.contains(Perms::MAY_WRITE));
                    let then = encode(isa, Pte::Leaf(Leaf { perms, ..leaf }), Level::L1);
                    assert_eq!(
                        plain::protected(isa, word, write),
                        may.then(|| then.unwrap()),
                        "{leaf:?}"
                    );
                }
                // What a page is taken for it is: whichever bit is wrong.
                for bit in 0..64 {
                    let other = word ^ 1 << bit;
                    let page = plain::page_in(isa, other);
                    let given = page.filter(|(_, perms)| !perms.contains(Perms::OWNED));
                    assert_eq!(plain::given_page_in(isa, other), given.map(|(pa, _)| pa));
                    if let Some((pa, perms)) = page {
                        let Pte::Leaf(l) = decode(isa, other, Level::L1) else {
                            panic!("{leaf:?}, bit {bit}");
                        };
                        let bare = Leaf {
                            accessed: false,
                            dirty: false,
                            ..l
                        };
                        assert_eq!(bare, Leaf::user(pa, perms), "bit {bit}");
                    }
                }
            }
        }
        let both = Perms::WRITE | Perms::EXECUTE | Perms::USER | Perms::READ;
        assert_eq!(plain::page(isa, FRAME, both), None);
        assert_eq!(plain::page(isa, FRAME, Perms::READ), None);
        let table = encode(isa, Pte::Table(FRAME), Level::L2).unwrap();
        assert_eq!(plain::table_in(isa, table), Some(FRAME));
        for word in [0, table & !1, u64::MAX] {
            assert_eq!(plain::page_in(isa, word), None);
            assert_eq!(plain::table_in(isa, word), None);
        }
    }
}
