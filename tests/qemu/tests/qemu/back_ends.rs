//! What back ends could take for something else on each ISA: calls through pointers of another type, minima of
//! floating-point numbers, depth of calls.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_launcher::config::{RunConfig, Work};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::{console, times};

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = |tiers, name: &str, f: fn() -> Result<(), Failed>| {
        times::test(tiers, format!("back_ends::{name}"), f)
    };
    vec![
        test(Tiers::FULL, "starting_on_x86_64", || {
            run(&[X86_64, Aarch64])
        }),
        test(Tiers::FULL, "starting_on_aarch64", || {
            run(&[Aarch64, X86_64])
        }),
    ]
}

fn run(nodes: &[Isa]) -> Result<(), Failed> {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        work: Work::App {
            app: "back-ends".into(),
            args: String::new(),
        },
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    };
    let (report, text) = console::run(&config);
    if let Some(why) = report.failure() {
        return Err(format!("{why}\n{text}").into());
    }
    for name in [
        "back-ends.tables",
        "back-ends.builders",
        "back-ends.floats",
        "back-ends.depth",
        "back-ends.tasks",
    ] {
        if !report.checks.iter().any(|c| c.name == name && c.ok) {
            return Err(format!("no check {name}\n{text}").into());
        }
    }
    Ok(())
}
