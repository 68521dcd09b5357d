//! Operations on capability tables and liveness entries: copies, rights, revocation.

use dyad_abi::Error;
use dyad_abi::cap::{
    COPY, CapIndex, CapType, CaptblOp, Guard, Introspection, LivenessOp, ObjectKind, Rights,
};
use dyad_retype::{Order, Use};

use super::rig::{self, Rig, all_but, needs_its_right, only};
use super::{Outcome, ensure, gives, ktest};

const INTROSPECT: u32 = dyad_abi::cap::INTROSPECT;
const COPY_IN: u32 = CaptblOp::CopyIn as u32;
const DEACTIVATE: u32 = CaptblOp::Deactivate as u32;
const CONS: u32 = CaptblOp::Cons as u32;
const DECONS: u32 = CaptblOp::Decons as u32;
const READ: u32 = CaptblOp::Read as u32;
const REVOKE: u32 = LivenessOp::Revoke as u32;
const ALL: u64 = u32::MAX as u64;

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

fn told(rig: &Rig<'_>, cap: CapIndex) -> Result<Introspection, Error> {
    let bits = rig.sys(cap, INTROSPECT, &[])?;
    Introspection::from_bits(bits).ok_or(Error::Corrupt)
}

fn guard(liveness: CapIndex, entry: u32) -> u64 {
    (Guard { liveness, entry }.bits() as u64) << 32
}

#[ktest(ops)]
fn copies_permit_no_more_than_their_source(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let object = rig.object(ObjectKind::Time)?;
    let (copy, see) = (Rights::COPY, Rights::INTROSPECT);
    for (has, asked) in [
        (0xffff_ffff, 0x4000_0001),
        (0xc000_0001, 0xffff_ffff),
        (0xc000_0005, 0x4000_0003),
        (0xc000_0000, 0x4fff_ffff),
    ] {
        let has = Rights(has).or(copy).or(see);
        let source = rig.cap(ObjectKind::Time, object, has)?;
        let at = rig.free_slot();
        gives!(rig.sys(table, COPY_IN, &[n(at), n(source), asked]), Ok(0));
        gives!(told(rig, at)?.rights, has.and(Rights(asked as u32)));
    }
    Ok(None)
}

#[ktest(ops)]
fn rights_that_a_copy_has_lost_do_not_come_back(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let object = rig.object(ObjectKind::Time)?;
    let mut source = rig.cap(ObjectKind::Time, object, Rights::ALL)?;
    let mut rights = ALL as u32;
    for bit in 0..20 {
        let at = rig.free_slot();
        let asked = all_but(bit).0 as u64;
        gives!(rig.sys(table, COPY_IN, &[n(at), n(source), asked]), Ok(0));
        rights &= !(1 << bit);
        gives!(told(rig, at)?.rights, Rights(rights));
        source = at;
    }
    let at = rig.free_slot();
    gives!(rig.sys(table, COPY_IN, &[n(at), n(source), ALL]), Ok(0));
    gives!(told(rig, at)?.rights, Rights(rights));
    Ok(None)
}

#[ktest(ops)]
fn copies_need_the_right_to_copy_and_a_living_source(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let object = rig.object(ObjectKind::Time)?;
    let at = rig.free_slot();
    let copy = |source: u64| rig.sys(table, COPY_IN, &[n(at), source, ALL]);
    let fixed = rig.cap(ObjectKind::Time, object, all_but(COPY))?;
    gives!(copy(n(fixed)), Err(Error::Denied));
    gives!(copy(n(rig.free_slot())), Err(Error::NoCap));
    gives!(copy(0), Err(Error::NoCap));
    gives!(copy(u64::MAX), Err(Error::NoCap));
    let good = rig.cap(ObjectKind::Time, object, Rights::ALL)?;
    crate::syscall::ops::memory::to_untyped(&rig.k, object.frame)?;
    gives!(copy(n(good)), Err(Error::Revoked));
    gives!(rig.sys(at, INTROSPECT, &[]), Err(Error::NoCap));
    Ok(None)
}

