//! The frames of a node: a few runs, in the order in which it got them, and how many of them its
//! faults may take.
//!
//! ```text
//!   run 0              run 1                 run 2
//!   |################|  |####################|  |######..........|
//!   └────────────────────── open ──────────────────────┘
//! ```
//!
//! Run 0 is the node's from the start and is never taken from it: the kernel takes page tables there
//! ([`SpaceOp::Supply`](dyad_abi::cap::SpaceOp::Supply)), and keeps its last quarter for them as soon as
//! there are other runs. So that pages can take what they may, as much more is open then.

use dyad_abi::service::memory::PRESSURE;
use dyad_abi::user::TABLES_PART;
use dyad_abi::{Error, Result};

use crate::MAX_RUNS;

/// Frames of a pool, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The pool.
    pub pool: usize,
    /// First frame, counted from the start of the pool.
    pub first: u64,
    /// Number of frames.
    pub frames: u64,
}

impl Run {
    const NONE: Run = Run {
        pool: 0,
        first: 0,
        frames: 0,
    };

    const fn end(&self) -> u64 {
        self.first + self.frames
    }

    const fn contains(&self, other: &Run) -> bool {
        self.pool == other.pool && self.first <= other.first && other.end() <= self.end()
    }
}

/// The frames that a node owns.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    runs: [Run; MAX_RUNS],
    used: usize,
    open: u64,
}

impl Holding {
    /// No frames: all zeros.
    pub const fn new() -> Holding {
        Holding {
            runs: [Run::NONE; MAX_RUNS],
            used: 0,
            open: 0,
        }
    }

