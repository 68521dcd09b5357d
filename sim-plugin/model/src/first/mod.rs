//! The first level of data: a set-associative cache as [`crate::cache`] is, least recently used goes
//! first, and a *memo* in front of it, which finds a copy by the name that the driver has for its
//! line without looking at translations, sets or the directory.
//!
//! ```text
//!  name ──▶ memo ──hit──▶ stamp of the copy            (what nearly all accesses do)
//!             │ miss
//!             ▼
//!        translation, directory ──▶ set: keys, stamps ──▶ memo
//! ```
//!
//! Copies have stamps instead of an order: using one is one store. The least stamp of a set is that
//! of the copy that was used longest ago, 0 that of a way without a copy.
//!
//! An entry of the memo is a promise that its copy is in this level and good: a hit costs the
//! latency of this level and changes nothing but the stamp. Who owns this cache forgets entries when
//! that ends:
//!
//! | end | how |
//! |---|---|
//! | the copy leaves, or gets another key | here, by itself |
//! | another CPU changes the line's word in the directory | [`FirstLevel::forget_line`], see [`crate::disturb`] |
//! | the own CPU flushes or cleans the line | likewise |
//! | names stand for other lines | [`FirstLevel::forget_names`] |
//!
//! A copy has at most one entry, so that there is one to forget.

mod memo;
#[cfg(test)]
mod tests;

pub use memo::{Name, Promise};

use crate::cache::EMPTY;
use crate::config::CacheShape;
use crate::memory::LINE_MASK;
use crate::rows::{ROW, Row, Sets};
use memo::{Memo, SLOTS};

/// A slot of a cache: row and way.
type Slot = usize;

/// The least of a row of stamps, above the bits of [`PLACE`], and there its way.
#[inline(always)]
fn least(stamps: &[u64; ROW]) -> u64 {
    let mut least = u64::MAX;
    for (way, stamp) in stamps.iter().enumerate() {
        least = least.min(stamp << PLACE_BITS | way as u64);
    }
    least
}

/// Bits that tell the ways of a set apart.
const PLACE_BITS: u32 = 6;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
/// Stamp of a way that the set does not have.
const NEVER: u64 = u64::MAX >> PLACE_BITS;

/// A first level of data.
#[derive(Clone, Debug)]
pub struct FirstLevel {
    memo: Memo,
    /// By slot; those beyond [`SLOTS`] are in `far`.
    stamps: Box<[u64; SLOTS]>,
    uses: u64,
    /// The slot that was used last, other than by the memo.
    last: Slot,
    /// Where the line is that was looked for last, good or dead.
    alike: Option<Slot>,
    keys: Box<[Row]>,
    sets: Sets,
    far: Box<[u64]>,
}

impl FirstLevel {
    /// An empty cache.
    ///
    /// # Panics
    ///
    /// If the number of sets is not a power of two, or the number of ways is not 1 to 64.
    pub fn new(shape: CacheShape) -> Self {
        let sets = Sets::new(shape);
        let keys = sets.empty();
        let slots = keys.len() * ROW;
        let stamp = |slot: usize| match slot % (sets.rows_per_set() * ROW) < sets.ways {
            true => 0,
            false => NEVER,
        };
        let stamps = |slots: std::ops::Range<usize>| slots.map(stamp).collect::<Vec<u64>>();
        // Zeros that nobody looks at take no memory.
        let mut near = vec![0; SLOTS];
        let used = stamps(0..SLOTS.min(slots));
        near[..used.len()].copy_from_slice(&used);
        let near = near.into_boxed_slice().try_into();
        Self {
            memo: Memo::new(slots),
            stamps: near.expect("as many as there are"),
            far: stamps(SLOTS..slots.max(SLOTS)).into(),
            uses: 0,
            last: 0,
            alike: None,
            keys,
            sets,
        }
    }

