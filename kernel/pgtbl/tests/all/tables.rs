//! Whole tables against the oracles: what this crate builds, they walk alike; AArch64 tables are
//! the same, word for word, as `aarch64-paging` builds for the same mappings.

use crate::common;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use aarch64_paging::descriptor::{El1Attributes as Attr, PhysicalAddress};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, RootTable, VaRange};
use aarch64_paging::target::TargetAllocator;
use common::{Frames, TABLES, a64_attributes, x86_flags};
use dyad_abi::Isa;
use dyad_coherence::{GlobalMem, HostMem};
use dyad_pgtbl::{FrameSource, Leaf, Level, Memory, Perms, RemoteCpu};
use dyad_shm::PhysAddr;
use proptest::prelude::*;
use x86_64::VirtAddr;
use x86_64::structures::paging::page_table::{FrameError, PageTableLevel};
use x86_64::structures::paging::{PageTable, PageTableFlags as Flags};

/// Indices at which tables begin, end and go on, so that mappings meet each other.
const INDICES: [u64; 4] = [0, 1, 2, 511];
const LEVELS: [Level; 3] = [Level::L1, Level::L2, Level::L3];

#[derive(Clone, Copy, Debug)]
struct Mapping {
    va: u64,
    leaf: Leaf,
    level: Level,
}

fn address(kernel: bool) -> impl Strategy<Value = u64> {
    let i = || prop::sample::select(&INDICES[..]);
    (0..2u64, i(), i(), i(), 0..4096u64).prop_map(move |(l4, l3, l2, l1, byte)| {
        // Not the last gigabytes of all: their end is no address, which the oracle needs.
        let root = if kernel { 256 + l4 * 254 } else { l4 * 255 };
        let va = root << 39 | l3 << 30 | l2 << 21 | l1 << 12 | byte;
        ((va << 16) as i64 >> 16) as u64
    })
}

fn mapping(kernel: bool) -> impl Strategy<Value = Mapping> {
    let perms = prop::sample::select(&[Perms::READ, Perms::WRITE, Perms::EXECUTE][..]);
    let level = prop::sample::select(&LEVELS[..]);
    (address(kernel), level, perms, 0..8u64, any::<bool>()).prop_map(
        move |(va, level, perms, frame, preset)| {
            let pa = PhysAddr(0x40_0000_0000 + frame * level.size());
            let leaf = match kernel {
                true => Leaf::kernel(pa, perms, Memory::Normal),
                false => Leaf::user(pa, perms),
            };
            Mapping {
                va: va & !(level.size() - 1),
                leaf: if preset { leaf.preset() } else { leaf },
                level,
            }
        },
    )
}

fn scenario() -> impl Strategy<Value = (bool, Vec<Mapping>, Vec<u64>)> {
    any::<bool>().prop_flat_map(|kernel| {
        (
            Just(kernel),
            prop::collection::vec(mapping(kernel), 1..12),
            prop::collection::vec(address(kernel), 16),
        )
    })
}

/// Maps what can be mapped; returns that.
fn build<'m>(
    mem: &'m HostMem,
    isa: Isa,
    wanted: &[Mapping],
) -> (RemoteCpu<'m, HostMem>, Vec<Mapping>, Vec<PhysAddr>) {
    let frames = Frames::new(mem);
    let table = RemoteCpu::new(mem, isa, frames.alloc_table().unwrap());
    let mapped = wanted
        .iter()
        .filter(|m| table.map(m.va, m.leaf, m.level, &frames).is_ok())
        .copied()
        .collect();
    (table, mapped, frames.in_use())
}

/// Loads a word into an entry of the x86_64 crate.
fn x86_tables(mem: &HostMem, frames: &[PhysAddr]) -> BTreeMap<u64, PageTable> {
    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    frames
        .iter()
        .map(|&frame| {
            let mut table = PageTable::new();
            for (i, entry) in table.iter_mut().enumerate() {
                let raw = mem.load(frame.add(8 * i as u64), Ordering::Relaxed);
                let to = x86_64::PhysAddr::new(raw & ADDRESS);
                entry.set_addr(to, Flags::from_bits_retain(raw & !ADDRESS));
            }
            (frame.0, table)
        })
        .collect()
}

