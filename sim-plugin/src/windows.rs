// SPDX-License-Identifier: GPL-2.0-or-later
//! Windows of measurement: what is open on a CPU, and the samples of all.
//!
//! The state machine of a CPU is in [`dyad_abi::marker`]. Nothing of QEMU is in here.

use std::collections::BTreeMap;

use dyad_abi::Isa;
use dyad_abi::boot::LOCAL_STRIDE;
use dyad_abi::marker::{Marker, MarkerOp, WindowId};

/// Samples kept per window, for the median. Minimum and maximum are of all.
pub const KEPT: usize = 4096;
const LINE_SHIFT: u32 = 6;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Metric {
    /// Instructions that were started, in user mode and in the kernel, without the markers. One
    /// that faults and is started again counts twice; a string instruction of x86-64 counts once,
    /// however often it repeats itself (its accesses count each).
    Instructions,
    /// Distinct lines of 64 bytes of memory that data was read from or written to.
    Lines,
    /// Those of them that are in the pools, which all nodes see.
    FusedLines,
    /// Accesses to memory; an atomic read-modify-write is one.
    Accesses,
    /// Accesses to devices.
    Devices,
    /// Atomic read-modify-writes.
    Atomics,
    /// Instructions that write lines back or invalidate them.
    Flushes,
    /// Memory barriers.
    Fences,
    /// Instructions before the CPU first waited; all instructions if it did not wait.
    Lead,
    /// How often the CPU waited.
    Waits,
}

impl Metric {
    /// All, in the order of the report.
    pub const ALL: [Metric; 10] = [
        Metric::Instructions,
        Metric::Lines,
        Metric::FusedLines,
        Metric::Accesses,
        Metric::Devices,
        Metric::Atomics,
        Metric::Flushes,
        Metric::Fences,
        Metric::Lead,
        Metric::Waits,
    ];
}

/// A value per metric.
pub type Sample = [u64; Metric::ALL.len()];

/// What QEMU counts for each CPU all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Instructions started.
    pub instructions: u64,
    /// Atomics among them.
    pub atomics: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// Fences among them.
    pub fences: u64,
}

impl Running {
    /// How much has come since `then`.
    fn since(self, then: Running) -> Running {
        Running {
            instructions: self.instructions.wrapping_sub(then.instructions),
            atomics: self.atomics.wrapping_sub(then.atomics),
            flushes: self.flushes.wrapping_sub(then.flushes),
            fences: self.fences.wrapping_sub(then.fences),
        }
    }

    /// As if what has come between the two had not.
    fn without(self, from: Running, to: Running) -> Running {
        let gap = to.since(from);
        Running {
            instructions: self.instructions.wrapping_add(gap.instructions),
            atomics: self.atomics.wrapping_add(gap.atomics),
            flushes: self.flushes.wrapping_add(gap.flushes),
            fences: self.fences.wrapping_add(gap.fences),
        }
    }
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To memory, at this physical address.
    Memory(u64),
    /// To a device, at this physical address.
    Device(u64),
}

/// Whether an access to a device is how a CPU takes an interrupt: on x86-64 the write to the end
/// of interrupt register of its local APIC, on AArch64 the read of the acknowledge register of
/// its GICv2 interface.
pub fn takes_interrupt(isa: Isa, address: u64, store: bool) -> bool {
    match isa {
        Isa::X86_64 => store && address == 0xfee0_00b0,
        Isa::Aarch64 => !store && address == 0x0801_000c,
    }
}

/// A set of lines that is soon emptied.
#[derive(Debug, Default)]
struct LineSet {
    /// A line is in the set if its generation is the present one. Open addressing.
    slots: Vec<(u64, u64)>,
    generation: u64,
    len: usize,
}

impl LineSet {
    fn clear(&mut self) {
        self.generation += 1;
        self.len = 0;
    }

