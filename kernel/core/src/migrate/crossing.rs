//! Crossing calls: functions that are on one ISA only, called like any other.
//!
//! Text of such functions lies in the [window](dyad_abi::user::only_window) of its ISA. On the other one
//! a function begins with a jump to the place that stands for it [away](dyad_abi::user::away_window), where
//! there is nothing, unless the thread wants it to run here. That faults, and the thread goes on over there,
//! with its arguments; the return comes back the same way, as it leads to a place in the caller's window:
//!
//! ```text
//!   caller's ISA                                   the function's ISA
//!   call f ──fault for f─▶ parked, depth + 1 ──▶ gate ENTER: call f, on the thread's stack there
//!                                                   │ f may call g, which is on the caller's ISA only,
//!                                                   ▼ and so on: the depth alternates between the two
//!   gate BACK: return ◀── depth - 1 ◀──fault at gate RETURN of the caller's window
//! ```
//!
//! The stack of calls is the two native stacks: each call begins below what the last one left on its
//! ISA. So the kernel keeps no more than how deep the thread is, and for each ISA what functions preserve,
//! stack pointer and return address included ([`Platform::park`]). Whoever is entered preserves that; when
//! it leaves its ISA, by a return or by another call, it is parked anew, and is what it was when it
//! entered, or what those preserve whom it calls. Floating-point registers go along if there is something
//! in them.
//!
//! | word | holds |
//! |---|---|
//! | `crossing` | [`Crossing`]: depth; which node each ISA's side is at |
//! | `parked`, `started` | of an ISA that waits for a call to come back ([`begun::CALLS`]): what functions preserve |
//! | `carried` | see below |
//! | `carried_fp`, `kept_fp` | floating-point arguments or the result; what functions preserve of them |
//!
//! | carried | words 1 to 6 | word 7 | the receiver has it go on at |
//! |---|---|---|---|
//! | [`CALL`](what::CALL) | arguments | the function | `ENTER` |
//! | [`ANSWER`](what::ANSWER) | result | | `BACK` |
//! | [`LOST`](what::LOST) | error; depth; what it had been doing, and from where | | `LOST` |
//!
//! Nodes are those where the thread last was on an ISA; any other of that ISA will do if that has died.
//! If there is none, the call has no way to return to: its caller's caller, on this ISA, is told
//! [`Error::NodeDead`], and if there is none of these either, the thread ends.
//!
//! | step | order |
//! |---|---|
//! | leave: parked, depth, words carried; owner word | release: whoever recovers the receiver finds what is to come back |
//! | arrive: owner word; depth and parked registers | acquire |
//!
//! Crossing is for threads that somebody schedules, outside of invocations, in components that may run
//! there. Elsewhere the fault is one like any other.

use core::sync::atomic::Ordering;

use dyad_abi::cap::Stopped;
use dyad_abi::user::{away_window, gate, only_window, stack_slot, tcb_address};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};

use crate::migrate::handoff::{self, what};
use crate::migrate::spin_handoff::Way;
use crate::run_loop;
use crate::sched::dispatch;
use crate::sched::fp;
use dyad_machine::Platform;
use dyad_machine::cx::Cx;
use dyad_machine::platform::RegArea;
use dyad_object::component::Component;
use dyad_object::follow;
use dyad_object::thread::{Thread, begun};

/// Most crossing calls of a thread at once, in both directions together.
pub const MAX_DEPTH: u64 = 256;

/// The word `crossing` of a thread.
///
/// | bits | content |
/// |---|---|
/// | 0 to 15 | calls under way |
/// | 16 | the ISA of the first callee had a `Migrate` parked |
/// | 17 | floating-point registers are carried |
/// | 18 | floating-point registers are kept |
/// | 32 to 47, 48 to 63 | where the thread was last on each ISA: `1 << 15 \| cpu << 8 \| node`; 0: nowhere yet |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing(pub u64);

impl Crossing {
    const DEPTH: u64 = 0xffff;
    const OVER_MIGRATE: u64 = 1 << 16;
    const CARRIES_FP: u64 = 1 << 17;
    const KEEPS_FP: u64 = 1 << 18;
    const PLACED: u64 = 1 << 15;

    /// That of a thread.
    #[inline(always)]
    pub fn of(t: &Thread) -> Crossing {
        Crossing(t.crossing.load(Ordering::Relaxed))
    }

    /// Calls under way.
    #[inline(always)]
    pub const fn depth(self) -> u64 {
        self.0 & Crossing::DEPTH
    }

