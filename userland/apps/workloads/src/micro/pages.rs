//! Touching memory in a known way: some lines of every page, or everything in order; by the side
//! that has it, and by the other one.

use alloc::vec;
use alloc::vec::Vec;

use crate::LINE;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Lines of a page.
pub const LINES: usize = PAGE / LINE;
/// Bytes that the published measurement goes through in order.
pub const SEQUENTIAL: usize = 10 << 20;

/// An access pattern: the owner of the memory, the side that touches it, and whether it was touched before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The origin touches what is its own.
    Vanilla,
    /// The remote side touches memory of the origin for the first time.
    RemoteAccessOrigin,
    /// The remote side touches memory of the origin once more: "no cold".
    RemoteAccessOriginNoCold,
    /// The origin touches memory of the remote side for the first time.
    OriginAccessRemote,
    /// The origin touches memory of the remote side once more.
    OriginAccessRemoteNoCold,
}

/// One of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the program started.
    Origin,
    /// The other one.
    Remote,
}

/// One thing that a pattern does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// This side makes the memory, and so touches it first.
    Own(Side),
    /// This side touches everything, which is not measured.
    Warm(Side),
    /// This side touches everything, which is measured.
    Measure(Side),
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Pattern; 5] = [
        Pattern::Vanilla,
        Pattern::RemoteAccessOrigin,
        Pattern::RemoteAccessOriginNoCold,
        Pattern::OriginAccessRemote,
        Pattern::OriginAccessRemoteNoCold,
    ];

    /// The short name in published figures.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::Vanilla => "vanilla",
            Pattern::RemoteAccessOrigin => "rao",
            Pattern::RemoteAccessOriginNoCold => "rao-nc",
            Pattern::OriginAccessRemote => "oar",
            Pattern::OriginAccessRemoteNoCold => "oar-nc",
        }
    }

    /// The pattern of this name.
    pub fn parse(name: &str) -> Option<Pattern> {
        Pattern::ALL.into_iter().find(|p| p.name() == name)
    }

    /// What it does, in order.
    pub const fn acts(self) -> &'static [Act] {
        use Act::{Measure, Own, Warm};
        use Side::{Origin, Remote};
        match self {
            Pattern::Vanilla => &[Own(Origin), Measure(Origin)],
            Pattern::RemoteAccessOrigin => &[Own(Origin), Measure(Remote)],
            Pattern::RemoteAccessOriginNoCold => &[Own(Origin), Warm(Remote), Measure(Remote)],
            Pattern::OriginAccessRemote => &[Own(Remote), Measure(Origin)],
            Pattern::OriginAccessRemoteNoCold => &[Own(Remote), Warm(Origin), Measure(Origin)],
        }
    }
}

/// Pages to touch.
#[derive(Clone, Debug)]
pub struct Pages {
    /// A page more than is used, so that the others can be aligned.
    words: Vec<u64>,
    first: usize,
    pages: usize,
    /// How often each word that is touched was stored to.
    stores: u64,
}

/// Words of a line and of a page.
const LINE_WORDS: usize = LINE / 8;
const PAGE_WORDS: usize = PAGE / 8;

impl Pages {
    /// Pages of zeros. Making them touches them where allocators write the zeros themselves, as that
    /// of Dyad's programs does: they are to be made on the side that is to own them.
    pub fn new(pages: usize) -> Pages {
        let words = vec![0u64; (pages + 1) * PAGE_WORDS];
        let first = words.as_ptr().align_offset(PAGE);
        Pages {
            words,
            // Where addresses are not known, pages are not aligned.
            first: if first < PAGE_WORDS { first } else { 0 },
            pages,
            stores: 0,
        }
    }

    /// As many as the published measurement goes through in order.
    pub fn sequential() -> Pages {
        Pages::new(SEQUENTIAL / PAGE)
    }

    /// Number of pages.
    pub fn count(&self) -> usize {
        self.pages
    }

    fn used(&self) -> &[u64] {
        &self.words[self.first..][..self.pages * PAGE_WORDS]
    }

