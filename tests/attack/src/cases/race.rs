//! Two threads of the attacker at the same thing at the same time: on two CPUs, or on two nodes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_abi::cap::{
    CapType, CaptblOp, Introspection, LivenessOp, MemoryOp, ObjectKind, Rights, SpaceOp, ThreadOp,
};
use dyad_abi::emulation::general;
use dyad_abi::{Error, NodeId, Result};
use dyad_services::first::CXL;
use dyad_sys::cap::{Cap, Captbl, Component, Liveness, Sinv};

use super::generic::{own_table, sample};
use super::memory::{own_space, page_at};
use super::service::gadget;
use super::thread::{control, helper, try_to_begin_helper, try_to_resume_helper_at};
use super::{Case, IDLE};
use crate::me::{achieved, call, here, invoke, note, odd, place, tried, yield_now};
use crate::run::Scene;
use crate::shared::{CLIENT, NOWHERE, at, call as ask, duty, word, word_of};
use crate::store::patiently;
use crate::work;

const MEMORY: u32 = at::full(CapType::Memory);
const LEAF: u32 = at::full(CapType::Captbl);
const LIVENESS: u32 = at::full(CapType::Liveness);
/// Rounds of a race.
const ROUNDS: u64 = 3000;
/// Not 0: helpers rest.
const REST: usize = 4;

fn rest() -> bool {
    if note(REST).load(Acquire) != 0 {
        yield_now();
        return true;
    }
    false
}

pub const CASES: [Case; 5] = [
    Case {
        name: "race_retype_against_map",
        helpers: 2,
        far: true,
        grant: |s| {
            own_table(s)?;
            own_space(s)?;
            let (first, _) = s.attacker.scratch();
            let memory = s.store.memory(CXL, first, 4)?;
            s.attacker.give(MEMORY, memory, Rights::ALL)
        },
        act: || {
            let mut mapped = 0;
            for n in 0..ROUNDS {
                tried();
                let slot = at::FREE + (n % 150) as u32;
                let all: u64 = u32::MAX.into();
                let args = [0, place(slot), all, 0, 0];
                if call(MEMORY, MemoryOp::Activate as u32, args).is_err() {
                    let _ = call(
                        at::TABLE,
                        CaptblOp::Deactivate as u32,
                        [slot.into(), 0, 0, 0, 0],
                    );
                    continue;
                }
                let map = [page_at(), NOWHERE, slot.into(), 0, 1];
                if call(at::SPACE, SpaceOp::Map as u32, map).is_ok() {
                    mapped += 1;
                    // As long as it is mapped it is this component's, and nobody else's.
                    for i in 0..64 {
                        word_of(NOWHERE, i).store(n << 8 | i as u64, Relaxed);
                    }
                    for i in 0..64 {
                        let now = word_of(NOWHERE, i).load(Relaxed);
                        if now != n << 8 | i as u64 {
                            achieved(line!(), now);
                        }
                    }
                    work!(call(
                        at::SPACE,
                        SpaceOp::Unmap as u32,
                        [page_at(), NOWHERE, 0, 0, 0]
                    ));
                }
                let _ = call(
                    at::TABLE,
                    CaptblOp::Deactivate as u32,
                    [slot.into(), 0, 0, 0, 0],
                );
            }
            note(1).store(mapped, Relaxed);
            note(REST).store(1, Release);
        },
        help: |n| {
            if rest() {
                return;
            }
            let kind = match n {
                1 => ObjectKind::CaptblLeaf,
                _ => ObjectKind::PageTableX86L1,
            };
            let _ = call(MEMORY, MemoryOp::RetypeUser as u32, [0; 5]);
            let _ = call(MEMORY, MemoryOp::RetypeUntyped as u32, [0; 5]);
            let _ = call(
                MEMORY,
                MemoryOp::RetypeKernel as u32,
                [0, kind as u64, 0, 0, 0],
            );
            let _ = call(MEMORY, MemoryOp::RetypeUntyped as u32, [0; 5]);
        },
        ..IDLE
    },
    Case {
        name: "race_stop_write_resume",
        // Two that write registers of a third, which is in the service nearly all the time.
        helpers: 2,
        far: true,
        grant: control,
        act: || {
            for n in 0..ROUNDS / 4 {
                tried();
                strike();
                if n % 16 == 15 {
                    yield_now();
                }
            }
        },
        // They go on until they are taken down: the warden has to stop threads that resume each other.
        help: |n| match n {
            1 => {
                let _ = invoke(at::SERVICE, [ask::WORK, 20_000, 0, 0]);
            }
            _ => strike(),
        },
        ..IDLE
    },
    Case {
        name: "race_cons_against_lookup",
        helpers: 1,
        grant: |s| {
            let leaf: Cap<Captbl> = s.attacker.object(s.store, ObjectKind::CaptblLeaf)?;
            let time = sample(s, CapType::Time)?;
            let part = dyad_sys::cap::Narrow::ALL;
            let five = dyad_abi::cap::CapIndex(5);
            patiently(|| leaf.copy_in(five, time, Rights::ALL, None, part))?;
            s.attacker.give(LEAF, leaf, Rights::ALL)?;
            s.attacker.give(at::TABLE, s.attacker.table, Rights::ALL)
        },
        act: || {
            let mut seen = 0;
            for _ in 0..ROUNDS {
                tried();
                match call(9 * 64 + 5, 30, [0; 5]) {
                    Ok(v)
                        if Introspection::from_bits(v).is_some_and(|i| i.kind == CapType::Time) =>
                    {
                        seen += 1;
                    }
                    Ok(v) => achieved(line!(), v),
                    Err(Error::NoCap) => {}
                    Err(e) => odd(line!(), e.code()),
                }
            }
            note(1).store(seen, Relaxed);
            note(REST).store(1, Release);
        },
        help: |_| {
            if rest() {
                return;
            }
            let _ = call(at::TABLE, CaptblOp::Cons as u32, [9, LEAF.into(), 0, 0, 0]);
            let _ = call(at::TABLE, CaptblOp::Decons as u32, [9, 0, 0, 0, 0]);
        },
        ..IDLE
    },
    Case {
        name: "race_copy_against_revoke",
        helpers: 1,
        grant: |s| {
            own_table(s)?;
            let liveness: Cap<Liveness> = s.attacker.object(s.store, ObjectKind::Liveness)?;
            s.attacker.give(LIVENESS, liveness, Rights::ALL)?;
            let time = sample(s, CapType::Time)?;
            s.attacker.give(at::full(CapType::Time), time, Rights::ALL)
        },
        act: || {
            for n in 0..60u64 {
                tried();
                let (first, second) = (at::FREE + n as u32, at::FREE + 64 + n as u32);
                let guard = u64::from(LIVENESS) | 1 << 15;
                let how = guard << 32 | u64::from(u32::MAX);
                let time = at::full(CapType::Time).into();
                work!(call(
                    at::TABLE,
                    CaptblOp::CopyIn as u32,
                    [first.into(), time, how, 0, 0]
                ));
                // The helper revokes while this copies.
                note(0).store(n + 1, Release);
                let copied = crate::me::copy(second, first, Rights::ALL);
                while note(1).load(Acquire) != n + 1 {
                    yield_now();
                }
                for slot in [first, second] {
                    match call(slot, 2, [0; 5]) {
                        Err(Error::Revoked) => {}
                        Err(Error::NoCap) if slot == second && copied.is_err() => {}
                        Ok(_) => achieved(line!(), slot.into()),
                        Err(e) => odd(line!(), e.code()),
                    }
                }
            }
            note(REST).store(1, Release);
        },
        help: |_| {
            let asked = note(0).load(Acquire);
            if note(1).load(Relaxed) == asked {
                yield_now();
                return;
            }
            work!(call(LIVENESS, LivenessOp::Revoke as u32, [1, 0, 0, 0, 0]));
            note(1).store(asked, Release);
        },
        ..IDLE
    },
    Case {
        name: "race_shootdowns_against_crossed_invocations",
        // The attacker fills inboxes; the victim calls a service of its own on another node.
        helpers: 2,
        far: true,
        grant: |s| {
            own_space(s)?;
            far_service(s)?;
            s.tell_victim(word::DUTY, duty::CROSS);
            Ok(())
        },
        act: || {
            for _ in 0..40 {
                for _ in 0..60 {
                    flood();
                }
                yield_now();
            }
            note(REST).store(1, Release);
        },
        help: |_| {
            if !rest() {
                flood();
            }
        },
        look: |s| (s.victim_says(word::NOTES) < 3).then_some("the victim has hardly crossed"),
        ..IDLE
    },
];

