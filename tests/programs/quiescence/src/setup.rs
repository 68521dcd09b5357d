//! What the measurement needs, made of what the kernel gives to the first program: slots, and a
//! thread on every other node.

use dyad_abi::cap::{CapIndex, ObjectKind};
use dyad_abi::service::{INFO_BASE, Info};
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_hostile::workers;
use dyad_services::first::{HOME, SPACE, Store, StoreSize, bundle};

/// Frames for leaves and threads.
const OBJECTS: u64 = 64;
/// Frames for faults on other nodes than the first.
const SUPPLY: u64 = 256;
/// Slots of a leaf.
const LEAF: u32 = 64;
/// Slots that are filled and emptied.
pub const SLOTS: u32 = 16 * LEAF;
/// The first of them: behind the program's own, and a leaf for capabilities made here.
const FIRST: u32 = 2 * LEAF;

/// A slot that is filled and emptied.
pub const fn touched(n: u32) -> CapIndex {
    CapIndex(FIRST + n)
}

/// Makes the slots, and starts a thread on the first CPU of every other node, with the node's
/// number in the low bits of its argument.
///
/// # Errors
///
/// As the kernels say.
pub fn build(info: &Info) -> Result<()> {
    let mut store = Store::new(StoreSize {
        frames: OBJECTS,
        slots: FIRST,
        leaves: (FIRST + SLOTS) / LEAF,
        window: 0,
        pause: || {},
    })?;
    workers::stacks(&store)?;
    let nodes = info.system.node_count as usize;
    let first = CpuId::first(1).next().ok_or(Error::Corrupt)?;
    for node in NodeId::first(nodes).filter(|&n| n != HOME) {
        SPACE.supply(node, store.keep_memory(node.index(), SUPPLY)?)?;
        let thread = store.keep(ObjectKind::Thread)?;
        let arg = INFO_BASE | node.index() as u64;
        workers::begin(node, first, thread, (bundle()?.entry(), arg))?;
    }
    Ok(())
}
