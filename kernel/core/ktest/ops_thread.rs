//! Threads and time: configuration, dispatch, and what ends a dispatch.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, ComponentOp, ObjectKind, ReceiveOp, Rights, Stopped, ThreadOp, TimeOp,
};
use dyad_abi::service::MAX_THREAD_IDS;
use dyad_abi::user::USER_END;
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;

use super::rig::{self, Rig, all_but, needs_its_right};
use super::{Outcome, Stop, TestCtx, ensure, gives, ktest};
use crate::sched::dispatch::{MAX_CHAIN, OpOutcome};
use dyad_object::find;
use dyad_object::thread::{State, Thread, begun};
use dyad_object::time::{Budgets, UNLIMITED};

const CONFIGURE: u32 = ThreadOp::Configure as u32;
const DISPATCH: u32 = ThreadOp::Dispatch as u32;
const READ: u32 = ThreadOp::ReadRegister as u32;
const WRITE: u32 = ThreadOp::WriteRegister as u32;
const MIGRATE: u32 = ThreadOp::Migrate as u32;
const STOP: u32 = ThreadOp::Stop as u32;
const RESUME: u32 = ThreadOp::Resume as u32;
const YIELD: u32 = ThreadOp::Yield as u32;
const EXIT: u32 = ThreadOp::Exit as u32;
const JUMP: u32 = ThreadOp::Jump as u32;
const UNLOAD: u32 = ThreadOp::Unload as u32;
const LOAD: u32 = ThreadOp::Load as u32;
const DEADLINE: u32 = ThreadOp::Deadline as u32;
const TRANSFER: u32 = TimeOp::Transfer as u32;
const LEFT: u32 = TimeOp::Read as u32;
const ENTRY: u64 = 0x4100_0000;

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

/// A thread of the rig's component in a state, and a capability for it.
fn thread(rig: &Rig<'_>, state: State) -> Result<(CapIndex, WeakRef), Stop> {
    let object = rig.thread_of(rig.component, state)?;
    Ok((rig.cap(ObjectKind::Thread, object, Rights::ALL)?, object))
}

/// What the dispatcher of a thread that has stopped is told.
fn told(rig: &Rig<'_>, dispatcher: WeakRef) -> Result<(u64, Option<Stopped>, u64), Stop> {
    let t = rig.as_thread(dispatcher)?;
    gives!(t.result.load(Ordering::Relaxed), 1);
    let value = t.result_value.load(Ordering::Relaxed);
    let status = t.result_status.load(Ordering::Relaxed);
    Ok((status, Stopped::from_number(value & 0xff), value >> 8))
}

fn budgets(rig: &Rig<'_>, ns: u64) -> Result<(CapIndex, &'static Budgets), Stop> {
    let (cap, object) = rig.new_cap(ObjectKind::Time)?;
    let budgets: &'static Budgets = find(rig.cx.node, object, Budgets::KIND)?;
    budgets.left[0].store(ns, Ordering::Relaxed);
    Ok((cap, budgets))
}

#[ktest(ops)]
fn configured_threads_are_stopped_and_keep_what_they_were_given(rig: &Rig<'_>) -> Outcome {
    let (t, object) = rig.new_cap(ObjectKind::Thread)?;
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    let (ends, endpoints) = rig.new_cap(ObjectKind::Endpoints)?;
    let ids = n(rig.thread_ids()?) << 32;
    let args = [
        n(c),
        ENTRY,
        7,
        rig.id(1) | 77 << 16 | 0x99 << 32,
        n(ends) | ids,
    ];
    gives!(rig.sys(t, CONFIGURE, &args), Ok(0));
    gives!(rig.state(object), Some(State::Stopped));
    let t = rig.as_thread(object)?;
    let word = |w: &core::sync::atomic::AtomicU64| w.load(Ordering::Relaxed);
    gives!((word(&t.id), word(&t.tag)), (rig.id(1), 0x99));
    gives!(t.layout_id(), 77);
    gives!((word(&t.entry), word(&t.arg)), (ENTRY, 7));
    gives!(word(&t.scheduler), endpoints.bits());
    gives!(word(&t.component), rig.component.bits());
    Ok(None)
}

