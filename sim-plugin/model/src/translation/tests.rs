//! Scenes that have been computed by hand, and a model that is a list.

use std::collections::BTreeMap;

use dyad_pgtbl::{Leaf, Memory, Perms, encode};
use dyad_shm::PhysAddr;
use proptest::prelude::*;

use super::*;

const KIB4: u64 = 4 << 10;
const MIB2: u64 = 2 << 20;
const GIB: u64 = 1 << 30;
const ROOT: u64 = 0x10_0000;
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// TTBR1_EL1 points at the upper half of the root.
const UPPER: u64 = ROOT + 0x800;

/// The words of a guest.
#[derive(Default)]
struct Guest {
    words: BTreeMap<u64, u64>,
    next: u64,
}

impl Guest {
    /// Maps an address with a leaf of a level, and makes the tables that this takes. Returns the addresses of the entries.
    fn map(&mut self, isa: Isa, address: u64, at: Level, leaf: Leaf) -> Vec<u64> {
        let mut path = Vec::new();
        let (mut level, mut table) = (Level::L4, ROOT);
        loop {
            let entry = table + level.index(address) as u64 * 8;
            path.push(entry);
            if level == at {
                let word = encode(isa, Pte::Leaf(leaf), level).unwrap();
                self.words.insert(entry, word);
                return path;
            }
            let next = &mut self.next;
            let word = *self.words.entry(entry).or_insert_with(|| {
                *next += KIB4;
                encode(isa, Pte::Table(PhysAddr(ROOT + *next)), level).unwrap()
            });
            let Pte::Table(below) = decode(isa, word, level) else {
                panic!("{address:#x}: a leaf is in the way")
            };
            (level, table) = (level.below().unwrap(), below.0);
        }
    }

    /// A page of a program that has been used and written.
    fn page(&mut self, isa: Isa, address: u64) -> Vec<u64> {
        let leaf = Leaf::user(PhysAddr(address % GIB), Perms::WRITE).preset();
        self.map(isa, address, Level::L1, leaf)
    }
}

impl Tables for Guest {
    fn word(&mut self, at: u64) -> Option<u64> {
        self.words.get(&at).copied()
    }
}

fn config(entries: u64, ways: u64) -> TlbConfig {
    TlbConfig {
        entries,
        ways,
        ..TlbConfig::default()
    }
}

fn mmu(isa: Isa, config: TlbConfig) -> Mmu {
    let mut mmu = Mmu::new(isa, config, true).unwrap();
    match isa {
        Isa::X86_64 => mmu.switch_root(false, ROOT | 0x18),
        Isa::Aarch64 => {
            mmu.switch_root(false, ROOT | 1);
            mmu.switch_root(true, UPPER);
        }
    }
    mmu
}

fn walks(mmu: &mut Mmu, guest: &mut Guest, pages: impl Iterator<Item = u64>) -> usize {
    let walked = |at: u64| mmu.translate(Purpose::Load, at, guest) != Found::First;
    pages.map(walked).filter(|w| *w).count()
}

#[test]
fn zero_entries_are_no_tlb() {
    assert!(Mmu::new(Isa::X86_64, config(0, 0), true).is_none());
    // Before there is a root, addresses are not translated.
    let mut mmu = Mmu::new(Isa::X86_64, config(4, 4), true).unwrap();
    let found = mmu.translate(Purpose::Load, 0x1000, &mut Guest::default());
    assert_eq!(found, Found::First);
}

#[test]
fn a_walk_loads_an_entry_of_each_level_and_its_page_is_found_afterwards() {
    for isa in Isa::ALL {
        for address in [0x40_3000, KERNEL + 0x7000] {
            let mut guest = Guest::default();
            let path = guest.page(isa, address);
            let mut mmu = mmu(isa, config(16, 4));
            let Found::Tables(walk) = mmu.translate(Purpose::Load, address + 8, &mut guest) else {
                panic!("{isa:?} {address:#x}")
            };
            assert_eq!(walk.loads(), path);
            assert_eq!(walk.loads().len(), 4);
            // Used by the emulator's walk, as far as anybody knows.
            assert_eq!(walk.store(), Some(path[3]));
            for offset in [0, 64, 4095] {
                let found = mmu.translate(Purpose::Store, address + offset, &mut guest);
                assert_eq!(found, Found::First);
            }
            // Instructions have a first level of their own, and there is no second one here.
            let found = mmu.translate(Purpose::Fetch, address, &mut guest);
            let again = Walk {
                updates: false,
                ..walk
            };
            assert_eq!(found, Found::Tables(again));
        }
    }
}

