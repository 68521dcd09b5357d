//! The thread that performs the operations, in a component whose objects all lie in the memory that
//! is being measured, and the threads it works with.
//!
//! | pass | window | checked by |
//! |---|---|---|
//! | lookup that fails, clock, invocation | the call | its results |
//! | dispatch | from the dispatcher's call to the dispatched thread's return from `Yield` | a count that thread keeps |
//! | send | nobody waits; or a more urgent thread waits, until its `Receive` returns; or two sends and receives | the bits; counts |
//! | activate, copy, deactivate | in slots that have not been used | the slot is read |
//! | revoke | with so many copies guarded by the entry | a copy is refused afterwards |
//! | retype | frames nobody has used; untyped again; the same frames after quiescence | the frame is inspected |
//! | map, protect, unmap | addresses that have not been used, of a space with tables of both ISAs | translated |
//! | faults | the load | the value loaded |
//!
//! Whatever takes the CPU from the worker or its partners does so by an interrupt, whose window is
//! no sample; then partners are brought back to where they wait.

#![allow(unsafe_code)]

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use dyad::sys::cap::{
    Cap, CapIndex, Captbl, Frame, Liveness, Memory, Narrow, ObjectKind, Place, Receive, Rights,
    Send, Sinv, Space, Stamp, Thread,
};
use dyad::sys::{Error, Isa, NodeId, Result};
use dyad_abi::cap::{
    CapType, CaptblOp, HardwareOp, LivenessOp, MAP_WRITE, MemoryOp, ReceiveOp, SendOp, SinvOp,
    SpaceOp, ThreadOp, call_word,
};
use dyad_abi::marker::{BENCH_OPS, BenchMemory, BenchOp};
use dyad_abi::service::slot;
use dyad_abi::user::PAGE_SIZE;

use super::partners::{done, line, line_number, partner, settle};
use super::server::{PAGES_ORDER, pages_of};
use crate::in_window;

/// Repetitions before those that count: code is translated and memory touched for the first time.
pub const WARM_UP: u64 = 4;
/// Priority of the worker; its partners are more urgent.
pub const PRIORITY: u8 = 7;
/// Copies in the largest case of revocation.
pub const MANY: u64 = 10_000;
/// Most repetitions of that.
pub const MANY_TIMES: u64 = 40;

/// Time in which every node makes several rounds.
const ROUNDS_NS: u64 = 300_000_000;

// The worker's table.
const TABLE: Cap<Captbl> = Cap::at(slot::TABLE);
/// The worker itself.
pub const THREAD: Cap<Thread> = Cap::at(slot::THREAD);
/// Endpoints of the worker's scheduler, and others.
pub const ENDPOINT: Cap<Receive> = Cap::at(slot::ENDPOINT);
/// Memory that objects are made of.
pub const MEMORY: Cap<Memory> = Cap::at(CapIndex(16));
/// An address space in which nothing runs.
pub const SCRATCH: Cap<Space> = Cap::at(CapIndex(40));
/// A block of user memory.
pub const PAGES: Cap<Frame> = Cap::at(CapIndex(41));
/// Guards.
pub const LIVENESS: Cap<Liveness> = Cap::at(CapIndex(42));
/// The server.
pub const SERVER: Cap<Sinv> = Cap::at(CapIndex(43));
/// To the line at which nobody waits, and to those of the partners.
pub const TO: [Cap<Send>; 4] = [
    Cap::at(CapIndex(44)),
    Cap::at(CapIndex(45)),
    Cap::at(CapIndex(46)),
    Cap::at(CapIndex(47)),
];
/// The partners.
pub const PARTNERS: [Cap<Thread>; 3] = [
    Cap::at(CapIndex(48)),
    Cap::at(CapIndex(49)),
    Cap::at(CapIndex(50)),
];
/// A slot that stays empty.
const EMPTY: CapIndex = CapIndex(62);
/// The first slot for what is measured.
pub const FRESH: u32 = 64;

