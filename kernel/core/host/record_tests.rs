//! What is refused, rolled back or lost half-way leaves no trace: the whole record of a thread is compared with what
//! it was, as far as the state that the thread is in gives its words a meaning, and with it what the CPU has noted.
//!
//! | words | mean something |
//! |---|---|
//! | owner, id, tag, component, scheduler, priority, CPU, slice, entry and argument, exit code, event | always |
//! | depth of invocations and of crossing calls; frames below it; fault | always |
//! | migrations so far (the node that was left last: in transit) | always |
//! | state on each ISA; registers where it is HERE; parked ones where it is PARKED or CALLS | always |
//! | floating-point registers: what user mode would find | always |
//! | budget, and what it, its debt and the reservation come to | always |
//! | result | if one is to be set |
//! | endpoint and deadline | while the thread waits |
//! | saved registers | while a fault is handled |
//! | carried words | in transit |
//!
//! Of the registers only those are compared that a system call preserves. An invocation preserves no floating-point
//! registers, also if it is refused.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::format;
use std::string::String;
use std::vec::Vec;

use dyad_abi::cap::{CapIndex, ComponentOp, ObjectKind, ReceiveOp, Rights, ThreadOp};
use dyad_abi::user::away_window;
use dyad_abi::{Error, Isa};
use dyad_shm::superblock::{NodeState, NodeWord};

use super::fp_tests::swap;
use super::spin_tests::{crosses, says};
use super::thread_tests::*;
use super::{Left, Machine, MockX86, PC, crash, result};
use crate::ktest::rig::Rig;
use crate::migrate::crossing_state::CrossingState;
use crate::migrate::spin_handoff;
use crate::syscall::entry;
use dyad_machine::Platform;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_object::component::Component;
use dyad_object::endpoint::{Endpoints, Waits};
use dyad_object::find;
use dyad_object::thread::{State, Thread, begun, info};
use dyad_object::time::Budgets;

/// More steps than anything here takes.
const ENOUGH: u32 = 2_000;
/// Words of an area that a system call may change: its own, its results, those that mark the area.
const SPENT: [usize; 18] = [
    0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22,
];

