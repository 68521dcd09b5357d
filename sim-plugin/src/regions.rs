// SPDX-License-Identifier: GPL-2.0-or-later
//! Regions of interest: what has been counted between the markers of a window, added up by window.
//!
//! A CPU opens at most one region; the states are those of [`dyad_abi::marker`]. A region that a thread has opened on one
//! CPU can be closed on another, of whatever node: open regions are in words that all machines share.
//!
//! | what | counts |
//! |---|---|
//! | passes that end on the CPU that they began on | what this CPU did |
//! | all passes | what all CPUs of the system did meanwhile |
//!
//! A CPU knows of another CPU what that one has published. A CPU publishes when it falls asleep or wakes up, and when it looks
//! around: each time in strict order, every fourth time in parallel order. So the second count of a CPU other than that of the
//! marker can be off, at either end, by a quantum and the lag in strict order, and by four quanta and the lag in parallel order. A
//! CPU that sleeps is taken to sleep until the marker.
//!
//! ```text
//! words of a CPU:  | sequence | life, doing, counted | life, doing, counted | open | life, then | life, then | ...
//!                               published in turns                                   CPU 0        CPU 1
//! ```
//!
//! A CPU publishes into the place that it has not published into last, so that what it has published can be read even while
//! its thread is stopped in the middle of that.

use std::collections::BTreeMap;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_abi::marker::{Marker, MarkerOp, WindowId};
use dyad_sim_model::shared::region_words;

/// Passes of which it is kept how long each took.
pub const KEPT: usize = 1 << 16;
/// Something that grows as time passes, and that all machines can read.
pub trait Measured: Copy + Default + Add<Output = Self> + Sub<Output = Self> {
    /// Words of it.
    const WORDS: usize;
    /// Its time, in picoseconds.
    fn time_ps(&self) -> u64;
    /// Gives its words, in order; those that seldom change come last, and can be left out.
    fn put(&self, seldom: bool, put: &mut impl FnMut(u64));
    /// From words.
    fn take(take: &mut impl FnMut() -> u64) -> Self;
    /// What it is at a later time, if only sleep passes until then, in which messages are awaited or not.
    #[must_use]
    fn asleep_until(self, time_ps: u64, awaits: bool) -> Self;
}

/// What a CPU does from the moment on at which it publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Doing {
    /// It executes.
    Works = 0,
    /// It sleeps.
    Sleeps = 1,
    /// It sleeps and awaits messages.
    Awaits = 2,
}

/// All passes through a region that have ended on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region<T> {
    /// Passes that began on this CPU, too.
    pub n: u64,
    /// What was counted in all of them.
    pub sum: T,
    /// Passes that began on another CPU.
    pub moved: u64,
    /// How long the first [`KEPT`] of all passes took.
    pub times_ps: Vec<u64>,
    /// What each CPU of the system has counted meanwhile.
    pub all: Vec<T>,
}

/// The words of a CPU.
struct Slot<'a> {
    /// Twice the number of times that it has published; odd while it does.
    sequence: &'a AtomicU64,
    places: [&'a [AtomicU64]; 2],
    open: &'a AtomicU64,
    /// What each CPU had counted when the region was opened, after its life.
    begun: &'a [AtomicU64],
}

#[inline(always)]
fn store<T: Measured>(words: &[AtomicU64], value: &T, seldom: bool) {
    let mut at = words.iter();
    value.put(seldom, &mut |word| {
        if let Some(to) = at.next() {
            to.store(word, Ordering::Relaxed);
        }
    });
}

fn load<T: Measured>(words: &[AtomicU64]) -> T {
    let mut at = words.iter();
    T::take(&mut || at.next().map_or(0, |word| word.load(Ordering::Relaxed)))
}

/// The regions that end on a CPU.
pub struct Regions<'a, T> {
    words: &'a [AtomicU64],
    cpus: usize,
    me: usize,
    /// Which life of this CPU it is: never 0, and another number when the machine comes back.
    life: u64,
    /// By place, the version of the words there that seldom change.
    versions: [Option<u64>; 2],
    opened: u64,
    closed: BTreeMap<WindowId, Region<T>>,
}

impl<'a, T: Measured> Regions<'a, T> {
    /// The regions that end on CPU `me` of `cpus` of the whole system; `words` is what all of them share.
    pub fn new(words: &'a [AtomicU64], cpus: usize, me: usize, life: u64) -> Self {
        let regions = Regions {
            words,
            cpus,
            me,
            life,
            versions: [None; 2],
            opened: 0,
            closed: BTreeMap::new(),
        };
        regions.slot(me).open.store(0, Ordering::Release);
        regions
    }

