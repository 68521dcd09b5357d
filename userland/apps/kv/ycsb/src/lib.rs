//! Requests to a store of keys and values, as the Yahoo! Cloud Serving Benchmark makes them (B. Cooper et al., "Benchmarking cloud
//! serving systems with YCSB", SoCC '10).
//!
//! | [`Mix`] | requests | which items |
//! |---|---|---|
//! | A | half gets, half puts | zipfian |
//! | B | 95 % gets, 5 % puts | zipfian |
//! | C | gets | zipfian |
//! | D | 95 % gets, 5 % inserts | the newest most often |
//! | F | half gets, half read-modify-writes | zipfian |
//! | `Updates(n)` | n % puts, gets otherwise | zipfian |
//!
//! Items may be drawn uniformly instead. The same seed gives the same requests on every ISA.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod zipf;

use dyad_random::{SplitMix64, mix};
pub use zipf::{THETA, Zipf, zeta};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Updates heavily.
    A,
    /// Mostly reads.
    B,
    /// Only reads.
    C,
    /// Reads what is newest.
    D,
    /// Reads, then changes what was read.
    F,
    /// Puts, in percent, up to 100; else gets.
    Updates(u8),
}

/// Which items are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Some items much more often than others, all over the table.
    Zipfian,
    /// All alike.
    Uniform,
}

/// A request for item `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reads.
    Get(u64),
    /// Writes.
    Put(u64),
    /// Writes an item that there has not been.
    Insert(u64),
    /// Reads, then writes something that depends on it.
    ReadModifyWrite(u64),
}

impl Request {
    /// The item.
    pub const fn item(self) -> u64 {
        let (Request::Get(n) | Request::Put(n) | Request::Insert(n) | Request::ReadModifyWrite(n)) =
            self;
        n
    }
}

