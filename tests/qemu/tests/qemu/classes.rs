//! The NAS benchmarks by class and memory model, as tasks and as plain threads: all are verified while
//! they migrate, with the time that the simulator makes of it.
//!
//! All of them in the tier `long`, small ones in the tier `full`.

use std::time::Duration;

use dyad_launcher::config::{RunConfig, Sim};
use dyad_launcher::sim::Setup;
use dyad_sim_model::config::MemoryModel;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::times;

/// Kernel and classes.
const KERNELS: &[(&str, &[&str])] = &[
    ("is", &["S", "W", "A"]),
    ("cg", &["S", "W", "A"]),
    ("mg", &["S", "W"]),
    ("ft", &["S", "W"]),
];

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for &(kernel, classes) in KERNELS {
        for &class in classes {
            for model in MemoryModel::PAPER {
                for thread in [false, true] {
                    let small = match (kernel, thread) {
                        ("mg", true) => model == MemoryModel::FullyShared,
                        ("is", false) => true,
                        ("mg", false) => model == MemoryModel::Shared,
                        _ => model == MemoryModel::Separated && !thread,
                    };
                    let kind = if thread { "thread" } else { "task" };
                    let name = format!("classes::{kernel}_{class}_{}_{kind}", model.name());
                    let tiers = match small && class == "S" {
                        true => Tiers::FULL.and(Tiers::LONG),
                        false => Tiers::LONG,
                    };
                    let test = move || verifies(thread, kernel, class, model);
                    trials.push(times::test(tiers, name, test));
                }
            }
        }
    }
    trials
}

fn verifies(thread: bool, kernel: &str, class: &str, model: MemoryModel) -> Result<(), Failed> {
    let (style, count) = match thread {
        false => ("task", "migrations".into()),
        true => ("thread", format!("{kernel}.moves")),
    };
    let config = RunConfig {
        work: console::app(
            "npb",
            format!("--bench {kernel} --style {style} --class {class}"),
        ),
        sim: Sim::Timing,
        setup: Setup {
            model,
            ..Setup::default()
        },
        timeout: Some(LIMIT),
        ..RunConfig::default()
    };
    let (report, text) = console::run(&config);
    let because = |why: String| Err(format!("{why}\n\nconsole:\n{text}").into());
    if let Some(why) = report.failure() {
        return because(why);
    }
    let verified = format!("{kernel}.verification");
    if !report.checks.iter().any(|c| c.ok && c.name == verified) {
        return because(format!("there is no check {verified}"));
    }
    // Each iteration goes there and back.
    match report.counters.get(&count) {
        Some(&n) if n >= 8 => Ok(()),
        n => because(format!("{n:?} migrations")),
    }
}
