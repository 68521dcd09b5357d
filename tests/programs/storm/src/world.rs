//! What all actors know: written before there is more than one, then only read.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dyad_abi::cap::{CapIndex, CapType};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::slot;

/// Frames of storm memory in a pool.
pub const FRAMES: u64 = 256;
/// Slots of a type.
pub const SLOTS: u64 = 32;
/// The first slot of the storm.
pub const FIRST: u32 = 128;
/// Leaves of the storm's slots.
pub const LEAVES: u32 = 8;
/// Entries of the program's root that the storm hangs leaves into and takes them out of.
pub const WILD_ENTRIES: core::ops::Range<u32> = 16..24;
/// Entries with slots for what is looked at in the end.
pub const LAST_ENTRIES: core::ops::Range<u32> = 32..64;
/// Addresses of the program's own space that the storm maps at: a top-level entry of its own.
pub const WINDOW: u64 = 0x2000_0000_0000;
/// Pages of the window that are used.
pub const WINDOW_PAGES: u64 = 1024;

/// Storm memory of a pool.
pub const fn memory(pool: u64) -> CapIndex {
    CapIndex(64 + pool as u32)
}
/// The leaf with the storm's slots `64 * n` and up.
pub const fn leaf(n: u32) -> CapIndex {
    CapIndex(80 + n)
}
/// Invokes this program, here.
pub const HERE: CapIndex = CapIndex(90);
/// Handles faults of this program.
pub const HANDLER: CapIndex = CapIndex(91);
/// Invokes this program on node `n`.
pub const fn there(n: u64) -> CapIndex {
    CapIndex(92 + n as u32)
}
/// The thread of a guest.
pub const fn guest(k: usize) -> CapIndex {
    CapIndex(104 + k as u32)
}
/// Memory of the guests' threads.
pub const GUEST_MEMORY: CapIndex = CapIndex(112);

/// Slot `k` of a type.
pub const fn slot_of(ty: CapType, k: u64) -> CapIndex {
    CapIndex(FIRST + (ty as u32 - 1) * SLOTS as u32 + (k % SLOTS) as u32)
}

const _: () = {
    assert!(slot_of(CapType::ThreadIds, SLOTS - 1).0 < FIRST + LEAVES * 64);
    assert!(FIRST / 64 + LEAVES <= WILD_ENTRIES.start);
    assert!(slot::FIRST_FREE.0 == 64 && memory(MAX_NODES as u64).0 < leaf(0).0);
};

/// Numbers.
pub struct World {
    /// Nodes.
    pub nodes: AtomicU64,
    /// CPUs of a node.
    pub cpus: AtomicU64,
    /// Pools with storm memory: slot numbers of [`memory`].
    pub pools: [AtomicU64; MAX_NODES + 1],
    /// How many of them.
    pub pool_count: AtomicUsize,
    /// Fused time of the end; 0: none.
    pub deadline: AtomicU64,
    /// Operations of all together; 0: any number.
    pub limit: AtomicU64,
    /// Not 0: everybody stops.
    pub done: AtomicU64,
    /// Workers that have stopped, by bit.
    pub stopped: AtomicU64,
}

/// The state that all threads of the storm share.
pub static WORLD: World = World {
    nodes: AtomicU64::new(1),
    cpus: AtomicU64::new(1),
    pools: [const { AtomicU64::new(0) }; MAX_NODES + 1],
    pool_count: AtomicUsize::new(0),
    deadline: AtomicU64::new(0),
    limit: AtomicU64::new(0),
    done: AtomicU64::new(0),
    stopped: AtomicU64::new(0),
};

impl World {
    /// Whether it is over.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) != 0
    }

    /// The pools with storm memory.
    pub fn pools(&self) -> impl Iterator<Item = u64> + '_ {
        let count = self.pool_count.load(Ordering::Acquire);
        self.pools[..count]
            .iter()
            .map(|p| p.load(Ordering::Relaxed))
    }
}
