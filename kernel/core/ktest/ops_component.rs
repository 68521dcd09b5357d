//! Components: what they consist of, invocation and its return, fault handlers.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::cap::{
    COPY, CapIndex, CapType, ComponentOp, Introspection, LivenessOp, ObjectKind, Rights, SinvOp,
    call_word,
};
use dyad_abi::service::INVOKE_DEPTH;
use dyad_abi::user::USER_END;
use dyad_captbl::{Contents, SlotPlace};
use dyad_shm::frame::WeakRef;

use super::rig::{self, Rig, all_but, needs_its_right};
use super::{Outcome, Stop, ensure, gives, ktest, spaces};
use crate::syscall::slowpath::{ENTER, FastReturn};
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_object::thread::State;

const CONFIGURE: u32 = ComponentOp::Configure as u32;
const HANDLER: u32 = ComponentOp::SetFaultHandler as u32;
const HOME: u32 = ComponentOp::SetHome as u32;
const SINV: u32 = ComponentOp::MakeSinv as u32;
const INTROSPECT: u32 = dyad_abi::cap::INTROSPECT;
const ENTRY: u64 = 0x4200_1000;
const PC: u64 = 0x4100_0040;
const SP: u64 = 0x4300_0f00;

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

fn invoke(rig: &Rig<'_>, cap: CapIndex, a: [u64; 4]) -> FastReturn {
    let [a0, a1, a2, a3] = a;
    rig.cx
        .machine
        .syscall(call_word(cap, 0), [a0, a1, a2, a3, 0])
}

fn refused(rig: &Rig<'_>, cap: CapIndex) -> Result<Option<Error>, Stop> {
    let r = invoke(rig, cap, [1, 2, 3, 4]);
    Ok(Error::from_code(r.status))
}

fn leave(rig: &Rig<'_>) -> FastReturn {
    rig.cx
        .machine
        .syscall(dyad_abi::cap::RETURN, [9, 8, 7, 6, 0])
}

/// Where the running thread is: program counter, stack pointer, component, table.
fn position(rig: &Rig<'_>) -> Result<(u64, u64, u64, u64), Stop> {
    let t = rig.as_thread(rig.thread)?;
    let (pc, sp) = rig.cx.machine.user_pc_sp(t.regs(rig.cx.machine.isa()));
    let local = rig.k.local;
    Ok((pc, sp, local.component.get(), local.captbl.get().0))
}

fn place(rig: &Rig<'_>) -> Result<(), Stop> {
    let t = rig.as_thread(rig.thread)?;
    let area = t.regs(rig.cx.machine.isa());
    rig.cx.machine.init_regs(area, PC, SP, 0);
    rig.cx.machine.set_user_pc_sp(area, PC, SP);
    t.id.store(5, Ordering::Relaxed);
    Ok(())
}

/// A capability in a leaf of another component.
fn put_there(rig: &Rig<'_>, leaf: WeakRef, at: u32, ty: CapType, object: WeakRef) -> Outcome {
    let place = SlotPlace::new(leaf, at).ok_or(Error::BadArgument)?;
    let contents = Contents {
        ty,
        rights: Rights::ALL,
        object: Some(object),
        guard: None,
        payload: [ENTRY, 0, 0],
    };
    crate::syscall::ops::captbl::activate(&rig.k, place, &contents)?;
    Ok(None)
}

#[ktest(ops)]
fn components_consist_of_a_root_and_a_space(rig: &Rig<'_>) -> Outcome {
    let (c, _) = rig.new_cap(ObjectKind::Component)?;
    let table = rig.table()?;
    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    let leaf = rig.cap(ObjectKind::CaptblLeaf, rig.leaf, Rights::ALL)?;
    let configure = |t: CapIndex, s: CapIndex| rig.sys(c, CONFIGURE, &[n(t), n(s)]);
    gives!(configure(leaf, space), Err(Error::BadArgument));
    gives!(configure(space, space), Err(Error::WrongCap));
    gives!(configure(table, table), Err(Error::WrongCap));
    gives!(configure(rig.free_slot(), space), Err(Error::NoCap));
    gives!(configure(table, rig.free_slot()), Err(Error::NoCap));
    let fixed = rig.cap(ObjectKind::CaptblRoot, rig.root, all_but(COPY))?;
    gives!(configure(fixed, space), Err(Error::Denied));
    let fixed = rig.cap(ObjectKind::Space, rig.space, all_but(COPY))?;
    gives!(configure(table, fixed), Err(Error::Denied));
    let refs = |w: WeakRef| rig.k.frames().read(w.frame).map(|(w, _)| w.refs.get());
    let before = (refs(rig.root)?, refs(rig.space)?);
    gives!(configure(table, space), Ok(0));
    // Once more: what it pinned before is unpinned.
    gives!(configure(table, space), Ok(0));
    gives!(
        (refs(rig.root)?, refs(rig.space)?),
        (before.0 + 1, before.1 + 1)
    );
    Ok(None)
}

