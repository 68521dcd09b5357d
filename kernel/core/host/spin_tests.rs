//! CPUs that say that they spin: for a thread that is handed to their node, or for one that could not be
//! handed over after all.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{ObjectKind, ThreadOp};
use dyad_abi::user::{away_window, gate, only_window};
use dyad_abi::{CpuId, Error, Isa};
use dyad_ring::wake;
use dyad_shm::superblock::{NodeState, NodeWord, activity};

use super::thread_tests::*;
use super::travel_tests::{hears, traveller};
use super::{Left, Machine, MockA64, MockX86, crash, result};
use crate::ktest::rig::Rig;
use crate::migrate::crossing_state::CrossingState;
use crate::migrate::spin_handoff;
use crate::run_loop;
use crate::syscall::entry;
use dyad_machine::cpu::FIRST_CPU;
use dyad_machine::inbox::wake_line;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_machine::{Platform, capcache, clock};
use dyad_object::component::Component;
use dyad_object::find;
use dyad_object::thread::{State, Thread};

/// Changes up to the one by which the thread is handed over: the node that it goes to dies just before.
const BEFORE: u32 = 0;
/// The same of a CPU that spins for the thread, which says so first.
const SPINS_BEFORE: u32 = 1;

/// Has a thread of the first node, which runs there, have been on the other node, so that its CPU goes the fast path
/// there, and spins.
pub(super) fn crosses(rx: &Rig<'_>, x: Machine, a: Machine, t: &'static Thread) {
    x.enter();
    let c: &Component = find(x.node(), rx.component, Component::KIND).unwrap();
    c.home.store(0b11, Ordering::Relaxed);
    let cx = KernelCtx::here::<MockX86>();
    let callee = capcache::Callee::find(&cx, rx.component).unwrap();
    capcache::fill_component::<MockX86>(&cx, &callee);
    let been = CrossingState::of(t).placed(Isa::Aarch64, a.node().id(), FIRST_CPU);
    t.crossing.store(been.0, Ordering::Relaxed);
}

/// A thread makes a crossing call to a node that dies at that moment, and `meanwhile` happens. How its CPU
/// goes on, and what it says that it does. `awaited`: a CPU of that node spins for the thread.
fn refused(awaited: bool, meanwhile: impl FnOnce(Machine, Machine) + Copy + 'static) {
    pair(|(rx, x), (_, a)| {
        let scheduler = rx.object(ObjectKind::Endpoints)?;
        let (cap, t) = thread(rx, Some(scheduler), 3);
        x.enter();
        assert_eq!(dispatch::<MockX86>(rx, x, cap, 0), Left::User(ENTRY));
        let cx = KernelCtx::here::<MockX86>();
        crosses(rx, x, a, t);
        if awaited {
            says(a)
                .0
                .store(spin_handoff::activity_word(t), Ordering::Relaxed);
        }
        let me = x.node().sb.cpu(x.node().id(), FIRST_CPU);
        me.pending.store(0, Ordering::Relaxed);
        me.activity.store(activity::USER, Ordering::Relaxed);
        let function = away_window(Isa::Aarch64).0 + 0x1000;
        let area = t.regs(Isa::X86_64);
        MockX86::set_user_pc_sp(area, function, 0);
        let live = a.node().entry().state.load(Ordering::Relaxed);
        let act = move || {
            let spins = me.activity.load(Ordering::Relaxed);
            assert_eq!(
                spins,
                crate::migrate::spin_handoff::activity_word(t),
                "it says that it spins"
            );
            let dead = NodeWord {
                state: NodeState::Dead,
                incarnation: 1,
            };
            a.node().entry().state.store(dead.bits(), Ordering::Relaxed);
            meanwhile(x, a);
        };
        let mut left = None;
        let came = crash::between_changes(SPINS_BEFORE, act, || {
            left = Some(x.kernel(|| {
                let fault = UserFault {
                    kind: FaultKind::Execute,
                    address: function,
                    raw: 0,
                };
                entry::foreign_fault::<MockX86>(area, fault)
            }));
        });
        assert!(came);
        let lost = only_window(Isa::X86_64).0 + gate::LOST;
        assert_eq!(left, Some(Left::User(lost)), "its call fails");
        // Either senders ring, or the timer interrupts the thread at once.
        let word = me.activity.load(Ordering::Relaxed);
        if me.pending.load(Ordering::Relaxed) == 0 {
            assert_eq!(word, activity::USER, "no CPU would ring");
        } else {
            let at = cx.local.timer_at.get();
            assert!(
                at != 0 && at <= clock::now::<MockX86>().0,
                "it does not look"
            );
        }
        a.node().entry().state.store(live, Ordering::Relaxed);
        Ok(None)
    });
}

