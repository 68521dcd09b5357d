//! Tables as one node works on them, and lookups: the way of every system call.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapIndex, CapType, LEAF_SLOTS, ROOT_ENTRIES, Rights, TABLE_SLOTS};
use dyad_coherence::GlobalMem;
use dyad_shm::frame::{Epoch, FrameRef};
use dyad_shm::permitted::Permitted;
use dyad_shm::pool::PhysAddr;

use crate::SLOT_BYTES;
use crate::contents::Contents;
use crate::entry::{RootEntry, present};
use crate::error::Refused;
use crate::header::{Owner, SlotHeader, active};

pub(crate) const STAMP: u64 = 8;
pub(crate) const CONTENTS: u64 = 16;
const _: () = assert!(CONTENTS + 8 * Contents::WORDS as u64 == SLOT_BYTES);

/// The number of the permission by which lookups read.
const LOOKUP: u32 = Permitted::Lookup as u32;

/// All capability tables, as one node works on them.
#[derive(Debug)]
pub struct Table<'m, M: ?Sized> {
    pub(crate) mem: &'m M,
    pub(crate) owner: Owner,
}

impl<M: ?Sized> Clone for Table<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: ?Sized> Copy for Table<'_, M> {}

/// A slot that holds a capability. It does so until the CPU that found it leaves the kernel, as far
/// as that CPU is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The address of the slot.
    pub slot: PhysAddr,
    /// The type of the capability.
    pub ty: CapType,
    /// The operations that the capability permits.
    pub rights: Rights,
}

impl Found {
    /// Checks that this is a capability of type `ty` that permits all of `rights`.
    ///
    /// # Errors
    ///
    /// [`Refused::WrongCap`], [`Refused::Denied`].
    #[inline]
    pub fn require(&self, ty: CapType, rights: Rights) -> Result<(), Refused> {
        if self.ty != ty {
            return Err(Refused::WrongCap);
        }
        if !self.rights.contains(rights) {
            return Err(Refused::Denied);
        }
        Ok(())
    }

    /// The header that was found, for [`Table::slot_deactivate`].
    pub const fn header(&self) -> SlotHeader {
        SlotHeader::Active {
            ty: self.ty,
            rights: self.rights,
        }
    }
}

/// The whole contents of a slot, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The state of the slot.
    pub header: SlotHeader,
    /// The epoch at which the slot was last emptied.
    pub stamp: Epoch,
    /// The contents of the slot, if it is ACTIVE.
    pub contents: Option<Contents>,
}

