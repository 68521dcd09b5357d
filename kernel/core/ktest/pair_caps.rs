//! Pair tests of capability tables, frames and revocation: one node changes, the other looks.
//!
//! Every node has a component of its own and shows the others its objects in scratch words; each
//! works on those of the next.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::NodeId;
use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, Introspection, LivenessOp, MemoryOp, ObjectKind, Rights, TimeOp,
};
use dyad_captbl::{Contents, SlotPlace};
use dyad_retype::{FrameType, Order, Use};
use dyad_shm::frame::WeakRef;

use super::rig::{self, Rig, behind};
use super::{Outcome, Stop, TestCtx, ensure, fail, gives, ktest, remark};
use dyad_object::find;
use dyad_object::kinds;
use dyad_object::time::Budgets;

const INTROSPECT: u32 = dyad_abi::cap::INTROSPECT;
const ALL: u64 = u32::MAX as u64;

/// Shows the other nodes an object.
pub fn show(cx: &TestCtx<'_>, what: usize, object: WeakRef) {
    let word = &cx.node.sb.scratch[8 + cx.node.id().index()].words[what];
    word.store(object.bits(), Ordering::Release);
}

/// An object that a node has shown.
pub fn shown(cx: &TestCtx<'_>, what: usize, by: NodeId) -> Result<WeakRef, Stop> {
    let word = &cx.node.sb.scratch[8 + by.index()].words[what];
    Ok(WeakRef::from_bits(word.load(Ordering::Acquire)).ok_or(Error::NotFound)?)
}

/// One object of node 0 for all.
fn common(cx: &TestCtx<'_>, rig: &Rig<'_>, kind: ObjectKind) -> Result<WeakRef, Stop> {
    let first = cx.node.all().next().unwrap_or(cx.node.id());
    if cx.node.id() == first {
        show(cx, 7, rig.object(kind)?);
    }
    cx.meet()?;
    shown(cx, 7, first)
}

fn kind_of(rig: &Rig<'_>, cap: CapIndex) -> Result<CapType, Error> {
    let bits = rig.sys(cap, INTROSPECT, &[])?;
    Ok(Introspection::from_bits(bits).ok_or(Error::Corrupt)?.kind)
}

#[ktest(pair)]
fn slots_filled_by_the_other_node_are_used_here(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let at = CapIndex(40);
    show(cx, 0, rig.root);
    cx.meet()?;
    gives!(kind_of(rig, at), Err(Error::NoCap));
    cx.meet()?;
    let theirs = shown(cx, 0, cx.next())?;
    let table = rig.cap(ObjectKind::CaptblRoot, theirs, Rights::ALL)?;
    let (time, _) = rig.new_cap(ObjectKind::Time)?;
    let copied = rig.sys(
        table,
        CaptblOp::CopyIn as u32,
        &[40, time.get() as u64, ALL],
    );
    gives!(copied, Ok(0));
    cx.meet()?;
    gives!(kind_of(rig, at), Ok(CapType::Time));
    cx.meet()?;
    let gone = rig.sys(table, CaptblOp::Deactivate as u32, &[40]);
    ensure!(gone.is_ok(), "not deactivated: {gone:?}");
    cx.meet()?;
    gives!(kind_of(rig, at), Err(Error::NoCap));
    cx.meet()?;
    Ok(None)
}

#[ktest(pair)]
fn leaves_hung_in_by_the_other_node_are_used_here(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let at = CapIndex(9 * 64 + 5);
    show(cx, 0, rig.root);
    cx.meet()?;
    let theirs = shown(cx, 0, cx.next())?;
    let table = rig.cap(ObjectKind::CaptblRoot, theirs, Rights::ALL)?;
    let (leaf, object) = rig.new_cap(ObjectKind::CaptblLeaf)?;
    let place = SlotPlace::new(object, 5).ok_or(Error::BadArgument)?;
    let contents = Contents {
        ty: CapType::Captbl,
        rights: Rights::ALL,
        object: Some(object),
        guard: None,
        payload: [0; 3],
    };
    crate::syscall::ops::captbl::activate(&rig.k, place, &contents)?;
    let hung = rig.sys(table, CaptblOp::Cons as u32, &[9, leaf.get() as u64]);
    gives!(hung, Ok(0));
    cx.meet()?;
    gives!(kind_of(rig, at), Ok(CapType::Captbl));
    cx.meet()?;
    let out = rig.sys(table, CaptblOp::Decons as u32, &[9]);
    ensure!(out.is_ok(), "not taken out: {out:?}");
    cx.meet()?;
    gives!(kind_of(rig, at), Err(Error::NoCap));
    cx.meet()?;
    Ok(None)
}