#[test]
fn a_cpu_that_could_not_hand_its_thread_over_says_that_it_runs_it() {
    refused(false, |_, _| {});
}

/// The CPU that spins on the other node dies before the thread is handed over: its recovery may be over by then.
#[test]
fn a_thread_is_not_passed_to_a_cpu_that_spins_on_a_dead_node() {
    refused(true, |_, _| {});
}

#[test]
fn what_has_come_while_a_cpu_said_that_it_spins_is_looked_at() {
    refused(false, |x, a| {
        let words = a.node().words;
        let line = wake_line(x.node().id(), CpuId::new(0).unwrap());
        assert!(!wake::notify(words, &line, 8), "its CPU looks by itself");
    });
}

/// What a CPU of a node says that it does, and who has told it of something.
pub(super) fn says(m: Machine) -> (&'static AtomicU64, u64) {
    let cpu = m.node().sb.cpu(m.node().id(), FIRST_CPU);
    (&cpu.activity, cpu.pending.swap(0, Ordering::Relaxed))
}

/// Whose a thread is, and in which state.
pub(super) fn owned(m: Machine, t: &Thread) -> (State, usize) {
    let owner = t.owner(m.node().words).expect("an owner word");
    (owner.state, owner.node.index())
}

#[test]
fn a_cpu_that_spins_for_a_thread_is_not_told_of_it_and_finds_it() {
    pair(|(rx, x), (_, a)| {
        let (cap, t, _) = traveller(rx, x);
        says(a)
            .0
            .store(spin_handoff::activity_word(t), Ordering::Relaxed);
        let migrate = op(cap, ThreadOp::Migrate as u64);
        let left = x.call::<MockX86>(t, migrate, &[1]);
        assert!(matches!(left, Left::User(_)), "the scheduler goes on");
        assert_eq!(owned(a, t), (State::Transit, 1));
        assert_eq!(says(a).1, 0, "it looks by itself");
        a.enter();
        a.local().spins.set(Some((t, x.node().id())));
        // What the other node has left in it.
        t.slice_end.store(1, Ordering::Relaxed);
        t.budget.store(0x77, Ordering::Relaxed);
        a.local().set_slice_end(1 << 40);
        let left = a.kernel(|| run_loop::switched::<MockA64>(&KernelCtx::here::<MockA64>()));
        assert_eq!(left, Left::User(ENTRY), "it runs at once");
        assert_eq!(owned(a, t), (State::Running, 1));
        assert_eq!(t.slice_end.load(Ordering::Relaxed), 1 << 40);
        assert_eq!(t.budget.load(Ordering::Relaxed), 0);
        Ok(None)
    });
}

#[test]
fn a_cpu_that_spins_for_another_thread_is_told() {
    pair(|(rx, x), (ra, a)| {
        let (cap, t, scheduler) = traveller(rx, x);
        let other = spin_handoff::activity_word(me(rx));
        says(a).0.store(other, Ordering::Relaxed);
        x.call::<MockX86>(t, op(cap, ThreadOp::Migrate as u64), &[1]);
        assert_eq!(owned(a, t), (State::Transit, 1));
        assert!(hears::<MockA64>(ra, a, scheduler).is_some(), "it has come");
        Ok(None)
    });
}

