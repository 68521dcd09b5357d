//! Flush logs: what a CPU has touched that other nodes, or its own, may hold stale copies of.
//!
//! | step | order | pairs with |
//! |---|---|---|
//! | put the log into the set, at memory | before its first entry | a round reads the set at memory after its new epoch |
//! | write entry `n` | release | the reader's acquire of it: it then sees that head is at least `n` |
//! | write head | release | the reader's acquire: the entry is there |
//! | read entry `n`, then head again | acquire, acquire | tells whether the entry was overwritten |
//!
//! Writers never wait for readers: a log is a ring, and who falls behind by its length has been
//! lapped and flushes everything once. A log stays in the set when its CPU dies: others have yet to read
//! what it has named, and the next incarnation writes on from there. A large page has more frames than a log has entries: it is one entry,
//! for which readers flush everything, too.

use core::sync::atomic::Ordering;

use core::mem::offset_of;

use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, NodeId};
use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::PhysAddr;
use dyad_shm::quiesce::{FlushLog, LOG_ENTRIES};

use crate::words::Quiescence;

/// Logs that there can be.
pub(crate) const LOGS: usize = MAX_NODES * MAX_CPUS;
/// Bytes of a large page.
const LARGE_BYTES: u64 = 2 << 20;

/// A log entry: memory of which other nodes may have to drop copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyEntry {
    /// A line of kernel memory has been written.
    Line(PhysAddr),
    /// A remote driver has written to a table in this frame.
    Table(PhysAddr),
    /// A user frame has been unmapped.
    User(PhysAddr),
    /// A large page of user frames has been unmapped, which starts here.
    LargeUser(PhysAddr),
    /// A kernel object that filled this frame has been untyped.
    Object(PhysAddr),
}

impl DirtyEntry {
    const KIND: u64 = LINE_BYTES - 1;

    pub(crate) const fn bits(self) -> u64 {
        match self {
            DirtyEntry::Line(at) => at.0 & !DirtyEntry::KIND | 1,
            DirtyEntry::Table(at) => at.frame_start().0 | 2,
            DirtyEntry::User(at) => at.frame_start().0 | 3,
            DirtyEntry::Object(at) => at.frame_start().0 | 4,
            DirtyEntry::LargeUser(at) => at.0 & !(LARGE_BYTES - 1) | 5,
        }
    }

    pub(crate) const fn from_bits(w: u64) -> Option<DirtyEntry> {
        let at = PhysAddr(w & !DirtyEntry::KIND);
        match w & DirtyEntry::KIND {
            1 => Some(DirtyEntry::Line(at)),
            2 if at.offset() == 0 => Some(DirtyEntry::Table(at)),
            3 if at.offset() == 0 => Some(DirtyEntry::User(at)),
            4 if at.offset() == 0 => Some(DirtyEntry::Object(at)),
            5 if at.0.is_multiple_of(LARGE_BYTES) => Some(DirtyEntry::LargeUser(at)),
            _ => None,
        }
    }

    /// The range to drop.
    pub const fn range(self) -> (PhysAddr, u64) {
        match self {
            DirtyEntry::Line(at) => (at, LINE_BYTES),
            DirtyEntry::Table(at) | DirtyEntry::User(at) | DirtyEntry::Object(at) => {
                (at, PAGE_SIZE)
            }
            DirtyEntry::LargeUser(at) => (at, LARGE_BYTES),
        }
    }

    /// Whether a CPU that has not acknowledged a round yet may still use the memory, so that it must be
    /// dropped afterwards: user code reads a frame through its TLB, the kernel an object that it has a
    /// reference to. Lines and tables that have been changed, not untyped, are fetched again with their new
    /// contents.
    pub(crate) const fn is_given_up(self) -> bool {
        matches!(
            self,
            DirtyEntry::User(_) | DirtyEntry::LargeUser(_) | DirtyEntry::Object(_)
        )
    }
}

fn entry(log: PhysAddr, number: u64) -> PhysAddr {
    log.add(offset_of!(FlushLog, entries) as u64 + number % LOG_ENTRIES as u64 * 8)
}

/// A CPU's end of its own log.
#[derive(Debug)]
pub struct LogWriter {
    log: PhysAddr,
    head: u64,
}

impl LogWriter {
    /// Puts the CPU's log into the set that rounds read, and goes on where the log ends. A CPU has one
    /// writer.
    pub fn attach<M: GlobalMem>(q: &Quiescence<'_, M>, node: NodeId, cpu: CpuId) -> LogWriter {
        let index = node.index() * MAX_CPUS + cpu.index();
        if !lacks!("log::attach::set") {
            q.mem.or(q.log_set(), 1 << index);
        }
        let log = q.log(index);
        LogWriter {
            log,
            head: q.mem.load_fresh(log, Ordering::Acquire),
        }
    }

    /// Adds an entry to the log. Must be called before the stamp is taken, and before another CPU could take
    /// a stamp for the same frame.
    pub fn record<M: GlobalMem>(&mut self, q: &Quiescence<'_, M>, what: DirtyEntry) {
        let at = entry(self.log, self.head);
        q.mem.store_through(at, what.bits(), Ordering::Release);
        self.head = self.head.wrapping_add(1);
        q.mem.store_through(self.log, self.head, Ordering::Release);
    }
}

/// The result of a read at a cursor.
pub(crate) enum Read {
    /// No entry before the end.
    End,
    /// An entry.
    Entry(DirtyEntry),
    /// The entry has been overwritten, is malformed, or is for a large page: everything must be dropped.
    Lapped,
}

/// Reads entry `cursor` of a log unless that is `end`.
pub(crate) fn read<M: GlobalMem>(
    q: &Quiescence<'_, M>,
    index: usize,
    cursor: u64,
    end: u64,
) -> Read {
    let capacity = LOG_ENTRIES as u64;
    let log = q.log(index);
    let pending = end.wrapping_sub(cursor);
    if pending == 0 {
        return Read::End;
    }
    if pending > capacity {
        return Read::Lapped;
    }
    let word = q.mem.load_fresh(entry(log, cursor), Ordering::Acquire);
    // Entry `cursor + capacity` goes to the same place, and is written while head still has that
    // number.
    if head(q, index).wrapping_sub(cursor) >= capacity {
        return Read::Lapped;
    }
    match DirtyEntry::from_bits(word) {
        Some(DirtyEntry::LargeUser(_)) => Read::Lapped,
        Some(t)
            if {
                let (at, len) = t.range();
                q.mem.contains(at, len)
            } =>
        {
            Read::Entry(t)
        }
        _ => Read::Lapped,
    }
}

/// The logs that may have entries, as a bit set. What is not in the set when a round has taken its epoch gets
/// entries for later rounds only: see the crate's header.
pub(crate) fn all<M: GlobalMem>(q: &Quiescence<'_, M>) -> u64 {
    // The fence of the new epoch comes before, the acquire of each head after.
    q.mem.load_fresh(q.log_set(), Ordering::Relaxed)
}

/// The indices in a set of logs.
pub(crate) fn indices(set: u64) -> impl Iterator<Item = usize> {
    (0..LOGS).filter(move |index| set >> index & 1 != 0)
}

/// Entries ever written to a log.
pub(crate) fn head<M: GlobalMem>(q: &Quiescence<'_, M>, index: usize) -> u64 {
    q.mem.load_fresh(q.log(index), Ordering::Acquire)
}
