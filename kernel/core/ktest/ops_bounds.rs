//! Operations at the bounds of what they may reach, and next to what a CPU has cached: the capability cache is found by a
//! few bits of an address or an index, and each of two things with the same bits is itself.
//!
//! | cached | found by | two with the same bits |
//! |---|---|---|
//! | page table, region | address | 32 MiB apart, or in two spaces |
//! | block | physical address | 32 MiB apart |
//! | leaf of a capability table | index | 1,024 apart, or in two tables |
//! | capability | index | 64 apart |

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, FrameOp, LEAF_SLOTS, LivenessOp, MAP_EXECUTE, MAP_WRITE, MemoryOp,
    ObjectKind, RegionKind, Rights, SpaceOp, TableAt,
};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_captbl::{Contents, SlotPlace};
use dyad_pgtbl::Perms;
use dyad_retype::{Order, Use};
use dyad_shm::PhysAddr;
use dyad_shm::frame::WeakRef;

use super::rig::{self, Rig, behind};
use super::{Outcome, Stop, TestCtx, ensure, gives, ktest, spaces};
use dyad_machine::platform::FaultKind;
use dyad_space::mapping::page;

const VA: u64 = 0x5000_0000;
/// How far two addresses are apart whose tables and regions are cached at one place.
const APART: u64 = 32 << 20;
/// How far two indices are apart whose leaves are cached at one place.
const LEAVES_APART: u32 = 1024;
const MAP: u32 = SpaceOp::Map as u32;
const UNMAP: u32 = SpaceOp::Unmap as u32;
const ALL: u64 = u32::MAX as u64;

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

fn level_1(isa: Isa) -> u64 {
    TableAt { isa, level: 1 }.bits()
}

/// Gives a space tables down to the 512 pages around `va`, of which the last is mapped.
fn tables(rig: &Rig<'_>, space: WeakRef, isa: Isa, va: u64) -> Result<(), Stop> {
    let frame = rig.user()?;
    let va = va | (511 * PAGE_SIZE);
    spaces::map(
        rig,
        space,
        isa,
        va,
        page(frame.frame.address(), Perms::READ),
    )?;
    Ok(())
}

/// Where a page of a space's table of an ISA is.
fn shown(rig: &Rig<'_>, space: WeakRef, isa: Isa, va: u64) -> Option<PhysAddr> {
    spaces::look(&rig.k, space, isa, va).map(|(_, leaf)| leaf.pa)
}

#[ktest(ops)]
fn no_page_behind_those_of_a_capability_is_mapped(rig: &Rig<'_>) -> Outcome {
    spaces::furnish(rig, rig.space)?;
    let isa = rig.cx.machine.isa();
    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    let block = rig.take(Order::new(2).ok_or(Error::Corrupt)?, Some(Use::User))?;
    // The second and the third page of four.
    let part = rig.put(CapType::Frame, Rights::ALL, Some(block), [1, 2, 0])?;
    tables(rig, rig.space, isa, VA)?;
    let map = |i: u64, first: u64| {
        let a = [level_1(isa), VA + i * PAGE_SIZE, n(part), first, MAP_WRITE];
        rig.sys(space, MAP, &a)
    };
    // The first calls come by the slow path, the others by what is cached.
    for (i, time) in [(0, "first"), (2, "second"), (4, "third")] {
        gives!((time, map(i, 0)), (time, Ok(0)));
        gives!((time, map(i + 1, 1)), (time, Ok(0)));
        for first in [2, 3, u64::MAX, u64::MAX - 1] {
            gives!((first, map(6, first)), (first, Err(Error::BadArgument)));
        }
        for (at, page) in [(i, 1), (i + 1, 2)] {
            let there = shown(rig, rig.space, isa, VA + at * PAGE_SIZE);
            gives!(there, Some(behind(block.frame, page)?.address()));
        }
    }
    Ok(None)
}

