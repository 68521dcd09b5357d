// SPDX-License-Identifier: GPL-2.0-or-later
//! The micro-TLB: which physical page a CPU's virtual page is, without asking QEMU.
//!
//! QEMU tells the physical address of an access only through a call that costs more than the whole
//! model, so what it has told is remembered per CPU. Memory is all there is in here: pages of
//! devices are asked for each time.
//!
//! ```text
//!           insert                              flush: the guest changes a root, invalidates, or
//!  absent ──────────▶ present ─────────────────▶ absent   changes what translation does at all
//! ```
//!
//! Entries carry the generation in which they were made, so that a flush is one addition. When
//! generations run out, all entries are cleared.
//!
//! A guest may change a page table without invalidating what it replaces; then QEMU too may use
//! either translation until the guest does.

/// log2 of the number of entries. Direct-mapped: unused ones cost nothing.
const BITS: u32 = 12;
const ENTRIES: usize = 1 << BITS;
const PAGE_SHIFT: u32 = 12;
/// Lines per page, as a shift.
const LINES_SHIFT: u32 = 6;
/// Virtual page numbers have this many bits: addresses have 48, and the bits above repeat the
/// highest.
const PAGE_BITS: u32 = 36;
const GENERATION: u64 = 1 << PAGE_BITS;
/// The last generation would have a tag that an empty entry has; the one before it is nobody's.
const NOBODY: u64 = u64::MAX - 2 * GENERATION + 1;
/// Physical pages, with the view of their lines, are in the low half of a frame word; the high half has their places in the
/// directory.
const FUSED_SHIFT: u32 = 32;

/// Where a virtual page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

impl Frame {
    /// The frame whose lines begin with number 64 * `page`. `fused`: the place of the first one in the directory / 64, if
    /// it is in a pool.
    pub fn new(page: u32, fused: Option<u32>) -> Frame {
        let fused = fused.map_or(0, |n| u64::from(n) + 1);
        Frame(u64::from(page) | fused << FUSED_SHIFT)
    }

    /// The line, with its view, that a virtual address in it is in.
    #[inline(always)]
    pub fn line(self, address: u64) -> u64 {
        (self.0 & 0xffff_ffff) << LINES_SHIFT | address >> 6 & 63
    }

    /// The place of that line in the directory; larger than any, if it is in no pool.
    #[inline(always)]
    pub fn index(self, address: u64) -> u64 {
        (self.0 >> FUSED_SHIFT).wrapping_sub(1) << LINES_SHIFT | address >> 6 & 63
    }
}

#[derive(Clone, Copy)]
struct Entry {
    /// Virtual page and generation. No page is `u64::MAX`.
    tag: u64,
    frame: Frame,
}

const EMPTY: Entry = Entry {
    tag: u64::MAX,
    frame: Frame(0),
};

#[inline(always)]
const fn tag(address: u64, generation: u64) -> u64 {
    (address >> PAGE_SHIFT & (GENERATION - 1)) | generation
}

/// The micro-TLB of a CPU.
pub struct Tlb {
    generation: u64,
    /// The generation that entries are compared with, or [`NOBODY`] while everything is hidden.
    found: u64,
    entries: Box<[Entry; ENTRIES]>,
}

impl Tlb {
    /// An empty one.
    pub fn new() -> Tlb {
        Tlb {
            generation: 0,
            found: 0,
            entries: Box::new([EMPTY; ENTRIES]),
        }
    }

    #[inline(always)]
    fn look(&self, address: u64, generation: u64) -> Option<Frame> {
        let entry = &self.entries[(address >> PAGE_SHIFT) as usize & (ENTRIES - 1)];
        (entry.tag == tag(address, generation)).then_some(entry.frame)
    }

    /// Where the page of an address is, if that is known and not hidden.
    #[inline(always)]
    pub fn find(&self, address: u64) -> Option<Frame> {
        self.look(address, self.found)
    }

