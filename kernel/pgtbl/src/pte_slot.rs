//! Entries that have been found: for rows that read, take references, and then change the entry if it is
//! unchanged.

use core::sync::atomic::Ordering;

use dyad_abi::user::USER_END;
use dyad_abi::{Isa, NodeId};
use dyad_coherence::GlobalMem;
use dyad_shm::{Epoch, PhysAddr};

use crate::driver::entry_at;
use crate::pte::{decode, encode, table_in};
use crate::{Leaf, Level, MapError, Memory, Perms, Pte, RemoteCpu, absent};

/// Bits that every format has for the address of a page.
pub(crate) const USER_ADDRESS: u64 = (1 << 48) - (1 << 12);

/// Words of 4 KiB user pages at address 0, by ISA and permissions; 0: there is no such page.
static USER_WORDS: [[u64; 128]; Isa::ALL.len()] = {
    let mut words = [[0; 128]; Isa::ALL.len()];
    let mut p = 0;
    while p < 128 {
        let perms = Perms::from_bits_retain(p as u8);
        let user = perms.contains(Perms::READ.union(Perms::USER));
        if user && !perms.contains(Perms::WRITE.union(Perms::EXECUTE)) {
            words[Isa::X86_64.index()][p] = crate::x86::user_page(perms);
            words[Isa::Aarch64.index()][p] = crate::a64::user_page(perms);
        }
        p += 1;
    }
    words
};

/// Entries of 4 KiB user pages as bare words, for rows that handle only the usual case: a clean page is
/// mapped at an entry that has never been used, or is unmapped. Each function returns `None` for anything
/// else.
pub mod plain {
    use dyad_abi::{Isa, NodeId};
    use dyad_shm::{Epoch, PhysAddr};

    use super::{USER_ADDRESS, USER_WORDS};
    use crate::{Level, Perms, absent};

    /// The word of a page that has not been used.
    #[inline]
    pub fn page(isa: Isa, pa: PhysAddr, perms: Perms) -> Option<u64> {
        let bits = USER_WORDS[isa.index()][(perms.bits() & 0x7f) as usize];
        (bits != 0 && pa.0 & !USER_ADDRESS == 0).then_some(bits | pa.0)
    }

    /// Whether a word is that of an entry that is present, on both ISAs.
    #[inline(always)]
    pub const fn is_present(raw: u64) -> bool {
        raw & 1 != 0
    }

    /// The page of a word, and its permissions.
    #[inline]
    pub fn page_in(isa: Isa, raw: u64) -> Option<(PhysAddr, Perms)> {
        // Looked at first because many entries are not.
        if !is_present(raw) {
            return None;
        }
        let (perms, used) = split(isa, raw);
        let word = USER_WORDS[isa.index()][(perms.bits() & 0x7f) as usize];
        let rest = raw & !(USER_ADDRESS | used) | word & used;
        (word != 0 && rest == word).then_some((PhysAddr(raw & USER_ADDRESS), perms))
    }

    /// The page of a word, if no fault has taken it ([`Perms::OWNED`]): a fast [`page_in`] for the pages that
    /// are usually unmapped.
    #[inline(always)]
    pub fn given_page_in(isa: Isa, raw: u64) -> Option<PhysAddr> {
        let is = match isa {
            Isa::X86_64 => crate::x86::is_given_page(raw),
            Isa::Aarch64 => crate::a64::is_given_page(raw),
        };
        is.then_some(PhysAddr(raw & USER_ADDRESS))
    }

    /// The permissions that a word has if it is that of a user page, and the bits that tell whether
    /// it has been used.
    #[inline]
    fn split(isa: Isa, raw: u64) -> (Perms, u64) {
        match isa {
            Isa::X86_64 => crate::x86::split(raw),
            Isa::Aarch64 => crate::a64::split(raw),
        }
    }

    /// The word of a page that has been used, written to if it may be: so hardware leaves it alone.
    #[inline]
    pub fn used_page(isa: Isa, pa: PhysAddr, perms: Perms) -> Option<u64> {
        let word = page(isa, pa, perms)?;
        Some(match isa {
            Isa::X86_64 => crate::x86::used(word),
            Isa::Aarch64 => crate::a64::used(word),
        })
    }

