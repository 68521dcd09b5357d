//! Operations on time budgets.
//!
//! Budgets are words of a frame, in nanoseconds. A thread that is dispatched on a budget runs no longer than
//! the budget lasts. The time is subtracted when the thread is dispatched, and the unused part is returned
//! when it stops ([`dispatch::budget`](crate::sched::dispatch)). Time is moved between budgets, never
//! created: time that cannot be added to the target goes back, or is lost.

use dyad_abi::cap::{CapIndex, CapType, Rights, TimeOp};
use dyad_abi::{Error, Result};
use dyad_captbl::Span;

use core::sync::atomic::AtomicU64;

use crate::sched::dispatch::budget::{change, plus};
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::endpoint::LINES;
use dyad_object::find;
use dyad_object::time::{Budgets, UNLIMITED};

/// Carries out an operation on a time budget. A capability for several budgets stands for the first.
///
/// # Errors
///
/// [`Error::Revoked`]; [`Error::NoTime`] if the budget has less than is to be moved; [`Error::Again`] if
/// other CPUs change the same budgets at each attempt; the errors of [`KernelCtx::operand`] for the other
/// capability.
pub fn dispatch(cx: &KernelCtx, this: &Operand, op: TimeOp, a: [u64; 5]) -> Result<u64> {
    let budgets: &'static Budgets = find(cx.node, this.object()?, Budgets::KIND)?;
    let at = Span::new(this.payload[0], this.payload[1], LINES as u64)
        .ok_or(Error::Corrupt)?
        .first() as usize;
    let from = budgets.left.get(at).ok_or(Error::Corrupt)?;
    match op {
        TimeOp::Use => Err(Error::BadSyscall),
        TimeOp::Read => Ok(cx.words().read(from)),
        TimeOp::Transfer => {
            // Time may be given to any budget that one can name: there is no right to refuse it.
            let to = CapIndex::new(a[0]).ok_or(Error::NoCap)?;
            let to = cx.operand(to, CapType::Time, Rights::NONE)?;
            let target: &'static Budgets = find(cx.node, to.object()?, Budgets::KIND)?;
            let index = Span::new(to.payload[0], to.payload[1], LINES as u64)
                .ok_or(Error::Corrupt)?
                .first() as usize;
            let target = target.left.get(index).ok_or(Error::Corrupt)?;
            transfer(cx, from, target, a[1])
        }
    }
}

/// Moves time: subtracts it from one budget first, so that the total never exceeds what has been given out.
/// The two changes are no row: if the node dies in between, the time is lost, which harms only its owner. An
/// unlimited budget stays unlimited, whatever is added or subtracted.
fn transfer(cx: &KernelCtx, from: &AtomicU64, to: &AtomicU64, ns: u64) -> Result<u64> {
    let words = cx.words();
    let has = change(words, from, |has| match has {
        UNLIMITED => Ok(UNLIMITED),
        _ => has.checked_sub(ns).ok_or(Error::NoTime),
    })?;
    if let Err(e) = change(words, to, |has| Ok(plus(has, ns))) {
        // The giver gets back what was taken off it. Time is lost rather than made if others change that budget
        // each time, too.
        if has != UNLIMITED {
            let _ = change(words, from, |has| Ok(plus(has, ns)));
        }
        return Err(e);
    }
    Ok(0)
}
