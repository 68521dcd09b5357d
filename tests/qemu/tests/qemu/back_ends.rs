//! What back ends could take for something else on each ISA: calls through pointers of another type, minima of
//! floating-point numbers, depth of calls.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_launcher::config::RunConfig;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::{console, times};

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("back_ends");
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
        work: console::app("back-ends", ""),
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    };
    let names = ["tables", "builders", "floats", "depth", "tasks"];
    let names = names.map(|name| format!("back-ends.{name}"));
    console::passed(&console::good(&config)?, names)
}
