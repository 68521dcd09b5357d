//! Several kernels that only exchange messages: how a program is then made of processes, and what their peers know.
//!
//! A program is a *group*: on each node one process, with its own address space and frames of that node's pool only,
//! and beside it a peer, which pages for it and speaks for it with the other peers.

use super::program;
use crate::NodeId;
use crate::cap::CapIndex;
use crate::ident::MAX_NODES;

/// How the kernels of a run work together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Kernels {
    /// They share all state, and programs share memory.
    #[default]
    Fused = 0,
    /// A program is one process on each node, and the processes exchange messages.
    Multiple = 1,
}

impl Kernels {
    /// All ways.
    pub const ALL: [Kernels; 2] = [Kernels::Fused, Kernels::Multiple];

    /// Name on command lines and in boot parameters.
    pub const fn name(self) -> &'static str {
        match self {
            Kernels::Fused => "fused",
            Kernels::Multiple => "multiple",
        }
    }

    /// The one with this number.
    pub const fn from_number(n: u64) -> Option<Kernels> {
        match n {
            0 => Some(Kernels::Fused),
            1 => Some(Kernels::Multiple),
            _ => None,
        }
    }
}

/// How the messages of the peers travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Transport {
    /// Through rings in memory. An actor that sleeps is woken by a doorbell.
    #[default]
    Ring = 0,
    /// Through rings in memory. A thread of low priority looks for messages while nothing else runs; a doorbell is rung only if
    /// a message is not taken for [`POLL_NS`].
    Poll = 1,
    /// As over a network: a message is in its ring at once, but does not count as come before its [`Delay`] has passed.
    Tcp = 2,
}

/// Whose memory the rings of the peers lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum RingPlace {
    /// Each ring lies in the pool of the node that reads it.
    #[default]
    Receiver = 0,
    /// All rings lie in the CXL pool.
    Cxl = 1,
}

impl RingPlace {
    /// All places.
    pub const ALL: [RingPlace; 2] = [RingPlace::Receiver, RingPlace::Cxl];

    /// Name on command lines and in boot parameters.
    pub const fn name(self) -> &'static str {
        match self {
            RingPlace::Receiver => "receiver",
            RingPlace::Cxl => "cxl",
        }
    }
}

/// In the argument of a peer's thread, beside the number of its node: it polls.
pub const POLLS: u64 = 1 << 8;

/// How long a message may lie in a ring that is polled before a doorbell is rung, in nanoseconds.
pub const POLL_NS: u64 = 5_000;

impl Transport {
    /// All ways.
    pub const ALL: [Transport; 3] = [Transport::Ring, Transport::Poll, Transport::Tcp];

    /// Name on command lines and in boot parameters.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Ring => "ring",
            Transport::Poll => "poll",
            Transport::Tcp => "tcp",
        }
    }

    /// The one with this number.
    pub const fn from_number(n: u64) -> Option<Transport> {
        match n {
            0 => Some(Transport::Ring),
            1 => Some(Transport::Poll),
            2 => Some(Transport::Tcp),
            _ => None,
        }
    }
}

/// How long a message is in transit over a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Nanoseconds for each message.
    pub message_ns: u32,
    /// Nanoseconds for each KiB of contents.
    pub kib_ns: u32,
}

impl Delay {
    /// A message and its answer take 75 us, as over TCP between machines.
    pub const TCP: Delay = Delay {
        message_ns: 37_500,
        kib_ns: 0,
    };

    /// The delay of a message with so many bytes of contents.
    pub const fn of(self, bytes: u64) -> u64 {
        self.message_ns as u64 + self.kib_ns as u64 * bytes / 1024
    }

    /// As one word.
    pub const fn bits(self) -> u64 {
        (self.kib_ns as u64) << 32 | self.message_ns as u64
    }

    /// From the word.
    pub const fn from_bits(bits: u64) -> Delay {
        Delay {
            message_ns: bits as u32,
            kib_ns: (bits >> 32) as u32,
        }
    }
}

