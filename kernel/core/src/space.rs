//! Address spaces: one page table per ISA, one list of regions.
//!
//! Whichever node makes a mapping writes the tables of *all* ISAs, through the accessor functions
//! of [`dyad_pgtbl`]; the other node finds it there without a message. When two nodes touch the
//! same new page at once, one table decides: the *deciding* table is that of the lowest-numbered
//! ISA the system has. Its entry is set by CAS; the loser gives its frame back and takes the
//! winner's.
//!
//! ```text
//! region:  FREE(0) ──CAS──▶ BUSY(1) ──fill, release──▶ start address ──CAS──▶ BUSY ──▶ FREE
//! ```

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::user::{HEAP_BASE, HEAP_END, PAGE_SIZE, USER_END, USER_MIN};
use dyad_abi::{Error, Isa, Result};
use dyad_pgtbl::{FrameSource, Leaf, Level, MapError, Memory, Perms, RemoteCpu};
use dyad_shm::superblock::ROOT_SLOTS;
use dyad_shm::{Epoch, FrameRef, FusedMap, LayoutHash, PhysAddr, shared_layout, shared_struct};

use crate::Platform;
use crate::frames::{self, Frames};
use crate::node::Node;

const MAGIC: u64 = u64::from_le_bytes(*b"DYADSPCE");
/// Regions an address space can have.
pub const MAX_REGIONS: usize = 100;

/// What a region is backed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum RegionKind {
    /// Zero-filled frames, allocated when first touched.
    Anonymous = 1,
    /// Mapped when the program was loaded.
    Image = 2,
    /// As `Anonymous`, but part of the program: stacks, bss. Not given back by `Unmap`.
    Fixed = 3,
}

shared_struct! {
    /// A region's slot.
    #[derive(Debug)]
    #[repr(align(32))]
    pub struct RegionSlot {
        /// 0 free, 1 busy, else the start address.
        pub start: AtomicU64,
        /// One past the end.
        pub end: AtomicU64,
        /// `kind << 8 | write`.
        pub kind: AtomicU64,
        /// Reserved; zero.
        pub reserved: AtomicU64,
    }
}

shared_struct! {
    /// An address space.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct SpaceFrame {
        magic: AtomicU64,
        /// Page-table root by ISA, physical; 0 if the system has no node of that ISA.
        pub roots: [AtomicU64; dyad_abi::ident::ISA_COUNT],
        /// Where `MapAnon` continues.
        pub heap_next: AtomicU64,
        /// Main thread: `FrameRef` bits plus one.
        pub main_thread: AtomicU64,
        /// Page faults resolved by a new frame.
        pub faults_filled: AtomicU64,
        /// Page faults resolved from another ISA's table.
        pub faults_copied: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 5],
        /// The regions.
        pub regions: [RegionSlot; MAX_REGIONS],
    }
}

const _: () = assert!(size_of::<SpaceFrame>() as u64 == PAGE_SIZE);

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h;
        SpaceFrame {
            magic, roots, heap_next, main_thread, faults_filled, faults_copied, reserved, regions,
        },
        RegionSlot { start, end, kind, reserved },
    )
    .word(MAGIC)
}

/// A region as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Start address.
    pub start: u64,
    /// One past the end.
    pub end: u64,
    /// Backing.
    pub kind: RegionKind,
    /// Whether the program may write there.
    pub write: bool,
}

/// What has become of a frame that was to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The frame is the space's now. `false`: it is still the caller's.
    pub used: bool,
    /// Whether all tables have the page now.
    pub result: Result<()>,
}

/// Access to an address space from a node.
#[derive(Clone, Copy)]
pub struct Space<'n> {
    node: &'n Node,
    frame: &'static SpaceFrame,
}

