//! Operations on address spaces.
//!
//! Who may: the capability of the space says which operations; a page is mapped only on the
//! authority of a Frame capability, and never with more than that permits, also later:
//! what it may become is noted in the entry, and `Protect` does not go beyond.
//!
//! | operation | bound |
//! |---|---|
//! | `Map`, `Unmap`, `Protect`, `Harvest`, `Translate`, `Link`, `Unlink` | one walk, one entry (see [`crate::mapping`]); `Map` and `Protect` with [`MAP_EXECUTE`] rewrite one frame |
//! | `AddRegion`, `RemoveRegion` | the slots of regions, 100 |
//! | `Supply` | constant |
//! | `Shootdown` | one message per CPU |
//! | `Reclaim` | [`RECLAIM_PAGES`] pages unmapped on each ISA, or eight times as many entries looked at; the value tells how far it has come |
//!
//! # Values
//!
//! `Unmap`, `Protect`, `Unlink`: the stamp: no CPU holds older translations once it is quiesced.
//! `Shootdown(start, length)` with a length that is not 0: a ticket, and all CPUs have been asked to
//! drop translations (all of them: ranges are not looked at). `Shootdown(ticket, 0)`: 1 if they have,
//! else 0.

use dyad_abi::cap::{
    CapIndex, CapType, FrameOp, MAP_EXECUTE, MAP_WRITE, MemoryOp, PageTableOp, Rights, SpaceOp,
    TableAt,
};
use dyad_abi::user::{
    PAGE_SIZE, TRANSLATE_EXEC, TRANSLATE_PA, TRANSLATE_WRITE, USER_END, USER_MIN,
};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_pgtbl::{Leaf, Level, Perms, Place, Pte};
use dyad_quiesce::Touched;
use dyad_retype::Use;
use dyad_shm::frame::{FrameRef, WeakRef};

use crate::Platform;
use crate::cx::{Cx, Operand};
use crate::lookup::noted;
use crate::mapping::{Driver, In, page, refusal, span, table_kind};
use crate::object::space::{Region, Space, Supply};
use crate::shootdown;

/// Pages that one `Reclaim` unmaps at most.
pub const RECLAIM_PAGES: u64 = 32;
/// Entries that it looks at for each of them, if that is what there is to do.
const LOOKS_PER_PAGE: u64 = 8;

/// Carries an operation on an address space out.
///
/// # Errors
///
/// [`Error::NoIsa`] if the space has no root for the ISA. `Map`: [`Error::NotFound`] if a table is
/// missing, [`Error::Exists`] if something is mapped there, [`Error::Again`] if what was there is
/// not quiesced or other nodes have to rewrite the code first, [`Error::Revoked`] if the frame has
/// changed hands, [`Error::Denied`] if its capability does not permit it. `Unmap`, `Protect`,
/// `Harvest`, `Translate`: [`Error::BadAddress`] if nothing is mapped there. `Link`:
/// [`Error::Exists`] if the table hangs somewhere, or something is there. `Unlink`:
/// [`Error::Exists`] if the table has present entries.
#[inline(never)]
pub fn dispatch<P: Platform>(
    cx: &Cx,
    space: &'static Space,
    object: WeakRef,
    number: u64,
    a: [u64; 5],
) -> Result<u64> {
    let this = &In { cx, space, object };
    match SpaceOp::from_number(number).ok_or(Error::BadSyscall)? {
        SpaceOp::Map => {
            let perms = permissions(a[4])?;
            let frame = cx.operand(cap(a[2])?, CapType::Frame, rights(perms))?;
            map::<P>(this, at(a[0])?, a[1], &frame, a[3], perms)
        }
        SpaceOp::Unmap => unmap(this, at(a[0])?.isa, a[1]),
        SpaceOp::Protect => {
            let perms = permissions(a[2])?;
            protect::<P>(this, at(a[0])?.isa, a[1], perms)
        }
        SpaceOp::Harvest => harvest(this, at(a[0])?.isa, a[1]),
        SpaceOp::Translate => translate(this, at(a[0])?.isa, a[1]),
        SpaceOp::Link => {
            let table = cx.operand(cap(a[2])?, CapType::PageTable, PageTableOp::Link.right())?;
            link(this, at(a[0])?, a[1], &table)
        }
        SpaceOp::Unlink => unlink(this, at(a[0])?, a[1]),
        SpaceOp::AddRegion => {
            let region = Region::new(a[0], a[1], a[2])?;
            this.space.add_region(cx.words(), region).map(|()| 0)
        }
        SpaceOp::RemoveRegion => this.space.remove_region(cx.words(), a[0]).map(|()| 0),
        SpaceOp::Supply => {
            let memory = match a[1] {
                0 => None,
                n => {
                    let memory = cx.operand(cap(n)?, CapType::Memory, supply_rights())?;
                    Some(memory.unguarded()?)
                }
            };
            supply(this, a[0], memory.as_ref())
        }
        SpaceOp::Shootdown if a[1] == 0 => Ok(shootdown::is_done(this, a[0])? as u64),
        SpaceOp::Shootdown => shootdown::request::<P>(this),
        SpaceOp::Reclaim => reclaim(this, a[0], a[1]),
    }
}

