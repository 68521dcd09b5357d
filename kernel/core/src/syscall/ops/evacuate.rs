//! The operation that moves pages of an address space out of a range of frames.

use dyad_abi::cap::Step;
use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_abi::{Error, NodeId, Result};

use super::ranges::{LOOK, MOVED, address, budget, range_of};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::Operand;
use dyad_space::mapping::SpaceCtx;

/// `Evacuate`: one [`Step`] for pages from `start` on that faults have put into frames of the memory. See
/// [`dyad_space::evacuate`].
///
/// Bounded by the budget of a call, like `Reclaim`.
///
/// # Errors
///
/// [`Error::BadAddress`], [`Error::BadArgument`], [`Error::NoSuchNode`]; [`Error::NoMemory`] if the supply of
/// the node has no frame; [`Error::Again`] if another CPU changes a page, or no frame is quiesced. What has
/// been done stays done, and a repeated call from the same address does no harm.
pub fn evacuate<P: Platform>(
    this: &SpaceCtx<'_>,
    (start, what): (u64, u64),
    memory: &Operand,
    (at, count): (u64, u64),
) -> Result<u64> {
    const FIELD: u64 = (1 << 40) - 1;
    let start = address(start, PAGE_SIZE)?;
    let end = (what & FIELD)
        .checked_mul(PAGE_SIZE)
        .and_then(|len| start.checked_add(len))
        .filter(|&end| end <= USER_END)
        .ok_or(Error::BadArgument)?;
    let step = Step::from_number(what >> 48).ok_or(Error::BadArgument)?;
    let node = NodeId::new(what >> 40 & 0xff)
        .filter(|n| n.index() < this.cx.node.params.node_count)
        .ok_or(Error::NoSuchNode)?;
    let range = range_of(memory, at, count)?;
    let mut va = start;
    let mut done = 0;
    let mut budget = budget(this.cx);
    while va < end && budget != 0 {
        let taken = match step {
            Step::Park => this.park(va, &range),
            Step::Move => this.move_parked::<P>(va, &range, node),
            Step::Unpark => this.unpark(va, &range),
        };
        let taken = match taken {
            Ok(taken) => taken,
            // The caller is to know how far it has come.
            Err(_) if va > start => break,
            Err(e) => return Err(e),
        };
        done += u64::from(taken.done);
        let cost = match (taken.done, step) {
            (false, _) => LOOK,
            (true, Step::Park | Step::Unpark) => 2 * LOOK,
            (true, Step::Move) => MOVED,
        };
        va = taken.next;
        budget = budget.saturating_sub(cost);
    }
    Ok(((va.min(end) - start) / PAGE_SIZE) | (done << 40))
}