#[ktest(ops)]
fn copies_go_into_free_slots_only(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let leaf = rig.cap(ObjectKind::CaptblLeaf, rig.leaf, Rights::ALL)?;
    let (cap, _) = rig.new_cap(ObjectKind::Time)?;
    let copy = |t: CapIndex, at: u64| rig.sys(t, COPY_IN, &[at, n(cap), ALL]);
    gives!(copy(table, n(table)), Err(Error::Exists));
    gives!(copy(leaf, n(cap)), Err(Error::Exists));
    gives!(copy(leaf, 64), Err(Error::BadArgument));
    gives!(copy(leaf, u64::MAX), Err(Error::BadArgument));
    gives!(copy(table, 64), Err(Error::NoCap));
    gives!(copy(table, 1 << 15), Err(Error::BadArgument));
    let at = rig.free_slot();
    gives!(copy(leaf, n(at)), Ok(0));
    gives!(told(rig, at)?.kind, CapType::Time);
    Ok(None)
}

#[ktest(ops)]
fn copies_can_be_narrowed_and_never_widened(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let frame = rig.take(Order::new(3).unwrap_or(Order::FRAME), None)?.frame;
    let user = rig.user()?;
    let [time, ends, live] = [
        ObjectKind::Time,
        ObjectKind::Endpoints,
        ObjectKind::Liveness,
    ]
    .map(|k| rig.new_cap(k));
    let sources = [
        (rig.memory(frame, 8, Rights::ALL)?, 8),
        (
            rig.put(CapType::Frame, Rights::ALL, Some(user), [0, 16, 0])?,
            16,
        ),
        (time?.0, 64),
        (ends?.0, 64),
        (live?.0, 512),
    ];
    for (source, all) in sources {
        let copy = |p0: u64, p1: u64| {
            let at = rig.free_slot();
            rig.sys(table, COPY_IN, &[n(at), n(source), ALL, p0, p1])
                .map(|_| at)
        };
        let part = copy(3, all - 4)?;
        for (p0, p1) in [
            (0, all + 1),
            (all, 1),
            (1, all),
            (1, 0),
            (u64::MAX, 2),
            (1, u64::MAX),
        ] {
            gives!(copy(p0, p1), Err(Error::BadArgument));
        }
        // A part of the part, which is not more than that.
        let again = |p0: u64, p1: u64| {
            let at = rig.free_slot();
            rig.sys(table, COPY_IN, &[n(at), n(part), ALL, p0, p1])
        };
        gives!(again(0, all - 3), Err(Error::BadArgument));
    }
    // What has no parts.
    let (thread, _) = rig.new_cap(ObjectKind::Thread)?;
    let at = rig.free_slot();
    let narrowed = rig.sys(table, COPY_IN, &[n(at), n(thread), ALL, 0, 1]);
    gives!(narrowed, Err(Error::BadArgument));
    Ok(None)
}

#[ktest(ops)]
fn deactivated_capabilities_are_gone_and_their_slots_rest(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (cap, _) = rig.new_cap(ObjectKind::Time)?;
    let (other, _) = rig.new_cap(ObjectKind::Time)?;
    let stamp = rig.sys(table, DEACTIVATE, &[n(cap)])?;
    ensure!(stamp != 0, "no stamp");
    gives!(told(rig, cap).err(), Some(Error::NoCap));
    gives!(rig.sys(table, DEACTIVATE, &[n(cap)]), Err(Error::NoCap));
    let refill = rig.sys(table, COPY_IN, &[n(cap), n(other), ALL]);
    gives!(refill, Err(Error::Again));
    gives!(rig.sys(table, DEACTIVATE, &[64]), Err(Error::NoCap));
    gives!(
        rig.sys(table, DEACTIVATE, &[1 << 15]),
        Err(Error::BadArgument)
    );
    gives!(told(rig, other)?.kind, CapType::Time);
    Ok(None)
}

