//! Operations on memory: retyping, splitting, the capabilities that come out of it.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, Counted, Introspection, LivenessOp, MemoryOp, ObjectKind, Rights,
};
use dyad_retype::{FrameType, FrameWord, Order, Use};
use dyad_shm::frame::{Epoch, FrameRef};
use dyad_shm::{PhysAddr, PoolId};

use super::rig::{self, Rig, all_but, behind, needs_its_right};
use super::{Outcome, Stop, ensure, fail, gives, ktest, remark};
use dyad_object::kinds;
use dyad_object::thread::State;

const USER: u32 = MemoryOp::RetypeUser as u32;
const KERNEL: u32 = MemoryOp::RetypeKernel as u32;
const UNTYPED: u32 = MemoryOp::RetypeUntyped as u32;
const SPLIT: u32 = MemoryOp::Split as u32;
const MERGE: u32 = MemoryOp::Merge as u32;
const ACTIVATE: u32 = MemoryOp::Activate as u32;
const INSPECT: u32 = MemoryOp::Inspect as u32;
const COUNT: u32 = MemoryOp::Count as u32;
const INTROSPECT: u32 = dyad_abi::cap::INTROSPECT;

fn order(n: u64) -> Order {
    Order::new(n).unwrap_or(Order::FRAME)
}

fn ty(rig: &Rig<'_>, frame: FrameRef) -> Result<FrameType, Stop> {
    Ok(rig.k.frames().read(frame)?.0.ty)
}

/// An untyped block and a Memory capability for it.
fn block(rig: &Rig<'_>, n: u64) -> Result<(CapIndex, FrameRef), Stop> {
    let frame = rig.take(order(n), None)?.frame;
    Ok((rig.memory(frame, order(n).frames(), Rights::ALL)?, frame))
}

/// A word for `Activate`: a slot of the rig's table.
fn slot(table: CapIndex, at: CapIndex) -> u64 {
    (table.get() as u64) << 32 | at.get() as u64
}

#[ktest(ops)]
fn retype_user_makes_a_zeroed_block_of_the_order_asked_for(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = block(rig, 3)?;
    gives!(rig.sys(m, USER, &[0, 3]), Ok(0));
    gives!(ty(rig, frame)?, FrameType::User(order(3)));
    for n in 0..8 {
        let at = behind(frame, n)?.address();
        for w in 0..512 {
            let is = rig.cx.node.map.word(at.add(w * 8)).load(Ordering::Relaxed);
            ensure!(is == 0, "word {w} of frame {n} is {is:#x}");
        }
    }
    Ok(None)
}

#[ktest(ops)]
fn retype_user_takes_a_small_block_out_of_the_middle_of_a_large_one(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = block(rig, 4)?;
    gives!(rig.sys(m, USER, &[6, 1]), Ok(0));
    let heads = [(0, 2), (4, 1), (8, 3)];
    for (at, n) in heads {
        gives!(ty(rig, behind(frame, at)?)?, FrameType::Untyped(order(n)));
    }
    gives!(ty(rig, behind(frame, 6)?)?, FrameType::User(order(1)));
    // It is given back with the block, of which the rig knows the head only.
    gives!(rig.sys(m, UNTYPED, &[6]).is_ok(), true);
    Ok(None)
}

#[ktest(ops)]
fn retype_user_refuses_blocks_beyond_the_capability(rig: &Rig<'_>) -> Outcome {
    let frame = rig.take(order(3), None)?.frame;
    let half = rig.memory(frame, 4, Rights::ALL)?;
    gives!(rig.sys(half, USER, &[0, 3]), Err(Error::BadArgument));
    gives!(rig.sys(half, USER, &[4, 0]), Err(Error::BadArgument));
    gives!(rig.sys(half, USER, &[u64::MAX, 0]), Err(Error::BadArgument));
    gives!(rig.sys(half, USER, &[0, 21]), Err(Error::BadArgument));
    gives!(rig.sys(half, USER, &[0, u64::MAX]), Err(Error::BadArgument));
    gives!(ty(rig, frame)?, FrameType::Untyped(order(3)));
    Ok(None)
}

