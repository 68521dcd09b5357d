//! Every operation against every other one, on two CPUs: one is done as a whole between any two steps that the other one
//! makes, or both are done in parts. Then all tables must agree with each other, no intent stays, and no stamp is older
//! than what it stamps.
//!
//! Which of them succeed does not matter.
//!
//! A step is a change of a shared word or a look at one. An operation between two looks is only then something else than
//! one before both if the first look is at a line that the operation changes: other looks are left out.

#![allow(clippy::result_large_err)]

use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::vec::Vec;

use dyad_abi::cap::{
    CapIndex, CapType, ObjectKind, RegionKind, Rights, SendOp, ThreadOp, call_word,
};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, Result};
use dyad_captbl::{Contents, Filling, SlotPlace};
use dyad_pgtbl::{Level, Perms};
use dyad_retype::{KernelKind, Refs, Use, plain};
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_tier::{Tier, size};

use super::crash::{self, Step};
use super::in_use::InUse;
use super::ktests::passes;
use super::race_tests::{Ends, faults};
use super::system::{frame_cap, memory_cap};
use super::{Machine, MockX86, World};
use crate::ktest::rig::{self, Rig, quarter};
use crate::ktest::{run_here, spaces};
use crate::sched::quiet;
use crate::syscall::ops;
use crate::syscall::ops::memory::{retype_kernel, to_untyped};
use dyad_machine::capcache;
use dyad_machine::capcache::frames::Range;
use dyad_machine::capcache::{CachedCap, leaf};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::FaultKind;
use dyad_object::component::Component;
use dyad_object::find;
use dyad_object::space::{Region, Space};
use dyad_object::thread::{State, Thread};
use dyad_space::mapping::{FastRows, FastSpace, page};
use dyad_space::resolve::resolve;

/// Where faults are.
const VA: u64 = 0x5000_0000;
/// Where pages are mapped by capability.
const MAPPED: u64 = VA + 8 * PAGE_SIZE;
/// What such pages permit.
const PERMS: Perms = Perms::READ
    .union(Perms::USER)
    .union(Perms::WRITE)
    .union(Perms::MAY_WRITE);
/// A slot that is free, and one that is not, of the second component.
const FREE: u32 = 40;
const TAKEN: u32 = 41;
/// Frames of the pool.
const FRAMES: u64 = 1024;