/// What the worker is to do, and what has come of it.
#[derive(Debug)]
pub struct Plan {
    /// Where it runs, and on which ISA.
    pub node: NodeId,
    /// Its ISA.
    pub isa: Isa,
    /// Where the objects lie.
    pub memory: BenchMemory,
    /// Repetitions, with those for warming up.
    pub times: u64,
    /// Single frames to be retyped.
    pub frames: Vec<u64>,
    /// Single frames for leaves.
    pub leaves: Vec<u64>,
    /// The frame that [`PAGES`] begins with.
    pub pages_at: u64,
    /// Addresses in [`SCRATCH`].
    pub scratch_va: u64,
    /// Addresses of its own: for faults that the server handles, for those the kernel does, and again
    /// for the server.
    pub fault_va: [u64; 3],
    /// By operation: how often the result was another one than expected, and the last such one.
    pub wrong: [(u64, u64); BENCH_OPS.len()],
    next_slot: u32,
}

use alloc::vec::Vec;

impl Plan {
    /// A plan.
    pub fn new(node: NodeId, isa: Isa, memory: BenchMemory, times: u64) -> Plan {
        Plan {
            node,
            isa,
            memory,
            times,
            frames: Vec::new(),
            leaves: Vec::new(),
            pages_at: 0,
            scratch_va: 0,
            fault_va: [0; 3],
            wrong: [(0, 0); BENCH_OPS.len()],
            next_slot: FRESH,
        }
    }

    /// Slots it uses of its table.
    pub fn slots(times: u64) -> u64 {
        u64::from(FRESH) + 2 * times + 4 * (times + 1) + MANY / 64 + 2
    }

    fn slot(&mut self) -> CapIndex {
        self.next_slot += 1;
        CapIndex(self.next_slot - 1)
    }

    fn note(&mut self, op: BenchOp, good: bool, what: u64) {
        if !good {
            let wrong = &mut self.wrong[op as usize];
            *wrong = (wrong.0 + 1, what);
        }
    }
}

/// The word of a call.
pub fn word<T>(cap: Cap<T>, op: u32) -> u64 {
    call_word(cap.index(), op)
}

/// Repeats a pass: its body is given the number of the repetition and says whether its result was as
/// expected, and the result.
macro_rules! repeat {
    ($plan:ident, $op:ident, $times:expr, $i:ident => $body:expr) => {
        for $i in 0..$times {
            if $i == WARM_UP {
                in_window!($op, $plan.memory, forget());
            }
            let (good, what): (bool, u64) = $body;
            $plan.note(BenchOp::$op, good, what);
        }
    };
}

/// A call in the window of an operation.
macro_rules! timed {
    ($plan:ident, $op:ident, $word:expr $(, $a:expr)*) => {
        timed!(@ $plan, $op, $word; $($a,)* ; 0, 0, 0, 0, 0)
    };
    (@ $plan:ident, $op:ident, $word:expr; ; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        in_window!($op, $plan.memory, call($word, $a, $b, $c, $d, $e))
    };
    (@ $plan:ident, $op:ident, $word:expr; $a:expr, ; $($z:expr),*) => {
        in_window!($op, $plan.memory, call($word, $a, 0, 0, 0, 0))
    };
    (@ $plan:ident, $op:ident, $word:expr; $a:expr, $b:expr, ; $($z:expr),*) => {
        in_window!($op, $plan.memory, call($word, $a, $b, 0, 0, 0))
    };
    (@ $plan:ident, $op:ident, $word:expr; $a:expr, $b:expr, $c:expr, ; $($z:expr),*) => {
        in_window!($op, $plan.memory, call($word, $a, $b, $c, 0, 0))
    };
    (@ $plan:ident, $op:ident, $word:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, ; $($z:expr),*) => {
        in_window!($op, $plan.memory, call($word, $a, $b, $c, $d, $e))
    };
}