/// The fast path is for pages of 4 KiB: what is asked for at another level is not one.
#[ktest(ops)]
fn pages_at_other_levels_are_not_those_of_the_last(rig: &Rig<'_>) -> Outcome {
    spaces::furnish(rig, rig.space)?;
    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    let user = rig.user()?;
    let frame = rig.put(CapType::Frame, Rights::ALL, Some(user), [0, 1, 0])?;
    for isa in rig.cx.node.isas() {
        tables(rig, rig.space, isa, VA)?;
        for time in 0..3 {
            let va = VA + time * PAGE_SIZE;
            let at = |level| TableAt { isa, level }.bits();
            let map = |level, va| rig.sys(space, MAP, &[at(level), va, n(frame), 0, MAP_WRITE]);
            gives!((isa, map(1, va)), (isa, Ok(0)));
            for level in [2, 3, 4] {
                let behind = VA + 16 * PAGE_SIZE;
                gives!(
                    (isa, level, map(level, behind).is_ok()),
                    (isa, level, false)
                );
                gives!((isa, level, map(level, VA).is_ok()), (isa, level, false));
                ensure!(shown(rig, rig.space, isa, behind).is_none(), "a page");
            }
        }
    }
    Ok(None)
}

#[ktest(ops)]
fn no_frame_behind_those_of_a_capability_is_retyped(rig: &Rig<'_>) -> Outcome {
    let four = rig.take(Order::new(2).ok_or(Error::Corrupt)?, None)?.frame;
    for block in [four, four, behind(four, 2)?] {
        rig.k.frames().split(block, &rig.k.intents())?;
    }
    let two = rig.memory(behind(four, 1)?, 2, Rights::ALL)?;
    let (user, untyped) = (MemoryOp::RetypeUser as u32, MemoryOp::RetypeUntyped as u32);
    for time in 0..3 {
        for at in [2, 3, u64::MAX] {
            gives!(
                (time, rig.sys(two, user, &[at, 0])),
                (time, Err(Error::BadArgument))
            );
            gives!(
                (time, rig.sys(two, untyped, &[at])),
                (time, Err(Error::BadArgument))
            );
        }
    }
    for at in 0..2 {
        gives!(rig.sys(two, user, &[at, 0]), Ok(0));
    }
    for (at, is_used) in [(0, false), (1, true), (2, true), (3, false)] {
        let (word, _) = rig.k.frames().read(behind(four, at)?)?;
        gives!((at, word.ty.in_use().is_some()), (at, is_used));
    }
    for at in 0..2 {
        let up = rig.sys(two, untyped, &[at]);
        ensure!(up.is_ok(), "frame {at} stays: {up:?}");
    }
    Ok(None)
}

#[ktest(ops)]
fn pages_32_mib_apart_are_each_in_their_own_table(rig: &Rig<'_>) -> Outcome {
    let isa = rig.cx.machine.isa();
    spaces::furnish(rig, rig.space)?;
    let other = spaces::create(rig)?;
    let places = [(rig.space, VA), (rig.space, VA + APART), (other, VA)];
    let cap = |space| rig.cap(ObjectKind::Space, space, Rights::ALL);
    let caps = [cap(rig.space)?, cap(rig.space)?, cap(other)?];
    for (space, va) in places {
        tables(rig, space, isa, va)?;
    }
    let user = [rig.user()?, rig.user()?, rig.user()?];
    let frame = |u: WeakRef| rig.put(CapType::Frame, Rights::ALL, Some(u), [0, 1, 0]);
    let frames = [frame(user[0])?, frame(user[1])?, frame(user[2])?];
    for time in 0..3 {
        let at = |va: u64| va + time * PAGE_SIZE;
        for i in 0..3 {
            let a = [level_1(isa), at(places[i].1), n(frames[i]), 0, MAP_WRITE];
            gives!((time, rig.sys(caps[i], MAP, &a)), (time, Ok(0)));
        }
        for i in 0..3 {
            let there = shown(rig, places[i].0, isa, at(places[i].1));
            gives!((i, there), (i, Some(user[i].frame.address())));
        }
    }
    for time in 0..3 {
        let at = |va: u64| va + time * PAGE_SIZE;
        for gone in 0..3 {
            let up = rig.sys(caps[gone], UNMAP, &[level_1(isa), at(places[gone].1)]);
            ensure!(up.is_ok(), "page {gone} stays: {up:?}");
            for (i, (space, va)) in places.into_iter().enumerate() {
                let there = shown(rig, space, isa, at(va));
                gives!((gone, i, there.is_some()), (gone, i, i > gone));
            }
        }
    }
    Ok(None)
}

