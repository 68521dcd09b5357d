//! Threads that are moved wherever they are: the programs `emulation` (a task) and `drift` (plain threads)
//! are stopped while they compute, interpreted on the other ISA and native from there on; or refused, and
//! native where they were.
//!
//! With `DYAD_LONG=1` the first thread of `drift` is moved ten thousand times.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use libtest_mimic::{Failed, Trial};
use xtask::config::{RunConfig, Work};
use xtask::launch;

use crate::console::Kept;

/// All of them.
pub fn trials() -> Vec<Trial> {
    let test = |name: &str, nodes: &'static [Isa], cpus: usize| {
        let name = format!("emulation::{name}");
        Trial::test(name, move || moves(nodes, cpus)).with_kind("system")
    };
    vec![
        test("moves_threads_that_compute", &[X86_64, Aarch64], 1),
        test(
            "moves_threads_that_compute_in_reversed_order",
            &[Aarch64, X86_64],
            1,
        ),
        test(
            "moves_threads_from_any_cpu_of_three_nodes",
            &[X86_64, Aarch64, X86_64],
            2,
        ),
        drifts("moves_plain_threads", &[X86_64, Aarch64], 1),
        drifts(
            "moves_plain_threads_from_any_cpu_of_three_nodes",
            &[Aarch64, X86_64, Aarch64],
            2,
        ),
    ]
}

/// Runs of `drift`.
fn drifts(name: &str, nodes: &'static [Isa], cpus: usize) -> Trial {
    let name = format!("emulation::{name}");
    Trial::test(name, move || drift(nodes, cpus)).with_kind("system")
}

/// Trips of a run: each is stopped at another instruction.
const TRIPS: u64 = 12;

fn moves(nodes: &[Isa], cpus: usize) -> Result<(), Failed> {
    let checks = ["emulation.moved", "emulation.result", "emulation.refused"];
    let args = format!("--trips {TRIPS}");
    run((nodes, cpus), "emulation", &args, &checks, TRIPS * 1000)
}

fn drift(nodes: &[Isa], cpus: usize) -> Result<(), Failed> {
    let trips = match std::env::var_os("DYAD_LONG") {
        Some(_) => 10_000,
        None => 60,
    };
    let checks = [
        "drift.moved",
        "drift.intact",
        "drift.refused",
        "drift.threads",
    ];
    let args = format!("--trips {trips} --threads 4 --thread-trips 6");
    run((nodes, cpus), "drift", &args, &checks, trips * 100)
}

/// A run of a program, which has to pass its checks and to have at least so many instructions
/// interpreted.
fn run(
    (nodes, cpus): (&[Isa], usize),
    app: &str,
    args: &str,
    checks: &[&str],
    least: u64,
) -> Result<(), Failed> {
    let limit = match std::env::var_os("DYAD_LONG") {
        Some(_) => 1800,
        None => 180,
    };
    let config = RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        work: Work::App {
            app: app.into(),
            args: args.into(),
        },
        timeout: Some(Duration::from_secs(limit)),
        ..RunConfig::default()
    };
    let mut kept = Kept::new(|_| {});
    let report = launch::run(&config, &mut kept);
    let text = kept.text(&report);
    let because = |why: String| Err(format!("{why}\n\nconsole:\n{text}").into());
    if let Some(why) = report.failure() {
        return because(why);
    }
    for name in checks {
        if !report.checks.iter().any(|c| c.ok && c.name == *name) {
            return because(format!("there is no check {name}"));
        }
    }
    let steps = report.counters.get(&format!("{app}.steps")).copied();
    match steps {
        Some(steps) if steps > least => Ok(()),
        other => because(format!("{other:?} instructions interpreted")),
    }
}