#[ktest(pair)]
fn revocation_by_the_other_node_counts_here_at_once(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let live = rig.object(ObjectKind::Liveness)?;
    show(cx, 0, live);
    let (_, time) = rig.new_cap(ObjectKind::Time)?;
    let guard = rig.k.captbls().expected(live, 3).map_err(Error::from)?;
    let all = Rights::ALL;
    let put = |g| rig.put_guarded(CapType::Time, all, Some(time), [0, 64, 0], g);
    let (guarded, free) = (put(Some(guard))?, put(None)?);
    gives!(kind_of(rig, guarded), Ok(CapType::Time));
    cx.meet()?;
    let theirs = shown(cx, 0, cx.next())?;
    let cap = rig.cap(ObjectKind::Liveness, theirs, Rights::ALL)?;
    let revoked = rig.sys(cap, LivenessOp::Revoke as u32, &[3]);
    ensure!(revoked.is_ok(), "not revoked: {revoked:?}");
    cx.meet()?;
    gives!(kind_of(rig, guarded), Err(Error::Revoked));
    gives!(kind_of(rig, free), Ok(CapType::Time));
    cx.meet()?;
    Ok(None)
}

#[ktest(pair)]
fn objects_given_up_by_the_other_node_are_dead_here(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (time, object) = rig.new_cap(ObjectKind::Time)?;
    show(cx, 0, object);
    gives!(kind_of(rig, time), Ok(CapType::Time));
    cx.meet()?;
    let theirs = shown(cx, 0, cx.next())?;
    // Frames of any pool, by the authority over them.
    let m = rig.memory(theirs.frame, 1, Rights::ALL)?;
    let up = rig.sys(m, MemoryOp::RetypeUntyped as u32, &[0]);
    ensure!(up.is_ok(), "not given up: {up:?}");
    cx.meet()?;
    gives!(kind_of(rig, time), Err(Error::Revoked));
    cx.meet()?;
    Ok(None)
}

#[ktest(pair)]
fn frames_given_up_are_used_again_after_rounds_of_all_nodes(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let object = rig.object(ObjectKind::Time)?;
    let m = rig.memory(object.frame, 1, Rights::ALL)?;
    cx.meet()?;
    let stamp = rig.sys(m, MemoryOp::RetypeUntyped as u32, &[0])?;
    let stamp = dyad_shm::frame::Epoch::new(stamp).ok_or(Error::Corrupt)?;
    let take = || rig.sys(m, MemoryOp::RetypeKernel as u32, &[0, 14]);
    let quiet = || cx.node.tables.quiesced(stamp);
    // One node after the other; no frame is reused before the last.
    for n in cx.node.all() {
        cx.meet()?;
        ensure!(!quiet(), "quiesced before node {n} has made a round");
        gives!(take(), Err(Error::Again));
        cx.meet()?;
        if n == cx.node.id() {
            rig.round()?;
        }
    }
    cx.meet()?;
    ensure!(quiet(), "not quiesced after rounds of all nodes");
    gives!(take(), Ok(0));
    cx.meet()?;
    Ok(None)
}