/// Stops the helper, gives it a program counter, lets it go on. Of a helper that was hit in its own
/// component nothing is left but that it is begun again.
fn strike() {
    let isa = here().1;
    if helper(ThreadOp::Stop, [0; 3]).is_err() {
        yield_now();
        return;
    }
    let target = gadget as extern "C" fn() as usize as u64;
    let write = [isa as u64, general(isa) as u64, target];
    match helper(ThreadOp::WriteRegister, write) {
        Ok(_) => {
            // The other one may be at it.
            if helper(ThreadOp::Resume, [0; 3]).is_ok() {
                yield_now();
                for _ in 0..1000 {
                    if helper(ThreadOp::Stop, [0; 3]).is_ok() {
                        break;
                    }
                    yield_now();
                }
            }
            again();
        }
        Err(_) => {
            let _ = helper(ThreadOp::Resume, [0; 3]);
        }
    }
}

/// Begins the helper again. The kernel refuses that while another thread does so, or while the helper runs: it goes on
/// as it is then.
fn again() {
    if try_to_begin_helper().is_ok() {
        let _ = try_to_resume_helper_at(here().0, 0);
    }
}

fn flood() {
    tried();
    match call(
        at::SPACE,
        SpaceOp::Shootdown as u32,
        [NOWHERE, 4096, 0, 0, 0],
    ) {
        Ok(_) | Err(Error::Again | Error::Full) => {}
        Err(e) => odd(line!(), e.code()),
    }
}

/// Gives the victim a way to its own service whose home is the last node. Gives that capability of the warden.
pub fn far_service(s: &mut Scene<'_>) -> Result<Cap<Sinv>> {
    let far: Cap<Component> = s.victim.object(s.store, ObjectKind::Component)?;
    far.configure(s.victim.table, s.victim.space)?;
    let last = NodeId::new(s.store.nodes - 1).ok_or(Error::NoSuchNode)?;
    far.set_home([last])?;
    let sinv = s.victim.entry_of(s.store, s.image, far, CLIENT)?;
    s.victim
        .give(crate::victim::FAR_SERVICE, sinv, crate::build::INVOKE)?;
    Ok(sinv)
}