#[ktest(ops)]
fn configure_refuses_bad_operands(rig: &Rig<'_>) -> Outcome {
    let (t, object) = rig.new_cap(ObjectKind::Thread)?;
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    let ids = n(rig.thread_ids()?);
    let configure = |[c, entry, arg, id, ends]: [u64; 5]| {
        rig.sys(t, CONFIGURE, &[c, entry, arg, id, ends | ids << 32])
    };
    for bad in [0, USER_END, u64::MAX] {
        gives!(configure([n(c), bad, 0, 0, 0]), Err(Error::BadAddress));
    }
    for id in [MAX_THREAD_IDS, MAX_THREAD_IDS << 16, 0xffff << 16] {
        gives!(configure([n(c), ENTRY, 0, id, 0]), Err(Error::BadArgument));
    }
    gives!(configure([n(t), ENTRY, 0, 0, 0]), Err(Error::WrongCap));
    let none = n(rig.free_slot());
    gives!(configure([none, ENTRY, 0, 0, 0]), Err(Error::NoCap));
    gives!(configure([n(c), ENTRY, 0, 0, n(c)]), Err(Error::WrongCap));
    gives!(configure([n(c), ENTRY, 0, 0, none]), Err(Error::NoCap));
    let weak = rig.cap(
        ObjectKind::Component,
        rig.component,
        all_but(ComponentOp::Configure as u32),
    )?;
    gives!(configure([n(weak), ENTRY, 0, 0, 0]), Err(Error::Denied));
    let ends = rig.object(ObjectKind::Endpoints)?;
    let no_bind = all_but(ReceiveOp::Bind as u32);
    let ends = rig.cap(ObjectKind::Endpoints, ends, no_bind)?;
    gives!(configure([n(c), ENTRY, 0, 0, n(ends)]), Err(Error::Denied));
    gives!(rig.state(object), Some(State::None));
    for state in [State::Ready, State::Running, State::Blocked, State::Transit] {
        let (t, _) = thread(rig, state)?;
        let is = rig.sys(t, CONFIGURE, &[n(c), ENTRY, 0, 0, ids << 32]);
        gives!(is, Err(Error::NotReady));
    }
    Ok(None)
}

#[ktest(ops)]
fn operations_on_threads_need_their_rights(rig: &Rig<'_>) -> Outcome {
    let of = (CapType::Thread, Some(rig.thread), [0; 3]);
    for &op in ThreadOp::ALL {
        needs_its_right(rig, of, op as u32, &[0, 0])?;
    }
    let t = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    let its = [
        CONFIGURE, DISPATCH, READ, WRITE, MIGRATE, STOP, RESUME, YIELD, EXIT, DEADLINE, JUMP,
        UNLOAD, LOAD,
    ];
    ensure!(its.len() == ThreadOp::ALL.len(), "one is missing");
    rig::has_no_other_operations(rig, t, &its)
}

#[ktest(ops)]
fn dispatch_runs_a_ready_thread_until_it_yields(rig: &Rig<'_>) -> Outcome {
    let (a, object) = thread(rig, State::Ready)?;
    rig.switches(a, DISPATCH, &[5 << 56, 0])?;
    ensure!(rig.runs(object), "it does not run");
    gives!(rig.state(object), Some(State::Running));
    gives!(rig.state(rig.thread), Some(State::Running));
    gives!(rig.as_thread(object)?.priority.load(Ordering::Relaxed), 5);
    rig.switches(a, YIELD, &[])?;
    ensure!(rig.runs(rig.thread), "the dispatcher does not go on");
    gives!(rig.state(object), Some(State::Ready));
    gives!(told(rig, rig.thread)?, (0, Some(Stopped::Yielded), 0));
    Ok(None)
}

