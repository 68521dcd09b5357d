//! References: the pins of the rows map and unmap.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::Intents;

use crate::TRIES;
use crate::error::Refused;
use crate::table::{FrameTable, aligned};
use crate::word::{
    FrameType, FrameWord, KernelKind, Order, Refs, Use, is_used, user_order, version_in,
};

/// What the row map is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The page table, as its capability has it.
    pub table: WeakRef,
    /// What it must be.
    pub table_kind: KernelKind,
    /// The frame, as its capability has it: if it is a tail, with the version of its head.
    pub frame: WeakRef,
    /// How much the entry maps.
    pub span: Order,
    /// Physical address of the entry.
    pub entry: PhysAddr,
}

/// The same for a caller that has found the table by a walk, and knows the head of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing {
    /// The page table. It was one when the caller entered the kernel, or later: then it is the
    /// same object still if it has the kind.
    pub table: FrameRef,
    /// What it must be.
    pub table_kind: KernelKind,
    /// The head of the block, as the capability has it.
    pub head: WeakRef,
    /// The frame to map, in that block.
    pub frame: FrameRef,
    /// How much the entry maps.
    pub span: Order,
    /// Physical address of the entry.
    pub entry: PhysAddr,
}

impl<M: GlobalMem + ?Sized> FrameTable<'_, M> {
    /// [`map_pins`](FrameTable::map_pins) without looking for the head.
    ///
    /// # Errors
    ///
    /// Why not; no reference has been taken and the intent is cleared.
    #[inline]
    pub fn map_pins_at(&self, m: &Placing, intents: &impl Intents) -> Result<(), Refused> {
        let table_at = self.record(m.table)?;
        let head_at = self.record(m.head.frame)?;
        let table_raw = self.mem.load_fresh(table_at, Ordering::Acquire);
        let table = WeakRef {
            frame: m.table,
            version: version_in(table_raw),
        };
        intents.begin(&IntentRecord {
            row: Row::Map,
            frame: WeakRef {
                frame: m.frame,
                ..m.head
            },
            table: Some(table),
            place: m.entry,
        });
        let pinned = self
            .pin_table(table_at, table_raw, table, m.table_kind)
            .and_then(|()| {
                self.pin_block(head_at, m)
                    .inspect_err(|_| self.drop_reference(table_at))
            });
        if pinned.is_err() {
            intents.clear();
        }
        pinned
    }

    /// Takes a reference to a table whose word was `raw`. What is as expected takes one CAS, without
    /// the word being decoded.
    #[inline]
    fn pin_table(
        &self,
        at: PhysAddr,
        raw: u64,
        table: WeakRef,
        kind: KernelKind,
    ) -> Result<(), Refused> {
        let wanted = FrameWord::new(table.version, FrameType::Kernel(kind)).bits();
        let refs = Refs::MAX.get() as u64;
        if (raw ^ wanted) >> Refs::BITS == 0
            && raw & refs != refs
            && self.mem.cas(at, raw, raw + 1).is_ok()
        {
            return Ok(());
        }
        self.pin_from(at, raw, table, Use::Kernel(kind), |_| Ok(()))
    }

    /// The same for the block.
    #[inline]
    fn pin_block(&self, at: PhysAddr, m: &Placing) -> Result<(), Refused> {
        let raw = self.mem.load_fresh(at, Ordering::Acquire);
        let refs = Refs::MAX.get() as u64;
        if let Some(order) = user_order(raw)
            && version_in(raw) == m.head.version
            && raw & refs != refs
            && lies_in(order, m.head.frame, m.frame, m.span)
            && self.mem.cas(at, raw, raw + 1).is_ok()
        {
            return Ok(());
        }
        self.pin_from(at, raw, m.head, Use::User, |word| {
            within(word, m.head.frame, m.frame, m.span)
        })
    }

    /// [`unmap_unpin`](FrameTable::unmap_unpin) for callers that know the head of the block.
    ///
    /// # Errors
    ///
    /// As [`unpin`](FrameTable::unpin).
    #[inline]
    pub fn unmap_unpin_at(
        &self,
        head: FrameRef,
        table: FrameRef,
        intents: &impl Intents,
    ) -> Result<(), Refused> {
        self.drop_reference(self.record(head)?);
        self.drop_reference(self.record(table)?);
        intents.clear();
        Ok(())
    }

    /// The head of the block a frame is in, as a capability for it would have it now, and whether it
    /// is one that may have references. One load if the frame heads its block.
    ///
    /// # Errors
    ///
    /// As [`head`](FrameTable::head).
    #[inline]
    pub fn head_now(&self, frame: FrameRef) -> Result<(WeakRef, bool), Refused> {
        let raw = self.mem.load_fresh(self.record(frame)?, Ordering::Acquire);
        if is_used(raw) {
            let version = version_in(raw);
            return Ok((WeakRef { frame, version }, true));
        }
        self.head_now_slowly(frame)
    }

    #[cold]
    fn head_now_slowly(&self, frame: FrameRef) -> Result<(WeakRef, bool), Refused> {
        let (frame, word) = self.head(frame)?;
        let version = word.version;
        Ok((WeakRef { frame, version }, word.ty.in_use().is_some()))
    }

    /// Takes the only reference to a kernel object: for a table that is to be found at one place.
    ///
    /// # Errors
    ///
    /// [`Refused::InUse`] if there is one already, else as [`pin_kernel`](FrameTable::pin_kernel).
    pub fn pin_only(&self, object: WeakRef, kind: KernelKind) -> Result<(), Refused> {
        let at = self.record(object.frame)?;
        let raw = self.mem.load_fresh(at, Ordering::Acquire);
        self.pin_from(at, raw, object, Use::Kernel(kind), |word| match word.refs {
            Refs::ZERO => Ok(()),
            _ => Err(Refused::InUse),
        })
    }

    /// Notes that references to an object in use have been unpublished at `epoch`: what may not be
    /// referred to again from elsewhere before others have forgotten them. The object has no other
    /// stamp, and gets a newer one when it is given up.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`], [`Refused::Contended`].
    pub fn stamp_unlinked(&self, object: FrameRef, epoch: Epoch) -> Result<(), Refused> {
        self.stamp(object, epoch)
    }

    #[cold]
    fn pin_from(
        &self,
        at: PhysAddr,
        mut raw: u64,
        weak: WeakRef,
        wanted: Use,
        more: impl Fn(FrameWord) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        for _ in 0..TRIES {
            let word = FrameWord::from_bits(raw).ok_or(Refused::Corrupt)?;
            let pinned = pinned(word, weak, wanted)?;
            more(word)?;
            match self.mem.cas(at, raw, pinned) {
                Ok(_) => return Ok(()),
                Err(now) => raw = now,
            }
        }
        Err(Refused::Contended)
    }

    /// The caller has a reference: its own keeps the count above zero, so that one step is enough.
    #[inline]
    fn drop_reference(&self, at: PhysAddr) {
        let old = self.mem.add(at, u64::MAX);
        if old & Refs::MAX.get() as u64 == 0 {
            // Damage: the count must not run into the fields above it.
            self.mem.add(at, 1);
        }
    }

    /// Takes a reference to a kernel object.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub fn pin_kernel(&self, object: WeakRef, kind: KernelKind) -> Result<(), Refused> {
        self.pin(object, Use::Kernel(kind), Order::FRAME)
            .map(|_| ())
    }

    /// Takes a reference to the block of user memory around `frame`, for an entry that maps
    /// `span` from there on. Returns the head of the block.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub fn pin_user(&self, frame: WeakRef, span: Order) -> Result<FrameRef, Refused> {
        self.pin(frame, Use::User, span)
    }

    fn pin(&self, weak: WeakRef, wanted: Use, span: Order) -> Result<FrameRef, Refused> {
        let (head, mut raw, mut word) = self.find_head(weak.frame)?;
        for _ in 0..TRIES {
            let pinned = pinned(word, weak, wanted)?;
            within(word, head, weak.frame, span)?;
            match self.mem.cas(self.record(head)?, raw, pinned) {
                Ok(_) => return Ok(head),
                Err(now) => {
                    raw = now;
                    word = FrameWord::from_bits(now).ok_or(Refused::Corrupt)?;
                }
            }
        }
        Err(Refused::Contended)
    }

    /// Gives a reference back. The caller has one, so this never fails in a sound system.
    ///
    /// # Errors
    ///
    /// [`Refused::Corrupt`] and the like if the record shows that the caller cannot have one.
    pub fn unpin(&self, frame: FrameRef) -> Result<(), Refused> {
        let (head, _, word) = self.find_head(frame)?;
        if word.ty.in_use().is_none() {
            return Err(Refused::unusable(word.ty));
        }
        if word.refs == Refs::ZERO {
            return Err(Refused::Corrupt);
        }
        // The caller's own reference keeps the count above zero, so that one step is enough.
        let at = self.record(head)?;
        let old = self.mem.add(at, u64::MAX);
        if old & Refs::MAX.get() as u64 == 0 {
            self.mem.add(at, 1);
            return Err(Refused::Corrupt);
        }
        Ok(())
    }

    /// Whether a row that gives references to the block around `frame` and to `table` back may
    /// begin: not while one of them is being recovered and its references are counted. Asked after
    /// the intent and before the entry is closed; rows that have asked before go on, and the
    /// recoverer waits for them.
    ///
    /// The fence orders the intent before the look: a recoverer that freezes a block and then finds
    /// no intent is seen here.
    ///
    /// # Errors
    ///
    /// [`Refused::Frozen`]: try again; as [`head`](FrameTable::head).
    pub fn may_unpin(&self, frame: FrameRef, table: FrameRef) -> Result<(), Refused> {
        self.mem.fence();
        for frame in [frame, table] {
            let (_, _, word) = self.find_head(frame)?;
            if !lacks!("pins::may_unpin::frozen") && matches!(word.ty, FrameType::Frozen(_)) {
                return Err(Refused::Frozen);
            }
        }
        Ok(())
    }

    /// The frame with the version that the capability for it would have now: for the row that
    /// maps what another table maps.
    ///
    /// # Errors
    ///
    /// As [`head`](FrameTable::head).
    #[inline]
    pub fn current(&self, frame: FrameRef) -> Result<WeakRef, Refused> {
        let (head, _) = self.head_now(frame)?;
        let version = head.version;
        Ok(WeakRef { frame, version })
    }

    /// First half of the row map: records the intent and takes both references. The caller then
    /// writes the entry and clears the intent, or calls [`map_undo`](FrameTable::map_undo).
    ///
    /// # Errors
    ///
    /// Why not; no reference has been taken and the intent is cleared.
    pub fn map_pins(&self, m: &Mapping, intents: &impl Intents) -> Result<(), Refused> {
        intents.begin(&IntentRecord {
            row: Row::Map,
            frame: m.frame,
            table: Some(m.table),
            place: m.entry,
        });
        let pinned = self.pin_kernel(m.table, m.table_kind).and_then(|()| {
            self.pin_user(m.frame, m.span).map(|_| ()).or_else(|why| {
                self.unpin(m.table.frame)?;
                Err(why)
            })
        });
        if pinned.is_err() {
            intents.clear();
        }
        pinned
    }

    /// The entry could not be written: gives both references back and clears the intent.
    ///
    /// # Errors
    ///
    /// As [`unpin`](FrameTable::unpin).
    pub fn map_undo(&self, m: &Mapping, intents: &impl Intents) -> Result<(), Refused> {
        self.unmap_unpin(m.frame.frame, m.table.frame, intents)
    }

    /// Last part of the row unmap, after the entry has been emptied: gives both references back
    /// and clears the intent.
    ///
    /// # Errors
    ///
    /// As [`unpin`](FrameTable::unpin).
    pub fn unmap_unpin(
        &self,
        frame: FrameRef,
        table: FrameRef,
        intents: &impl Intents,
    ) -> Result<(), Refused> {
        let (frame, table) = (self.unpin(frame), self.unpin(table));
        intents.clear();
        frame.and(table)
    }
}

