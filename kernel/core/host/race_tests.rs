//! Two CPUs at the same object: one does something as a whole between any two steps of the other
//! one.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use dyad_abi::cap::{
    CapIndex, CapType, MemoryOp, ObjectKind, ReceiveOp, RegionKind, Rights, SendOp, ThreadOp,
    Woken, call_word,
};
use dyad_abi::service::scheduler_line;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_pgtbl::{Level, Pte};
use dyad_retype::{FrameType, Order, Refused, Use};
use dyad_shm::FrameRef;
use dyad_shm::frame::WeakRef;
use dyad_tier::size;

use super::ktests::{joined, passes};
use super::{MockX86, World, crash};
use crate::ktest::rig::{self, Rig};
use crate::ktest::{run_here, spaces};
use crate::sched::dispatch::{self, OpOutcome};
use crate::syscall::ops;
use crate::syscall::ops::memory::to_untyped;
use dyad_audit::{Fault, walk};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::FaultKind;
use dyad_object::component::Component;
use dyad_object::endpoint::{Endpoints, Line};
use dyad_object::space::{Region, Space};
use dyad_object::thread::{State, Thread};
use dyad_object::{self, find, ids};
use dyad_space::mapping::table_kind;
use dyad_space::resolve::resolve;

/// More steps than any of these operations makes, in parts of eight.
const ENOUGH: u32 = 4000;
/// The endpoint where threads wait.
pub(super) const AT: u64 = 20;

