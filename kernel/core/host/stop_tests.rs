//! Threads that are stopped while they are within an invocation, on one machine and on two.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use dyad_abi::cap::{
    CapIndex, CapType, ObjectKind, ReceiveOp, Rights, STOP_GRACE_NS, StopOutcome, Stopped,
    ThreadOp, Woken,
};
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;

use super::race_tests::{Ends, at_each_step};
use super::thread_tests::*;
use super::travel_tests::{hears, traveller};
use super::{Left, Machine, MockA64, MockX86, RESULTS, SP, crash, pass_time, result};
use crate::ktest::rig::Rig;
use crate::syscall::{entry, ops};
use dyad_machine::Platform;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_object::component::Component;
use dyad_object::endpoint::Endpoints;
use dyad_object::thread::{State, Thread, begun};
use dyad_object::{find, ids};

const PENDING: (u64, u64) = (0, StopOutcome::WhenItLeaves as u64);
const STOPPED: (u64, u64) = (0, StopOutcome::Stopped as u64);
const ALREADY: (u64, u64) = (0, StopOutcome::Already as u64);
const ENDED: (u64, u64) = (0, StopOutcome::Ended as u64);

fn refused(e: Error) -> (u64, u64) {
    (e.code(), 0)
}

/// What an operation on a thread tells the rig's own thread.
fn tell<P: Platform>(rig: &Rig<'_>, m: Machine, cap: CapIndex, what: ThreadOp) -> (u64, u64) {
    m.call::<P>(me(rig), op(cap, what as u64), &[]);
    result::<P>(me(rig))
}

fn stop<P: Platform>(rig: &Rig<'_>, m: Machine, cap: CapIndex) -> (u64, u64) {
    tell::<P>(rig, m, cap, ThreadOp::Stop)
}

fn resume<P: Platform>(rig: &Rig<'_>, m: Machine, cap: CapIndex) -> (u64, u64) {
    tell::<P>(rig, m, cap, ThreadOp::Resume)
}

fn state(m: Machine, t: &Thread) -> Option<State> {
    t.owner(m.node().words).map(|o| o.state)
}

/// A thread that a service works for, `depth` invocations deep, and that has been preempted there.
fn preempted_inside<P: Platform>(
    rig: &Rig<'_>,
    m: Machine,
    depth: u64,
) -> (CapIndex, &'static Thread, WeakRef) {
    let scheduler = rig.object(ObjectKind::Endpoints).unwrap();
    let (cap, t) = thread(rig, Some(scheduler), 3);
    dispatch::<P>(rig, m, cap, 1);
    t.regs(P::ISA).0[SP].store(0x5000, Ordering::Relaxed);
    let (service, ..) = rig.other_component().unwrap();
    let sinv = rig.sinv(service, SERVICE, 0xbad).unwrap();
    for _ in 0..depth {
        // The rig's component invokes the service, and itself further in.
        rig.k.local.captbl.set(rig_table(rig));
        assert_eq!(
            m.call::<P>(t, op(sinv, 0), &[1, 2, 3, 4]),
            Left::User(SERVICE)
        );
    }
    assert_eq!(t.depth.load(Ordering::Relaxed), depth);
    preempt::<P>(rig, m);
    assert_eq!(state(m, t), Some(State::Ready));
    (cap, t, service)
}

/// The table of the rig's component.
fn rig_table(rig: &Rig<'_>) -> dyad_shm::PhysAddr {
    let c: &Component = find(rig.k.node, rig.component, Component::KIND).unwrap();
    c.parts(rig.k.words()).captbl_root().unwrap()
}

/// The slice of the running thread ends, and the rig's own thread goes on.
fn preempt<P: Platform>(rig: &Rig<'_>, m: Machine) {
    assert!(matches!(interrupt::<P>(m), Left::User(_)));
    assert_eq!(stopped::<P>(me(rig)).1, Some(Stopped::Preempted));
}