    /// Where the page of an address is, if that is known.
    #[inline(always)]
    pub fn recall(&self, address: u64) -> Option<Frame> {
        self.look(address, self.generation)
    }

    /// Whether [`find`](Tlb::find) is to find nothing, so that nothing is done in the short way.
    pub fn hide(&mut self, hidden: bool) {
        self.found = if hidden { NOBODY } else { self.generation };
    }

    /// Remembers where the page of an address is.
    pub fn insert(&mut self, address: u64, frame: Frame) {
        let tag = tag(address, self.generation);
        self.entries[(address >> PAGE_SHIFT) as usize & (ENTRIES - 1)] = Entry { tag, frame };
    }

    /// Forgets everything.
    pub fn flush(&mut self) {
        let hidden = self.found == NOBODY;
        if self.generation >= NOBODY - GENERATION {
            self.generation = 0;
            *self.entries = [EMPTY; ENTRIES];
        } else {
            self.generation += GENERATION;
        }
        self.hide(hidden);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_8000_0000_0000;

    #[test]
    fn pages_are_found_until_a_flush() {
        let mut tlb = Tlb::new();
        assert_eq!(tlb.find(0x1234), None);
        let frame = Frame::new(77, Some(5));
        tlb.insert(0x1234, frame);
        assert_eq!(tlb.find(0x1fff), Some(frame));
        assert_eq!(tlb.find(0x2000), None);
        assert_eq!(frame.line(0x1fff), 77 * 64 + 63);
        assert_eq!(frame.index(0x1040), 5 * 64 + 1);
        tlb.flush();
        assert_eq!(tlb.find(0x1234), None);
    }

    #[test]
    fn halves_of_the_address_space_and_pages_of_one_entry_are_told_apart() {
        let mut tlb = Tlb::new();
        let (low, high) = (Frame::new(1, None), Frame::new(2, None));
        tlb.insert(0x5000, low);
        assert_eq!(tlb.find(KERNEL + 0x5000), None);
        assert_eq!(tlb.find(0x5000 + ((ENTRIES as u64) << 12)), None);
        tlb.insert(KERNEL + 0x5000, high);
        assert_eq!(tlb.find(KERNEL + 0x5000), Some(high));
        assert_eq!(tlb.find(0x5000), None);
        assert!(high.index(KERNEL + 0x5000) > u64::MAX / 2);
    }

    #[test]
    fn what_is_hidden_is_recalled_and_flushed_all_the_same() {
        let mut tlb = Tlb::new();
        let (a, b) = (Frame::new(1, None), Frame::new(2, None));
        tlb.insert(0x1000, a);
        tlb.hide(true);
        tlb.insert(u64::MAX, b);
        for (address, frame) in [(0x1000, Some(a)), (u64::MAX, Some(b)), (0x3000, None)] {
            assert_eq!((tlb.find(address), tlb.recall(address)), (None, frame));
        }
        tlb.hide(false);
        assert_eq!((tlb.find(0x1000), tlb.find(u64::MAX)), (Some(a), Some(b)));
        tlb.hide(true);
        tlb.flush();
        assert_eq!((tlb.find(0x1000), tlb.recall(0x1000)), (None, None));
        tlb.insert(0x1000, b);
        assert_eq!(tlb.find(0x1000), None);
        tlb.hide(false);
        assert_eq!((tlb.find(0x1000), tlb.find(u64::MAX)), (Some(b), None));
    }

    #[test]
    fn an_entry_never_survives_a_flush_however_many_there_are() {
        let mut tlb = Tlb::new();
        tlb.generation = u64::MAX - 5 * GENERATION + 1;
        tlb.hide(false);
        for address in [0, u64::MAX, KERNEL, 0x7fff_ffff_f000] {
            for _ in 0..8 {
                tlb.insert(address, Frame::new(3, None));
                assert!(tlb.find(address).is_some());
                tlb.flush();
                assert_eq!(tlb.find(address), None);
            }
        }
    }
}
