//! The store against a map, on memory without caches.

use std::collections::{BTreeMap, BTreeSet};

use dyad_abi::NodeId;
use dyad_coherence::HostMem;
use dyad_random::SplitMix64;
use dyad_shm::PhysAddr;
use dyad_store::{
    Cursor, Key, Layout, LayoutError, MAX_VALUE, SHARDS, Shard, StoreError, Table, Version, Writer,
    owner,
};

const BASE: PhysAddr = PhysAddr(dyad_abi::boot::CXL_BASE);

fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

fn key(n: u64) -> Key {
    Key(u128::from(n).to_be_bytes())
}

struct Store {
    mem: HostMem,
    table: Table,
    writer: Writer,
}

impl Store {
    fn new(buckets: u64, lines: u64) -> Store {
        let layout = Layout::new(BASE, buckets, lines).unwrap();
        Store {
            mem: HostMem::new(),
            table: Table::new(layout),
            writer: Writer::new(layout, node(0)),
        }
    }

    fn get(&self, key: Key) -> Option<(Version, Vec<u8>)> {
        let section = self.table.sections().begin(&self.mem, node(0), 0);
        let mut value = vec![0; MAX_VALUE];
        let entry = self.table.get(&self.mem, key, &mut value, &section)?;
        value.truncate(entry.length);
        Some((entry.version, value))
    }

    fn collect(&mut self) {
        for n in 0..2 {
            assert!(self.table.rounds(node(n)).step(&self.mem));
        }
        self.writer.collect(&self.mem, NodeId::first(2));
    }

    fn all(&self) -> Vec<(Key, Version, usize)> {
        let section = self.table.sections().begin(&self.mem, node(0), 0);
        let (mut all, mut at) = (Vec::new(), Cursor::default());
        while let Some(next) = self.table.scan(
            &self.mem,
            at,
            |key, entry| all.push((key, entry.version, entry.length)),
            &section,
        ) {
            at = next;
        }
        all
    }
}

#[test]
fn it_is_a_map() {
    let mut store = Store::new(4, 40_000);
    let mut map = BTreeMap::<Key, (Version, Vec<u8>)>::new();
    let mut random = SplitMix64(7);
    for n in 0..30_000u64 {
        let key = key(random.below(900));
        let length = match random.below(20) {
            0 => random.below(MAX_VALUE as u64 + 1),
            _ => random.below(100),
        };
        let value: Vec<u8> = (0..length).map(|i| (n + i) as u8).collect();
        let had = map.get(&key).map(|(version, _)| *version);
        match random.below(8) {
            0 => assert_eq!(
                store.writer.delete(&store.mem, key),
                map.remove(&key).map(|m| m.0)
            ),
            1 => {
                let expected = match random.below(3) {
                    0 => None,
                    1 => Some(Version::from_number(n)),
                    _ => had,
                };
                let set = store
                    .writer
                    .compare_and_set(&store.mem, key, expected, &value);
                match set {
                    Ok(version) => {
                        assert_eq!(expected, had);
                        map.insert(key, (version, value));
                    }
                    Err(e) => assert!(e == StoreError::Mismatch(had) && expected != had),
                }
            }
            2 | 3 => {
                let version = store.writer.put(&store.mem, key, &value).unwrap();
                assert!(had < Some(version));
                map.insert(key, (version, value));
            }
            _ => assert_eq!(store.get(key), map.get(&key).cloned()),
        }
        if n % 500 == 0 {
            store.collect();
        }
    }
    let found: BTreeSet<_> = store.all().into_iter().collect();
    let expected = map.iter().map(|(&k, (v, bytes))| (k, *v, bytes.len()));
    assert_eq!(found, expected.collect());
}