#[ktest(ops)]
fn retype_user_refuses_blocks_that_are_not_aligned(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = block(rig, 3)?;
    gives!(rig.sys(m, USER, &[1, 1]), Err(Error::BadArgument));
    gives!(rig.sys(m, USER, &[6, 2]), Err(Error::BadArgument));
    ensure!(
        matches!(ty(rig, frame)?, FrameType::Untyped(_)),
        "the block is gone"
    );
    Ok(None)
}

#[ktest(ops)]
fn retype_refuses_what_is_in_use(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = rig.raw()?;
    gives!(
        rig.sys(m, KERNEL, &[0, ObjectKind::Endpoints as u64]),
        Ok(0)
    );
    gives!(rig.sys(m, USER, &[0, 0]), Err(Error::Exists));
    gives!(rig.sys(m, KERNEL, &[0, 0]), Err(Error::Exists));
    gives!(rig.sys(m, SPLIT, &[0]), Err(Error::BadArgument));
    let kind = kinds::of(ObjectKind::Endpoints).kernel;
    gives!(ty(rig, frame)?, FrameType::Kernel(kind));
    Ok(None)
}

#[ktest(ops)]
fn retype_kernel_makes_every_kind_of_object_and_its_capability(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    for &kind in ObjectKind::ALL {
        let (m, frame) = rig.raw()?;
        gives!(rig.sys(m, KERNEL, &[0, kind as u64]), Ok(0));
        gives!(ty(rig, frame)?, FrameType::Kernel(kinds::of(kind).kernel));
        let at = rig.free_slot();
        gives!(rig.sys(m, ACTIVATE, &[0, slot(table, at), u64::MAX]), Ok(0));
        let told = rig.sys(at, INTROSPECT, &[])?;
        let told = Introspection::from_bits(told).ok_or(Error::Corrupt)?;
        let (ty, _) = kinds::of(kind).capability();
        ensure!(told.kind == ty, "{kind:?} is a {:?}", told.kind);
        gives!(told.rights, Rights(u32::MAX));
    }
    Ok(None)
}

#[ktest(ops)]
fn retype_kernel_refuses_kinds_that_there_are_not(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = rig.raw()?;
    for kind in [ObjectKind::ALL.len() as u64, 255, u64::MAX] {
        gives!(rig.sys(m, KERNEL, &[0, kind]), Err(Error::BadArgument));
    }
    gives!(rig.sys(m, KERNEL, &[1, 0]), Err(Error::BadArgument));
    gives!(ty(rig, frame)?, FrameType::Untyped(Order::FRAME));
    Ok(None)
}

#[ktest(ops)]
fn objects_of_used_frames_are_zeroed(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = rig.raw()?;
    let word = |i: u64| rig.cx.node.map.word(frame.address().add(8 * i));
    for i in 0..512 {
        word(i).store(!i, Ordering::Relaxed);
    }
    gives!(rig.sys(m, KERNEL, &[0, ObjectKind::Liveness as u64]), Ok(0));
    for i in 0..512 {
        let is = word(i).load(Ordering::Relaxed);
        // What was written went around the frame table: it counts as never used.
        let clean = is == 0 || rig.k.frames().read(frame)?.1.epoch == Epoch::ZERO;
        ensure!(clean, "word {i} is {is:#x}");
        word(i).store(0, Ordering::Relaxed);
    }
    Ok(None)
}

#[ktest(ops)]
fn retype_untyped_kills_all_capabilities_at_once(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = rig.raw()?;
    gives!(rig.sys(m, KERNEL, &[0, ObjectKind::Liveness as u64]), Ok(0));
    let object = rig.k.frames().current(frame)?;
    let caps = [
        rig.cap(ObjectKind::Liveness, object, Rights::ALL)?,
        rig.cap(ObjectKind::Liveness, object, Rights::ALL)?,
        rig.cap(ObjectKind::Liveness, object, Rights::INTROSPECT)?,
    ];
    for c in caps {
        ensure!(rig.sys(c, INTROSPECT, &[]).is_ok(), "dead before");
    }
    let stamp = rig.sys(m, UNTYPED, &[0])?;
    ensure!(stamp != 0, "no stamp");
    for c in caps {
        gives!(rig.sys(c, INTROSPECT, &[]), Err(Error::Revoked));
    }
    let revoke = LivenessOp::Revoke as u32;
    gives!(rig.sys(caps[0], revoke, &[0]), Err(Error::Revoked));
    Ok(None)
}

