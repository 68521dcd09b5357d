//! Cached entries, where caches are coherent: clean pages of 4 KiB, words compared undecoded. Anything
//! unexpected is refused without a reason; the slow path finds it.

use dyad_abi::Isa;
use dyad_coherence::Word;
use dyad_pgtbl::{MapError, plain};
use dyad_retype::row;
use dyad_retype::{Refs, Refused};
use dyad_shm::frame::Epoch;
use dyad_shm::protocol::EpochSource;

use crate::row::Entry;

/// A frame in use, with its word.
#[derive(Clone, Copy, Debug)]
pub struct Pinned<W> {
    /// The first word of its record, or of the record of the head of its block.
    pub word: W,
    /// The value of the word, without references.
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

/// A cached entry of a table of level 1, and a page. The row calls each method when it needs the word.
pub trait Known {
    /// A word.
    type Word: Word;

    /// The ISA of the table.
    fn isa(&self) -> Isa;

    /// The entry.
    fn entry(&self) -> Self::Word;

    /// The entry above, which leads to the table.
    fn above(&self) -> Self::Word;

    /// The value of the entry above when the table was found.
    fn link(&self) -> u64;

    /// The table.
    fn table(&self) -> Pinned<Self::Word>;

    /// The block of the page.
    fn block(&self) -> Pinned<Self::Word>;

    /// The entry while this node empties it ([`plain::closing`]).
    fn closing(&self) -> u64;
}

/// An entry of a table of level 1, and a page.
#[derive(Clone, Copy, Debug)]
pub struct Plain<K> {
    /// The cached words of both.
    pub cached: K,
    /// The entry without the page.
    pub empty: u64,
    /// The entry with the page.
    pub page: u64,
}

impl<K: Known> Entry for Plain<K> {
    #[inline(always)]
    fn pin_table(&self) -> Result<(), Refused> {
        self.cached.table().pin()
    }

    #[inline(always)]
    fn pin_frame(&self) -> Result<(), Refused> {
        self.cached.block().pin()
    }

    #[inline(always)]
    fn unpin_table(&self) {
        row::unpin(&self.cached.table().word);
    }

    #[inline(always)]
    fn unpin_frame(&self) {
        row::unpin(&self.cached.block().word);
    }

    #[inline(always)]
    fn fence(&self) {
        self.cached.entry().fence();
    }

    #[inline(always)]
    fn is_linked(&self) -> bool {
        self.cached.above().load() == self.cached.link()
    }

    #[inline(always)]
    fn may_unpin(&self) -> Result<(), Refused> {
        match self.cached.table().is_same() && self.cached.block().is_same() {
            true => Ok(()),
            false => Err(Refused::Frozen),
        }
    }

    /// The word was empty, and its stamp quiesced, when the caller looked.
    #[inline(always)]
    fn fill(&self, _: &impl EpochSource) -> Result<(), MapError> {
        let done = self.cached.entry().replace(self.empty, self.page);
        done.map(drop).map_err(|_| MapError::Contended)
    }

    #[inline(always)]
    fn close(&self) -> Result<(), MapError> {
        let done = self
            .cached
            .entry()
            .replace(self.page, self.cached.closing());
        done.map(drop).map_err(|_| MapError::Contended)
    }

    #[inline(always)]
    fn empty(&self, stamp: Epoch) -> Result<(), MapError> {
        let done = self.cached.entry().replace(
            self.cached.closing(),
            plain::empty(self.cached.isa(), stamp),
        );
        done.map(drop).map_err(|_| MapError::Contended)
    }

    /// Does nothing: where caches are coherent, no node has to drop a line.
    #[inline(always)]
    fn log_table(&self) {}

    #[inline(always)]
    fn log_page(&self) {}
}
