//! Threads that ask other nodes for as much as they may, beside threads that go there and come back: program
//! `flood`. Nothing that is full for a moment ends a thread. The tier `long` runs each of them fifty times.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::service::Grant;
use dyad_launcher::config::RunConfig;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::{console, times};

const PAIR: &[Isa] = &[X86_64, Aarch64];
const REVERSED: &[Isa] = &[Aarch64, X86_64];
const THREE: &[Isa] = &[X86_64, Aarch64, X86_64];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("flood");
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
        work: console::app("flood", format!("--flood {flood}")),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    for n in 0..runs {
        let names = (0..nodes.len()).map(|node| format!("flood.{flood}.node{node}"));
        console::passed(&console::good(&config)?, names)
            .map_err(|e| format!("run {n}: {}", e.message().unwrap_or_default()))?;
    }
    Ok(())
}
