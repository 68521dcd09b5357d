//! The superblock: the first structure of the CXL pool, the root of everything shared.
//!
//! Formatting: any node may be first. The format word goes EMPTY → FORMATTING(node) → READY by CAS. The node
//! that wins fills the superblock; the others wait (bounded) and check its contents.
//!
//! ```text
//! node state:  VACANT ──CAS──▶ JOINING ──▶ LIVE ──▶ LEFT (orderly shutdown)
//!                 ▲                          │
//!                 │                          ▼ launcher, after the machine is gone
//!            (recovered) ◀── RECOVERING ◀── DEAD
//! ```
//!
//! | word | writer | order |
//! |---|---|---|
//! | `format` | formatter | READY is a release store after everything else; readers acquire |
//! | node `state` | the node itself; DEAD: the launcher, after reaping; VACANT: the recoverer | CAS, acquire/release |
//! | cpu `pending` | any sender, one bit each; the receiver swaps 0 | RMW |
//! | cpu `arrived`, `flush` | any sender, before its bit in `pending`; the receiver takes them after that | RMW |
//! | cpu `flushed` | the CPU itself, on the line of `activity` | release, after its TLB is dropped |
//! | `shootdowns` | the CPU that starts a shootdown | RMW, before `flush` of each CPU |
//! | cpu `activity` | the CPU itself, on a line of its own | store, `fence(SeqCst)`, then its last look at its inboxes |
//! | `recoverer` | the CPU that takes or leaves it; another node if that one has died | CAS |
//! | `control` | the launcher | read on every doorbell and idle tick; the request page before it is counted there |

use core::sync::atomic::AtomicU64;

use dyad_abi::ident::{ISA_COUNT, MAX_CPUS, MAX_NODES};
use dyad_abi::{CpuId, NodeId};

use crate::layout::LayoutHash;
use crate::map::Shared;
use crate::pool::MAX_POOLS;

/// First word of a formatted superblock: "DYADSB01", little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DYADSB01");

/// Offset, in the CXL pool, of the two pages by which the launcher asks things of init
/// ([`dyad_abi::ask`]): its requests, then the answers. Kernels only map them.
pub const ASK_OFFSET: u64 = 0x3_0000;
/// Offset of the [`QuiesceArea`](crate::quiesce::QuiesceArea) in the CXL pool.
pub const QUIESCE_OFFSET: u64 = 0x4_0000;
/// Offset of the pages of the [fused clock](crate::clock) in the CXL pool.
pub const CLOCK_OFFSET: u64 = 0xc_0000;
/// Offset of the inboxes in the CXL pool.
pub const INBOX_OFFSET: u64 = 0x10_0000;
/// Space reserved for the inboxes.
pub const INBOX_SPACE: u64 = 0x58_0000;
/// Offset, in the CXL pool, of the words that say which threads have been handed to which CPU.
pub const ARRIVALS_OFFSET: u64 = 0x68_0000;
/// Space reserved for these.
pub const ARRIVALS_SPACE: u64 = 0x8_0000;
/// Offset of the table of thread ids in the CXL pool.
pub const THREAD_IDS_OFFSET: u64 = 0x70_0000;
/// Space reserved for the table of thread ids.
pub const THREAD_IDS_SPACE: u64 = 0x1_0000;
/// Offset of the CXL pool's frame table.
pub const CXL_FRAME_TABLE_OFFSET: u64 = 0x80_0000;

/// States of the `format` word; a formatter adds its node number to FORMATTING in bits 8...
pub mod format {
    /// The state of a new pool.
    pub const EMPTY: u64 = 0;
    /// A node is filling the superblock.
    pub const FORMATTING: u64 = 1;
    /// Complete.
    pub const READY: u64 = 2;
}

/// Life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeState {
    /// Vacant: a node may join here.
    Vacant = 0,
    /// Joining.
    Joining = 1,
    /// Takes part.
    Live = 2,
    /// Another node has waited too long for its heartbeat.
    Suspect = 3,
    /// Its machine has ended, and nothing has been recovered yet.
    Dead = 4,
    /// Another node is recovering its rows.
    Recovering = 5,
    /// The node has shut down in good order.
    Left = 6,
}

impl NodeState {
    const fn from_bits(b: u8) -> Option<NodeState> {
        Some(match b {
            0 => NodeState::Vacant,
            1 => NodeState::Joining,
            2 => NodeState::Live,
            3 => NodeState::Suspect,
            4 => NodeState::Dead,
            5 => NodeState::Recovering,
            6 => NodeState::Left,
            _ => return None,
        })
    }

