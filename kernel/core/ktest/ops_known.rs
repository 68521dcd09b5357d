//! Operations on capabilities that a CPU remembers ([`dyad_machine::capcache`]): fast paths permit what the
//! long ones do, and no more.
//!
//! Every test uses a capability first, so that it is known, and then for something that it is not
//! good for.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::cap::{
    COPY, CapIndex, CapType, CaptblOp, FrameOp, MAP_WRITE, MemoryOp, ObjectKind, Rights, SpaceOp,
    TableAt, TimeOp,
};

use super::rig::{Rig, all_but};
use super::{Outcome, Stop, ensure, gives, ktest, spaces};
use dyad_object::component::Component;
use dyad_object::find;

const INTROSPECT: u32 = dyad_abi::cap::INTROSPECT;
const ALL: u64 = u32::MAX as u64;
const VA: u64 = 0x4000_0000;

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

/// Makes this CPU remember a capability.
fn known(rig: &Rig<'_>, cap: CapIndex) -> Result<CapIndex, Stop> {
    for _ in 0..2 {
        rig.sys(cap, INTROSPECT, &[])?;
    }
    rig.remembers(cap)?;
    Ok(cap)
}

#[ktest(ops)]
fn known_capabilities_permit_no_other_operation(rig: &Rig<'_>) -> Outcome {
    let time = rig.object(ObjectKind::Time)?;
    let read = TimeOp::Read as u32;
    let cap = rig.cap(ObjectKind::Time, time, all_but(read))?;
    gives!(rig.sys(known(rig, cap)?, read, &[]), Err(Error::Denied));
    // As calls that come the slow path.
    gives!(rig.call(cap, read, &[]).err(), Some(Error::Denied));
    let cap = rig.cap(ObjectKind::Time, time, Rights::ALL)?;
    ensure!(
        rig.sys(known(rig, cap)?, read, &[]).is_ok(),
        "not permitted"
    );
    Ok(None)
}

