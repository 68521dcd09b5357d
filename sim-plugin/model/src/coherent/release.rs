//! Releases: an access that brings in what another CPU has written is not earlier than the store.
//!
//! The times of CPUs differ by up to the lag and the quantum of the clock, so a CPU can meet a store that lies in its
//! future. Each fused line has a time: that of the last store for which a CPU had to take the line, and without coherence
//! that of the last write-back. An access that brings the line in waits until that time. The latency of the access comes on
//! top.
//!
//! A store to a line that its CPU owns already leaves no time, so the time of the line can be too early. The time is exact
//! where a reader polls the line: the reader shares the line, and the next store has to take it.

use std::sync::atomic::Ordering;

use crate::lines::Lines;

/// The times of all lines, in picoseconds and 0 at first, as one CPU uses them.
#[derive(Clone, Copy, Debug)]
pub struct Releases<'a> {
    lines: Lines<'a>,
    /// The time of a CPU.
    now: fn(u32) -> u64,
    cpu: u32,
    cycle_ps: u64,
}

impl<'a> Releases<'a> {
    /// For a CPU of the driver of the model, whose time is `now(cpu)` picoseconds and whose cycles take `cycle_ps`.
    pub const fn new(
        lines: Lines<'a>,
        now: fn(u32) -> u64,
        cpu: u32,
        cycle_ps: u64,
    ) -> Releases<'a> {
        Releases {
            lines,
            now,
            cpu,
            cycle_ps,
        }
    }

    /// Cycles until the line has been written that an access brings in now.
    pub(super) fn wait(&self, index: usize) -> u64 {
        // A time publishes nothing but itself, here and below.
        let written = self
            .lines
            .time(index)
            .map_or(0, |at| at.load(Ordering::Relaxed));
        match written.checked_sub((self.now)(self.cpu)) {
            Some(ahead) => ahead.div_ceil(self.cycle_ps.max(1)),
            None => 0,
        }
    }

    /// The line is written when this many cycles have passed.
    pub(super) fn written(&self, index: usize, cycles: u64) {
        if let Some(at) = self.lines.time(index) {
            let then = (self.now)(self.cpu) + cycles * self.cycle_ps;
            at.fetch_max(then, Ordering::Relaxed);
        }
    }
}
