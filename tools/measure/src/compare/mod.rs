//! `cargo xtask bench compare`: the same program over kernels that share everything, over kernels that only exchange messages,
//! and without moves.
//!
//! ```text
//!  kernels of NPB x systems x memory models ─▶ runs of a sweep ─▶ table of the runs ─▶ figures, picture, page
//!                                 bench faults ─▶ F, what a fault costs ─▶ ┘
//! ```
//!
//! Each point is a run in strict order with simulated time, so it repeats to the cycle. Runs are those of a sweep: their
//! table can be gone on with, and a run that is there is not made again.

mod page;
mod picture;
mod results;

use dyad_abi::service::peer::{Kernels, Transport};
use dyad_launcher::config::{Named, OrderName, RunConfig, Settings, Sim};
use dyad_launcher::error::Error;
use dyad_sim_model::config::MemoryModel;

use crate::npb::{Bench, Class};
use crate::sweep::Planned;
pub use results::{Figures, Outcome, Results};

/// What things cost unless told otherwise: as measurements of hardware say, not as papers charge.
pub const PROFILE: &str = "cxl";
/// Bound on a run, in seconds, unless told otherwise.
pub const DEFAULT_TIMEOUT: u64 = 2 * 3600;

/// A system that runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// The program stays on its node: what it takes without other nodes.
    Vanilla,
    /// Kernels that exchange messages over a network.
    Tcp,
    /// Kernels that exchange messages through rings in memory, of which doorbells tell.
    Ring,
    /// The same, but idle nodes look for messages.
    Poll,
    /// Kernels and program share memory.
    Fused,
}

impl System {
    /// All systems.
    pub const ALL: [System; 5] = [
        System::Vanilla,
        System::Tcp,
        System::Ring,
        System::Poll,
        System::Fused,
    ];
    /// Those that are compared unless told otherwise.
    pub const USUAL: [System; 4] = [System::Vanilla, System::Tcp, System::Ring, System::Fused];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            System::Vanilla => "vanilla",
            System::Tcp => "tcp",
            System::Ring => "ring",
            System::Poll => "poll",
            System::Fused => "fused",
        }
    }

    /// How its kernels work together.
    pub const fn kernels(self) -> Kernels {
        match self.transport() {
            Some(_) => Kernels::Multiple,
            None => Kernels::Fused,
        }
    }

    /// How messages travel, if there are any.
    pub const fn transport(self) -> Option<Transport> {
        match self {
            System::Vanilla | System::Fused => None,
            System::Tcp => Some(Transport::Tcp),
            System::Ring => Some(Transport::Ring),
            System::Poll => Some(Transport::Poll),
        }
    }
}

/// Where the phases of the program run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each iteration on the other node than the one before.
    Alternate,
    /// All iterations away; the thread comes home between two of them.
    Offload,
    /// Each phase on the other node than the one before.
    Phases,
}

impl Placement {
    /// All of them.
    pub const ALL: [Placement; 3] = [Placement::Alternate, Placement::Offload, Placement::Phases];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Alternate => "alternate",
            Placement::Offload => "offload",
            Placement::Phases => "phases",
        }
    }
}

names! {
    "system": System;
    "placement": Placement;
}

/// What is compared.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Kernels of NPB.
    pub benches: Vec<Bench>,
    /// Their size.
    pub class: Class,
    /// Where they run.
    pub place: Placement,
    /// Systems.
    pub systems: Vec<System>,
    /// Memory models.
    pub models: Vec<MemoryModel>,
}

/// A run of a kernel on a system in a memory model.
pub struct Point {
    /// The kernel.
    pub bench: Bench,
    /// The system.
    pub system: System,
    /// The memory model.
    pub model: MemoryModel,
    /// The run.
    pub planned: Planned,
}

impl Matrix {
    /// All points, kernel by kernel, and for each the models one after the other.
    ///
    /// # Errors
    ///
    /// If settings of a run are wrong.
    pub fn points(
        &self,
        base: &Settings,
        finish: impl Fn(&Settings) -> Result<RunConfig, Error>,
    ) -> Result<Vec<Point>, Error> {
        let mut points = Vec::new();
        for &bench in &self.benches {
            for &model in &self.models {
                for &system in &self.systems {
                    let settings = self.settings(base, bench, system, model);
                    let varied = format!("{}, {}, {}", bench.name(), model.name(), system.name());
                    let config = finish(&settings)
                        .map_err(|e| Error::Usage(format!("with {varied}: {e}")))?;
                    points.push(Point {
                        bench,
                        system,
                        model,
                        planned: Planned::new(varied, 1, config),
                    });
                }
            }
        }
        Ok(points)
    }

    fn settings(
        &self,
        base: &Settings,
        bench: Bench,
        system: System,
        model: MemoryModel,
    ) -> Settings {
        let mut args = vec!["--bench", bench.name(), "--style", "thread"];
        match system {
            System::Vanilla => args.extend(["--hop", "off"]),
            _ => args.extend(["--place", self.place.name()]),
        }
        if bench == Bench::Is {
            args.extend(["--buckets", "on"]);
        }
        Settings {
            class: Some(self.class.name().into()),
            args: args.into_iter().map(str::to_owned).collect(),
            kernels: Some(Named(system.kernels())),
            transport: system.transport().map(Named),
            model: Some(Named(model)),
            sim: Some(Named(Sim::Timing)),
            order: Some(Named(OrderName::Strict)),
            ..base.clone()
        }
    }
}

/// The runs of the points.
pub fn runs(points: &[Point]) -> Vec<Planned> {
    let again = |Point { planned, .. }: &Point| {
        Planned::new(planned.varied.clone(), 1, planned.config.clone())
    };
    points.iter().map(again).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_launcher::config::Work;

    #[test]
    fn every_system_runs_every_kernel_in_every_model() {
        let matrix = Matrix {
            benches: vec![Bench::Is, Bench::Cg],
            class: Class::S,
            place: Placement::Alternate,
            systems: System::USUAL.to_vec(),
            models: MemoryModel::PAPER.to_vec(),
        };
        let points = matrix.points(&Settings::default(), Settings::resolve);
        let points = points.unwrap();
        assert_eq!(points.len(), 2 * 4 * 3);
        let args = |n: usize| match &points[n].planned.config.work {
            Work::App { args, .. } => args.clone(),
            Work::Ktest(_) => String::new(),
        };
        let is = "--class S --bench is --style thread --hop off --buckets on";
        assert_eq!((points[0].system, args(0).as_str()), (System::Vanilla, is));
        let cg = "--class S --bench cg --style thread --place alternate";
        assert_eq!((points[13].system, args(13).as_str()), (System::Tcp, cg));
        let config = &points[13].planned.config;
        assert_eq!(
            (config.kernels, config.transport),
            (Kernels::Multiple, Transport::Tcp)
        );
        let names: Vec<&str> = points.iter().map(|p| p.planned.fingerprint()).collect();
        assert!((1..names.len()).all(|n| !names[..n].contains(&names[n])));
    }
}