/// The node where the program starts, whose peer has the directory of pages.
pub const ORIGIN: NodeId = NodeId::new(0).unwrap();

/// Number of the process of a group on a node.
pub const fn process_on(node: NodeId) -> u64 {
    program::FIRST + node.index() as u64
}

/// Number of the peer on a node.
pub const fn peer_on(node: NodeId) -> u64 {
    program::PEER + node.index() as u64
}

/// The node that a process, or a peer, with this number is on.
pub const fn node_of(number: u64) -> Option<NodeId> {
    if number < program::FIRST || number >= program::PEER + MAX_NODES as u64 {
        return None;
    }
    NodeId::new((number - program::FIRST) % (program::PEER - program::FIRST))
}

/// Bits of badges at a peer: which of the services of a process is meant. The number of the process is in the low
/// bits.
pub mod door {
    /// A fault of the process.
    pub const FAULT: u64 = 1 << 8;
    /// The pager.
    pub const PAGER: u64 = 1 << 9;
    /// The process service.
    pub const PROCESS: u64 = 1 << 10;
    /// The console, from where that is not.
    pub const CONSOLE: u64 = 1 << 11;
}

/// Operations of a peer, for init only.
pub mod op {
    /// `()`: the group has ended: all threads that wait here go on, and end. Value: 1 if the peer touches nothing of the
    /// process any more; else it is to be asked again.
    pub const END: u64 = 1;
    /// `(a [`Counted`](super::Counted))`: what has been counted. Value: the number.
    pub const COUNTER: u64 = 2;
    /// `(node)`: that node, which is not the origin, has died. Value: 0. The peers agree on what was lost with it; then that of
    /// the origin tells init ([`LOST`](crate::service::process::LOST)).
    pub const DIED: u64 = 3;
}

/// Capabilities of a peer, beside those that each program has.
pub mod slot {
    use super::{CapIndex, NodeId};
    use crate::cap::LEAF_SLOTS;

    /// The address space of the process: map, unmap, protect, link.
    pub const SPACE: CapIndex = CapIndex(64);
    /// Memory of the node's pool, for page tables.
    pub const MEMORY: CapIndex = CapIndex(65);
    /// Where the actor waits: receive.
    pub const ACTOR: CapIndex = CapIndex(66);
    /// Where threads of the process wait: receive.
    pub const WAITS: CapIndex = CapIndex(67);
    /// Wakes the actor of the peer on a node, its own included.
    pub const fn doorbell(node: NodeId) -> CapIndex {
        CapIndex(72 + node.index() as u32)
    }
    /// Wakes the invocation by thread `n` of the process, which waits at line `n` of the peer's endpoints.
    pub const fn waiter(n: u64) -> CapIndex {
        CapIndex(2 * LEAF_SLOTS + n as u32 % LEAF_SLOTS)
    }
    /// Wakes thread `n` of the process, where it waits itself.
    pub const fn thread(n: u64) -> CapIndex {
        CapIndex(3 * LEAF_SLOTS + n as u32 % LEAF_SLOTS)
    }
    /// Block `n` of the memory for pages: map, write.
    pub const fn block(n: u64) -> CapIndex {
        CapIndex(4 * LEAF_SLOTS + n as u32)
    }
    /// Most blocks.
    pub const BLOCKS: u32 = 8 * LEAF_SLOTS;
    /// The slot in which page table `n` is made.
    pub const fn table(n: u64) -> CapIndex {
        CapIndex(4 * LEAF_SLOTS + BLOCKS + n as u32)
    }
    /// Most page tables.
    pub const TABLES: u32 = 16 * LEAF_SLOTS;
    /// Leaves of a peer's capability table.
    pub const LEAVES: u32 = 4 + (BLOCKS + TABLES) / LEAF_SLOTS;
}

