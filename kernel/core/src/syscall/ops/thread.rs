//! Operations on threads.
//!
//! | operation | from | to |
//! |---|---|---|
//! | `Configure` | NONE, STOPPED | STOPPED |
//! | `Resume` | STOPPED; BLOCKED | READY, on the node that is asked for |
//! | `Dispatch` | READY | RUNNING ([`dispatch::dispatch`]) |
//! | `Stop` ([`stop`]) | READY, BLOCKED | STOPPED; within an invocation READY, with a request |
//! | `Yield`, `Exit`, `Migrate`, `Jump` | RUNNING, itself | READY, STOPPED, TRANSIT; `Jump` also RUNNING |
//! | `Load` ([`registers`]) | RUNNING, itself | RUNNING, with other registers; TRANSIT |
//! | `ReadRegister`, `WriteRegister`, `Unload` ([`registers`]) | STOPPED | STOPPED |
//!
//! The owner word names the CPU or the endpoint that a thread belongs to, and every step here is one
//! compare-and-swap of it: of two concurrent operations on a thread, one finds that it has lost. A running
//! thread belongs to its CPU, and one in transit to the receiver: no other operation takes it away.
//!
//! The states are those of [`dyad_object::thread`]. Every change of owner increments `seq` in the owner word,
//! so an exchange that succeeds applies to the state that was read, not to a later one with the same owner.
//!
//! Authority besides the right of the operation:
//!
//! | operation | needs |
//! |---|---|
//! | `Configure` | the component, with the right to configure it; all the scheduler's endpoints, with the right to bind them; a range of ids that contains the new id, with the right to use it |
//! | `Dispatch` on a budget | the budget, with the right to use it |
//! | `Migrate`, `Jump`, `Load`, `Yield`, `Exit` | to be the thread |
//!
//! Within an invocation a thread runs the code of a service. Its owner may stop and resume it, but can
//! neither read nor write its registers, nor choose another node for it ([`can_go_on`]).
//!
//! | step | order |
//! |---|---|
//! | configure: STOPPED -> CHANGING, its id ([`ids`]), the thread's words, CHANGING -> STOPPED | each before the next: in between no other operation can reach the thread |
//! | registers: STOPPED -> CHANGING, the register, CHANGING -> STOPPED | as configure |
//! | stop: READY or BLOCKED -> CHANGING; fence; off the endpoint; -> STOPPED, or READY | a BLOCKED thread became the waiter before: it is found there, or a sender has taken it off |
//! | resume: STOPPED -> CHANGING; off an old endpoint, CPU; CHANGING -> READY | release: the dispatcher sees all of it |

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, ComponentOp, ReceiveOp, Stopped, ThreadIdsOp, ThreadOp, TimeOp, Woken,
};
use dyad_abi::service::MAX_THREAD_IDS;
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_captbl::Span;

use crate::migrate::{handoff, jump};
use crate::sched::dispatch::{self, OpOutcome, can_go_on, take, untake};
use crate::syscall::ops::{registers, stop};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::endpoint::{Endpoints, LINES};
use dyad_object::thread::{State, Thread, begun};
use dyad_object::time::Budgets;
use dyad_object::{self, find, ids};

/// Position of the priority in the first argument of `Dispatch`; the bits below are the slice in nanoseconds.
const PRIORITY_SHIFT: u32 = 56;
/// Carries out an operation on a thread. `Dispatch` has its slice in the low bits of the first argument, its
/// priority above them (bits 56 to 63), and a budget in the second argument.
///
/// # Errors
///
/// [`Error::NotReady`] if the thread is in no state for the operation; [`Error::Again`] if another CPU was
/// faster; [`Error::Denied`] for an operation that only the thread itself may request; [`Error::NodeDead`],
/// [`Error::NoIsa`] if the thread cannot continue at the requested place; the errors of
/// [`KernelCtx::operand`] for capabilities in arguments. The thread is then unchanged.
#[inline(never)]
pub fn dispatch<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    number: u64,
    a: [u64; 5],
) -> Result<OpOutcome> {
    if number == ThreadOp::Dispatch as u64 {
        let budget = match a[1] {
            0 => return run::<P>(cx, t, a[0]),
            n => Some(budget_of(cx, n)?),
        };
        let (slice, priority) = slice_and_priority(a[0]);
        return dispatch::dispatch::<P>(cx, t, slice, priority, budget);
    }
    others::<P>(cx, t, number, a)
}

