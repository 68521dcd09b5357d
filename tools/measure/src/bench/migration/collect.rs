//! What programs and simulators have reported, run by run.

use std::collections::BTreeMap;

use dyad_abi::Isa;
use dyad_abi::marker::{BENCH_OPS, BenchMemory, WindowId};
use dyad_sim_model::report::{MachineReport, WindowReport};
use serde::Deserialize;

use super::rows::Key;
use dyad_launcher::config::Sim;
use dyad_launcher::launch::RunReport;
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
    /// Or those of an operation whose parts kernels mark, in order.
    pub parts: Vec<WindowReport>,
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

/// What is in a window, all passes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Instructions.
    pub instructions: u64,
    /// Passes without an interrupt, and with one.
    pub passes: [u64; 2],
}

/// Everything that was reported.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By operation.
    pub ops: BTreeMap<Key, Reported>,
    /// Kernels that have run without a migration, as tasks and as threads that could have made one.
    pub costs: BTreeMap<Key, [Ran; 2]>,
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
        let (mut slots, mut kernel) = (Vec::new(), Vec::new());
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
            match what {
                "slot" => slots.push((key.clone(), value)),
                "kernel_op" => kernel.push((key.clone(), value, isa)),
                "kernel_op_away" => kernel.push((key.clone(), value, isa.other())),
                _ => {}
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
            Measure::Instructions => self.windows(report, &slots, &kernel)?,
            Measure::Simulated if self.config.is_none() => {
                self.config = report.simulation.as_ref().map(|s| s.config.clone());
            }
            Measure::Simulated | Measure::Host => {}
        }
        Ok(())
    }

    /// Finds windows by the slots that programs have used, and by the numbers of operations that the kernels
    /// mark. The even parts of such an operation are on the ISA where it begins.
    fn windows(
        &mut self,
        report: &RunReport,
        slots: &[(Key, u64)],
        kernel: &[(Key, u64, Isa)],
    ) -> Result<(), String> {
        let all = windows(report)?;
        for (key, slot) in slots {
            let window = |side: u64| -> Result<Option<WindowReport>, String> {
                let id = u16::try_from(u64::from(WindowId::FREE) + 2 * slot + side)
                    .map_err(|_| format!("{key} has slot {slot}"))?;
                let mut on = Isa::ALL.into_iter().filter_map(|isa| all.get(&(id, isa)));
                match (on.next(), on.next()) {
                    (Some(_), Some(_)) => Err(format!("window {id} was open on two nodes")),
                    (window, _) => Ok(window.cloned()),
                }
            };
            let sides = Sides {
                home: window(0)?,
                away: window(1)?,
            };
            if sides == Sides::default() {
                return Err(format!("{key} has no window"));
            }
            self.ops.entry(key.clone()).or_default().windows = sides;
        }
        for (key, number, begins) in kernel {
            let op = BENCH_OPS.iter().find(|op| **op as u64 == *number);
            let op = op.ok_or_else(|| format!("{key} is of no operation {number}"))?;
            let parts = (0..3).map(|part| {
                let isa = if part % 2 == 0 {
                    *begins
                } else {
                    begins.other()
                };
                all.get(&(op.part(BenchMemory::Fused, part).0, isa))
                    .cloned()
            });
            let parts: Option<Vec<WindowReport>> = parts.collect();
            let parts = parts.ok_or_else(|| format!("{key} lacks a part"))?;
            self.ops.entry(key.clone()).or_default().parts = parts;
        }
        Ok(())
    }
}

/// All windows that were open, by the ISA of the machine.
fn windows(report: &RunReport) -> Result<BTreeMap<(u16, Isa), WindowReport>, String> {
    let mut all = BTreeMap::new();
    for (node, isa) in report.nodes.iter().zip(&report.config.nodes) {
        let none = || format!("node {} has left no report of its plugin", node.id);
        let machine = node.sim.as_ref().ok_or_else(none)?;
        let machine =
            MachineReport::deserialize(machine).map_err(|e| format!("node {}: {e}", node.id))?;
        for window in machine.windows.into_iter().flatten() {
            all.insert((window.id, *isa), window);
        }
    }
    Ok(all)
}

impl Ran {
    /// What a run has left in a window, which was open on the one ISA only.
    ///
    /// # Errors
    ///
    /// Why the run is of no use.
    pub fn of(report: &RunReport, window: u16, isa: Isa) -> Result<Ran, String> {
        if let Some(why) = report.failure() {
            return Err(why);
        }
        let mut all = windows(report)?;
        let found = all.remove(&(window, isa)).filter(|w| w.total > 0);
        let found = found.ok_or_else(|| format!("there is no window {window} on {isa}"))?;
        match all.contains_key(&(window, isa.other())) {
            true => Err(format!("window {window} was open on both ISAs")),
            false => Ok(Ran {
                instructions: found.total,
                passes: [found.n, found.interrupted],
            }),
        }
    }
}
