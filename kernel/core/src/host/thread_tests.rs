//! Threads through the whole kernel, from a system call or a trap to user mode: on one machine, and
//! between an x86-64 and an AArch64 machine.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, Event, ObjectKind, ReceiveOp, Rights, SendOp, Stopped, ThreadOp, Woken,
    call_word,
};
use dyad_abi::emulation::{GENERAL, WORDS};
use dyad_abi::service::scheduler_line;
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;

use super::fp_tests::swap;
use super::ktests::{joined, passes};
use super::{
    ARGUMENTS, Did, Left, Machine, MockA64, MockX86, PARTIAL, PC, RESULTS, SP, World, result,
};
use crate::Platform;
use crate::entry;
use crate::ktest::rig::{self, Rig};
use crate::ktest::{Outcome, run_here, spaces};
use crate::object::component::Component;
use crate::object::endpoint::Endpoints;
use crate::object::find;
use crate::object::thread::{State, Thread, begun};
use crate::platform::{FaultKind, UserFault};

pub(super) const ENTRY: u64 = 0x4100_0000;
pub(super) const SERVICE: u64 = 0x4200_2000;
const DISPATCH: u64 = ThreadOp::Dispatch as u64;
const NOW: u64 = crate::ops::endpoint::NOW;

/// Program counter of a rig's own thread.
const ROOT: u64 = 0x1000_0000;

/// Gives the rig's space tables, and has its thread run already.
pub(super) fn ready<P: Platform>(rig: &Rig<'_>) -> dyad_abi::Result<()> {
    spaces::furnish(rig, rig.space)?;
    let t = me(rig);
    P::set_user_pc_sp(t.regs(P::ISA), ROOT, 0);
    t.started[P::ISA.index()].store(1, Ordering::Relaxed);
    Ok(())
}

/// A rig on the machine of an ISA.
pub(super) fn solo<P: Platform>(test: impl FnOnce(&Rig<'_>, Machine) -> Outcome) {
    let w = World::new(&[P::ISA], 2048);
    let m = joined::<P>(&w, 0);
    passes::<P>(run_here::<P>(m.node(), |cx| {
        rig::with(cx, |rig| {
            ready::<P>(rig)?;
            test(rig, m)
        })
    }));
}

/// A rig on each of two machines of different ISAs; the second is entered.
pub(super) fn pair(test: impl FnOnce((&Rig<'_>, Machine), (&Rig<'_>, Machine)) -> Outcome) {
    let w = World::new(&[Isa::X86_64, Isa::Aarch64], 2048);
    let (x, a) = (joined::<MockX86>(&w, 0), joined::<MockA64>(&w, 1));
    x.enter();
    let outcome = run_here::<MockX86>(x.node(), |cx| {
        rig::with(cx, |rx| {
            ready::<MockX86>(rx)?;
            a.enter();
            run_here::<MockA64>(a.node(), |cx| {
                rig::with(cx, |ra| {
                    ready::<MockA64>(ra)?;
                    test((rx, x), (ra, a))
                })
            })?;
            x.enter();
            Ok(None)
        })
    });
    passes::<MockX86>(outcome);
}

fn word(t: &Thread, isa: Isa, n: usize) -> u64 {
    t.regs(isa).0[n].load(Ordering::Relaxed)
}

fn words(t: &Thread, isa: Isa, from: usize, n: usize) -> std::vec::Vec<u64> {
    (from..from + n).map(|i| word(t, isa, i)).collect()
}

/// A thread of the rig's component that has not run, with a capability for it.
pub(super) fn thread(
    rig: &Rig<'_>,
    scheduler: Option<WeakRef>,
    tag: u64,
) -> (CapIndex, &'static Thread) {
    let object = rig.thread_of(rig.component, State::Ready).unwrap();
    let t = rig.as_thread(object).unwrap();
    t.id.store(tag, Ordering::Relaxed);
    t.tag.store(tag, Ordering::Relaxed);
    let scheduler = scheduler.map_or(0, |s| s.bits());
    t.scheduler.store(scheduler, Ordering::Relaxed);
    (rig.cap(ObjectKind::Thread, object, Rights::ALL).unwrap(), t)
}

pub(super) fn me(rig: &Rig<'_>) -> &'static Thread {
    rig.as_thread(rig.thread).unwrap()
}

pub(super) fn op(cap: CapIndex, op: u64) -> u64 {
    call_word(cap, op as u32)
}

/// The rig's thread, the scheduler, runs another one.
pub(super) fn dispatch<P: Platform>(rig: &Rig<'_>, m: Machine, cap: CapIndex, how: u64) -> Left {
    m.call::<P>(me(rig), op(cap, DISPATCH), &[how, 0])
}

/// Whatever has come in is dealt with; the running thread goes on.
pub(super) fn interrupt<P: Platform>(m: Machine) -> Left {
    m.enter();
    let area = P::local().thread.get().map(|t| t.regs(P::ISA));
    let area = area.unwrap_or(&m.node().map.get::<Thread>(first_frame(m)).unwrap().saved);
    m.kernel(|| entry::interrupted::<P>(area))
}

/// Any frame: areas of interrupts of idle machines are not looked at.
fn first_frame(m: Machine) -> dyad_shm::PhysAddr {
    dyad_shm::PoolId::Local(m.node().id())
        .base()
        .add(100 * 4096)
}

pub(super) fn stopped<P: Platform>(t: &Thread) -> (u64, Option<Stopped>, u64) {
    let (status, value) = result::<P>(t);
    (status, Stopped::from_number(value & 0xff), value >> 8)
}

fn dispatched_threads_run<P: Platform>() {
    solo::<P>(|rig, m| {
        let (cap, t) = thread(rig, None, 3);
        m.did();
        assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(ENTRY));
        // Floating-point registers are loaded when they are used, and saved if they have been.
        let moved = || {
            let did = m.did();
            [Did::RestoredFp, Did::SavedFp].map(|d| did.contains(&d))
        };
        assert_eq!(moved(), [false, false]);
        assert_eq!(swap::<P>(m, t, 7), 0);
        assert_eq!(moved(), [true, false]);
        // It gives the CPU back: the scheduler's call returns.
        let back = m.call::<P>(t, op(cap, ThreadOp::Yield as u64), &[]);
        assert_eq!(back, Left::User(word(me(rig), P::ISA, PC)));
        assert_eq!(stopped::<P>(me(rig)), (0, Some(Stopped::Yielded), 0));
        assert_eq!(moved(), [false, true]);
        // It goes on behind its call.
        assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(ENTRY + 4));
        assert_eq!(result::<P>(t), (0, 0));
        m.call::<P>(t, op(cap, ThreadOp::Yield as u64), &[]);
        assert_eq!(moved(), [false, false]);
        Ok(None)
    });
}

