//! One random operation, of any type.
//!
//! Operations are drawn from the enumerations of the ABI, so a new operation is drawn as well. Operations whose arguments
//! must be likely values to get anywhere have a line of their own below; the arguments of all others follow from the
//! table of authority ([`derived`]).

use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::cap::authority::Form;
use dyad_abi::cap::{
    COPY, CapIndex, CapType, CaptblOp, ComponentOp, FrameOp, Guard, HardwareOp, INTROSPECT,
    LivenessOp, MemoryOp, ObjectKind, PageTableOp, ReceiveOp, Rights, SendOp, SinvOp, SpaceOp,
    TABLE_SLOTS, ThreadIdsOp, ThreadOp, TimeOp, operation as authority_of,
};
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};

use super::plays::MEMORY_FRAMES;
use super::{Actor, call, gadget_address, invoke};
use crate::plan::{WINDOW, WINDOW_PAGES, at, report, word};

/// Numbers that are no number of anything.
const ABSURD: [u64; 7] = [
    1 << 15,
    1 << 31,
    1 << 32,
    1 << 40,
    1 << 62,
    u64::MAX - 4095,
    u64::MAX,
];

/// A capability to call: mostly one of the type.
fn subject(a: &Actor, ty: CapType) -> CapIndex {
    match a.below(16) {
        0 => CapIndex(a.below(64 * u64::from(at::LEAVES)) as u32),
        1 => CapIndex(a.below(1 << 32) as u32),
        _ => at::pool(ty, a.next()),
    }
}

/// A capability as an argument.
fn operand(a: &Actor, ty: CapType) -> u64 {
    match a.below(20) {
        0 => 0,
        1 => a.pick(&ABSURD),
        2 => u64::from(TABLE_SLOTS) - 1 - a.below(64),
        3 => a.below(64 * u64::from(at::LEAVES)),
        _ => at::pool(ty, a.next()).get().into(),
    }
}

/// A slot for a new capability, of a type.
pub fn place(a: &Actor, ty: CapType) -> u64 {
    let index: u64 = at::pool(ty, a.next()).get().into();
    match a.below(16) {
        0 => a.pick(&ABSURD),
        1 => (operand(a, CapType::Captbl) << 32) | (index % 64),
        _ => u64::from(at::TABLE.get()) << 32 | index,
    }
}

/// Rights of a copy.
pub fn rights(a: &Actor) -> u64 {
    match a.below(4) {
        0 => a.next() & 0xffff_ffff,
        1 => !(1 << a.below(32)) & 0xffff_ffff,
        _ => Rights::ALL.0.into(),
    }
}

fn node(a: &Actor) -> u64 {
    a.below(report(word::NODES).load(Relaxed) + 1)
}

/// A place for `Resume`.
pub fn somewhere(a: &Actor) -> u64 {
    let cpus = report(word::CPUS).load(Relaxed);
    match a.below(3) {
        0 => 0,
        _ => node(a) | a.below(cpus + 1) << 8 | 1 << 63,
    }
}

fn frame(a: &Actor) -> u64 {
    match a.below(16) {
        0 => a.pick(&[MEMORY_FRAMES - 1, MEMORY_FRAMES, MEMORY_FRAMES + 1]),
        1 => a.pick(&ABSURD),
        _ => a.below(MEMORY_FRAMES),
    }
}

/// An address in the window; now and then one at which nothing of a program can be.
pub fn address(a: &Actor) -> u64 {
    let va = WINDOW + a.below(WINDOW_PAGES) * PAGE_SIZE;
    match a.below(16) {
        0 => a.pick(&[
            0,
            1,
            USER_MIN - 1,
            USER_END,
            USER_END - 1,
            1 << 63,
            0xffff_8000_0000_0000,
            u64::MAX,
        ]),
        1 => va + 1 + a.below(PAGE_SIZE - 1),
        _ => va,
    }
}

fn table_at(a: &Actor, level: u64) -> u64 {
    match a.below(16) {
        0 => a.pick(&[66, 5 << 8, 3 << 8 | 7, u64::MAX]),
        _ => a.below(2) | level << 8,
    }
}

