//! Root threads: the thread that a CPU runs when no other thread does, comes, waits, goes away and is
//! replaced.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::cell::Cell;
use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapType, Event, HardwareOp, ObjectKind, ReceiveOp, Rights, ThreadOp, Woken};
use dyad_abi::service::scheduler_line;
use dyad_abi::{Error, Isa, NodeId};

use super::spin_tests::owned;
use super::thread_tests::{ENTRY, interrupt, op, pair, solo, thread};
use super::travel_tests::{hears, traveller};
use super::{Left, MockA64, MockX86, result};
use dyad_object::thread::{Owner, State, Thread, begun};

#[test]
fn cpus_without_a_thread_sleep_and_take_their_root_thread() {
    solo::<MockX86>(|rig, m| {
        let (_, t) = thread(rig, None, 3);
        rig.k.local.thread.set(None);
        assert_eq!(interrupt::<MockX86>(m), Left::Asleep);
        crate::sched::dispatch::set_root::<MockX86>(&rig.k, rig.k.cpu(), t)?;
        assert_eq!(interrupt::<MockX86>(m), Left::User(ENTRY));
        assert!(core::ptr::eq(rig.k.local.thread.get().unwrap(), t));
        Ok(None)
    });
}

/// A CPU whose root thread is ready elsewhere has no thread to run, and must not stay awake for it.
#[test]
fn cpus_sleep_while_their_root_thread_is_elsewhere() {
    solo::<MockX86>(|rig, m| {
        let (_, t) = thread(rig, None, 3);
        rig.k.local.thread.set(None);
        crate::sched::dispatch::set_root::<MockX86>(&rig.k, rig.k.cpu(), t)?;
        let here = t.owner(rig.k.words()).unwrap();
        assert!(crate::sched::dispatch::root_ready(&rig.k));
        let elsewhere = Owner {
            node: NodeId::new(1).unwrap(),
            ..here
        };
        assert!(t.change(rig.k.words(), here, elsewhere));
        assert!(!crate::sched::dispatch::root_ready(&rig.k));
        assert_eq!(interrupt::<MockX86>(m), Left::Asleep);
        assert!(t.change(rig.k.words(), elsewhere, here));
        assert_eq!(interrupt::<MockX86>(m), Left::User(ENTRY));
        Ok(None)
    });
}

/// A thread that gives its own CPU to another goes on until it waits; then it is the root thread of no CPU.
#[test]
fn root_threads_that_are_replaced_give_way_when_they_wait() {
    solo::<MockX86>(|rig, m| {
        let (ends, _) = rig.new_cap(ObjectKind::Endpoints)?;
        let hardware = rig.put(CapType::Hardware, Rights::ALL, None, [0; 3])?;
        let (_, first) = thread(rig, None, 3);
        let (cap, second) = thread(rig, None, 4);
        rig.k.local.thread.set(None);
        crate::sched::dispatch::set_root::<MockX86>(&rig.k, rig.k.cpu(), first)?;
        interrupt::<MockX86>(m);
        let start = op(hardware, HardwareOp::StartCpu as u64);
        let left = m.call::<MockX86>(first, start, &[0, cap.get().into()]);
        assert_eq!(left, Left::User(ENTRY + 4), "it goes on");
        assert_eq!(result::<MockX86>(first), (0, 0));
        let receive = op(ends, ReceiveOp::Receive as u64);
        assert_eq!(
            m.call::<MockX86>(first, receive, &[0, 0]),
            Left::User(ENTRY)
        );
        assert!(core::ptr::eq(rig.k.local.thread.get().unwrap(), second));
        let state = |t: &Thread| t.owner(rig.k.words()).unwrap().state;
        assert_eq!(
            (state(first), state(second)),
            (State::Blocked, State::Running)
        );
        Ok(None)
    });
}

#[test]
fn root_threads_wait_until_their_deadline() {
    solo::<MockX86>(|rig, m| {
        let (ends, _) = rig.new_cap(ObjectKind::Endpoints)?;
        let (_, t) = thread(rig, None, 3);
        rig.k.local.thread.set(None);
        crate::sched::dispatch::set_root::<MockX86>(&rig.k, rig.k.cpu(), t)?;
        interrupt::<MockX86>(m);
        let until = dyad_machine::clock::now::<MockX86>().0 + 10_000_000;
        let receive = op(ends, ReceiveOp::Receive as u64);
        assert_eq!(m.call::<MockX86>(t, receive, &[0, until]), Left::Asleep);
        // The clock of these machines goes on with every look at it.
        while dyad_machine::clock::now::<MockX86>().0 < until {}
        assert!(matches!(interrupt::<MockX86>(m), Left::User(_)));
        assert_eq!(result::<MockX86>(t), (0, 0), "nothing has come");
        Ok(None)
    });
}