/// The slice and the priority in the first argument of `Dispatch`. A slice of 0 has no limit but the
/// dispatcher's own.
const fn slice_and_priority(how: u64) -> (u64, u64) {
    (how & ((1 << PRIORITY_SHIFT) - 1), how >> PRIORITY_SHIFT)
}

/// `Dispatch` without a budget.
///
/// # Errors
///
/// The errors of [`dispatch::dispatch`].
#[inline]
pub fn run<P: Platform>(cx: &KernelCtx, t: &'static Thread, how: u64) -> Result<OpOutcome> {
    let (slice, priority) = slice_and_priority(how);
    dispatch::dispatch::<P>(cx, t, slice, priority, None)
}

/// Carries out all operations but `Dispatch`. They are kept apart because schedulers call `Dispatch` all the
/// time. Operations with a value leave the caller running; the others switch.
#[inline(never)]
fn others<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    number: u64,
    a: [u64; 5],
) -> Result<OpOutcome> {
    let op = ThreadOp::from_number(number).ok_or(Error::BadSyscall)?;
    match op {
        ThreadOp::Configure => configure::<P>(cx, t, a).map(OpOutcome::Value),
        ThreadOp::ReadRegister | ThreadOp::WriteRegister => {
            registers::access::<P>(cx, t, op, a).map(OpOutcome::Value)
        }
        ThreadOp::Unload => registers::unload::<P>(cx, t, a).map(OpOutcome::Value),
        ThreadOp::Deadline => deadline(cx, t).map(OpOutcome::Value),
        ThreadOp::Stop => stop::stop::<P>(cx, t).map(OpOutcome::Value),
        ThreadOp::Resume => resume::<P>(cx, t, a[0]).map(OpOutcome::Value),
        ThreadOp::Dispatch
        | ThreadOp::Migrate
        | ThreadOp::Jump
        | ThreadOp::Load
        | ThreadOp::Yield
        | ThreadOp::Exit => {
            // These are for the caller itself: they end in another thread's running here, which
            // only the one that gives the CPU up can be made to do.
            if !core::ptr::eq(t, dispatch::current(cx)) && !lacks!("ops::thread::others::self") {
                return Err(Error::Denied);
            }
            match op {
                ThreadOp::Migrate => {
                    let to = NodeId::new(a[0]).ok_or(Error::NoSuchNode)?;
                    handoff::migrate::<P>(cx, to)
                }
                ThreadOp::Jump => jump::jump::<P>(cx, a),
                ThreadOp::Load => registers::load::<P>(cx, t, a),
                ThreadOp::Yield => Ok(dispatch::yield_now::<P>(cx, t)),
                _ => {
                    // Before it ends: who is told that it has, reads the code.
                    t.exit_code.store(a[0], Ordering::Relaxed);
                    dispatch::end_thread::<P>(cx, t, Stopped::Exited, a[0].min(u32::MAX.into()));
                    Ok(OpOutcome::Switched)
                }
            }
        }
    }
}

/// The budget of a Time capability that permits its use: the object, the index of the word, and the
/// reference. The thread keeps the reference, because the budget may be untyped while it runs.
fn budget_of(cx: &KernelCtx, n: u64) -> Result<(&'static Budgets, usize, u64)> {
    let cap = CapIndex::new(n).ok_or(Error::NoCap)?;
    let time = cx.operand(cap, CapType::Time, TimeOp::Use.right())?;
    let object = time.object()?;
    let at = Span::new(time.payload[0], time.payload[1], LINES as u64)
        .ok_or(Error::Corrupt)?
        .first();
    let budgets: &'static Budgets = find(cx.node, object, Budgets::KIND)?;
    Ok((budgets, at as usize, object.bits()))
}