impl<'m, M: GlobalMem + ?Sized> Table<'m, M> {
    /// Tables that are changed in the name of `owner`.
    pub const fn new(mem: &'m M, owner: Owner) -> Table<'m, M> {
        Table { mem, owner }
    }

    /// The owner of changes.
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// The slot of a capability index in the table with this root, whatever its contents. Reads one word,
    /// from this node's copy: another node's change shows after at most one round.
    ///
    /// # Errors
    ///
    /// [`Refused::NoCap`] if there is none. Index 0 has none.
    #[inline]
    pub fn slot_at(&self, root: PhysAddr, index: CapIndex) -> Result<PhysAddr, Refused> {
        let leaf = self.leaf_at(root, index)?;
        let n = index.get();
        Ok(leaf.address().add((n % LEAF_SLOTS) as u64 * SLOT_BYTES))
    }

    /// The leaf that such a slot is in.
    ///
    /// # Errors
    ///
    /// As [`slot_at`](Table::slot_at).
    #[inline]
    pub fn leaf_at(&self, root: PhysAddr, index: CapIndex) -> Result<FrameRef, Refused> {
        let n = index.get();
        if n.wrapping_sub(1) >= TABLE_SLOTS - 1 {
            return Err(Refused::NoCap);
        }
        let entry = root.add((n / LEAF_SLOTS) as u64 * 8);
        present((self.mem).load_permitted::<LOOKUP>(entry, Ordering::Acquire)).ok_or(Refused::NoCap)
    }

    /// The header of a slot. Reads one word, from this node's copy, like [`slot_at`](Table::slot_at).
    ///
    /// # Errors
    ///
    /// [`Refused::NoCap`] if it holds no capability.
    #[inline]
    pub fn found(&self, slot: PhysAddr) -> Result<Found, Refused> {
        match active((self.mem).load_permitted::<LOOKUP>(slot, Ordering::Acquire)) {
            Some((ty, rights)) => Ok(Found { slot, ty, rights }),
            None => Err(Refused::NoCap),
        }
    }

    /// The capability at an index of the table with this root. Reads two words from this node's
    /// view: another node's change shows after at most one round. Says nothing about a guard.
    ///
    /// # Errors
    ///
    /// [`Refused::NoCap`].
    #[inline]
    pub fn lookup(&self, root: PhysAddr, index: CapIndex) -> Result<Found, Refused> {
        self.found(self.slot_at(root, index)?)
    }

    /// The rest of a capability that has been found.
    ///
    /// # Errors
    ///
    /// [`Refused::Corrupt`].
    #[inline]
    pub fn contents(&self, found: &Found) -> Result<Contents, Refused> {
        let words = (self.mem).load_rest_permitted::<LOOKUP>(found.slot);
        Contents::from_words((found.ty, found.rights), words).ok_or(Refused::Corrupt)
    }

    /// The whole contents of a slot, read at memory. Not all words need be from the same moment, but those of
    /// a capability are.
    ///
    /// # Errors
    ///
    /// [`Refused::Corrupt`].
    pub fn read(&self, slot: PhysAddr) -> Result<Slot, Refused> {
        let header = self.header(slot)?;
        let stamp = Epoch::saturating(self.mem.load(slot.add(STAMP), Ordering::Relaxed));
        let contents = match header {
            SlotHeader::Active { ty, rights } => {
                Some(self.contents(&Found { slot, ty, rights })?)
            }
            _ => None,
        };
        Ok(Slot {
            header,
            stamp,
            contents,
        })
    }

    /// An entry of a root, read at memory.
    ///
    /// # Errors
    ///
    /// [`Refused::BadIndex`], [`Refused::Corrupt`].
    pub fn entry(&self, root: PhysAddr, index: u32) -> Result<RootEntry, Refused> {
        self.entry_at(entry_address(root, index)?)
    }

    pub(crate) fn entry_at(&self, at: PhysAddr) -> Result<RootEntry, Refused> {
        let word = self.mem.load_fresh(at, Ordering::Acquire);
        RootEntry::from_bits(word).ok_or(Refused::Corrupt)
    }

    pub(crate) fn header(&self, slot: PhysAddr) -> Result<SlotHeader, Refused> {
        let word = self.mem.load_fresh(slot, Ordering::Acquire);
        SlotHeader::from_bits(word).ok_or(Refused::Corrupt)
    }

    /// Replaces the header of a slot, if it is still the old one. Says which it is if not.
    #[inline]
    pub(crate) fn change(
        &self,
        slot: PhysAddr,
        old: SlotHeader,
        new: SlotHeader,
    ) -> Result<(), Refused> {
        match self.mem.cas(slot, old.bits(), new.bits()) {
            Ok(_) => Ok(()),
            Err(now) => Err(instead(now)),
        }
    }
}

/// The error for a header that is not the expected one.
#[cold]
pub(crate) fn instead(now: u64) -> Refused {
    match SlotHeader::from_bits(now) {
        None => Refused::Corrupt,
        Some(SlotHeader::Free) => Refused::NoCap,
        Some(SlotHeader::Active { .. }) => Refused::Occupied,
        Some(SlotHeader::Reserved(_) | SlotHeader::Closing(_)) => Refused::Busy,
    }
}

/// Address of an entry of a root.
pub(crate) fn entry_address(root: PhysAddr, index: u32) -> Result<PhysAddr, Refused> {
    if index < ROOT_ENTRIES {
        Ok(root.add(index as u64 * 8))
    } else {
        Err(Refused::BadIndex)
    }
}
