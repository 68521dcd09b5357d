//! Operations on threads and time budgets.
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
//! A thread is whoever's the owner word says, and every step here is one compare-and-swap of it: of
//! two operations on a thread at the same time, one finds that it has lost. A running thread is its
//! CPU's, and one in transit is the receiver's: no operation of others takes it away from there.
//!
//! The states are those of [`crate::object::thread`]. Every change of hands counts `seq` in the owner
//! word on, so an exchange that succeeds has been made with the thread that was looked at, not with the
//! same thread one stay later.
//!
//! What it takes besides the right of the operation:
//!
//! | operation | needs |
//! |---|---|
//! | `Configure` | the component, with the right to configure it; the scheduler's endpoints, with the right to bind them |
//! | `Dispatch` on a budget | the budget, with the right to use it |
//! | `Migrate`, `Jump`, `Load`, `Yield`, `Exit` | to be the thread |
//!
//! Time budgets are words of a frame, in nanoseconds. A thread that is dispatched on one runs no
//! longer than it has left, and what it has run is taken off when it stops ([`crate::dispatch`]).
//! Time is moved between budgets, never made: what has been taken off one and does not fit another
//! goes back, or is lost.
//!
//! | step | order |
//! |---|---|
//! | configure: STOPPED -> CHANGING, the thread's words, CHANGING -> STOPPED | each before the next: between them the thread is in nobody's reach |
//! | registers: STOPPED -> CHANGING, the register, CHANGING -> STOPPED | as configure |
//! | stop: READY or BLOCKED -> CHANGING; fence; off the endpoint; -> STOPPED, or READY | against a thread that goes to sleep: BLOCKED, waiter, owner word read again |
//! | resume: STOPPED -> CHANGING; off an old endpoint, CPU; CHANGING -> READY | release: the dispatcher sees all of it |

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{
    CapIndex, CapType, ComponentOp, ReceiveOp, Rights, Stopped, ThreadOp, TimeOp, Woken,
};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_captbl::Span;

use crate::cx::{Cx, Operand};
use crate::dispatch::{self, After};
use crate::object::endpoint::{Endpoints, LINES};
use crate::object::find;
use crate::object::thread::{Owner, State, Thread, begun};
use crate::object::time::{Budgets, UNLIMITED};
use crate::ops::{registers, stop};
use crate::{Platform, handover, jump};

/// The first argument of `Dispatch`: slice in nanoseconds below this bit, priority from there on.
const PRIORITY_SHIFT: u32 = 56;
/// Attempts at changing a budget that others change at the same time. Each failure is somebody
/// else's success, so it takes as many CPUs to use them up; the caller may ask again.
const TRANSFER_TRIES: usize = 64;

/// Carries an operation on a thread out. `Dispatch` has its slice in the low bits of the first
/// argument, its priority above them (bits 56 to 63), a budget in the second.
///
/// # Errors
///
/// [`Error::NotReady`] if the thread is in no state for it; [`Error::Again`] if somebody else has been
/// faster; [`Error::Denied`] if a thread is to do something that only itself may; [`Error::NodeDead`],
/// [`Error::NoIsa`] if it cannot be where it is to go on; of capabilities in arguments, as
/// [`Cx::operand`]. The thread is as it was then.
#[inline(never)]
pub fn dispatch<P: Platform>(
    cx: &Cx,
    t: &'static Thread,
    number: u64,
    a: [u64; 5],
) -> Result<After> {
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

/// The first argument of `Dispatch`. A slice of 0 is no limit but the dispatcher's own.
const fn slice_and_priority(how: u64) -> (u64, u64) {
    (how & ((1 << PRIORITY_SHIFT) - 1), how >> PRIORITY_SHIFT)
}

/// `Dispatch` without a budget.
///
/// # Errors
///
/// As [`dispatch::dispatch`].
#[inline]
pub fn run<P: Platform>(cx: &Cx, t: &'static Thread, how: u64) -> Result<After> {
    let (slice, priority) = slice_and_priority(how);
    dispatch::dispatch::<P>(cx, t, slice, priority, None)
}

/// All but `Dispatch`: kept out of the way of the one operation that schedulers make all the time.
/// Those that have a value leave the caller running; the others switch.
#[inline(never)]
fn others<P: Platform>(cx: &Cx, t: &'static Thread, number: u64, a: [u64; 5]) -> Result<After> {
    let op = ThreadOp::from_number(number).ok_or(Error::BadSyscall)?;
    match op {
        ThreadOp::Configure => configure::<P>(cx, t, a).map(After::Value),
        ThreadOp::ReadRegister | ThreadOp::WriteRegister => {
            registers::access::<P>(cx, t, op, a).map(After::Value)
        }
        ThreadOp::Unload => registers::unload::<P>(cx, t, a).map(After::Value),
        ThreadOp::Deadline => deadline(cx, t).map(After::Value),
        ThreadOp::Stop => stop::stop::<P>(cx, t).map(After::Value),
        ThreadOp::Resume => resume::<P>(cx, t, a[0]).map(After::Value),
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
                    handover::migrate::<P>(cx, to)
                }
                ThreadOp::Jump => jump::jump::<P>(cx, a),
                ThreadOp::Load => registers::load::<P>(cx, t, a),
                ThreadOp::Yield => Ok(dispatch::yield_now::<P>(cx, t)),
                _ => {
                    // Before it ends: who is told that it has, reads the code.
                    t.exit_code.store(a[0], Ordering::Relaxed);
                    dispatch::end_thread::<P>(cx, t, Stopped::Exited, a[0] & 0xffff_ffff);
                    Ok(After::Switched)
                }
            }
        }
    }
}

