//! Floating-point registers through the whole kernel: whose they are after everything that takes them
//! from a thread, by the fast paths and the long ones. [`Machine::fp`] has one word of them.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::cap::{CapIndex, ObjectKind, Rights, Stopped, ThreadOp};
use dyad_shm::frame::WeakRef;

use super::spin_tests::{owned, says};
use super::thread_tests::{
    ENTRY, SERVICE, dispatch, interrupt, me, op, pair, solo, stopped, thread,
};
use super::travel_tests::{hears, traveller};
use super::{Left, Machine, MockA64, MockX86, result};
use crate::ktest::rig::Rig;
use crate::migrate::arrive;
use crate::migrate::carried::HandoffKind;
use crate::migrate::spin_handoff;
use crate::run_loop;
use crate::sched::dispatch::SwitchReason;
use crate::syscall::entry;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_object::component::Component;
use dyad_object::find;
use dyad_object::thread::{State, Thread, begun};

/// The running thread puts a value into its registers. What was there before.
pub(super) fn swap<P: Platform>(m: Machine, t: &'static Thread, value: u64) -> u64 {
    if m.fp().is_none() {
        let (pc, _) = P::user_pc_sp(t.regs(P::ISA));
        let left = m.kernel(|| {
            entry::fp_wanted::<P>(t.regs(P::ISA));
            panic!("they were on");
        });
        assert_eq!(left, Left::User(pc), "it goes on where it was");
    }
    let before = m.fp().expect("they are still off");
    m.set_fp(value);
    before
}

fn invoke<P: Platform>(m: Machine, t: &'static Thread, sinv: CapIndex) {
    let left = m.call::<P>(t, op(sinv, 0), &[1, 2, 3, 4]);
    assert_eq!(left, Left::User(SERVICE));
}

fn returns<P: Platform>(m: Machine, t: &'static Thread) {
    assert!(matches!(m.call::<P>(t, 0, &[0; 4]), Left::User(_)));
}

fn invocations<P: Platform>() {
    solo::<P>(|rig, m| {
        let (callee, _, _) = rig.other_component()?;
        let sinv = rig.sinv(callee, SERVICE, 0)?;
        let t = me(rig);
        // The first call takes the slow path. A caller that leaves nothing behind finds nothing either.
        for (round, [caller, uses]) in [[true, true], [true, true], [true, false], [false, true]]
            .into_iter()
            .enumerate()
        {
            if caller {
                assert_eq!(swap::<P>(m, t, 7), 0, "round {round}");
            }
            invoke::<P>(m, t, sinv);
            assert_eq!(m.fp(), None, "round {round}: entered with registers on");
            if uses {
                assert_eq!(swap::<P>(m, t, 9), 0, "round {round}: the caller's");
            }
            returns::<P>(m, t);
            assert_eq!(m.fp(), None, "round {round}: left with registers on");
            assert_eq!(swap::<P>(m, t, 7), 0, "round {round}: the callee's");
            invoke::<P>(m, t, sinv);
            returns::<P>(m, t);
        }
        // What is in its frame because another thread has run here is forgotten, too.
        let (other, u) = thread(rig, None, 3);
        assert_eq!(swap::<P>(m, t, 7), 0);
        dispatch::<P>(rig, m, other, 0);
        m.call::<P>(u, op(other, ThreadOp::Yield as u64), &[]);
        invoke::<P>(m, t, sinv);
        assert_eq!(swap::<P>(m, t, 9), 0, "the caller's, from its frame");
        returns::<P>(m, t);
        Ok(None)
    });
}

#[test]
fn invocations_carry_nothing_either_way() {
    invocations::<MockX86>();
    invocations::<MockA64>();
}

fn other_calls<P: Platform>() {
    solo::<P>(|rig, m| {
        let (cap, t) = thread(rig, None, 3);
        let (second, u) = thread(rig, None, 4);
        for (round, before) in [0, 7, 7].into_iter().enumerate() {
            dispatch::<P>(rig, m, cap, 0);
            assert_eq!(swap::<P>(m, t, 7), before, "round {round}");
            assert!(matches!(interrupt::<P>(m), Left::User(_)));
            assert_eq!(m.fp(), Some(7), "the interrupted thread goes on");
            m.call::<P>(t, op(cap, ThreadOp::Yield as u64), &[]);
            assert_eq!(m.fp(), None, "another thread runs");
            dispatch::<P>(rig, m, second, 0);
            let before = if round == 0 { 0 } else { 9 };
            assert_eq!(swap::<P>(m, u, 9), before, "round {round}");
            m.call::<P>(u, op(second, ThreadOp::Yield as u64), &[]);
        }
        Ok(None)
    });
}

#[test]
fn threads_that_take_turns_keep_their_own() {
    other_calls::<MockX86>();
    other_calls::<MockA64>();
}

const FAULT: UserFault = UserFault {
    kind: FaultKind::Read,
    address: 0x7000_0123,
    raw: 5,
};

fn faults<P: Platform>(m: Machine, t: &'static Thread) -> Left {
    m.kernel(|| entry::user_fault::<P>(t.regs(P::ISA), FAULT))
}

