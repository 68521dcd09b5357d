//! The last level of cache: one CPU's own, or in memory that several CPUs share, which can be
//! threads of one process or processes that map the same file.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::{Cache, EMPTY};
use crate::config::CacheShape;
use crate::memory::LINE_MASK;

/// How often a CPU finds the same lock taken, yielding each time, before it takes it away. A CPU holds a lock
/// for less than a microsecond of its own time; even on a crowded host it runs again before the others have
/// yielded so many times.
const PATIENCE: u32 = 1 << 16;
/// How many of these are spins that do not yield.
const SPINS: u32 = 64;
/// Keys are stored inverted, so that fresh memory is an empty cache.
const VACANT: u64 = !EMPTY;

/// A cache in words that several CPUs share. Semantics are those of [`Cache`].
///
/// Every set has a lock. A process that is killed while it holds one leaves a row of keys that are
/// all good, of which one may be missing or be there twice; the next one takes the lock away after
/// a bound and repairs that.
#[derive(Debug)]
pub struct SharedCache<'a> {
    words: &'a [AtomicU64],
    set_mask: u64,
    /// Words from a set to the next: the lock, the ways, padding to lines of the host.
    stride: usize,
    ways: usize,
    /// The value of the lock while this CPU holds it: its number, and above that how often it has held the
    /// lock.
    ticket: u64,
    patience: u32,
    /// Locks taken away from others.
    stolen: u64,
}

/// Bits of a ticket that hold the number of the CPU.
const WHO_BITS: u32 = 16;

impl<'a> SharedCache<'a> {
    const fn stride(ways: u32) -> usize {
        (ways as usize + 1).next_multiple_of(8)
    }

    /// Number of words that a cache of this shape needs. They are zero at first.
    pub const fn words(shape: CacheShape) -> usize {
        shape.sets() as usize * Self::stride(shape.ways)
    }

    /// The cache in `words`, for CPU `who`, a number that no other CPU of the cache has.
    ///
    /// # Panics
    ///
    /// If there are too few words, the number of sets is not a power of two, or the number of ways
    /// is not 1 to 64.
    pub fn new(shape: CacheShape, words: &'a [AtomicU64], who: u16) -> Self {
        let sets = shape.sets();
        assert!(sets.is_power_of_two(), "{sets} sets");
        assert!((1..=64).contains(&shape.ways), "{} ways", shape.ways);
        assert!(words.len() >= Self::words(shape), "{} words", words.len());
        Self {
            words,
            set_mask: sets - 1,
            stride: Self::stride(shape.ways),
            ways: shape.ways as usize,
            ticket: u64::from(who) + 1,
            patience: PATIENCE,
            stolen: 0,
        }
    }

    /// Locks that were taken away from others, which were killed or did not run for long.
    pub const fn stolen(&self) -> u64 {
        self.stolen
    }

    /// Does something with the row of a line's set, which nobody else changes meanwhile.
    fn with<T>(&mut self, line: u64, action: impl FnOnce(&[AtomicU64]) -> T) -> T {
        let start = (line & self.set_mask) as usize * self.stride;
        let lock = &self.words[start];
        let row = &self.words[start + 1..=start + self.ways];
        self.ticket = self.ticket.wrapping_add(1 << WHO_BITS);
        if acquire(lock, self.ticket, self.patience) {
            self.stolen += 1;
            repair(row);
        }
        let result = action(row);
        // Somebody may have run out of patience, and then it is theirs.
        let _ = lock.compare_exchange(self.ticket, 0, Ordering::Release, Ordering::Relaxed);
        result
    }
}

