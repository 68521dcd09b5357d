//! Crossing calls: calls of functions that exist on one ISA only.
//!
//! The text of such a function lies in the [window](dyad_abi::user::only_window) of its ISA. On the other ISA
//! the function begins with a jump to its address in the [away](dyad_abi::user::away_window) window, which is
//! unmapped, unless the thread wants it to run locally. The jump faults, and the thread continues on the
//! other ISA with its arguments. The return takes the same path, because the return address lies in the
//! caller's window:
//!
//! ```text
//!   caller's ISA                                   the function's ISA
//!   call f ──fault for f─▶ parked, depth + 1 ──▶ gate ENTER: call f, on the thread's stack there
//!                                                   │ f may call g, which is on the caller's ISA only,
//!                                                   ▼ and so on: the depth alternates between the two
//!   gate BACK: return ◀── depth - 1 ◀──fault at gate RETURN of the caller's window
//! ```
//!
//! The stack of calls is the two native stacks: each call begins below what the previous one left on its ISA.
//! The kernel therefore keeps only the depth of the thread, and for each ISA the callee-saved registers,
//! stack pointer and return address included ([`Platform::park`]). A callee preserves these registers. When
//! it leaves its ISA, by a return or by another call, they are parked again with the values of its entry, or
//! with those that its own callees preserve. Floating-point registers are carried if they hold something.
//!
//! | word | holds |
//! |---|---|
//! | `crossing` | [`CrossingState`]: depth; the node of each ISA's side |
//! | `parked`, `started` | callee-saved registers of an ISA that waits for a call to come back ([`begun::CALLS`]) |
//! | `carried` | see below |
//! | `carried_fp`, `kept_fp` | floating-point arguments or the result; callee-saved floating-point registers |
//!
//! | carried | words 1 to 6 | word 7 | the receiver continues the thread at |
//! |---|---|---|---|
//! | [`Call`](HandoffKind::Call) | arguments | the function | `ENTER` |
//! | [`Answer`](HandoffKind::Answer) | result | | `BACK` |
//! | [`Lost`](HandoffKind::Lost) | error; depth; what it had been doing, and from where | | `LOST` |
//!
//! The thread goes to the node where it last was on the other ISA, or to any other node of that ISA if that
//! one has died. If no such node is left, the call cannot return: the caller's caller, on this ISA, gets
//! [`Error::NodeDead`]. If there is no such caller, the thread ends.
//!
//! | step | order |
//! |---|---|
//! | leave: parked, depth, words carried; owner word | release: recovery of the receiver finds what must come back |
//! | arrive: owner word; depth and parked registers | acquire |
//!
//! Crossing calls work for threads that have a scheduler, outside of invocations, in components that may run
//! on the other node. In all other cases the fault is an ordinary one.

use core::sync::atomic::Ordering;

use dyad_abi::cap::Stopped;
use dyad_abi::user::{MAX_CROSSINGS, away_window, gate, only_window};
use dyad_abi::{Error, NodeId, Result};

use crate::migrate::Departure;
use crate::migrate::arrive::crossing::{bring_fp, fp_parts, lost};
use crate::migrate::carried::HandoffKind;
use crate::migrate::crossing_state::CrossingState;
use crate::migrate::handoff;
use crate::migrate::spin_handoff::{Handoff, Passed};
use crate::sched::{dispatch, fp};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::RegArea;
use dyad_object::component::Component;
use dyad_object::follow;
use dyad_object::thread::{Thread, begun};

/// Whether an address is unmapped here because it stands for a function of the other ISA.
#[inline(always)]
pub fn is_foreign<P: Platform>(at: u64) -> bool {
    let (start, end) = away_window(P::ISA.other());
    at.wrapping_sub(start) < end - start
}

/// A departure of a thread from its ISA.
#[derive(Clone, Copy)]
struct Leaving {
    kind: HandoffKind,
    args: [u64; 6],
    function: u64,
    /// The number of calls under way afterwards.
    depth: u64,
    /// The state of this ISA's side afterwards.
    leaves: u64,
}

