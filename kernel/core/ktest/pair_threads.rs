//! Pair tests of threads that change nodes: by migrations, jumps, and invocations of what lives elsewhere.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{ObjectKind, Rights, StopOutcome, ThreadOp, Woken};
use dyad_abi::service::{MAX_THREAD_IDS, scheduler_line};
use dyad_abi::{Error, NodeId};
use dyad_shm::frame::WeakRef;

use super::ops_thread::has_jumped;
use super::pair_caps::{show, shown};
use super::pair_endpoints::{ends, event, first_cpu, scheduler};
use super::rig::{self, Rig};
use super::{Outcome, Stop, TestCtx, ensure, fail, gives, ktest, remark};
use crate::sched::dispatch::OpOutcome;
use crate::syscall::invoke::{Entering, Returned};
use dyad_object::component::{Component, Entry};
use dyad_object::find;
use dyad_object::thread::{State, Thread};

const MIGRATE: u32 = ThreadOp::Migrate as u32;
const JUMP: u32 = ThreadOp::Jump as u32;

/// An id that no thread has.
const FREE_ID: u64 = 3_000;

/// Where threads that travel are in user mode: program counter, stack pointer.
const AT: (u64, u64) = (0x4100_0040, 0x4300_0f00);

/// Runs a test in which the running thread of every node's rig is one that a scheduler looks after on
/// all nodes, who find it in slot 0. The test gets its scheduler and the thread.
fn travels(
    cx: &TestCtx<'_>,
    test: impl FnOnce(&Rig<'_>, WeakRef, &'static Thread) -> Outcome,
) -> Outcome {
    rig::with(cx, |rig| {
        let scheduler = scheduler(cx, rig)?;
        let t = rig.as_thread(rig.thread)?;
        t.scheduler.store(scheduler.bits(), Ordering::Relaxed);
        t.tag
            .store(7 + cx.node.id().index() as u64, Ordering::Relaxed);
        rig.identify(rig.thread, cx.node.id().index() as u64 + 20)?;
        cx.machine
            .init_regs(t.regs(cx.machine.isa()), AT.0, AT.1, 0);
        show(cx, 0, rig.thread);
        test(rig, scheduler, t)
    })
}

/// A component whose code may run on one node only; all nodes find it in slot 2.
fn living_at(cx: &TestCtx<'_>, rig: &Rig<'_>, home: NodeId) -> Result<WeakRef, Stop> {
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
    ensure!(mine, "another CPU has it");
    rig.k.local.thread.set(Some(thread));
    Ok(thread)
}

/// Every node's thread goes round all nodes and comes back; what it was doing on an ISA waits
/// there for it.
#[ktest(pair)]
fn threads_migrate_round_all_nodes_and_go_on_where_they_were(cx: &TestCtx<'_>) -> Outcome {
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
            gives!(gone, Ok(OpOutcome::Switched));
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

/// A CPU that is told again of a thread that has been taken already takes nothing.
#[ktest(pair)]
fn hand_overs_are_taken_once(cx: &TestCtx<'_>) -> Outcome {
    travels(cx, |rig, scheduler, t| {
        let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
        let next = cx.next();
        let id = t.id.load(Ordering::Relaxed);
        cx.meet()?;
        rig.switches(me, MIGRATE, &[next.index() as u64])?;
        for _ in 0..3 {
            gives!(cx.machine.announce(next, first_cpu(), id), Ok(()));
        }
        // Nor does it if no thread has that id; and there is no bit for what is no id.
        gives!(cx.machine.announce(next, first_cpu(), FREE_ID), Ok(()));
        let none = cx.machine.announce(next, first_cpu(), MAX_THREAD_IDS);
        gives!(none, Err(Error::Corrupt));
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
fn invocations_cross_to_the_callees_home_and_back(cx: &TestCtx<'_>) -> Outcome {
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
        gives!(
            cx.machine.enter(&rig.k, to, [1, 2, 3, 4])?,
            Entering::Elsewhere
        );
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
fn threads_jump_to_other_nodes_and_keep_nothing(cx: &TestCtx<'_>) -> Outcome {
    travels(cx, |rig, scheduler, t| {
        t.started[cx.machine.isa().index()].store(1, Ordering::Relaxed);
        cx.meet()?;
        let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
        let there = cx.next().index() as u64;
        let to = [there, AT.0 + 0x80, AT.1 - 0x80, 0xf0 + there, 0xa0 + there];
        rig.switches(me, JUMP, &to)?;
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
        rig.switches(me, JUMP, &back)?;
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
fn crossing_invocations_leave_parked_registers_alone(cx: &TestCtx<'_>) -> Outcome {
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
        rig.switches(me, MIGRATE, &[there])?;
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
        gives!(cx.machine.enter(&rig.k, to, [0; 4])?, Entering::Elsewhere);
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
        rig.switches(me, MIGRATE, &[from.index() as u64])?;
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
fn dispatch_and_stop_from_several_nodes_have_one_winner(cx: &TestCtx<'_>) -> Outcome {
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
                    Ok(OpOutcome::Switched) => {
                        gives!(rig.state(t), Some(State::Running));
                        rig.switches(cap, ThreadOp::Yield as u32, &[])?;
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

/// A request to stop that another node makes is found when the thread runs next, also if its own node has looked for one
/// before.
#[ktest(pair)]
fn requests_to_stop_from_another_node_are_found(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let object = rig.thread_of(rig.component, State::Ready)?;
    let t = rig.as_thread(object)?;
    t.depth.store(1, Ordering::Relaxed);
    show(cx, 0, object);
    let cap = rig.cap(ObjectKind::Thread, object, Rights::ALL)?;
    let resume = || rig.sys(cap, ThreadOp::Resume as u32, &[]);
    let run = |from: State, to: State| {
        let owner = t.owner(rig.k.words()).ok_or(Error::Corrupt)?;
        let done = owner.state == from && t.change(rig.k.words(), owner, owner.with(to));
        done.then_some(()).ok_or(Error::Again)
    };
    // As when it has run here: what it was is in memory.
    run(State::Ready, State::Running)?;
    run(State::Running, State::Ready)?;
    gives!(resume(), Err(Error::NotReady));
    cx.meet()?;
    let theirs = rig.cap(ObjectKind::Thread, shown(cx, 0, cx.next())?, Rights::ALL)?;
    let pending = Ok(StopOutcome::WhenItLeaves as u64);
    gives!(rig.sys(theirs, ThreadOp::Stop as u32, &[]), pending);
    cx.meet()?;
    run(State::Ready, State::Running)?;
    ensure!(t.stop_asked().is_some(), "the request has not been found");
    run(State::Running, State::Stopped)?;
    cx.meet()?;
    Ok(None)
}