/// Runs a test in which another CPU interferes before step 0, 1, 2 ... until the test says that it was over before.
/// Steps are changes of shared words, and looks at them.
fn everywhere(test: impl Fn(&Rig<'_>, u32) -> bool) {
    let steps = at_each_step(test);
    assert!(steps > 1, "it makes hardly any steps");
}

/// As [`everywhere`]; returns how many steps there were.
pub(super) fn at_each_step(test: impl Fn(&Rig<'_>, u32) -> bool) -> u32 {
    at_each_step_of(&[Isa::X86_64], test)
}

/// As [`at_each_step`], in a system of several nodes, of which the first one takes part.
pub(super) fn at_each_step_of(nodes: &[Isa], test: impl Fn(&Rig<'_>, u32) -> bool) -> u32 {
    for steps in 0..ENOUGH {
        let more = Cell::new(true);
        let w = World::new(nodes, 2048);
        let m = joined::<MockX86>(&w, 0);
        passes::<MockX86>(run_here::<MockX86>(m.node(), |cx| {
            rig::with(cx, |rig| {
                more.set(test(rig, steps));
                Ok(None)
            })
        }));
        if !more.get() {
            return steps;
        }
    }
    panic!("it does not end");
}

pub(super) fn call(k: &KernelCtx, cap: CapIndex, op: u32, a: &[u64]) -> Result<OpOutcome> {
    let a = core::array::from_fn(|i| a.get(i).copied().unwrap_or(0));
    ops::call::<MockX86>(k, call_word(cap, op), a)
}

/// A scheduler's endpoints, and those where threads wait.
pub(super) struct Ends {
    pub scheduler: WeakRef,
    pub object: WeakRef,
    receive: CapIndex,
    pub send: CapIndex,
}

impl Ends {
    pub fn new(rig: &Rig<'_>) -> Ends {
        let scheduler = rig.object(ObjectKind::Endpoints).unwrap();
        let (receive, object) = rig.new_cap(ObjectKind::Endpoints).unwrap();
        let payload = [AT, 4, 0];
        let send = rig.put(CapType::Send, Rights::ALL, Some(object), payload);
        Ends {
            scheduler,
            object,
            receive,
            send: send.unwrap(),
        }
    }

    pub fn line(&self, rig: &Rig<'_>) -> &'static Line {
        let e: &'static Endpoints = find(rig.cx.node, self.object, Endpoints::KIND).unwrap();
        e.line(AT).unwrap()
    }

    /// Where the scheduler hears of threads.
    fn events(&self, rig: &Rig<'_>) -> &'static Line {
        let e: &'static Endpoints = find(rig.cx.node, self.scheduler, Endpoints::KIND).unwrap();
        let mine = scheduler_line(rig.cx.node.id(), rig.k.cpu());
        e.line(mine).unwrap()
    }

    pub fn thread(&self, rig: &Rig<'_>, state: State) -> (CapIndex, WeakRef, &'static Thread) {
        let object = rig.thread_of(rig.component, state).unwrap();
        let t = rig.as_thread(object).unwrap();
        t.scheduler.store(self.scheduler.bits(), Ordering::Relaxed);
        let cap = rig.cap(ObjectKind::Thread, object, Rights::ALL).unwrap();
        (cap, object, t)
    }

    fn receive(&self, k: &KernelCtx) -> Result<OpOutcome> {
        call(k, self.receive, ReceiveOp::Receive as u32, &[AT, 1 << 62])
    }

    pub fn wait(&self, k: &KernelCtx) {
        assert_eq!(self.receive(k), Ok(OpOutcome::Switched));
    }

    /// As [`wait`](Ends::wait), but bit 0 may have come before the thread begins to wait.
    fn wait_unless_told(&self, k: &KernelCtx) {
        let told = self.receive(k);
        assert!(matches!(
            told,
            Ok(OpOutcome::Switched | OpOutcome::Value(1))
        ));
    }

    /// A thread that waits.
    pub fn waiting(&self, rig: &Rig<'_>) -> (CapIndex, WeakRef, &'static Thread) {
        let (cap, object, t) = self.thread(rig, State::Ready);
        call(&rig.k, cap, ThreadOp::Dispatch as u32, &[0, 0]).unwrap();
        self.wait(&rig.k);
        (cap, object, t)
    }
}

fn owner(rig: &Rig<'_>, t: &Thread) -> State {
    t.owner(rig.k.words()).unwrap().state
}

#[test]
fn threads_stopped_while_they_begin_to_wait_are_at_no_endpoint() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (cap, object, t) = ends.thread(rig, State::Ready);
        call(&rig.k, cap, ThreadOp::Dispatch as u32, &[0, 0]).unwrap();
        let k = rig.k;
        let stop = move || {
            let stop = [0; 5];
            let _ = ops::thread::dispatch::<MockX86>(&k, t, ThreadOp::Stop as u64, stop);
        };
        let came = crash::between(steps, stop, || ends.wait(&rig.k));
        if owner(rig, t) == State::Stopped {
            assert_eq!(ends.line(rig).waiter.load(Ordering::Relaxed), 0);
            assert!(to_untyped(&rig.k, object.frame).is_ok());
            // No thread is found there, whatever the frame is now.
            assert!(rig.k.local.thread.get().is_some());
        } else {
            assert_eq!(owner(rig, t), State::Blocked);
        }
        came
    });
}

#[test]
fn threads_stopped_and_resumed_while_they_begin_to_wait_can_wait_again() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (cap, _, t) = ends.thread(rig, State::Ready);
        call(&rig.k, cap, ThreadOp::Dispatch as u32, &[0, 0]).unwrap();
        let k = rig.k;
        let both = move || {
            for op in [ThreadOp::Stop, ThreadOp::Resume] {
                let _ = ops::thread::dispatch::<MockX86>(&k, t, op as u64, [0; 5]);
            }
        };
        let came = crash::between(steps, both, || ends.wait(&rig.k));
        if owner(rig, t) == State::Ready {
            assert_eq!(ends.line(rig).waiter.load(Ordering::Relaxed), 0);
        } else {
            assert_eq!(owner(rig, t), State::Blocked);
            assert_ne!(ends.line(rig).waiter.load(Ordering::Relaxed), 0);
        }
        came
    });
}