#[ktest(ops)]
fn regions_32_mib_apart_are_each_themselves(rig: &Rig<'_>) -> Outcome {
    let isa = rig.cx.machine.isa();
    spaces::furnish(rig, rig.space)?;
    let other = spaces::create(rig)?;
    let kind = RegionKind::Anonymous as u64 | 1 << 8;
    spaces::region(&rig.k, rig.space, VA, 8 * PAGE_SIZE, kind)?;
    spaces::region(&rig.k, other, VA + APART, 8 * PAGE_SIZE, kind)?;
    for i in 0..4 {
        for (space, va, fits) in [
            (rig.space, VA, true),
            (rig.space, VA + APART, false),
            (other, VA, false),
            (other, VA + APART, true),
        ] {
            rig.k.local.space.set(space.bits());
            let fault = || {
                rig.cx
                    .machine
                    .fault_at(va + i * PAGE_SIZE, FaultKind::Write)
            };
            // A fault that pays for tables comes again.
            let done = (0..8).map(|_| fault()).find(|d| *d != Err(Error::Again));
            let done = done.ok_or(Error::Again)?;
            gives!((va, fits, done.is_ok()), (va, fits, fits));
            let there = shown(rig, space, isa, va + i * PAGE_SIZE);
            gives!((va, there.is_some()), (va, fits));
        }
    }
    rig.k.local.space.set(rig.space.bits());
    Ok(None)
}

#[ktest(ops)]
fn indices_1024_apart_are_each_a_slot_of_their_own(rig: &Rig<'_>) -> Outcome {
    let (_, other, _) = rig.other_component()?;
    let far = rig.object(ObjectKind::CaptblLeaf)?;
    rig.hang(LEAVES_APART / LEAF_SLOTS + 1, far)?;
    let near = rig.object(ObjectKind::CaptblLeaf)?;
    let k = &rig.k;
    k.captbls()
        .cons(other, 1, near, k, k)
        .map_err(Error::from)?;
    let tables = [
        rig.table()?,
        rig.cap(ObjectKind::CaptblRoot, other, Rights::ALL)?,
    ];
    let mine = rig.object(ObjectKind::CaptblLeaf)?;
    rig.hang(1, mine)?;
    let time = rig.object(ObjectKind::Time)?;
    let source = rig.cap(ObjectKind::Time, time, Rights::ALL)?;
    // A leaf of the rig's table, the one 1,024 indices behind it, and that of another table.
    let slots = [
        (tables[0], LEAF_SLOTS, mine),
        (tables[0], LEAF_SLOTS + LEAVES_APART, far),
        (tables[1], LEAF_SLOTS, near),
    ];
    for i in 0..4 {
        for (which, (table, first, _)) in slots.into_iter().enumerate() {
            let a = [(first + i) as u64, n(source), ALL];
            gives!(rig.sys(table, CaptblOp::CopyIn as u32, &a), Ok(0));
            for (later, (_, _, leaf)) in slots.into_iter().enumerate() {
                let is_there = holds(rig, leaf, i)?;
                gives!((which, later, is_there), (which, later, later <= which));
            }
        }
    }
    for i in 0..4 {
        for (which, (table, first, _)) in slots.into_iter().enumerate() {
            let up = rig.sys(table, CaptblOp::Deactivate as u32, &[(first + i) as u64]);
            ensure!(up.is_ok(), "slot {i} stays: {up:?}");
            for (later, (_, _, leaf)) in slots.into_iter().enumerate() {
                let is_there = holds(rig, leaf, i)?;
                gives!((which, later, is_there), (which, later, later > which));
            }
        }
    }
    Ok(None)
}