/// Handles a fault of the running thread at an address that [`is_foreign`]: a crossing call, or its return.
///
/// # Errors
///
/// The reason why the fault is neither. Nothing has changed then.
pub fn fault<P: Platform>(cx: &KernelCtx, area: &'static RegArea, at: u64) -> Result<Departure> {
    let t = dispatch::current(cx);
    let there = P::ISA.other();
    let crossing = CrossingState::of(t);
    let depth = crossing.depth();
    let (args, result) = P::call_registers(area);
    let leaving = if at == only_window(there).0 + gate::RETURN {
        if depth == 0 {
            return Err(Error::NotFound);
        }
        let below = match depth {
            1 if crossing.0 & CrossingState::OVER_MIGRATE != 0 => begun::PARKED,
            1 => begun::NOT,
            _ => begun::CALLS,
        };
        Leaving {
            kind: HandoffKind::Answer,
            args: [result, 0, 0, 0, 0, 0],
            function: 0,
            depth: depth - 1,
            leaves: below,
        }
    } else {
        if depth >= MAX_CROSSINGS {
            return Err(Error::TooDeep);
        }
        Leaving {
            kind: HandoffKind::Call,
            args,
            function: at - gate::AWAY,
            depth: depth + 1,
            leaves: begun::CALLS,
        }
    };
    match fast::<P>(cx, t, area, crossing, &leaving) {
        None => slow::<P>(cx, t, area, crossing, &leaving).map(|()| Departure::Switched),
        Some(left) => Ok(left),
    }
}

/// Stores the departure in the thread, and parks its registers on this ISA.
#[inline(always)]
fn put_down<P: Platform>(t: &Thread, area: &RegArea, crossing: CrossingState, l: &Leaving) {
    P::park(area, &t.parked[P::ISA.index()]);
    t.set_begun(P::ISA, l.leaves);
    t.carried[0].store(l.kind as u64, Ordering::Relaxed);
    for (w, v) in t.carried[1..7].iter().zip(l.args) {
        w.store(v, Ordering::Relaxed);
    }
    t.carried[7].store(l.function, Ordering::Relaxed);
    t.crossing
        .store(crossing.at_depth(l.depth).0, Ordering::Relaxed);
}

/// Undoes [`put_down`] for a thread that does not leave after all.
#[cold]
fn take_back<P: Platform>(cx: &KernelCtx, t: &'static Thread, crossing: CrossingState) {
    if CrossingState::of(t).0 & CrossingState::CARRIES_FP != 0 {
        bring_fp::<P>(t, true, P::KEEPS_FP);
    }
    t.set_begun(P::ISA, begun::HERE);
    if !lacks!("crossing::take_back::depth") {
        t.crossing.store(crossing.0, Ordering::Relaxed);
    }
    fp::load::<P>(cx.local, t);
}

/// Leaves for the CPU where the thread was last on the other ISA, which mostly spins for it.
/// `None` if anything is not as expected: the thread runs here as before, and its slow path is next.
#[inline(always)]
fn fast<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    area: &RegArea,
    crossing: CrossingState,
    l: &Leaving,
) -> Option<Departure> {
    let crossing = crossing.placed(P::ISA, cx.node.id(), cx.local.id());
    let place = crossing.place(P::ISA.other())?;
    let way = Handoff::find(cx, t, place)?;
    let carried = carry_fp::<P>(cx, t, crossing, l.leaves);
    put_down::<P>(t, area, carried, l);
    t.leaves(cx.node.id(), false);
    // Before the thread leaves: if it comes back while this CPU spins for it, this does not go on here.
    let is_call = matches!(l.kind, HandoffKind::Call);
    if is_call {
        cx.node.crossings.fetch_add(1, Ordering::Relaxed);
    }
    match way.pass::<P>(cx, t, l.kind) {
        Passed::Away => return Some(Departure::Away),
        Passed::RolledBack => {
            if is_call {
                cx.node.crossings.fetch_sub(1, Ordering::Relaxed);
            }
            take_back::<P>(cx, t, crossing);
        }
    }
    None
}