/// Where the worker starts: `arg` is the address of its [`Plan`].
pub extern "C" fn worker(arg: u64) -> ! {
    let plan = with_exposed_provenance_mut::<Plan>(arg as usize);
    // SAFETY: 1. The main task has made the plan, keeps it until this thread has ended, and looks at
    // it only then.
    let plan = unsafe { &mut *plan };
    simple(plan);
    partners(plan);
    capabilities(plan);
    revocation(plan);
    let done = memory(plan).and_then(|()| spaces(plan));
    let code = done.map_or_else(Error::code, |()| 0);
    faults(plan);
    hardware(plan);
    loop {
        let _ = THREAD.exit(code as u32);
    }
}

fn simple(plan: &mut Plan) {
    repeat!(plan, Empty, plan.times, _i => {
        in_window!(Empty, plan.memory, empty());
        (true, 0)
    });
    repeat!(plan, NullSyscall, plan.times, _i => {
        let r = timed!(plan, NullSyscall, call_word(EMPTY, 1));
        (r.status == Error::NoCap.code(), r.status)
    });
    let hardware: Cap<dyad::sys::cap::Hardware> = Cap::at(slot::hardware(plan.node));
    repeat!(plan, Now, plan.times, _i => {
        let r = timed!(plan, Now, word(hardware, HardwareOp::Now as u32));
        (r.status == 0 && r.value != 0, r.status)
    });
    repeat!(plan, IpcRoundTrip, plan.times, i => {
        let mut reply = [0; 4];
        let words = core::hint::black_box([i, i + 1, i + 2, i + 3]);
        let to = word(SERVER, SinvOp::Invoke as u32);
        let status = in_window!(IpcRoundTrip, plan.memory, invoke_again(to, words, &mut reply));
        (status == 0 && reply == words, status)
    });
    repeat!(plan, IpcRoundTripFp, plan.times, i => {
        let mut reply = [0; 4];
        let words = core::hint::black_box([i, i + 1, i + 2, i + 3]);
        use_fp(i);
        let to = word(SERVER, SinvOp::Invoke as u32);
        let status = in_window!(IpcRoundTripFp, plan.memory, invoke(to, words, &mut reply));
        (status == 0 && reply == words, status)
    });
    repeat!(plan, FpFirstUse, plan.times, i => {
        let to = word(SERVER, SinvOp::Invoke as u32);
        let found = in_window!(FpFirstUse, plan.memory, convert_after(to, i));
        (found == i as f64, found.to_bits())
    });
}

fn partners(plan: &mut Plan) {
    for n in 0..PARTNERS.len() {
        // The first time it starts.
        if let Err(e) = settle(n) {
            plan.note(BenchOp::Dispatch, false, e.code());
            return;
        }
    }
    let how = u64::from(PRIORITY) << 56;
    repeat!(plan, Dispatch, plan.times, _i => {
        let before = done(partner::YIELDS);
        let to = word(PARTNERS[partner::YIELDS], ThreadOp::Dispatch as u32);
        let r = in_window!(Dispatch, plan.memory, begin(to, how));
        if done(partner::YIELDS) == before {
            let _ = settle(partner::YIELDS);
        }
        (r.status == 0 && done(partner::YIELDS) == before + 1, r.status)
    });
    let take = |n: usize| ENDPOINT.receive(line_number(n), dyad::sys::cap::Until::Now);
    repeat!(plan, AsyncSend, plan.times, _i => {
        let to = word(TO[line::NOBODY], SendOp::Send as u32);
        let r = timed!(plan, AsyncSend, to);
        (r.status == 0 && take(line::NOBODY) == Ok(1), r.status)
    });
    repeat!(plan, AsyncSendSwitch, plan.times, _i => {
        let before = done(partner::SWITCH);
        let to = word(TO[line::SWITCH], SendOp::Send as u32);
        let r = in_window!(AsyncSendSwitch, plan.memory, begin(to, 0));
        let at_once = done(partner::SWITCH) == before + 1;
        if !at_once {
            let _ = settle(partner::SWITCH);
        }
        (r.status == 0 && done(partner::SWITCH) == before + 1, r.status + u64::from(!at_once))
    });
    repeat!(plan, AsyncPingPong, plan.times, _i => {
        let to = word(TO[line::PONG], SendOp::Send as u32);
        let from = word(ENDPOINT, ReceiveOp::Receive as u32);
        let back = line_number(line::BACK);
        let mut bits = in_window!(AsyncPingPong, plan.memory, there_and_back(to, from, back, 1));
        if bits == 0 {
            // It was interrupted on the way.
            let _ = settle(partner::PONG);
            bits = take(line::BACK).unwrap_or(0);
        }
        (bits == 1, bits)
    });
}

