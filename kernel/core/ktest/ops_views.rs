//! Invocations that a CPU remembers ([`dyad_machine::capcache`]): whatever is taken away is not entered any
//! more, by the fast path neither.
//!
//! Every test invokes often enough for the fast path, changes one thing, and invokes again.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, ComponentOp, Introspection, LivenessOp, ObjectKind, Rights,
    call_word,
};
use dyad_captbl::{Contents, SlotPlace};
use dyad_shm::frame::WeakRef;

use super::rig::Rig;
use super::{Outcome, Stop, ensure, gives, ktest};
use crate::syscall::slowpath::ENTER;
use dyad_object::component::Component;
use dyad_object::find;

pub(super) const ENTRY: u64 = 0x4200_1000;
const OFTEN: usize = 4;

pub(super) fn invoke(rig: &Rig<'_>, cap: CapIndex) -> u64 {
    let word = call_word(cap, 0);
    rig.cx.machine.syscall(word, [1, 2, 3, 4, 0]).status
}

pub(super) fn leave(rig: &Rig<'_>) -> u64 {
    let word = dyad_abi::cap::RETURN;
    rig.cx.machine.syscall(word, [0; 5]).status
}

/// A component and an endpoint that this CPU has invoked so often that it knows the way by heart.
pub(super) fn known(rig: &Rig<'_>) -> Result<(WeakRef, CapIndex), Stop> {
    rig.rooted()?;
    let (callee, _, _) = rig.other_component()?;
    let sinv = rig.sinv(callee, ENTRY, 5)?;
    for _ in 0..OFTEN {
        gives!(invoke(rig, sinv), ENTER);
        gives!(rig.k.local.component.get(), callee.bits());
        gives!(leave(rig), ENTER);
        gives!(rig.k.local.component.get(), rig.component.bits());
    }
    Ok((callee, sinv))
}

/// The next invocation is refused, and the caller goes on as it was.
pub(super) fn refused(rig: &Rig<'_>, sinv: CapIndex, why: Error) -> Outcome {
    gives!(Error::from_code(invoke(rig, sinv)), Some(why));
    gives!(rig.k.local.component.get(), rig.component.bits());
    gives!(rig.k.local.captbl.get(), rig.root.frame.address());
    let t = rig.as_thread(rig.thread)?;
    gives!(t.depth.load(Ordering::Relaxed), 0);
    Ok(None)
}

#[ktest(ops)]
fn known_endpoints_that_are_deactivated_are_gone(rig: &Rig<'_>) -> Outcome {
    let (_, sinv) = known(rig)?;
    let table = rig.table()?;
    let gone = rig.sys(table, CaptblOp::Deactivate as u32, &[sinv.get() as u64]);
    ensure!(gone.is_ok(), "not deactivated: {gone:?}");
    refused(rig, sinv, Error::NoCap)
}

#[ktest(ops)]
fn known_endpoints_go_with_their_leaf(rig: &Rig<'_>) -> Outcome {
    let (callee, _) = known(rig)?;
    let leaf = rig.object(ObjectKind::CaptblLeaf)?;
    rig.hang(9, leaf)?;
    let place = SlotPlace::new(leaf, 3).ok_or(Error::BadArgument)?;
    let contents = Contents {
        ty: CapType::Sinv,
        rights: Rights::ALL,
        object: Some(callee),
        guard: None,
        payload: [ENTRY, 0, 0],
    };
    crate::syscall::ops::captbl::activate(&rig.k, place, &contents)?;
    let there = CapIndex(9 * 64 + 3);
    for _ in 0..OFTEN {
        gives!(invoke(rig, there), ENTER);
        gives!(leave(rig), ENTER);
    }
    let table = rig.table()?;
    let out = rig.sys(table, CaptblOp::Decons as u32, &[9]);
    ensure!(out.is_ok(), "not taken out: {out:?}");
    refused(rig, there, Error::NoCap)
}

#[ktest(ops)]
fn known_components_that_are_given_up_are_not_entered(rig: &Rig<'_>) -> Outcome {
    let (callee, sinv) = known(rig)?;
    crate::syscall::ops::memory::to_untyped(&rig.k, callee.frame)?;
    refused(rig, sinv, Error::Revoked)
}

#[ktest(ops)]
fn known_components_are_entered_with_their_present_table(rig: &Rig<'_>) -> Outcome {
    let (callee, sinv) = known(rig)?;
    let root = rig.object(ObjectKind::CaptblRoot)?;
    let c: &Component = find(rig.cx.node, callee, Component::KIND)?;
    crate::syscall::ops::component::set_parts(&rig.k, c, root, rig.space)?;
    gives!(invoke(rig, sinv), ENTER);
    gives!(rig.k.local.captbl.get(), root.frame.address());
    gives!(leave(rig), ENTER);
    gives!(rig.k.local.captbl.get(), rig.root.frame.address());
    Ok(None)
}

#[ktest(ops)]
fn known_callers_are_returned_to_with_their_present_table(rig: &Rig<'_>) -> Outcome {
    let (_, sinv) = known(rig)?;
    gives!(invoke(rig, sinv), ENTER);
    let root = rig.object(ObjectKind::CaptblRoot)?;
    let c: &Component = find(rig.cx.node, rig.component, Component::KIND)?;
    crate::syscall::ops::component::set_parts(&rig.k, c, root, rig.space)?;
    gives!(leave(rig), ENTER);
    gives!(rig.k.local.captbl.get(), root.frame.address());
    Ok(None)
}