/// What the operations work on.
#[derive(Clone, Copy)]
struct Scene {
    k: KernelCtx,
    component: WeakRef,
    root: WeakRef,
    leaf: WeakRef,
    spare: WeakRef,
    space: WeakRef,
    user: WeakRef,
    mapped: WeakRef,
    thread: (CapIndex, WeakRef, &'static Thread),
    waits: (CapIndex, WeakRef, &'static Thread),
    scheduler: WeakRef,
    ends: WeakRef,
    send: CapIndex,
}

impl Scene {
    fn new(rig: &Rig<'_>) -> Scene {
        let (component, root, leaf) = rig.other_component().unwrap();
        let space = spaces::create(rig).unwrap();
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        spaces::region(&rig.k, space, VA, 1 << 21, kind).unwrap();
        let ends = Ends::new(rig);
        let s = Scene {
            k: rig.k,
            component,
            root,
            leaf,
            spare: rig.object(ObjectKind::CaptblLeaf).unwrap(),
            space,
            user: rig.user().unwrap(),
            mapped: rig.user().unwrap(),
            thread: ends.thread(rig, State::Stopped),
            waits: ends.waiting(rig),
            scheduler: ends.scheduler,
            ends: ends.object,
            send: ends.send,
        };
        s.fault(0);
        s.map(s.mapped, 0).unwrap();
        s.activate(TAKEN);
        s
    }

    /// The same scene on another CPU, which runs a thread of its own. Both CPUs remember the tables.
    fn on(self, rig: &Rig<'_>, k: KernelCtx) -> Scene {
        let thread = rig.thread_of(rig.component, State::Running).unwrap();
        let thread = rig.as_thread(thread).unwrap();
        thread.priority.store(u64::MAX, Ordering::Relaxed);
        thread.cpu.store(k.cpu().index() as u64, Ordering::Relaxed);
        let (here, there) = (rig.k.local, k.local);
        there.thread.set(Some(thread));
        there.fastpath_thread.set(Some(thread));
        there.component.set(here.component.get());
        there.captbl.set(here.captbl.get());
        there.space.set(here.space.get());
        there.set_slice_end(u64::MAX);
        let other = Scene { k, ..self };
        self.learn();
        other.learn();
        other
    }

    /// Has the CPU remember what its fast paths use.
    fn learn(&self) {
        assert!(self.fast().pte(Isa::X86_64, MAPPED).is_some());
        assert!(self.fast().block(self.mapped.frame.address()).is_some());
        assert!(leaf::slot(self.k.local, self.root.bits(), true, FREE.into()).is_some());
        assert!(capcache::page::region(self.k.local, self.space.bits(), VA).is_some());
    }

    fn fast(&self) -> FastSpace {
        FastSpace {
            local: self.k.local,
            object: self.space.bits(),
        }
    }

    fn map_fast(&self) -> Option<()> {
        let cap = frame_cap(self.user, 1);
        let cached = CachedCap::of_block(&self.k, &cap)?;
        let (block, pa) = cached.page(self.user.frame.address(), 0);
        self.fast()
            .map(Isa::X86_64, MAPPED + PAGE_SIZE, &block, pa, PERMS)
    }

    fn slot_fast(&self, at: u32) -> Option<leaf::Slot> {
        leaf::slot(self.k.local, self.root.bits(), true, at.into())
    }

    fn fault(&self, at: u64) {
        let va = VA + at * PAGE_SIZE;
        let _ = resolve::<MockX86>(&self.k, self.space, va, FaultKind::Write);
    }

    fn map(&self, frame: WeakRef, at: u64) -> Result<()> {
        let this = spaces::within(&self.k, self.space)?;
        let d = this.driver(Isa::X86_64)?;
        let va = MAPPED + at * PAGE_SIZE;
        let place = d
            .find(va, Level::L1)
            .map_err(dyad_space::mapping::refusal)?;
        this.map(&d, &place, frame, page(frame.frame.address(), PERMS))?;
        Ok(())
    }

    fn unmap(&self, va: u64) -> Result<()> {
        let this = spaces::within(&self.k, self.space)?;
        let (place, leaf) =
            spaces::look(&self.k, self.space, Isa::X86_64, va).ok_or(dyad_abi::Error::NotFound)?;
        this.unmap(&this.driver(Isa::X86_64)?, &place, &leaf)?;
        Ok(())
    }

    fn slot(&self, at: u32) -> SlotPlace {
        SlotPlace::new(self.leaf, at).unwrap()
    }

    fn contents(&self) -> Contents {
        Contents {
            ty: CapType::Frame,
            rights: Rights::ALL,
            object: Some(self.user),
            guard: None,
            payload: [0, 1, 0],
        }
    }

    fn activate(&self, at: u32) {
        let _ = ops::captbl::activate(&self.k, self.slot(at), &self.contents());
    }

    fn call(&self, cap: CapIndex, op: u32) {
        let _ = ops::call::<MockX86>(&self.k, call_word(cap, op), [0; 5]);
    }

    fn thread(&self, op: ThreadOp) {
        let t = self.thread.2;
        let _ = ops::thread::dispatch::<MockX86>(&self.k, t, op as u64, [0; 5]);
    }

    fn give_up(&self, what: WeakRef) {
        let _ = to_untyped(&self.k, what.frame);
    }
}

type Act = fn(&Scene);

/// The operations.
const ACTS: &[(&str, Act)] = &[
    ("configure a component", |s| {
        if let Ok(c) = find::<Component>(s.k.node, s.component, Component::KIND) {
            let _ = ops::component::set_parts(&s.k, c, s.root, s.space);
        }
    }),
    ("give the component up", |s| s.give_up(s.component)),
    ("hang a leaf in", |s| {
        let k = &s.k;
        let _ = k.captbls().cons(s.root, 1, s.spare, k, k);
    }),
    ("take a leaf out", |s| {
        let k = &s.k;
        let _ = k.captbls().decons(s.root, 0, k, k);
    }),
    ("give the root up", |s| s.give_up(s.root)),
    ("give the leaf up", |s| s.give_up(s.leaf)),
    ("give the spare leaf up", |s| s.give_up(s.spare)),
    ("activate", |s| s.activate(FREE)),
    ("deactivate", |s| {
        let k = &s.k;
        let _ = k.captbls().slot_deactivate(s.slot(TAKEN), None, k);
    }),
    ("fault", |s| s.fault(1)),
    ("fault where there is a page", |s| s.fault(0)),
    ("map", |s| {
        let _ = s.map(s.user, 1);
    }),
    ("unmap", |s| {
        let _ = s.unmap(MAPPED);
    }),
    ("unmap a page that a fault has taken", |s| {
        let _ = s.unmap(VA);
    }),
    ("reclaim", |s| {
        if let Ok(this) = spaces::within(&s.k, s.space) {
            let _ = ops::reclaim::reclaim(&this, VA, 512);
        }
    }),
    ("take a page's table out", |s| {
        if let Ok(this) = spaces::within(&s.k, s.space) {
            let at = dyad_abi::cap::TableAt {
                isa: Isa::X86_64,
                level: 1,
            };
            let _ = s.unmap(VA);
            let _ = s.unmap(MAPPED);
            let _ = ops::space::unlink(&this, at, VA);
        }
    }),
    ("take the root table out", |s| {
        if let Ok(this) = spaces::within(&s.k, s.space) {
            let _ = this.unlink_root(Isa::X86_64);
        }
    }),
    ("give the space up", |s| s.give_up(s.space)),
    ("give the mapped frame up", |s| s.give_up(s.mapped)),
    ("make an object of the other frame", |s| {
        s.give_up(s.user);
        let _ = retype_kernel::<MockX86>(&s.k, s.user.frame, ObjectKind::Time);
    }),
    (
        "give the other frame up by the fast path, and use it",
        |s| {
            let cap = memory_cap(s.user.frame, 1);
            let range = Range::of(&s.k, &cap);
            if let Some(f) = range.and_then(|r| r.frame(s.k.local, cap.payload[0], 0)) {
                let _ = f.untype(0);
                let time = plain::used(Use::Kernel(KernelKind::TIME));
                let _ = f.retype(time, |e| s.k.node.tables.quiesced(e), || true);
            }
        },
    ),
    ("map by the fast path", |s| {
        let _ = s.map_fast();
    }),
    ("unmap by the fast path", |s| {
        let _ = s.fast().unmap(Isa::X86_64, MAPPED);
    }),
    ("protect by the fast path", |s| {
        let _ = s.fast().protect(Isa::X86_64, MAPPED, false);
    }),
    ("activate by the fast path", |s| {
        let what = Filling::of(&s.contents());
        if let Some(slot) = s.slot_fast(FREE) {
            let _ = slot.activate(&what, |e| s.k.node.tables.quiesced(e));
        }
    }),
    ("deactivate by the fast path", |s| {
        if let Some(slot) = s.slot_fast(TAKEN) {
            let _ = slot.deactivate();
        }
    }),
    ("add a region", |s| {
        let region = Region::new(VA + (1 << 21), 1 << 21, 0);
        let space = find::<Space>(s.k.node, s.space, Space::KIND);
        if let (Ok(region), Ok(space)) = (region, space) {
            let _ = space.add_region(s.k.words(), s.k.node.id(), region);
        }
    }),
    ("take the region away", |s| {
        if let Ok(space) = find::<Space>(s.k.node, s.space, Space::KIND) {
            let _ = space.remove_region(s.k.words(), s.k.node.id(), VA);
        }
    }),
    ("resume the thread", |s| s.thread(ThreadOp::Resume)),
    ("stop the thread", |s| s.thread(ThreadOp::Stop)),
    ("give the thread up", |s| s.give_up(s.thread.1)),
    ("stop the one that waits", |s| {
        let stop = ThreadOp::Stop as u64;
        let _ = ops::thread::dispatch::<MockX86>(&s.k, s.waits.2, stop, [0; 5]);
    }),
    ("give the one that waits up", |s| s.give_up(s.waits.1)),
    ("send", |s| s.call(s.send, SendOp::Send as u32)),
    ("give the scheduler's endpoints up", |s| {
        s.give_up(s.scheduler)
    }),
    ("give the endpoints up", |s| s.give_up(s.ends)),
    ("split and merge", |s| {
        s.give_up(s.user);
        let _ = s.k.frames().merge(s.user.frame, &s.k.intents());
        let _ = s.k.frames().split(s.user.frame, &s.k.intents());
    }),
];

/// Frames of the supply that are in use and that nothing refers to.
fn forgotten(rig: &Rig<'_>) -> usize {
    let (first, frames) = quarter(rig.cx, rig.cx.node.id(), 1);
    (0..frames.min(1024))
        .filter_map(|n| crate::ktest::rig::behind(first, n).ok())
        .filter_map(|f| rig.k.frames().read(f).ok())
        .filter(|(w, _)| w.ty.in_use().is_some() && w.refs == Refs::ZERO)
        .count()
}

/// When the second operation is done.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Before this change that the first one makes.
    Change(u32),
    /// Before this step, a change or a look.
    Step(u32),
}

/// What has been seen in a run.
struct Seen {
    /// Whether the first operation has come to the moment; else the second one has been done behind it.
    came: bool,
    /// The looks between the last change of the first operation before the moment, and the moment, at lines that the
    /// second one has changed.
    looks: Vec<u32>,
    /// Steps of either operation.
    steps: [u32; 2],
}

/// Two CPUs of a node, the first of which has a scene.
fn on_two_cpus<T>(test: impl Fn(&Rig<'_>, [Machine; 2], [Scene; 2]) -> T) -> T {
    let w = World::new(&[Isa::X86_64], FRAMES);
    let first = w.machine_as(0, 2);
    let second = first.beside();
    let cx = |m: Machine| {
        m.enter();
        KernelCtx {
            node: m.node(),
            local: m.local(),
        }
    };
    let k = [first, second].map(cx);
    first.enter();
    for k in &k {
        quiet::attach(k);
    }
    quiet::join::<MockX86>(&k[0]).unwrap();
    quiet::wake(&k[1]);
    let mut value = None;
    passes::<MockX86>(run_here::<MockX86>(first.node(), |cx| {
        rig::with(cx, |rig| {
            let scene = Scene::new(rig);
            let scenes = [scene, scene.on(rig, k[1])];
            value = Some(test(rig, [first, second], scenes));
            Ok(None)
        })
    }));
    value.expect("it has run")
}

/// All frames that a test takes: the first and the last quarter of the pool, and what is between.
fn frames(rig: &Rig<'_>) -> (FrameRef, u64) {
    let (first, _) = quarter(rig.cx, rig.cx.node.id(), 1);
    let (last, count) = quarter(rig.cx, rig.cx.node.id(), 3);
    (first, (last.bits() - first.bits()) as u64 + count)
}

/// What must hold after any two operations.
fn check(rig: &Rig<'_>, scenes: &[Scene; 2], used: &InUse, told: &str) {
    assert_eq!(faults(&rig.k), [], "{told}");
    assert_eq!(forgotten(rig), 0, "frames are forgotten: {told}");
    for s in scenes {
        assert_eq!(s.k.intents().read(), None, "an intent stays: {told}");
    }
    let early = used.stamped_too_early(&rig.k);
    assert!(early.is_empty(), "stamps of before: {early:?}: {told}");
}

/// Does one operation, and the other one as a whole on another CPU at a moment.
fn run(one: (&str, Act), other: (&'static str, Act), moment: Moment) -> Seen {
    on_two_cpus(|rig, [first, second], scenes| {
        let all = frames(rig);
        let before = Rc::new(RefCell::new(None));
        let interferes = before.clone();
        let act = move || {
            let steps = crash::steps_so_far(<[Step]>::to_vec);
            let (used, _) = crash::traced(|| InUse::now(&scenes[0].k, all).unwrap());
            second.enter();
            let ((), made) = crash::traced(|| (other.1)(&scenes[1]));
            first.enter();
            *interferes.borrow_mut() = Some((used, steps, made));
        };
        let behind = act.clone();
        let (came, steps) = crash::traced(|| {
            let op = || (one.1)(&scenes[0]);
            let came = match moment {
                Moment::Change(n) => crash::between_changes(n, act, op),
                Moment::Step(n) => crash::between(n, act, op),
            };
            if !came {
                behind();
            }
            came
        });
        let (used, until, made) = before.take().expect("the other one has acted");
        let told = std::format!("{:?} at {moment:?} of {:?}", other.0, one.0);
        check(rig, &scenes, &used, &told);
        let changed: BTreeSet<u64> = made
            .iter()
            .filter_map(|s| s.is_change.then_some(s.line))
            .collect();
        let from = until.iter().rposition(|s| s.is_change);
        let from = from.map_or(0, |last| last + 1);
        let looks = until.iter().enumerate().skip(from);
        Seen {
            came,
            looks: looks
                .filter_map(|(n, s)| changed.contains(&s.line).then_some(n as u32))
                .collect(),
            steps: [steps.len() as u32, made.len() as u32],
        }
    })
}

/// The other operation is done before each change that the first one makes, and before each look that finds
/// something else after it if `looks` says so. Returns how many moments there were, and the steps of either.
fn against(one: (&str, Act), other: (&'static str, Act), looks: bool) -> (u32, [u32; 2]) {
    let mut moments = 0;
    for change in 0.. {
        let seen = run(one, other, Moment::Change(change));
        let steps = seen.looks.iter().filter(|_| looks);
        moments += 1 + steps.clone().count() as u32;
        for &step in steps {
            run(one, other, Moment::Step(step));
        }
        if !seen.came {
            return (moments, seen.steps);
        }
    }
    unreachable!("operations end")
}

/// What another thread gets from this one, which waits for it.
struct Handed<T>(T);

// SAFETY: 1. of the thread that hands it over and the one that takes it only one runs at a time: each waits on a channel
// while the other runs, which orders what they do.
#[allow(unsafe_code)]
unsafe impl<T> Send for Handed<T> {}

impl<T> Handed<T> {
    fn take(self) -> T {
        self.0
    }
}

/// Both operations in two parts: the first one up to a step, the other one up to a step, the rest of the first one,
/// the rest of the other one.
fn in_parts(one: (&str, Act), other: (&'static str, Act), steps: [u32; 2]) {
    on_two_cpus(|rig, [_, second], scenes| {
        let all = frames(rig);
        let started = Rc::new(RefCell::new(None));
        let starts = started.clone();
        let act = move || {
            let used = InUse::now(&scenes[0].k, all).unwrap();
            let (paused, pauses) = mpsc::channel();
            let (go_on, goes_on) = mpsc::channel::<()>();
            let handed = Handed((second, scenes[1], paused, goes_on));
            let thread = thread::spawn(move || {
                let (m, s, paused, goes_on) = handed.take();
                m.enter();
                let pause = {
                    let paused = paused.clone();
                    move || {
                        paused.send(()).unwrap();
                        goes_on.recv().unwrap();
                    }
                };
                crash::between(steps[1], pause, || (other.1)(&s));
                drop(paused);
            });
            // It pauses, or is over.
            let _ = pauses.recv();
            *starts.borrow_mut() = Some((used, go_on, thread));
        };
        crash::between(steps[0], act, || (one.1)(&scenes[0]));
        let Some((used, go_on, thread)) = started.take() else {
            return;
        };
        let _ = go_on.send(());
        if let Err(why) = thread.join() {
            resume_unwind(why);
        }
        let told = std::format!("{:?} and {:?} in parts: {steps:?}", one.0, other.0);
        check(rig, &scenes, &used, &told);
    });
}

/// How often two operations are done in parts.
fn parts() -> u32 {
    size(1, 4, 60)
}

/// All pairs, in both roles, at each moment, and in parts. In the quick form, but for fast paths, each pair in one role, and a
/// third of them between looks and in parts.
#[test]
fn any_two_operations_leave_all_tables_in_agreement() {
    let next = AtomicUsize::new(0);
    let moments = AtomicU32::new(0);
    let work = || {
        loop {
            let which = next.fetch_add(1, Ordering::Relaxed);
            let Some(&one) = ACTS.get(which) else {
                return;
            };
            for (i, &other) in ACTS.iter().enumerate() {
                let quick = Tier::now() == Tier::Quick && !one.0.contains("fast path");
                // Each pair in one role.
                if quick && i != which && (i < which) == (which + i).is_multiple_of(2) {
                    continue;
                }
                let looks = !quick || (which + i).is_multiple_of(3);
                let (n, steps) = against(one, other, looks);
                moments.fetch_add(n, Ordering::Relaxed);
                let mut seed = (i as u32 + 1).wrapping_mul(n + 1);
                for _ in 0..if looks { parts() } else { 0 } {
                    let drawn = steps.map(|most| {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (seed >> 8) % most.max(1)
                    });
                    in_parts(one, other, drawn);
                }
            }
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        for other in others {
            if let Err(why) = other.join() {
                resume_unwind(why);
            }
        }
    });
    let moments = moments.into_inner();
    std::println!("{moments} moments");
    assert!(
        moments as usize > size(3, 6, 6) * ACTS.len() * ACTS.len(),
        "hardly anything has happened"
    );
}