/// A thread that is stopped and resumed while it goes to sleep, at any moment, is not found waiting: another
/// thread may wait there at any later moment, and is not told that the endpoint is taken.
#[test]
fn endpoints_are_free_once_who_was_to_wait_there_is_resumed() {
    for pause in 0..8 {
        at_each_step(|rig, steps| {
            let ends = Ends::new(rig);
            let (cap, _, t) = ends.thread(rig, State::Ready);
            let (_, _, other) = ends.thread(rig, State::Running);
            call(&rig.k, cap, ThreadOp::Dispatch as u32, &[0, 0]).unwrap();
            let (k, line) = (rig.k, ends.line(rig));
            let refused = Rc::new(Cell::new(false));
            let is_refused = refused.clone();
            let wait = move || {
                let waits = |t: &Thread| t.owner(k.words()).unwrap().state != State::Ready;
                let number = other.owner(k.words()).unwrap().asleep().seq;
                if !waits(t) {
                    is_refused.set(line.wait(k.node, other, number).is_err());
                }
            };
            let both = move || {
                for op in [ThreadOp::Stop, ThreadOp::Resume] {
                    let _ = ops::thread::dispatch::<MockX86>(&k, t, op as u64, [0; 5]);
                }
                crash::later(pause, wait);
            };
            let came = crash::between(steps, both, || ends.wait(&rig.k));
            crash::now();
            assert!(!refused.get(), "it is taken by a thread that does not wait");
            came
        });
    }
}

/// A message comes while a thread goes to sleep, at whatever moment: the thread does not sleep.
#[test]
fn messages_that_come_while_a_thread_goes_to_sleep_wake_it() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (cap, _, t) = ends.thread(rig, State::Ready);
        call(&rig.k, cap, ThreadOp::Dispatch as u32, &[0, 0]).unwrap();
        let (k, object) = (rig.k, ends.object);
        let post = move || {
            let _ = dispatch::post::<MockX86>(&k, object, AT, 1);
        };
        let came = crash::between(steps, post, || ends.wait_unless_told(&rig.k));
        assert_eq!(owner(rig, t) == State::Blocked, !came);
        let waits = ends.line(rig).waiter.load(Ordering::Relaxed) != 0;
        assert_eq!(waits, !came, "who sleeps is the waiter");
        came
    });
}

/// A sender finds a thread at an endpoint and comes to wake it late: the thread has gone on and waits
/// somewhere else by then. It goes on waiting there, and is the waiter there.
#[test]
fn a_thread_found_waiting_is_woken_from_that_wait_only() {
    at_each_step(|rig, steps| {
        let ends = Ends::new(rig);
        let (cap, _, t) = ends.thread(rig, State::Ready);
        call(&rig.k, cap, ThreadOp::Dispatch as u32, &[0, 0]).unwrap();
        let (k, line) = (rig.k, ends.line(rig));
        let found = Rc::new(Cell::new(None));
        let finds = found.clone();
        let find = move || {
            line.set(k.node, 1);
            finds.set(line.take_waiter(k.node));
        };
        let came = crash::between(steps, find, || ends.wait_unless_told(&rig.k));
        crash::now();
        let asleep = owner(rig, t) == State::Blocked;
        let waits = line.waiter.load(Ordering::Relaxed) != 0;
        match found.take() {
            // It sleeps, and is woken: this has found it asleep.
            Some(waiter) if asleep => {
                let woken = dispatch::wake::<MockX86>(&k, waiter, Woken::Ready);
                assert_eq!(woken, Ok(()), "no other CPU wakes it");
            }
            Some(waiter) => {
                assert_eq!(owner(rig, t), State::Running, "it has seen that it is off");
                line.take_bits(k.node);
                ends.wait(&rig.k);
                let late = dispatch::wake::<MockX86>(&k, waiter, Woken::Ready);
                assert_eq!(late, Err(Error::NotReady), "that wait is over");
                assert_eq!(owner(rig, t), State::Blocked);
                assert_ne!(line.waiter.load(Ordering::Relaxed), 0);
            }
            None => assert_eq!(asleep, waits, "who sleeps is the waiter"),
        }
        came
    });
}

