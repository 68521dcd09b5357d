//! Operations on address spaces.
//!
//! Who may: the capability of the space says which operations; a page is mapped only on the
//! authority of a Frame capability, and never with more than that permits, also later:
//! what it may become is noted in the entry, and `Protect` does not go beyond.
//!
//! | operation | bound |
//! |---|---|
//! | `Map`, `Unmap`, `Protect`, `Harvest`, `Translate`, `Link`, `Unlink` | one walk, one entry (see [`dyad_space::mapping`]); `Map` and `Protect` with [`MAP_EXECUTE`] rewrite one frame |
//! | `AddRegion`, `RemoveRegion` | the slots of regions, 94 |
//! | `Supply` | constant |
//! | `Shootdown` | one message per CPU |
//! | `Evacuate` | 64 pages parked or 16 moved, or 256 entries looked at |
//! | `Exchange` | one walk, and one fault of the page, if that is not mapped; one word |
//! | `Reclaim`, `Evacuate` | the budget of a call, from which looks, pages and tables take what they cost; the value tells how far it has come |
//!
//! # What it takes besides the right of the operation
//!
//! | operation | needs |
//! |---|---|
//! | `Map` | the pages, with the right to map them, and to write or execute them if they are mapped so |
//! | `Link` | the table, with the right to link it |
//! | `Supply`, `Evacuate` | the memory, with all rights to retype and split, and without a guard |
//! | all others | nothing: what is there was put there with what it took |
//!
//! # Who looks at what
//!
//! The driver of an ISA finds places and knows what entries mean; the rows of [`dyad_space::mapping`] pin
//! what must stay and look again after that. So nothing is decided here that has to hold until the
//! end of an operation, but for the rights of capabilities: those are compared once, and that a
//! capability goes meanwhile is as if it had gone just after.
//!
//! # Errors
//!
//! What an entry says decides the error, the same for all operations: an empty one where something is
//! needed is [`Error::BadAddress`] or, where a table is missing, [`Error::NotFound`]; something else
//! than what is needed is [`Error::Exists`]; an entry that another CPU is just changing is
//! [`Error::Again`], which is never for long; a word that nobody writes is [`Error::Corrupt`].
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
use dyad_abi::user::{TRANSLATE_EXEC, TRANSLATE_PA, TRANSLATE_WRITE, USER_END};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_pgtbl::{Leaf, Level, Perms, Pte, PteSlot};
use dyad_quiesce::DirtyEntry;
use dyad_shm::frame::{FrameRef, WeakRef};

use super::ranges::{address, range_of};
use super::reclaim::{back_to_supply, reclaim};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_machine::lookup::noted;
use dyad_object::space::{MAX_RUNS, Region, Space};
use dyad_space::mapping::{Driver, SpaceCtx, page, refusal, span};
use dyad_space::{copy, shootdown};

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
    cx: &KernelCtx,
    space: &'static Space,
    object: WeakRef,
    number: u64,
    a: [u64; 5],
) -> Result<u64> {
    let this = &SpaceCtx { cx, space, object };
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
            if region
                .home
                .is_some_and(|n| n.index() >= cx.node.params.node_count)
            {
                return Err(Error::NoSuchNode);
            }
            this.space
                .add_region(cx.words(), cx.node.id(), region)
                .map(|()| 0)
        }
        SpaceOp::RemoveRegion => this
            .space
            .remove_region(cx.words(), cx.node.id(), a[0])
            .map(|()| 0),
        SpaceOp::Supply => {
            let memory = match a[1] {
                0 => None,
                n => {
                    let memory = cx.operand(cap(n)?, CapType::Memory, supply_rights())?;
                    Some(memory.unguarded()?)
                }
            };
            supply_run(this, a[0], memory.as_ref(), a[2], (a[3], a[4]))
        }
        SpaceOp::Shootdown if a[1] == 0 => Ok(shootdown::is_done::<P>(this, a[0])? as u64),
        SpaceOp::Shootdown => Ok(shootdown::request::<P>(this)),
        SpaceOp::Reclaim => reclaim(this, a[0], a[1]),
        SpaceOp::Evacuate => {
            let memory = cx.operand(cap(a[2])?, CapType::Memory, supply_rights())?;
            super::evacuate::evacuate::<P>(this, (a[0], a[1]), &memory.unguarded()?, (a[3], a[4]))
        }
        SpaceOp::Exchange => copy::exchange::<P>(cx, object, a[0], a[1], a[2]),
    }
}

