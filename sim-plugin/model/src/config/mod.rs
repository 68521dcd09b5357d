//! What is simulated: a complete, resolved configuration. The launcher makes it from a profile and
//! the command line, hands it to every plugin as JSON, and records it with the run.
//!
//! Latencies are in cycles of the node that waits; [`NodeConfig::cycle_ps`] turns them into time.

mod check;

use dyad_abi::Isa;
use serde::{Deserialize, Serialize};

pub use crate::overlap::OverlapConfig;
pub use crate::system::SystemCosts;
pub use crate::translation::TlbConfig;
pub use check::{ConfigError, MAX_WAYS};

/// Bytes of a cache line, everywhere.
pub const LINE_BYTES: u64 = 64;
/// Tags of a set of the filter in a CXL device.
pub const FILTER_WAYS: u32 = 8;
/// How much later than one quantum a node may look at the others, in simulated nanoseconds: it
/// only does between translated blocks.
pub const SLACK_NS: u64 = 1000;

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Instructions. Time is instructions.
    Count,
    /// Caches and coherence too, but time is still instructions only.
    Cache,
    /// Latencies of the caches, the link and memory take time.
    Timing,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 3] = [Level::Count, Level::Cache, Level::Timing];

    /// Its name, in the JSON form and elsewhere.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Count => "count",
            Level::Cache => "cache",
            Level::Timing => "timing",
        }
    }
}

/// Which memory is near to which node (paper, section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryModel {
    /// A node's own pool is local to it; the CXL pool is local to node 0.
    Separated,
    /// A node's own pool is local to it; the CXL pool is a device behind the link. Nodes cache each other's memory
    /// coherently, as sockets of one machine do (NUMA).
    Shared,
    /// All pools are in a device behind the link, which is the only memory that CXL 3.x lets several hosts cache.
    Pool,
    /// All memory is local to all nodes, which share the last level of cache.
    FullyShared,
}

impl MemoryModel {
    /// All memory models.
    pub const ALL: [MemoryModel; 4] = [
        MemoryModel::Separated,
        MemoryModel::Shared,
        MemoryModel::Pool,
        MemoryModel::FullyShared,
    ];

    /// Those of the paper.
    pub const PAPER: [MemoryModel; 3] = [
        MemoryModel::Separated,
        MemoryModel::Shared,
        MemoryModel::FullyShared,
    ];

    /// Its name, in the JSON form and elsewhere.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryModel::Separated => "separated",
            MemoryModel::Shared => "shared",
            MemoryModel::Pool => "pool",
            MemoryModel::FullyShared => "fully-shared",
        }
    }
}

/// Whether hardware keeps the caches of nodes coherent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coherence {
    /// MESI with snoops over the link.
    Coherent,
    /// Hardware does not keep caches coherent; what kernels forget to flush is reported.
    Incoherent,
}

impl Coherence {
    /// All modes of coherence.
    pub const ALL: [Coherence; 2] = [Coherence::Coherent, Coherence::Incoherent];

    /// Its name, in the JSON form and elsewhere.
    pub const fn name(self) -> &'static str {
        match self {
            Coherence::Coherent => "coherent",
            Coherence::Incoherent => "incoherent",
        }
    }
}

/// In which order nodes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// In parallel, within the lag.
    Parallel,
    /// In turns, whose lengths follow from the seed.
    Strict {
        /// The seed.
        seed: u64,
    },
}

/// Shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheShape {
    /// Bytes.
    pub size: u64,
    /// Lines per set.
    pub ways: u32,
}

impl CacheShape {
    /// Number of sets. Exact only for a shape that has passed [`SimConfig::check`].
    pub const fn sets(self) -> u64 {
        match self.ways {
            0 => 0,
            ways => self.size / (ways as u64 * LINE_BYTES),
        }
    }
}

/// Cycles until data is there, by where it is found. Not cumulative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// First level, data. (Instructions found there cost nothing.)
    pub l1: u64,
    /// Second level.
    pub l2: u64,
    /// Last level.
    pub l3: u64,
    /// Memory near the node.
    pub local: u64,
    /// Another node's memory, behind the link.
    pub remote: u64,
    /// The CXL pool, where it is a device behind the link.
    pub pool: u64,
}