    fn used_mut(&mut self) -> &mut [u64] {
        &mut self.words[self.first..][..self.pages * PAGE_WORDS]
    }

    /// Loads a word of each of the first `lines` (1 to [`LINES`]) lines of every page; the sum.
    /// Calls `point` for every page.
    #[inline(never)]
    pub fn load(&self, lines: usize, point: &mut impl FnMut()) -> u64 {
        let mut sum = 0u64;
        for page in self.used().chunks_exact(PAGE_WORDS) {
            point();
            for line in page.chunks_exact(LINE_WORDS).take(lines) {
                sum = sum.wrapping_add(line[0]);
            }
        }
        sum
    }

    /// Adds one to a word of each of the first `lines` lines of every page.
    #[inline(never)]
    pub fn store(&mut self, lines: usize, point: &mut impl FnMut()) {
        for page in self.used_mut().chunks_exact_mut(PAGE_WORDS) {
            point();
            for line in page.chunks_exact_mut(LINE_WORDS).take(lines) {
                line[0] += 1;
            }
        }
        self.stores += 1;
    }

    /// Loads every word in order; the sum.
    #[inline(never)]
    pub fn load_all(&self, point: &mut impl FnMut()) -> u64 {
        let mut sum = 0u64;
        for page in self.used().chunks_exact(PAGE_WORDS) {
            point();
            sum = page.iter().fold(sum, |sum, word| sum.wrapping_add(*word));
        }
        sum
    }

    /// Adds one to every word in order.
    #[inline(never)]
    pub fn store_all(&mut self, point: &mut impl FnMut()) {
        for page in self.used_mut().chunks_exact_mut(PAGE_WORDS) {
            point();
            for word in page {
                *word += 1;
            }
        }
    }

    /// Whether every load of `lines` lines must give this sum, after stores of as many.
    pub fn check(&self, lines: usize, sum: u64) -> bool {
        sum == (self.pages * lines) as u64 * self.stores
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lines_are_touched_and_no_others() {
        for lines in [1, 2, 63, LINES] {
            let mut pages = Pages::new(5);
            let mut points = 0;
            assert_eq!(pages.load(lines, &mut || points += 1), 0);
            pages.store(lines, &mut || points += 1);
            pages.store(lines, &mut || points += 1);
            let sum = pages.load(lines, &mut || points += 1);
            assert_eq!(points, 20);
            assert!(pages.check(lines, sum) && !pages.check(lines, sum + 1));
            let touched = pages.used().iter().filter(|w| **w != 0).count();
            assert_eq!(touched, 5 * lines);
            assert_eq!(pages.load_all(&mut || ()), sum);
        }
    }

    #[test]
    fn pages_are_pages() {
        let pages = Pages::sequential();
        assert_eq!(pages.count(), 2560);
        assert!(pages.used().as_ptr().addr().is_multiple_of(PAGE));
        assert_eq!(pages.used().len() * 8, SEQUENTIAL);
    }

    #[test]
    fn everything_is_touched_in_order() {
        let mut pages = Pages::new(3);
        pages.store_all(&mut || ());
        assert_eq!(pages.load_all(&mut || ()), 3 * PAGE_WORDS as u64);
        assert!(pages.used().iter().all(|w| *w == 1));
    }

    #[test]
    fn patterns_measure_once_at_the_end() {
        let names: BTreeSet<_> = Pattern::ALL.into_iter().map(Pattern::name).collect();
        assert_eq!(names.len(), Pattern::ALL.len());
        for pattern in Pattern::ALL {
            assert_eq!(Pattern::parse(pattern.name()), Some(pattern));
            let (Act::Own(owner), Act::Measure(user)) =
                (pattern.acts()[0], *pattern.acts().last().unwrap())
            else {
                panic!("{pattern:?}");
            };
            let middle = &pattern.acts()[1..pattern.acts().len() - 1];
            assert_eq!(owner == user, pattern == Pattern::Vanilla);
            assert_eq!(middle.len(), usize::from(pattern.name().ends_with("-nc")));
            assert!(middle.iter().all(|act| *act == Act::Warm(user)));
        }
    }
}
