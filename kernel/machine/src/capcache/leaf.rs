//! Leaves of capability tables that this CPU has cached: a slot is found without walking the table, with what
//! the rows of slots need besides. Coherent caches only.
//!
//! | checked before each use | also relies on |
//! |---|---|
//! | the entry of the root that leads to the leaf | the entry pins the leaf, which keeps its version |
//!
//! A closed entry is filled again only after a round, which empties all caches: an unchanged entry has been
//! valid all the time. A leaf that is named by its own capability is checked with that capability.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{CapIndex, LEAF_SLOTS};
use dyad_captbl::{Contents, Filling, SLOT_BYTES, activate, deactivate, plain};
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};

use super::services::Known;
use super::{NO_LINE, NOTHING, Snapshot};
use crate::cpu::CpuLocal;
use crate::kernel_ctx::KernelCtx;
use crate::memory::{CoherentWords, load_coherent};
use crate::node::node;

const ENTRIES: usize = 16;

type Line = [AtomicU64; 8];
type Slots = [[AtomicU64; 8]; LEAF_SLOTS as usize];

#[repr(align(128))]
struct CachedLeaf {
    /// Root or leaf that the slot was named by: a weak reference; 0 means empty.
    table: Cell<u64>,
    /// The number of the leaf within its root.
    number: Cell<u64>,
    entry: Cell<Snapshot>,
    slots: Cell<Option<(CoherentWords, &'static Slots)>>,
    /// The leaf: a weak reference, and its address.
    leaf: Cell<u64>,
    at: Cell<PhysAddr>,
    /// This CPU's intents.
    intent: Cell<&'static Line>,
    /// The shared epoch.
    epoch: Cell<&'static AtomicU64>,
    /// Headers of slots that this node is filling, and emptying.
    reserved: Cell<u64>,
    closing: Cell<u64>,
}

/// The leaves that one CPU has cached.
pub struct LeafCache([CachedLeaf; ENTRIES]);

impl LeafCache {
    pub(super) const fn new() -> LeafCache {
        LeafCache(
            [const {
                CachedLeaf {
                    table: Cell::new(0),
                    number: Cell::new(0),
                    entry: Cell::new(Snapshot::NOTHING),
                    slots: Cell::new(None),
                    leaf: Cell::new(0),
                    at: Cell::new(PhysAddr(0)),
                    intent: Cell::new(&NO_LINE),
                    epoch: Cell::new(&NOTHING),
                    reserved: Cell::new(0),
                    closing: Cell::new(0),
                }
            }; ENTRIES],
        )
    }

    /// How many leaves are cached.
    #[cfg(any(test, feature = "host"))]
    pub(super) fn cached(&self) -> usize {
        self.0.iter().filter(|v| v.table.get() != 0).count()
    }

    pub(super) fn forget(&self) {
        for v in &self.0 {
            v.table.set(0);
        }
    }
}

/// A slot of a cached leaf.
#[derive(Clone, Copy)]
pub struct Slot {
    cached: &'static CachedLeaf,
    words: CoherentWords,
    line: &'static Line,
    /// The number of the slot in the leaf.
    index: u64,
}

/// The slot's words, found without a lookup.
impl dyad_captbl::Line for Slot {
    #[inline(always)]
    fn header(&self) -> u64 {
        load_coherent(&self.line[0])
    }

    #[inline(always)]
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.words.replace(&self.line[0], old, new)
    }

    #[inline(always)]
    fn stamp(&self) -> u64 {
        self.line[1].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_stamp(&self, stamp: u64) {
        self.words.store(&self.line[1], stamp);
    }

    #[inline(always)]
    fn fill(&self, words: &[u64; Contents::WORDS]) {
        self.words.fill(self.line, *words);
    }
}

impl Slot {
    #[inline(always)]
    fn intent(&self, row: Row) -> IntentRecord {
        IntentRecord {
            row,
            frame: WeakRef::from_checked(self.cached.leaf.get()),
            table: None,
            place: PhysAddr(self.cached.at.get().0 | (self.index * SLOT_BYTES)),
        }
    }

