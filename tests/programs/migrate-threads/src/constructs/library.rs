//! Migration points in callbacks of `core` and `alloc`.

extern crate alloc;

use core::cell::RefCell;
use core::cmp::Ordering;
use core::fmt;
use core::fmt::Write;

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use alloc::rc::Rc;

use dyad::prelude::thread::*;

use super::{Line, mix};
use crate::schedule::point;

fn numbers(count: u64) -> Vec<u64> {
    (0..count).map(|i| mix(i, 17) >> 40).collect()
}

fn hash_of(values: &[u64]) -> u64 {
    values.iter().fold(0, |h, v| mix(h, *v))
}

/// Sorting with comparisons that pass points: stable, unstable, by key, and a binary search.
pub fn sorting() -> Line {
    let compare = |a: &u64, b: &u64| -> Ordering {
        point();
        a.cmp(b)
    };
    let mut stable = numbers(70);
    stable.sort_by(compare);
    let mut unstable = numbers(70);
    unstable.sort_unstable_by(compare);
    let mut texts: Vec<String> = numbers(25).iter().map(u64::to_string).collect();
    texts.sort_by_cached_key(|t| {
        point();
        (t.len(), t.clone())
    });
    let found = stable.binary_search_by(|v| {
        point();
        v.cmp(&unstable[33])
    });
    let good = stable == unstable
        && stable.is_sorted()
        && texts.is_sorted_by_key(|t| t.parse::<u64>().unwrap_or(0))
        && found == Ok(33);
    let hash = mix(hash_of(&stable), texts.iter().map(|t| t.len() as u64).sum());
    ("sorting", if good { Ok(hash) } else { Err("an order") })
}

/// A key whose comparison passes a point.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key(String);

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        point();
        self.0.len().cmp(&other.0.len()).then(self.0.cmp(&other.0))
    }
}

/// Maps, sets, heaps and queues that are changed on whatever ISA.
pub fn collections() -> Line {
    let mut map = BTreeMap::new();
    for (i, n) in numbers(40).into_iter().enumerate() {
        map.entry(Key(n.to_string())).or_insert_with(|| {
            point();
            Vec::new()
        });
        if let Some(list) = map.get_mut(&Key(n.to_string())) {
            list.push(i as u64);
        }
    }
    let smallest = map.pop_first().map(|(k, _)| k);
    map.retain(|k, _| {
        point();
        k.0.len() % 2 == 0
    });
    let set: BTreeSet<Key> = map.keys().cloned().collect();
    let mut heap: BinaryHeap<Key> = set.iter().cloned().collect();
    let mut queue = VecDeque::new();
    while let Some(key) = heap.pop() {
        point();
        queue.push_front(key);
    }
    let shared = Rc::new(RefCell::new(Vec::new()));
    let keep = shared.clone();
    queue.iter().for_each(|k| {
        point();
        keep.borrow_mut().push(k.0.len() as u64);
    });
    let good = set.iter().eq(queue.iter()) && smallest.is_some() && Rc::strong_count(&shared) == 2;
    let mut hash = hash_of(&shared.borrow());
    for (k, v) in &map {
        hash = mix(hash, hash_of(v) ^ k.0.len() as u64);
    }
    ("collections", if good { Ok(hash) } else { Err("an entry") })
}

/// Something whose text is made on two ISAs.
struct Slow<'a>(&'a [u64]);

impl fmt::Display for Slow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, v) in self.0.iter().enumerate() {
            point();
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{v:#06x}")?;
        }
        f.write_str("]")
    }
}

/// Formatting that passes points in the middle of a text.
pub fn formatting() -> Line {
    let values = [1, 20, 300, 4000];
    let mut text = String::new();
    let written = write!(
        text,
        "{:>8}|{}|{:?}|{:.3}",
        "a",
        Slow(&values),
        Some(5u8),
        2.5f64
    );
    let expected = "       a|[0x0001, 0x0014, 0x012c, 0x0fa0]|Some(5)|2.500";
    println!("{:<14} {}", "display", Slow(&values));
    let hash = text.bytes().fold(0, |h, b| mix(h, b.into()));
    let good = written.is_ok() && text == expected;
    ("formatting", if good { Ok(hash) } else { Err("a text") })
}
