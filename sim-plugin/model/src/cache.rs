//! A cache that one CPU has to itself: set-associative, least recently used goes first.
//!
//! A set is a row of keys, the most recently used first, so that the usual hit is one comparison,
//! and a row of eight ways is one line of the host. A key is the line's number, above it the
//! version of a fused line (see [`crate::directory`]). Whoever takes a line away from a node bumps
//! its version; the node's copies then no longer match. Such a dead copy is an invalid
//! way: the next fill of its full set takes it (see [`Cache::invalid_in_full_set`]).
//!
//! Ways without a copy are at the end of their row.

use crate::config::CacheShape;
use crate::memory::LINE_MASK;
use crate::rows::{ROW, Row, Sets};

/// The key of an empty way. No other key is equal to it.
pub const EMPTY: u64 = u64::MAX;

/// The part of a key that says which line it is of: all of it if the line is private.
pub const fn identity(fused: bool) -> u64 {
    if fused { LINE_MASK } else { u64::MAX }
}

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache {
    rows: Box<[Row]>,
    sets: Sets,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Panics
    ///
    /// If the number of sets is not a power of two, or the number of ways is not 1 to 64.
    pub fn new(shape: CacheShape) -> Self {
        let sets = Sets::new(shape);
        Self {
            rows: sets.empty(),
            sets,
        }
    }

    /// The most recently used key of a line's set.
    #[inline(always)]
    pub fn first(&self, line: u64) -> u64 {
        // The index is always good; asking is as cheap as the check it replaces, and cannot panic.
        match self.rows.get(self.sets.start(line)) {
            Some(row) => row.0[0],
            None => EMPTY,
        }
    }

    /// The key that is evicted when a line is put into its full set. Reading it brings a set of two rows
    /// near.
    #[inline(always)]
    pub fn oldest(&self, line: u64) -> u64 {
        let (start, last) = (self.sets.start(line), self.sets.ways - 1);
        match self.rows.get(start + last / ROW) {
            Some(row) => row.0[last % ROW],
            None => EMPTY,
        }
    }

    #[inline]
    fn set(&self, line: u64) -> &[Row] {
        let start = self.sets.start(line);
        &self.rows[start..start + self.sets.depth]
    }

    #[inline]
    fn set_mut(&mut self, line: u64) -> &mut [Row] {
        let start = self.sets.start(line);
        &mut self.rows[start..start + self.sets.depth]
    }

    /// Whether there is a copy with this key.
    #[inline]
    pub fn holds(&self, key: u64) -> bool {
        let mut rows = self.set(key & LINE_MASK).iter();
        rows.any(|row| row.matches(key, u64::MAX) != 0)
    }

    /// Uses the copy with this key. Returns whether there is one.
    #[inline]
    pub fn touch(&mut self, key: u64) -> bool {
        let rows = self.set_mut(key & LINE_MASK);
        for last in 0..rows.len() {
            let ways = rows[last].matches(key, u64::MAX);
            if ways != 0 {
                let mut carry = key;
                for row in &mut rows[..last] {
                    carry = row.insert(carry, ROW - 1);
                }
                rows[last].insert(carry, ways.trailing_zeros() as usize);
                return true;
            }
        }
        false
    }

    /// Like [`touch`](Cache::touch), but faster if a set has at most one row and the host can predict where
    /// in it the key is.
    #[inline]
    pub fn promote(&mut self, key: u64) -> bool {
        if self.sets.depth > 1 {
            return self.touch(key);
        }
        let start = self.sets.start(key & LINE_MASK);
        let Some(Row(row)) = self.rows.get_mut(start) else {
            return false;
        };
        let mut carry = row[0];
        if carry == key {
            return true;
        }
        // Keys move down while the search goes on, which costs less than searching first.
        row[0] = key;
        for slot in &mut row[1..] {
            let next = std::mem::replace(slot, carry);
            if next == key {
                return true;
            }
            carry = next;
        }
        row.copy_within(1.., 0);
        row[ROW - 1] = carry;
        false
    }

    /// Puts a key first. A key that is equal to it under `identity` is replaced if there is one; otherwise
    /// the last key is evicted, and returned unless it is [`EMPTY`].
    #[inline]
    pub fn push(&mut self, key: u64, identity: u64) -> Option<u64> {
        let mut left = self.sets.ways;
        let mut carry = key;
        for row in self.set_mut(key & LINE_MASK) {
            let used = left.min(ROW);
            // Beyond the last way of a set its last row is empty.
            let ways = row.matches(key, identity) & ((1 << used) - 1);
            if ways != 0 {
                row.insert(carry, ways.trailing_zeros() as usize);
                return None;
            }
            carry = row.insert(carry, used - 1);
            left -= used;
        }
        (carry != EMPTY).then_some(carry)
    }

    fn position(&self, key: u64, identity: u64) -> Option<usize> {
        for (i, row) in self.set(key & LINE_MASK).iter().enumerate() {
            let used = (self.sets.ways - i * ROW).min(ROW);
            let ways = row.matches(key, identity) & ((1 << used) - 1);
            if ways != 0 {
                let way = ways.trailing_zeros() as usize;
                return (row.0[way] != EMPTY).then_some(i * ROW + way);
            }
        }
        None
    }

    /// Gives the copy with key `old` the key `new` of the same line, in its place. Returns whether
    /// there is one.
    pub fn rekey(&mut self, old: u64, new: u64) -> bool {
        let found = self.position(old, u64::MAX);
        if let Some(way) = found {
            self.set_mut(new & LINE_MASK)[way / ROW].0[way % ROW] = new;
        }
        found.is_some()
    }

    /// Removes the copy that is equal to `key` under `identity`. Returns whether there was one.
    pub fn remove(&mut self, key: u64, identity: u64) -> bool {
        let Some(way) = self.position(key, identity) else {
            return false;
        };
        let last = self.sets.ways - 1;
        let rows = self.set_mut(key & LINE_MASK);
        for i in way..last {
            rows[i / ROW].0[i % ROW] = rows[(i + 1) / ROW].0[(i + 1) % ROW];
        }
        rows[last / ROW].0[last % ROW] = EMPTY;
        true
    }

    /// The key of a copy of a line's set that is not valid; `Some(None)` if all are. `None` if the set has an empty way.
    pub fn invalid_in_full_set(
        &self,
        line: u64,
        is_valid: impl Fn(u64) -> bool,
    ) -> Option<Option<u64>> {
        let full = self.oldest(line) != EMPTY;
        full.then(|| self.keys(line).find(|&key| !is_valid(key)))
    }

    /// Removes all copies.
    pub fn clear(&mut self) {
        self.rows.fill(Row([EMPTY; ROW]));
    }

    /// Removes all copies, and returns their keys.
    pub fn drain(&mut self) -> Vec<u64> {
        let rows = self.rows.iter_mut();
        let keys = rows.flat_map(|row| std::mem::replace(&mut row.0, [EMPTY; ROW]));
        keys.filter(|&key| key != EMPTY).collect()
    }

    /// The keys of a line's set, most recently used first.
    pub fn keys(&self, line: u64) -> impl Iterator<Item = u64> {
        let rows = self.set(line).iter().flat_map(|row| row.0);
        rows.take(self.sets.ways).filter(|&slot| slot != EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::shape;
    use crate::memory::LINE_BITS;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Touch(u64),
        Promote(u64),
        Push(u64),
        Rekey(u64),
        Remove(u64),
        RemoveLine(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        // Few lines with few versions, so that they meet; the last line there is among them.
        let line = prop_oneof![9 => 0u64..300, 1 => Just(LINE_MASK)];
        let key = (line, 0u64..3).prop_map(|(line, version)| line | version << LINE_BITS);
        (key, 0..9u8).prop_map(|(key, kind)| match kind {
            0..2 => Op::Touch(key),
            2 => Op::Promote(key),
            3..6 => Op::Push(key),
            6 => Op::Rekey(key),
            7 => Op::Remove(key),
            _ => Op::RemoveLine(key),
        })
    }

    proptest! {
        /// Against vectors.
        #[test]
        fn agrees_with_vectors(
            sets in 0u32..5,
            ways in 1u32..=64,
            ops in proptest::collection::vec(op(), 0..600),
        ) {
            let sets = 1u64 << sets;
            let mut cache = Cache::new(shape(sets, ways));
            let mut model = vec![Vec::<u64>::new(); sets as usize];
            for op in ops {
                let (Op::Touch(key) | Op::Promote(key) | Op::Push(key) | Op::Rekey(key) | Op::Remove(key)
                    | Op::RemoveLine(key)) = op;
                let line = key & LINE_MASK;
                let set = &mut model[(line % sets) as usize];
                let same = set.iter().position(|&k| k == key);
                let of_line = set.iter().position(|&k| k & LINE_MASK == line);
                match op {
                    Op::Touch(_) | Op::Promote(_) => {
                        let found = match op {
                            Op::Promote(_) => cache.promote(key),
                            _ => cache.touch(key),
                        };
                        prop_assert_eq!(found, same.is_some());
                        if let Some(i) = same {
                            let key = set.remove(i);
                            set.insert(0, key);
                        }
                    }
                    Op::Push(_) => {
                        let victim = match of_line {
                            Some(i) => { set.remove(i); None }
                            None if set.len() == ways as usize => set.pop(),
                            None => None,
                        };
                        set.insert(0, key);
                        prop_assert_eq!(cache.push(key, LINE_MASK), victim);
                    }
                    Op::Rekey(_) => {
                        let new = key + (1 << LINE_BITS);
                        prop_assert_eq!(cache.rekey(key, new), same.is_some());
                        if let Some(i) = same {
                            set[i] = new;
                        }
                    }
                    Op::Remove(_) => {
                        prop_assert_eq!(cache.remove(key, u64::MAX), same.is_some());
                        same.map(|i| set.remove(i));
                    }
                    Op::RemoveLine(_) => {
                        prop_assert_eq!(cache.remove(key, LINE_MASK), of_line.is_some());
                        of_line.map(|i| set.remove(i));
                    }
                }
                prop_assert_eq!(cache.first(line), set.first().copied().unwrap_or(EMPTY));
                prop_assert_eq!(cache.keys(line).collect::<Vec<_>>(), set.clone());
                prop_assert_eq!(cache.holds(key), set.contains(&key));
            }
        }
    }

    #[test]
    #[should_panic(expected = "3 sets")]
    fn sets_are_a_power_of_two() {
        Cache::new(shape(3, 4));
    }

    #[test]
    #[should_panic(expected = "65 ways")]
    fn there_are_at_most_64_ways() {
        Cache::new(shape(4, 65));
    }
}
