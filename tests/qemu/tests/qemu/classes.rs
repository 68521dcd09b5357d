//! The NAS benchmarks by class and memory model: all are verified while they migrate, with the time
//! that the simulator makes of it.
//!
//! With `DYAD_LONG=1` all of them; otherwise small ones, and the others are ignored.

use std::time::Duration;

use dyad_sim_model::config::MemoryModel;
use libtest_mimic::{Failed, Trial};
use xtask::config::{RunConfig, Sim, Work};
use xtask::launch;
use xtask::sim::Setup;

use crate::console::Kept;

/// Program, kernel and classes.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("npb-is", "is", &["S", "W", "A"]),
    ("npb-cg", "cg", &["S", "W", "A"]),
    ("npb-mg", "mg", &["S", "W"]),
    ("npb-ft", "ft", &["S", "W"]),
];

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// All of them.
pub fn trials() -> Vec<Trial> {
    let long = std::env::var_os("DYAD_LONG").is_some_and(|v| v == "1");
    let mut trials = Vec::new();
    for &(app, kernel, classes) in PROGRAMS {
        for &class in classes {
            for model in MemoryModel::ALL {
                let quick = match kernel {
                    "is" | "mg" => true,
                    _ => model == MemoryModel::Separated,
                };
                let name = format!("classes::{app}_{class}_{}", model.name());
                let trial = Trial::test(name, move || verifies(app, kernel, class, model));
                let runs = long || (quick && class == "S");
                trials.push(trial.with_kind("system").with_ignored_flag(!runs));
            }
        }
    }
    trials
}

fn verifies(app: &str, kernel: &str, class: &str, model: MemoryModel) -> Result<(), Failed> {
    let config = RunConfig {
        work: Work::App {
            app: app.into(),
            args: format!("--class {class}"),
        },
        sim: Sim::Timing,
        setup: Setup {
            model,
            ..Setup::default()
        },
        timeout: Some(LIMIT),
        ..RunConfig::default()
    };
    let mut kept = Kept::new(|_| {});
    let report = launch::run(&config, &mut kept);
    let text = kept.text(&report);
    let because = |why: String| Err(format!("{why}\n\nconsole:\n{text}").into());
    if let Some(why) = report.failure() {
        return because(why);
    }
    let verified = format!("{kernel}.verification");
    if !report.checks.iter().any(|c| c.ok && c.name == verified) {
        return because(format!("there is no check {verified}"));
    }
    // Each iteration goes there and back.
    match report.counters.get("migrations") {
        Some(&n) if n >= 8 => Ok(()),
        n => because(format!("{n:?} migrations")),
    }
}