/// Takes a lock. Returns whether the lock had to be taken away from another CPU.
fn acquire(lock: &AtomicU64, ticket: u64, patience: u32) -> bool {
    let mut tries = 0;
    let mut holder = 0;
    loop {
        match lock.compare_exchange_weak(0, ticket, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return false,
            Err(now) if now != holder => (holder, tries) = (now, 0),
            Err(0) => {}
            Err(_) if tries >= patience => {
                let taken =
                    lock.compare_exchange(holder, ticket, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return true;
                }
            }
            Err(_) => {
                tries += 1;
                if tries < SPINS {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            }
        }
    }
}

fn get(slot: &AtomicU64) -> u64 {
    !slot.load(Ordering::Relaxed)
}

fn set(slot: &AtomicU64, key: u64) {
    slot.store(!key, Ordering::Relaxed);
}

/// Makes a row of a holder that vanished good again: every key once, vacant ways at the end.
fn repair(row: &[AtomicU64]) {
    let mut kept = Vec::with_capacity(row.len());
    for key in row.iter().map(get) {
        if key != EMPTY && !kept.contains(&key) {
            kept.push(key);
        }
    }
    kept.resize(row.len(), EMPTY);
    row.iter().zip(kept).for_each(|(slot, key)| set(slot, key));
}

fn position(row: &[AtomicU64], key: u64, identity: u64) -> Option<usize> {
    row.iter().position(|slot| {
        let slot = get(slot);
        slot != EMPTY && (slot ^ key) & identity == 0
    })
}

fn push(row: &[AtomicU64], key: u64, identity: u64) -> Option<u64> {
    let mut carry = key;
    for slot in row {
        let old = get(slot);
        set(slot, carry);
        carry = old;
        if (carry ^ key) & identity == 0 {
            return None;
        }
    }
    (carry != EMPTY).then_some(carry)
}

/// A last level. See [`Cache`] for what the functions do.
#[derive(Debug)]
pub enum LastLevel<'a> {
    /// Of one CPU.
    Own(Cache),
    /// Of several.
    Shared(SharedCache<'a>),
}

impl LastLevel<'_> {
    /// Whether there is a copy with this key.
    pub fn holds(&mut self, key: u64) -> bool {
        match self {
            Self::Own(cache) => cache.holds(key),
            Self::Shared(cache) => cache.with(key & LINE_MASK, |row| {
                position(row, key, u64::MAX).is_some()
            }),
        }
    }

    /// The key that goes next when a line is put into its full set. A guess, where other CPUs change the set.
    #[inline(always)]
    pub fn oldest(&self, line: u64) -> u64 {
        match self {
            Self::Own(cache) => cache.oldest(line),
            Self::Shared(cache) => {
                let start = (line & cache.set_mask) as usize * cache.stride;
                cache.words.get(start + cache.ways).map_or(EMPTY, get)
            }
        }
    }

    /// Uses the copy with this key. Returns whether there is one.
    pub fn touch(&mut self, key: u64) -> bool {
        match self {
            Self::Own(cache) => cache.touch(key),
            Self::Shared(cache) => cache.with(key & LINE_MASK, |row| {
                let found = position(row, key, u64::MAX).is_some();
                if found {
                    push(row, key, u64::MAX);
                }
                found
            }),
        }
    }

    /// Puts a key first; see [`Cache::push`].
    pub fn push(&mut self, key: u64, identity: u64) -> Option<u64> {
        match self {
            Self::Own(cache) => cache.push(key, identity),
            Self::Shared(cache) => cache.with(key & LINE_MASK, |row| push(row, key, identity)),
        }
    }

    /// Gives a copy another key in its place; see [`Cache::rekey`].
    pub fn rekey(&mut self, old: u64, new: u64) -> bool {
        match self {
            Self::Own(cache) => cache.rekey(old, new),
            Self::Shared(cache) => cache.with(old & LINE_MASK, |row| {
                let way = position(row, old, u64::MAX);
                if let Some(way) = way {
                    set(&row[way], new);
                }
                way.is_some()
            }),
        }
    }

    /// Removes a copy; see [`Cache::remove`].
    pub fn remove(&mut self, key: u64, identity: u64) -> bool {
        match self {
            Self::Own(cache) => cache.remove(key, identity),
            Self::Shared(cache) => cache.with(key & LINE_MASK, |row| {
                let Some(way) = position(row, key, identity) else {
                    return false;
                };
                // From the hole to the end, so that whoever is killed here leaves a key twice.
                for pair in row[way..].windows(2) {
                    set(&pair[0], get(&pair[1]));
                }
                row[row.len() - 1].store(VACANT, Ordering::Relaxed);
                true
            }),
        }
    }

    /// The key of a copy that is not valid; see [`Cache::invalid_in_full_set`].
    pub fn invalid_in_full_set(
        &self,
        line: u64,
        is_valid: impl Fn(u64) -> bool,
    ) -> Option<Option<u64>> {
        match self {
            Self::Own(cache) => cache.invalid_in_full_set(line, is_valid),
            Self::Shared(cache) => {
                let start = (line & cache.set_mask) as usize * cache.stride;
                // Without the lock: a key that is missed for once is found by the next fill.
                let row = &cache.words[start + 1..=start + cache.ways];
                let mut keys = row.iter().map(get);
                let full = keys.clone().all(|key| key != EMPTY);
                full.then(|| keys.find(|&key| !is_valid(key)))
            }
        }
    }

    /// Removes all copies, and returns their keys.
    pub fn drain(&mut self) -> Vec<u64> {
        match self {
            Self::Own(cache) => cache.drain(),
            Self::Shared(cache) => {
                let mut keys = Vec::new();
                for set in 0..=cache.set_mask {
                    cache.with(set, |row| {
                        let copies = row.iter().map(get).filter(|&key| key != EMPTY);
                        keys.extend(copies);
                        // Ways without a copy are at the end, also if this CPU is killed here.
                        let ways = row.iter().rev();
                        ways.for_each(|slot| slot.store(VACANT, Ordering::Relaxed));
                    });
                }
                keys
            }
        }
    }

    /// Locks that were taken away from others.
    pub const fn stolen(&self) -> u64 {
        match self {
            Self::Own(_) => 0,
            Self::Shared(cache) => cache.stolen(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::shape;
    use proptest::prelude::*;

    fn zeros(shape: CacheShape) -> Vec<AtomicU64> {
        let words = 0..SharedCache::words(shape);
        words.map(|_| AtomicU64::new(0)).collect()
    }

    proptest! {
        /// In shared memory it is the same cache.
        #[test]
        fn shared_is_like_own(
            sets in 0u32..4,
            ways in 1u32..=64,
            ops in proptest::collection::vec((0..200u8, 0..200u64, 0..3u64), 0..400),
        ) {
            let shape = shape(1 << sets, ways);
            let words = zeros(shape);
            let mut shared = LastLevel::Shared(SharedCache::new(shape, &words, 7));
            let mut own = LastLevel::Own(Cache::new(shape));
            for (what, line, version) in ops {
                let key = line | version << crate::memory::LINE_BITS;
                let new = line | 5 << crate::memory::LINE_BITS;
                if what == 0 {
                    let [mut a, mut b] = [&mut shared, &mut own].map(LastLevel::drain);
                    a.sort_unstable();
                    b.sort_unstable();
                    prop_assert_eq!(a, b);
                }
                let [a, b] = [&mut shared, &mut own].map(|cache| match what % 5 {
                    0 => (cache.holds(key), None),
                    1 => (cache.touch(key), None),
                    2 => (false, cache.push(key, LINE_MASK)),
                    3 => (cache.rekey(key, new), None),
                    _ => (cache.remove(key, LINE_MASK), None),
                });
                prop_assert_eq!(a, b);
            }
            prop_assert_eq!(shared.stolen(), 0);
            // All locks are free.
            let mut locks = words.iter().step_by(SharedCache::stride(ways));
            prop_assert!(locks.all(|lock| lock.load(Ordering::Relaxed) == 0));
        }
    }

    /// A process was killed while it held a lock and had moved half of a row.
    #[test]
    fn a_lock_whose_holder_is_gone_is_taken_away_and_its_row_repaired() {
        let shape = shape(1, 4);
        let words = zeros(shape);
        let mut victim = LastLevel::Shared(SharedCache::new(shape, &words, 1));
        for key in [4, 3, 2, 1] {
            victim.push(key, LINE_MASK);
        }
        // The row is 1 2 3 4; removing 2 has come to 1 3 3 4.
        let row = &words[1..5];
        set(&row[1], 3);
        words[0].store(0xDEAD, Ordering::Relaxed);

        let mut cache = SharedCache::new(shape, &words, 2);
        cache.patience = 100;
        let mut cache = LastLevel::Shared(cache);
        assert!(cache.touch(4));
        assert_eq!(cache.stolen(), 1);
        let keys = row.iter().map(get).collect::<Vec<_>>();
        assert_eq!(keys, [4, 1, 3, EMPTY]);
        assert_eq!(words[0].load(Ordering::Relaxed), 0, "and it is free again");
        assert_eq!(cache.push(5, LINE_MASK), None);
        assert_eq!(cache.push(6, LINE_MASK), Some(3));
        assert_eq!(cache.stolen(), 1);
    }

    /// A CPU that has lost its lock does not free the lock of the CPU that took it away.
    #[test]
    fn a_lock_is_freed_by_its_holder_only() {
        let shape = shape(1, 4);
        let words = zeros(shape);
        let mut slow = SharedCache::new(shape, &words, 1);
        slow.with(0, |_| {
            assert!(acquire(&words[0], 0xBEEF, 10));
        });
        assert_eq!(words[0].load(Ordering::Relaxed), 0xBEEF);
    }

    /// A CPU that waits for CPUs that take turns does not take the lock away.
    #[test]
    fn a_lock_that_changes_hands_is_not_taken_away() {
        let shape = shape(1, 4);
        let words = zeros(shape);
        let stolen = std::thread::scope(|scope| {
            let cpus = (0..4).map(|who| {
                let mut cache = LastLevel::Shared(SharedCache::new(shape, &words, who));
                scope.spawn(move || {
                    for i in 0..20_000 {
                        cache.push(i % 7, LINE_MASK);
                    }
                    cache.stolen()
                })
            });
            let cpus = cpus.collect::<Vec<_>>();
            cpus.into_iter().map(|cpu| cpu.join().unwrap()).sum::<u64>()
        });
        assert_eq!(stolen, 0);
        let mut keys = words[1..5].iter().map(get).collect::<Vec<_>>();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4, "every key once");
    }
}