#[test]
fn dispatched_threads_run_until_they_yield_and_go_on_behind_it() {
    dispatched_threads_run::<MockX86>();
    dispatched_threads_run::<MockA64>();
}

fn waiting<P: Platform>() {
    solo::<P>(|rig, m| {
        let (ends, object) = rig.new_cap(ObjectKind::Endpoints)?;
        let (cap, t) = thread(rig, Some(object), 3);
        let receive = op(ends, ReceiveOp::Receive as u64);
        dispatch::<P>(rig, m, cap, 0);
        let left = m.call::<P>(t, receive, &[30, 1 << 50]);
        assert!(matches!(left, Left::User(_)));
        assert_eq!(stopped::<P>(me(rig)).1, Some(Stopped::Blocked));
        let to = rig.put(CapType::Send, Rights::ALL, Some(object), [30, 0x55, 0])?;
        m.call::<P>(me(rig), op(to, SendOp::Send as u64), &[]);
        assert_eq!(result::<P>(me(rig)), (0, 0));
        let mine = scheduler_line(m.node().id(), rig.k.cpu());
        m.call::<P>(me(rig), receive, &[mine, NOW]);
        let event = Event::from_bits(result::<P>(me(rig)).1).unwrap();
        assert_eq!((event.tag, event.why), (3, Woken::Ready));
        dispatch::<P>(rig, m, cap, 0);
        assert_eq!(result::<P>(t), (0, 0x55), "what came is its result");
        Ok(None)
    });
}

#[test]
fn threads_that_waited_find_what_has_come() {
    waiting::<MockX86>();
    waiting::<MockA64>();
}

