//! Arrival of threads that have jumped to this node; see [`crate::migrate::jump`].

use core::sync::atomic::Ordering;

use dyad_abi::Isa;
use dyad_abi::user::tcb_address;

use crate::migrate::crossing_state::CrossingState;
use crate::sched::{dispatch, fp};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::{Thread, begun};

/// Resumes a thread that has come back to the CPU that it left, set up by [`arrive`]. Returns if the thread
/// cannot run now; it is ready then.
#[inline(always)]
pub(crate) fn go_on_with<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    ready: impl FnOnce() -> bool,
) {
    let local = cx.local;
    let word = |i: usize| t.carried[i].load(Ordering::Relaxed);
    let used_fp = fp::is_used(t);
    arrive::<P>(cx, t, (word(6), word(7)), (word(2), word(1)));
    let component = t.component.load(Ordering::Relaxed);
    let holds = local.space.get() != 0 && local.component.get() == component;
    if ready() {
        if !holds {
            dispatch::resume::<P>(cx);
            return;
        }
        local.holding.set(Some(t));
        fp::start::<P>(local, t, used_fp);
        P::resume_user(t.regs(P::ISA))
    }
}

/// Sets a thread up to continue with a program counter, stack pointer, frame pointer and argument. Of its
/// earlier state only the thread pointer is left.
pub(crate) fn arrive<P: Platform>(
    cx: &KernelCtx,
    t: &Thread,
    (pc, sp): (u64, u64),
    (fp, arg): (u64, u64),
) {
    CrossingState::of(t).note_here::<P>(cx, t);
    let id = t.layout_id();
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
