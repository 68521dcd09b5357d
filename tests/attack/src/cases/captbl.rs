//! Capability tables: what copies, edges and indices must not bring.

use dyad_abi::cap::{CapIndex, CapType, CaptblOp, ObjectKind, ReceiveOp, Rights};
use dyad_sys::cap::{Cap, Captbl, Narrow};

use super::generic::{own_table, sample};
use super::{Case, IDLE};
use crate::me::{NO_COPY, call, copy};
use crate::shared::at;
use crate::store::patiently;
use crate::{refuse, work};

const CONS: u32 = CaptblOp::Cons as u32;
const COPY_IN: u32 = CaptblOp::CopyIn as u32;
const DEACTIVATE: u32 = CaptblOp::Deactivate as u32;
const READ: u32 = CaptblOp::Read as u32;

/// The entry of the attacker's root that is free.
const ENTRY: u32 = 9;

/// Types whose capabilities can be for a part, and how much a sample is for.
const PARTS: [(CapType, u64); 6] = [
    (CapType::Memory, 8),
    (CapType::Frame, 1),
    (CapType::Liveness, 512),
    (CapType::Receive, 64),
    (CapType::Time, 64),
    (CapType::ThreadIds, 4),
];

fn narrowed(to: u32, from: u32, first: u64, count: u64) -> Result<u64, dyad_abi::Error> {
    let rights: u64 = Rights::ALL.0.into();
    call(
        at::TABLE,
        COPY_IN,
        [to.into(), from.into(), rights, first, count],
    )
}

