//! Words of the reclamation protocol that every node reads: publications, requests and acknowledgements of
//! rounds, flush logs and intent records.
//!
//! They lie together in one [`QuiesceArea`]; the epoch word itself and the states of nodes are in
//! the superblock. Zeroed memory is an area in which no node has published anything.
//!
//! ```text
//! published   epoch:48 | 0:7 | leaving:1 | awake:8     (bit c of awake: CPU c takes part)
//! request     epoch
//! acknowledged (per CPU)  epoch
//! logs        bit set of the logs that have a writer, or had one: bit node * MAX_CPUS + cpu
//! log entry   address of a line or frame | kind in bits 0..6
//! ```
//!
//! | word | writer | how |
//! |---|---|---|
//! | `published` | CPUs of the node; a joiner or recoverer while it is not live | read-modify-write |
//! | `request` | the CPU of the node that drives its round | store through |
//! | `acknowledged` | the CPU | store through |
//! | `logs` | a CPU, before its first entry; bits are never taken away | read-modify-write |
//! | log `head`, entries | the CPU that owns the log | entry, then head, both released |
//! | intent ([`crate::intent`]) | the CPU; recoverers clear it | stored whole, its row word last and released |
//!
//! Each writer has lines of its own, because a write-back writes whole lines.

use core::sync::atomic::AtomicU64;

use dyad_abi::ident::{MAX_CPUS, MAX_NODES};

use crate::layout::LayoutHash;

/// Entries of a log. A reader that falls further behind flushes everything once.
pub const LOG_ENTRIES: usize = 504;

crate::shared_struct! {
    /// A node's words that its own CPUs modify.
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct NodePublication {
        /// Newest epoch the node has been quiet since, and which of its CPUs are awake.
        pub published: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 7],
    }
}

crate::shared_struct! {
    /// The line that the driver of a node's round stores to.
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct NodeRequest {
        /// The epoch that CPUs of the node must acknowledge.
        pub request: AtomicU64,
        /// Rounds that had to flush everything because a log had run over.
        pub full_flushes: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 6],
    }
}

crate::shared_struct! {
    /// The acknowledgement by one CPU to the driver of its node's round.
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct CpuAcknowledgement {
        /// The newest epoch it has acknowledged.
        pub acknowledged: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 7],
    }
}

crate::shared_struct! {
    /// The row that a CPU is in the middle of, for the node that recovers it: the words of an
    /// [`IntentRecord`](crate::intent::IntentRecord).
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct IntentLine {
        /// The row of the protocol plus one; 0: none. Written last, cleared first.
        pub row: AtomicU64,
        /// `version:32 | frame:32`.
        pub frame: AtomicU64,
        /// The table frame, as `version:32 | frame:32`.
        pub table: AtomicU64,
        /// Physical address of the entry or slot.
        pub place: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 4],
    }
}

crate::shared_struct! {
    /// The line that says which logs there are.
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct LogSet {
        /// Bit set of the logs that may have entries, by `node * MAX_CPUS + cpu`.
        pub logs: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 7],
    }
}

crate::shared_struct! {
    /// A log of changes by a CPU that other nodes may hold stale copies of.
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct FlushLog {
        /// Entries ever written.
        pub head: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 7],
        /// Entry `n` is at `n mod LOG_ENTRIES`.
        pub entries: [AtomicU64; LOG_ENTRIES],
    }
}

crate::shared_struct! {
    /// All words of the reclamation protocol besides those in the superblock.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct QuiesceArea {
        /// The publications, by node.
        pub publications: [NodePublication; MAX_NODES],
        /// The requests, by node.
        pub requests: [NodeRequest; MAX_NODES],
        /// The acknowledgements, by node and CPU.
        pub acknowledgements: [[CpuAcknowledgement; MAX_CPUS]; MAX_NODES],
        /// The intents, by node and CPU.
        pub intents: [[IntentLine; MAX_CPUS]; MAX_NODES],
        /// Which of the flush logs there are.
        pub log_set: LogSet,
        /// The flush logs, by node and CPU of the writer.
        pub logs: [[FlushLog; MAX_CPUS]; MAX_NODES],
    }
}

/// Adds the structures of this module, and what intents mean, to the layout hash.
#[must_use]
pub const fn layout(h: LayoutHash) -> LayoutHash {
    let h = crate::shared_layout!(h;
        NodePublication { published, reserved },
        NodeRequest { request, full_flushes, reserved },
        CpuAcknowledgement { acknowledged, reserved },
        IntentLine { row, frame, table, place, reserved },
        LogSet { logs, reserved },
        FlushLog { head, reserved, entries },
        QuiesceArea { publications, requests, acknowledgements, intents, log_set, logs },
    );
    crate::intent::layout(h)
}

const _: () = {
    assert!(size_of::<NodePublication>() == 64);
    assert!(size_of::<NodeRequest>() == 64);
    assert!(size_of::<CpuAcknowledgement>() == 64);
    assert!(size_of::<IntentLine>() == 64);
    assert!(size_of::<LogSet>() == 64);
    // One word has a bit for each log.
    assert!(MAX_NODES * MAX_CPUS <= u64::BITS as usize);
    assert!(size_of::<FlushLog>() == 4096);
    // The words of an IntentRecord, in their order.
    assert!(core::mem::offset_of!(IntentLine, row) == 0);
    assert!(core::mem::offset_of!(IntentLine, frame) == 8);
    assert!(core::mem::offset_of!(IntentLine, table) == 16);
    assert!(core::mem::offset_of!(IntentLine, place) == 24);
};
