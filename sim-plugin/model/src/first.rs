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

use crate::cache::EMPTY;
use crate::config::CacheShape;
use crate::memory::LINE_MASK;

/// What the driver calls a line: the number of a virtual line, if accesses are to virtual addresses.
/// A name stands for one line until names are forgotten; a line may have several. The low 42 bits
/// tell names apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub u64);

/// What an entry of the memo promises of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It can be read.
    Read,
    /// It can be read and written: the line is this CPU's alone, and modified.
    Write,
}

/// Ways in a row.
const ROW: usize = 8;
/// A slot of [`FirstLevel`]: row and way.
type Slot = usize;

/// log2 of the number of entries of a memo.
const MEMO_BITS: u32 = 11;
const MEMO: usize = 1 << MEMO_BITS;
/// log2 of the number of slots that entries can name: copies in others have none.
const SLOT_BITS: u32 = 16;
const SLOTS: usize = 1 << SLOT_BITS;
/// Of an entry: the copy may be written.
const WRITE: u64 = 1 << SLOT_BITS;
/// Of an entry: when it was made. Entries of other generations are forgotten.
const GENERATION_SHIFT: u32 = SLOT_BITS + 1;
const GENERATION_BITS: u32 = 16;
const GENERATION: u64 = 1 << GENERATION_SHIFT;
/// Of an entry: the part of the name that its place does not tell.
const TAG_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;
const GENERATIONS: u64 = GENERATION << GENERATION_BITS;
/// No entry is made in this generation, the last.
const NOBODY: u64 = GENERATIONS - GENERATION;

const fn place(name: Name) -> usize {
    name.0 as usize & (MEMO - 1)
}

/// Keys, or stamps, of a set: one line of the host if there are no more than eight ways.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Row([u64; ROW]);

impl Row {
    /// The ways whose keys are equal to `key` under `identity`, as bits. Nothing here branches on
    /// where in a row something is, which looks random to the host.
    #[inline(always)]
    fn matches(&self, key: u64, identity: u64) -> u32 {
        let mut ways = 0;
        for (way, slot) in self.0.iter().enumerate() {
            ways |= u32::from((slot ^ key) & identity == 0) << way;
        }
        ways
    }
}

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
    memo: Box<[u64; MEMO]>,
    generation: u64,
    /// The same, or [`NOBODY`] while the memo is hidden.
    found: u64,
    /// By slot; those beyond [`SLOTS`] are in `far`.
    stamps: Box<[u64; SLOTS]>,
    uses: u64,
    /// The slot that was used last, other than by the memo.
    last: Slot,
    /// Where the line is that was looked for last, good or dead.
    alike: Option<Slot>,
    keys: Box<[Row]>,
    set_mask: u64,
    /// Log2 of the rows from a set to the next.
    stride: u32,
    /// Rows of a set that are in use.
    depth: usize,
    ways: usize,
    /// The place in the memo that had an entry for a slot last.
    entries: Box<[u16]>,
    far: Box<[u64]>,
}

impl FirstLevel {
    /// An empty cache.
    ///
    /// # Panics
    ///
    /// If the number of sets is not a power of two, or the number of ways is not 1 to 64.
    pub fn new(shape: CacheShape) -> Self {
        let sets = shape.sets();
        assert!(sets.is_power_of_two(), "{sets} sets");
        assert!((1..=64).contains(&shape.ways), "{} ways", shape.ways);
        let ways = shape.ways as usize;
        let depth = ways.div_ceil(ROW);
        let stride = depth.next_power_of_two().trailing_zeros();
        let rows = (sets as usize) << stride;
        let stamp = |slot: usize| match slot % (ROW << stride) < ways {
            true => 0,
            false => NEVER,
        };
        let stamps = |slots: std::ops::Range<usize>| slots.map(stamp).collect::<Vec<u64>>();
        Self {
            memo: Box::new([0; MEMO]),
            // No entry is of the generation before the first.
            generation: GENERATION,
            found: GENERATION,
            // Zeros that nobody looks at take no memory.
            stamps: {
                let mut near = vec![0; SLOTS];
                let used = stamps(0..SLOTS.min(rows * ROW));
                near[..used.len()].copy_from_slice(&used);
                near.into_boxed_slice()
                    .try_into()
                    .expect("as many as there are")
            },
            far: stamps(SLOTS..(rows * ROW).max(SLOTS)).into(),
            uses: 0,
            last: 0,
            alike: None,
            keys: vec![Row([EMPTY; ROW]); rows].into_boxed_slice(),
            set_mask: sets - 1,
            stride,
            depth,
            ways,
            entries: vec![0; rows * ROW].into_boxed_slice(),
        }
    }

