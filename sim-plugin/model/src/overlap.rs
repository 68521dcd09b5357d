//! Overlap: what a CPU does while accesses are under way. Off by default: then it waits for each by itself.
//!
//! An interval model (Eyerman and others, "A mechanistic performance model for superscalar out-of-order processors"): a CPU goes
//! on past a load that misses, until it has executed as many instructions as it keeps in order, or until it needs what has been
//! loaded. What it then waits for is charged to where that line came from; what it does not wait for is charged to nothing.
//!
//! | key | what it allows |
//! |---|---|
//! | `overlap.window` | so many instructions are executed past the oldest load that is under way |
//! | `overlap.misses` | so many loads that miss are under way; a further one begins when the first of them ends |
//! | `overlap.stores` | so many stores that miss are under way; a further one waits |
//! | `prefetch.streams` | so many streams of lines with one distance are noticed, within pages |
//! | `prefetch.ahead` | so many lines of a stream are under way: a line is asked for when the one so many before it has come and been used |
//!
//! - A fence, an atomic operation, a trap and the like wait for all that is under way.
//! - An access whose address depends on a load waits for all of it: what the CPU has executed meanwhile counts as executed after
//!   it. So a chase of pointers takes as long as without overlap, to the cycle.
//! - Whether an address depends on a load is judged by values: it is near the value that is being loaded, as that of a field
//!   behind a pointer, or it is the value times a power of two plus a base that has been seen before, as that of an element of an
//!   array. Addresses that are computed in other ways from what is being loaded pass for independent.
//! - Prefetched lines beyond the end of a stream are not modelled: they take no place in a cache and no bandwidth.
//! - Instructions are waited for as before.

mod bases;
mod streams;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::account::Stalls;
use crate::coherent::Kind;
use crate::config::LINE_BYTES;
use bases::Bases;
use streams::Streams;

/// What a node's CPUs do beside each other. 0: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlapConfig {
    /// Cycles of a hit in the first level that other work hides.
    pub l1: u64,
    /// Instructions past the oldest load that is under way.
    pub window: u64,
    /// Loads that are under way.
    pub misses: u64,
    /// Stores that are under way.
    pub stores: u64,
    /// Streams that are noticed.
    pub streams: u64,
    /// Lines of a stream that are under way.
    pub ahead: u64,
}

impl OverlapConfig {
    /// Whether any access can be under way beside another one.
    pub const fn is_on(&self) -> bool {
        self.window != 0 || self.stores != 0 || self.streams != 0
    }
}

/// An access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Its kind.
    pub kind: Kind,
    /// Its virtual address.
    pub address: u64,
    /// What was loaded, or the lower half of that.
    pub value: u64,
    /// Instructions that the CPU has executed before it.
    pub instruction: u64,
}

impl Access {
    const fn line(&self) -> u64 {
        self.address / LINE_BYTES
    }
}

/// What a CPU waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Cycles.
    pub cycles: u64,
    /// By what is waited for.
    pub stalls: Stalls,
}

/// An access that is under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// When it ends, in picoseconds.
    done: u64,
    instruction: u64,
    line: u64,
    /// What a load gives.
    value: Option<u64>,
    /// Where its time goes.
    stalls: Stalls,
}

/// Accesses that are under way on a CPU.
#[derive(Debug)]
pub struct Window {
    keys: OverlapConfig,
    cycle_ps: u64,
    instruction_ps: u64,
    /// In the order of the program.
    pending: VecDeque<Pending>,
    bases: Bases,
    streams: Streams,
}

impl Window {
    /// Nothing is under way. `None`: nothing ever is.
    pub fn new(keys: OverlapConfig, cycle_ps: u64, instruction_ps: u64) -> Option<Window> {
        (keys.is_on() && cycle_ps != 0).then(|| Window {
            keys,
            cycle_ps,
            instruction_ps,
            pending: VecDeque::new(),
            bases: Bases::default(),
            streams: Streams::new(keys.streams, keys.ahead),
        })
    }

    fn retire(&mut self, now: u64) {
        self.pending.retain(|p| p.done > now);
    }

