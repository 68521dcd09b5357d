//! The rows `slot activate` and `slot deactivate`, and copies.

use dyad_abi::cap::{CapType, LEAF_SLOTS, Rights};
use dyad_coherence::GlobalMem;
use dyad_shm::frame::{Epoch, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::EpochSource;

use crate::SLOT_BYTES;
use crate::contents::{Contents, GuardRef};
use crate::error::Refused;
use crate::header::{SlotHeader, plain};
use crate::line::{Line, LineAt, change};
use crate::table::Table;
use dyad_shm::protocol::Services;

/// A slot that is to be changed: the leaf, as its capability refers to it, and the number of the slot. The
/// leaf has been checked, as every weak reference is before use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotPlace {
    leaf: WeakRef,
    index: u8,
}

impl SlotPlace {
    /// The slot of a leaf, if leaves have that many slots.
    pub const fn new(leaf: WeakRef, index: u32) -> Option<SlotPlace> {
        if index < LEAF_SLOTS {
            Some(SlotPlace {
                leaf,
                index: index as u8,
            })
        } else {
            None
        }
    }

    /// The slot an intent is about.
    pub fn of_intent(record: &IntentRecord) -> Option<SlotPlace> {
        let offset = record.place.0.checked_sub(record.frame.frame.address().0)?;
        if !offset.is_multiple_of(SLOT_BYTES) {
            return None;
        }
        SlotPlace::new(record.frame, u32::try_from(offset / SLOT_BYTES).ok()?)
    }

    /// The leaf.
    pub const fn leaf(self) -> WeakRef {
        self.leaf
    }

    /// The address of the slot.
    #[inline]
    pub const fn address(self) -> PhysAddr {
        let leaf = self.leaf.frame.address();
        leaf.add(self.index as u64 * SLOT_BYTES)
    }

    #[inline]
    pub(crate) const fn intent(self, row: Row) -> IntentRecord {
        IntentRecord {
            row,
            frame: self.leaf,
            table: None,
            place: self.address(),
        }
    }
}

/// The differences between a copy and its source, besides the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrowed {
    /// The most rights that the copy may have.
    pub rights: Rights,
    /// The guard of the copy, if its source has none.
    pub guard: Option<GuardRef>,
}

/// The words that a slot will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// The header of an ACTIVE slot.
    pub header: u64,
    /// The words after the stamp.
    pub words: [u64; Contents::WORDS],
}

impl Filling {
    /// A capability.
    #[inline]
    pub const fn of(contents: &Contents) -> Filling {
        let (ty, rights) = (contents.ty, contents.rights);
        Filling {
            header: SlotHeader::Active { ty, rights }.bits(),
            words: contents.words(),
        }
    }
}

/// The row `slot activate`: puts a capability into a slot. `reserved` is the header of slots that this node is filling
/// ([`plain::reserved`]).
///
/// # Errors
///
/// As [`Table::slot_activate`].
#[inline(always)]
pub fn activate(
    line: &impl Line,
    intent: &IntentRecord,
    reserved: u64,
    to: &Filling,
    services: &impl Services,
) -> Result<(), Refused> {
    services.begin(intent);
    let done = fill(line, reserved, to, services);
    if done.is_ok() && !lacks!("slot::activate::log") {
        services.line(intent.place);
    }
    services.clear();
    done
}

