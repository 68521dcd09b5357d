//! Mutants: a program with one flush left out, found and tried one place in the source after the
//! other, so that a flush that is added later is tried too.
//!
//! | place calls | the mutant does |
//! |---|---|
//! | `writeback`, `invalidate` | nothing |
//! | `load_fresh` | `load` |
//! | `store_through` | `store` |
//! | (all) `flush/private-rmws`: a read-modify-write acts in the node's cache, and is written back afterwards: atomic for one node only | `load`, then `store` |

use core::panic::Location;
use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::string::String;
use std::vec::Vec;

use dyad_shm::PhysAddr;

use crate::GlobalMem;
use crate::mutants::{self, Sites};

/// The operation at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// [`GlobalMem::writeback`].
    Writeback,
    /// [`GlobalMem::invalidate`].
    Invalidate,
    /// [`GlobalMem::load_fresh`].
    LoadFresh,
    /// [`GlobalMem::store_through`].
    StoreThrough,
}

impl mutants::Kind for Kind {
    const CLASS: &str = "flush";
}

/// A place in the source that flushes.
pub type Site = mutants::Site<Kind>;

/// The flushes of a program that are omitted, and those that it has done. Flushes in test code (`tests/`) are
/// neither counted nor omitted.
#[derive(Debug)]
pub struct Flushes {
    sites: Sites<Kind>,
    private_rmws: bool,
}

impl Flushes {
    /// All flushes of a program are kept, except for the one that `DYAD_MUTANT` selects: one place, or
    /// `flush/private-rmws`.
    pub fn all() -> Flushes {
        Flushes {
            sites: Sites::all(),
            private_rmws: mutants::selected(<Kind as mutants::Kind>::CLASS) == Some("private-rmws"),
        }
    }

    /// The program without the flushes at some places.
    pub fn without(sites: impl IntoIterator<Item = Site>) -> Flushes {
        Flushes {
            sites: Sites::without(sites),
            private_rmws: false,
        }
    }

    /// The places that have flushed.
    pub fn seen(&self) -> BTreeSet<Site> {
        self.sites.seen()
    }

    /// A node's memory without the omitted flushes.
    pub fn on<M: GlobalMem>(&self, mem: M) -> Mutant<'_, M> {
        Mutant { mem, flushes: self }
    }
}

/// Memory on which some flushes do nothing.
#[derive(Clone, Copy, Debug)]
pub struct Mutant<'f, M> {
    mem: M,
    flushes: &'f Flushes,
}

impl<M: GlobalMem> Mutant<'_, M> {
    fn rmw(&self, at: PhysAddr, f: impl FnOnce(u64) -> Option<u64>) -> Result<u64, u64> {
        let old = self.mem.load_fresh(at, Ordering::Acquire);
        let new = f(old).ok_or(old)?;
        self.mem.store_through(at, new, Ordering::Release);
        self.mem.invalidate(at, 8);
        Ok(old)
    }

    fn update(&self, at: PhysAddr, f: impl FnOnce(u64) -> u64) -> u64 {
        self.rmw(at, |old| Some(f(old))).unwrap_or_else(|old| old)
    }
}

impl<M: GlobalMem> GlobalMem for Mutant<'_, M> {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.mem.contains(at, len)
    }

    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.mem.load(at, order)
    }

    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.mem.store(at, value, order);
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        if self.flushes.private_rmws {
            return self.rmw(at, |now| (now == old).then_some(new));
        }
        self.mem.cas(at, old, new)
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        if self.flushes.private_rmws {
            return self.update(at, |_| value);
        }
        self.mem.swap(at, value)
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        if self.flushes.private_rmws {
            return self.update(at, |now| now.wrapping_add(n));
        }
        self.mem.add(at, n)
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        if self.flushes.private_rmws {
            return self.update(at, |now| now | bits);
        }
        self.mem.or(at, bits)
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        if self.flushes.private_rmws {
            return self.update(at, |now| now & bits);
        }
        self.mem.and(at, bits)
    }

    fn fence(&self) {
        self.mem.fence();
    }

    #[track_caller]
    fn writeback(&self, at: PhysAddr, len: u64) {
        if !self
            .flushes
            .sites
            .skips(Location::caller(), Kind::Writeback)
        {
            self.mem.writeback(at, len);
        }
    }

    #[track_caller]
    fn invalidate(&self, at: PhysAddr, len: u64) {
        if !self
            .flushes
            .sites
            .skips(Location::caller(), Kind::Invalidate)
        {
            self.mem.invalidate(at, len);
        }
    }

    #[track_caller]
    fn load_fresh(&self, at: PhysAddr, order: Ordering) -> u64 {
        if self
            .flushes
            .sites
            .skips(Location::caller(), Kind::LoadFresh)
        {
            self.mem.load(at, order)
        } else {
            self.mem.load_fresh(at, order)
        }
    }

    #[track_caller]
    fn store_through(&self, at: PhysAddr, value: u64, order: Ordering) {
        if self
            .flushes
            .sites
            .skips(Location::caller(), Kind::StoreThrough)
        {
            self.mem.store(at, value, order);
        } else {
            self.mem.store_through(at, value, order);
        }
    }
}

/// A mutant that was noticed.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The flush it lacks.
    pub site: Site,
    /// The first seed that shows it.
    pub seed: u64,
    /// The failure.
    pub why: String,
}

/// The results for the mutants of a program.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Noticed.
    pub caught: Vec<Caught>,
    /// The mutants that were not noticed with any seed.
    pub survived: Vec<Site>,
}

/// Runs a scenario with all seeds, then the same without each flush that it has done.
///
/// # Errors
///
/// If it fails although nothing is left out: with which seed, and why.
pub fn try_each(
    seeds: u64,
    scenario: impl Fn(u64, &Flushes) -> Result<(), String>,
) -> Result<Verdict, String> {
    let all = Flushes::all();
    for seed in 0..seeds {
        scenario(seed, &all).map_err(|why| std::format!("seed {seed}: {why}"))?;
    }
    let mut verdict = Verdict::default();
    for site in all.seen() {
        let flushes = Flushes::without([site]);
        let failure = (0..seeds).find_map(|seed| Some((seed, scenario(seed, &flushes).err()?)));
        match failure {
            Some((seed, why)) => verdict.caught.push(Caught { site, seed, why }),
            None => verdict.survived.push(site),
        }
    }
    Ok(verdict)
}
