//! What the owner of a thread may not do with it, in every state of the thread: registers and places within an
//! invocation, ids of others, lines of others, more time or urgency than there is.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, HardwareOp, ObjectKind, Rights, ThreadIdsOp, ThreadOp, TimeOp,
};
use dyad_abi::service::MAX_THREAD_IDS;
use dyad_abi::{Error, Isa, NodeId};
use dyad_shm::frame::WeakRef;

use super::rig::{self, Rig, all_but};
use super::{Outcome, Stop, ensure, gives, ktest};
use dyad_object::component::Component;
use dyad_object::thread::{State, Thread, begun};
use dyad_object::time::Budgets;
use dyad_object::{find, ids};

const CONFIGURE: u32 = ThreadOp::Configure as u32;
const DISPATCH: u32 = ThreadOp::Dispatch as u32;
const READ: u32 = ThreadOp::ReadRegister as u32;
const WRITE: u32 = ThreadOp::WriteRegister as u32;
const RESUME: u32 = ThreadOp::Resume as u32;
const YIELD: u32 = ThreadOp::Yield as u32;
const START: u32 = HardwareOp::StartCpu as u32;
const TRANSFER: u32 = TimeOp::Transfer as u32;
const ENTRY: u64 = 0x4100_0000;
const RELAXED: Ordering = Ordering::Relaxed;

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

fn thread(rig: &Rig<'_>, state: State) -> Result<(CapIndex, WeakRef, &'static Thread), Stop> {
    let object = rig.thread_of(rig.component, state)?;
    let cap = rig.cap(ObjectKind::Thread, object, Rights::ALL)?;
    Ok((cap, object, rig.as_thread(object)?))
}

fn hardware(rig: &Rig<'_>) -> Result<CapIndex, Stop> {
    let payload = [rig.cx.node.id().index() as u64, 0, 0];
    Ok(rig.put(CapType::Hardware, Rights::ALL, None, payload)?)
}

/// `Resume` to the first CPU of a node.
const fn at(node: NodeId) -> u64 {
    1 << 63 | node.index() as u64
}

#[ktest(ops)]
fn registers_of_a_service_are_neither_read_nor_written(rig: &Rig<'_>) -> Outcome {
    let (cap, object, t) = thread(rig, State::Stopped)?;
    let here = rig.cx.machine.isa() as u64;
    t.set_begun(rig.cx.machine.isa(), begun::HERE);
    gives!(rig.sys(cap, WRITE, &[here, 0, 0x77]), Ok(0));
    for depth in 1..3 {
        t.depth.store(depth, RELAXED);
        let count = dyad_abi::emulation::general(rig.cx.machine.isa()) as u64;
        for register in 0..count + 3 {
            let write = [here, register, 0x4141];
            gives!(rig.sys(cap, WRITE, &write), Err(Error::TooDeep));
            gives!(rig.sys(cap, READ, &write[..2]), Err(Error::TooDeep));
        }
    }
    t.depth.store(0, RELAXED);
    gives!(rig.sys(cap, READ, &[here, 0]), Ok(0x77));
    gives!(rig.state(object), Some(State::Stopped));
    Ok(None)
}

/// A thread within an invocation goes on where it was, on another CPU perhaps, but on no other node.
#[ktest(ops)]
fn services_are_not_taken_to_other_nodes(rig: &Rig<'_>) -> Outcome {
    let (cap, object, t) = thread(rig, State::Stopped)?;
    t.depth.store(1, RELAXED);
    let here = rig.cx.node.id();
    for other in rig.cx.node.others() {
        gives!(rig.sys(cap, RESUME, &[at(other)]), Err(Error::TooDeep));
    }
    gives!(rig.state(object), Some(State::Stopped));
    gives!(rig.sys(cap, RESUME, &[at(here)]), Ok(0));
    gives!(rig.state(object), Some(State::Ready));
    Ok(None)
}

#[ktest(ops)]
fn threads_go_on_where_their_component_may_run(rig: &Rig<'_>) -> Outcome {
    let (cap, object, t) = thread(rig, State::Stopped)?;
    let here = rig.cx.node.id();
    let c: &Component = find(rig.cx.node, rig.component, Component::KIND)?;
    rig.k.words().replace(&c.home, 1 << here.index());
    for other in rig.cx.node.others() {
        gives!(rig.sys(cap, RESUME, &[at(other)]), Err(Error::Denied));
        // Of a thread that is there, which this node would take.
        let mut there = t.owner(rig.k.words()).ok_or(Error::Corrupt)?;
        let was = there;
        there.node = other;
        rig.k.words().replace(&c.home, 1 << other.index());
        rig.k.words().replace(&t.owner, there.bits());
        let h = hardware(rig)?;
        gives!(rig.sys(h, START, &[0, n(cap)]), Err(Error::Denied));
        rig.k.words().replace(&t.owner, was.bits());
        rig.k.words().replace(&c.home, 1 << here.index());
    }
    gives!(rig.state(object), Some(State::Stopped));
    Ok(None)
}

