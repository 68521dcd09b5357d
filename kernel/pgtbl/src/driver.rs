//! Remote CPU drivers: the accessor functions for one page table. The module header of the crate
//! has the states and the rows.

use core::ops::{Range, RangeInclusive};
use core::sync::atomic::Ordering;

use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_abi::{Isa, NodeId};
use dyad_coherence::GlobalMem;
use dyad_shm::{Epoch, PhysAddr};

use crate::pte::{decode, encode};
use crate::{Leaf, Level, MapError, Perms, Pte, PteSlot};

/// Entries of a table.
const ENTRIES: u64 = PAGE_SIZE / 8;
/// How often a change is retried because accessed or dirty bits have changed meanwhile. Hardware sets each
/// bit once; only other nodes that clear bits at the same time can cause more retries.
const RETRIES: u32 = 16;

/// The source of frames for tables.
pub trait FrameSource {
    /// A zeroed frame in shared memory. This node may have stored the zeros without writing them
    /// back; no other node's cache holds stores to it, and none that will walk the table through
    /// its cache (the owner's hardware) holds an older copy.
    fn alloc_table(&self) -> Option<PhysAddr>;
    /// Takes a frame back. No cache holds stores to it but this node's.
    fn free_table(&self, pa: PhysAddr);
}

/// The end of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The entry's meaning; a table only if it is of a kind that cannot be followed
    /// ([`Pte::Other`] then).
    pub pte: Pte,
    /// Level of the table that the entry is in.
    pub level: Level,
    /// Address of the entry.
    pub entry: PhysAddr,
    /// The entry's word.
    pub raw: u64,
}

/// Whether an address is canonical: 47 bits, sign-extended.
pub const fn is_canonical(va: u64) -> bool {
    va < USER_END || va >= USER_END.wrapping_neg()
}

/// Accessor functions for one page table, usable from any node, whatever its ISA.
///
/// Nothing here flushes a TLB. All operations take a bounded number of steps, whatever the tables hold.
/// Tables must not be freed while an operation on them is in progress.
#[derive(Debug)]
pub struct RemoteCpu<'m, M: GlobalMem + ?Sized> {
    pub(crate) mem: &'m M,
    pub(crate) isa: Isa,
    root: PhysAddr,
    /// Whether hardware must find accessed and dirty set in every leaf.
    preset: bool,
}

impl<M: GlobalMem + ?Sized> Clone for RemoteCpu<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: GlobalMem + ?Sized> Copy for RemoteCpu<'_, M> {}

impl<'m, M: GlobalMem + ?Sized> RemoteCpu<'m, M> {
    /// The driver for the table with that root, in the format of `isa`.
    pub fn new(mem: &'m M, isa: Isa, root: PhysAddr) -> Self {
        RemoteCpu {
            mem,
            isa,
            root,
            preset: false,
        }
    }

    /// A copy of the driver for machines with incoherent caches. Leaves that it writes have accessed and dirty
    /// set, so that no hardware writes to their entries. [`harvest`](Self::harvest) clears nothing: it reports
    /// every page as accessed, and dirty if it has ever been writable.
    #[must_use]
    pub fn preset(self) -> Self {
        RemoteCpu {
            preset: true,
            ..self
        }
    }

    /// Whether the driver is a [`preset`](Self::preset) one.
    #[inline]
    pub(crate) fn is_preset(&self) -> bool {
        self.preset
    }

    /// The word for a leaf.
    pub(crate) fn encode_leaf(&self, leaf: Leaf, level: Level) -> Result<u64, MapError> {
        let leaf = match self.preset {
            true => Leaf {
                // A page that has been writable stays dirty when it no longer is.
                dirty: leaf.dirty || leaf.perms.contains(Perms::WRITE),
                accessed: true,
                ..leaf
            },
            false => leaf,
        };
        Ok(encode(self.isa, Pte::Leaf(leaf), level)?)
    }

    /// The table's format.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The table's root.
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// Follows tables to the entry that decides about `va`. An address that is not canonical, and
    /// a table outside of shared memory, end it with [`Pte::Other`].
    pub fn walk(&self, va: u64) -> Walk {
        let (mut table, mut level) = (self.root, Level::L4);
        loop {
            let entry = entry_at(table, level.index(va));
            let (raw, mut pte) = self.read(entry, level);
            match (pte, level.below()) {
                (Pte::Table(next), Some(below)) if is_canonical(va) => {
                    (table, level) = (next, below);
                    continue;
                }
                _ if !is_canonical(va) => pte = Pte::Other(raw),
                _ => {}
            }
            return Walk {
                pte,
                level,
                entry,
                raw,
            };
        }
    }

