//! Threads that a message has switched to, and what their schedulers hear of them.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapType, Event, HardwareOp, ObjectKind, Rights, StopOutcome, ThreadOp, Woken};

use super::ops_endpoint::{
    DISPATCH, LATE, NOW, RECEIVE, RESUME, SEND, STOP, endpoints, mine, sender, thread, waiting,
};
use super::rig::Rig;
use super::{Outcome, ensure, gives, ktest};
use crate::sched::dispatch::OpOutcome;
use dyad_object::endpoint::Endpoints;
use dyad_object::find;
use dyad_object::thread::State;

/// The receiver was dispatched on a budget before. It runs on the sender's time.
#[ktest(ops)]
fn who_a_message_switches_to_spends_the_senders_time(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (_, urgent) = waiting(rig, object, (1, 9), (ends, 20))?;
    let earlier = &rig.as_thread(urgent)?.budget;
    earlier.store(1 << 20, Ordering::Relaxed);
    let (cap, _) = thread(rig, object, 3)?;
    rig.switches(cap, DISPATCH, &[3 << 56, 0])?;
    let to = sender(rig, object, 20, 4)?;
    rig.switches(to, SEND, &[])?;
    ensure!(rig.runs(urgent), "it is not switched to");
    gives!(earlier.load(Ordering::Relaxed), 0);
    Ok(None)
}

/// The sender of a message is less urgent than the thread that has received it, perhaps also than a thread that this one
/// has woken: the sender goes on only if the scheduler has no news to decide on.
#[ktest(ops)]
fn senders_go_on_unless_the_scheduler_has_to_decide_anew(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (_, urgent) = waiting(rig, object, (1, 9), (ends, 20))?;
    let (_, third) = waiting(rig, object, (2, 5), (ends, 21))?;
    let e: &'static Endpoints = find(rig.cx.node, object, Endpoints::KIND)?;
    while e.line(mine(rig))?.take_thread(rig.cx.node).is_some() {}
    rig.k
        .local
        .root_line
        .set(Some((object, e.line(mine(rig))?)));
    let (cap, other) = thread(rig, object, 3)?;
    rig.switches(cap, DISPATCH, &[3 << 56, 0])?;
    let (to, on) = (sender(rig, object, 20, 4)?, sender(rig, object, 21, 4)?);
    let slice_end = &rig.as_thread(other)?.slice_end;
    slice_end.store(LATE + 1, Ordering::Relaxed);
    rig.switches(to, SEND, &[])?;
    // That it sleeps until a time is news, but none that the sender has to wait for: the sender's slice ends then.
    rig.switches(ends, RECEIVE, &[20, LATE])?;
    ensure!(rig.runs(other), "the sender does not go on");
    gives!(slice_end.load(Ordering::Relaxed), LATE);
    gives!(rig.k.local.slice_end(), LATE);
    while e.line(mine(rig))?.take_thread(rig.cx.node).is_some() {}
    rig.switches(to, SEND, &[])?;
    gives!(rig.sys(on, SEND, &[]), Ok(0));
    gives!(rig.state(third), Some(State::Ready));
    ensure!(rig.runs(urgent), "it was interrupted for one less urgent");
    rig.switches(ends, RECEIVE, &[20, LATE])?;
    ensure!(
        rig.runs(rig.thread),
        "the sender goes on, not the scheduler"
    );
    gives!(rig.state(other), Some(State::Ready));
    gives!(rig.state(urgent), Some(State::Blocked));
    Ok(None)
}

/// The scheduler is told of whatever becomes of a thread that a message has switched to.
#[ktest(ops)]
fn schedulers_hear_of_threads_that_messages_run(rig: &Rig<'_>) -> Outcome {
    for (what, by_itself) in [
        (Woken::Sleeps, true),
        (Woken::Ready, true),
        (Woken::Ready, false),
        (Woken::Ended, true),
    ] {
        let (ends, object) = endpoints(rig)?;
        let (urgent_cap, urgent) = waiting(rig, object, (1, 9), (ends, 20))?;
        let e: &'static Endpoints = find(rig.cx.node, object, Endpoints::KIND)?;
        let (cap, other) = thread(rig, object, 2)?;
        rig.switches(cap, DISPATCH, &[3 << 56, 0])?;
        let to = sender(rig, object, 20, 4)?;
        rig.switches(to, SEND, &[])?;
        ensure!(rig.runs(urgent), "it does not run");
        while e.line(mine(rig))?.take_thread(rig.cx.node).is_some() {}
        match what {
            Woken::Sleeps => rig.switches(ends, RECEIVE, &[20, LATE])?,
            Woken::Ready if by_itself => {
                rig.switches(urgent_cap, ThreadOp::Yield as u32, &[])?;
            }
            Woken::Ready => {
                let slice_end = &rig.as_thread(urgent)?.slice_end;
                slice_end.store(0, Ordering::Relaxed);
                rig.cx.machine.slice_over(&rig.k);
            }
            _ => rig.switches(urgent_cap, ThreadOp::Exit as u32, &[0])?,
        }
        ensure!(rig.runs(other), "the sender does not go on");
        let event = rig.sys(ends, RECEIVE, &[mine(rig), NOW])?;
        gives!(
            Event::from_bits(event).map(|e| (e.tag, e.why)),
            Some((1, what))
        );
        rig.switches(cap, ThreadOp::Exit as u32, &[0])?;
        ensure!(rig.runs(rig.thread), "the rig's does not go on");
    }
    Ok(None)
}

