//! What our plugins report about a region of a run.

use dyad_abi::Isa;
use dyad_sim_model::report::{MachineReport, RoiReport};

use crate::bench::sim::region;
use dyad_launcher::error::Error;
use dyad_launcher::launch::RunReport;

/// The report of the node of an ISA.
pub(super) fn machine(report: &RunReport, isa: Isa) -> Result<MachineReport, Error> {
    let node = report.nodes.iter().find(|n| n.isa == isa.name());
    let sim = node.and_then(|n| n.sim.clone());
    let sim = sim.ok_or_else(|| {
        Error::Run(format!(
            "the plugin of the node of {isa} has left no report; logs in {}",
            report.dir.display()
        ))
    })?;
    serde_json::from_value(sim).map_err(|e| Error::Run(format!("report of {isa}: {e}")))
}

/// What was counted in a window there.
pub(super) fn window(report: &RunReport, isa: Isa, id: u16) -> Result<RoiReport, Error> {
    let machine = machine(report, isa)?;
    machine.roi.get(&id).cloned().ok_or_else(|| {
        Error::Run(format!(
            "nothing was counted in window {id:#x} on {isa}; logs in {}",
            report.dir.display()
        ))
    })
}

/// What was counted in the region of an element of the program's list of loads.
pub(super) fn of(report: &RunReport, isa: Isa, place: usize) -> Result<RoiReport, Error> {
    window(report, isa, region(place))
}

/// Steps that the program made in it.
pub(super) fn steps(report: &RunReport, isa: Isa, place: usize, load: &str) -> Result<u64, Error> {
    let name = format!("sim-loads.{place}.{load}.{isa}.steps");
    let steps = report.counters.get(&name).copied();
    steps.ok_or_else(|| Error::Run(format!("the program does not report {name}")))
}
