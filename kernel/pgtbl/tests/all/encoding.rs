//! Encodings: one word per state and back, the rules they keep, and every bit against the
//! `x86_64` and `aarch64-paging` crates.

use crate::common;

use std::collections::HashMap;

use aarch64_paging::descriptor::{El1Attributes as Attr, PagingAttributes, PhysicalAddress};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, RootTable, VaRange};
use aarch64_paging::target::TargetAllocator;
use common::{a64_attributes, all_leaves, x86_flags};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::{Isa, NodeId};
use dyad_pgtbl::{EncodeError, Epoch, Leaf, Level, Memory, Perms, Pte, decode, encode};
use dyad_shm::PhysAddr;
use proptest::prelude::*;
use x86_64::structures::paging::PageTableFlags as Flags;
use x86_64::structures::paging::page_table::PageTableEntry;

/// Addresses that are aligned for leaves of all sizes, up to the top of either format.
const ADDRESSES: [u64; 5] = [
    0,
    0x40_0000_0000,
    0x7fff_c000_0000,
    0xffff_c000_0000,
    0xf_ffff_c000_0000,
];

fn address_fits(isa: Isa, pa: PhysAddr) -> bool {
    isa == Isa::X86_64 || pa.0 < 1 << 48
}

/// The rules of the project, said once more.
fn allowed(leaf: &Leaf) -> bool {
    let has = |p| leaf.perms.contains(p);
    has(Perms::READ)
        && !(has(Perms::WRITE) && has(Perms::EXECUTE))
        && !(has(Perms::EXECUTE) && leaf.memory == Memory::Device)
        && !(has(Perms::USER) && leaf.global)
}

fn states(level: Level) -> Vec<Pte> {
    let mut all: Vec<Pte> = ADDRESSES
        .into_iter()
        .flat_map(|pa| all_leaves(PhysAddr(pa)))
        .map(Pte::Leaf)
        .collect();
    if level == Level::L1 {
        all.extend(all_leaves(PhysAddr(0x40_1234_5000)).map(Pte::Leaf));
    }
    all.extend(ADDRESSES.map(|pa| Pte::Table(PhysAddr(pa))));
    all.push(Pte::Table(PhysAddr(0x40_1234_5000)));
    all.extend(NodeId::first(MAX_NODES).map(|node| Pte::Closing { node }));
    let epochs = (0..=Epoch::BITS).flat_map(|b| [(1 << b) - 1, 1 << b, (1 << b) + 1]);
    let mut epochs: Vec<Epoch> = epochs.filter_map(Epoch::new).collect();
    epochs.sort_unstable();
    epochs.dedup();
    all.extend(epochs.into_iter().map(|epoch| Pte::Empty { epoch }));
    let perms = || (0..=Perms::all().bits()).filter_map(Perms::from_bits);
    let parked = |pa| {
        perms().map(move |perms| Pte::Parked {
            pa: PhysAddr(pa),
            perms,
        })
    };
    all.extend(
        [0, 0x40_1234_5000, (1 << 48) - 0x1000]
            .into_iter()
            .flat_map(parked),
    );
    all.extend(parked(1 << 48).chain(parked(0x800)));
    all
}

#[test]
fn every_state_has_one_word_of_its_own() {
    for isa in Isa::ALL {
        for level in Level::ALL {
            let mut words = HashMap::new();
            for pte in states(level) {
                let expected = match pte {
                    Pte::Leaf(l) => allowed(&l) && address_fits(isa, l.pa) && level != Level::L4,
                    Pte::Table(t) => address_fits(isa, t) && level != Level::L1,
                    Pte::Parked { pa, perms } => {
                        level == Level::L1
                            && perms.contains(Perms::READ | Perms::USER)
                            && !perms.contains(Perms::WRITE | Perms::EXECUTE)
                            && pa.0 >> 48 == 0
                            && pa.0.is_multiple_of(4096)
                    }
                    _ => true,
                };
                let word = encode(isa, pte, level);
                assert_eq!(word.is_ok(), expected, "{isa} {level:?} {pte:?}");
                let Ok(word) = word else { continue };
                assert_eq!(decode(isa, word, level), pte, "{isa} {level:?} {word:#x}");
                assert_eq!(words.insert(word, pte), None, "{isa} {level:?} {word:#x}");
            }
            assert_eq!(decode(isa, 0, level), Pte::Empty { epoch: Epoch::ZERO });
        }
    }
}