    fn slot(&self, cpu: usize) -> Slot<'a> {
        let size = region_words(self.cpus, T::WORDS);
        let all = &self.words[cpu * size..][..size];
        let (first, rest) = all[1..].split_at(2 + T::WORDS);
        let (second, rest) = rest.split_at(2 + T::WORDS);
        Slot {
            sequence: &all[0],
            places: [first, second],
            open: &rest[0],
            begun: &rest[1..],
        }
    }

    /// Lets others know what this CPU has counted, and what it does from here on. `version` is another one if words that
    /// seldom change have; `now` is told whether these are needed.
    pub fn publish(&mut self, version: u64, doing: Doing, now: impl FnOnce(bool) -> T) {
        let slot = self.slot(self.me);
        // A machine that has died may have left it odd.
        let last = slot.sequence.load(Ordering::Relaxed) & !1;
        slot.sequence.store(last + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let turn = (last / 2 + 1) as usize % 2;
        let place = slot.places[turn];
        place[0].store(self.life, Ordering::Relaxed);
        place[1].store(doing as u64, Ordering::Relaxed);
        let seldom = self.versions[turn].replace(version) != Some(version);
        store(&place[2..], &now(seldom), seldom);
        slot.sequence.store(last + 2, Ordering::Release);
    }

    /// What a CPU has counted at a time: its life, and 0 for one that has published nothing.
    fn of(&self, cpu: usize, now: T) -> (u64, T) {
        if cpu == self.me {
            return (self.life, now);
        }
        let slot = self.slot(cpu);
        loop {
            let last = slot.sequence.load(Ordering::Acquire) & !1;
            let place = slot.places[(last / 2) as usize % 2];
            let life = place[0].load(Ordering::Relaxed);
            let doing = place[1].load(Ordering::Relaxed);
            let read = load::<T>(&place[2..]);
            fence(Ordering::Acquire);
            // The place is written to again when it publishes for the second time after this.
            if slot.sequence.load(Ordering::Relaxed) < last + 3 {
                let awaits = doing == Doing::Awaits as u64;
                let works = doing == Doing::Works as u64;
                return match works {
                    true => (life, read),
                    false => (life, read.asleep_until(now.time_ps(), awaits)),
                };
            }
        }
    }

    /// Follows a marker; `now` is what the CPU has counted so far.
    pub fn marker(&mut self, marker: Marker, now: T) {
        match marker.op {
            MarkerOp::Begin => self.begin(marker.id, now),
            MarkerOp::End => self.end(marker.id, now),
            MarkerOp::Abandon => self.slot(self.me).open.store(0, Ordering::Release),
            MarkerOp::Forget => {
                self.closed.remove(&marker.id);
            }
            MarkerOp::Clock | MarkerOp::Idle => {}
        }
    }

    fn begin(&mut self, id: WindowId, now: T) {
        let slot = self.slot(self.me);
        slot.open.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (cpu, words) in slot.begun.chunks_exact(1 + T::WORDS).enumerate() {
            let (life, then) = self.of(cpu, now);
            words[0].store(life, Ordering::Relaxed);
            store(&words[1..], &then, true);
        }
        // No two openings have the same word, so that none is taken for another.
        self.opened += 1;
        let word = self.opened << 16 | u64::from(id.0);
        slot.open.store(word, Ordering::Release);
    }

    /// Closes what CPU `opener` has open, if that is this region. Gives what each CPU had counted when it was opened.
    fn close(&self, opener: usize, id: WindowId) -> Option<Vec<(u64, T)>> {
        let slot = self.slot(opener);
        let word = slot.open.load(Ordering::Acquire);
        if word == 0 || word as u16 != id.0 {
            return None;
        }
        let begun = slot.begun.chunks_exact(1 + T::WORDS);
        let begun = begun.map(|words| (words[0].load(Ordering::Relaxed), load(&words[1..])));
        let begun = begun.collect();
        fence(Ordering::Acquire);
        let closed = (slot.open).compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
        closed.is_ok().then_some(begun)
    }

    fn end(&mut self, id: WindowId, now: T) {
        let others = (0..self.cpus).filter(|&cpu| cpu != self.me);
        let mut openers = std::iter::once(self.me).chain(others);
        let found = openers.find_map(|cpu| self.close(cpu, id).map(|begun| (cpu, begun)));
        let Some((opener, begun)) = found else { return };
        let ended: Vec<_> = (0..self.cpus).map(|cpu| self.of(cpu, now)).collect();
        let region = self.closed.entry(id).or_default();
        if region.times_ps.len() < KEPT {
            let since = begun[opener].1.time_ps();
            region.times_ps.push(now.time_ps().saturating_sub(since));
        }
        if opener == self.me {
            region.n += 1;
            region.sum = region.sum + (now - begun[opener].1);
        } else {
            region.moved += 1;
        }
        region.all.resize(self.cpus, T::default());
        for ((sum, (life, then)), (same, now)) in region.all.iter_mut().zip(begun).zip(ended) {
            if life == same && life != 0 {
                *sum = *sum + (now - then);
            }
        }
    }

    /// The regions that were passed through, by window.
    pub fn closed(&self) -> &BTreeMap<WindowId, Region<T>> {
        &self.closed
    }
}

#[cfg(test)]
mod tests;
