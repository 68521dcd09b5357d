//! Address spaces for tests.

use dyad_abi::cap::ObjectKind;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, Result};
use dyad_pgtbl::{Leaf, Level, Pte, PteSlot};
use dyad_retype::{Order, Use};
use dyad_shm::frame::WeakRef;

use super::TestCtx;
use super::rig::{Rig, quarter};
use crate::syscall::ops::reclaim::reclaim;
use crate::syscall::ops::space::unlink;
use dyad_machine::kernel_ctx::KernelCtx as Kernel;
use dyad_object::find;
use dyad_object::space::{Region, Space, Supply};
use dyad_space::mapping::SpaceCtx;

/// The kind of the root of an ISA's page table.
pub const fn root_kind(isa: Isa) -> ObjectKind {
    match isa {
        Isa::X86_64 => ObjectKind::PageTableX86L4,
        Isa::Aarch64 => ObjectKind::PageTableA64L4,
    }
}

/// A space, as operations work on it.
pub fn within(k: &Kernel, object: WeakRef) -> Result<SpaceCtx<'_>> {
    Ok(SpaceCtx {
        cx: k,
        space: find(k.node, object, Space::KIND)?,
        object,
    })
}

/// An empty space with a root for every ISA of the system; its faults take frames from the pool of
/// the node they are on. What it has is given back with the rig.
pub fn create(rig: &Rig<'_>) -> Result<WeakRef> {
    let space = rig.object(ObjectKind::Space)?;
    furnish(rig, space)?;
    Ok(space)
}

/// Gives a space roots and supplies.
pub fn furnish(rig: &Rig<'_>, space: WeakRef) -> Result<()> {
    let this = within(&rig.k, space)?;
    for isa in rig.cx.node.isas() {
        let root = rig.object(root_kind(isa))?;
        this.link_root(isa, root)?;
    }
    for n in rig.cx.node.all() {
        let (first, frames) = quarter(rig.cx, n, 1);
        let frames = frames.min(1024);
        let supply = Supply { first, frames };
        this.space.set_supply(rig.k.words(), n, Some(supply));
    }
    Ok(())
}

/// Declares a region.
pub fn region(k: &Kernel, space: WeakRef, start: u64, len: u64, kind: u64) -> Result<()> {
    let region = Region::new(start, len, kind)?;
    within(k, space)?
        .space
        .add_region(k.words(), k.node.id(), region)
}

/// What an ISA's table has at `va`.
pub fn look(k: &Kernel, space: WeakRef, isa: Isa, va: u64) -> Option<(PteSlot, Leaf)> {
    let d = within(k, space).ok()?.driver(isa).ok()?;
    let place = d.find(va, Level::L1).ok()?;
    match d.meaning(&place) {
        Pte::Leaf(leaf) => Some((place, leaf)),
        _ => None,
    }
}

/// Maps a frame on one ISA, with tables from the supply.
pub fn map(rig: &Rig<'_>, space: WeakRef, isa: Isa, va: u64, leaf: Leaf) -> Result<()> {
    let this = within(&rig.k, space)?;
    let d = this.driver(isa)?;
    let place = loop_place(rig, &this, isa, va)?;
    let head = rig
        .k
        .frames()
        .current(dyad_shm::FrameRef::of(leaf.pa).ok_or(dyad_abi::Error::BadArgument)?)?;
    this.map(&d, &place, head, leaf)?;
    Ok(())
}

/// The place of a page; tables on the way are objects of the rig.
fn loop_place(rig: &Rig<'_>, this: &SpaceCtx<'_>, isa: Isa, va: u64) -> Result<PteSlot> {
    let d = this.driver(isa)?;
    for _ in 0..5 {
        let place = d
            .find(va, Level::L1)
            .map_err(dyad_space::mapping::refusal)?;
        if place.level == Level::L1 {
            return Ok(place);
        }
        let level = place.level.below().ok_or(dyad_abi::Error::Corrupt)?;
        let kind = Use::Kernel(dyad_space::mapping::table_kind(isa, level));
        let table = rig.take(Order::FRAME, Some(kind))?;
        this.link(&d, &place, table)?;
    }
    Err(dyad_abi::Error::Corrupt)
}

/// Takes everything out of a space: pages, tables, roots.
pub fn dissolve(k: &Kernel, object: WeakRef) {
    let Ok(this) = within(k, object) else { return };
    for r in this.space.regions(k.words()) {
        let mut at = r.start;
        while at < r.end {
            let Ok(n) = reclaim(&this, at, (r.end - at) / PAGE_SIZE) else {
                break;
            };
            if n == 0 {
                break;
            }
            at += n * PAGE_SIZE;
        }
    }
    for isa in k.node.isas() {
        empty(&this, isa, 0, Level::L4);
        let _ = this.unlink_root(isa);
    }
}

/// Unmaps and unlinks what is below `va` in a table of this level.
fn empty(this: &SpaceCtx<'_>, isa: Isa, va: u64, level: Level) {
    let Ok(d) = this.driver(isa) else { return };
    for i in 0..level_entries(level) {
        let at = va + i * level.size();
        // The lowest page is never mapped; the walk of any address finds the tables around it.
        let Ok(place) = d.find(at, level) else {
            continue;
        };
        match d.meaning(&place) {
            Pte::Leaf(leaf) => {
                // Not by the operation: tests also map where programs may not.
                let _ = this.unmap(&d, &place, &leaf);
            }
            Pte::Table(_) if place.level == level => {
                if let Some(below) = level.below() {
                    empty(this, isa, at, below);
                    let bits = isa as u64 | (below as u64) << 8;
                    if let Some(at_bits) = dyad_abi::cap::TableAt::from_bits(bits) {
                        let _ = unlink(this, at_bits, at);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Entries for the user half.
const fn level_entries(level: Level) -> u64 {
    match level {
        Level::L4 => 256,
        _ => 512,
    }
}

/// An address space that stands by itself, for nodes that share it: its reference.
pub fn shared_word(cx: &TestCtx<'_>, line: usize, space: Option<WeakRef>) -> Option<WeakRef> {
    use core::sync::atomic::Ordering;
    if let Some(space) = space {
        cx.word(line).store(space.bits(), Ordering::Release);
        return Some(space);
    }
    WeakRef::from_bits(cx.word(line).load(Ordering::Acquire))
}
