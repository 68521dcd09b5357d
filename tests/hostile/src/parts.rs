//! What a component is made of: a capability table, and an address space with the program in it.

#![allow(unsafe_code)]

use dyad_abi::cap::{ObjectKind, TableAt};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_services::first::Store;
use dyad_services::image::{Regions, is_seen, isas_of, seen_by, table_kind};
use dyad_sys::cap::{Access, Cap, Captbl, Frame, Kind, PageTable, Space};

use crate::image::Image;

/// Most page tables of a component, the roots left out.
const TABLES: usize = 64;

/// Where the objects and pages of a component come from.
pub trait Source {
    /// Slots and addresses.
    fn store(&mut self) -> &mut Store;

    /// A kernel object, with all rights for the warden.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn object<T: Kind>(&mut self, kind: ObjectKind) -> Result<Cap<T>>;

    /// A page, with all rights for the warden.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn page(&mut self) -> Result<Cap<Frame>>;
}

/// For good.
impl Source for Store {
    fn store(&mut self) -> &mut Store {
        self
    }

    fn object<T: Kind>(&mut self, kind: ObjectKind) -> Result<Cap<T>> {
        self.keep(kind)
    }

    fn page(&mut self) -> Result<Cap<Frame>> {
        self.keep_user(1).map(|(frame, _)| frame)
    }
}

/// A capability table with its first leaves: its root, and the first leaf.
///
/// # Errors
///
/// As the kernel says.
pub fn table(from: &mut impl Source, leaves: u32) -> Result<(Cap<Captbl>, Cap<Captbl>)> {
    let root: Cap<Captbl> = from.object(ObjectKind::CaptblRoot)?;
    let mut first = None;
    for entry in 0..leaves {
        let leaf: Cap<Captbl> = from.object(ObjectKind::CaptblLeaf)?;
        root.cons(entry, leaf)?;
        first = first.or(Some(leaf));
    }
    Ok((root, first.ok_or(Error::Corrupt)?))
}

/// The address space of a component, and its page tables.
pub struct Pages {
    /// The space.
    pub space: Cap<Space>,
    linked: [Option<(TableAt, u64)>; TABLES],
    last: Option<Cap<PageTable>>,
}

impl Pages {
    /// A space with a root for each ISA of the system.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn new(from: &mut impl Source) -> Result<Pages> {
        let space: Cap<Space> = from.object(ObjectKind::Space)?;
        for isa in isas_of(from.store().isas) {
            let at = TableAt { isa, level: 4 };
            let root: Cap<PageTable> = from.object(table_kind(at)?)?;
            space.link(at, 0, root)?;
        }
        Ok(Pages {
            space,
            linked: [None; TABLES],
            last: None,
        })
    }

    /// Sees to it that the page tables for an address are there.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn tables(&mut self, from: &mut impl Source, isa: Isa, va: u64) -> Result<()> {
        for level in [3, 2, 1] {
            let at = TableAt { isa, level };
            let start = va & !((PAGE_SIZE << (9 * u32::from(level))) - 1);
            if self.linked.contains(&Some((at, start))) {
                continue;
            }
            let table: Cap<PageTable> = from.object(table_kind(at)?)?;
            self.space.link(at, start, table)?;
            self.last = Some(table);
            let free = self.linked.iter_mut().find(|l| l.is_none());
            *free.ok_or(Error::Full)? = Some((at, start));
        }
        Ok(())
    }

    /// The page table that was linked last.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none.
    pub fn last_table(&self) -> Result<Cap<PageTable>> {
        self.last.ok_or(Error::NotFound)
    }

    /// The page tables of an ISA without its root, and where they begin; those below others first.
    pub fn linked(&self, isa: Isa) -> impl Iterator<Item = (TableAt, u64)> + '_ {
        let all = self.linked.iter().rev().flatten();
        all.filter(move |(at, _)| at.isa == isa).copied()
    }

    /// Maps a page of a block at an address for some ISAs (by bit).
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn map(
        &mut self,
        from: &mut impl Source,
        isas: u8,
        va: u64,
        (frame, page): (Cap<Frame>, u64),
        access: Access,
    ) -> Result<()> {
        for isa in isas_of(isas) {
            self.tables(from, isa, va)?;
            let (at, space) = (TableAt { isa, level: 1 }, self.space);
            // SAFETY: 1. The space is not the warden's own.
            let map = || unsafe { space.map(at, va, frame, page, access) };
            from.store().patiently(map)?;
        }
        Ok(())
    }

    /// The program: shared pages of the image, with code of the ISAs in `code` only (by bit), and own ones where it may
    /// write.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn load(&mut self, from: &mut impl Source, image: &Image, code: u8) -> Result<()> {
        let isas = from.store().isas;
        for r in Regions::of(&image.bundle, isas).iter() {
            self.space.add_region(r.start, r.len, r.kind, r.write)?;
        }
        for p in image.pages() {
            let isas = match p.access {
                Access::Execute => p.isas & code,
                _ => p.isas,
            };
            self.map(from, isas, p.va, (p.frame, p.page), p.access)?;
        }
        let segments = image.bundle.segments();
        for s in segments.filter(|s| is_seen(s, isas) && s.write) {
            for (n, bytes) in (0..).zip(s.bytes.chunks(PAGE_SIZE as usize)) {
                let frame = from.page()?;
                let copy = |to: &mut [u8; 4096]| to[..bytes.len()].copy_from_slice(bytes);
                from.store().fill(frame, 0, copy)?;
                let va = s.va + n * PAGE_SIZE;
                self.map(from, seen_by(&s, isas), va, (frame, 0), Access::Write)?;
            }
        }
        Ok(())
    }
}