/// Faults of this component go to one that begins at [`SERVICE`].
fn with_handler(rig: &Rig<'_>) -> dyad_abi::Result<WeakRef> {
    let (handler, _, _) = rig.other_component()?;
    let sinv = rig.sinv(handler, SERVICE, 0)?;
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    rig.sys(c, 1, &[sinv.get() as u64])?;
    Ok(handler)
}

fn handlers<P: Platform>() {
    solo::<P>(|rig, m| {
        with_handler(rig)?;
        let (cap, t) = thread(rig, None, 3);
        dispatch::<P>(rig, m, cap, 0);
        // Both ways, whether they are on or in the frame when the fault comes.
        for (round, [thread, handler, away]) in [
            [true, true, false],
            [true, true, false],
            [true, false, false],
            [true, true, true],
            [false, true, false],
            [false, false, false],
        ]
        .into_iter()
        .enumerate()
        {
            if thread {
                swap::<P>(m, t, 7);
            }
            if away {
                m.call::<P>(t, op(cap, ThreadOp::Yield as u64), &[]);
                dispatch::<P>(rig, m, cap, 0);
                assert_eq!(m.fp(), None);
            }
            let at = P::user_pc_sp(t.regs(P::ISA)).0;
            assert_eq!(faults::<P>(m, t), Left::User(SERVICE));
            assert_eq!(m.fp(), None, "round {round}: entered with registers on");
            if handler {
                assert_eq!(swap::<P>(m, t, 9), 0, "round {round}: the thread's");
            }
            assert_eq!(m.call::<P>(t, 0, &[0]), Left::User(at));
            assert_eq!(swap::<P>(m, t, 7), 7, "round {round}: the handler's");
        }
        Ok(None)
    });
}

#[test]
fn what_a_fault_interrupts_goes_on_with_its_own() {
    handlers::<MockX86>();
    handlers::<MockA64>();
}

/// A thread that has ended in its handler, or for want of one, has what it had, should it be resumed.
fn unhandled<P: Platform>() {
    solo::<P>(|rig, m| {
        let (cap, t) = thread(rig, None, 3);
        dispatch::<P>(rig, m, cap, 0);
        swap::<P>(m, t, 7);
        let again = || {
            let (status, why, _) = stopped::<P>(me(rig));
            assert_eq!((status, why), (0, Some(Stopped::Faulted)));
            m.call::<P>(me(rig), op(cap, ThreadOp::Resume as u64), &[]);
            dispatch::<P>(rig, m, cap, 0)
        };
        faults::<P>(m, t);
        assert_eq!(again(), Left::User(ENTRY), "without a handler");
        assert_eq!(swap::<P>(m, t, 8), 7);
        with_handler(rig)?;
        assert_eq!(faults::<P>(m, t), Left::User(SERVICE));
        swap::<P>(m, t, 9);
        m.call::<P>(t, 0, &[1]);
        assert_eq!(again(), Left::User(ENTRY), "the handler has given up");
        assert_eq!(swap::<P>(m, t, 7), 8);
        // The handler faults: that ends the thread in the handler, which keeps its own, and the
        // thread's are still kept.
        assert_eq!(faults::<P>(m, t), Left::User(SERVICE));
        swap::<P>(m, t, 9);
        faults::<P>(m, t);
        // It has ended within an invocation: it is not resumed there.
        m.call::<P>(me(rig), op(cap, ThreadOp::Resume as u64), &[]);
        assert_eq!(result::<P>(me(rig)), (Error::NodeDead.code(), 0));
        // The registers in its frame are looked at all the same, by way of a resume that the kernel refuses.
        t.set_begun(P::ISA, begun::HERE);
        m.call::<P>(me(rig), op(cap, ThreadOp::Resume as u64), &[]);
        assert_eq!(
            dispatch::<P>(rig, m, cap, 0),
            Left::User(SERVICE),
            "in the handler"
        );
        assert_eq!(swap::<P>(m, t, 10), 9);
        assert_eq!(m.call::<P>(t, 0, &[0]), Left::User(ENTRY));
        assert_eq!(swap::<P>(m, t, 0), 7);
        Ok(None)
    });
}

#[test]
fn threads_that_end_by_a_fault_keep_theirs() {
    unhandled::<MockX86>();
    unhandled::<MockA64>();
}