#[ktest(ops)]
fn dispatch_refuses_threads_that_are_not_ready_here(rig: &Rig<'_>) -> Outcome {
    for state in [
        State::None,
        State::Running,
        State::Transit,
        State::Blocked,
        State::Stopped,
    ] {
        let (t, _) = thread(rig, state)?;
        gives!(rig.call(t, DISPATCH, &[0, 0]), Err(Error::NotReady));
    }
    // Another node's, and an earlier incarnation's.
    let (t, object) = thread(rig, State::Ready)?;
    let t2 = rig.as_thread(object)?;
    let owner = t2.owner(rig.k.words()).ok_or(Error::Corrupt)?;
    let mut others = owner;
    others.node = rig.cx.next();
    let mut old = owner;
    old.incarnation = owner.incarnation.wrapping_sub(1);
    for wrong in [others, old] {
        if wrong != owner {
            rig.k.words().replace(&t2.owner, wrong.bits());
            gives!(rig.call(t, DISPATCH, &[0, 0]), Err(Error::NotReady));
        }
    }
    ensure!(rig.runs(rig.thread), "something else runs");
    Ok(None)
}

#[ktest(ops)]
fn chains_of_dispatchers_are_bounded(rig: &Rig<'_>) -> Outcome {
    let mut last = rig.thread;
    for _ in 0..MAX_CHAIN {
        let (t, object) = thread(rig, State::Ready)?;
        rig.switches(t, DISPATCH, &[0, 0])?;
        last = object;
    }
    let (t, object) = thread(rig, State::Ready)?;
    gives!(rig.call(t, DISPATCH, &[0, 0]), Err(Error::TooDeep));
    gives!(rig.state(object), Some(State::Ready));
    ensure!(rig.runs(last), "another thread runs");
    Ok(None)
}

#[ktest(ops)]
fn threads_end_with_a_code_and_stay_ended(rig: &Rig<'_>) -> Outcome {
    let (a, object) = thread(rig, State::Ready)?;
    rig.switches(a, DISPATCH, &[0, 0])?;
    rig.switches(a, EXIT, &[77])?;
    gives!(told(rig, rig.thread)?, (0, Some(Stopped::Exited), 77));
    gives!(rig.state(object), Some(State::Stopped));
    let code = &rig.as_thread(object)?.exit_code;
    gives!(code.load(Ordering::Relaxed), 77);
    gives!(rig.call(a, DISPATCH, &[0, 0]), Err(Error::NotReady));
    Ok(None)
}

#[ktest(ops)]
fn yield_exit_migrate_and_jump_are_for_the_caller_itself(rig: &Rig<'_>) -> Outcome {
    let (a, object) = thread(rig, State::Ready)?;
    for op in [YIELD, EXIT, MIGRATE, JUMP] {
        gives!(rig.call(a, op, &[0]), Err(Error::Denied));
    }
    gives!(rig.state(object), Some(State::Ready));
    ensure!(rig.runs(rig.thread), "somebody else runs");
    Ok(None)
}

#[ktest(ops)]
fn yield_of_a_root_thread_is_no_change(rig: &Rig<'_>) -> Outcome {
    let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    gives!(rig.call(me, YIELD, &[]), Ok(OpOutcome::Value(0)));
    gives!(rig.state(rig.thread), Some(State::Running));
    Ok(None)
}

#[ktest(ops)]
fn stop_takes_ready_threads_out_and_resume_puts_them_back(rig: &Rig<'_>) -> Outcome {
    let (t, object) = thread(rig, State::Ready)?;
    gives!(rig.sys(t, RESUME, &[]), Err(Error::NotReady));
    gives!(rig.sys(t, STOP, &[]), Ok(0));
    gives!(rig.state(object), Some(State::Stopped));
    gives!(rig.sys(t, STOP, &[]), Ok(1));
    gives!(rig.call(t, DISPATCH, &[0, 0]), Err(Error::NotReady));
    gives!(rig.sys(t, RESUME, &[]), Ok(0));
    gives!(rig.state(object), Some(State::Ready));
    for state in [State::None, State::Running, State::Transit] {
        let (t, _) = thread(rig, state)?;
        gives!(rig.sys(t, STOP, &[]), Err(Error::NotReady));
        gives!(rig.sys(t, RESUME, &[]), Err(Error::NotReady));
    }
    Ok(None)
}

