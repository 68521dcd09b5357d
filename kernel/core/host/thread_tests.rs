//! Threads through the whole kernel, from a system call or a trap to user mode, on one machine.
//! Those that go to others are in [`travel_tests`](super::travel_tests).

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use dyad_abi::cap::{
    CapIndex, CapType, Event, ObjectKind, ReceiveOp, Rights, SendOp, Stopped, ThreadOp, Woken,
    call_word,
};
use dyad_abi::service::{ASKED, scheduler_line};
use dyad_abi::user::{stack_slot, tcb_address};
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;
use dyad_shm::superblock::activity;

use super::fp_tests::swap;
use super::ktests::{joined, passes};
use super::{
    ARGUMENTS, Did, Left, Machine, MockA64, MockX86, PC, RESULTS, SP, THREAD_POINTER, World, result,
};
use super::{crash, pass_time};
use crate::ktest::rig::{self, Rig};
use crate::ktest::{Outcome, run_here, spaces};
use crate::syscall::entry;
use dyad_machine::Platform;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_machine::{console, inbox};
use dyad_object::endpoint::Endpoints;
use dyad_object::find;
use dyad_object::thread::{State, Thread, begun};
use dyad_object::time::Budgets;

pub(super) const ENTRY: u64 = 0x4100_0000;
pub(super) const SERVICE: u64 = 0x4200_2000;
const DISPATCH: u64 = ThreadOp::Dispatch as u64;
pub(super) const NOW: u64 = crate::syscall::ops::endpoint::NOW;

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

