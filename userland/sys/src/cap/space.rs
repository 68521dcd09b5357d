//! Address spaces.

use dyad_abi::cap::{
    MAP_EXECUTE, MAP_NONE, MAP_WRITE, RegionKind, SpaceOp, Step, Stripes, TableAt,
};
use dyad_abi::user::{TRANSLATE_EXEC, TRANSLATE_PA, TRANSLATE_WRITE};
use dyad_abi::{Error, Isa, NodeId, Result};

use super::{Cap, Frame, Memory, PageTable, Space, Stamp};
use crate::raw;

/// Permitted accesses to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// None, for [`protect`](Cap::protect) only: the page stays mapped, and what it may be is kept.
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Reading and executing.
    Execute,
}

impl Access {
    const fn bits(self) -> u64 {
        match self {
            Access::None => MAP_NONE,
            Access::Read => 0,
            Access::Write => MAP_WRITE,
            Access::Execute => MAP_EXECUTE,
        }
    }
}

/// The mapping of an address in one ISA's page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Physical address of the byte.
    pub physical: u64,
    /// The page is writable.
    pub write: bool,
    /// The page is executable.
    pub exec: bool,
}

/// Accesses to a page that the hardware has recorded since the last query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The page was read, written or executed.
    pub accessed: bool,
    /// The page was written.
    pub dirty: bool,
}

/// Polls of a shootdown before it counts as not answered.
const ANSWERS: u32 = 1 << 20;

/// Names a shootdown that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// `at` names the page table: of which ISA, and for links at which level.
impl Cap<Space> {
    /// Maps page `page` of `frame` at `va` (level 1), or the 2 MiB that start there (level 2). The tables
    /// above must be linked. Needs the right `Map`, and on `frame` the rights for `access`.
    ///
    /// # Errors
    ///
    /// `Exists` if something is mapped there; `Again` if something was mapped there a moment ago, or other
    /// nodes must rewrite the code first; `NotFound` if a table is missing; `NoIsa` if the space has no root
    /// for the ISA; `TooLarge` for code of more than a page; and those of [every
    /// operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// If this is the caller's own space: nothing of the program may rely on the address not being
    /// mapped, and the memory must not be that of values which others change.
    pub unsafe fn map(
        self,
        at: TableAt,
        va: u64,
        frame: Cap<Frame>,
        page: u64,
        access: Access,
    ) -> Result<()> {
        let args = [at.bits(), va, frame.number(), page, access.bits()];
        self.call(SpaceOp::Map as u32, args).map(drop)
    }

    /// Unmaps what covers `va`. Needs the right `Unmap`. Translations may linger until the stamp has
    /// [passed](Cap::quiesced) or a [`shootdown`](Cap::shootdown).
    ///
    /// # Errors
    ///
    /// `BadAddress` if nothing does, and those of [every operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// If this is the caller's own space, nothing may use the memory any more.
    pub unsafe fn unmap(self, at: TableAt, va: u64) -> Result<Stamp> {
        self.call(SpaceOp::Unmap as u32, [at.bits(), va, 0, 0, 0])
            .map(Stamp)
    }

    /// Changes the permitted accesses of the mapping at `va`. Added accesses are possible at once; removed
    /// ones are impossible once the stamp has passed, as with [`unmap`](Cap::unmap). Needs the right
    /// `Protect`.
    ///
    /// # Errors
    ///
    /// `BadAddress` if nothing is mapped there, `Denied` if the capability that it was mapped from does not
    /// permit `access`, and those of [every operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// If this is the caller's own space, nothing may use the memory in a way that `access` does not
    /// permit.
    pub unsafe fn protect(self, at: TableAt, va: u64, access: Access) -> Result<Stamp> {
        let args = [at.bits(), va, access.bits(), 0, 0];
        self.call(SpaceOp::Protect as u32, args).map(Stamp)
    }

