//! What programs and simulators have reported, run by run.

use std::collections::BTreeMap;

use dyad_abi::Isa;
use dyad_abi::marker::WindowId;
use dyad_sim_model::report::{MachineReport, WindowReport};
use serde::Deserialize;

use super::rows::Key;
use crate::config::Sim;
use crate::launch::RunReport;
use dyad_sim_model::config::SimConfig;

/// What a run is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Instructions, in windows.
    Instructions,
    /// Simulated time.
    Simulated,
    /// The host's time, without simulation.
    Host,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 3] = [Measure::Instructions, Measure::Simulated, Measure::Host];

    /// What it gives, in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Instructions => "instructions",
            Measure::Simulated => "simulated time",
            Measure::Host => "time of the host",
        }
    }

    /// The level of simulation that gives it.
    pub const fn sim(self) -> Sim {
        match self {
            Measure::Instructions => Sim::Count,
            Measure::Simulated => Sim::Timing,
            Measure::Host => Sim::Off,
        }
    }
}

/// The windows of an operation: where it begins, and on the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// Where it begins.
    pub home: Option<WindowReport>,
    /// The other side.
    pub away: Option<WindowReport>,
}

/// What was reported about an operation, from one run of each sort.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    /// Its windows.
    pub windows: Sides,
    /// The program's figures by what they are, and by the sort of run.
    pub figures: BTreeMap<Measure, BTreeMap<String, u64>>,
}

impl Reported {
    /// A figure of a run.
    pub fn figure(&self, measure: Measure, what: &str) -> Option<u64> {
        self.figures.get(&measure)?.get(what).copied()
    }

    /// A figure for one time of what it was reported for so many times.
    pub fn each(&self, measure: Measure, what: &str, times: &str) -> Option<f64> {
        let n = self.figure(measure, times).filter(|n| *n > 0)?;
        Some(self.figure(measure, what)? as f64 / n as f64)
    }
}

/// Everything that was reported.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By operation.
    pub ops: BTreeMap<Key, Reported>,
    /// What was simulated.
    pub config: Option<SimConfig>,
}

impl Figures {
    /// Takes what a run has left.
    ///
    /// # Errors
    ///
    /// Why the run is of no use, or what in it makes no sense.
    pub fn take(&mut self, measure: Measure, report: &RunReport) -> Result<(), String> {
        if let Some(why) = report.failure() {
            return Err(why);
        }
        let mut found = 0;
        let mut slots = Vec::new();
        for (name, &value) in &report.counters {
            let Some(rest) = name.strip_prefix("migration.") else {
                continue;
            };
            let parts: Vec<&str> = rest.split('.').collect();
            let (isa, op, what) = match parts.as_slice() {
                &[isa, op, what] => (Isa::parse(isa), op, what),
                _ => (None, "", ""),
            };
            let isa = isa.ok_or_else(|| format!("the counter {name} makes no sense"))?;
            let key = Key { op: op.into(), isa };
            if what == "slot" {
                slots.push((key.clone(), value));
            }
            let reported = self.ops.entry(key).or_default();
            let figures = reported.figures.entry(measure).or_default();
            figures.insert(what.into(), value);
            found += 1;
        }
        if found == 0 {
            return Err("the program has reported no figure".into());
        }
        match measure {
            Measure::Instructions => self.windows(report, &slots)?,
            Measure::Simulated if self.config.is_none() => {
                self.config = report.simulation.as_ref().map(|s| s.config.clone());
            }
            Measure::Simulated | Measure::Host => {}
        }
        Ok(())
    }

    fn windows(&mut self, report: &RunReport, slots: &[(Key, u64)]) -> Result<(), String> {
        let mut windows: BTreeMap<u16, WindowReport> = BTreeMap::new();
        for node in &report.nodes {
            let none = || format!("node {} has left no report of its plugin", node.id);
            let machine = node.sim.as_ref().ok_or_else(none)?;
            let machine = MachineReport::deserialize(machine)
                .map_err(|e| format!("node {}: {e}", node.id))?;
            for window in machine.windows.into_iter().flatten() {
                if window.id < WindowId::FREE {
                    continue;
                }
                if windows.insert(window.id, window.clone()).is_some() {
                    return Err(format!("window {} was open on two nodes", window.id));
                }
            }
        }
        for (key, slot) in slots {
            let id = |side: u64| u16::try_from(u64::from(WindowId::FREE) + 2 * slot + side);
            let (Ok(home), Ok(away)) = (id(0), id(1)) else {
                return Err(format!("{key} has slot {slot}"));
            };
            let sides = Sides {
                home: windows.get(&home).cloned(),
                away: windows.get(&away).cloned(),
            };
            if sides == Sides::default() {
                return Err(format!("{key} has no window"));
            }
            self.ops.entry(key.clone()).or_default().windows = sides;
        }
        Ok(())
    }
}
