//! The generator: one random operation.

use core::sync::atomic::Ordering;

use dyad_abi::NodeId;
use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, Guard, HardwareOp, INTROSPECT, MemoryOp, ObjectKind, Rights,
    SendOp, TABLE_SLOTS,
};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::slot;
use dyad_abi::user::{USER_END, USER_MIN};

use crate::actor::Actor;
use crate::calls::make;
use crate::setup::{HOME, seed};
use crate::world::{FRAMES, LEAVES, SLOTS, WILD_ENTRIES, WORLD, leaf, memory, slot_of};

mod object;
mod space;

use object::{on_component, on_liveness, on_receive, on_thread, on_time};
use space::{on_space, on_window};

/// Numbers that are no number of anything.
const ABSURD: [u64; 6] = [
    1 << 15,
    1 << 31,
    1 << 32,
    1 << 62,
    u64::MAX - 4095,
    u64::MAX,
];

/// No endpoint has this number, and as a deadline it is in the past. An operation with the number of
/// `Receive` may hit an endpoint where another type was expected, and must not wait there: the actor
/// may be the thread that runs when nobody else does.
const NO_LINE: u64 = 64;

/// Makes one operation.
pub fn step(a: &Actor) {
    match a.below(32) {
        0..6 => on_memory(a),
        6..10 => on_table(a),
        10..13 => on_window(a),
        13..17 => on_space(a),
        17..19 => on_component(a),
        19..22 => on_thread(a),
        22..24 => on_receive(a),
        24 | 25 => {
            let cap = slot_of(CapType::Send, a.next());
            let _ = make(a, CapType::Send, cap, SendOp::Send as u64, [a.next(); 5]);
        }
        26 => on_time(a),
        27 => on_liveness(a),
        28 | 29 => on_hardware(a),
        30 => look(a),
        _ => nonsense(a),
    }
}

/// A capability as an argument: mostly of the type that is wanted.
fn operand(a: &Actor, ty: CapType) -> u64 {
    match a.below(20) {
        0 => 0,
        1 => a.pick(&ABSURD),
        2 => TABLE_SLOTS as u64 - 1 - a.below(64),
        3 => {
            let other = CapType::ALL[a.below(CapType::ALL.len() as u64) as usize];
            slot_of(other, a.next()).get().into()
        }
        _ => slot_of(ty, a.next()).get().into(),
    }
}

/// Slots for entries of the program itself; the others are for entries of the storm's components.
fn own_sinvs() -> u64 {
    SLOTS / 2
}

/// A slot of a type, as a place to put something: through the leaf that it is in, or the root.
fn place(a: &Actor, ty: CapType) -> u64 {
    let n = match ty {
        CapType::Sinv => own_sinvs() + a.below(SLOTS / 2),
        _ => a.next(),
    };
    let at = u64::from(slot_of(ty, n).get());
    match a.below(8) {
        0 => a.pick(&ABSURD),
        1 => (leaf(a.below(LEAVES.into()) as u32).get() as u64) << 32 | (64 + a.below(200)),
        // Into tables in which nothing is called.
        2 => (operand(a, CapType::Captbl) << 32) | (at % 64),
        3..6 => (slot::TABLE.get() as u64) << 32 | at,
        _ => (u64::from(leaf((at / 64 - 2) as u32).get()) << 32) | (at % 64),
    }
}

/// The capability of storm memory of some pool, or a copy.
fn some_memory(a: &Actor) -> CapIndex {
    if a.rarely(4) {
        return slot_of(CapType::Memory, a.next());
    }
    let count = WORLD.pool_count.load(Ordering::Relaxed) as u64;
    memory(WORLD.pools[a.below(count) as usize].load(Ordering::Relaxed))
}

/// A frame of storm memory. A few are in demand all the time.
fn frame(a: &Actor) -> u64 {
    match a.below(16) {
        0 => a.pick(&[FRAMES - 1, FRAMES, FRAMES + 1]),
        1 => a.pick(&ABSURD),
        2..7 => a.below(16),
        _ => a.below(FRAMES),
    }
}

fn rights(a: &Actor) -> u64 {
    match a.below(4) {
        0 => a.next() & 0xffff_ffff,
        _ => Rights::ALL.0.into(),
    }
}

/// The type of the capability for an object.
fn type_of(kind: ObjectKind) -> CapType {
    match kind {
        ObjectKind::CaptblLeaf | ObjectKind::CaptblRoot => CapType::Captbl,
        ObjectKind::Space => CapType::Space,
        ObjectKind::Component => CapType::Component,
        ObjectKind::Thread => CapType::Thread,
        ObjectKind::Endpoints => CapType::Receive,
        ObjectKind::Time => CapType::Time,
        ObjectKind::Liveness => CapType::Liveness,
        _ => CapType::PageTable,
    }
}