/// `StartCpu` takes no thread that `Resume` would refuse.
#[ktest(ops)]
fn cpus_are_not_started_with_threads_that_cannot_go_on_there(rig: &Rig<'_>) -> Outcome {
    let h = hardware(rig)?;
    let isa = rig.cx.machine.isa();
    for state in [State::Stopped, State::Ready] {
        let (cap, object, t) = thread(rig, state)?;
        let start = || rig.sys(h, START, &[0, n(cap)]);
        t.set_begun(isa, begun::LOST);
        gives!(start(), Err(Error::NodeDead));
        t.set_begun(isa, begun::NOT);
        for other in Isa::ALL.into_iter().filter(|&i| i != isa) {
            t.set_begun(other, begun::HERE);
            gives!(start(), Err(Error::NoIsa));
            t.set_begun(other, begun::NOT);
        }
        for other in rig.cx.node.others() {
            let was = t.owner(rig.k.words()).ok_or(Error::Corrupt)?;
            let mut there = was;
            there.node = other;
            rig.k.words().replace(&t.owner, there.bits());
            t.depth.store(1, RELAXED);
            let refused = match state {
                State::Ready => Error::NotReady,
                _ => Error::TooDeep,
            };
            gives!(start(), Err(refused));
            t.depth.store(0, RELAXED);
            rig.k.words().replace(&t.owner, was.bits());
        }
        gives!(rig.state(object), Some(state));
        gives!(start(), Ok(0));
    }
    Ok(None)
}

#[ktest(ops)]
fn an_id_belongs_to_one_live_thread(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let c = n(rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?);
    let all = n(rig.thread_ids()?);
    let free = rig.id(0);
    let configure = |t: CapIndex, id: u64| rig.sys(t, CONFIGURE, &[c, ENTRY, 0, id, all << 32]);
    let (a, object_a) = rig.new_cap(ObjectKind::Thread)?;
    let (b, object_b) = rig.new_cap(ObjectKind::Thread)?;
    gives!(configure(a, free), Ok(0));
    gives!(configure(b, free), Err(Error::Exists));
    gives!(rig.state(object_b), Some(State::None));
    gives!(configure(b, free + 1), Ok(0));
    gives!(ids::thread_with(cx.node, free), Some(object_a));
    gives!(ids::thread_with(cx.node, free + 1), Some(object_b));
    // It keeps its own, or gets another one and leaves the old one to others.
    gives!(configure(a, free), Ok(0));
    gives!(configure(a, free + 1), Err(Error::Exists));
    gives!(rig.as_thread(object_a)?.id.load(RELAXED), free);
    gives!(configure(a, free + 2), Ok(0));
    gives!(configure(b, free), Ok(0));
    gives!(ids::thread_with(cx.node, free + 1), None);
    // To give a thread's frame up gives its id up.
    crate::syscall::ops::memory::to_untyped(&rig.k, object_a.frame)?;
    gives!(ids::thread_with(cx.node, free + 2), None);
    gives!(configure(b, free + 2), Ok(0));
    gives!(configure(b, MAX_THREAD_IDS), Err(Error::BadArgument));
    gives!(configure(b, u64::from(u32::MAX)), Err(Error::BadArgument));
    Ok(None)
}

#[ktest(ops)]
fn ids_are_given_by_those_who_have_them(rig: &Rig<'_>) -> Outcome {
    let c = n(rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?);
    let (t, object) = rig.new_cap(ObjectKind::Thread)?;
    let configure = |ids: u64, id: u64| rig.sys(t, CONFIGURE, &[c, ENTRY, 0, id, ids << 32]);
    let first = rig.id(16);
    let some = rig.put(CapType::ThreadIds, Rights::ALL, None, [first, 4, 0])?;
    for id in [0, first - 1, first + 4, MAX_THREAD_IDS] {
        gives!(configure(n(some), id), Err(Error::BadArgument));
    }
    let no_use = all_but(ThreadIdsOp::Use as u32);
    let weak = rig.put(CapType::ThreadIds, no_use, None, [first, 4, 0])?;
    gives!(configure(n(weak), first), Err(Error::Denied));
    gives!(configure(0, first), Err(Error::NoCap));
    gives!(configure(n(rig.free_slot()), first), Err(Error::NoCap));
    gives!(configure(n(t), first), Err(Error::WrongCap));
    let over = [first, MAX_THREAD_IDS - first + 1, 0];
    let over = rig.put(CapType::ThreadIds, Rights::ALL, None, over)?;
    gives!(configure(n(over), first), Err(Error::Corrupt));
    gives!(rig.state(object), Some(State::None));
    for id in [first, first + 3] {
        gives!(configure(n(some), id), Ok(0));
    }
    rig::has_no_other_operations(rig, some, &[])
}