/// The capability that an argument names. 0 is the index of none, so that a forgotten argument is
/// refused and does not stand for some capability.
fn cap(n: u64) -> Result<CapIndex> {
    CapIndex::new(n).ok_or(Error::NoCap)
}

/// ISA and level, as an argument has them.
fn at(bits: u64) -> Result<TableAt> {
    TableAt::from_bits(bits).ok_or(Error::BadArgument)
}

/// Permissions, as an argument has them. Reading is in all of them. Bits without a meaning are refused:
/// they may get one.
fn permissions(bits: u64) -> Result<Perms> {
    if bits & !(MAP_WRITE | MAP_EXECUTE) != 0 {
        return Err(Error::BadArgument);
    }
    let mut perms = Perms::READ;
    perms.set(Perms::WRITE, bits & MAP_WRITE != 0);
    perms.set(Perms::EXECUTE, bits & MAP_EXECUTE != 0);
    Ok(perms)
}

/// What a Frame capability must permit for a page to be mapped so. The page table is no authority
/// of its own: who may map into a space still cannot write to a frame that he may only read.
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

/// What a Memory capability must permit for faults to take frames from it: everything that they do
/// there in the name of whoever has given it. They make pages and tables, split what is too large,
/// and give both back.
const fn supply_rights() -> Rights {
    MemoryOp::RetypeUser
        .right()
        .or(MemoryOp::RetypeKernel.right())
        .or(MemoryOp::RetypeUntyped.right())
        .or(MemoryOp::Split.right())
}

/// The entry of a table of level `level` at `va`: the tables above it must be there.
///
/// # Errors
///
/// See the module: what the walk has come to instead.
fn place_at(d: &Driver, va: u64, level: Level) -> Result<PteSlot> {
    let place = d.find(va, level).map_err(refusal)?;
    if place.level == level {
        return Ok(place);
    }
    Err(match d.meaning(&place) {
        Pte::Empty { .. } => Error::NotFound,
        Pte::Closing { .. } | Pte::Parked { .. } => Error::Again,
        Pte::Leaf(_) | Pte::Table(_) => Error::Exists,
        Pte::Other(_) => Error::Corrupt,
    })
}

/// The leaf that covers `va`, of whichever size. It is as the walk has found it: whoever changes it
/// compares with that, so an operation on a page that is another one by then is refused.
fn leaf_at(d: &Driver, va: u64) -> Result<(PteSlot, Leaf)> {
    let place = d.find(address(va, 1)?, Level::L1).map_err(refusal)?;
    match d.meaning(&place) {
        Pte::Leaf(leaf) => Ok((place, leaf)),
        Pte::Closing { .. } | Pte::Parked { .. } => Err(Error::Again),
        Pte::Other(_) => Err(Error::Corrupt),
        Pte::Empty { .. } | Pte::Table(_) => Err(Error::BadAddress),
    }
}