fn capabilities(plan: &mut Plan) {
    let reads = |index| TABLE.read(index).map(|i| (i.kind, i.rights));
    let first = plan.next_slot;
    repeat!(plan, CapActivate, plan.times, _i => {
        let index = plan.slot();
        let place = u64::from(slot::TABLE.get()) << 32 | u64::from(index.get());
        let all = u64::from(Rights::ALL.0);
        let activate = word(MEMORY, MemoryOp::Activate as u32);
        let r = timed!(plan, CapActivate, activate, plan.pages_at, place, all);
        (r.status == 0 && reads(index).is_ok_and(|(k, _)| k == CapType::Frame), r.status)
    });
    repeat!(plan, CapCopy, plan.times, _i => {
        let index = plan.slot();
        let fewer = Rights::COPY.or(Rights::INTROSPECT);
        let copy = word(TABLE, CaptblOp::CopyIn as u32);
        let from = u64::from(PAGES.index().get());
        let r = timed!(plan, CapCopy, copy, index.get().into(), from, fewer.0.into(), 0, 0);
        (r.status == 0 && reads(index) == Ok((CapType::Frame, fewer)), r.status)
    });
    repeat!(plan, CapDeactivate, 2 * plan.times, i => {
        let index = CapIndex(first + i as u32);
        let was = reads(index).is_ok();
        let r = timed!(plan, CapDeactivate, word(TABLE, CaptblOp::Deactivate as u32), index.get().into());
        (was && r.status == 0 && reads(index).is_err(), r.status)
    });
}

/// Puts copies that entry 0 guards into leaves that hang nowhere, but for the last one: in a slot
/// of the worker's own, so that it can be tried.
fn guarded(plan: &mut Plan, leaves: u32, copies: u64) -> Result<Cap<Frame>> {
    let rights = Rights::COPY.or(Rights::INTROSPECT);
    let guard = Some(LIVENESS.guard(0));
    let copy = |into: Cap<Captbl>, index| into.copy_in(index, PAGES, rights, guard, Narrow::ALL);
    for n in 0..copies.saturating_sub(1) {
        let leaf: Cap<Captbl> = Cap::at(CapIndex(leaves + (n / 64) as u32));
        copy(leaf, CapIndex((n % 64) as u32))?;
    }
    let index = plan.slot();
    if copies == 0 {
        return Ok(Cap::at(EMPTY));
    }
    copy(TABLE, index)
}

/// What is refused for a moment, or needs rounds that others make.
fn patiently<T>(mut f: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match f() {
            Err(Error::Again) => THREAD.yield_now()?,
            done => return done,
        }
    }
}

fn quiesced(plan: &Plan, stamp: Stamp) -> Result<()> {
    let hardware: Cap<dyad::sys::cap::Hardware> = Cap::at(slot::hardware(plan.node));
    while !hardware.quiesced(stamp)? {
        THREAD.yield_now()?;
    }
    Ok(())
}

/// Makes the leaves anew: slots that have been used can be used again.
fn renew(plan: &Plan, leaves: u32, used: u64) -> Result<()> {
    let all = || {
        plan.leaves
            .iter()
            .zip(leaves..)
            .take(used.div_ceil(64) as usize)
    };
    for (&at, slot) in all() {
        TABLE.deactivate(CapIndex(slot))?;
        MEMORY.retype_untyped(at)?;
    }
    for (&at, slot) in all() {
        patiently(|| MEMORY.retype_kernel(at, ObjectKind::CaptblLeaf))?;
        let place = Place::of(TABLE, CapIndex(slot));
        patiently(|| MEMORY.activate::<Captbl>(at, place, Rights::ALL))?;
    }
    Ok(())
}