#[ktest(ops)]
fn frames_given_up_are_not_used_again_before_quiescence(rig: &Rig<'_>) -> Outcome {
    let (m, _) = rig.raw()?;
    gives!(rig.sys(m, USER, &[0, 0]), Ok(0));
    ensure!(rig.sys(m, UNTYPED, &[0]).is_ok(), "not given up");
    gives!(rig.sys(m, USER, &[0, 0]), Err(Error::Again));
    gives!(rig.sys(m, KERNEL, &[0, 0]), Err(Error::Again));
    Ok(None)
}

#[ktest(ops)]
fn retype_untyped_refuses_what_is_not_in_use(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = block(rig, 1)?;
    gives!(rig.sys(m, UNTYPED, &[0]), Err(Error::BadArgument));
    gives!(rig.sys(m, UNTYPED, &[1]), Err(Error::BadArgument));
    gives!(rig.sys(m, UNTYPED, &[2]), Err(Error::BadArgument));
    gives!(ty(rig, frame)?, FrameType::Untyped(order(1)));
    Ok(None)
}

#[ktest(ops)]
fn retype_untyped_refuses_blocks_that_are_partly_others(rig: &Rig<'_>) -> Outcome {
    let block = rig.take(order(2), Some(Use::User))?;
    let part = rig.memory(block.frame, 2, Rights::ALL)?;
    gives!(rig.sys(part, UNTYPED, &[0]), Err(Error::BadArgument));
    let tail = rig.memory(behind(block.frame, 1)?, 1, Rights::ALL)?;
    gives!(rig.sys(tail, UNTYPED, &[0]), Err(Error::BadArgument));
    gives!(ty(rig, block.frame)?, FrameType::User(order(2)));
    Ok(None)
}

#[ktest(ops)]
fn retype_untyped_refuses_what_others_refer_to(rig: &Rig<'_>) -> Outcome {
    // Leaf and root hang together, the component pins root and space.
    for object in [rig.leaf, rig.root, rig.space] {
        let m = rig.memory(object.frame, 1, Rights::ALL)?;
        gives!(rig.sys(m, UNTYPED, &[0]), Err(Error::Exists));
        gives!(rig.k.frames().current(object.frame)?, object);
    }
    Ok(None)
}

#[ktest(ops)]
fn retype_untyped_refuses_threads_that_are_not_stopped(rig: &Rig<'_>) -> Outcome {
    for state in [State::Ready, State::Running, State::Transit, State::Blocked] {
        let thread = rig.thread_of(rig.component, state)?;
        let m = rig.memory(thread.frame, 1, Rights::ALL)?;
        gives!(rig.sys(m, UNTYPED, &[0]), Err(Error::NotReady));
        gives!(rig.state(thread), Some(state));
    }
    for state in [State::None, State::Stopped] {
        let thread = rig.thread_of(rig.component, state)?;
        let m = rig.memory(thread.frame, 1, Rights::ALL)?;
        ensure!(rig.sys(m, UNTYPED, &[0]).is_ok(), "{state:?} is kept");
    }
    Ok(None)
}

#[ktest(ops)]
fn retype_untyped_of_a_component_unpins_its_parts(rig: &Rig<'_>) -> Outcome {
    let (component, root, _) = rig.other_component()?;
    let refs = |w: dyad_shm::frame::WeakRef| -> Result<u32, Stop> {
        Ok(rig.k.frames().read(w.frame)?.0.refs.get())
    };
    let before = (refs(root)?, refs(rig.space)?);
    let m = rig.memory(component.frame, 1, Rights::ALL)?;
    ensure!(rig.sys(m, UNTYPED, &[0]).is_ok(), "not given up");
    gives!(
        (refs(root)?, refs(rig.space)?),
        (before.0 - 1, before.1 - 1)
    );
    Ok(None)
}

