//! Reading, on any node.

use dyad_abi::NodeId;
use dyad_coherence::GlobalMem;
use dyad_quiet::{PAYLOAD, Ref, Rounds, Section, Sections, WORDS};

use crate::item::{HEAD, Head, MAX_VALUE, Version};
use crate::key::{Key, SHARDS, Shard};
use crate::layout::Layout;

/// A store, as its readers see it.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub(crate) layout: Layout,
}

/// What there is of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The version.
    pub version: Version,
    /// Bytes of the value.
    pub length: usize,
}

/// Where a scan has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(u64);

/// Where an item is referred to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub bucket: u64,
    pub slot: usize,
    pub item: Ref,
    pub head: Head,
}

impl Table {
    /// The store with this layout.
    pub const fn new(layout: Layout) -> Table {
        Table { layout }
    }

    /// The sections of readers.
    pub const fn sections(&self) -> Sections {
        self.layout.sections()
    }

    /// The rounds of a node. Nothing that writers on other nodes retire is reused without them.
    pub const fn rounds(&self, node: NodeId) -> Rounds {
        Rounds::new(self.layout.sections(), node)
    }

    pub(crate) fn head(&self, mem: &impl GlobalMem, item: Ref) -> Option<(Head, [u64; PAYLOAD])> {
        let words = self.layout.blocks().read(mem, item, 0).ok()?;
        let (first, _) = words.split_first_chunk::<HEAD>()?;
        let head = Head::of(*first);
        (head.length <= MAX_VALUE).then_some((head, words))
    }

    /// The item of a key among the references of a bucket.
    pub(crate) fn among(
        &self,
        mem: &impl GlobalMem,
        key: Key,
        bucket: u64,
        refs: [Option<Ref>; WORDS],
    ) -> Option<(Found, [u64; PAYLOAD])> {
        for (slot, item) in refs.into_iter().enumerate() {
            let Some(item) = item.filter(|item| item.tag() == key.tag()) else {
                continue;
            };
            if let Some((head, words)) = self.head(mem, item)
                && head.key == key.words()
            {
                let found = Found {
                    bucket,
                    slot,
                    item,
                    head,
                };
                return Some((found, words));
            }
        }
        None
    }

    /// Reads the value of a key into `value`, as far as there is room. A reader has one section of its own at a time.
    pub fn get<M: GlobalMem>(
        &self,
        mem: &M,
        key: Key,
        value: &mut [u8],
        _within: &Section<'_, M>,
    ) -> Option<Entry> {
        let shard = key.shard();
        for bucket in key.buckets(self.layout.buckets()) {
            let refs = self.layout.bucket(shard, bucket).read(mem);
            if let Some((found, words)) = self.among(mem, key, bucket, refs) {
                return self.copy(mem, found, words, value);
            }
        }
        None
    }

    /// Copies a value out. `first` is the first line of its item.
    fn copy(
        &self,
        mem: &impl GlobalMem,
        found: Found,
        first: [u64; PAYLOAD],
        value: &mut [u8],
    ) -> Option<Entry> {
        let Head {
            version, length, ..
        } = found.head;
        let wanted = length.min(value.len());
        let parts = value[..wanted].chunks_mut(8);
        let (mut words, mut from, mut line) = (first, HEAD, 0);
        for part in parts {
            if from == PAYLOAD {
                line += 1;
                from = 0;
                words = self.layout.blocks().read(mem, found.item, line).ok()?;
            }
            let bytes = words[from].to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
            from += 1;
        }
        Some(Entry { version, length })
    }

    /// Names the entries of the next bucket. `None`: there is no further one. A key that is put or deleted meanwhile may be named or
    /// not; all others are named exactly once.
    pub fn scan<M: GlobalMem>(
        &self,
        mem: &M,
        at: Cursor,
        mut each: impl FnMut(Key, Entry),
        _within: &Section<'_, M>,
    ) -> Option<Cursor> {
        let buckets = self.layout.buckets();
        if at.0 >= SHARDS * buckets {
            return None;
        }
        let (shard, bucket) = (Shard::new(at.0 / buckets), at.0 % buckets);
        let refs = self.layout.bucket(shard, bucket).read(mem);
        for item in refs.into_iter().flatten() {
            if let Some((head, _)) = self.head(mem, item) {
                let [low, high] = head.key.map(u128::from);
                let key = Key((low | high << 64).to_le_bytes());
                let Head {
                    version, length, ..
                } = head;
                each(key, Entry { version, length });
            }
        }
        Some(Cursor(at.0 + 1))
    }
}
