//! Arrival of threads at this node: their registers and state, by what they carry.
//!
//! | function | for |
//! |---|---|
//! | [`arrive`] | a thread that is dispatched later: everything is put into its frame |
//! | `go_on_with` | a thread that continues here at once, because this CPU has spun for it |
//!
//! The sender cannot do this: only this ISA's `arch` crate knows the layout of its register areas.

pub mod crossing;
pub mod jump;

use core::sync::atomic::Ordering;

use dyad_abi::emulation::WORDS;

use crate::migrate::carried::{HandoffKind, NO_ENTRY, carried};
use crate::sched::registers::{self, GENERAL_WORDS};
use crate::sched::{dispatch, fp};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::{Thread, begun, copy_registers, info};

/// Sets the registers of a thread that has arrived at this node. The sender cannot: only this ISA's `arch`
/// crate knows the layout of its areas.
pub fn arrive<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    t.cpu.store(cx.cpu().index() as u64, Ordering::Relaxed);
    let words = carried(t);
    let [kind, a, b, c, d, component, address, badge] = words;
    let area = t.regs(P::ISA);
    match HandoffKind::from_word(kind) {
        HandoffKind::Invoke => {
            t.component.store(component, Ordering::Relaxed);
            // Where it has come from it has forgotten them; here it may have some from before.
            fp::renew::<P>(t);
            // Here it begins with the service, not at its entry point, to which `Migrate` leads it.
            if t.begun(P::ISA) == begun::NOT {
                t.set_begun(P::ISA, begun::HERE);
            }
            P::set_arguments(area, [a, b, c, d, badge, t.token()]);
            P::set_user_pc_sp(area, address, 0);
        }
        // The registers that its caller has had are those in the area: it has crossed from here. A
        // return brings four results and nothing else.
        HandoffKind::Return => {
            t.component.store(component, Ordering::Relaxed);
            P::set_results(area, 0, [a, b, c, d]);
            P::set_user_pc_sp(area, address, badge);
        }
        HandoffKind::Fail => arrive_failed::<P>(t, words),
        // Its registers are as they were: it was ready on a node of this ISA.
        HandoffKind::Move => {}
        HandoffKind::Call | HandoffKind::Answer | HandoffKind::Lost => {
            crossing::arrive::<P>(cx, t, words)
        }
        HandoffKind::Jump => jump::arrive::<P>(cx, t, (address, badge), (b, a)),
        HandoffKind::Load => registers::set_all::<P>(cx, t, &brought(t)),
        HandoffKind::Migrate => {
            if t.begun(P::ISA) == begun::PARKED {
                copy_registers(&t.parked[P::ISA.index()], area);
                t.set_begun(P::ISA, begun::HERE);
                fp::take_up::<P>(t);
                P::set_result(area, 0, cx.node.id().index() as u64);
            } else {
                dispatch::start::<P>(t);
            }
        }
    }
}

/// Resumes a thread that has come back to the CPU that has spun for it. `ready` announces that this CPU runs
/// a thread, and returns whether nothing else has come in. Returns if the thread does not run here now: the
/// thread is then ready in its frame, or stopped.
#[inline(always)]
pub(crate) fn go_on_with<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    ready: impl FnOnce() -> bool,
) {
    match HandoffKind::of(t) {
        HandoffKind::Call | HandoffKind::Answer => crossing::go_on_with::<P>(cx, t, ready),
        HandoffKind::Jump => jump::go_on_with::<P>(cx, t, ready),
        _ => {
            arrive::<P>(cx, t);
            if takes_stop(t) {
                dispatch::stop_left::<P>(cx, t);
            } else if ready() {
                dispatch::resume::<P>(cx);
            }
        }
    }
}

/// Whether a newly arrived thread must stop: it has returned from its outermost invocation, and its owner
/// asked for the stop meanwhile.
#[inline]
pub(crate) fn takes_stop(t: &Thread) -> bool {
    matches!(HandoffKind::of(t), HandoffKind::Return | HandoffKind::Fail)
        && t.depth.load(Ordering::Relaxed) == 0
        && t.stop_asked().is_some()
        && !lacks!("arrive::takes_stop::stop")
}

/// The registers that a thread carries for `Load`.
fn brought(t: &Thread) -> [u64; WORDS] {
    core::array::from_fn(|i| {
        let word = match i.checked_sub(GENERAL_WORDS) {
            None => &t.saved.0[i],
            Some(i) => &t.saved_fp.0[i],
        };
        word.load(Ordering::Relaxed)
    })
}

/// Sets the registers of a thread that has arrived because a node has died ([`HandoffKind::Fail`]): it
/// returns from an invocation, or from `Migrate`, with an error. `carried` is what the thread carries.
fn arrive_failed<P: Platform>(t: &Thread, carried: [u64; 8]) {
    let [_, status, depth, _, _, component, pc, sp] = carried;
    let area = t.regs(P::ISA);
    if depth == NO_ENTRY {
        if t.begun(P::ISA) != begun::JUMPED {
            copy_registers(&t.parked[P::ISA.index()], area);
        }
        t.set_begun(P::ISA, begun::HERE);
        P::set_result(area, status, 0);
        return;
    }
    // A fault that a handler further in was dealing with is over, too.
    let all = t.depth.swap(depth, Ordering::Relaxed);
    let over = t.frames.iter().take(all as usize).skip(depth as usize);
    if over
        .into_iter()
        .any(|f| f.info.load(Ordering::Relaxed) & info::FAULT != 0)
    {
        t.fault.store(0, Ordering::Relaxed);
    }
    t.component.store(component, Ordering::Relaxed);
    // Whatever is over was with services, on either ISA: what they had in the registers of the node
    // that has died is still noted as the thread's.
    if !lacks!("arrive::arrive_failed::fp") {
        fp::renew_used(t);
    }
    P::set_results(area, status, [0; 4]);
    P::set_user_pc_sp(area, pc, sp);
}
