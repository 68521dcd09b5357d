//! Threads at the moment at which their CPU gives them up: all of a thread is in its frame by then, no CPU misses a thread
//! that is handed over, and a message from an earlier life of a node takes nothing.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::cell::{Cell, RefCell};
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use std::rc::Rc;
use std::vec::Vec;

use dyad_abi::Isa;
use dyad_abi::cap::{CapIndex, ObjectKind, ReceiveOp, Rights, ThreadOp};
use dyad_abi::user::{PAGE_SIZE, away_window};
use dyad_shm::PhysAddr;

use super::fp_tests::swap;
use super::spin_tests::{crosses, owned, says};
use super::thread_tests::*;
use super::travel_tests::traveller;
use super::{Left, Machine, MockA64, MockX86, crash};
use crate::ktest::rig::Rig;
use crate::migrate::handoff;
use crate::migrate::spin_handoff;
use crate::run_loop;
use crate::sched::dispatch::SwitchReason;
use crate::syscall::entry;
use dyad_machine::inbox;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_object::thread::{Owner, State, Thread};

/// More steps than matter of any of these operations.
const ENOUGH: u32 = 400;
/// Where the thread waits.
const LINE: u64 = 21;

/// Words of a thread that others change at any time: the owner word, and those of event lists.
const OTHERS: [usize; 3] = [
    offset_of!(Thread, owner),
    offset_of!(Thread, event_link),
    offset_of!(Thread, event),
];

fn frame_of(m: Machine, t: &Thread) -> PhysAddr {
    let at = core::ptr::from_ref(t) as u64;
    m.node().map.physical(at).expect("a frame")
}

/// The words of a thread that only its owner changes.
fn words_of(m: Machine, at: PhysAddr) -> Vec<(usize, u64)> {
    (0..PAGE_SIZE as usize)
        .step_by(8)
        .filter(|n| !OTHERS.contains(n))
        .map(|n| {
            (
                n,
                m.node().map.word(at.add(n as u64)).load(Ordering::SeqCst),
            )
        })
        .collect()
}

/// Something by which a CPU gives its thread up.
type Leaves = fn(&Rig<'_>, Machine, CapIndex, &'static Thread);

/// What is watched of a thread: its words at the last step at which it still ran.
type Watched = Rc<RefCell<Vec<(usize, u64)>>>;

/// Looks at the thread before the next step, and before each that follows.
fn watch(m: Machine, t: &'static Thread, last: Watched) {
    crash::later(0, move || {
        let state = t.owner(m.node().words).expect("an owner word").state;
        if state == State::Running {
            *last.borrow_mut() = words_of(m, frame_of(m, t));
            watch(m, t, last);
        }
    });
}

/// Nothing of a thread changes from the exchange on by which its owner word says that another CPU may take it: the last
/// step at which it still runs is that exchange.
fn leaves_nothing_behind(leaves: Leaves) {
    pair(|(rig, m), _| {
        let (cap, t, _) = traveller(rig, m);
        assert_eq!(swap::<MockX86>(m, t, 7), 0);
        let last = Watched::default();
        watch(m, t, last.clone());
        leaves(rig, m, cap, t);
        let state = t.owner(m.node().words).unwrap().state;
        assert_ne!(state, State::Running, "it has not been given up");
        let then = last.take();
        assert!(!then.is_empty(), "it was never seen running");
        let now = words_of(m, frame_of(m, t));
        let changed: Vec<_> = then.iter().zip(&now).filter(|(a, b)| a != b).collect();
        assert!(changed.is_empty(), "{changed:x?}");
        Ok(None)
    });
}

#[test]
fn preempted_threads_are_in_their_frames_when_they_are_ready() {
    leaves_nothing_behind(|rig, m, _, t| {
        t.slice_end.store(0, Ordering::Relaxed);
        rig.k.local.set_slice_end(0);
        assert!(matches!(interrupt::<MockX86>(m), Left::User(_)));
        assert_eq!(owned(m, t), (State::Ready, 0));
    });
}

#[test]
fn threads_that_yield_are_in_their_frames_when_they_are_ready() {
    leaves_nothing_behind(|_, m, cap, t| {
        m.call::<MockX86>(t, op(cap, ThreadOp::Yield as u64), &[]);
        assert_eq!(owned(m, t), (State::Ready, 0));
    });
}

#[test]
fn threads_that_wait_are_in_their_frames_when_they_are_blocked() {
    leaves_nothing_behind(|rig, m, _, t| {
        let ends = rig.object(ObjectKind::Endpoints).unwrap();
        let ends = rig.cap(ObjectKind::Endpoints, ends, Rights::ALL).unwrap();
        let receive = op(ends, ReceiveOp::Receive as u64);
        m.call::<MockX86>(t, receive, &[LINE, 0]);
        assert_eq!(owned(m, t), (State::Blocked, 0));
    });
}

#[test]
fn threads_that_end_are_in_their_frames_when_they_are_stopped() {
    leaves_nothing_behind(|_, m, cap, t| {
        m.call::<MockX86>(t, op(cap, ThreadOp::Exit as u64), &[5]);
        assert_eq!(owned(m, t), (State::Stopped, 0));
    });
}