#[ktest(pair)]
fn slots_given_up_are_filled_again_after_rounds_of_all_nodes(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let table = rig.table()?;
    let (time, _) = rig.new_cap(ObjectKind::Time)?;
    let (old, _) = rig.new_cap(ObjectKind::Endpoints)?;
    let args = [old.get() as u64, time.get() as u64, ALL];
    let fill = || rig.sys(table, CaptblOp::CopyIn as u32, &args);
    cx.meet()?;
    rig.sys(table, CaptblOp::Deactivate as u32, &args[..1])?;
    gives!(fill(), Err(Error::Again));
    rig.round()?;
    cx.meet()?;
    rig.round()?;
    cx.meet()?;
    gives!(fill(), Ok(0));
    gives!(kind_of(rig, old), Ok(CapType::Time));
    cx.meet()?;
    Ok(None)
}

/// Adds this node's count to a word; when all have, their sum is in it.
fn sum(cx: &TestCtx<'_>, line: usize, mine: u64) -> Result<u64, Stop> {
    cx.word(line).fetch_add(mine, Ordering::AcqRel);
    cx.meet()?;
    Ok(cx.word(line).load(Ordering::Acquire))
}

#[ktest(pair)]
fn one_node_wins_each_frame_that_all_want(cx: &TestCtx<'_>) -> Outcome {
    const FRAMES: u64 = 64;
    rig::with(cx, |rig| {
        let first = cx.node.all().next().unwrap_or(cx.node.id());
        let order = Order::new(6).ok_or(Error::BadArgument)?;
        if cx.node.id() == first {
            show(cx, 0, rig.take(order, None)?);
        }
        cx.meet()?;
        let block = shown(cx, 0, first)?.frame;
        let m = rig.memory(block, FRAMES, Rights::ALL)?;
        cx.meet()?;
        let (mut won, mut lost) = (0, 0);
        for at in 0..FRAMES {
            loop {
                match rig.sys(m, MemoryOp::RetypeKernel as u32, &[at, 15]) {
                    Ok(_) => won += 1,
                    Err(Error::Exists) => lost += 1,
                    // Another node is splitting the block, or takes it.
                    Err(Error::Again | Error::NotFound | Error::BadArgument) => continue,
                    Err(e) => return fail(format_args!("frame {at}: {e}")),
                }
                break;
            }
        }
        let all = sum(cx, 0, won)?;
        ensure!(all == FRAMES, "{all} of {FRAMES} frames were won");
        ensure!(won + lost == FRAMES, "{won} won, {lost} lost");
        for at in 0..FRAMES {
            let ty = rig.k.frames().read(behind(block, at)?)?.0.ty;
            let kind = kinds::of(ObjectKind::Liveness).kernel;
            ensure!(ty == FrameType::Kernel(kind), "frame {at} is {ty:?}");
        }
        cx.meet()?;
        // The rig knows of the first only.
        if cx.node.id() == first {
            for at in 1..FRAMES {
                rig.sys(m, MemoryOp::RetypeUntyped as u32, &[at])?;
            }
        }
        cx.meet()?;
        remark!("{won} won here")
    })
}

#[ktest(pair)]
fn one_node_wins_each_slot_that_all_want(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let leaf = common(cx, rig, ObjectKind::CaptblLeaf)?;
    let object = rig.object(ObjectKind::Time)?;
    let me = cx.node.id().index() as u64;
    cx.meet()?;
    let mut won = 0;
    for i in 1..64 {
        let contents = Contents {
            ty: CapType::Time,
            rights: Rights(0x4000_0000 + me as u32),
            object: Some(object),
            guard: None,
            payload: [me, 1, 0],
        };
        let place = SlotPlace::new(leaf, i).ok_or(Error::BadArgument)?;
        match crate::syscall::ops::captbl::activate(&rig.k, place, &contents) {
            Ok(()) => won += 1,
            Err(Error::Exists | Error::Again) => {}
            Err(e) => return fail(format_args!("slot {i}: {e}")),
        }
        // Whichever node has filled it: all of it is there, and of one node.
        let found = rig.k.captbls().found(place.address());
        let Ok(found) = found else { continue };
        let c = rig.k.captbls().contents(&found).map_err(Error::from)?;
        let of = c.rights.0 as u64 & 0xff;
        ensure!(
            of == c.payload[0],
            "slot {i}: rights of {of}, payload {:?}",
            c.payload
        );
    }
    let all = sum(cx, 0, won)?;
    ensure!(all == 63, "{all} of 63 slots were won");
    cx.meet()?;
    remark!("{won} won here")
}