#[inline(always)]
fn fill(
    line: &impl Line,
    reserved: u64,
    to: &Filling,
    epochs: &impl EpochSource,
) -> Result<(), Refused> {
    // Of a slot that has just been taken.
    let quiet = || epochs.quiesced(Epoch::saturating(line.stamp()));
    let early = lacks!("slot::fill::reserve-first").then(quiet);
    if !lacks!("slot::fill::free") {
        change(line, plain::FREE, reserved)?;
    } else if line.header() == plain::FREE {
        // Whatever is there by now.
        let _ = (0..4).any(|_| line.replace(line.header(), reserved).is_ok());
    } else {
        return Err(Refused::Occupied);
    }
    // Only a recovering node changes a slot that this node has reserved.
    let lost = |_| Refused::Lost;
    if !lacks!("slot::fill::stamp") && !early.unwrap_or_else(quiet) {
        change(line, reserved, plain::FREE).map_err(lost)?;
        return Err(Refused::NotQuiesced);
    }
    let contents_first = !lacks!("slot::fill::contents-first");
    if !contents_first {
        change(line, reserved, to.header).map_err(lost)?;
    }
    line.fill(&to.words);
    if contents_first {
        change(line, reserved, to.header).map_err(lost)?;
    }
    Ok(())
}

/// The row `slot deactivate`: takes the capability out of a slot whose header was `from`. `closing` is the header of slots
/// that this node is emptying ([`plain::closing`]).
///
/// # Errors
///
/// [`Refused::Changed`]; [`Refused::Busy`], [`Refused::NoCap`]: the header is not `from` any more; [`Refused::Lost`].
#[inline(always)]
pub fn deactivate(
    line: &impl Line,
    intent: &IntentRecord,
    (from, closing): (u64, u64),
    services: &impl Services,
) -> Result<Epoch, Refused> {
    services.begin(intent);
    let done = close(line, intent.place, (from, closing), services);
    services.clear();
    done
}

/// Empties a slot whose header is `from`; no other node's row changes the slot.
#[inline(always)]
fn close(
    line: &impl Line,
    slot: PhysAddr,
    (from, closing): (u64, u64),
    services: &impl Services,
) -> Result<Epoch, Refused> {
    let early = lacks!("slot::close::stamp-last").then(|| services.now());
    let closing = if lacks!("slot::close::closing") {
        plain::FREE
    } else {
        closing
    };
    change(line, from, closing).map_err(|why| match why {
        // Only one row leaves ACTIVE; the slot is not filled again while this CPU looks.
        Refused::Occupied => Refused::Changed,
        why => why,
    })?;
    let logs_first = !lacks!("slot::close::log-first");
    if logs_first {
        services.line(slot);
    }
    let stamp = early.unwrap_or_else(|| services.now());
    if !logs_first {
        services.line(slot);
    }
    if !lacks!("slot::close::stamp") {
        line.set_stamp(stamp.get());
    }
    // Only a recovering node changes a slot that this node is emptying.
    change(line, closing, plain::FREE).map_err(|_| Refused::Lost)?;
    Ok(stamp)
}

