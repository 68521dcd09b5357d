//! The back end for model checks with loom: all interleavings, and all values that a weakly
//! ordered machine may return.
//!
//! | explored | not explored |
//! |---|---|
//! | interleavings of operations on tracked words | of those on plain words |
//! | stale values of relaxed and acquire loads | loads that return what is stored later (load buffering) |
//! | `SeqCst` loads and stores as acquire and release, as the emulated AArch64 machine has them | their stronger order elsewhere |
//! | full fences, read-modify-writes | staleness of caches: write-back and invalidate do nothing |
//!
//! When loom looks for orders to try it remembers only the latest access to a word: if one thread
//! loads a word and then modifies it, an earlier load by another thread is forgotten, and the
//! order in which that load comes later may never be tried. So let the thread that only reads
//! start last, and show with a mutant that the model sees what it is for. [`mutant`] takes fences
//! and orders away, one place in the source at a time.

pub mod mutant;

use core::panic::Location;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic as plain;

use dyad_shm::PhysAddr;
use loom::sync::atomic::{AtomicU64, Ordering, fence};

use crate::{GlobalMem, atomic};
use mutant::{Kind, Orders};

const RELAXED: Ordering = Ordering::Relaxed;

/// The deficiency of a mutant's memory. A test that does not notice it is no test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// No deficiency: this is the memory that the project is written for.
    Nothing,
    /// Fences do nothing.
    Fences,
    /// Release stores are relaxed.
    Release,
    /// Acquire loads are relaxed.
    Acquire,
    /// Read-modify-writes are relaxed.
    RmwOrder,
}

/// Words of shared memory, to be made inside of a model ([`explore`]). Plain words are
/// sequentially consistent and cost no exploration: for words that behave as tracked ones beside
/// them do. An operation on any other word panics.
#[derive(Debug)]
pub struct LoomMem {
    tracked: BTreeMap<u64, AtomicU64>,
    plain: BTreeMap<u64, plain::AtomicU64>,
    lacks: Lacks,
    orders: Orders,
}

impl LoomMem {
    /// Memory of tracked words, with their values, and of plain words, which are zero.
    pub fn new(lacks: Lacks, tracked: &[(u64, u64)], plain: &[u64]) -> LoomMem {
        LoomMem {
            tracked: tracked
                .iter()
                .map(|&(at, value)| (at, AtomicU64::new(value)))
                .collect(),
            plain: plain
                .iter()
                .map(|&at| (at, plain::AtomicU64::new(0)))
                .collect(),
            lacks,
            orders: Orders::all(),
        }
    }

    /// The same memory with the orders at one place in the source omitted as in `orders`.
    #[must_use]
    pub fn with_orders(self, orders: &Orders) -> LoomMem {
        LoomMem {
            orders: orders.clone(),
            ..self
        }
    }

    fn order(&self, caller: &'static Location<'static>, wanted: Ordering) -> Ordering {
        let kind = match wanted {
            Ordering::Acquire => Some(Kind::Acquire),
            Ordering::Release => Some(Kind::Release),
            _ => None,
        };
        if kind.is_some_and(|kind| self.orders.skips(caller, kind)) {
            return Ordering::Relaxed;
        }
        self.lacking(wanted)
    }

    fn lacking(&self, wanted: Ordering) -> Ordering {
        match (self.lacks, wanted) {
            (Lacks::Release, Ordering::Release) => Ordering::Relaxed,
            (Lacks::Acquire, Ordering::Acquire) => Ordering::Relaxed,
            _ => wanted,
        }
    }

    fn word(&self, at: PhysAddr) -> &AtomicU64 {
        self.tracked.get(&at.0).expect("a tracked word")
    }
}

impl GlobalMem for LoomMem {
    fn contains(&self, at: PhysAddr, _len: u64) -> bool {
        self.tracked.contains_key(&at.0) || self.plain.contains_key(&at.0)
    }

    #[track_caller]
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        let order = self.order(Location::caller(), order);
        match self.plain.get(&at.0) {
            Some(w) => w.load(Ordering::SeqCst),
            None => self.word(at).load(order),
        }
    }

    #[track_caller]
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        let order = self.order(Location::caller(), order);
        match self.plain.get(&at.0) {
            Some(w) => w.store(value, Ordering::SeqCst),
            None => self.word(at).store(value, order),
        }
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        let word = self.word(at);
        match self.lacks {
            Lacks::RmwOrder => word.compare_exchange(old, new, RELAXED, RELAXED),
            _ => atomic::exchange(word, old, new),
        }
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        let word = self.word(at);
        match self.lacks {
            Lacks::RmwOrder => word.swap(value, RELAXED),
            _ => atomic::swap(word, value),
        }
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        let word = self.word(at);
        match self.lacks {
            Lacks::RmwOrder => word.fetch_add(n, RELAXED),
            _ => atomic::add(word, n),
        }
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        let word = self.word(at);
        match self.lacks {
            Lacks::RmwOrder => word.fetch_or(bits, RELAXED),
            _ => atomic::or(word, bits),
        }
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        let word = self.word(at);
        match self.lacks {
            Lacks::RmwOrder => word.fetch_and(bits, RELAXED),
            _ => atomic::and(word, bits),
        }
    }

    #[track_caller]
    fn fence(&self) {
        let skipped = self.orders.skips(Location::caller(), Kind::Fence);
        if self.lacks != Lacks::Fences && !skipped {
            fence(Ordering::SeqCst);
        }
    }

    #[track_caller]
    fn load_fresh(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.load(at, order)
    }

    #[track_caller]
    fn store_through(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.store(at, value, order);
    }

    fn writeback(&self, _at: PhysAddr, _len: u64) {}

    fn invalidate(&self, _at: PhysAddr, _len: u64) {}
}

/// Runs two closures concurrently, inside a model, and returns their results. The thread of `a` starts last:
/// it should be the one that reads more and changes less.
///
/// # Panics
///
/// If `a` panics.
pub fn race<A: Send + 'static, B>(
    mem: &Arc<LoomMem>,
    a: impl FnOnce(&LoomMem) -> A + Send + 'static,
    b: impl FnOnce(&LoomMem) -> B,
) -> (A, B) {
    let other = mem.clone();
    let a = loom::thread::spawn(move || a(&other));
    let b = b(mem);
    (a.join().expect("the other thread does not panic"), b)
}

/// Explores `f`, with at most `preemptions` involuntary switches in one execution; `None`: all.
pub fn explore(preemptions: Option<usize>, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(f);
}