    /// The physical address of the byte at `va`, with its leaf and the leaf's level.
    pub fn translate(&self, va: u64) -> Option<(PhysAddr, Leaf, Level)> {
        let walk = self.walk(va);
        match walk.pte {
            Pte::Leaf(leaf) => {
                let pa = leaf.pa.add(va & (walk.level.size() - 1));
                Some((pa, leaf, walk.level))
            }
            _ => None,
        }
    }

    /// Maps a page of the size of `level`. The caller must know that no TLB holds another translation for it;
    /// otherwise see [`map_when`](Self::map_when). Tables made on the way stay when it fails.
    pub fn map(
        &self,
        va: u64,
        leaf: Leaf,
        level: Level,
        frames: &impl FrameSource,
    ) -> Result<(), MapError> {
        self.map_when(va, leaf, level, frames, |_| true)
    }

    /// Maps a page of the size of `level`, over entries whose stamp is quiesced only.
    pub fn map_when(
        &self,
        va: u64,
        leaf: Leaf,
        level: Level,
        frames: &impl FrameSource,
        quiesced: impl Fn(Epoch) -> bool,
    ) -> Result<(), MapError> {
        check_half(va, leaf.perms)?;
        let new = self.encode_leaf(leaf, level)?;
        let entry = self.entry_for(va, level, frames, &quiesced)?;
        self.install(entry, level, new, &quiesced)
    }

    /// The address of the entry for a page of the size of `level` at `va`; makes the tables that
    /// are missing on the way. The frame the entry is in is the table to pin.
    pub fn entry_for(
        &self,
        va: u64,
        level: Level,
        frames: &impl FrameSource,
        quiesced: impl Fn(Epoch) -> bool,
    ) -> Result<PhysAddr, MapError> {
        if !is_canonical(va) {
            return Err(MapError::BadAddress);
        }
        if !va.is_multiple_of(level.size()) {
            return Err(MapError::Misaligned);
        }
        let (mut table, mut above) = (self.root, Level::L4);
        while let Some(below) = above.below()
            && above != level
        {
            let entry = entry_at(table, above.index(va));
            table = self.table_at(entry, above, frames, &quiesced)?;
            above = below;
        }
        Ok(entry_at(table, level.index(va)))
    }

    /// The table that an entry leads to, made if there is none.
    fn table_at(
        &self,
        entry: PhysAddr,
        level: Level,
        frames: &impl FrameSource,
        quiesced: &impl Fn(Epoch) -> bool,
    ) -> Result<PhysAddr, MapError> {
        match self.read(entry, level).1 {
            Pte::Table(table) => return Ok(table),
            Pte::Empty { .. } => {}
            other => return Err(self.not_a_leaf(other, level, MapError::Contended)),
        }
        let table = frames.alloc_table().ok_or(MapError::NoMemory)?;
        // Another node may follow the entry as soon as it is there: its zeros go first.
        self.mem.writeback(table, PAGE_SIZE);
        let made = encode(self.isa, Pte::Table(table), level)
            .map_err(MapError::Encode)
            .and_then(|word| self.install(entry, level, word, quiesced));
        if made.is_ok() {
            return Ok(table);
        }
        frames.free_table(table);
        match self.read(entry, level) {
            (_, Pte::Table(theirs)) => Ok(theirs),
            (_, Pte::Leaf(_)) => Err(MapError::Conflict(level)),
            _ => Err(made.err().unwrap_or(MapError::Contended)),
        }
    }

    /// CAS Empty(s) → `new`, once s is quiesced.
    fn install(
        &self,
        entry: PhysAddr,
        level: Level,
        new: u64,
        quiesced: &impl Fn(Epoch) -> bool,
    ) -> Result<(), MapError> {
        let (raw, pte) = self.read(entry, level);
        let found = match pte {
            Pte::Empty { epoch } if epoch != Epoch::ZERO && !quiesced(epoch) => {
                return Err(MapError::NotQuiesced(epoch));
            }
            Pte::Empty { .. } => match self.mem.cas(entry, raw, new) {
                Ok(_) => return Ok(()),
                Err(now) => decode(self.isa, now, level),
            },
            other => other,
        };
        Err(match found {
            Pte::Leaf(leaf) => MapError::Exists(leaf),
            other => self.not_a_leaf(other, level, MapError::Contended),
        })
    }