/// The node of the CPU that spins dies before the thread is handed over: its recovery may not see the thread
/// any more, and nothing else would take it.
#[test]
fn a_thread_is_not_left_with_a_cpu_that_spins_on_a_dead_node() {
    pair(|(rx, x), (_, a)| {
        let (cap, t, _) = traveller(rx, x);
        says(a)
            .0
            .store(spin_handoff::activity_word(t), Ordering::Relaxed);
        let state = &a.node().entry().state;
        let live = state.load(Ordering::Relaxed);
        let dies = move || {
            let dead = NodeWord {
                state: NodeState::Dead,
                incarnation: 1,
            };
            state.store(dead.bits(), Ordering::Relaxed);
        };
        let migrate = op(cap, ThreadOp::Migrate as u64);
        let came = crash::between_changes(BEFORE, dies, || {
            x.call::<MockX86>(t, migrate, &[1]);
        });
        assert!(came);
        assert_eq!(owned(x, t), (State::Running, 0), "it goes on where it was");
        assert_eq!(result::<MockX86>(t).0, Error::NodeDead.code());
        state.store(live, Ordering::Relaxed);
        Ok(None)
    });
}

/// A message and an interrupt both notify the CPU that their endpoint is bound to.
#[test]
fn the_cpu_of_an_endpoint_is_told() {
    use dyad_abi::cap::{CapType, ReceiveOp, Rights, SendOp};
    for by_interrupt in [false, true] {
        pair(|(rx, x), (_, a)| {
            x.enter();
            let (ends, object) = rx.new_cap(ObjectKind::Endpoints)?;
            let bind = op(ends, ReceiveOp::Bind as u64);
            x.call::<MockX86>(me(rx), bind, &[5, a.node().id().index() as u64]);
            assert_eq!(result::<MockX86>(me(rx)).0, 0);
            says(a);
            if by_interrupt {
                let cx = KernelCtx::here::<MockX86>();
                crate::sched::dispatch::post::<MockX86>(&cx, object, 5, 1)?;
            } else {
                let to = rx.put(CapType::Send, Rights::ALL, Some(object), [5, 1, 0])?;
                x.call::<MockX86>(me(rx), op(to, SendOp::Send as u64), &[]);
            }
            assert_ne!(says(a).1, 0, "by_interrupt: {by_interrupt}");
            Ok(None)
        });
    }
}

/// The time of a thread on a budget is settled when it leaves, and its CPU does not spin for it.
#[test]
fn threads_on_a_budget_leave_with_their_time_settled() {
    for awaited in [false, true] {
        pair(|(rx, x), (_, a)| {
            let scheduler = rx.object(ObjectKind::Endpoints)?;
            let (cap, t) = thread(rx, Some(scheduler), 3);
            x.enter();
            assert_eq!(dispatch::<MockX86>(rx, x, cap, 0), Left::User(ENTRY));
            crosses(rx, x, a, t);
            if awaited {
                let word = spin_handoff::activity_word(t);
                says(a).0.store(word, Ordering::Relaxed);
            }
            let time = rx.object(ObjectKind::Time)?;
            t.budget.store(time.bits(), Ordering::Relaxed);
            t.budget_reserved.store(5, Ordering::Relaxed);
            says(x).0.store(activity::USER, Ordering::Relaxed);
            let function = away_window(Isa::Aarch64).0 + 0x1000;
            let area = t.regs(Isa::X86_64);
            MockX86::set_user_pc_sp(area, function, 0);
            let _ = x.kernel(|| {
                let fault = UserFault {
                    kind: FaultKind::Execute,
                    address: function,
                    raw: 0,
                };
                entry::foreign_fault::<MockX86>(area, fault)
            });
            assert_eq!(owned(a, t).1, 1, "it has left");
            assert_ne!(
                says(x).0.load(Ordering::Relaxed),
                spin_handoff::activity_word(t)
            );
            assert_eq!(t.budget_reserved.load(Ordering::Relaxed), 0, "{awaited}");
            Ok(None)
        });
    }
}

/// Within a crossing call a thread does not move: what is parked for the call would be parked over.
#[test]
fn threads_do_not_move_within_a_crossing_call() {
    pair(|(rx, x), (_, a)| {
        let (cap, t, _) = traveller(rx, x);
        let within = CrossingState::of(t).at_depth(1);
        t.crossing.store(within.0, Ordering::Relaxed);
        x.call::<MockX86>(t, op(cap, ThreadOp::Migrate as u64), &[1]);
        assert_eq!(owned(a, t), (State::Running, 0));
        assert_eq!(result::<MockX86>(t).0, Error::TooDeep.code());
        Ok(None)
    });
}