/// Stopped between waking and running: what came stays at the endpoint.
#[test]
fn messages_to_threads_that_are_stopped_are_not_lost() {
    solo::<MockX86>(|rig, m| {
        let (ends, object) = rig.new_cap(ObjectKind::Endpoints)?;
        let (cap, t) = thread(rig, Some(object), 3);
        let receive = op(ends, ReceiveOp::Receive as u64);
        dispatch::<MockX86>(rig, m, cap, 0);
        m.call::<MockX86>(t, receive, &[30, 1 << 50]);
        let to = rig.put(CapType::Send, Rights::ALL, Some(object), [30, 0x55, 0])?;
        m.call::<MockX86>(me(rig), op(to, SendOp::Send as u64), &[]);
        m.call::<MockX86>(me(rig), op(cap, ThreadOp::Stop as u64), &[]);
        assert_eq!(result::<MockX86>(me(rig)), (0, 0));
        m.call::<MockX86>(me(rig), op(cap, ThreadOp::Resume as u64), &[]);
        dispatch::<MockX86>(rig, m, cap, 0);
        assert_eq!(result::<MockX86>(t), (0, 0x55));
        Ok(None)
    });
}

fn invocation<P: Platform>() {
    solo::<P>(|rig, m| {
        let (callee, _, _) = rig.other_component()?;
        let sinv = rig.sinv(callee, SERVICE, 0xbad)?;
        let t = me(rig);
        P::set_user_pc_sp(t.regs(P::ISA), ENTRY, 0x5000);
        t.id.store(6, Ordering::Relaxed);
        let left = m.call::<P>(t, op(sinv, 0), &[1, 2, 3, 4]);
        assert_eq!(left, Left::User(SERVICE));
        let args = words(t, P::ISA, ARGUMENTS, 6);
        assert_eq!(args, [1, 2, 3, 4, 0xbad, 6 << 8 | 1]);
        assert_eq!(word(t, P::ISA, SP), 0);
        // Interrupted there, it goes on there.
        assert_eq!(interrupt::<P>(m), Left::User(SERVICE));
        let left = m.call::<P>(t, 0, &[9, 8, 7, 6]);
        assert_eq!(left, Left::User(ENTRY + 4));
        assert_eq!(words(t, P::ISA, RESULTS, 4), [9, 8, 7, 6]);
        assert_eq!(result::<P>(t).0, 0);
        assert_eq!(word(t, P::ISA, SP), 0x5000);
        Ok(None)
    });
}

#[test]
fn invocations_enter_and_come_back_through_the_whole_kernel() {
    invocation::<MockX86>();
    invocation::<MockA64>();
}

fn handlers<P: Platform>() {
    solo::<P>(|rig, m| {
        let (handler, _, _) = rig.other_component()?;
        let sinv = rig.sinv(handler, SERVICE, 0x1ab)?;
        let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
        assert_eq!(rig.sys(c, 1, &[sinv.get() as u64]), Ok(0));
        let (cap, t) = thread(rig, None, 3);
        dispatch::<P>(rig, m, cap, 0);
        let fault = UserFault {
            kind: FaultKind::Read,
            address: 0x7000_0123,
            raw: 5,
        };
        let area = t.regs(P::ISA);
        let before: std::vec::Vec<u64> = words(t, P::ISA, 0, 22);
        // A handler that has the instruction tried again.
        let left = m.kernel(|| entry::user_fault::<P>(area, fault));
        assert_eq!(left, Left::User(SERVICE));
        let args = words(t, P::ISA, ARGUMENTS, 6);
        assert_eq!(args, [0x7000_0123, 1, ENTRY, 5, 0x1ab, 3 << 8 | 1]);
        let left = m.call::<P>(t, 0, &[0]);
        assert_eq!(left, Left::User(ENTRY));
        assert_eq!(words(t, P::ISA, 0, 22), before, "all registers are back");
        // One that ends the thread.
        m.kernel(|| entry::user_fault::<P>(area, fault));
        let left = m.call::<P>(t, 0, &[1]);
        assert!(matches!(left, Left::User(_)), "the scheduler goes on");
        assert_eq!(stopped::<P>(me(rig)).1, Some(Stopped::Faulted));
        // Resumed all the same, it is where it was, in its own component.
        m.call::<P>(me(rig), op(cap, ThreadOp::Resume as u64), &[]);
        assert_eq!(result::<P>(me(rig)), (0, 0));
        assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(ENTRY));
        assert_eq!(rig.k.local.component.get(), rig.component.bits());
        Ok(None)
    });
}