fn cap(n: u64) -> Result<CapIndex> {
    CapIndex::new(n).ok_or(Error::NoCap)
}

fn at(bits: u64) -> Result<TableAt> {
    TableAt::from_bits(bits).ok_or(Error::BadArgument)
}

fn permissions(bits: u64) -> Result<Perms> {
    if bits & !(MAP_WRITE | MAP_EXECUTE) != 0 {
        return Err(Error::BadArgument);
    }
    let mut perms = Perms::READ;
    perms.set(Perms::WRITE, bits & MAP_WRITE != 0);
    perms.set(Perms::EXECUTE, bits & MAP_EXECUTE != 0);
    Ok(perms)
}

/// What a Frame capability must permit for a page to be mapped so.
fn rights(perms: Perms) -> Rights {
    let mut rights = FrameOp::Map.right();
    if perms.contains(Perms::WRITE) && !lacks!("ops::space::rights::write") {
        rights = rights.or(FrameOp::Write.right());
    }
    if perms.contains(Perms::EXECUTE) {
        rights = rights.or(FrameOp::Execute.right());
    }
    rights
}

/// What a Memory capability must permit for faults to take frames from it.
const fn supply_rights() -> Rights {
    MemoryOp::RetypeUser
        .right()
        .or(MemoryOp::RetypeKernel.right())
        .or(MemoryOp::RetypeUntyped.right())
        .or(MemoryOp::Split.right())
}

/// An address that programs may use, aligned to what is to be done there.
fn address(va: u64, size: u64) -> Result<u64> {
    if !(USER_MIN..USER_END).contains(&va) {
        return Err(Error::BadAddress);
    }
    if !va.is_multiple_of(size) {
        return Err(Error::BadArgument);
    }
    Ok(va)
}

/// The entry of a table of level `level` at `va`.
fn place_at(d: &Driver, va: u64, level: Level) -> Result<Place> {
    let place = d.find(va, level).map_err(refusal)?;
    if place.level == level {
        return Ok(place);
    }
    Err(match d.meaning(&place) {
        Pte::Empty { .. } => Error::NotFound,
        Pte::Closing { .. } => Error::Again,
        Pte::Leaf(_) | Pte::Table(_) => Error::Exists,
        Pte::Other(_) => Error::Corrupt,
    })
}

/// The leaf that covers `va`.
fn leaf_at(d: &Driver, va: u64) -> Result<(Place, Leaf)> {
    let place = d.find(address(va, 1)?, Level::L1).map_err(refusal)?;
    match d.meaning(&place) {
        Pte::Leaf(leaf) => Ok((place, leaf)),
        Pte::Closing { .. } => Err(Error::Again),
        Pte::Other(_) => Err(Error::Corrupt),
        Pte::Empty { .. } | Pte::Table(_) => Err(Error::BadAddress),
    }
}

