//! Address spaces: one page table per ISA, a list of regions, and memory to serve page faults
//! from.
//!
//! ```text
//! root:    0 ──link──▶ weak reference ──unlink──▶ CLOSING ──▶ 0
//! region:  FREE(0) ──CAS──▶ mark of the node ──fill──▶ start address + mark ──fence, others looked
//!          at, release──▶ start address ──CAS──▶ mark of the node ──▶ FREE
//! supply:  first frame:32 | frames:32 in one word, so that no reader mixes two runs; up to five
//!          runs per node, the first empty one ends the list
//! ```
//!
//! A root pins its frame and the space: a space cannot be untyped before its roots have been unlinked.
//! `dyad_space` has the rows that change mappings.
//!
//! A slot that is being filled or emptied names the node that does it. If that node dies, recovery frees the
//! slot ([`Space::repair_regions`]): the region had not been added yet, or was being removed.
//!
//! For machines with incoherent caches, every word is read and modified at memory ([`Words`]).

use core::sync::atomic::AtomicU64;

use dyad_abi::cap::{RegionKind, Stripes};
use dyad_abi::ident::{ISA_COUNT, MAX_NODES};
use dyad_abi::user::{PAGE_SIZE, TABLES_PART, USER_END, USER_MIN};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_coherence::GlobalMem;
use dyad_retype::KernelKind;
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::{LayoutHash, PhysAddr, shared_layout, shared_struct};

use crate::memory::Words;

/// The most regions of an address space.
pub const MAX_REGIONS: usize = 94;
/// The most runs of frames in the supply of a node.
pub const MAX_RUNS: usize = 5;
/// Root word while a root is being unlinked; its frame is in no pool.
pub const CLOSING: u64 = crate::NO_REFERENCE;
/// Bits of a start word that hold a mark. Start addresses are multiples of pages, so readers treat a word
/// with a mark as no region. A mark alone is below every start address.
const MARK: u64 = PAGE_SIZE - 1;

/// The mark of a node in the start word of a slot that it is changing.
const fn mark(node: NodeId) -> u64 {
    1 | (node.index() as u64) << 1
}

shared_struct! {
    /// A region's slot.
    #[derive(Debug)]
    #[repr(align(32))]
    pub struct RegionSlot {
        /// 0: free. A mark of a node: that node fills or empties the slot. A start address with a mark: the
        /// node checks whether another region overlaps. Otherwise the start address.
        pub start: AtomicU64,
        /// One past the end.
        pub end: AtomicU64,
        /// `kind | write << 8 | home << 9 | stripes << 16`; home: 0, or 1 and a node's number.
        pub kind: AtomicU64,
        /// Reserved; zero.
        pub reserved: AtomicU64,
    }
}

shared_struct! {
    /// The supply of a node: the frames that its faults take.
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct SupplySlot {
        /// `first frame:32 | frames:32`; the first run without frames ends the list. A frame that is in two
        /// runs while the list changes is tried twice.
        pub runs: [AtomicU64; MAX_RUNS],
        /// Frames tried so far.
        pub cursor: AtomicU64,
        /// Frames tried since the last one that was free or only waited for quiescence.
        pub in_vain: AtomicU64,
        /// Frames of the first run that have been tried for tables, if there are several runs.
        pub tables: AtomicU64,
    }
}

shared_struct! {
    /// An address space.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Space {
        /// Root of the page table by ISA: a weak reference; 0 if there is none.
        pub roots: [AtomicU64; ISA_COUNT],
        /// Page faults resolved by a new frame.
        pub faults_filled: AtomicU64,
        /// Page faults resolved by a copy from another ISA's table.
        pub faults_copied: AtomicU64,
        /// Region slots that have ever been in use: later slots need not be read.
        pub slots_used: AtomicU64,
        /// Shootdowns that have been requested: see `dyad_space::shootdown`, also for `confirmed` and
        /// `round`.
        pub tickets: AtomicU64,
        /// Regions added and removed so far; incremented after each change.
        pub region_changes: AtomicU64,
        /// The last shootdown that is complete, with all before it.
        pub confirmed: AtomicU64,
        /// The supply of each node.
        pub supplies: [SupplySlot; MAX_NODES],
        /// The round of shootdowns that is under way: `ticket:32 | stamp:32`.
        pub round: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 63],
        /// The regions.
        pub regions: [RegionSlot; MAX_REGIONS],
    }
}