/// The fast path of giving up does not look into objects: those that have to be looked into do not go by it.
#[ktest(ops)]
fn threads_that_run_are_not_given_up_by_cached_capabilities(rig: &Rig<'_>) -> Outcome {
    let (memory, frame) = rig.raw()?;
    let make = [0, ObjectKind::Thread as u64];
    gives!(rig.sys(memory, MemoryOp::RetypeKernel as u32, &make), Ok(0));
    let thread = rig.as_thread(rig.k.frames().current(frame)?)?;
    let running = rig.as_thread(rig.thread)?.owner.load(Ordering::Relaxed);
    thread.owner.store(running, Ordering::Relaxed);
    for _ in 0..3 {
        let up = rig.sys(memory, MemoryOp::RetypeUntyped as u32, &[0]);
        ensure!(up.is_err(), "it is given up: {up:?}");
    }
    thread.owner.store(0, Ordering::Relaxed);
    let up = rig.sys(memory, MemoryOp::RetypeUntyped as u32, &[0]);
    ensure!(up.is_ok(), "it stays: {up:?}");
    Ok(None)
}

#[ktest(ops)]
fn the_first_leaf_is_not_the_one_1024_indices_behind_it(rig: &Rig<'_>) -> Outcome {
    let far = rig.object(ObjectKind::CaptblLeaf)?;
    rig.hang(LEAVES_APART / LEAF_SLOTS, far)?;
    let table = rig.table()?;
    let time = rig.object(ObjectKind::Time)?;
    let source = rig.cap(ObjectKind::Time, time, Rights::ALL)?;
    for _ in 0..3 {
        let at = rig.free_slot().get();
        for index in [at, LEAVES_APART + at] {
            let a = [index as u64, n(source), ALL];
            gives!(rig.sys(table, CaptblOp::CopyIn as u32, &a), Ok(0));
        }
        let up = rig.sys(table, CaptblOp::Deactivate as u32, &[at as u64]);
        ensure!(up.is_ok(), "slot {at} stays: {up:?}");
        gives!(
            (holds(rig, far, at)?, holds(rig, rig.leaf, at)?),
            (true, false)
        );
    }
    Ok(None)
}

/// Whether a slot of a leaf has a capability.
fn holds(rig: &Rig<'_>, leaf: WeakRef, at: u32) -> Result<bool, Stop> {
    let place = SlotPlace::new(leaf, at).ok_or(Error::BadArgument)?;
    let found = rig.k.captbls().found(place.address());
    Ok(found.is_ok())
}

#[ktest(ops)]
fn capabilities_64_apart_are_each_themselves(rig: &Rig<'_>) -> Outcome {
    let leaf = rig.object(ObjectKind::CaptblLeaf)?;
    rig.hang(1, leaf)?;
    let objects = [
        rig.object(ObjectKind::Liveness)?,
        rig.object(ObjectKind::Liveness)?,
    ];
    let revoke = LivenessOp::Revoke as u32;
    let near = rig.cap(ObjectKind::Liveness, objects[0], Rights::ALL)?;
    let far = CapIndex(near.get() + LEAF_SLOTS);
    let (_, payload) = dyad_object::kinds::of(ObjectKind::Liveness).capability();
    let contents = Contents {
        ty: CapType::Liveness,
        rights: Rights::ALL,
        object: Some(objects[1]),
        guard: None,
        payload,
    };
    let place = SlotPlace::new(leaf, near.get()).ok_or(Error::BadArgument)?;
    crate::syscall::ops::captbl::activate(&rig.k, place, &contents)?;
    let count = |o: WeakRef| rig.cx.node.map.word(o.frame.address().add(8));
    for time in 1..5 {
        for (which, cap) in [near, far].into_iter().enumerate() {
            let done = rig.sys(cap, revoke, &[1]);
            ensure!(done.is_ok(), "not revoked: {done:?}");
            let counts = objects.map(|o| count(o).load(Ordering::Relaxed));
            gives!(counts, [time, time - 1 + which as u64]);
        }
    }
    // Entries that the capability is not for.
    let entries = payload[1];
    for index in [entries, entries + 1, u64::MAX] {
        gives!(
            (index, rig.sys(near, revoke, &[index]).is_ok()),
            (index, false)
        );
    }
    Ok(None)
}