#[test]
fn a_part_of_a_value_can_be_read() {
    let mut store = Store::new(1, 100);
    let value: Vec<u8> = (0..200).collect();
    store.writer.put(&store.mem, key(1), &value).unwrap();
    let section = store.table.sections().begin(&store.mem, node(0), 0);
    for room in [0, 1, 31, 32, 33, 88, 200, 300] {
        let mut bytes = vec![0xee; room];
        let entry = store.table.get(&store.mem, key(1), &mut bytes, &section);
        assert_eq!(entry.map(|e| e.length), Some(200));
        let n = room.min(200);
        assert_eq!(bytes[..n], value[..n]);
        assert!(bytes[n..].iter().all(|&b| b == 0xee));
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut store = Store::new(1, 8);
    let refused = store.writer.put(&store.mem, key(1), &[0; MAX_VALUE + 1]);
    assert_eq!(refused, Err(StoreError::ValueTooLarge));
    let refused = store.writer.put(&store.mem, key(1), &[0; MAX_VALUE]);
    assert_eq!(refused, Err(StoreError::NoMemory));
    assert_eq!(store.get(key(1)), None);
    // 8 lines: each item takes one.
    for n in 0..8 {
        store.writer.put(&store.mem, key(n), b"old").unwrap();
    }
    assert_eq!(
        store.writer.put(&store.mem, key(9), b""),
        Err(StoreError::NoMemory)
    );
    store.writer.delete(&store.mem, key(0)).unwrap();
    assert_eq!(
        store.writer.put(&store.mem, key(1), b"new"),
        Err(StoreError::Again)
    );
    assert_eq!(store.get(key(1)).unwrap().1, b"old");
    store.collect();
    store.collect();
    store.writer.put(&store.mem, key(1), b"new").unwrap();
    assert_eq!(store.get(key(1)).unwrap().1, b"new");
    for (bytes, buckets, lines, why) in [
        (8, 1, 1, LayoutError::Unaligned),
        (0, 0, 1, LayoutError::Empty),
        (0, 1, 0, LayoutError::Empty),
        (0, 1, 1 << 26, LayoutError::TooManyLines),
        (0, 1 << 23, 1, LayoutError::TooManyLines),
    ] {
        assert_eq!(Layout::new(BASE.add(bytes), buckets, lines), Err(why));
        assert!(!why.to_string().is_empty());
    }
}

/// A shard of one bucket has room for 8 keys.
#[test]
fn full_buckets_are_said_to_be_full() {
    let mut store = Store::new(1, 1000);
    let mut refused = 0;
    let mut there = BTreeMap::<Shard, u64>::new();
    for n in 0..700 {
        let keys = there.entry(key(n).shard()).or_default();
        match store.writer.put(&store.mem, key(n), b"x") {
            Ok(_) => *keys += 1,
            Err(e) => {
                assert_eq!((e, *keys), (StoreError::BucketsFull, 8));
                refused += 1;
            }
        }
    }
    assert!(refused > 100);
    // What is there can be changed and deleted all the same.
    assert_eq!(store.all().len(), 700 - refused);
    store.writer.put(&store.mem, key(0), b"y").unwrap();
    store.writer.delete(&store.mem, key(0)).unwrap();
}

/// At half of its room no key of many is refused.
#[test]
fn keys_are_spread_over_shards_and_buckets() {
    let mut store = Store::new(64, 40_000);
    for n in 0..64 * 64 * 4 {
        store.writer.put(&store.mem, key(n), b"x").unwrap();
    }
}

#[test]
fn shards_belong_to_one_node_and_move_only_with_it() {
    let all: Vec<NodeId> = NodeId::first(4).collect();
    let mut counts = [0u64; 4];
    for shard in (0..SHARDS).map(Shard::new) {
        let at = owner(shard, all.iter().copied()).unwrap();
        counts[at.index()] += 1;
        let without = owner(shard, all.iter().copied().filter(|&n| n != node(2))).unwrap();
        assert!(without == at || at == node(2));
        assert_ne!(without, node(2));
        assert_eq!(owner(shard, core::iter::empty()), None);
    }
    assert!(counts.iter().all(|&n| n >= SHARDS / 8), "{counts:?}");
}

/// A writer that begins anew finds what there is, and no line is lost.
#[test]
fn an_heir_has_all_that_was_left() {
    let mut store = Store::new(4, 300);
    let mut random = SplitMix64(3);
    let mut map = BTreeMap::new();
    for life in 1..20u16 {
        for n in 0..150 {
            let (key, length) = (key(random.below(60)), random.below(160) as usize);
            let value = vec![n as u8; length];
            match store.writer.put(&store.mem, key, &value) {
                Ok(version) => _ = map.insert(key, (version, value)),
                Err(StoreError::Again) => store.collect(),
                Err(e) => panic!("{e}"),
            }
        }
        let layout = Layout::new(BASE, 4, 300).unwrap();
        store.writer = Writer::heir(layout, node(0), life);
        let shards = (0..SHARDS).map(Shard::new);
        store
            .writer
            .adopt(&store.mem, shards, [node(0)].into_iter());
        for (&key, value) in &map {
            assert_eq!(store.get(key).as_ref(), Some(value));
        }
        store.collect();
        store.collect();
        let used: u64 = map
            .values()
            .map(|(_, v)| (3 + v.len().div_ceil(8)).div_ceil(7) as u64)
            .sum();
        assert_eq!(store.writer.room(), (300 - used, 0));
    }
}