#[ktest(ops)]
fn configure_refuses_parts_that_are_gone(rig: &Rig<'_>) -> Outcome {
    let (c, _) = rig.new_cap(ObjectKind::Component)?;
    let (table, root) = rig.new_cap(ObjectKind::CaptblRoot)?;
    let (space, object) = rig.new_cap(ObjectKind::Space)?;
    crate::syscall::ops::memory::to_untyped(&rig.k, object.frame)?;
    let is = rig.sys(c, CONFIGURE, &[n(table), n(space)]);
    gives!(is, Err(Error::Revoked));
    gives!(rig.k.frames().read(root.frame)?.0.refs.get(), 0);
    Ok(None)
}

#[ktest(ops)]
fn operations_on_components_need_their_rights(rig: &Rig<'_>) -> Outcome {
    let of = (CapType::Component, Some(rig.component), [0; 3]);
    for &op in ComponentOp::ALL {
        needs_its_right(rig, of, op as u32, &[0, 0, 0])?;
    }
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    rig::has_no_other_operations(rig, c, &[CONFIGURE, HANDLER, HOME, SINV])
}

#[ktest(ops)]
fn homes_are_nodes_of_the_system(rig: &Rig<'_>) -> Outcome {
    let (c, _) = rig.new_cap(ObjectKind::Component)?;
    let all = (1 << rig.cx.node.params.node_count) - 1;
    for home in [0, 1, all] {
        gives!(rig.sys(c, HOME, &[home]), Ok(0));
    }
    for home in [all + 1, 1 << 63, u64::MAX] {
        gives!(rig.sys(c, HOME, &[home]), Err(Error::NoSuchNode));
    }
    Ok(None)
}

#[ktest(ops)]
fn invocation_endpoints_have_user_addresses(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    let at = rig.free_slot();
    let word = n(table) << 32 | n(at);
    for bad in [0, USER_END, u64::MAX] {
        let is = rig.sys(c, SINV, &[word, bad, 0, 1]);
        gives!(is, Err(Error::BadAddress));
    }
    gives!(rig.sys(c, SINV, &[n(at), ENTRY, 0, 1]), Err(Error::NoCap));
    gives!(rig.sys(c, SINV, &[word, ENTRY, 0, 1 << 30]), Ok(0));
    let told = Introspection::from_bits(rig.sys(at, INTROSPECT, &[])?);
    let told = told.ok_or(Error::Corrupt)?;
    gives!((told.kind, told.rights), (CapType::Sinv, Rights(1 << 30)));
    gives!(rig.sys(c, SINV, &[word, ENTRY, 0, 1]), Err(Error::Exists));
    // Without its right it cannot be invoked.
    gives!(refused(rig, at)?, Some(Error::Denied));
    Ok(None)
}

#[ktest(ops)]
fn invocation_enters_the_callee_and_return_comes_back(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    place(rig)?;
    let (callee, root, _) = rig.other_component()?;
    let sinv = rig.sinv(callee, ENTRY, 0xbad9e)?;
    let before = position(rig)?;
    let r = invoke(rig, sinv, [1, 2, 3, 4]);
    gives!((r.status, r.value), (ENTER, 0xbad9e));
    gives!(rig.k.local.fast_token.get(), 5 << 8 | 1);
    let inside = (ENTRY, 0, callee.bits(), root.frame.address().0);
    gives!(position(rig)?, inside);
    gives!(leave(rig).status, ENTER);
    gives!(position(rig)?, before);
    let t = rig.as_thread(rig.thread)?;
    gives!(t.depth.load(Ordering::Relaxed), 0);
    gives!(t.component.load(Ordering::Relaxed), rig.component.bits());
    Ok(None)
}

