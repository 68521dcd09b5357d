//! Arrival of crossing calls and their returns at this node; see [`crate::migrate::crossing`].

use core::sync::atomic::Ordering;

use dyad_abi::user::{gate, only_window, stack_slot, tcb_address};

use crate::migrate::carried::{HandoffKind, carried};
use crate::migrate::crossing_state::CrossingState;
use crate::sched::fp;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::{Thread, begun};

/// Sets the registers of a thread that has arrived to call, to return, or because its callee is lost. `words`
/// is what the thread carries. The thread belongs to this node.
pub(crate) fn arrive<P: Platform>(cx: &KernelCtx, t: &'static Thread, words: [u64; 8]) {
    set_up::<P>(cx, t, words);
    let (carries, kept) = fp_parts::<P>(t);
    if carries || kept {
        bring_fp::<P>(t, carries, kept);
    } else if !lacks!("arrive::crossing::arrive::fp") {
        fp::renew::<P>(t);
    }
}

/// Resumes a thread that has arrived at the CPU that it left. It does the work of [`arrive`] without storing
/// registers that it would load again at once. Returns if this CPU has left the thread's component meanwhile,
/// or if `ready` returns false; the state is then that after [`arrive`].
#[inline(always)]
pub(crate) fn go_on_with<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    ready: impl FnOnce() -> bool,
) {
    let local = cx.local;
    let words = carried(t);
    if local.space.get() == 0 || local.component.get() != t.component.load(Ordering::Relaxed) {
        return arrive::<P>(cx, t, words);
    }
    set_up::<P>(cx, t, words);
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
        local.fastpath_thread.set(None);
    } else {
        fp::renew::<P>(t);
        local.fastpath_thread.set(Some(t));
    }
    P::resume_user(t.regs(P::ISA))
}

/// Whether the thread carries floating-point registers, and whether this ISA has kept some.
#[inline(always)]
pub(in crate::migrate) fn fp_parts<P: Platform>(t: &Thread) -> (bool, bool) {
    let crossing = CrossingState::of(t).0;
    (
        crossing & CrossingState::CARRIES_FP != 0,
        P::KEEPS_FP && crossing & CrossingState::KEEPS_FP != 0,
    )
}

#[inline(always)]
fn set_up<P: Platform>(cx: &KernelCtx, t: &'static Thread, words: [u64; 8]) {
    let [kind, a, b, c, d, e, f, function] = words;
    let crossing = CrossingState::of(t).placed(P::ISA, cx.node.id(), cx.cpu());
    t.crossing.store(crossing.0, Ordering::Relaxed);
    match HandoffKind::from_word(kind) {
        HandoffKind::Call => {
            if t.begun(P::ISA) != begun::CALLS {
                first::<P>(t);
            }
            let pc = only_window(P::ISA).0 + gate::ENTER;
            go_on_at::<P>(t, pc, [a, b, c, d, e, f], function);
        }
        HandoffKind::Answer => {
            let pc = only_window(P::ISA).0 + gate::BACK;
            go_on_at::<P>(t, pc, [a, 0, 0, 0, 0, 0], 0);
        }
        // Only the three kinds of crossing calls come here.
        _ => lost::<P>(t, a, b),
    }
}

#[inline(always)]
fn go_on_at<P: Platform>(t: &Thread, pc: u64, args: [u64; 6], function: u64) {
    let parked = &t.parked[P::ISA.index()];
    P::set_at_gate(t.regs(P::ISA), parked, pc, args, function);
    t.set_begun(P::ISA, begun::HERE);
}

/// Prepares the first call on this ISA: it begins below what `Migrate` has parked here, or on an empty stack.
#[cold]
fn first<P: Platform>(t: &Thread) {
    let over = t.begun(P::ISA) == begun::PARKED;
    let crossing = CrossingState::of(t).with(CrossingState::OVER_MIGRATE, over);
    t.crossing.store(crossing.0, Ordering::Relaxed);
    if over {
        return;
    }
    let id = t.layout_id();
    let (_, top) = stack_slot(P::ISA, id);
    let area = t.regs(P::ISA);
    P::init_regs(area, 0, top, 0, tcb_address(id));
    P::set_user_pc_sp(area, 0, top);
    P::park(area, &t.parked[P::ISA.index()]);
}

/// Sets a thread up to return `error` from its call at `depth`, because the callee will not come back.
#[cold]
pub(in crate::migrate) fn lost<P: Platform>(t: &Thread, error: u64, depth: u64) {
    // What was invoked from over there is over, too.
    let all = t.depth.swap(0, Ordering::Relaxed);
    if all != 0 {
        let first = t.frames[0].component.load(Ordering::Relaxed);
        t.component.store(first, Ordering::Relaxed);
        t.fault.store(0, Ordering::Relaxed);
    }
    let crossing = CrossingState::of(t)
        .at_depth(depth)
        .with(CrossingState::CARRIES_FP, false);
    t.crossing.store(crossing.0, Ordering::Relaxed);
    // On the other ISA, those that are further out wait as they did. What `Migrate` had parked there may
    // have been parked over.
    let below = if depth == 0 { begun::NOT } else { begun::CALLS };
    t.set_begun(P::ISA.other(), below);
    let pc = only_window(P::ISA).0 + gate::LOST;
    go_on_at::<P>(t, pc, [error, 0, 0, 0, 0, 0], 0);
}

/// Loads the carried and the kept floating-point registers into the thread's area.
#[cold]
pub(in crate::migrate) fn bring_fp<P: Platform>(t: &Thread, carries: bool, kept: bool) {
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
