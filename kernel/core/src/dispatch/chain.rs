//! Who gave the CPU to whom: the chain of dispatchers under the running thread.
//!
//! The chain belongs to one CPU and is changed by it only, so nothing here is ordered against other
//! CPUs but the budget, which others may charge at the same time: by compare-and-swap.
//!
//! Whoever stops the running thread calls [`take_dispatcher`] while the thread is still this CPU's, and
//! [`go_on`] (or [`give_back`] if it does not stop after all) with what that has returned. The first
//! must come before the owner word says anything else: another CPU may run the thread from then on,
//! and write the budget it is charged to.

use core::sync::atomic::Ordering;

use dyad_abi::cap::Stopped;

use super::{By, current};
use crate::cx::Cx;
use crate::object::follow;
use crate::object::thread::Thread;
use crate::object::time::{Budgets, UNLIMITED};
use crate::{Platform, clock};

/// Attempts at changing a budget that others change at the same time. After that the charge is
/// dropped: it is better that a thread has run for nothing than that a CPU spins.
const CHARGE_TRIES: usize = 64;

/// Gives the CPU from the running thread, which stays this CPU's, to `next`, which has been taken.
pub(super) fn give(cx: &Cx, next: &'static Thread, how: By) {
    cx.local.chain.push(current(cx), how);
    cx.local.thread.set(Some(next));
}

/// Takes the time a thread has run off the budget it runs on, and counts from now on: if it does not
/// stop after all, it goes on paying. What it has run longer than there was time is lost: the timer
/// ends slices, and is as late as it is. The word is of no meaning to a thread that has stopped:
/// whoever has it run next says what it runs on.
#[cold]
fn charge<P: Platform>(cx: &Cx, t: &Thread) {
    let word = t.budget.load(Ordering::Relaxed);
    let now = clock::now::<P>().0;
    let used = now.saturating_sub(t.budget_from.load(Ordering::Relaxed));
    t.budget_from.store(now, Ordering::Relaxed);
    let at = t.budget_line.load(Ordering::Relaxed) as usize;
    // A budget that has been given up meanwhile takes no charge.
    if let Ok((budgets, _)) = follow::<Budgets>(cx.node, word, Budgets::KIND)
        && let Some(left) = budgets.left.get(at)
    {
        for _ in 0..CHARGE_TRIES {
            let has = cx.words().read(left);
            if has == UNLIMITED || cx.words().exchange(left, has, has.saturating_sub(used)) {
                break;
            }
        }
    }
}

/// Takes note of who goes on when `t` stops. While `t` still belongs to this CPU. `None` for a root
/// thread: the CPU chooses in its loop.
pub(crate) fn take_dispatcher<P: Platform>(cx: &Cx, t: &Thread) -> Option<(&'static Thread, By)> {
    if t.budget.load(Ordering::Relaxed) != 0 {
        charge::<P>(cx, t);
    }
    cx.local.chain.pop()
}

/// The running thread has stopped: whoever gave it the CPU goes on. One that dispatched it is told
/// why, as the value of its `Dispatch`; one that had only sent to it has its result already.
pub(crate) fn go_on(cx: &Cx, next: Option<(&'static Thread, By)>, why: Stopped, detail: u64) {
    if let Some((d, By::Dispatch)) = next {
        d.set_result(0, why as u64 | detail << 8);
    }
    cx.local.thread.set(next.map(|(d, _)| d));
}

/// The running thread does not stop after all.
pub(crate) fn give_back(cx: &Cx, next: Option<(&'static Thread, By)>) {
    if let Some((d, how)) = next {
        cx.local.chain.push(d, how);
    }
}
