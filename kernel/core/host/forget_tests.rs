//! What a CPU has cached is gone, kind by kind, after everything that lets others reuse what it rests on.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use dyad_abi::Isa;
use dyad_abi::cap::{CapType, ObjectKind, RegionKind, Rights, SpaceOp, TableAt, call_word};
use dyad_abi::user::PAGE_SIZE;
use dyad_captbl::{Contents, SlotPlace};
use dyad_pgtbl::Perms;

use super::race_tests::at_each_step;
use super::thread_tests::solo;
use super::{Did, Machine, MockX86, crash};
use crate::ktest::rig::Rig;
use crate::ktest::spaces;
use crate::sched::{dispatch, quiet};
use crate::syscall::slowpath::ENTER;
use dyad_machine::capcache::leaf;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::FaultKind;
use dyad_space::mapping::{FastSpace, page};
use dyad_space::resolve::resolve_here;

const VA: u64 = 0x5000_0000;
const SERVICE: u64 = 0x4200_2000;
/// Kinds of cached things: see [`CapCache::cached`](dyad_machine::capcache::CapCache::cached).
const KINDS: [&str; 7] = [
    "components",
    "invocation endpoints",
    "capabilities",
    "leaves",
    "page tables",
    "blocks",
    "regions",
];

/// Has the CPU cache something of each kind.
fn learn(rig: &Rig<'_>) -> dyad_abi::Result<()> {
    let isa = Isa::X86_64;
    let (callee, _, _) = rig.other_component()?;
    let sinv = rig.sinv(callee, SERVICE, 0)?;
    for _ in 0..2 {
        let machine = rig.cx.machine;
        assert_eq!(machine.syscall(call_word(sinv, 0), [0; 5]).status, ENTER);
        assert_eq!(machine.syscall(dyad_abi::cap::RETURN, [0; 5]).status, ENTER);
    }
    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    let user = rig.user()?;
    spaces::map(
        rig,
        rig.space,
        isa,
        VA,
        page(user.frame.address(), Perms::READ),
    )?;
    let kind = RegionKind::Anonymous as u64;
    spaces::region(&rig.k, rig.space, VA, PAGE_SIZE, kind)?;
    let at = TableAt { isa, level: 1 }.bits();
    for _ in 0..2 {
        // Read-only is what it is.
        rig.sys(space, SpaceOp::Protect as u32, &[at, VA, 0])?;
    }
    let near = FastSpace {
        local: rig.k.local,
        object: rig.space.bits(),
    };
    assert!(near.block(user.frame.address()).is_some());
    assert!(leaf::slot(rig.k.local, rig.root.bits(), true, 1).is_some());
    let _ = resolve_here::<MockX86>(rig.k.local, VA + PAGE_SIZE, FaultKind::Read);
    Ok(())
}

/// Nothing of any kind is left after `act`.
fn all_go_with(act: fn(&Rig<'_>, Machine)) {
    solo::<MockX86>(|rig, m| {
        learn(rig)?;
        let cached = |k: &KernelCtx| k.local.cache.cached();
        for (kind, n) in KINDS.iter().zip(cached(&rig.k)) {
            assert_ne!(n, 0, "no {kind} to forget");
        }
        act(rig, m);
        for (kind, n) in KINDS.iter().zip(cached(&rig.k)) {
            assert_eq!(n, 0, "{kind} that are still cached");
        }
        Ok(None)
    });
}

#[test]
fn every_kind_is_forgotten_at_once() {
    all_go_with(|rig, _| rig.k.local.cache.forget());
}

#[test]
fn every_kind_is_forgotten_in_a_round() {
    all_go_with(|rig, m| {
        m.did();
        while quiet::flush_step::<MockX86>(&rig.k, quiet::MAX_STEPS) == Ok(0) {}
        assert!(m.did().contains(&Did::FlushedTlb));
    });
}

#[test]
fn every_kind_is_forgotten_before_sleep() {
    all_go_with(|rig, m| {
        m.did();
        rig.k.local.thread.set(None);
        dispatch::leave_space::<MockX86>(&rig.k);
        assert!(quiet::sleep::<MockX86>(&rig.k, || false));
        assert!(m.did().contains(&Did::FlushedTlb));
        quiet::wake(&rig.k);
    });
}

/// A slot that is filled while the CPU looks whether it is empty is not cached as empty.
#[test]
fn a_slot_that_is_filled_meanwhile_is_not_cached_as_empty() {
    let introspect = dyad_abi::cap::INTROSPECT;
    at_each_step(|rig, steps| {
        let (empty, time) = (rig.free_slot(), rig.object(ObjectKind::Time).unwrap());
        let (_, payload) = dyad_object::kinds::of(ObjectKind::Time).capability();
        let contents = Contents {
            ty: CapType::Time,
            rights: Rights::ALL,
            object: Some(time),
            guard: None,
            payload,
        };
        let place = SlotPlace::new(rig.leaf, empty.get()).unwrap();
        let k = rig.k;
        let fill = move || crate::syscall::ops::captbl::activate(&k, place, &contents).unwrap();
        let came = crash::between(steps, fill, || {
            let _ = rig.sys(empty, introspect, &[]);
        });
        for time in 0..2 {
            let is_there = rig.sys(empty, introspect, &[]).is_ok();
            assert_eq!(is_there, came, "step {steps}, the {time}. time after it");
        }
        came
    });
}