/// Cycles that messages of the coherence protocol add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnoopCosts {
    /// SnpData: a read meets another node's exclusive copy. The time of that node's caches.
    pub data: u64,
    /// SnpInv: a write or a flush takes other nodes' copies away. The time of the first of these nodes' caches.
    pub inv: u64,
    /// What each further node adds whose copies are taken away.
    pub per_sharer: u64,
    /// One way over the link, for the messages of the coherence protocol.
    pub hop: u64,
    /// The home of the line is the requester's own node, which looks up who has it before it asks another.
    pub home: u64,
    /// Whether the nodes that are asked answer the home of the line, which answers the requester. Otherwise they answer the
    /// requester.
    pub through_home: bool,
    /// Copies of other CPUs of the same node are looked for: what that adds to the last level.
    pub sibling: u64,
    /// The last level evicts a line that levels above it hold.
    pub back: u64,
    /// Data forwarded by its owner in the place of memory; the reader's memory latency for that
    /// line if nothing is said.
    pub forward: Option<u64>,
    /// A modified line is written back: by eviction, by a flush, or because another node reads it.
    pub writeback: u64,
}

/// How much memories and links carry, in MB/s (10^6 bytes a second). 0: they have no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidths {
    /// The memory of each node.
    pub memory: u64,
    /// The memory of the CXL device.
    pub device: u64,
    /// The link of each node, in each direction.
    pub link: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Its ISA, as [`Isa::name`] says.
    pub isa: String,
    /// Its CPUs.
    pub cpus: usize,
    /// Picoseconds per cycle.
    pub cycle_ps: u64,
    /// Cycles per instruction, in thousandths.
    pub cpi_milli: u64,
    /// First level, instructions; each CPU's own.
    pub l1i: CacheShape,
    /// First level, data; each CPU's own.
    pub l1d: CacheShape,
    /// Second level; each CPU's own.
    pub l2: CacheShape,
    /// Last level; the node's.
    pub l3: CacheShape,
    /// Whether the last level asks the CPU that needs a way before it evicts a line. A line that this CPU's levels hold counts as
    /// used then, and another one goes.
    #[serde(default)]
    pub l3_query: bool,
    /// Latencies.
    pub latency: Latencies,
    /// Snoops.
    pub snoop: SnoopCosts,
    /// Traps, fences and the like.
    pub cost: SystemCosts,
    /// What goes on beside each other.
    #[serde(default)]
    pub overlap: OverlapConfig,
    /// TLBs.
    #[serde(default)]
    pub tlb: TlbConfig,
}

impl NodeConfig {
    /// Its ISA.
    pub fn isa(&self) -> Option<Isa> {
        Isa::parse(&self.isa)
    }

    /// Cycles that a hit in the first level takes, beyond what other work hides.
    pub const fn l1_cycles(&self) -> u64 {
        self.latency.l1.saturating_sub(self.overlap.l1)
    }

    /// Picoseconds of an instruction.
    pub const fn instruction_ps(&self) -> u64 {
        self.cycle_ps * self.cpi_milli / 1000
    }
}

/// A pool of fused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Physical start.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

/// The clock that couples the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockConfig {
    /// How often a node looks at the others, in simulated nanoseconds.
    pub quantum_ns: u64,
    /// How far a node may be ahead of the slowest busy one, in simulated nanoseconds.
    pub lag_ns: u64,
    /// From ringing a doorbell to the interrupt, in simulated nanoseconds. At least quantum + lag
    /// + [`SLACK_NS`], so that no receiver is past it when it is told.
    pub ipi_ns: u64,
    /// In which order nodes run.
    pub order: Order,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimConfig {
    /// How much is simulated.
    pub level: Level,
    /// Which memory is near.
    pub model: MemoryModel,
    /// Coherence of the caches.
    pub coherence: Coherence,
    /// Where latencies come from: a profile's name, or a file's.
    pub profile: String,
    /// The nodes.
    pub nodes: Vec<NodeConfig>,
    /// The pools: local ones by node, then the CXL pool.
    pub pools: Vec<Pool>,
    /// The clock.
    pub clock: ClockConfig,
    /// Tags of the filter in the CXL device: a whole number of sets of [`FILTER_WAYS`]. 0: the device has room for all lines.
    pub filter_entries: u64,
    /// Bandwidths.
    pub bandwidth: Bandwidths,
    /// Nanoseconds of a message round trip over a network, for the mode that models one.
    pub message_ns: u64,
    /// Nanoseconds that each KiB of contents adds to a message over a network.
    pub message_kib_ns: u64,
}
