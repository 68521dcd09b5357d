//! The edges from roots to leaves: cons and decons. They correspond to map and unmap for page tables.

use dyad_abi::Error;
use dyad_coherence::GlobalMem;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::EpochSource;

use crate::entry::RootEntry;
use crate::error::Refused;
use crate::table::{Table, entry_address};
use dyad_shm::protocol::Services;

/// References to the frames of nodes: those that an edge takes and gives back.
pub trait Pins {
    /// Takes a reference to a leaf, if the frame is one and still has that version.
    ///
    /// # Errors
    ///
    /// Why not; no reference has been taken.
    fn pin_leaf(&self, leaf: WeakRef) -> Result<(), Error>;

    /// Takes a reference to a root, if the frame is one and still has that version.
    ///
    /// # Errors
    ///
    /// Why not; no reference has been taken.
    fn pin_root(&self, root: WeakRef) -> Result<(), Error>;

    /// Gives a reference back.
    ///
    /// # Errors
    ///
    /// If there was none.
    fn unpin(&self, frame: FrameRef) -> Result<(), Error>;

    /// Whether the references of an edge may be given back: not while one of its frames is being
    /// recovered. A full fence, and then the look. Those who have asked before go on.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if one is being recovered.
    fn may_unpin(&self, leaf: FrameRef, root: FrameRef) -> Result<(), Error>;

    /// A frame to which there is a reference, with the version it has.
    ///
    /// # Errors
    ///
    /// If the frame's record is damaged.
    fn current(&self, frame: FrameRef) -> Result<WeakRef, Error>;
}

/// A leaf that has been taken out of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deconsed {
    /// The leaf.
    pub leaf: FrameRef,
    /// The stamp: no lookup uses this edge once every node has been quiet since.
    pub stamp: Epoch,
}

