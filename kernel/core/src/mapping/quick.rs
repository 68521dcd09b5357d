//! The rows map, unmap and map from peer, and protection, for what is mostly met: coherent caches, a
//! 4 KiB page, a table there, and nobody else at work on the same words. The steps and their order
//! are the same; what is different is that structures are remembered ([`view`](super::view)) and
//! that words are compared as they are. Whenever something is not as expected nothing has been done,
//! and the caller takes the long way, which also knows the reason.
//!
//! What is being recovered is frozen: its frame word is not what a view holds, and no row begins. A
//! row that has looked before is waited for, since the recoverer counts after a round.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::RegionKind;
use dyad_abi::{Error, Isa, Result};
use dyad_pgtbl::{Perms, plain};
use dyad_retype::Use;
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::Row;

use super::In;
use super::view::{Block, Spot, region};
use crate::cx::Cx;
use crate::memory::CoherentWords;
use crate::platform::FaultKind;
use crate::resolve::Outcome;

/// Gives a reference back that this CPU has.
#[inline(always)]
fn unpin(words: CoherentWords, record: &AtomicU64) {
    if words.increase(record, u64::MAX) & 0xff_ffff == 0 {
        // Damage: the count must not run into the fields above it.
        words.increase(record, 1);
    }
}

/// A page that comes to an entry.
#[derive(Clone, Copy)]
struct Coming<'a> {
    spot: &'a Spot,
    block: &'a Block,
    /// What the entry is, and becomes.
    from: u64,
    to: u64,
}

impl In<'_> {
    /// Row map, without the end of its intent if it succeeds. `from` is an empty entry that is
    /// quiesced. `None`: nothing has been done.
    #[inline(always)]
    fn put(&self, words: CoherentWords, line: &[AtomicU64; 8], c: Coming<'_>) -> Option<()> {
        let (told, tnew) = c.spot.pinned()?;
        let fnew = c.block.pinned()?;
        let intent = [
            Row::Map as u64 + 1,
            c.block.frame,
            c.spot.table(),
            c.spot.at(),
        ];
        words.store_line(line, intent);
        if words.exchange(c.spot.frame(), told, tnew) {
            if words.exchange(c.block.word, c.block.now, fnew) {
                words.fence();
                if c.spot.is_linked() && words.exchange(c.spot.entry, c.from, c.to) {
                    return Some(());
                }
                unpin(words, c.block.word);
            }
            unpin(words, c.spot.frame());
        }
        words.store(&line[0], 0);
        None
    }

    /// Row map. `None`: nothing has been done. The address is one of the user half, and a page's.
    #[inline(always)]
    pub fn map_quickly(
        &self,
        isa: Isa,
        va: u64,
        head: WeakRef,
        frame: FrameRef,
        perms: Perms,
    ) -> Option<()> {
        let words = self.cx.words().if_coherent()?;
        let pa = frame.address();
        let to = plain::page(isa, pa, perms)?;
        let spot = self.spot(isa, va)?;
        let block = self.block(pa)?;
        if block.head != head.bits() {
            return None;
        }
        let from = spot.entry.load(Ordering::Acquire);
        if !self.is_quiet(plain::empty_in(isa, from)?) {
            return None;
        }
        let line = self.intent_line()?;
        let coming = Coming {
            spot: &spot,
            block: &block,
            from,
            to,
        };
        self.put(words, line, coming)?;
        words.store(&line[0], 0);
        Some(())
    }

    /// Row unmap, of a page that the space does not own. `None`: nothing has been done.
    #[inline]
    pub fn unmap_quickly(&self, isa: Isa, va: u64) -> Option<Result<Epoch>> {
        let words = self.cx.words().if_coherent()?;
        let spot = self.spot(isa, va)?;
        let raw = spot.entry.load(Ordering::Acquire);
        let (pa, perms) = plain::page_in(isa, raw)?;
        if perms.contains(Perms::OWNED) {
            return None;
        }
        let block = self.block(pa)?;
        // Neither is being recovered, or this row has begun before and is waited for.
        spot.pinned()?;
        let line = self.intent_line()?;
        self.take_quickly(words, line, (&spot, &block), raw)
    }

    #[inline(always)]
    fn take_quickly(
        &self,
        words: CoherentWords,
        line: &[AtomicU64; 8],
        (spot, block): (&Spot, &Block),
        raw: u64,
    ) -> Option<Result<Epoch>> {
        let isa = spot.isa;
        words.store_line(
            line,
            [Row::Unmap as u64 + 1, block.frame, spot.table(), spot.at()],
        );
        let closing = plain::closing(isa, self.cx.node.id());
        if !words.exchange(spot.entry, raw, closing) {
            words.store(&line[0], 0);
            return None;
        }
        let stamp = self.stamp(words);
        if !words.exchange(spot.entry, closing, plain::empty(isa, stamp)) {
            // Only a node that thinks this one dead has changed it; it counts references anew.
            return Some(Err(Error::NodeDead));
        }
        unpin(words, block.word);
        unpin(words, spot.frame());
        words.store(&line[0], 0);
        Some(Ok(stamp))
    }

    /// [`EpochSource::now`](dyad_shm::protocol::EpochSource::now).
    #[inline(always)]
    fn stamp(&self, words: CoherentWords) -> Epoch {
        words.fence();
        Epoch::saturating(self.cx.node.sb.epoch.load(Ordering::Acquire))
    }

    /// Makes a page writable or read-only, and not executable; the time after it. `None`: nothing
    /// has been done.
    #[inline]
    pub fn protect_quickly(&self, isa: Isa, va: u64, write: bool) -> Option<Epoch> {
        let words = self.cx.words().if_coherent()?;
        let spot = self.spot(isa, va)?;
        let raw = spot.entry.load(Ordering::Acquire);
        let word = plain::protected(isa, raw, write)?;
        words
            .exchange(spot.entry, raw, word)
            .then(|| self.stamp(words))
    }

    /// Row map from peer.
    #[inline(always)]
    fn copy_quickly(
        &self,
        words: CoherentWords,
        (source, shown): (&Spot, (u64, PhysAddr, Perms)),
        (spot, from): (&Spot, u64),
    ) -> Option<Result<Outcome>> {
        let (raw, pa, perms) = shown;
        let to = plain::used_page(spot.isa, pa, perms)?;
        let block = self.block(pa)?;
        let line = self.intent_line()?;
        let coming = Coming {
            spot,
            block: &block,
            from,
            to,
        };
        if self.put(words, line, coming).is_none() {
            // The last reference of a page that its owner has unmapped meanwhile may have been this.
            self.owner_may_be_gone(&block, perms);
            return None;
        }
        words.fence();
        let now = source.entry.load(Ordering::Acquire);
        if now != raw && plain::page_in(source.isa, now) != Some((pa, perms)) {
            return Some(self.copied_too_late(words, line, (spot, &block), (to, perms)));
        }
        words.store(&line[0], 0);
        words.increase(&self.space.faults_copied, 1);
        Some(Ok(Outcome::Copied))
    }

    /// Its owner has unmapped the page that has been copied, and may have looked here before it was
    /// there.
    #[cold]
    #[inline(never)]
    fn copied_too_late(
        &self,
        words: CoherentWords,
        line: &[AtomicU64; 8],
        (spot, block): (&Spot, &Block),
        (word, perms): (u64, Perms),
    ) -> Result<Outcome> {
        match self.take_quickly(words, line, (spot, block), word) {
            Some(Ok(_)) => self.owner_may_be_gone(block, perms),
            Some(Err(e)) => return Err(e),
            // Somebody else has changed it since.
            None => {}
        }
        Err(Error::Again)
    }

    #[cold]
    #[inline(never)]
    fn owner_may_be_gone(&self, block: &Block, perms: Perms) {
        if perms.contains(Perms::OWNED)
            && let Some(head) = WeakRef::from_bits(block.head)
        {
            self.give_back(head, Use::User);
        }
    }
}

