//! Frames for pages, the window in which the peer copies them, and the page tables of the process.

#![allow(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::AtomicU64;

use dyad_abi::cap::TableAt;
use dyad_abi::service::peer::{BLOCK_FRAMES, Setup, WINDOW, slot};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_dsm::{Item, Page, Right, Table};
use dyad_services::image::table_kind;
use dyad_sys::cap::{Access, Cap, Captbl, Memory, PageTable, Place, Space};

use crate::port::{CHUNKS, PAGES};

const SPACE: Cap<Space> = Cap::at(slot::SPACE);
/// The peer's own table.
const OWN: Cap<Captbl> = Cap::at(dyad_abi::service::slot::TABLE);
const TABLES: Cap<Memory> = Cap::at(slot::MEMORY);
/// Words of a page.
pub const PAGE_WORDS: usize = PAGE_SIZE as usize / 8;
/// Most attempts at a page that another CPU is changing, or whose earlier mapping is not quiet.
const TRIES: u32 = 10_000_000;

/// The frame of a page, plus one; 0: none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Held(u32);

impl Item for Held {
    const NEW: Held = Held(0);
}

/// The frames of this node, and where they are mapped.
pub struct Frames {
    isa: Isa,
    /// Frames that there are.
    all: u32,
    /// From here on no frame has been used: they are zero.
    unused: u32,
    free: Vec<u32>,
    held: Table<Held, CHUNKS, PAGES>,
    /// The next untyped frame for a page table, their number, and the next slot.
    next_table: u64,
    table_frames: u64,
}

impl Frames {
    /// What init has set up.
    pub fn new(isa: Isa, setup: &Setup) -> Frames {
        Frames {
            isa,
            all: (setup.blocks.min(slot::BLOCKS.into()) * BLOCK_FRAMES) as u32,
            unused: 0,
            free: Vec::new(),
            held: Table::new(),
            next_table: 0,
            table_frames: setup.table_frames,
        }
    }

    /// How many there are.
    pub const fn count(&self) -> u32 {
        self.all
    }

    /// The frame of a page, which gets one if it has none. The second: whether it is zero.
    ///
    /// # Errors
    ///
    /// `NoMemory`.
    pub fn frame(&mut self, page: Page) -> Result<(u32, bool)> {
        let held = self.held.get_or_insert(page).map_err(|_| Error::NoMemory)?;
        if let Some(frame) = held.0.checked_sub(1) {
            return Ok((frame, false));
        }
        let (frame, zero) = match self.free.pop() {
            Some(frame) => (frame, false),
            None if self.unused < self.all => {
                self.unused += 1;
                (self.unused - 1, true)
            }
            None => return Err(Error::NoMemory),
        };
        held.0 = frame + 1;
        Ok((frame, zero))
    }

    /// How many pages have a frame, and how many page tables there are.
    pub fn used(&self) -> (u64, u64) {
        let frames = u64::from(self.unused) - self.free.len() as u64;
        (frames, self.next_table)
    }

    /// The words of a frame, in the window.
    pub fn words(&self, frame: u32) -> &'static [AtomicU64; PAGE_WORDS] {
        assert!(frame < self.all, "a frame that there is");
        let at = WINDOW + u64::from(frame) * PAGE_SIZE;
        // SAFETY: 1. Init maps all blocks in the window, readable and writable, for as long as the peer lives. 2. Who
        // else accesses a page uses it as memory of its own, and no reference to it exists here but atomics.
        unsafe { &*with_exposed_provenance::<[AtomicU64; PAGE_WORDS]>(at as usize) }
    }

    const fn at(&self, level: u8) -> TableAt {
        TableAt {
            isa: self.isa,
            level,
        }
    }

    /// Maps the frame of a page in the process.
    ///
    /// # Errors
    ///
    /// As the kernel says; `NoMemory` for a page table.
    pub fn map(&mut self, page: Page, right: Right) -> Result<()> {
        let (frame, _) = self.frame(page)?;
        let block = Cap::at(slot::block(u64::from(frame) / BLOCK_FRAMES));
        let within = u64::from(frame) % BLOCK_FRAMES;
        let at = self.at(1);
        let mut tries = 0;
        loop {
            // SAFETY: 1. The space is that of the process.
            let mapped = unsafe { SPACE.map(at, page.address(), block, within, Access::Write) };
            match mapped {
                Ok(()) => break,
                Err(Error::NotFound) => self.table(1, page.address())?,
                Err(Error::Again) if tries < TRIES => {
                    tries += 1;
                    dyad_sys::raw::relax();
                }
                Err(e) => return Err(e),
            }
        }
        match right {
            Right::Write => Ok(()),
            _ => self.protect(page, right),
        }
    }

    /// Links a table of a level, and those above it that are missing.
    fn table(&mut self, level: u8, address: u64) -> Result<()> {
        let table = self.new_table(level)?;
        let start = address & !((PAGE_SIZE << (9 * u32::from(level))) - 1);
        loop {
            match SPACE.link(self.at(level), start, table) {
                Ok(()) => return Ok(()),
                Err(Error::NotFound) if level < 3 => self.table(level + 1, address)?,
                Err(Error::Again) => dyad_sys::raw::relax(),
                Err(e) => return Err(e),
            }
        }
    }

    fn new_table(&mut self, level: u8) -> Result<Cap<PageTable>> {
        let n = self.next_table;
        if n == self.table_frames.min(slot::TABLES.into()) {
            return Err(Error::NoMemory);
        }
        TABLES.retype_kernel(n, table_kind(self.at(level))?)?;
        let place = Place::of(OWN, slot::table(n));
        let table = TABLES.activate(n, place, dyad_abi::cap::Rights::ALL)?;
        self.next_table += 1;
        Ok(table)
    }

    /// Changes what the process may do with a page that is mapped.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn protect(&self, page: Page, right: Right) -> Result<()> {
        let access = match right {
            Right::None => Access::None,
            Right::Read => Access::Read,
            Right::Write => Access::Write,
        };
        let mut tries = 0;
        loop {
            // SAFETY: 1. The space is that of the process.
            match unsafe { SPACE.protect(self.at(1), page.address(), access) } {
                Ok(_) => return Ok(()),
                Err(Error::Again) if tries < TRIES => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Unmaps the pages of a range that are mapped.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn unmap(&mut self, range: dyad_dsm::Range) -> Result<()> {
        for (page, held) in self.held.records(range) {
            if *held == Held::NEW {
                continue;
            }
            let mut tries = 0;
            loop {
                // SAFETY: 1. The space is that of the process.
                match unsafe { SPACE.unmap(self.at(1), page.address()) } {
                    Ok(_) | Err(Error::BadAddress) => break,
                    Err(Error::Again) if tries < TRIES => tries += 1,
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// The frames of a range are free again.
    pub fn free(&mut self, range: dyad_dsm::Range) {
        let held = &self.held;
        let frames = held.records(range);
        self.free
            .extend(frames.filter_map(|(_, held)| held.0.checked_sub(1)));
        self.held.erase(range);
    }
}
