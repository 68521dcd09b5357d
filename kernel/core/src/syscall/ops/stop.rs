//! `Stop`, and its meaning for a thread that is within an invocation.
//!
//! Invocation is thread migration: the thread of a client runs the code of a service, and may hold its locks.
//! The owner of a thread therefore cannot cut it off in the middle of a service at will. `Stop` has four
//! outcomes:
//!
//! | the thread is | `Stop` | value |
//! |---|---|---|
//! | ready or waiting, in no invocation | stops it | 0 |
//! | stopped, or has ended | changes nothing | 1 |
//! | ready or waiting within an invocation | notes the request in the bottom entry of the invocation stack; the thread stops when it returns there. A wait of the thread in the service ends, as by `Resume` | 2 |
//! | as before, [`STOP_GRACE_NS`] or more after the first request | ends it in the service: it cannot be resumed before it is configured anew | 3 |
//!
//! The last row is for services that never return and for threads that are not dispatched any more: the owner
//! gets the frame back. The service learns of it by `HardwareOp::Inside` and gives the thread's locks to
//! other threads.
//!
//! ```text
//!   READY, BLOCKED ──take──▶ CHANGING ─┬─ depth 0 ─────────────────▶ STOPPED
//!                                      ├─ within the grace period ─▶ READY, with a request ──return──▶ STOPPED
//!                                      └─ after it ────────────────▶ STOPPED, registers LOST
//! ```
//!
//! | step | order |
//! |---|---|
//! | take, by CAS; depth and entry read; entry written; given back, by CAS | acquire, release: depth and entries are those of the taken thread |
//! | given back; fence; state of its node read | a node that dies before that may have been recovered without the thread: it is ended here then |
//!
//! `Configure` and untyping the frame require a stopped thread, so both are possible after `Stop`. A thread
//! that is stopped within an invocation has ended there for good, unless recovery has stopped it: such a
//! thread continues where it was if it is resumed. `Resume` of a thread with a request withdraws the request.
//!
//! If the caller's node dies between taking the thread and giving it back, recovery finds the thread CHANGING
//! and ends it.

use dyad_abi::cap::{STOP_GRACE_NS, StopOutcome, Woken};
use dyad_abi::{Error, Result};
use dyad_coherence::GlobalMem;

use crate::sched::dispatch;
use crate::sched::dispatch::take;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock};
use dyad_object::thread::{Owner, State, Thread};

/// `Stop`: see the table of this module.
///
/// # Errors
///
/// [`Error::NotReady`] if the thread runs, is in transit or was never configured; [`Error::Again`] if its
/// state has just changed.
pub fn stop<P: Platform>(cx: &KernelCtx, t: &'static Thread) -> Result<u64> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    match owner.state {
        State::Stopped => return Ok(StopOutcome::Already as u64),
        State::Ready | State::Blocked => {}
        _ => return Err(Error::NotReady),
    }
    let taken = take(cx, t, owner).ok_or(Error::Again)?;
    if owner.state == State::Blocked {
        // A CPU that is just putting the thread at its endpoint reads the owner word after that; this looks for
        // the waiter after it has changed the owner word: one of the two sees the other.
        cx.words().fence();
        dispatch::wait_no_more::<P>(cx, t);
    }
    if !t.is_invoking() || lacks!("ops::stop::stop::depth") {
        return stopped(cx, t, taken, owner, StopOutcome::Stopped);
    }
    let now = clock::now::<P>().0;
    match t.stop_asked() {
        Some(asked) if now >= asked.saturating_add(STOP_GRACE_NS) => {
            t.lose();
            return stopped(cx, t, taken, owner, StopOutcome::Ended);
        }
        Some(_) => {}
        None => t.ask_stop(now),
    }
    if give_back::<P>(cx, t, taken, owner)? {
        return Ok(StopOutcome::WhenItLeaves as u64);
    }
    Ok(StopOutcome::Ended as u64)
}

/// Withdraws a pending stop request of a ready or waiting thread. Returns `false` if there is none.
///
/// # Errors
///
/// [`Error::Again`] if the state of the thread has just changed.
pub(super) fn withdraw<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    owner: Owner,
) -> Result<bool> {
    if !t.is_invoking() {
        return Ok(false);
    }
    if !asked(cx, t) {
        return Ok(false);
    }
    let taken = take(cx, t, owner).ok_or(Error::Again)?;
    if owner.state == State::Blocked {
        cx.words().fence();
        dispatch::wait_no_more::<P>(cx, t);
    }
    t.withdraw_stop();
    give_back::<P>(cx, t, taken, owner)?;
    Ok(true)
}

/// Whether a stop request is pending for a thread that this CPU does not own.
fn asked(cx: &KernelCtx, t: &Thread) -> bool {
    let (words, info) = (cx.words(), &t.frames[0].info);
    words.refresh(info, size_of::<u64>() as u64);
    let asked = t.stop_asked().is_some();
    // The next dispatch on this node drops the head of the thread only. A copy of this line would hide a request that
    // another node makes before that dispatch.
    words.refresh(info, size_of_val(info) as u64);
    asked
}

/// Sets a taken thread to STOPPED, on the node where it was.
fn stopped(
    cx: &KernelCtx,
    t: &Thread,
    taken: Owner,
    owner: Owner,
    how: StopOutcome,
) -> Result<u64> {
    let stopped = Owner {
        seq: taken.seq,
        ..owner.with(State::Stopped)
    };
    match t.change(cx.words(), taken, stopped) {
        true => Ok(how as u64),
        false => Err(Error::Again),
    }
}

/// Sets a taken thread, which is within an invocation, to READY on the node where it was. Returns `false` if
/// that node has died meanwhile; the thread has ended then.
fn give_back<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    taken: Owner,
    owner: Owner,
) -> Result<bool> {
    let ready = taken.passed(owner.node, owner.incarnation, State::Ready);
    if !t.change(cx.words(), taken, ready) {
        return Err(Error::Again);
    }
    cx.words().fence();
    let node = cx.node.word_of(owner.node);
    let lives = node.state.is_live() && ready.is(owner.node, node.incarnation);
    if !lives && !lacks!("ops::stop::give_back::node") {
        // Recovery of that node may have looked at the thread while it was taken. If recovery has it by now, it
        // goes on as recovery decides.
        let Some(taken) = take(cx, t, ready) else {
            return Ok(true);
        };
        t.lose();
        return stopped(cx, t, taken, owner, StopOutcome::Ended).map(|_| false);
    }
    // A dispatch that came in between was refused. A scheduler that is gone is told nothing.
    let _ = dispatch::tell_scheduler::<P>(cx, t, Woken::Ready);
    Ok(true)
}
