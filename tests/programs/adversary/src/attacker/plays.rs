//! Sequences of operations: a state is made that single operations hardly ever come to, and then acted on.
//!
//! | play | state | acts |
//! |---|---|---|
//! | `Stopped` | a child is stopped while it is in a service | registers, other places, other nodes, another configuration, its frame given up |
//! | `Twins` | two children are in a service, with ids that are the same, or somebody else's | both go on in turn |
//! | `Line` | a child has the endpoint line of other schedulers as its scheduler | it wakes, ends, is resumed |
//! | `Drain` | a child, or the attacker itself, runs on a budget | the budget is moved away |
//! | `Copies` | copies with fewer rights, for a part, with a guard | copies of those with all rights; use after revocation |
//! | `Reuse` | a page is mapped | its block becomes untyped, an object, another page; it is touched all the while |
//! | `Flood` | | shootdowns, messages, wakings one after the other |
//! | `Start` | a child is stopped, in a service or not; the attacker goes to another node | it becomes a root thread, if the attacker has a CPU |

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, Guard, HardwareOp, INTROSPECT, Introspection, LivenessOp,
    MemoryOp, ObjectKind, ReceiveOp, Rights, SendOp, SpaceOp, StopOutcome, ThreadOp, TimeOp,
};
use dyad_abi::user::PAGE_SIZE;

use super::any::{address, place, rights, somewhere};
use super::{Actor, Task, call, gadget_address};
use crate::plan::{
    ATTACKER_IDS, CHILDREN, PROOF, Role, WINDOW, WINDOW_PAGES, at, attacker_id, found, report,
    word, wrong,
};

/// Frames of the attacker's own memory. Those of children come last.
pub const MEMORY_FRAMES: u64 = 128;
/// Frame of a child's thread.
const fn thread_frame(c: u64) -> u64 {
    MEMORY_FRAMES - 1 - c
}
/// Slice of a child that is to be preempted in the middle of a call.
const SHORT: u64 = 20_000;
const LONG: u64 = 300_000;

dyad_hostile::named! {
    /// A play.
    pub enum Play {
        /// A thread that is stopped in a service.
        Stopped = "Stopped",
        /// Threads with one id.
        Twins = "Twins",
        /// Events for schedulers of others.
        Line = "Line",
        /// Time.
        Drain = "Drain",
        /// Copies of capabilities.
        Copies = "Copies",
        /// Memory that changes hands.
        Reuse = "Reuse",
        /// Messages.
        Flood = "Flood",
        /// CPUs.
        Start = "Start",
    }
}

/// The first id that the attacker has.
pub fn first_id() -> u64 {
    attacker_id(report(word::NUMBER).load(Relaxed))
}

/// The argument of a child.
pub fn some_task(a: &Actor) -> u64 {
    task(a, a.below(CHILDREN), a.pick(&Task::ALL))
}

fn task(_: &Actor, c: u64, task: Task) -> u64 {
    Role::Child.arg(c | (task as u64) << 8)
}

fn thread(a: &Actor, c: u64, op: ThreadOp, args: [u64; 5]) -> Result<u64, u64> {
    call(a, CapType::Thread, at::child(c), op as u64, args)
}

/// Makes what is missing: stacks that are touched, children.
pub fn prepare(a: &Actor) {
    for c in 0..CHILDREN {
        make(a, c);
    }
}

/// Makes the thread of a child, if it is not there.
fn make(a: &Actor, c: u64) {
    let there = call(a, CapType::Thread, at::child(c), INTROSPECT.into(), [0; 5]).is_ok();
    if there {
        return;
    }
    let frame = thread_frame(c);
    let memory = |op: MemoryOp, args| call(a, CapType::Memory, at::MEMORY, op as u64, args);
    let _ = call(
        a,
        CapType::Captbl,
        at::TABLE,
        CaptblOp::Deactivate as u64,
        [at::child(c).get().into(), 0, 0, 0, 0],
    );
    let _ = memory(
        MemoryOp::RetypeKernel,
        [frame, ObjectKind::Thread as u64, 0, 0, 0],
    );
    let to = u64::from(at::TABLE.get()) << 32 | u64::from(at::child(c).get());
    let _ = memory(MemoryOp::Activate, [frame, to, Rights::ALL.0.into(), 0, 0]);
}