#[ktest(ops)]
fn resume_places_threads_on_cpus_that_there_are(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (t, object) = thread(rig, State::Stopped)?;
    let at = |node: u64, cpu: u64| 1 << 63 | cpu << 8 | node;
    let count = cx.node.params.node_count as u64;
    let cpus = cx.node.params.cpus as u64;
    let resume = |to: u64| rig.sys(t, RESUME, &[to]);
    gives!(resume(at(count, 0)), Err(Error::NoSuchNode));
    gives!(resume(at(0xff, 0)), Err(Error::NoSuchNode));
    gives!(resume(at(0, cpus)), Err(Error::BadArgument));
    // What it has begun on this ISA does not go on on another.
    rig.as_thread(object)?.started[cx.machine.isa().index()].store(1, Ordering::Relaxed);
    let other = cx
        .node
        .others()
        .find(|&o| cx.node.isa(o) != cx.machine.isa());
    if let Some(other) = other {
        gives!(resume(at(other.index() as u64, 0)), Err(Error::NoIsa));
    }
    gives!(rig.state(object), Some(State::Stopped));
    let here = cx.node.id().index() as u64;
    gives!(resume(at(here, cpus - 1)), Ok(0));
    let cpu = &rig.as_thread(object)?.cpu;
    gives!(cpu.load(Ordering::Relaxed), cpus - 1);
    Ok(None)
}

#[ktest(ops)]
fn deadlines_are_told_of_threads_that_wait(rig: &Rig<'_>) -> Outcome {
    let (ends, _) = rig.new_cap(ObjectKind::Endpoints)?;
    let (t, object) = thread(rig, State::Ready)?;
    gives!(rig.sys(t, DEADLINE, &[]), Ok(0));
    rig.switches(t, DISPATCH, &[0, 0])?;
    let receive = ReceiveOp::Receive as u32;
    rig.switches(ends, receive, &[5, 1 << 60])?;
    gives!(rig.state(object), Some(State::Blocked));
    gives!(rig.sys(t, DEADLINE, &[]), Ok(1 << 60));
    Ok(None)
}

#[ktest(ops)]
fn slices_end_and_the_dispatcher_is_told(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (a, object) = thread(rig, State::Ready)?;
    rig.switches(a, DISPATCH, &[1, 0])?;
    let end = cx.machine.fused_ns() + 1_000;
    while cx.machine.fused_ns() < end {}
    cx.machine.slice_over(&rig.k);
    ensure!(rig.runs(rig.thread), "the dispatcher does not go on");
    gives!(rig.state(object), Some(State::Ready));
    gives!(told(rig, rig.thread)?.1, Some(Stopped::Preempted));
    // Without a slice it goes on.
    rig.switches(a, DISPATCH, &[0, 0])?;
    cx.machine.slice_over(&rig.k);
    ensure!(rig.runs(object), "it was preempted");
    Ok(None)
}

#[ktest(ops)]
fn slices_end_with_those_of_the_dispatcher(rig: &Rig<'_>) -> Outcome {
    let (a, ta) = thread(rig, State::Ready)?;
    let (b, tb) = thread(rig, State::Ready)?;
    rig.switches(a, DISPATCH, &[1, 0])?;
    // It gives another thread an hour.
    let hour = 3_600_000_000_000;
    rig.switches(b, DISPATCH, &[hour, 0])?;
    let end = |t: WeakRef| {
        rig.as_thread(t)
            .map(|t| t.slice_end.load(Ordering::Relaxed))
    };
    gives!(end(tb)?, end(ta)?);
    let until = rig.cx.machine.fused_ns() + 1_000;
    while rig.cx.machine.fused_ns() < until {}
    rig.cx.machine.slice_over(&rig.k);
    ensure!(rig.runs(rig.thread), "the root does not go on");
    gives!(rig.state(ta), Some(State::Ready));
    gives!(rig.state(tb), Some(State::Ready));
    gives!(told(rig, rig.thread)?.1, Some(Stopped::Preempted));
    gives!(told(rig, ta)?.1, Some(Stopped::Preempted));
    Ok(None)
}