/// The budget that a Time capability which permits its use stands for: the object, which of its
/// words, and its reference, which the thread keeps, as the budget may be given up while it runs.
fn budget_of(cx: &Cx, n: u64) -> Result<(&'static Budgets, usize, u64)> {
    let cap = CapIndex::new(n).ok_or(Error::NoCap)?;
    let time = cx.operand(cap, CapType::Time, TimeOp::Use.right())?;
    let object = time.object()?;
    let at = Span::new(time.payload[0], time.payload[1], LINES as u64)
        .ok_or(Error::Corrupt)?
        .first();
    let budgets: &'static Budgets = find(cx.node, object, Budgets::KIND)?;
    Ok((budgets, at as usize, object.bits()))
}

/// Takes a thread that is nobody's: until its owner word is the next one, nobody else changes it, whoever
/// wants to is refused. Should this node die before that, its recovery stops the thread for good: it can
/// only be configured anew.
pub(super) fn take(cx: &Cx, t: &Thread, owner: Owner) -> Option<Owner> {
    let taken = owner.passed(cx.node.id(), cx.node.incarnation(), State::Changing);
    t.change(cx.words(), owner, taken).then_some(taken)
}

/// Makes a thread begin at its entry point, in whatever state it was, unless it is being used. It is
/// STOPPED afterwards: `Resume` says where it begins.
///
/// All arguments are looked at before the thread is touched: a refused `Configure` leaves it as it
/// was. `Configure` of the component is needed, and not `Invoke`, since a new thread enters it at an
/// address of the caller's choice.
fn configure<P: Platform>(cx: &Cx, t: &'static Thread, a: [u64; 5]) -> Result<u64> {
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
    // Stacks are found by this number, on every ISA: see `stack_slot`.
    let id = a[3] & 0xffff_ffff;
    if id >= dyad_abi::service::MAX_THREAD_IDS {
        return Err(Error::BadArgument);
    }
    let scheduler = match a[4] {
        0 => 0,
        // Who may bind the endpoints may be told of threads there. A weak reference is kept; when the
        // endpoints are gone, nobody is told.
        n => {
            let cap = CapIndex::new(n).ok_or(Error::NoCap)?;
            let cap = cx.operand(cap, CapType::Receive, ReceiveOp::Bind.right())?;
            let object = cap.object()?;
            find::<Endpoints>(cx.node, object, Endpoints::KIND)?;
            object.bits()
        }
    };
    let taken = take(cx, t, owner).ok_or(Error::NotReady)?;
    // It may still be at an endpoint, if whoever has stopped it has not come to that yet.
    dispatch::wait_no_more::<P>(cx, t);
    for (word, value) in [
        (&t.component, component.object()?.bits()),
        (&t.entry, a[1]),
        (&t.arg, a[2]),
        (&t.id, id),
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

/// Until when a thread waits; 0 if it does not, or for ever. For schedulers, which set their own
/// deadline by it; the thread may wake up at any moment, and they find it ready then.
fn deadline(cx: &Cx, t: &'static Thread) -> Result<u64> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    match owner.state {
        State::Blocked => Ok(t.deadline.load(Ordering::Relaxed)),
        _ => Ok(0),
    }
}

/// Makes a stopped thread ready, or ends the waiting of a blocked one. With `place` =
/// `1 << 63 | cpu << 8 | node` on that CPU, if the thread can go on there; else where it was.
///
/// Its scheduler there is told, and dispatches it when it sees fit.
fn resume<P: Platform>(cx: &Cx, t: &'static Thread, place: u64) -> Result<u64> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    match owner.state {
        State::Ready | State::Blocked if stop::withdraw::<P>(cx, t, owner)? => return Ok(0),
        State::Blocked => {
            // As if its deadline had come: it takes what there is, if anything, when it runs. Its
            // words are not this CPU's to write: it may be stopped and configured anew meanwhile.
            if !dispatch::stop_waiting(cx, t) {
                return Err(Error::NotReady);
            }
            dispatch::wake::<P>(cx, t, Woken::Ready)?;
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
    // Three things decide where a thread can go on: what of it is on that ISA, what of it is
    // elsewhere, and whether the node lives. All are its own words, which are nobody's to change
    // while it is stopped.
    let (isa, was) = (cx.node.isa(node), cx.node.isa(owner.node));
    if t.begun(isa) == begun::LOST {
        return Err(Error::NodeDead);
    }
    // What it was doing on one ISA cannot go on on the other. It may have been on the other one than
    // its owner, if that has taken it over from a node that died.
    let elsewhere = Isa::ALL.iter().any(|&i| t.begun(i) == begun::HERE);
    if (isa != was && t.begun(was) == begun::HERE) || (t.begun(isa) != begun::HERE && elsewhere) {
        return Err(Error::NoIsa);
    }
    // The incarnation goes into the owner word: if the node dies from here on, its recovery finds the
    // thread among its own.
    let word = cx.node.word_of(node);
    if !word.state.is_live() {
        return Err(Error::NodeDead);
    }
    // What has been looked at is so until it is taken: whoever changes any of it takes it first.
    let taken = take(cx, t, owner).ok_or(Error::Again)?;
    let ready = taken.passed(node, word.incarnation, State::Ready);
    // Whoever has just stopped it may not have come to that yet, and it may be to wait again.
    dispatch::wait_no_more::<P>(cx, t);
    t.cpu.store(cpu, Ordering::Relaxed);
    if !t.change(cx.words(), taken, ready) {
        return Err(Error::Again);
    }
    // It is ready whatever comes of this: an error says that nobody has been told.
    dispatch::tell_scheduler::<P>(cx, t, Woken::Ready)?;
    Ok(0)
}

/// Carries an operation on a time budget out. A capability for several stands for the first.
///
/// # Errors
///
/// [`Error::Revoked`]; [`Error::NoTime`] if there is less than is to be moved; [`Error::Again`] if
/// others change the same budgets each time; of the other capability, as [`Cx::operand`].
pub fn time(cx: &Cx, this: &Operand, op: TimeOp, a: [u64; 5]) -> Result<u64> {
    let budgets: &'static Budgets = find(cx.node, this.object()?, Budgets::KIND)?;
    let at = Span::new(this.payload[0], this.payload[1], LINES as u64)
        .ok_or(Error::Corrupt)?
        .first() as usize;
    let from = budgets.left.get(at).ok_or(Error::Corrupt)?;
    match op {
        TimeOp::Use => Err(Error::BadSyscall),
        TimeOp::Read => Ok(cx.words().read(from)),
        TimeOp::Transfer => {
            // Time may be given to any budget that one can name: there is no right to refuse it.
            let to = CapIndex::new(a[0]).ok_or(Error::NoCap)?;
            let to = cx.operand(to, CapType::Time, Rights::NONE)?;
            let target: &'static Budgets = find(cx.node, to.object()?, Budgets::KIND)?;
            let index = Span::new(to.payload[0], to.payload[1], LINES as u64)
                .ok_or(Error::Corrupt)?
                .first() as usize;
            let target = target.left.get(index).ok_or(Error::Corrupt)?;
            transfer(cx, from, target, a[1])
        }
    }
}

/// Moves time: off the one budget first, so that there is never more of it than has been given out.
/// The two changes are no row: if the node dies in between, the time is lost, which harms nobody
/// but its owner. Bounded: gives up if others change the budget each time. Budgets without limit
/// stay so, whatever is taken or added; a sum that would look like one ends just below.
fn transfer(cx: &Cx, from: &AtomicU64, to: &AtomicU64, ns: u64) -> Result<u64> {
    let words = cx.words();
    let mut taken = false;
    for _ in 0..TRANSFER_TRIES {
        let has = words.read(from);
        // There is no less of it afterwards, and nothing to give back.
        if has == UNLIMITED {
            taken = true;
            break;
        }
        let rest = has.checked_sub(ns).ok_or(Error::NoTime)?;
        if words.exchange(from, has, rest) {
            taken = true;
            break;
        }
    }
    if !taken {
        return Err(Error::Again);
    }
    for _ in 0..TRANSFER_TRIES {
        let has = words.read(to);
        if has == UNLIMITED || words.exchange(to, has, has.saturating_add(ns).min(UNLIMITED - 1)) {
            return Ok(0);
        }
    }
    give_back(cx, from, ns);
    Err(Error::Again)
}

/// Time that nobody has now: the giver gets it back, if it was taken off at all. Time is lost rather
/// than made if others change that budget each time, too.
pub(crate) fn give_back(cx: &Cx, from: &AtomicU64, ns: u64) {
    let words = cx.words();
    for _ in 0..TRANSFER_TRIES {
        let has = words.read(from);
        if has == UNLIMITED || words.exchange(from, has, has.saturating_add(ns).min(UNLIMITED - 1))
        {
            return;
        }
    }
}
