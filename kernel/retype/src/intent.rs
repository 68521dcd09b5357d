//! Intent records: what a CPU is in the middle of, for the node that recovers it.
//!
//! A record is in memory before the first compare-and-swap of its row, and stays there until
//! after the last change of the row. Each CPU has one line for it:
//!
//! ```text
//! word 0   row + 1 (0: none)     written last, cleared first
//! word 1   version:32 | frame:32
//! word 2   version:32 | frame:32 of the table (frame all ones: no table)
//! word 3   physical address of the entry or slot
//! ```

use core::sync::atomic::Ordering;

use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::frame::{FrameRef, Version};
use dyad_shm::pool::PhysAddr;

use crate::weak::WeakRef;

/// A row of the protocol that changes more than one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Row {
    /// A page-table entry gets a frame.
    Map = 0,
    /// A page-table entry loses its frame.
    Unmap = 1,
    /// A frame in use becomes untyped.
    ToUntyped = 2,
    /// An untyped block is put to use.
    FromUntyped = 3,
    /// An untyped block becomes two.
    Split = 4,
    /// Two untyped blocks become one.
    Merge = 5,
    /// A slot of a capability table is filled.
    SlotActivate = 6,
    /// A slot of a capability table is emptied.
    SlotDeactivate = 7,
}

impl Row {
    /// All rows, in the order of their numbers.
    pub const ALL: [Row; 8] = [
        Row::Map,
        Row::Unmap,
        Row::ToUntyped,
        Row::FromUntyped,
        Row::Split,
        Row::Merge,
        Row::SlotActivate,
        Row::SlotDeactivate,
    ];
}

/// What a CPU is about to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntentRecord {
    /// The row.
    pub row: Row,
    /// The frame, and the version it has when the row begins.
    pub frame: WeakRef,
    /// The page table or capability table, if one is involved.
    pub table: Option<WeakRef>,
    /// Physical address of the entry or slot; 0 if there is none.
    pub place: PhysAddr,
}

impl IntentRecord {
    /// Words of a record.
    pub const WORDS: usize = 4;

    /// A record about one frame.
    pub const fn frame(row: Row, frame: FrameRef, version: Version) -> IntentRecord {
        IntentRecord {
            row,
            frame: WeakRef { frame, version },
            table: None,
            place: PhysAddr(0),
        }
    }

    /// The words, in the order of the line.
    pub const fn words(&self) -> [u64; IntentRecord::WORDS] {
        [
            self.row as u64 + 1,
            self.frame.bits(),
            match self.table {
                Some(t) => t.bits(),
                None => u32::MAX as u64,
            },
            self.place.0,
        ]
    }

    /// Reads the words of a line; `None` if there is no record in it.
    pub fn from_words(words: [u64; IntentRecord::WORDS]) -> Option<IntentRecord> {
        let row = usize::try_from(words[0].checked_sub(1)?).ok()?;
        Some(IntentRecord {
            row: *Row::ALL.get(row)?,
            frame: WeakRef::from_bits(words[1])?,
            table: WeakRef::from_bits(words[2]),
            place: PhysAddr(words[3]),
        })
    }
}

/// Where this CPU records its intents.
pub trait Intents {
    /// Records an intent in place of the last one. It is in memory when this returns.
    fn begin(&self, record: &IntentRecord);

    /// Nothing is under way any more.
    fn clear(&self);
}

/// The intent line of a CPU in shared memory. Only that CPU stores to it while its node lives.
#[derive(Clone, Copy, Debug)]
pub struct IntentLine<'m, M: ?Sized> {
    mem: &'m M,
    at: PhysAddr,
}

impl<'m, M: GlobalMem + ?Sized> IntentLine<'m, M> {
    /// The line at `at`.
    pub const fn new(mem: &'m M, at: PhysAddr) -> IntentLine<'m, M> {
        IntentLine { mem, at }
    }

    /// What is recorded: for recoverers, once the CPU is gone.
    pub fn read(&self) -> Option<IntentRecord> {
        self.mem.invalidate(self.at, LINE_BYTES);
        let mut words = [self.mem.load(self.at, Ordering::Acquire); IntentRecord::WORDS];
        for (i, word) in words.iter_mut().enumerate().skip(1) {
            *word = self.mem.load(self.at.add(8 * i as u64), Ordering::Relaxed);
        }
        IntentRecord::from_words(words)
    }
}

impl<M: GlobalMem + ?Sized> Intents for IntentLine<'_, M> {
    fn begin(&self, record: &IntentRecord) {
        let words = record.words();
        for (i, word) in words.into_iter().enumerate().skip(1) {
            self.mem
                .store(self.at.add(8 * i as u64), word, Ordering::Relaxed);
        }
        // The row comes last, so that a CPU that dies here leaves no half of a record.
        self.mem.store(self.at, words[0], Ordering::Release);
        self.mem.writeback(self.at, LINE_BYTES);
    }

    fn clear(&self) {
        self.mem.store_through(self.at, 0, Ordering::Release);
    }
}
