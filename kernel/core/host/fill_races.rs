//! What a slow path caches while another CPU takes it away, or puts something there. A cache is filled from words that are
//! read one after the other, so a fill looks a second time: what it has found first may be gone by then, and the words that
//! it has read since, with which later uses compare, would never show it.
//!
//! The other CPU acts as a whole before each step of the fill in turn.

use core::cell::Cell;

use dyad_abi::Error;
use dyad_abi::cap::{CapType, INTROSPECT, ObjectKind, RegionKind, Rights};
use dyad_abi::user::PAGE_SIZE;
use dyad_captbl::{Contents, SlotPlace};
use dyad_shm::frame::WeakRef;

use super::crash;
use super::race_tests::at_each_step;
use crate::ktest::rig::Rig;
use crate::ktest::spaces;
use crate::syscall::ops::{self, memory::to_untyped};
use dyad_machine::capcache::{capability, page};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::space::Region;

const VA: u64 = 0x5000_0000;

/// Calls of capabilities of these kinds are cached differently.
const KINDS: [ObjectKind; 4] = [
    ObjectKind::Thread,
    ObjectKind::Endpoints,
    ObjectKind::Space,
    ObjectKind::Time,
];

#[test]
fn a_capability_that_is_taken_away_while_it_is_cached_is_gone() {
    for kind in KINDS {
        let refused = Cell::new(0);
        let steps = at_each_step(|rig, steps| {
            let (cap, _) = rig.new_cap(kind).unwrap();
            let place = SlotPlace::new(rig.leaf, cap.get()).unwrap();
            let k = rig.k;
            let takes = move || {
                k.captbls().slot_deactivate(place, None, &k).unwrap();
            };
            let came = crash::between(steps, takes, || {
                if rig.sys(cap, INTROSPECT, &[]).is_err() {
                    refused.set(refused.get() + 1);
                }
            });
            if came {
                let cached = capability(rig.k.local, cap).map(|c| c.rights());
                let is = rig.sys(cap, INTROSPECT, &[]);
                assert_eq!(is, Err(Error::NoCap), "{kind:?}, step {steps}: {cached:?}");
            }
            came
        });
        assert!(steps > refused.get() && refused.get() > 0, "{kind:?}");
    }
}

/// Its capability stays where it is.
#[test]
fn an_object_that_is_given_up_while_it_is_cached_is_gone() {
    let refused = Cell::new(0);
    let steps = at_each_step(|rig, steps| {
        let user = rig.user().unwrap();
        let cap = rig.put(CapType::Frame, Rights::ALL, Some(user), [0, 1, 0]);
        let cap = cap.unwrap();
        let k = rig.k;
        let gives_up = move || give_up(&k, user);
        let came = crash::between(steps, gives_up, || {
            if rig.sys(cap, INTROSPECT, &[]).is_err() {
                refused.set(refused.get() + 1);
            }
        });
        if came {
            let is = rig.sys(cap, INTROSPECT, &[]);
            assert_eq!(is, Err(Error::Revoked), "step {steps}");
        }
        came
    });
    assert!(steps > refused.get() && refused.get() > 0);
}

fn give_up(k: &KernelCtx, frame: WeakRef) {
    to_untyped(k, frame.frame).unwrap();
}

#[test]
fn a_capability_that_comes_while_its_slot_is_cached_as_empty_is_there() {
    let refused = Cell::new(0);
    let steps = at_each_step(|rig, steps| {
        let object = rig.object(ObjectKind::Time).unwrap();
        let cap = rig.free_slot();
        let place = SlotPlace::new(rig.leaf, cap.get()).unwrap();
        let contents = Contents {
            ty: CapType::Time,
            rights: Rights::ALL,
            object: Some(object),
            guard: None,
            payload: [0; 3],
        };
        let k = rig.k;
        let puts = move || {
            ops::captbl::activate(&k, place, &contents).unwrap();
        };
        let came = crash::between(steps, puts, || {
            if rig.sys(cap, INTROSPECT, &[]).is_err() {
                refused.set(refused.get() + 1);
            }
        });
        if came {
            let is = rig.sys(cap, INTROSPECT, &[]);
            assert!(is.is_ok(), "{is:?}, step {steps}");
        }
        came
    });
    assert!(steps > 0 && refused.get() > 0);
}

/// The count of changes is read before the regions are.
#[test]
fn a_region_that_comes_while_its_place_is_cached_as_empty_is_there() {
    let found = Cell::new([0; 2]);
    at_each_step(|rig, steps| {
        let (space, k) = (rig.space.bits(), rig.k);
        spaces::furnish(rig, rig.space).unwrap();
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        let look = |rig: &Rig<'_>| page::region(rig.k.local, space, VA).unwrap().2;
        let object = rig.space;
        let comes = move || {
            let region = Region::new(VA, PAGE_SIZE, kind).unwrap();
            let this = spaces::within(&k, object).unwrap();
            let id = k.node.id();
            this.space.add_region(k.words(), id, region).unwrap();
        };
        let came = crash::between(steps, comes, || {
            let mut counts = found.get();
            counts[usize::from(look(rig).is_some())] += 1;
            found.set(counts);
        });
        if came {
            let is = look(rig);
            assert_eq!(is, Some(RegionKind::Anonymous), "step {steps}");
        }
        came
    });
    assert!(found.get().iter().all(|&n| n > 0), "{found:?}");
}
