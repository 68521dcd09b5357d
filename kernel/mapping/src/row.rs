//! The rows, on any words.

use dyad_pgtbl::MapError;
use dyad_retype::Refused;
use dyad_shm::frame::Epoch;
use dyad_shm::intent::IntentRecord;
use dyad_shm::protocol::{EpochSource, Intents};

/// An entry of a page table, and the page that is mapped or unmapped there: the words that rows read and
/// change.
pub trait Entry {
    /// Takes a reference to the table.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    fn pin_table(&self) -> Result<(), Refused>;

    /// Takes a reference to the block of the page.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    fn pin_frame(&self) -> Result<(), Refused>;

    /// Gives the reference to the table back.
    fn unpin_table(&self);

    /// Gives the reference to the block back.
    fn unpin_frame(&self);

    /// A full fence.
    fn fence(&self);

    /// Whether the table is still where it was found.
    fn is_linked(&self) -> bool;

    /// Whether neither the block nor the table is being recovered.
    ///
    /// # Errors
    ///
    /// [`Refused::Frozen`], or why the look fails.
    fn may_unpin(&self) -> Result<(), Refused>;

    /// CAS Empty(s) -> leaf, once s is quiesced. Acquires and releases.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    fn fill(&self, epochs: &impl EpochSource) -> Result<(), MapError>;

    /// CAS leaf -> Closing.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    fn close(&self) -> Result<(), MapError>;

    /// CAS Closing -> Empty(stamp).
    ///
    /// # Errors
    ///
    /// Another node recovers this one, and has changed the entry.
    fn empty(&self, stamp: Epoch) -> Result<(), MapError>;

    /// Notes that the table has been changed.
    fn log_table(&self);

    /// Notes that the page is in one table less.
    fn log_page(&self);
}

/// The reasons why a page has not been mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMapped {
    /// The table or the block has got no reference.
    Refused(Refused),
    /// The table has been taken out since it was found.
    Unlinked,
    /// The entry is in use, or not quiesced.
    Occupied(MapError),
    /// For a copy from another table: the page is no longer there.
    Gone,
}

/// The row map.
///
/// # Errors
///
/// [`NotMapped`]; no reference is left.
#[inline(always)]
pub fn map(
    entry: &impl Entry,
    intent: &IntentRecord,
    services: &(impl EpochSource + Intents),
) -> Result<(), NotMapped> {
    begin(entry, intent, services)?;
    services.clear();
    Ok(())
}

/// The row map from peer. `still`: whether the source maps the same page.
///
/// # Errors
///
/// [`NotMapped`]; no reference is left, unless this node is thought to be dead.
#[inline(always)]
pub fn copy(
    entry: &impl Entry,
    intent: &IntentRecord,
    still: impl FnOnce() -> bool,
    services: &(impl EpochSource + Intents),
) -> Result<(), NotMapped> {
    // Until the second look, recovery of this node must know of the entry.
    begin(entry, intent, services)?;
    entry.fence();
    if still() || lacks!("row::copy::second-look") {
        services.clear();
        return Ok(());
    }
    // The owner has unmapped the page, and may have looked here before it was there. This is part of the row: it is not
    // refused if a recovery has begun meanwhile. Another CPU may have taken the page out.
    let _ = take_out(entry, services);
    Err(NotMapped::Gone)
}

/// [`map`], but the intent stays if it succeeds.
#[inline(always)]
fn begin(
    entry: &impl Entry,
    intent: &IntentRecord,
    services: &(impl EpochSource + Intents),
) -> Result<(), NotMapped> {
    services.begin(intent);
    let done = enter(entry, services);
    if done.is_err() {
        services.clear();
    }
    done
}

#[inline(always)]
fn enter(entry: &impl Entry, epochs: &impl EpochSource) -> Result<(), NotMapped> {
    entry.pin_table().map_err(NotMapped::Refused)?;
    if let Err(why) = entry.pin_frame() {
        entry.unpin_table();
        return Err(NotMapped::Refused(why));
    }
    entry.fence();
    let done = if entry.is_linked() || lacks!("row::enter::linked") {
        entry.fill(epochs).map_err(NotMapped::Occupied)
    } else {
        Err(NotMapped::Unlinked)
    };
    match done {
        Ok(()) => entry.log_table(),
        Err(_) => {
            entry.unpin_frame();
            entry.unpin_table();
        }
    }
    done
}

/// The row unmap. Returns the stamp.
///
/// # Errors
///
/// Why not; nothing has changed. [`Refused::Lost`]: another node recovers this one, and repairs the entry.
#[inline(always)]
pub fn unmap(
    entry: &impl Entry,
    intent: &IntentRecord,
    services: &(impl EpochSource + Intents),
) -> Result<Epoch, NotUnmapped> {
    services.begin(intent);
    // The fence orders the intent before the look: a recoverer that freezes a block and then finds no intent is seen.
    entry.fence();
    if let Err(why) = entry.may_unpin()
        && !lacks!("row::unmap::frozen")
    {
        services.clear();
        return Err(NotUnmapped::Refused(why));
    }
    take_out(entry, services)
}

/// The reasons why a page has not been unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUnmapped {
    /// The frame or the table is being recovered.
    Refused(Refused),
    /// The entry does not map that page any more.
    Changed(MapError),
    /// Another node recovers this one, and repairs the entry.
    Lost,
}

/// The rest of [`unmap`], after its intent.
#[inline(always)]
fn take_out(
    entry: &impl Entry,
    services: &(impl EpochSource + Intents),
) -> Result<Epoch, NotUnmapped> {
    if let Err(why) = entry.close() {
        services.clear();
        return Err(NotUnmapped::Changed(why));
    }
    if !lacks!("row::take_out::log") {
        entry.log_page();
        entry.log_table();
    }
    let stamp = match lacks!("row::take_out::stamp") {
        true => Epoch::ZERO,
        false => services.now(),
    };
    // A node that recovers this one counts references anew.
    entry.empty(stamp).map_err(|_| NotUnmapped::Lost)?;
    entry.unpin_frame();
    entry.unpin_table();
    services.clear();
    Ok(stamp)
}