pub const CASES: [Case; 7] = [
    Case {
        name: "captbl_cons_widens_a_leaf",
        // A leaf that the victim uses, too: the attacker may use what is in it, not change it.
        grant: |s| {
            let leaf: Cap<Captbl> = s.attacker.object(s.store, ObjectKind::CaptblLeaf)?;
            let time = sample(s, CapType::Time)?;
            patiently(|| leaf.copy_in(CapIndex(5), time, Rights::ALL, None, Narrow::ALL))?;
            s.victim.table.cons(ENTRY, leaf)?;
            s.attacker
                .give(at::SUBJECT, leaf, Rights::COPY.or(Rights::INTROSPECT))?;
            s.attacker.give(at::TABLE, s.attacker.table, NO_COPY)
        },
        act: || {
            let slot = u64::from(ENTRY * 64 + 5);
            refuse!(
                call(at::TABLE, CONS, [ENTRY.into(), at::SUBJECT.into(), 0, 0, 0]),
                Denied
            );
            // By the root the leaf is out of reach.
            refuse!(call(at::TABLE, DEACTIVATE, [slot, 0, 0, 0, 0]), NoCap);
            let own = [slot + 1, at::THREAD.into(), u32::MAX.into(), 0, 0];
            refuse!(call(at::TABLE, COPY_IN, own), NoCap | Denied);
            refuse!(call(at::SUBJECT, DEACTIVATE, [5, 0, 0, 0, 0]), Denied);
        },
        look: |s| {
            let there = s.victim.table.read(CapIndex(ENTRY * 64 + 5));
            (there.map(|i| i.kind) != Ok(CapType::Time)).then_some("the shared leaf has changed")
        },
        ..IDLE
    },
    Case {
        name: "captbl_copy_widens_rights",
        grant: |s| {
            own_table(s)?;
            for (n, &ty) in (0..).zip(CapType::ALL) {
                let cap = sample(s, ty)?;
                // Two rights of each, copying among them.
                let rights = Rights(1 << (1 + n % 3)).or(Rights::COPY);
                let rights = rights.or(Rights::INTROSPECT);
                s.attacker.give(at::full(ty), cap, rights)?;
                s.tell(16 + n, rights.0.into());
            }
            Ok(())
        },
        act: || {
            for (n, &ty) in (0u32..).zip(CapType::ALL) {
                let had =
                    crate::me::note(16 + n as usize).load(core::sync::atomic::Ordering::Relaxed);
                let (first, second) = (at::FREE + 2 * n, at::FREE + 2 * n + 1);
                work!(copy(first, at::full(ty), Rights::ALL));
                work!(copy(second, first, Rights::ALL));
                for slot in [first, second] {
                    crate::me::tried();
                    let now = work!(call(slot, 30, [0; 5])) >> 32;
                    if now & !had != 0 {
                        crate::me::achieved(line!(), now);
                    }
                }
                // A copy that may not be copied.
                work!(copy(at::FREE + 40 + n, first, NO_COPY));
                refuse!(
                    copy(at::FREE + 60 + n, at::FREE + 40 + n, Rights::ALL),
                    Denied
                );
            }
        },
        ..IDLE
    },
    Case {
        name: "captbl_narrowing_escaped",
        grant: |s| {
            own_table(s)?;
            for &ty in CapType::ALL {
                let cap = sample(s, ty)?;
                s.attacker.give(at::full(ty), cap, Rights::ALL)?;
            }
            Ok(())
        },
        act: || {
            let mut free = at::FREE;
            for (ty, count) in PARTS {
                let from = at::full(ty);
                for (first, n) in [
                    (0, count + 1),
                    (count, 1),
                    (u64::MAX, 1),
                    (u64::MAX, 2),
                    (1, u64::MAX),
                    (1, count),
                    (count, 0),
                    (u64::MAX - 7, 16),
                    (1 << 32, 1),
                    (0, 1 << 32 | 1),
                ] {
                    refuse!(narrowed(free, from, first, n), BadArgument);
                }
                if count < 8 {
                    continue;
                }
                // A part, and what is not in it.
                work!(narrowed(free, from, 2, 3));
                for (first, n) in [(0, 4), (3, 1), (u64::MAX, 1), (u64::MAX - 1, 2), (1, 3)] {
                    refuse!(narrowed(free + 1, free, first, n), BadArgument);
                }
                free += 2;
            }
            for &ty in CapType::ALL {
                if PARTS.iter().all(|&(t, _)| t != ty) {
                    refuse!(narrowed(free, at::full(ty), 0, 1), BadArgument);
                    refuse!(narrowed(free, at::full(ty), 1, 0), BadArgument);
                }
            }
        },
        ..IDLE
    },
    Case {
        name: "captbl_slots_beyond_the_table",
        grant: |s| {
            let leaf = sample(s, CapType::Captbl)?;
            s.attacker
                .give(at::full(CapType::Captbl), leaf, Rights::ALL)?;
            s.attacker.give(at::TABLE, s.attacker.table, Rights::ALL)
        },
        act: || {
            let leaf = at::full(CapType::Captbl);
            let source: u64 = at::THREAD.into();
            for beyond in [
                64,
                65,
                1 << 15,
                1 << 32,
                1 << 32 | 5,
                u64::MAX - 63,
                u64::MAX,
            ] {
                refuse!(call(leaf, DEACTIVATE, [beyond, 0, 0, 0, 0]), BadArgument);
                refuse!(call(leaf, READ, [beyond, 0, 0, 0, 0]), BadArgument);
                let args = [beyond, leaf.into(), 1, 0, 0];
                refuse!(call(leaf, COPY_IN, args), BadArgument);
            }
            for beyond in [1 << 15, 1 << 32 | 5, u64::MAX] {
                refuse!(call(at::TABLE, READ, [beyond, 0, 0, 0, 0]), BadArgument);
                refuse!(
                    call(at::TABLE, DEACTIVATE, [beyond, 0, 0, 0, 0]),
                    BadArgument
                );
            }
            // Where no leaf hangs.
            refuse!(call(at::TABLE, READ, [40 * 64, 0, 0, 0, 0]), NoCap);
            for entry in [512, 1 << 32, u64::MAX] {
                let args = [entry, leaf.into(), 0, 0, 0];
                refuse!(call(at::TABLE, CONS, args), BadArgument);
                let decons = CaptblOp::Decons as u32;
                refuse!(call(at::TABLE, decons, [entry, 0, 0, 0, 0]), BadArgument);
            }
            // A leaf is no root, and a root no leaf.
            refuse!(call(leaf, CONS, [1, leaf.into(), 0, 0, 0]), BadArgument);
            let root: u64 = at::TABLE.into();
            refuse!(
                call(at::TABLE, CONS, [ENTRY.into(), root, 0, 0, 0]),
                BadArgument
            );
            refuse!(call(leaf, CaptblOp::Decons as u32, [0; 5]), BadArgument);
            // What it has itself without the right to copy.
            refuse!(call(leaf, COPY_IN, [1, source, 1, 0, 0]), Denied);
        },
        ..IDLE
    },
    Case {
        name: "captbl_overwrites_a_slot_of_the_victim",
        grant: |s| {
            let rights = CaptblOp::CopyIn
                .right()
                .or(CaptblOp::Activate.right())
                .or(CaptblOp::Read.right());
            s.attacker.give(at::SUBJECT, s.victim.leaf, rights)?;
            for ty in [CapType::Receive, CapType::Time] {
                let cap = sample(s, ty)?;
                s.attacker.give(at::full(ty), cap, Rights::ALL)?;
            }
            Ok(())
        },
        act: || {
            let time: u64 = at::full(CapType::Time).into();
            for slot in [at::THREAD, at::ENDPOINTS, at::hardware(0), at::SERVICE] {
                let slot: u64 = slot.into();
                refuse!(call(at::SUBJECT, COPY_IN, [slot, time, 1, 0, 0]), Exists);
                let to = u64::from(at::SUBJECT) << 32 | slot;
                let send = ReceiveOp::MakeSend as u32;
                refuse!(
                    call(at::full(CapType::Receive), send, [0, to, 1, 0, 0]),
                    Exists
                );
                refuse!(call(at::SUBJECT, DEACTIVATE, [slot, 0, 0, 0, 0]), Denied);
            }
        },
        ..IDLE
    },
    Case {
        name: "captbl_reading_a_table_is_no_use_of_it",
        grant: |s| {
            s.attacker.give(
                at::SUBJECT,
                s.victim.leaf,
                CaptblOp::Read.right().or(Rights::COPY),
            )?;
            s.attacker.give(at::TABLE, s.attacker.table, NO_COPY)
        },
        act: || {
            let slot: u64 = at::SERVICE.into();
            work!(call(at::SUBJECT, READ, [slot, 0, 0, 0, 0]));
            refuse!(call(at::SUBJECT, DEACTIVATE, [slot, 0, 0, 0, 0]), Denied);
            let args = [at::EMPTY.into(), at::SERVICE.into(), 1, 0, 0];
            refuse!(call(at::SUBJECT, COPY_IN, args), Denied);
            let cons = [ENTRY.into(), at::SUBJECT.into(), 0, 0, 0];
            refuse!(call(at::TABLE, CONS, cons), Denied);
        },
        ..IDLE
    },
    Case {
        name: "captbl_leaf_given_up_while_it_hangs",
        // Memory of the leaf that hangs in the attacker's table: its slots must not become user memory.
        grant: |s| {
            let (first, _) = s.attacker.scratch();
            let memory = s.store.memory(dyad_services::first::CXL, first, 8)?;
            patiently(|| memory.retype_kernel(0, ObjectKind::CaptblLeaf))?;
            let leaf: Cap<Captbl> = memory.activate(0, s.store.slot()?, Rights::ALL)?;
            s.attacker.table.cons(ENTRY, leaf)?;
            s.attacker
                .give(at::full(CapType::Memory), memory, Rights::ALL)
        },
        act: || {
            let memory = at::full(CapType::Memory);
            for _ in 0..4 {
                refuse!(call(memory, 2, [0; 5]), Exists);
                refuse!(call(memory, 7, [0; 5]), Exists);
                refuse!(call(memory, 1, [0; 5]), Exists);
            }
        },
        ..IDLE
    },
];