    /// The word of a page, with `WRITE` or without, and without `EXECUTE`; that it has been used
    /// stays. `None` if it may not be made writable.
    #[inline]
    pub fn protected(isa: Isa, raw: u64, write: bool) -> Option<u64> {
        let (pa, had) = page_in(isa, raw)?;
        if write && !had.contains(Perms::MAY_WRITE) {
            return None;
        }
        let mut perms = had.difference(Perms::EXECUTE);
        perms.set(Perms::WRITE, write);
        let word = page(isa, pa, perms)?;
        Some(match isa {
            Isa::X86_64 => crate::x86::keep_used(word, raw),
            Isa::Aarch64 => crate::a64::keep_used(word, raw),
        })
    }

    /// The stamp in a word of an entry that is empty.
    #[inline]
    pub fn empty_in(isa: Isa, raw: u64) -> Option<Epoch> {
        absent::empty_in(raw, isa == Isa::X86_64)
    }

    /// Whether a word is that of an empty entry whose stamp is `limit` or older.
    #[inline(always)]
    pub fn is_empty_since(isa: Isa, raw: u64, limit: Epoch) -> bool {
        absent::is_empty_since(raw, limit, isa == Isa::X86_64)
    }

    /// The table that a word leads to, above [`Level::L1`].
    #[inline]
    pub fn table_in(isa: Isa, raw: u64) -> Option<PhysAddr> {
        crate::pte::table_in(isa, raw)
    }

    /// The word of `Closing`.
    #[inline]
    pub fn closing(isa: Isa, node: NodeId) -> u64 {
        absent::closing(node, isa == Isa::X86_64)
    }

    /// The word of `Empty`.
    #[inline]
    pub fn empty(isa: Isa, epoch: Epoch) -> u64 {
        absent::empty(epoch, isa == Isa::X86_64)
    }

    const _: () = assert!(USER_ADDRESS & (Level::L1.size() - 1) == 0);
}

/// An entry, and the word that was in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PteSlot {
    /// Address of the entry.
    pub entry: PhysAddr,
    /// The word of the entry.
    pub raw: u64,
    /// Level of the table it is in.
    pub level: Level,
    /// The entry that leads to the table; `None` for the root, and for entries found by other means.
    pub above: Option<PhysAddr>,
}

impl PteSlot {
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
    #[inline]
    pub fn find(&self, va: u64, lowest: Level) -> Result<PteSlot, MapError> {
        if va >= USER_END {
            return Err(MapError::BadAddress);
        }
        let mut level = Level::L4;
        let mut table = self.root();
        let mut above = None;
        loop {
            let index = level.index(va);
            // Only damage leads out of shared memory; what it leads to is not followed.
            let Some(raw) = self.mem.load_of_frame(table, index) else {
                return Err(MapError::Conflict(level));
            };
            let entry = entry_at(table, index);
            let (true, Some(next), Some(below)) =
                (level > lowest, table_in(self.isa, raw), level.below())
            else {
                return Ok(PteSlot {
                    entry,
                    raw,
                    level,
                    above,
                });
            };
            (above, table, level) = (Some(entry), next, below);
        }
    }

    /// The decoded entry, when it was found.
    #[inline]
    pub fn meaning(&self, place: &PteSlot) -> Pte {
        decode(self.isa, place.raw, place.level)
    }

    /// Looks again.
    #[must_use]
    #[inline]
    pub fn again(&self, place: &PteSlot) -> PteSlot {
        PteSlot {
            raw: self.mem.load_fresh(place.entry, Ordering::Acquire),
            ..*place
        }
    }

