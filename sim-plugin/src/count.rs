// SPDX-License-Identifier: GPL-2.0-or-later
//! Level `count`: executed instructions per CPU and half of the address space, and windows if
//! asked for.

use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

use dyad_abi::marker::Marker;

use crate::ffi::{Access, Block, Counter, Emulator, Level, Score};
use crate::observe::Observer;
use crate::options::{self, Options, Unit};
use crate::report::{CpuCount, Report};

struct Count {
    options: Options,
    emulator: Emulator,
    lower: Counter,
    upper: Counter,
    windows: Option<Observer>,
    /// Opened at the start, so that a path that cannot be written stops the run before it begins.
    out: Mutex<Option<File>>,
}

/// Reads the options and sets the level up.
///
/// # Errors
///
/// A sentence for the user.
pub fn install(emulator: Emulator, args: &[&str]) -> Result<Box<dyn Level>, String> {
    let options = Options::parse(args.iter().copied())?;
    let options::Level::Count = options.level;
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
        out: Mutex::new(Some(file)),
    }))
}

impl Level for Count {
    fn translated(&self, block: &Block) {
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

    fn access(&self, cpu: u32, access: &Access) {
        if let Some(windows) = &self.windows {
            windows.access(cpu, access);
        }
    }

    fn ended(&self) {
        let cpus = self.lower.values().into_iter().zip(self.upper.values());
        let report = Report {
            target: self.emulator.target.clone(),
            node: self.options.node,
            unit: self.options.unit,
            plugin_api: self.emulator.api,
            cpus: cpus
                .map(|(lower, upper)| CpuCount { lower, upper })
                .collect(),
            windows: self.windows.as_ref().map(Observer::samples),
        };
        // Written once, even if QEMU should call twice.
        let file = self.out.lock().ok().and_then(|mut out| out.take());
        if let Some(mut file) = file
            && let Err(e) = file.write_all(report.to_json().as_bytes())
        {
            eprintln!("dyad-sim: cannot write {}: {e}", self.options.out.display());
        }
    }
}