    /// Uses a copy for which the memo has an entry that promises `WRITES` or not, if `unless` is 0.
    /// Returns whether that was so; otherwise nothing happens.
    #[inline(always)]
    pub fn recall<const WRITES: bool>(&mut self, name: Name, unless: u64) -> bool {
        let entry = self.memo[place(name)];
        let tag = name.0 >> MEMO_BITS << TAG_SHIFT | self.found;
        let other = match WRITES {
            true => (entry ^ tag ^ WRITE) >> SLOT_BITS,
            false => (entry ^ tag) >> GENERATION_SHIFT,
        };
        // One branch for both, which are nearly never so.
        let good = other | unless == 0;
        if good {
            self.uses += 1;
            self.stamps[entry as usize & (SLOTS - 1)] = self.uses;
        }
        good
    }

    /// The key of the copy that an access by this name would be taken for.
    pub fn remembered(&self, name: Name) -> Option<u64> {
        let entry = self.memo[place(name)];
        let tag = name.0 >> MEMO_BITS << TAG_SHIFT | self.generation;
        ((entry ^ tag) >> GENERATION_SHIFT == 0).then(|| self.key(entry as usize & (SLOTS - 1)))
    }

    /// How often copies have been used: by each access to data once.
    pub const fn uses(&self) -> u64 {
        self.uses
    }

    /// Remembers what the copy that was used last is called, if it has been found or put here and
    /// not by the memo.
    #[inline(always)]
    pub fn remember(&mut self, name: Name, promise: Promise) {
        let slot = self.last;
        if slot >= SLOTS {
            return;
        }
        self.forget_slot(slot);
        let write = match promise {
            Promise::Read => 0,
            Promise::Write => WRITE,
        };
        let tag = name.0 >> MEMO_BITS << TAG_SHIFT | self.generation;
        self.memo[place(name)] = tag | write | slot as u64;
        self.entries[slot] = place(name) as u16;
    }

    #[inline(always)]
    fn forget_slot(&mut self, slot: Slot) {
        let entry = &mut self.memo[self.entries[slot] as usize & (MEMO - 1)];
        // Since then, the place may have been taken for another copy.
        if *entry as usize & (SLOTS - 1) == slot {
            *entry = 0;
        }
    }

    /// Names stand for other lines from here on.
    pub fn forget_names(&mut self) {
        let hidden = self.found == NOBODY;
        self.generation += GENERATION;
        if self.generation == NOBODY {
            *self.memo = [0; MEMO];
            self.generation = GENERATION;
        }
        self.hide_names(hidden);
    }

    /// Whether [`recall`](Self::recall) is to find nothing. What is remembered stays.
    pub fn hide_names(&mut self, hidden: bool) {
        self.found = if hidden { NOBODY } else { self.generation };
    }

    /// Forgets what the copies of a line, good or dead, are called.
    pub fn forget_line(&mut self, line: u64) {
        let start = self.start(line);
        for row in 0..self.depth {
            let mut ways = self.keys[start + row].matches(line, LINE_MASK);
            while ways != 0 {
                let slot = (start + row) * ROW + ways.trailing_zeros() as usize;
                self.forget_slot(slot);
                ways &= ways - 1;
            }
        }
    }

    #[inline(always)]
    fn start(&self, line: u64) -> usize {
        ((line & self.set_mask) as usize) << self.stride
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
        let slots = self.depth * ROW;
        // A set is never in both.
        match self.stamps.get(first..first + slots) {
            Some(near) => near,
            None => &self.far[first - SLOTS..first - SLOTS + slots],
        }
    }

    /// The slot of the copy that is equal to `key` under `identity`.
    #[inline(always)]
    fn position(&self, key: u64, identity: u64) -> Option<Slot> {
        let start = self.start(key & LINE_MASK);
        for row in start..start + self.depth {
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
        let first = self.start(LINE_MASK) * ROW;
        (first..first + self.ways).find(|slot| {
            let copy = self.keys[slot / ROW].0[slot % ROW];
            copy != EMPTY && (copy ^ key) & identity == 0
        })
    }

    /// The slot of a line's set that was used longest ago.
    #[inline(always)]
    fn oldest(&self, line: u64) -> Slot {
        let first = self.start(line) * ROW;
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
            self.forget_slot(slot);
            self.keys[slot / ROW].0[slot % ROW] = new;
        }
        slot.is_some()
    }