/// The state of a thread that was dispatched without a budget and has come to an idle CPU whose scheduler waits until a
/// deadline. The slice of a thread that runs ends by then. `limited`: the thread that dispatched it runs on a budget.
fn arrived_of_a_dispatcher(limited: bool) -> State {
    let state = Cell::new(State::None);
    pair(|(rx, x), (ra, a)| {
        let (_, dispatcher, scheduler) = traveller(rx, x);
        a.enter();
        let ends = ra.cap(ObjectKind::Endpoints, scheduler, Rights::ALL)?;
        let (_, root) = thread(ra, None, 9);
        ra.k.local.thread.set(None);
        crate::sched::dispatch::set_root::<MockA64>(&ra.k, ra.k.cpu(), root)?;
        interrupt::<MockA64>(a);
        let receive = op(ends, ReceiveOp::Receive as u64);
        let mine = scheduler_line(a.node().id(), ra.k.cpu());
        let until = dyad_machine::clock::now::<MockA64>().0 + 5_000_000;
        let left = a.call::<MockA64>(root, receive, &[mine, until]);
        assert_eq!(left, Left::Asleep, "the scheduler waits");
        x.enter();
        if limited {
            let time = rx.object(ObjectKind::Time)?;
            dispatcher.budget.store(time.bits(), Ordering::Relaxed);
        }
        let (cap, child) = thread(rx, Some(scheduler), 4);
        let dispatch = op(cap, ThreadOp::Dispatch as u64);
        let left = x.call::<MockX86>(dispatcher, dispatch, &[0, 0]);
        assert_eq!(left, Left::User(ENTRY));
        x.call::<MockX86>(child, op(cap, ThreadOp::Migrate as u64), &[1]);
        assert!(matches!(interrupt::<MockA64>(a), Left::User(_)));
        let (is, node) = owned(a, child);
        assert_eq!(node, 1);
        if is == State::Running {
            let slice_end = child.slice_end.load(Ordering::Relaxed);
            assert!(slice_end <= until, "{slice_end}, {until}");
            assert_eq!(ra.k.local.slice_end(), slice_end);
        }
        state.set(is);
        Ok(None)
    });
    state.get()
}

/// Time on an idle CPU is no way around a budget: a child of a thread on a budget is dispatched there, or does not run.
#[test]
fn a_child_of_a_thread_on_a_budget_does_not_run_at_once_where_it_arrives() {
    assert_eq!(arrived_of_a_dispatcher(false), State::Running);
    assert_eq!(arrived_of_a_dispatcher(true), State::Ready);
}

/// A ready thread that cannot become a root thread is its scheduler's again. The scheduler may have been refused the thread
/// meanwhile, so it is told once more.
#[test]
fn a_scheduler_is_told_of_a_thread_that_does_not_become_a_root_thread() {
    solo::<MockX86>(|rig, m| {
        let scheduler = rig.object(ObjectKind::Endpoints)?;
        let (_, t) = thread(rig, Some(scheduler), 3);
        t.set_begun(Isa::X86_64, begun::LOST);
        let refused = crate::sched::dispatch::set_root::<MockX86>(&rig.k, rig.k.cpu(), t);
        assert_eq!(refused, Err(Error::NodeDead));
        let ready = Event {
            tag: 3,
            why: Woken::Ready,
        };
        assert_eq!(hears::<MockX86>(rig, m, scheduler), Some(ready));
        Ok(None)
    });
}

/// Nothing of an earlier dispatch counts for a root thread.
#[test]
fn root_threads_have_no_budget_and_go_first() {
    solo::<MockX86>(|rig, m| {
        let (_, t) = thread(rig, None, 3);
        let time = rig.object(ObjectKind::Time)?;
        t.budget.store(time.bits(), Ordering::Relaxed);
        t.priority.store(2, Ordering::Relaxed);
        rig.k.local.thread.set(None);
        crate::sched::dispatch::set_root::<MockX86>(&rig.k, rig.k.cpu(), t)?;
        assert_eq!(interrupt::<MockX86>(m), Left::User(ENTRY));
        let is = (
            t.budget.load(Ordering::Relaxed),
            t.priority.load(Ordering::Relaxed),
        );
        assert_eq!(is, (0, u64::MAX));
        Ok(None)
    });
}
