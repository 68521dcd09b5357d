//! Intent records: what a CPU is in the middle of, for the node that recovers it.
//!
//! A record is in memory before the first compare-and-swap of its row, and stays there until
//! after the last change of the row. Each CPU has one
//! [`IntentLine`](crate::quiesce::IntentLine) for it:
//!
//! ```text
//! word 0   row + 1 (0: none)     written last, cleared first
//! word 1   version:32 | frame:32
//! word 2   version:32 | frame:32 of the table (all ones: no table)
//! word 3   physical address of the entry or slot
//! ```

use crate::frame::{FrameRef, Version, WeakRef};
use crate::layout::LayoutHash;
use crate::pool::PhysAddr;

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
    /// An entry of a capability-table node gets an object: repaired as map is.
    Cons = 8,
    /// An entry of a capability-table node loses its object: repaired as unmap is.
    Decons = 9,
    /// A page-table entry gets another frame: `frame` is the new one, `table` the one it had. Recovery counts
    /// the references of both; the entry is right at any time.
    Replace = 10,
}

impl Row {
    /// All rows, in the order of their numbers.
    pub const ALL: [Row; 11] = [
        Row::Map,
        Row::Unmap,
        Row::ToUntyped,
        Row::FromUntyped,
        Row::Split,
        Row::Merge,
        Row::SlotActivate,
        Row::SlotDeactivate,
        Row::Cons,
        Row::Decons,
        Row::Replace,
    ];
}

/// The record of a change that a CPU is about to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntentRecord {
    /// The row.
    pub row: Row,
    /// The frame, and the version it has when the row begins.
    pub frame: WeakRef,
    /// The frame that the entry or slot is in, if one is involved and it is not `frame`; of
    /// [`Row::Replace`] the frame that the entry had.
    pub table: Option<WeakRef>,
    /// Physical address of the entry or slot; 0 if there is none.
    pub place: PhysAddr,
}

impl IntentRecord {
    /// Words of a record.
    pub const WORDS: usize = 4;
    /// The word for a missing table.
    pub const NO_TABLE: u64 = u64::MAX;

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
                None => IntentRecord::NO_TABLE,
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

/// Adds what the words of records mean to the layout hash.
#[must_use]
pub const fn layout(h: LayoutHash) -> LayoutHash {
    let mut h = h.text("intents").word(Row::ALL.len() as u64);
    let words = IntentRecord {
        row: Row::Unmap,
        frame: SAMPLE,
        table: None,
        place: PhysAddr(8),
    }
    .words();
    let mut i = 0;
    while i < words.len() {
        h = h.word(words[i]);
        i += 1;
    }
    h
}

const SAMPLE: WeakRef = match WeakRef::from_bits(1 << 32 | 1) {
    Some(weak) => weak,
    None => panic!("a frame of the first pool"),
};

#[cfg(test)]
mod tests {
    use super::*;

    fn weak(frame: u32, version: u32) -> WeakRef {
        WeakRef::from_bits((version as u64) << 32 | frame as u64).unwrap()
    }

    #[test]
    fn records_round_trip_and_damage_is_no_record() {
        for (n, row) in Row::ALL.into_iter().enumerate() {
            assert_eq!(row as usize, n, "the numbers are those of the list");
            for table in [None, Some(weak(5, 0)), Some(weak(6, u32::MAX))] {
                let record = IntentRecord {
                    row,
                    frame: weak(3, u32::MAX),
                    table,
                    place: PhysAddr(0x40_0000_0008),
                };
                let words = record.words();
                assert_eq!(IntentRecord::from_words(words), Some(record));
                let with_row = |w| IntentRecord::from_words([w, words[1], words[2], words[3]]);
                assert_eq!(with_row(0), None);
                assert_eq!(with_row(Row::ALL.len() as u64 + 1), None);
                assert_eq!(with_row(u64::MAX), None);
            }
        }
    }
}
