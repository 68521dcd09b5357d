//! The storm of system calls: quick forms here, long ones with `DYAD_LONG=1`. `DYAD_SEED` gives
//! another seed; every run prints its own.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use libtest_mimic::{Failed, Trial};
use xtask::config::{RunConfig, TestOptions, Work};
use xtask::launch::{self, RunReport};

use crate::console::Kept;

/// Operations of the long form, on each kind of system.
const LONG: u64 = 10_000_000;
/// Seconds of fused time of the quick form.
const QUICK: u64 = 10;

/// All of them.
pub fn trials() -> Vec<Trial> {
    let test = |name: &str, nodes: &'static [Isa], cpus| {
        Trial::test(format!("storm::{name}"), move || storm(nodes, cpus)).with_kind("system")
    };
    vec![
        test("on_the_pair", &[X86_64, Aarch64], 1),
        test("in_reversed_order_with_two_cpus", &[Aarch64, X86_64], 2),
        test("on_three_nodes", &[X86_64, Aarch64, X86_64], 1),
    ]
}

/// Runs the program `storm` in the place of init.
pub fn run(nodes: &[Isa], cpus: usize, args: &str, timeout: u64) -> (RunReport, String) {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        work: Work::App {
            app: "storm".into(),
            args: args.into(),
        },
        timeout: Some(Duration::from_secs(timeout)),
        test: TestOptions {
            bare: true,
            ..TestOptions::default()
        },
        ..RunConfig::default()
    };
    let mut kept = Kept::new(|_| {});
    let report = launch::run(&config, &mut kept);
    let text = kept.text(&report);
    (report, text)
}

fn storm(nodes: &[Isa], cpus: usize) -> Result<(), Failed> {
    let seed = std::env::var("DYAD_SEED").unwrap_or_else(|_| "1".into());
    let (args, timeout) = match std::env::var_os("DYAD_LONG") {
        Some(_) => (format!("--seed {seed} --ops {LONG}"), 1800),
        None => (format!("--seed {seed} --seconds {QUICK}"), 120),
    };
    let (report, text) = run(nodes, cpus, &args, timeout);
    match report.failure() {
        Some(why) => Err(format!("{args}: {why}\n\nconsole:\n{text}").into()),
        None => Ok(()),
    }
}