/// Node 0 hangs a leaf in and out, entry by entry; the others look all the time and see nothing or
/// the capability, never anything else.
#[ktest(pair)]
fn lookups_beside_cons_and_decons_see_all_or_nothing(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let first = cx.node.all().next().unwrap_or(cx.node.id());
    let root = common(cx, rig, ObjectKind::CaptblRoot)?;
    if cx.node.id() == first {
        let (leaf, object) = rig.new_cap(ObjectKind::CaptblLeaf)?;
        let time = rig.object(ObjectKind::Time)?;
        show(cx, 1, time);
        let place = SlotPlace::new(object, 1).ok_or(Error::BadArgument)?;
        let contents = Contents {
            ty: CapType::Time,
            rights: Rights(0x4000_0001),
            object: Some(time),
            guard: None,
            payload: [0, 64, 0],
        };
        crate::syscall::ops::captbl::activate(&rig.k, place, &contents)?;
        let table = rig.cap(ObjectKind::CaptblRoot, root, Rights::ALL)?;
        cx.meet()?;
        for at in 0..256u64 {
            rig.sys(table, CaptblOp::Cons as u32, &[at, leaf.get() as u64])?;
            cx.machine.relax();
            rig.sys(table, CaptblOp::Decons as u32, &[at])?;
        }
        cx.word(0).store(1, Ordering::Release);
        cx.meet()?;
        return Ok(None);
    }
    cx.meet()?;
    let time = shown(cx, 1, first)?;
    let (mut seen, mut looks) = (0u64, 0u64);
    let start = cx.machine.clock_ns();
    while cx.word(0).load(Ordering::Acquire) == 0 {
        for at in 0..256 {
            looks += 1;
            let index = CapIndex(at * 64 + 1);
            let Ok(found) = rig.k.captbls().lookup(root.frame.address(), index) else {
                continue;
            };
            let c = rig.k.captbls().contents(&found).map_err(Error::from)?;
            let whole =
                (c.ty, c.rights, c.object) == (CapType::Time, Rights(0x4000_0001), Some(time));
            ensure!(whole, "entry {at}: {c:?}");
            seen += 1;
        }
        let late = cx.machine.clock_ns().wrapping_sub(start) > 20_000_000_000;
        ensure!(!late, "node 0 is stuck");
    }
    cx.meet()?;
    remark!("{seen} of {looks} looks found it")
}

#[ktest(pair)]
fn references_counted_by_all_nodes_are_exact(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let object = common(cx, rig, ObjectKind::CaptblLeaf)?;
    let kind = kinds::of(ObjectKind::CaptblLeaf).kernel;
    cx.meet()?;
    for _ in 0..5_000 {
        rig.k.frames().pin_kernel(object, kind)?;
        let up = crate::syscall::ops::memory::to_untyped(&rig.k, object.frame);
        ensure!(
            up == Err(Error::Exists) || up == Err(Error::Again),
            "{up:?}"
        );
        rig.k.frames().unpin(object.frame)?;
    }
    cx.meet()?;
    let refs = rig.k.frames().read(object.frame)?.0.refs.get();
    ensure!(refs == 0, "{refs} references are left");
    cx.meet()?;
    Ok(None)
}

#[ktest(pair)]
fn revocations_by_all_nodes_are_all_counted(cx: &TestCtx<'_>) -> Outcome {
    const TIMES: u64 = 2_000;
    rig::with(cx, |rig| {
        let live = common(cx, rig, ObjectKind::Liveness)?;
        let cap = rig.cap(ObjectKind::Liveness, live, Rights::ALL)?;
        cx.meet()?;
        for _ in 0..TIMES {
            rig.sys(cap, LivenessOp::Revoke as u32, &[11])?;
        }
        cx.meet()?;
        let count = cx.node.map.word(live.frame.address().add(8 * 11));
        let count = count.load(Ordering::Acquire);
        let want = TIMES * cx.node.params.node_count as u64;
        ensure!(count == want, "{count} revocations instead of {want}");
        cx.meet()?;
        Ok(None)
    })
}