/// `Map`: shows page `first` of a Frame capability, and what follows it up to the size of the level,
/// at `va`. The capability permits `perms`.
///
/// # Errors
///
/// As [`dispatch`] says. Whatever the error, nothing is mapped that was not before; a frame may have
/// been rewritten for its code to be fresh, which shows nowhere.
pub fn map<P: Platform>(
    this: &SpaceCtx<'_>,
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
    // The page that is named must be one of the capability's, which may be for a part of its block; so
    // must all that a large page would show.
    if first
        .checked_add(pages)
        .is_none_or(|end| end > frame.payload[1])
    {
        return Err(Error::BadArgument);
    }
    // What a slot says is not damaged, but the sum is checked all the same: a frame number that had
    // run over would be that of another pool.
    let into = frame.payload[0].wrapping_add(first);
    let target = u32::try_from(into)
        .ok()
        .and_then(|n| head.frame.bits().checked_add(n))
        .and_then(FrameRef::from_bits)
        .ok_or(Error::BadArgument)?;
    let d = this.driver(at.isa)?;
    let place = place_at(&d, va, level)?;
    // Before the page is there: nobody must execute what an older translation of the frame says.
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
fn executable<P: Platform>(
    this: &SpaceCtx<'_>,
    level: Level,
    frame: FrameRef,
    isa: Isa,
) -> Result<()> {
    if level != Level::L1 {
        return Err(Error::TooLarge);
    }
    shootdown::make_executable::<P>(this.cx, frame.address(), isa)
}

/// `Unmap`. The page is gone for CPUs that look at the table; those that have looked before may use
/// it until the stamp, which is the value, is quiesced.
///
/// # Errors
///
/// [`Error::Again`] if it has become another page meanwhile, or its frame is being recovered.
pub fn unmap(this: &SpaceCtx<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let place = d.find(address(va, 1)?, Level::L1).map_err(refusal)?;
    let (place, leaf) = match d.meaning(&place) {
        // Whoever moves its contents finds it gone.
        Pte::Parked { pa, perms } => (place, Leaf::unparked(pa, perms)),
        _ => leaf_at(&d, va)?,
    };
    Ok(this.unmap(&d, &place, &leaf)?.get())
}

/// `Protect`: changes what a page permits, within what was noted when it was mapped. Who may map it
/// with more has to map it anew, with a capability that says so: the one it was mapped by may be gone.
///
/// Permissions that are taken away are gone once the stamp, which is the value, is quiesced; for that
/// it is taken after the entry has changed.
///
/// # Errors
///
/// [`Error::Denied`] beyond what was noted; [`Error::Again`] if the page is another one by now, or
/// its code has to be rewritten elsewhere.
pub fn protect<P: Platform>(this: &SpaceCtx<'_>, isa: Isa, va: u64, perms: Perms) -> Result<u64> {
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
    // Compared with what the notes have been read from: a page that has been replaced meanwhile, by one
    // that may less, is left alone.
    d.protect_at(&place, &leaf, perms).map_err(refusal)?;
    this.cx.log(DirtyEntry::Table(place.table()));
    Ok(this.cx.epochs().now().get())
}

/// `Harvest`: takes the accessed bit (bit 0 of the value) and the dirty bit (bit 1) of a page off. A
/// CPU that still has the translation need not set them again before its TLB is flushed, so what is
/// not found may have been set: for policies that is good enough, and a flush is theirs to ask for.
pub fn harvest(this: &SpaceCtx<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let (place, leaf) = leaf_at(&d, va)?;
    let (accessed, dirty) = d.harvest_at(&place, &leaf).map_err(refusal)?;
    this.cx.log(DirtyEntry::Table(place.table()));
    Ok(accessed as u64 | (dirty as u64) << 1)
}

/// `Translate`: frame, and whether the page may be written and executed. What one moment's entry said:
/// it may be another one when the caller reads the value.
pub fn translate(this: &SpaceCtx<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let (place, leaf) = leaf_at(&d, va)?;
    let pa = leaf.pa.add(va & (place.level.size() - 1));
    let flag = |p, bit| if leaf.perms.contains(p) { bit } else { 0 };
    Ok((pa.0 & TRANSLATE_PA)
        | flag(Perms::WRITE, TRANSLATE_WRITE)
        | flag(Perms::EXECUTE, TRANSLATE_EXEC))
}

/// Start address of what an entry of level `above` covers. Unlike a page, a table may lie around the
/// first address that programs may use: a root's first entry covers it.
fn table_address(va: u64, above: Level) -> Result<u64> {
    if va >= USER_END {
        return Err(Error::BadAddress);
    }
    if !va.is_multiple_of(above.size()) {
        return Err(Error::BadArgument);
    }
    Ok(va)
}

/// `Link`: hangs a table in, or, at level 4, makes it the root of its ISA. The capability says for
/// which ISA and level the table was made; it fits nowhere else.
///
/// # Errors
///
/// [`Error::BadArgument`] if it is for another place, [`Error::NotFound`] if a table above it is
/// missing, else as [`SpaceCtx::link`] and [`SpaceCtx::link_root`].
pub fn link(this: &SpaceCtx<'_>, at: TableAt, va: u64, table: &Operand) -> Result<u64> {
    if table.payload[0] != at.bits() {
        return Err(Error::BadArgument);
    }
    let child = table.object.ok_or(Error::Corrupt)?;
    // Nothing is above a root: it hangs in the space itself.
    let Some(above) = Level::new(at.level + 1) else {
        return this.link_root(at.isa, child).map(|()| 0);
    };
    let va = table_address(va, above)?;
    let d = this.driver(at.isa)?;
    this.link(&d, &place_at(&d, va, above)?, child)?;
    Ok(0)
}

/// `Unlink`: takes a table out that has no entries. Its frame may be used for something else once the
/// stamp, which is the value, is quiesced: until then CPUs may walk through it.
///
/// # Errors
///
/// [`Error::NotFound`] if there is none, [`Error::Exists`] if it has entries or a large page is
/// there, else as [`SpaceCtx::unlink`].
pub fn unlink(this: &SpaceCtx<'_>, at: TableAt, va: u64) -> Result<u64> {
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
        Pte::Closing { .. } | Pte::Parked { .. } => Err(Error::Again),
        Pte::Leaf(_) => Err(Error::Exists),
        Pte::Empty { .. } => Err(Error::NotFound),
        Pte::Other(_) => Err(Error::Corrupt),
    }
}