fn leaves<P: Platform>() {
    solo::<P>(|rig, m| {
        let (cap, t, _) = preempted_inside::<P>(rig, m, 2);
        assert_eq!(stop::<P>(rig, m, cap), PENDING);
        assert_eq!(stop::<P>(rig, m, cap), PENDING, "it says so each time");
        assert_eq!(state(m, t), Some(State::Ready));
        // The service goes on.
        assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(SERVICE));
        // Out of the inner invocation: the thread is in a service still.
        assert_eq!(m.call::<P>(t, 0, &[7]), Left::User(SERVICE + 4));
        assert_eq!(state(m, t), Some(State::Running));
        let left = m.call::<P>(t, 0, &[9, 8, 7, 6]);
        assert!(matches!(left, Left::User(_)));
        assert_eq!(
            stopped::<P>(me(rig)),
            (0, Some(Stopped::Blocked), 0),
            "the scheduler goes on"
        );
        assert_eq!(state(m, t), Some(State::Stopped));
        assert_eq!(t.depth.load(Ordering::Relaxed), 0);
        assert_eq!(stop::<P>(rig, m, cap), ALREADY);
        assert_eq!(t.stop_asked(), None, "no request is left for a later call");
        // Nothing of the call is lost.
        assert_eq!(resume::<P>(rig, m, cap), (0, 0));
        assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(ENTRY + 4));
        assert_eq!(words(t, P::ISA, RESULTS, 4), [9, 8, 7, 6]);
        assert_eq!(words(t, P::ISA, SP, 1), [0x5000]);
        assert_eq!(rig.k.local.component.get(), rig.component.bits());
        Ok(None)
    });
}

#[test]
fn a_thread_that_is_stopped_in_a_service_stops_when_it_leaves() {
    leaves::<MockX86>();
    leaves::<MockA64>();
}

#[test]
fn a_request_to_stop_is_withdrawn_by_resume() {
    solo::<MockX86>(|rig, m| {
        let (cap, t, _) = preempted_inside::<MockX86>(rig, m, 1);
        let busy = refused(Error::NotReady);
        assert_eq!(resume::<MockX86>(rig, m, cap), busy, "nothing is pending");
        assert_eq!(stop::<MockX86>(rig, m, cap), PENDING);
        assert_eq!(resume::<MockX86>(rig, m, cap), (0, 0));
        assert_eq!(resume::<MockX86>(rig, m, cap), busy);
        assert_eq!(dispatch::<MockX86>(rig, m, cap, 0), Left::User(SERVICE));
        let left = m.call::<MockX86>(t, 0, &[9]);
        assert_eq!(left, Left::User(ENTRY + 4), "it goes on");
        Ok(None)
    });
}

/// The next invocation of a thread finds nothing of a request in an earlier one.
#[test]
fn a_request_to_stop_is_for_the_invocation_in_which_it_was_made() {
    solo::<MockA64>(|rig, m| {
        let (cap, t, service) = preempted_inside::<MockA64>(rig, m, 1);
        assert_eq!(stop::<MockA64>(rig, m, cap), PENDING);
        dispatch::<MockA64>(rig, m, cap, 0);
        m.call::<MockA64>(t, 0, &[9]);
        assert_eq!(resume::<MockA64>(rig, m, cap), (0, 0));
        assert_eq!(dispatch::<MockA64>(rig, m, cap, 0), Left::User(ENTRY + 4));
        let sinv = rig.sinv(service, SERVICE, 1).unwrap();
        assert_eq!(
            m.call::<MockA64>(t, op(sinv, 0), &[0; 4]),
            Left::User(SERVICE)
        );
        assert_eq!(m.call::<MockA64>(t, 0, &[9]), Left::User(ENTRY + 8));
        assert_eq!(state(m, t), Some(State::Running));
        Ok(None)
    });
}

fn never_returns<P: Platform>() {
    solo::<P>(|rig, m| {
        let (cap, t, _) = preempted_inside::<P>(rig, m, 1);
        assert_eq!(stop::<P>(rig, m, cap), PENDING);
        let object = dyad_object::reference(m.node(), t).unwrap();
        let untyped = || crate::syscall::ops::memory::to_untyped(&rig.k, object.frame);
        assert_eq!(untyped(), Err(Error::NotReady), "the service goes on");
        let configure = op(cap, ThreadOp::Configure as u64);
        let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
        let ids = u64::from(rig.thread_ids()?.get()) << 32;
        let configured = || {
            m.call::<P>(me(rig), configure, &[c.get().into(), ENTRY, 0, 3, ids]);
            result::<P>(me(rig))
        };
        assert_eq!(configured(), refused(Error::NotReady));
        pass_time(STOP_GRACE_NS);
        assert_eq!(stop::<P>(rig, m, cap), ENDED);
        assert_eq!(state(m, t), Some(State::Stopped));
        // The service gives its locks to others, so it must not go on there.
        assert_eq!(resume::<P>(rig, m, cap), refused(Error::NodeDead));
        assert_eq!(configured(), (0, 0));
        assert_eq!(resume::<P>(rig, m, cap), (0, 0));
        assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(ENTRY));
        assert_eq!(t.depth.load(Ordering::Relaxed), 0);
        Ok(None)
    });
}

