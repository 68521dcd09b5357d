//! Entries that the caller remembers, where caches are coherent: clean pages of 4 KiB, words compared as they are. Whatever
//! is not as expected is refused, whatever the reason: the slow path says it.

use core::sync::atomic::Ordering;

use dyad_abi::{Isa, NodeId};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{MapError, plain};
use dyad_retype::Refused;
use dyad_retype::row::{self, Record};
use dyad_shm::PhysAddr;
use dyad_shm::frame::Epoch;
use dyad_shm::protocol::EpochSource;

use crate::row::Entry;

/// A shared word, with what [`GlobalMem`] promises of each operation.
pub trait Word {
    /// Reads it at memory; acquires.
    fn load(&self) -> u64;

    /// Replaces it; acquires and releases.
    ///
    /// # Errors
    ///
    /// What is there instead.
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64>;

    /// A full fence.
    fn fence(&self);
}

/// The word at an address.
#[derive(Debug)]
pub struct WordAt<'m, M: ?Sized>(pub &'m M, pub PhysAddr);

impl<M: GlobalMem + ?Sized> Word for WordAt<'_, M> {
    fn load(&self) -> u64 {
        self.0.load_fresh(self.1, Ordering::Acquire)
    }

    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.0.cas(self.1, old, new)
    }

    fn fence(&self) {
        self.0.fence();
    }
}

/// A frame that is used for something, as it was found.
#[derive(Clone, Copy, Debug)]
pub struct Pinned<R> {
    /// The record of the frame, or of the head of its block.
    pub record: R,
    /// The record's first word, without references.
    pub value: u64,
}

impl<R: Record> Pinned<R> {
    #[inline(always)]
    fn pin(&self) -> Result<(), Refused> {
        // The reason is for the slow path.
        row::pin(&self.record, self.record.word(), self.value).map_err(|_| Refused::Stale)
    }

    #[inline(always)]
    fn is_same(&self) -> bool {
        row::is_but_for_references(self.record.word(), self.value)
    }
}

/// An entry of a table of level 1, and a page.
#[derive(Clone, Copy, Debug)]
pub struct Plain<R, W> {
    /// Whose table it is.
    pub isa: Isa,
    /// The entry.
    pub entry: W,
    /// The entry without the page.
    pub empty: u64,
    /// The entry with the page.
    pub page: u64,
    /// The entry above, which leads to the table.
    pub above: W,
    /// The entry above, as it was when the table was found.
    pub link: u64,
    /// The table.
    pub table: Pinned<R>,
    /// The block of the page.
    pub block: Pinned<R>,
    /// Who acts.
    pub node: NodeId,
}

impl<R: Record, W: Word> Entry for Plain<R, W> {
    #[inline(always)]
    fn pin_table(&self) -> Result<(), Refused> {
        self.table.pin()
    }

    #[inline(always)]
    fn pin_frame(&self) -> Result<(), Refused> {
        self.block.pin()
    }

    #[inline(always)]
    fn unpin_table(&self) {
        row::unpin(&self.table.record);
    }

    #[inline(always)]
    fn unpin_frame(&self) {
        row::unpin(&self.block.record);
    }

    #[inline(always)]
    fn fence(&self) {
        self.entry.fence();
    }

    #[inline(always)]
    fn is_linked(&self) -> bool {
        self.above.load() == self.link
    }

    #[inline(always)]
    fn may_unpin(&self) -> Result<(), Refused> {
        match self.table.is_same() && self.block.is_same() {
            true => Ok(()),
            false => Err(Refused::Frozen),
        }
    }

    /// The word was empty, and its stamp quiesced, when the caller looked.
    #[inline(always)]
    fn fill(&self, _: &impl EpochSource) -> Result<(), MapError> {
        let done = self.entry.replace(self.empty, self.page);
        done.map(drop).map_err(|_| MapError::Contended)
    }

    #[inline(always)]
    fn close(&self) -> Result<(), MapError> {
        let done = self.entry.replace(self.page, plain::closing(self.isa, self.node));
        done.map(drop).map_err(|_| MapError::Contended)
    }

    #[inline(always)]
    fn empty(&self, stamp: Epoch) -> Result<(), MapError> {
        let (closing, empty) = (plain::closing(self.isa, self.node), plain::empty(self.isa, stamp));
        let done = self.entry.replace(closing, empty);
        done.map(drop).map_err(|_| MapError::Contended)
    }

    /// Caches are coherent: nobody has to drop anything.
    #[inline(always)]
    fn log_table(&self) {}

    #[inline(always)]
    fn log_page(&self) {}
}