#[ktest(ops)]
fn registers_of_stopped_threads_are_read_and_written(rig: &Rig<'_>) -> Outcome {
    let isa = rig.cx.machine.isa();
    let (t, _) = thread(rig, State::Stopped)?;
    let r = rig.cx.machine.user_probe().arguments[2] as u64;
    let here = isa as u64;
    gives!(rig.sys(t, WRITE, &[here, r, 0x1234_5678_9abc]), Ok(0));
    gives!(rig.sys(t, READ, &[here, r]), Ok(0x1234_5678_9abc));
    let none = 1 << 20;
    gives!(rig.sys(t, READ, &[here, none]), Err(Error::BadArgument));
    gives!(rig.sys(t, WRITE, &[here, none, 0]), Err(Error::BadArgument));
    gives!(rig.sys(t, READ, &[9, r]), Err(Error::BadArgument));
    for other in Isa::ALL.into_iter().filter(|&i| i != isa) {
        gives!(rig.sys(t, READ, &[other as u64, r]), Err(Error::NoIsa));
        // One that has begun on the other ISA does not begin on this one, too.
        let (t, object) = thread(rig, State::Stopped)?;
        let away = rig.as_thread(object)?;
        away.set_begun(other, begun::HERE);
        gives!(rig.sys(t, READ, &[here, r]), Err(Error::NoIsa));
        gives!(rig.sys(t, WRITE, &[here, r, 1]), Err(Error::NoIsa));
        gives!(away.begun(isa), begun::NOT);
        gives!(rig.state(object), Some(State::Stopped));
    }
    for state in [State::Ready, State::Running, State::Blocked, State::None] {
        let (t, _) = thread(rig, state)?;
        gives!(rig.sys(t, READ, &[here, r]), Err(Error::NotReady));
        gives!(rig.sys(t, WRITE, &[here, r, 1]), Err(Error::NotReady));
    }
    Ok(None)
}

#[ktest(ops)]
fn migration_is_refused_where_it_cannot_be(rig: &Rig<'_>) -> Outcome {
    let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    let here = rig.cx.node.id().index() as u64;
    gives!(rig.call(me, MIGRATE, &[here]), Ok(OpOutcome::Value(here)));
    let count = rig.cx.node.params.node_count as u64;
    for bad in [count, 8, u64::MAX] {
        gives!(rig.call(me, MIGRATE, &[bad]), Err(Error::NoSuchNode));
    }
    // It has no scheduler there.
    let there = rig.cx.next().index() as u64;
    gives!(rig.call(me, MIGRATE, &[there]), Err(Error::NotReady));
    rig.as_thread(rig.thread)?.depth.store(1, Ordering::Relaxed);
    gives!(rig.call(me, MIGRATE, &[there]), Err(Error::TooDeep));
    gives!(rig.state(rig.thread), Some(State::Running));
    Ok(None)
}

/// Registers of a thread that has jumped: three of its choice and its thread pointer, all else zero.
pub(super) fn has_jumped(
    cx: &TestCtx<'_>,
    t: &Thread,
    at: (u64, u64),
    fp: u64,
    arg: u64,
) -> Outcome {
    let area = t.regs(cx.machine.isa());
    gives!(cx.machine.user_pc_sp(area), at);
    let probe = cx.machine.user_probe();
    let read = |n: usize| cx.machine.read_register(area, n as u64);
    gives!(read(probe.arguments[0]), Some(arg));
    gives!(read(probe.frame), Some(fp));
    let others = probe.arguments[1..].iter().chain(probe.preserved);
    for &n in others.filter(|&&n| n != probe.frame) {
        ensure!(read(n) == Some(0), "register {n} is {:x?}", read(n));
    }
    let tcb = dyad_abi::user::tcb_address(t.layout_id());
    gives!(read(probe.registers + 2), Some(tcb));
    gives!(t.used_fp.load(Ordering::Relaxed), 0);
    for isa in Isa::ALL {
        let there = u64::from(isa == cx.machine.isa());
        gives!(t.started[isa.index()].load(Ordering::Relaxed), there);
    }
    Ok(None)
}