/// `Map`. The capability permits `perms`.
pub fn map<P: Platform>(
    this: &In<'_>,
    at: TableAt,
    va: u64,
    frame: &Operand,
    first: u64,
    perms: Perms,
) -> Result<u64> {
    let level = Level::new(at.level).ok_or(Error::BadArgument)?;
    let pages = span(level).ok_or(Error::BadArgument)?.frames();
    let va = address(va, level.size())?;
    let head = frame.object.ok_or(Error::Corrupt)?;
    if first
        .checked_add(pages)
        .is_none_or(|end| end > frame.payload[1])
    {
        return Err(Error::BadArgument);
    }
    let into = frame.payload[0].wrapping_add(first);
    let target = u32::try_from(into)
        .ok()
        .and_then(|n| head.frame.bits().checked_add(n))
        .and_then(FrameRef::from_bits)
        .ok_or(Error::BadArgument)?;
    let d = this.driver(at.isa)?;
    let place = place_at(&d, va, level)?;
    if perms.contains(Perms::EXECUTE) {
        executable::<P>(this, level, target, at.isa)?;
    }
    this.map(
        &d,
        &place,
        head,
        page(target.address(), perms | noted(frame.rights)),
    )
    .map_err(|why| match Error::from(why) {
        // The version was not the capability's.
        Error::NotFound => Error::Revoked,
        other => other,
    })?;
    Ok(0)
}

/// Large pages would be 512 frames to rewrite: they are not executable.
fn executable<P: Platform>(this: &In<'_>, level: Level, frame: FrameRef, isa: Isa) -> Result<()> {
    if level != Level::L1 {
        return Err(Error::TooLarge);
    }
    shootdown::make_executable::<P>(this.cx, frame.address(), isa)
}

/// `Unmap`.
pub fn unmap(this: &In<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let (place, leaf) = leaf_at(&d, va)?;
    Ok(this.unmap(&d, &place, &leaf)?.get())
}

/// `Protect`.
pub fn protect<P: Platform>(this: &In<'_>, isa: Isa, va: u64, perms: Perms) -> Result<u64> {
    let d = this.driver(isa)?;
    let (place, leaf) = leaf_at(&d, va)?;
    let may = |p, note| !perms.contains(p) || leaf.perms.contains(note);
    if !may(Perms::WRITE, Perms::MAY_WRITE) || !may(Perms::EXECUTE, Perms::MAY_EXECUTE) {
        return Err(Error::Denied);
    }
    if perms.contains(Perms::EXECUTE) && !leaf.perms.contains(Perms::EXECUTE) {
        let frame = FrameRef::of(leaf.pa).ok_or(Error::Corrupt)?;
        executable::<P>(this, place.level, frame, isa)?;
    }
    d.protect_at(&place, &leaf, perms).map_err(refusal)?;
    this.cx.log(Touched::Table(place.table()));
    Ok(this.cx.epochs().now().get())
}

/// `Harvest`.
pub fn harvest(this: &In<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let (place, leaf) = leaf_at(&d, va)?;
    let (accessed, dirty) = d.harvest_at(&place, &leaf).map_err(refusal)?;
    this.cx.log(Touched::Table(place.table()));
    Ok(accessed as u64 | (dirty as u64) << 1)
}

/// `Translate`.
pub fn translate(this: &In<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let (place, leaf) = leaf_at(&d, va)?;
    let pa = leaf.pa.add(va & (place.level.size() - 1));
    let flag = |p, bit| if leaf.perms.contains(p) { bit } else { 0 };
    Ok((pa.0 & TRANSLATE_PA)
        | flag(Perms::WRITE, TRANSLATE_WRITE)
        | flag(Perms::EXECUTE, TRANSLATE_EXEC))
}

/// Start address of what a table of a level covers.
fn table_address(va: u64, above: Level) -> Result<u64> {
    if va >= USER_END {
        return Err(Error::BadAddress);
    }
    if !va.is_multiple_of(above.size()) {
        return Err(Error::BadArgument);
    }
    Ok(va)
}

/// `Link`.
pub fn link(this: &In<'_>, at: TableAt, va: u64, table: &Operand) -> Result<u64> {
    if table.payload[0] != at.bits() {
        return Err(Error::BadArgument);
    }
    let child = table.object.ok_or(Error::Corrupt)?;
    let Some(above) = Level::new(at.level + 1) else {
        return this.link_root(at.isa, child).map(|()| 0);
    };
    let va = table_address(va, above)?;
    let d = this.driver(at.isa)?;
    this.link(&d, &place_at(&d, va, above)?, child)?;
    Ok(0)
}

