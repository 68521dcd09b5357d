//! Asynchronous endpoints: bits, waiting, waking, events of schedulers.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::cap::{
    CapIndex, CapType, Event, LivenessOp, ObjectKind, ReceiveOp, Rights, SendOp, Stopped, ThreadOp,
    Woken,
};
use dyad_abi::service::scheduler_line;
use dyad_shm::frame::WeakRef;

use super::rig::{self, Rig, all_but, needs_its_right};
use super::{Outcome, Stop, TestCtx, ensure, gives, ktest};
use crate::sched::dispatch::OpOutcome;
use dyad_object::endpoint::Endpoints;
use dyad_object::find;
use dyad_object::thread::State;
use dyad_object::time::Budgets;

pub(super) const SEND: u32 = SendOp::Send as u32;
pub(super) const RECEIVE: u32 = ReceiveOp::Receive as u32;
const MAKE: u32 = ReceiveOp::MakeSend as u32;
const BIND: u32 = ReceiveOp::Bind as u32;
pub(super) const DISPATCH: u32 = ThreadOp::Dispatch as u32;
pub(super) const STOP: u32 = ThreadOp::Stop as u32;
pub(super) const RESUME: u32 = ThreadOp::Resume as u32;
pub(super) const NOW: u64 = crate::syscall::ops::endpoint::NOW;
/// A deadline that does not come.
pub(super) const LATE: u64 = 1 << 62;

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

/// Endpoints: the receiving end of all, the object.
pub(super) fn endpoints(rig: &Rig<'_>) -> Result<(CapIndex, WeakRef), Stop> {
    Ok(rig.new_cap(ObjectKind::Endpoints)?)
}

/// A sending end of endpoint `line`.
pub(super) fn sender(
    rig: &Rig<'_>,
    object: WeakRef,
    line: u64,
    bits: u64,
) -> Result<CapIndex, Stop> {
    let payload = [line, bits, 0];
    Ok(rig.put(CapType::Send, Rights::ALL, Some(object), payload)?)
}

/// A ready thread of the rig's component that this CPU's scheduler `ends` looks after.
pub(super) fn thread(rig: &Rig<'_>, ends: WeakRef, tag: u64) -> Result<(CapIndex, WeakRef), Stop> {
    let object = rig.thread_of(rig.component, State::Ready)?;
    let t = rig.as_thread(object)?;
    t.scheduler.store(ends.bits(), Ordering::Relaxed);
    t.tag.store(tag, Ordering::Relaxed);
    Ok((rig.cap(ObjectKind::Thread, object, Rights::ALL)?, object))
}

/// The endpoint of this CPU's scheduler.
pub(super) fn mine(rig: &Rig<'_>) -> u64 {
    scheduler_line(rig.cx.node.id(), rig.k.cpu())
}

/// A thread that is dispatched with a priority and waits at an endpoint.
pub(super) fn waiting(
    rig: &Rig<'_>,
    ends: WeakRef,
    (tag, priority): (u64, u64),
    (at, line): (CapIndex, u64),
) -> Result<(CapIndex, WeakRef), Stop> {
    let (cap, t) = thread(rig, ends, tag)?;
    let run = rig.call(cap, DISPATCH, &[priority << 56, 0]);
    gives!(run, Ok(OpOutcome::Switched));
    let wait = rig.call(at, RECEIVE, &[line, LATE]);
    gives!(wait, Ok(OpOutcome::Switched));
    gives!(rig.state(t), Some(State::Blocked));
    ensure!(rig.runs(rig.thread), "the dispatcher does not go on");
    Ok((cap, t))
}

