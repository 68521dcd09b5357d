//! Entries of upper levels of tables that a CPU remembers (paging-structure caches, walk caches).

use dyad_pgtbl::Level;

/// An entry that leads to a table.
#[derive(Clone, Copy, Debug)]
struct Upper {
    level: Level,
    /// Virtual address / what the entry covers.
    number: u64,
    /// Physical address of the table that it leads to.
    table: u64,
}

/// Fully associative, with exact LRU.
#[derive(Debug)]
pub(super) struct UpperLevels {
    entries: usize,
    /// Most recently used first.
    cached: Vec<Upper>,
}

const fn number(level: Level, address: u64) -> u64 {
    address / level.size()
}

impl UpperLevels {
    /// Room for so many.
    pub fn new(entries: u64) -> UpperLevels {
        UpperLevels {
            entries: entries as usize,
            cached: Vec::with_capacity(entries as usize),
        }
    }

    /// The lowest table on the way to an address that is cached, and its level.
    pub fn find(&mut self, address: u64) -> Option<(Level, u64)> {
        let on_the_way = |u: &Upper| u.number == number(u.level, address);
        let cached = self.cached.iter().enumerate();
        let lowest = cached.filter(|(_, u)| on_the_way(u));
        let (at, _) = lowest.min_by_key(|(_, u)| u.level)?;
        self.cached[..=at].rotate_right(1);
        let first = self.cached.first()?;
        Some((first.level.below()?, first.table))
    }

    /// Takes in what an entry of a table of this level leads to.
    pub fn insert(&mut self, level: Level, address: u64, table: u64) {
        if self.entries == 0 {
            return;
        }
        let number = number(level, address);
        self.cached
            .retain(|u| (u.level, u.number) != (level, number));
        self.cached.truncate(self.entries - 1);
        let upper = Upper {
            level,
            number,
            table,
        };
        self.cached.insert(0, upper);
    }

    /// Drops all of them.
    pub fn clear(&mut self) {
        self.cached.clear();
    }
}
