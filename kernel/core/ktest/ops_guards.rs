//! Guarded capabilities: what is made of them dies with them, and no slot keeps what they refer to. Rights of capabilities that
//! are arguments.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, ComponentOp, HardwareOp, LivenessOp, MemoryOp, ObjectKind, PageTableOp,
    ReceiveOp, Rights, SendOp, SpaceOp, TableAt, ThreadOp,
};
use dyad_abi::{Error, Isa};
use dyad_captbl::GuardRef;
use dyad_object::thread::State;
use dyad_retype::{Order, Use};
use dyad_shm::frame::WeakRef;

use super::rig::{Rig, all_but};
use super::{Outcome, Stop, ensure, gives, ktest};

const ENTRY: u64 = 0x4200_1000;
const INTROSPECT: u32 = dyad_abi::cap::INTROSPECT;

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

/// A guard, and the capability that revokes it: entry 5.
fn guard(rig: &Rig<'_>) -> Result<(GuardRef, CapIndex), Stop> {
    let (live, object) = rig.new_cap(ObjectKind::Liveness)?;
    let guard = rig.k.captbls().expected(object, 5).map_err(Error::from)?;
    Ok((guard, live))
}

/// A guarded capability with all rights, and the one that revokes its guard.
fn lent(
    rig: &Rig<'_>,
    (ty, object, payload): (CapType, Option<WeakRef>, [u64; 3]),
) -> Result<(CapIndex, CapIndex), Stop> {
    let (guard, live) = guard(rig)?;
    let cap = rig.put_guarded(ty, Rights::ALL, object, payload, Some(guard))?;
    Ok((cap, live))
}

/// Checks that a capability that has been made of a lent one ends with it.
fn dies(rig: &Rig<'_>, live: CapIndex, made: CapIndex) -> Outcome {
    gives!(rig.sys(made, INTROSPECT, &[]).is_ok(), true);
    rig.sys(live, LivenessOp::Revoke as u32, &[5])?;
    gives!(rig.sys(made, INTROSPECT, &[]), Err(Error::Revoked));
    Ok(None)
}

#[ktest(ops)]
fn sending_ends_of_a_guarded_endpoint_are_revoked_with_it(rig: &Rig<'_>) -> Outcome {
    let object = rig.object(ObjectKind::Endpoints)?;
    let (ends, live) = lent(rig, (CapType::Receive, Some(object), [0, 64, 0]))?;
    let at = rig.free_slot();
    let word = n(rig.table()?) << 32 | n(at);
    gives!(
        rig.sys(ends, ReceiveOp::MakeSend as u32, &[9, word, 6]),
        Ok(0)
    );
    gives!(rig.sys(at, SendOp::Send as u32, &[]), Ok(0));
    dies(rig, live, at)?;
    gives!(rig.sys(at, SendOp::Send as u32, &[]), Err(Error::Revoked));
    Ok(None)
}

#[ktest(ops)]
fn entry_points_of_a_guarded_component_are_revoked_with_it(rig: &Rig<'_>) -> Outcome {
    let (c, live) = lent(rig, (CapType::Component, Some(rig.component), [0; 3]))?;
    let at = rig.free_slot();
    let word = n(rig.table()?) << 32 | n(at);
    let make = ComponentOp::MakeSinv as u32;
    let all = Rights::ALL.0 as u64;
    gives!(rig.sys(c, make, &[word, ENTRY, 1, all]), Ok(0));
    dies(rig, live, at)
}

#[ktest(ops)]
fn what_guarded_memory_activates_is_revoked_with_it(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let thread = rig.object(ObjectKind::Thread)?;
    for object in [thread, rig.user()?] {
        let range = [object.frame.bits() as u64, 1, 0];
        let (memory, live) = lent(rig, (CapType::Memory, None, range))?;
        let at = rig.free_slot();
        let word = n(table) << 32 | n(at);
        let activate = MemoryOp::Activate as u32;
        gives!(rig.sys(memory, activate, &[0, word, u64::MAX]), Ok(0));
        dies(rig, live, at)?;
    }
    Ok(None)
}