/// Frames of a block of memory for pages: what one large page maps.
pub const BLOCK_FRAMES: u64 = 512;
/// Where a peer has the blocks, one behind the other.
pub const WINDOW: u64 = 0x2020_0000_0000;
/// Where a peer has the rings: that from node `a` to node `b` is number `8 a + b`.
pub const RINGS: u64 = 0x2018_0000_0000;
/// Distance of rings.
pub const RING_STRIDE: u64 = 1 << 20;
/// Pages of a ring, with the words by which its reader sleeps.
pub const RING_PAGES: u64 = 32;
/// Where a peer has the bytes of the program's data, read-only; at the origin only.
pub const IMAGE: u64 = 0x2010_0000_0000;
/// Where a peer is told what it has: [`Setup`], read-only.
pub const SETUP: u64 = 0x2017_0000_0000;

/// Address of the ring from one node to another.
pub const fn ring(from: NodeId, to: NodeId) -> u64 {
    RINGS + (from.index() * MAX_NODES + to.index()) as u64 * RING_STRIDE
}

/// Most ranges of an image that a group shares.
pub const MAX_RANGES: usize = 8;

/// Pages that the program begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ImageRange {
    /// First address.
    pub start: u64,
    /// Length in bytes, whole pages.
    pub len: u64,
    /// Bytes with contents, whole pages; behind them are zeros.
    pub filled: u64,
}

/// What a peer begins with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Setup {
    /// Blocks of memory for pages.
    pub blocks: u64,
    /// Frames of [`slot::MEMORY`].
    pub table_frames: u64,
    /// Number of entries in `ranges`.
    pub range_count: u64,
    /// Where threads of the program begin.
    pub entry: u64,
    /// Pages of the program's data. The bytes are at [`IMAGE`], one range behind the other.
    pub ranges: [ImageRange; MAX_RANGES],
}