    /// Unmaps the page that covers `va`, whatever its size, on behalf of `node`. `log` notes the
    /// table that has been written to and the page, for rounds to drop copies of; `epoch` gives the
    /// stamp, the shared epoch as it is now. They are called in this order, after the entry has been
    /// cleared; a full fence is between them. A round that counts for the stamp finds the log.
    ///
    /// The translation may be in TLBs until the stamp is quiesced.
    pub fn unmap(
        &self,
        va: u64,
        node: NodeId,
        log: impl FnOnce(PhysAddr, &Leaf),
        epoch: impl FnOnce() -> Epoch,
    ) -> Result<(Leaf, Level), MapError> {
        let (place, leaf) = self.leaf_at(va)?;
        let leaf = self.close(&place, &leaf, node)?;
        log(place.table(), &leaf);
        self.mem.fence();
        // Only a recovering node can have finished this unmapping.
        self.empty(&place, node, epoch())?;
        Ok((leaf, place.level))
    }

    /// Changes the permissions of the page that covers `va`; [`Perms::KEPT`], accessed and dirty stay.
    /// Without [`Perms::READ`], a page of an address space can be used by the kernel only, until it gets permissions
    /// again. Returns the previous leaf. A removed permission has no effect once an epoch taken afterwards is
    /// quiesced.
    pub fn protect(&self, va: u64, perms: Perms) -> Result<Leaf, MapError> {
        let (place, leaf) = self.leaf_at(va)?;
        self.protect_at(&place, &leaf, perms)
    }

    /// Reads and clears (accessed, dirty) of the page that covers `va`. CPUs set them again after
    /// a TLB flush only. Kernel pages, whose bits are preset, keep them, and so do all pages if this
    /// driver is a [`preset`](Self::preset) one.
    pub fn harvest(&self, va: u64) -> Result<(bool, bool), MapError> {
        let (place, leaf) = self.leaf_at(va)?;
        self.harvest_at(&place, &leaf)
    }

    /// [`protect`](Self::protect) of a leaf that has been found.
    pub fn protect_at(&self, place: &PteSlot, leaf: &Leaf, perms: Perms) -> Result<Leaf, MapError> {
        self.replace(place, leaf, |leaf| {
            let mut perms = perms.difference(Perms::KEPT) | leaf.perms & Perms::KEPT;
            // Global pages are the kernel's own. Those of an address space can have no permission, but not others without
            // that of reading.
            if !leaf.global
                && (perms & (Perms::WRITE | Perms::EXECUTE)).is_empty()
                    | perms.contains(Perms::READ)
            {
                perms.set(Perms::USER, perms.contains(Perms::READ));
                perms |= Perms::READ;
            }
            self.encode_leaf(Leaf { perms, ..leaf }, place.level)
        })
    }

    /// [`harvest`](Self::harvest) of a leaf that has been found.
    pub fn harvest_at(&self, place: &PteSlot, leaf: &Leaf) -> Result<(bool, bool), MapError> {
        self.replace(place, leaf, |leaf| {
            let keep = self.preset || !leaf.perms.contains(Perms::USER);
            let clean = Leaf {
                accessed: leaf.accessed && keep,
                dirty: leaf.dirty && keep,
                ..leaf
            };
            self.encode_leaf(clean, place.level)
        })
        .map(|leaf| (leaf.accessed, leaf.dirty))
    }

    /// The leaf that covers `va`, and where it is.
    fn leaf_at(&self, va: u64) -> Result<(PteSlot, Leaf), MapError> {
        if !is_canonical(va) {
            return Err(MapError::BadAddress);
        }
        let walk = self.walk(va);
        let Pte::Leaf(leaf) = walk.pte else {
            return Err(self.not_a_leaf(walk.pte, walk.level, MapError::NotMapped));
        };
        let place = PteSlot {
            entry: walk.entry,
            raw: walk.raw,
            level: walk.level,
            above: None,
        };
        Ok((place, leaf))
    }