    /// Adds a line. Whether the line was not in the set.
    fn insert(&mut self, line: u64) -> bool {
        if self.len * 2 >= self.slots.len() {
            self.grow();
        }
        // Multiplication spreads lines that follow each other; the upper bits are the best.
        let mask = self.slots.len() - 1;
        let mut at = (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.1 != self.generation {
                *slot = (line, self.generation);
                self.len += 1;
                return true;
            }
            if slot.0 == line {
                return false;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let larger = vec![(0, 0); (self.slots.len() * 2).max(256)];
        let present = std::mem::replace(&mut self.slots, larger);
        let (generation, len) = (self.generation, self.len);
        // Generation 0 is what new slots have.
        self.generation = 1;
        self.len = 0;
        for (line, _) in present.into_iter().filter(|s| s.1 == generation) {
            self.insert(line);
        }
        debug_assert_eq!(self.len, len);
    }
}

/// The window that is open on a CPU, if one is.
#[derive(Debug, Default)]
pub struct CpuWindow {
    open: Option<(WindowId, Running)>,
    /// What had been counted when the wait began that lasts.
    waiting: Option<Running>,
    lines: LineSet,
    /// Lines, accesses and devices are counted here.
    sample: Sample,
    interrupted: bool,
    sites: Vec<u64>,
}

/// What a marker has done to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A window is open now. Whether one was abandoned for it.
    Opened {
        /// One was.
        abandoned: bool,
    },
    /// A window has ended.
    Closed {
        /// Which.
        id: WindowId,
        /// What was counted.
        sample: Sample,
        /// An interrupt was taken in it.
        interrupted: bool,
    },
    /// A window was abandoned.
    Abandoned,
    /// An end without its beginning, or nothing to abandon.
    Unmatched,
    /// Samples are to be forgotten.
    Forget(WindowId),
    /// The marker has nothing to do with windows.
    Nothing,
}

impl CpuWindow {
    /// Follows a marker; `now` is what the CPU has counted so far.
    pub fn marker(&mut self, marker: Marker, now: Running) -> Outcome {
        match marker.op {
            MarkerOp::Begin => {
                let abandoned = self.open.replace((marker.id, now)).is_some();
                self.waiting = None;
                self.lines.clear();
                self.sites.clear();
                self.sample = Sample::default();
                self.interrupted = false;
                Outcome::Opened { abandoned }
            }
            MarkerOp::End => {
                self.works(now);
                match self.open {
                    Some((id, then)) if id == marker.id => {
                        self.open = None;
                        Outcome::Closed {
                            id,
                            sample: self.finish(then, now),
                            interrupted: self.interrupted,
                        }
                    }
                    _ => Outcome::Unmatched,
                }
            }
            MarkerOp::Abandon => match self.open.take() {
                Some(_) => Outcome::Abandoned,
                None => Outcome::Unmatched,
            },
            MarkerOp::Forget => Outcome::Forget(marker.id),
            MarkerOp::Idle => {
                match marker {
                    Marker::WAITS => self.waits(now),
                    Marker::WORKS => self.works(now),
                    _ => {}
                }
                Outcome::Nothing
            }
            MarkerOp::Clock => Outcome::Nothing,
        }
    }

    /// A wait begins, if a window is open and none lasts.
    fn waits(&mut self, now: Running) {
        let (Some((_, then)), None) = (self.open, self.waiting) else {
            return;
        };
        self.waiting = Some(now);
        if self.sample[Metric::Waits as usize] == 0 {
            self.sample[Metric::Lead as usize] = now.since(then).instructions;
        }
        self.sample[Metric::Waits as usize] += 1;
    }

    /// A wait ends, if one lasts: it is as if the window had begun later by as much.
    fn works(&mut self, now: Running) {
        if let (Some((_, then)), Some(from)) = (&mut self.open, self.waiting.take()) {
            *then = then.without(from, now);
        }
    }

    /// An instruction in the open window.
    pub fn executes(&mut self, at: u64) {
        self.sites.push(at);
    }

    /// The instructions of the window that has ended, if that is kept.
    pub fn sites(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.sites)
    }

    /// Whether what the CPU does counts: a window is open, and the CPU does not wait.
    pub fn is_open(&self) -> bool {
        self.open.is_some() && self.waiting.is_none()
    }

    /// The open window, whether the CPU waits or not.
    pub fn open_id(&self) -> Option<WindowId> {
        self.open.map(|(id, _)| id)
    }

