//! The chain of dispatchers under the running thread: which thread gave the CPU to which.
//!
//! The chain belongs to one CPU, which alone changes it. Only the budget ([`super::budget`]) needs ordering,
//! because other CPUs may change it at the same time.
//!
//! Code that stops the running thread calls [`take_dispatcher`] while the thread still belongs to this CPU.
//! It passes the result to [`go_on`], or to [`give_back`] if the thread does not stop after all.
//! [`take_dispatcher`] must come before the owner word changes: afterwards another CPU may run the thread and
//! write to its reservation.

use core::sync::atomic::Ordering;

use dyad_abi::cap::Stopped;
use dyad_abi::service::sched;

use super::{SwitchReason, budget, current};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::Thread;

/// Switches from the running thread, which stays RUNNING on this CPU, to `next`, which the caller has taken.
pub(super) fn give(cx: &KernelCtx, next: &'static Thread, how: SwitchReason) {
    cx.local.chain.push(current(cx), how);
    cx.local.thread.set(Some(next));
}

/// Pops the thread that continues when `t` stops, and settles the budget of `t`. Called while `t` still
/// belongs to this CPU. Returns `None` for a root thread: the run loop then chooses.
pub(crate) fn take_dispatcher<P: Platform>(
    cx: &KernelCtx,
    t: &Thread,
) -> Option<(&'static Thread, SwitchReason)> {
    if t.budget.load(Ordering::Relaxed) != 0 {
        budget::settle::<P>(cx, t);
    }
    cx.local.chain.pop()
}

/// The largest detail that fits into the result of a `Dispatch`. Larger details, such as a deadline years
/// away, are reported as this value.
const MOST: u64 = u64::MAX >> sched::DEADLINE_SHIFT;

/// Continues the thread that gave the CPU to the stopped one. A thread that dispatched it gets the reason as
/// the result of its `Dispatch`; a thread that only sent to it has its result already.
pub(crate) fn go_on(
    cx: &KernelCtx,
    next: Option<(&'static Thread, SwitchReason)>,
    why: Stopped,
    detail: u64,
) {
    if let Some((d, SwitchReason::Dispatch)) = next {
        d.set_result(0, why as u64 | detail.min(MOST) << sched::DEADLINE_SHIFT);
    }
    cx.local.thread.set(next.map(|(d, _)| d));
}

/// Puts a dispatcher back on the chain: the running thread does not stop after all.
pub(crate) fn give_back(cx: &KernelCtx, next: Option<(&'static Thread, SwitchReason)>) {
    if let Some((d, how)) = next {
        cx.local.chain.push(d, how);
    }
}