/// Has a child begin with a task, with an id, its events going to a scheduler.
fn configure(
    a: &Actor,
    c: u64,
    what: Task,
    id: u64,
    scheduler: CapIndex,
    tag: u64,
) -> Result<u64, u64> {
    make(a, c);
    // One that is in a service has to leave it first.
    let leaves = Ok(StopOutcome::WhenItLeaves as u64);
    for _ in 0..4 {
        if thread(a, c, ThreadOp::Stop, [0; 5]) != leaves {
            break;
        }
        let _ = run(a, c);
    }
    let component = a.pick(&[at::COMPONENT, at::COMPONENT, at::COMPONENT, at::SPARE]);
    let args = [
        component.get().into(),
        report(word::ENTRY).load(Relaxed),
        task(a, c, what),
        id & 0xffff_ffff | tag << 32,
        u64::from(scheduler.get()) | u64::from(at::IDS.get()) << 32,
    ];
    thread(a, c, ThreadOp::Configure, args)
}

fn own_id(c: u64) -> u64 {
    first_id() + 2 + c
}

/// Has a child begin, as it should be.
fn begin(a: &Actor, c: u64, what: Task) -> Result<u64, u64> {
    configure(a, c, what, own_id(c), at::ENDPOINTS, c)?;
    thread(a, c, ThreadOp::Resume, [0; 5])
}

fn run(a: &Actor, c: u64) -> Result<u64, u64> {
    let slice = SHORT + a.below(LONG);
    let time = a.pick(&[0, 0, at::TIME.get().into(), at::TIME_2.get().into()]);
    thread(
        a,
        c,
        ThreadOp::Dispatch,
        [slice | a.below(256) << 56, time, 0, 0, 0],
    )
}

/// Performs one.
pub fn play(a: &Actor) {
    let play = a.pick(Play::ALL);
    if report(word::WITHOUT).load(Relaxed) & 1 << play as u64 != 0 {
        return;
    }
    report(word::PLAYS + play as usize).fetch_add(1, Relaxed);
    drain_events(a);
    match play {
        Play::Stopped => stopped(a),
        Play::Twins => twins(a),
        Play::Line => line(a),
        Play::Drain => drain(a),
        Play::Copies => copies(a),
        Play::Reuse => reuse(a),
        Play::Flood => flood(a),
        Play::Start => start(a),
    }
}

/// Takes what has come for the scheduler of the children.
fn drain_events(a: &Actor) {
    for _ in 0..4 {
        let line = a.pick(&[0, 8, 1, 9]);
        match call(
            a,
            CapType::Receive,
            at::ENDPOINTS,
            ReceiveOp::Receive as u64,
            [line, 1, 0, 0, 0],
        ) {
            Ok(0) | Err(_) => {}
            Ok(_) => continue,
        }
    }
}

/// A task in the middle of which a child is in a service.
fn in_service(a: &Actor) -> Task {
    a.pick(&[Task::Work, Task::Work, Task::Cross, Task::Deeper])
}

fn stopped(a: &Actor) {
    let c = a.below(CHILDREN);
    if begin(a, c, in_service(a)).is_err() {
        return;
    }
    for _ in 0..1 + a.below(4) {
        let _ = run(a, c);
    }
    let _ = thread(a, c, ThreadOp::Stop, [0; 5]);
    for _ in 0..1 + a.below(6) {
        act_on_stopped(a, c);
    }
    let there = a.pick(&[0, somewhere(a)]);
    let resumed = thread(a, c, ThreadOp::Resume, [there, 0, 0, 0, 0]);
    if resumed.is_ok() && there != 0 && a.is_first() {
        go(a, there & 0xff);
    }
    for _ in 0..1 + a.below(3) {
        let _ = run(a, c);
    }
}