#[test]
fn a_service_that_never_returns_does_not_keep_a_thread() {
    never_returns::<MockX86>();
    never_returns::<MockA64>();
}

#[test]
fn the_grace_period_begins_with_the_first_request_and_has_its_length() {
    solo::<MockX86>(|rig, m| {
        let (cap, t, _) = preempted_inside::<MockX86>(rig, m, 1);
        let before = dyad_machine::clock::now::<MockX86>().0;
        assert_eq!(stop::<MockX86>(rig, m, cap), PENDING);
        let asked = t.stop_asked().unwrap();
        assert!(asked <= dyad_machine::clock::now::<MockX86>().0 && asked + (1 << 16) > before);
        assert_eq!(stop::<MockX86>(rig, m, cap), PENDING);
        assert_eq!(t.stop_asked(), Some(asked));
        pass_time(STOP_GRACE_NS - (1 << 20));
        assert_eq!(stop::<MockX86>(rig, m, cap), PENDING);
        pass_time(1 << 20);
        assert_eq!(stop::<MockX86>(rig, m, cap), ENDED);
        Ok(None)
    });
}

fn faults<P: Platform>() {
    solo::<P>(|rig, m| {
        let (handler, _, _) = rig.other_component()?;
        let sinv = rig.sinv(handler, SERVICE, 0x1ab)?;
        let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
        assert_eq!(rig.sys(c, 1, &[sinv.get() as u64]), Ok(0));
        let fault = UserFault {
            kind: FaultKind::Read,
            address: 0x7000_0123,
            raw: 5,
        };
        for (word, why) in [(0, Stopped::Blocked), (1, Stopped::Faulted)] {
            let (cap, t) = thread(rig, None, 3 + word);
            dispatch::<P>(rig, m, cap, 1);
            let area = t.regs(P::ISA);
            let before: std::vec::Vec<u64> = words(t, P::ISA, 0, 22);
            m.kernel(|| entry::user_fault::<P>(area, fault));
            preempt::<P>(rig, m);
            assert_eq!(stop::<P>(rig, m, cap), PENDING);
            assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(SERVICE));
            m.call::<P>(t, 0, &[word]);
            assert_eq!(stopped::<P>(me(rig)).1, Some(why));
            assert_eq!(state(m, t), Some(State::Stopped));
            assert_eq!(words(t, P::ISA, 0, 22), before, "all registers are back");
            assert_eq!(t.depth.load(Ordering::Relaxed), 0);
            assert_eq!(resume::<P>(rig, m, cap), (0, 0));
            assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(ENTRY));
            assert_eq!(rig.k.local.component.get(), rig.component.bits());
            m.call::<P>(t, op(cap, ThreadOp::Exit as u64), &[0]);
        }
        Ok(None)
    });
}

#[test]
fn a_thread_that_is_stopped_in_its_fault_handler_keeps_its_registers() {
    faults::<MockX86>();
    faults::<MockA64>();
}

/// A wait in the service ends, as if its deadline had come, and the service goes on.
#[test]
fn a_stop_ends_the_waiting_of_a_service() {
    solo::<MockX86>(|rig, m| {
        let (ends, object) = rig.new_cap(ObjectKind::Endpoints)?;
        let (cap, t) = thread(rig, Some(object), 3);
        dispatch::<MockX86>(rig, m, cap, 0);
        let (service, ..) = rig.other_component()?;
        let sinv = rig.sinv(service, SERVICE, 0)?;
        m.call::<MockX86>(t, op(sinv, 0), &[0; 4]);
        rig.k.local.captbl.set(rig_table(rig));
        let receive = op(ends, ReceiveOp::Receive as u64);
        m.call::<MockX86>(t, receive, &[30, 1 << 50]);
        assert_eq!(state(m, t), Some(State::Blocked));
        assert_eq!(stop::<MockX86>(rig, m, cap), PENDING);
        assert_eq!(state(m, t), Some(State::Ready));
        // No sender finds it at its endpoint.
        let to = rig.put(CapType::Send, Rights::ALL, Some(object), [30, 0x55, 0])?;
        m.call::<MockX86>(me(rig), op(to, 1), &[]);
        assert_eq!(state(m, t), Some(State::Ready));
        let left = dispatch::<MockX86>(rig, m, cap, 0);
        assert_eq!(left, Left::User(SERVICE + 4));
        assert_eq!(result::<MockX86>(t), (0, 0x55), "what has come is there");
        // It waits again, and the request is withdrawn: no sender finds it there.
        rig.k.local.captbl.set(rig_table(rig));
        m.call::<MockX86>(t, receive, &[31, 1 << 50]);
        assert_eq!(state(m, t), Some(State::Blocked));
        assert_eq!(resume::<MockX86>(rig, m, cap), (0, 0));
        let lines: &Endpoints = find(m.node(), object, Endpoints::KIND)?;
        assert_eq!(lines.lines[31].waiter.load(Ordering::Relaxed), 0);
        assert_eq!(stop::<MockX86>(rig, m, cap), PENDING);
        dispatch::<MockX86>(rig, m, cap, 0);
        m.call::<MockX86>(t, 0, &[0; 4]);
        assert_eq!(state(m, t), Some(State::Stopped));
        Ok(None)
    });
}