#[test]
fn sequential_pages_walk_once_while_they_fit_and_always_when_they_do_not() {
    let isa = Isa::X86_64;
    let mut guest = Guest::default();
    let pages = |n: u64| (0..n).map(|i| 0x40_0000 + i * KIB4);
    pages(128).for_each(|at| drop(guest.page(isa, at)));
    let mut mmu = mmu(isa, config(64, 4));
    assert_eq!(walks(&mut mmu, &mut guest, pages(64)), 64);
    assert_eq!(walks(&mut mmu, &mut guest, pages(64)), 0);
    // 80 pages are 5 for each of 16 sets of 4: with LRU none is ever found again.
    mmu.invalidate(Dropped::All);
    for _ in 0..3 {
        assert_eq!(walks(&mut mmu, &mut guest, pages(80)), 80);
    }
}

#[test]
fn pages_of_one_set_conflict() {
    let isa = Isa::Aarch64;
    let mut guest = Guest::default();
    let stride = 16 * KIB4;
    let pages = |n: u64| (0..n).map(move |i| 0x80_0000 + i * stride);
    pages(8).for_each(|at| drop(guest.page(isa, at)));
    let mut narrow = mmu(isa, config(64, 4));
    assert_eq!(walks(&mut narrow, &mut guest, pages(4)), 4);
    assert_eq!(walks(&mut narrow, &mut guest, pages(4)), 0);
    assert_eq!(walks(&mut narrow, &mut guest, pages(5)), 1);
    assert_eq!(
        walks(&mut narrow, &mut guest, pages(5)),
        5,
        "each evicts the next"
    );
    let mut full = mmu(isa, config(64, 64));
    assert_eq!(walks(&mut full, &mut guest, pages(8)), 8);
    assert_eq!(walks(&mut full, &mut guest, pages(8)), 0);
}

#[test]
fn the_second_level_serves_what_the_first_one_has_evicted() {
    let isa = Isa::X86_64;
    let mut guest = Guest::default();
    let pages = [0x1000, 0x2000, 0x3000];
    pages.iter().for_each(|at| drop(guest.page(isa, *at)));
    let keys = TlbConfig {
        l2_entries: 4,
        l2_ways: 4,
        l2_latency: 7,
        ..config(2, 2)
    };
    let mut mmu = mmu(isa, keys);
    assert_eq!(mmu.second_latency(), 7);
    let mut find = |purpose, at| mmu.translate(purpose, at, &mut guest);
    for at in pages {
        assert!(matches!(find(Purpose::Load, at), Found::Tables(_)));
    }
    // 0x1000 was evicted; it evicts 0x2000, which evicts 0x3000.
    for at in pages {
        assert_eq!(find(Purpose::Load, at), Found::Second);
    }
    assert_eq!(find(Purpose::Load, 0x3000), Found::First);
    // Both first levels share the second one.
    assert_eq!(find(Purpose::Fetch, 0x3000), Found::Second);
    assert_eq!(find(Purpose::Fetch, 0x3000), Found::First);
}

#[test]
fn a_large_page_is_one_entry_and_a_shorter_walk() {
    for isa in Isa::ALL {
        let mut guest = Guest::default();
        let leaf = |pa| Leaf::kernel(PhysAddr(pa), Perms::WRITE, Memory::Normal);
        let gib = guest.map(isa, KERNEL + GIB, Level::L3, leaf(GIB));
        let mib = guest.map(isa, KERNEL + 4 * GIB, Level::L2, leaf(MIB2));
        let mut mmu = mmu(isa, config(4, 4));
        for (address, size, path) in [(KERNEL + GIB, GIB, gib), (KERNEL + 4 * GIB, MIB2, mib)] {
            let Found::Tables(walk) = mmu.translate(Purpose::Load, address, &mut guest) else {
                panic!("{address:#x}")
            };
            assert_eq!(walk.loads(), path);
            // Kernels preset accessed and dirty.
            assert_eq!(walk.store(), None);
            for offset in [KIB4, size / 2, size - 1] {
                let found = mmu.translate(Purpose::Store, address + offset, &mut guest);
                assert_eq!(found, Found::First);
            }
            let found = mmu.translate(Purpose::Load, address + size, &mut guest);
            assert_ne!(found, Found::First);
        }
    }
}