    /// The runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs[..self.used]
    }

    /// All its frames.
    pub fn frames(&self) -> u64 {
        self.runs().iter().map(|r| r.frames).sum()
    }

    /// Number of frames that faults may take: the first ones.
    pub const fn open(&self) -> u64 {
        self.open
    }

    /// Frames that are kept for page tables: the last ones of run 0, if there are others.
    pub fn kept(&self) -> u64 {
        match self.runs() {
            [home, _, ..] => home.frames / TABLES_PART,
            _ => 0,
        }
    }

    /// Frames up to which the node is not under pressure.
    pub fn limit(&self) -> u64 {
        (self.frames() as u128 * PRESSURE as u128 / 100) as u64
    }

    /// Opens as many as there may be in use before the node is under pressure, if that is more than are
    /// open.
    pub fn open_to_limit(&mut self) {
        self.open = self.open.max(self.shown());
    }

    /// The limit, including the frames that are kept for tables.
    fn shown(&self) -> u64 {
        (self.limit() + self.kept()).min(self.frames())
    }

    /// Whether more than `open` frames may be open without pressure.
    pub fn has_room(&self, open: u64) -> bool {
        self.shown() > open
    }

    /// Opens all.
    pub fn open_all(&mut self) {
        self.open = self.frames();
    }

    /// Opens no more frames than the limit; frames in use beyond it stay in use.
    pub fn close_to_limit(&mut self) {
        self.open = self.shown();
    }

    /// The open parts of the runs.
    pub fn open_runs(&self) -> impl Iterator<Item = Run> + '_ {
        let mut left = self.open;
        self.runs().iter().filter_map(move |run| {
            let frames = run.frames.min(left);
            left -= frames;
            (frames != 0).then_some(Run { frames, ..*run })
        })
    }

    /// Whether frames that begin there can be added, and if so whether that lengthens the last run.
    pub fn fits(&self, pool: usize, first: u64) -> Option<bool> {
        let last = self.runs().last();
        // Run 0 stays what it is: what is added can be taken away again.
        let lengthens = self.used > 1 && last.is_some_and(|r| r.pool == pool && r.end() == first);
        (lengthens || self.used < MAX_RUNS).then_some(lengthens)
    }

    /// Adds frames. They are not open yet.
    ///
    /// # Errors
    ///
    /// `Full` if there would be too many runs; `BadArgument` if there are none.
    pub fn add(&mut self, run: Run) -> Result<()> {
        if run.frames == 0 {
            return Err(Error::BadArgument);
        }
        match self.fits(run.pool, run.first) {
            None => return Err(Error::Full),
            Some(true) => self.runs[self.used - 1].frames += run.frames,
            Some(false) => {
                self.runs[self.used] = run;
                self.used += 1;
            }
        }
        Ok(())
    }

    /// Whether frames can be taken away: they are part of one run that is not the first, and there is room
    /// for the remaining parts of the run.
    pub fn may_lose(&self, part: &Run) -> bool {
        let Some(at) = self.runs().iter().position(|r| r.contains(part)) else {
            return false;
        };
        let run = &self.runs[at];
        let splits = run.first < part.first && part.end() < run.end();
        at != 0 && part.frames != 0 && (!splits || self.used < MAX_RUNS)
    }

    /// Takes frames away. All remaining frames are open.
    ///
    /// # Errors
    ///
    /// `Denied` unless [`may_lose`](Holding::may_lose).
    pub fn remove(&mut self, part: &Run) -> Result<()> {
        if !self.may_lose(part) {
            return Err(Error::Denied);
        }
        let Some(at) = self.runs().iter().position(|r| r.contains(part)) else {
            return Err(Error::Denied);
        };
        let run = self.runs[at];
        let before = Run {
            frames: part.first - run.first,
            ..run
        };
        let behind = Run {
            first: part.end(),
            frames: run.end() - part.end(),
            ..run
        };
        let pieces = [before, behind];
        let mut kept = pieces.into_iter().filter(|r| r.frames != 0);
        match (kept.next(), kept.next()) {
            (None, _) => {
                self.runs.copy_within(at + 1..self.used, at);
                self.used -= 1;
                self.runs[self.used] = Run::NONE;
            }
            (Some(one), None) => self.runs[at] = one,
            (Some(one), Some(two)) => {
                self.runs.copy_within(at + 1..self.used, at + 2);
                (self.runs[at], self.runs[at + 1]) = (one, two);
                self.used += 1;
            }
        }
        self.open_all();
        Ok(())
    }

    /// Returns frames that have been taken away: they join the run that they were part of. There is room for
    /// them as long as nothing has been added since. They are not open yet.
    ///
    /// # Errors
    ///
    /// `Full` if there would be too many runs; `BadArgument` if `part` has no frames.
    pub fn put_back(&mut self, part: Run) -> Result<()> {
        if part.frames == 0 {
            return Err(Error::BadArgument);
        }
        let joins = |r: &Run| r.pool == part.pool;
        let others = &self.runs[..self.used];
        // Not run 0, from which nothing is taken.
        let find = |is: &dyn Fn(&Run) -> bool| {
            (1..others.len()).find(|&n| joins(&others[n]) && is(&others[n]))
        };
        let before = find(&|r| r.end() == part.first);
        let behind = find(&|r| r.first == part.end());
        match (before, behind) {
            (Some(a), Some(b)) => {
                self.runs[a].frames += part.frames + self.runs[b].frames;
                self.runs.copy_within(b + 1..self.used, b);
                self.used -= 1;
                self.runs[self.used] = Run::NONE;
            }
            (Some(a), None) => self.runs[a].frames += part.frames,
            (None, Some(b)) => {
                self.runs[b].first = part.first;
                self.runs[b].frames += part.frames;
            }
            (None, None) if self.used < MAX_RUNS => {
                self.runs[self.used] = part;
                self.used += 1;
            }
            (None, None) => return Err(Error::Full),
        }
        Ok(())
    }
}

