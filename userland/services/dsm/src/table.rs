//! Records of pages, in chunks that are found by a hash of the address.
//!
//! A chunk has the records of `PAGES` consecutive pages; with 512 it is that of one page table. Chunks are probed one
//! after the other from the place that the hash names. A chunk that becomes free leaves a mark, so that chunks behind
//! it are still found. The records of a chunk are allocated when it is first used, and freed with it.

use alloc::vec::Vec;

use crate::ids::{Page, Range};

/// What a table has of each page.
pub trait Item: Copy + Eq {
    /// What it has of a page of which nothing has been noted.
    const NEW: Self;
}

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
pub struct Table<T, const CHUNKS: usize, const PAGES: usize> {
    slots: [Slot; CHUNKS],
    /// Empty until the slot is first used.
    records: [Vec<T>; CHUNKS],
}

impl<T: Item, const CHUNKS: usize, const PAGES: usize> Table<T, CHUNKS, PAGES> {
    /// A table without records.
    pub const fn new() -> Self {
        const {
            assert!(CHUNKS > 0 && PAGES > 0);
        }
        Table {
            slots: [Slot::Free; CHUNKS],
            records: [const { Vec::new() }; CHUNKS],
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
    pub fn get(&self, page: Page) -> Option<&T> {
        let (chunk, place) = Self::split(page);
        self.find(chunk).and_then(|i| self.records[i].get(place))
    }

    /// The record of a page, if it has one.
    pub fn get_mut(&mut self, page: Page) -> Option<&mut T> {
        let (chunk, place) = Self::split(page);
        let i = self.find(chunk)?;
        self.records[i].get_mut(place)
    }

    /// The record of a page, which is made if there is none.
    ///
    /// # Errors
    ///
    /// [`Full`] if its chunk is not there and all slots are in use, or there is no memory for its records.
    pub fn get_or_insert(&mut self, page: Page) -> Result<&mut T, Full> {
        let (chunk, place) = Self::split(page);
        let free = |i: &usize| !matches!(self.slots[*i], Slot::Used(_));
        let slot = match self.find(chunk) {
            Some(i) => i,
            None => Self::probes(chunk).find(free).ok_or(Full)?,
        };
        let records = &mut self.records[slot];
        if records.is_empty() {
            records.try_reserve_exact(PAGES).map_err(|_| Full)?;
            records.resize(PAGES, T::NEW);
        }
        self.slots[slot] = Slot::Used(chunk);
        records.get_mut(place).ok_or(Full)
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
    pub fn records(&self, range: Range) -> impl Iterator<Item = (Page, &T)> {
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
                    self.records[i][place] = T::NEW;
                }
            }
            if self.records[i].iter().all(|r| *r == T::NEW) {
                self.slots[i] = Slot::Removed;
                self.records[i] = Vec::new();
            }
        }
    }
}

impl<T: Item, const CHUNKS: usize, const PAGES: usize> Default for Table<T, CHUNKS, PAGES> {
    fn default() -> Self {
        Table::new()
    }
}