fn on_memory(a: &Actor) {
    let (ty, cap, at) = (CapType::Memory, some_memory(a), frame(a));
    let call = |op: MemoryOp, x| make(a, ty, cap, op as u64, [at, x, 0, 0, 0]);
    let plain = |op| {
        let _ = call(op, 0);
    };
    match a.below(16) {
        0 | 1 => {
            let order = match a.below(8) {
                0 => a.pick(&[6, 7, 9, 20, 21, 63, 64, u64::MAX]),
                n => n / 2,
            };
            if call(MemoryOp::RetypeUser, order).is_ok() {
                activate(a, cap, at, CapType::Frame);
            }
        }
        2..6 => {
            let kinds = ObjectKind::ALL;
            let kind = match a.below(16) {
                0 => a.pick(&[16, 31, 32, u64::MAX]),
                _ => a.below(kinds.len() as u64),
            };
            if call(MemoryOp::RetypeKernel, kind).is_ok()
                && let Some(kind) = ObjectKind::from_number(kind)
            {
                activate(a, cap, at, type_of(kind));
            }
        }
        6..10 => plain(MemoryOp::RetypeUntyped),
        10 => plain(MemoryOp::Split),
        11 => plain(MemoryOp::Merge),
        12 => plain(MemoryOp::Inspect),
        _ => look_and_activate(a, cap, at),
    }
}

fn activate(a: &Actor, cap: CapIndex, at: u64, ty: CapType) {
    // Another actor may have made something else of the frame meanwhile; then the slot has a
    // capability of another type, and operations of the same numbers are tried on that.
    let args = [at, place(a, ty), rights(a), 0, 0];
    let op = MemoryOp::Activate as u64;
    let _ = make(a, CapType::Memory, cap, op, args);
}

fn look_and_activate(a: &Actor, cap: CapIndex, at: u64) {
    let op = MemoryOp::Inspect as u64;
    let Ok(word) = make(a, CapType::Memory, cap, op, [at, 0, 0, 0, 0]) else {
        return;
    };
    match word >> 29 & 7 {
        4 => activate(a, cap, at, CapType::Frame),
        5 => activate(a, cap, at, type_of(ObjectKind::ALL[a.below(16) as usize])),
        _ => {}
    }
}

/// Types of which copies are made.
fn some_type(a: &Actor) -> CapType {
    CapType::ALL[a.below(CapType::ALL.len() as u64) as usize]
}

fn on_table(a: &Actor) {
    let ty = CapType::Captbl;
    // A table of the storm's own, with any index; or the program's, with indices of the storm.
    if a.rarely(3) {
        let cap = slot_of(ty, a.next());
        let index = match a.below(8) {
            0 => a.pick(&ABSURD),
            1 => a.below(TABLE_SLOTS.into()),
            _ => a.below(64),
        };
        let _ = match a.below(8) {
            0 | 1 => make(a, ty, cap, CaptblOp::Deactivate as u64, [index, 0, 0, 0, 0]),
            2..5 => {
                let args = [index, operand(a, some_type(a)), rights(a), 0, 0];
                make(a, ty, cap, CaptblOp::CopyIn as u64, args)
            }
            5 => {
                let leaf = u64::from(slot_of(ty, a.next()).get());
                make(
                    a,
                    ty,
                    cap,
                    CaptblOp::Cons as u64,
                    [a.below(16), leaf, 0, 0, 0],
                )
            }
            6 => make(
                a,
                ty,
                cap,
                CaptblOp::Decons as u64,
                [a.below(16), 0, 0, 0, 0],
            ),
            _ => make(a, ty, cap, CaptblOp::Read as u64, [index, 0, 0, 0, 0]),
        };
        return;
    }
    let (cap, kind) = (slot::TABLE, some_type(a));
    let index: u64 = match a.below(16) {
        0 => a.pick(&ABSURD),
        // Where a leaf may hang, or none.
        1 => u64::from(WILD_ENTRIES.start) * 64 + a.below(8 * 64),
        _ => slot_of(kind, a.next()).get().into(),
    };
    let entry = match a.below(8) {
        0 => a.pick(&[512, 513, 1 << 32, u64::MAX]),
        n => u64::from(WILD_ENTRIES.start) + n - 1,
    };
    let _ = match a.below(10) {
        0..2 => make(a, ty, cap, CaptblOp::Deactivate as u64, [index, 0, 0, 0, 0]),
        2..6 => copy(a, kind, index),
        6 => {
            let args = [entry, operand(a, ty), 0, 0, 0];
            make(a, ty, cap, CaptblOp::Cons as u64, args)
        }
        7 => make(a, ty, cap, CaptblOp::Decons as u64, [entry, 0, 0, 0, 0]),
        _ => make(a, ty, cap, CaptblOp::Read as u64, [index, 0, 0, 0, 0]),
    };
}