/// Departs for any node of the other ISA that takes the thread.
#[cold]
fn slow<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    area: &'static RegArea,
    crossing: CrossingState,
    l: &Leaving,
) -> Result<()> {
    if t.depth.load(Ordering::Relaxed) != 0 {
        return Err(Error::TooDeep);
    }
    if t.scheduler.load(Ordering::Relaxed) == 0 {
        return Err(Error::NotReady);
    }
    // Where it is itself, so that it comes back there.
    let crossing = crossing.placed(P::ISA, cx.node.id(), cx.cpu());
    for to in nodes(cx, t, crossing) {
        let carried = carry_fp::<P>(cx, t, crossing, l.leaves);
        put_down::<P>(t, area, carried, l);
        match handoff::send::<P>(cx, t, to) {
            Ok(()) => {
                if matches!(l.kind, HandoffKind::Call) {
                    cx.node.crossings.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(());
            }
            // It has died just now: perhaps there is another one.
            Err(Error::NodeDead) => take_back::<P>(cx, t, crossing),
            Err(e) => {
                take_back::<P>(cx, t, crossing);
                return Err(e);
            }
        }
    }
    nobody_there::<P>(cx, t, area, crossing, l)
}

/// The live nodes of the other ISA on which a thread may run; first the node where it last was.
fn nodes(cx: &KernelCtx, t: &Thread, crossing: CrossingState) -> impl Iterator<Item = NodeId> {
    let there = cx.node.isa(cx.node.id()).other();
    let word = t.component.load(Ordering::Relaxed);
    let component = follow::<Component>(cx.node, word, Component::KIND).ok();
    let last = crossing.place(there).map(|(n, _)| n);
    let others = cx.node.all().filter(move |&n| Some(n) != last);
    last.into_iter().chain(others).filter(move |&n| {
        n.index() < cx.node.params.node_count
            && cx.node.isa(n) == there
            && cx.node.is_live(n)
            && component.is_some_and(|(c, _)| c.parts(cx.words()).runs_on(n))
    })
}

/// Handles a departure when no node of the other ISA is left. A call fails. A return has no caller left: the
/// next caller on this ISA gets the error.
fn nobody_there<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    area: &'static RegArea,
    crossing: CrossingState,
    l: &Leaving,
) -> Result<()> {
    let back_at = match l.kind {
        HandoffKind::Call => Some(crossing.depth()),
        _ => crossing.depth().checked_sub(2),
    };
    let Some(depth) = back_at else {
        dyad_machine::console::log_limited::<P>(
            dyad_abi::record::Level::Error,
            format_args!(
                "thread {} was called from an ISA of which no node is left",
                t.id.load(Ordering::Relaxed)
            ),
        );
        dispatch::end_thread::<P>(cx, t, Stopped::Faulted, 0);
        return Ok(());
    };
    // What functions preserve, it keeps.
    let kept = carry_fp::<P>(cx, t, crossing, begun::CALLS);
    t.crossing.store(kept.0, Ordering::Relaxed);
    P::park(area, &t.parked[P::ISA.index()]);
    lost::<P>(t, Error::NodeDead.code(), depth);
    if let (_, true) = fp_parts::<P>(t) {
        bring_fp::<P>(t, false, true);
        fp::load::<P>(cx.local, t);
    }
    Ok(())
}

/// Stores the thread's floating-point registers for the crossing, if it uses any. This ISA keeps the
/// callee-saved ones, unless the side that the thread leaves has no call under way any more.
#[inline(always)]
fn carry_fp<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    crossing: CrossingState,
    leaves: u64,
) -> CrossingState {
    if cx.local.fastpath_thread.get().is_some() {
        return crossing.with(CrossingState::CARRIES_FP, false);
    }
    let crossing = crossing.with(CrossingState::CARRIES_FP, true);
    let crossing = match P::KEEPS_FP {
        true => crossing.with(CrossingState::KEEPS_FP, leaves == begun::CALLS),
        false => crossing,
    };
    if cx.local.fp_of.get().is_some() {
        P::take_call_fp(&t.carried_fp, &t.kept_fp);
    } else {
        carry_from_area::<P>(t);
    }
    // Services that it invokes from the other ISA use this one's registers proper.
    fp::forget::<P>(cx.local);
    crossing
}

/// Stores the floating-point registers of a thread that has them in its area; see [`carry_fp`].
#[cold]
fn carry_from_area<P: Platform>(t: &Thread) {
    let (args, kept) = P::call_fp(t.fp(P::ISA));
    for (w, v) in t.carried_fp.iter().zip(args) {
        w.store(v, Ordering::Relaxed);
    }
    if P::KEEPS_FP {
        for (w, v) in t.kept_fp.iter().zip(kept) {
            w.store(v, Ordering::Relaxed);
        }
    }
}