pub(super) fn words(t: &Thread, isa: Isa, from: usize, n: usize) -> std::vec::Vec<u64> {
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
    rig.identify(object, tag).unwrap();
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

/// The value of `Dispatch` has 56 bits for a deadline, and 32 for an exit code. One that is larger does not become a small
/// one, or none.
#[test]
fn deadlines_and_exit_codes_are_not_cut() {
    const MOST: u64 = (1 << 56) - 1;
    for (wanted, told) in [(5, 5), (MOST, MOST), (MOST + 1, MOST), (1 << 62 | 7, MOST)] {
        solo::<MockX86>(|rig, m| {
            let (ends, object) = rig.new_cap(ObjectKind::Endpoints)?;
            let (cap, t) = thread(rig, Some(object), 3);
            dispatch::<MockX86>(rig, m, cap, 0);
            m.call::<MockX86>(t, op(ends, ReceiveOp::Receive as u64), &[30, wanted]);
            let expected = (0, Some(Stopped::Blocked), told);
            assert_eq!(stopped::<MockX86>(me(rig)), expected);
            Ok(None)
        });
        solo::<MockX86>(|rig, m| {
            let (cap, t) = thread(rig, None, 3);
            dispatch::<MockX86>(rig, m, cap, 0);
            m.call::<MockX86>(t, op(cap, ThreadOp::Exit as u64), &[wanted]);
            let expected = (0, Some(Stopped::Exited), told.min(u32::MAX.into()));
            assert_eq!(stopped::<MockX86>(me(rig)), expected);
            Ok(None)
        });
    }
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

/// A thread that has not begun on an ISA begins there at its entry point, with its argument, its stack there and its
/// thread control block.
#[test]
fn threads_begin_with_what_they_were_configured_with() {
    fn on<P: Platform>(layout: u64) {
        solo::<P>(|rig, m| {
            let (cap, t) = thread(rig, None, 3);
            t.layout.store(layout, Ordering::Relaxed);
            let id = match layout {
                0 => t.id.load(Ordering::Relaxed) as u32,
                n => n as u32,
            };
            t.started[P::ISA.index()].store(begun::NOT, Ordering::Relaxed);
            t.arg.store(0x1234, Ordering::Relaxed);
            assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(ENTRY));
            let found = [ARGUMENTS, SP, THREAD_POINTER]
                .map(|word| t.regs(P::ISA).0[word].load(Ordering::Relaxed));
            let (_, top) = stack_slot(P::ISA, id);
            assert_eq!(found, [0x1234, top, tcb_address(id)]);
            Ok(None)
        });
    }
    for layout in [0, 77] {
        on::<MockX86>(layout);
        on::<MockA64>(layout);
    }
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

/// What a program writes without an end of line comes out in lines that have room for it, none longer than a line.
#[test]
fn long_lines_of_programs_are_cut() {
    const LONGEST: usize = 1008;
    solo::<MockX86>(|_, m| {
        m.printed();
        // The time at the head of a line is as long as it gets.
        pass_time(10u64.pow(18));
        let text = [b'a'; 5000];
        let mut taken = 0;
        while taken < text.len() {
            let n = console::user::<MockX86>(&text[taken..]);
            assert!(n > 0, "it takes nothing");
            taken += n;
        }
        console::flush_user::<MockX86>();
        let printed = m.printed();
        assert!(printed.lines().count() >= 5);
        for line in printed.lines() {
            assert!(line.len() <= LONGEST, "{} bytes", line.len());
        }
        Ok(None)
    });
}

std::thread_local! {
    /// What other CPUs have found this one doing when it last served what had come in.
    static DOING: core::cell::Cell<u64> = const { core::cell::Cell::new(activity::OFFLINE) };
}

fn senders_ring_no_doorbell_while_an_interrupt_is_served<P: Platform>() {
    solo::<P>(|rig, m| {
        let (cap, _) = thread(rig, None, 3);
        assert_eq!(dispatch::<P>(rig, m, cap, 0), Left::User(ENTRY));
        rig.k.local.look_after_others.set(Some(|node, local| {
            DOING.set(
                node.sb
                    .cpu(node.id(), local.id())
                    .activity
                    .load(Ordering::Relaxed),
            );
        }));
        // As the CPU has gone to user mode.
        assert!(inbox::prepare::<P>(activity::USER));
        assert_eq!(interrupt::<P>(m), Left::User(ENTRY));
        assert_eq!(DOING.get() & activity::KIND, activity::ATTENTIVE);
        let cpu = rig.k.node.sb.cpu(rig.k.node.id(), rig.k.cpu());
        assert_eq!(cpu.activity.load(Ordering::Relaxed), activity::USER);
        Ok(None)
    });
}

/// A CPU that an interrupt has taken from user mode looks at its inboxes before it goes back: no sender need interrupt it
/// again meanwhile.
#[test]
fn senders_ring_no_doorbell_while_interrupts_are_served() {
    senders_ring_no_doorbell_while_an_interrupt_is_served::<MockX86>();
    senders_ring_no_doorbell_while_an_interrupt_is_served::<MockA64>();
}

/// Another CPU takes the thread between any two steps of a dispatch on a budget: the dispatch that comes too late costs
/// nothing. One that comes in time takes off the budget what the thread may run.
#[test]
fn a_dispatch_that_comes_too_late_costs_nothing() {
    const ALL: u64 = 70_000;
    let (mut late, mut more) = (0, true);
    for steps in 0.. {
        solo::<MockX86>(|rig, m| {
            let (time, object) = rig.new_cap(ObjectKind::Time)?;
            let budgets: &'static Budgets = find(m.node(), object, Budgets::KIND)?;
            budgets.left[0].store(ALL, Ordering::Relaxed);
            let (cap, t) = thread(rig, None, 3);
            let words = m.node().words;
            let take = move || {
                let ready = t.owner(words).filter(|o| o.state == State::Ready);
                if let Some(owner) = ready {
                    assert!(t.change(words, owner, owner.with(State::Stopped)));
                }
            };
            more = crash::between(steps, take, || {
                m.call::<MockX86>(me(rig), op(cap, DISPATCH), &[0, time.get().into()]);
            });
            let left = budgets.left[0].load(Ordering::Relaxed);
            if t.owner(words).map(|o| o.state) == Some(State::Stopped) {
                assert_eq!(result::<MockX86>(me(rig)).0, Error::NotReady.code());
                assert_eq!(left, ALL, "step {steps}");
                late += 1;
            } else {
                assert_eq!(left, 0, "it runs on no budget");
            }
            Ok(None)
        });
        if !more {
            break;
        }
    }
    assert!(late > 3, "only {late} steps before it has the thread");
}

/// Another CPU changes the budget between any two steps of a dispatch, so no exchange succeeds: the dispatch is refused, and
/// what is owed stays owed. The next dispatch pays it.
#[test]
fn a_debt_that_cannot_be_paid_stays_owed() {
    const ALL: u64 = 70_000_000;
    const OWED: u64 = 9_000;
    fn interfere(budgets: &'static Budgets, until: Rc<Cell<bool>>) {
        if !until.get() {
            budgets.left[0].fetch_add(1, Ordering::Relaxed);
            crash::later(0, move || interfere(budgets, until));
        }
    }
    solo::<MockX86>(|rig, m| {
        let (time, object) = rig.new_cap(ObjectKind::Time)?;
        let budgets: &'static Budgets = find(m.node(), object, Budgets::KIND)?;
        budgets.left[0].store(ALL, Ordering::Relaxed);
        budgets.debt[0].store(OWED, Ordering::Relaxed);
        let (cap, _) = thread(rig, None, 3);
        let call = || m.call::<MockX86>(me(rig), op(cap, DISPATCH), &[1_000, time.get().into()]);
        let over = Rc::new(Cell::new(false));
        let until = over.clone();
        let refused = Cell::new(None);
        crash::between(
            0,
            move || interfere(budgets, until),
            || refused.set(Some(call())),
        );
        over.set(true);
        crash::now();
        assert!(matches!(refused.get(), Some(Left::User(pc)) if pc != ENTRY));
        assert_eq!(result::<MockX86>(me(rig)).0, Error::Again.code());
        assert_eq!(budgets.debt[0].load(Ordering::Relaxed), OWED);
        let left = budgets.left[0].load(Ordering::Relaxed);
        assert!(left > ALL, "no exchange has been made");
        assert_eq!(call(), Left::User(ENTRY));
        assert_eq!(budgets.debt[0].load(Ordering::Relaxed), 0);
        assert_eq!(budgets.left[0].load(Ordering::Relaxed), left - OWED - 1_000);
        Ok(None)
    });
}

/// The first dispatch of a thread takes the slow path, later ones the fast path, which leaves budgets to the slow one.
#[test]
fn later_dispatches_are_on_budgets_as_well() {
    solo::<MockX86>(|rig, m| {
        let (time, object) = rig.new_cap(ObjectKind::Time)?;
        let budgets: &'static Budgets = find(m.node(), object, Budgets::KIND)?;
        budgets.left[0].store(70_000, Ordering::Relaxed);
        let (cap, _) = thread(rig, None, 3);
        for _ in 0..3 {
            assert_eq!(dispatch::<MockX86>(rig, m, cap, 1), Left::User(ENTRY));
            assert!(matches!(interrupt::<MockX86>(m), Left::User(_)));
        }
        m.call::<MockX86>(me(rig), op(cap, DISPATCH), &[0, time.get().into()]);
        assert_eq!(budgets.left[0].load(Ordering::Relaxed), 0);
        Ok(None)
    });
}

/// The launcher counts its requests in the control word: the endpoint that is attached to them is told of each one once.
#[test]
fn requests_of_the_launcher_are_told_once() {
    solo::<MockX86>(|rig, m| {
        let (_, object) = rig.new_cap(ObjectKind::Endpoints)?;
        let ends: &Endpoints = find(m.node(), object, Endpoints::KIND)?;
        *m.node().interrupts[ASKED as usize].lock() = Some((object, 0, 4));
        for count in 1..3 {
            m.node().sb.control.store(count << 8, Ordering::Relaxed);
            for told in [4, 0] {
                interrupt::<MockX86>(m);
                assert_eq!(ends.lines[0].take_bits(m.node()), told, "{count}");
            }
        }
        Ok(None)
    });
}
