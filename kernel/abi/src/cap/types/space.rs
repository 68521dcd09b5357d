//! Address spaces and page tables: operations, and the capabilities that they take.

use crate::cap::authority::{Argument, Operations, cap};
use crate::cap::{CapType, FrameOp, MemoryOp, Rights};

numbered! {
    /// Operations on [`CapType::Space`]. `where` is [`TableAt::bits`](crate::cap::TableAt::bits): the ISA and, for `Map`, `Link`
    /// and `Unlink`, the level; elsewhere any level will do.
    SpaceOp {
        /// `(where, va)`: unmaps what covers `va`. Value: the stamp after whose quiescence no
        /// translation is left.
        Unmap = 1,
        /// `(where, va, permissions)`: changes permissions only. Value: the stamp after whose
        /// quiescence no CPU has the old ones.
        Protect = 2,
        /// `(where, va)`: reads and clears accessed (1) and dirty (2).
        Harvest = 3,
        /// `(where, va)`: value: physical address of the byte, with
        /// [`TRANSLATE_WRITE`](crate::user::TRANSLATE_WRITE) and
        /// [`TRANSLATE_EXEC`](crate::user::TRANSLATE_EXEC).
        Translate = 4,
        /// `(where, va, page-table capability)`: links a table of the level of `where` in; level 4 is
        /// the root.
        Link = 5,
        /// `(where, va)`: takes the table of that level out. It must be empty of present entries.
        /// Value: the stamp after whose quiescence it can be linked again.
        Unlink = 6,
        /// `(start, length, kind | write << 8 | home << 9 | stripes << 16)`: declares a region, see
        /// [`RegionKind`]; `stripes` is 0 or [`Stripes::bits`](crate::cap::Stripes::bits). `home` is 0, or 1 and the number of the node
        /// from whose supply faults there take pages, wherever they are, while it lives.
        AddRegion = 7,
        /// `(start)`: takes the region that starts there away. Pages in it stay mapped.
        RemoveRegion = 8,
        /// `(node, memory capability, run, at, frames)`: where faults on that node take frames and tables
        /// from: a run, of up to five, of so many frames from `at` on of the memory; `(0, 0)` is all of it.
        /// Without memory (0) the list of runs ends there. Tables come from run 0 if there is room. The
        /// capability needs `RetypeUser`, `RetypeKernel`, `RetypeUntyped` and `Split`.
        Supply = 9,
        /// `(start, length)`: asks all CPUs that may hold translations to drop them (all of them:
        /// the range is not looked at). Value: a ticket. `(ticket, 0)`: value 1 if they have, else 0.
        Shootdown = 10,
        /// `(start, pages)`: from `start` on, unmaps pages that faults have filled, on all ISAs, and
        /// gives their frames and empty tables back; other pages stay. Value: pages looked at, which
        /// may be fewer than `pages`: the caller goes on behind them.
        Reclaim = 11,
        /// `(where, va, frame capability, first page of it, permissions)`: maps one page (level of
        /// `where` 1) or one 2 MiB block (level 2). Permissions: [`MAP_WRITE`], [`MAP_EXECUTE`].
        Map = 12,
        /// `(start, pages | node << 40 | step << 48, memory capability, at, frames)`: a [`Step`] of moving pages
        /// that faults have put into these frames elsewhere, in the supply of the node; from `start` on. The
        /// capability needs what `Supply` wants. Value: pages looked at, and how many of them the step was
        /// done for `<< 40`; the caller goes on behind them.
        Evacuate = 13,
        /// `(va, old, new)`: the word of user memory at `va`, which may be written there, becomes `new` if it
        /// is `old`, as one atomic step. Value: what it was. The page is mapped in if need be.
        Exchange = 14,
    }
}

/// The rights that faults use on the memory of their supplier.
const SUPPLY: Rights = MemoryOp::RetypeUser
    .right()
    .or(MemoryOp::RetypeKernel.right())
    .or(MemoryOp::RetypeUntyped.right())
    .or(MemoryOp::Split.right());

impl Operations for SpaceOp {
    fn arguments(self) -> &'static [Argument] {
        match self {
            // Beside `Map`: `Write` and `Execute`, if the page is mapped so.
            SpaceOp::Map => const { &[cap(2, CapType::Frame, FrameOp::Map.right())] },
            SpaceOp::Link => const { &[cap(2, CapType::PageTable, PageTableOp::Link.right())] },
            SpaceOp::Supply => const { &[cap(1, CapType::Memory, SUPPLY).or_none().unguarded()] },
            SpaceOp::Evacuate => const { &[cap(2, CapType::Memory, SUPPLY).unguarded()] },
            SpaceOp::Unmap
            | SpaceOp::Protect
            | SpaceOp::Harvest
            | SpaceOp::Translate
            | SpaceOp::Unlink
            | SpaceOp::AddRegion
            | SpaceOp::RemoveRegion
            | SpaceOp::Shootdown
            | SpaceOp::Reclaim
            | SpaceOp::Exchange => &[],
        }
    }
}

numbered! {
    /// A step of `Evacuate`.
    Step {
        /// The pages cannot be used any more, and faults on them wait. Translations may stay: before the
        /// pages are moved, every CPU has to drop them ([`SpaceOp::Shootdown`]).
        Park = 0,
        /// Parked pages get other frames, with the same contents, and can be used again.
        Move = 1,
        /// Parked pages can be used again where they are.
        Unpark = 2,
    }
}

/// A bit of permissions: writable.
pub const MAP_WRITE: u64 = 1;
/// A bit of permissions: executable.
pub const MAP_EXECUTE: u64 = 2;
/// Permissions of [`SpaceOp::Protect`]: none. The page stays where it is, and what it may be is kept.
pub const MAP_NONE: u64 = 4;

numbered! {
    /// The actions of faults in a region.
    RegionKind {
        /// Zero-filled frames from the supply of the faulting node, mapped on every ISA.
        Anonymous = 1,
        /// Mapped by the owner; a page that one ISA has is shown to the others.
        Shared = 2,
        /// Mapped by the owner for each ISA apart (program text).
        PerIsa = 3,
        /// Never accessible: an access is the program's error.
        Guard = 4,
    }
}

numbered! {
    /// Rights of [`CapType::PageTable`]; it has no operations of its own.
    PageTableOp {
        /// Only a right: it may be linked into an address space.
        Link = 0,
    }
}

impl Operations for PageTableOp {
    fn only_a_right(self) -> bool {
        true
    }
}
