//! Address spaces: addresses, regions, supplies, tables.

use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::Isa;
use dyad_abi::cap::{CapType, MemoryOp, RegionKind, Rights, SpaceOp, Step};
use dyad_abi::user::{PAGE_SIZE, TEXT_BASE, USER_END, USER_MIN};
use dyad_services::first::CXL;

use super::generic::{own_table, sample};
use super::memory::{own_space, page_at};
use super::thread::WITH_HELPER;
use super::{Case, IDLE};
use crate::me::{call, copy, nodes, odd, tried, without};
use crate::shared::{HEAP, NOWHERE, SHOWN, at, word_of};
use crate::{refuse, work};

const MEMORY: u32 = at::full(CapType::Memory);

fn op(o: SpaceOp, args: [u64; 5]) -> Result<u64, dyad_abi::Error> {
    call(at::SPACE, o as u32, args)
}

/// Addresses that no program has.
const KERNEL: [u64; 8] = [
    USER_END,
    USER_END + PAGE_SIZE,
    1 << 48,
    1 << 63,
    0xffff_8000_0000_0000,
    0xffff_8040_0000_0000,
    u64::MAX - 4095,
    !7,
];

pub const CASES: [Case; 9] = [
    Case {
        name: "space_addresses_of_the_kernel",
        grant: |s| {
            own_space(s)?;
            for ty in [CapType::Frame, CapType::Memory] {
                let cap = sample(s, ty)?;
                s.attacker.give(at::full(ty), cap, Rights::ALL)?;
            }
            Ok(())
        },
        act: || {
            use SpaceOp::*;
            let (at, frame) = (page_at(), at::full(CapType::Frame).into());
            let all = KERNEL.into_iter().chain([0, USER_MIN - PAGE_SIZE]);
            for va in all {
                let page = va & !(PAGE_SIZE - 1);
                refuse!(op(Map, [at, page, frame, 0, 1]), BadAddress);
                refuse!(op(Unmap, [at, page, 0, 0, 0]), BadAddress);
                refuse!(op(Protect, [at, page, 1, 0, 0]), BadAddress);
                refuse!(op(Harvest, [at, page, 0, 0, 0]), BadAddress);
                refuse!(op(Translate, [at, page, 0, 0, 0]), BadAddress);
                refuse!(op(Reclaim, [page, 1, 0, 0, 0]), BadAddress);
                let park = 1 | (Step::Park as u64) << 48;
                refuse!(op(Evacuate, [page, park, MEMORY.into(), 0, 1]), BadAddress);
                refuse!(op(Exchange, [va & !7, 0, 1, 0, 0]), BadAddress);
                refuse!(op(AddRegion, [page, PAGE_SIZE, 0x101, 0, 0]), BadArgument);
            }
            for va in KERNEL {
                let page = va & !((1 << 39) - 1);
                refuse!(op(Unlink, [at, page, 0, 0, 0]), BadAddress);
            }
            // Ranges that end where the address wraps.
            refuse!(op(Reclaim, [NOWHERE, u64::MAX, 0, 0, 0]), BadArgument);
            refuse!(op(Reclaim, [NOWHERE, 1 << 52, 0, 0, 0]), BadArgument);
            refuse!(
                op(Exchange, [USER_END - 4, 0, 1, 0, 0]),
                BadAddress | BadArgument
            );
            refuse!(op(Exchange, [u64::MAX - 3, 0, 1, 0, 0]), BadAddress);
        },
        ..IDLE
    },
    Case {
        name: "space_exchange_of_read_only_memory",
        grant: |s| own_space(s),
        act: || {
            let first = word_of(TEXT_BASE, 0).load(Relaxed);
            refuse!(
                op(SpaceOp::Exchange, [TEXT_BASE, first, !first, 0, 0]),
                BadAddress
            );
            let shown = word_of(SHOWN, 0).load(Relaxed);
            refuse!(
                op(SpaceOp::Exchange, [SHOWN, shown, !shown, 0, 0]),
                BadAddress
            );
            refuse!(op(SpaceOp::Exchange, [SHOWN + 4, 0, 0, 0, 0]), BadArgument);
            tried();
            if word_of(TEXT_BASE, 0).load(Relaxed) != first {
                crate::me::achieved(line!(), first);
            }
            refuse!(op(SpaceOp::Exchange, [NOWHERE, 0, 1, 0, 0]), BadAddress);
        },
        ..IDLE
    },
    Case {
        name: "space_of_the_victim",
        // The attacker may translate the victim's addresses, and nothing else.
        grant: |s| {
            s.attacker
                .give(at::SPACE, s.victim.space, SpaceOp::Translate.right())?;
            let memory = sample(s, CapType::Memory)?;
            s.attacker.give(MEMORY, memory, Rights::ALL)
        },
        act: || {
            use SpaceOp::*;
            let (at, va) = (page_at(), crate::shared::SECRET);
            work!(op(Translate, [at, va, 0, 0, 0]));
            let memory = MEMORY.into();
            for (o, args) in [
                (Unmap, [at, va, 0, 0, 0]),
                (Protect, [at, va, 0, 0, 0]),
                (Harvest, [at, va, 0, 0, 0]),
                (Unlink, [at, va & !0x1f_ffff, 0, 0, 0]),
                (AddRegion, [NOWHERE, PAGE_SIZE, 0x101, 0, 0]),
                (RemoveRegion, [va, 0, 0, 0, 0]),
                (Supply, [0, memory, 0, 0, 0]),
                (Supply, [0, 0, 0, 0, 0]),
                (Shootdown, [va, PAGE_SIZE, 0, 0, 0]),
                (Reclaim, [HEAP, 64, 0, 0, 0]),
                (Evacuate, [HEAP, 64, memory, 0, 8]),
                (Exchange, [va, crate::shared::SECRET_WORD, 0, 0, 0]),
                (Map, [at, NOWHERE, 0, 0, 0]),
                (Link, [at, NOWHERE, 0, 0, 0]),
            ] {
                refuse!(op(o, args), Denied);
            }
        },
        ..IDLE
    },
    Case {
        name: "space_supply_without_authority",
        grant: |s| {
            own_table(s)?;
            own_space(s)?;
            let memory = sample(s, CapType::Memory)?;
            s.attacker.give(MEMORY, memory, Rights::ALL)
        },
        act: || {
            use MemoryOp::*;
            let rights = [RetypeUser, RetypeKernel, RetypeUntyped, Split];
            for (n, right) in (0..).zip(rights) {
                let slot = at::FREE + n;
                work!(copy(slot, MEMORY, without(right.right())));
                refuse!(op(SpaceOp::Supply, [0, slot.into(), 0, 0, 0]), Denied);
                let park = 1 | (Step::Park as u64) << 48;
                refuse!(
                    op(SpaceOp::Evacuate, [HEAP, park, slot.into(), 0, 1]),
                    Denied
                );
            }
            let memory = MEMORY.into();
            for (at, n) in [
                (8, 1),
                (0, 9),
                (u64::MAX, 1),
                (1, u64::MAX),
                (u64::MAX, 2),
                (4, 0),
            ] {
                refuse!(op(SpaceOp::Supply, [0, memory, 0, at, n]), BadArgument);
                let park = 1 | (Step::Park as u64) << 48;
                refuse!(
                    op(SpaceOp::Evacuate, [HEAP, park, memory, at, n]),
                    BadArgument
                );
            }
            for node in [nodes(), 255, 1 << 32, u64::MAX] {
                refuse!(op(SpaceOp::Supply, [node, memory, 0, 0, 0]), NoSuchNode);
            }
            for run in [5, 6, 1 << 32, u64::MAX] {
                refuse!(op(SpaceOp::Supply, [0, memory, run, 0, 0]), BadArgument);
            }
        },
        ..IDLE
    },
    Case {
        name: "space_evacuates_pages_of_others",
        // Pages that somebody has mapped into the attacker's space, of memory that the attacker has: no
        // fault has put them there, so they are not the space's to move or to give back.
        grant: |s| {
            own_space(s)?;
            let (first, frames) = s.attacker.pages();
            let memory = s.store.memory(CXL, first, frames)?;
            s.attacker.give(MEMORY, memory, Rights::ALL)
        },
        act: || {
            for step in Step::ALL {
                let what = 4 | (*step as u64) << 48;
                tried();
                match op(
                    SpaceOp::Evacuate,
                    [crate::shared::REPORT, what, MEMORY.into(), 0, 0],
                ) {
                    // Looked at, and nothing done.
                    Ok(v) if v >> 40 == 0 => {}
                    Ok(v) => crate::me::achieved(line!(), v),
                    Err(e) => odd(line!(), e.code()),
                }
            }
            // Pages that users have mapped are not given back.
            work!(op(SpaceOp::Reclaim, [crate::shared::REPORT, 4, 0, 0, 0]));
            tried();
            for page in 0..4 {
                let va = crate::shared::REPORT + page * PAGE_SIZE;
                work!(op(SpaceOp::Translate, [page_at(), va, 0, 0, 0]));
            }
        },
        ..IDLE
    },
    Case {
        name: "space_regions_overlap",
        grant: |s| own_space(s),
        act: || {
            let kind = RegionKind::Anonymous as u64 | 1 << 8;
            let add =
                |start: u64, len: u64, how: u64| op(SpaceOp::AddRegion, [start, len, how, 0, 0]);
            work!(add(NOWHERE + (1 << 30), 16 * PAGE_SIZE, kind));
            let base = NOWHERE + (1 << 30);
            for (start, pages) in [(0, 16), (0, 1), (15, 1), (15, 2), (4, 4)] {
                refuse!(
                    add(base + start * PAGE_SIZE, pages * PAGE_SIZE, kind),
                    Exists
                );
            }
            refuse!(add(base - PAGE_SIZE, 2 * PAGE_SIZE, kind), Exists);
            refuse!(add(base - PAGE_SIZE, 64 * PAGE_SIZE, kind), Exists);
            for (start, len) in [
                (NOWHERE, 0),
                (NOWHERE + 8, PAGE_SIZE),
                (NOWHERE, 8),
                (NOWHERE, u64::MAX),
                (NOWHERE, u64::MAX - NOWHERE + 1),
                (USER_END - PAGE_SIZE, 2 * PAGE_SIZE),
                (u64::MAX - PAGE_SIZE + 1, PAGE_SIZE),
                (u64::MAX - PAGE_SIZE + 1, 2 * PAGE_SIZE),
                (0, USER_END),
            ] {
                refuse!(add(start, len, kind), BadArgument);
            }
            // Kinds, homes and stripes that are none.
            let page = NOWHERE + (2 << 30);
            for how in [0, 5, 0xff, 1 | 1 << 13, 1 | 1 << 16, 1 | 0xffff << 16] {
                refuse!(add(page, PAGE_SIZE, how), BadArgument | NoSuchNode);
            }
            refuse!(add(page, PAGE_SIZE, 1 | 9 << 9), NoSuchNode);
            refuse!(
                op(SpaceOp::RemoveRegion, [base + PAGE_SIZE, 0, 0, 0, 0]),
                NotFound
            );
        },
        ..IDLE
    },
    Case {
        name: "space_links_tables_of_others",
        grant: |s| {
            own_table(s)?;
            own_space(s)?;
            let table = sample(s, CapType::PageTable)?;
            s.attacker
                .give(at::full(CapType::PageTable), table, Rights::ALL)?;
            // A table that hangs in the victim's space.
            let isa = match s.store.isas & 1 << Isa::X86_64.index() != 0 {
                true => Isa::X86_64,
                false => Isa::Aarch64,
            };
            s.victim.tables(s.store, isa, NOWHERE + (1 << 39))?;
            let hung = s.victim.last_table()?;
            s.attacker.give(at::SUBJECT, hung, Rights::ALL)
        },
        act: || {
            let table: u64 = at::full(CapType::PageTable).into();
            // It is a table of level 1 of x86-64, and nothing else.
            for isa in 0..2 {
                for level in 1..=4 {
                    if (isa, level) != (Isa::X86_64 as u64, 1) {
                        let at = isa | level << 8;
                        refuse!(
                            op(SpaceOp::Link, [at, NOWHERE & !((1 << 39) - 1), table, 0, 0]),
                            BadArgument | NoIsa
                        );
                    }
                }
            }
            // One that hangs elsewhere: its entries would be in two spaces.
            let hung: u64 = at::SUBJECT.into();
            let own = page_at();
            for va in [NOWHERE + (2 << 20), NOWHERE + (4 << 20)] {
                refuse!(
                    op(SpaceOp::Link, [own & 0xff | 1 << 8, va, hung, 0, 0]),
                    Exists | BadArgument | NoIsa
                );
            }
            refuse!(op(SpaceOp::Link, [7, NOWHERE, table, 0, 0]), BadArgument);
        },
        ..IDLE
    },
    Case {
        name: "space_forged_tickets",
        grant: |s| own_space(s),
        act: || {
            // Whatever the ticket, the answer is about the attacker's own request, or an error.
            for n in 0..64 {
                tried();
                let ticket = crate::me::mix(n);
                match op(SpaceOp::Shootdown, [ticket, 0, 0, 0, 0]) {
                    Ok(0 | 1) | Err(dyad_abi::Error::BadArgument) => {}
                    Ok(v) => crate::me::achieved(line!(), v),
                    Err(e) => odd(line!(), e.code()),
                }
            }
            for ticket in [0, u64::MAX, 1 << 63] {
                tried();
                let _ = op(SpaceOp::Shootdown, [ticket, 0, 0, 0, 0]);
            }
        },
        ..IDLE
    },
    Case {
        name: "space_pages_of_others_by_address",
        // Loads and stores, by a thread that ends with each: text, the victim's page, the kernel.
        act: || {
            const ADDRESSES: [(u64, bool); 9] = [
                (TEXT_BASE, true),
                (SHOWN, true),
                (NOWHERE, false),
                (8, false),
                (USER_END - 8, false),
                (USER_END, false),
                (0xffff_8000_0000_0000, false),
                (0xffff_8040_0000_0000, true),
                (u64::MAX - 7, true),
            ];
            for (address, write) in ADDRESSES {
                crate::me::note(0).store(address, Relaxed);
                crate::me::note(1).store(write.into(), Relaxed);
                crate::me::note(2).store(0, Relaxed);
                super::thread::play_helper();
                if crate::me::note(2).load(Relaxed) != 0 {
                    crate::me::achieved(line!(), address);
                }
            }
        },
        help: |_| {
            let address = crate::me::note(0).load(Relaxed);
            if crate::me::note(1).load(Relaxed) != 0 {
                word_of(address, 0).store(1, Relaxed);
            } else {
                core::hint::black_box(word_of(address, 0).load(Relaxed));
            }
            // Not reached.
            crate::me::note(2).store(1, Relaxed);
            loop {
                crate::me::yield_now();
            }
        },
        ..WITH_HELPER
    },
];