    /// Replaces a leaf by the result of `next`. Retries while only the accessed and dirty bits have changed.
    /// Returns the replaced leaf.
    pub(crate) fn replace(
        &self,
        place: &PteSlot,
        first: &Leaf,
        next: impl Fn(Leaf) -> Result<u64, MapError>,
    ) -> Result<Leaf, MapError> {
        let (mut raw, mut leaf) = (place.raw, *first);
        for _ in 0..RETRIES {
            let Err(now) = self.mem.cas(place.entry, raw, next(leaf)?) else {
                return Ok(leaf);
            };
            leaf = match decode(self.isa, now, place.level) {
                Pte::Leaf(l) if l.same_mapping(first) => l,
                Pte::Leaf(_) => return Err(MapError::Contended),
                other => return Err(self.not_a_leaf(other, place.level, MapError::NotMapped)),
            };
            raw = now;
        }
        Err(MapError::Contended)
    }

    /// Calls `f` for every leaf that maps some of `range`: start address, level, leaf. Visits each
    /// table once.
    pub fn for_each_leaf(&self, range: Range<u64>, f: &mut dyn FnMut(u64, Level, Leaf)) {
        if range.start < range.end {
            self.visit(self.root, Level::L4, 0, range.start..=range.end - 1, f);
        }
    }

    /// `for_each_leaf` below one table, which covers addresses from `base` on.
    fn visit(
        &self,
        table: PhysAddr,
        level: Level,
        base: u64,
        range: RangeInclusive<u64>,
        f: &mut dyn FnMut(u64, Level, Leaf),
    ) {
        for i in 0..ENTRIES {
            let mut va = base + i * level.size();
            if level == Level::L4 && va >= USER_END {
                va |= USER_END.wrapping_neg();
            }
            if va > *range.end() || va + (level.size() - 1) < *range.start() {
                continue;
            }
            match (
                self.read(entry_at(table, i as usize), level).1,
                level.below(),
            ) {
                (Pte::Leaf(leaf), _) => f(va, level, leaf),
                (Pte::Table(next), Some(below)) => self.visit(next, below, va, range.clone(), f),
                _ => {}
            }
        }
    }

    /// Frees all tables of the user half except the root, whose user half is empty afterwards. Pages are not
    /// freed. No CPU may run on the table or work on it.
    pub fn free_tables(&self, frames: &impl FrameSource) {
        for i in 0..Level::L4.index(USER_END) {
            let entry = entry_at(self.root, i);
            if let (_, Pte::Table(table)) = self.read(entry, Level::L4) {
                self.mem.swap(entry, 0);
                self.free_below(table, Level::L3, frames);
            }
        }
    }

    fn free_below(&self, table: PhysAddr, level: Level, frames: &impl FrameSource) {
        if let Some(below) = level.below().filter(|_| level != Level::L1) {
            for i in 0..ENTRIES {
                if let (_, Pte::Table(t)) = self.read(entry_at(table, i as usize), level) {
                    self.free_below(t, below, frames);
                }
            }
        }
        frames.free_table(table);
    }

    /// An entry's word and meaning. A table outside of shared memory is none that can be followed.
    fn read(&self, entry: PhysAddr, level: Level) -> (u64, Pte) {
        let raw = self.mem.load_fresh(entry, Ordering::Acquire);
        match decode(self.isa, raw, level) {
            Pte::Table(t) if !self.mem.contains(t, PAGE_SIZE) => (raw, Pte::Other(raw)),
            pte => (raw, pte),
        }
    }

    /// The error for an entry that should have been a leaf, or empty.
    pub(crate) fn not_a_leaf(&self, pte: Pte, level: Level, empty: MapError) -> MapError {
        match pte {
            Pte::Empty { .. } => empty,
            Pte::Closing { .. } | Pte::Parked { .. } => MapError::Closing,
            Pte::Table(_) | Pte::Leaf(_) | Pte::Other(_) => MapError::Conflict(level),
        }
    }
}

pub(crate) fn entry_at(table: PhysAddr, index: usize) -> PhysAddr {
    table.add(8 * index as u64)
}

/// User pages belong in the user half.
fn check_half(va: u64, perms: Perms) -> Result<(), MapError> {
    if !is_canonical(va) || perms.contains(Perms::USER) && va >= USER_END {
        return Err(MapError::BadAddress);
    }
    Ok(())
}