fn revocation(plan: &mut Plan) {
    let leaves = plan.next_slot;
    for n in 0..plan.leaves.len() {
        let place = Place::of(TABLE, plan.slot());
        let made = MEMORY
            .retype_kernel(plan.leaves[n], ObjectKind::CaptblLeaf)
            .and_then(|()| MEMORY.activate::<Captbl>(plan.leaves[n], place, Rights::ALL));
        if let Err(e) = made {
            plan.note(BenchOp::Revoke0, false, e.code());
            return;
        }
    }
    macro_rules! revoke {
        ($op:ident, $copies:expr, $times:expr) => {
            repeat!(plan, $op, $times, i => {
                let copies = if i < WARM_UP { 0 } else { $copies };
                let one = guarded(plan, leaves, copies);
                let alive = one.and_then(Cap::introspect).is_ok();
                let r = timed!(plan, $op, word(LIVENESS, LivenessOp::Revoke as u32));
                let dead = one.and_then(Cap::introspect) == Err(Error::Revoked);
                let renewed = renew(plan, leaves, copies.saturating_sub(1));
                let good = renewed.is_ok() && (copies == 0 || alive && dead);
                (r.status == 0 && good, r.status + u64::from(dead) + 2 * u64::from(alive))
            });
        };
    }
    revoke!(Revoke0, 0, plan.times);
    revoke!(Revoke1, 1, plan.times);
    revoke!(Revoke64, 64, plan.times);
    revoke!(Revoke10000, MANY, plan.times.min(MANY_TIMES));
}

fn memory(plan: &mut Plan) -> Result<()> {
    let what = |at| MEMORY.inspect(at).map(|w| w >> 29 & 7);
    let (untyped, kernel) = (Ok(1), Ok(5));
    let retype = word(MEMORY, MemoryOp::RetypeKernel as u32);
    let leaf = ObjectKind::CaptblLeaf as u64;
    repeat!(plan, RetypeKernelClean, plan.times, i => {
        let at = plan.frames[i as usize];
        let r = timed!(plan, RetypeKernelClean, retype, at, leaf);
        (r.status == 0 && what(at) == kernel, r.status)
    });
    let mut last = Stamp(0);
    repeat!(plan, RetypeUntyped, plan.times, i => {
        let at = plan.frames[i as usize];
        let r = timed!(plan, RetypeUntyped, word(MEMORY, MemoryOp::RetypeUntyped as u32), at);
        last = last.max(Stamp(r.value));
        (r.status == 0 && what(at) == untyped, r.status)
    });
    quiesced(plan, last)?;
    // A node that sleeps counts as quiet, and for a moment does not after it has woken up. After
    // some rounds all have published an epoch that is late enough.
    let hardware: Cap<dyad::sys::cap::Hardware> = Cap::at(slot::hardware(plan.node));
    let end = hardware.now()? + ROUNDS_NS;
    while hardware.now()? < end {
        THREAD.yield_now()?;
    }
    repeat!(plan, RetypeKernelZeroing, plan.times, i => {
        let at = plan.frames[i as usize];
        let r = timed!(plan, RetypeKernelZeroing, retype, at, leaf);
        (r.status == 0 && what(at) == kernel, r.status)
    });
    Ok(())
}