/// The event of a thread that has moved to another CPU meanwhile comes to the scheduler there.
#[ktest(ops)]
fn events_of_threads_that_have_moved_are_passed_on(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (_, t) = thread(rig, object, 6)?;
    let e: &'static Endpoints = find(rig.cx.node, object, Endpoints::KIND)?;
    while e.line(mine(rig))?.take_thread(rig.cx.node).is_some() {}
    let t = rig.as_thread(t)?;
    // The newest reason is told.
    for why in [Woken::Sleeps, Woken::Ready] {
        let told = e.lines[40].push_event(rig.cx.node, t, why);
        ensure!(told.is_ok(), "not told");
    }
    gives!(rig.sys(ends, RECEIVE, &[40, NOW]), Ok(0));
    let event = rig.sys(ends, RECEIVE, &[mine(rig), NOW])?;
    gives!(
        Event::from_bits(event).map(|e| (e.tag, e.why)),
        Some((6, Woken::Ready))
    );
    Ok(None)
}

/// A stopped thread that is still the waiter of its endpoint, because the CPU that stopped it is not done.
#[ktest(ops)]
fn threads_that_are_used_anew_wait_for_nothing(rig: &Rig<'_>) -> Outcome {
    for what in 0..3 {
        let (ends, object) = endpoints(rig)?;
        let (cap, t) = waiting(rig, object, (1, 1), (ends, 20))?;
        let e: &Endpoints = find(rig.cx.node, object, Endpoints::KIND)?;
        let waiter = &e.lines[20].waiter;
        let waits = waiter.load(Ordering::Relaxed);
        ensure!(waits != 0, "it does not wait");
        gives!(rig.sys(cap, STOP, &[]), Ok(0));
        waiter.store(waits, Ordering::Relaxed);
        match what {
            0 => {
                let c = u64::from(
                    rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?
                        .get(),
                );
                let ids = u64::from(rig.thread_ids()?.get());
                let a = [c, 0x1000, 0, rig.id(9), ids << 32];
                gives!(rig.sys(cap, ThreadOp::Configure as u32, &a), Ok(0));
            }
            1 => drop(crate::syscall::ops::memory::to_untyped(&rig.k, t.frame)?),
            _ => {
                let payload = [rig.cx.node.id().index() as u64, 0, 0];
                let h = rig.put(CapType::Hardware, Rights::ALL, None, payload)?;
                let a = [0, u64::from(cap.get())];
                gives!(rig.sys(h, HardwareOp::StartCpu as u32, &a), Ok(0));
            }
        }
        gives!((what, waiter.load(Ordering::Relaxed)), (what, 0));
    }
    Ok(None)
}

/// A thread that waits within a service, and is resumed before it leaves, waits no more.
#[ktest(ops)]
fn who_is_not_stopped_after_all_waits_no_more(rig: &Rig<'_>) -> Outcome {
    let (ends, object) = endpoints(rig)?;
    let (cap, t) = waiting(rig, object, (1, 1), (ends, 20))?;
    let e: &'static Endpoints = find(rig.cx.node, object, Endpoints::KIND)?;
    rig.as_thread(t)?.depth.store(1, Ordering::Relaxed);
    let later = StopOutcome::WhenItLeaves as u64;
    gives!(rig.sys(cap, STOP, &[]), Ok(later));
    gives!(rig.sys(cap, RESUME, &[]), Ok(0));
    if rig.state(t) != Some(State::Blocked) {
        gives!(e.lines[20].waiter.load(Ordering::Relaxed), 0);
    }
    gives!(rig.call(ends, RECEIVE, &[20, NOW]).is_ok(), true);
    gives!(
        rig.call(ends, RECEIVE, &[20, LATE]),
        Ok(OpOutcome::Switched)
    );
    Ok(None)
}