#[test]
fn what_cannot_be_encoded_is_refused_for_its_reason() {
    let leaf = Leaf::user(PhysAddr(0x40_0000_0000), Perms::READ);
    let try_leaf = |l: Leaf, level| Isa::ALL.map(|isa| encode(isa, Pte::Leaf(l), level).err());
    let both = |e| [Some(e), Some(e)];
    let pa = PhysAddr(leaf.pa.0 + 0x1000);
    let cases = [
        (Leaf { pa, ..leaf }, Level::L2, EncodeError::Misaligned),
        (leaf, Level::L4, EncodeError::NoLeafInRoot),
        (
            Leaf {
                global: true,
                ..leaf
            },
            Level::L1,
            EncodeError::GlobalUser,
        ),
        (
            Leaf {
                perms: Perms::USER | Perms::WRITE,
                ..leaf
            },
            Level::L1,
            EncodeError::NotReadable,
        ),
        (
            Leaf {
                perms: Perms::all(),
                ..leaf
            },
            Level::L1,
            EncodeError::WriteAndExecute,
        ),
        (
            Leaf::kernel(leaf.pa, Perms::EXECUTE, Memory::Device),
            Level::L1,
            EncodeError::ExecutableDevice,
        ),
        (
            Leaf {
                pa: PhysAddr(1 << 52),
                ..leaf
            },
            Level::L1,
            EncodeError::AddressTooLarge,
        ),
    ];
    for (l, level, e) in cases {
        assert_eq!(try_leaf(l, level), both(e), "{l:?}");
    }
    for isa in Isa::ALL {
        let known = Pte::Other(encode(isa, Pte::Leaf(leaf), Level::L1).unwrap());
        assert_eq!(encode(isa, known, Level::L1), Err(EncodeError::NotAsIs));
    }
}

/// Absent entries of x86-64 must not name memory, or processors that speculate through them read
/// it: up to any epoch a machine will see, the address field has its top bits set.
#[test]
fn absent_x86_entries_name_no_memory() {
    for pte in states(Level::L1) {
        match pte {
            Pte::Empty { epoch } if epoch == Epoch::ZERO || epoch.get() >> 38 != 0 => continue,
            Pte::Empty { .. } | Pte::Closing { .. } => {}
            _ => continue,
        }
        let raw = encode(Isa::X86_64, pte, Level::L1).unwrap();
        assert_eq!(raw >> 46 & 0x3f, 0x3f, "{pte:?}");
    }
}

#[test]
fn words_with_another_meaning_are_left_as_they_are() {
    let x86 = |leaf| encode(Isa::X86_64, Pte::Leaf(leaf), Level::L1).unwrap();
    let a64 = |leaf| encode(Isa::Aarch64, Pte::Leaf(leaf), Level::L1).unwrap();
    let page = Leaf::user(PhysAddr(0x40_0000_5000), Perms::WRITE);
    let writable = Flags::WRITABLE.bits();
    for (isa, raw) in [
        (Isa::X86_64, x86(page) & !Flags::NO_EXECUTE.bits()),
        (Isa::X86_64, x86(page) | Flags::WRITE_THROUGH.bits()),
        (Isa::X86_64, x86(page) | Flags::HUGE_PAGE.bits()), // PAT at this level
        (Isa::X86_64, x86(page) | 1 << 59),                 // a protection key
        (Isa::X86_64, x86(page) & !Flags::PRESENT.bits()),
        (Isa::Aarch64, a64(page) & !(Attr::PXN.bits() as u64)),
        // Writable, but not by DBM.
        (
            Isa::Aarch64,
            a64(page) & !((Attr::DBM | Attr::READ_ONLY).bits() as u64),
        ),
        (Isa::Aarch64, a64(page) | Attr::NS.bits() as u64),
        (Isa::Aarch64, a64(page) & !2), // reserved at this level
        (Isa::Aarch64, a64(page) & !1),
        (Isa::X86_64, !0 << 8), // Empty(0) inverted
        // Epochs with more bits than there are.
        (Isa::Aarch64, 1 << (8 + Epoch::BITS)),
        (Isa::X86_64, !(1 << (8 + Epoch::BITS)) & !0xff),
        (Isa::X86_64, 8),
        (Isa::Aarch64, (MAX_NODES as u64) << 8 | 2),
        (Isa::Aarch64, 4),
    ] {
        let pte = decode(isa, raw, Level::L1);
        assert_eq!(pte, Pte::Other(raw), "{isa} {raw:#x}");
        assert_eq!(encode(isa, pte, Level::L1), Ok(raw));
    }
    let table = encode(Isa::X86_64, Pte::Table(page.pa), Level::L3).unwrap();
    let tight = table & !writable;
    assert_eq!(decode(Isa::X86_64, tight, Level::L3), Pte::Other(tight));
}

