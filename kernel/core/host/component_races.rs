//! Components that two CPUs change at the same time, and faults that come meanwhile.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use dyad_abi::cap::{CapIndex, ComponentOp, ObjectKind, Rights, call_word};
use dyad_abi::{Error, Isa, Result};
use dyad_shm::frame::WeakRef;

use super::race_tests::{at_each_step, at_each_step_of};
use super::system::{System, cpu, cx};
use super::{MockX86, crash};
use crate::ktest::rig::Rig;
use crate::ktest::spaces;
use crate::sched::dispatch::OpOutcome;
use crate::syscall::ops::component::set_parts;
use crate::syscall::ops::memory;
use crate::syscall::slowpath::ENTER;
use crate::syscall::{entry, ops};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::component::{Component, Entry};
use dyad_object::find;
use dyad_object::kinds::CAPTBL_ROOT;
use dyad_object::space::Space;

/// Handlers: entry point and badge.
const HANDLERS: [(u64, u64); 3] = [(0x1000, 1), (0x2000, 2), (0x3000, 3)];

/// A component, a capability for it, and three handlers of faults, each in a component of its own. The
/// component has the first one.
struct Scene {
    component: &'static Component,
    cap: CapIndex,
    handlers: [(CapIndex, Entry); 3],
}

fn set(k: &KernelCtx, cap: CapIndex, handler: CapIndex) -> Result<OpOutcome> {
    let op = ComponentOp::SetFaultHandler as u32;
    let a = [handler.get() as u64, 0, 0, 0, 0];
    ops::call::<MockX86>(k, call_word(cap, op), a)
}

fn entry(k: &KernelCtx, component: &Component) -> Option<Entry> {
    component.parts(k.words()).fault_entry(k.words()).unwrap()
}

impl Scene {
    fn new(rig: &Rig<'_>) -> Scene {
        let (object, _, _) = rig.other_component().unwrap();
        let cap = rig.cap(ObjectKind::Component, object, Rights::ALL).unwrap();
        let handlers = HANDLERS.map(|(address, badge)| {
            let component = rig.object(ObjectKind::Component).unwrap();
            let entry = Entry {
                component,
                address,
                badge,
            };
            (rig.sinv(component, address, badge).unwrap(), entry)
        });
        set(&rig.k, cap, handlers[0].0).unwrap();
        Scene {
            component: find(rig.cx.node, object, Component::KIND).unwrap(),
            cap,
            handlers,
        }
    }
}

/// A writer that is refused has changed nothing, and the handler is never made of two.
#[test]
fn of_two_that_set_a_fault_handler_one_wins_as_a_whole() {
    let refused = Cell::new(0);
    at_each_step(|rig, steps| {
        let s = Scene::new(rig);
        let (k, cap, (third, _)) = (rig.k, s.cap, s.handlers[2]);
        let other = Rc::new(Cell::new(None));
        let result = other.clone();
        let act = move || result.set(Some(set(&k, cap, third)));
        let mine = Cell::new(Err(Error::Corrupt));
        let came = crash::between(steps, act, || {
            mine.set(set(&rig.k, s.cap, s.handlers[1].0));
        });
        let now = entry(&rig.k, s.component);
        let is = |n: usize| now == Some(s.handlers[n].1);
        match (mine.get(), other.take()) {
            (Ok(_), None) => assert!(is(1)),
            (Ok(_), Some(Ok(_))) => assert!(is(1) || is(2), "{now:?} before step {steps}"),
            (Ok(_), Some(Err(Error::Again))) => {
                refused.set(refused.get() + 1);
                assert!(is(1), "{now:?} before step {steps}");
            }
            (Err(Error::Again), Some(Ok(_))) => assert!(is(2)),
            both => panic!("{both:?} before step {steps}"),
        }
        // Neither has kept the component for itself.
        assert!(set(&rig.k, s.cap, s.handlers[0].0).is_ok());
        came
    });
    assert!(refused.get() >= 4, "{refused:?}");
}

/// A fault finds the handler of before or the new one; it finds one at any moment.
#[test]
fn a_fault_while_its_handler_is_set_finds_a_whole_one() {
    let found = Cell::new([0; 2]);
    at_each_step(|rig, steps| {
        let s = Scene::new(rig);
        let (k, component) = (rig.k, s.component);
        let seen = Rc::new(Cell::new(None));
        let result = seen.clone();
        let act = move || result.set(Some(entry(&k, component)));
        let came = crash::between(steps, act, || {
            set(&rig.k, s.cap, s.handlers[1].0).unwrap();
        });
        if let Some(seen) = seen.get() {
            let which = (0..2).find(|&n| seen == Some(s.handlers[n].1));
            let which = which.unwrap_or_else(|| panic!("{seen:?} before step {steps}"));
            let mut counts = found.get();
            counts[which] += 1;
            found.set(counts);
        }
        came
    });
    assert!(found.get().iter().all(|&n| n > 0), "{found:?}");
}

