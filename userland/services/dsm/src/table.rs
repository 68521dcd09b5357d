//! Records of pages, in chunks that are found by a hash of the address.
//!
//! A chunk has the records of `PAGES` consecutive pages; with 512 it is that of one page table. Chunks are probed one
//! after the other from the place that the hash names. A chunk that becomes free leaves a mark, so that chunks behind
//! it are still found.

use crate::ids::{Page, Range};
use crate::record::Record;

/// There is no room for the records of another chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    /// Never used: probing ends here.
    Free,
    /// Used once: probing goes on.
    Removed,
    /// The chunk with this number.
    Used(u64),
}

/// The records of up to `CHUNKS` chunks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table<const NODES: usize, const CHUNKS: usize, const PAGES: usize> {
    slots: [Slot; CHUNKS],
    records: [[Record<NODES>; PAGES]; CHUNKS],
}

impl<const NODES: usize, const CHUNKS: usize, const PAGES: usize> Table<NODES, CHUNKS, PAGES> {
    /// A table without records.
    pub const fn new() -> Self {
        const {
            assert!(CHUNKS > 0 && PAGES > 0 && NODES > 0);
        }
        Table {
            slots: [Slot::Free; CHUNKS],
            records: [[Record::NEW; PAGES]; CHUNKS],
        }
    }

    /// The number of a page's chunk, and the place of its record in the chunk.
    fn split(page: Page) -> (u64, usize) {
        let pages = PAGES as u64;
        (page.number() / pages, (page.number() % pages) as usize)
    }

    /// The slots that a chunk can be in, in the order of probing.
    fn probes(chunk: u64) -> impl Iterator<Item = usize> {
        // Fibonacci hashing: neighbours are spread, and so are multiples of powers of two.
        let hash = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = (hash % CHUNKS as u64) as usize;
        (0..CHUNKS).map(move |i| (first + i) % CHUNKS)
    }

    fn find(&self, chunk: u64) -> Option<usize> {
        Self::probes(chunk)
            .take_while(|&i| self.slots[i] != Slot::Free)
            .find(|&i| self.slots[i] == Slot::Used(chunk))
    }

    /// The record of a page, if it has one.
    pub fn get(&self, page: Page) -> Option<&Record<NODES>> {
        let (chunk, place) = Self::split(page);
        self.find(chunk).map(|i| &self.records[i][place])
    }

    /// The record of a page, if it has one.
    pub fn get_mut(&mut self, page: Page) -> Option<&mut Record<NODES>> {
        let (chunk, place) = Self::split(page);
        self.find(chunk).map(|i| &mut self.records[i][place])
    }

    /// The record of a page, which is made if there is none.
    ///
    /// # Errors
    ///
    /// [`Full`] if its chunk is not there and all slots are in use.
    pub fn get_or_insert(&mut self, page: Page) -> Result<&mut Record<NODES>, Full> {
        let (chunk, place) = Self::split(page);
        let free = |i: &usize| !matches!(self.slots[*i], Slot::Used(_));
        let slot = match self.find(chunk) {
            Some(i) => i,
            None => Self::probes(chunk).find(free).ok_or(Full)?,
        };
        self.slots[slot] = Slot::Used(chunk);
        Ok(&mut self.records[slot][place])
    }

    /// How many places for records there are: an upper bound for [`Table::page_at`].
    pub const fn places(&self) -> usize {
        CHUNKS * PAGES
    }

    /// The page whose record is at a place, if its chunk is in use.
    pub fn page_at(&self, place: usize) -> Option<Page> {
        match self.slots.get(place / PAGES) {
            Some(Slot::Used(chunk)) => {
                let before = chunk.checked_mul(PAGES as u64)?;
                Page::new(before + (place % PAGES) as u64)
            }
            _ => None,
        }
    }

    /// The pages of a range that have records, with the records.
    pub fn records(&self, range: Range) -> impl Iterator<Item = (Page, &Record<NODES>)> {
        (0..self.places())
            .filter_map(|i| self.page_at(i))
            .filter(move |&p| range.contains(p))
            .filter_map(|p| Some((p, self.get(p)?)))
    }

    /// Forgets the records of a range. Chunks that become empty are free again.
    pub fn erase(&mut self, range: Range) {
        for i in 0..CHUNKS {
            let Slot::Used(_) = self.slots[i] else {
                continue;
            };
            for place in 0..PAGES {
                let page = self.page_at(i * PAGES + place);
                if page.is_some_and(|p| range.contains(p)) {
                    self.records[i][place] = Record::NEW;
                }
            }
            if self.records[i].iter().all(|r| *r == Record::NEW) {
                self.slots[i] = Slot::Removed;
            }
        }
    }
}

impl<const NODES: usize, const CHUNKS: usize, const PAGES: usize> Default
    for Table<NODES, CHUNKS, PAGES>
{
    fn default() -> Self {
        Table::new()
    }
}