#[test]
fn x86_words_are_those_of_the_x86_64_crate() {
    let word = |pa: PhysAddr, flags: Flags| {
        let mut entry = PageTableEntry::new();
        entry.set_addr(x86_64::PhysAddr::new(pa.0), flags);
        entry.addr().as_u64() | entry.flags().bits()
    };
    for level in [Level::L1, Level::L2, Level::L3] {
        for pa in ADDRESSES.map(PhysAddr) {
            for leaf in all_leaves(pa).filter(allowed) {
                let ours = encode(Isa::X86_64, Pte::Leaf(leaf), level).unwrap();
                assert_eq!(ours, word(pa, x86_flags(&leaf, level)), "{leaf:?}");
            }
        }
    }
    let table = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE | Flags::ACCESSED;
    for level in [Level::L2, Level::L3, Level::L4] {
        let pa = PhysAddr(0x40_1234_5000);
        let ours = encode(Isa::X86_64, Pte::Table(pa), level).unwrap();
        assert_eq!(ours, word(pa, table));
        // A table that the bootstrap has made, before and after hardware has used it.
        let fresh = word(pa, table - Flags::ACCESSED);
        assert_eq!(decode(Isa::X86_64, fresh, level), Pte::Table(pa));
    }
}

/// The image of tables that the oracle makes for one mapping, as words.
fn a64_oracle(va: usize, size: usize, leaf: &Leaf, constraints: Constraints) -> Vec<u64> {
    let tables = TargetAllocator::new(common::TABLES);
    let mut root = RootTable::with_va_range(tables, 0, El1And0, VaRange::Lower);
    let to = PhysicalAddress(leaf.pa.0 as usize);
    let range = MemoryRegion::new(va, va + size);
    root.map_range(&range, to, a64_attributes(leaf), constraints)
        .unwrap();
    let bytes = root.translation().as_bytes();
    let words = bytes.chunks_exact(8);
    words
        .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
        .collect()
}

#[test]
#[cfg_attr(miri, ignore = "the oracle builds whole tables, by foreign code")]
fn a64_words_are_those_of_the_aarch64_paging_crate() {
    let table = |n: u64| {
        let pa = PhysAddr(common::TABLES + n * 4096);
        encode(Isa::Aarch64, Pte::Table(pa), Level::L2).unwrap()
    };
    for (level, constraints) in [
        (Level::L1, Constraints::NO_BLOCK_MAPPINGS),
        (Level::L2, Constraints::empty()),
        (Level::L3, Constraints::empty()),
    ] {
        for pa in ADDRESSES.map(PhysAddr) {
            if !address_fits(Isa::Aarch64, pa) {
                continue;
            }
            for leaf in all_leaves(pa).filter(allowed) {
                let ours = encode(Isa::Aarch64, Pte::Leaf(leaf), level).unwrap();
                // At index 1 of every table.
                let va = Level::ALL.iter().map(|l| l.size() as usize);
                let va = va.filter(|&s| s >= level.size() as usize).sum();
                let theirs = a64_oracle(va, level.size() as usize, &leaf, constraints);
                let depth = theirs.len() / 512;
                assert_eq!(depth, 5 - level as usize);
                assert_eq!(theirs[theirs.len() - 511], ours, "{leaf:?}");
                for t in 1..depth {
                    assert_eq!(theirs[(t - 1) * 512 + 1], table(t as u64));
                }
            }
        }
    }
}