/// Whether `span` from `frame` on lies in the block, if it is one.
fn within(word: FrameWord, head: FrameRef, frame: FrameRef, span: Order) -> Result<(), Refused> {
    let FrameType::User(order) = word.ty else {
        return Ok(());
    };
    if lies_in(order, head, frame, span) {
        Ok(())
    } else {
        Err(Refused::WrongOrder)
    }
}

/// Whether `span` from `frame` on lies in the block of that order at `head`.
#[inline]
fn lies_in(order: Order, head: FrameRef, frame: FrameRef, span: Order) -> bool {
    // Another pool is very far away.
    let into = (frame.bits() as u64).wrapping_sub(head.bits() as u64);
    into.saturating_add(span.frames()) <= order.frames() && aligned(frame, span)
}

/// The word with one more reference, if it may get one.
fn pinned(word: FrameWord, weak: WeakRef, wanted: Use) -> Result<u64, Refused> {
    if matches!(word.ty, FrameType::Reserved | FrameType::Retired) {
        return Err(Refused::unusable(word.ty));
    }
    if !lacks!("pins::pinned::version") && word.version != weak.version {
        return Err(Refused::Stale);
    }
    match word.ty {
        FrameType::User(_) | FrameType::Kernel(_) => {}
        other => return Err(Refused::unusable(other)),
    }
    if !lacks!("pins::pinned::use") && word.ty.in_use() != Some(wanted) {
        return Err(Refused::WrongType);
    }
    if !lacks!("pins::pinned::room") && word.refs == Refs::MAX {
        return Err(Refused::TooManyRefs);
    }
    // References are the lowest bits.
    Ok(word.bits() + 1)
}
