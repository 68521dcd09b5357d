//! Page faults of user threads.
//!
//! Order of attempts (DESIGN 3.4): (1) the own table has a fitting translation by now: nothing to
//! do; (2) another ISA's table has one: it is installed in the own table, without any message;
//! (3) the region is anonymous: a zero-filled frame of the local pool goes into every table;
//! (4) otherwise the access is refused.

use core::sync::atomic::Ordering;

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Result};
use dyad_pgtbl::{Epoch, Leaf, Perms};

use crate::Platform;
use crate::frames::Frames;
use crate::node::Node;
use crate::platform::FaultKind;
use crate::space::{RegionKind, Space};

fn allows(leaf: &Leaf, kind: FaultKind) -> bool {
    leaf.perms.contains(Perms::USER)
        && match kind {
            FaultKind::Write => leaf.perms.contains(Perms::WRITE),
            FaultKind::Execute => leaf.perms.contains(Perms::EXECUTE),
            _ => true,
        }
}

/// Makes `va` accessible as `kind` wants, if the program may access it so.
///
/// # Errors
///
/// [`Error::BadAddress`] if it may not; [`Error::NoMemory`] if there is no frame.
pub fn resolve<P: Platform>(
    node: &Node,
    space: &Space<'_>,
    va: u64,
    kind: FaultKind,
) -> Result<()> {
    let page = va & !(PAGE_SIZE - 1);
    if let Some((_, leaf, _)) = space.with_table(P::ISA, |t| t.translate(page)).flatten() {
        // Either another CPU has just mapped it, or the access is forbidden.
        return if allows(&leaf, kind) {
            P::flush_tlb();
            Ok(())
        } else {
            Err(Error::BadAddress)
        };
    }
    let region = space.region_at(va).ok_or(Error::BadAddress)?;
    let frames = node.frames();
    // What only one ISA may execute has no translation for the other: only data is shared.
    for isa in node.isas().filter(|&i| i != P::ISA) {
        let found = space
            .with_table(isa, |t| t.translate(page))
            .flatten()
            .filter(|(_, leaf, _)| !leaf.perms.contains(Perms::EXECUTE) && allows(leaf, kind));
        if let Some((pa, leaf, _)) = found
            && region.kind != RegionKind::Image
        {
            space.map_in(P::ISA, page, Leaf { pa, ..leaf }, &frames)?;
            // Still there? If its owner has unmapped it meanwhile, so must we.
            let same = space
                .with_table(isa, |t| t.translate(page))
                .flatten()
                .is_some_and(|(now, _, _)| now == pa);
            if !same {
                let epoch = || Epoch::saturating(node.sb.epoch.load(Ordering::Acquire));
                let _ = space.with_table(P::ISA, |t| t.unmap(page, node.id(), epoch));
                return Err(Error::Again);
            }
            space.frame().faults_copied.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    }
    if region.kind == RegionKind::Image
        || kind == FaultKind::Execute
        || (kind == FaultKind::Write && !region.write)
    {
        return Err(Error::BadAddress);
    }
    let pa = frames.alloc_zeroed_by(P::zero_frame)?;
    let leaf = Space::user_leaf(pa, region.write, false);
    let placed = space.map_everywhere(page, leaf, &frames);
    if placed.used {
        space.frame().faults_filled.fetch_add(1, Ordering::Relaxed);
    } else {
        Frames::free(&node.map, pa)?;
    }
    placed.result
}
