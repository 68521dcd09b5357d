//! Sections of readers, and rounds.
//!
//! A reader marks the begin and the end of a section in a word that its node alone uses. Each writer has an epoch, which grows. A
//! node that goes through a round reads the epochs, waits until each section that was open then has ended, and
//! publishes the epochs that it has read. What a writer retired in an epoch below all published ones has no reader.
//!
//! ```text
//!   writer w:  retire(e)   epoch := e + 1
//!   node m:          read epochs ─ look at sections ─ wait for the open ones ─ publish: seen[m][w] := e + 1
//!   writer w:                                                                   all seen[.][w] > e: reuse
//! ```
//!
//! | line | writer | readers |
//! |---|---|---|
//! | epoch of a node | that node, through | all |
//! | what a node has seen: a word for each writer | that node, through | all |
//! | sections of a node: a word for each reader | that node's readers | that node's rounds; nothing is flushed |

use core::sync::atomic::Ordering;

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::PhysAddr;

/// Readers of a node that may be within sections at a time.
pub const READERS: usize = 64;

const SECTION_BYTES: u64 = READERS as u64 * 8;
const _: () =
    assert!(MAX_NODES as u64 * 8 <= LINE_BYTES && SECTION_BYTES.is_multiple_of(LINE_BYTES));

/// Bytes of the words of all nodes. They are zero at first.
pub const BYTES: u64 = MAX_NODES as u64 * (2 * LINE_BYTES + SECTION_BYTES);

/// The words of all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Sections {
    base: PhysAddr,
}

/// A section that is open. It ends when this is dropped.
#[derive(Debug)]
pub struct Section<'m, M: GlobalMem> {
    mem: &'m M,
    word: PhysAddr,
    open: u64,
}

impl<M: GlobalMem> Drop for Section<'_, M> {
    fn drop(&mut self) {
        self.mem.store(self.word, self.open + 1, Ordering::Release);
    }
}

impl Sections {
    /// [`BYTES`] from `base` on, which begins a line.
    pub const fn new(base: PhysAddr) -> Sections {
        assert!(base.0.is_multiple_of(LINE_BYTES));
        Sections { base }
    }

    fn epoch_of(self, writer: NodeId) -> PhysAddr {
        self.base.add(writer.index() as u64 * LINE_BYTES)
    }

    fn seen_of(self, node: NodeId, writer: NodeId) -> PhysAddr {
        let line = (MAX_NODES + node.index()) as u64 * LINE_BYTES;
        self.base.add(line + 8 * writer.index() as u64)
    }

    fn word_of(self, node: NodeId, reader: usize) -> PhysAddr {
        let words = 2 * MAX_NODES as u64 * LINE_BYTES + node.index() as u64 * SECTION_BYTES;
        self.base.add(words + 8 * (reader % READERS) as u64)
    }

    /// Reader `reader` (modulo [`READERS`]) of `node` begins a section. It has none, and no other reader has this number.
    pub fn begin<M: GlobalMem>(self, mem: &M, node: NodeId, reader: usize) -> Section<'_, M> {
        let word = self.word_of(node, reader);
        let open = mem.load(word, Ordering::Relaxed) | 1;
        mem.store(word, open, Ordering::Relaxed);
        // A round either sees the section, or comes before everything that is read in it.
        mem.fence();
        Section { mem, word, open }
    }

    /// A reader of this node has died: its section, if there is one, has ended.
    pub fn reader_died(self, mem: &impl GlobalMem, node: NodeId, reader: usize) {
        let word = self.word_of(node, reader);
        let now = mem.load(word, Ordering::Relaxed);
        mem.store(word, now + (now & 1), Ordering::Release);
    }

    /// A node begins another life: it has no readers.
    pub fn node_joins(self, mem: &impl GlobalMem, node: NodeId) {
        mem.invalidate(self.word_of(node, 0), SECTION_BYTES);
        (0..READERS).for_each(|reader| self.reader_died(mem, node, reader));
    }

    /// The epoch of a writer, on its own node.
    pub fn epoch(self, mem: &impl GlobalMem, writer: NodeId) -> u64 {
        mem.load(self.epoch_of(writer), Ordering::Relaxed)
    }

    /// Begins the next epoch of a writer, on its own node: rounds that begin now count for what was retired before, the roots of
    /// which are written by now.
    pub fn advance(self, mem: &impl GlobalMem, writer: NodeId) -> u64 {
        let next = self.epoch(mem, writer) + 1;
        mem.store_through(self.epoch_of(writer), next, Ordering::Release);
        next
    }

    /// What a writer retired before this epoch has no reader on any of these nodes.
    pub fn passed(
        self,
        mem: &impl GlobalMem,
        writer: NodeId,
        nodes: impl Iterator<Item = NodeId>,
    ) -> u64 {
        let seen = nodes.map(|node| {
            let word = self.seen_of(node, writer);
            mem.load_fresh(word, Ordering::Acquire)
        });
        seen.min().unwrap_or_else(|| self.epoch(mem, writer))
    }
}

/// The rounds of a node, which one thread of it drives.
#[derive(Debug)]
pub struct Rounds {
    sections: Sections,
    node: NodeId,
    /// The epochs that were read at the beginning of this round.
    epochs: [u64; MAX_NODES],
    /// The sections that were open then, and what their words were; 0: none, or it has ended.
    open: [u64; READERS],
    /// The first reader whose section has not ended; [`READERS`]: no round is under way.
    next: usize,
}

impl Rounds {
    /// The rounds of `node`.
    pub const fn new(sections: Sections, node: NodeId) -> Rounds {
        Rounds {
            sections,
            node,
            epochs: [0; MAX_NODES],
            open: [0; READERS],
            next: READERS,
        }
    }

    /// Goes on with the round, or begins one. `true`: it is over. Never waits.
    pub fn step(&mut self, mem: &impl GlobalMem) -> bool {
        let (sections, node) = (self.sections, self.node);
        if self.next == READERS {
            for writer in NodeId::first(MAX_NODES) {
                let word = sections.epoch_of(writer);
                self.epochs[writer.index()] = mem.load_fresh(word, Ordering::Acquire);
            }
            // A reader whose section is not seen below sees the roots as they were written before these epochs.
            mem.fence();
            for (reader, open) in self.open.iter_mut().enumerate() {
                let now = mem.load(sections.word_of(node, reader), Ordering::Acquire);
                *open = now * (now & 1);
            }
            self.next = 0;
        }
        while let Some(&open) = self.open.get(self.next) {
            let word = sections.word_of(node, self.next);
            if open != 0 && mem.load(word, Ordering::Acquire) == open {
                return false;
            }
            self.next += 1;
        }
        for writer in NodeId::first(MAX_NODES) {
            let word = sections.seen_of(node, writer);
            mem.store(word, self.epochs[writer.index()], Ordering::Release);
        }
        let line = sections.seen_of(node, NodeId::first(1).next().unwrap_or(node));
        mem.writeback(line, LINE_BYTES);
        true
    }
}