#[test]
fn threads_given_up_while_they_are_woken_are_on_no_list() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (_, object, t) = ends.waiting(rig);
        let k = rig.k;
        let gone = Rc::new(Cell::new(false));
        let result = gone.clone();
        let act = move || {
            let _ = ops::thread::dispatch::<MockX86>(&k, t, ThreadOp::Stop as u64, [0; 5]);
            result.set(to_untyped(&k, object.frame).is_ok());
        };
        let came = crash::between(steps, act, || {
            let _ = call(&rig.k, ends.send, SendOp::Send as u32, &[]);
        });
        if gone.get() {
            let line = ends.events(rig);
            assert!(line.take_thread(rig.cx.node).is_none(), "it is on a list");
            assert_eq!(ends.line(rig).waiter.load(Ordering::Relaxed), 0);
        }
        came
    });
}

#[test]
fn threads_that_are_given_up_do_not_run_again() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (cap, object, t) = ends.thread(rig, State::None);
        let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL);
        let c = c.unwrap().get() as u64;
        let k = rig.k;
        let ids = u64::from(rig.thread_ids().unwrap().get()) << 32;
        let act = move || {
            let args = [c, 0x4100_0000, 0, 9, ids];
            let _ = call(&k, cap, ThreadOp::Configure as u32, &args);
            let _ = call(&k, cap, ThreadOp::Resume as u32, &[]);
        };
        let done = Cell::new(false);
        let came = crash::between(steps, act, || {
            done.set(to_untyped(&rig.k, object.frame).is_ok());
        });
        assert!(
            !done.get() || owner(rig, t) != State::Ready,
            "given up and ready"
        );
        came
    });
}

/// A stopped thread as `Configure` is told of it.
#[derive(Clone, Copy)]
struct Stopped {
    cap: CapIndex,
    component: u64,
    ids: u64,
}

/// Configures a thread to begin at `entry` with this argument.
fn configure(k: &KernelCtx, to: Stopped, entry: u64, arg: u64) -> Result<OpOutcome> {
    let configure = ThreadOp::Configure as u32;
    let args = [to.component, entry, arg, 9, to.ids << 32];
    call(k, to.cap, configure, &args)
}

/// A thread that has waited and has been stopped.
fn stopped(rig: &Rig<'_>, ends: &Ends) -> (Stopped, &'static Thread) {
    let (cap, _, t) = ends.waiting(rig);
    call(&rig.k, cap, ThreadOp::Stop as u32, &[]).unwrap();
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL);
    let component = c.unwrap().get().into();
    let ids = rig.thread_ids().unwrap().get().into();
    let to = Stopped {
        cap,
        component,
        ids,
    };
    (to, t)
}

#[test]
fn threads_that_two_configure_are_what_one_of_them_has_said() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (to, t) = stopped(rig, &ends);
        let k = rig.k;
        let other = Rc::new(Cell::new(None));
        let result = other.clone();
        let act = move || result.set(Some(configure(&k, to, 0x4200_0000, 2)));
        let mine = Cell::new(Err(Error::Corrupt));
        let came = crash::between(steps, act, || {
            mine.set(configure(&rig.k, to, 0x4100_0000, 1));
        });
        let other = other.take();
        let is = |entry| t.entry.load(Ordering::Relaxed) == entry;
        assert_eq!(t.arg.load(Ordering::Relaxed), 1 + is(0x4200_0000) as u64);
        // Who is refused has changed nothing; who comes last has changed all.
        match (mine.get(), other) {
            (Ok(_), Some(Ok(_))) => assert!(is(0x4100_0000) || is(0x4200_0000)),
            (Ok(_), _) => assert!(is(0x4100_0000), "{other:?}"),
            (Err(_), Some(Ok(_))) => assert!(is(0x4200_0000)),
            (Err(mine), other) => panic!("neither may: {mine:?} {other:?}"),
        }
        assert_eq!(owner(rig, t), State::Stopped);
        came
    });
}