/// What the x86_64 crate reads from the tables: physical address and flags of the leaf.
fn x86_walk(tables: &BTreeMap<u64, PageTable>, va: u64) -> Option<(u64, Flags, u8)> {
    let va = VirtAddr::new(va);
    let mut table = &tables[&TABLES];
    let mut level = PageTableLevel::Four;
    loop {
        let entry = &table[va.page_table_index(level)];
        let size = 1u64 << (12 + 9 * (level as u64 - 1));
        let leaf = Some((
            entry.addr().as_u64() + va.as_u64() % size,
            entry.flags(),
            level as u8,
        ));
        match (entry.frame(), level.next_lower_level()) {
            (Err(FrameError::FrameNotPresent), _) => return None,
            (Err(FrameError::HugeFrame), _) | (Ok(_), None) => return leaf,
            (Ok(frame), Some(below)) => {
                table = &tables[&frame.start_address().as_u64()];
                level = below;
            }
        }
    }
}

proptest! {
    #![proptest_config(common::cases(96))]

    #[test]
    #[cfg_attr(miri, ignore = "the oracle builds whole tables, by foreign code")]
    fn a64_tables_are_the_oracles((kernel, wanted, probes) in scenario()) {
        let mem = HostMem::new();
        let (table, mapped, frames) = build(&mem, Isa::Aarch64, &wanted);

        let half = if kernel { VaRange::Upper } else { VaRange::Lower };
        let mut oracle =
            RootTable::with_va_range(TargetAllocator::new(TABLES), 0, El1And0, half);
        for m in &mapped {
            let from = m.va as usize;
            let region = MemoryRegion::new(from, from + m.level.size() as usize);
            let rules = match m.level {
                Level::L1 => Constraints::NO_BLOCK_MAPPINGS,
                _ => Constraints::empty(),
            };
            let to = PhysicalAddress(m.leaf.pa.0 as usize);
            oracle.map_range(&region, to, a64_attributes(&m.leaf), rules).unwrap();
        }

        let image = oracle.translation().as_bytes();
        prop_assert_eq!(image.len(), frames.len() * 4096);
        for (i, word) in image.chunks_exact(8).enumerate() {
            let ours = mem.load(PhysAddr(TABLES + 8 * i as u64), Ordering::Relaxed);
            let theirs = u64::from_le_bytes(word.try_into().unwrap());
            prop_assert_eq!(ours, theirs, "word {}", i);
        }

        for va in probes {
            let page = va as usize & !4095;
            let mut theirs = None;
            let probe = MemoryRegion::new(page, page + 4096);
            oracle
                .walk_range(&probe, &mut |_, entry, level| {
                    if entry.is_valid() {
                        let size = 1 << (12 + 9 * (3 - level));
                        let pa = entry.output_address().0 + va as usize % size;
                        theirs = Some((pa as u64, 4 - level as u8, entry.flags()));
                    }
                    Ok(())
                })
                .unwrap();
            let ours = table.translate(va).map(|(pa, leaf, level)| {
                let mut attr = a64_attributes(&leaf);
                attr.set(Attr::TABLE_OR_PAGE, level == Level::L1);
                (pa.0, level as u8, attr)
            });
            prop_assert_eq!(ours, theirs, "{:#x}", va);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "the oracle builds whole tables, by foreign code")]
    fn x86_tables_read_the_same_by_the_oracle((_, wanted, probes) in scenario()) {
        let mem = HostMem::new();
        let (table, mapped, frames) = build(&mem, Isa::X86_64, &wanted);
        let tables = x86_tables(&mem, &frames);
        for va in mapped.iter().map(|m| m.va).chain(probes) {
            let theirs = x86_walk(&tables, va);
            let ours = table.translate(va).map(|(pa, leaf, level)| {
                (pa.0, x86_flags(&leaf, level), level as u8)
            });
            prop_assert_eq!(ours, theirs, "{:#x}", va);
        }
        for m in mapped {
            prop_assert_eq!(table.translate(m.va), Some((m.leaf.pa, m.leaf, m.level)));
        }
    }
}