    /// Uses a copy for which the memo has an entry that promises `WRITES` or not, if `unless` is 0.
    /// Returns whether that was so; otherwise nothing happens.
    #[inline(always)]
    pub fn recall<const WRITES: bool>(&mut self, name: Name, unless: u64) -> bool {
        let slot = self.memo.find::<WRITES>(name, unless);
        if let Some(slot) = slot {
            self.uses += 1;
            self.stamps[slot & (SLOTS - 1)] = self.uses;
        }
        slot.is_some()
    }

    /// The key of the copy that an access by this name would be taken for.
    pub fn remembered(&self, name: Name) -> Option<u64> {
        self.memo.remembered(name).map(|slot| self.key(slot))
    }

    /// How often copies have been used: by each access to data once.
    pub const fn uses(&self) -> u64 {
        self.uses
    }

    /// Remembers what the copy that was used last is called, if it has been found or put here and
    /// not by the memo.
    #[inline(always)]
    pub fn remember(&mut self, name: Name, promise: Promise) {
        self.memo.remember(name, self.last, promise);
    }

    /// Names stand for other lines from here on.
    pub fn forget_names(&mut self) {
        self.memo.clear();
    }

    /// Whether [`recall`](Self::recall) is to find nothing. What is remembered stays.
    pub fn hide_names(&mut self, hidden: bool) {
        self.memo.hide(hidden);
    }

    /// Forgets what the copies of a line, good or dead, are called.
    pub fn forget_line(&mut self, line: u64) {
        let start = self.sets.start(line);
        for row in 0..self.sets.depth {
            let mut ways = self.keys[start + row].matches(line, LINE_MASK);
            while ways != 0 {
                let slot = (start + row) * ROW + ways.trailing_zeros() as usize;
                self.memo.forget(slot);
                ways &= ways - 1;
            }
        }
    }

    #[inline(always)]
    fn stamp(&mut self, slot: Slot, stamp: u64) {
        match self.stamps.get_mut(slot) {
            Some(at) => *at = stamp,
            None => self.far[slot - SLOTS] = stamp,
        }
    }

    /// Stamps of the set that begins at a slot.
    #[inline(always)]
    fn stamps_from(&self, first: Slot) -> &[u64] {
        let slots = self.sets.depth * ROW;
        // A set is never in both.
        match self.stamps.get(first..first + slots) {
            Some(near) => near,
            None => &self.far[first - SLOTS..first - SLOTS + slots],
        }
    }