    /// Whether the node takes part now. A suspected node does: it is slow, and only keeps memory from being
    /// reused.
    pub const fn is_live(self) -> bool {
        matches!(self, NodeState::Live | NodeState::Suspect)
    }

    /// Name for people.
    pub const fn name(self) -> &'static str {
        match self {
            NodeState::Vacant => "vacant",
            NodeState::Joining => "joining",
            NodeState::Live => "live",
            NodeState::Suspect => "suspect",
            NodeState::Dead => "dead",
            NodeState::Recovering => "recovering",
            NodeState::Left => "left",
        }
    }
}

/// The state word of a node: `incarnation:32 | 0:24 | state:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeWord {
    /// The state.
    pub state: NodeState,
    /// How often the node has joined; a reference to an older incarnation is stale.
    pub incarnation: u32,
}

impl NodeWord {
    /// The word.
    pub const fn bits(self) -> u64 {
        (self.incarnation as u64) << 32 | self.state as u64
    }

    /// Reads a word; `None` if it is none (damaged memory).
    pub const fn from_bits(w: u64) -> Option<NodeWord> {
        if w >> 8 & 0xff_ffff != 0 {
            return None;
        }
        match NodeState::from_bits(w as u8) {
            Some(state) => Some(NodeWord {
                state,
                incarnation: (w >> 32) as u32,
            }),
            None => None,
        }
    }
}

/// The launcher's command to all nodes: `requests to init so far:56 | command:8`.
pub mod control {
    /// No command.
    pub const NONE: u64 = 0;
    /// Report what every CPU is doing, then exit with `EXIT_STOPPED`.
    pub const REPORT_AND_STOP: u64 = 1;

    /// The command.
    pub const fn command(word: u64) -> u64 {
        word & 0xff
    }

    /// The number of requests to init so far. A node on which the number has changed notifies the endpoint
    /// that is attached to [`ASKED`](dyad_abi::service::ASKED) there.
    pub const fn asked(word: u64) -> u64 {
        word >> 8
    }

    /// The word with another command.
    pub const fn with_command(word: u64, command: u64) -> u64 {
        word & !0xff | command & 0xff
    }

    /// The word with one more request.
    pub const fn with_request(word: u64) -> u64 {
        word.wrapping_add(1 << 8)
    }
}

/// The activity of a CPU, as far as senders need it.
pub mod activity {
    /// Not started.
    pub const OFFLINE: u64 = 0;
    /// In the kernel or polling. The CPU reads its inboxes before it does anything else, and needs no
    /// doorbell.
    pub const ATTENTIVE: u64 = 1;
    /// Running user code: a doorbell interrupts it.
    pub const USER: u64 = 2;
    /// Asleep (or about to be): a doorbell wakes it.
    pub const ASLEEP: u64 = 3;
    /// The bits that distinguish these.
    pub const KIND: u64 = 0xfff;

    /// [`ATTENTIVE`], and spinning for the thread at this address of fused memory (a page): the CPU reads the
    /// thread's owner word, so a CPU that hands the thread over need not notify it.
    pub const fn spinning(thread: u64) -> u64 {
        ATTENTIVE | thread
    }
}

/// A node's entry in the node table.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct NodeEntry {
    /// A [`NodeWord`].
    pub state: AtomicU64,
    /// Counts up while the node runs (about every 100 ms when idle).
    pub heartbeat: AtomicU64,
    /// Doorbell identifier plus one; 0 while unknown. Connection order decides it.
    pub doorbell: AtomicU64,
    /// `isa | cpus << 8`.
    pub kind: AtomicU64,
    /// Identity of the kernel image; nodes of one ISA must run the same image because they share
    /// the kernel half of page-table roots.
    pub image: AtomicU64,
    /// Last boot phase reached, for reports about nodes that hang.
    pub phase: AtomicU64,
    /// Barrier count: how many barriers this node has reached.
    pub barrier: AtomicU64,
    /// Clock exchange: `sequence << 8 | asked node + 1`, written by a joining node.
    pub clock_request: AtomicU64,
    /// Clock exchange: the request that has been answered, written by the asked node.
    pub clock_answer: AtomicU64,
    /// Clock exchange: the asked node's fused time, in nanoseconds.
    pub clock_time: AtomicU64,
    /// Migrations this node has started, for the run's counters.
    pub migrations: AtomicU64,
    /// Bound on this node's error of fused time when it joined, in nanoseconds.
    pub clock_error: AtomicU64,
    /// Reserved; zero.
    pub reserved: [AtomicU64; 4],
}