#[ktest(ops)]
fn frames_of_the_system_are_beyond_any_capability(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    for pool in [PoolId::Cxl, PoolId::Local(rig.cx.node.id())] {
        let first = FrameRef::of(pool.base()).ok_or(Error::BadArgument)?;
        // No component has such a capability; the frame table does not let it do anything.
        let m = rig.memory(first, 1, Rights::ALL)?;
        gives!(rig.sys(m, USER, &[0, 0]), Err(Error::Denied));
        gives!(rig.sys(m, KERNEL, &[0, 0]), Err(Error::Denied));
        gives!(rig.sys(m, UNTYPED, &[0]), Err(Error::Denied));
        gives!(rig.sys(m, SPLIT, &[0]), Err(Error::Denied));
        gives!(rig.sys(m, MERGE, &[0]).is_err(), true);
        let at = slot(table, rig.free_slot());
        gives!(rig.sys(m, ACTIVATE, &[0, at, 1]), Err(Error::Denied));
    }
    Ok(None)
}

#[ktest(ops)]
fn split_and_merge_are_inverse(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = block(rig, 2)?;
    gives!(rig.sys(m, SPLIT, &[0]), Ok(0));
    gives!(ty(rig, frame)?, FrameType::Untyped(order(1)));
    gives!(ty(rig, behind(frame, 2)?)?, FrameType::Untyped(order(1)));
    gives!(rig.sys(m, MERGE, &[0]), Ok(0));
    gives!(ty(rig, frame)?, FrameType::Untyped(order(2)));
    gives!(ty(rig, behind(frame, 2)?)?, FrameType::Tail(order(1)));
    Ok(None)
}

#[ktest(ops)]
fn split_and_merge_refuse_what_cannot_be(rig: &Rig<'_>) -> Outcome {
    let (one, _) = rig.raw()?;
    gives!(rig.sys(one, SPLIT, &[0]), Err(Error::BadArgument));
    gives!(rig.sys(one, MERGE, &[0]), Err(Error::BadArgument));
    gives!(rig.sys(one, SPLIT, &[1]), Err(Error::BadArgument));
    let (m, frame) = block(rig, 2)?;
    // A tail, and a part that is not the caller's.
    gives!(rig.sys(m, SPLIT, &[1]), Err(Error::BadArgument));
    gives!(rig.sys(m, SPLIT, &[0]), Ok(0));
    let part = rig.memory(frame, 3, Rights::ALL)?;
    gives!(rig.sys(part, MERGE, &[0]), Err(Error::BadArgument));
    // The neighbour is in use.
    gives!(rig.sys(m, USER, &[2, 1]), Ok(0));
    ensure!(rig.sys(m, MERGE, &[0]).is_err(), "merged with a used block");
    gives!(ty(rig, frame)?, FrameType::Untyped(order(1)));
    ensure!(rig.sys(m, UNTYPED, &[2]).is_ok(), "not given up");
    Ok(None)
}

#[ktest(ops)]
fn blocks_that_nobody_has_used_are_large_also_after_splits(rig: &Rig<'_>) -> Outcome {
    // Where no test has been: the largest aligned piece between the quarters for tests.
    let (first, frames) = rig::quarter(rig.cx, rig.cx.node.id(), 0);
    let large = 7;
    let size = order(large).frames();
    let start = (first.bits() as u64).next_multiple_of(size);
    for n in 0..frames / size - 1 {
        let at = u32::try_from(start + n * size).map_err(|_| Error::Corrupt)?;
        let frame = FrameRef::from_bits(at).ok_or(Error::Corrupt)?;
        let m = rig.memory(frame, size, Rights::ALL)?;
        let untouched = |f: FrameRef| {
            rig.k
                .frames()
                .head(f)
                .and_then(|(h, _)| rig.k.frames().read(h))
                .is_ok_and(|(w, s)| {
                    let whole = matches!(w.ty, FrameType::Untyped(o) if o > order(large));
                    whole && s.epoch == Epoch::ZERO
                })
        };
        if !untouched(frame) {
            continue;
        }
        gives!(rig.sys(m, USER, &[0, large]), Ok(0));
        ensure!(rig.sys(m, UNTYPED, &[0]).is_ok(), "not given up");
        return Ok(None);
    }
    fail(format_args!("no unused block is left"))
}