    /// The slot of the copy that is equal to `key` under `identity`.
    #[inline(always)]
    fn position(&self, key: u64, identity: u64) -> Option<Slot> {
        let start = self.sets.start(key & LINE_MASK);
        for row in start..start + self.sets.depth {
            let ways = self.keys.get(row)?.matches(key, identity);
            if ways != 0 {
                return Some(row * ROW + ways.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Whether there is a copy with this key.
    pub fn holds(&self, key: u64) -> bool {
        self.position(key, u64::MAX).is_some()
    }

    /// Uses the copy with this key if `good` says that it may be. Returns whether that was so. If not,
    /// [`fill`](Self::fill) may follow.
    #[inline(always)]
    pub fn touch(&mut self, key: u64, identity: u64, good: bool) -> bool {
        self.alike = self.same(key, identity);
        match self.alike {
            Some(slot) if good && self.key(slot) == key => {
                self.use_slot(slot);
                true
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn key(&self, slot: Slot) -> u64 {
        match self.keys.get(slot / ROW) {
            Some(row) => row.0[slot % ROW],
            None => EMPTY,
        }
    }

    #[inline(always)]
    fn use_slot(&mut self, slot: Slot) {
        self.last = slot;
        self.uses += 1;
        self.stamp(slot, self.uses);
    }

    /// Makes a copy with this key the one used last, after [`touch`](Self::touch) of the same line has
    /// not found one that is good. What was found instead gives its place up, and otherwise what was
    /// used longest ago does. [`remember`](Self::remember) must follow: what had this place may
    /// still be in the memo.
    #[inline(always)]
    pub fn fill(&mut self, key: u64) {
        let slot = match self.alike {
            Some(slot) => slot,
            None => self.oldest(key & LINE_MASK),
        };
        if let Some(row) = self.keys.get_mut(slot / ROW) {
            row.0[slot % ROW] = key;
        }
        self.use_slot(slot);
    }

    /// As [`position`](Self::position), where the key can be like no copy's.
    #[inline(always)]
    fn same(&self, key: u64, identity: u64) -> Option<Slot> {
        if key & LINE_MASK != LINE_MASK {
            return self.position(key, identity);
        }
        // A way without a copy looks like one of the last line there is.
        let first = self.sets.start(LINE_MASK) * ROW;
        (first..first + self.sets.ways).find(|slot| {
            let copy = self.keys[slot / ROW].0[slot % ROW];
            copy != EMPTY && (copy ^ key) & identity == 0
        })
    }

    /// The slot of a line's set that was used longest ago.
    #[inline(always)]
    fn oldest(&self, line: u64) -> Slot {
        let first = self.sets.start(line) * ROW;
        let (rows, _) = self.stamps_from(first).as_chunks::<ROW>();
        let oldest = rows
            .iter()
            .enumerate()
            .map(|(i, row)| least(row) + (i * ROW) as u64);
        // Stamps are different where they are not 0, so the place in the low bits decides nothing else.
        first + (oldest.fold(u64::MAX, u64::min) & PLACE) as usize
    }

    /// Gives the copy with key `old` the key `new` of the same line, in its place. Returns whether
    /// there is one.
    pub fn rekey(&mut self, old: u64, new: u64) -> bool {
        let slot = self.position(old, u64::MAX);
        if let Some(slot) = slot {
            self.memo.forget(slot);
            self.keys[slot / ROW].0[slot % ROW] = new;
        }
        slot.is_some()
    }

    /// Removes the copy that is equal to `key` under `identity`. Returns whether there was one.
    pub fn remove(&mut self, key: u64, identity: u64) -> bool {
        let slot = self.same(key, identity);
        if let Some(slot) = slot {
            self.memo.forget(slot);
            self.keys[slot / ROW].0[slot % ROW] = EMPTY;
            self.stamp(slot, 0);
        }
        slot.is_some()
    }

    /// The key of a copy of a line's set that is not valid; see [`crate::cache::Cache::invalid_in_full_set`].
    pub fn invalid_in_full_set(
        &self,
        line: u64,
        is_valid: impl Fn(u64) -> bool,
    ) -> Option<Option<u64>> {
        let first = self.sets.start(line) * ROW;
        let mut keys = (first..first + self.sets.ways).map(|slot| self.key(slot));
        let full = keys.clone().all(|key| key != EMPTY);
        full.then(|| keys.find(|&key| !is_valid(key)))
    }

    /// Removes all copies.
    pub fn clear(&mut self) {
        self.memo.clear();
        self.alike = None;
        for slot in 0..self.keys.len() * ROW {
            if std::mem::replace(&mut self.keys[slot / ROW].0[slot % ROW], EMPTY) != EMPTY {
                self.stamp(slot, 0);
            }
        }
    }

    /// The keys of a line's set, most recently used first.
    pub fn keys(&self, line: u64) -> Vec<u64> {
        let first = self.sets.start(line) * ROW;
        let stamps = self.stamps_from(first)[..self.sets.ways].iter();
        let mut copies: Vec<(u64, u64)> = stamps
            .enumerate()
            .map(|(way, &stamp)| (stamp, self.key(first + way)))
            .filter(|&(_, key)| key != EMPTY)
            .collect();
        copies.sort_unstable_by(|a, b| b.cmp(a));
        copies.into_iter().map(|(_, key)| key).collect()
    }

    /// What the memo promises: keys of copies.
    pub fn promises(&self) -> impl Iterator<Item = (u64, Promise)> {
        let promises = self.memo.promises();
        promises.map(|(slot, promise)| (self.key(slot), promise))
    }
}
