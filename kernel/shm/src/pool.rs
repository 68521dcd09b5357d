//! Pools and physical addresses.

use core::fmt;

use dyad_abi::NodeId;
use dyad_abi::boot::{CXL_BASE, LOCAL_STRIDE, local_pool_base};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::PAGE_SIZE;

/// Number of pools a system can have: one per node and the CXL pool.
pub const MAX_POOLS: usize = MAX_NODES + 1;

/// A physical address, the same on every node for addresses in pools.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct PhysAddr(pub u64);

impl PhysAddr {
    /// The address `n` bytes further on. It wraps around: no address near the end is in a pool, so
    /// that the map refuses what comes of it.
    #[inline]
    #[must_use]
    pub const fn add(self, n: u64) -> PhysAddr {
        PhysAddr(self.0.wrapping_add(n))
    }

    /// Start of the frame the address is in.
    #[must_use]
    pub const fn frame_start(self) -> PhysAddr {
        PhysAddr(self.0 & !(PAGE_SIZE - 1))
    }

    /// Offset within its frame.
    pub const fn offset(self) -> u64 {
        self.0 & (PAGE_SIZE - 1)
    }
}

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// One of the system's pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolId {
    /// The pool local to a node.
    Local(NodeId),
    /// The CXL pool.
    Cxl,
}

impl PoolId {
    /// Index into arrays of [`MAX_POOLS`]; the CXL pool comes last.
    pub const fn index(self) -> usize {
        match self {
            PoolId::Local(n) => n.index(),
            PoolId::Cxl => MAX_NODES,
        }
    }

    /// Physical start.
    pub const fn base(self) -> PhysAddr {
        match self {
            PoolId::Local(n) => PhysAddr(local_pool_base(n)),
            PoolId::Cxl => PhysAddr(CXL_BASE),
        }
    }

    /// The pool whose address range contains `pa`, whether or not the pool is that large.
    pub const fn of(pa: PhysAddr) -> Option<PoolId> {
        if pa.0 >= CXL_BASE {
            return Some(PoolId::Cxl);
        }
        if pa.0 < LOCAL_STRIDE {
            return None;
        }
        match NodeId::new(pa.0 / LOCAL_STRIDE - 1) {
            Some(n) => Some(PoolId::Local(n)),
            None => None,
        }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolId::Local(n) => write!(f, "local pool of node {n}"),
            PoolId::Cxl => f.write_str("CXL pool"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_find_their_pools() {
        for n in NodeId::first(MAX_NODES) {
            let p = PoolId::Local(n);
            assert_eq!(PoolId::of(p.base()), Some(p));
            assert_eq!(PoolId::of(p.base().add(LOCAL_STRIDE - 1)), Some(p));
        }
        assert_eq!(PoolId::of(PhysAddr(LOCAL_STRIDE - 1)), None);
        assert_eq!(PoolId::of(PhysAddr(CXL_BASE - 1)), None);
        assert_eq!(PoolId::of(PhysAddr(CXL_BASE)), Some(PoolId::Cxl));
    }
}