#[ktest(ops)]
fn threads_jump_within_their_node(rig: &Rig<'_>) -> Outcome {
    let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    let here = rig.cx.node.id().index() as u64;
    let t = rig.as_thread(rig.thread)?;
    for isa in Isa::ALL {
        let area = t.regs(isa);
        area.0.iter().for_each(|w| w.store(0x77, Ordering::Relaxed));
        t.set_begun(isa, 2);
    }
    t.used_fp.store(3, Ordering::Relaxed);
    t.id.store(5, Ordering::Relaxed);
    t.layout.store(6, Ordering::Relaxed);
    let to = [here, ENTRY + 0x40, 0x4300_0f00, 0xf00, 0xa55];
    rig.switches(me, JUMP, &to)?;
    ensure!(rig.runs(rig.thread), "somebody else runs");
    gives!(rig.state(rig.thread), Some(State::Running));
    has_jumped(rig.cx, t, (ENTRY + 0x40, 0x4300_0f00), 0xf00, 0xa55)?;
    // Any stack pointer below the end of user addresses will do: the thread faults if it is none.
    for sp in [0, 1, 7] {
        rig.switches(me, JUMP, &[here, ENTRY, sp, 0, 0])?;
        has_jumped(rig.cx, t, (ENTRY, sp), 0, 0)?;
    }
    Ok(None)
}

#[ktest(ops)]
fn jumps_are_refused_where_they_cannot_be(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    let here = cx.node.id().index() as u64;
    let there = cx.next().index() as u64;
    let t = rig.as_thread(rig.thread)?;
    let isa = cx.machine.isa();
    t.set_begun(isa, 1);
    let at = cx.machine.user_pc_sp(t.regs(isa));
    let count = cx.node.params.node_count as u64;
    for bad in [count, 8, u64::MAX] {
        gives!(
            rig.call(me, JUMP, &[bad, ENTRY, 16, 0, 0]),
            Err(Error::NoSuchNode)
        );
    }
    for node in [here, there] {
        for (pc, sp) in [(0, 16), (USER_END, 16), (ENTRY, USER_END), (u64::MAX, 0)] {
            gives!(
                rig.call(me, JUMP, &[node, pc, sp, 0, 0]),
                Err(Error::BadAddress)
            );
        }
    }
    if there != here {
        // It has no scheduler there.
        gives!(
            rig.call(me, JUMP, &[there, ENTRY, 16, 0, 0]),
            Err(Error::NotReady)
        );
    }
    t.depth.store(1, Ordering::Relaxed);
    for node in [here, there] {
        gives!(
            rig.call(me, JUMP, &[node, ENTRY, 16, 0, 0]),
            Err(Error::TooDeep)
        );
    }
    gives!(rig.state(rig.thread), Some(State::Running));
    gives!(t.begun(isa), 1);
    gives!(cx.machine.user_pc_sp(t.regs(isa)), at);
    Ok(None)
}

#[ktest(ops)]
fn time_moves_between_budgets_and_is_not_made(rig: &Rig<'_>) -> Outcome {
    let (a, wa) = budgets(rig, 1_000)?;
    let (b, wb) = budgets(rig, 5)?;
    let left = |w: &Budgets| w.left[0].load(Ordering::Relaxed);
    gives!(rig.sys(a, LEFT, &[]), Ok(1_000));
    gives!(rig.sys(a, TRANSFER, &[n(b), 400]), Ok(0));
    gives!((left(wa), left(wb)), (600, 405));
    gives!(rig.sys(a, TRANSFER, &[n(b), 601]), Err(Error::NoTime));
    gives!(rig.sys(a, TRANSFER, &[n(b), u64::MAX]), Err(Error::NoTime));
    gives!(rig.sys(a, TRANSFER, &[n(a), 600]), Ok(0));
    gives!((left(wa), left(wb)), (600, 405));
    let none = n(rig.free_slot());
    gives!(rig.sys(a, TRANSFER, &[none, 1]), Err(Error::NoCap));
    let t = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    gives!(rig.sys(a, TRANSFER, &[n(t), 1]), Err(Error::WrongCap));
    gives!((left(wa), left(wb)), (600, 405));
    Ok(None)
}

