//! Operations on time budgets.
//!
//! Budgets are words of a frame, in nanoseconds. A thread that is dispatched on one runs no longer than there is
//! left; what it may use is taken off when it is dispatched, and what it has not used is given back when it stops
//! ([`dispatch::budget`](crate::sched::dispatch)). Time is moved between budgets, never made: what has been taken off one
//! and does not fit another goes back, or is lost.

use dyad_abi::cap::{CapIndex, CapType, Rights, TimeOp};
use dyad_abi::{Error, Result};
use dyad_captbl::Span;

use core::sync::atomic::AtomicU64;

use crate::sched::dispatch::budget::{change, plus};
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::endpoint::LINES;
use dyad_object::find;
use dyad_object::time::{Budgets, UNLIMITED};

/// Carries an operation on a time budget out. A capability for several stands for the first.
///
/// # Errors
///
/// [`Error::Revoked`]; [`Error::NoTime`] if there is less than is to be moved; [`Error::Again`] if
/// others change the same budgets each time; of the other capability, as [`KernelCtx::operand`].
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

/// Moves time: off the one budget first, so that there is never more of it than has been given out. The two changes
/// are no row: if the node dies in between, the time is lost, which harms only its owner. Budgets without limit
/// stay so, whatever is taken or added.
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
