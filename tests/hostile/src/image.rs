//! The image that all components are made of: the pages that are never written to, filled once.

use dyad_abi::bundle::{Bundle, Segment};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Result};
use dyad_services::image::{filled_pages, is_seen, seen_by};
use dyad_sys::cap::{Access, Cap, Frame};

use dyad_services::first::Store;

/// Most pages of the image that all components share.
const MAX_IMAGE: usize = 512;

/// A page of the image that is never written to.
#[derive(Clone, Copy)]
pub struct ImagePage {
    /// Where it is mapped.
    pub va: u64,
    /// The ISAs that see it, by bit.
    pub isas: u8,
    /// The block that it is in.
    pub frame: Cap<Frame>,
    /// Its number there.
    pub page: u64,
    /// What may be done with it.
    pub access: Access,
}

/// What components are made of.
pub struct Image {
    /// The bundle.
    pub bundle: Bundle<'static>,
    pages: [Option<ImagePage>; MAX_IMAGE],
    used: usize,
}

impl Image {
    /// Fills the pages that components share.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn new(store: &mut Store, bundle: Bundle<'static>) -> Result<Image> {
        let mut image = Image {
            bundle,
            pages: [None; MAX_IMAGE],
            used: 0,
        };
        let isas = store.isas;
        for s in bundle.segments().filter(|s| is_seen(s, isas) && !s.write) {
            image.add(store, &s)?;
        }
        store.clear_window()?;
        Ok(image)
    }

    fn add(&mut self, store: &mut Store, s: &Segment<'_>) -> Result<()> {
        let access = if s.exec {
            Access::Execute
        } else {
            Access::Read
        };
        let isas = seen_by(s, store.isas);
        let mut chunks = s.bytes.chunks(PAGE_SIZE as usize);
        let (mut va, mut left) = (s.va, filled_pages(s));
        while left > 0 {
            let (frame, pages) = store.keep_user(left)?;
            for (page, bytes) in (0..pages).zip(&mut chunks) {
                store.fill(frame, page, |to| to[..bytes.len()].copy_from_slice(bytes))?;
                *self.pages.get_mut(self.used).ok_or(Error::Full)? = Some(ImagePage {
                    va,
                    isas,
                    frame,
                    page,
                    access,
                });
                self.used += 1;
                va += PAGE_SIZE;
            }
            left -= pages;
        }
        Ok(())
    }

    /// The pages that components share.
    pub fn pages(&self) -> impl Iterator<Item = &ImagePage> {
        self.pages[..self.used].iter().flatten()
    }

    /// Where threads begin.
    pub fn entry(&self) -> u64 {
        self.bundle.entry()
    }

    /// Where invocations enter.
    ///
    /// # Errors
    ///
    /// `BadBundle` if nowhere.
    pub fn invoked(&self) -> Result<u64> {
        self.bundle.invoked().ok_or(Error::BadBundle)
    }
}