/// Goes to another node: from there the attacker can dispatch what it has resumed there. On a node of another ISA it
/// begins anew.
fn go(a: &Actor, node: u64) {
    let me = at::thread(a.n as u64);
    let to = [node, 0, 0, 0, 0];
    let _ = call(a, CapType::Thread, me, ThreadOp::Migrate as u64, to);
}

/// Numbers of program counter and stack pointer on each ISA.
const COUNTERS: [u64; 2] = [16, 32];
const POINTERS: [u64; 2] = [7, 31];

fn act_on_stopped(a: &Actor, c: u64) {
    let isa = a.below(2);
    let write =
        |register, value| thread(a, c, ThreadOp::WriteRegister, [isa, register, value, 0, 0]);
    let _ = match a.below(10) {
        0..3 => write(COUNTERS[isa as usize], gadget_address()),
        3 => write(POINTERS[isa as usize], a.pick(&[PROOF, WINDOW])),
        4 => thread(a, c, ThreadOp::ReadRegister, [isa, a.below(36), 0, 0, 0]),
        5 => {
            for register in 0..36 {
                let _ = thread(a, c, ThreadOp::ReadRegister, [isa, register, 0, 0, 0]);
            }
            Ok(0)
        }
        6 => thread(a, c, ThreadOp::Unload, [isa, WINDOW, 0, 0, 0]),
        7 => thread(a, c, ThreadOp::Resume, [somewhere(a), 0, 0, 0, 0]),
        8 => write(a.below(36), a.pick(&[gadget_address(), PROOF, a.next()])),
        _ => match a.below(3) {
            0 => configure(a, c, in_service(a), own_id(c), at::ENDPOINTS, c),
            1 => call(
                a,
                CapType::Memory,
                at::MEMORY,
                MemoryOp::RetypeUntyped as u64,
                [thread_frame(c), 0, 0, 0, 0],
            ),
            _ => thread(a, c, ThreadOp::Deadline, [0; 5]),
        },
    };
}

fn twins(a: &Actor) {
    let (c, d) = (a.below(CHILDREN), a.below(CHILDREN));
    let id = match a.below(4) {
        0 => a.below(256),
        1 => crate::plan::victim_id(a.below(2)),
        _ => first_id() + 2 + a.below(ATTACKER_IDS - 2),
    };
    for child in [c, d] {
        let begun = configure(a, child, Task::Work, id, at::ENDPOINTS, child);
        if begun.is_ok() {
            let _ = thread(a, child, ThreadOp::Resume, [0; 5]);
        }
    }
    for _ in 0..2 + a.below(8) {
        let _ = run(a, a.pick(&[c, d]));
    }
}

fn line(a: &Actor) {
    let c = a.below(CHILDREN);
    let tag = a.pick(&[a.next(), a.below(4096), 0]);
    let scheduler = a.pick(&[at::LINE, at::LINE, at::pool(CapType::Receive, a.next())]);
    if configure(a, c, a.pick(&Task::ALL), own_id(c), scheduler, tag).is_ok() {
        let _ = thread(a, c, ThreadOp::Resume, [somewhere(a), 0, 0, 0, 0]);
        let _ = thread(a, c, ThreadOp::Resume, [0; 5]);
        let _ = run(a, c);
        let _ = thread(a, c, ThreadOp::Stop, [0; 5]);
    }
    // Messages to that object, too.
    let to = place(a, CapType::Send);
    let made = call(
        a,
        CapType::Receive,
        at::LINE,
        ReceiveOp::MakeSend as u64,
        [a.below(64), to, a.next(), 0, 0],
    );
    if made.is_ok() {
        let _ = call(
            a,
            CapType::Send,
            CapIndex(to as u32),
            SendOp::Send as u64,
            [0; 5],
        );
    }
    let args = [a.below(64), a.below(2) | a.below(2) << 8, 0, 0, 0];
    let _ = call(a, CapType::Receive, at::LINE, ReceiveOp::Bind as u64, args);
}

