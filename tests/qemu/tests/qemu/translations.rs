//! What the simulator remembers of translations, compared with the emulator's own at every access:
//! programs that migrate between address spaces, and in-kernel tests that map, unmap, protect and switch
//! roots, in user mode and in the kernel, on both ISAs.

use std::time::Duration;

use dyad_launcher::config::{RunConfig, Sim, TestOptions, Work};
use dyad_launcher::sim::outcome::machine_report;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::times;

/// Accesses to remembered pages that a run must at least have made on each node.
const ENOUGH: u64 = 100_000;

/// All of them; `names` are those of the in-kernel tests.
pub fn trials(names: &[String]) -> Vec<Trial> {
    let about_memory = |name: &&String| {
        [
            "space",
            "map",
            "memory",
            "tlb",
            "fault",
            "frame",
            "window",
            "shootdown",
        ]
        .iter()
        .any(|part| name.contains(part))
    };
    let kernel: Vec<String> = names.iter().filter(about_memory).cloned().collect();
    let program = console::app("hop", "");
    let test = |tiers, name: &str, work: Work| {
        times::test(tiers, format!("translations::{name}"), move || {
            compare(work)
        })
    };
    vec![
        test(Tiers::FULL, "of_programs_are_the_emulators", program),
        test(
            Tiers::FULL,
            "of_kernel_tests_are_the_emulators",
            Work::Ktest(kernel),
        ),
    ]
}

fn compare(work: Work) -> Result<(), Failed> {
    let config = RunConfig {
        work,
        sim: Sim::Cache,
        test: TestOptions {
            check_translations: true,
            ..TestOptions::default()
        },
        timeout: Some(Duration::from_secs(300)),
        mem_local: 64 << 20,
        mem_cxl: 128 << 20,
        ..RunConfig::default()
    };
    let (report, _) = console::good(&config)?;
    for node in &report.nodes {
        let machine = match node.sim.as_ref().map(machine_report) {
            Some(Ok(Some(machine))) => machine,
            other => return Err(format!("node {} has left no report: {other:?}", node.id).into()),
        };
        for cpu in &machine.cpus {
            let (checked, wrong) = (cpu.translations_checked, cpu.translations_wrong);
            if checked < ENOUGH || wrong != 0 {
                return Err(format!(
                    "{}: {wrong} of {checked} translations are wrong",
                    machine.target
                )
                .into());
            }
        }
    }
    Ok(())
}
