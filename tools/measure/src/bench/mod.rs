//! Benchmarks: what operations of the kernel cost, in exact counts.
//!
//! ```text
//! program bench, windows around operations ─▶ plugin of each machine ─▶ rows ─▶ report
//! ```
//!
//! The program and the plugin share the numbers of [`dyad_abi::marker::BenchOp`]; what is counted
//! is described there and in `sim-plugin`.

mod cycles;
pub mod faults;
pub mod kv;
pub mod longest;
pub mod migration;
mod page;
pub mod pages;
mod peers;
pub mod process;
mod quiescence;
mod report;
mod results;
pub mod sim;
pub mod stages;

pub use cycles::{Cycles, Taken};
pub use peers::{Goal, Peers, peers};
pub use quiescence::{DEFAULT_POOLS, Latencies, Latency, QUIESCENCE_APP, quiescence};
pub use report::{BenchReport, BenchRun, SCHEMA};
pub use results::{Counts, Key, MIN_SAMPLES, PLUGIN_SCHEMA, Results, Row, Spread};

use dyad_abi::Isa;
use dyad_abi::service::Grant;

use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{self, RunReport, Sink};

names! {
    "measurement": migration::Group;
    "level": sim::Level;
    "group of runs": kv::Group;
    "way of keeping caches coherent": kv::Caches;
}

/// The program that performs the operations.
pub const BENCH_APP: &str = "bench";

/// What is measured of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct OfKernel {
    /// How often each operation is performed on each node.
    pub repetitions: u64,
    /// Whether the kernels have fast paths.
    pub fastpaths: bool,
}

/// Measures the kernel on systems with these nodes, one after the other.
///
/// # Errors
///
/// If a run could not be made, or was interrupted. Runs that fail otherwise, and rows that are
/// missing, are in the report.
pub fn kernel(
    systems: &[Vec<Isa>],
    what: OfKernel,
    sink: &mut dyn Sink,
) -> Result<BenchReport, Error> {
    let mut bench = BenchReport::default();
    for nodes in systems {
        let config = RunConfig {
            sim: Sim::Count,
            windows: true,
            ..of_kernel(nodes, what)
        };
        let report = made(&config, sink)?;
        bench.runs.push(BenchRun {
            nodes: nodes.clone(),
            logs: report.dir.clone(),
        });
        let collected = collect(&report, &mut bench.results)
            .and_then(|()| stretches(&report, &mut bench.longest));
        let longest = RunConfig {
            fastpaths: what.fastpaths,
            ..longest::of_operations(nodes, true)
        };
        let report = made(&longest, sink)?;
        if let Err(why) = collected.and_then(|()| stretches(&report, &mut bench.longest)) {
            let nodes: Vec<&str> = nodes.iter().map(|isa| isa.name()).collect();
            bench.failure = Some(format!("nodes {}: {why}", nodes.join(",")));
            break;
        }
    }
    let used: Vec<Isa> = Isa::ALL
        .into_iter()
        .filter(|isa| systems.iter().any(|nodes| nodes.contains(isa)))
        .collect();
    if bench.failure.is_none() {
        bench.failure = bench.results.control(&used).err();
    }
    bench.missing = bench.results.missing(&used);
    if bench.failure.is_none() {
        bench.failure = bench.longest.too_long().into_iter().next();
    }
    Ok(bench)
}

/// Simulates the time that operations take, on systems with these nodes, one after the other.
///
/// # Errors
///
/// If a run could not be made, was interrupted, or failed.
pub fn kernel_cycles(
    systems: &[Vec<Isa>],
    what: OfKernel,
    sink: &mut dyn Sink,
) -> Result<Cycles, Error> {
    let mut cycles = Cycles::default();
    for nodes in systems {
        let config = RunConfig {
            sim: Sim::Timing,
            ..of_kernel(nodes, what)
        };
        let report = made(&config, sink)?;
        match (report.failure(), &report.simulation) {
            (Some(why), _) => return Err(Error::Run(why)),
            (None, None) => return Err(Error::Run("nothing was simulated".into())),
            (None, Some(outcome)) => cycles.add(outcome),
        }
    }
    Ok(cycles)
}

/// A run of the program.
fn of_kernel(nodes: &[Isa], what: OfKernel) -> RunConfig {
    let repetitions = what.repetitions;
    RunConfig {
        nodes: nodes.to_vec(),
        fastpaths: what.fastpaths,
        work: Work::App {
            app: BENCH_APP.into(),
            args: format!("--what kernel --repetitions {repetitions}"),
        },
        grant: Grant::All,
        ..RunConfig::default()
    }
}

/// Makes a run. An error if there was none worth the name.
fn made(config: &RunConfig, sink: &mut dyn Sink) -> Result<RunReport, Error> {
    let report = launch::run(config, sink);
    match report.error {
        Some(e @ (Error::Usage(_) | Error::Setup(_) | Error::Build(_) | Error::Interrupted)) => {
            Err(e)
        }
        _ => Ok(report),
    }
}

/// Takes the stretches that the plugins of a run have counted.
fn stretches(report: &RunReport, longest: &mut longest::Longest) -> Result<(), String> {
    if let Some(why) = report.failure() {
        return Err(why);
    }
    let reports = report.nodes.iter().filter_map(|node| node.sim.as_ref());
    reports.into_iter().try_for_each(|sim| longest.add(sim))
}

/// Takes what the plugins of a run have counted.
fn collect(report: &RunReport, results: &mut Results) -> Result<(), String> {
    if let Some(why) = report.failure() {
        return Err(why);
    }
    for node in &report.nodes {
        let sim = node.sim.as_ref();
        let sim =
            sim.ok_or_else(|| format!("node {} has left no report of its plugin", node.id))?;
        results
            .add(sim)
            .map_err(|e| format!("node {}: {e}", node.id))?;
    }
    Ok(())
}