/// Performs one operation.
pub fn operation(a: &Actor) {
    let ty = a.pick(CapType::ALL);
    let (op, args) = match ty {
        CapType::Captbl => captbl(a),
        CapType::PageTable => (a.pick(PageTableOp::ALL) as u64, words(a)),
        CapType::Space => space(a),
        CapType::Component => component(a),
        CapType::Thread => thread(a),
        CapType::Sinv => match a.pick(SinvOp::ALL) {
            SinvOp::Invoke => {
                if !a.is_first() || a.rarely(8) {
                    let _ = invoke(
                        a,
                        subject(a, ty),
                        [1 + a.below(4), a.below(4000), a.next(), a.next()],
                    );
                }
                return;
            }
        },
        CapType::Send => (a.pick(SendOp::ALL) as u64, words(a)),
        CapType::Receive => receive(a),
        CapType::Memory => memory(a),
        CapType::Frame => (a.pick(FrameOp::ALL) as u64, words(a)),
        CapType::Time => time(a),
        CapType::Hardware => hardware(a),
        CapType::Liveness => match a.pick(LivenessOp::ALL) {
            LivenessOp::Revoke => (
                LivenessOp::Revoke as u64,
                [a.pick(&[0, 1, 2, 3, 511, 512, u64::MAX]), 0, 0, 0, 0],
            ),
            op => (op as u64, derived(a, ty, op as u32)),
        },
        CapType::ThreadIds => (a.pick(ThreadIdsOp::ALL) as u64, words(a)),
    };
    let (op, args) = match a.below(32) {
        0 => (INTROSPECT.into(), words(a)),
        1 => (
            a.pick(&[
                COPY as u64,
                12,
                20,
                29,
                32,
                255,
                1 << 20,
                u64::from(u32::MAX),
            ]),
            words(a),
        ),
        _ => (op, args),
    };
    let _ = call(a, ty, subject(a, ty), op, args);
}

/// Words that mean nothing.
fn words(a: &Actor) -> [u64; 5] {
    [a.next(), a.next(), a.next(), a.next(), a.next()]
}

/// A number that may be a small one, as counts and indices are.
fn number(a: &Actor) -> u64 {
    match a.below(4) {
        0 => 0,
        1 => a.below(80),
        2 => a.pick(&ABSURD),
        _ => a.next(),
    }
}

/// A guard, or none.
fn guard(a: &Actor) -> u64 {
    let guard = match a.below(4) {
        0 => Guard {
            liveness: at::pool(CapType::Liveness, a.next()),
            entry: a.below(4) as u32,
        }
        .bits(),
        _ => 0,
    };
    u64::from(guard) << 32
}

/// Arguments of an operation: capabilities where the table of authority wants them, and numbers elsewhere.
fn derived(a: &Actor, ty: CapType, op: u32) -> [u64; 5] {
    let mut words = [number(a), number(a), number(a), number(a), number(a)];
    let row = authority_of(ty, op);
    for argument in row.map_or(&[][..], |row| row.arguments) {
        let ty = argument.ty.unwrap_or_else(|| a.pick(CapType::ALL));
        let low = words[argument.at] & 0xffff_ffff;
        words[argument.at] = match argument.form {
            Form::Index => operand(a, ty),
            Form::Upper => low | operand(a, ty) << 32,
            Form::Place => place(a, a.pick(CapType::ALL)),
            Form::Guard => low | guard(a),
        };
    }
    words
}

fn captbl(a: &Actor) -> (u64, [u64; 5]) {
    let op = a.pick(CaptblOp::ALL);
    let some = a.pick(CapType::ALL);
    let index = match a.below(16) {
        0 => a.pick(&ABSURD),
        _ => at::pool(some, a.next()).get().into(),
    };
    let args = match op {
        CaptblOp::Deactivate | CaptblOp::Read => [index, 0, 0, 0, 0],
        CaptblOp::CopyIn => {
            let narrow = match a.below(4) {
                0 => [a.below(16), a.below(8)],
                1 => [a.pick(&ABSURD), a.pick(&ABSURD)],
                _ => [0; 2],
            };
            let source = match a.below(4) {
                0 => a.below(64 * u64::from(at::LEAVES)),
                _ => operand(a, some),
            };
            [index, source, rights(a) | guard(a), narrow[0], narrow[1]]
        }
        CaptblOp::Cons => [16 + a.below(4), operand(a, CapType::Captbl), 0, 0, 0],
        CaptblOp::Decons => [16 + a.below(5), 0, 0, 0, 0],
        _ => derived(a, CapType::Captbl, op as u32),
    };
    (op as u64, args)
}

