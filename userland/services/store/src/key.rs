//! Keys, and where they belong.

use dyad_abi::NodeId;

/// Parts of the table, each of which one node changes.
pub const SHARDS: u64 = 64;

/// A key: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 16]);

/// A part of the table, below [`SHARDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u8);

impl Shard {
    /// The shard with this number (modulo [`SHARDS`]).
    pub const fn new(n: u64) -> Shard {
        Shard((n % SHARDS) as u8)
    }

    /// Its number.
    pub const fn index(self) -> u64 {
        self.0 as u64
    }
}

/// The finaliser of MurmurHash3, by which each bit of a number changes about half of all bits.
const fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let n = (n ^ (n >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    n ^ (n >> 33)
}

impl Key {
    /// The key as two words, little-endian.
    pub const fn words(self) -> [u64; 2] {
        let n = u128::from_le_bytes(self.0);
        [n as u64, (n >> 64) as u64]
    }

    const fn hash(self) -> u64 {
        let [low, high] = self.words();
        mix(mix(low ^ 0x9e37_79b9_7f4a_7c15) ^ high)
    }

    /// The shard that it belongs to.
    pub const fn shard(self) -> Shard {
        Shard::new(self.hash())
    }

    /// The two buckets of its shard, of `buckets` in each, where it can be.
    pub(crate) const fn buckets(self, buckets: u64) -> [u64; 2] {
        let hash = self.hash();
        let first = (hash >> 6) % buckets;
        // Another one, if there is another one.
        let step = 1 + mix(hash) % if buckets > 1 { buckets - 1 } else { 1 };
        [first, (first + step) % buckets]
    }

    /// What references to its item are tagged with: most other keys have another tag.
    pub(crate) const fn tag(self) -> u64 {
        self.hash() >> 52
    }
}

/// The node that changes a shard: of these, the one that the shard prefers. If a node goes, its shards alone go
/// to others (rendezvous hashing).
pub fn owner(shard: Shard, writers: impl Iterator<Item = NodeId>) -> Option<NodeId> {
    writers.max_by_key(|node| (mix(shard.index() << 8 | node.index() as u64), node.index()))
}