#[ktest(ops)]
fn leaves_hang_into_roots_and_come_out(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (leaf, object) = rig.new_cap(ObjectKind::CaptblLeaf)?;
    gives!(rig.sys(table, CONS, &[5, n(leaf)]), Ok(0));
    // The index space has grown by 64 slots.
    let at = CapIndex(5 * 64 + 7);
    gives!(rig.sys(table, COPY_IN, &[n(at), n(leaf), ALL]), Ok(0));
    gives!(told(rig, at)?.kind, CapType::Captbl);
    let up = crate::syscall::ops::memory::to_untyped(&rig.k, object.frame);
    gives!(up, Err(Error::Exists));
    ensure!(rig.sys(table, DECONS, &[5])? != 0, "no stamp");
    gives!(told(rig, at).err(), Some(Error::NoCap));
    gives!(rig.sys(table, CONS, &[5, n(leaf)]), Err(Error::Again));
    // Elsewhere it can hang at once: no CPU has looked there.
    gives!(rig.sys(table, CONS, &[6, n(leaf)]), Ok(0));
    gives!(told(rig, CapIndex(6 * 64 + 7))?.kind, CapType::Captbl);
    Ok(None)
}

#[ktest(ops)]
fn cons_refuses_what_is_no_leaf_and_where_one_is(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (leaf, object) = rig.new_cap(ObjectKind::CaptblLeaf)?;
    let cons = |at: u64, leaf: u64| rig.sys(table, CONS, &[at, leaf]);
    gives!(cons(0, n(leaf)), Err(Error::Exists));
    gives!(cons(512, n(leaf)), Err(Error::BadArgument));
    gives!(cons(u64::MAX, n(leaf)), Err(Error::BadArgument));
    gives!(cons(1, n(table)), Err(Error::BadArgument));
    gives!(cons(1, n(rig.free_slot())), Err(Error::NoCap));
    gives!(cons(1, u64::MAX), Err(Error::NoCap));
    let (time, _) = rig.new_cap(ObjectKind::Time)?;
    gives!(cons(1, n(time)), Err(Error::WrongCap));
    // By the root all of this can be done to the leaf's slots: its capability must permit it, too.
    for right in [COPY, CaptblOp::Activate as u32, COPY_IN, DEACTIVATE, READ] {
        let fixed = rig.cap(ObjectKind::CaptblLeaf, object, all_but(right))?;
        gives!(cons(1, n(fixed)), Err(Error::Denied));
    }
    gives!(rig.sys(leaf, CONS, &[1, n(leaf)]), Err(Error::BadArgument));
    gives!(rig.k.frames().read(object.frame)?.0.refs.get(), 0);
    Ok(None)
}

#[ktest(ops)]
fn decons_refuses_where_no_leaf_is(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (leaf, _) = rig.new_cap(ObjectKind::CaptblLeaf)?;
    gives!(rig.sys(table, DECONS, &[9]), Err(Error::NotFound));
    gives!(rig.sys(table, DECONS, &[512]), Err(Error::BadArgument));
    gives!(rig.sys(table, DECONS, &[u64::MAX]), Err(Error::BadArgument));
    gives!(rig.sys(leaf, DECONS, &[0]), Err(Error::BadArgument));
    Ok(None)
}

#[ktest(ops)]
fn read_tells_what_introspect_would(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    for kind in [ObjectKind::Time, ObjectKind::CaptblLeaf, ObjectKind::Space] {
        let object = rig.object(kind)?;
        let cap = rig.cap(kind, object, Rights(0x4000_0005))?;
        let read = rig.sys(table, READ, &[n(cap)]);
        gives!(read, rig.sys(cap, INTROSPECT, &[]));
    }
    gives!(
        rig.sys(table, READ, &[n(rig.free_slot())]),
        Err(Error::NoCap)
    );
    gives!(rig.sys(table, READ, &[1 << 20]), Err(Error::BadArgument));
    Ok(None)
}

