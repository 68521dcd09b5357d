//! Liveness: revocation of any number of capabilities in one step.
//!
//! A liveness frame is 512 counts. A capability that is guarded by one of them names the count at which it is
//! alive. Incrementing the count kills the capability and all its copies, which name the same count. Counts
//! are changed by read-modify-writes only.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::permitted::Permitted;
use dyad_shm::pool::PhysAddr;

use crate::LIVENESS_ENTRIES;
use crate::contents::GuardRef;
use crate::error::Refused;
use crate::table::Table;
use dyad_shm::protocol::Services;

impl<M: GlobalMem + ?Sized> Table<'_, M> {
    /// Whether a guard lets its capability live. `is_liveness` says whether a frame holds liveness
    /// entries, in that version. Reads this node's view: another node's revocation shows after at
    /// most one round.
    ///
    /// # Errors
    ///
    /// [`Refused::Revoked`].
    #[inline]
    pub fn guard_alive(
        &self,
        guard: GuardRef,
        is_liveness: impl FnOnce(WeakRef) -> bool,
    ) -> Result<(), Refused> {
        if !lacks!("liveness::check::frame") && !is_liveness(guard.frame()) {
            return Err(Refused::Revoked);
        }
        let at = count_address(guard.frame().frame, guard.entry());
        if !lacks!("liveness::check::count")
            && (self.mem).load_permitted::<{ Permitted::Guard as u32 }>(at, Ordering::Acquire)
                != guard.expected()
        {
            return Err(Refused::Revoked);
        }
        Ok(())
    }

    /// A guard that is alive now, until the entry is revoked.
    ///
    /// # Errors
    ///
    /// [`Refused::BadIndex`]; [`Refused::Exhausted`].
    pub fn expected(&self, liveness: WeakRef, entry: u64) -> Result<GuardRef, Refused> {
        let at = checked(liveness.frame, entry)?;
        let count = self.mem.load_fresh(at, Ordering::Acquire);
        GuardRef::new(liveness, entry, count).ok_or(Refused::Exhausted)
    }

    /// Kills every capability guarded by an entry. Operations under way with one of them are over once every
    /// node has been quiet since the epoch returned.
    ///
    /// # Errors
    ///
    /// [`Refused::BadIndex`].
    pub fn revoke(
        &self,
        liveness: FrameRef,
        entry: u64,
        services: &impl Services,
    ) -> Result<Epoch, Refused> {
        let at = checked(liveness, entry)?;
        self.mem.add(at, 1);
        if !lacks!("liveness::revoke::log") {
            services.line(at);
        }
        Ok(services.now())
    }
}

fn count_address(liveness: FrameRef, entry: u64) -> PhysAddr {
    liveness.address().add(entry * 8)
}

fn checked(liveness: FrameRef, entry: u64) -> Result<PhysAddr, Refused> {
    if entry < LIVENESS_ENTRIES {
        Ok(count_address(liveness, entry))
    } else {
        Err(Refused::BadIndex)
    }
}