#[ktest(ops)]
fn bits_that_are_sent_are_received_once_and_together(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let a = sender(rig, object, 3, 0b01)?;
    let b = sender(rig, object, 3, 1 << 63)?;
    let receive = |line: u64| rig.sys(ends, RECEIVE, &[line, NOW]);
    gives!(receive(3), Ok(0));
    gives!(rig.sys(a, SEND, &[]), Ok(0));
    gives!(rig.sys(a, SEND, &[]), Ok(0));
    gives!(rig.sys(b, SEND, &[]), Ok(0));
    gives!(receive(2), Ok(0));
    gives!(receive(3), Ok(1 << 63 | 1));
    gives!(receive(3), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn endpoints_are_reached_by_number_within_the_capability(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let part = rig.put(CapType::Receive, Rights::ALL, Some(object), [10, 4, 0])?;
    let to = sender(rig, object, 12, 5)?;
    gives!(rig.sys(to, SEND, &[]), Ok(0));
    gives!(rig.sys(part, RECEIVE, &[2, NOW]), Ok(5));
    for bad in [4, 64, u64::MAX] {
        gives!(rig.sys(part, RECEIVE, &[bad, NOW]), Err(Error::BadArgument));
        gives!(rig.sys(part, BIND, &[bad, 0]), Err(Error::BadArgument));
        gives!(rig.sys(part, MAKE, &[bad, 0, 1]), Err(Error::BadArgument));
    }
    gives!(rig.sys(ends, RECEIVE, &[64, NOW]), Err(Error::BadArgument));
    Ok(None)
}

#[ktest(ops)]
fn sending_ends_are_made_for_one_endpoint_with_some_bits(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (ends, _) = endpoints(rig)?;
    let at = rig.free_slot();
    let word = n(table) << 32 | n(at);
    gives!(rig.sys(ends, MAKE, &[9, word, 0]), Err(Error::BadArgument));
    gives!(rig.sys(ends, MAKE, &[9, n(at), 1]), Err(Error::NoCap));
    gives!(
        rig.sys(ends, MAKE, &[9, n(ends) << 32, 1]),
        Err(Error::WrongCap)
    );
    gives!(rig.sys(ends, MAKE, &[9, word, 6]), Ok(0));
    gives!(rig.sys(ends, MAKE, &[9, word, 6]), Err(Error::Exists));
    gives!(rig.sys(at, SEND, &[]), Ok(0));
    gives!(rig.sys(ends, RECEIVE, &[9, NOW]), Ok(6));
    Ok(None)
}

#[ktest(ops)]
fn operations_on_endpoints_need_their_rights(rig: &Rig<'_>) -> Outcome {
    let object = rig.object(ObjectKind::Endpoints)?;
    let of = (CapType::Receive, Some(object), [0, 64, 0]);
    for op in [RECEIVE, MAKE, BIND] {
        needs_its_right(rig, of, op, &[0, NOW])?;
    }
    let of = (CapType::Send, Some(object), [0, 1, 0]);
    needs_its_right(rig, of, SEND, &[])?;
    let receive = rig.cap(ObjectKind::Endpoints, object, Rights::ALL)?;
    let send = sender(rig, object, 0, 1)?;
    rig::has_no_other_operations(rig, receive, &[RECEIVE, MAKE, BIND])?;
    rig::has_no_other_operations(rig, send, &[SEND])?;
    gives!(rig.sys(receive, RECEIVE, &[0, NOW]), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn endpoints_that_are_gone_take_nothing(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let to = sender(rig, object, 0, 1)?;
    crate::syscall::ops::memory::to_untyped(&rig.k, object.frame)?;
    gives!(rig.sys(to, SEND, &[]), Err(Error::Revoked));
    gives!(rig.sys(ends, RECEIVE, &[0, NOW]), Err(Error::Revoked));
    let posted = rig.cx.machine.post(&rig.k, object, 0, 1);
    gives!(posted, Err(Error::Revoked));
    Ok(None)
}

#[ktest(ops)]
fn endpoints_are_bound_to_cpus_that_there_are(rig: &Rig<'_>) -> Outcome {
    let (ends, _) = endpoints(rig)?;
    let nodes = rig.cx.node.params.node_count as u64;
    let cpus = rig.cx.node.params.cpus as u64;
    gives!(rig.sys(ends, BIND, &[0, nodes]), Err(Error::NoSuchNode));
    gives!(
        rig.sys(ends, BIND, &[0, cpus << 8]),
        Err(Error::BadArgument)
    );
    gives!(rig.sys(ends, BIND, &[0, 0xff00]), Err(Error::BadArgument));
    let last = (nodes - 1) | (cpus - 1) << 8;
    gives!(rig.sys(ends, BIND, &[0, last]), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn waiting_threads_leave_the_cpu_to_their_dispatcher(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    waiting(rig, object, (7, 1), (ends, 20))?;
    let t = rig.as_thread(rig.thread)?;
    let value = t.result_value.load(Ordering::Relaxed);
    gives!(value & 0xff, Stopped::Blocked as u64);
    // The scheduler is told until when.
    gives!(value >> 8, LATE.min(u64::MAX >> 8));
    Ok(None)
}

#[ktest(ops)]
fn what_is_there_is_received_without_waiting(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let to = sender(rig, object, 20, 4)?;
    gives!(rig.sys(to, SEND, &[]), Ok(0));
    gives!(
        rig.call(ends, RECEIVE, &[20, LATE]),
        Ok(OpOutcome::Value(4))
    );
    gives!(rig.state(rig.thread), Some(State::Running));
    Ok(None)
}

#[ktest(ops)]
fn messages_wake_who_waits_and_tell_the_scheduler(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (_, t) = waiting(rig, object, (0x77, 0), (ends, 20))?;
    let to = sender(rig, object, 20, 4)?;
    // No more urgent than the sender: the sender goes on.
    gives!(rig.call(to, SEND, &[]), Ok(OpOutcome::Value(0)));
    ensure!(rig.runs(rig.thread), "the sender does not go on");
    gives!(rig.state(t), Some(State::Ready));
    let event = rig.sys(ends, RECEIVE, &[mine(rig), NOW])?;
    let want = Event {
        tag: 0x77,
        why: Woken::Ready,
    };
    gives!(Event::from_bits(event), Some(want));
    gives!(rig.sys(ends, RECEIVE, &[mine(rig), NOW]), Ok(0));
    // The bits wait at the endpoint until the thread runs.
    let waits = &rig.as_thread(t)?.result;
    gives!(waits.load(Ordering::Relaxed), 2);
    gives!(rig.sys(ends, RECEIVE, &[20, NOW]), Ok(4));
    Ok(None)
}

/// A capability that this CPU has cached sends on the fast path if no thread waits, with the same outcome.
#[ktest(ops)]
fn known_sending_ends_wake_who_waits(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let to = sender(rig, object, 20, 4)?;
    for _ in 0..3 {
        gives!(rig.sys(to, SEND, &[]), Ok(0));
        gives!(rig.sys(ends, RECEIVE, &[20, NOW]), Ok(4));
        gives!(rig.sys(ends, RECEIVE, &[20, NOW]), Ok(0));
    }
    rig.remembers(to)?;
    let (_, t) = waiting(rig, object, (0x77, 0), (ends, 20))?;
    gives!(rig.sys(to, SEND, &[]), Ok(0));
    gives!(rig.state(t), Some(State::Ready));
    gives!(rig.sys(ends, RECEIVE, &[20, NOW]), Ok(4));
    Ok(None)
}

/// A receiving end that this CPU remembers is for its endpoints, and not for their neighbours.
#[ktest(ops)]
fn known_receiving_ends_are_for_their_endpoints(rig: &Rig<'_>) -> Outcome {
    let (_, object) = endpoints(rig)?;
    let part = rig.put(CapType::Receive, Rights::ALL, Some(object), [20, 2, 0])?;
    let to = sender(rig, object, 22, 4)?;
    for _ in 0..3 {
        gives!(rig.sys(part, RECEIVE, &[1, NOW]), Ok(0));
        gives!(rig.sys(to, SEND, &[]), Ok(0));
    }
    rig.remembers(part)?;
    for bad in [2, 44, u64::MAX, 2u64.wrapping_sub(20)] {
        gives!(rig.sys(part, RECEIVE, &[bad, NOW]), Err(Error::BadArgument));
    }
    Ok(None)
}

#[ktest(ops)]
fn messages_to_a_more_urgent_thread_switch_to_it(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (_, urgent) = waiting(rig, object, (1, 9), (ends, 20))?;
    // The sender is dispatched, too: schedulers themselves are not switched away from.
    let (cap, other) = thread(rig, object, 2)?;
    rig.switches(cap, DISPATCH, &[3 << 56, 0])?;
    let to = sender(rig, object, 20, 4)?;
    // It runs within the sender's slice, not that of its own last dispatch.
    let sender = rig.as_thread(other)?;
    sender.slice_end.store(1 << 62, Ordering::Relaxed);
    rig.switches(to, SEND, &[])?;
    ensure!(rig.runs(urgent), "it does not run");
    let slice = rig.as_thread(urgent)?.slice_end.load(Ordering::Relaxed);
    gives!(slice, 1 << 62);
    gives!(rig.state(other), Some(State::Running));
    // It has what has come, and that is not there any more.
    let t = rig.as_thread(urgent)?;
    gives!(t.result.load(Ordering::Relaxed), 1);
    gives!(t.result_value.load(Ordering::Relaxed), 4);
    gives!(rig.sys(ends, RECEIVE, &[20, NOW]), Ok(0));
    // It waits again: the sender goes on, with its result.
    rig.switches(ends, RECEIVE, &[20, 0])?;
    ensure!(rig.runs(other), "the sender does not go on");
    let t = rig.as_thread(other)?;
    gives!(t.result_status.load(Ordering::Relaxed), 0);
    Ok(None)
}

/// A thread that was stopped, and that waits elsewhere by now, may still be found where it
/// was: it is woken, but what has come there is not its own.
#[ktest(ops)]
fn messages_stay_for_those_who_wait_there(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (_, urgent) = waiting(rig, object, (1, 9), (ends, 20))?;
    let (cap, _) = thread(rig, object, 2)?;
    rig.switches(cap, DISPATCH, &[3 << 56, 0])?;
    let t = rig.as_thread(urgent)?;
    t.waits_line.store(21, Ordering::Relaxed);
    let to = sender(rig, object, 20, 4)?;
    rig.switches(to, SEND, &[])?;
    ensure!(rig.runs(urgent), "it does not run");
    gives!(t.result.load(Ordering::Relaxed), 2);
    gives!(rig.sys(ends, RECEIVE, &[20, NOW]), Ok(4));
    rig.switches(ends, RECEIVE, &[21, 0])?;
    Ok(None)
}

#[ktest(ops)]
fn only_one_thread_waits_at_an_endpoint(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (_, first) = waiting(rig, object, (1, 1), (ends, 20))?;
    let (cap, second) = thread(rig, object, 2)?;
    rig.switches(cap, DISPATCH, &[0, 0])?;
    let is = rig.call(ends, RECEIVE, &[20, LATE]);
    gives!(is, Ok(OpOutcome::Switched));
    // It goes on, with an error as the result of its call.
    ensure!(rig.runs(second), "it waits");
    gives!(rig.state(second), Some(State::Running));
    let t = rig.as_thread(second)?;
    let status = t.result_status.load(Ordering::Relaxed);
    gives!(Error::from_code(status), Some(Error::Exists));
    gives!(rig.state(first), Some(State::Blocked));
    Ok(None)
}

/// A thread that wants to wait and cannot has not stopped: its budget goes on being charged.
#[ktest(ops)]
fn who_does_not_wait_after_all_goes_on_paying(cx: &TestCtx<'_>) -> Outcome {
    const ALL: u64 = 3_600_000_000_000;
    rig::with(cx, |rig| {
        let (ends, object) = endpoints(rig)?;
        waiting(rig, object, (1, 1), (ends, 20))?;
        let (time, budgets) = rig.new_cap(ObjectKind::Time)?;
        let budgets: &Budgets = find(cx.node, budgets, Budgets::KIND)?;
        budgets.left[0].store(ALL, Ordering::Relaxed);
        let (cap, t) = thread(rig, object, 2)?;
        let run = rig.call(cap, DISPATCH, &[0, time.get().into()]);
        gives!(run, Ok(OpOutcome::Switched));
        rig.switches(ends, RECEIVE, &[20, LATE])?;
        ensure!(rig.runs(t), "it waits");
        let left = || budgets.left[0].load(Ordering::Relaxed);
        let before = left();
        let until = cx.machine.fused_ns() + 2_000;
        while cx.machine.fused_ns() < until {}
        rig.switches(cap, ThreadOp::Yield as u32, &[])?;
        ensure!(
            left() <= before - 2_000,
            "{} of {before} ns are left",
            left()
        );
        Ok(None)
    })
}

/// A receiver whose scheduler is gone waits all the same, and the sender goes on.
#[ktest(ops)]
fn senders_go_on_when_a_receiver_without_a_scheduler_waits(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (_, urgent) = waiting(rig, object, (1, 9), (ends, 20))?;
    let (cap, other) = thread(rig, object, 2)?;
    rig.switches(cap, DISPATCH, &[3 << 56, 0])?;
    let to = sender(rig, object, 20, 4)?;
    rig.switches(to, SEND, &[])?;
    ensure!(rig.runs(urgent), "it does not run");
    let (_, gone) = endpoints(rig)?;
    rig.as_thread(urgent)?
        .scheduler
        .store(gone.bits(), Ordering::Relaxed);
    crate::syscall::ops::memory::to_untyped(&rig.k, gone.frame)?;
    rig.switches(ends, RECEIVE, &[20, LATE])?;
    ensure!(rig.runs(other), "the sender does not go on");
    gives!(rig.state(urgent), Some(State::Blocked));
    Ok(None)
}

#[ktest(ops)]
fn stopped_threads_wait_for_nothing(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (cap, t) = waiting(rig, object, (1, 1), (ends, 20))?;
    gives!(rig.sys(cap, STOP, &[]), Ok(0));
    gives!(rig.state(t), Some(State::Stopped));
    let e: &Endpoints = find(rig.cx.node, object, Endpoints::KIND)?;
    gives!(e.lines[20].waiter.load(Ordering::Relaxed), 0);
    let to = sender(rig, object, 20, 4)?;
    gives!(rig.call(to, SEND, &[]), Ok(OpOutcome::Value(0)));
    gives!(rig.state(t), Some(State::Stopped));
    gives!(rig.sys(ends, RECEIVE, &[20, NOW]), Ok(4));
    // Its frame can be given up: nothing leads to it any more.
    crate::syscall::ops::memory::to_untyped(&rig.k, t.frame)?;
    Ok(None)
}

#[ktest(ops)]
fn resume_ends_the_waiting_of_a_blocked_thread(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (cap, t) = waiting(rig, object, (5, 1), (ends, 20))?;
    gives!(rig.sys(cap, RESUME, &[]), Ok(0));
    gives!(rig.state(t), Some(State::Ready));
    let e: &Endpoints = find(rig.cx.node, object, Endpoints::KIND)?;
    gives!(e.lines[20].waiter.load(Ordering::Relaxed), 0);
    let frame = rig.as_thread(t)?;
    // It takes what there is when it runs.
    gives!(frame.result.load(Ordering::Relaxed), 2);
    let event = rig.sys(ends, RECEIVE, &[mine(rig), NOW])?;
    gives!(Event::from_bits(event).map(|e| e.tag), Some(5));
    Ok(None)
}

#[ktest(ops)]
fn threads_outlive_the_endpoint_they_wait_at(rig: &Rig<'_>) -> Outcome {
    let (_, scheduler) = endpoints(rig)?;
    let (ends, object) = endpoints(rig)?;
    let (cap, t) = waiting(rig, scheduler, (5, 1), (ends, 20))?;
    crate::syscall::ops::memory::to_untyped(&rig.k, object.frame)?;
    gives!(rig.sys(cap, RESUME, &[]), Ok(0));
    gives!(rig.state(t), Some(State::Ready));
    Ok(None)
}

#[ktest(ops)]
fn events_of_many_threads_are_all_told_once(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let mut seen = 0u64;
    for tag in 0..10 {
        waiting(rig, object, (tag, 0), (ends, 20 + tag))?;
        let to = sender(rig, object, 20 + tag, 1)?;
        gives!(rig.call(to, SEND, &[]), Ok(OpOutcome::Value(0)));
    }
    for _ in 0..10 {
        let event = rig.sys(ends, RECEIVE, &[mine(rig), NOW])?;
        let event = Event::from_bits(event).ok_or(Error::NotFound)?;
        gives!(event.why, Woken::Ready);
        ensure!(seen >> event.tag & 1 == 0, "{} told twice", event.tag);
        seen |= 1 << event.tag;
    }
    gives!(seen, 0x3ff);
    gives!(rig.sys(ends, RECEIVE, &[mine(rig), NOW]), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn threads_on_a_schedulers_list_are_not_given_up(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (cap, t) = waiting(rig, object, (1, 0), (ends, 20))?;
    let to = sender(rig, object, 20, 4)?;
    gives!(rig.call(to, SEND, &[]), Ok(OpOutcome::Value(0)));
    gives!(rig.sys(cap, STOP, &[]), Ok(0));
    let up = || crate::syscall::ops::memory::to_untyped(&rig.k, t.frame);
    gives!(up(), Err(Error::NotReady));
    gives!(rig.state(t), Some(State::Stopped));
    rig.sys(ends, RECEIVE, &[mine(rig), NOW])?;
    ensure!(up().is_ok(), "still refused");
    Ok(None)
}

/// A frame that has references stays: so do its lists.
#[ktest(ops)]
fn endpoints_that_are_not_given_up_after_all_take_news(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let pinned = rig.k.frames().pin_kernel(object, Endpoints::KIND);
    ensure!(pinned.is_ok(), "{pinned:?}");
    let given_up = crate::syscall::ops::memory::to_untyped(&rig.k, object.frame);
    gives!(given_up.map(|_| ()), Err(Error::Exists));
    waiting(rig, object, (1, 0), (ends, 20))?;
    let to = sender(rig, object, 20, 4)?;
    gives!(rig.call(to, SEND, &[]), Ok(OpOutcome::Value(0)));
    ensure!(
        rig.sys(ends, RECEIVE, &[mine(rig), NOW])? != 0,
        "nothing is told"
    );
    let unpinned = rig.k.frames().unpin(object.frame);
    ensure!(unpinned.is_ok(), "{unpinned:?}");
    Ok(None)
}

/// Otherwise threads on them could not be given up any more.
#[ktest(ops)]
fn endpoints_with_threads_on_their_lists_are_not_given_up(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    for tag in 0..2 {
        waiting(rig, object, (tag, 0), (ends, 20 + tag))?;
        let to = sender(rig, object, 20 + tag, 4)?;
        gives!(rig.call(to, SEND, &[]), Ok(OpOutcome::Value(0)));
    }
    let up = || crate::syscall::ops::memory::to_untyped(&rig.k, object.frame);
    gives!(up(), Err(Error::NotReady));
    let told = |rig: &Rig<'_>| rig.sys(ends, RECEIVE, &[mine(rig), NOW]);
    ensure!(told(rig)? != 0, "nothing is told");
    // The other one has been taken off the list of events, and not been told.
    gives!(up(), Err(Error::NotReady));
    ensure!(told(rig)? != 0, "one has been lost");
    ensure!(up().is_ok(), "still refused");
    Ok(None)
}

#[ktest(ops)]
fn news_for_the_root_thread_interrupt_whom_it_has_dispatched(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (ends, object) = endpoints(rig)?;
    // It has looked there last, and has never waited.
    let (earlier, _) = endpoints(rig)?;
    for ends in [earlier, ends] {
        gives!(rig.sys(ends, RECEIVE, &[mine(rig), NOW]), Ok(0));
    }
    let (cap, t) = thread(rig, object, 1)?;
    rig.switches(cap, DISPATCH, &[0, 0])?;
    cx.machine.serve_root(&rig.k);
    ensure!(rig.runs(t), "it was interrupted for nothing");
    gives!(cx.machine.post(&rig.k, object, mine(rig), 1), Ok(()));
    cx.machine.serve_root(&rig.k);
    ensure!(rig.runs(rig.thread), "the root does not go on");
    gives!(rig.state(t), Some(State::Ready));
    let value = rig
        .as_thread(rig.thread)?
        .result_value
        .load(Ordering::Relaxed);
    gives!(value & 0xff, Stopped::Interrupted as u64);
    Ok(None)
}

/// The frame of endpoints that the root thread has looked at last may be anything by now: its words are no news.
#[ktest(ops)]
fn endpoints_that_are_gone_interrupt_nobody(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    gives!(rig.sys(ends, RECEIVE, &[mine(rig), NOW]), Ok(0));
    let (_, scheduler) = endpoints(rig)?;
    let (cap, t) = thread(rig, scheduler, 1)?;
    rig.switches(cap, DISPATCH, &[0, 0])?;
    let e: &Endpoints = find(rig.cx.node, object, Endpoints::KIND)?;
    let bits = &e.line(mine(rig))?.bits;
    crate::syscall::ops::memory::to_untyped(&rig.k, object.frame)?;
    bits.store(1, Ordering::Relaxed);
    rig.cx.machine.serve_root(&rig.k);
    bits.store(0, Ordering::Relaxed);
    ensure!(rig.runs(t), "it was interrupted for nothing");
    Ok(None)
}

#[ktest(ops)]
fn guarded_ends_are_mute_after_revocation(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let live = rig.object(ObjectKind::Liveness)?;
    let guard = rig.k.captbls().expected(live, 0).map_err(Error::from)?;
    let send = rig.put_guarded(
        CapType::Send,
        all_but(31),
        Some(object),
        [0, 1, 0],
        Some(guard),
    )?;
    gives!(rig.sys(send, SEND, &[]), Ok(0));
    gives!(rig.sys(ends, RECEIVE, &[0, NOW]), Ok(1));
    let l = rig.cap(ObjectKind::Liveness, live, Rights::ALL)?;
    rig.sys(l, LivenessOp::Revoke as u32, &[0])?;
    gives!(rig.sys(send, SEND, &[]), Err(Error::Revoked));
    gives!(rig.sys(ends, RECEIVE, &[0, NOW]), Ok(0));
    Ok(None)
}
