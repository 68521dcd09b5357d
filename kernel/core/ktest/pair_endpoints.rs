//! Pair tests of endpoints: messages and events across nodes.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapType, Event, ObjectKind, Rights, SendOp, Woken};
use dyad_abi::service::scheduler_line;
use dyad_abi::{CpuId, Error};
use dyad_shm::frame::WeakRef;

use super::pair_caps::{show, shown};
use super::rig::{self, Rig};
use super::{LATE_NS, Outcome, SLEEP_NS, Stop, TestCtx, ensure, gives, ktest, remark};
use crate::sched::dispatch::{self, OpOutcome};
use dyad_object::endpoint::{Endpoints, Line};
use dyad_object::find;
use dyad_object::thread::State;

/// How long anything may take, in nanoseconds.
const LIMIT: u64 = 10_000_000_000;

pub(super) fn first_cpu() -> CpuId {
    CpuId::first(1).next().unwrap_or_else(|| unreachable!())
}

pub(super) fn ends(cx: &TestCtx<'_>, object: WeakRef) -> Result<&'static Endpoints, Stop> {
    Ok(find(cx.node, object, Endpoints::KIND)?)
}

/// Endpoints of a scheduler for all nodes.
pub(super) fn scheduler(cx: &TestCtx<'_>, rig: &Rig<'_>) -> Result<WeakRef, Stop> {
    let first = cx.node.all().next().unwrap_or(cx.node.id());
    if cx.node.id() == first {
        show(cx, 6, rig.object(ObjectKind::Endpoints)?);
    }
    cx.meet()?;
    shown(cx, 6, first)
}

/// Waits for an event at this CPU's endpoint.
pub(super) fn event(cx: &TestCtx<'_>, rig: &Rig<'_>, scheduler: WeakRef) -> Result<Event, Stop> {
    let line = ends(cx, scheduler)?.line(scheduler_line(cx.node.id(), rig.k.cpu()))?;
    let mut got = 0;
    let came = cx.wait_for(LIMIT, || {
        got = line.take(cx.node);
        got != 0
    });
    ensure!(came, "no event");
    Ok(Event::from_bits(got).ok_or(Error::Corrupt)?)
}

/// Puts a thread to wait at an endpoint, as if it had run on this CPU.
fn wait_at(rig: &Rig<'_>, t: WeakRef, object: WeakRef, n: u64, line: &'static Line) -> Outcome {
    let thread = rig.as_thread(t)?;
    thread.waits_at.store(object.bits(), Ordering::Relaxed);
    thread.waits_line.store(n, Ordering::Relaxed);
    let owner = thread.owner(rig.k.words()).ok_or(Error::Corrupt)?;
    ensure!(
        dispatch::sleep_at(&rig.k, thread, owner, line)?,
        "it does not wait"
    );
    Ok(None)
}

/// Every node sends to a thread of the next one, which is asleep.
#[ktest(pair)]
fn messages_wake_threads_of_other_nodes(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let scheduler = scheduler(cx, rig)?;
    let object = rig.object(ObjectKind::Endpoints)?;
    show(cx, 0, object);
    let t = rig.thread_of(rig.component, State::Running)?;
    let thread = rig.as_thread(t)?;
    thread.scheduler.store(scheduler.bits(), Ordering::Relaxed);
    thread
        .tag
        .store(100 + cx.node.id().index() as u64, Ordering::Relaxed);
    cx.node.words.hand_over(thread);
    wait_at(rig, t, object, 5, &ends(cx, object)?.lines[5])?;
    cx.meet()?;
    let theirs = shown(cx, 0, cx.next())?;
    let to = rig.put(CapType::Send, Rights::ALL, Some(theirs), [5, 0x30, 0])?;
    let sent = rig.call(to, SendOp::Send as u32, &[]);
    gives!(sent, Ok(OpOutcome::Value(0)));
    let e = event(cx, rig, scheduler)?;
    let tag = 100 + cx.node.id().index() as u32;
    gives!((e.tag, e.why), (tag, Woken::Ready));
    gives!(rig.state(t), Some(State::Ready));
    gives!(ends(cx, object)?.lines[5].take(cx.node), 0x30);
    cx.meet()?;
    Ok(None)
}

/// The scheduler's CPU sleeps: the event comes with a doorbell.
#[ktest(pair)]
fn messages_from_other_nodes_ring_the_schedulers_doorbell(cx: &TestCtx<'_>) -> Outcome {
    const TRIPS: u64 = 50;
    rig::with(cx, |rig| {
        let scheduler = scheduler(cx, rig)?;
        let object = rig.object(ObjectKind::Endpoints)?;
        show(cx, 0, object);
        let t = rig.thread_of(rig.component, State::Blocked)?;
        let thread = rig.as_thread(t)?;
        thread.scheduler.store(scheduler.bits(), Ordering::Relaxed);
        cx.node.words.hand_over(thread);
        let line = &ends(cx, object)?.lines[5];
        let mine = ends(cx, scheduler)?.line(scheduler_line(cx.node.id(), rig.k.cpu()))?;
        cx.meet()?;
        let theirs = shown(cx, 0, cx.next())?;
        let to = rig.put(CapType::Send, Rights::ALL, Some(theirs), [5, 1, 0])?;
        let first = cx.node.id().index() == 0;
        let before = cx.machine.interrupts().0;
        let mut late = 0;
        for trip in 0..TRIPS {
            wait_at(rig, t, object, 5, line)?;
            // Its predecessor sends to a thread that waits.
            cx.meet()?;
            if first {
                rig.call(to, SendOp::Send as u32, &[])?;
            }
            let start = cx.machine.clock_ns();
            while mine.take(cx.node) == 0 {
                let asleep = cx.machine.clock_ns();
                if cx.machine.prepare_sleep() {
                    cx.machine.set_timer(Some(asleep + SLEEP_NS));
                    cx.machine.wait();
                    cx.machine.attentive();
                }
                cx.machine.drain();
                late += (cx.machine.clock_ns().wrapping_sub(asleep) > LATE_NS) as u64;
                let stuck = cx.machine.clock_ns().wrapping_sub(start) > LIMIT;
                ensure!(!stuck, "trip {trip}: no sender woke the scheduler");
            }
            if !first {
                rig.call(to, SendOp::Send as u32, &[])?;
            }
            gives!(rig.state(t), Some(State::Ready));
            line.take(cx.node);
            let owner = thread.owner(rig.k.words()).ok_or(Error::Corrupt)?;
            ensure!(
                thread.change(rig.k.words(), owner, owner.with(State::Blocked)),
                "another CPU has it"
            );
        }
        let bells = cx.machine.interrupts().0 - before;
        ensure!(
            late <= TRIPS / 10,
            "{late} of {TRIPS} wake-ups by the timer"
        );
        cx.meet()?;
        remark!("{bells} doorbells, {late} late")
    })
}

/// All nodes send to one endpoint, whose receiver waits, takes, and waits again. No bit may be
/// lost, and no sender may wake a thread that does not wait.
#[ktest(pair)]
fn no_message_is_lost_between_waiting_and_waking(cx: &TestCtx<'_>) -> Outcome {
    const TIMES: u64 = 1_500;
    rig::with(cx, |rig| {
        let scheduler = scheduler(cx, rig)?;
        let first = cx.node.all().next().unwrap_or(cx.node.id());
        if cx.node.id() == first {
            show(cx, 0, rig.object(ObjectKind::Endpoints)?);
        }
        cx.meet()?;
        let object = shown(cx, 0, first)?;
        let line = &ends(cx, object)?.lines[3];
        let me = cx.node.id().index();
        if cx.node.id() != first {
            let bit = 1 << me;
            let to = rig.put(CapType::Send, Rights::ALL, Some(object), [3, bit, 0])?;
            cx.meet()?;
            let start = cx.machine.clock_ns();
            for i in 1..=TIMES {
                // Now earlier, now later than the receiver begins to wait.
                for _ in 0..i * 37 % 256 {
                    cx.machine.relax();
                }
                rig.call(to, SendOp::Send as u32, &[])?;
                // The next one is another message only when this one has been taken.
                while cx.word(16 + me).load(Ordering::Acquire) < i {
                    let stuck = cx.machine.clock_ns().wrapping_sub(start) > 3 * LIMIT;
                    ensure!(!stuck, "message {i} is lost");
                    cx.machine.drain();
                }
            }
            cx.meet()?;
            return Ok(None);
        }
        let t = rig.thread_of(rig.component, State::Running)?;
        let thread = rig.as_thread(t)?;
        thread.scheduler.store(scheduler.bits(), Ordering::Relaxed);
        let senders = cx.node.params.node_count as u64 - 1;
        cx.meet()?;
        let (mut taken, mut waits) = (0, 0u64);
        while taken < TIMES * senders {
            for _ in 0..taken * 29 % 256 {
                cx.machine.relax();
            }
            let owner = thread.owner(rig.k.words()).ok_or(Error::Corrupt)?;
            if dispatch::sleep_at(&rig.k, thread, owner, line)? {
                waits += 1;
                let woken = cx.wait_for(LIMIT, || rig.state(t) == Some(State::Ready));
                ensure!(
                    woken,
                    "asleep with {:#x} at the endpoint",
                    line.bits.load(Ordering::Relaxed)
                );
                let e = event(cx, rig, scheduler)?;
                gives!(e.why, Woken::Ready);
                let owner = thread.owner(rig.k.words()).ok_or(Error::Corrupt)?;
                let back = thread.change(rig.k.words(), owner, owner.with(State::Running));
                ensure!(back, "another CPU has it");
            }
            let bits = line.take(cx.node);
            for n in cx.node.others() {
                if bits >> n.index() & 1 != 0 {
                    cx.word(16 + n.index()).fetch_add(1, Ordering::AcqRel);
                    taken += 1;
                }
            }
        }
        cx.meet()?;
        remark!("{taken} messages, {waits} waits")
    })
}

/// All nodes make threads of one scheduler ready at once: it hears of each, once.
#[ktest(pair)]
fn events_from_all_nodes_are_all_told_once(cx: &TestCtx<'_>) -> Outcome {
    const EACH: u64 = 20;
    rig::with(cx, |rig| {
        let scheduler = scheduler(cx, rig)?;
        let me = cx.node.id().index() as u64;
        let first = cx.node.all().next().unwrap_or(cx.node.id());
        let line = ends(cx, scheduler)?.line(scheduler_line(first, first_cpu()))?;
        let mut threads = [None; EACH as usize];
        for (i, slot) in threads.iter_mut().enumerate() {
            let t = rig.as_thread(rig.thread_of(rig.component, State::Ready)?)?;
            t.tag.store(me * EACH + i as u64, Ordering::Relaxed);
            *slot = Some(t);
        }
        cx.meet()?;
        for t in threads.into_iter().flatten() {
            line.push_event(cx.node, t, Woken::Ready)?;
        }
        if cx.node.id() == first {
            let all = EACH * cx.node.params.node_count as u64;
            let mut seen = [0u64; 4];
            for _ in 0..all {
                let mut got = 0;
                let came = cx.wait_for(LIMIT, || {
                    got = line.take(cx.node);
                    got != 0
                });
                ensure!(came, "an event is missing");
                let tag = Event::from_bits(got).ok_or(Error::Corrupt)?.tag as usize;
                let word = seen.get_mut(tag / 64).ok_or(Error::Corrupt)?;
                ensure!(*word >> (tag % 64) & 1 == 0, "{tag} twice");
                *word |= 1 << (tag % 64);
            }
            gives!(line.take(cx.node), 0);
        }
        cx.meet()?;
        for t in threads.into_iter().flatten() {
            gives!(t.event.load(Ordering::Relaxed), 0);
        }
        cx.meet()?;
        Ok(None)
    })
}