    /// An access in the open window.
    pub fn access(&mut self, isa: Isa, place: Place, store: bool) {
        match place {
            Place::Memory(address) => {
                self.sample[Metric::Accesses as usize] += 1;
                self.touch(address);
            }
            Place::Device(address) => {
                self.sample[Metric::Devices as usize] += 1;
                self.interrupted |= takes_interrupt(isa, address, store);
            }
        }
    }

    /// The line at this physical address is touched by an access that began in another one.
    pub fn touch(&mut self, address: u64) {
        if self.lines.insert(address >> LINE_SHIFT) {
            self.sample[Metric::Lines as usize] += 1;
            // Memory of a machine's own lies below the pools.
            let fused = u64::from(address >= LOCAL_STRIDE);
            self.sample[Metric::FusedLines as usize] += fused;
        }
    }

    fn finish(&self, then: Running, now: Running) -> Sample {
        let mut sample = self.sample;
        let all = now.since(then);
        sample[Metric::Instructions as usize] = all.instructions;
        sample[Metric::Atomics as usize] = all.atomics;
        sample[Metric::Flushes as usize] = all.flushes;
        sample[Metric::Fences as usize] = all.fences;
        if sample[Metric::Waits as usize] == 0 {
            sample[Metric::Lead as usize] = all.instructions;
        }
        sample
    }
}

/// Minimum, median and maximum of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Least value of all samples.
    pub min: u64,
    /// Median of the samples kept; the lower one if their number is even.
    pub median: u64,
    /// Largest value of all samples.
    pub max: u64,
}

/// The samples of a window.
#[derive(Clone, Debug, Default)]
pub struct Record {
    n: u64,
    interrupted: u64,
    total: u64,
    kept: Vec<Sample>,
    sites: BTreeMap<u64, u64>,
    min: Sample,
    max: Sample,
}

impl Record {
    fn add(&mut self, sample: Sample) {
        if self.n == 0 {
            (self.min, self.max) = (sample, sample);
        }
        self.n += 1;
        for ((min, max), value) in self.min.iter_mut().zip(&mut self.max).zip(sample) {
            *min = (*min).min(value);
            *max = (*max).max(value);
        }
        if self.kept.len() < KEPT {
            self.kept.push(sample);
        }
    }

    /// How often the instruction at each address was started in all samples, if that is kept.
    pub fn sites(&self) -> &BTreeMap<u64, u64> {
        &self.sites
    }

    /// Number of samples.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Number of windows that give no sample because an interrupt was taken in them.
    pub fn interrupted(&self) -> u64 {
        self.interrupted
    }

    /// Instructions of all windows, interrupted ones and what the interrupts took included.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The values of a metric; `None` if there is no sample.
    pub fn spread(&self, metric: Metric) -> Option<Spread> {
        let at = metric as usize;
        let mut values: Vec<u64> = self.kept.iter().map(|sample| sample[at]).collect();
        values.sort_unstable();
        Some(Spread {
            min: self.min[at],
            median: *values.get(values.len().checked_sub(1)? / 2)?,
            max: self.max[at],
        })
    }
}

/// The samples of all windows of a machine.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// By window.
    pub records: BTreeMap<WindowId, Record>,
    /// Windows that were begun and gave way to another, or were abandoned by a marker.
    pub abandoned: u64,
    /// Ends whose window was not open on their CPU.
    pub unmatched: u64,
}

impl Samples {
    /// Which instructions a sample of a window was.
    pub fn visit(&mut self, id: WindowId, sites: &[u64]) {
        if let Some(record) = self.records.get_mut(&id) {
            for &at in sites {
                *record.sites.entry(at).or_default() += 1;
            }
        }
    }

    /// Takes note of what a marker has done.
    pub fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Opened { abandoned } => self.abandoned += u64::from(abandoned),
            Outcome::Closed {
                id,
                sample,
                interrupted,
            } => {
                let record = self.records.entry(id).or_default();
                record.total += sample[Metric::Instructions as usize];
                if interrupted {
                    record.interrupted += 1;
                } else {
                    record.add(sample);
                }
            }
            Outcome::Abandoned => self.abandoned += 1,
            Outcome::Unmatched => self.unmatched += 1,
            Outcome::Nothing => {}
            Outcome::Forget(id) => {
                self.records.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
