//! Who gave the CPU to whom: the chain of dispatchers under the running thread.
//!
//! The chain belongs to one CPU and is changed by it only, so nothing here is ordered against other
//! CPUs but the budget ([`super::budget`]), which others may change at the same time.
//!
//! Whoever stops the running thread calls [`take_dispatcher`] while the thread is still this CPU's, and
//! [`go_on`] (or [`give_back`] if it does not stop after all) with what that has returned. The first
//! must come before the owner word says anything else: another CPU may run the thread from then on,
//! and write what it has reserved of its budget.

use core::sync::atomic::Ordering;

use dyad_abi::cap::Stopped;
use dyad_abi::service::sched;

use super::{SwitchReason, budget, current};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::Thread;

/// Gives the CPU from the running thread, which stays this CPU's, to `next`, which has been taken.
pub(super) fn give(cx: &KernelCtx, next: &'static Thread, how: SwitchReason) {
    cx.local.chain.push(current(cx), how);
    cx.local.thread.set(Some(next));
}

/// Takes note of who goes on when `t` stops. While `t` still belongs to this CPU. `None` for a root
/// thread: the CPU chooses in its loop.
pub(crate) fn take_dispatcher<P: Platform>(
    cx: &KernelCtx,
    t: &Thread,
) -> Option<(&'static Thread, SwitchReason)> {
    if t.budget.load(Ordering::Relaxed) != 0 {
        budget::settle::<P>(cx, t);
    }
    cx.local.chain.pop()
}

/// The largest detail that the value of a `Dispatch` has room for. It stands for itself and for all that are larger: a
/// deadline in two years, an exit code that is not 0.
const MOST: u64 = u64::MAX >> sched::DEADLINE_SHIFT;

/// The running thread has stopped: whoever gave it the CPU goes on. One that dispatched it is told
/// why, as the value of its `Dispatch`; one that had only sent to it has its result already.
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

/// The running thread does not stop after all.
pub(crate) fn give_back(cx: &KernelCtx, next: Option<(&'static Thread, SwitchReason)>) {
    if let Some((d, how)) = next {
        cx.local.chain.push(d, how);
    }
}
