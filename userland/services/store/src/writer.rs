//! Changing, on the node that has the shard.

use alloc::vec::Vec;
use core::fmt;

use dyad_abi::NodeId;
use dyad_coherence::GlobalMem;
use dyad_quiet::{Heap, HeapError, Ref};

use crate::item::{self, MAX_VALUE, Version};
use crate::key::{Key, Shard};
use crate::layout::Layout;
use crate::table::{Found, Table};

/// Why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The value is longer than [`MAX_VALUE`].
    ValueTooLarge,
    /// There is no memory for the item.
    NoMemory,
    /// There will be memory for the item when nodes have gone through rounds: try again.
    Again,
    /// Both buckets of the key are full.
    BucketsFull,
    /// The key has another version, or is not there.
    Mismatch(Option<Version>),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::ValueTooLarge => write!(f, "a value has at most {MAX_VALUE} bytes"),
            StoreError::NoMemory => f.write_str("the store has no memory for the item"),
            StoreError::Again => {
                f.write_str("the store has no memory for the item until readers have gone on")
            }
            StoreError::BucketsFull => f.write_str("the table has no place for the key"),
            StoreError::Mismatch(Some(v)) => write!(f, "the key has version {}", v.number()),
            StoreError::Mismatch(None) => f.write_str("there is no such key"),
        }
    }
}

/// The writer of a node. It changes shards that no other node changes.
#[derive(Debug)]
pub struct Writer {
    table: Table,
    heap: Heap,
    /// The version of the last put.
    last: u64,
}

const LIFE_SHIFT: u32 = 32;
/// A bucket with so much room or more is as good as an empty one.
const SPARE: usize = 3;

impl Writer {
    /// The writer on `node` of a new store: its lines have never been used.
    pub fn new(layout: Layout, node: NodeId) -> Writer {
        Writer {
            heap: Heap::new(layout.blocks(), layout.sections(), node, layout.lines(node)),
            ..Writer::heir(layout, node, 0)
        }
    }

    /// A writer on `node` that has no lines before it adopts some. `life` is larger than that of each earlier writer of any of its
    /// shards; that of a new store is 0.
    pub fn heir(layout: Layout, node: NodeId, life: u16) -> Writer {
        Writer {
            table: Table::new(layout),
            heap: Heap::new(layout.blocks(), layout.sections(), node, 1..1),
            last: u64::from(life) << LIFE_SHIFT,
        }
    }

    /// Takes shards over, and the lines of their items: those of another writer that has died, or those that an earlier life of this
    /// one had. No other node changes these shards, or has these lines.
    pub fn adopt(
        &mut self,
        mem: &impl GlobalMem,
        shards: impl Iterator<Item = Shard>,
        lines_of: impl Iterator<Item = NodeId>,
    ) {
        let layout = self.table.layout;
        let mut in_use = Vec::new();
        for shard in shards {
            for bucket in 0..layout.buckets() {
                // From memory: what this node has read of it before may be old.
                let items = layout.bucket(shard, bucket).read(mem).into_iter().flatten();
                for item in items {
                    if let Some((head, _)) = self.table.head(mem, item) {
                        self.last = self.last.max(head.version.number());
                        in_use.push((item, item::words(head.length)));
                    }
                }
            }
        }
        for node in lines_of {
            self.heap
                .adopt(mem, layout.lines(node), in_use.iter().copied());
        }
    }

    /// Where a key is, by the newest copy of its buckets, which is this node's; and a place for it.
    fn find(&self, mem: &impl GlobalMem, key: Key) -> (Option<Found>, Option<(u64, usize)>) {
        let layout = self.table.layout;
        let mut room: Option<(usize, u64, usize)> = None;
        for bucket in key.buckets(layout.buckets()) {
            let refs = layout.bucket(key.shard(), bucket).own(mem);
            if let Some((found, _)) = self.table.among(mem, key, bucket, refs) {
                return (Some(found), None);
            }
            // Readers look at the first bucket first, so it is filled first, but not to the last: the emptier one is better then.
            let free = refs.iter().filter(|r| r.is_none()).count().min(SPARE);
            if let Some(slot) = refs.iter().position(Option::is_none)
                && room.is_none_or(|(most, ..)| free > most)
            {
                room = Some((free, bucket, slot));
            }
        }
        (None, room.map(|(_, bucket, slot)| (bucket, slot)))
    }

    fn write(&self, mem: &impl GlobalMem, key: Key, (bucket, slot): (u64, usize), to: Option<Ref>) {
        let root = self.table.layout.bucket(key.shard(), bucket);
        root.write(mem, slot, to);
    }

    fn retire(&mut self, mem: &impl GlobalMem, old: &Found) {
        self.heap
            .retire(mem, old.item, item::words(old.head.length));
    }

    /// Gives a key a value. When this returns, each reader that begins finds it.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing has changed then.
    pub fn put(
        &mut self,
        mem: &impl GlobalMem,
        key: Key,
        value: &[u8],
    ) -> Result<Version, StoreError> {
        self.change(mem, key, value, |_| Ok(()))
    }

    /// Gives a key a value if it has this version; `None`: if it is not there.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing has changed then.
    pub fn compare_and_set(
        &mut self,
        mem: &impl GlobalMem,
        key: Key,
        expected: Option<Version>,
        value: &[u8],
    ) -> Result<Version, StoreError> {
        self.change(mem, key, value, |now| match now == expected {
            true => Ok(()),
            false => Err(StoreError::Mismatch(now)),
        })
    }

    fn change(
        &mut self,
        mem: &impl GlobalMem,
        key: Key,
        value: &[u8],
        may: impl FnOnce(Option<Version>) -> Result<(), StoreError>,
    ) -> Result<Version, StoreError> {
        if value.len() > MAX_VALUE {
            return Err(StoreError::ValueTooLarge);
        }
        let (old, room) = self.find(mem, key);
        may(old.map(|old| old.head.version))?;
        let place = old.map(|old| (old.bucket, old.slot)).or(room);
        let place = place.ok_or(StoreError::BucketsFull)?;
        let version = Version::from_number(self.last + 1);
        let words = item::encode(key, version, value);
        let new = self.heap.publish(mem, &words).map_err(|e| match e {
            HeapError::Again => StoreError::Again,
            HeapError::Full => StoreError::NoMemory,
            HeapError::TooLarge => StoreError::ValueTooLarge,
        })?;
        self.last = version.number();
        self.write(mem, key, place, Some(new.tagged(key.tag())));
        if let Some(old) = &old {
            self.retire(mem, old);
        }
        Ok(version)
    }

    /// Takes a key away. Returns what it had. When this returns, no reader that begins finds it.
    pub fn delete(&mut self, mem: &impl GlobalMem, key: Key) -> Option<Version> {
        let (old, _) = self.find(mem, key);
        let old = old?;
        self.write(mem, key, (old.bucket, old.slot), None);
        self.retire(mem, &old);
        Some(old.head.version)
    }

    /// Makes room of what has no reader on these nodes, which are those that live. Returns how many items that were.
    pub fn collect(&mut self, mem: &impl GlobalMem, nodes: impl Iterator<Item = NodeId>) -> usize {
        self.heap.collect(mem, nodes)
    }

    /// The lines that writers of these nodes begin with, together.
    pub fn lines_of(&self, nodes: impl Iterator<Item = NodeId>) -> u64 {
        let lines = nodes.map(|node| self.table.layout.lines(node));
        lines.map(|range| range.end - range.start).sum()
    }

    /// Lines that items can have now, and lines that wait for readers.
    pub fn room(&self) -> (u64, u64) {
        self.heap.room()
    }
}
