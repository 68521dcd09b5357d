//! Ranges of addresses and of frames in operations on spaces, and the cost limits of one call.

use dyad_abi::user::{USER_END, USER_MIN};
use dyad_abi::{Error, Result};
use dyad_captbl::FrameRange;

use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::space::Supply;

/// The cost limit of one `Reclaim` or `Evacuate`, in instructions, roughly. A call does at least one page.
const BUDGET: u64 = 6_000;
/// The cost limit where caches are not coherent, in the same units; each step costs more there.
const BUDGET_INCOHERENT: u64 = 4_500;
/// The cost of reading the entry of an address in all tables.
pub(super) const LOOK: u64 = 400;
/// The cost of moving a page: one page in each call.
pub(super) const MOVED: u64 = BUDGET;

/// The budget of one `Reclaim` or `Evacuate`.
pub(super) fn budget(cx: &KernelCtx) -> u64 {
    match cx.words().is_coherent() {
        true => BUDGET,
        false => BUDGET_INCOHERENT,
    }
}

/// Checks that programs may use an address, and that it is aligned to `size`.
///
/// # Errors
///
/// [`Error::BadAddress`] outside of the user half, and below its first address, where null pointers lead;
/// [`Error::BadArgument`] if it is not aligned.
pub(super) fn address(va: u64, size: u64) -> Result<u64> {
    if !(USER_MIN..USER_END).contains(&va) {
        return Err(Error::BadAddress);
    }
    if !va.is_multiple_of(size) {
        return Err(Error::BadArgument);
    }
    Ok(va)
}

/// `count` frames of a memory from `at` on; `(0, 0)` is all of it.
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