fn space(a: &Actor) -> (u64, [u64; 5]) {
    let op = a.pick(SpaceOp::ALL);
    let va = address(a);
    let permissions = a.pick(&[0, 1, 1, 2, 3, 8, u64::MAX]);
    let level = 1 + a.below(3);
    let start = va & !((PAGE_SIZE << (9 * level)) - 1);
    let args = match op {
        SpaceOp::Unmap | SpaceOp::Harvest | SpaceOp::Translate => [table_at(a, 1), va, 0, 0, 0],
        SpaceOp::Protect => [table_at(a, 1), va, permissions, 0, 0],
        SpaceOp::Link => [
            a.below(2) | level << 8,
            start.max(WINDOW),
            operand(a, CapType::PageTable),
            0,
            0,
        ],
        SpaceOp::Unlink => [a.below(2) | level << 8, start.max(WINDOW), 0, 0, 0],
        SpaceOp::AddRegion => {
            let len = match a.below(4) {
                0 => a.pick(&[0, 1, PAGE_SIZE + 1, u64::MAX, 0u64.wrapping_sub(va)]),
                _ => (1 + a.below(8)) * PAGE_SIZE,
            };
            [
                va.max(WINDOW),
                len,
                a.below(6) | a.below(2) << 8 | a.below(4) << 9,
                0,
                0,
            ]
        }
        SpaceOp::RemoveRegion => [va.max(WINDOW), 0, 0, 0, 0],
        // Run 1 and up: without run 0 the attacker itself would get no memory any more.
        SpaceOp::Supply => [
            node(a),
            operand(a, CapType::Memory),
            1 + a.below(6),
            a.below(64),
            a.below(64),
        ],
        SpaceOp::Reclaim => [va.max(WINDOW), a.below(WINDOW_PAGES), 0, 0, 0],
        SpaceOp::Map => [
            table_at(a, 1 + a.below(2)),
            va,
            operand(a, CapType::Frame),
            a.below(4),
            permissions,
        ],
        SpaceOp::Evacuate => {
            let how = a.below(8) | node(a) << 40 | a.below(4) << 48;
            [
                va.max(WINDOW),
                how,
                operand(a, CapType::Memory),
                a.below(64),
                a.below(64),
            ]
        }
        SpaceOp::Exchange => {
            // Its own report page, the window, and where others have their memory.
            let at = a.pick(&[
                va,
                crate::plan::PRIVATE,
                crate::plan::REPORT + 0xff8,
                USER_MIN,
            ]);
            [at & !7, a.below(2), a.next(), 0, 0]
        }
        _ => {
            let [_, rest @ ..] = derived(a, CapType::Space, op as u32);
            [va, rest[0], rest[1], rest[2], rest[3]]
        }
    };
    (op as u64, args)
}

fn component(a: &Actor) -> (u64, [u64; 5]) {
    let op = a.pick(ComponentOp::ALL);
    let args = match op {
        ComponentOp::SetFaultHandler => [operand(a, CapType::Sinv), 0, 0, 0, 0],
        ComponentOp::MakeSinv => {
            let entry = report(word::INVOKED).load(Relaxed);
            let entry = a.pick(&[entry, entry, gadget_address(), USER_END, 0]);
            [
                place(a, CapType::Sinv),
                entry,
                crate::plan::badge::OWN,
                rights(a),
                0,
            ]
        }
        ComponentOp::Configure => [
            a.pick(&[operand(a, CapType::Captbl), at::TABLE.get().into()]),
            a.pick(&[operand(a, CapType::Space), at::SPACE.get().into()]),
            0,
            0,
            0,
        ],
        _ => derived(a, CapType::Component, op as u32),
    };
    (op as u64, args)
}

fn thread(a: &Actor) -> (u64, [u64; 5]) {
    let op = a.pick(ThreadOp::ALL);
    let value = a.pick(&[gadget_address(), WINDOW, a.next(), USER_END]);
    let args = match op {
        ThreadOp::Dispatch => {
            let slice = (1 + a.below(300_000)) | (a.below(256) << 56);
            [slice, a.pick(&[0, operand(a, CapType::Time)]), 0, 0, 0]
        }
        ThreadOp::ReadRegister => [a.below(3), a.below(40), 0, 0, 0],
        ThreadOp::WriteRegister => [a.below(3), a.below(40), value, 0, 0],
        ThreadOp::Migrate => [node(a), 0, 0, 0, 0],
        ThreadOp::Resume => [somewhere(a), 0, 0, 0, 0],
        ThreadOp::Exit => [a.next(), 0, 0, 0, 0],
        ThreadOp::Configure => configure(a),
        ThreadOp::Jump => [node(a), value, a.pick(&[WINDOW, a.next()]), 0, 0],
        ThreadOp::Unload => [a.below(3), WINDOW + a.below(4096), 0, 0, 0],
        ThreadOp::Load => [WINDOW, node(a), 0, 0, 0],
        _ => derived(a, CapType::Thread, op as u32),
    };
    (op as u64, args)
}

