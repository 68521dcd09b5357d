//! Threads that are stopped, resumed, and wait again while a CPU still has an older wait of theirs in hand.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use dyad_abi::Error;
use dyad_abi::cap::{SendOp, ThreadOp};

use super::race_tests::{AT, Ends, at_each_step, call};
use super::{MockX86, crash};
use crate::sched::dispatch::{self, Endpoint, OpOutcome, sleep_at};
use crate::syscall::ops;
use dyad_object::endpoint::Endpoints;
use dyad_object::follow;
use dyad_object::thread::State;

/// `Stop` takes the thread off its endpoint at its end: if the thread waits there again by then, it is not left asleep
/// where no sender finds it.
#[test]
fn threads_that_wait_again_while_they_are_stopped_are_found_or_woken() {
    let again = Rc::new(Cell::new(0));
    at_each_step(|rig, steps| {
        let ends = Ends::new(rig);
        let (cap, _, t) = ends.waiting(rig);
        let (k, line) = (rig.k, ends.line(rig));
        let waits_again = again.clone();
        let ends = Rc::new(ends);
        let then = ends.clone();
        let act = move || {
            let resumed = ops::thread::dispatch::<MockX86>(&k, t, ThreadOp::Resume as u64, [0; 5]);
            if resumed.is_ok() && call(&k, cap, ThreadOp::Dispatch as u32, &[0, 0]).is_ok() {
                then.wait(&k);
                waits_again.set(waits_again.get() + 1);
            }
        };
        let came = crash::between(steps, act, || {
            let _ = ops::thread::dispatch::<MockX86>(&rig.k, t, ThreadOp::Stop as u64, [0; 5]);
        });
        let owner = t.owner(rig.k.words()).unwrap();
        let waiter = line.waiter.load(Ordering::Relaxed);
        assert_eq!(
            owner.state == State::Blocked,
            waiter != 0,
            "step {steps}: {owner:?}"
        );
        came
    });
    assert!(again.get() > 0, "it has never waited again");
}

#[test]
fn a_thread_whose_owner_word_has_changed_is_no_waiter() {
    at_each_step(|rig, _| {
        let ends = Ends::new(rig);
        let (_, _, t) = ends.thread(rig, State::Ready);
        let owner = t.owner(rig.k.words()).unwrap();
        let line = ends.line(rig);
        let slept = dispatch::sleep_at(&rig.k, t, owner.with(State::Running), line);
        assert_eq!(slept, Err(Error::Corrupt));
        assert_eq!(line.waiter.load(Ordering::Relaxed), 0, "it waits");
        assert_eq!(t.owner(rig.k.words()), Some(owner));
        false
    });
}

/// A sender has found a more urgent thread waiting, and gives way to it late: the thread has been stopped and resumed, and
/// waits anew by then. The later wait has not ended.
#[test]
fn a_thread_that_waits_anew_is_not_run_for_its_earlier_wait() {
    at_each_step(|rig, _| {
        let (k, ends) = (&rig.k, Ends::new(rig));
        let run = |cap, priority: u64| {
            call(k, cap, ThreadOp::Dispatch as u32, &[priority << 56, 0]).unwrap();
        };
        let (cap, _, t) = ends.thread(rig, State::Ready);
        run(cap, 9);
        ends.wait(k);
        let line = ends.line(rig);
        let found = line.take_waiter(k.node).unwrap();
        for op in [ThreadOp::Stop, ThreadOp::Resume] {
            ops::thread::dispatch::<MockX86>(k, t, op as u64, [0; 5]).unwrap();
        }
        run(cap, 9);
        ends.wait(k);
        run(ends.thread(rig, State::Ready).0, 3);
        let at = Endpoint {
            object: ends.object.bits(),
            number: AT,
            line,
        };
        let sent = dispatch::wake_receiver::<MockX86>(k, found, at);
        assert_eq!(sent, Ok(OpOutcome::Value(0)), "the sender does not go on");
        assert_eq!(t.owner(k.words()).unwrap().state, State::Blocked);
        assert!(line.is_waiter(k.node, t));
        false
    });
}

#[test]
fn a_word_that_is_no_reference_leads_nowhere() {
    at_each_step(|rig, _| {
        for word in [u64::MAX, 0xffff_ffff] {
            let found = follow::<Endpoints>(rig.cx.node, word, Endpoints::KIND);
            assert_eq!(found.err(), Some(Error::NotFound), "{word:#x}");
        }
        false
    });
}

/// A thread goes to sleep at any moment of a `Send`, on either path: it does not sleep beside what has been sent.
/// The bits are set before the waiter is looked for.
#[test]
fn a_thread_that_goes_to_sleep_while_a_message_is_sent_is_woken() {
    for slow in [false, true] {
        let steps = at_each_step(|rig, steps| {
            rig.k.local.cache.set_slow(slow);
            let ends = Ends::new(rig);
            let (_, _, t) = ends.thread(rig, State::Running);
            let (k, line) = (rig.k, ends.line(rig));
            let send = || rig.sys(ends.send, SendOp::Send as u32, &[]);
            // The CPU has cached all of it.
            for _ in 0..2 {
                assert_eq!(send(), Ok(0));
                line.take(k.node);
            }
            let sleeps = move || {
                let owner = t.owner(k.words()).unwrap();
                sleep_at(&k, t, owner, line).unwrap();
            };
            let came = crash::between(steps, sleeps, || assert_eq!(send(), Ok(0)));
            let asleep = t.owner(k.words()).unwrap().state == State::Blocked;
            assert!(
                !asleep || !line.has_pending(k.node),
                "slow: {slow}, {steps}"
            );
            came
        });
        assert!(steps > 1, "it makes hardly any steps");
    }
}
