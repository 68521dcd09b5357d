//! `Jump`: the running thread goes on at a place of its choice, on a node of its choice.
//!
//! A runtime that has translated a thread's frames for another ISA has nothing to come back to where
//! it was, and no call of its own pending where it goes. So it says where the thread goes on and with
//! which stack, and what the kernel has kept of it on either ISA is forgotten:
//!
//! ```text
//!   node n: RUNNING ──leave: registers as they are──▶ TRANSIT(m) ──arrive──▶ READY or RUNNING at (pc, sp, fp)
//!                                                       │ m dies             nothing kept anywhere
//!                                                       ▼
//!                                          the call returns `NodeDead`, at n
//! ```
//!
//! To the node where it is already it goes at once, and hands nothing over.
//!
//! Threads that jump are mostly back soon, or jump on: the CPU [lingers](crate::migrate::spin_handoff) for them, and where
//! one does that, a jump there needs no message (`short`). Who stays away is waited for no longer than any
//! other, and then its dispatcher learns that it has left.
//!
//! | step | order |
//! |---|---|
//! | leave: registers complete in their area ([`begun::JUMPED`]); words carried; owner word | release: whoever takes it over for a node that dies finds the call it made |
//! | arrive: owner word; registers set; what there was on either ISA is forgotten | nobody else looks at them meanwhile |

use core::sync::atomic::Ordering;

use dyad_abi::user::{USER_END, tcb_address};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_shm::frame::WeakRef;

use crate::migrate::crossing::Crossing;
use crate::migrate::handoff::{self, carry, what};
use crate::migrate::spin_handoff::Way;
use crate::run_loop;
use crate::sched::dispatch::{self, After};
use crate::sched::fp;
use dyad_machine::Platform;
use dyad_machine::cx::Cx;
use dyad_object::component::Entry;
use dyad_object::thread::{Thread, begun};

/// `Jump` of the running thread: node, program counter, stack pointer, frame pointer, argument.
///
/// # Errors
///
/// [`Error::NoSuchNode`]; [`Error::TooDeep`] within an invocation or a crossing call; [`Error::BadAddress`] if the program
/// counter is 0, or it or the stack pointer is no user address; [`Error::Denied`] if its component may not run
/// there; as [`handoff::send`]. The thread goes
/// on where it was, and keeps what it had.
pub fn jump<P: Platform>(cx: &Cx, [to, pc, sp, fp, arg]: [u64; 5]) -> Result<After> {
    let t = dispatch::current(cx);
    let to = NodeId::new(to).ok_or(Error::NoSuchNode)?;
    if t.depth.load(Ordering::Relaxed) != 0 || Crossing::of(t).depth() != 0 {
        return Err(Error::TooDeep);
    }
    if pc == 0 || pc >= USER_END || sp >= USER_END {
        return Err(Error::BadAddress);
    }
    if to == cx.node.id() {
        // The whole area is replaced: what is missing of it need not be completed. What is in
        // floating-point registers is lost before they can be saved.
        cx.local.short_entry.set(false);
        fp::forget::<P>(cx.local);
        arrive::<P>(cx, t, (pc, sp), (fp, arg));
        return Ok(After::Switched);
    }
    dispatch::may_run_on(cx, t, to)?;
    dispatch::settle::<P>(cx, t);
    leave::<P>(cx, t, to, [pc, sp, fp, arg])
}

/// Hands the running thread over, whose area is complete.
fn leave<P: Platform>(
    cx: &Cx,
    t: &'static Thread,
    to: NodeId,
    [pc, sp, fp, arg]: [u64; 4],
) -> Result<After> {
    let at = Entry {
        component: WeakRef::from_bits(0).ok_or(Error::Corrupt)?,
        address: pc,
        badge: sp,
    };
    carry(t, what::JUMP, [arg, fp, 0, 0], at);
    // Services cannot use the registers meanwhile: it is on its way, and then it forgets them.
    t.set_begun(P::ISA, begun::JUMPED);
    Crossing::of(t).put_at::<P>(cx, t);
    if let Err(e) = handoff::send::<P>(cx, t, to) {
        // Its call returns the error, from the registers proper.
        t.set_begun(P::ISA, begun::HERE);
        return Err(e);
    }
    Ok(After::Switched)
}

