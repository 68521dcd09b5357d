//! Recovery of slots and entries of a dead node: parts of the row `recover`.
//!
//! ```text
//! per intent of the dead node, if the leaf (for edges: the root) still has the version in it
//!   slot activate, slot deactivate:  recover_slot
//!   cons, decons:  freeze leaf and root; a round of all live nodes; recover_entry; recount; unfreeze
//! ```
//!
//! Every step can be repeated, by the same recoverer, by another one that came late, or by the
//! recoverer of a recoverer that has died.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::frame::WeakRef;
use dyad_shm::intent::Row;

use crate::entry::RootEntry;
use crate::error::Refused;
use crate::header::{Owner, SlotHeader};
use crate::slot::SlotPlace;
use crate::table::{STAMP, Table, entry_address};
use dyad_shm::protocol::Services;

impl<M: GlobalMem + ?Sized> Table<'_, M> {
    /// Empties a slot on behalf of the node that died while it was filling or emptying it. Returns `false` if
    /// the node was not changing the slot any more, or another node has recovered the slot.
    ///
    /// The recoverer takes the slot over and then empties it as its own, with an intent of its own: if it
    /// dies too, its own recovery continues from there.
    ///
    /// # Errors
    ///
    /// [`Refused::Corrupt`]; [`Refused::Lost`].
    pub fn recover_slot(
        &self,
        place: SlotPlace,
        dead: Owner,
        services: &impl Services,
    ) -> Result<bool, Refused> {
        let slot = place.address();
        let header = self.header(slot)?;
        let left = match header {
            SlotHeader::Reserved(owner) => is(owner, dead),
            SlotHeader::Closing(owner) => !lacks!("recover::slot::closing") && is(owner, dead),
            SlotHeader::Free | SlotHeader::Active { .. } => false,
        };
        if !left {
            // It may have died between its change and its log.
            if !lacks!("recover::slot::log") {
                services.line(slot);
            }
            return Ok(false);
        }
        if lacks!("recover::slot::take-over") {
            let stamp = services.now();
            let at = slot.add(STAMP);
            self.mem.store_through(at, stamp.get(), Ordering::Relaxed);
            return Ok(self.change(slot, header, SlotHeader::Free).is_ok());
        }
        services.begin(&place.intent(Row::SlotDeactivate));
        let done = self.close(slot, header, services);
        services.clear();
        match done {
            Ok(_) => Ok(true),
            // Another recoverer was faster.
            Err(Refused::NoCap | Refused::Changed | Refused::Busy) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Empties an entry of a root in the name of the node that died while it was taking a leaf out. `false`:
    /// the node was not changing the entry any more, or another node has recovered it. References are not
    /// changed: the caller counts those of leaf and root in both cases.
    ///
    /// # Errors
    ///
    /// [`Refused::BadIndex`]; [`Refused::Corrupt`].
    pub fn recover_entry(
        &self,
        root: WeakRef,
        index: u32,
        dead: Owner,
        services: &impl Services,
    ) -> Result<bool, Refused> {
        let place = entry_address(root.frame.address(), index)?;
        let entry = self.entry_at(place)?;
        if !lacks!("recover::entry::log") {
            services.line(place);
        }
        match entry {
            RootEntry::Closing(owner) if is(owner, dead) => {
                let empty = RootEntry::Empty(services.now());
                Ok(self.replace(place, entry, empty).is_ok())
            }
            _ => Ok(false),
        }
    }
}

fn is(owner: Owner, dead: Owner) -> bool {
    if !lacks!("recover::is::incarnation") {
        owner == dead
    } else {
        owner.node == dead.node
    }
}