const _: () = {
    assert!(size_of::<Space>() as u64 == PAGE_SIZE);
};

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h;
        Space {
            roots, faults_filled, faults_copied, slots_used, tickets, region_changes, confirmed,
            supplies, round, reserved, regions,
        },
        SupplySlot { runs, cursor, in_vain, tables },
        RegionSlot { start, end, kind, reserved },
    )
}

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Start address.
    pub start: u64,
    /// One past the end.
    pub end: u64,
    /// The action of faults in it.
    pub kind: RegionKind,
    /// Whether frames that faults take are mapped writable.
    pub write: bool,
    /// The node whose supply faults use, on any node; `None` for that of the faulting node.
    pub home: Option<NodeId>,
    /// The pieces of the region; `None` if it is not divided.
    pub stripes: Option<Stripes>,
}

impl Region {
    /// A region, from the arguments of an operation.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if the range is empty, not of whole pages, or not in the user half, if there is
    /// no such kind, or if the stripes are malformed or do not begin and end with the range;
    /// [`Error::NoSuchNode`] if the home is an impossible node number.
    pub fn new(start: u64, length: u64, kind: u64) -> Result<Region> {
        let end = start.checked_add(length).ok_or(Error::BadArgument)?;
        let stripes = match kind >> 16 {
            0 => None,
            bits => {
                let stripes = Stripes::from_bits(bits).ok_or(Error::BadArgument)?;
                if !(start | end).is_multiple_of(stripes.stride()) {
                    return Err(Error::BadArgument);
                }
                Some(stripes)
            }
        };
        if start < USER_MIN
            || end > USER_END
            || start >= end
            || !start.is_multiple_of(PAGE_SIZE)
            || !end.is_multiple_of(PAGE_SIZE)
            || kind >> 13 & 7 != 0
        {
            return Err(Error::BadArgument);
        }
        let home = match kind >> 9 & 0xf {
            0 => None,
            n => Some(NodeId::new(n - 1).ok_or(Error::NoSuchNode)?),
        };
        Ok(Region {
            start,
            end,
            kind: RegionKind::from_number(kind & 0xff).ok_or(Error::BadArgument)?,
            write: kind >> 8 & 1 == 1,
            home,
            stripes,
        })
    }

    /// The word of kind, permission, home and stripes.
    const fn word(&self) -> u64 {
        let stripes = match self.stripes {
            Some(s) => s.bits(),
            None => 0,
        };
        let home = match self.home {
            Some(node) => node.index() as u64 + 1,
            None => 0,
        };
        self.kind as u64 | (self.write as u64) << 8 | home << 9 | stripes << 16
    }

    /// Whether an address is in the region: not before it, behind it, or between its pieces.
    pub fn contains(&self, va: u64) -> bool {
        self.start <= va && va < self.end && self.stripes.is_none_or(|s| s.around(va).2)
    }
}

/// A run of frames that faults may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// The first frame.
    pub first: FrameRef,
    /// The number of frames.
    pub frames: u64,
}

impl Supply {
    const fn bits(self) -> u64 {
        (self.first.bits() as u64) << 32 | self.frames
    }

    fn from_bits(w: u64) -> Option<Supply> {
        let frames = w & u32::MAX as u64;
        Some(Supply {
            first: FrameRef::from_bits((w >> 32) as u32)?,
            frames,
        })
        .filter(|_| frames != 0)
    }

    /// Whether a frame belongs to the run.
    pub fn contains(&self, frame: FrameRef) -> bool {
        let (first, frame) = (self.first.bits() as u64, frame.bits() as u64);
        frame >= first && frame - first < self.frames
    }

    /// Frame number `n` of the run.
    pub fn frame(&self, n: u64) -> Option<FrameRef> {
        if n >= self.frames {
            return None;
        }
        u32::try_from(self.first.bits() as u64 + n)
            .ok()
            .and_then(FrameRef::from_bits)
            .filter(|f| f.pool() == self.first.pool())
    }
}

/// All frames that faults on a node may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supplies {
    runs: [Option<Supply>; MAX_RUNS],
    used: usize,
    total: u64,
}