#[test]
fn what_is_dropped_is_what_the_instruction_says() {
    for isa in Isa::ALL {
        let mut guest = Guest::default();
        let (a, b, k) = (0x1000, 0x2000, KERNEL + MIB2);
        guest.page(isa, a);
        guest.page(isa, b);
        let leaf = Leaf::kernel(PhysAddr(MIB2), Perms::WRITE, Memory::Normal);
        guest.map(isa, k, Level::L2, leaf);
        let keys = TlbConfig {
            l2_entries: 8,
            l2_ways: 8,
            ..config(8, 8)
        };
        let mut mmu = mmu(isa, keys);
        let all = [a, b, k];
        // Which of the three are walked for after something was dropped.
        let mut after = |change: &mut dyn FnMut(&mut Mmu)| {
            walks(&mut mmu, &mut guest, all.into_iter());
            change(&mut mmu);
            all.map(|at| mmu.translate(Purpose::Load, at, &mut guest) != Found::First)
        };
        let page = |at| move |m: &mut Mmu| m.invalidate(Dropped::Page(at));
        assert_eq!(after(&mut |_| ()), [false; 3]);
        assert_eq!(after(&mut page(a + 5)), [true, false, false]);
        assert_eq!(after(&mut page(k + MIB2 - 1)), [false, false, true]);
        assert_eq!(after(&mut page(k + MIB2)), [false; 3]);
        assert_eq!(
            after(&mut |m| m.invalidate(Dropped::NotGlobal)),
            [true, true, false]
        );
        assert_eq!(after(&mut |m| m.invalidate(Dropped::All)), [true; 3]);
        // A write of CR3 drops what is not global, one of TTBR0_EL1 nothing.
        let of_programs = isa == Isa::X86_64;
        assert_eq!(
            after(&mut |m| m.switch_root(false, ROOT)),
            [of_programs, of_programs, false]
        );
    }
}

#[test]
fn another_root_leads_to_other_tables() {
    let isa = Isa::Aarch64;
    let mut guest = Guest::default();
    guest.page(isa, 0x1000);
    let mut mmu = mmu(isa, config(8, 8));
    mmu.switch_root(false, ROOT + GIB);
    mmu.invalidate(Dropped::NotGlobal);
    let found = mmu.translate(Purpose::Load, 0x1000, &mut guest);
    assert_eq!(found, Found::Unknown, "nothing is there");
    // Known as unknown until it is dropped.
    let found = mmu.translate(Purpose::Store, 0x1008, &mut guest);
    assert_eq!(found, Found::First);
    mmu.switch_root(false, ROOT);
    mmu.invalidate(Dropped::NotGlobal);
    let found = mmu.translate(Purpose::Load, 0x1000, &mut guest);
    assert!(matches!(found, Found::Tables(_)));
}

#[test]
fn an_entry_without_meaning_makes_the_walk_unknown() {
    let isa = Isa::X86_64;
    let mut guest = Guest::default();
    let path = guest.page(isa, 0x1000);
    for word in [0, 0xe3, u64::MAX] {
        guest.words.insert(path[3], word);
        let mut mmu = mmu(isa, config(8, 8));
        let found = mmu.translate(Purpose::Load, 0x1000, &mut guest);
        assert_eq!(found, Found::Unknown, "{word:#x}");
    }
}

#[test]
fn upper_levels_that_are_cached_are_not_loaded() {
    let isa = Isa::X86_64;
    let mut guest = Guest::default();
    // Two pages of one table, one of the next table, one that shares the root's entry only.
    let pages = [0x1000, 0x2000, MIB2, GIB];
    let paths = pages.map(|at| guest.page(isa, at));
    let scenes = [
        (0, [4, 4, 4, 4]),
        (1, [4, 1, 4, 4]),
        // The third page evicts the root's entry.
        (3, [4, 1, 2, 4]),
        (4, [4, 1, 2, 3]),
    ];
    for (entries, loads) in scenes {
        let keys = TlbConfig {
            walk_entries: entries,
            ..config(8, 8)
        };
        let mut mmu = mmu(isa, keys);
        for ((at, path), n) in pages.iter().zip(&paths).zip(loads) {
            let Found::Tables(walk) = mmu.translate(Purpose::Load, *at, &mut guest) else {
                panic!("{at:#x}")
            };
            assert_eq!(walk.loads(), &path[4 - n..], "{entries} entries, {at:#x}");
        }
        // Whatever is dropped.
        mmu.invalidate(Dropped::Page(0x2000));
        let Found::Tables(walk) = mmu.translate(Purpose::Load, 0x2000, &mut guest) else {
            panic!("it was dropped")
        };
        assert_eq!(walk.loads().len(), 4);
    }
}