/// Copies a capability of a type to a slot of that type, or one where nothing is called.
fn copy(a: &Actor, ty: CapType, index: u64) -> Result<u64, u64> {
    let (mut source, mut allowed) = (slot_of(ty, a.next()).get().into(), rights(a));
    if let Some((from, rights)) = seed(ty, a.next())
        && a.rarely(2)
    {
        (source, allowed) = (from.get().into(), rights.0.into());
    }
    if ty == CapType::Sinv && index < TABLE_SLOTS.into() {
        // Each half stays what it is.
        let first = u64::from(slot_of(ty, 0).get());
        if index >= first + own_sinvs() {
            source = first + own_sinvs() + a.below(SLOTS / 2);
        } else if source >= first + own_sinvs() {
            source = first + a.below(SLOTS / 2);
        }
    }
    let guard = match a.below(4) {
        0 => {
            let liveness = CapIndex(operand(a, CapType::Liveness) as u32 & 0x7fff);
            let entry = a.below(16) as u32;
            Guard { liveness, entry }.bits()
        }
        _ => 0,
    };
    let narrow = match a.below(4) {
        0 => [a.below(FRAMES), a.below(8)],
        1 => [a.pick(&ABSURD), a.pick(&ABSURD)],
        _ => [0; 2],
    };
    let how = allowed | u64::from(guard) << 32;
    let args = [index, source, how, narrow[0], narrow[1]];
    let op = CaptblOp::CopyIn as u64;
    make(a, CapType::Captbl, slot::TABLE, op, args)
}

fn on_hardware(a: &Actor) {
    let ty = CapType::Hardware;
    let node = NodeId::new(a.below(WORLD.nodes.load(Ordering::Relaxed)));
    let own = slot::hardware(node.unwrap_or(HOME));
    let wild = slot_of(ty, a.next());
    let call = |cap, op: HardwareOp, args| {
        let _ = make(a, ty, cap, op as u64, args);
    };
    let bad = a.pick(&[
        0,
        1,
        USER_MIN - 1,
        USER_END - 1,
        USER_END,
        1 << 63,
        u64::MAX,
    ]);
    match a.below(10) {
        0 => call(wild, HardwareOp::FlushStep, [a.below(100), 0, 0, 0, 0]),
        1 => call(wild, HardwareOp::FlushTlb, [0; 5]),
        2 => {
            // No device has these; one has, and is not used by this program.
            let args = [a.below(80), operand(a, CapType::Send), 0, 0, 0];
            call(wild, HardwareOp::AttachIrq, args);
        }
        3 => call(wild, HardwareOp::Now, [0; 5]),
        4 => call(wild, HardwareOp::NodeState, [a.below(10), 0, 0, 0, 0]),
        5 => call(wild, HardwareOp::Quiesced, [a.next(), 0, 0, 0, 0]),
        6 => call(own, HardwareOp::Write, [bad, 1 + a.below(5000), 0, 0, 0]),
        7 => call(own, HardwareOp::Report, [bad, 0, 0, 0, 0]),
        8 => {
            // A CPU with any thread, if there is no such CPU; and one that there is with no thread.
            // Both right, and a worker has given its CPU to a thread of the storm for good.
            let cpus = WORLD.cpus.load(Ordering::Relaxed);
            let args = match a.below(2) {
                0 => [cpus + a.below(100), operand(a, CapType::Thread), 0, 0, 0],
                _ => [a.below(cpus), slot_of(ty, a.next()).get().into(), 0, 0, 0],
            };
            call(own, HardwareOp::StartCpu, args);
        }
        _ => call(own, HardwareOp::Shutdown, [a.next() | 1 << 40, 0, 0, 0, 0]),
    }
}

/// Introspection of anything.
fn look(a: &Actor) {
    let ty = some_type(a);
    let _ = make(
        a,
        ty,
        slot_of(ty, a.next()),
        INTROSPECT.into(),
        [a.next(); 5],
    );
}

/// Operations that nothing has.
pub fn nonsense(a: &Actor) {
    let ty = some_type(a);
    let op = a.pick(&[12, 13, 20, 29, 31, 32, 255, 1 << 20, u64::from(u32::MAX)]);
    let cap = match a.below(4) {
        0 => CapIndex(a.below(1 << 32) as u32 | 1 << 15),
        _ => slot_of(ty, a.next()),
    };
    let _ = make(
        a,
        ty,
        cap,
        op,
        [a.next(), a.next(), a.next(), a.next(), a.next()],
    );
}

const _: () = assert!(SLOTS.is_power_of_two() && MAX_NODES < 16);