#[ktest(pair)]
fn time_moved_by_all_nodes_is_neither_made_nor_lost(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let time = common(cx, rig, ObjectKind::Time)?;
    let budgets: &'static Budgets = find(cx.node, time, Budgets::KIND)?;
    for b in &budgets.left[..4] {
        // All nodes do.
        cx.node.words.replace(b, 1_000);
    }
    let mut caps = [CapIndex::NONE; 4];
    for (i, c) in caps.iter_mut().enumerate() {
        *c = rig.put(CapType::Time, Rights::ALL, Some(time), [i as u64, 1, 0])?;
    }
    cx.meet()?;
    let mut seed = 7 + cx.node.id().index() as u64;
    let (mut done, mut refused) = (0, 0);
    for _ in 0..3_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (from, to) = (
            caps[(seed >> 60) as usize % 4],
            caps[(seed >> 50) as usize % 4],
        );
        let args = [to.get() as u64, seed >> 20 & 0x1ff];
        match rig.sys(from, TimeOp::Transfer as u32, &args) {
            Ok(_) => done += 1,
            Err(Error::NoTime | Error::Again) => refused += 1,
            Err(e) => return Err(e.into()),
        }
    }
    cx.meet()?;
    let all: u64 = budgets.left[..4]
        .iter()
        .map(|b| cx.node.words.read(b))
        .sum();
    ensure!(all == 4_000, "{all} ns instead of 4000");
    cx.meet()?;
    remark!("{done} done, {refused} refused")
}

/// A block of user memory that all split and merge at once stays whole.
#[ktest(pair)]
fn splits_and_merges_by_all_nodes_keep_the_block_whole(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let first = cx.node.all().next().unwrap_or(cx.node.id());
    let order = Order::new(5).ok_or(Error::BadArgument)?;
    if cx.node.id() == first {
        show(cx, 0, rig.take(order, None)?);
    }
    cx.meet()?;
    let block = shown(cx, 0, first)?.frame;
    let m = rig.memory(block, order.frames(), Rights::ALL)?;
    cx.meet()?;
    let mut seed = 11 + cx.node.id().index() as u64;
    let mut done = 0;
    for _ in 0..3_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let op = [MemoryOp::Split, MemoryOp::Merge][(seed >> 63) as usize];
        done += rig.sys(m, op as u32, &[seed >> 40 & 31]).is_ok() as u64;
    }
    cx.meet()?;
    // Heads lie one behind the other, each untyped.
    let mut at = 0;
    while at < order.frames() {
        let (word, _) = rig.k.frames().read(behind(block, at)?)?;
        let FrameType::Untyped(has) = word.ty else {
            return fail(format_args!("frame {at} is {:?}", word.ty));
        };
        for tail in 1..has.frames() {
            let ty = rig.k.frames().read(behind(block, at + tail)?)?.0.ty;
            let is_tail = matches!(ty, FrameType::Tail(_));
            ensure!(is_tail, "frame {} is {ty:?}", at + tail);
        }
        at += has.frames();
    }
    ensure!(at == order.frames(), "blocks end at {at}");
    cx.meet()?;
    remark!("{done} done here")
}

#[ktest(pair)]
fn user_memory_of_other_pools_is_seen_when_retyped_there(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let user = rig.take(Order::FRAME, Some(Use::User))?;
    show(cx, 0, user);
    cx.meet()?;
    let theirs = shown(cx, 0, cx.next())?;
    let cap = rig.put(CapType::Frame, Rights::ALL, Some(theirs), [0, 1, 0])?;
    gives!(kind_of(rig, cap), Ok(CapType::Frame));
    // What no node has written is zero on all nodes.
    let word = cx.node.map.word(theirs.frame.address());
    gives!(word.load(Ordering::Acquire), 0);
    cx.meet()?;
    crate::syscall::ops::memory::to_untyped(&rig.k, user.frame)?;
    cx.meet()?;
    gives!(kind_of(rig, cap), Err(Error::Revoked));
    cx.meet()?;
    Ok(None)
}