    /// Where the thread was last on an ISA.
    #[inline(always)]
    pub(crate) fn place(self, isa: Isa) -> Option<(NodeId, CpuId)> {
        let place = self.0 >> Crossing::shift(isa);
        if place & Crossing::PLACED == 0 {
            return None;
        }
        Some((NodeId::new(place & 0x7f)?, CpuId::new(place >> 8 & 0x7f)?))
    }

    #[inline(always)]
    const fn shift(isa: Isa) -> u32 {
        32 + 16 * isa as u32
    }

    #[inline(always)]
    pub(crate) fn placed(self, isa: Isa, node: NodeId, cpu: CpuId) -> Crossing {
        let place = Crossing::PLACED | (cpu.index() as u64) << 8 | node.index() as u64;
        let shift = Crossing::shift(isa);
        Crossing(self.0 & !(0xffff << shift) | place << shift)
    }

    /// Notes in a thread that this CPU is the one where it was last on this ISA.
    #[inline(always)]
    pub(crate) fn put_at<P: Platform>(self, cx: &Cx, t: &Thread) {
        let here = self.placed(P::ISA, cx.node.id(), cx.local.id());
        if here != self {
            t.crossing.store(here.0, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn at_depth(self, depth: u64) -> Crossing {
        Crossing(self.0 & !Crossing::DEPTH | depth & Crossing::DEPTH)
    }

    fn with(self, bit: u64, on: bool) -> Crossing {
        Crossing(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// Whether there is nothing at an address because it means something on the other ISA.
#[inline(always)]
pub fn is_foreign<P: Platform>(at: u64) -> bool {
    let (start, end) = away_window(P::ISA.other());
    at.wrapping_sub(start) < end - start
}

/// What a thread that has left its ISA does.
#[derive(Clone, Copy)]
struct Leaving {
    what: u64,
    args: [u64; 6],
    function: u64,
    /// Calls under way afterwards.
    depth: u64,
    /// What is left of it on this ISA.
    leaves: u64,
}

/// A fault of the running thread at an address that [`is_foreign`]. Comes back if it is no call that can
/// cross: nothing has changed then.
///
/// # Errors
///
/// Why it cannot.
pub fn fault<P: Platform>(area: &'static RegArea, at: u64) -> Error {
    let cx = &Cx::here::<P>();
    let t = dispatch::current(cx);
    match leave::<P>(cx, t, area, at) {
        Ok(()) => run_loop::switched::<P>(cx),
        Err(e) => e,
    }
}

fn leave<P: Platform>(cx: &Cx, t: &'static Thread, area: &'static RegArea, at: u64) -> Result<()> {
    let there = P::ISA.other();
    let crossing = Crossing::of(t);
    let depth = crossing.depth();
    let (args, result) = P::call_registers(area);
    let leaving = if at == only_window(there).0 + gate::RETURN {
        if depth == 0 {
            return Err(Error::TooDeep);
        }
        let below = match depth {
            1 if crossing.0 & Crossing::OVER_MIGRATE != 0 => begun::PARKED,
            1 => begun::NOT,
            _ => begun::CALLS,
        };
        Leaving {
            what: what::ANSWER,
            args: [result, 0, 0, 0, 0, 0],
            function: 0,
            depth: depth - 1,
            leaves: below,
        }
    } else {
        if depth >= MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        Leaving {
            what: what::CALL,
            args,
            function: at - gate::AWAY,
            depth: depth + 1,
            leaves: begun::CALLS,
        }
    };
    if fast::<P>(cx, t, area, crossing, &leaving) {
        return Ok(());
    }
    long::<P>(cx, t, area, crossing, &leaving)
}

/// Puts down what the thread does and what is left of it here.
#[inline(always)]
fn put_down<P: Platform>(t: &Thread, area: &RegArea, crossing: Crossing, l: &Leaving) {
    P::park(area, &t.parked[P::ISA.index()]);
    t.set_begun(P::ISA, l.leaves);
    t.carried[0].store(l.what, Ordering::Relaxed);
    for (w, v) in t.carried[1..7].iter().zip(l.args) {
        w.store(v, Ordering::Relaxed);
    }
    t.carried[7].store(l.function, Ordering::Relaxed);
    t.crossing
        .store(crossing.at_depth(l.depth).0, Ordering::Relaxed);
}

/// The thread does not leave after all: as before [`put_down`].
#[cold]
fn take_back<P: Platform>(cx: &Cx, t: &'static Thread, crossing: Crossing) {
    if Crossing::of(t).0 & Crossing::CARRIES_FP != 0 {
        bring_fp::<P>(t, true, P::KEEPS_FP);
    }
    t.set_begun(P::ISA, begun::HERE);
    t.crossing.store(crossing.0, Ordering::Relaxed);
    fp::load::<P>(cx.local, t);
}

/// What there is to be compared before a thread goes the short way: to the CPU where it was last, which
/// mostly looks out for it. `false` if anything is not as expected; nothing has changed then.
#[inline(always)]
fn fast<P: Platform>(
    cx: &Cx,
    t: &'static Thread,
    area: &RegArea,
    crossing: Crossing,
    l: &Leaving,
) -> bool {
    let crossing = crossing.placed(P::ISA, cx.node.id(), cx.local.id());
    let Some(place) = crossing.place(P::ISA.other()) else {
        return false;
    };
    let Some(way) = Way::find(cx, t, place) else {
        return false;
    };
    let carried = carry_fp::<P>(cx, t, crossing, l.leaves);
    put_down::<P>(t, area, carried, l);
    t.leaves(cx.node.id(), false);
    way.pass::<P>(cx, t, l.what);
    take_back::<P>(cx, t, crossing);
    false
}

/// The same by all that can be.
#[cold]
fn long<P: Platform>(
    cx: &Cx,
    t: &'static Thread,
    area: &'static RegArea,
    crossing: Crossing,
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
            Ok(()) => return Ok(()),
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

/// Live nodes of the other ISA on which a thread may run; first that where it was last.
fn nodes(cx: &Cx, t: &Thread, crossing: Crossing) -> impl Iterator<Item = NodeId> {
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

/// There is no node of the other ISA. A call fails. What would return there has nobody to return to: whom
/// that has been called by, on this ISA, is told.
fn nobody_there<P: Platform>(
    cx: &Cx,
    t: &'static Thread,
    area: &'static RegArea,
    crossing: Crossing,
    l: &Leaving,
) -> Result<()> {
    let back_at = match l.what {
        what::CALL => Some(crossing.depth()),
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

/// What the thread has in floating-point registers goes along, if it has something; this ISA keeps what
/// functions preserve, unless the side it leaves has nothing under way any more.
#[inline(always)]
fn carry_fp<P: Platform>(cx: &Cx, t: &'static Thread, crossing: Crossing, leaves: u64) -> Crossing {
    if cx.local.short_way.get().is_some() {
        return crossing.with(Crossing::CARRIES_FP, false);
    }
    let crossing = crossing.with(Crossing::CARRIES_FP, true);
    let crossing = match P::KEEPS_FP {
        true => crossing.with(Crossing::KEEPS_FP, leaves == begun::CALLS),
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

/// The same of a thread whose registers have been put away.
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

/// Sets the registers of a thread that has come here to call, to return, or because its callee is lost.
/// `carried` is what it carries. Its owner is this node.
pub(crate) fn arrive<P: Platform>(cx: &Cx, t: &'static Thread, carried: [u64; 8]) {
    set_up::<P>(cx, t, carried);
    let (carries, kept) = fp_parts::<P>(t);
    if carries || kept {
        bring_fp::<P>(t, carries, kept);
    } else if !lacks!("crossing::arrive::fp") {
        fp::renew::<P>(t);
    }
}

/// Goes on with a thread that has come here, in the place where it was when it left: as
/// [`arrive`], without putting anything where it would only be fetched from again. Comes back if this CPU
/// has left its component meanwhile; then it is as after `arrive`.
#[inline(always)]
pub(crate) fn go_on_with<P: Platform>(cx: &Cx, t: &'static Thread, ready: impl FnOnce() -> bool) {
    let local = cx.local;
    let carried = core::array::from_fn(|i| t.carried[i].load(Ordering::Relaxed));
    if local.space.get() == 0 || local.component.get() != t.component.load(Ordering::Relaxed) {
        return arrive::<P>(cx, t, carried);
    }
    set_up::<P>(cx, t, carried);
    let (carries, kept) = fp_parts::<P>(t);
    if !ready() {
        // Others first; it goes on later, wherever that is.
        match carries || kept {
            true => bring_fp::<P>(t, carries, kept),
            false => fp::renew::<P>(t),
        }
        return;
    }
    local.holding.set(Some(t));
    if carries || kept {
        P::fp_on();
        P::give_call_fp(carries.then_some(&t.carried_fp), kept.then_some(&t.kept_fp));
        fp::use_area::<P>(t);
        local.fp_of.set(Some(t));
        local.short_way.set(None);
    } else {
        fp::renew::<P>(t);
        local.short_way.set(Some(t));
    }
    P::resume_user(t.regs(P::ISA))
}

/// Whether floating-point registers have come along, and whether this ISA has kept some.
#[inline(always)]
fn fp_parts<P: Platform>(t: &Thread) -> (bool, bool) {
    let crossing = Crossing::of(t).0;
    (
        crossing & Crossing::CARRIES_FP != 0,
        P::KEEPS_FP && crossing & Crossing::KEEPS_FP != 0,
    )
}

#[inline(always)]
fn set_up<P: Platform>(cx: &Cx, t: &'static Thread, carried: [u64; 8]) {
    let [what, a, b, c, d, e, f, function] = carried;
    let crossing = Crossing::of(t).placed(P::ISA, cx.node.id(), cx.cpu());
    t.crossing.store(crossing.0, Ordering::Relaxed);
    match what {
        what::CALL => {
            if t.begun(P::ISA) != begun::CALLS {
                first::<P>(t);
            }
            let pc = only_window(P::ISA).0 + gate::ENTER;
            go_on_at::<P>(t, pc, [a, b, c, d, e, f], function);
        }
        what::ANSWER => {
            let pc = only_window(P::ISA).0 + gate::BACK;
            go_on_at::<P>(t, pc, [a, 0, 0, 0, 0, 0], 0);
        }
        _ => lost::<P>(t, a, b),
    }
}

#[inline(always)]
fn go_on_at<P: Platform>(t: &Thread, pc: u64, args: [u64; 6], function: u64) {
    let parked = &t.parked[P::ISA.index()];
    P::set_at_gate(t.regs(P::ISA), parked, pc, args, function);
    t.set_begun(P::ISA, begun::HERE);
}

/// The first call on this ISA: it begins below what `Migrate` has parked here, or on an empty stack.
#[cold]
fn first<P: Platform>(t: &Thread) {
    let over = t.begun(P::ISA) == begun::PARKED;
    let crossing = Crossing::of(t).with(Crossing::OVER_MIGRATE, over);
    t.crossing.store(crossing.0, Ordering::Relaxed);
    if over {
        return;
    }
    let id = t.id.load(Ordering::Relaxed) as u32;
    let (_, top) = stack_slot(P::ISA, id);
    let area = t.regs(P::ISA);
    P::init_regs(area, 0, top, 0, tcb_address(id));
    P::set_user_pc_sp(area, 0, top);
    P::park(area, &t.parked[P::ISA.index()]);
}

/// Sets a thread up to be told that what it has called at a depth will not come back.
#[cold]
fn lost<P: Platform>(t: &Thread, error: u64, depth: u64) {
    // What was invoked from over there is over, too.
    let all = t.depth.swap(0, Ordering::Relaxed);
    if all != 0 {
        let first = t.frames[0].component.load(Ordering::Relaxed);
        t.component.store(first, Ordering::Relaxed);
        t.fault.store(0, Ordering::Relaxed);
    }
    let crossing = Crossing::of(t)
        .at_depth(depth)
        .with(Crossing::CARRIES_FP, false);
    t.crossing.store(crossing.0, Ordering::Relaxed);
    // On the other ISA, those that are further out wait as they did. What `Migrate` had parked there may
    // have been parked over.
    let below = if depth == 0 { begun::NOT } else { begun::CALLS };
    t.set_begun(P::ISA.other(), below);
    let pc = only_window(P::ISA).0 + gate::LOST;
    go_on_at::<P>(t, pc, [error, 0, 0, 0, 0, 0], 0);
}

/// Puts what is carried, and what has been kept, into floating-point registers.
#[cold]
fn bring_fp<P: Platform>(t: &Thread, carries: bool, kept: bool) {
    let words = |from: &[core::sync::atomic::AtomicU64; 8], there: bool| {
        core::array::from_fn(|i| match there {
            true => from[i].load(Ordering::Relaxed),
            false => 0,
        })
    };
    let (args, kept) = (words(&t.carried_fp, carries), words(&t.kept_fp, kept));
    P::set_call_fp(fp::area::<P>(t), args, kept);
    fp::use_area::<P>(t);
}

/// What becomes of a thread that was on its way to a node that has died, or there, for a crossing call:
/// the depth at which it goes on, which is on the other ISA, and the node for that if the thread has been
/// there.
pub fn caller_of(t: &Thread, dead: Isa) -> Option<(u64, Option<NodeId>)> {
    let crossing = Crossing::of(t);
    let depth = crossing.depth();
    let waits = t.begun(dead.other()) == begun::CALLS;
    // In transit to return, it is that far out already: the other one of its sides is the caller.
    (waits && depth > 0).then(|| {
        let at = crossing.place(dead.other()).map(|(n, _)| n);
        (depth - 1, at)
    })
}
