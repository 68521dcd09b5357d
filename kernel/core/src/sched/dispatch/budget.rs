//! Time that a dispatch takes off a budget, and gives back: see [`dyad_object::time`] for the protocol.
//!
//! Bounds: each change of a budget is tried [`TRIES`] times. Each failure is the success of another CPU.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::{Error, Result};

use dyad_machine::clock::FusedTime;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock};
use dyad_object::follow;
use dyad_object::memory::Words;
use dyad_object::thread::Thread;
use dyad_object::time::{Budgets, INHERITED, UNLIMITED};

/// Attempts to change a budget that other CPUs change at the same time.
const TRIES: usize = 64;

/// Changes a budget and returns its old value. `next` computes the new value, or an error that leaves the
/// budget unchanged.
///
/// # Errors
///
/// [`Error::Again`] if other CPUs change the budget at each attempt; any error of `next`.
pub(crate) fn change(
    words: &Words,
    budget: &AtomicU64,
    next: impl Fn(u64) -> Result<u64>,
) -> Result<u64> {
    for _ in 0..TRIES {
        let has = words.read(budget);
        let becomes = next(has)?;
        if becomes == has || words.exchange(budget, has, becomes) {
            return Ok(has);
        }
    }
    Err(Error::Again)
}

/// The value of a budget after `ns` is added. An unlimited budget stays unlimited, and no sum becomes
/// unlimited.
pub(crate) fn plus(has: u64, ns: u64) -> u64 {
    match has {
        UNLIMITED => UNLIMITED,
        _ => has.saturating_add(ns).min(UNLIMITED - 1),
    }
}

/// The value of a budget after `ns` is subtracted, at least 0. An unlimited budget stays unlimited.
fn minus(has: u64, ns: u64) -> u64 {
    match has {
        UNLIMITED => UNLIMITED,
        _ => has.saturating_sub(ns),
    }
}

/// Time that has been taken off a budget for one dispatch.
pub(super) struct Reserved {
    budgets: &'static Budgets,
    frame: u64,
    at: usize,
    from: FusedTime,
    ns: u64,
}

/// Reserves the time until fused time `end`, or all that the budget has if that is less; `end` is then moved
/// to the end of the reservation. Returns `None` if the budget is unlimited.
///
/// # Errors
///
/// [`Error::NoTime`] if the budget is used up; [`Error::Again`] if other CPUs change it at each attempt.
pub(super) fn reserve(
    cx: &KernelCtx,
    (budgets, at, frame): (&'static Budgets, usize, u64),
    now: FusedTime,
    end: &mut u64,
) -> Result<Option<Reserved>> {
    let left = budgets.left.get(at).ok_or(Error::Corrupt)?;
    pay_debt(cx.words(), left, &budgets.debt[at])?;
    let wanted = end.saturating_sub(now.0);
    let has = change(cx.words(), left, |has| match has {
        0 => Err(Error::NoTime),
        UNLIMITED => Ok(UNLIMITED),
        _ if lacks!("dispatch::budget::reserve") => Ok(has),
        _ => Ok(has - wanted.min(has)),
    })?;
    if has == UNLIMITED {
        return Ok(None);
    }
    let ns = wanted.min(has);
    *end = now.0.saturating_add(ns);
    Ok(Some(Reserved {
        budgets,
        frame,
        at,
        from: now,
        ns,
    }))
}

/// Subtracts from a budget the time that earlier threads have run beyond it.
fn pay_debt(words: &Words, left: &AtomicU64, debt: &AtomicU64) -> Result<()> {
    if words.read(debt) == 0 {
        return Ok(());
    }
    let owed = words.replace(debt, 0);
    match change(words, left, |has| Ok(minus(has, owed))) {
        Ok(UNLIMITED) => Ok(()),
        Ok(has) => {
            words.increase(debt, owed.saturating_sub(has));
            Ok(())
        }
        Err(e) => {
            words.increase(debt, owed);
            Err(e)
        }
    }
}

impl Reserved {
    /// Gives the time back after the dispatch has been refused. If other CPUs change the budget at each
    /// attempt, the time is lost.
    #[cold]
    pub(super) fn cancel(self, cx: &KernelCtx) {
        let _ = change(cx.words(), &self.budgets.left[self.at], |has| {
            Ok(plus(has, self.ns))
        });
    }

    /// Records the reservation in the thread that is dispatched.
    pub(super) fn note(self, t: &Thread) {
        t.budget_line.store(self.at as u64, Ordering::Relaxed);
        t.budget_from.store(self.from.0, Ordering::Relaxed);
        t.budget_reserved.store(self.ns, Ordering::Relaxed);
        t.budget.store(self.frame, Ordering::Relaxed);
    }
}

/// The word `budget` of a thread that gets the CPU from `from` and has no budget of its own. Within a limited budget it is
/// not 0: a thread that leaves the node is then left to its scheduler there, and does not run at once, uncharged.
#[inline(always)]
pub(super) fn inherited(from: &Thread) -> u64 {
    match from.budget.load(Ordering::Relaxed) {
        0 => 0,
        _ if lacks!("dispatch::budget::inherited") => 0,
        _ => INHERITED,
    }
}

/// Returns the unused part of a thread's reservation to the budget, or charges the time used beyond it. The
/// thread has nothing reserved afterwards: if it does not stop after all, the rest of its time is charged
/// too. The thread must still belong to this CPU.
#[cold]
pub(super) fn settle<P: Platform>(cx: &KernelCtx, t: &Thread) {
    let now = clock::now::<P>().0;
    let used = now.saturating_sub(t.budget_from.swap(now, Ordering::Relaxed));
    let reserved = t.budget_reserved.swap(0, Ordering::Relaxed);
    let at = t.budget_line.load(Ordering::Relaxed) as usize;
    let word = t.budget.load(Ordering::Relaxed);
    // What it has run is charged to the thread that has the budget.
    if word == INHERITED {
        return;
    }
    // A budget that has been given up meanwhile gets nothing back.
    let Ok((budgets, _)) = follow::<Budgets>(cx.node, word, Budgets::KIND) else {
        return;
    };
    let (Some(left), Some(debt)) = (budgets.left.get(at), budgets.debt.get(at)) else {
        return;
    };
    let words = cx.words();
    if used <= reserved {
        // Time is lost rather than made if others change the budget each time.
        let _ = change(words, left, |has| Ok(plus(has, reserved - used)));
        return;
    }
    let over = used - reserved;
    let unpaid = match change(words, left, |has| Ok(minus(has, over))) {
        Ok(UNLIMITED) => 0,
        Ok(has) => over.saturating_sub(has),
        Err(_) => over,
    };
    if unpaid != 0 {
        words.increase(debt, unpaid);
    }
}
