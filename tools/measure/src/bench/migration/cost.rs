//! What being able to migrate costs a program that does not: the kernels of the NAS benchmarks, as tasks
//! and as plain threads, which both stay where they are.
//!
//! The program has its kernels twice, compiled in the same way; only those of threads have migration
//! points, and the spine pass has been over them. Compared are the instructions in the windows around
//! timed phases.

use dyad_abi::Isa;
use dyad_abi::marker::WindowId;

use super::collect::{Measure, Ran};
use super::rows::{COST, Key};
use super::{Measured, Options};
use dyad_launcher::config::{RunConfig, Work};
use dyad_launcher::error::Error;
use dyad_launcher::launch::Sink;

/// The program.
const NPB: &str = "npb";

/// Kernels; the smallest is first, whose loops are the shortest too.
const KERNELS: [&str; 3] = ["mg", "cg", "ft"];
/// How many of them are run if there is less of everything.
const QUICK: usize = 1;

/// As a task, and as a thread.
fn configs(kernel: &str, home: Isa) -> [RunConfig; 2] {
    ["task", "thread"].map(|style| RunConfig {
        work: Work::App {
            app: NPB.into(),
            args: format!("--bench {kernel} --style {style} --class S --hop off --home {home}"),
        },
        sim: Measure::Instructions.sim(),
        windows: true,
        ..RunConfig::default()
    })
}

/// Measures on one ISA.
///
/// # Errors
///
/// If a run could not be made, or was interrupted.
pub(super) fn measure(
    options: &Options,
    home: Isa,
    all: &mut Measured,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    let count = if options.quick { QUICK } else { KERNELS.len() };
    for kernel in &KERNELS[..count] {
        let mut ran = Vec::new();
        for config in configs(kernel, home) {
            let report = crate::bench::made(&config, sink)?;
            all.logs.push(report.dir.clone());
            ran.push(Ran::of(&report, WindowId::FREE, home));
        }
        let ran: Result<Vec<Ran>, String> = ran.into_iter().collect();
        match ran.as_deref() {
            Ok(&[task, thread]) => {
                let op = format!("{COST}{kernel}");
                all.figures
                    .costs
                    .insert(Key { op, isa: home }, [task, thread]);
            }
            Ok(_) => {}
            Err(why) => {
                let why = format!("cost of {kernel} on {home}: {why}");
                all.failures.push(why);
            }
        }
    }
    Ok(())
}