/// A configuration of which each part may be another one's.
fn configure(a: &Actor) -> [u64; 5] {
    let entry = report(word::ENTRY).load(Relaxed);
    let own = super::plays::first_id() + 2 + a.below(crate::plan::ATTACKER_IDS - 2);
    let id = match a.below(4) {
        0 => a.below(5000),
        _ => own,
    };
    let component = a.pick(&[at::SPARE.get().into(), operand(a, CapType::Component)]);
    let scheduler = a.pick(&[
        at::ENDPOINTS.get().into(),
        at::LINE.get().into(),
        operand(a, CapType::Receive),
        0,
    ]);
    let ids = a.pick(&[
        at::IDS.get().into(),
        at::IDS.get().into(),
        operand(a, CapType::ThreadIds),
    ]);
    let entry = a.pick(&[entry, entry, gadget_address(), USER_END]);
    let task = super::plays::some_task(a);
    [
        component,
        entry,
        task,
        id | a.next() << 32,
        scheduler & 0xffff_ffff | ids << 32,
    ]
}

fn receive(a: &Actor) -> (u64, [u64; 5]) {
    let op = a.pick(ReceiveOp::ALL);
    let line = a.pick(&[a.below(64), 0, 63, 64, u64::MAX]);
    let args = match op {
        ReceiveOp::MakeSend => [
            line,
            place(a, CapType::Send),
            a.pick(&[0, 1, a.next(), u64::MAX]),
            0,
            0,
        ],
        ReceiveOp::Receive => [line, a.pick(&[1, 1, 1, 1 << 20]), 0, 0, 0],
        _ => {
            let [_, rest @ ..] = derived(a, CapType::Receive, op as u32);
            [line, rest[0], rest[1], rest[2], rest[3]]
        }
    };
    (op as u64, args)
}

fn memory(a: &Actor) -> (u64, [u64; 5]) {
    let op = a.pick(MemoryOp::ALL);
    let at = frame(a);
    let args = match op {
        MemoryOp::RetypeKernel => [at, a.below(ObjectKind::ALL.len() as u64 + 2), 0, 0, 0],
        MemoryOp::Activate => [at, place(a, a.pick(CapType::ALL)), rights(a), 0, 0],
        MemoryOp::RetypeUser => [at, a.pick(&[0, 0, 0, 1, 2, 3, 7, 64, u64::MAX]), 0, 0, 0],
        MemoryOp::Count => [at, a.pick(&[0, 1, 8, MEMORY_FRAMES, u64::MAX]), 0, 0, 0],
        _ => {
            let [_, rest @ ..] = derived(a, CapType::Memory, op as u32);
            [at, rest[0], rest[1], rest[2], rest[3]]
        }
    };
    (op as u64, args)
}

fn time(a: &Actor) -> (u64, [u64; 5]) {
    let op = a.pick(TimeOp::ALL);
    let ns = a.pick(&[a.below(1 << 22), a.next(), u64::MAX, u64::MAX - 1]);
    let args = match op {
        TimeOp::Transfer => [operand(a, CapType::Time), ns, 0, 0, 0],
        _ => derived(a, CapType::Time, op as u32),
    };
    (op as u64, args)
}

/// The hardware capabilities are those that every program has, and whatever the run adds: rights decide.
fn hardware(a: &Actor) -> (u64, [u64; 5]) {
    let op = a.pick(HardwareOp::ALL);
    let args = match op {
        HardwareOp::AttachIrq => [a.below(80), operand(a, CapType::Send), 0, 0, 0],
        HardwareOp::Write => [
            a.pick(&[0, WINDOW, USER_END - 1, 1 << 63, u64::MAX]),
            1 + a.below(5000),
            0,
            0,
            0,
        ],
        HardwareOp::Report => [
            a.pick(&[0, WINDOW, USER_END, 1 << 63, u64::MAX]),
            0,
            0,
            0,
            0,
        ],
        HardwareOp::Shutdown => [a.next(), 0, 0, 0, 0],
        HardwareOp::StartCpu => [a.below(9), operand(a, CapType::Thread), 0, 0, 0],
        HardwareOp::Quiesced => [a.next(), 0, 0, 0, 0],
        HardwareOp::NodeState => [a.below(10), 0, 0, 0, 0],
        HardwareOp::FlushStep => [a.below(100), 0, 0, 0, 0],
        HardwareOp::Count => [a.below(40), 0, 0, 0, 0],
        // Of its own invocations, and of those of others.
        HardwareOp::Inside => [(a.below(256) << 8) | a.below(16), 0, 0, 0, 0],
        _ => derived(a, CapType::Hardware, op as u32),
    };
    (op as u64, args)
}