#[ktest(ops)]
fn schedulers_hear_of_threads_at_all_their_lines_or_at_none(rig: &Rig<'_>) -> Outcome {
    let c = n(rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?);
    let ids = n(rig.thread_ids()?) << 32;
    let (t, object) = rig.new_cap(ObjectKind::Thread)?;
    let ends = rig.object(ObjectKind::Endpoints)?;
    for part in [[63, 1, 0], [0, 63, 0], [1, 63, 0], [0, 1, 0]] {
        let some = rig.put(CapType::Receive, Rights::ALL, Some(ends), part)?;
        let is = rig.sys(t, CONFIGURE, &[c, ENTRY, 0, rig.id(0), n(some) | ids]);
        gives!(is, Err(Error::Denied));
    }
    gives!(rig.state(object), Some(State::None));
    let all = rig.put(CapType::Receive, Rights::ALL, Some(ends), [0, 64, 0])?;
    gives!(
        rig.sys(t, CONFIGURE, &[c, ENTRY, 0, rig.id(0), n(all) | ids]),
        Ok(0)
    );
    Ok(None)
}

#[ktest(ops)]
fn nobody_is_more_urgent_than_the_dispatcher(rig: &Rig<'_>) -> Outcome {
    let (a, _, first) = thread(rig, State::Ready)?;
    let (b, _, second) = thread(rig, State::Ready)?;
    rig.switches(a, DISPATCH, &[5 << 56, 0])?;
    gives!(first.priority.load(RELAXED), 5);
    rig.switches(b, DISPATCH, &[255 << 56, 0])?;
    gives!(second.priority.load(RELAXED), 5);
    rig.switches(b, YIELD, &[])?;
    rig.switches(b, DISPATCH, &[3 << 56, 0])?;
    gives!(second.priority.load(RELAXED), 3);
    Ok(None)
}

fn budgets(rig: &Rig<'_>, ns: u64) -> Result<(CapIndex, &'static Budgets), Stop> {
    let (cap, object) = rig.new_cap(ObjectKind::Time)?;
    let budgets: &'static Budgets = find(rig.cx.node, object, Budgets::KIND)?;
    budgets.left[0].store(ns, RELAXED);
    Ok((cap, budgets))
}

/// Time that a thread may use is in no budget while it runs, and what it has not used comes back.
#[ktest(ops)]
fn time_in_use_is_nobody_elses(rig: &Rig<'_>) -> Outcome {
    let all = 50_000_000_000;
    let (time, w) = budgets(rig, all)?;
    let (other, _) = budgets(rig, 0)?;
    let (a, ..) = thread(rig, State::Ready)?;
    let (b, object, _) = thread(rig, State::Ready)?;
    rig.switches(a, DISPATCH, &[0, n(time)])?;
    gives!(w.left[0].load(RELAXED), 0);
    gives!(rig.sys(time, TRANSFER, &[n(other), 1]), Err(Error::NoTime));
    gives!(rig.call(b, DISPATCH, &[0, n(time)]), Err(Error::NoTime));
    gives!(rig.state(object), Some(State::Ready));
    rig.switches(a, YIELD, &[])?;
    let left = w.left[0].load(RELAXED);
    ensure!(left > 0 && left < all, "{left} ns are left");
    // A slice reserves no more than it can use.
    rig.switches(a, DISPATCH, &[1_000, n(time)])?;
    gives!(w.left[0].load(RELAXED), left - 1_000);
    rig.switches(a, YIELD, &[])?;
    ensure!(w.left[0].load(RELAXED) <= left, "time was made");
    Ok(None)
}

/// What a thread runs beyond its budget is paid for by the next dispatch on that.
#[ktest(ops)]
fn time_that_was_overdrawn_is_paid_for(rig: &Rig<'_>) -> Outcome {
    let (time, w) = budgets(rig, 10)?;
    let (a, object, _) = thread(rig, State::Ready)?;
    rig.switches(a, DISPATCH, &[0, n(time)])?;
    let until = rig.cx.machine.fused_ns() + 5_000;
    while rig.cx.machine.fused_ns() < until {}
    rig.switches(a, YIELD, &[])?;
    gives!(w.left[0].load(RELAXED), 0);
    let debt = w.debt[0].load(RELAXED);
    ensure!(debt >= 4_990, "{debt} ns are owed");
    // What is less than that buys nothing.
    w.left[0].store(1_000, RELAXED);
    gives!(rig.call(a, DISPATCH, &[0, n(time)]), Err(Error::NoTime));
    gives!(w.left[0].load(RELAXED), 0);
    gives!(w.debt[0].load(RELAXED), debt - 1_000);
    w.left[0].store(debt, RELAXED);
    rig.switches(a, DISPATCH, &[0, n(time)])?;
    gives!(w.debt[0].load(RELAXED), 0);
    ensure!(rig.runs(object), "it does not run");
    Ok(None)
}

/// Of two dispatches of one thread on different budgets, the one that is refused pays nothing.
#[ktest(ops)]
fn refused_dispatches_cost_nothing(rig: &Rig<'_>) -> Outcome {
    let (time, w) = budgets(rig, 70_000)?;
    for state in [State::Running, State::Blocked, State::Stopped] {
        let (a, ..) = thread(rig, state)?;
        gives!(rig.call(a, DISPATCH, &[0, n(time)]), Err(Error::NotReady));
        gives!(w.left[0].load(RELAXED), 70_000);
    }
    Ok(None)
}
