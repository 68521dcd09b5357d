//! Releases: an access that brings in what another CPU has written is not earlier than the store.
//!
//! The times of CPUs differ by up to the lag and the quantum of the clock, so a CPU can meet a store that lies in its
//! future. Each fused line has a time: that of the last store for which a CPU had to take the line, and without coherence
//! that of the last write-back. An access that brings the line in waits until that time. The latency of the access comes on
//! top.
//!
//! A store to a line that its CPU owns already leaves no time, so the time of the line can be too early. The time is exact
//! where a reader polls the line: the reader shares the line, and the next store has to take it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The times of all lines, as one CPU uses them.
#[derive(Clone, Copy, Debug)]
pub struct Releases<'a> {
    /// By line, in picoseconds; 0 at first.
    times: &'a [AtomicU64],
    /// The time of a CPU.
    now: fn(u32) -> u64,
    cpu: u32,
    cycle_ps: u64,
}

impl<'a> Releases<'a> {
    /// For a CPU of the driver of the model, whose time is `now(cpu)` picoseconds and whose cycles take `cycle_ps`.
    pub const fn new(
        times: &'a [AtomicU64],
        now: fn(u32) -> u64,
        cpu: u32,
        cycle_ps: u64,
    ) -> Releases<'a> {
        Releases {
            times,
            now,
            cpu,
            cycle_ps,
        }
    }

    /// The time of the line with this place in the directory, in whichever view.
    fn of(&self, index: usize) -> Option<&'a AtomicU64> {
        // Most lines are looked at in the first view, and a division takes as long as all the rest.
        let line = match index < self.times.len() {
            true => index,
            false => index.checked_rem(self.times.len())?,
        };
        self.times.get(line)
    }

    /// Brings the time of a line near.
    #[inline(always)]
    pub(super) fn foresee(&self, index: usize) {
        std::hint::black_box(self.of(index).map(|at| at.load(Ordering::Relaxed)));
    }

    /// Cycles until the line has been written that an access brings in now.
    pub(super) fn wait(&self, index: usize) -> u64 {
        // A time publishes nothing but itself, here and below.
        let written = self.of(index).map_or(0, |at| at.load(Ordering::Relaxed));
        match written.checked_sub((self.now)(self.cpu)) {
            Some(ahead) => ahead.div_ceil(self.cycle_ps.max(1)),
            None => 0,
        }
    }

    /// The line is written when this many cycles have passed.
    pub(super) fn written(&self, index: usize, cycles: u64) {
        if let Some(at) = self.of(index) {
            let then = (self.now)(self.cpu) + cycles * self.cycle_ps;
            at.fetch_max(then, Ordering::Relaxed);
        }
    }
}
