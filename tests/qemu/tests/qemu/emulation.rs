//! Threads that are moved wherever they are: the program `emulation` is stopped while it computes,
//! interpreted on the other ISA and native from there on; or refused, and native where it was.

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
    ]
}

/// Trips of a run: each is stopped at another instruction.
const TRIPS: u64 = 12;

fn moves(nodes: &[Isa], cpus: usize) -> Result<(), Failed> {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        work: Work::App {
            app: "emulation".into(),
            args: format!("--trips {TRIPS}"),
        },
        timeout: Some(Duration::from_secs(180)),
        ..RunConfig::default()
    };
    let mut kept = Kept::new(|_| {});
    let report = launch::run(&config, &mut kept);
    let text = kept.text(&report);
    let because = |why: String| Err(format!("{why}\n\nconsole:\n{text}").into());
    if let Some(why) = report.failure() {
        return because(why);
    }
    for name in ["emulation.moved", "emulation.result", "emulation.refused"] {
        if !report.checks.iter().any(|c| c.ok && c.name == name) {
            return because(format!("there is no check {name}"));
        }
    }
    let steps = report.counters.get("emulation.steps").copied();
    match steps {
        Some(steps) if steps > TRIPS * 1000 => Ok(()),
        other => because(format!("{other:?} instructions interpreted")),
    }
}