#[test]
fn fault_handlers_retry_or_end_through_the_whole_kernel() {
    handlers::<MockX86>();
    handlers::<MockA64>();
}

#[test]
fn faults_without_a_handler_end_the_thread_and_are_reported() {
    solo::<MockA64>(|rig, m| {
        let (cap, t) = thread(rig, None, 3);
        dispatch::<MockA64>(rig, m, cap, 0);
        m.printed();
        let fault = UserFault {
            kind: FaultKind::Illegal,
            address: 0,
            raw: 5,
        };
        let left = m.kernel(|| entry::user_fault::<MockA64>(t.regs(Isa::Aarch64), fault));
        assert!(matches!(left, Left::User(_)));
        assert_eq!(stopped::<MockA64>(me(rig)).1, Some(Stopped::Faulted));
        assert!(m.printed().contains("illegal"), "nothing is said");
        Ok(None)
    });
}

#[test]
fn slices_end_at_the_next_interrupt() {
    solo::<MockX86>(|rig, m| {
        let (cap, t) = thread(rig, None, 3);
        dispatch::<MockX86>(rig, m, cap, 1_000_000_000_000);
        assert_eq!(interrupt::<MockX86>(m), Left::User(ENTRY));
        m.call::<MockX86>(t, op(cap, ThreadOp::Yield as u64), &[]);
        dispatch::<MockX86>(rig, m, cap, 1);
        assert!(matches!(interrupt::<MockX86>(m), Left::User(pc) if pc != ENTRY + 4));
        assert_eq!(stopped::<MockX86>(me(rig)).1, Some(Stopped::Preempted));
        Ok(None)
    });
}

#[test]
fn calls_that_name_nothing_come_back_with_an_error() {
    solo::<MockA64>(|rig, m| {
        let t = me(rig);
        for word in [
            1 << 32 | 9,
            31 << 32 | 9,
            32 << 32 | 9,
            u64::MAX,
            1 << 15,
            0xffff_ffff,
            1 << 63,
        ] {
            let left = m.call::<MockA64>(t, word, &[u64::MAX; 5]);
            assert!(matches!(left, Left::User(_)));
            let (status, value) = result::<MockA64>(t);
            let error = Error::from_code(status);
            assert!(
                matches!(error, Some(Error::NoCap | Error::BadSyscall)),
                "{word:#x}: {error:?}"
            );
            assert_eq!(value, 0);
        }
        m.call::<MockA64>(t, 0, &[0; 4]);
        assert_eq!(
            Error::from_code(result::<MockA64>(t).0),
            Some(Error::TooDeep)
        );
        Ok(None)
    });
}

/// A thread of node 0 that both nodes' schedulers know, running on node 0.
pub(super) fn traveller(rx: &Rig<'_>, x: Machine) -> (CapIndex, &'static Thread, WeakRef) {
    x.enter();
    let scheduler = rx.object(ObjectKind::Endpoints).unwrap();
    let (cap, t) = thread(rx, Some(scheduler), 3);
    assert_eq!(dispatch::<MockX86>(rx, x, cap, 0), Left::User(ENTRY));
    (cap, t, scheduler)
}

/// What a node's scheduler hears, and its capability for the thread.
pub(super) fn hears<P: Platform>(rig: &Rig<'_>, m: Machine, scheduler: WeakRef) -> Option<Event> {
    assert!(matches!(interrupt::<P>(m), Left::User(_)));
    let ends = rig
        .cap(ObjectKind::Endpoints, scheduler, Rights::ALL)
        .unwrap();
    let mine = scheduler_line(m.node().id(), rig.k.cpu());
    let receive = op(ends, ReceiveOp::Receive as u64);
    m.call::<P>(me(rig), receive, &[mine, NOW]);
    Event::from_bits(result::<P>(me(rig)).1)
}