/// `Jump` of the running thread to a CPU that lingers for it. Comes back if there is none, or anything is
/// not as expected: nothing has changed then.
#[inline(always)]
pub(crate) fn fast<P: Platform>(cx: &Cx, t: &'static Thread, [to, pc, sp, fp, arg]: [u64; 5]) {
    let crossing = Crossing::of(t);
    let Some(place) = crossing.place(P::ISA.other()) else {
        return;
    };
    let fits = to == place.0.index() as u64
        && crossing.depth() == 0
        && pc != 0
        && pc < USER_END
        && sp < USER_END
        && cx.local.thread.get().is_some_and(|me| core::ptr::eq(me, t));
    if !fits {
        return;
    }
    let Some(way) = Way::find(cx, t, place) else {
        return;
    };
    if !way.is_looked_out_for(t) {
        return;
    }
    // What it has in floating-point registers is forgotten where it arrives, but not if it stays.
    fp::put_away::<P>(cx.local);
    P::complete_area(t.regs(P::ISA), 0, [0; 5]);
    for (i, v) in [(0, what::JUMP), (1, arg), (2, fp), (6, pc), (7, sp)] {
        t.carried[i].store(v, Ordering::Relaxed);
    }
    t.set_begun(P::ISA, begun::JUMPED);
    crossing.put_at::<P>(cx, t);
    t.leaves(cx.node.id(), true);
    cx.words().increase(&cx.node.entry().migrations, 1);
    way.pass::<P>(cx, t, what::JUMP);
    stays::<P>(cx, t, place.0, [pc, sp, fp, arg])
}

/// It was not possible after all, and its area is complete by now: goes the long way from there.
#[cold]
fn stays<P: Platform>(cx: &Cx, t: &'static Thread, to: NodeId, at: [u64; 4]) -> ! {
    t.stays();
    fp::load::<P>(cx.local, t);
    if let Err(e) = leave::<P>(cx, t, to, at) {
        P::set_result(t.regs(P::ISA), e.code(), 0);
    }
    run_loop::switched::<P>(cx)
}

/// Goes on with a thread that has come back to where it left from, as [`arrive`]; comes back if it is not
/// to run now, being ready then.
#[inline(always)]
pub(crate) fn go_on_with<P: Platform>(cx: &Cx, t: &'static Thread, ready: impl FnOnce() -> bool) {
    let local = cx.local;
    let word = |i: usize| t.carried[i].load(Ordering::Relaxed);
    arrive::<P>(cx, t, (word(6), word(7)), (word(2), word(1)));
    let component = t.component.load(Ordering::Relaxed);
    let holds = local.space.get() != 0 && local.component.get() == component;
    if ready() {
        if !holds {
            dispatch::resume::<P>(cx);
            return;
        }
        local.holding.set(Some(t));
        local.short_way.set(Some(t));
        P::resume_user(t.regs(P::ISA))
    }
}

/// Sets a thread up to go on with program and stack pointer, frame pointer and argument. Nothing is left
/// of it but these and its thread pointer.
pub(crate) fn arrive<P: Platform>(
    cx: &Cx,
    t: &Thread,
    (pc, sp): (u64, u64),
    (fp, arg): (u64, u64),
) {
    Crossing::of(t).put_at::<P>(cx, t);
    let id = t.id.load(Ordering::Relaxed) as u32;
    let area = t.regs(P::ISA);
    P::init_regs(area, pc, sp, arg, tcb_address(id));
    P::set_user_pc_sp(area, pc, sp);
    P::set_frame_pointer(area, fp);
    fp::renew_all(t);
    for isa in Isa::ALL {
        let there = if isa == P::ISA {
            begun::HERE
        } else {
            begun::NOT
        };
        t.set_begun(isa, there);
    }
}
