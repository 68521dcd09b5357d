//! `Jump`: the running thread continues at an address and on a node of its choice.
//!
//! A runtime that has translated a thread's frames for another ISA needs neither the old context nor a
//! pending call on the new node. It names the program counter and the stack, and the kernel drops what it has
//! kept of the thread on either ISA:
//!
//! ```text
//!   node n: RUNNING ──leave: registers as they are──▶ TRANSIT(m) ──arrive──▶ READY or RUNNING at (pc, sp, fp)
//!                                                       │ m dies             nothing kept anywhere
//!                                                       ▼
//!                                          the call returns `NodeDead`, at n
//! ```
//!
//! A jump to the current node takes effect at once and hands nothing over.
//!
//! A thread that jumps usually comes back or jumps on soon, so the CPU [spins](crate::migrate::spin_handoff)
//! for it. A jump to a CPU that spins needs no message (`fast`). The wait is bounded as for any other
//! handoff; afterwards the dispatcher is told that the thread has left.
//!
//! | step | order |
//! |---|---|
//! | leave: registers complete in their area ([`begun::JUMPED`]); words carried; owner word | release: recovery of a node that dies finds the call that the thread made |
//! | arrive: owner word; registers set; the state on both ISAs is dropped | no other CPU reads it meanwhile |

use core::sync::atomic::Ordering;

use dyad_abi::user::USER_END;
use dyad_abi::{Error, NodeId, Result};
use dyad_shm::frame::WeakRef;

use crate::migrate::Departure;
use crate::migrate::arrive::jump::arrive;
use crate::migrate::carried::{HandoffKind, store_handoff};
use crate::migrate::crossing_state::CrossingState;
use crate::migrate::handoff;
use crate::migrate::spin_handoff::{Handoff, Passed};
use crate::sched::dispatch::{self, OpOutcome};
use crate::sched::fp;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::component::Entry;
use dyad_object::thread::{Thread, begun};

/// `Jump` of the running thread: node, program counter, stack pointer, frame pointer, argument.
///
/// # Errors
///
/// [`Error::NoSuchNode`]; [`Error::TooDeep`] within an invocation or a crossing call; [`Error::BadAddress`]
/// if the program counter is 0, or it or the stack pointer is no user address; [`Error::Denied`] if its
/// component may not run there; the errors of [`handoff::send`]. The thread continues where it was, with its
/// state unchanged.
pub fn jump<P: Platform>(cx: &KernelCtx, [to, pc, sp, fp, arg]: [u64; 5]) -> Result<OpOutcome> {
    let t = dispatch::current(cx);
    let to = NodeId::new(to).ok_or(Error::NoSuchNode)?;
    if t.depth.load(Ordering::Relaxed) != 0 || CrossingState::of(t).depth() != 0 {
        return Err(Error::TooDeep);
    }
    if pc == 0 || pc >= USER_END || sp >= USER_END {
        return Err(Error::BadAddress);
    }
    if to == cx.node.id() {
        // The whole area is replaced: what is missing of it need not be completed. What is in
        // floating-point registers is lost before they can be saved.
        cx.local.partial_frame.set(false);
        fp::forget::<P>(cx.local);
        arrive::<P>(cx, t, (pc, sp), (fp, arg));
        return Ok(OpOutcome::Switched);
    }
    dispatch::may_run_on(cx, t, to)?;
    dispatch::complete_frame::<P>(cx, t);
    leave::<P>(cx, t, to, [pc, sp, fp, arg])
}

/// Hands over the running thread, whose area is complete.
fn leave<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    to: NodeId,
    [pc, sp, fp, arg]: [u64; 4],
) -> Result<OpOutcome> {
    let at = Entry {
        component: WeakRef::from_bits(0).ok_or(Error::Corrupt)?,
        address: pc,
        badge: sp,
    };
    store_handoff(t, HandoffKind::Jump, [arg, fp, 0, 0], at);
    // Services cannot use the registers meanwhile: it is on its way, and then it forgets them.
    t.set_begun(P::ISA, begun::JUMPED);
    CrossingState::of(t).note_here::<P>(cx, t);
    if let Err(e) = handoff::send::<P>(cx, t, to) {
        // Its call returns the error, from the registers proper.
        t.set_begun(P::ISA, begun::HERE);
        return Err(e);
    }
    Ok(OpOutcome::Switched)
}

/// `Jump` of the running thread to a CPU that spins for it. `None` if there is none, or anything is not as
/// expected: nothing has changed then.
#[inline(always)]
pub(crate) fn fast<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    [to, pc, sp, fp, arg]: [u64; 5],
) -> Option<Departure> {
    let crossing = CrossingState::of(t);
    let place = crossing.place(P::ISA.other())?;
    let fits = to == place.0.index() as u64
        && crossing.depth() == 0
        && pc != 0
        && pc < USER_END
        && sp < USER_END
        && cx.local.thread.get().is_some_and(|me| core::ptr::eq(me, t));
    if !fits {
        return None;
    }
    let way = Handoff::find(cx, t, place)?;
    if !way.is_looked_out_for(t) {
        return None;
    }
    // What it has in floating-point registers is forgotten where it arrives, but not if it stays.
    fp::put_away::<P>(cx.local);
    P::complete_area(t.regs(P::ISA), 0, [0; 5]);
    for (i, v) in [
        (0, HandoffKind::Jump as u64),
        (1, arg),
        (2, fp),
        (6, pc),
        (7, sp),
    ] {
        t.carried[i].store(v, Ordering::Relaxed);
    }
    t.set_begun(P::ISA, begun::JUMPED);
    crossing.note_here::<P>(cx, t);
    t.leaves(cx.node.id(), true);
    cx.words().increase(&cx.node.entry().migrations, 1);
    match way.pass::<P>(cx, t, HandoffKind::Jump) {
        Passed::Away => return Some(Departure::Away),
        Passed::RolledBack => stays::<P>(cx, t, place.0, [pc, sp, fp, arg]),
    }
    Some(Departure::Switched)
}

/// Takes the slow path for a thread whose fast handoff was rolled back; its area is complete by now.
#[cold]
fn stays<P: Platform>(cx: &KernelCtx, t: &'static Thread, to: NodeId, at: [u64; 4]) {
    t.stays();
    // The slow path counts it anew, if the thread leaves by that.
    let once = 1u64.wrapping_neg();
    cx.words().increase(&cx.node.entry().migrations, once);
    fp::load::<P>(cx.local, t);
    if let Err(e) = leave::<P>(cx, t, to, at) {
        P::set_result(t.regs(P::ISA), e.code(), 0);
    }
}