#[ktest(ops)]
fn used_blocks_larger_than_the_bound_are_not_zeroed_in_one_step(rig: &Rig<'_>) -> Outcome {
    let n = crate::syscall::ops::memory::MAX_ZEROED as u64;
    let block = rig.take(order(n + 1), Some(Use::User))?;
    let m = rig.memory(block.frame, order(n + 1).frames(), Rights::ALL)?;
    ensure!(rig.sys(m, UNTYPED, &[0]).is_ok(), "not given up");
    gives!(rig.sys(m, USER, &[0, n + 1]), Err(Error::TooLarge));
    // Just as large as the bound: only others that are not quiet yet keep it.
    let half = rig.sys(m, USER, &[0, n]);
    ensure!(matches!(half, Ok(0) | Err(Error::Again)), "{half:?}");
    Ok(None)
}

#[ktest(ops)]
fn activate_needs_a_table_that_takes_capabilities(rig: &Rig<'_>) -> Outcome {
    let (m, _) = rig.raw()?;
    gives!(rig.sys(m, USER, &[0, 0]), Ok(0));
    let at = rig.free_slot();
    let no_right = rig.cap(
        ObjectKind::CaptblRoot,
        rig.root,
        all_but(CaptblOp::Activate as u32),
    )?;
    let try_at = |table: CapIndex| rig.sys(m, ACTIVATE, &[0, slot(table, at), 1]);
    gives!(try_at(no_right), Err(Error::Denied));
    gives!(try_at(m), Err(Error::WrongCap));
    gives!(try_at(rig.free_slot()), Err(Error::NoCap));
    // There is no table without a capability for it, not even the caller's own.
    gives!(try_at(CapIndex::NONE), Err(Error::NoCap));
    gives!(rig.sys(at, INTROSPECT, &[]), Err(Error::NoCap));
    Ok(None)
}

#[ktest(ops)]
fn activate_refuses_slots_that_are_taken_or_not_there(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (m, _) = rig.raw()?;
    gives!(rig.sys(m, USER, &[0, 0]), Ok(0));
    let to = |at: u32| rig.sys(m, ACTIVATE, &[0, slot(table, CapIndex(at)), 1]);
    gives!(to(table.get()), Err(Error::Exists));
    gives!(to(64), Err(Error::NoCap));
    gives!(to(0), Err(Error::NoCap));
    gives!(to(dyad_abi::cap::TABLE_SLOTS), Err(Error::BadArgument));
    let leaf = rig.cap(ObjectKind::CaptblLeaf, rig.leaf, Rights::ALL)?;
    let into_leaf = rig.sys(m, ACTIVATE, &[0, slot(leaf, CapIndex(64)), 1]);
    gives!(into_leaf, Err(Error::BadArgument));
    Ok(None)
}

