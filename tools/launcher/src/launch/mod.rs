//! Running a system: from a checked description to a report.
//!
//! ```text
//! build ─▶ pools, broker, boot files ─▶ start machines ─▶ supervise ─▶ report
//! ```
//!
//! [`run`] does all of it and always returns a report. What happens meanwhile goes to a [`Sink`],
//! which prints it ([`crate::display::Display`]), drops it ([`Quiet`]) or does what a test wants.
//!
//! Nothing is left behind in any case: machines die with the thread that called [`run`] (and are
//! killed when it returns early), pools have no names, the doorbell socket is an abstract one.
//! What stays are the logs in the run's directory.

mod dir;
mod node;
mod prepare;
mod report;
mod supervise;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dyad_abi::Isa;
use dyad_abi::record::EXIT_OK;
use dyad_abi::service::peer::Kernels;
use dyad_sim_model::config::Level;

use crate::build::Said;
use crate::config::RunConfig;
use crate::console::Line;
use crate::error::Error;
use crate::sim::outcome::machine_report;

pub use crate::config::{TestOptions, Work};
pub use dir::{new_run_dir, trace_file};
pub use report::{Beside, Check, HostMs, KtestResult, NodeReport, RunReport, SCHEMA, unusable};

impl<'a> From<Said<'a>> for Event<'a> {
    fn from(said: Said<'a>) -> Event<'a> {
        match said {
            Said::Step(text) => Event::Progress(text),
            Said::Warning(text) => Event::Note(text),
        }
    }
}

/// Something that happens during a run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// What the launcher is about to do, for people who wait.
    Progress(&'a str),
    /// What the system is doing, in a few words; replaces the last such text.
    Status(&'a str),
    /// Detail about the launcher's work.
    Detail(&'a str),
    /// Something people should know.
    Note(&'a str),
    /// A machine has been started, with this process.
    Started {
        /// Node.
        node: usize,
        /// ISA.
        isa: Isa,
        /// Process.
        pid: u32,
    },
    /// A line of a console; addresses in it have been given names.
    Line {
        /// Node.
        node: usize,
        /// ISA.
        isa: Isa,
        /// Host time since the machines were started.
        host: Duration,
        /// The line.
        line: &'a Line,
    },
    /// What an emulator says.
    Emulator {
        /// Node.
        node: usize,
        /// ISA.
        isa: Isa,
        /// Host time since the machines were started.
        host: Duration,
        /// Its words.
        text: &'a str,
    },
    /// A backtrace with names.
    Backtrace {
        /// Node.
        node: usize,
        /// ISA.
        isa: Isa,
        /// CPU and what was traced.
        title: &'a str,
        /// Its lines.
        lines: &'a [String],
    },
}

/// Gets the events of a run.
pub trait Sink {
    /// An event.
    fn event(&mut self, event: Event<'_>);
}

/// A sink that drops everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Sink for Quiet {
    fn event(&mut self, _: Event<'_>) {}
}

/// Runs a system. See the module's description; failures of any kind are in the report.
pub fn run(config: &RunConfig, sink: &mut dyn Sink) -> RunReport {
    run_in(config, None, sink)
}

/// As [`run`], with the logs in this directory.
pub fn run_in(config: &RunConfig, dir: Option<PathBuf>, sink: &mut dyn Sink) -> RunReport {
    let start = Instant::now();
    let dir = match dir.map_or_else(|| new_run_dir(""), |d| dir::make_dir(&d).map(|()| d)) {
        Ok(dir) => dir,
        Err(e) => {
            let mut report = RunReport::new(config, PathBuf::new());
            report.error = Some(e);
            return report;
        }
    };
    let mut report = RunReport::new(config, dir);
    if let Err(e) = run_steps(config, start, &mut report, sink) {
        report.error.get_or_insert(e);
    }
    report
}

/// Builds what a run needs, without running it.
///
/// # Errors
///
/// If something does not build, or the program does not exist.
pub fn build(config: &RunConfig, sink: &mut dyn Sink) -> Result<(), Error> {
    prepare::build(config, sink).map(drop)
}

fn run_steps(
    config: &RunConfig,
    start: Instant,
    report: &mut RunReport,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    let built = prepare::build(config, sink);
    report.host_ms.build = start.elapsed().as_millis() as u64;
    let system = prepare::System::new(config, built?, report, sink)?;
    supervise::Supervisor::new(config, system, report, sink).run()
}

/// Puts the reports of the plugins together and adds what they say about the simulation itself to
/// the checks.
fn judge(report: &mut RunReport, kernels: Kernels, program: &str) {
    let Some(outcome) = &mut report.simulation else {
        return;
    };
    let mut machines = Vec::new();
    for node in &report.nodes {
        let machine = node.sim.as_ref().map_or(Ok(None), machine_report);
        let lost = match &machine {
            Err(why) => Some(why.clone()),
            // One that was killed could not write anything.
            Ok(None) if node.sim.is_none() && node.exit == Some(EXIT_OK) => {
                Some("the plugin has left no report".into())
            }
            Ok(_) => None,
        };
        if let Some(detail) = lost {
            report.checks.push(Check {
                name: "sim.report".into(),
                ok: false,
                detail,
                node: node.id,
            });
        }
        machines.push(machine.unwrap_or_default());
    }
    let is_group = kernels == Kernels::Multiple;
    let images: Vec<[PathBuf; 2]> = (report.nodes.iter())
        .map(|node| {
            let program = format!("{program}.{}.elf", node.isa);
            [format!("kernel-{}", node.isa), program].map(|name| report.dir.join(name))
        })
        .collect();
    let mut verdicts = outcome.take(&machines);
    if is_group && outcome.config.level >= Level::Cache {
        verdicts.extend(outcome.separation(&machines));
    }
    for verdict in verdicts
        .into_iter()
        .chain(outcome.sanitize(&machines, &images))
    {
        report.checks.push(Check {
            name: verdict.name.into(),
            ok: verdict.ok,
            detail: verdict.detail,
            node: verdict.node,
        });
    }
}