#[ktest(ops)]
fn callees_use_their_own_capabilities(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    place(rig)?;
    let (callee, _, leaf) = rig.other_component()?;
    let sinv = rig.sinv(callee, ENTRY, 0)?;
    let (mine, _) = rig.new_cap(ObjectKind::Time)?;
    let theirs = rig.object(ObjectKind::Thread)?;
    put_there(rig, leaf, mine.get(), CapType::Thread, theirs)?;
    let kind = |rig: &Rig<'_>| {
        let told = rig.sys(mine, INTROSPECT, &[]).ok();
        told.and_then(Introspection::from_bits).map(|i| i.kind)
    };
    gives!(kind(rig), Some(CapType::Time));
    gives!(invoke(rig, sinv, [0; 4]).status, ENTER);
    // The same index in the callee is the callee's.
    gives!(kind(rig), Some(CapType::Thread));
    gives!(rig.sys(sinv, INTROSPECT, &[]), Err(Error::NoCap));
    gives!(leave(rig).status, ENTER);
    gives!(kind(rig), Some(CapType::Time));
    Ok(None)
}

#[ktest(ops)]
fn invocation_refuses_what_is_no_endpoint(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    place(rig)?;
    let before = position(rig)?;
    gives!(refused(rig, rig.free_slot())?, Some(Error::NoCap));
    gives!(refused(rig, CapIndex(1 << 15))?, Some(Error::NoCap));
    gives!(refused(rig, CapIndex(u32::MAX))?, Some(Error::NoCap));
    // Operation 0 of something else is that operation, and needs its right.
    let time = rig.object(ObjectKind::Time)?;
    let time = rig.cap(ObjectKind::Time, time, Rights(1 << 30))?;
    gives!(refused(rig, time)?, Some(Error::Denied));
    // A component that is not configured.
    let bare = rig.object(ObjectKind::Component)?;
    let sinv = rig.sinv(bare, ENTRY, 0)?;
    gives!(refused(rig, sinv)?, Some(Error::NotReady));
    // One that is gone.
    crate::syscall::ops::memory::to_untyped(&rig.k, bare.frame)?;
    gives!(refused(rig, sinv)?, Some(Error::Revoked));
    // Operations that invocation endpoints do not have.
    let (callee, _, _) = rig.other_component()?;
    let sinv = rig.sinv(callee, ENTRY, 0)?;
    gives!(rig.sys(sinv, 1, &[]), Err(Error::BadSyscall));
    gives!(position(rig)?, before);
    Ok(None)
}

#[ktest(ops)]
fn invocation_by_a_guarded_endpoint_ends_with_its_revocation(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    place(rig)?;
    let (callee, _, _) = rig.other_component()?;
    let live = rig.object(ObjectKind::Liveness)?;
    let guard = rig.k.captbls().expected(live, 3).map_err(Error::from)?;
    let payload = [ENTRY, 1, 0];
    let all = Rights::ALL;
    let sinv = rig.put_guarded(CapType::Sinv, all, Some(callee), payload, Some(guard))?;
    gives!(invoke(rig, sinv, [0; 4]).status, ENTER);
    gives!(leave(rig).status, ENTER);
    let l = rig.cap(ObjectKind::Liveness, live, Rights::ALL)?;
    rig.sys(l, LivenessOp::Revoke as u32, &[3])?;
    gives!(refused(rig, sinv)?, Some(Error::Revoked));
    Ok(None)
}

#[ktest(ops)]
fn invocations_nest_to_a_bound(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    place(rig)?;
    let sinv = rig.sinv(rig.component, ENTRY, 0)?;
    for depth in 1..=INVOKE_DEPTH as u64 {
        gives!(invoke(rig, sinv, [0; 4]).status, ENTER);
        gives!(rig.k.local.fast_token.get(), 5 << 8 | depth);
    }
    let before = position(rig)?;
    gives!(refused(rig, sinv)?, Some(Error::TooDeep));
    gives!(position(rig)?, before);
    for _ in 0..INVOKE_DEPTH {
        gives!(leave(rig).status, ENTER);
    }
    gives!(position(rig)?, (PC, SP, before.2, before.3));
    gives!(Error::from_code(leave(rig).status), Some(Error::TooDeep));
    gives!(position(rig)?, (PC, SP, before.2, before.3));
    Ok(None)
}

#[ktest(ops)]
fn return_to_a_component_that_is_gone_leads_one_further_out(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    place(rig)?;
    let before = position(rig)?;
    let (middle, _, leaf) = rig.other_component()?;
    let (last, root, _) = rig.other_component()?;
    let there = rig.free_slot();
    put_there(rig, leaf, there.get(), CapType::Sinv, last)?;
    let first = rig.sinv(middle, ENTRY, 0)?;
    gives!(invoke(rig, first, [0; 4]).status, ENTER);
    gives!(invoke(rig, there, [0; 4]).status, ENTER);
    crate::syscall::ops::memory::to_untyped(&rig.k, middle.frame)?;
    gives!(Error::from_code(leave(rig).status), Some(Error::Revoked));
    // Still in the callee, with the callee's table.
    let at = position(rig)?;
    gives!((at.2, at.3), (last.bits(), root.frame.address().0));
    gives!(leave(rig).status, ENTER);
    gives!(position(rig)?, before);
    Ok(None)
}

