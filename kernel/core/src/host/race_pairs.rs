//! Every operation against every other one: one is done as a whole between any two changes that the
//! other one makes, and then all tables must agree with each other.
//!
//! Which of them succeed does not matter.

#![allow(clippy::result_large_err)]

use dyad_abi::cap::{
    CapIndex, CapType, ObjectKind, RegionKind, Rights, SendOp, ThreadOp, call_word,
};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, Result};
use dyad_captbl::{Contents, SlotPlace};
use dyad_pgtbl::{Level, Perms};
use dyad_retype::{KernelKind, Refs, Use, plain};
use dyad_shm::frame::WeakRef;

use super::race_tests::{Ends, at_each_change, faults};
use super::system::memory_cap;
use super::{MockX86, crash};
use crate::cx::Cx;
use crate::ktest::rig::{Rig, quarter};
use crate::ktest::spaces;
use crate::mapping::page;
use crate::object::component::Component;
use crate::object::find;
use crate::object::space::{Region, Space};
use crate::object::thread::{State, Thread};
use crate::ops;
use crate::ops::memory::{retype_kernel, to_untyped};
use crate::platform::FaultKind;
use crate::resolve::resolve;
use crate::view::frames::Range;

/// Where faults are.
const VA: u64 = 0x5000_0000;
/// Where pages are mapped by capability.
const MAPPED: u64 = VA + 8 * PAGE_SIZE;
/// A slot that is free, and one that is not, of the second component.
const FREE: u32 = 40;
const TAKEN: u32 = 41;

/// What the operations work on.
#[derive(Clone, Copy)]
struct Scene {
    k: Cx,
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

    fn fault(&self, at: u64) {
        let va = VA + at * PAGE_SIZE;
        let _ = resolve::<MockX86>(&self.k, self.space, va, FaultKind::Write);
    }

    fn map(&self, frame: WeakRef, at: u64) -> Result<()> {
        let this = spaces::within(&self.k, self.space)?;
        let d = this.driver(Isa::X86_64)?;
        let va = MAPPED + at * PAGE_SIZE;
        let place = d.find(va, Level::L1).map_err(crate::mapping::refusal)?;
        this.map(&d, &place, frame, page(frame.frame.address(), Perms::READ))?;
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

    fn activate(&self, at: u32) {
        let contents = Contents {
            ty: CapType::Frame,
            rights: Rights::ALL,
            object: Some(self.user),
            guard: None,
            payload: [0, 1, 0],
        };
        let _ = ops::captbl::activate(&self.k, self.slot(at), &contents);
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
        let _ = k.with_services(|v| k.captbls().cons(s.root, 1, s.spare, k, v));
    }),
    ("take a leaf out", |s| {
        let k = &s.k;
        let _ = k.with_services(|v| k.captbls().decons(s.root, 0, k, v));
    }),
    ("give the root up", |s| s.give_up(s.root)),
    ("give the leaf up", |s| s.give_up(s.leaf)),
    ("give the spare leaf up", |s| s.give_up(s.spare)),
    ("activate", |s| s.activate(FREE)),
    ("deactivate", |s| {
        let k = &s.k;
        let _ = k.with_services(|v| k.captbls().slot_deactivate(s.slot(TAKEN), None, v));
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
            let _ = ops::space::reclaim(&this, VA, 512);
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
        "give the other frame up by the short way, and use it",
        |s| {
            let cap = memory_cap(s.user.frame, 1);
            let range = Range::of(&s.k, &cap);
            if let Some(f) = range.and_then(|r| r.frame(s.k.local, cap.payload[0], 0)) {
                let _ = f.give_up(0);
                let time = plain::used(Use::Kernel(KernelKind::TIME));
                let _ = f.put_to_use(time, |e| s.k.node.tables.quiesced(e), || true);
            }
        },
    ),
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

fn against(one: (&str, Act), other: (&'static str, Act)) -> u32 {
    at_each_change(|rig, changes| {
        let s = Scene::new(rig);
        let act = other.1;
        let came = crash::between(changes, move || act(&s), || (one.1)(&s));
        let told = std::format!("{:?} before change {changes} of {:?}", other.0, one.0);
        assert_eq!(faults(&rig.k), [], "{told}");
        assert_eq!(forgotten(rig), 0, "frames are forgotten: {told}");
        came
    })
}

/// All pairs, in both roles.
#[test]
fn any_two_operations_leave_all_tables_in_agreement() {
    let mut changes = 0;
    for &one in ACTS {
        for &other in ACTS {
            changes += against(one, other);
        }
    }
    std::println!("{changes} changes");
    assert!(
        changes as usize > 4 * ACTS.len() * ACTS.len(),
        "hardly anything has happened"
    );
}
