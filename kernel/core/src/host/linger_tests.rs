//! CPUs that have said that they linger for a thread which could not be handed over after all.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::sync::atomic::Ordering;

use dyad_abi::cap::ObjectKind;
use dyad_abi::user::{away_window, gate, only_window};
use dyad_abi::{CpuId, Isa};
use dyad_ring::wake;
use dyad_shm::superblock::{NodeState, NodeWord, activity};

use super::thread_tests::*;
use super::{Left, Machine, MockX86, crash};
use crate::cpu::FIRST_CPU;
use crate::cx::Cx;
use crate::inbox::wake_line;
use crate::object::component::Component;
use crate::object::find;
use crate::platform::{FaultKind, UserFault};
use crate::{Platform, clock, crossing, entry, view};

/// Changes up to the one by which the thread is handed over: the node that it goes to dies just before.
const BEFORE: u32 = 0;

/// A thread makes a crossing call to a node that dies at that moment, and `meanwhile` happens. How its CPU
/// goes on, and what it says that it does.
fn refused(meanwhile: impl FnOnce(Machine, Machine) + Copy + 'static) {
    pair(|(rx, x), (_, a)| {
        let scheduler = rx.object(ObjectKind::Endpoints)?;
        let (cap, t) = thread(rx, Some(scheduler), 3);
        let c: &Component = find(x.node(), rx.component, Component::KIND)?;
        c.home.store(0b11, Ordering::Relaxed);
        x.enter();
        assert_eq!(dispatch::<MockX86>(rx, x, cap, 0), Left::User(ENTRY));
        let cx = Cx::here::<MockX86>();
        view::learn_component::<MockX86>(&cx, rx.component.bits());
        // It has been on the other node, so that its CPU goes the short way, and lingers.
        let been = crossing::Crossing::of(t).placed(Isa::Aarch64, a.node().id(), FIRST_CPU);
        t.crossing.store(been.0, Ordering::Relaxed);
        let me = x.node().sb.cpu(x.node().id(), FIRST_CPU);
        me.pending.store(0, Ordering::Relaxed);
        me.activity.store(activity::USER, Ordering::Relaxed);
        let function = away_window(Isa::Aarch64).0 + 0x1000;
        let area = t.regs(Isa::X86_64);
        MockX86::set_user_pc_sp(area, function, 0);
        let live = a.node().entry().state.load(Ordering::Relaxed);
        let act = move || {
            let lingers = me.activity.load(Ordering::Relaxed);
            assert_eq!(lingers, crate::linger::doing(t), "it says that it lingers");
            let dead = NodeWord {
                state: NodeState::Dead,
                incarnation: 1,
            };
            a.node().entry().state.store(dead.bits(), Ordering::Relaxed);
            meanwhile(x, a);
        };
        let mut left = None;
        let came = crash::between(BEFORE, act, || {
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
            assert_eq!(word, activity::USER, "nobody would ring");
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
    refused(|_, _| {});
}

#[test]
fn what_has_come_while_a_cpu_said_that_it_lingers_is_looked_at() {
    refused(|x, a| {
        let words = a.node().words;
        let line = wake_line(x.node().id(), CpuId::new(0).unwrap());
        assert!(!wake::notify(words, &line, 8), "its CPU looks by itself");
    });
}
