//! Entries found by a walk, at memory: pages of any size, with or without coherent caches.

use dyad_abi::NodeId;
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Leaf, Level, MapError, Pte, PteSlot, RemoteCpu, plain};
use dyad_retype::{FrameTable, KernelKind, Order, Refused};
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::EpochSource;

use crate::row::Entry;

/// The context of an entry.
pub trait Around: Copy {
    /// Whether this is the root of the address space.
    fn is_root(&self, table: PhysAddr) -> bool;

    /// Notes that a table has been changed.
    fn log_table(&self, table: PhysAddr);

    /// Notes that a page has gone from a table.
    fn log_page(&self, page: PhysAddr, level: Level);
}

/// An entry found by a walk, and a page.
pub struct Walked<'a, 'm, M: GlobalMem + ?Sized, A> {
    /// The frames.
    pub frames: &'a FrameTable<'m, M>,
    /// The accessor functions of the page table.
    pub driver: &'a RemoteCpu<'m, M>,
    /// The entry.
    pub place: &'a PteSlot,
    /// The table of the entry: its word as it is, and what that says.
    pub table: (u64, WeakRef),
    /// The kind that the table must have.
    pub table_kind: KernelKind,
    /// The page.
    pub leaf: Leaf,
    /// The block of the page, as its capability has it; `None` for frames of the system, which are not counted.
    pub head: Option<WeakRef>,
    /// The size of the entry's range.
    pub span: Order,
    /// The node that acts.
    pub node: NodeId,
    /// Root and logs.
    pub around: A,
}

impl<M: GlobalMem + ?Sized, A: Copy> Clone for Walked<'_, '_, M, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: GlobalMem + ?Sized, A: Copy> Copy for Walked<'_, '_, M, A> {}

impl<M: GlobalMem + ?Sized, A> Walked<'_, '_, M, A> {
    /// The record of a row.
    #[inline]
    pub fn intent(&self, row: Row, frame: WeakRef) -> IntentRecord {
        IntentRecord {
            row,
            frame,
            table: Some(self.table.1),
            place: self.place.entry,
        }
    }
}

impl<M: GlobalMem + ?Sized, A: Around> Entry for Walked<'_, '_, M, A> {
    #[inline]
    fn pin_table(&self) -> Result<(), Refused> {
        let (raw, table) = self.table;
        self.frames.pin_table(table.frame, raw, self.table_kind)
    }

    #[inline]
    fn pin_frame(&self) -> Result<(), Refused> {
        let Some(head) = self.head else {
            return Ok(());
        };
        let frame = FrameRef::of(self.leaf.pa).ok_or(Refused::NoFrame)?;
        self.frames.pin_block(head, frame, self.span)
    }

    #[inline]
    fn unpin_table(&self) {
        // The caller has a reference, so the record is there.
        let _ = self.frames.unpin_head(self.table.1.frame);
    }

    #[inline]
    fn unpin_frame(&self) {
        if let Some(head) = self.head {
            // The caller has a reference to the frame, so the record is there.
            let _ = self.frames.unpin_head(head.frame);
        }
    }

    #[inline]
    fn fence(&self) {
        self.frames.fence();
    }

    #[inline]
    fn is_linked(&self) -> bool {
        match self.place.level {
            Level::L4 => self.around.is_root(self.place.table()),
            _ => self.driver.is_linked(self.place),
        }
    }

    #[inline]
    fn may_unpin(&self) -> Result<(), Refused> {
        if let Some(head) = self.head {
            self.frames.not_frozen(head.frame)?;
        }
        self.frames.not_frozen(self.table.1.frame)
    }

    #[inline]
    fn fill(&self, epochs: &impl EpochSource) -> Result<(), MapError> {
        let quiesced = |s| epochs.quiesced(s);
        self.driver.fill(self.place, Pte::Leaf(self.leaf), quiesced)
    }

    #[inline]
    fn close(&self) -> Result<(), MapError> {
        if plain::empty_in(self.driver.isa(), self.place.raw).is_none() {
            let closed = self.driver.close(self.place, &self.leaf, self.node);
            return closed.map(drop);
        }
        // What the row itself has put there is not what the walk has found.
        let now = self.driver.again(self.place);
        match self.driver.meaning(&now) {
            Pte::Leaf(leaf) if leaf.same_mapping(&self.leaf) => {
                self.driver.close(&now, &leaf, self.node).map(drop)
            }
            _ => Err(MapError::Contended),
        }
    }

    #[inline]
    fn empty(&self, stamp: Epoch) -> Result<(), MapError> {
        self.driver.empty(self.place, self.node, stamp)
    }

    #[inline]
    fn log_table(&self) {
        self.around.log_table(self.place.table());
    }

    #[inline]
    fn log_page(&self) {
        self.around.log_page(self.leaf.pa, self.place.level);
    }
}