/// A CPU's entry, which senders on other nodes read. It has two lines. Other CPUs change the first one, by
/// read-modify-writes only. The CPU itself stores to the second one, and writing it back must not undo bits
/// that others have set.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct CpuEntry {
    /// One bit per sender CPU (`node * 8 + cpu`): set by the sender after it has put a message
    /// into the inbox, taken by the receiver before it looks.
    pub pending: AtomicU64,
    /// Doorbells that senders have rung for this CPU.
    pub rung: AtomicU64,
    /// Summary of the thread ids that have been handed to this CPU: see `dyad_ring::arrivals`.
    pub arrived: AtomicU64,
    /// 1 if this CPU must drop its translations: see `dyad_space::shootdown`.
    pub flush: AtomicU64,
    /// Reserved; zero.
    pub reserved: [AtomicU64; 4],
    /// One of [`activity`].
    pub activity: AtomicU64,
    /// Doorbell interrupts taken.
    pub taken: AtomicU64,
    /// The value of the superblock's `shootdowns` before this CPU last dropped its translations for a
    /// shootdown.
    pub flushed: AtomicU64,
    /// Reserved; zero.
    pub own_reserved: [AtomicU64; 5],
}

/// A pool's entry: where its frame table is.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct PoolEntry {
    /// Physical start; 0 if there is no such pool.
    pub base: AtomicU64,
    /// Size in bytes.
    pub size: AtomicU64,
    /// Physical start of its frame table.
    pub frame_table: AtomicU64,
    /// Index of the first frame that is not RESERVED.
    pub first_frame: AtomicU64,
    /// One past the index of the last frame that may be allocated.
    pub end_frame: AtomicU64,
    /// 1 once the frame table has been written, which is once in the life of a pool.
    pub formatted: AtomicU64,
    /// Reserved; zero.
    pub reserved: [AtomicU64; 10],
}

/// A line of words that tests and the boot self-test may use.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ScratchLine {
    /// The words.
    pub words: [AtomicU64; 8],
}

/// Number of scratch lines.
pub const SCRATCH_LINES: usize = 64;
/// Kernel-half root entries published per ISA: fused map, fused vmap, private RAM, MMIO, per-CPU,
/// image.
pub const ROOT_ENTRIES: usize = 6;

/// The superblock. Starts at offset 0 of the CXL pool.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// One of [`format`].
    pub format: AtomicU64,
    /// [`dyad_abi::ABI_VERSION`].
    pub abi_version: AtomicU64,
    /// Hash over every shared structure.
    pub layout_hash: AtomicU64,
    /// 0: caches of the nodes are coherent; 1: they are not.
    pub coherence: AtomicU64,
    /// Memory model of the run (0: none named).
    pub memory_model: AtomicU64,
    /// `nodes | cpus << 8`.
    pub shape: AtomicU64,
    /// A word of [`control`]; written by the launcher.
    pub control: AtomicU64,
    /// Goes with `control`: bit set of dead nodes.
    pub control_arg: AtomicU64,
    /// The shared epoch word of the reclamation protocol.
    pub epoch: AtomicU64,
    /// The node that owns the clock, plus one.
    pub clock_owner: AtomicU64,
    /// Orderly end of the run: exit code plus one, set once.
    pub shutdown: AtomicU64,
    /// Set to 1 once the boot self-test has passed on all nodes; later joiners skip it.
    pub self_test: AtomicU64,
    /// Program: 0 not started, else its address-space frame (`FrameRef` bits plus one).
    pub program: AtomicU64,
    /// The node that is taking the program down after its end, plus one; 0 before.
    pub ending: AtomicU64,
    /// The one CPU that recovers dead nodes: incarnation of its node in bits 32.., victim plus one in bits
    /// 16.., CPU in bits 8.., node plus one; 0 means no CPU.
    pub recoverer: AtomicU64,
    /// Shootdowns started so far, on a line of its own: see `dyad_space::shootdown`.
    pub shootdowns: AtomicU64,
    /// Reserved; zero.
    pub reserved: [AtomicU64; 7],
    /// Kernel-half root entries by ISA, and whether they have been published (last word).
    pub roots: [RootEntries; ISA_COUNT],
    /// The nodes.
    pub nodes: [NodeEntry; MAX_NODES],
    /// The CPUs of each node.
    pub cpus: [[CpuEntry; MAX_CPUS]; MAX_NODES],
    /// The pools; the CXL pool is last.
    pub pools: [PoolEntry; MAX_POOLS],
    /// Words for tests.
    pub scratch: [ScratchLine; SCRATCH_LINES],
}