impl Supplies {
    /// The number of frames for pages. If there are several runs, the last part of the first one is left out
    /// ([`TABLES_PART`]).
    pub const fn frames(&self) -> u64 {
        self.total
    }

    /// Frame number `n`: the frames of the last run come first, which leaves room for tables in the first
    /// one.
    pub fn frame(&self, n: u64) -> Option<FrameRef> {
        let mut n = n;
        for run in self.runs[..self.used].iter().rev().flatten() {
            if n < run.frames {
                return run.frame(n);
            }
            n -= run.frames;
        }
        None
    }

    /// The run for tables, if there are others for pages.
    pub fn for_tables(&self) -> Option<Supply> {
        if self.used > 1 { self.runs[0] } else { None }
    }

    /// Whether a frame belongs to one of the runs.
    pub fn contains(&self, frame: FrameRef) -> bool {
        self.runs.iter().flatten().any(|s| s.contains(frame))
    }
}

impl Space {
    /// The kind of its frame.
    pub const KIND: KernelKind = KernelKind::ADDRESS_SPACE;

    /// Root of the page table of an ISA, if there is one. The root stays valid until this CPU leaves the
    /// kernel: the frame is not reused before.
    #[inline]
    pub fn root(&self, words: &Words, isa: Isa) -> Option<PhysAddr> {
        let word = words.read(&self.roots[isa.index()]);
        if word == 0 {
            return None;
        }
        Some(WeakRef::from_bits(word)?.frame.address())
    }

    /// Adds a region on behalf of node `me`. Reads all slots.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if it overlaps another region, [`Error::Again`] if it overlaps one that another
    /// CPU is just adding, [`Error::Full`] if all slots are in use.
    pub fn add_region(&self, words: &Words, me: NodeId, r: Region) -> Result<()> {
        // The two addresses decide; the rest of a slot is decoded for those only that overlap.
        let overlaps = |s: &RegionSlot, start: u64| {
            start >= USER_MIN
                && start < r.end
                && r.start < words.read(&s.end)
                && Self::read_slot(words, s).is_some_and(|o| o.start < r.end && r.start < o.end)
        };
        let used = words.read(&self.slots_used) as usize;
        let mut there = self.regions.iter().take(used);
        if there.any(|s| overlaps(s, words.read(&s.start))) {
            return Err(Error::Exists);
        }
        let (at, slot) = self
            .regions
            .iter()
            .enumerate()
            .find(|(_, s)| words.read(&s.start) == 0 && words.exchange(&s.start, 0, mark(me)))
            .ok_or(Error::Full)?;
        words.replace(&slot.end, r.end);
        words.replace(&slot.kind, r.word());
        for _ in 0..MAX_REGIONS {
            let used = words.read(&self.slots_used);
            if used > at as u64 || words.exchange(&self.slots_used, used, at as u64 + 1) {
                break;
            }
        }
        words.replace(&slot.start, r.start | mark(me));
        // Of two that are added at the same time at least one sees the other.
        words.fence();
        let clash = self
            .regions
            .iter()
            .enumerate()
            .filter(|&(n, _)| n != at)
            .find_map(|(_, s)| match words.read(&s.start) {
                start if start < USER_MIN => None,
                // It may have looked around before this one was announced, or not yet.
                start if start & MARK != 0 => {
                    let there = start & !MARK < r.end && r.start < words.read(&s.end);
                    there.then_some(Error::Again)
                }
                start => overlaps(s, start).then_some(Error::Exists),
            });
        words.replace(&slot.start, if clash.is_some() { 0 } else { r.start });
        words.increase(&self.region_changes, 1);
        clash.map_or(Ok(()), Err)
    }

    /// Frees the slots that a dead node was filling or emptying. Only recovery of that node calls this. A
    /// region whose start address had been stored stays, and so does a region of a live node. Other CPUs read
    /// all regions anew, because the dead node may not have counted its last change.
    pub fn repair_regions(&self, words: &Words, dead: NodeId) {
        for slot in &self.regions {
            let start = words.read(&slot.start);
            if start & MARK == mark(dead) {
                words.exchange(&slot.start, start, 0);
            }
        }
        words.increase(&self.region_changes, 1);
    }