#[ktest(ops)]
fn user_blocks_are_activated_by_whom_they_belong_to_as_a_whole(rig: &Rig<'_>) -> Outcome {
    let order = Order::new(2).ok_or(Error::Corrupt)?;
    let block = rig.take(order, Some(Use::User))?;
    let table = rig.table()?;
    let activate = |frames: u64| {
        let memory = rig.memory(block.frame, frames, Rights::ALL)?;
        let word = n(table) << 32 | n(rig.free_slot());
        rig.sys(memory, MemoryOp::Activate as u32, &[0, word, u64::MAX])
    };
    gives!(activate(1), Err(Error::BadArgument));
    gives!(activate(3), Err(Error::BadArgument));
    gives!(activate(4), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn guarded_capabilities_are_not_kept_for_later(rig: &Rig<'_>) -> Outcome {
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    let of = (CapType::Sinv, Some(rig.component), [ENTRY, 0, 0]);
    let (sinv, _) = lent(rig, of)?;
    let handler = ComponentOp::SetFaultHandler as u32;
    gives!(rig.sys(c, handler, &[n(sinv)]), Err(Error::Denied));

    let hardware = [rig.cx.node.id().index() as u64, 0, 0];
    let hardware = rig.put(CapType::Hardware, Rights::ALL, None, hardware)?;
    let ends = rig.object(ObjectKind::Endpoints)?;
    let (send, _) = lent(rig, (CapType::Send, Some(ends), [4, 1, 0]))?;
    let attach = HardwareOp::AttachIrq as u32;
    gives!(rig.sys(hardware, attach, &[5, n(send)]), Err(Error::Denied));
    gives!(*rig.cx.node.interrupts[5].lock(), None);

    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    let (_, frame) = rig.raw()?;
    let of = (CapType::Memory, None, [frame.bits() as u64, 1, 0]);
    let (memory, _) = lent(rig, of)?;
    let me = rig.cx.node.id().index() as u64;
    let supply = SpaceOp::Supply as u32;
    gives!(rig.sys(space, supply, &[me, n(memory)]), Err(Error::Denied));
    Ok(None)
}

/// Capabilities that are arguments need the right that the operation uses of them.
#[ktest(ops)]
fn arguments_without_the_right_that_is_used_are_refused(rig: &Rig<'_>) -> Outcome {
    let (me, isa) = (rig.cx.node.id().index() as u64, rig.cx.machine.isa());
    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    let (_, frame) = rig.raw()?;
    for op in [
        MemoryOp::RetypeUser,
        MemoryOp::RetypeKernel,
        MemoryOp::RetypeUntyped,
        MemoryOp::Split,
    ] {
        let memory = n(rig.memory(frame, 1, all_but(op as u32))?);
        for (what, arguments) in [
            (SpaceOp::Supply, [me, memory, 0]),
            (SpaceOp::Evacuate, [0x5000_0000, 1 | me << 40, memory]),
        ] {
            let done = rig.sys(space, what as u32, &arguments);
            gives!(
                (op as u32, what as u32, done),
                (op as u32, what as u32, Err(Error::Denied))
            );
        }
    }
    let root = match isa {
        Isa::X86_64 => ObjectKind::PageTableX86L4,
        Isa::Aarch64 => ObjectKind::PageTableA64L4,
    };
    let (other, _) = rig.new_cap(ObjectKind::Space)?;
    let table = rig.cap(root, rig.object(root)?, all_but(PageTableOp::Link as u32))?;
    let at = TableAt { isa, level: 4 }.bits();
    gives!(
        rig.sys(other, SpaceOp::Link as u32, &[at, 0, n(table)]),
        Err(Error::Denied)
    );
    let hardware = rig.put(CapType::Hardware, Rights::ALL, None, [me, 0, 0])?;
    let t = rig.thread_of(rig.component, State::Stopped)?;
    let thread = rig.cap(ObjectKind::Thread, t, all_but(ThreadOp::Resume as u32))?;
    let start = HardwareOp::StartCpu as u32;
    gives!(
        rig.sys(hardware, start, &[0, n(thread)]),
        Err(Error::Denied)
    );
    gives!(rig.state(t), Some(State::Stopped));
    Ok(None)
}

/// Nothing of an earlier life counts for a thread that is configured anew.
#[ktest(ops)]
fn threads_that_are_configured_begin_without_a_past(rig: &Rig<'_>) -> Outcome {
    let object = rig.thread_of(rig.component, State::Stopped)?;
    let t = rig.as_thread(object)?;
    let cap = rig.cap(ObjectKind::Thread, object, Rights::ALL)?;
    let component = n(rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?);
    let ids = n(rig.thread_ids()?);
    let words = [&t.result, &t.crossing, &t.fault, &t.frames[0].info];
    for word in words.into_iter().chain([&t.cpu]) {
        word.store(8, Ordering::Relaxed);
    }
    let arguments = [component, ENTRY, 0, rig.id(9), ids << 32];
    gives!(rig.sys(cap, ThreadOp::Configure as u32, &arguments), Ok(0));
    gives!(words.map(|word| word.load(Ordering::Relaxed)), [0; 4]);
    gives!(t.cpu.load(Ordering::Relaxed), rig.k.cpu().index() as u64);
    Ok(None)
}
