//! References: the pins of the rows map and unmap.

use dyad_coherence::{GlobalMem, Word};
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};

use crate::error::Refused;
use crate::row::{self, Record};
use crate::table::{FrameTable, aligned};
use crate::word::{
    FrameType, FrameWord, KernelKind, Order, Refs, Use, is_used, user_order, version_in,
};

impl<M: GlobalMem + ?Sized> FrameTable<'_, M> {
    /// The present word of a frame, and a reference with its present version.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`].
    #[inline]
    pub fn as_found(&self, frame: FrameRef) -> Result<(u64, WeakRef), Refused> {
        let raw = self.record_of(frame)?.w0().load();
        let version = version_in(raw);
        Ok((raw, WeakRef { frame, version }))
    }

    /// Takes a reference to the table whose word is `raw`.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    #[inline]
    pub fn pin_table(&self, table: FrameRef, raw: u64, kind: KernelKind) -> Result<(), Refused> {
        let weak = WeakRef {
            frame: table,
            version: version_in(raw),
        };
        let value = FrameWord::new(weak.version, FrameType::Kernel(kind)).bits();
        row::pin(&self.record_of(table)?.w0(), raw, value)
            .map_err(|now| why_not(now, weak, Use::Kernel(kind)))
    }

    /// Takes a reference to the block that `head` heads, for an entry that maps `span` from `frame` on.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    #[inline]
    pub fn pin_block(&self, head: WeakRef, frame: FrameRef, span: Order) -> Result<(), Refused> {
        let record = self.record_of(head.frame)?;
        let raw = record.w0().load();
        let block = user_order(raw).ok_or_else(|| why_not(raw, head, Use::User))?;
        if !lies_in(block, head.frame, frame, span) {
            return Err(first(why_not(raw, head, Use::User), Refused::WrongOrder));
        }
        let value = FrameWord::new(head.version, FrameType::User(block)).bits();
        pin(&record, raw, value, head, Use::User)
    }

    /// Gives back the reference that the caller has to a frame that heads its block.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`].
    #[inline]
    pub fn unpin_head(&self, head: FrameRef) -> Result<(), Refused> {
        row::unpin(&self.record_of(head)?.w0());
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
        let raw = self.record_of(frame)?.w0().load();
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

    /// Takes the only reference to a kernel object: for a table that must be linked at one place only.
    ///
    /// # Errors
    ///
    /// [`Refused::InUse`] if there is one already, else as [`pin_kernel`](FrameTable::pin_kernel).
    pub fn pin_only(&self, object: WeakRef, kind: KernelKind) -> Result<(), Refused> {
        let record = self.record_of(object.frame)?;
        let value = FrameWord::new(object.version, FrameType::Kernel(kind)).bits();
        let Err(raw) = record.w0().replace(value, value + 1) else {
            return Ok(());
        };
        Err(match why_not(raw, object, Use::Kernel(kind)) {
            Refused::Contended | Refused::TooManyRefs => Refused::InUse,
            why => why,
        })
    }

    /// Records that references to an object in use have been unpublished at `epoch`: the object must not be
    /// linked elsewhere before other nodes have dropped them. The object has no other stamp, and gets a newer
    /// one when it is untyped.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`], [`Refused::Contended`].
    pub fn stamp_unlinked(&self, object: FrameRef, epoch: Epoch) -> Result<(), Refused> {
        self.stamp(object, epoch)
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
        let (head, raw, word) = self.find_head(weak.frame)?;
        // What is frozen still is what it was, but gets no references.
        let used = matches!(word.ty, FrameType::User(_) | FrameType::Kernel(_))
            || lacks!("pins::pin::frozen");
        let fits = word.ty.in_use() == Some(wanted) || lacks!("pins::pin::use");
        if !(used && fits) {
            return Err(why_not(raw, weak, wanted));
        }
        within(word, head, weak.frame, span)
            .map_err(|why| first(why_not(raw, weak, wanted), why))?;
        let value = FrameWord::new(weak.version, word.ty).bits();
        pin(&self.record_of(head)?, raw, value, weak, wanted)?;
        Ok(head)
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
        match row::unpin(&self.record_of(head)?.w0()) {
            true => Ok(()),
            false => Err(Refused::Corrupt),
        }
    }

    /// Whether a row that removes references to the block around `frame` and to `table` may begin. It must
    /// not begin while one of them is being recovered and its references are counted. Called after the intent
    /// and before the entry is closed. Rows that have passed this check continue, and the recoverer waits for
    /// them.
    ///
    /// The fence orders the intent before the look: a recoverer that freezes a block and then finds
    /// no intent is seen here.
    ///
    /// # Errors
    ///
    /// [`Refused::Frozen`]: try again; as [`head`](FrameTable::head).
    pub fn may_unpin(&self, frame: FrameRef, table: FrameRef) -> Result<(), Refused> {
        self.mem.fence();
        self.not_frozen(frame)?;
        self.not_frozen(table)
    }

    /// A full fence.
    #[inline]
    #[track_caller]
    pub fn fence(&self) {
        self.mem.fence();
    }

    /// Refuses a block that is being recovered.
    ///
    /// # Errors
    ///
    /// As [`may_unpin`](FrameTable::may_unpin).
    pub fn not_frozen(&self, frame: FrameRef) -> Result<(), Refused> {
        let (_, _, word) = self.find_head(frame)?;
        match word.ty {
            FrameType::Frozen(_) if !lacks!("pins::not_frozen") => Err(Refused::Frozen),
            _ => Ok(()),
        }
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

/// [`row::pin`], with the reason if not.
#[inline]
fn pin(
    record: &impl Record,
    raw: u64,
    value: u64,
    weak: WeakRef,
    wanted: Use,
) -> Result<(), Refused> {
    let value = match lacks!("pins::pin::version") {
        // Whatever the version is.
        true => raw & !u64::from(Refs::MAX.get()),
        false => value,
    };
    row::pin(&record.w0(), raw, value).map_err(|now| why_not(now, weak, wanted))
}

/// The reason that the word gives, if it gives one; else the other reason.
#[cold]
fn first(word: Refused, other: Refused) -> Refused {
    match word {
        Refused::Contended | Refused::TooManyRefs => other,
        why => why,
    }
}

/// The reason why a frame with the word `raw` gets no further reference.
#[cold]
fn why_not(raw: u64, weak: WeakRef, wanted: Use) -> Refused {
    let Some(word) = FrameWord::from_bits(raw) else {
        return Refused::Corrupt;
    };
    match word.ty {
        FrameType::Reserved | FrameType::Retired => Refused::unusable(word.ty),
        _ if word.version != weak.version => Refused::Stale,
        FrameType::User(_) | FrameType::Kernel(_) if word.ty.in_use() != Some(wanted) => {
            Refused::WrongType
        }
        FrameType::User(_) | FrameType::Kernel(_) if word.refs == Refs::MAX => Refused::TooManyRefs,
        FrameType::User(_) | FrameType::Kernel(_) => Refused::Contended,
        other => Refused::unusable(other),
    }
}
