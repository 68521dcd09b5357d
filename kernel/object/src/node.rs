//! This machine's private state: its identity, its view of other nodes, its sending ends.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::boot::BootParams;
use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::{CpuId, Isa, NodeId};
use dyad_quiesce::Round;
use dyad_ring::Producer;
use dyad_shm::frame::WeakRef;
use dyad_shm::superblock::{NodeEntry, NodeState, NodeWord};
use dyad_shm::{FusedMap, Superblock};
use spin::{Mutex, Once};

use crate::ids::ThreadTable;
use crate::memory::Words;
use crate::tables::Tables;

/// The private state of a machine.
pub struct Node {
    /// Boot parameters.
    pub params: BootParams<'static>,
    /// The pools.
    pub map: &'static FusedMap,
    /// Words of the pools.
    pub words: &'static Words,
    /// Frame records, epochs, publications.
    pub tables: Tables,
    /// This node's rounds. The lock is local to this node; a CPU that does not get it does not wait.
    pub round: Mutex<Option<Round>>,
    /// The superblock.
    pub sb: &'static Superblock,
    /// The table of thread ids.
    pub ids: &'static ThreadTable,
    /// Sending ends of the inboxes of every CPU of every node. The locks are local to this node: its CPUs
    /// share one sending end per receiver.
    pub outboxes: [[Mutex<Option<Producer>>; MAX_CPUS]; MAX_NODES],
    /// The target of each interrupt, by number: endpoints, number of the line, bits.
    pub interrupts: [Mutex<Option<(WeakRef, u64, u64)>>; 64],
    /// Root thread of each CPU: a weak reference; 0 means none.
    pub roots: [AtomicU64; MAX_CPUS],
    incarnation: AtomicU64,
    /// CPUs that have reported after a stop request.
    pub reported: AtomicU64,
    /// Crossing calls that have left this node, for the run's counters.
    pub crossings: AtomicU64,
    /// Test hook: counts and sums of test messages received, by sender node.
    pub test_received: [AtomicU64; MAX_NODES],
    /// Test hook: order errors among test messages.
    pub test_disorder: AtomicU64,
}

static NODE: Once<Node> = Once::new();

/// This machine's state.
///
/// # Panics
///
/// Before `init`.
pub fn node() -> &'static Node {
    // Host tests play all nodes in one process.
    #[cfg(any(test, feature = "host"))]
    if let Some(node) = crate::host::current_node() {
        return node;
    }
    NODE.get().expect("node state used before boot set it up")
}

/// This machine's state; `None` before boot has set it up.
pub fn try_node() -> Option<&'static Node> {
    #[cfg(any(test, feature = "host"))]
    if let Some(node) = crate::host::current_node() {
        return Some(node);
    }
    NODE.get()
}

/// Sets the state up, once.
///
/// # Errors
///
/// [`Error::Corrupt`](dyad_abi::Error::Corrupt) if the pools are too small for their tables.
pub fn init(params: BootParams<'static>, map: FusedMap) -> dyad_abi::Result<&'static Node> {
    static MAP: Once<FusedMap> = Once::new();
    static WORDS: Once<Words> = Once::new();
    #[cfg(feature = "ktest")]
    crate::seeded::select(params.test_seeded);
    let map = MAP.call_once(|| map);
    let words = WORDS.try_call_once(|| match params.coherent {
        true => Ok(Words::coherent(map)),
        false => Words::incoherent(map).map_err(|_| dyad_abi::Error::Denied),
    })?;
    let node = Node::new(params, words)?;
    Ok(NODE.call_once(|| node))
}

impl Node {
    /// The state of a node with these parameters.
    ///
    /// # Errors
    ///
    /// The errors of [`init`].
    pub fn new(params: BootParams<'static>, words: &'static Words) -> dyad_abi::Result<Node> {
        let map = words.map();
        Ok(Node {
            sb: map.superblock(),
            ids: ThreadTable::of(map).ok_or(dyad_abi::Error::Corrupt)?,
            tables: Tables::new(&params, words)?,
            params,
            map,
            words,
            round: Mutex::new(None),
            outboxes: [const { [const { Mutex::new(None) }; MAX_CPUS] }; MAX_NODES],
            interrupts: [const { Mutex::new(None) }; 64],
            roots: [const { AtomicU64::new(0) }; MAX_CPUS],
            incarnation: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            crossings: AtomicU64::new(0),
            test_received: [const { AtomicU64::new(0) }; MAX_NODES],
            test_disorder: AtomicU64::new(0),
        })
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.params.node
    }

    /// This node's entry in the node table.
    pub fn entry(&self) -> &'static NodeEntry {
        self.sb.node(self.id())
    }

    /// This node's incarnation; 0 before it has joined.
    pub fn incarnation(&self) -> u32 {
        self.incarnation.load(Ordering::Relaxed) as u32
    }

    /// Sets this node's incarnation, once boot has taken its place in the node table.
    pub fn set_incarnation(&self, n: u32) {
        self.incarnation.store(n as u64, Ordering::Relaxed);
    }

    /// Makes a thread the root thread of a CPU, which runs it when no other thread runs. The thread's words
    /// have been stored before; the CPU sees the change at its next turn.
    pub fn set_root(&self, cpu: CpuId, thread: WeakRef) {
        self.roots[cpu.index()].store(thread.bits(), Ordering::Release);
    }

    /// Every node of the system.
    pub fn all(&self) -> impl Iterator<Item = NodeId> + Clone {
        NodeId::first(self.params.node_count)
    }

    /// Every node but this one.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.all().filter(|&n| n != self.id())
    }

    /// ISA of a node.
    pub fn isa(&self, n: NodeId) -> Isa {
        self.params.isas[n.index()]
    }

    /// ISAs that at least one node of the system has; every address space has page tables for them.
    pub fn isas(&self) -> impl Iterator<Item = Isa> + Clone + '_ {
        Isa::ALL
            .into_iter()
            .filter(|i| self.params.node_isas().contains(i))
    }

    /// Bit set of the nodes with this ISA.
    pub fn nodes_with(&self, isa: Isa) -> u8 {
        self.all()
            .filter(|&n| self.isa(n) == isa)
            .fold(0, |set, n| set | 1 << n.index())
    }

    /// The live node with the lowest number.
    pub fn first_live(&self) -> Option<NodeId> {
        self.all()
            .find(|&n| matches!(self.word_of(n).state, NodeState::Live))
    }

    /// The state word of a node, read from memory, because every node and the launcher may change it.
    /// Acquires. A malformed word reads as DEAD.
    #[inline]
    pub fn word_of(&self, n: NodeId) -> NodeWord {
        let word = self.words.read(&self.sb.node(n).state);
        NodeWord::from_bits(word).unwrap_or(NodeWord {
            state: NodeState::Dead,
            incarnation: 0,
        })
    }

    /// Whether a node is live; see [`NodeState::is_live`].
    #[inline]
    pub fn is_live(&self, n: NodeId) -> bool {
        self.word_of(n).state.is_live()
    }

    /// Bound on waits during boot, in nanoseconds.
    pub fn boot_limit(&self) -> u64 {
        self.params.boot_timeout_ms * 1_000_000
    }
}