/// An enumeration of counters, with the names that a run reports them by.
macro_rules! counters {
    ($(#[$m:meta])* $enum:ident { $($(#[$v:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u64)]
        pub enum $enum { $($(#[$v])* $variant,)* }

        impl $enum {
            /// All, in the order of their numbers.
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            /// The name of the run's counter.
            pub const fn name(self) -> &'static str {
                match self { $($enum::$variant => $name,)* }
            }
        }
    };
}

counters! {
    /// What a peer counts.
    Counted {
        /// Faults that needed another node.
        Faults = "dsm.faults",
        /// Messages about pages, with or without contents.
        PageMessages = "dsm.page-messages",
        /// Messages with the contents of a page.
        Contents = "dsm.contents",
        /// Invalidations and their acknowledgements.
        Invalidations = "dsm.invalidations",
        /// First touches of the origin.
        Local = "dsm.local",
        /// Orders that waited for the end of a hold.
        Deferred = "dsm.deferred",
        /// Messages that found a full ring, and went out later.
        Delayed = "dsm.delayed",
        /// Messages that were refused.
        Refused = "dsm.refused",
        /// Messages about pages that have come in.
        Received = "dsm.received",
        /// Of these, those with the contents of a page.
        Filled = "dsm.filled",
        /// Pages of which a node that is not the first has got a copy.
        Replicas = "dsm.replicas",
        /// Messages about threads and regions.
        OtherMessages = "group.messages",
        /// Doorbells rung at other peers.
        Doorbells = "group.doorbells",
        /// Bytes of messages, headers included.
        Bytes = "group.bytes",
        /// Pages that have come here before a thread did, because that was to bring them.
        Ahead = "dsm.ahead",
        /// Frames that pages of the process have here: also those whose contents are elsewhere now.
        Frames = "process.frames",
        /// Page tables that the process has here.
        Tables = "process.tables",
        /// Of the thread that has come here last, when it had asked to leave, in nanoseconds of the fused clock; so the next ones.
        MoveAsked = "move.asked-at",
        /// When the other node had been told which pages come before it. Without such pages, when it had asked.
        MoveListed = "move.listed-at",
        /// When those pages were there.
        MovePages = "move.pages-at",
        /// When its registers and its control block were sent.
        MoveSent = "move.sent-at",
        /// When those had come.
        MoveCame = "move.came-at",
        /// Faults of reading in the heap whose parts are known; the next ones are sums over these, in nanoseconds.
        Reads = "fault.read.count",
        /// From a fault until its handler runs, and from the handler's end until the instruction is executed again.
        ReadTrap = "fault.read.trap-ns",
        /// Until the actor runs.
        ReadEnter = "fault.read.enter-ns",
        /// Until the actor has sent the request.
        ReadRequest = "fault.read.request-ns",
        /// Until the other node's actor has the request.
        ReadOut = "fault.read.out-ns",
        /// Until that has sent its answer.
        ReadService = "fault.read.service-ns",
        /// Until the answer is here.
        ReadBack = "fault.read.back-ns",
        /// Until the page is filled and mapped.
        ReadMap = "fault.read.map-ns",
        /// Until the handler runs again.
        ReadLeave = "fault.read.leave-ns",
        /// Faults of writeing in the heap whose parts are known; the next ones are sums over these, in nanoseconds.
        Writes = "fault.write.count",
        /// From a fault until its handler runs, and from the handler's end until the instruction is executed again.
        WriteTrap = "fault.write.trap-ns",
        /// Until the actor runs.
        WriteEnter = "fault.write.enter-ns",
        /// Until the actor has sent the request.
        WriteRequest = "fault.write.request-ns",
        /// Until the other node's actor has the request.
        WriteOut = "fault.write.out-ns",
        /// Until that has sent its answer.
        WriteService = "fault.write.service-ns",
        /// Until the answer is here.
        WriteBack = "fault.write.back-ns",
        /// Until the page is filled and mapped.
        WriteMap = "fault.write.map-ns",
        /// Until the handler runs again.
        WriteLeave = "fault.write.leave-ns",
    }
}

impl Counted {
    /// Counters of a fault's parts: how many faults, and the parts.
    pub const PARTS: usize = Counted::Writes as usize - Counted::Reads as usize;

    /// Whether it is counted only if parts of faults are asked for.
    pub const fn is_of_parts(self) -> bool {
        self as u64 >= Counted::Reads as u64
    }

    /// Whether it is a time of one move, which says nothing about a run.
    pub const fn is_of_a_move(self) -> bool {
        self as u64 >= Counted::MoveAsked as u64 && self as u64 <= Counted::MoveCame as u64
    }

    /// The one with this number.
    pub fn from_number(n: u64) -> Option<Counted> {
        Counted::ALL.get(usize::try_from(n).ok()?).copied()
    }
}

const _: () = {
    assert!(Counted::Reads as usize + 2 * Counted::PARTS == Counted::ALL.len());
    assert!(program::PEER - program::FIRST == MAX_NODES as u64);
    assert!(program::PEER + MAX_NODES as u64 <= program::MAX);
    assert!(slot::table(slot::TABLES as u64).0 <= super::slot::END_FREE.0);
    assert!(RING_PAGES * crate::user::PAGE_SIZE <= RING_STRIDE);
    assert!(size_of::<Setup>() as u64 <= crate::user::PAGE_SIZE);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_peers_are_known_by_their_numbers() {
        for node in NodeId::first(MAX_NODES) {
            assert_eq!(node_of(process_on(node)), Some(node));
            assert_eq!(node_of(peer_on(node)), Some(node));
        }
        assert_eq!(node_of(program::FIRST - 1), None);
        assert_eq!(node_of(program::PEER + MAX_NODES as u64), None);
        for (n, &counted) in (0..).zip(Counted::ALL) {
            assert_eq!(
                (counted as u64, Counted::from_number(n)),
                (n, Some(counted))
            );
        }
        assert_eq!(Counted::from_number(Counted::ALL.len() as u64), None);
    }
}