/// The first run of [`supply_run`]: all of the memory.
///
/// # Errors
///
/// As [`supply_run`].
pub fn supply(this: &SpaceCtx<'_>, node: u64, memory: Option<&Operand>) -> Result<u64> {
    supply_run(this, node, memory, 0, (0, 0))
}

/// `Supply`: says where faults on a node take frames from: a run of up to [`MAX_RUNS`], `count` frames
/// from `at` on of the memory (`(0, 0)`: all of it); without memory, the list of runs ends before this
/// one.
///
/// The space keeps the range, not the capability, so one with a guard is refused before: nobody would
/// look at the guard at a fault. What faults have taken from an older supply stays where it is, and
/// goes back to untyped when it is unmapped; a table only if it lies in a supply then.
///
/// # Errors
///
/// [`Error::NoSuchNode`]; [`Error::BadArgument`] if there is no such run, or if the range is empty, not
/// the memory's or not in one pool.
pub fn supply_run(
    this: &SpaceCtx<'_>,
    node: u64,
    memory: Option<&Operand>,
    run: u64,
    (at, count): (u64, u64),
) -> Result<u64> {
    let words = this.cx.words();
    let node = NodeId::new(node)
        .filter(|n| n.index() < this.cx.node.params.node_count)
        .ok_or(Error::NoSuchNode)?;
    let run = usize::try_from(run)
        .ok()
        .filter(|&r| r < MAX_RUNS)
        .ok_or(Error::BadArgument)?;
    let supply = match memory {
        None => None,
        Some(m) => Some(range_of(m, at, count)?),
    };
    this.space.set_run(words, node, run, supply);
    Ok(0)
}