/// The endpoints of a scheduler that a Receive capability names; 0 means none. The kernel reports a thread at
/// the line of the thread's CPU, so the capability must be for all lines: one for a part must not give access
/// to the others. A weak reference is kept; when the endpoints are gone, no scheduler is told.
///
/// # Errors
///
/// [`Error::Denied`] if the capability is for a part of the lines; the errors of [`KernelCtx::operand`].
fn scheduler_of(cx: &KernelCtx, n: u64) -> Result<u64> {
    if n == 0 {
        return Ok(0);
    }
    let cap = CapIndex::new(n).ok_or(Error::NoCap)?;
    let cap = cx.operand(cap, CapType::Receive, ReceiveOp::Bind.right())?;
    let all = cap.payload[0] == 0 && cap.payload[1] == LINES as u64;
    if !all && !lacks!("ops::thread::scheduler_of::lines") {
        return Err(Error::Denied);
    }
    let object = cap.object()?;
    find::<Endpoints>(cx.node, object, Endpoints::KIND)?;
    Ok(object.bits())
}

/// Checks that a thread id is in the range of a ThreadIds capability. An id decides the stacks of a thread in
/// all components, services included, on every ISA.
///
/// # Errors
///
/// [`Error::BadArgument`] if the id is not in the range; the errors of [`KernelCtx::operand`].
fn id_of(cx: &KernelCtx, id: u64, n: u64) -> Result<u64> {
    let cap = CapIndex::new(n).ok_or(Error::NoCap)?;
    let cap = cx.operand(cap, CapType::ThreadIds, ThreadIdsOp::Use.right())?;
    let ids = Span::thread_ids(cap.payload).ok_or(Error::Corrupt)?;
    match ids.contains(id) || lacks!("ops::thread::id_of::range") {
        true => Ok(id),
        false => Err(Error::BadArgument),
    }
}

/// Checks a layout id: 0, or an id that has stacks. It decides addresses in the thread's own component only, where
/// the caller may begin anything anyway, so no capability is asked for.
///
/// # Errors
///
/// [`Error::BadArgument`] if there are no stacks of that number.
fn layout_of(layout: u64) -> Result<u64> {
    match layout < MAX_THREAD_IDS || lacks!("ops::thread::layout_of::range") {
        true => Ok(layout),
        false => Err(Error::BadArgument),
    }
}

/// `Configure`: resets a thread, which must be NONE or STOPPED, to begin at its entry point. It is STOPPED
/// afterwards: `Resume` says where it begins.
///
/// All arguments are checked before the thread is changed: a refused `Configure` leaves it unchanged.
/// `Configure` of the component is needed, and not `Invoke`, because a new thread enters it at an address of
/// the caller's choice.
fn configure<P: Platform>(cx: &KernelCtx, t: &'static Thread, a: [u64; 5]) -> Result<u64> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    if !matches!(owner.state, State::None | State::Stopped) {
        return Err(Error::NotReady);
    }
    let component = CapIndex::new(a[0]).ok_or(Error::NoCap)?;
    let component = cx.operand(
        component,
        CapType::Component,
        ComponentOp::Configure.right(),
    )?;
    if a[1] == 0 || a[1] >= dyad_abi::user::USER_END {
        return Err(Error::BadAddress);
    }
    let scheduler = scheduler_of(cx, a[4] & 0xffff_ffff)?;
    let id = id_of(cx, a[3] & 0xffff, a[4] >> 32)?;
    let layout = layout_of(a[3] >> 16 & 0xffff)?;
    let me = dyad_object::reference(cx.node, t).ok_or(Error::Corrupt)?;
    let taken = take(cx, t, owner).ok_or(Error::NotReady)?;
    if let Err(e) = ids::claim(cx.node, id, me) {
        untake::<P>(cx, t, taken, owner)?;
        return Err(e);
    }
    let old = t.id.load(Ordering::Relaxed);
    if old != id {
        ids::release(cx.node, old, me);
    }
    // Its stopper may not have taken it off the endpoint yet.
    dispatch::wait_no_more::<P>(cx, t);
    for (word, value) in [
        (&t.component, component.object()?.bits()),
        (&t.entry, a[1]),
        (&t.arg, a[2]),
        (&t.id, id),
        (&t.layout, layout),
        (&t.tag, a[3] >> 32),
        (&t.scheduler, scheduler),
        (&t.cpu, cx.cpu().index() as u64),
        (&t.result, 0),
        (&t.depth, 0),
        (&t.crossing, 0),
        (&t.fault, 0),
        (&t.used_fp, 0),
        (&t.priority, 0),
        (&t.budget, 0),
        (&t.frames[0].info, 0),
    ] {
        word.store(value, Ordering::Relaxed);
    }
    // Whatever it was doing, on whichever ISA, and what has been lost with a machine: it begins anew.
    for isa in Isa::ALL {
        t.set_begun(isa, begun::NOT);
    }
    // The node that dispatches it may be another one: all of it is in memory before.
    if !t.change(cx.words(), taken, taken.with(State::Stopped)) {
        return Err(Error::NotReady);
    }
    Ok(0)
}