/// Resolves a fault at an address of the user half by what this CPU remembers: from the other ISA's
/// table, or by knowing that the kernel has nothing to show. `None`: nothing has been done.
#[inline]
pub fn resolve_quickly(
    cx: &Cx,
    isa: Isa,
    object: WeakRef,
    va: u64,
    kind: FaultKind,
) -> Option<Result<Outcome>> {
    let words = cx.words().if_coherent()?;
    let (space, region) = region(cx, object, va)?;
    let this = In { cx, space, object };
    let own = this.spot(isa, va)?;
    let here = own.entry.load(Ordering::Acquire);
    let stamp = plain::empty_in(isa, here)?;
    let anonymous = match region {
        Some(RegionKind::Anonymous) => true,
        Some(RegionKind::Shared) => false,
        _ => return Some(Err(Error::BadAddress)),
    };
    let nowhere = (!anonymous).then_some(Err(Error::BadAddress));
    let Some(other) = this.spot(isa.other(), va) else {
        return nowhere.filter(|_| this.no_table(isa.other(), va));
    };
    let raw = other.entry.load(Ordering::Acquire);
    let Some((pa, perms)) = plain::page_in(isa.other(), raw) else {
        return nowhere.filter(|_| plain::empty_in(isa.other(), raw).is_some());
    };
    if !this.is_quiet(stamp) {
        return None;
    }
    let wanted = match kind {
        FaultKind::Read => Perms::READ,
        FaultKind::Write => Perms::WRITE,
        _ => return None,
    };
    if perms.contains(Perms::EXECUTE) || !perms.contains(wanted) {
        return None;
    }
    this.copy_quickly(words, (&other, (raw, pa, perms)), (&own, here))
}
