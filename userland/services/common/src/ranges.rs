//! Addresses of a client of the pager: which ranges it has, and where the next one goes.
//!
//! Addresses go up through a *window* and then begin again at its start; the window grows only
//! when nothing fits. So a range that has been given back is used again late, when its old
//! translations are gone everywhere, and yet a client that maps and unmaps for ever touches no
//! more page tables than the window has. Ranges that follow each other adjoin.
//!
//! Everything is bounded: the number of ranges (`N`), the bytes mapped, the window.

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Result};

/// A mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// Length in bytes, whole pages.
    pub len: u64,
}

impl Range {
    /// One past the last address.
    pub const fn end(self) -> u64 {
        self.start + self.len
    }
}

/// Limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Most bytes at a time.
    pub bytes: u64,
    /// The window at first, in bytes.
    pub window: u64,
}

/// Ranges of one client, ordered by address.
#[derive(Clone, Copy)]
pub struct Ranges<const N: usize> {
    limits: Limits,
    list: [Range; N],
    used: usize,
    bytes: u64,
    /// The address from which the next range is searched.
    next: u64,
    window: u64,
}

impl<const N: usize> Ranges<N> {
    /// No ranges.
    pub const fn new(limits: Limits) -> Self {
        Ranges {
            limits,
            list: [Range { start: 0, len: 0 }; N],
            used: 0,
            bytes: 0,
            next: limits.start,
            window: limits.window,
        }
    }