#[ktest(ops)]
fn known_operands_need_their_rights(rig: &Rig<'_>) -> Outcome {
    let (memory, _) = rig.raw()?;
    let kind = ObjectKind::Time as u64;
    gives!(
        rig.sys(memory, MemoryOp::RetypeKernel as u32, &[0, kind]),
        Ok(0)
    );
    let at = rig.free_slot();
    let into = |table: CapIndex| {
        let a = [0, n(table) << 32 | n(at), ALL];
        rig.sys(memory, MemoryOp::Activate as u32, &a)
    };
    let needs = CaptblOp::Activate as u32;
    let table = rig.cap(ObjectKind::CaptblRoot, rig.root, all_but(needs))?;
    gives!(into(known(rig, table)?), Err(Error::Denied));
    gives!(into(known(rig, rig.table()?)?), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn known_sources_need_the_right_to_copy(rig: &Rig<'_>) -> Outcome {
    let table = known(rig, rig.table()?)?;
    let time = rig.object(ObjectKind::Time)?;
    let at = rig.free_slot();
    let copy = |source: CapIndex| {
        let a = [n(at), n(source), ALL];
        rig.sys(table, CaptblOp::CopyIn as u32, &a)
    };
    let fixed = rig.cap(ObjectKind::Time, time, all_but(COPY))?;
    gives!(copy(known(rig, fixed)?), Err(Error::Denied));
    let good = rig.cap(ObjectKind::Time, time, Rights::ALL)?;
    gives!(copy(known(rig, good)?), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn known_capabilities_that_are_deactivated_are_gone(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (cap, _) = rig.new_cap(ObjectKind::Time)?;
    known(rig, cap)?;
    let gone = rig.sys(table, CaptblOp::Deactivate as u32, &[n(cap)]);
    ensure!(gone.is_ok(), "not deactivated: {gone:?}");
    gives!(rig.sys(cap, INTROSPECT, &[]), Err(Error::NoCap));
    gives!(rig.sys(cap, TimeOp::Read as u32, &[]), Err(Error::NoCap));
    Ok(None)
}

#[ktest(ops)]
fn pages_are_writable_by_who_may_write(rig: &Rig<'_>) -> Outcome {
    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    let user = rig.user()?;
    let put = |rights| rig.put(CapType::Frame, rights, Some(user), [0, 1, 0]);
    let isa = rig.cx.machine.isa();
    let at = TableAt { isa, level: 1 }.bits();
    let map = |frame: CapIndex, perms| {
        let a = [at, VA, n(frame), 0, perms];
        rig.sys(space, SpaceOp::Map as u32, &a)
    };
    rig.rooted()?;
    for level in [3, 2, 1] {
        let root = super::spaces::root_kind(isa) as u64;
        let kind = ObjectKind::from_number(root - 4 + level).ok_or(Error::Corrupt)?;
        let (table, _) = rig.new_cap(kind)?;
        let above = 1 << (12 + 9 * level);
        let into = TableAt {
            isa,
            level: level as u8,
        };
        let a = [into.bits(), VA & !(above - 1), n(table)];
        gives!(rig.sys(space, SpaceOp::Link as u32, &a), Ok(0));
    }
    let read = put(FrameOp::Map.right().or(Rights::INTROSPECT))?;
    let write = put(Rights::ALL)?;
    let unmap = || rig.sys(space, SpaceOp::Unmap as u32, &[at, VA]);
    for _ in 0..2 {
        gives!(map(read, MAP_WRITE), Err(Error::Denied));
        known(rig, space)?;
        known(rig, read)?;
        known(rig, write)?;
    }
    gives!(map(read, 0), Ok(0));
    ensure!(unmap().is_ok(), "not unmapped");
    rig.round()?;
    let again = map(write, MAP_WRITE);
    ensure!(matches!(again, Ok(0) | Err(Error::Again)), "{again:?}");
    if again.is_ok() {
        ensure!(unmap().is_ok(), "not unmapped");
    }
    Ok(None)
}

#[ktest(ops)]
fn objects_show_nothing_of_who_had_their_frame(rig: &Rig<'_>) -> Outcome {
    let (memory, frame) = rig.raw()?;
    let word = |i: u64| rig.cx.node.map.word(frame.address().add(8 * i));
    gives!(rig.sys(memory, MemoryOp::RetypeUser as u32, &[0, 0]), Ok(0));
    for i in 0..512 {
        word(i).store(!i, Ordering::Relaxed);
    }
    let up = rig.sys(memory, MemoryOp::RetypeUntyped as u32, &[0]);
    ensure!(up.is_ok(), "not given up: {up:?}");
    // As if all nodes had been quiet since: the frame counts as used, by a stamp of old.
    rig.round()?;
    let record = rig.k.frames().record_at(frame).ok_or(Error::Corrupt)?;
    rig.cx
        .node
        .map
        .word(record.add(8))
        .store(1 << 8, Ordering::Relaxed);
    let make = [0, ObjectKind::Liveness as u64];
    gives!(rig.sys(memory, MemoryOp::RetypeKernel as u32, &make), Ok(0));
    for i in 0..512 {
        let is = word(i).load(Ordering::Relaxed);
        ensure!(is == 0, "word {i} is {is:#x}");
    }
    Ok(None)
}

#[ktest(ops)]
fn rounds_give_a_component_its_present_table(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    let root = rig.object(ObjectKind::CaptblRoot)?;
    let isa = rig.cx.machine.isa();
    let (space, tables) = (
        rig.object(ObjectKind::Space)?,
        rig.object(spaces::root_kind(isa))?,
    );
    spaces::within(&rig.k, space)?.link_root(isa, tables)?;
    let component: &Component = find(rig.cx.node, rig.component, Component::KIND)?;
    crate::syscall::ops::component::set_parts(&rig.k, component, root, space)?;
    gives!(rig.k.local.captbl.get(), rig.root.frame.address());
    rig.round()?;
    gives!(rig.k.local.captbl.get(), root.frame.address());
    gives!(rig.k.local.space.get(), space.bits());
    Ok(None)
}