#[test]
fn threads_start_anew_on_the_other_isa_and_go_on_at_home() {
    pair(|(rx, x), (ra, a)| {
        let (cap, t, scheduler) = traveller(rx, x);
        let migrate = op(cap, ThreadOp::Migrate as u64);
        let left = x.call::<MockX86>(t, migrate, &[1]);
        assert!(matches!(left, Left::User(_)), "the scheduler goes on");
        assert_eq!(stopped::<MockX86>(me(rx)), (0, Some(Stopped::Left), 1));
        let event = hears::<MockA64>(ra, a, scheduler).unwrap();
        assert_eq!((event.tag, event.why), (3, Woken::Arrived));
        let object = crate::object::reference(a.node(), t).unwrap();
        let there = ra.cap(ObjectKind::Thread, object, Rights::ALL)?;
        // Its first time on this ISA: at its entry point.
        assert_eq!(dispatch::<MockA64>(ra, a, there, 0), Left::User(ENTRY));
        // Its capabilities are those of its component, whichever node it is on.
        let left = a.call::<MockA64>(t, migrate, &[0]);
        assert!(matches!(left, Left::User(_)));
        assert_eq!(stopped::<MockA64>(me(ra)), (0, Some(Stopped::Left), 0));
        assert_eq!(
            hears::<MockX86>(rx, x, scheduler).unwrap().why,
            Woken::Arrived
        );
        assert_eq!(dispatch::<MockX86>(rx, x, cap, 0), Left::User(ENTRY + 4));
        assert_eq!(result::<MockX86>(t), (0, 0), "it has come back to node 0");
        // Once more: it goes on there behind its call.
        x.call::<MockX86>(t, migrate, &[1]);
        assert_eq!(
            hears::<MockA64>(ra, a, scheduler).unwrap().why,
            Woken::Arrived
        );
        assert_eq!(dispatch::<MockA64>(ra, a, there, 0), Left::User(ENTRY + 4));
        assert_eq!(result::<MockA64>(t), (0, 1));
        a.call::<MockA64>(t, op(cap, ThreadOp::Exit as u64), &[0]);
        Ok(None)
    });
}

/// The thread goes on on the other machine with registers of that ISA; nothing is left of what it did
/// before, on either.
#[test]
fn threads_go_on_with_registers_that_they_bring_along() {
    const MEMORY: u64 = 0x4300_0000;
    pair(|(rx, x), (ra, a)| {
        let (cap, t, scheduler) = traveller(rx, x);
        assert_eq!(swap::<MockX86>(x, t, 7), 0);
        let frame = rx.user()?.frame.address();
        let leaf = crate::mapping::page(frame, dyad_pgtbl::Perms::READ);
        spaces::map(rx, rx.space, Isa::X86_64, MEMORY, leaf)?;
        let mut page = [0; WORDS];
        for (i, w) in page.iter_mut().enumerate() {
            *w = 0x100 + i as u64;
        }
        page[0] = Isa::Aarch64 as u64;
        page[1] = ENTRY + 0x100;
        page[4 + PARTIAL] = 0;
        for (i, &w) in (0..).zip(&page) {
            x.node()
                .map
                .word(frame.add(8 * i))
                .store(w, Ordering::Relaxed);
        }
        let load = op(cap, ThreadOp::Load as u64);
        // They are not of this node's ISA.
        x.call::<MockX86>(t, load, &[MEMORY, 0]);
        assert_eq!(result::<MockX86>(t).0, Error::NoIsa.code());
        assert_eq!(swap::<MockX86>(x, t, 7), 7);
        let left = x.call::<MockX86>(t, load, &[MEMORY, 1]);
        assert!(matches!(left, Left::User(_)), "the scheduler goes on");
        assert_eq!(stopped::<MockX86>(me(rx)), (0, Some(Stopped::Left), 1));
        assert_eq!(t.begun(Isa::X86_64), begun::PARKED);
        let event = hears::<MockA64>(ra, a, scheduler).unwrap();
        assert_eq!((event.tag, event.why), (3, Woken::Arrived));
        assert_eq!(t.begun(Isa::X86_64), begun::NOT);
        let object = crate::object::reference(a.node(), t).unwrap();
        let there = ra.cap(ObjectKind::Thread, object, Rights::ALL)?;
        let left = dispatch::<MockA64>(ra, a, there, 0);
        assert_eq!(left, Left::User(ENTRY + 0x100));
        // General registers, as far as these machines have other uses for the words.
        assert_eq!(words(t, Isa::Aarch64, 0, 8), page[4..12]);
        assert_eq!(swap::<MockA64>(a, t, 9), page[4 + GENERAL]);
        // It begins anew on the ISA that it has left.
        a.call::<MockA64>(t, op(cap, ThreadOp::Migrate as u64), &[0]);
        hears::<MockX86>(rx, x, scheduler).unwrap();
        assert_eq!(dispatch::<MockX86>(rx, x, cap, 0), Left::User(ENTRY));
        assert_eq!(swap::<MockX86>(x, t, 8), 0);
        x.call::<MockX86>(t, op(cap, ThreadOp::Exit as u64), &[0]);
        Ok(None)
    });
}