impl<'n> Space<'n> {
    /// Makes an empty address space with roots for every ISA of the system.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`].
    pub fn create(node: &'n Node) -> Result<(Space<'n>, FrameRef)> {
        let frames = node.frames();
        let pa = frames.alloc()?;
        let frame: &'static SpaceFrame = node.map.get(pa).ok_or(Error::Corrupt)?;
        let reference = FrameRef::of(pa).ok_or(Error::Corrupt)?;
        frame.heap_next.store(HEAP_BASE, Ordering::Relaxed);
        for isa in node.isas() {
            let root = match frames.alloc() {
                Ok(root) => root,
                Err(e) => {
                    Space { node, frame }.destroy(reference);
                    return Err(e);
                }
            };
            // The kernel half, where the ISA keeps it in user roots: what its nodes published.
            for (slot, entry) in ROOT_SLOTS.iter().zip(&node.sb.roots[isa.index()].entries) {
                node.map
                    .word(root.add(*slot as u64 * 8))
                    .store(entry.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            frame.roots[isa.index()].store(root.0, Ordering::Release);
        }
        frame.magic.store(MAGIC, Ordering::Release);
        Ok((Space { node, frame }, reference))
    }

    /// The address space in a frame.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is none.
    pub fn find(node: &'n Node, bits: u64) -> Result<Space<'n>> {
        let frame = u32::try_from(bits)
            .ok()
            .and_then(FrameRef::from_bits)
            .and_then(|f| node.map.get::<SpaceFrame>(f.address()))
            .filter(|f| f.magic.load(Ordering::Acquire) == MAGIC)
            .ok_or(Error::NotFound)?;
        Ok(Space { node, frame })
    }

    /// The shared structure.
    pub fn frame(&self) -> &'static SpaceFrame {
        self.frame
    }

    fn map(&self) -> &'n FusedMap {
        &self.node.map
    }

    /// Root of the page table of an ISA, if there is one.
    pub fn root(&self, isa: Isa) -> Option<PhysAddr> {
        // Shared memory may be damaged: what is not a frame of a pool is not followed.
        let pa = PhysAddr(self.frame.roots[isa.index()].load(Ordering::Acquire));
        (pa.offset() == 0 && self.map().address(pa, PAGE_SIZE).is_some()).then_some(pa)
    }

    /// Calls `f` with the accessor functions for the page table of an ISA.
    pub fn with_table<R>(
        &self,
        isa: Isa,
        f: impl FnOnce(&RemoteCpu<'_, dyad_coherence::Coherent<'_>>) -> R,
    ) -> Option<R> {
        let root = self.root(isa)?;
        let mem = frames::words(self.map());
        Some(f(&RemoteCpu::new(&mem, isa, root)))
    }

    /// Adds a region.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] for bad ranges, [`Error::Exists`] if it overlaps another region,
    /// [`Error::Full`] if all slots are in use.
    pub fn add_region(&self, r: Region) -> Result<()> {
        if r.start < USER_MIN
            || r.end > USER_END
            || r.start >= r.end
            || !r.start.is_multiple_of(PAGE_SIZE)
            || !r.end.is_multiple_of(PAGE_SIZE)
        {
            return Err(Error::BadArgument);
        }
        if self.regions().any(|o| o.start < r.end && r.start < o.end) {
            return Err(Error::Exists);
        }
        let slot = self
            .frame
            .regions
            .iter()
            .find(|s| {
                s.start.load(Ordering::Relaxed) == 0
                    && s.start
                        .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
            })
            .ok_or(Error::Full)?;
        slot.end.store(r.end, Ordering::Relaxed);
        slot.kind
            .store((r.kind as u64) << 8 | r.write as u64, Ordering::Relaxed);
        slot.start.store(r.start, Ordering::Release);
        Ok(())
    }

    fn read_slot(slot: &RegionSlot) -> Option<Region> {
        let start = slot.start.load(Ordering::Acquire);
        if start < USER_MIN {
            return None;
        }
        let (end, kind) = (
            slot.end.load(Ordering::Acquire),
            slot.kind.load(Ordering::Acquire),
        );
        let region = Region {
            start,
            end,
            kind: match kind >> 8 {
                1 => RegionKind::Anonymous,
                2 => RegionKind::Image,
                3 => RegionKind::Fixed,
                _ => return None,
            },
            write: kind & 1 == 1,
        };
        // Unchanged while being read?
        (slot.start.load(Ordering::Acquire) == start && end > start).then_some(region)
    }

    /// The regions there are now.
    pub fn regions(&self) -> impl Iterator<Item = Region> + 'static {
        self.frame.regions.iter().filter_map(Self::read_slot)
    }

    /// The region an address is in.
    pub fn region_at(&self, va: u64) -> Option<Region> {
        self.regions().find(|r| (r.start..r.end).contains(&va))
    }

