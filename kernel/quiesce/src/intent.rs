//! Where a CPU's intents are kept, so that its death can be repaired: its line in the
//! [`QuiesceArea`](dyad_shm::quiesce::QuiesceArea).
//!
//! | step | order | otherwise |
//! |---|---|---|
//! | begin: operands, then the row (release), then write-back of the line | before the row's first CAS | recovery does not know what to repair |
//! | clear: row = 0, released and written back | after the row's last change | a half-done row looks done |
//! | read: the line at memory, row first (acquire) | after the machine of the CPU is gone | repairs what is not so |

use core::fmt;
use core::sync::atomic::Ordering;

use dyad_abi::{CpuId, NodeId};
use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::PhysAddr;
use dyad_shm::intent::IntentRecord;
use dyad_shm::protocol::Intents;

use crate::words::Quiescence;

/// The intent line of one CPU. Only that CPU begins and clears while its node lives; a recoverer
/// reads, and clears once it has repaired.
pub struct CpuIntents<'m, M> {
    mem: &'m M,
    line: PhysAddr,
}

impl<M> Clone for CpuIntents<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for CpuIntents<'_, M> {}

impl<M> fmt::Debug for CpuIntents<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CpuIntents").field(&self.line).finish()
    }
}

impl<'m, M: GlobalMem> Quiescence<'m, M> {
    /// The intents of a CPU.
    #[inline]
    pub fn intents(&self, node: NodeId, cpu: CpuId) -> CpuIntents<'m, M> {
        CpuIntents {
            mem: self.mem,
            line: self.intent_line(node, cpu),
        }
    }
}

impl<M: GlobalMem> CpuIntents<'_, M> {
    /// The address of the record: for rows that write it themselves, in this order.
    pub const fn line(&self) -> PhysAddr {
        self.line
    }

    /// The record. It has a meaning only once the CPU is gone.
    pub fn read(&self) -> Option<IntentRecord> {
        self.mem.invalidate(self.line, LINE_BYTES);
        let mut words = [self.mem.load(self.line, Ordering::Acquire); IntentRecord::WORDS];
        for (i, word) in words.iter_mut().enumerate().skip(1) {
            *word = self
                .mem
                .load(self.line.add(8 * i as u64), Ordering::Relaxed);
        }
        IntentRecord::from_words(words)
    }
}

impl<M: GlobalMem> Intents for CpuIntents<'_, M> {
    #[inline]
    fn begin(&self, record: &IntentRecord) {
        // The row comes last, so that a CPU that dies here leaves no half of a record.
        self.mem.store_line(self.line, record.words());
        self.mem.writeback(self.line, LINE_BYTES);
    }

    #[inline]
    fn clear(&self) {
        self.mem.store_through(self.line, 0, Ordering::Release);
    }
}