/// The kernel half of the page-table roots of one ISA, published by its first node.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RootEntries {
    /// Entries of the slots in [`crate::superblock::ROOT_SLOTS`], in that ISA's format.
    pub entries: [AtomicU64; ROOT_ENTRIES],
    /// Identity of the kernel image that published the entries; 0: not published.
    pub image: AtomicU64,
    /// Reserved; zero.
    pub reserved: AtomicU64,
}

/// Root slots that the kernel half uses.
pub const ROOT_SLOTS: [usize; ROOT_ENTRIES] = [256, 384, 448, 464, 480, 511];

// SAFETY: 1. only atomic words (and arrays of them); 2. every bit pattern is a value of them;
// 3. no pointers. The same holds for the structures below.
unsafe impl Shared for Superblock {}
// SAFETY: 1. as for `Superblock`.
unsafe impl Shared for NodeEntry {}
// SAFETY: 1. as for `Superblock`.
unsafe impl Shared for CpuEntry {}
// SAFETY: 1. as for `Superblock`.
unsafe impl Shared for PoolEntry {}

impl Superblock {
    /// The node's entry.
    pub fn node(&self, n: NodeId) -> &NodeEntry {
        &self.nodes[n.index()]
    }

    /// The CPU's entry.
    pub fn cpu(&self, n: NodeId, c: CpuId) -> &CpuEntry {
        &self.cpus[n.index()][c.index()]
    }
}

/// Hash over the structures of this crate; `dyad-core` adds its own.
pub const LAYOUT: LayoutHash = crate::shared_layout!(LayoutHash::EMPTY;
    Superblock {
        magic, format, abi_version, layout_hash, coherence, memory_model, shape, control,
        control_arg, epoch, clock_owner, shutdown, self_test, program, ending, recoverer, shootdowns, reserved, roots, nodes, cpus, pools, scratch,
    },
    NodeEntry {
        state, heartbeat, doorbell, kind, image, phase, barrier, clock_request, clock_answer,
        clock_time, migrations, clock_error, reserved,
    },
    CpuEntry { pending, rung, arrived, flush, reserved, activity, taken, flushed, own_reserved },
    PoolEntry { base, size, frame_table, first_frame, end_frame, formatted, reserved },
    RootEntries { entries, image, reserved },
    ScratchLine { words },
    crate::FrameEntry { w0, w1 },
)
.word(MAGIC)
.word(ASK_OFFSET)
.word(dyad_abi::ask::LAYOUT)
.word(QUIESCE_OFFSET)
.word(INBOX_OFFSET)
.word(ARRIVALS_OFFSET)
.word(THREAD_IDS_OFFSET)
.word(CXL_FRAME_TABLE_OFFSET);

const _: () = {
    assert!(size_of::<Superblock>() as u64 <= ASK_OFFSET);
    assert!(ASK_OFFSET + dyad_abi::ask::PAGES * dyad_abi::user::PAGE_SIZE <= QUIESCE_OFFSET);
    assert!(QUIESCE_OFFSET + size_of::<crate::quiesce::QuiesceArea>() as u64 <= CLOCK_OFFSET);
    assert!(INBOX_OFFSET + INBOX_SPACE <= THREAD_IDS_OFFSET);
    assert!(THREAD_IDS_OFFSET + THREAD_IDS_SPACE <= CXL_FRAME_TABLE_OFFSET);
    assert!(size_of::<CpuEntry>() == 128);
    assert!(core::mem::offset_of!(CpuEntry, activity) == 64);
    assert!(size_of::<NodeEntry>() == 128);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_beside_the_command() {
        let mut word = control::NONE;
        for n in 0..3 {
            assert_eq!((control::command(word), control::asked(word)), (0, n));
            word = control::with_request(word);
        }
        word = control::with_command(word, control::REPORT_AND_STOP);
        assert_eq!(control::command(word), control::REPORT_AND_STOP);
        word = control::with_request(word);
        assert_eq!((control::command(word), control::asked(word)), (1, 4));
        let last = control::with_command(u64::MAX, control::REPORT_AND_STOP);
        assert_eq!(control::with_request(last), control::REPORT_AND_STOP);
    }

    #[test]
    fn node_words_round_trip_and_damage_is_seen() {
        for s in 0..=6 {
            let w = NodeWord {
                state: NodeState::from_bits(s).unwrap(),
                incarnation: 77,
            };
            assert_eq!(NodeWord::from_bits(w.bits()), Some(w));
        }
        assert_eq!(NodeWord::from_bits(7), None);
        assert_eq!(NodeWord::from_bits(0x100), None);
    }
}