/// Moves time between the attacker's own budgets, of which one is the budget that it runs on just now.
pub fn drain(a: &Actor) {
    let (from, to) = a.pick(&[(at::TIME, at::TIME_2), (at::TIME_2, at::TIME)]);
    let read = |cap| call(a, CapType::Time, cap, TimeOp::Read as u64, [0; 5]);
    for _ in 0..1 + a.below(4) {
        let Ok(left) = read(from) else { return };
        let ns = a.pick(&[left, left, left / 2, left.wrapping_add(1)]);
        let _ = call(
            a,
            CapType::Time,
            from,
            TimeOp::Transfer as u64,
            [to.get().into(), ns, 0, 0, 0],
        );
        for _ in 0..a.below(200) {
            dyad_sys::raw::relax();
        }
    }
    if a.is_first() && a.rarely(2) {
        // A child runs on a budget while its dispatcher runs on the same.
        let c = a.below(CHILDREN);
        if begin(a, c, a.pick(&[Task::Drain, Task::Spin])).is_ok() {
            let args = [
                SHORT + a.below(4 * LONG),
                a.pick(&[from, to]).get().into(),
                0,
                0,
                0,
            ];
            let _ = thread(a, c, ThreadOp::Dispatch, args);
        }
    }
}

fn introspect(a: &Actor, ty: CapType, cap: CapIndex) -> Option<Introspection> {
    Introspection::from_bits(call(a, ty, cap, INTROSPECT.into(), [0; 5]).ok()?)
}

fn copies(a: &Actor) {
    let ty = a.pick(CapType::ALL);
    let own = match ty {
        CapType::Receive => at::LINE,
        CapType::Time => at::TIME,
        CapType::ThreadIds => at::IDS,
        CapType::Memory => at::MEMORY,
        CapType::Sinv => at::SERVICE,
        CapType::Hardware => at::hardware(a.below(2)),
        CapType::Thread => at::child(a.below(CHILDREN)),
        CapType::Component => at::COMPONENT,
        _ => at::pool(ty, a.next()),
    };
    let to = |k: u64| at::pool(ty, k);
    let copy = |to: CapIndex, from: CapIndex, how: u64, part: [u64; 2]| {
        let args = [to.get().into(), from.get().into(), how, part[0], part[1]];
        call(a, CapType::Captbl, at::TABLE, CaptblOp::CopyIn as u64, args)
    };
    let (k, l) = (a.next(), a.next());
    let guard = Guard {
        liveness: at::pool(CapType::Liveness, a.next()),
        entry: a.below(4) as u32,
    };
    let how = rights(a)
        | if a.rarely(2) {
            u64::from(guard.bits()) << 32
        } else {
            0
        };
    let part = a.pick(&[
        [0, 0],
        [0, 1],
        [1, 2],
        [0, 64],
        [u64::MAX, 2],
        [1, u64::MAX],
    ]);
    if copy(to(k), own, how, part).is_ok()
        && copy(to(l), to(k), Rights::ALL.0.into(), [0, 0]).is_ok()
    {
        // Slots are the attacker's own, and another thread of its may have changed them meanwhile: so a copy that is
        // more is looked at twice.
        let more = || match (introspect(a, ty, to(k)), introspect(a, ty, to(l))) {
            (Some(source), Some(copy)) => {
                copy.kind == source.kind && !source.rights.contains(copy.rights)
            }
            _ => false,
        };
        if report(word::CPUS).load(Relaxed) == 1 && a.is_first() && more() && more() {
            found(wrong::OBJECT, ty as u64);
        }
    }
    let revoke = [a.below(4), 0, 0, 0, 0];
    let _ = call(
        a,
        CapType::Liveness,
        guard.liveness,
        LivenessOp::Revoke as u64,
        revoke,
    );
    let _ = introspect(a, ty, to(l));
    for k in [k, l] {
        let args = [to(k).get().into(), 0, 0, 0, 0];
        let _ = call(
            a,
            CapType::Captbl,
            at::TABLE,
            CaptblOp::Deactivate as u64,
            args,
        );
    }
}