#[ktest(ops)]
fn executable_pages_are_not_shown_to_the_other_isa(cx: &TestCtx<'_>) -> Outcome {
    let isa = cx.machine.isa();
    let Some(other) = cx.node.isas().find(|&i| i != isa) else {
        return Ok(None);
    };
    rig::with(cx, |rig| {
        spaces::furnish(rig, rig.space)?;
        let kind = RegionKind::Shared as u64 | 1 << 8;
        spaces::region(&rig.k, rig.space, VA, 8 * PAGE_SIZE, kind)?;
        tables(rig, rig.space, isa, VA)?;
        let user = [rig.user()?, rig.user()?];
        for (i, perms) in [(0, Perms::WRITE), (1, Perms::EXECUTE)] {
            let leaf = page(user[i as usize].frame.address(), perms);
            spaces::map(rig, rig.space, other, VA + i * PAGE_SIZE, leaf)?;
        }
        let fault = |i: u64, kind| cx.machine.fault_at(VA + i * PAGE_SIZE, kind);
        // By what is cached, and by the slow path.
        for _ in 0..2 {
            for kind in [FaultKind::Read, FaultKind::Write, FaultKind::Execute] {
                gives!(fault(1, kind).is_ok(), false);
                ensure!(
                    shown(rig, rig.space, isa, VA + PAGE_SIZE).is_none(),
                    "it is shown"
                );
            }
            rig.k.local.cache.forget();
        }
        ensure!(
            fault(0, FaultKind::Read).is_ok(),
            "the other page is not shown"
        );
        gives!(
            shown(rig, rig.space, isa, VA),
            Some(user[0].frame.address())
        );
        Ok(None)
    })
}

#[ktest(ops)]
fn executable_pages_do_not_become_writable(rig: &Rig<'_>) -> Outcome {
    let isa = rig.cx.machine.isa();
    spaces::furnish(rig, rig.space)?;
    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    tables(rig, rig.space, isa, VA)?;
    let user = rig.user()?;
    let rights = FrameOp::Map
        .right()
        .or(Rights(1 << FrameOp::Execute as u32));
    let code = rig.put(CapType::Frame, rights, Some(user), [0, 1, 0])?;
    let all = rig.put(CapType::Frame, Rights::ALL, Some(user), [0, 1, 0])?;
    let map = |cap, how| rig.sys(space, MAP, &[level_1(isa), VA, n(cap), 0, how]);
    for _ in 0..2 {
        gives!(map(code, MAP_WRITE), Err(Error::Denied));
        gives!(map(all, MAP_WRITE | MAP_EXECUTE).is_ok(), false);
    }
    // By the row itself: for the operation other nodes might have to rewrite the code first.
    let perms = Perms::EXECUTE.union(Perms::MAY_EXECUTE);
    let leaf = page(user.frame.address(), perms);
    spaces::map(rig, rig.space, isa, VA, leaf)?;
    let protect = |how| rig.sys(space, SpaceOp::Protect as u32, &[level_1(isa), VA, how]);
    for _ in 0..2 {
        gives!(protect(MAP_WRITE).is_ok(), false);
        let (_, leaf) = spaces::look(&rig.k, rig.space, isa, VA).ok_or(Error::NotFound)?;
        gives!(leaf.perms.contains(Perms::WRITE), false);
        gives!(leaf.perms.contains(Perms::EXECUTE), true);
    }
    Ok(None)
}