#[ktest(ops)]
fn known_callers_that_are_gone_are_not_returned_to(rig: &Rig<'_>) -> Outcome {
    let (callee, sinv) = known(rig)?;
    // The caller is within an invocation itself: from an outermost one the thread would end.
    rig.as_thread(rig.thread)?.depth.store(1, Ordering::Relaxed);
    gives!(invoke(rig, sinv), ENTER);
    crate::syscall::ops::memory::to_untyped(&rig.k, rig.component.frame)?;
    gives!(Error::from_code(leave(rig)), Some(Error::Revoked));
    gives!(rig.k.local.component.get(), callee.bits());
    Ok(None)
}

#[ktest(ops)]
fn known_ways_are_forgotten_in_rounds(rig: &Rig<'_>) -> Outcome {
    let (callee, sinv) = known(rig)?;
    rig.round()?;
    // As after a round in which all of it has been given to another component.
    let c: &Component = find(rig.cx.node, callee, Component::KIND)?;
    let generation = c.generation.load(Ordering::Relaxed);
    let captbl = c.captbl.load(Ordering::Relaxed);
    c.captbl.store(0, Ordering::Relaxed);
    gives!(c.generation.load(Ordering::Relaxed), generation);
    let outcome = refused(rig, sinv, Error::NotReady);
    c.captbl.store(captbl, Ordering::Relaxed);
    outcome
}

#[ktest(ops)]
fn known_components_with_another_home_are_not_entered_here(rig: &Rig<'_>) -> Outcome {
    let (callee, sinv) = known(rig)?;
    let c = rig.cap(ObjectKind::Component, callee, Rights::ALL)?;
    let elsewhere = 1 << rig.cx.next().index();
    gives!(rig.sys(c, ComponentOp::SetHome as u32, &[elsewhere]), Ok(0));
    // The thread of this test has no scheduler, so that it cannot cross.
    refused(rig, sinv, Error::NotReady)
}

#[ktest(ops)]
fn known_endpoints_are_those_of_the_running_component(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    let (callee, _, leaf) = rig.other_component()?;
    let (third, _, _) = rig.other_component()?;
    let sinv = rig.sinv(callee, ENTRY, 1)?;
    // The same index in the callee leads to a third component.
    let place = SlotPlace::new(leaf, sinv.get()).ok_or(Error::BadArgument)?;
    let contents = Contents {
        ty: CapType::Sinv,
        rights: Rights::ALL,
        object: Some(third),
        guard: None,
        payload: [ENTRY + 8, 2, 0],
    };
    crate::syscall::ops::captbl::activate(&rig.k, place, &contents)?;
    for _ in 0..OFTEN {
        gives!(invoke(rig, sinv), ENTER);
        gives!(rig.k.local.component.get(), callee.bits());
        gives!(invoke(rig, sinv), ENTER);
        gives!(rig.k.local.component.get(), third.bits());
        gives!(leave(rig), ENTER);
        gives!(rig.k.local.component.get(), callee.bits());
        gives!(leave(rig), ENTER);
        gives!(rig.k.local.component.get(), rig.component.bits());
    }
    Ok(None)
}

#[ktest(ops)]
fn guarded_endpoints_are_never_known_by_heart(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    let (callee, _, _) = rig.other_component()?;
    let live = rig.object(ObjectKind::Liveness)?;
    let guard = rig.k.captbls().expected(live, 0).map_err(Error::from)?;
    let all = Rights::ALL;
    let payload = [ENTRY, 0, 0];
    let sinv = rig.put_guarded(CapType::Sinv, all, Some(callee), payload, Some(guard))?;
    for _ in 0..OFTEN {
        gives!(invoke(rig, sinv), ENTER);
        gives!(leave(rig), ENTER);
    }
    let l = rig.cap(ObjectKind::Liveness, live, Rights::ALL)?;
    rig.sys(l, LivenessOp::Revoke as u32, &[0])?;
    refused(rig, sinv, Error::Revoked)
}

/// More endpoints and components than a CPU remembers, in turn: each leads where it leads.
#[ktest(ops)]
fn many_known_ways_do_not_get_mixed_up(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    let mut ways = [None; 20];
    for (i, way) in ways.iter_mut().enumerate() {
        let (callee, _, _) = rig.other_component()?;
        *way = Some((callee, rig.sinv(callee, ENTRY + i as u64 * 8, i as u64)?));
    }
    for round in 0..OFTEN * 8 {
        for (i, &(callee, sinv)) in ways.iter().flatten().enumerate() {
            if (round * 7 + i) % 3 == 0 {
                continue;
            }
            let r = rig.cx.machine.syscall(call_word(sinv, 0), [0; 5]);
            gives!((r.status, r.value), (ENTER, i as u64));
            gives!(rig.k.local.component.get(), callee.bits());
            let t = rig.as_thread(rig.thread)?;
            let area = t.regs(rig.cx.machine.isa());
            gives!(rig.cx.machine.user_pc_sp(area), (ENTRY + i as u64 * 8, 0));
            gives!(leave(rig), ENTER);
        }
    }
    let told = Introspection::from_bits(rig.sys(rig.table()?, 30, &[])?);
    gives!(told.map(|t| t.kind), Some(CapType::Captbl));
    Ok(None)
}