#[ktest(ops)]
fn operations_on_tables_need_their_rights(rig: &Rig<'_>) -> Outcome {
    let of = (CapType::Captbl, Some(rig.root), [1, 0, 0]);
    for op in [COPY_IN, DEACTIVATE, CONS, DECONS, READ] {
        needs_its_right(rig, of, op, &[1, 1, ALL])?;
    }
    let table = rig.table()?;
    let is = rig.sys(table, CaptblOp::Activate as u32, &[0]);
    gives!(is, Err(Error::BadSyscall));
    rig::has_no_other_operations(rig, table, &[COPY_IN, DEACTIVATE, CONS, DECONS, READ])
}

#[ktest(ops)]
fn introspection_needs_its_right_and_tells_no_more(rig: &Rig<'_>) -> Outcome {
    let object = rig.object(ObjectKind::Thread)?;
    let blind = rig.cap(ObjectKind::Thread, object, all_but(INTROSPECT))?;
    gives!(rig.sys(blind, INTROSPECT, &[]), Err(Error::Denied));
    let seeing = rig.cap(ObjectKind::Thread, object, only(INTROSPECT))?;
    let is = told(rig, seeing)?;
    gives!((is.kind, is.detail), (CapType::Thread, 0));
    Ok(None)
}

#[ktest(ops)]
fn capabilities_of_other_types_are_refused_as_operands(rig: &Rig<'_>) -> Outcome {
    // Operation 1 of another type is not carried out on what looks like a table.
    let fakes = [
        rig.new_cap(ObjectKind::Thread)?.0,
        rig.new_cap(ObjectKind::Component)?.0,
        rig.new_cap(ObjectKind::Endpoints)?.0,
        rig.raw()?.0,
    ];
    let (cap, _) = rig.new_cap(ObjectKind::Liveness)?;
    for fake in fakes {
        let before = told(rig, cap)?;
        let _ = rig.sys(fake, DECONS, &[0]);
        let _ = rig.sys(fake, COPY_IN, &[n(rig.free_slot()), n(cap), ALL]);
        gives!(told(rig, cap)?, before);
    }
    Ok(None)
}

#[ktest(ops)]
fn revocation_kills_all_copies_and_nothing_else(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (live, _) = rig.new_cap(ObjectKind::Liveness)?;
    let (source, _) = rig.new_cap(ObjectKind::Time)?;
    let copy = |from: CapIndex, how: u64| {
        let at = rig.free_slot();
        rig.sys(
            table,
            COPY_IN,
            &[n(at), n(from), ALL & how | how >> 32 << 32],
        )
        .map(|_| at)
    };
    let guarded = copy(source, ALL | guard(live, 7))?;
    let heirs = [copy(guarded, ALL)?, copy(guarded, ALL)?];
    let other = copy(source, ALL | guard(live, 8))?;
    for c in [guarded, heirs[0], heirs[1], other] {
        gives!(told(rig, c)?.kind, CapType::Time);
    }
    ensure!(rig.sys(live, REVOKE, &[7])? != 0, "no stamp");
    for c in [guarded, heirs[0], heirs[1]] {
        gives!(told(rig, c).err(), Some(Error::Revoked));
        gives!(copy(c, ALL).err(), Some(Error::Revoked));
    }
    gives!(told(rig, other)?.kind, CapType::Time);
    gives!(told(rig, source)?.kind, CapType::Time);
    // A copy made afterwards lives until the next revocation.
    let later = copy(source, ALL | guard(live, 7))?;
    gives!(told(rig, later)?.kind, CapType::Time);
    rig.sys(live, REVOKE, &[7])?;
    gives!(told(rig, later).err(), Some(Error::Revoked));
    Ok(None)
}

#[ktest(ops)]
fn capabilities_die_with_the_frame_of_their_guard(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (live, object) = rig.new_cap(ObjectKind::Liveness)?;
    let (source, _) = rig.new_cap(ObjectKind::Time)?;
    let at = rig.free_slot();
    let how = ALL | guard(live, 0);
    gives!(rig.sys(table, COPY_IN, &[n(at), n(source), how]), Ok(0));
    crate::syscall::ops::memory::to_untyped(&rig.k, object.frame)?;
    gives!(told(rig, at).err(), Some(Error::Revoked));
    gives!(told(rig, source)?.kind, CapType::Time);
    Ok(None)
}