    /// Whether the table of the entry still hangs where it was found. The caller has pinned the table and
    /// executed a fence: a CPU that unlinks a table first closes the entry above, and then looks for pins.
    #[inline]
    pub fn is_linked(&self, place: &PteSlot) -> bool {
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
    #[inline]
    pub fn fill(
        &self,
        place: &PteSlot,
        new: Pte,
        quiesced: impl FnOnce(Epoch) -> bool,
    ) -> Result<(), MapError> {
        let word = match new {
            Pte::Leaf(leaf) => match self.user_word(&leaf, place.level) {
                Some(word) => word,
                None => self.encode_leaf(leaf, place.level)?,
            },
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

    /// A fast [`encode`] for the usual leaf: a 4 KiB user page of normal memory, not yet used.
    #[inline]
    fn user_word(&self, leaf: &Leaf, level: Level) -> Option<u64> {
        let perms = (leaf.perms.bits() & 0x7f) as usize;
        let bits = USER_WORDS[self.isa.index()][perms];
        let plain = level == Level::L1
            && leaf.memory == Memory::Normal
            && !(leaf.global | leaf.accessed | leaf.dirty | self.is_preset())
            && bits != 0
            && leaf.pa.0 & !USER_ADDRESS == 0;
        plain.then_some(bits | leaf.pa.0)
    }

    #[cold]
    fn taken(&self, found: Pte, level: Level) -> MapError {
        match found {
            Pte::Leaf(leaf) => MapError::Exists(leaf),
            other => self.not_a_leaf(other, level, MapError::Contended),
        }
    }

    /// CAS leaf → Closing(node), retried if only accessed and dirty have changed. Returns the last value of
    /// the leaf.
    ///
    /// The caller logs table and page next, before it reads the epoch: earlier, a walk would fetch lines
    /// again that a round has dropped; later, a round that counts would not have dropped them.
    ///
    /// # Errors
    ///
    /// [`MapError::Contended`], [`MapError::NotMapped`], [`MapError::Closing`] if it is not the
    /// leaf found any more.
    #[inline]
    pub fn close(&self, place: &PteSlot, leaf: &Leaf, node: NodeId) -> Result<Leaf, MapError> {
        let closing = self.closing(node);
        // Mostly the entry has not changed meanwhile.
        if self.mem.cas(place.entry, place.raw, closing).is_ok() {
            return Ok(*leaf);
        }
        self.replace(place, leaf, |_| Ok(closing))
    }

    /// CAS leaf → Parked, again if only accessed and dirty have changed: no walk finds the page any more,
    /// and a page that a walk has found before counts as parked once its translations are gone.
    ///
    /// # Errors
    ///
    /// [`MapError::Encode`] if it is not a user page of 4 KiB; as [`close`](Self::close).
    pub fn park(&self, place: &PteSlot, leaf: &Leaf) -> Result<Leaf, MapError> {
        self.replace(place, leaf, |leaf| {
            let (pa, perms) = (leaf.pa, leaf.perms);
            Ok(encode(self.isa, Pte::Parked { pa, perms }, place.level)?)
        })
    }

    /// CAS Parked → leaf, of the same frame or another one with the same contents.
    ///
    /// # Errors
    ///
    /// [`MapError::Contended`] if it is not the word found any more.
    pub fn unpark(&self, place: &PteSlot, leaf: Leaf) -> Result<(), MapError> {
        match self.meaning(place) {
            Pte::Parked { .. } => {}
            other => return Err(self.not_a_leaf(other, place.level, MapError::Contended)),
        }
        let word = self.encode_leaf(leaf, place.level)?;
        match self.mem.cas(place.entry, place.raw, word) {
            Ok(_) => Ok(()),
            Err(_) => Err(MapError::Contended),
        }
    }

    /// CAS table → Closing(node).
    ///
    /// # Errors
    ///
    /// [`MapError::Contended`] if it is not the word found any more.
    pub fn close_table(&self, place: &PteSlot, node: NodeId) -> Result<(), MapError> {
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
        place: &PteSlot,
        node: NodeId,
        table: PhysAddr,
    ) -> Result<(), MapError> {
        self.swap_word(place, self.closing(node), Pte::Table(table))
    }

    /// CAS Closing(node) → Empty(epoch). The epoch has been read after the entry was closed and
    /// logged, and a full fence.
    ///
    /// # Errors
    ///
    /// [`MapError::Contended`] if others think this node dead.
    #[inline]
    pub fn empty(&self, place: &PteSlot, node: NodeId, epoch: Epoch) -> Result<(), MapError> {
        let empty = absent::empty(epoch, self.isa == Isa::X86_64);
        match self.mem.cas(place.entry, self.closing(node), empty) {
            Ok(_) => Ok(()),
            Err(_) => Err(MapError::Contended),
        }
    }

    #[inline]
    fn closing(&self, node: NodeId) -> u64 {
        absent::closing(node, self.isa == Isa::X86_64)
    }

    fn swap_word(&self, place: &PteSlot, old: u64, new: Pte) -> Result<(), MapError> {
        let new = encode(self.isa, new, place.level)?;
        match self.mem.cas(place.entry, old, new) {
            Ok(_) => Ok(()),
            Err(_) => Err(MapError::Contended),
        }
    }
}