#[test]
fn invocations_cross_to_the_other_isa_and_back() {
    pair(|(rx, x), (ra, a)| {
        let (cap, t, scheduler) = traveller(rx, x);
        let (service, _, _) = rx.other_component()?;
        let c: &Component = find(x.node(), service, Component::KIND)?;
        c.home.store(0b10, Ordering::Relaxed);
        let sinv = rx.sinv(service, SERVICE, 0xbad)?;
        let left = x.call::<MockX86>(t, op(sinv, 0), &[1, 2, 3, 4]);
        assert!(matches!(left, Left::User(_)), "the scheduler goes on");
        assert_eq!(stopped::<MockX86>(me(rx)), (0, Some(Stopped::Left), 1));
        assert_eq!(
            hears::<MockA64>(ra, a, scheduler).unwrap().why,
            Woken::Arrived
        );
        let object = crate::object::reference(a.node(), t).unwrap();
        let there = ra.cap(ObjectKind::Thread, object, Rights::ALL)?;
        assert_eq!(dispatch::<MockA64>(ra, a, there, 0), Left::User(SERVICE));
        let args = words(t, Isa::Aarch64, ARGUMENTS, 6);
        assert_eq!(args, [1, 2, 3, 4, 0xbad, 3 << 8 | 1]);
        // In an invocation it does not migrate.
        let migrate = op(cap, ThreadOp::Migrate as u64);
        a.call::<MockA64>(t, migrate, &[0]);
        assert_ne!(result::<MockA64>(t).0, 0);
        a.call::<MockA64>(t, 0, &[9, 8, 7, 6]);
        assert_eq!(stopped::<MockA64>(me(ra)), (0, Some(Stopped::Left), 0));
        assert_eq!(
            hears::<MockX86>(rx, x, scheduler).unwrap().why,
            Woken::Arrived
        );
        assert_eq!(dispatch::<MockX86>(rx, x, cap, 0), Left::User(ENTRY + 4));
        assert_eq!(words(t, Isa::X86_64, RESULTS, 4), [9, 8, 7, 6]);
        assert_eq!(t.component.load(Ordering::Relaxed), rx.component.bits());
        x.call::<MockX86>(t, op(cap, ThreadOp::Exit as u64), &[0]);
        Ok(None)
    });
}

#[test]
fn invocations_of_services_on_dead_nodes_are_refused() {
    pair(|(rx, x), (_, a)| {
        let (cap, t, _) = traveller(rx, x);
        let (service, _, _) = rx.other_component()?;
        let c: &Component = find(x.node(), service, Component::KIND)?;
        c.home.store(0b10, Ordering::Relaxed);
        let sinv = rx.sinv(service, SERVICE, 0)?;
        let dead = dyad_shm::superblock::NodeWord {
            state: dyad_shm::superblock::NodeState::Dead,
            incarnation: 1,
        };
        let state = &a.node().entry().state;
        let live = state.swap(dead.bits(), Ordering::Relaxed);
        let left = x.call::<MockX86>(t, op(sinv, 0), &[0; 4]);
        assert_eq!(left, Left::User(ENTRY + 4), "it goes on");
        let status = Error::from_code(result::<MockX86>(t).0);
        assert_eq!(status, Some(Error::NodeDead));
        let left = x.call::<MockX86>(t, op(cap, ThreadOp::Migrate as u64), &[1]);
        assert_eq!(left, Left::User(ENTRY + 8));
        let status = Error::from_code(result::<MockX86>(t).0);
        assert_eq!(status, Some(Error::NodeDead));
        assert_eq!(t.depth.load(Ordering::Relaxed), 0);
        state.store(live, Ordering::Relaxed);
        Ok(None)
    });
}