impl Default for Holding {
    fn default() -> Holding {
        Holding::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn run(pool: usize, first: u64, frames: u64) -> Run {
        Run {
            pool,
            first,
            frames,
        }
    }

    #[test]
    fn seventy_per_cent_are_open_and_then_all() {
        let mut h = Holding::new();
        h.add(run(0, 100, 1000)).unwrap();
        h.open_to_limit();
        let open: Vec<_> = h.open_runs().collect();
        assert_eq!(open, [run(0, 100, 700)]);
        h.add(run(8, 0, 1000)).unwrap();
        h.open_to_limit();
        let open: Vec<_> = h.open_runs().collect();
        // A quarter of the first run is for tables.
        assert_eq!(open, [run(0, 100, 1000), run(8, 0, 650)]);
        // What has been open stays so.
        h.open_all();
        h.open_to_limit();
        assert_eq!(h.open(), 2000);
        h.close_to_limit();
        assert_eq!(h.open(), 1650);
    }

    #[test]
    fn the_first_run_stays_as_it_is() {
        let mut h = Holding::new();
        h.add(run(0, 100, 28)).unwrap();
        assert_eq!(h.fits(0, 128), Some(false));
        h.add(run(0, 128, 64)).unwrap();
        assert_eq!(h.fits(0, 192), Some(true));
        assert!(!h.may_lose(&run(0, 100, 28)));
        assert_eq!(h.remove(&run(0, 110, 8)), Err(Error::Denied));
        assert_eq!(h.remove(&run(0, 128, 64)), Ok(()));
        assert_eq!(h.runs(), [run(0, 100, 28)]);
        assert_eq!(h.add(run(1, 0, 0)), Err(Error::BadArgument));
    }

    /// The frames that a holding has.
    fn all(h: &Holding) -> BTreeSet<(usize, u64)> {
        let frames = |r: &Run| (r.first..r.end()).map(|f| (r.pool, f)).collect::<Vec<_>>();
        h.runs().iter().flat_map(frames).collect()
    }

    proptest! {
        /// What is taken away can be put back, whatever it was part of, and no run is left over.
        #[test]
        fn what_is_taken_away_can_be_put_back(
            blocks in prop::collection::vec((0usize..2, 0u64..8), 1..20),
            gone in 0u64..8,
            pool in 0usize..2,
        ) {
            const B: u64 = 16;
            let mut h = Holding::new();
            h.add(run(0, 5, 11)).unwrap();
            for (pool, n) in blocks {
                let block = run(pool, 16 + n * B, B);
                if !h.runs().iter().any(|r| r.contains(&block)) {
                    let _ = h.add(block);
                }
            }
            let before = (all(&h), h.runs().len(), h.frames());
            let part = run(pool, 16 + gone * B, B);
            if h.remove(&part).is_ok() {
                prop_assert_eq!(all(&h).len() as u64, before.2 - B);
                h.put_back(part).unwrap();
                // Neighbours that had come one after the other may have become one run.
                prop_assert!(h.runs().len() <= before.1);
                prop_assert_eq!((all(&h), h.frames()), (before.0, before.2));
            }
            prop_assert_eq!(h.put_back(run(0, 0, 0)), Err(Error::BadArgument));
        }

        #[test]
        fn holdings_have_what_they_were_given_and_not_what_was_taken(
            steps in prop::collection::vec((any::<bool>(), 0usize..2, 0u64..12), 0..80),
        ) {
            const B: u64 = 16;
            let mut h = Holding::new();
            h.add(run(0, 5, 11)).unwrap();
            let mut has: BTreeSet<(usize, u64)> = BTreeSet::new();
            for (add, pool, n) in steps {
                let block = run(pool, 16 + n * B, B);
                if add && !has.contains(&(pool, n)) {
                    let fits = h.fits(pool, block.first);
                    prop_assert_eq!(h.add(block).is_ok(), fits.is_some());
                    if fits.is_some() {
                        has.insert((pool, n));
                    }
                } else if !add {
                    let may = h.may_lose(&block);
                    prop_assert!(!may || has.contains(&(pool, n)));
                    prop_assert_eq!(h.remove(&block).is_ok(), may);
                    if may {
                        has.remove(&(pool, n));
                    }
                }
                prop_assert_eq!(h.frames(), 11 + has.len() as u64 * B);
                prop_assert!(h.runs().len() <= MAX_RUNS);
                prop_assert_eq!(h.runs()[0], run(0, 5, 11));
                for &(pool, n) in &has {
                    let block = run(pool, 16 + n * B, B);
                    prop_assert_eq!(h.runs().iter().filter(|r| r.contains(&block)).count(), 1);
                }
                h.close_to_limit();
                let open: u64 = h.open_runs().map(|r| r.frames).sum();
                prop_assert_eq!(open, h.open());
                prop_assert!((open - h.kept()) * 100 <= h.frames() * PRESSURE);
            }
        }
    }

    #[test]
    fn what_is_put_back_does_not_become_part_of_the_first_run() {
        let mut h = Holding::new();
        h.add(run(0, 100, 28)).unwrap();
        h.add(run(0, 128, 64)).unwrap();
        h.remove(&run(0, 128, 64)).unwrap();
        h.put_back(run(0, 128, 64)).unwrap();
        assert_eq!(h.runs(), [run(0, 100, 28), run(0, 128, 64)]);
        assert_eq!(h.remove(&run(0, 128, 64)), Ok(()));
    }
}