    /// The ranges, by address.
    pub fn list(&self) -> &[Range] {
        &self.list[..self.used]
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lowest address from `from` on at which `len` bytes are free and end before `end`.
    fn fit(&self, from: u64, end: u64, len: u64) -> Option<u64> {
        let mut at = from;
        for r in self.list().iter().filter(|r| r.end() > from) {
            if r.start >= at && r.start - at >= len {
                break;
            }
            at = r.end();
        }
        (at < end && end - at >= len).then_some(at)
    }

    fn window_end(&self) -> u64 {
        let end = self.limits.start.saturating_add(self.window);
        end.min(self.limits.end)
    }

    /// Finds room for `len` bytes, rounded up to pages, and books it.
    ///
    /// # Errors
    ///
    /// `BadArgument` for 0 bytes, `TooLarge` if the client has or wants too much, `Full` if it has
    /// too many ranges, `NoMemory` if no gap is large enough.
    pub fn map(&mut self, len: u64) -> Result<Range> {
        if len == 0 {
            return Err(Error::BadArgument);
        }
        let len = len
            .checked_next_multiple_of(PAGE_SIZE)
            .filter(|&l| l <= self.limits.bytes - self.bytes)
            .ok_or(Error::TooLarge)?;
        if self.used == N {
            return Err(Error::Full);
        }
        let start = loop {
            let end = self.window_end();
            let found = self
                .fit(self.next, end, len)
                .or_else(|| self.fit(self.limits.start, end, len));
            match found {
                Some(start) => break start,
                None if end == self.limits.end => return Err(Error::NoMemory),
                None => self.window = self.window.max(PAGE_SIZE).saturating_mul(2),
            }
        };
        let range = Range { start, len };
        let at = self.list().partition_point(|r| r.start < start);
        self.list.copy_within(at..self.used, at + 1);
        self.list[at] = range;
        self.used += 1;
        self.bytes += len;
        self.next = range.end();
        Ok(range)
    }

    /// The next range is looked for behind this one first.
    pub fn pass(&mut self, range: Range) {
        self.next = range.end();
    }

    /// The range that starts at `start` and has `len` bytes, rounded up to pages.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none.
    pub fn find(&self, start: u64, len: u64) -> Result<Range> {
        let len = len
            .checked_next_multiple_of(PAGE_SIZE)
            .ok_or(Error::NotFound)?;
        self.list()
            .binary_search_by_key(&start, |r| r.start)
            .map(|at| self.list[at])
            .ok()
            .filter(|r| r.len == len)
            .ok_or(Error::NotFound)
    }

    /// Takes a range out of the books. Later ones may use its addresses.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not there.
    pub fn unmap(&mut self, range: Range) -> Result<()> {
        let at = self
            .list()
            .iter()
            .position(|r| *r == range)
            .ok_or(Error::NotFound)?;
        self.list.copy_within(at + 1..self.used, at);
        self.used -= 1;
        self.bytes -= range.len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const LIMITS: Limits = Limits {
        start: 0x10_0000,
        end: 0x10_0000 + 64 * PAGE_SIZE,
        bytes: 48 * PAGE_SIZE,
        window: 16 * PAGE_SIZE,
    };

    proptest! {
        #[test]
        fn ranges_never_overlap_and_limits_hold(
            steps in prop::collection::vec((any::<bool>(), 0u64..20, any::<prop::sample::Index>()), 0..200)
        ) {
            let mut ranges = Ranges::<8>::new(LIMITS);
            let mut model: Vec<Range> = Vec::new();
            for (map, pages, which) in steps {
                let bytes: u64 = model.iter().map(|r| r.len).sum();
                if map {
                    let len = pages * PAGE_SIZE;
                    match ranges.map(len) {
                        Ok(r) => {
                            prop_assert!(r.start >= LIMITS.start && r.end() <= LIMITS.end);
                            prop_assert_eq!(r.len, len);
                            prop_assert!(bytes + len <= LIMITS.bytes);
                            prop_assert!(model.iter().all(|o| o.end() <= r.start || r.end() <= o.start));
                            model.push(r);
                        }
                        Err(Error::BadArgument) => prop_assert_eq!(len, 0),
                        Err(Error::TooLarge) => prop_assert!(bytes + len > LIMITS.bytes),
                        Err(Error::Full) => prop_assert_eq!(model.len(), 8),
                        Err(Error::NoMemory) => {
                            let mut sorted = model.clone();
                            sorted.sort_by_key(|r| r.start);
                            let starts = sorted.iter().map(|r| r.start).chain([LIMITS.end]);
                            let ends = [LIMITS.start].into_iter().chain(sorted.iter().map(|r| r.end()));
                            prop_assert!(starts.zip(ends).all(|(s, e)| s - e < len));
                        }
                        Err(e) => prop_assert!(false, "{:?}", e),
                    }
                } else if !model.is_empty() {
                    let r = model.swap_remove(which.index(model.len()));
                    prop_assert_eq!(ranges.find(r.start, r.len), Ok(r));
                    prop_assert_eq!(ranges.unmap(r), Ok(()));
                    prop_assert!(ranges.find(r.start, r.len).is_err());
                    prop_assert!(ranges.unmap(r).is_err());
                }
                prop_assert_eq!(ranges.bytes(), model.iter().map(|r| r.len).sum::<u64>());
                prop_assert!(ranges.list().is_sorted_by_key(|r| r.start));
                prop_assert_eq!(ranges.list().len(), model.len());
            }
        }
    }

    #[test]
    fn addresses_are_used_again_late_but_before_the_window_grows() {
        let mut ranges = Ranges::<8>::new(LIMITS);
        let mut starts = Vec::new();
        for _ in 0..16 {
            let r = ranges.map(4 * PAGE_SIZE - 5).unwrap();
            starts.push((r.start - LIMITS.start) / PAGE_SIZE);
            ranges.unmap(r).unwrap();
        }
        assert_eq!(starts[..6], [0, 4, 8, 12, 0, 4]);
        assert!(starts.iter().all(|&s| s < 16));
    }

    #[test]
    fn what_follows_adjoins_and_large_ranges_fit() {
        let mut ranges = Ranges::<8>::new(LIMITS);
        let a = ranges.map(1).unwrap();
        let b = ranges.map(PAGE_SIZE).unwrap();
        assert_eq!(a.end(), b.start);
        assert_eq!(ranges.map(40 * PAGE_SIZE).unwrap().start, b.end());
        assert_eq!(ranges.map(u64::MAX), Err(Error::TooLarge));
        assert_eq!(ranges.find(a.start, u64::MAX), Err(Error::NotFound));
        // A part of a range is none, nor are two that adjoin.
        let large = 40 * PAGE_SIZE;
        assert!(ranges.find(b.end(), large).is_ok());
        for (start, len) in [
            (b.end(), large - PAGE_SIZE),
            (a.start, 2 * PAGE_SIZE),
            (b.end() + PAGE_SIZE, large - PAGE_SIZE),
        ] {
            assert_eq!(ranges.find(start, len), Err(Error::NotFound));
        }
    }
}
