//! The limit of the heap: what is mapped can also be touched.
//!
//! Pages get frames when they are touched, and a thread that touches a page for which there is no frame ends.
//! A chunk for which its node cannot have enough frames is therefore refused, so that allocation fails with an
//! error before memory is exhausted. Pages count for the node that maps them, which touches them as a rule.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::memory::Question;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};

/// Bytes that the heaps of the program have mapped, by node.
static MAPPED: [AtomicU64; MAX_NODES] = [const { AtomicU64::new(0) }; MAX_NODES];

/// Bytes that are left to page tables, stacks and the program itself, beside a sixteenth of all.
const SPARE: u64 = 1 << 20;

/// Bytes that a heap on a node may have mapped, if the node owns so many frames, and so many blocks are free.
const fn capacity(frames: u64, free: u64, block_size: u64) -> u64 {
    let all = frames
        .saturating_mul(PAGE_SIZE)
        .saturating_add(free.saturating_mul(block_size));
    (all - all / 16).saturating_sub(SPARE)
}

/// Maps a chunk for a node with `map`, if the node can have frames for it. If the block allocator gives no
/// answer, nothing is refused.
fn checked(
    len: u64,
    node: NodeId,
    map: impl FnOnce() -> Result<NonNull<u8>>,
) -> Result<NonNull<u8>> {
    let ask = |question| dyad_sys::memory_state(question, node);
    let mapped = &MAPPED[node.index()];
    if let (Ok(frames), Ok(free), Ok(block_size)) = (
        ask(Question::Frames),
        ask(Question::Free),
        ask(Question::BlockSize),
    ) && frames != 0
        && mapped.load(Ordering::Relaxed).saturating_add(len) > capacity(frames, free, block_size)
    {
        return Err(Error::NoMemory);
    }
    let chunk = map()?;
    mapped.fetch_add(len, Ordering::Relaxed);
    Ok(chunk)
}

/// Pages of the node that touches them.
pub(super) fn here(len: u64) -> Result<NonNull<u8>> {
    match dyad_sys::where_am_i() {
        Ok(place) => checked(len, place.node, || dyad_sys::map_anon(len)),
        Err(_) => dyad_sys::map_anon(len),
    }
}

/// Pages of a node.
pub(super) fn on(len: u64, node: NodeId) -> Result<NonNull<u8>> {
    checked(len, node, || dyad_sys::map_anon_on(len, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_left_to_what_is_not_heap() {
        let mib = 1 << 20;
        assert_eq!(capacity(256 * 256, 0, 32 * mib), 239 * mib);
        // Blocks count as soon as the node could have them.
        assert_eq!(capacity(128 * 256, 4, 32 * mib), 239 * mib);
        assert_eq!((capacity(0, 0, 0), capacity(200, 0, 0)), (0, 0));
        assert!(capacity(u64::MAX, u64::MAX, u64::MAX) > 1 << 63);
    }
}