#[test]
fn threads_that_two_resume_are_where_one_of_them_has_said() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (to, t) = stopped(rig, &ends);
        // The other one resumes it where it was, on a CPU that is not this one.
        t.cpu.store(5, Ordering::Relaxed);
        let k = rig.k;
        let resume = move |k: &KernelCtx, place| call(k, to.cap, ThreadOp::Resume as u32, &[place]);
        let other = Rc::new(Cell::new(None));
        let result = other.clone();
        let act = move || result.set(Some(resume(&k, 0)));
        let mine = Cell::new(Err(Error::Corrupt));
        let here = 1 << 63 | rig.cx.node.id().index() as u64;
        let came = crash::between(steps, act, || mine.set(resume(&rig.k, here)));
        let cpu = t.cpu.load(Ordering::Relaxed);
        match (mine.get(), other.take()) {
            (Ok(_), None | Some(Err(_))) => assert_eq!(cpu, 0),
            (Err(_), Some(Ok(_))) => assert_eq!(cpu, 5),
            both => panic!("{both:?}"),
        }
        assert_eq!(owner(rig, t), State::Ready);
        came
    });
}

/// A dispatch that wins against `StartCpu` has a thread whose scheduler still hears of it.
#[test]
fn threads_are_dispatched_with_their_scheduler_or_become_root() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (cap, object, t) = ends.thread(rig, State::Ready);
        let k = rig.k;
        let dispatched = Rc::new(Cell::new(false));
        let result = dispatched.clone();
        let act = move || {
            let done = call(&k, cap, ThreadOp::Dispatch as u32, &[0, 0]);
            result.set(done == Ok(OpOutcome::Switched));
        };
        let rooted = Cell::new(false);
        let came = crash::between(steps, act, || {
            let done = dispatch::set_root::<MockX86>(&rig.k, rig.k.cpu(), t);
            rooted.set(done.is_ok());
        });
        let scheduler = t.scheduler.load(Ordering::Relaxed);
        if rooted.get() {
            assert_eq!(scheduler, 0);
        } else {
            assert!(dispatched.get(), "neither has it");
            assert_eq!(scheduler, ends.scheduler.bits());
            assert!(rig.runs(object));
        }
        came
    });
}

/// Two threads that are configured with one id at the same time: one of them gets it.
#[test]
fn an_id_that_two_claim_goes_to_one() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let ((a, ta), (b, tb)) = (stopped(rig, &ends), stopped(rig, &ends));
        let k = rig.k;
        let other = Rc::new(Cell::new(None));
        let result = other.clone();
        let act = move || result.set(Some(configure(&k, a, 0x4200_0000, 2).is_ok()));
        let mine = Cell::new(false);
        let came = crash::between(steps, act, || {
            mine.set(configure(&rig.k, b, 0x4100_0000, 1).is_ok());
        });
        let other = other.take() == Some(true);
        assert!(mine.get() != other || !came, "both or none");
        let has = ids::thread_with(rig.cx.node, 9);
        let owner = if other { ta } else { tb };
        assert_eq!(has, dyad_object::reference(rig.cx.node, owner));
        came
    });
}

/// Endpoints and three threads that have become ready.
fn three(rig: &Rig<'_>) -> (Ends, [&'static Thread; 3]) {
    let ends = Ends::new(rig);
    let threads = core::array::from_fn(|tag| {
        let (_, _, t) = ends.waiting(rig);
        t.tag.store(tag as u64, Ordering::Relaxed);
        call(&rig.k, ends.send, SendOp::Send as u32, &[]).unwrap();
        ends.line(rig).take(rig.cx.node);
        t
    });
    (ends, threads)
}

#[test]
fn events_are_told_once_to_two_who_take_them_at_the_same_time() {
    everywhere(|rig, steps| {
        let (ends, threads) = three(rig);
        let line = ends.events(rig);
        let told = Rc::new(Cell::new(0u64));
        let node = rig.cx.node;
        let take = move |told: &Cell<u64>| {
            if let Some((t, _)) = line.take_thread(node) {
                let bit = 1 << t.tag.load(Ordering::Relaxed);
                assert_eq!(told.get() & bit, 0, "told twice");
                told.set(told.get() | bit);
            }
        };
        let other = told.clone();
        let act = move || (0..2).for_each(|_| take(&other));
        let came = crash::between(steps, act, || (0..2).for_each(|_| take(&told)));
        (0..3).for_each(|_| take(&told));
        assert_eq!(told.get(), 0b111);
        for t in threads {
            assert_eq!(t.event.load(Ordering::Relaxed), 0);
        }
        came
    });
}