    /// New anonymous memory for the program.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`], [`Error::TooLarge`], [`Error::Full`].
    pub fn map_anonymous(&self, len: u64) -> Result<u64> {
        if len == 0 || !len.is_multiple_of(PAGE_SIZE) {
            return Err(Error::BadArgument);
        }
        if len > HEAP_END - HEAP_BASE {
            return Err(Error::TooLarge);
        }
        let start = self
            .frame
            .heap_next
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |at| {
                let end = at.checked_add(len)?;
                (end <= HEAP_END).then_some(end)
            })
            .map_err(|_| Error::TooLarge)?;
        let end = start + len;
        self.add_region(Region {
            start,
            end,
            kind: RegionKind::Anonymous,
            write: true,
        })
        .inspect_err(|_| {
            // The addresses go back unless somebody else has taken some behind them.
            let next = &self.frame.heap_next;
            let _ = next.compare_exchange(end, start, Ordering::AcqRel, Ordering::Relaxed);
        })?;
        Ok(start)
    }

    /// Takes an anonymous region away and frees its frames. The caller flushes translations.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if the range is not exactly one anonymous region.
    pub fn unmap_region(&self, start: u64, len: u64) -> Result<()> {
        let end = start.checked_add(len).ok_or(Error::BadArgument)?;
        let wanted = Region {
            start,
            end,
            kind: RegionKind::Anonymous,
            write: true,
        };
        let slot = self
            .frame
            .regions
            .iter()
            .find(|s| Self::read_slot(s) == Some(wanted))
            .filter(|s| {
                s.start
                    .compare_exchange(start, 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            })
            .ok_or(Error::BadArgument)?;
        // What was never touched has no frames: the work follows the pages there are, not the
        // length of the region, which may be terabytes.
        for isa in self.node.isas() {
            self.with_table(isa, |t| {
                t.for_each_leaf(start..end, &mut |va, _, _| self.unmap_page(va));
            });
        }
        slot.start.store(0, Ordering::Release);
        Ok(())
    }

    /// Clears a page in every table and frees its frame.
    fn unmap_page(&self, va: u64) {
        let epoch = || Epoch::saturating(self.node.sb.epoch.load(Ordering::Acquire));
        let mut frame = None;
        for isa in self.node.isas() {
            let gone = self.with_table(isa, |t| t.unmap(va, self.node.id(), epoch));
            if let Some(Ok((leaf, _))) = gone {
                frame = Some(leaf.pa);
            }
        }
        if let Some(pa) = frame {
            // A frame that is not from a pool was never handed to a program.
            let _ = Frames::free(self.map(), pa);
        }
    }

    /// A user leaf for a frame. Accessed and dirty are preset: the hardware then never writes
    /// page-table entries by itself.
    pub fn user_leaf(pa: PhysAddr, write: bool, execute: bool) -> Leaf {
        let mut perms = Perms::READ | Perms::USER;
        perms.set(Perms::WRITE, write);
        perms.set(Perms::EXECUTE, execute);
        Leaf {
            pa,
            perms,
            memory: Memory::Normal,
            global: false,
            accessed: true,
            dirty: write,
        }
    }

    /// Maps a frame in the table of one ISA. Returns the leaf that is there afterwards: the given
    /// one or one that was there before.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], [`Error::BadAddress`], [`Error::Again`].
    pub fn map_in(&self, isa: Isa, va: u64, leaf: Leaf, tables: &impl FrameSource) -> Result<Leaf> {
        match self.with_table(isa, |t| t.map(va, leaf, Level::L1, tables)) {
            None => Err(Error::NoIsa),
            Some(Ok(())) => Ok(leaf),
            Some(Err(MapError::Exists(there))) => Ok(there),
            Some(Err(MapError::NoMemory)) => Err(Error::NoMemory),
            Some(Err(MapError::Closing)) => Err(Error::Again),
            Some(Err(_)) => Err(Error::BadAddress),
        }
    }

    /// Maps a new frame at `va` on every ISA, or finds that somebody else just has.
    ///
    /// The frame belongs to the space from the moment the deciding table names it, also if a
    /// later table cannot be written: other nodes may use it already, and `destroy` frees it.
    /// Whoever gets [`Placed::used`] `false` keeps the frame and gives it back.
    pub fn map_everywhere(&self, va: u64, leaf: Leaf, tables: &impl FrameSource) -> Placed {
        let mut isas = self.node.isas();
        let decided = isas
            .next()
            .ok_or(Error::NoIsa)
            .and_then(|isa| self.map_in(isa, va, leaf, tables));
        match decided {
            Ok(there) => Placed {
                used: there.pa == leaf.pa,
                result: isas.try_for_each(|isa| self.map_in(isa, va, there, tables).map(|_| ())),
            },
            Err(e) => Placed {
                used: false,
                result: Err(e),
            },
        }
    }

    /// Switches this CPU to the space.
    ///
    /// # Errors
    ///
    /// [`Error::NoIsa`] if it has no table for this ISA.
    pub fn enter<P: Platform>(&self) -> Result<()> {
        P::switch_root(self.root(P::ISA).ok_or(Error::NoIsa)?);
        Ok(())
    }

    /// Frees everything: user frames, tables, roots, the space itself. No CPU may run in it.
    pub fn destroy(self, own: FrameRef) {
        self.frame.magic.store(0, Ordering::Release);
        let tables = self.node.frames();
        // Frames are shared by tables: free each when its last table is walked, remembering by
        // which tables map it. A frame mapped on several ISAs is freed with the first of them.
        let isas: [Option<Isa>; 2] = {
            let mut it = self.node.isas();
            [it.next(), it.next()]
        };
        for (i, isa) in isas.iter().enumerate() {
            let Some(isa) = *isa else { continue };
            self.with_table(isa, |t| {
                t.for_each_leaf(USER_MIN..USER_END, &mut |va, _, leaf| {
                    let earlier = isas[..i].iter().flatten().any(|&other| {
                        self.with_table(other, |o| o.translate(va))
                            .flatten()
                            .is_some_and(|(pa, _, _)| pa == leaf.pa)
                    });
                    if !earlier {
                        let _ = Frames::free(self.map(), leaf.pa);
                    }
                });
            });
        }
        for isa in isas.into_iter().flatten() {
            self.with_table(isa, |t| t.free_tables(&tables));
            if let Some(root) = self.root(isa) {
                let _ = Frames::free(self.map(), root);
            }
        }
        let _ = Frames::free(self.map(), own.address());
    }
}