/// What the hardware would allow, read off the oracles' flags: no page anybody can write is
/// executable by anybody, user code is never executable by the AArch64 kernel, and kernel pages
/// are out of reach for users.
#[test]
fn no_word_breaks_the_rules_of_access() {
    for level in [Level::L1, Level::L2, Level::L3] {
        for leaf in all_leaves(PhysAddr(0x40_0000_0000)) {
            if let Ok(raw) = encode(Isa::X86_64, Pte::Leaf(leaf), level) {
                let f = Flags::from_bits_truncate(raw);
                assert!(!f.contains(Flags::WRITABLE) || f.contains(Flags::NO_EXECUTE));
                let user = leaf.perms.contains(Perms::USER);
                assert_eq!(f.contains(Flags::USER_ACCESSIBLE), user);
            }
            if let Ok(raw) = encode(Isa::Aarch64, Pte::Leaf(leaf), level) {
                let a = Attr::from_bits_truncate(raw as usize);
                let writable = a.contains(Attr::DBM) || !a.contains(Attr::READ_ONLY);
                assert!(!writable || a.contains(Attr::UXN | Attr::PXN), "{leaf:?}");
                assert!(!a.contains(Attr::USER) || a.contains(Attr::PXN), "{leaf:?}");
                assert!(a.contains(Attr::USER) || a.contains(Attr::UXN), "{leaf:?}");
            }
        }
    }
}

/// `protect` and `harvest` change a live AArch64 entry in place: the oracle agrees that no
/// break-before-make is needed between leaves that differ in permissions and used bits only.
#[test]
#[cfg_attr(miri, ignore = "enumerates all pairs of words")]
fn changes_in_place_need_no_break_before_make() {
    let attr = |l| {
        let raw = encode(Isa::Aarch64, Pte::Leaf(l), Level::L1).ok()?;
        Some(Attr::from_bits_truncate(raw as usize))
    };
    let mut pairs = 0;
    for from in all_leaves(PhysAddr(0x40_0000_0000)) {
        for to in all_leaves(from.pa) {
            let fixed = |l: &Leaf| (l.memory, l.global, l.perms.contains(Perms::USER));
            if let (Some(a), Some(b)) = (attr(from), attr(to))
                && fixed(&from) == fixed(&to)
            {
                assert!(Attr::is_bbm_safe(a, b), "{from:?} to {to:?}");
                pairs += 1;
            }
        }
    }
    assert!(pairs > 500);
}

proptest! {
    #![proptest_config(common::cases(256))]

    #[test]
    fn any_word_decodes_and_encodes_back(raw: u64, present: bool) {
        let raw = if present { raw | 1 } else { raw };
        for isa in Isa::ALL {
            for level in Level::ALL {
                let pte = decode(isa, raw, level);
                let back = encode(isa, pte, level).unwrap();
                let accessed = matches!((isa, pte), (Isa::X86_64, Pte::Table(_)));
                prop_assert_eq!(back, if accessed { raw | 1 << 5 } else { raw });
            }
        }
    }

    /// Words that differ from a valid one in a few bits: still one meaning per word.
    #[test]
    fn neighbours_of_valid_words_are_told_apart(
        pick: prop::sample::Index, flip in prop::collection::vec(0..64u32, 1..3), l in 0..4usize,
    ) {
        let level = Level::ALL[l];
        for isa in Isa::ALL {
            let words: Vec<_> = states(level)
                .into_iter()
                .filter_map(|p| encode(isa, p, level).ok().map(|raw| (p, raw)))
                .collect();
            let (pte, raw) = *pick.get(&words);
            let near = flip.iter().fold(raw, |w, b| w ^ 1 << b);
            let table_accessed = isa == Isa::X86_64
                && matches!(pte, Pte::Table(_))
                && near ^ raw == 1 << 5;
            prop_assert_eq!(decode(isa, near, level) == pte, near == raw || table_accessed);
        }
    }
}