/// Touches a page of the window: in a child, which may come to harm.
pub fn touch(a: &Actor) {
    let va = WINDOW + a.below(WINDOW_PAGES) * PAGE_SIZE + a.below(512) * 8;
    let p = with_exposed_provenance_mut::<AtomicU64>(va as usize);
    // SAFETY: 1. Nothing of the attacker is in the window: it is memory for words like this, or a fault, which ends
    // the child at most.
    let word = unsafe { &*p };
    match a.rarely(2) {
        true => super::judge(word.load(Relaxed)),
        false => word.store(va, Relaxed),
    }
}

fn reuse(a: &Actor) {
    let at_frame = a.below(16);
    let memory = |op: MemoryOp, args| call(a, CapType::Memory, at::MEMORY, op as u64, args);
    let slot = at::pool(CapType::Frame, a.next());
    let to = u64::from(at::TABLE.get()) << 32 | u64::from(slot.get());
    let _ = memory(MemoryOp::RetypeUser, [at_frame, 0, 0, 0, 0]);
    let _ = memory(
        MemoryOp::Activate,
        [at_frame, to, Rights::ALL.0.into(), 0, 0],
    );
    let va = address(a) & !0xfff;
    let map = [1 << 8 | a.below(2), va, slot.get().into(), 0, 1];
    let _ = call(a, CapType::Space, at::SPACE, SpaceOp::Map as u64, map);
    let toucher = a.below(CHILDREN);
    if begin(a, toucher, Task::Touch).is_ok() {
        let _ = run(a, toucher);
    }
    let steps = [
        (MemoryOp::RetypeUntyped, [at_frame, 0, 0, 0, 0]),
        (MemoryOp::RetypeKernel, [at_frame, a.below(16), 0, 0, 0]),
        (
            MemoryOp::Activate,
            [
                at_frame,
                place(a, a.pick(CapType::ALL)),
                Rights::ALL.0.into(),
                0,
                0,
            ],
        ),
    ];
    for (op, args) in steps {
        if a.rarely(3) {
            let unmap = [1 << 8 | a.below(2), va, 0, 0, 0];
            let _ = call(a, CapType::Space, at::SPACE, SpaceOp::Unmap as u64, unmap);
        }
        let _ = memory(op, args);
        let _ = run(a, toucher);
    }
}

fn flood(a: &Actor) {
    let c = a.below(CHILDREN);
    let begun = begin(a, c, Task::Cross).is_ok();
    for _ in 0..32 + a.below(64) {
        let _ = match a.below(4) {
            0..2 => call(
                a,
                CapType::Space,
                at::SPACE,
                SpaceOp::Shootdown as u64,
                [WINDOW, PAGE_SIZE, 0, 0, 0],
            ),
            2 => call(
                a,
                CapType::Send,
                at::pool(CapType::Send, a.next()),
                SendOp::Send as u64,
                [0; 5],
            ),
            _ => thread(a, c, ThreadOp::Resume, [somewhere(a), 0, 0, 0, 0]),
        };
        if begun && a.rarely(8) {
            let _ = run(a, c);
        }
    }
}

fn start(a: &Actor) {
    if a.is_first() && a.rarely(4) {
        go(a, a.below(report(word::NODES).load(Relaxed) + 1));
    }
    let c = a.below(CHILDREN);
    if begin(a, c, a.pick(&[Task::Any, Task::Work, Task::Cross])).is_err() {
        return;
    }
    for _ in 0..a.below(3) {
        let _ = run(a, c);
    }
    let _ = thread(a, c, ThreadOp::Stop, [0; 5]);
    let node = a.below(report(word::NODES).load(Relaxed));
    let cpu = a.below(report(word::CPUS).load(Relaxed));
    let args = [cpu, at::child(c).get().into(), 0, 0, 0];
    let _ = call(
        a,
        CapType::Hardware,
        at::hardware(node),
        HardwareOp::StartCpu as u64,
        args,
    );
    let _ = run(a, c);
}
