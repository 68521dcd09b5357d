//! The rows map and unmap for what is mostly met: coherent caches, a 4 KiB page,
//! all tables there, an entry that has never been used, a block whose head is known, and nobody else
//! at work on the same words. The steps and their order are the same; what is different is that
//! every structure is looked up once and that words are compared as they are. Whenever something
//! is not as expected nothing has been done, and the caller takes the long way, which also knows
//! the reason.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::{Error, Isa, Result};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Level, Perms, plain};
use dyad_retype::word::{kernel_pinned, user_in_use, user_pinned, version_in};
use dyad_shm::frame::{Epoch, FrameEntry, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::Intents;
use dyad_shm::{FusedMap, PhysAddr};

use super::{In, table_kind};
use crate::memory::Words;

type Table = [AtomicU64; 512];

/// Where the entry of a 4 KiB page is.
struct Spot {
    /// The entry above, which leads to the table.
    link: &'static AtomicU64,
    table: PhysAddr,
    at: PhysAddr,
    entry: &'static AtomicU64,
}

/// Gives a reference back that this CPU has.
fn unpin(words: &Words, record: &FrameEntry) {
    if words.increase(&record.w0, u64::MAX) & 0xff_ffff == 0 {
        // Damage: the count must not run into the fields above it.
        words.increase(&record.w0, 1);
    }
}

impl In<'_> {
    #[inline]
    fn spot(&self, map: &'static FusedMap, isa: Isa, va: u64) -> Option<Spot> {
        let slot = |table: PhysAddr, shift: u32| -> Option<&'static AtomicU64> {
            let words: &'static Table = map.get(table)?;
            Some(&words[(va >> shift) as usize % 512])
        };
        let next = |entry: &AtomicU64| plain::table_in(isa, entry.load(Ordering::Acquire));
        let root = self.space.root(self.cx.words(), isa)?;
        let l3 = next(slot(root, 39)?)?;
        let l2 = next(slot(l3, 30)?)?;
        let link = slot(l2, 21)?;
        let table = next(link)?;
        Some(Spot {
            link,
            table,
            at: PhysAddr(table.0 | (va >> 9 & 0xff8)),
            entry: slot(table, 12)?,
        })
    }

    #[inline]
    fn record(&self, map: &'static FusedMap, frame: FrameRef) -> Option<&'static FrameEntry> {
        map.get(self.cx.frames().record_at(frame)?)
    }

    /// Row map. `None`: nothing has been done. The address is one of the user half, and a page's.
    #[inline]
    pub fn map_quickly(
        &self,
        isa: Isa,
        va: u64,
        head: WeakRef,
        frame: FrameRef,
        perms: Perms,
    ) -> Option<()> {
        let words = self.cx.words();
        if !words.is_coherent() {
            return None;
        }
        let map = words.map();
        let word = plain::page(isa, frame.address(), perms)?;
        let spot = self.spot(map, isa, va)?;
        if spot.entry.load(Ordering::Acquire) != 0 {
            return None;
        }
        let table = FrameRef::of(spot.table)?;
        let (t, f) = (self.record(map, table)?, self.record(map, head.frame)?);
        let (told, fold) = (t.w0.load(Ordering::Acquire), f.w0.load(Ordering::Acquire));
        let tnew = kernel_pinned(told, table_kind(isa, Level::L1))?;
        let fnew = user_pinned(fold, head, frame)?;
        let intents = self.cx.intents();
        intents.begin(&IntentRecord {
            row: Row::Map,
            frame: WeakRef { frame, ..head },
            table: Some(WeakRef {
                frame: table,
                version: version_in(told),
            }),
            place: spot.at,
        });
        let mut done = None;
        if words.exchange(&t.w0, told, tnew) {
            if words.exchange(&f.w0, fold, fnew) {
                words.fence();
                let link = spot.link.load(Ordering::Acquire);
                if plain::table_in(isa, link) == Some(spot.table)
                    && words.exchange(spot.entry, 0, word)
                {
                    done = Some(());
                } else {
                    unpin(words, f);
                }
            }
            if done.is_none() {
                unpin(words, t);
            }
        }
        intents.clear();
        done
    }

    /// Row unmap, of a page that the space does not own. `None`: nothing has been done.
    #[inline]
    pub fn unmap_quickly(&self, isa: Isa, va: u64) -> Option<Result<Epoch>> {
        let words = self.cx.words();
        if !words.is_coherent() {
            return None;
        }
        let map = words.map();
        let spot = self.spot(map, isa, va)?;
        let raw = spot.entry.load(Ordering::Acquire);
        let frame = FrameRef::of(plain::page_in(isa, raw)?)?;
        let table = FrameRef::of(spot.table)?;
        let (t, f) = (self.record(map, table)?, self.record(map, frame)?);
        // Neither is being recovered, or this row has begun before and is waited for.
        let version = user_in_use(f.w0.load(Ordering::Acquire))?;
        let told = t.w0.load(Ordering::Acquire);
        kernel_pinned(told, table_kind(isa, Level::L1))?;
        let intents = self.cx.intents();
        intents.begin(&IntentRecord {
            row: Row::Unmap,
            frame: WeakRef { frame, version },
            table: Some(WeakRef {
                frame: table,
                version: version_in(told),
            }),
            place: spot.at,
        });
        let closing = plain::closing(isa, self.cx.node.id());
        if !words.exchange(spot.entry, raw, closing) {
            intents.clear();
            return None;
        }
        let stamp = self.cx.epochs().now();
        if !words.exchange(spot.entry, closing, plain::empty(isa, stamp)) {
            // Only a node that thinks this one dead has changed it; it counts references anew.
            return Some(Err(Error::NodeDead));
        }
        unpin(words, f);
        unpin(words, t);
        intents.clear();
        Some(Ok(stamp))
    }
}