/// A named part of a record.
type Part = (&'static str, Vec<u64>);

fn load(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(|w| w.load(Ordering::Relaxed)).collect()
}

/// The record of a thread that is on a machine, as far as its words mean something.
fn record(m: Machine, t: &Thread) -> Vec<Part> {
    let get = |w: &AtomicU64| w.load(Ordering::Relaxed);
    let owner = t.owner(m.node().words).expect("an owner word");
    let crossing = CrossingState::of(t);
    let depth = get(&t.depth);
    let mut all: Vec<Part> = [
        ("state", owner.state as u64),
        ("node", owner.node.index() as u64),
        ("incarnation", owner.incarnation.into()),
        ("id", get(&t.id)),
        ("tag", get(&t.tag)),
        ("component", get(&t.component)),
        ("scheduler", get(&t.scheduler)),
        ("priority", get(&t.priority)),
        ("cpu", get(&t.cpu)),
        ("slice", get(&t.slice_end)),
        ("entry", get(&t.entry)),
        ("argument", get(&t.arg)),
        ("exit code", get(&t.exit_code)),
        ("event", get(&t.event)),
        ("depth", depth),
        ("crossing", crossing.depth()),
        ("fault", get(&t.fault)),
        ("migrations", t.migrations()),
        ("budget", get(&t.budget)),
    ]
    .into_iter()
    .map(|(name, value)| (name, [value].into()))
    .collect();
    for frame in t.frames.iter().take(depth as usize) {
        let words = [&frame.component, &frame.pc, &frame.sp, &frame.info].map(get);
        all.push(("frames", words.into()));
    }
    for isa in Isa::ALL {
        let begun = t.begun(isa);
        all.push(("begun", [begun].into()));
        let area = match begun {
            begun::HERE | begun::JUMPED => &t.regs[isa.index()],
            begun::PARKED | begun::CALLS => &t.parked[isa.index()],
            _ => continue,
        };
        let mut words = load(&area.0);
        for i in SPENT {
            words[i] = 0;
        }
        all.push(("registers", words));
    }
    all.push(("floating point", [float(m, t)].into()));
    if let Ok((budgets, _)) =
        dyad_object::follow::<Budgets>(m.node(), get(&t.budget), Budgets::KIND)
    {
        let at = get(&t.budget_line) as usize;
        let sum = get(&budgets.left[at])
            .wrapping_add(get(&t.budget_reserved))
            .wrapping_sub(get(&budgets.debt[at]));
        all.push(("time", [at as u64, sum].into()));
    }
    match get(&t.result) {
        1 => all.push((
            "result",
            [get(&t.result_status), get(&t.result_value)].into(),
        )),
        other => all.push(("result", [other].into())),
    }
    if owner.state == State::Blocked {
        let words = [&t.waits_at, &t.waits_line, &t.deadline].map(get);
        all.push(("wait", words.into()));
    }
    if get(&t.fault) != 0 {
        all.push(("saved", load(&t.saved.0)));
    }
    all
}

/// What user mode would find in the first floating-point register.
fn float(m: Machine, t: &Thread) -> u64 {
    let is_used = t.used_fp.load(Ordering::Relaxed) & 1 != 0;
    let loaded = m.local().fp_of.get();
    match is_used {
        false => 0,
        true if loaded.is_some_and(|l| core::ptr::eq(l, t)) => m.fp().expect("they are off"),
        true => t.fp(Isa::X86_64).0[0].load(Ordering::Relaxed),
    }
}

/// What a CPU and its node have noted about the running thread.
fn noted(m: Machine, t: &Thread) -> Vec<Part> {
    let local = m.local();
    let is = |other: Option<&'static Thread>| other.is_some_and(|o| core::ptr::eq(o, t)) as u64;
    let uses_fp = t.used_fp.load(Ordering::Relaxed) & 1;
    [
        ("running", is(local.thread.get())),
        ("holding", is(local.holding.get())),
        // A thread with floating-point values takes the slow path.
        ("fast path", is(local.fastpath_thread.get()) ^ uses_fp),
        ("the component held", local.component.get()),
        ("the space held", local.space.get()),
        ("the slice of the CPU", local.slice_end()),
        ("threads below", local.chain.last().is_some() as u64),
        ("spins", local.spins.get().is_some() as u64),
        ("incomplete area", local.partial_frame.get() as u64),
        ("direct", local.direct.get() as u64),
        (
            "migrations of the node",
            m.node().words.read(&m.node().entry().migrations),
        ),
        ("crossings", m.node().crossings.load(Ordering::Relaxed)),
    ]
    .into_iter()
    .map(|(name, value)| (name, [value].into()))
    .collect()
}

/// What differs.
fn traces(before: &[Part], after: &[Part]) -> Vec<String> {
    let names = |parts: &[Part]| parts.iter().map(|p| p.0).collect::<Vec<_>>();
    if names(before) != names(after) {
        return [format!("{:?}, then {:?}", names(before), names(after))].into();
    }
    let both = before.iter().zip(after);
    // Time passes meanwhile, and is charged.
    let passed = |b: &Part, a: &Part| {
        let charged = |b: &[u64], a: &[u64]| b[1].wrapping_sub(a[1]);
        b.0 == "time" && b.1[0] == a.1[0] && charged(&b.1, &a.1) < 10_000_000
    };
    both.filter(|(b, a)| b != a && !passed(b, a))
        .map(|((name, b), (_, a))| format!("{name}: {b:x?}, then {a:x?}"))
        .collect()
}

/// In which state a thread makes its call. On a budget it takes the slow path.
#[derive(Clone, Copy, Debug)]
struct How {
    /// It has a value in floating-point registers, in the CPU or in its area.
    fp: Option<bool>,
    /// It runs on a budget.
    budget: bool,
    /// A CPU of the other node spins for it, and it has been there.
    awaited: bool,
}

impl How {
    fn all() -> impl Iterator<Item = How> {
        (0..6).map(|n| How {
            fp: [None, Some(true), Some(false)][n % 3],
            budget: n % 2 == 1,
            awaited: n / 3 == 1,
        })
    }
}

/// A thread that runs on the first node of a pair, and what its calls name.
struct Scene<'a> {
    rig: &'a Rig<'a>,
    m: Machine,
    peer: Machine,
    t: &'static Thread,
    cap: CapIndex,
}