#[test]
fn endpoints_given_up_while_events_are_taken_keep_no_thread() {
    everywhere(|rig, steps| {
        let (ends, threads) = three(rig);
        let line = ends.events(rig);
        let k = rig.k;
        let gone = Rc::new(Cell::new(false));
        let (result, frame) = (gone.clone(), ends.scheduler.frame);
        let act = move || result.set(to_untyped(&k, frame).is_ok());
        let came = crash::between(
            steps,
            act,
            || {
                while line.take_thread(rig.cx.node).is_some() {}
            },
        );
        for t in threads {
            assert_eq!(t.event.load(Ordering::Relaxed), 0);
        }
        let _ = gone;
        came
    });
}

#[test]
fn endpoints_given_up_while_a_thread_is_woken_keep_no_thread() {
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (_, _, t) = ends.waiting(rig);
        let k = rig.k;
        let gone = Rc::new(Cell::new(false));
        let (result, frame) = (gone.clone(), ends.scheduler.frame);
        let act = move || result.set(to_untyped(&k, frame).is_ok());
        let came = crash::between(steps, act, || {
            let _ = call(&rig.k, ends.send, SendOp::Send as u32, &[]);
        });
        if gone.get() {
            assert_eq!(t.event.load(Ordering::Relaxed), 0);
        }
        came
    });
    // The other way round: it is woken while they are given up.
    everywhere(|rig, steps| {
        let ends = Ends::new(rig);
        let (_, _, t) = ends.waiting(rig);
        let (k, send) = (rig.k, ends.send);
        let act = move || {
            let _ = call(&k, send, SendOp::Send as u32, &[]);
        };
        let gone = Cell::new(false);
        let came = crash::between(steps, act, || {
            gone.set(to_untyped(&rig.k, ends.scheduler.frame).is_ok());
        });
        if gone.get() {
            assert_eq!(t.event.load(Ordering::Relaxed), 0);
        }
        came
    });
}

#[test]
fn regions_that_are_added_at_the_same_time_do_not_overlap() {
    everywhere(|rig, steps| {
        let kind = RegionKind::Anonymous as u64;
        let a = Region::new(0x5000_0000, 0x4000, kind).unwrap();
        let b = Region::new(0x5000_2000, 0x4000, kind).unwrap();
        let space: &'static Space = find(rig.cx.node, rig.space, Space::KIND).unwrap();
        let (words, me) = (rig.k.words(), rig.cx.node.id());
        let other = Rc::new(Cell::new(false));
        let result = other.clone();
        let act = move || result.set(space.add_region(words, me, b).is_ok());
        let mine = Cell::new(false);
        let came = crash::between(steps, act, || {
            mine.set(space.add_region(words, me, a).is_ok());
        });
        assert!(!(mine.get() && other.get()), "both");
        let now: std::vec::Vec<Region> = space.regions(words).collect();
        assert_eq!(now.len(), mine.get() as usize + other.get() as usize);
        came
    });
}

/// The start word of a region that is just being added is no start address to take it away by: its slot
/// stays in use, and no other region gets it.
#[test]
fn a_region_that_is_being_added_is_not_taken_away() {
    const START: u64 = 0x5000_0000;
    everywhere(|rig, steps| {
        let kind = RegionKind::Anonymous as u64;
        let a = Region::new(START, 0x4000, kind).unwrap();
        let b = Region::new(0x6000_0000, 0x4000, kind).unwrap();
        let space: &'static Space = find(rig.cx.node, rig.space, Space::KIND).unwrap();
        let (words, me) = (rig.k.words(), rig.cx.node.id());
        let act = move || {
            for bits in 1..32 {
                let taken = space.remove_region(words, me, START | bits);
                assert_eq!(taken, Err(Error::NotFound), "before step {steps}");
            }
            space.add_region(words, me, b).unwrap();
        };
        let came = crash::between(steps, act, || space.add_region(words, me, a).unwrap());
        let now: std::vec::Vec<Region> = space.regions(words).collect();
        assert!(now.contains(&a) && (now.contains(&b) || !came), "{now:?}");
        came
    });
}