    /// Removes the copy that is equal to `key` under `identity`. Returns whether there was one.
    pub fn remove(&mut self, key: u64, identity: u64) -> bool {
        let slot = self.same(key, identity);
        if let Some(slot) = slot {
            self.forget_slot(slot);
            self.keys[slot / ROW].0[slot % ROW] = EMPTY;
            self.stamp(slot, 0);
        }
        slot.is_some()
    }

    /// The keys of a line's set, most recently used first.
    pub fn keys(&self, line: u64) -> Vec<u64> {
        let first = self.start(line) * ROW;
        let stamps = self.stamps_from(first)[..self.ways].iter();
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
        let valid =
            |entry: &&u64| (**entry & (GENERATIONS - 1)) & !(GENERATION - 1) == self.generation;
        self.memo.iter().filter(valid).map(|entry| {
            let slot = *entry as usize & (SLOTS - 1);
            let promise = match entry & WRITE {
                0 => Promise::Read,
                _ => Promise::Write,
            };
            (self.keys[slot / ROW].0[slot % ROW], promise)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LINE_BYTES;
    use crate::memory::LINE_BITS;
    use proptest::prelude::*;

    fn shape(sets: u64, ways: u32) -> CacheShape {
        CacheShape {
            size: sets * u64::from(ways) * LINE_BYTES,
            ways,
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// Looks for a key, which may be good, and fills it in if it is not there.
        Access(u64, bool, Promise),
        Recall(u64, bool),
        Rekey(u64),
        Remove(u64),
        RemoveLine(u64),
        ForgetLine(u64),
        ForgetNames,
    }

    fn op() -> impl Strategy<Value = Op> {
        // Few lines with few versions, so that they meet; the last line there is among them.
        let line = prop_oneof![9 => 0u64..300, 1 => Just(LINE_MASK)];
        let key = (line, 0u64..3).prop_map(|(line, version)| line | version << LINE_BITS);
        (key, 0..64u8, any::<bool>()).prop_map(|(key, kind, flag)| match kind {
            0..20 => Op::Access(key, flag, Promise::Read),
            20..30 => Op::Access(key, true, Promise::Write),
            30..54 => Op::Recall(key, flag),
            54..57 => Op::Rekey(key),
            57..59 => Op::Remove(key),
            59..61 => Op::RemoveLine(key),
            61..63 => Op::ForgetLine(key),
            _ => Op::ForgetNames,
        })
    }

    proptest! {
        /// Against vectors of keys and promises, most recently used first. (Names are lines here, and
        /// so few that no two of them have the same place; the last line has one by itself.)
        #[test]
        fn agrees_with_vectors(
            sets in 0u32..5,
            ways in 1u32..=64,
            ops in proptest::collection::vec(op(), 0..600),
        ) {
            let sets = 1u64 << sets;
            let mut cache = FirstLevel::new(shape(sets, ways));
            let mut model = vec![Vec::<(u64, Option<Promise>)>::new(); sets as usize];
            let mut uses = 0;
            for op in ops {
                if let Op::ForgetNames = op {
                    cache.forget_names();
                    model.iter_mut().flatten().for_each(|copy| copy.1 = None);
                    continue;
                }
                let (Op::Access(key, ..) | Op::Recall(key, _) | Op::Rekey(key) | Op::Remove(key)
                    | Op::RemoveLine(key) | Op::ForgetLine(key)) = op else { unreachable!() };
                let line = key & LINE_MASK;
                let set = &mut model[(line % sets) as usize];
                let same = set.iter().position(|&(k, _)| k == key);
                let of_line = set.iter().position(|&(k, _)| k & LINE_MASK == line);
                match op {
                    Op::Access(_, good, promise) => {
                        uses += 1;
                        let found = cache.touch(key, LINE_MASK, good);
                        prop_assert_eq!(found, good && same.is_some());
                        if !found {
                            cache.fill(key);
                        }
                        cache.remember(Name(line), promise);
                        match of_line {
                            Some(i) => { set.remove(i); }
                            None if set.len() == ways as usize => { set.pop(); }
                            None => {}
                        }
                        set.insert(0, (key, Some(promise)));
                    }
                    Op::Recall(_, write) => {
                        let good = of_line.filter(|&i| match set[i].1 {
                            None => false,
                            Some(Promise::Read) => !write,
                            Some(Promise::Write) => true,
                        });
                        prop_assert!(!cache.recall::<true>(Name(line), 1));
                        let found = match write {
                            true => cache.recall::<true>(Name(line), 0),
                            false => cache.recall::<false>(Name(line), 0),
                        };
                        prop_assert_eq!(found, good.is_some());
                        if let Some(i) = good {
                            uses += 1;
                            let copy = set.remove(i);
                            set.insert(0, copy);
                        }
                    }
                    Op::Rekey(_) => {
                        let new = key + (1 << LINE_BITS);
                        prop_assert_eq!(cache.rekey(key, new), same.is_some());
                        if let Some(i) = same {
                            set[i] = (new, None);
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
                    Op::ForgetLine(_) => {
                        cache.forget_line(line);
                        if let Some(i) = of_line {
                            set[i].1 = None;
                        }
                    }
                    Op::ForgetNames => unreachable!(),
                }
                let keys = set.iter().map(|&(key, _)| key).collect::<Vec<_>>();
                prop_assert_eq!(cache.keys(line), keys);
                prop_assert_eq!(cache.holds(key), set.iter().any(|&(k, _)| k == key));
                prop_assert_eq!(cache.uses(), uses);
                let mut promised = cache.promises().collect::<Vec<_>>();
                let all = model.iter().flatten();
                let mut expected = all.filter_map(|&(k, p)| Some((k, p?))).collect::<Vec<_>>();
                promised.sort_unstable_by_key(|&(key, _)| key);
                expected.sort_unstable_by_key(|&(key, _)| key);
                prop_assert_eq!(promised, expected);
            }
        }
    }

    #[test]
    fn no_promise_survives_however_often_names_are_forgotten() {
        let mut cache = FirstLevel::new(shape(4, 4));
        for i in 0..3 * (1 << GENERATION_BITS) {
            assert!(!cache.recall::<false>(Name(7), 0));
            if !cache.touch(7, LINE_MASK, true) {
                cache.fill(7);
            }
            // Some stay while others are made and forgotten.
            if i % (1 << (GENERATION_BITS - 1)) == 0 {
                cache.remember(Name(7), Promise::Write);
                assert!(cache.recall::<true>(Name(7), 0));
            }
            cache.forget_names();
        }
    }

    #[test]
    fn what_is_hidden_is_remembered_and_forgotten_all_the_same() {
        let mut cache = FirstLevel::new(shape(4, 4));
        cache.hide_names(true);
        assert!(!cache.touch(0, LINE_MASK, true));
        cache.fill(0);
        cache.remember(Name(0), Promise::Write);
        for name in [0, 1, 2047, 1 << 41] {
            assert!(!cache.recall::<false>(Name(name), 0));
            assert!(!cache.recall::<true>(Name(name), 0));
        }
        cache.hide_names(false);
        assert!(cache.recall::<true>(Name(0), 0));
        cache.hide_names(true);
        cache.forget_names();
        cache.hide_names(false);
        assert!(!cache.recall::<false>(Name(0), 0));
    }

    #[test]
    fn names_that_share_a_place_and_names_of_one_copy_are_told_apart() {
        let mut cache = FirstLevel::new(shape(64, 8));
        let far = |i: u64| Name(5 + i * MEMO as u64);
        for line in [5, 6] {
            assert!(!cache.touch(line, LINE_MASK, true));
            cache.fill(line);
            cache.remember(far(line), Promise::Read);
        }
        // The second took the place of the first.
        assert!(!cache.recall::<false>(far(5), 0));
        assert!(cache.recall::<false>(far(6), 0));
        assert!(!cache.recall::<true>(far(6), 0));
        // Only the last name of a copy is remembered.
        assert!(cache.touch(6, LINE_MASK, true));
        cache.remember(Name(100), Promise::Write);
        assert!(!cache.recall::<false>(far(6), 0));
        assert!(cache.recall::<true>(Name(100), 0));
        assert!(!cache.recall::<true>(Name(100 | 1 << 41), 0));
    }

    /// More copies than entries can name.
    #[test]
    fn a_large_first_level_works_with_what_it_remembers() {
        let mut cache = FirstLevel::new(shape(1 << 14, 8));
        let line = |i: u64| i * 5 % (1 << 17);
        for i in 0..1 << 17 {
            assert!(!cache.touch(line(i), LINE_MASK, true));
            cache.fill(line(i));
            cache.remember(Name(line(i)), Promise::Read);
        }
        let found = (0..1 << 17).filter(|&i| cache.touch(line(i), LINE_MASK, true));
        assert_eq!(found.count(), 1 << 17);
        assert!(cache.promises().count() > 0);
        for (key, _) in cache.clone().promises() {
            assert_eq!(cache.remembered(Name(key)), Some(key));
            assert!(cache.recall::<false>(Name(key), 0));
        }
    }

    #[test]
    #[should_panic(expected = "3 sets")]
    fn sets_are_a_power_of_two() {
        FirstLevel::new(shape(3, 4));
    }
}