    /// Removes the region that starts at `start`, on behalf of node `me`; pages in it stay.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn remove_region(&self, words: &Words, me: NodeId, start: u64) -> Result<()> {
        if start < USER_MIN || start & MARK != 0 {
            return Err(Error::NotFound);
        }
        let slot = self
            .regions
            .iter()
            .find(|s| words.read(&s.start) == start && words.exchange(&s.start, start, mark(me)))
            .ok_or(Error::NotFound)?;
        words.replace(&slot.start, 0);
        words.increase(&self.region_changes, 1);
        Ok(())
    }

    /// The region in a slot, if there is one.
    pub fn read_slot(words: &Words, slot: &RegionSlot) -> Option<Region> {
        let start = words.read(&slot.start);
        if start < USER_MIN {
            return None;
        }
        let (end, kind) = (words.read(&slot.end), words.read(&slot.kind));
        // Unchanged while being read?
        if words.read(&slot.start) != start {
            return None;
        }
        Region::new(start, end.checked_sub(start)?, kind).ok()
    }

    /// The present regions.
    pub fn regions<'a>(&'a self, words: &'a Words) -> impl Iterator<Item = Region> + 'a {
        self.regions
            .iter()
            .take(words.read(&self.slots_used) as usize)
            .filter_map(|s| Self::read_slot(words, s))
    }

    /// Start, end and slot of each present region, which can be read without decoding the rest.
    pub fn bounds<'a>(
        &'a self,
        words: &'a Words,
    ) -> impl Iterator<Item = (u64, u64, &'a RegionSlot)> + 'a {
        self.regions
            .iter()
            .take(words.read(&self.slots_used) as usize)
            .filter_map(|s| {
                let (start, end) = (words.read(&s.start), words.read(&s.end));
                // Unchanged while being read?
                (start >= USER_MIN && start & MARK == 0 && words.read(&s.start) == start)
                    .then_some((start, end, s))
            })
    }

    /// The region that contains an address.
    pub fn region_at(&self, words: &Words, va: u64) -> Option<Region> {
        self.regions
            .iter()
            .take(words.read(&self.slots_used) as usize)
            .filter(|s| words.read(&s.start) <= va && va < words.read(&s.end))
            .find_map(|s| Self::read_slot(words, s).filter(|r| r.contains(va)))
    }

    /// The supply of a node; `None` if it has no frames.
    pub fn supply(&self, words: &Words, node: NodeId) -> Option<Supplies> {
        let mut all = Supplies {
            runs: [None; MAX_RUNS],
            used: 0,
            total: 0,
        };
        for word in &self.supplies[node.index()].runs {
            let Some(run) = Supply::from_bits(words.read(word)) else {
                break;
            };
            all.runs[all.used] = Some(run);
            all.used += 1;
            all.total += run.frames;
        }
        if let Some(first) = all.for_tables() {
            all.total -= first.frames / TABLES_PART;
        }
        Some(all).filter(|all| all.used != 0)
    }

    /// Changes one run of a node's supply; without frames, the runs behind it are ignored. Faults restart
    /// their search for free frames: in the added part, if the run has become longer.
    pub fn set_run(&self, words: &Words, node: NodeId, run: usize, supply: Option<Supply>) {
        let slot = &self.supplies[node.index()];
        let Some(word) = slot.runs.get(run) else {
            return;
        };
        let bits = supply.map_or(0, Supply::bits);
        let before = words.replace(word, bits);
        if before == bits {
            return;
        }
        let cursor = match (Supply::from_bits(before), supply) {
            (Some(old), Some(new)) if old.first == new.first && old.frames < new.frames => {
                old.frames
            }
            _ => 0,
        };
        words.replace(&slot.cursor, cursor);
        words.replace(&slot.in_vain, 0);
        if run == 0 {
            words.replace(&slot.tables, 0);
        }
    }

    /// Changes the first run of a node's supply.
    pub fn set_supply(&self, words: &Words, node: NodeId, supply: Option<Supply>) {
        self.set_run(words, node, 0, supply);
    }

    /// Whether a frame belongs to a supply of the space.
    pub fn is_supplied(&self, words: &Words, frame: FrameRef) -> bool {
        NodeId::first(MAX_NODES)
            .filter_map(|n| self.supply(words, n))
            .any(|s| s.contains(frame))
    }
}