/// What the walker finds.
pub(super) fn faults(k: &KernelCtx) -> std::vec::Vec<Fault> {
    let mut faults = std::vec::Vec::new();
    walk(k, &mut |f| faults.push(f));
    faults
}

#[test]
fn a_component_configured_while_it_is_given_up_keeps_or_loses_its_parts() {
    everywhere(|rig, steps| {
        let (object, root, _) = rig.other_component().unwrap();
        let component: &'static Component = find(rig.cx.node, object, Component::KIND).unwrap();
        let (k, space) = (rig.k, rig.space);
        let act = move || {
            let _ = ops::component::set_parts(&k, component, root, space);
        };
        let came = crash::between(steps, act, || {
            let _ = to_untyped(&rig.k, object.frame);
        });
        assert_eq!(faults(&rig.k), [], "before step {steps}");
        came
    });
}

/// A table that is taken out while a fault pins it goes back to the supply, whichever of the two lets go of it
/// last. `Unlink` looks at the pins twice, so it is done in two parts: both between steps of the
/// fault.
#[test]
fn a_fault_while_its_table_is_taken_out_forgets_nothing() {
    const VA: u64 = 0x5000_0000;
    let parts: u32 = size(3, 8, 8);
    let last = Cell::new(0);
    everywhere(|rig, steps| {
        let space = spaces::create(rig).unwrap();
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        spaces::region(&rig.k, space, VA, 1 << 21, kind).unwrap();
        let fault = |page: u64| {
            let va = VA + page * PAGE_SIZE;
            resolve::<MockX86>(&rig.k, space, va, FaultKind::Write)
        };
        fault(0).unwrap();
        let k = rig.k;
        let act = move || {
            let this = spaces::within(&k, space).unwrap();
            let d = this.driver(Isa::X86_64).unwrap();
            let (page, leaf) = spaces::look(&k, space, Isa::X86_64, VA).unwrap();
            this.unmap(&d, &page, &leaf).unwrap();
            let place = d.find(VA, Level::L2).unwrap();
            let Pte::Table(table) = d.meaning(&place) else {
                unreachable!()
            };
            let weak = k.frames().current(FrameRef::of(table).unwrap()).unwrap();
            if this.unlink(&d, &place, table).is_err() {
                return;
            }
            let kind = table_kind(Isa::X86_64, Level::L1);
            crash::later(steps % parts, move || {
                let this = spaces::within(&k, space).unwrap();
                this.give_back(weak, Use::Kernel(kind));
            });
        };
        let came = crash::between(steps / parts, act, || {
            let _ = fault(1);
        });
        crash::now();
        assert_eq!(faults(&rig.k), [], "before step {steps}");
        let sum = walk(&rig.k, &mut |_| {});
        assert_eq!(sum.first_unreferenced, None, "before step {steps}");
        last.set(steps);
        came || steps % parts != parts - 1
    });
    assert!(last.get() > 4 * parts, "the fault makes hardly any steps");
}

/// `Merge` looks at the size of a block before it knows that twice that is the caller's: if others
/// have made it larger by then, nothing happens.
#[test]
fn blocks_that_others_have_made_larger_are_not_merged() {
    at_each_step(|rig, _| {
        let k = rig.k;
        let first = rig.take(Order::new(2).unwrap(), None).unwrap().frame;
        for _ in 0..2 {
            k.frames().split(first, &k.intents()).unwrap();
        }
        let two = rig.memory(first, 2, Rights::ALL).unwrap();
        let merge = || call(&k, two, MemoryOp::Merge as u32, &[0]);
        assert_eq!(merge(), Ok(OpOutcome::Value(0)));
        // What it would have gone on with.
        let late = k.frames().merge_of(first, Order::FRAME, &k.intents());
        assert_eq!(late, Err(Refused::Contended));
        assert_eq!(merge(), Err(Error::BadArgument));
        let behind = rig::behind(first, 2).unwrap();
        let (word, _) = k.frames().read(behind).unwrap();
        assert!(matches!(word.ty, FrameType::Untyped(_)), "{:?}", word.ty);
        false
    });
}