#[test]
fn accessed_and_dirty_are_stored_once_for_a_mapping() {
    for isa in Isa::ALL {
        let mut guest = Guest::default();
        let address = 0x40_0000;
        let fresh = Leaf::user(PhysAddr(0x5000), Perms::WRITE);
        let used = Leaf {
            accessed: true,
            ..fresh
        };
        let written = fresh.preset();
        let mut mmu = mmu(isa, config(8, 8));
        // What the emulator has left in the entry, the access, and whether the walk stores; None: there is no walk.
        let scene = [
            (used, Purpose::Load, Some(true)),
            (used, Purpose::Load, None),
            // Hardware sets dirty now: the entry of the TLB does not do.
            (written, Purpose::Store, Some(true)),
            (written, Purpose::Store, None),
            (written, Purpose::Load, None),
        ];
        for (i, (leaf, purpose, stores)) in scene.into_iter().enumerate() {
            let path = guest.map(isa, address, Level::L1, leaf);
            match (mmu.translate(purpose, address, &mut guest), stores) {
                (Found::First, None) => {}
                (Found::Tables(walk), Some(stores)) => {
                    assert_eq!(walk.store(), stores.then_some(path[3]), "{isa:?}, {i}");
                }
                (found, _) => panic!("{isa:?}, {i}: {found:?}"),
            }
        }
        // A walk that changes nothing stores nothing; another frame is another mapping.
        let moved = Leaf {
            pa: PhysAddr(0x9000),
            ..written
        };
        for (leaf, stores) in [(written, false), (moved, true), (moved, false)] {
            let path = guest.map(isa, address, Level::L1, leaf);
            mmu.invalidate(Dropped::NotGlobal);
            let Found::Tables(walk) = mmu.translate(Purpose::Store, address, &mut guest) else {
                panic!("it was dropped")
            };
            assert_eq!(walk.store(), stores.then_some(path[3]));
        }
        // Where leaves are made with both bits set, no walk stores.
        let mut preset = Mmu::new(isa, config(8, 8), false).unwrap();
        preset.switch_root(false, ROOT);
        let found = preset.translate(Purpose::Store, address, &mut guest);
        assert!(matches!(found, Found::Tables(walk) if walk.store().is_none()));
    }
}

/// A TLB with one set per list: translations in the order of their last use.
struct List {
    sets: usize,
    ways: usize,
    used: Vec<(u64, bool)>,
}

impl List {
    /// Whether a page is found; afterwards it is there.
    fn find(&mut self, page: u64, global: bool) -> bool {
        let found = self.used.iter().any(|u| u.0 == page);
        self.used.retain(|u| u.0 != page);
        self.used.push((page, global));
        let set = |p: u64| p as usize % self.sets;
        let same = |u: &&(u64, bool)| set(u.0) == set(page);
        if self.used.iter().filter(same).count() > self.ways {
            let oldest = self.used.iter().position(|u| set(u.0) == set(page));
            self.used.remove(oldest.unwrap());
        }
        found
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Use(u64),
    Drop(u64),
    Switch,
    All,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0u64..24).prop_map(Step::Use),
        2 => (0u64..24).prop_map(Step::Drop),
        1 => Just(Step::Switch),
        1 => Just(Step::All),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn it_finds_what_a_list_finds(steps in steps(), sets in 0u32..4, ways in 1u64..5) {
        let isa = Isa::X86_64;
        // Every third page is the kernel's.
        let global = |n: u64| n.is_multiple_of(3);
        let address = |n: u64| if global(n) { KERNEL + n * KIB4 } else { n * KIB4 };
        let mut guest = Guest::default();
        for n in 0..24 {
            let leaf = match global(n) {
                true => Leaf::kernel(PhysAddr(n * KIB4), Perms::WRITE, Memory::Normal),
                false => Leaf::user(PhysAddr(n * KIB4), Perms::WRITE).preset(),
            };
            guest.map(isa, address(n), Level::L1, leaf);
        }
        let sets = 1usize << sets;
        let mut mmu = mmu(isa, config(sets as u64 * ways, ways));
        let mut list = List { sets, ways: ways as usize, used: Vec::new() };
        for step in steps {
            match step {
                Step::Use(n) => {
                    let found = mmu.translate(Purpose::Load, address(n), &mut guest) == Found::First;
                    // The list has numbers of pages; sets do not depend on the half.
                    prop_assert_eq!(found, list.find(n, global(n)));
                }
                Step::Drop(n) => {
                    mmu.invalidate(Dropped::Page(address(n)));
                    list.used.retain(|u| u.0 != n);
                }
                Step::Switch => {
                    mmu.switch_root(false, ROOT);
                    list.used.retain(|u| u.1);
                }
                Step::All => {
                    mmu.invalidate(Dropped::All);
                    list.used.clear();
                }
            }
        }
    }
}