/// Table and space of a component are those that one CPU has given it.
#[test]
fn of_two_that_configure_a_component_one_wins_as_a_whole() {
    at_each_step(|rig, steps| {
        let (object, root, _) = rig.other_component().unwrap();
        let component: &'static Component = find(rig.cx.node, object, Component::KIND).unwrap();
        let parts = |root: WeakRef| (root, spaces::create(rig).unwrap());
        let (_, other_root, _) = rig.other_component().unwrap();
        let (one, two) = (parts(root), parts(other_root));
        let k = rig.k;
        let other = Rc::new(Cell::new(None));
        let result = other.clone();
        let act = move || result.set(Some(set_parts(&k, component, two.0, two.1)));
        let mine = Cell::new(Ok(()));
        let came = crash::between(steps, act, || {
            mine.set(set_parts(&rig.k, component, one.0, one.1));
        });
        let now = component.parts(rig.k.words());
        let now = (now.captbl_root().unwrap(), now.space().unwrap());
        let is = |(root, space): (WeakRef, WeakRef)| now == (root.frame.address(), space);
        match (mine.get(), other.take()) {
            (Ok(()), None | Some(Err(Error::Again))) => assert!(is(one)),
            (Err(Error::Again), Some(Ok(()))) => assert!(is(two)),
            (Ok(()), Some(Ok(()))) => assert!(is(one) || is(two), "before step {steps}"),
            both => panic!("{both:?} before step {steps}"),
        }
        came
    });
}

/// A part is given up between any two steps of a change of parts: a component has one reference for each part that it has, and
/// is given up with them.
#[test]
fn a_component_keeps_no_reference_for_a_part_that_is_given_up() {
    for gives_table in [false, true] {
        let mut pins = BTreeSet::new();
        for steps in 0.. {
            let s = System::new(64);
            let [table, space] = [CAPTBL_ROOT, Space::KIND].map(|kind| s.object(kind));
            let object = s.object(Component::KIND);
            let (m, other) = (s.x(), s.a());
            let part = if gives_table { table } else { space };
            let act = move || {
                // Refused once the component has it.
                let _ = memory::to_untyped(&cx(other), part.frame);
                m.enter();
            };
            let c = cx(m);
            let component: &'static Component = find(m.node(), object, Component::KIND).unwrap();
            let set = Cell::new(Ok(()));
            let came = crash::between(steps, act, || {
                set.set(set_parts(&c, component, table, space));
            });
            let has = [&component.captbl, &component.space]
                .map(|word| u32::from(c.words().read(word) != 0));
            let refs = s.refs(object);
            assert_eq!(
                refs,
                has[0] + has[1],
                "before step {steps}: {:?}",
                set.get()
            );
            let given_up = memory::to_untyped(&c, object.frame);
            assert!(given_up.is_ok(), "before step {steps}: {given_up:?}");
            pins.insert(has);
            if !came {
                break;
            }
        }
        // Refused by the check or by the first pin, and by the pin of the space; and in time.
        let expected = if gives_table { 2 } else { 3 };
        assert_eq!(pins.len(), expected, "{pins:?}");
    }
}

/// A writer changes the handler all the time, on another CPU. What readers find is one of its handlers, or
/// that they are to try again. Some see a record change under their eyes.
#[test]
fn a_handler_that_is_read_while_it_changes_all_the_time_is_whole() {
    let s = System::new(64);
    let node = s.x().node();
    let object = s.object(Component::KIND);
    let component: &'static Component = find(node, object, Component::KIND).unwrap();
    let words = node.words;
    let end = AtomicBool::new(false);
    let writer = || {
        for n in 1.. {
            let change = component.change(node, cpu(0)).unwrap();
            change.set_handler(Some(Entry {
                component: object,
                address: n,
                badge: !n,
            }));
            change.end();
            if end.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(writer);
        let (mut first, mut different, mut reads) = (None, 0u64, 0u64);
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until || different < 1_000 {
            reads += 1;
            if let Ok(Some(now)) = component.parts(words).fault_entry(words) {
                if now.badge != !now.address || now.component != object {
                    end.store(true, Ordering::Relaxed);
                    panic!("read {reads} found {now:?}");
                }
                different += u64::from(first.replace(now) != Some(now));
            }
        }
        end.store(true, Ordering::Relaxed);
    });
}

/// A component whose home changes while it is entered is not entered here again by the fast path.
#[test]
fn a_home_that_changes_during_an_invocation_is_seen_by_the_next_one() {
    let looked = Cell::new(0);
    at_each_step_of(&[Isa::X86_64, Isa::Aarch64], |rig, steps| {
        rig.rooted().unwrap();
        let (callee, _, _) = rig.other_component().unwrap();
        let sinv = rig.sinv(callee, 0x1000, 1).unwrap();
        let cap = rig.cap(ObjectKind::Component, callee, Rights::ALL).unwrap();
        let (k, captbl) = (rig.k, rig.k.local.captbl.get());
        let set = move || {
            // The other CPU is in the component of the test.
            let here = k.local.captbl.replace(captbl);
            let word = call_word(cap, ComponentOp::SetHome as u32);
            ops::call::<MockX86>(&k, word, [1 << 1, 0, 0, 0, 0]).unwrap();
            k.local.captbl.set(here);
        };
        let invoke = || entry::system_call::<MockX86>(sinv.get() as u64, [0; 5]).status;
        let status = Cell::new(0);
        let came = crash::between(steps, set, || status.set(invoke()));
        if !came {
            return false;
        }
        if status.get() == ENTER {
            looked.set(looked.get() + 1);
            let back = entry::system_call::<MockX86>(0, [0; 5]).status;
            assert_eq!(back, ENTER);
        }
        // Its home is another node by now, and a thread without a scheduler cannot go there.
        assert_eq!(
            invoke(),
            Error::NotReady.code(),
            "changed before step {steps}"
        );
        true
    });
    assert!(looked.get() > 3, "{looked:?}");
}
