//! Entries that have been found: for rows that look, take references, and then change what they
//! have seen, if it still is what they have seen.

use core::sync::atomic::Ordering;

use dyad_abi::NodeId;
use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_coherence::GlobalMem;
use dyad_shm::{Epoch, PhysAddr};

use crate::driver::entry_at;
use crate::pte::{decode, encode, table_in};
use crate::{Leaf, Level, MapError, Pte, RemoteCpu};

/// An entry, and the word that was in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the entry.
    pub entry: PhysAddr,
    /// Its word.
    pub raw: u64,
    /// Level of the table it is in.
    pub level: Level,
    /// The entry that leads to that table; `None` for the root, and for entries found by other
    /// means.
    pub above: Option<PhysAddr>,
}

impl Place {
    /// The table the entry is in: to be pinned by whatever is put there.
    pub const fn table(&self) -> PhysAddr {
        self.entry.frame_start()
    }
}

impl<M: GlobalMem + ?Sized> RemoteCpu<'_, M> {
    /// The entry that decides about the user address `va`, but none below level `lowest`. One load
    /// per level.
    ///
    /// # Errors
    ///
    /// [`MapError::BadAddress`] outside of the user half.
    pub fn find(&self, va: u64, lowest: Level) -> Result<Place, MapError> {
        if va >= USER_END {
            return Err(MapError::BadAddress);
        }
        let mut level = Level::L4;
        let mut entry = entry_at(self.root(), level.index(va));
        let mut above = None;
        loop {
            let raw = self.mem.load_fresh(entry, Ordering::Acquire);
            let (true, Some(table), Some(below)) =
                (level > lowest, table_in(self.isa, raw), level.below())
            else {
                return Ok(Place {
                    entry,
                    raw,
                    level,
                    above,
                });
            };
            // Only damage leads out of shared memory; what it leads to is not followed.
            if !self.mem.contains(table, PAGE_SIZE) {
                return Err(MapError::Conflict(level));
            }
            above = Some(entry);
            level = below;
            entry = entry_at(table, level.index(va));
        }
    }

    /// What the entry meant when it was found.
    pub fn meaning(&self, place: &Place) -> Pte {
        decode(self.isa, place.raw, place.level)
    }

    /// Looks again.
    #[must_use]
    pub fn again(&self, place: &Place) -> Place {
        Place {
            raw: self.mem.load_fresh(place.entry, Ordering::Acquire),
            ..*place
        }
    }

    /// Whether the table that the entry is in still is where it was found. Asked after a fence
    /// behind the table's pin: whoever takes a table out first closes the entry above and then looks
    /// for pins.
    pub fn is_linked(&self, place: &Place) -> bool {
        place.above.is_none_or(|above| {
            let raw = self.mem.load_fresh(above, Ordering::Acquire);
            table_in(self.isa, raw) == Some(place.table())
        })
    }

    /// CAS Empty(s) → leaf or table, once s is quiesced.
    ///
    /// # Errors
    ///
    /// As [`map_when`](Self::map_when).
    pub fn fill(
        &self,
        place: &Place,
        new: Pte,
        quiesced: impl FnOnce(Epoch) -> bool,
    ) -> Result<(), MapError> {
        let word = match new {
            Pte::Leaf(leaf) => self.encode_leaf(leaf, place.level)?,
            other => encode(self.isa, other, place.level)?,
        };
        // Zero is the entry that has never been used.
        if place.raw != 0 {
            match self.meaning(place) {
                Pte::Empty { epoch } if !quiesced(epoch) => {
                    return Err(MapError::NotQuiesced(epoch));
                }
                Pte::Empty { .. } => {}
                other => return Err(self.taken(other, place.level)),
            }
        }
        match self.mem.cas(place.entry, place.raw, word) {
            Ok(_) => Ok(()),
            Err(now) => Err(self.taken(decode(self.isa, now, place.level), place.level)),
        }
    }

    fn taken(&self, found: Pte, level: Level) -> MapError {
        match found {
            Pte::Leaf(leaf) => MapError::Exists(leaf),
            other => self.not_a_leaf(other, level, MapError::Contended),
        }
    }

    /// CAS leaf → Closing(node), again if only accessed and dirty have changed. Returns the leaf as
    /// it was last.
    ///
    /// # Errors
    ///
    /// [`MapError::Contended`], [`MapError::NotMapped`], [`MapError::Closing`] if it is not the
    /// leaf found any more.
    pub fn close(&self, place: &Place, leaf: &Leaf, node: NodeId) -> Result<Leaf, MapError> {
        let closing = encode(self.isa, Pte::Closing { node }, place.level)?;
        self.replace(place, leaf, |_| Ok(closing))
    }

    /// CAS table → Closing(node).
    ///
    /// # Errors
    ///
    /// [`MapError::Contended`] if it is not the word found any more.
    pub fn close_table(&self, place: &Place, node: NodeId) -> Result<(), MapError> {
        let mut raw = place.raw;
        // Hardware may set an accessed bit once.
        for _ in 0..2 {
            match self.swap_word(place, raw, Pte::Closing { node }) {
                Ok(()) => return Ok(()),
                Err(MapError::Contended) => raw = self.again(place).raw,
                Err(e) => return Err(e),
            }
            if table_in(self.isa, raw) != table_in(self.isa, place.raw) {
                break;
            }
        }
        Err(MapError::Contended)
    }

    /// CAS Closing(node) → table: the table stays.
    ///
    /// # Errors
    ///
    /// [`MapError::Contended`] if others think this node dead.
    pub fn reopen_table(
        &self,
        place: &Place,
        node: NodeId,
        table: PhysAddr,
    ) -> Result<(), MapError> {
        let closing = encode(self.isa, Pte::Closing { node }, place.level)?;
        self.swap_word(place, closing, Pte::Table(table))
    }

    /// CAS Closing(node) → Empty(epoch). The epoch has been read after the entry was closed and a
    /// full fence.
    ///
    /// # Errors
    ///
    /// [`MapError::Contended`] if others think this node dead.
    pub fn empty(&self, place: &Place, node: NodeId, epoch: Epoch) -> Result<(), MapError> {
        let closing = encode(self.isa, Pte::Closing { node }, place.level)?;
        self.swap_word(place, closing, Pte::Empty { epoch })
    }

    fn swap_word(&self, place: &Place, old: u64, new: Pte) -> Result<(), MapError> {
        let new = encode(self.isa, new, place.level)?;
        match self.mem.cas(place.entry, old, new) {
            Ok(_) => Ok(()),
            Err(_) => Err(MapError::Contended),
        }
    }
}