    #[inline(always)]
    fn services<Q: Fn(Epoch) -> bool>(&self, quiet: Q) -> Known<Q> {
        Known {
            words: self.words,
            intent: self.cached.intent.get(),
            epoch: self.cached.epoch.get(),
            quiet,
        }
    }

    /// The row [`activate`]. `quiet` tells whether a stamp is quiesced. Returns `None` if nothing has been
    /// done; the slow path finds the error.
    #[inline(always)]
    pub fn activate(&self, to: &Filling, quiet: impl Fn(Epoch) -> bool) -> Option<()> {
        let reserved = self.cached.reserved.get();
        let intent = self.intent(Row::SlotActivate);
        activate(self, &intent, reserved, to, &self.services(quiet)).ok()
    }

    /// The row [`deactivate`]. Returns `None` if nothing has been done; the slow path finds the error.
    #[inline(always)]
    pub fn deactivate(&self) -> Option<Epoch> {
        let header = dyad_captbl::Line::header(self);
        if !plain::is_active(header) {
            return None;
        }
        let changes = (header, self.cached.closing.get());
        let intent = self.intent(Row::SlotDeactivate);
        deactivate(self, &intent, changes, &self.services(|_| false)).ok()
    }
}

/// Slot `n` of a table: a leaf, or a root of leaves.
#[inline(always)]
pub fn slot(local: &'static CpuLocal, table: u64, is_root: bool, n: u64) -> Option<Slot> {
    if !local.cache.fast() {
        return None;
    }
    let number = n / LEAF_SLOTS as u64;
    let cached = &local.cache.leaves.0[number as usize % ENTRIES];
    let same = cached.entry.get().same() || lacks!("capcache::leaf::slot::entry");
    if cached.table.get() != table || cached.number.get() != number || !same {
        fill_leaf(local, table, is_root, number, cached)?;
    }
    // No slot has index 0.
    let (words, slots) = cached.slots.get().filter(|_| n != 0 || !is_root)?;
    Some(Slot {
        cached,
        words,
        line: &slots[(n % LEAF_SLOTS as u64) as usize],
        index: n % LEAF_SLOTS as u64,
    })
}

#[cold]
#[inline(never)]
fn fill_leaf(
    local: &'static CpuLocal,
    table: u64,
    is_root: bool,
    number: u64,
    cached: &CachedLeaf,
) -> Option<()> {
    cached.table.set(0);
    let cx = &KernelCtx {
        node: node(),
        local,
    };
    let words = cx.words().if_coherent()?;
    let map = cx.node.map;
    let object = WeakRef::from_bits(table)?;
    let (leaf, entry) = if is_root {
        let at = object.frame.address().add(number.checked_mul(8)?);
        let first = u32::try_from(number * LEAF_SLOTS as u64).ok()?;
        // Index 0 names no slot, but its neighbours are in the same leaf.
        let index = CapIndex::new(first.max(1) as u64)?;
        let entry = Snapshot::of(map.get(at)?);
        let leaf: FrameRef = cx.captbls().leaf_at(object.frame.address(), index).ok()?;
        let leaf = cx.frames().current(leaf).ok()?;
        // Cache the leaf that this lookup has resolved, not a later one.
        (leaf, Some(entry).filter(Snapshot::same)?)
    } else if number == 0 {
        (object, Snapshot::NOTHING)
    } else {
        return None;
    };
    let owner = cx.captbls().owner();
    cached.number.set(number);
    cached.entry.set(entry);
    cached
        .slots
        .set(Some((words, map.get(leaf.frame.address())?)));
    cached.leaf.set(leaf.bits());
    cached.at.set(leaf.frame.address());
    cached.intent.set(map.get(cx.intents().line())?);
    cached.epoch.set(&cx.node.sb.epoch);
    cached.reserved.set(plain::reserved(owner));
    cached.closing.set(plain::closing(owner));
    cached.table.set(table);
    Some(())
}
