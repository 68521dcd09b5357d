//! Pages that are written and checked, in segments that go back as a whole.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::sys;

/// Words of a page.
pub const WORDS: usize = 512;
/// Pages of a segment, if nothing else is asked for: 4 MiB.
const SEGMENT: u64 = 1024;

/// The first word of page number `page` after `changes` changes.
fn mark(page: u64, changes: u64) -> u64 {
    page.wrapping_mul(dyad_random::GOLDEN) ^ changes.wrapping_mul(0xc2b2_ae3d_27d4_eb4f) ^ page
}

struct Segment {
    start: NonNull<u8>,
    /// The first page's number, and how many have been written.
    first: u64,
    pages: u64,
    /// How many there are.
    room: u64,
}

impl Segment {
    fn new(first: u64, room: u64) -> Result<Segment> {
        let start = sys::map_anon(room << 12)?;
        Ok(Segment {
            start,
            first,
            pages: 0,
            room,
        })
    }

    fn page(&self, n: u64) -> &[AtomicU64; WORDS] {
        assert!(n < self.room);
        let at = n as usize * WORDS * 8;
        // SAFETY: 1. The page lies in what was mapped, which stays until this is dropped. 2. It is zeros or
        // what was stored, and every pattern of bits is valid. 3. It is aligned to pages.
        unsafe { self.start.add(at).cast().as_ref() }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: 1. References to its pages live shorter than it.
        let gone = unsafe { sys::unmap(self.start, self.room << 12) };
        if let Err(e) = gone {
            println!("a segment is not given back: {e}");
        }
    }
}

/// Pages that have been written.
pub struct Pages {
    segments: Vec<Segment>,
    written: u64,
    /// Pages of each segment.
    room: u64,
}

impl Pages {
    /// None.
    pub const fn new() -> Pages {
        Pages::in_segments(SEGMENT)
    }

    /// None, and so many will be in a segment; not 0.
    pub const fn in_segments(room: u64) -> Pages {
        Pages {
            segments: Vec::new(),
            written: 0,
            room,
        }
    }

    /// Asks for all segments of so many pages more, none of which is touched. Before any is written.
    pub fn reserve(&mut self, pages: u64) -> Result<()> {
        for n in 0..pages.div_ceil(self.room) {
            let segment = Segment::new(n * self.room, self.room)?;
            self.segments.push(segment);
        }
        Ok(())
    }

    /// Writes one more, all of it: the touch is here.
    pub fn touch(&mut self) -> Result<()> {
        let number = self.written;
        let first = number - number % self.room;
        // Segments that have been given back were all full.
        let at = self.segments.iter().rposition(|s| s.first == first);
        let at = match at {
            Some(at) => at,
            None => {
                self.segments.push(Segment::new(first, self.room)?);
                self.segments.len() - 1
            }
        };
        self.written += 1;
        let segment = &mut self.segments[at];
        segment.pages += 1;
        fill(segment.page(number % self.room), mark(number, 0));
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.segments.iter().map(|s| s.pages).sum()
    }

    /// Where the pages are, physically, by the table of an ISA: nothing is touched for that.
    pub fn places(&self, isa: Isa) -> Result<Vec<u64>> {
        let mut all = Vec::new();
        for segment in &self.segments {
            for n in 0..segment.pages {
                let va = segment.start.as_ptr() as u64 + (n << 12);
                all.push(sys::translate(va, isa)?.physical);
            }
        }
        Ok(all)
    }

    /// Gives every second segment back.
    pub fn halve(&mut self) {
        let mut n = 0;
        self.segments.retain(|_| {
            n += 1;
            n % 2 == 0
        });
    }

    /// Checks one page and changes all of it. `at` names some page, whichever; `changes` is how often each has
    /// been changed before. Whether it was as it had to be.
    pub fn change(&self, at: u64, changes: u64) -> bool {
        let Some((segment, n)) = self.find(at) else {
            return true;
        };
        let (page, number) = (segment.page(n), segment.first + n);
        let ok = is(page, mark(number, changes));
        fill(page, mark(number, changes + 1));
        ok
    }

    fn find(&self, at: u64) -> Option<(&Segment, u64)> {
        let mut n = at;
        for segment in &self.segments {
            if n < segment.pages {
                return Some((segment, n));
            }
            n -= segment.pages;
        }
        None
    }

    /// How many are not as they have to be. The first `more` have been changed once more than the others.
    pub fn damaged(&self, changes: u64, more: u64) -> u64 {
        let mut at = 0;
        let mut damaged = 0;
        for segment in &self.segments {
            for n in 0..segment.pages {
                let changes = changes + u64::from(at < more);
                damaged += u64::from(!is(segment.page(n), mark(segment.first + n, changes)));
                at += 1;
            }
        }
        damaged
    }
}

fn fill(page: &[AtomicU64; WORDS], first: u64) {
    for (w, word) in page.iter().enumerate() {
        word.store(first ^ w as u64, Ordering::Relaxed);
    }
}

fn is(page: &[AtomicU64; WORDS], first: u64) -> bool {
    let mut words = page.iter().enumerate();
    words.all(|(w, word)| word.load(Ordering::Relaxed) == first ^ w as u64)
}