#[ktest(ops)]
fn a_guard_needs_the_right_to_give_it_and_is_given_once(rig: &Rig<'_>) -> Outcome {
    let table = rig.table()?;
    let (live, object) = rig.new_cap(ObjectKind::Liveness)?;
    let (source, _) = rig.new_cap(ObjectKind::Time)?;
    let copy = |from: CapIndex, how: u64| {
        let at = rig.free_slot();
        rig.sys(table, COPY_IN, &[n(at), n(from), how]).map(|_| at)
    };
    let guarded = copy(source, ALL | guard(live, 1))?;
    let twice = copy(guarded, ALL | guard(live, 2));
    gives!(twice, Err(Error::Exists));
    let no_right = rig.cap(
        ObjectKind::Liveness,
        object,
        all_but(LivenessOp::Guard as u32),
    )?;
    let is = copy(source, ALL | guard(no_right, 1));
    gives!(is, Err(Error::Denied));
    gives!(copy(source, ALL | guard(table, 1)), Err(Error::WrongCap));
    let none = guard(rig.free_slot(), 1);
    gives!(copy(source, ALL | none), Err(Error::NoCap));
    gives!(copy(source, ALL | 1 << 63), Err(Error::BadArgument));
    gives!(copy(source, ALL | 1 << 56), Err(Error::BadArgument));
    // Only entries of the part that the capability is for.
    let part = rig.put(CapType::Liveness, Rights::ALL, Some(object), [4, 2, 0])?;
    let beyond = copy(source, ALL | guard(part, 2));
    gives!(beyond, Err(Error::BadArgument));
    let inside = copy(source, ALL | guard(part, 1))?;
    rig.sys(live, REVOKE, &[5])?;
    gives!(told(rig, inside).err(), Some(Error::Revoked));
    Ok(None)
}

#[ktest(ops)]
fn revocation_needs_its_right_and_an_entry(rig: &Rig<'_>) -> Outcome {
    let object = rig.object(ObjectKind::Liveness)?;
    let of = (CapType::Liveness, Some(object), [0, 512, 0]);
    needs_its_right(rig, of, REVOKE, &[0])?;
    let live = rig.cap(ObjectKind::Liveness, object, Rights::ALL)?;
    gives!(rig.sys(live, REVOKE, &[512]), Err(Error::BadArgument));
    gives!(rig.sys(live, REVOKE, &[u64::MAX]), Err(Error::BadArgument));
    let is = rig.sys(live, LivenessOp::Guard as u32, &[0]);
    gives!(is, Err(Error::BadSyscall));
    let part = rig.put(CapType::Liveness, Rights::ALL, Some(object), [4, 2, 0])?;
    gives!(rig.sys(part, REVOKE, &[2]), Err(Error::BadArgument));
    let at = object.frame.address();
    for w in 0..512 {
        let is = rig.cx.node.map.word(at.add(8 * w));
        let is = is.load(core::sync::atomic::Ordering::Relaxed);
        ensure!(is == 0, "entry {w} has been revoked {is} times");
    }
    rig.sys(part, REVOKE, &[1])?;
    let is = rig.cx.node.map.word(at.add(8 * 5));
    gives!(is.load(core::sync::atomic::Ordering::Relaxed), 1);
    Ok(None)
}

#[ktest(ops)]
fn frame_capabilities_die_with_their_block(rig: &Rig<'_>) -> Outcome {
    let user = rig.take(Order::FRAME, Some(Use::User))?;
    let cap = rig.put(CapType::Frame, Rights::ALL, Some(user), [0, 1, 0])?;
    gives!(told(rig, cap)?.detail, 1);
    // It has no operations: rights only.
    rig::has_no_other_operations(rig, cap, &[])?;
    crate::syscall::ops::memory::to_untyped(&rig.k, user.frame)?;
    gives!(told(rig, cap).err(), Some(Error::Revoked));
    Ok(None)
}
