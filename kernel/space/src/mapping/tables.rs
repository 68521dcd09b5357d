//! Rows link and unlink: tables that hang in each other, and roots in their space.

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Level, Pte, PteSlot};
use dyad_quiesce::DirtyEntry;
use dyad_retype::{KernelKind, Refused};
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::Row;
use dyad_shm::protocol::Intents;
use dyad_shm::superblock::ROOT_SLOTS;

use super::{Driver, SpaceCtx, refusal, table_kind};
use crate::object::space::{CLOSING, Space};

impl SpaceCtx<'_> {
    /// Row link: hangs a table in at an empty place of the level above.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if it hangs somewhere, or if there is something; [`Error::Again`] if it has
    /// just been taken out somewhere; [`Error::Revoked`].
    pub fn link(&self, d: &Driver, place: &PteSlot, child: WeakRef) -> Result<()> {
        let level = place.level.below().ok_or(Error::BadArgument)?;
        let frames = self.cx.frames();
        let parent = FrameRef::of(place.table()).ok_or(Error::Corrupt)?;
        let parent = frames.current(parent)?;
        self.intent(Row::Map, child, parent, place.entry);
        let pins = (table_kind(d.isa(), place.level), table_kind(d.isa(), level));
        let done = self.pin_both(parent, child, pins).and_then(|()| {
            let linked = if self.is_linked(d, place) {
                let table = Pte::Table(child.frame.address());
                d.fill(place, table, |s| self.quiesced(s)).map_err(refusal)
            } else {
                Err(Error::Again)
            };
            linked.inspect_err(|_| self.unpin_both(parent, child))
        });
        self.cx.log(DirtyEntry::Table(place.table()));
        self.cx.intents().clear();
        if done.is_err() {
            self.table_may_be_gone(d.isa(), place.level, parent.frame);
        }
        done
    }

    /// Pins of a link, if the child may be linked.
    fn pin_both(
        &self,
        parent: WeakRef,
        child: WeakRef,
        (parent_kind, child_kind): (KernelKind, KernelKind),
    ) -> Result<()> {
        let frames = self.cx.frames();
        frames.pin_kernel(parent, parent_kind).map_err(gone)?;
        frames
            .pin_only(child, child_kind)
            .map_err(gone)
            .and_then(|()| {
                // After the pin: no CPU stamps it any more.
                let quiet = match frames.read(child.frame) {
                    Ok((_, stamp)) => self.quiesced(stamp.epoch),
                    Err(_) => false,
                };
                if quiet || lacks!("mapping::tables::pin_both::stamp") {
                    return Ok(());
                }
                frames.unpin(child.frame)?;
                Err(Error::Again)
            })
            .inspect_err(|_| {
                let _ = frames.unpin(parent.frame);
            })
    }

    fn unpin_both(&self, parent: WeakRef, child: WeakRef) {
        // Both have been pinned by the caller, so neither can fail.
        let _ = self.cx.frames().unpin(child.frame);
        let _ = self.cx.frames().unpin(parent.frame);
    }

    /// Row unlink: unlinks the table that `place` leads to. Returns the stamp; the table may be linked again,
    /// or reused, once it is quiesced.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if the table has present entries; [`Error::Again`].
    pub fn unlink(&self, d: &Driver, place: &PteSlot, table: PhysAddr) -> Result<Epoch> {
        let node = self.cx.node.id();
        let (parent, child) = self.ends(place.table(), table)?;
        self.only_linked(child.frame)?;
        self.intent(Row::Unmap, child, parent, place.entry);
        let may = self.cx.frames().may_unpin(child.frame, parent.frame);
        let closed = may
            .map_err(Error::from)
            .and_then(|()| d.close_table(place, node).map_err(refusal));
        let done = closed.and_then(|()| {
            self.cx.words().fence();
            if let Err(why) = self.only_linked(child.frame)
                && !lacks!("mapping::tables::unlink::second-look")
            {
                d.reopen_table(place, node, table)
                    .map_err(|_| Error::NodeDead)?;
                return Err(why);
            }
            self.cx.log(DirtyEntry::Table(place.table()));
            let stamp = self.cx.epochs().now();
            self.cx.frames().stamp_unlinked(child.frame, stamp)?;
            d.empty(place, node, stamp).map_err(|_| Error::NodeDead)?;
            self.unpin_both(parent, child);
            Ok(stamp)
        });
        self.cx.intents().clear();
        done
    }

    fn ends(&self, parent: PhysAddr, child: PhysAddr) -> Result<(WeakRef, WeakRef)> {
        let current = |pa| {
            let frame = FrameRef::of(pa).ok_or(Error::Corrupt)?;
            Ok::<_, Error>(self.cx.frames().current(frame)?)
        };
        Ok((current(parent)?, current(child)?))
    }

    /// Whether nothing but its link pins a table.
    fn only_linked(&self, table: FrameRef) -> Result<()> {
        if self.cx.frames().read(table)?.0.refs.get() == 1 {
            Ok(())
        } else {
            Err(Error::Exists)
        }
    }

    /// Row link for a root: fills its kernel half in as the nodes of its ISA have published it.
    ///
    /// # Errors
    ///
    /// As [`link`](SpaceCtx::link).
    pub fn link_root(&self, isa: Isa, root: WeakRef) -> Result<()> {
        let words = self.cx.words();
        let word = &self.space.roots[isa.index()];
        if words.read(word) != 0 {
            return Err(Error::Exists);
        }
        let place = words
            .map()
            .physical(core::ptr::from_ref(word) as u64)
            .ok_or(Error::Corrupt)?;
        self.intent(Row::Cons, root, self.object, place);
        let kinds = (Space::KIND, table_kind(isa, Level::L4));
        let done = self.pin_both(self.object, root, kinds).and_then(|()| {
            // The table is in no other place: the pin is the only one.
            for (slot, entry) in ROOT_SLOTS
                .iter()
                .zip(&self.cx.node.sb.roots[isa.index()].entries)
            {
                let at = root.frame.address().add(*slot as u64 * 8);
                words.store(at, words.read(entry), core::sync::atomic::Ordering::Relaxed);
            }
            words.writeback(root.frame.address(), PAGE_SIZE);
            if words.exchange(word, 0, root.bits()) {
                return Ok(());
            }
            self.unpin_both(self.object, root);
            Err(Error::Exists)
        });
        self.cx.intents().clear();
        done
    }

    /// Row unlink for a root. CPUs that run on it leave it in their next round.
    ///
    /// # Errors
    ///
    /// As [`unlink`](SpaceCtx::unlink).
    pub fn unlink_root(&self, isa: Isa) -> Result<Epoch> {
        let words = self.cx.words();
        let word = &self.space.roots[isa.index()];
        let bits = words.read(word);
        let root = WeakRef::from_bits(bits)
            .filter(|_| bits != 0)
            .ok_or(Error::NotFound)?;
        self.only_linked(root.frame)?;
        let place = words
            .map()
            .physical(core::ptr::from_ref(word) as u64)
            .ok_or(Error::Corrupt)?;
        self.intent(Row::Decons, root, self.object, place);
        let mut done = Err(Error::Again);
        let may = self
            .cx
            .frames()
            .may_unpin(root.frame, self.object.frame)
            .is_ok();
        if may && words.exchange(word, bits, CLOSING) {
            words.fence();
            done = self.only_linked(root.frame).and_then(|()| {
                let stamp = self.cx.epochs().now();
                self.cx.frames().stamp_unlinked(root.frame, stamp)?;
                Ok(stamp)
            });
            words.replace(word, if done.is_ok() { 0 } else { bits });
            if done.is_ok() {
                self.unpin_both(self.object, root);
            }
        }
        self.cx.intents().clear();
        done
    }
}

/// The error for a caller with a capability, if a pin is refused.
fn gone(why: Refused) -> Error {
    match why {
        Refused::Stale | Refused::WrongType => Error::Revoked,
        other => other.into(),
    }
}
