//! Threads that ask other nodes for as much as they may, beside threads that go there and come back: program
//! `flood`. Nothing that is full for a moment ends a thread. The tier `long` runs each of them fifty times.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::service::Grant;
use dyad_launcher::config::{RunConfig, Work};
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console::{because, run};
use crate::times;

const PAIR: &[Isa] = &[X86_64, Aarch64];
const REVERSED: &[Isa] = &[Aarch64, X86_64];
const THREE: &[Isa] = &[X86_64, Aarch64, X86_64];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = |tiers, name: &str, f: fn() -> Result<(), Failed>| {
        times::test(tiers, format!("flood::{name}"), f)
    };
    vec![
        test(
            Tiers::FULL.and(Tiers::LONG),
            "shootdowns_end_no_call_on_the_pair",
            || travellers(PAIR, 2, true, "shootdowns"),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "shootdowns_end_no_call_in_reversed_order",
            || travellers(REVERSED, 2, true, "shootdowns"),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "all_at_once_on_the_pair",
            || travellers(PAIR, 2, true, "all"),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "all_at_once_on_three_nodes",
            || travellers(THREE, 1, true, "all"),
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "all_at_once_without_coherence",
            || travellers(PAIR, 2, false, "all"),
        ),
    ]
}

/// Every traveller comes back from each of its calls and invocations, beside the floods.
fn travellers(nodes: &[Isa], cpus: usize, coherent: bool, flood: &str) -> Result<(), Failed> {
    let runs = size(1, 1, 50);
    let config = RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        coherent,
        grant: Grant::All,
        work: Work::App {
            app: "flood".into(),
            args: format!("--flood {flood}"),
        },
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    for n in 0..runs {
        let (report, text) = run(&config);
        if let Some(why) = report.failure() {
            return because(&text, format!("run {n}: {why}"));
        }
        for node in 0..nodes.len() {
            let name = format!("flood.{flood}.node{node}");
            if !report.checks.iter().any(|c| c.name == name && c.ok) {
                return because(&text, format!("run {n}: {name} was not made"));
            }
        }
    }
    Ok(())
}