#[ktest(ops)]
fn activate_refuses_frames_without_an_object(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (m, _) = block(rig, 1)?;
    let at = slot(table, rig.free_slot());
    gives!(rig.sys(m, ACTIVATE, &[0, at, 1]), Err(Error::BadArgument));
    gives!(rig.sys(m, ACTIVATE, &[1, at, 1]), Err(Error::BadArgument));
    gives!(rig.sys(m, ACTIVATE, &[2, at, 1]), Err(Error::BadArgument));
    gives!(rig.sys(m, USER, &[0, 1]), Ok(0));
    gives!(rig.sys(m, ACTIVATE, &[1, at, 1]), Err(Error::BadArgument));
    gives!(rig.sys(m, ACTIVATE, &[0, at, 1]), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn inspect_tells_the_word_of_the_frame_table(rig: &Rig<'_>) -> Outcome {
    let (m, frame) = rig.raw()?;
    for kind in [ObjectKind::Time, ObjectKind::Component] {
        let told = rig.sys(m, INSPECT, &[0])?;
        let word = FrameWord::from_bits(told).ok_or(Error::Corrupt)?;
        gives!(word, rig.k.frames().read(frame)?.0);
        let _ = rig.sys(m, KERNEL, &[0, kind as u64]);
    }
    gives!(rig.sys(m, INSPECT, &[1]), Err(Error::BadArgument));
    Ok(None)
}

#[ktest(ops)]
fn count_tells_what_frames_are_used_for(rig: &Rig<'_>) -> Outcome {
    let (m, _) = block(rig, 3)?;
    let count = |at, frames| {
        let value = rig.sys(m, COUNT, &[at, frames])?;
        let c = Counted::from_bits(value);
        Ok::<_, Error>((c.looked, c.untyped, c.user, c.other()))
    };
    gives!(count(0, 8), Ok((8, 8, 0, 0)));
    // From the middle of a block, and not to its end.
    gives!(count(3, 2), Ok((2, 2, 0, 0)));
    gives!(count(0, 0), Err(Error::BadArgument));
    gives!(count(8, 1), Err(Error::BadArgument));
    gives!(count(u64::MAX, 2), Err(Error::BadArgument));
    gives!(rig.sys(m, USER, &[0, 1]), Ok(0));
    gives!(rig.sys(m, KERNEL, &[2, ObjectKind::Time as u64]), Ok(0));
    gives!(count(0, 8), Ok((8, 5, 2, 1)));
    gives!(count(1, 2), Ok((2, 0, 1, 1)));
    Ok(None)
}

#[ktest(ops)]
fn memory_operations_act_on_their_own_range_only(rig: &Rig<'_>) -> Outcome {
    let (a, fa) = rig.raw()?;
    let (_, fb) = rig.raw()?;
    let before = rig.k.frames().read(fb)?.0;
    gives!(rig.sys(a, USER, &[0, 0]), Ok(0));
    ensure!(rig.sys(a, UNTYPED, &[0]).is_ok(), "not given up");
    gives!(rig.k.frames().read(fb)?.0, before);
    // One behind the range, whatever it is.
    let next = behind(fa, 1)?;
    let word = rig.k.frames().read(next)?.0;
    for op in [
        USER, KERNEL, UNTYPED, SPLIT, MERGE, ACTIVATE, INSPECT, COUNT,
    ] {
        gives!(rig.sys(a, op, &[1, 0, 0]), Err(Error::BadArgument));
    }
    gives!(rig.sys(a, COUNT, &[0, 2]), Err(Error::BadArgument));
    gives!(rig.k.frames().read(next)?.0, word);
    Ok(None)
}

#[ktest(ops)]
fn memory_operations_need_their_rights(rig: &Rig<'_>) -> Outcome {
    let (_, frame) = rig.raw()?;
    let word = rig.k.frames().read(frame)?.0;
    let payload = [frame.bits() as u64, 1, 0];
    for &op in MemoryOp::ALL {
        needs_its_right(rig, (CapType::Memory, None, payload), op as u32, &[0, 0, 0])?;
    }
    let m = rig.memory(frame, 1, Rights::ALL)?;
    let its = [
        USER, KERNEL, UNTYPED, SPLIT, MERGE, ACTIVATE, INSPECT, COUNT,
    ];
    ensure!(its.len() == MemoryOp::ALL.len(), "one is missing");
    rig::has_no_other_operations(rig, m, &its)?;
    gives!(rig.k.frames().read(frame)?.0, word);
    Ok(None)
}

#[ktest(ops)]
fn ranges_that_run_over_are_no_capabilities(rig: &Rig<'_>) -> Outcome {
    let (_, frame) = rig.raw()?;
    let n = frame.bits() as u64;
    for payload in [[n, 0, 0], [n, u64::MAX, 0], [u64::MAX, 1, 0], [n, 1, 1]] {
        let m = rig.put(CapType::Memory, Rights::ALL, None, payload)?;
        gives!(rig.sys(m, USER, &[0, 0]), Err(Error::Corrupt));
    }
    let pa = PhysAddr(frame.address().0);
    remark!("{pa}")
}