/// Map, protect and unmap in the table of one ISA: `own` says of which.
macro_rules! pages {
    ($plan:ident, $isa:expr, $map:ident, $protect:ident, $unmap:ident) => {
        let isa: Isa = $isa;
        let at = pages_of(isa).bits();
        let base = $plan.scratch_va;
        let va = |i: u64| base + i * PAGE_SIZE;
        let first = {
            // SAFETY: 1. Nothing runs in that space.
            unsafe { SCRATCH.map(pages_of(isa), va($plan.times), PAGES, 0, dyad::sys::cap::Access::Read)? };
            SCRATCH.translate(isa, va($plan.times))?.physical
        };
        repeat!($plan, $map, $plan.times, i => {
            let page = i % (1 << PAGES_ORDER);
            let from = PAGES.index().get().into();
            let map = word(SCRATCH, SpaceOp::Map as u32);
            let r = timed!($plan, $map, map, at, va(i), from, page, MAP_WRITE);
            let seen = SCRATCH.translate(isa, va(i));
            let as_expected = |t: dyad::sys::cap::Translation| {
                t.write && t.physical == first + page * PAGE_SIZE
            };
            (r.status == 0 && seen.is_ok_and(as_expected), r.status)
        });
        repeat!($plan, $protect, $plan.times, i => {
            let r = timed!($plan, $protect, word(SCRATCH, SpaceOp::Protect as u32), at, va(i), 0);
            let seen = SCRATCH.translate(isa, va(i));
            (r.status == 0 && seen.is_ok_and(|t| !t.write), r.status)
        });
        repeat!($plan, $unmap, $plan.times, i => {
            let r = timed!($plan, $unmap, word(SCRATCH, SpaceOp::Unmap as u32), at, va(i));
            (r.status == 0 && SCRATCH.translate(isa, va(i)).is_err(), r.status)
        });
    };
}

fn spaces(plan: &mut Plan) -> Result<()> {
    {
        pages!(plan, plan.isa, Map, Protect, Unmap);
    }
    {
        pages!(
            plan,
            plan.isa.other(),
            MapForeign,
            ProtectForeign,
            UnmapForeign
        );
    }
    Ok(())
}

/// Leaves something in floating-point registers.
#[inline(always)]
fn use_fp(i: u64) {
    // Multiplied at run time, in a register of that kind.
    let half = core::hint::black_box(i as f64) * 0.5;
    core::hint::black_box(half);
}

/// What the first word of page `n` of [`PAGES`] is.
pub const fn stamp_of(n: u64) -> u64 {
    0x5eed_0000_0000_0000 | n
}

fn faults(plan: &mut Plan) {
    let page = |va: u64| va / PAGE_SIZE % (1 << PAGES_ORDER);
    repeat!(plan, PageFaultUser, plan.times, i => {
        let va = plan.fault_va[0] + i * PAGE_SIZE;
        let at = with_exposed_provenance(va as usize);
        let to = word(SERVER, SinvOp::Invoke as u32);
        let found = in_window!(PageFaultUser, plan.memory, touch_after(to, at));
        (found == stamp_of(page(va)), found)
    });
    repeat!(plan, PageFaultUserFp, plan.times, i => {
        let va = plan.fault_va[2] + i * PAGE_SIZE;
        let at = with_exposed_provenance(va as usize);
        use_fp(i);
        let found = in_window!(PageFaultUserFp, plan.memory, touch(at));
        (found == stamp_of(page(va)), found)
    });
    let own: Cap<Space> = Cap::at(slot::SPACE);
    repeat!(plan, PageFaultForeignTable, plan.times, i => {
        let va = plan.fault_va[1] + i * PAGE_SIZE;
        let table = pages_of(plan.isa.other());
        // SAFETY: 1. The program has nothing there.
        let there = unsafe { own.map(table, va, PAGES, page(va), dyad::sys::cap::Access::Write) };
        let missing = own.translate(plan.isa, va).is_err();
        let at = with_exposed_provenance(va as usize);
        let found = match there {
            Ok(()) => in_window!(PageFaultForeignTable, plan.memory, touch(at)),
            Err(e) => e.code(),
        };
        (missing && found == stamp_of(page(va)), found)
    });
}

fn hardware(plan: &mut Plan) {
    let hardware: Cap<dyad::sys::cap::Hardware> = Cap::at(slot::hardware(plan.node));
    repeat!(plan, FlushStep, 4 * plan.times, _i => {
        let r = timed!(plan, FlushStep, word(hardware, HardwareOp::FlushStep as u32), 1);
        (r.status == 0, r.status)
    });
    repeat!(plan, TlbFlush, plan.times, _i => {
        let r = timed!(plan, TlbFlush, word(hardware, HardwareOp::FlushTlb as u32));
        (r.status == 0, r.status)
    });
}