    /// Reads and clears what the hardware has noted about the page at `va`. Needs the right
    /// `Harvest`.
    ///
    /// # Errors
    ///
    /// `BadAddress` if nothing is mapped there, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn harvest(self, at: TableAt, va: u64) -> Result<Used> {
        let v = self.call(SpaceOp::Harvest as u32, [at.bits(), va, 0, 0, 0])?;
        Ok(Used {
            accessed: v & 1 != 0,
            dirty: v & 2 != 0,
        })
    }

    /// The mapping of `va` in the page table of `isa`. Needs the right `Translate`.
    ///
    /// # Errors
    ///
    /// `BadAddress` if `va` is not mapped, `NoIsa` if the space has no root for the ISA, and those of [every
    /// operation](super#errors-of-every-operation).
    pub fn translate(self, isa: Isa, va: u64) -> Result<Translation> {
        let at = TableAt { isa, level: 1 };
        let v = self.call(SpaceOp::Translate as u32, [at.bits(), va, 0, 0, 0])?;
        Ok(Translation {
            physical: v & TRANSLATE_PA,
            write: v & TRANSLATE_WRITE != 0,
            exec: v & TRANSLATE_EXEC != 0,
        })
    }

    /// Compare-and-exchange of the word of the space's memory at `va`: replaces `old` by `new` atomically.
    /// Returns the previous value. Needs the right `Exchange`.
    ///
    /// # Errors
    ///
    /// `BadArgument` if `va` is not the address of a word, `BadAddress` if the program could not write there;
    /// `NoMemory` if the page cannot be mapped in; `Again` if another CPU is changing the word; and those of
    /// [every operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// If this is the caller's own space, the word must be one that others may change at any time.
    pub unsafe fn exchange(self, va: u64, old: u64, new: u64) -> Result<u64> {
        self.call(SpaceOp::Exchange as u32, [va, old, new, 0, 0])
    }

    /// Links `table` as the table of level `at.level` that covers `va`; level 4 is the root. Needs the right
    /// `Link`, also on `table`.
    ///
    /// # Errors
    ///
    /// `Exists` if there is such a table or `table` is linked elsewhere; `Again` if there was one a moment
    /// ago; `NotFound` if the table above is missing; `BadArgument` if `table` is of another ISA or level;
    /// and those of [every operation](super#errors-of-every-operation).
    pub fn link(self, at: TableAt, va: u64, table: Cap<PageTable>) -> Result<()> {
        let args = [at.bits(), va, table.number(), 0, 0];
        self.call(SpaceOp::Link as u32, args).map(drop)
    }

    /// Takes the table of level `at.level` that covers `va` out; it must have no present entries, so
    /// no mapping is lost. Needs the right `Unlink`.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none, `Exists` if it is not empty, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn unlink(self, at: TableAt, va: u64) -> Result<Stamp> {
        self.call(SpaceOp::Unlink as u32, [at.bits(), va, 0, 0, 0])
            .map(Stamp)
    }

    /// Declares the addresses from `start` on a region: says what faults there do. Needs the right
    /// `AddRegion`.
    ///
    /// # Errors
    ///
    /// `Exists` if it overlaps another one, `Full` if the space has no room for more, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn add_region(self, start: u64, len: u64, kind: RegionKind, write: bool) -> Result<()> {
        let kind = kind as u64 | u64::from(write) << 8;
        self.call(SpaceOp::AddRegion as u32, [start, len, kind, 0, 0])
            .map(drop)
    }

    /// Like [`add_region`](Cap::add_region), for writable zero-filled memory whose pages come from the supply
    /// of `home`, on whichever node they are touched first. While that node is dead they are allocated as
    /// without a home.
    ///
    /// # Errors
    ///
    /// `NoSuchNode`; and those of [`add_region`](Cap::add_region).
    pub fn add_region_of(self, start: u64, len: u64, home: NodeId) -> Result<()> {
        let home = home.index() as u64 + 1;
        let kind = RegionKind::Anonymous as u64 | 1 << 8 | home << 9;
        self.call(SpaceOp::AddRegion as u32, [start, len, kind, 0, 0])
            .map(drop)
    }

    /// Like [`add_region`](Cap::add_region), for writable zero-filled memory in pieces with guards between
    /// them, such as stacks. The range begins and ends at multiples of the stride of the pieces.
    ///
    /// # Errors
    ///
    /// Those of [`add_region`](Cap::add_region).
    pub fn add_stacks(self, start: u64, len: u64, stripes: Stripes) -> Result<()> {
        let kind = RegionKind::Anonymous as u64 | 1 << 8 | stripes.bits() << 16;
        self.call(SpaceOp::AddRegion as u32, [start, len, kind, 0, 0])
            .map(drop)
    }

    /// Removes the region that starts at `start`. Its pages must have been unmapped before. Needs the right
    /// `RemoveRegion`.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none, and those of
    /// [every operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// If this is the caller's own space, nothing may use the region any more.
    pub unsafe fn remove_region(self, start: u64) -> Result<()> {
        self.call(SpaceOp::RemoveRegion as u32, [start, 0, 0, 0, 0])
            .map(drop)
    }

    /// Sets the memory from which faults on `node` take frames and tables. Needs the right `Supply`.
    ///
    /// # Errors
    ///
    /// `NoSuchNode`, and those of [every operation](super#errors-of-every-operation).
    pub fn supply(self, node: NodeId, memory: Cap<Memory>) -> Result<()> {
        let args = [node.index() as u64, memory.number(), 0, 0, 0];
        self.call(SpaceOp::Supply as u32, args).map(drop)
    }

    /// Makes `frames` frames from `at` on of `memory` one of up to five runs that faults on `node` take
    /// frames from; without them the list of runs ends before `run`. Needs the right `Supply`.
    ///
    /// # Errors
    ///
    /// `NoSuchNode`; `BadArgument` if there is no such run, or the memory is not that large; and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn supply_run(
        self,
        node: NodeId,
        run: u64,
        memory: Option<(Cap<Memory>, u64, u64)>,
    ) -> Result<()> {
        let (memory, at, frames) = memory.map_or((0, 0, 0), |(m, at, n)| (m.number(), at, n));
        let args = [node.index() as u64, memory, run, at, frames];
        self.call(SpaceOp::Supply as u32, args).map(drop)
    }

    /// A step of moving pages out of the `frames` frames of `memory` from `at` on into other frames of the
    /// supply of `node`, for up to `pages` pages from `start` on. Only pages that faults have put there are
    /// moved. Returns how many pages have been examined, which may be fewer, and for how many of them
    /// something was done. Needs the right `Evacuate`.
    ///
    /// # Errors
    ///
    /// `Again` if another CPU is changing a page, or no frame is available at this moment; `NoMemory` if the
    /// supply has none; and those of [every operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// Between `Park` and `Move` every CPU must have dropped its translations of the pages
    /// ([`shootdown`](Cap::shootdown)): what is written through them later is lost. If this is the caller's
    /// own space, it must not park pages that it needs.
    pub unsafe fn evacuate(
        self,
        step: Step,
        (start, pages): (u64, u64),
        (memory, at, frames): (Cap<Memory>, u64, u64),
        node: NodeId,
    ) -> Result<(u64, u64)> {
        let what = pages | (node.index() as u64) << 40 | (step as u64) << 48;
        let args = [start, what, memory.number(), at, frames];
        let value = self.call(SpaceOp::Evacuate as u32, args)?;
        Ok((value & ((1 << 40) - 1), value >> 40))
    }

    /// Drops the translations of a range on all CPUs that may hold them, and waits until they have.
    /// Needs the right `Shootdown`.
    ///
    /// # Errors
    ///
    /// `BadArgument` for a length of 0; `TimedOut` if a CPU does not answer in time, which does not keep it from
    /// dropping them later; and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn shootdown(self, start: u64, len: u64) -> Result<()> {
        let ticket = self.shootdown_begin(start, len)?;
        for _ in 0..ANSWERS {
            if self.shootdown_done(ticket)? {
                return Ok(());
            }
            raw::relax();
        }
        Err(Error::TimedOut)
    }

    /// Asks all CPUs that may hold translations of a range to drop them. Needs the right `Shootdown`.
    ///
    /// # Errors
    ///
    /// `BadArgument` for a length of 0; and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn shootdown_begin(self, start: u64, len: u64) -> Result<Ticket> {
        if len == 0 {
            return Err(Error::BadArgument);
        }
        self.call(SpaceOp::Shootdown as u32, [start, len, 0, 0, 0])
            .map(Ticket)
    }

    /// Whether all CPUs have done the shootdown with this `ticket`. Needs the right `Shootdown`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn shootdown_done(self, ticket: Ticket) -> Result<bool> {
        Ok(self.call(SpaceOp::Shootdown as u32, [ticket.0, 0, 0, 0, 0])? != 0)
    }

    /// Unmaps up to `pages` pages of an anonymous region from `start` on, on all ISAs, and returns to the
    /// supply the frames that faults had taken. Returns the number of pages examined, which may be less than
    /// requested: the kernel's work per call is bounded. Needs the right `Reclaim`.
    ///
    /// # Errors
    ///
    /// `NotFound` if `start` is not in such a region, and those of [every
    /// operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// If this is the caller's own space, nothing may use these pages any more.
    pub unsafe fn reclaim(self, start: u64, pages: u64) -> Result<u64> {
        self.call(SpaceOp::Reclaim as u32, [start, pages, 0, 0, 0])
    }
}