/// `Unlink`.
pub fn unlink(this: &In<'_>, at: TableAt, va: u64) -> Result<u64> {
    let Some(above) = Level::new(at.level + 1) else {
        return Ok(this.unlink_root(at.isa)?.get());
    };
    let va = table_address(va, above)?;
    let d = this.driver(at.isa)?;
    let place = place_at(&d, va, above)?;
    match d.meaning(&place) {
        Pte::Table(table) => {
            let stamp = this.unlink(&d, &place, table)?;
            back_to_supply(this, &d, above, table)?;
            Ok(stamp.get())
        }
        Pte::Closing { .. } => Err(Error::Again),
        Pte::Leaf(_) => Err(Error::Exists),
        Pte::Empty { .. } => Err(Error::NotFound),
        Pte::Other(_) => Err(Error::Corrupt),
    }
}

/// A table that lies in a supply was taken by a fault, and goes back there.
fn back_to_supply(
    this: &In<'_>,
    d: &Driver,
    above: Level,
    table: dyad_shm::PhysAddr,
) -> Result<()> {
    let frame = FrameRef::of(table).ok_or(Error::Corrupt)?;
    if let Some(level) = above.below()
        && this.space.is_supplied(this.cx.words(), frame)
    {
        let weak: WeakRef = this.cx.frames().current(frame)?;
        this.give_back(weak, Use::Kernel(table_kind(d.isa(), level)));
    }
    Ok(())
}

/// `Supply`. Without memory: none.
pub fn supply(this: &In<'_>, node: u64, memory: Option<&Operand>) -> Result<u64> {
    let words = this.cx.words();
    let node = NodeId::new(node)
        .filter(|n| n.index() < this.cx.node.params.node_count)
        .ok_or(Error::NoSuchNode)?;
    let supply = match memory {
        None => None,
        Some(m) => {
            let supply = u32::try_from(m.payload[0])
                .ok()
                .and_then(FrameRef::from_bits)
                .filter(|_| m.payload[1] != 0 && m.payload[1] <= u32::MAX as u64)
                .map(|first| Supply {
                    first,
                    frames: m.payload[1],
                })
                .ok_or(Error::BadArgument)?;
            // The last of them is in the same pool.
            supply.frame(supply.frames - 1).ok_or(Error::BadArgument)?;
            Some(supply)
        }
    };
    this.space.set_supply(words, node, supply);
    Ok(0)
}

/// `Reclaim`: unmaps pages that faults have put there, on all ISAs; other pages stay. Tables that are
/// left empty go back to the supply. Value: pages looked at; the caller goes on behind them.
pub fn reclaim(this: &In<'_>, start: u64, pages: u64) -> Result<u64> {
    let start = address(start, PAGE_SIZE)?;
    let end = pages
        .checked_mul(PAGE_SIZE)
        .and_then(|len| start.checked_add(len))
        .filter(|&end| end <= USER_END)
        .ok_or(Error::BadArgument)?;
    let mut va = start;
    let mut budget = RECLAIM_PAGES * LOOKS_PER_PAGE;
    while va < end && budget != 0 {
        let mut cost = 1;
        // Nothing before this is mapped anywhere.
        let mut next = end;
        for isa in this.cx.node.isas() {
            let Ok(d) = this.driver(isa) else { continue };
            let place = d.find(va, Level::L1).map_err(refusal)?;
            let behind = (va & !(place.level.size() - 1)) + place.level.size();
            match d.meaning(&place) {
                Pte::Leaf(leaf) if leaf.perms.contains(Perms::OWNED) => {
                    this.unmap(&d, &place, &leaf)?;
                    cost = LOOKS_PER_PAGE;
                }
                Pte::Closing { .. } => return Err(Error::Again),
                _ => {}
            }
            next = next.min(behind);
            // The last page of a table, or the last one asked for, has been done.
            if next >= end || next.is_multiple_of(Level::L2.size()) {
                prune(this, &d, va);
            }
        }
        va = next;
        budget = budget.saturating_sub(cost);
    }
    Ok((va.min(end) - start) / PAGE_SIZE)
}

/// Takes tables around `va` out that are empty and came from a supply, from below.
fn prune(this: &In<'_>, d: &Driver, va: u64) {
    for above in [Level::L2, Level::L3, Level::L4] {
        let Ok(place) = d.find(va, above) else { return };
        let Pte::Table(table) = d.meaning(&place) else {
            continue;
        };
        let supplied =
            FrameRef::of(table).is_some_and(|f| this.space.is_supplied(this.cx.words(), f));
        if place.level != above || !supplied || this.unlink(d, &place, table).is_err() {
            return;
        }
        let _ = back_to_supply(this, d, above, table);
    }
}
