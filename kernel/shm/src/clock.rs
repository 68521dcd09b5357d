//! The place of the pages of the fused clock: see [`dyad_abi::clock`].
//!
//! The pages lie at a fixed offset of the CXL pool, in frames that are never allocated. The simulator's
//! plugins, which map the same file, thereby find them without a message from guests.

use core::sync::atomic::AtomicU64;

use dyad_abi::clock::{self, NODE_WORDS};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::{CpuId, NodeId};

use crate::LayoutHash;
use crate::map::FusedMap;
use crate::pool::PoolId;
use crate::superblock::{CLOCK_OFFSET, INBOX_OFFSET};

/// Pages of one node.
pub type NodeClock = [AtomicU64; NODE_WORDS];
/// Bytes of the pages of one node.
pub const NODE_BYTES: u64 = size_of::<NodeClock>() as u64;

const _: () = assert!(CLOCK_OFFSET + NODE_BYTES * MAX_NODES as u64 <= INBOX_OFFSET);

/// Offset of a node's pages in the CXL pool.
pub const fn offset(node: NodeId) -> u64 {
    CLOCK_OFFSET + NODE_BYTES * node.index() as u64
}

/// A node's pages; `None` if there is no CXL pool.
pub fn pages(map: &FusedMap, node: NodeId) -> Option<&'static NodeClock> {
    map.get(PoolId::Cxl.base().add(offset(node)))
}

/// Adds where words are, and what calls there are, to the layout hash.
#[must_use]
pub const fn layout(h: LayoutHash) -> LayoutHash {
    let first = match CpuId::new(0) {
        Some(cpu) => cpu,
        None => unreachable!(),
    };
    h.text("clock")
        .word(CLOCK_OFFSET)
        .word(NODE_BYTES)
        .word(clock::ClockCall::ALL.len() as u64)
        .word(clock::guest_word(first, clock::guest::DEADLINE) as u64)
        .word(clock::guest_word(first, clock::guest::TARGET) as u64)
        .word(clock::guest_word(first, clock::guest::TEXT_LEN) as u64)
        .word(clock::plugin_word(first, clock::plugin::NOW) as u64)
        .word(clock::text_word(first) as u64)
        .word(clock::TEXT_BYTES as u64)
}
