//! Threads that go between an x86-64 and an AArch64 machine, and what waits for them there.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, Event, ObjectKind, ReceiveOp, Rights, Stopped, ThreadOp, Woken,
};
use dyad_abi::emulation::{GENERAL, WORDS, general, stack_pointer};
use dyad_abi::service::scheduler_line;
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;

use super::fp_tests::swap;
use super::thread_tests::*;
use super::{ARGUMENTS, Left, Machine, MockA64, MockX86, PARTIAL, RESULTS, SP, result};
use crate::ktest::rig::Rig;
use crate::ktest::spaces;
use crate::migrate::carried::{HandoffKind, store_handoff};
use crate::migrate::handoff;
use crate::syscall::entry;
use dyad_machine::Platform;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_object::component::{Component, Entry};
use dyad_object::endpoint::{Endpoints, Waits};
use dyad_object::find;
use dyad_object::thread::{State, Thread, begun};

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
        let object = dyad_object::reference(a.node(), t).unwrap();
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
        let leaf = dyad_space::mapping::page(frame, dyad_pgtbl::Perms::READ);
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
        let object = dyad_object::reference(a.node(), t).unwrap();
        let there = ra.cap(ObjectKind::Thread, object, Rights::ALL)?;
        let left = dispatch::<MockA64>(ra, a, there, 0);
        assert_eq!(left, Left::User(ENTRY + 0x100));
        // General registers, as far as these machines have other uses for the words.
        assert_eq!(words(t, Isa::Aarch64, 0, 8), page[4..12]);
        let stack = page[4 + stack_pointer(Isa::Aarch64)];
        assert_eq!(words(t, Isa::Aarch64, SP, 1), [stack]);
        // Flags and thread pointer, by the numbers of their registers.
        let behind = general(Isa::Aarch64) + 1;
        assert_eq!(words(t, Isa::Aarch64, behind, 2), page[2..4]);
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
        let object = dyad_object::reference(a.node(), t).unwrap();
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

/// The node of a crossing call has died, and the callee was in a fault handler there. The thread comes back with an error, and
/// its next fault has a handler again.
#[test]
fn faults_in_a_crossing_call_that_is_lost_are_over() {
    solo::<MockX86>(|rig, m| {
        let (_, t) = thread(rig, None, 3);
        let to = Entry {
            component: rig.component,
            address: 0,
            badge: 0,
        };
        let error = Error::NodeDead.code();
        store_handoff(t, HandoffKind::Lost, [error, 0, 0, 0], to);
        t.depth.store(1, Ordering::Relaxed);
        t.fault.store(1, Ordering::Relaxed);
        let owner = t.owner(m.node().words).unwrap();
        assert!(t.change(m.node().words, owner, owner.with(State::Transit)));
        assert_eq!(handoff::receive::<MockX86>(&rig.k, 3), Ok(()));
        let left = [&t.depth, &t.fault].map(|word| word.load(Ordering::Relaxed));
        assert_eq!(left, [0, 0]);
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
            t.change(rx.k.words(), owner, owner.asleep());
            let number = owner.asleep().seq;
            // The message is posted before, or after the receiver waits; or its bits are there and
            // the sender has not looked for the receiver yet.
            let woken = match order {
                0 => {
                    assert!(line.post(a.node(), 1).is_none());
                    line.wait(x.node(), t, number)? == Waits::No
                }
                1 => {
                    let waits = line.wait(x.node(), t, number)?;
                    assert!(matches!(waits, Waits::Yes { .. }));
                    line.post(a.node(), 1).is_some()
                }
                _ => {
                    let waits = line.wait(x.node(), t, number)?;
                    assert!(matches!(waits, Waits::Yes { .. }));
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
        crate::syscall::ops::memory::to_untyped(&rig.k, frame)?;
        let space = spaces::within(&rig.k, rig.space)?.space;
        let supply = dyad_object::space::Supply {
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
        crate::syscall::ops::captbl::activate(&rig.k, at, &hardware)?;
        assert_eq!(dispatch::<MockX86>(rig, m, cap, 0), Left::User(ENTRY));
        crate::syscall::ops::memory::to_untyped(&rig.k, component.frame)?;
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
