//! `Reclaim`: returns pages that faults have mapped, and empty tables above them, to the supply.

use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_abi::{Error, Result};
use dyad_pgtbl::{Leaf, Level, Perms, Pte};
use dyad_retype::Use;
use dyad_shm::frame::{FrameRef, WeakRef};

use super::ranges::{LOOK, address, budget};
use dyad_space::mapping::{Driver, SpaceCtx, refusal, table_kind};

/// The cost of unmapping a page in one table.
const UNMAPPED: u64 = 1_200;
/// The cost of checking whether tables can be unlinked.
const PRUNING: u64 = 600;
/// Entries of a table.
const ENTRIES: u64 = 512;
/// The most tables that one `Reclaim` unlinks.
const MAX_PRUNED: u32 = 3;

/// `Reclaim`: unmaps pages that faults have mapped, on all ISAs; other pages stay. Tables that become empty
/// return to the supply. Value: the number of pages covered; the caller continues after them.
///
/// Bounded by the budget of a call. An empty entry of a higher level costs one read, however much it covers,
/// so large holes are skipped quickly.
///
/// # Errors
///
/// [`Error::BadAddress`], [`Error::BadArgument`]; [`Error::Again`] if another CPU changes a page, or if the
/// first page is done except for its tables. What has been unmapped stays so, and a repeated call from the
/// same address does no harm.
pub fn reclaim(this: &SpaceCtx<'_>, start: u64, pages: u64) -> Result<u64> {
    let start = address(start, PAGE_SIZE)?;
    let end = pages
        .checked_mul(PAGE_SIZE)
        .and_then(|len| start.checked_add(len))
        .filter(|&end| end <= USER_END)
        .ok_or(Error::BadArgument)?;
    let mut va = start;
    let mut budget = budget(this.cx);
    let mut tables = MAX_PRUNED;
    while va < end && budget != 0 {
        let mut cost = LOOK;
        // Nothing before this is mapped anywhere.
        let mut next = end;
        for isa in this.cx.node.isas() {
            // A space need not have a table for every ISA.
            let Ok(d) = this.driver(isa) else { continue };
            let place = d.find(va, Level::L1).map_err(refusal)?;
            let behind = (va & !(place.level.size() - 1)) + place.level.size();
            match d.meaning(&place) {
                // What users have mapped is theirs to unmap: they have the capability.
                Pte::Leaf(leaf) if leaf.perms.contains(Perms::OWNED) => {
                    this.unmap(&d, &place, &leaf)?;
                    cost += UNMAPPED;
                }
                Pte::Parked { pa, perms } if perms.contains(Perms::OWNED) => {
                    this.unmap(&d, &place, &Leaf::unparked(pa, perms))?;
                    cost += UNMAPPED;
                }
                Pte::Closing { .. } => return Err(Error::Again),
                _ => {}
            }
            next = next.min(behind);
            // The last entry of a table, or the last page asked for, has been done.
            if next >= end || next.is_multiple_of(place.level.size() * ENTRIES) {
                cost += PRUNING;
                if !prune(this, &d, va, &mut tables) {
                    // The same page again, which is not mapped any more, and the rest of its tables.
                    return match (va - start) / PAGE_SIZE {
                        0 => Err(Error::Again),
                        looked => Ok(looked),
                    };
                }
            }
        }
        va = next;
        budget = budget.saturating_sub(cost);
    }
    Ok((va.min(end) - start) / PAGE_SIZE)
}

/// Unlinks tables above `va` that are empty and came from a supply, lowest level first: each unlinked table
/// may have been its parent's last entry. Stops at the first table that stays, because it has other entries
/// or is a user's. That is no error, because another CPU may just be filling it again.
///
/// Unlinks at most `left` tables, and subtracts their number from `left`. Returns `false` if the limit
/// stopped it.
fn prune(this: &SpaceCtx<'_>, d: &Driver, va: u64, left: &mut u32) -> bool {
    for above in [Level::L2, Level::L3, Level::L4] {
        let Ok(place) = d.find(va, above) else { break };
        let Pte::Table(table) = d.meaning(&place) else {
            continue;
        };
        let supplied =
            FrameRef::of(table).is_some_and(|f| this.space.is_supplied(this.cx.words(), f));
        if place.level != above || !supplied {
            break;
        }
        let Some(fewer) = left.checked_sub(1) else {
            return false;
        };
        if this.unlink(d, &place, table).is_err() {
            break;
        }
        *left = fewer;
        let _ = back_to_supply(this, d, above, table);
    }
    true
}

/// Returns a table that lies in a supply to untyped: a fault took it from there, and no capability for it
/// exists. A table that users have linked lies in no supply, and stays theirs.
pub(super) fn back_to_supply(
    this: &SpaceCtx<'_>,
    d: &Driver,
    above: Level,
    table: dyad_shm::PhysAddr,
) -> Result<()> {
    let frame = FrameRef::of(table).ok_or(Error::Corrupt)?;
    if let Some(level) = above.below()
        && this.space.is_supplied(this.cx.words(), frame)
    {
        let weak: WeakRef = this.cx.frames().current(frame)?;
        this.give_back(weak, Use::Kernel(table_kind(d.isa(), level)));
    }
    Ok(())
}