    /// Waits for the latest of what is under way and as `which` says.
    fn wait(&mut self, now: u64, which: impl Fn(&Pending) -> bool) -> Wait {
        let last = self.pending.iter().filter(|p| which(p));
        let Some(last) = last.max_by_key(|p| p.done).copied() else {
            return Wait::default();
        };
        let cycles = last.done.saturating_sub(now).div_ceil(self.cycle_ps);
        self.retire(now + cycles * self.cycle_ps);
        Wait {
            cycles,
            stalls: last.stalls.scaled(cycles),
        }
    }

    /// Waits for all that is under way.
    pub fn drain(&mut self, now: u64) -> Wait {
        self.retire(now);
        self.wait(now, |_| true)
    }

    /// The wait before an access can be made.
    pub fn before(&mut self, access: &Access, now: u64) -> Wait {
        self.retire(now);
        if self.pending.is_empty() {
            return Wait::default();
        }
        if access.kind == Kind::Rmw {
            return self.wait(now, |_| true);
        }
        let (bases, address) = (&mut self.bases, access.address);
        // Every value is looked at, so that bases are learned.
        let mut needed = 0;
        for p in &mut self.pending {
            if let Some(value) = p.value
                && bases.leads(value, address)
            {
                // What has been executed meanwhile counts as executed afterwards.
                let executed = access.instruction.saturating_sub(p.instruction);
                let latest = now + p.stalls.total() * self.cycle_ps;
                p.done = (p.done + executed * self.instruction_ps).min(latest.max(p.done));
                needed = needed.max(p.done);
            }
        }
        let full = access.instruction.saturating_sub(self.keys.window);
        self.wait(now, |p| {
            let is_load = p.value.is_some();
            is_load && (p.done <= needed || p.instruction <= full)
        })
    }

    /// An access has been made. `stalls` is what the CPU would wait beyond the first level. The wait instead; `None`: it does wait
    /// for all of that.
    pub fn after(&mut self, access: &Access, now: u64, stalls: Stalls) -> Option<Wait> {
        let line = access.line();
        let time = stalls.total() * self.cycle_ps;
        let ahead = match access.kind {
            Kind::Load | Kind::Store => self.streams.see(line, now, time),
            Kind::Fetch | Kind::Rmw => None,
        };
        let mut pending = Pending {
            done: 0,
            instruction: access.instruction,
            line,
            value: (access.kind == Kind::Load).then_some(access.value),
            stalls,
        };
        if stalls.total() == 0 {
            // It has hit a line that is still on its way, perhaps.
            let on_its_way = self.pending.iter().rfind(|p| p.line == line).copied();
            if let (Kind::Load, Some(first)) = (access.kind, on_its_way) {
                pending.done = first.done;
                pending.stalls = first.stalls;
                self.pending.push_back(pending);
            }
            return None;
        }
        match access.kind {
            Kind::Load if self.keys.window != 0 || ahead.is_some() => {
                let begun = ahead.unwrap_or_else(|| self.room(now));
                pending.done = begun + time;
                if pending.done <= now {
                    return Some(Wait::default());
                }
                self.pending.push_back(pending);
                match self.keys.window {
                    0 => Some(self.wait(now, |p| p.line == line)),
                    _ => Some(Wait::default()),
                }
            }
            Kind::Store if self.keys.stores != 0 => {
                pending.done = ahead.map_or(now, |begun| begun.min(now)) + time;
                if pending.done > now {
                    self.pending.push_back(pending);
                }
                Some(self.wait_for_store(now))
            }
            _ => None,
        }
    }

    /// When a load can begin that misses now.
    fn room(&self, now: u64) -> u64 {
        // Loads of one line are one.
        let mut ends: Vec<u64> = Vec::new();
        let mut lines: Vec<u64> = Vec::new();
        for p in self.pending.iter().filter(|p| p.value.is_some()) {
            if !lines.contains(&p.line) {
                lines.push(p.line);
                ends.push(p.done);
            }
        }
        let more = (ends.len() + 1).saturating_sub(self.keys.misses.max(1) as usize);
        ends.sort_unstable();
        more.checked_sub(1).map_or(now, |n| ends[n].max(now))
    }

    /// Waits for the first store to end if there are too many.
    fn wait_for_store(&mut self, now: u64) -> Wait {
        let stores = || self.pending.iter().filter(|p| p.value.is_none());
        if stores().count() as u64 <= self.keys.stores {
            return Wait::default();
        }
        let first = stores().map(|p| p.done).min().unwrap_or(now);
        self.wait(now, |p| p.value.is_none() && p.done == first)
    }
}

#[cfg(test)]
mod tests;