/// Sender and receiver in every order of their steps, played in turn.
#[test]
fn endpoints_lose_no_message_in_any_order_of_steps() {
    pair(|(rx, x), (_, a)| {
        let object = rx.object(ObjectKind::Endpoints)?;
        let (_, t) = thread(rx, Some(object), 3);
        for order in 0..3 {
            let e: &'static Endpoints = find(x.node(), object, Endpoints::KIND)?;
            let line = &e.lines[40];
            let owner = t.owner(rx.k.words()).unwrap();
            t.change(rx.k.words(), owner, owner.with(State::Blocked));
            // The message is posted before, or after the receiver waits; or its bits are there and
            // the sender has not looked for the receiver yet.
            let woken = match order {
                0 => {
                    assert!(line.post(a.node(), 1).is_none());
                    !line.wait(x.node(), t)?
                }
                1 => {
                    assert!(line.wait(x.node(), t)?);
                    line.post(a.node(), 1).is_some()
                }
                _ => {
                    assert!(line.wait(x.node(), t)?);
                    a.node().words.set_bits(&line.bits, 1);
                    line.take_waiter(a.node()).is_some()
                }
            };
            assert!(woken, "order {order}");
            assert_eq!(line.take(x.node()), 1);
            assert!(line.take_waiter(a.node()).is_none());
        }
        Ok(None)
    });
}

/// A page that waits for a round makes its thread fault for as long as that takes.
#[test]
fn threads_that_wait_for_quiescence_do_not_end() {
    solo::<MockX86>(|rig, m| {
        let (cap, t) = thread(rig, None, 3);
        assert_eq!(dispatch::<MockX86>(rig, m, cap, 0), Left::User(ENTRY));
        let anonymous = dyad_abi::cap::RegionKind::Anonymous as u64 | 1 << 8;
        spaces::region(&rig.k, rig.space, 0x5000_0000, 0x10_0000, anonymous)?;
        // All there is has been given up just now.
        let frame = rig.user()?.frame;
        crate::ops::memory::to_untyped(&rig.k, frame)?;
        let space = spaces::within(&rig.k, rig.space)?.space;
        let supply = crate::object::space::Supply {
            first: frame,
            frames: 1,
        };
        space.set_supply(rig.k.words(), rig.cx.node.id(), Some(supply));
        let fault = UserFault {
            kind: FaultKind::Write,
            address: 0x5000_0000,
            raw: 5,
        };
        for _ in 0..1_100 {
            let area = t.regs(Isa::X86_64);
            let left = m.kernel(|| entry::user_fault::<MockX86>(area, fault));
            assert_eq!(left, Left::User(ENTRY));
        }
        assert!(
            rig.k
                .local
                .thread
                .get()
                .is_some_and(|now| core::ptr::eq(now, t))
        );
        Ok(None)
    });
}

/// A round finds that the component of the thread which drives it is gone: the thread ends where it
/// is, and does not go on without an address space.
#[test]
fn threads_whose_component_goes_in_their_own_round_end_in_it() {
    solo::<MockX86>(|rig, m| {
        let (component, _, leaf) = rig.other_component()?;
        let object = rig.thread_of(component, State::Ready)?;
        let cap = rig.cap(ObjectKind::Thread, object, Rights::ALL)?;
        let t = rig.as_thread(object)?;
        let hardware = dyad_captbl::Contents {
            ty: CapType::Hardware,
            rights: Rights::ALL,
            object: None,
            guard: None,
            payload: [rig.cx.node.id().index() as u64, 0, 0],
        };
        let at = dyad_captbl::SlotPlace::new(leaf, 5).ok_or(Error::Corrupt)?;
        crate::ops::captbl::activate(&rig.k, at, &hardware)?;
        assert_eq!(dispatch::<MockX86>(rig, m, cap, 0), Left::User(ENTRY));
        crate::ops::memory::to_untyped(&rig.k, component.frame)?;
        m.printed();
        let step = op(CapIndex(5), dyad_abi::cap::HardwareOp::FlushStep as u64);
        let mut left = Left::User(0);
        for _ in 0..10 {
            left = m.call::<MockX86>(t, step, &[1024]);
            if rig.runs(rig.thread) {
                break;
            }
            assert_ne!(rig.k.local.space.get(), 0, "it goes on in no space");
        }
        assert!(
            matches!(left, Left::User(pc) if pc != ENTRY),
            "it goes on: {left:?}"
        );
        assert_eq!(stopped::<MockX86>(me(rig)).1, Some(Stopped::Faulted));
        assert!(m.printed().contains("cannot run here"), "nothing is said");
        assert_eq!(rig.state(object), Some(State::Stopped));
        Ok(None)
    });
}
