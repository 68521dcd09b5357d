//! Operations on address spaces.
//!
//! The capability of the space permits operations. A page is mapped only on the authority of a Frame
//! capability, and never with more permissions than that grants, also later: the entry records which
//! permissions the page may get, and `Protect` does not exceed them.
//!
//! | operation | bound |
//! |---|---|
//! | `Map`, `Unmap`, `Protect`, `Harvest`, `Translate`, `Link`, `Unlink` | one walk, one entry (see [`dyad_space::mapping`]); `Map` and `Protect` with [`MAP_EXECUTE`] rewrite one frame |
//! | `AddRegion`, `RemoveRegion` | the region slots, 94 |
//! | `Shootdown` | one message per CPU |
//! | `Evacuate` | 64 pages parked or 16 moved, or 256 entries looked at |
//! | `Exchange` | one walk, and one fault of the page, if that is not mapped; one word |
//! | `Reclaim`, `Evacuate` | the budget of a call, from which reads, pages and tables subtract their costs; the value tells how far it has come |
//!
//! # Authority besides the right of the operation
//!
//! | operation | needs |
//! |---|---|
//! | `Map` | the pages, with the right to map them, and to write or execute them if they are mapped so |
//! | `Link` | the table, with the right to link it |
//! | `Supply`, `Evacuate` | the memory, with all rights to retype and split, and without a guard |
//! | all others | nothing: the authority was checked when the entry was made |
//!
//! # Where checks are made
//!
//! The driver of an ISA finds entries and decodes them; the rows of [`dyad_space::mapping`] pin what must
//! stay and check again after that. No check here has to hold until the end of an operation, except for the
//! rights of capabilities: they are compared once, and a capability that is removed meanwhile counts as
//! removed just after.
//!
//! # Errors
//!
//! The entry that is found decides the error, in the same way for all operations. An empty entry where one is
//! needed is [`Error::BadAddress`] or, where a table is missing, [`Error::NotFound`]. An entry of another
//! type is [`Error::Exists`]. An entry that another CPU is just changing is [`Error::Again`], which is never
//! for long. An undefined word is [`Error::Corrupt`].
//!
//! # Values
//!
//! `Unmap`, `Protect`, `Unlink`: the stamp; no CPU holds older translations once it is quiesced.
//! `Shootdown(start, length)` with a length other than 0: a ticket; all CPUs have been asked to drop
//! translations (all of them, whatever the range). `Shootdown(ticket, 0)`: 1 if they have, else 0.