#[test]
fn each_isa_has_its_own() {
    pair(|(rx, x), (ra, a)| {
        let (cap, t, scheduler) = traveller(rx, x);
        let there = || {
            assert!(hears::<MockA64>(ra, a, scheduler).is_some());
            let object = dyad_object::reference(a.node(), t).unwrap();
            let there = ra.cap(ObjectKind::Thread, object, Rights::ALL).unwrap();
            dispatch::<MockA64>(ra, a, there, 0);
        };
        let back = || {
            assert!(hears::<MockX86>(rx, x, scheduler).is_some());
            dispatch::<MockX86>(rx, x, cap, 0);
        };
        let migrate = op(cap, ThreadOp::Migrate as u64);
        assert_eq!(swap::<MockX86>(x, t, 7), 0);
        for before in [0, 9] {
            x.call::<MockX86>(t, migrate, &[1]);
            there();
            assert_eq!(swap::<MockA64>(a, t, 9), before);
            a.call::<MockA64>(t, migrate, &[0]);
            back();
            assert_eq!(swap::<MockX86>(x, t, 7), 7);
        }
        // An invocation that crosses carries nothing, and nothing comes back.
        let (service, _, _) = rx.other_component()?;
        let c: &Component = find(x.node(), service, Component::KIND)?;
        c.home.store(0b10, Ordering::Relaxed);
        let sinv = rx.sinv(service, SERVICE, 0)?;
        // Nor does the second one find what the first one has left.
        for _ in 0..2 {
            x.call::<MockX86>(t, op(sinv, 0), &[1, 2, 3, 4]);
            there();
            assert_eq!(
                swap::<MockA64>(a, t, 9),
                0,
                "the caller's, or of another time"
            );
            a.call::<MockA64>(t, 0, &[0; 4]);
            back();
            assert_eq!(swap::<MockX86>(x, t, 7), 0, "nothing comes back");
        }
        x.call::<MockX86>(t, op(cap, ThreadOp::Exit as u64), &[0]);
        Ok(None)
    });
}

/// A thread jumps there and back while the CPU of the node that it goes to spins for it, and uses the registers wherever
/// it is. How often they were on when it arrived, in so many jumps. The CPU on x86-64 stays in the thread's component.
fn jumps(times: usize) -> usize {
    let mut on = 0;
    let sum = &mut on;
    pair(move |(rx, x), (ra, a)| {
        let (cap, t, _) = traveller(rx, x);
        let home: &Component = find(x.node(), rx.component, Component::KIND)?;
        home.home.store(0b11, Ordering::Relaxed);
        let machines = [(rx, x), (ra, a)];
        for (round, (rig, m)) in machines.into_iter().cycle().skip(1).take(times).enumerate() {
            let (_, from) = machines[round % 2];
            let before = match round % 2 {
                0 => swap::<MockX86>(from, t, 7),
                _ => swap::<MockA64>(from, t, 9),
            };
            assert_eq!(before, 0, "round {round}: what a thread has left there");
            let word = spin_handoff::activity_word(t);
            says(m).0.store(word, Ordering::Relaxed);
            let jump = op(cap, ThreadOp::Jump as u64);
            let args = [m.node().id().index() as u64, ENTRY, 0x1000, 0, 0];
            let left = match round % 2 {
                0 => from.call::<MockX86>(t, jump, &args),
                _ => from.call::<MockA64>(t, jump, &args),
            };
            assert!(matches!(left, Left::User(_)), "round {round}: {left:?}");
            let there = (State::Transit, m.node().id().index());
            assert_eq!(
                owned(m, t),
                there,
                "round {round}: {:?}",
                result::<MockA64>(t)
            );
            assert_eq!(from.fp(), None, "round {round}: another thread runs");
            m.enter();
            let local = m.local();
            if local.thread.get().is_some() {
                local.chain.push(me(rig), SwitchReason::Dispatch);
                local.thread.set(None);
            }
            local.spins.set(Some((t, from.node().id())));
            let left = match round % 2 {
                0 => m.kernel(|| run_loop::switched::<MockA64>(&KernelCtx::here::<MockA64>())),
                _ => m.kernel(|| run_loop::switched::<MockX86>(&KernelCtx::here::<MockX86>())),
            };
            assert_eq!(left, Left::User(ENTRY), "round {round}");
            assert_eq!(local.fp_of.get().is_some(), m.fp().is_some());
            assert_eq!(local.fastpath_thread.get().is_none(), m.fp().is_some());
            *sum += usize::from(m.fp().is_some());
        }
        Ok(None)
    });
    on
}

#[test]
fn threads_that_jump_find_the_initial_state_in_registers_that_are_on() {
    assert_eq!(jumps(12), 6, "where the thread begins");
    assert_eq!(
        jumps(64),
        30,
        "off now and then, to see whether it uses them"
    );
}

/// A crossing call without floating-point arguments finds nothing of what the thread, or a service that
/// it was in, has had on that ISA before.
fn crossing_calls<P: Platform>() {
    solo::<P>(|rig, m| {
        let (cap, t) = thread(rig, None, 3);
        dispatch::<P>(rig, m, cap, 0);
        swap::<P>(m, t, 7);
        m.call::<P>(t, op(cap, ThreadOp::Yield as u64), &[]);
        assert_ne!(t.used_fp.load(Ordering::Relaxed), 0);
        let cx = KernelCtx::here::<P>();
        arrive::crossing::arrive::<P>(&cx, t, [HandoffKind::Call as u64, 0, 0, 0, 0, 0, 0, ENTRY]);
        assert_eq!(t.used_fp.load(Ordering::Relaxed), 0);
        Ok(None)
    });
}

#[test]
fn crossing_calls_find_nothing_of_before() {
    crossing_calls::<MockX86>();
    crossing_calls::<MockA64>();
}