/// The key of an item: `user` and twelve digits.
///
/// # Panics
///
/// If there are more than 10^12 items.
pub fn key(item: u64) -> [u8; 16] {
    assert!(item < 1_000_000_000_000, "item {item}");
    let mut key = *b"user000000000000";
    let mut rest = item;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// One client's requests.
#[derive(Clone, Debug)]
pub struct Load {
    mix: Mix,
    choice: Choice,
    random: SplitMix64,
    zipf: Zipf,
    /// Items that there are, as far as this client knows.
    items: u64,
    /// By how much the numbers of items that this client inserts differ.
    clients: u64,
    /// The item that it inserts next.
    next: u64,
}

impl Load {
    /// The requests of client `client` of `clients`, on a store with `items` items, which are at least 2.
    pub fn new(
        mix_of: Mix,
        choice: Choice,
        items: u64,
        (client, clients): (u64, u64),
        seed: u64,
    ) -> Load {
        let items = items.max(2);
        Load {
            mix: mix_of,
            choice,
            random: SplitMix64(mix(seed) ^ mix(client + 1)),
            zipf: Zipf::new(items, THETA),
            items,
            clients: clients.max(1),
            next: items + client,
        }
    }

    /// A number from 0 on that is below 1.
    fn part(&mut self) -> f64 {
        // 53 bits are exact.
        (self.random.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn item(&mut self) -> u64 {
        match self.choice {
            Choice::Uniform => self.random.below(self.items),
            Choice::Zipfian => {
                let u = self.part();
                // Popular items are all over the table, and stay what they are.
                spread(self.zipf.rank(u), self.items)
            }
        }
    }

    /// An item that was inserted lately, most often the last one.
    fn latest(&mut self) -> u64 {
        let u = self.part();
        self.items - 1 - self.zipf.rank(u).min(self.items - 1)
    }

    fn insert(&mut self) -> Request {
        let item = self.next;
        self.next += self.clients;
        // Those of others are there about as soon.
        self.items = item + 1;
        self.zipf.grow(self.items);
        Request::Insert(item)
    }

    /// The next request.
    pub fn draw(&mut self) -> Request {
        let percent = self.random.below(100);
        match self.mix {
            Mix::A if percent < 50 => Request::Put(self.item()),
            Mix::B if percent < 5 => Request::Put(self.item()),
            Mix::D if percent < 5 => self.insert(),
            Mix::D => Request::Get(self.latest()),
            Mix::F if percent < 50 => Request::ReadModifyWrite(self.item()),
            Mix::Updates(n) if percent < u64::from(n) => Request::Put(self.item()),
            Mix::A | Mix::B | Mix::C | Mix::F | Mix::Updates(_) => Request::Get(self.item()),
        }
    }
}

/// The item with a rank of popularity: a permutation of the items, in which neighbours in rank are far from each other.
fn spread(rank: u64, items: u64) -> u64 {
    // A step that has no divisor in common with the number of items reaches each of them once.
    let mut step = (items as f64 * 0.618_033_988_749_895) as u64 | 1;
    while divisor(step, items) != 1 {
        step += 2;
    }
    ((u128::from(rank) * u128::from(step) + 7) % u128::from(items)) as u64
}

const fn divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::vec;
    use std::vec::Vec;

    const ITEMS: u64 = 100_000;

    fn load(mix: Mix, choice: Choice) -> Load {
        Load::new(mix, choice, ITEMS, (0, 2), 1)
    }

    #[test]
    fn keys_are_all_different_and_of_16_bytes() {
        assert_eq!(&key(0), b"user000000000000");
        assert_eq!(&key(999_999_999_999), b"user999999999999");
        assert_eq!(
            (0..ITEMS).map(key).collect::<BTreeSet<_>>().len() as u64,
            ITEMS
        );
    }

    #[test]
    fn mixes_are_those_of_the_benchmark() {
        const N: u64 = 200_000;
        for (mix, expected) in [
            (Mix::A, [50, 50, 0, 0]),
            (Mix::B, [95, 5, 0, 0]),
            (Mix::C, [100, 0, 0, 0]),
            (Mix::D, [95, 0, 5, 0]),
            (Mix::F, [50, 0, 0, 50]),
            (Mix::Updates(0), [100, 0, 0, 0]),
            (Mix::Updates(25), [75, 25, 0, 0]),
            (Mix::Updates(100), [0, 100, 0, 0]),
        ] {
            let mut load = load(mix, Choice::Zipfian);
            let mut counts = [0u64; 4];
            for _ in 0..N {
                counts[match load.draw() {
                    Request::Get(_) => 0,
                    Request::Put(_) => 1,
                    Request::Insert(_) => 2,
                    Request::ReadModifyWrite(_) => 3,
                }] += 1;
            }
            for (n, percent) in counts.into_iter().zip(expected) {
                let p = percent as f64 / 100.0;
                let sigma = (N as f64 * p * (1.0 - p)).sqrt();
                assert!(
                    (n as f64 - N as f64 * p).abs() <= 5.0 * sigma,
                    "{mix:?}: {counts:?}"
                );
            }
        }
    }

    #[test]
    fn uniform_items_are_drawn_alike() {
        let mut load = Load::new(Mix::C, Choice::Uniform, 1000, (0, 1), 1);
        let mut counts = vec![0u64; 1000];
        for _ in 0..300_000 {
            counts[load.draw().item() as usize] += 1;
        }
        // The sum of squares is about the number of items less one; 5 sigma are 224.
        let chi: f64 = counts
            .iter()
            .map(|&n| (n as f64 - 300.0).powi(2) / 300.0)
            .sum();
        assert!((chi - 999.0).abs() < 224.0, "{chi}");
    }

    /// The first two ranks are exact; the method is wrong by up to a fifth in those that follow.
    #[test]
    fn zipfian_items_are_as_popular_as_zipf_says() {
        const N: u64 = 500_000;
        let mut load = load(Mix::C, Choice::Zipfian);
        let mut counts = BTreeMap::<u64, u64>::new();
        for _ in 0..N {
            *counts.entry(load.draw().item()).or_default() += 1;
        }
        let all = zeta(ITEMS, THETA);
        let of = |rank| counts.get(&spread(rank, ITEMS)).copied().unwrap_or(0) as f64;
        for (rank, error) in [
            (0, 0.0),
            (1, 0.0),
            (2, 0.2),
            (10, 0.1),
            (100, 0.1),
            (1000, 0.1),
        ] {
            let p = 1.0 / ((rank + 1) as f64).powf(THETA) / all;
            let expected = N as f64 * p;
            let wrong = (of(rank) - expected).abs() - 5.0 * expected.sqrt();
            assert!(
                wrong <= error * expected,
                "rank {rank}: {} instead of {expected}",
                of(rank)
            );
        }
        // The tenth part that is most popular has four fifths of the requests.
        let first: f64 = (0..ITEMS / 10).map(of).sum();
        let expected = zeta(ITEMS / 10, THETA) / all;
        assert!(
            (first / N as f64 - expected).abs() < 0.02,
            "{first}, {expected}"
        );
    }

    #[test]
    fn popular_items_are_all_over_the_table() {
        for items in [2, 3, 10, 1000, 1024, 30_030, 99_991] {
            let all: BTreeSet<u64> = (0..items).map(|rank| spread(rank, items)).collect();
            assert_eq!(all.len() as u64, items);
        }
        let mut first: Vec<u64> = (0..10).map(|rank| spread(rank, ITEMS)).collect();
        first.sort_unstable();
        assert!(
            first.windows(2).all(|w| w[1] - w[0] > ITEMS / 40),
            "{first:?}"
        );
    }

    #[test]
    fn inserts_of_clients_are_apart_and_the_latest_is_read_most() {
        let mut loads =
            [0, 1].map(|client| Load::new(Mix::D, Choice::Zipfian, ITEMS, (client, 2), 1));
        let mut inserted = BTreeSet::new();
        let mut near = 0;
        for _ in 0..50_000 {
            for load in &mut loads {
                match load.draw() {
                    Request::Insert(item) => assert!(item >= ITEMS && inserted.insert(item)),
                    Request::Get(item) => {
                        assert!(item < load.items);
                        near += u64::from(load.items - item <= 10);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let expected = 95_000.0 * zeta(10, THETA) / zeta(ITEMS, THETA);
        assert!(
            (near as f64 / expected - 1.0).abs() < 0.1,
            "{near}, {expected}"
        );
    }

    #[test]
    fn a_seed_gives_the_same_requests() {
        let first = |seed| {
            let mut load = Load::new(Mix::A, Choice::Zipfian, ITEMS, (0, 1), seed);
            [(); 6].map(|()| load.draw())
        };
        assert_eq!(first(5), first(5));
        assert_ne!(first(5), first(6));
    }
}