#[test]
fn a_stop_without_an_invocation_is_immediate() {
    solo::<MockA64>(|rig, m| {
        let (cap, t) = thread(rig, None, 3);
        assert_eq!(stop::<MockA64>(rig, m, cap), STOPPED);
        assert_eq!(state(m, t), Some(State::Stopped));
        assert_eq!(resume::<MockA64>(rig, m, cap), (0, 0));
        Ok(None)
    });
}

/// The service sees it end, and gives its locks to others.
#[test]
fn a_thread_that_ends_in_a_service_is_not_resumed_there() {
    solo::<MockX86>(|rig, m| {
        let (cap, t, _) = preempted_inside::<MockX86>(rig, m, 1);
        dispatch::<MockX86>(rig, m, cap, 0);
        rig.k.local.captbl.set(rig_table(rig));
        m.call::<MockX86>(t, op(cap, ThreadOp::Exit as u64), &[5]);
        assert_eq!(state(m, t), Some(State::Stopped));
        assert_eq!(
            resume::<MockX86>(rig, m, cap),
            refused(Error::NodeDead),
            "it would go on in the service"
        );
        Ok(None)
    });
}

/// The return crosses to the node of the caller; the thread stops there.
fn crossed(withdrawn: bool) {
    pair(|(rx, x), (ra, a)| {
        let (cap, t, scheduler) = traveller(rx, x);
        let (service, _, _) = rx.other_component()?;
        let c: &Component = find(x.node(), service, Component::KIND)?;
        c.home.store(0b10, Ordering::Relaxed);
        let sinv = rx.sinv(service, SERVICE, 0xbad)?;
        x.call::<MockX86>(t, op(sinv, 0), &[1, 2, 3, 4]);
        assert_eq!(
            hears::<MockA64>(ra, a, scheduler).unwrap().why,
            Woken::Arrived
        );
        let object = dyad_object::reference(a.node(), t).unwrap();
        let there = ra.cap(ObjectKind::Thread, object, Rights::ALL)?;
        // From the other node: the thread stays where it is.
        x.enter();
        assert_eq!(stop::<MockX86>(rx, x, cap), PENDING);
        if withdrawn {
            assert_eq!(resume::<MockX86>(rx, x, cap), (0, 0));
        }
        assert_eq!(
            hears::<MockA64>(ra, a, scheduler).unwrap().why,
            Woken::Ready,
            "its scheduler is told: it may have been refused meanwhile"
        );
        assert_eq!(dispatch::<MockA64>(ra, a, there, 0), Left::User(SERVICE));
        a.call::<MockA64>(t, 0, &[9, 8, 7, 6]);
        assert_eq!(stopped::<MockA64>(me(ra)), (0, Some(Stopped::Left), 0));
        let heard = hears::<MockX86>(rx, x, scheduler).map(|e| e.why);
        if withdrawn {
            assert_eq!(heard, Some(Woken::Arrived));
            assert_eq!(state(x, t), Some(State::Ready));
        } else {
            assert_eq!(heard, None);
            assert_eq!(state(x, t), Some(State::Stopped));
            assert_eq!(t.stop_asked(), None, "no request is left for a later call");
            assert_eq!(resume::<MockX86>(rx, x, cap), (0, 0));
        }
        assert_eq!(dispatch::<MockX86>(rx, x, cap, 0), Left::User(ENTRY + 4));
        assert_eq!(words(t, Isa::X86_64, RESULTS, 4), [9, 8, 7, 6]);
        x.call::<MockX86>(t, op(cap, ThreadOp::Exit as u64), &[0]);
        Ok(None)
    });
}

#[test]
fn a_thread_that_is_stopped_in_a_service_elsewhere_stops_where_it_comes_back() {
    crossed(false);
}

#[test]
fn a_request_that_is_withdrawn_from_elsewhere_does_nothing() {
    crossed(true);
}