#[ktest(ops)]
fn time_without_end_stays_so_and_gives_no_more_of_it(rig: &Rig<'_>) -> Outcome {
    let (all, w) = budgets(rig, UNLIMITED)?;
    let (b, wb) = budgets(rig, 5)?;
    let left = |w: &Budgets| w.left[0].load(Ordering::Relaxed);
    gives!(rig.sys(all, TRANSFER, &[n(b), 100]), Ok(0));
    gives!((left(w), left(wb)), (UNLIMITED, 105));
    gives!(rig.sys(all, TRANSFER, &[n(b), u64::MAX]), Ok(0));
    ensure!(left(wb) != UNLIMITED, "a budget without end was made");
    gives!(rig.sys(b, TRANSFER, &[n(all), 100]), Ok(0));
    gives!(left(w), UNLIMITED);
    Ok(None)
}

#[ktest(ops)]
fn operations_on_time_need_their_rights(rig: &Rig<'_>) -> Outcome {
    let object = rig.object(ObjectKind::Time)?;
    let of = (CapType::Time, Some(object), [0, 64, 0]);
    for op in [TRANSFER, LEFT] {
        needs_its_right(rig, of, op, &[0, 0])?;
    }
    let time = rig.cap(ObjectKind::Time, object, Rights::ALL)?;
    let used = rig.sys(time, TimeOp::Use as u32, &[]);
    gives!(used, Err(Error::BadSyscall));
    rig::has_no_other_operations(rig, time, &[TRANSFER, LEFT])
}

#[ktest(ops)]
fn dispatch_takes_time_off_the_budget(rig: &Rig<'_>) -> Outcome {
    let (time, w) = budgets(rig, 50_000_000)?;
    let (a, object) = thread(rig, State::Ready)?;
    rig.switches(a, DISPATCH, &[0, n(time)])?;
    let t: &Thread = rig.as_thread(object)?;
    ensure!(t.slice_end.load(Ordering::Relaxed) != u64::MAX, "no end");
    let until = rig.cx.machine.fused_ns() + 2_000;
    while rig.cx.machine.fused_ns() < until {}
    rig.switches(a, YIELD, &[])?;
    let left = w.left[0].load(Ordering::Relaxed);
    ensure!(left <= 50_000_000 - 2_000, "{left} ns are left");
    Ok(None)
}

#[ktest(ops)]
fn dispatch_refuses_budgets_that_are_none_or_used_up(rig: &Rig<'_>) -> Outcome {
    let (a, object) = thread(rig, State::Ready)?;
    let (time, _) = budgets(rig, 0)?;
    let dispatch = |t: u64| rig.call(a, DISPATCH, &[0, t]);
    gives!(dispatch(n(time)), Err(Error::NoTime));
    gives!(dispatch(n(a)), Err(Error::WrongCap));
    gives!(dispatch(n(rig.free_slot())), Err(Error::NoCap));
    gives!(dispatch(u64::MAX), Err(Error::NoCap));
    let frame = rig.object(ObjectKind::Time)?;
    let no_use = all_but(TimeOp::Use as u32);
    let time = rig.cap(ObjectKind::Time, frame, no_use)?;
    gives!(dispatch(n(time)), Err(Error::Denied));
    let time = rig.cap(ObjectKind::Time, frame, Rights::ALL)?;
    crate::syscall::ops::memory::to_untyped(&rig.k, frame.frame)?;
    gives!(dispatch(n(time)), Err(Error::Revoked));
    gives!(rig.state(object), Some(State::Ready));
    Ok(None)
}

/// No sum of a budget and time that comes back is a budget without end, and one without end stays so.
#[ktest(ops)]
fn time_that_comes_back_makes_no_budget_larger_than_it_may_be(_cx: &TestCtx<'_>) -> Outcome {
    for (has, ns, then) in [
        (UNLIMITED, 5, UNLIMITED),
        (UNLIMITED - 3, 5, UNLIMITED - 1),
        (7, 5, 12),
    ] {
        gives!(crate::sched::dispatch::budget::plus(has, ns), then);
    }
    Ok(None)
}
