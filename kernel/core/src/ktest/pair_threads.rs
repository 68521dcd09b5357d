//! Pair tests of threads and endpoints: messages across nodes, threads that change nodes.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapType, Event, ObjectKind, Rights, SendOp, ThreadOp, Woken};
use dyad_abi::service::scheduler_line;
use dyad_abi::{CpuId, Error, NodeId};
use dyad_ring::Message;
use dyad_shm::frame::WeakRef;

use super::ops_thread::has_jumped;
use super::pair_caps::{show, shown};
use super::rig::{self, Rig};
use super::{Cx, Outcome, Stop, ensure, fail, gives, ktest, remark};
use crate::dispatch::After;
use crate::inbox::kind;
use crate::invoke::{Returned, Way};
use crate::object::component::{Component, Entry};
use crate::object::endpoint::{Endpoints, Line};
use crate::object::find;
use crate::object::thread::{State, Thread};

const LIMIT: u64 = 10_000_000_000;
const MIGRATE: u32 = ThreadOp::Migrate as u32;
const JUMP: u32 = ThreadOp::Jump as u32;

fn first_cpu() -> CpuId {
    CpuId::first(1).next().unwrap_or_else(|| unreachable!())
}

fn ends(cx: &Cx<'_>, object: WeakRef) -> Result<&'static Endpoints, Stop> {
    Ok(find(cx.node, object, Endpoints::KIND)?)
}

/// Endpoints of a scheduler for all nodes.
fn scheduler(cx: &Cx<'_>, rig: &Rig<'_>) -> Result<WeakRef, Stop> {
    let first = cx.node.all().next().unwrap_or(cx.node.id());
    if cx.node.id() == first {
        show(cx, 6, rig.object(ObjectKind::Endpoints)?);
    }
    cx.meet()?;
    shown(cx, 6, first)
}

/// Waits for an event at this CPU's endpoint.
fn event(cx: &Cx<'_>, rig: &Rig<'_>, scheduler: WeakRef) -> Result<Event, Stop> {
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
    ensure!(
        line.wait(rig.cx.node, thread) == Ok(true),
        "it does not wait"
    );
    Ok(None)
}

/// Every node sends to a thread of the next one, which is asleep.
#[ktest(pair)]
fn messages_wake_threads_of_other_nodes(cx: &Cx<'_>) -> Outcome {
    rig::with(cx, |rig| {
        let scheduler = scheduler(cx, rig)?;
        let object = rig.object(ObjectKind::Endpoints)?;
        show(cx, 0, object);
        let t = rig.thread_of(rig.component, State::Blocked)?;
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
        gives!(sent, Ok(After::Value(0)));
        let e = event(cx, rig, scheduler)?;
        let tag = 100 + cx.node.id().index() as u32;
        gives!((e.tag, e.why), (tag, Woken::Ready));
        gives!(rig.state(t), Some(State::Ready));
        gives!(ends(cx, object)?.lines[5].take(cx.node), 0x30);
        cx.meet()?;
        Ok(None)
    })
}

/// The scheduler's CPU sleeps: the event comes with a doorbell.
#[ktest(pair)]
fn messages_from_other_nodes_ring_the_schedulers_doorbell(cx: &Cx<'_>) -> Outcome {
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
            // Its predecessor sends to somebody who waits.
            cx.meet()?;
            if first {
                rig.call(to, SendOp::Send as u32, &[])?;
            }
            let start = cx.machine.clock_ns();
            while mine.take(cx.node) == 0 {
                let asleep = cx.machine.clock_ns();
                if cx.machine.prepare_sleep() {
                    cx.machine.set_timer(Some(asleep + 50_000_000));
                    cx.machine.wait();
                    cx.machine.attentive();
                }
                cx.machine.drain();
                late += (cx.machine.clock_ns().wrapping_sub(asleep) > 49_000_000) as u64;
                let stuck = cx.machine.clock_ns().wrapping_sub(start) > LIMIT;
                ensure!(!stuck, "trip {trip}: nobody woke the scheduler");
            }
            if !first {
                rig.call(to, SendOp::Send as u32, &[])?;
            }
            gives!(rig.state(t), Some(State::Ready));
            line.take(cx.node);
            let owner = thread.owner(rig.k.words()).ok_or(Error::Corrupt)?;
            ensure!(
                thread.change(rig.k.words(), owner, owner.with(State::Blocked)),
                "somebody has it"
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
/// lost, and nobody may wake a thread that does not wait.
#[ktest(pair)]
fn no_message_is_lost_between_waiting_and_waking(cx: &Cx<'_>) -> Outcome {
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
        let t = rig.thread_of(rig.component, State::Blocked)?;
        let thread = rig.as_thread(t)?;
        thread.scheduler.store(scheduler.bits(), Ordering::Relaxed);
        let senders = cx.node.params.node_count as u64 - 1;
        cx.meet()?;
        let (mut taken, mut waits) = (0, 0u64);
        while taken < TIMES * senders {
            for _ in 0..taken * 29 % 256 {
                cx.machine.relax();
            }
            if line.wait(cx.node, thread)? {
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
                let back = thread.change(rig.k.words(), owner, owner.with(State::Blocked));
                ensure!(back, "somebody has it");
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

/// Where threads that travel are in user mode: program counter, stack pointer.
const AT: (u64, u64) = (0x4100_0040, 0x4300_0f00);

/// Runs a test in which the running thread of every node's rig is one that a scheduler looks after on
/// all nodes, who find it in slot 0. The test gets its scheduler and the thread.
fn travels(
    cx: &Cx<'_>,
    test: impl FnOnce(&Rig<'_>, WeakRef, &'static Thread) -> Outcome,
) -> Outcome {
    rig::with(cx, |rig| {
        let scheduler = scheduler(cx, rig)?;
        let t = rig.as_thread(rig.thread)?;
        t.scheduler.store(scheduler.bits(), Ordering::Relaxed);
        t.tag
            .store(7 + cx.node.id().index() as u64, Ordering::Relaxed);
        t.id.store(cx.node.id().index() as u64 + 20, Ordering::Relaxed);
        cx.machine
            .init_regs(t.regs(cx.machine.isa()), AT.0, AT.1, 0);
        show(cx, 0, rig.thread);
        test(rig, scheduler, t)
    })
}

/// A component whose code may run on one node only; all nodes find it in slot 2.
fn living_at(cx: &Cx<'_>, rig: &Rig<'_>, home: NodeId) -> Result<WeakRef, Stop> {
    let (component, _, _) = rig.other_component()?;
    let c: &Component = find(cx.node, component, Component::KIND)?;
    cx.node.words.write(&c.home, 1 << home.index());
    show(cx, 2, component);
    Ok(component)
}

/// Takes a thread that has arrived, as its scheduler's dispatch would.
fn take(rig: &Rig<'_>, t: WeakRef) -> Result<&'static Thread, Stop> {
    let thread = rig.as_thread(t)?;
    let owner = thread.owner(rig.k.words()).ok_or(Error::Corrupt)?;
    gives!(owner.state, State::Ready);
    ensure!(
        owner.is(rig.cx.node.id(), rig.cx.node.incarnation()),
        "it belongs to {owner:?}"
    );
    let mine = thread.change(rig.k.words(), owner, owner.with(State::Running));
    ensure!(mine, "somebody has it");
    rig.k.local.thread.set(Some(thread));
    Ok(thread)
}

/// Every node's thread goes round all nodes and comes back; what it was doing on an ISA waits
/// there for it.
#[ktest(pair)]
fn threads_migrate_round_all_nodes_and_go_on_where_they_were(cx: &Cx<'_>) -> Outcome {
    travels(cx, |rig, scheduler, t| {
        let isa = cx.machine.isa();
        let probe = cx.machine.user_probe();
        t.started[isa.index()].store(1, Ordering::Relaxed);
        let kept = *probe.preserved.first().unwrap_or(&0) as u64;
        cx.machine.write_register(t.regs(isa), kept, 0xabcd_0123);
        let mut at = rig.thread;
        for hop in 0..cx.node.params.node_count {
            cx.meet()?;
            let next = cx.next();
            let me = rig.cap(ObjectKind::Thread, at, Rights::ALL)?;
            rig.k.local.thread.set(Some(rig.as_thread(at)?));
            let gone = rig.call(me, MIGRATE, &[next.index() as u64]);
            gives!(gone, Ok(After::Switched));
            ensure!(rig.k.local.thread.get().is_none(), "it still runs here");
            let e = event(cx, rig, scheduler)?;
            gives!(e.why, Woken::Arrived);
            let home = NodeId::new(e.tag as u64 - 7).ok_or(Error::Corrupt)?;
            at = shown(cx, 0, home)?;
            let arrived = take(rig, at)?;
            gives!(arrived.came_from(), cx.previous().index() as u64 + 1);
            gives!(arrived.started[isa.index()].load(Ordering::Relaxed), 1);
            ensure!(hop < 8, "too many hops");
        }
        gives!(at, rig.thread);
        // Back in its own call, which has the node as its value.
        let area = t.regs(isa);
        gives!(cx.machine.read_register(area, kept), Some(0xabcd_0123));
        gives!(cx.machine.user_pc_sp(area), AT);
        let [status, value, ..] = probe.results;
        gives!(cx.machine.read_register(area, status as u64), Some(0));
        if cx.node.isas().count() > 1 && cx.node.nodes_with(isa).count_ones() == 1 {
            let here = cx.node.id().index() as u64;
            gives!(cx.machine.read_register(area, value as u64), Some(here));
        }
        rig.run(rig.thread)?;
        cx.meet()?;
        Ok(None)
    })
}

/// A message about a hand-over that has been taken already takes nothing.
#[ktest(pair)]
fn hand_overs_are_taken_once(cx: &Cx<'_>) -> Outcome {
    travels(cx, |rig, scheduler, t| {
        let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
        let owner = t.owner(rig.k.words()).ok_or(Error::Corrupt)?;
        let next = cx.next();
        let mut handed = owner.with(State::Transit);
        handed.node = next;
        handed.incarnation = cx.node.word_of(next).incarnation;
        handed.seq = owner.seq + 1;
        cx.meet()?;
        gives!(
            rig.call(me, MIGRATE, &[next.index() as u64]),
            Ok(After::Switched)
        );
        let again = [
            kind::THREAD,
            rig.thread.bits(),
            handed.bits(),
            0,
            0,
            0,
            0,
            0,
        ];
        for _ in 0..3 {
            gives!(cx.machine.send(next, first_cpu(), &Message(again)), Ok(()));
        }
        // Nor does one that names no thread.
        let none = [kind::THREAD, rig.root.bits(), handed.bits(), 0, 0, 0, 0, 0];
        gives!(cx.machine.send(next, first_cpu(), &Message(none)), Ok(()));
        let e = event(cx, rig, scheduler)?;
        gives!(e.why, Woken::Arrived);
        let theirs = shown(cx, 0, cx.previous())?;
        let arrived = take(rig, theirs)?;
        cx.meet()?;
        cx.machine.drain();
        gives!(
            arrived.owner(rig.k.words()).map(|o| o.state),
            Some(State::Running)
        );
        let line = ends(cx, scheduler)?.line(scheduler_line(cx.node.id(), rig.k.cpu()))?;
        gives!(line.take(cx.node), 0);
        rig.run(rig.thread)?;
        cx.meet()?;
        Ok(None)
    })
}

/// Every node invokes a component that lives on the next: the thread crosses with its words, and
/// comes back with its results.
#[ktest(pair)]
fn invocations_cross_to_the_callees_home_and_back(cx: &Cx<'_>) -> Outcome {
    travels(cx, |rig, scheduler, _| {
        let isa = cx.machine.isa();
        let probe = cx.machine.user_probe();
        show(cx, 1, rig.component);
        let next = cx.next();
        let callee = living_at(cx, rig, next)?;
        cx.meet()?;
        let to = Entry {
            component: callee,
            address: 0x4200_2000,
            badge: 0xb00 + cx.node.id().index() as u64,
        };
        gives!(cx.machine.enter(&rig.k, to, [1, 2, 3, 4])?, Way::Elsewhere);
        ensure!(rig.k.local.thread.get().is_none(), "it still runs here");
        // That of the previous node comes here.
        gives!(event(cx, rig, scheduler)?.why, Woken::Arrived);
        let from = cx.previous();
        let theirs = shown(cx, 0, from)?;
        let guest = take(rig, theirs)?;
        gives!(
            guest.component.load(Ordering::Relaxed),
            shown(cx, 2, from)?.bits()
        );
        let area = guest.regs(isa);
        gives!(cx.machine.user_pc_sp(area), (0x4200_2000, 0));
        let token = (from.index() as u64 + 20) << 8 | 1;
        let args = [1, 2, 3, 4, 0xb00 + from.index() as u64, token];
        for (&r, want) in probe.arguments.iter().zip(args) {
            let is = cx.machine.read_register(area, r as u64);
            ensure!(is == Some(want), "argument {r} is {is:x?}, not {want:#x}");
        }
        cx.meet()?;
        gives!(cx.machine.leave(&rig.k, [9, 8, 7, 6])?, Returned::Switched);
        gives!(event(cx, rig, scheduler)?.why, Woken::Arrived);
        let back = take(rig, rig.thread)?;
        gives!(back.component.load(Ordering::Relaxed), rig.component.bits());
        gives!(back.depth.load(Ordering::Relaxed), 0);
        let area = back.regs(isa);
        gives!(cx.machine.user_pc_sp(area), AT);
        for (&r, want) in probe.results.iter().zip([0, 9, 8, 7, 6]) {
            let is = cx.machine.read_register(area, r as u64);
            ensure!(is == Some(want), "result {r} is {is:x?}, not {want:#x}");
        }
        rig.run(rig.thread)?;
        cx.meet()?;
        Ok(None)
    })
}

/// Every node's thread jumps to the next one, and home again: it is where it has said, with what it has
/// said, and what it had parked is forgotten.
#[ktest(pair)]
fn threads_jump_to_other_nodes_and_keep_nothing(cx: &Cx<'_>) -> Outcome {
    travels(cx, |rig, scheduler, t| {
        t.started[cx.machine.isa().index()].store(1, Ordering::Relaxed);
        cx.meet()?;
        let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
        let there = cx.next().index() as u64;
        let to = [there, AT.0 + 0x80, AT.1 - 0x80, 0xf0 + there, 0xa0 + there];
        gives!(rig.call(me, JUMP, &to), Ok(After::Switched));
        ensure!(rig.k.local.thread.get().is_none(), "it still runs here");
        gives!(event(cx, rig, scheduler)?.why, Woken::Arrived);
        let from = cx.previous();
        let here = cx.node.id().index() as u64;
        let object = shown(cx, 0, from)?;
        let guest = take(rig, object)?;
        let at = (AT.0 + 0x80, AT.1 - 0x80);
        has_jumped(cx, guest, at, 0xf0 + here, 0xa0 + here)?;
        cx.meet()?;
        let me = rig.cap(ObjectKind::Thread, object, Rights::ALL)?;
        let back = [from.index() as u64, AT.0, AT.1, 0x1f0, 0x1a0];
        gives!(rig.call(me, JUMP, &back), Ok(After::Switched));
        gives!(event(cx, rig, scheduler)?.why, Woken::Arrived);
        has_jumped(cx, take(rig, rig.thread)?, AT, 0x1f0, 0x1a0)?;
        rig.run(rig.thread)?;
        cx.meet()?;
        Ok(None)
    })
}

/// What a thread has parked on an ISA by `Migrate` is not touched by invocations that cross to
/// that ISA meanwhile.
#[ktest(pair)]
fn crossing_invocations_leave_parked_registers_alone(cx: &Cx<'_>) -> Outcome {
    travels(cx, |rig, scheduler, t| {
        let isa = cx.machine.isa();
        let kept = *cx.machine.user_probe().preserved.first().unwrap_or(&0) as u64;
        cx.machine.write_register(t.regs(isa), kept, 0x1234_abcd);
        t.started[isa.index()].store(1, Ordering::Relaxed);
        // A service that lives where the thread comes from.
        living_at(cx, rig, cx.node.id())?;
        cx.meet()?;
        let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
        let there = cx.next().index() as u64;
        gives!(rig.call(me, MIGRATE, &[there]), Ok(After::Switched));
        gives!(event(cx, rig, scheduler)?.why, Woken::Arrived);
        let from = cx.previous();
        let guest = shown(cx, 0, from)?;
        take(rig, guest)?;
        cx.meet()?;
        let to = Entry {
            component: shown(cx, 2, from)?,
            address: 0x4200_2000,
            badge: 0,
        };
        gives!(cx.machine.enter(&rig.k, to, [0; 4])?, Way::Elsewhere);
        // Mine calls the service at home.
        gives!(event(cx, rig, scheduler)?.why, Woken::Arrived);
        let mine = take(rig, rig.thread)?;
        let area = mine.regs(isa);
        cx.machine.write_register(area, kept, 0xdead);
        cx.meet()?;
        gives!(cx.machine.leave(&rig.k, [0; 4])?, Returned::Switched);
        gives!(event(cx, rig, scheduler)?.why, Woken::Arrived);
        take(rig, guest)?;
        let me = rig.cap(ObjectKind::Thread, guest, Rights::ALL)?;
        cx.meet()?;
        gives!(
            rig.call(me, MIGRATE, &[from.index() as u64]),
            Ok(After::Switched)
        );
        gives!(event(cx, rig, scheduler)?.why, Woken::Arrived);
        take(rig, rig.thread)?;
        let same = cx.node.nodes_with(isa).count_ones() == 1;
        if same {
            gives!(
                cx.machine.read_register(t.regs(isa), kept),
                Some(0x1234_abcd)
            );
            gives!(cx.machine.user_pc_sp(t.regs(isa)), AT);
        }
        rig.run(rig.thread)?;
        cx.meet()?;
        Ok(None)
    })
}

/// One node dispatches a thread while the others stop it: one of them has it.
#[ktest(pair)]
fn dispatch_and_stop_from_several_nodes_have_one_winner(cx: &Cx<'_>) -> Outcome {
    const TIMES: u64 = 60;
    rig::with(cx, |rig| {
        let first = cx.node.all().next().unwrap_or(cx.node.id());
        let owns = cx.node.id() == first;
        let mut own = None;
        if owns {
            let t = rig.thread_of(rig.component, State::Ready)?;
            own = Some(t);
            show(cx, 0, t);
        }
        cx.meet()?;
        let t = shown(cx, 0, first)?;
        let cap = rig.cap(ObjectKind::Thread, t, Rights::ALL)?;
        let (mut ran, mut stopped) = (0, 0);
        for _ in 0..TIMES {
            cx.meet()?;
            if owns {
                let run = rig.call(cap, ThreadOp::Dispatch as u32, &[0, 0]);
                match run {
                    Ok(After::Switched) => {
                        gives!(rig.state(t), Some(State::Running));
                        gives!(
                            rig.call(cap, ThreadOp::Yield as u32, &[]),
                            Ok(After::Switched)
                        );
                        ran += 1;
                    }
                    Err(Error::NotReady) => {}
                    other => return fail(format_args!("dispatched: {other:?}")),
                }
            } else {
                match rig.sys(cap, ThreadOp::Stop as u32, &[]) {
                    Ok(_) => stopped += 1,
                    Err(Error::NotReady | Error::Again) => {}
                    Err(e) => return fail(format_args!("stopped: {e}")),
                }
            }
            cx.meet()?;
            if owns {
                let state = rig.state(t);
                let sane = matches!(state, Some(State::Ready | State::Stopped));
                ensure!(sane, "it is {state:?}");
                if state == Some(State::Stopped) {
                    gives!(rig.sys(cap, ThreadOp::Resume as u32, &[]), Ok(0));
                }
            }
        }
        cx.meet()?;
        ensure!(
            own.is_none() || rig.state(t) == Some(State::Ready),
            "not ready"
        );
        remark!("{ran} runs, {stopped} stops")
    })
}

/// All nodes make threads of one scheduler ready at once: it hears of each, once.
#[ktest(pair)]
fn events_from_all_nodes_are_all_told_once(cx: &Cx<'_>) -> Outcome {
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