impl<M: GlobalMem + ?Sized> Table<'_, M> {
    /// Hangs a leaf into an entry of a root.
    ///
    /// # Errors
    ///
    /// [`Refused::BadIndex`]; [`Refused::Pin`]; [`Refused::Occupied`]; [`Refused::Busy`],
    /// [`Refused::NotQuiesced`]: try again; [`Refused::Corrupt`].
    pub fn cons(
        &self,
        root: WeakRef,
        index: u32,
        leaf: WeakRef,
        pins: &impl Pins,
        services: &impl Services,
    ) -> Result<(), Refused> {
        let place = entry_address(root.frame.address(), index)?;
        services.begin(&IntentRecord {
            row: Row::Cons,
            frame: leaf,
            table: Some(root),
            place,
        });
        let done = self.pin_and_link(root, place, leaf, pins, services);
        services.clear();
        done
    }

    fn pin_and_link(
        &self,
        root: WeakRef,
        place: PhysAddr,
        leaf: WeakRef,
        pins: &impl Pins,
        services: &impl Services,
    ) -> Result<(), Refused> {
        let pin = || {
            pins.pin_root(root).map_err(Refused::Pin)?;
            pins.pin_leaf(leaf).or_else(|why| {
                pins.unpin(root.frame).map_err(Refused::Pin)?;
                Err(Refused::Pin(why))
            })
        };
        let pins_first = !lacks!("edge::cons::pins-first");
        if pins_first {
            pin()?;
        }
        let linked = self.link(place, leaf.frame, services);
        if linked.is_ok() {
            if !lacks!("edge::cons::log") {
                services.line(place);
            }
            if !pins_first {
                pin()?;
            }
        } else if !lacks!("edge::cons::unpin") {
            unpin_both(leaf.frame, root.frame, pins)?;
        }
        linked
    }

    fn link(
        &self,
        place: PhysAddr,
        leaf: FrameRef,
        epochs: &impl EpochSource,
    ) -> Result<(), Refused> {
        let mut old = self.entry_at(place)?;
        let stamp = empty(old)?;
        if !lacks!("edge::link::stamp") && !epochs.quiesced(stamp) {
            return Err(Refused::NotQuiesced);
        }
        if lacks!("edge::link::compare") {
            old = self.entry_at(place)?;
        }
        match self.replace(place, old, RootEntry::Present(leaf)) {
            Ok(()) => Ok(()),
            // Emptied once more since: it has a newer stamp.
            Err(now) => now.and_then(empty).and(Err(Refused::NotQuiesced)),
        }
    }

    /// Takes the leaf out of an entry of a root.
    ///
    /// # Errors
    ///
    /// [`Refused::BadIndex`]; [`Refused::NoLeaf`]; [`Refused::Busy`]: try again;
    /// [`Refused::Lost`]; [`Refused::Corrupt`]; [`Refused::Pin`] with [`Error::Again`]: leaf or root
    /// are being recovered; with others: if the leaf has been taken out, the count of references was
    /// wrong.
    pub fn decons(
        &self,
        root: WeakRef,
        index: u32,
        pins: &impl Pins,
        services: &impl Services,
    ) -> Result<Deconsed, Refused> {
        let place = entry_address(root.frame.address(), index)?;
        let leaf = present(self.entry_at(place)?)?;
        services.begin(&IntentRecord {
            row: Row::Decons,
            frame: pins.current(leaf).map_err(Refused::Pin)?,
            table: Some(root),
            place,
        });
        if !lacks!("edge::decons::frozen")
            && let Err(why) = pins.may_unpin(leaf, root.frame)
        {
            services.clear();
            return Err(Refused::Pin(why));
        }
        let unpins_last = !lacks!("edge::decons::unpin-last");
        if !unpins_last {
            unpin_both(leaf, root.frame, pins)?;
        }
        let done = self.unlink(place, leaf, services);
        let unpinned = if done.is_ok() && unpins_last {
            unpin_both(leaf, root.frame, pins)
        } else {
            Ok(())
        };
        services.clear();
        let stamp = done?;
        unpinned?;
        Ok(Deconsed { leaf, stamp })
    }

    fn unlink(
        &self,
        place: PhysAddr,
        leaf: FrameRef,
        services: &impl Services,
    ) -> Result<Epoch, Refused> {
        let early = lacks!("edge::unlink::stamp-last").then(|| services.now());
        let closing = RootEntry::Closing(self.owner);
        if let Err(now) = self.replace(place, RootEntry::Present(leaf), closing) {
            // It was there: it has been taken out, and perhaps another one put in.
            return now.and_then(present).and(Err(Refused::Busy));
        }
        let logs_first = !lacks!("edge::unlink::log-first");
        if logs_first {
            services.line(place);
        }
        let stamp = early.unwrap_or_else(|| services.now());
        if !logs_first {
            services.line(place);
        }
        let empty = RootEntry::Empty(if !lacks!("edge::unlink::stamp") {
            stamp
        } else {
            Epoch::ZERO
        });
        self.replace(place, closing, empty)
            .map_err(|_| Refused::Lost)?;
        Ok(stamp)
    }

    /// Replaces an entry, if it is still the old one. Says which it is if not.
    pub(crate) fn replace(
        &self,
        place: PhysAddr,
        old: RootEntry,
        new: RootEntry,
    ) -> Result<(), Result<RootEntry, Refused>> {
        match self.mem.cas(place, old.bits(), new.bits()) {
            Ok(_) => Ok(()),
            Err(now) => Err(RootEntry::from_bits(now).ok_or(Refused::Corrupt)),
        }
    }
}

fn unpin_both(leaf: FrameRef, root: FrameRef, pins: &impl Pins) -> Result<(), Refused> {
    let (leaf, root) = (pins.unpin(leaf), pins.unpin(root));
    leaf.and(root).map_err(Refused::Pin)
}

/// The stamp of an entry that is empty.
fn empty(entry: RootEntry) -> Result<Epoch, Refused> {
    match entry {
        RootEntry::Empty(stamp) => Ok(stamp),
        RootEntry::Present(_) => Err(Refused::Occupied),
        RootEntry::Closing(_) => Err(Refused::Busy),
    }
}

/// The leaf of an entry that has one.
fn present(entry: RootEntry) -> Result<FrameRef, Refused> {
    match entry {
        RootEntry::Present(leaf) => Ok(leaf),
        RootEntry::Empty(_) => Err(Refused::NoLeaf),
        RootEntry::Closing(_) => Err(Refused::Busy),
    }
}
