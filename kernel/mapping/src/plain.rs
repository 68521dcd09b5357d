//! Entries that the caller remembers, where caches are coherent: clean pages of 4 KiB, words compared as they are. Whatever
//! is not as expected is refused, whatever the reason: the slow path says it.

use dyad_abi::Isa;
use dyad_coherence::Word;
use dyad_pgtbl::{MapError, plain};
use dyad_retype::row;
use dyad_retype::{Refs, Refused};
use dyad_shm::frame::Epoch;
use dyad_shm::protocol::EpochSource;

use crate::row::Entry;

/// A frame that is used for something, as it was found.
#[derive(Clone, Copy, Debug)]
pub struct Pinned<W> {
    /// The first word of its record, or of the record of the head of its block.
    pub word: W,
    /// The word as it was, without references.
    pub value: u64,
}

impl<W: Word> Pinned<W> {
    #[inline(always)]
    fn pin(&self) -> Result<(), Refused> {
        let raw = self.word.load();
        let value = match lacks!("plain::pin::version") {
            // Whatever it is by now.
            true => raw & !u64::from(Refs::MAX.get()),
            false => self.value,
        };
        // The reason is for the slow path.
        row::pin(&self.word, raw, value).map_err(|_| Refused::Stale)
    }

    #[inline(always)]
    fn is_same(&self) -> bool {
        row::is_but_for_references(self.word.load(), self.value)
    }
}

/// An entry of a table of level 1, and a page.
#[derive(Clone, Copy, Debug)]
pub struct Plain<W> {
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
    pub table: Pinned<W>,
    /// The block of the page.
    pub block: Pinned<W>,
    /// The entry while this node empties it ([`plain::closing`]).
    pub closing: u64,
}

impl<W: Word> Entry for Plain<W> {
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
        row::unpin(&self.table.word);
    }

    #[inline(always)]
    fn unpin_frame(&self) {
        row::unpin(&self.block.word);
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
        let done = self.entry.replace(self.page, self.closing);
        done.map(drop).map_err(|_| MapError::Contended)
    }

    #[inline(always)]
    fn empty(&self, stamp: Epoch) -> Result<(), MapError> {
        let done = self
            .entry
            .replace(self.closing, plain::empty(self.isa, stamp));
        done.map(drop).map_err(|_| MapError::Contended)
    }

    /// Caches are coherent: nobody has to drop anything.
    #[inline(always)]
    fn log_table(&self) {}

    #[inline(always)]
    fn log_page(&self) {}
}