#[test]
fn threads_that_migrate_are_in_their_frames_when_they_are_in_transit() {
    leaves_nothing_behind(|_, m, cap, t| {
        m.call::<MockX86>(t, op(cap, ThreadOp::Migrate as u64), &[1]);
        assert_eq!(owned(m, t), (State::Transit, 1));
    });
}

/// A CPU that has dispatched the thread spins for it: it finds it, or its scheduler goes on.
fn spins(scheduler: &'static Thread, m: Machine, t: &'static Thread, from: Machine) -> Left {
    m.enter();
    let local = m.local();
    if local.thread.get().is_some() {
        local.chain.push(scheduler, SwitchReason::Dispatch);
        local.thread.set(None);
    }
    let node = from.node().id();
    local.spins.set(Some((t, node)));
    m.kernel(|| run_loop::switched::<MockA64>(&KernelCtx::here::<MockA64>()))
}

/// A peer spins for the thread, and stops just before each step of the CPU that hands the thread over: either it has
/// found the thread, or it is told.
fn is_found_whenever_the_peer_stops(
    hand_over: impl Fn(&Rig<'_>, Machine, CapIndex, &'static Thread),
) {
    let (mut found, mut told) = (0, 0);
    for step in 0..ENOUGH {
        let more = Cell::new(false);
        pair(|(rx, x), (ra, a)| {
            let (cap, t, _) = traveller(rx, x);
            crosses(rx, x, a, t);
            says(a)
                .0
                .store(spin_handoff::activity_word(t), Ordering::Relaxed);
            let scheduler = me(ra);
            let stops = move || {
                spins(scheduler, a, t, x);
                x.enter();
            };
            x.enter();
            more.set(crash::between(step, stops, || hand_over(rx, x, cap, t)));
            match owned(a, t) {
                (State::Running, 1) => found += 1,
                (State::Transit, 1) => {
                    told += 1;
                    let me_there = a.node().sb.cpu(a.node().id(), a.local().id());
                    let looks =
                        me_there.activity.load(Ordering::Relaxed) == spin_handoff::activity_word(t);
                    a.enter();
                    if looks {
                        // It still spins: no CPU has told it.
                        spins(me(ra), a, t, x);
                    } else {
                        interrupt::<MockA64>(a);
                    }
                    assert_eq!(owned(a, t).1, 1);
                    assert_ne!(owned(a, t).0, State::Transit, "step {step}: lost");
                }
                other => panic!("step {step}: {other:?}"),
            }
            Ok(None)
        });
        if !more.get() {
            break;
        }
    }
    assert!(found > 0 && told > 0, "{found} found, {told} told");
}

#[test]
fn a_thread_that_migrates_is_found_whenever_its_peer_stops_spinning() {
    is_found_whenever_the_peer_stops(|_, x, cap, t| {
        x.call::<MockX86>(t, op(cap, ThreadOp::Migrate as u64), &[1]);
    });
}

#[test]
fn a_thread_that_crosses_is_found_whenever_its_peer_stops_spinning() {
    is_found_whenever_the_peer_stops(|_, x, _, t| {
        let area = t.regs(Isa::X86_64);
        let address = away_window(Isa::Aarch64).0 + 0x1000;
        let fault = UserFault {
            kind: FaultKind::Execute,
            address,
            raw: 0,
        };
        x.kernel(|| entry::foreign_fault::<MockX86>(area, fault));
    });
}

/// A bit and an owner word of an earlier life of a node: neither the run loop nor a CPU that spins takes the thread.
#[test]
fn a_thread_on_its_way_to_an_earlier_life_of_a_node_is_not_taken() {
    pair(|(rx, x), (ra, a)| {
        let (cap, t, _) = traveller(rx, x);
        x.call::<MockX86>(t, op(cap, ThreadOp::Migrate as u64), &[1]);
        let handed = t.owner(x.node().words).unwrap();
        assert_eq!((handed.state, handed.incarnation), (State::Transit, 1));
        for incarnation in [0, 2] {
            let other = Owner {
                incarnation,
                ..handed
            };
            t.owner.store(other.bits(), Ordering::Relaxed);
            x.enter();
            inbox::announce::<MockX86>(a.node().id(), rx.k.cpu(), 3).unwrap();
            interrupt::<MockA64>(a);
            assert_eq!(t.owner(a.node().words), Some(other), "taken by its bit");
            a.enter();
            let cx = KernelCtx::here::<MockA64>();
            assert_eq!(handoff::receive::<MockA64>(&cx, 3), Ok(()));
            spins(me(ra), a, t, x);
            assert_eq!(
                t.owner(a.node().words),
                Some(other),
                "taken by its owner word"
            );
        }
        t.owner.store(handed.bits(), Ordering::Relaxed);
        a.enter();
        assert_eq!(
            handoff::receive::<MockA64>(&KernelCtx::here::<MockA64>(), 3),
            Ok(())
        );
        assert_eq!(owned(a, t), (State::Ready, 1));
        Ok(None)
    });
}
