//! Intent records: what a CPU is in the middle of, so that its death can be repaired.
//!
//! | step | order |
//! |---|---|
//! | record: operands, written back, then the row | before the row's first CAS |
//! | clear: row = 0 | after the row's last change |

use core::mem::offset_of;
use core::sync::atomic::Ordering;

use dyad_abi::{CpuId, NodeId};
use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::quiesce::IntentLine;
use dyad_shm::{FrameRef, PhysAddr};

use crate::words::Quiescence;

/// The rows that leave intents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Row {
    /// map, and map from peer.
    Map = 1,
    /// unmap.
    Unmap = 2,
    /// X -> untyped.
    ToUntyped = 3,
    /// untyped -> Y.
    FromUntyped = 4,
    /// slot activate.
    Activate = 5,
    /// slot deactivate.
    Deactivate = 6,
}

impl Row {
    const fn from_bits(w: u64) -> Option<Row> {
        Some(match w {
            1 => Row::Map,
            2 => Row::Unmap,
            3 => Row::ToUntyped,
            4 => Row::FromUntyped,
            5 => Row::Activate,
            6 => Row::Deactivate,
            _ => return None,
        })
    }
}

/// An operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The row.
    pub row: Row,
    /// The frame and its version, if one is involved.
    pub frame: Option<(FrameRef, u32)>,
    /// The table frame and its version, if one is involved.
    pub table: Option<(FrameRef, u32)>,
    /// The entry or slot.
    pub place: PhysAddr,
}

/// `None` is all ones, which names no pool.
fn pack(r: Option<(FrameRef, u32)>) -> u64 {
    r.map_or(u64::MAX, |(f, version)| {
        u64::from(version) << 32 | u64::from(f.bits())
    })
}

fn unpack(w: u64) -> Option<(FrameRef, u32)> {
    Some((FrameRef::from_bits(w as u32)?, (w >> 32) as u32))
}

impl<M: GlobalMem> Quiescence<'_, M> {
    /// Says what this CPU is about to do.
    pub fn record_intent(&self, node: NodeId, cpu: CpuId, intent: Intent) {
        let line = self.intent_line(node, cpu);
        let put = |offset: usize, value| {
            self.mem
                .store(line.add(offset as u64), value, Ordering::Relaxed);
        };
        put(offset_of!(IntentLine, frame), pack(intent.frame));
        put(offset_of!(IntentLine, table), pack(intent.table));
        put(offset_of!(IntentLine, place), intent.place.0);
        self.mem.writeback(line, LINE_BYTES);
        self.mem
            .store_through(line, intent.row as u64, Ordering::Release);
    }

    /// Says that nothing is in progress any more; a recoverer calls it for a dead CPU.
    pub fn clear_intent(&self, node: NodeId, cpu: CpuId) {
        self.mem
            .store_through(self.intent_line(node, cpu), 0, Ordering::Release);
    }

    /// What a CPU was doing. Only meaningful when its machine is gone.
    pub fn intent(&self, node: NodeId, cpu: CpuId) -> Option<Intent> {
        let line = self.intent_line(node, cpu);
        self.mem.invalidate(line, LINE_BYTES);
        let row = Row::from_bits(self.mem.load(line, Ordering::Acquire))?;
        let get = |offset: usize| self.mem.load(line.add(offset as u64), Ordering::Relaxed);
        Some(Intent {
            row,
            frame: unpack(get(offset_of!(IntentLine, frame))),
            table: unpack(get(offset_of!(IntentLine, table))),
            place: PhysAddr(get(offset_of!(IntentLine, place))),
        })
    }
}