/// A caller takes its page table away while a callee works for it. The callee must not go on with
/// the caller's capabilities.
#[ktest(ops)]
fn return_that_fails_leaves_the_callee_its_own_table(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    place(rig)?;
    let isa = rig.cx.machine.isa();
    // A callee in a space of its own.
    let callee = rig.object(ObjectKind::Component)?;
    let root = rig.object(ObjectKind::CaptblRoot)?;
    let space = spaces::create(rig)?;
    let c: &dyad_object::component::Component =
        dyad_object::find(rig.cx.node, callee, dyad_object::component::Component::KIND)?;
    crate::syscall::ops::component::set_parts(&rig.k, c, root, space)?;
    let sinv = rig.sinv(callee, ENTRY, 0)?;
    // The caller is within an invocation itself: from an outermost one the thread would end.
    rig.as_thread(rig.thread)?.depth.store(1, Ordering::Relaxed);
    gives!(invoke(rig, sinv, [0; 4]).status, ENTER);
    let inside = position(rig)?;
    spaces::within(&rig.k, rig.space)?.unlink_root(isa)?;
    let r = leave(rig);
    ensure!(r.status != ENTER && r.status != 0, "it came back");
    let after = position(rig)?;
    gives!((after.2, after.3), (inside.2, inside.3));
    gives!(rig.k.local.space.get(), space.bits());
    Ok(None)
}

fn fault_at(address: u64) -> UserFault {
    UserFault {
        kind: FaultKind::Write,
        address,
        raw: 0x77,
    }
}

/// A component that handles faults of the rig's, and its table.
fn handled(rig: &Rig<'_>) -> Result<(WeakRef, WeakRef), Stop> {
    rig.rooted()?;
    place(rig)?;
    let (handler, root, _) = rig.other_component()?;
    let sinv = rig.sinv(handler, ENTRY, 0x1abe1)?;
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    gives!(rig.sys(c, HANDLER, &[n(sinv)]), Ok(0));
    Ok((handler, root))
}

#[ktest(ops)]
fn faults_go_to_the_handler_and_all_registers_come_back(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (handler, root) = handled(rig)?;
    let t = rig.as_thread(rig.thread)?;
    let area = t.regs(cx.machine.isa());
    let probe = cx.machine.user_probe();
    for r in 0..probe.registers as u64 {
        if r != probe.sp as u64 {
            cx.machine.write_register(area, r, 0x1000 + r);
        }
    }
    cx.machine.set_user_pc_sp(area, PC, SP);
    let count = probe.registers as u64;
    let mut before = [None; 64];
    for r in 0..count {
        before[r as usize] = cx.machine.read_register(area, r);
    }
    ensure!(
        cx.machine.fault(&rig.k, t, fault_at(0x5000_0123)),
        "no handler"
    );
    let at = position(rig)?;
    gives!(at, (ENTRY, 0, handler.bits(), root.frame.address().0));
    let args = [0x5000_0123, 2, PC, 0x77, 0x1abe1, 5 << 8 | 1];
    for (&r, want) in probe.arguments.iter().zip(args) {
        let is = cx.machine.read_register(area, r as u64);
        ensure!(is == Some(want), "argument {r} is {is:x?}, not {want:#x}");
    }
    let ended = cx.machine.leave(&rig.k, [0; 4])?;
    gives!(ended, crate::syscall::invoke::Returned::Switched);
    for r in 0..count {
        let is = cx.machine.read_register(area, r);
        ensure!(is == before[r as usize], "register {r} is {is:x?}");
    }
    let at = position(rig)?;
    let home = (rig.component.bits(), rig.root.frame.address().0);
    gives!(at, (PC, SP, home.0, home.1));
    gives!(t.component.load(Ordering::Relaxed), rig.component.bits());
    gives!(rig.state(rig.thread), Some(State::Running));
    Ok(None)
}

