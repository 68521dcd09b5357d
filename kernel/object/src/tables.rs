//! The system's tables in shared memory: frame records, publications, intents, logs.
//!
//! Frames that hold these tables are RESERVED from the start and stay so: the records of all frames before
//! and after [`Layout::usable`] are zero.
//!
//! ```text
//! CXL pool     superblock | quiescence | inboxes | frame records | usable ... | archive
//! local pool   frame records | usable ...
//! ```

use core::ops::Range;

use dyad_abi::boot::BootParams;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_quiesce::{CpuIntents, Quiescence};
use dyad_retype::{FrameTable, PoolTables};
use dyad_shm::protocol::EpochSource;
use dyad_shm::superblock::{CXL_FRAME_TABLE_OFFSET, QUIESCE_OFFSET};
use dyad_shm::{FrameEntry, FusedMap, PhysAddr, PoolId};

use crate::memory::Words;

/// The place of a pool's records, and the range of its usable frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Start of the records.
    pub records: PhysAddr,
    /// Frames of the pool.
    pub frames: u64,
    /// Indexes of the usable frames.
    pub usable: Range<u64>,
}

impl Layout {
    /// The layout of a pool; it is the same on every node.
    pub fn of(params: &BootParams<'_>, pool: PoolId) -> Layout {
        let (at, size, end) = match pool {
            PoolId::Cxl if params.bundle_len != 0 => (
                CXL_FRAME_TABLE_OFFSET,
                params.cxl_size,
                params.bundle_offset,
            ),
            PoolId::Cxl => (CXL_FRAME_TABLE_OFFSET, params.cxl_size, params.cxl_size),
            PoolId::Local(_) => (0, params.local_size, params.local_size),
        };
        let frames = size / PAGE_SIZE;
        let first = (at + frames * size_of::<FrameEntry>() as u64).div_ceil(PAGE_SIZE);
        Layout {
            records: pool.base().add(at),
            frames,
            usable: first..(end / PAGE_SIZE).max(first),
        }
    }
}

/// The tables, as one node accesses them.
#[derive(Debug)]
pub struct Tables {
    /// Frames.
    pub frames: FrameTable<'static, Words>,
    /// Epochs and publications.
    pub quiescence: Quiescence<'static, Words>,
}

impl Tables {
    /// The tables of a system with these parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the pools are too small for them.
    pub fn new(params: &BootParams<'_>, words: &'static Words) -> Result<Tables> {
        let mut pools = PoolTables::new();
        for pool in all_pools(params) {
            let l = Layout::of(params, pool);
            pools = pools.with(pool, l.records, l.frames);
        }
        let cxl = PoolId::Cxl.base();
        Ok(Tables {
            frames: FrameTable::new(words, pools, params.node),
            quiescence: Quiescence::new(words, cxl, cxl.add(QUIESCE_OFFSET))
                .map_err(|_| Error::Corrupt)?,
        })
    }

    /// The record of the intents of a CPU of this node.
    pub fn intents(&self, node: NodeId, cpu: CpuId) -> CpuIntents<'static, Words> {
        self.quiescence.intents(node, cpu)
    }

    /// Whether every node has published an epoch beyond `stamp`.
    pub fn quiesced(&self, stamp: dyad_shm::frame::Epoch) -> bool {
        EpochSource::quiesced(&self.quiescence, stamp)
    }

    /// Writes the records of a pool that is not in use yet.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the pool is smaller than its tables.
    pub fn format(&self, params: &BootParams<'_>, pool: PoolId) -> Result<()> {
        let l = Layout::of(params, pool);
        self.frames
            .format(pool, &l.usable, l.usable.clone())
            .map_err(|_| Error::Corrupt)
    }
}

/// The pools of a system.
pub fn all_pools(params: &BootParams<'_>) -> impl Iterator<Item = PoolId> + use<> {
    NodeId::first(params.node_count)
        .map(PoolId::Local)
        .chain([PoolId::Cxl])
}

/// The record of a frame, for its executed-on bits.
pub fn record<'m>(map: &'m FusedMap, tables: &Tables, pa: PhysAddr) -> Option<&'m FrameEntry> {
    let frame = dyad_shm::FrameRef::of(pa)?;
    map.get(tables.frames.record_at(frame)?)
}