/// The node of the thread is dead when the thread is given back: recovery may not have seen it.
#[test]
fn a_thread_that_is_stopped_on_a_dead_node_is_not_left_there() {
    pair(|(rx, x), (ra, a)| {
        let (cap, t, scheduler) = traveller(rx, x);
        let (service, _, _) = rx.other_component()?;
        let c: &Component = find(x.node(), service, Component::KIND)?;
        c.home.store(0b10, Ordering::Relaxed);
        let sinv = rx.sinv(service, SERVICE, 0)?;
        x.call::<MockX86>(t, op(sinv, 0), &[0; 4]);
        hears::<MockA64>(ra, a, scheduler).unwrap();
        let dead = dyad_shm::superblock::NodeWord {
            state: dyad_shm::superblock::NodeState::Dead,
            incarnation: 1,
        };
        let state_word = &a.node().entry().state;
        let live = state_word.swap(dead.bits(), Ordering::Relaxed);
        x.enter();
        assert_eq!(stop::<MockX86>(rx, x, cap), ENDED);
        assert_eq!(state(x, t), Some(State::Stopped));
        assert_eq!(t.begun(Isa::X86_64), begun::LOST);
        state_word.store(live, Ordering::Relaxed);
        Ok(None)
    });
}

fn nowhere<P: Platform>() {
    solo::<P>(|rig, m| {
        let (client, ..) = rig.other_component()?;
        let (service, ..) = rig.other_component()?;
        let sinv = rig.sinv(service, SERVICE, 0)?;
        let (cap, t) = thread(rig, None, 3);
        dispatch::<P>(rig, m, cap, 0);
        m.call::<P>(t, op(sinv, 0), &[0; 4]);
        // It has come from a component that is given up meanwhile.
        t.frames[0]
            .component
            .store(client.bits(), Ordering::Relaxed);
        crate::syscall::ops::memory::to_untyped(&rig.k, client.frame)?;
        m.call::<P>(t, 0, &[9]);
        assert_eq!(stopped::<P>(me(rig)).1, Some(Stopped::Faulted));
        assert_eq!(state(m, t), Some(State::Stopped));
        // It is in no invocation, so its owner may say where it goes on: not in the service.
        assert_eq!(t.depth.load(Ordering::Relaxed), 0);
        assert_eq!(t.component.load(Ordering::Relaxed), client.bits());
        assert_eq!(resume::<P>(rig, m, cap), (0, 0));
        dispatch::<P>(rig, m, cap, 0);
        assert_eq!(stopped::<P>(me(rig)).1, Some(Stopped::Faulted));
        assert_ne!(rig.k.local.component.get(), service.bits());
        Ok(None)
    });
}

#[test]
fn a_thread_whose_component_is_gone_does_not_stay_in_the_service() {
    nowhere::<MockX86>();
    nowhere::<MockA64>();
}

/// A service asks for an invocation whose thread has stopped there, and the thread is resumed meanwhile: the invocation is
/// over if the thread cannot go on, and only then.
#[test]
fn an_invocation_is_not_over_if_its_thread_is_resumed_meanwhile() {
    resumed_meanwhile(true);
}

/// A service asks for an invocation whose thread has stopped in another component. The owner of that thread can resume it at every
/// moment of the question.
#[test]
fn who_asks_about_a_thread_of_others_leaves_it_to_its_owner() {
    resumed_meanwhile(false);
}

fn resumed_meanwhile(here: bool) {
    let steps = at_each_step(|rig, steps| {
        let (_, object, t) = Ends::new(rig).thread(rig, State::Stopped);
        t.depth.store(1, Ordering::Relaxed);
        let asks = rig.k.local.component.get();
        t.component
            .store(if here { asks } else { asks + 1 }, Ordering::Relaxed);
        t.set_begun(Isa::X86_64, begun::NOT);
        ids::claim(rig.k.node, 9, object).unwrap();
        let (k, resumed) = (rig.k, Rc::new(Cell::new(false)));
        let is_resumed = resumed.clone();
        let resume = move || {
            let resume = ThreadOp::Resume as u64;
            let done = ops::thread::dispatch::<MockX86>(&k, t, resume, [0; 5]);
            is_resumed.set(done.is_ok());
        };
        let mut is_inside = Ok(0);
        let came = crash::between(steps, resume, || {
            is_inside = ops::inside::inside::<MockX86>(&rig.k, 9 << 8 | 1);
        });
        crash::now();
        assert!(here || resumed.get() || !came, "step {steps}");
        let wanted = u64::from(resumed.get());
        assert_eq!(is_inside, Ok(wanted), "step {steps}");
        ids::release(rig.k.node, 9, object);
        came
    });
    assert!(steps > 1, "it makes hardly any steps");
}
