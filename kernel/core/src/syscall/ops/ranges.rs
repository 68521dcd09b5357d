//! Ranges of addresses and of frames that operations on spaces go through, and what one call may cost.

use dyad_abi::user::{USER_END, USER_MIN};
use dyad_abi::{Error, Result};
use dyad_captbl::FrameRange;

use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::space::Supply;

/// What one `Reclaim` or `Evacuate` may cost, in instructions, roughly. A call does at least one page.
const BUDGET: u64 = 6_000;
/// What it may cost where caches are not coherent, in the same costs, which are higher there.
const BUDGET_INCOHERENT: u64 = 4_500;
/// A look at an address, in all tables.
pub(super) const LOOK: u64 = 400;
/// A page moved: one in each call.
pub(super) const MOVED: u64 = BUDGET;

/// The budget of one `Reclaim` or `Evacuate`.
pub(super) fn budget(cx: &KernelCtx) -> u64 {
    match cx.words().is_coherent() {
        true => BUDGET,
        false => BUDGET_INCOHERENT,
    }
}

/// An address that programs may use, aligned to what is to be done there.
///
/// # Errors
///
/// [`Error::BadAddress`] outside of the user half, and below its first address, where pointers that
/// nobody has set lead; [`Error::BadArgument`] if it is not aligned.
pub(super) fn address(va: u64, size: u64) -> Result<u64> {
    if !(USER_MIN..USER_END).contains(&va) {
        return Err(Error::BadAddress);
    }
    if !va.is_multiple_of(size) {
        return Err(Error::BadArgument);
    }
    Ok(va)
}

/// `count` frames from `at` on of a memory; `(0, 0)` is all of it.
pub(super) fn range_of(memory: &Operand, at: u64, count: u64) -> Result<Supply> {
    let range = FrameRange::from_payload(memory.payload)
        .and_then(|range| range.narrow(at, count))
        .filter(|range| range.count() <= u32::MAX as u64)
        .ok_or(Error::BadArgument)?;
    Ok(Supply {
        first: range.first(),
        frames: range.count(),
    })
}
