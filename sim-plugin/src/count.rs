// SPDX-License-Identifier: GPL-2.0-or-later
//! What every level does: executed instructions per CPU and half of the address space, windows if
//! asked for, the report. Levels beyond `count` add [`crate::cached`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

use dyad_abi::Isa;
use dyad_abi::marker::Marker;
use dyad_sim_model::config::Level as SimLevel;
use dyad_sim_model::report::{CpuReport, MachineReport, SCHEMA};

use crate::cached::Setup;
use crate::clock::{self, Clock, ClockOptions};
use crate::ffi::{Access, Block, Counter, Emulator, Level, Score};
use crate::observe::Observer;
use crate::options::{Options, Unit};
use crate::report;

struct Count {
    options: Options,
    emulator: Emulator,
    lower: Counter,
    upper: Counter,
    windows: Option<Observer>,
    cached: Option<&'static Setup>,
    /// Opened at the start, so that a path that cannot be written stops the run before it begins.
    out: Mutex<Option<File>>,
}

/// Reads the options and sets the level up.
///
/// # Errors
///
/// A sentence for the user.
pub fn install(emulator: Emulator, args: &[&str]) -> Result<Box<dyn Level>, String> {
    let (clock, args) = ClockOptions::split(args)?;
    let options = Options::parse(args)?;
    if let Some(clock) = clock {
        clock::install(&clock, &options, &emulator)?;
    }
    let isa = Isa::parse(&emulator.target);
    let cached = match (options.level, isa) {
        (SimLevel::Count, _) => None,
        (_, None) => return Err(format!("there is no model for {:?}", emulator.target)),
        (_, Some(isa)) => Some(crate::cached::install(Setup::new(isa, &options)?)?),
    };
    let windows = match options.windows {
        true => Some(Observer::new(&emulator, options.sites)?),
        false => None,
    };
    let file = File::create(&options.out)
        .map_err(|e| format!("cannot write {}: {e}", options.out.display()))?;
    Ok(Box::new(Count {
        options,
        emulator,
        lower: Score::lower(),
        upper: Score::upper(),
        windows,
        cached,
        out: Mutex::new(Some(file)),
    }))
}

impl Level for Count {
    fn translated(&self, block: &Block) {
        if let Some(clock) = clock::get() {
            clock.translated(block);
        }
        let counter = if block.address() >> 63 == 0 {
            self.lower
        } else {
            self.upper
        };
        match self.options.unit {
            Unit::Block => block.add_on_entry(counter, block.instructions() as u64),
            Unit::Instruction => block.add_per_instruction(counter),
        }
        if let Some(windows) = &self.windows {
            windows.translated(block);
        }
        if let Some(cached) = self.cached {
            cached.translated(block);
        }
    }

    fn marker(&self, cpu: u32, marker: Marker) {
        if let Some(windows) = &self.windows {
            windows.marker(cpu, marker);
        }
    }

    fn executes(&self, cpu: u32, at: u64) {
        if let Some(windows) = &self.windows {
            windows.executes(cpu, at);
        }
    }

    fn enters_kernel(&self, cpu: u32, at: u64) {
        if let Some(windows) = &self.windows {
            windows.enters_kernel(cpu, at);
        }
    }

    fn leaves_kernel(&self, cpu: u32) {
        if let Some(windows) = &self.windows {
            windows.leaves_kernel(cpu);
        }
    }

    fn system_call(&self, cpu: u32) {
        if let Some(windows) = &self.windows {
            windows.system_call(cpu);
        }
    }

    fn halts(&self, cpu: u32) {
        if let Some(windows) = &self.windows {
            windows.halts(cpu);
        }
    }

    fn access(&self, cpu: u32, access: &Access) {
        if let Some(windows) = &self.windows {
            windows.access(cpu, access);
        }
    }

    fn ended(&self) {
        if let Some(clock) = clock::get() {
            clock.ended();
        }
        if let Some(cached) = self.cached {
            cached.finish();
        }
        let report = self.report();
        // Written once, even if QEMU should call twice.
        let file = self.out.lock().ok().and_then(|mut out| out.take());
        if let Some(mut file) = file {
            let written = serde_json::to_string(&report)
                .map_err(std::io::Error::from)
                .and_then(|text| writeln!(file, "{text}"));
            if let Err(e) = written {
                eprintln!("dyad-sim: cannot write {}: {e}", self.options.out.display());
            }
        }
    }
}

impl Count {
    fn report(&self) -> MachineReport {
        let halves = self.lower.values().into_iter().zip(self.upper.values());
        let cpus: Vec<CpuReport> = halves
            .enumerate()
            .map(|(cpu, (lower, upper))| self.cpu(cpu as u32, lower, upper))
            .collect();
        let samples = self.windows.as_ref().map(Observer::samples);
        MachineReport {
            schema: SCHEMA.into(),
            target: self.emulator.target.clone(),
            node: self.options.node,
            plugin_api: self.emulator.api,
            level: self.options.level,
            unit: self.options.unit.name().into(),
            instructions: cpus
                .iter()
                .fold(0, |sum, c| sum.wrapping_add(c.counters.instructions)),
            cpus,
            clock: clock::get().map(Clock::report),
            roi: self.cached.map_or_else(BTreeMap::new, Setup::regions),
            windows: samples.as_ref().map(report::windows),
            masked: self
                .windows
                .as_ref()
                .map(|w| report::masked(&w.stretches())),
            abandoned: samples.as_ref().map(|s| s.abandoned),
            unmatched: samples.as_ref().map(|s| s.unmatched),
            sanitizer: self.cached.and_then(Setup::sanitizer),
        }
    }

    fn cpu(&self, cpu: u32, lower: u64, upper: u64) -> CpuReport {
        let counted = self.cached.and_then(|c| c.cpu(cpu)).unwrap_or_default();
        let mut report = CpuReport {
            cpu,
            lower_half: lower,
            upper_half: upper,
            time_ps: counted.breakdown_ps.total(),
            ..counted
        };
        report.counters.instructions = lower.wrapping_add(upper);
        if let Some(clock) = clock::get() {
            clock.report_cpu(&mut report);
        }
        if let Some(awaited) = self.cached.and_then(|c| c.awaited(cpu)) {
            report.breakdown_ps = report.breakdown_ps.of_which_waiting(awaited);
        }
        report
    }
}
