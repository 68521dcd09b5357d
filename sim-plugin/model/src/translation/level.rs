//! A level of TLBs.

use dyad_pgtbl::{Leaf, Level};

/// A translation: its page, and what is to be known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Virtual address / size.
    number: u64,
    /// log2 of the size.
    shift: u32,
    /// Whether it survives a switch of the root.
    pub global: bool,
    /// Whether hardware need not mark the page as written before a store.
    pub dirty: bool,
}

/// Sizes that pages have, as shifts. The root has no leaves.
const SHIFTS: [u32; 3] = [
    Level::L1.size().trailing_zeros(),
    Level::L2.size().trailing_zeros(),
    Level::L3.size().trailing_zeros(),
];

impl Page {
    /// The page of an address, whose leaf was found in a table of this level.
    pub fn new(address: u64, level: Level, leaf: &Leaf) -> Page {
        let shift = level.size().trailing_zeros();
        Page {
            number: address >> shift,
            shift,
            global: leaf.global,
            dirty: leaf.dirty,
        }
    }

    /// The page of 4 KiB of an address, of which nothing else is known.
    pub const fn small(address: u64) -> Page {
        Page {
            number: address >> SHIFTS[0],
            shift: SHIFTS[0],
            global: false,
            dirty: true,
        }
    }

    const fn has(&self, address: u64) -> bool {
        address >> self.shift == self.number
    }
}

/// A set-associative TLB with exact LRU. The set follows from the number of the page, whatever its size.
#[derive(Debug)]
pub(super) struct TlbLevel {
    ways: usize,
    /// Most recently used first.
    sets: Box<[Vec<Page>]>,
}

impl TlbLevel {
    /// An empty one. The configuration has been checked: the number of sets is a power of two.
    pub fn new(entries: u64, ways: u64) -> TlbLevel {
        let ways = ways.clamp(1, entries.max(1)) as usize;
        let sets = (entries as usize / ways).max(1);
        TlbLevel {
            ways,
            sets: vec![Vec::with_capacity(ways); sets].into(),
        }
    }

    fn set(&mut self, number: u64) -> &mut Vec<Page> {
        let mask = self.sets.len() - 1;
        &mut self.sets[number as usize & mask]
    }

    /// The translation of an address, which becomes the most recently used one of its set.
    pub fn find(&mut self, address: u64) -> Option<Page> {
        SHIFTS.into_iter().find_map(|shift| {
            let set = self.set(address >> shift);
            let hit = |page: &Page| page.shift == shift && page.has(address);
            let way = set.iter().position(hit)?;
            set[..=way].rotate_right(1);
            set.first().copied()
        })
    }

    /// Takes a translation in, in the place of one of the same page or of the least recently used one.
    pub fn insert(&mut self, page: Page) {
        let ways = self.ways;
        let set = self.set(page.number);
        set.retain(|p| (p.number, p.shift) != (page.number, page.shift));
        set.truncate(ways - 1);
        set.insert(0, page);
    }

    /// Drops the translations of an address.
    pub fn remove(&mut self, address: u64) {
        for shift in SHIFTS {
            self.set(address >> shift)
                .retain(|page| page.shift != shift || !page.has(address));
        }
    }

    /// Drops what does not satisfy a condition.
    pub fn retain(&mut self, keep: impl Fn(&Page) -> bool) {
        self.sets.iter_mut().for_each(|set| set.retain(&keep));
    }
}
