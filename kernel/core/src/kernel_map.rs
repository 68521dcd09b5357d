//! Building the kernel half of an address space: what both ISAs' `mmu` modules share.

use core::ops::Range;

use dyad_abi::NodeId;
use dyad_abi::boot::BootParams;
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{FrameSource, Leaf, Level, MapError, Memory, Perms, RemoteCpu};
use dyad_shm::pool::MAX_POOLS;
use dyad_shm::{FUSED_BASE, PhysAddr, PoolId};

/// Maps a range with the largest pages that fit.
///
/// # Errors
///
/// As [`RemoteCpu::map`].
pub fn map_range<M: GlobalMem>(
    table: &RemoteCpu<'_, M>,
    frames: &impl FrameSource,
    range: Range<u64>,
    pa: u64,
    perms: Perms,
    memory: Memory,
) -> Result<(), MapError> {
    let (mut va, mut pa) = (range.start, pa);
    while va < range.end {
        let level = [Level::L3, Level::L2]
            .into_iter()
            .find(|l| (va | pa).is_multiple_of(l.size()) && range.end - va >= l.size())
            .unwrap_or(Level::L1);
        let leaf = Leaf::kernel(PhysAddr(pa), perms, memory);
        table.map(va, leaf, level, frames)?;
        pa += level.size();
        // The last page of the address space has no address behind it.
        let Some(next) = va.checked_add(level.size()) else {
            break;
        };
        va = next;
    }
    Ok(())
}

/// The pools that the parameters tell of: size and virtual address, by pool index.
pub fn pools(params: &BootParams<'_>) -> [(u64, u64); MAX_POOLS] {
    let mut pools = [(0, 0); MAX_POOLS];
    for n in NodeId::first(params.node_count) {
        let id = PoolId::Local(n);
        pools[id.index()] = (params.local_size, FUSED_BASE + id.base().0);
    }
    pools[PoolId::Cxl.index()] = (params.cxl_size, FUSED_BASE + PoolId::Cxl.base().0);
    pools
}