/// The thread can be resumed by its owner; it must not go on in the handler's component.
#[ktest(ops)]
fn threads_that_the_handler_ends_are_out_of_its_component(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    handled(rig)?;
    let t = rig.as_thread(rig.thread)?;
    ensure!(
        cx.machine.fault(&rig.k, t, fault_at(0x5000_0000)),
        "no handler"
    );
    let ended = cx.machine.leave(&rig.k, [1, 0, 0, 0])?;
    gives!(ended, crate::syscall::invoke::Returned::Switched);
    gives!(rig.state(rig.thread), Some(State::Stopped));
    ensure!(rig.k.local.thread.get().is_none(), "a thread runs");
    gives!(t.component.load(Ordering::Relaxed), rig.component.bits());
    gives!(t.depth.load(Ordering::Relaxed), 0);
    let area = t.regs(cx.machine.isa());
    gives!(cx.machine.user_pc_sp(area), (PC, SP));
    Ok(None)
}

/// The faulting component is gone when its handler has done its work: the thread ends, and none
/// of its registers get into the handler's component.
#[ktest(ops)]
fn threads_whose_component_is_gone_end_with_their_fault(rig: &Rig<'_>) -> Outcome {
    let (handler, _) = handled(rig)?;
    let t = rig.as_thread(rig.thread)?;
    ensure!(
        rig.cx.machine.fault(&rig.k, t, fault_at(0x5000_0000)),
        "no handler"
    );
    let left = rig
        .cx
        .node
        .map
        .get::<core::sync::atomic::AtomicU64>(rig.component.frame.address());
    ensure!(left.is_some(), "no component");
    crate::syscall::ops::memory::to_untyped(&rig.k, rig.component.frame)?;
    let ended = rig.cx.machine.leave(&rig.k, [0; 4]);
    gives!(ended, Ok(crate::syscall::invoke::Returned::Switched));
    gives!(rig.state(rig.thread), Some(State::Stopped));
    ensure!(
        t.component.load(Ordering::Relaxed) != handler.bits(),
        "it is in the handler"
    );
    Ok(None)
}

#[ktest(ops)]
fn faults_without_a_handler_and_faults_of_handlers_are_not_handled(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    place(rig)?;
    let t = rig.as_thread(rig.thread)?;
    let before = position(rig)?;
    gives!(rig.cx.machine.fault(&rig.k, t, fault_at(1 << 30)), false);
    gives!(position(rig)?, before);
    // A component that handles its own faults.
    let sinv = rig.sinv(rig.component, ENTRY, 0)?;
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    gives!(rig.sys(c, HANDLER, &[n(sinv)]), Ok(0));
    gives!(rig.cx.machine.fault(&rig.k, t, fault_at(1 << 30)), true);
    let inside = position(rig)?;
    gives!(rig.cx.machine.fault(&rig.k, t, fault_at(1 << 30)), false);
    gives!(position(rig)?, inside);
    gives!(rig.sys(c, HANDLER, &[0]), Ok(0));
    Ok(None)
}

/// A CPU that has handled a fault remembers where faults go; the next one goes where they go now.
#[ktest(ops)]
fn faults_go_to_the_handler_that_there_is_now(rig: &Rig<'_>) -> Outcome {
    let (first, _) = handled(rig)?;
    let t = rig.as_thread(rig.thread)?;
    let faults = || -> Result<u64, Stop> {
        let handled = rig.cx.machine.fault(&rig.k, t, fault_at(0x5000_0000));
        let to = position(rig)?.2;
        if handled {
            rig.cx.machine.leave(&rig.k, [0; 4])?;
        }
        Ok(if handled { to } else { 0 })
    };
    gives!(faults()?, first.bits());
    let (second, _, _) = rig.other_component()?;
    let sinv = rig.sinv(second, ENTRY, 0)?;
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    gives!(rig.sys(c, HANDLER, &[n(sinv)]), Ok(0));
    gives!(faults()?, second.bits());
    gives!(rig.sys(c, HANDLER, &[0]), Ok(0));
    gives!(faults()?, 0);
    Ok(None)
}

#[ktest(ops)]
fn fault_handlers_are_endpoints_that_may_be_invoked(rig: &Rig<'_>) -> Outcome {
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    let handler = |cap: u64| rig.sys(c, HANDLER, &[cap]);
    gives!(handler(n(c)), Err(Error::WrongCap));
    gives!(handler(n(rig.free_slot())), Err(Error::NoCap));
    gives!(handler(u64::MAX), Err(Error::NoCap));
    let payload = [ENTRY, 0, 0];
    let mute = all_but(SinvOp::Invoke as u32);
    let sinv = rig.put(CapType::Sinv, mute, Some(rig.component), payload)?;
    gives!(handler(n(sinv)), Err(Error::Denied));
    Ok(None)
}