/// The call of a thread, by its scene.
type Call = fn(&Scene<'_>) -> Left;

/// Runs `test` with a thread in a state.
fn with(how: How, test: impl FnOnce(&Scene<'_>)) {
    pair(|(rx, x), (_, a)| {
        let scheduler = rx.object(ObjectKind::Endpoints)?;
        let (cap, t) = thread(rx, Some(scheduler), 3);
        x.enter();
        let time = match how.budget {
            false => 0,
            true => {
                let (time, object) = rx.new_cap(ObjectKind::Time)?;
                let budgets: &'static Budgets = find(x.node(), object, Budgets::KIND)?;
                budgets.left[0].store(50_000_000, Ordering::Relaxed);
                time.get().into()
            }
        };
        let dispatch = op(cap, ThreadOp::Dispatch as u64);
        let left = x.call::<MockX86>(me(rx), dispatch, &[1_000_000, time]);
        assert_eq!(left, Left::User(ENTRY));
        t.slice_end.store(1 << 40, Ordering::Relaxed);
        x.local().set_slice_end(1 << 40);
        crosses(rx, x, a, t);
        if how.awaited {
            says(a)
                .0
                .store(spin_handoff::activity_word(t), Ordering::Relaxed);
        }
        if let Some(in_area) = how.fp {
            assert_eq!(swap::<MockX86>(x, t, 77), 0);
            if in_area {
                crate::sched::fp::put_away::<MockX86>(x.local());
            }
        }
        for (i, w) in t.regs(Isa::X86_64).0.iter().enumerate() {
            if i > 8 && !SPENT.contains(&i) {
                w.store(0x1000 + i as u64, Ordering::Relaxed);
            }
        }
        let scene = Scene {
            rig: rx,
            m: x,
            peer: a,
            t,
            cap,
        };
        test(&scene);
        Ok(None)
    });
}

impl Scene<'_> {
    /// Lets the other node die before step 0, 1 and so on of what `test` does, as long as that says that the thread
    /// is still here. How often it was.
    fn dies_before_each_step(
        &self,
        how: How,
        test: impl Fn(&Self, u32, &'static dyn Fn()) -> bool,
    ) -> u32 {
        let state = &self.peer.node().entry().state;
        let live = state.load(Ordering::Relaxed);
        for steps in 0..ENOUGH {
            if how.awaited {
                let spins = spin_handoff::activity_word(self.t);
                says(self.peer).0.store(spins, Ordering::Relaxed);
            }
            let dies = move || state.store(dead(), Ordering::Relaxed);
            let is_here = test(self, steps, Box::leak(Box::new(dies)));
            state.store(live, Ordering::Relaxed);
            // What has not come to that step dies nowhere.
            crash::now();
            state.store(live, Ordering::Relaxed);
            if !is_here {
                return steps;
            }
        }
        panic!("it does not end");
    }

    /// Makes the call; compares if the thread goes on here with an error. `true`: it did.
    fn leaves_no_trace(&self, what: &str, call: impl FnOnce() -> Left) -> bool {
        let pc = |t: &Thread| t.regs(Isa::X86_64).0[PC].load(Ordering::Relaxed);
        let before = (record(self.m, self.t), noted(self.m, self.t), pc(self.t));
        let left = call();
        let owner = self.t.owner(self.m.node().words).expect("an owner word");
        let status = result::<MockX86>(self.t).0;
        if owner.state != State::Running || left != Left::User(before.2 + 4) || status == 0 {
            return false;
        }
        // Behind the call.
        self.t.regs(Isa::X86_64).0[PC].store(before.2, Ordering::Relaxed);
        let mut found = traces(&before.0, &record(self.m, self.t));
        found.extend(traces(&before.1, &noted(self.m, self.t)));
        assert!(found.is_empty(), "{what}, error {status}: {found:#?}");
        true
    }
}

fn dead() -> u64 {
    let dead = NodeWord {
        state: NodeState::Dead,
        incarnation: 1,
    };
    dead.bits()
}

/// The other node dies before each step of a call, one after the other until the thread has left. Wherever that
/// leads to an error, nothing else is left. `set_up` makes what the call names.
fn rolled_back(name: &str, set_up: fn(&Scene<'_>) -> u64, call: fn(&Scene<'_>, u64) -> Left) {
    for how in How::all() {
        with(how, |s| {
            let named = set_up(s);
            let steps = s.dies_before_each_step(how, |s, steps, dies| {
                let what = format!("{name}, {how:?}, node 1 dies before step {steps}");
                s.leaves_no_trace(&what, || {
                    let mut left = Left::Asleep;
                    crash::between(steps, dies, || left = call(s, named));
                    left
                })
            });
            assert!(steps > 0, "{name}, {how:?}: never refused");
        });
    }
}

fn migrate(s: &Scene<'_>, _: u64) -> Left {
    s.m.call::<MockX86>(s.t, op(s.cap, ThreadOp::Migrate as u64), &[1])
}

fn jump(s: &Scene<'_>, _: u64) -> Left {
    let a = [1, 0x4100_5000, 0x4300_0000, 0, 9];
    s.m.call::<MockX86>(s.t, op(s.cap, ThreadOp::Jump as u64), &a)
}

#[test]
fn migrations_that_are_rolled_back_leave_no_trace() {
    rolled_back("migrate", |_| 0, migrate);
}

#[test]
fn jumps_that_are_rolled_back_leave_no_trace() {
    rolled_back("jump", |_| 0, jump);
}

#[test]
fn invocations_that_are_rolled_back_leave_no_trace() {
    fn service(s: &Scene<'_>) -> u64 {
        crate::sched::fp::forget::<MockX86>(s.m.local());
        let (service, _, _) = s.rig.other_component().unwrap();
        let c: &Component = find(s.m.node(), service, Component::KIND).unwrap();
        c.home.store(0b10, Ordering::Relaxed);
        op(s.rig.sinv(service, SERVICE, 0).unwrap(), 0)
    }
    rolled_back("invoke", service, |s, sinv| {
        s.m.call::<MockX86>(s.t, sinv, &[1, 2, 3, 4])
    });
}

/// Receives at an endpoint where another thread waits already.
fn receive_where_another_waits(s: &Scene<'_>, until: u64) -> Left {
    let (ends, object) = s.rig.new_cap(ObjectKind::Endpoints).unwrap();
    let e: &'static Endpoints = find(s.m.node(), object, Endpoints::KIND).unwrap();
    let other = me(s.rig);
    let waits = e.lines[30].wait(s.m.node(), other, 1);
    assert!(matches!(waits, Ok(Waits::Yes { .. })));
    s.m.call::<MockX86>(s.t, op(ends, ReceiveOp::Receive as u64), &[30, until])
}

/// Calls that are refused before anything is handed over, whatever the thread has.
#[test]
fn calls_that_are_refused_leave_no_trace() {
    fn call(s: &Scene<'_>, what: ThreadOp, a: &[u64]) -> Left {
        s.m.call::<MockX86>(s.t, op(s.cap, what as u64), a)
    }
    let cases: [(&str, Call, Error); 8] = [
        (
            "no such node",
            |s| call(s, ThreadOp::Migrate, &[5]),
            Error::Denied,
        ),
        (
            "no scheduler",
            |s| {
                s.t.scheduler.store(0, Ordering::Relaxed);
                call(s, ThreadOp::Migrate, &[1])
            },
            Error::NotReady,
        ),
        (
            "a node where its component may not run",
            |s| {
                let c = find::<Component>(s.m.node(), s.rig.component, Component::KIND);
                c.unwrap().home.store(0b01, Ordering::Relaxed);
                call(s, ThreadOp::Migrate, &[1])
            },
            Error::Denied,
        ),
        (
            "a jump to where its component may not run",
            |s| {
                let c = find::<Component>(s.m.node(), s.rig.component, Component::KIND);
                c.unwrap().home.store(0b01, Ordering::Relaxed);
                let c = find::<Component>(s.m.node(), s.rig.component, Component::KIND);
                s.m.node().words.increase(&c.unwrap().generation, 1);
                call(s, ThreadOp::Jump, &[1, 0x4100_0000, 0, 0, 0])
            },
            Error::Denied,
        ),
        (
            "a jump to no address",
            |s| call(s, ThreadOp::Jump, &[1, 0, 0, 0, 0]),
            Error::BadAddress,
        ),
        (
            "a jump to a stack of the kernel",
            |s| call(s, ThreadOp::Jump, &[1, 0x4100_0000, 1 << 63, 0, 0]),
            Error::BadAddress,
        ),
        (
            "an endpoint where another thread waits",
            |s| receive_where_another_waits(s, 0),
            Error::Exists,
        ),
        (
            "the same, with a deadline",
            |s| receive_where_another_waits(s, 1 << 30),
            Error::Exists,
        ),
    ];
    for (n, (name, call, error)) in cases.into_iter().enumerate() {
        // Each case with two of the states in which a thread can be.
        for how in How::all().skip(n % 3).step_by(3) {
            with(how, |s| {
                let what = format!("{name}, {how:?}");
                // Before the record is taken: what the case sets up, that is its first attempt.
                call(s);
                s.t.regs(Isa::X86_64).0[PC].store(ENTRY, Ordering::Relaxed);
                let refused = s.leaves_no_trace(&what, || call(s));
                assert!(refused, "{what}: {:?}", result::<MockX86>(s.t));
                assert_eq!(result::<MockX86>(s.t).0, error.code(), "{what}");
            });
        }
    }
}

/// A crossing call whose node dies fails at its gate: nothing of the call is left but that it has failed there.
#[test]
fn crossing_calls_that_are_rolled_back_leave_no_trace() {
    for how in How::all() {
        with(how, |s| {
            let steps = s.dies_before_each_step(how, |s, steps, dies| {
                let area = s.t.regs(Isa::X86_64);
                let function = away_window(Isa::Aarch64).0 + 0x1000;
                MockX86::set_user_pc_sp(area, function, 0x4300_0000);
                let before = (record(s.m, s.t), noted(s.m, s.t));
                let fault = UserFault {
                    kind: FaultKind::Execute,
                    address: function,
                    raw: 0,
                };
                crash::between(steps, dies, || {
                    s.m.kernel(|| entry::foreign_fault::<MockX86>(area, fault));
                });
                let owner = s.t.owner(s.m.node().words).unwrap();
                if owner.state != State::Running {
                    return false;
                }
                let mut found = traces(&before.0, &record(s.m, s.t));
                found.extend(traces(&before.1, &noted(s.m, s.t)));
                // Where it goes on, with what functions preserve.
                let fails = |f: &str| f.starts_with("registers") || f.starts_with("floating");
                found.retain(|f| !fails(f));
                assert!(found.is_empty(), "{how:?}, before step {steps}: {found:#?}");
                true
            });
            assert!(steps > 0, "{how:?}: never refused");
        });
    }
}

/// A thread without a scheduler cannot take the slow path. If its fast path is rolled back, the fault is an ordinary one, and
/// no call is under way when the handler runs.
#[test]
fn a_crossing_call_that_neither_path_makes_is_not_under_way() {
    for how in How::all().filter(|how| !how.budget) {
        with(how, |s| {
            let (handler, _, _) = s.rig.other_component().unwrap();
            let sinv = s.rig.sinv(handler, SERVICE, 7).unwrap();
            let component = s
                .rig
                .cap(ObjectKind::Component, s.rig.component, Rights::ALL);
            let set = ComponentOp::SetFaultHandler as u32;
            let done = s.rig.sys(component.unwrap(), set, &[sinv.get().into()]);
            assert_eq!(done, Ok(0));
            crosses(s.rig, s.m, s.peer, s.t);
            s.t.scheduler.store(0, Ordering::Relaxed);
            let steps = s.dies_before_each_step(how, |s, steps, dies| {
                let area = s.t.regs(Isa::X86_64);
                let function = away_window(Isa::Aarch64).0 + 0x1000;
                MockX86::set_user_pc_sp(area, function, 0x4300_0000);
                let fault = UserFault {
                    kind: FaultKind::Execute,
                    address: function,
                    raw: 0,
                };
                let mut left = Left::Asleep;
                crash::between(steps, dies, || {
                    left = s.m.kernel(|| entry::foreign_fault::<MockX86>(area, fault));
                });
                let owner = s.t.owner(s.m.node().words).unwrap();
                if owner.state != State::Running {
                    return false;
                }
                let what = format!("{how:?}, node 1 dies before step {steps}");
                assert_eq!(left, Left::User(SERVICE), "{what}");
                assert_eq!(CrossingState::of(s.t).depth(), 0, "{what}");
                let left = s.m.call::<MockX86>(s.t, 0, &[0]);
                assert_eq!(left, Left::User(function), "{what}: it tries again");
                true
            });
            assert!(steps > 0, "{how:?}: never refused");
        });
    }
}

/// The end of an invocation that has crossed is refused: the thread is in the service still, which may try again.
#[test]
fn a_return_that_is_refused_leaves_the_thread_in_the_service() {
    with(How::all().next().unwrap(), |s| {
        let crossed = info::CROSSED | (s.peer.node().id().index() as u64) << 8;
        let caller = s.rig.component.bits();
        s.t.push(caller, (ENTRY, 0), crossed).unwrap();
        s.t.scheduler.store(0, Ordering::Relaxed);
        for attempt in 0..2 {
            let refused =
                s.leaves_no_trace("return", || s.m.call::<MockX86>(s.t, 0, &[1, 2, 3, 4]));
            assert!(refused, "attempt {attempt}: {:?}", result::<MockX86>(s.t));
            assert_eq!(result::<MockX86>(s.t).0, Error::NotReady.code());
            assert_eq!(s.t.depth.load(Ordering::Relaxed), 1, "attempt {attempt}");
        }
    });
}
