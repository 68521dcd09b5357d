//! Keys in buckets.

use alloc::vec;
use alloc::vec::Vec;

use super::{Class, KEYS_PER_POINT};

impl Class {
    /// log2 of the number of buckets.
    const fn buckets(self) -> u32 {
        match self {
            Class::S => 9,
            Class::W | Class::A => 10,
        }
    }
}

/// The keys, with those of a bucket behind each other.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    /// By how much a key is shifted to the right to give the number of its bucket.
    shift: u32,
    /// Where the next key of each bucket goes.
    next: Vec<u32>,
    keys: Vec<u32>,
}

impl Buckets {
    /// By how much a key is shifted to the right to give the number of its bucket.
    pub(super) const fn shift_of(class: Class) -> u32 {
        class.max_key().ilog2() - class.buckets()
    }

    /// Keys that others have put into their buckets.
    pub(super) const fn of(keys: Vec<u32>) -> Buckets {
        Buckets {
            shift: 0,
            next: Vec::new(),
            keys,
        }
    }

    pub(super) fn new(class: Class, keys: &[u32]) -> Buckets {
        Buckets {
            shift: Buckets::shift_of(class),
            next: vec![0; 1 << class.buckets()],
            keys: vec![0; keys.len()],
        }
    }

    /// Puts the keys into their buckets; calls `point` at regular intervals.
    pub(super) fn fill(&mut self, keys: &[u32], point: &mut impl FnMut()) -> &[u32] {
        let bucket = |key: u32| (key >> self.shift) as usize;
        self.next.fill(0);
        for keys in keys.chunks(KEYS_PER_POINT) {
            point();
            for &key in keys {
                self.next[bucket(key)] += 1;
            }
        }
        let mut first = 0;
        for next in &mut self.next {
            first += core::mem::replace(next, first);
        }
        for keys in keys.chunks(KEYS_PER_POINT) {
            point();
            for &key in keys {
                let next = &mut self.next[bucket(key)];
                if let Some(place) = self.keys.get_mut(*next as usize) {
                    *place = key;
                }
                *next += 1;
            }
        }
        &self.keys
    }

    /// The keys in their buckets.
    pub(super) fn keys(&self) -> &[u32] {
        &self.keys
    }

    /// Whether those are the same keys, each as often.
    pub(super) fn are_all_in(&self, keys: &[u32]) -> bool {
        sum(&self.keys) == sum(keys)
    }
}

/// A sum that does not depend on the order.
fn sum(keys: &[u32]) -> u64 {
    let mixed = keys.iter().map(|&key| {
        let x = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ x >> 32
    });
    mixed.fold(0, u64::wrapping_add)
}