impl<M: GlobalMem + ?Sized> Table<'_, M> {
    /// The row `slot activate`: puts a capability into a slot.
    ///
    /// # Errors
    ///
    /// [`Refused::Occupied`]; [`Refused::Busy`], [`Refused::NotQuiesced`]: try again;
    /// [`Refused::Lost`]; [`Refused::Corrupt`].
    #[inline]
    pub fn slot_activate(
        &self,
        place: SlotPlace,
        contents: &Contents,
        services: &impl Services,
    ) -> Result<(), Refused> {
        self.slot_activate_in(&self.line(place.address()), place, contents, services)
    }

    /// [`slot_activate`](Table::slot_activate) by a caller that has the line of the slot.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn slot_activate_in(
        &self,
        line: &impl Line,
        place: SlotPlace,
        contents: &Contents,
        services: &impl Services,
    ) -> Result<(), Refused> {
        let filling = Filling::of(contents);
        let intent = place.intent(Row::SlotActivate);
        activate(
            line,
            &intent,
            plain::reserved(self.owner),
            &filling,
            services,
        )
    }

    #[inline]
    fn line(&self, at: PhysAddr) -> LineAt<'_, M> {
        LineAt { mem: self.mem, at }
    }

    /// The row `slot deactivate`: takes the capability out of a slot, with `expected` only if the
    /// header is still that one. The slot can be filled again once every node has been quiet since
    /// the epoch returned.
    ///
    /// # Errors
    ///
    /// [`Refused::NoCap`]; [`Refused::Changed`]; [`Refused::Busy`]: try again; [`Refused::Lost`];
    /// [`Refused::Corrupt`].
    #[inline]
    pub fn slot_deactivate(
        &self,
        place: SlotPlace,
        expected: Option<SlotHeader>,
        services: &impl Services,
    ) -> Result<Epoch, Refused> {
        self.slot_deactivate_in(&self.line(place.address()), place, expected, services)
    }

    /// [`slot_deactivate`](Table::slot_deactivate) by a caller that has the line of the slot.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn slot_deactivate_in(
        &self,
        line: &impl Line,
        place: SlotPlace,
        expected: Option<SlotHeader>,
        services: &impl Services,
    ) -> Result<Epoch, Refused> {
        let header = SlotHeader::from_bits(line.header()).ok_or(Refused::Corrupt)?;
        match header {
            SlotHeader::Active { .. } if expected.is_none_or(|e| e == header) => {}
            SlotHeader::Active { .. } => return Err(Refused::Changed),
            SlotHeader::Free => return Err(Refused::NoCap),
            SlotHeader::Reserved(_) | SlotHeader::Closing(_) => return Err(Refused::Busy),
        }
        let closing = plain::closing(self.owner);
        let intent = place.intent(Row::SlotDeactivate);
        deactivate(line, &intent, (header.bits(), closing), services)
    }

    /// Empties a slot whose header is `from`; no other node's row changes the slot.
    #[inline]
    pub(crate) fn close(
        &self,
        slot: PhysAddr,
        from: SlotHeader,
        services: &impl Services,
    ) -> Result<Epoch, Refused> {
        let closing = plain::closing(self.owner);
        close(&self.line(slot), slot, (from.bits(), closing), services)
    }

    /// The contents of a copy of a capability. `narrow` makes its payload: [`narrow`](crate::narrow), or a
    /// function of the kernel for types with other parts.
    ///
    /// The caller has checked the guard of the source, and that of the copy.
    ///
    /// # Errors
    ///
    /// [`Refused::Denied`] without the right to copy; [`Refused::Guarded`]; as `narrow`.
    #[inline]
    pub fn copied(
        &self,
        source: &Contents,
        how: Narrowed,
        narrow: impl FnOnce(CapType, [u64; 3]) -> Result<[u64; 3], Refused>,
    ) -> Result<Contents, Refused> {
        if !lacks!("slot::copied::right") && !source.rights.contains(Rights::COPY) {
            return Err(Refused::Denied);
        }
        let guard = match (source.guard, how.guard) {
            (Some(_), Some(_)) if !lacks!("slot::copied::second-guard") => {
                return Err(Refused::Guarded);
            }
            (_, Some(new)) => Some(new),
            (old, None) if !lacks!("slot::copied::guard") => old,
            (_, None) => None,
        };
        let payload = narrow(source.ty, source.payload)?;
        Ok(Contents {
            rights: if !lacks!("slot::copied::rights") {
                source.rights.and(how.rights)
            } else {
                how.rights
            },
            guard,
            payload: if !lacks!("slot::copied::payload") {
                payload
            } else {
                source.payload
            },
            ..*source
        })
    }

    /// Puts a [copy](Table::copied) of a capability into a slot. Returns its contents.
    ///
    /// # Errors
    ///
    /// As [`copied`](Table::copied) and [`slot_activate`](Table::slot_activate).
    pub fn copy(
        &self,
        source: &Contents,
        place: SlotPlace,
        how: Narrowed,
        narrow: impl FnOnce(CapType, [u64; 3]) -> Result<[u64; 3], Refused>,
        services: &impl Services,
    ) -> Result<Contents, Refused> {
        let copy = self.copied(source, how, narrow)?;
        self.slot_activate(place, &copy, services)?;
        Ok(copy)
    }
}