/// `Deadline`: the fused time until which a thread waits; 0 if it does not wait, or has no deadline.
/// Schedulers set their own deadline by it. The thread may wake up at any moment; it is then found ready.
fn deadline(cx: &KernelCtx, t: &'static Thread) -> Result<u64> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    match owner.state {
        State::Blocked => Ok(t.deadline.load(Ordering::Relaxed)),
        _ => Ok(0),
    }
}

/// `Resume`: makes a stopped thread ready, or ends the wait of a blocked one. With `place` = `1 << 63 | cpu
/// << 8 | node` a stopped thread becomes ready on that CPU, if it can continue there; otherwise where it was.
///
/// The scheduler there is told, and dispatches the thread when it sees fit.
fn resume<P: Platform>(cx: &KernelCtx, t: &'static Thread, place: u64) -> Result<u64> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    match owner.state {
        State::Ready | State::Blocked if stop::withdraw::<P>(cx, t, owner)? => return Ok(0),
        State::Blocked => {
            // As if its deadline had come: it takes what there is, if anything, when it runs. Its
            // words are not this CPU's to write: it may be stopped and configured anew meanwhile.
            let waiter = dispatch::stop_waiting(cx, t).ok_or(Error::NotReady)?;
            dispatch::wake::<P>(cx, waiter, Woken::Ready)?;
            return Ok(0);
        }
        State::Stopped => {}
        _ => return Err(Error::NotReady),
    }
    let (node, cpu) = match place >> 63 {
        0 => (owner.node, t.cpu.load(Ordering::Relaxed)),
        _ => {
            let node = NodeId::new(place & 0xff)
                .filter(|n| n.index() < cx.node.params.node_count)
                .ok_or(Error::NoSuchNode)?;
            let cpu = CpuId::new(place >> 8 & 0xff)
                .filter(|c| c.index() < cx.node.params.cpus)
                .ok_or(Error::BadArgument)?;
            (node, cpu.index() as u64)
        }
    };
    let taken = take(cx, t, owner).ok_or(Error::Again)?;
    let incarnation = match can_go_on(cx, t, &owner, node) {
        Ok(incarnation) => incarnation,
        Err(e) => {
            untake::<P>(cx, t, taken, owner)?;
            return Err(e);
        }
    };
    let ready = taken.passed(node, incarnation, State::Ready);
    // The CPU that has just stopped it may not have come to that yet, and the thread may be about to wait again.
    dispatch::wait_no_more::<P>(cx, t);
    t.cpu.store(cpu, Ordering::Relaxed);
    if !t.change(cx.words(), taken, ready) {
        return Err(Error::Again);
    }
    // It is ready whatever comes of this: an error says that its scheduler has not been told.
    dispatch::tell_scheduler::<P>(cx, t, Woken::Ready)?;
    Ok(0)
}