use dyad_abi::cap::{
    CapIndex, CapType, FrameOp, MAP_EXECUTE, MAP_NONE, MAP_WRITE, MemoryOp, PageTableOp, Rights,
    SpaceOp, TableAt,
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

/// Carries out an operation on an address space.
///
/// # Errors
///
/// [`Error::NoIsa`] if the space has no root for the ISA. `Map`: [`Error::NotFound`] if a table is missing,
/// [`Error::Exists`] if something is mapped there, [`Error::Again`] if the earlier mapping is not quiesced or
/// other nodes have to rewrite the code first, [`Error::Revoked`] if the frame has been retyped,
/// [`Error::Denied`] if its capability does not permit the mapping. `Unmap`, `Protect`, `Harvest`,
/// `Translate`: [`Error::BadAddress`] if nothing is mapped there. `Link`: [`Error::Exists`] if the table is
/// linked already, or the entry is in use. `Unlink`: [`Error::Exists`] if the table has present entries.
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
            let perms = match a[2] {
                MAP_NONE => Perms::empty(),
                bits => permissions(bits)?,
            };
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

/// The capability index of an argument. 0 is no index, so a forgotten argument is refused.
fn cap(n: u64) -> Result<CapIndex> {
    CapIndex::new(n).ok_or(Error::NoCap)
}

/// The ISA and level of an argument.
fn at(bits: u64) -> Result<TableAt> {
    TableAt::from_bits(bits).ok_or(Error::BadArgument)
}

/// The permissions of a page that can be read. Undefined bits are refused, because they may
/// get a meaning.
fn permissions(bits: u64) -> Result<Perms> {
    if bits & !(MAP_WRITE | MAP_EXECUTE) != 0 {
        return Err(Error::BadArgument);
    }
    let mut perms = Perms::READ;
    perms.set(Perms::WRITE, bits & MAP_WRITE != 0);
    perms.set(Perms::EXECUTE, bits & MAP_EXECUTE != 0);
    Ok(perms)
}

/// The rights that a Frame capability needs for a page to be mapped with `perms`. The page table is no
/// authority of its own: the right to map into a space does not permit writing to a read-only frame.
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

/// The rights that a Memory capability needs for faults to take frames from it. They cover all that faults do
/// on behalf of the giver: make pages and tables, split larger blocks, and return both.
const fn supply_rights() -> Rights {
    MemoryOp::RetypeUser
        .right()
        .or(MemoryOp::RetypeKernel.right())
        .or(MemoryOp::RetypeUntyped.right())
        .or(MemoryOp::Split.right())
}

/// The entry for `va` in a table of level `level`. The tables above must exist.
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

/// The leaf that covers `va`, of whichever size. It is as the walk has found it: a change
/// compares the entry with that, so an operation on a page that has changed since is refused.
fn leaf_at(d: &Driver, va: u64) -> Result<(PteSlot, Leaf)> {
    let place = d.find(address(va, 1)?, Level::L1).map_err(refusal)?;
    match d.meaning(&place) {
        Pte::Leaf(leaf) => Ok((place, leaf)),
        Pte::Closing { .. } | Pte::Parked { .. } => Err(Error::Again),
        Pte::Other(_) => Err(Error::Corrupt),
        Pte::Empty { .. } | Pte::Table(_) => Err(Error::BadAddress),
    }
}

/// `Map`: maps page `first` of a Frame capability, and the following pages up to the size of the level, at
/// `va`. The capability permits `perms`.
///
/// # Errors
///
/// The errors of [`dispatch`]. After an error nothing is mapped that was not before; a frame may have been
/// rewritten to make its code fresh, which has no visible effect.
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
    // Before the page is there: no CPU must execute what it has fetched of the frame's older contents.
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

/// Makes a frame executable on all nodes. Large pages cannot be executable, because 512 frames would have to
/// be rewritten.
fn executable<P: Platform>(
    this: &SpaceCtx<'_>,
    level: Level,
    frame: FrameRef,
    isa: Isa,
) -> Result<()> {
    if level != Level::L1 {
        return Err(Error::TooLarge);
    }
    shootdown::make_executable::<P>(this.cx, frame, isa)
}

/// `Unmap`. CPUs that read the table no longer find the page; CPUs with a translation may use it until the
/// stamp, which is the value, is quiesced.
///
/// # Errors
///
/// [`Error::Again`] if the page has changed meanwhile, or its frame is being recovered.
pub fn unmap(this: &SpaceCtx<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let place = d.find(address(va, 1)?, Level::L1).map_err(refusal)?;
    let (place, leaf) = match d.meaning(&place) {
        // The CPU that moves its contents finds it gone.
        Pte::Parked { pa, perms } => (place, Leaf::unparked(pa, perms)),
        _ => leaf_at(&d, va)?,
    };
    Ok(this.unmap(&d, &place, &leaf)?.get())
}

/// `Protect`: changes the permissions of a page, within those recorded when it was mapped. For more
/// permissions the page must be mapped anew, with a capability that grants them: the capability it was mapped
/// by may be gone.
///
/// Without any permission the entry stays a leaf, which user code cannot use: the next permissions need no wait, as a new
/// mapping would.
///
/// Removed permissions have no effect once the stamp, which is the value, is quiesced; the stamp is therefore
/// taken after the entry has changed.
///
/// # Errors
///
/// [`Error::Denied`] beyond the recorded permissions; [`Error::Again`] if the page has changed meanwhile, or
/// its code has to be rewritten on other nodes.
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

/// `Harvest`: clears the accessed bit (bit 0 of the value) and the dirty bit (bit 1) of a page, and returns
/// them. A CPU that still has the translation need not set them again before its TLB is flushed, so an access
/// may go unnoticed. That is accurate enough for policies, which can request a flush.
pub fn harvest(this: &SpaceCtx<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let (place, leaf) = leaf_at(&d, va)?;
    let (accessed, dirty) = d.harvest_at(&place, &leaf).map_err(refusal)?;
    this.cx.log(DirtyEntry::Table(place.table()));
    Ok(accessed as u64 | (dirty as u64) << 1)
}

/// `Translate`: the frame of a page, and whether the page is writable and executable. The entry may have
/// changed when the caller reads the value.
///
/// # Errors
///
/// [`Error::BadAddress`] if user code cannot read the page.
pub fn translate(this: &SpaceCtx<'_>, isa: Isa, va: u64) -> Result<u64> {
    let d = this.driver(isa)?;
    let (place, leaf) = leaf_at(&d, va)?;
    if !leaf.perms.contains(Perms::USER) && !lacks!("ops::space::translate::user") {
        return Err(Error::BadAddress);
    }
    let pa = leaf.pa.add(va & (place.level.size() - 1));
    let flag = |p, bit| if leaf.perms.contains(p) { bit } else { 0 };
    Ok((pa.0 & TRANSLATE_PA)
        | flag(Perms::WRITE, TRANSLATE_WRITE)
        | flag(Perms::EXECUTE, TRANSLATE_EXEC))
}

/// The start address of the range that an entry of level `above` covers. Unlike a page, a table may lie
/// around the first address that programs may use: a root's first entry covers it.
fn table_address(va: u64, above: Level) -> Result<u64> {
    if va >= USER_END {
        return Err(Error::BadAddress);
    }
    if !va.is_multiple_of(above.size()) {
        return Err(Error::BadArgument);
    }
    Ok(va)
}

/// `Link`: links a table, or, at level 4, makes it the root of its ISA. The capability says for which ISA and
/// level the table was made; it can be linked nowhere else.
///
/// # Errors
///
/// [`Error::BadArgument`] if it is for another ISA or level, [`Error::NotFound`] if a table above it is
/// missing; the errors of [`SpaceCtx::link`] and [`SpaceCtx::link_root`].
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

/// `Unlink`: unlinks a table without entries. Its frame may be reused once the stamp, which is the value, is
/// quiesced: until then CPUs may walk through the table.
///
/// # Errors
///
/// [`Error::NotFound`] if there is none, [`Error::Exists`] if it has entries or a large page is there; the
/// errors of [`SpaceCtx::unlink`].
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

/// Sets the first run of a node's supply to the whole memory; see [`supply_run`].
///
/// # Errors
///
/// The errors of [`supply_run`].
pub fn supply(this: &SpaceCtx<'_>, node: u64, memory: Option<&Operand>) -> Result<u64> {
    supply_run(this, node, memory, 0, (0, 0))
}

/// `Supply`: sets one of the up to [`MAX_RUNS`] runs from which faults on a node take frames: `count` frames
/// of the memory from `at` on (`(0, 0)`: all of it). Without memory, the list of runs ends before this one.
///
/// The space keeps the range, not the capability. A guarded capability is refused before, because faults do
/// not check guards. Frames taken from an older supply stay in use, and become untyped when they are
/// unmapped; a table does only if it lies in a supply then.
///
/// # Errors
///
/// [`Error::NoSuchNode`]; [`Error::BadArgument`] if there is no such run, or if the range is empty, not
/// within the memory or not in one pool.
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
