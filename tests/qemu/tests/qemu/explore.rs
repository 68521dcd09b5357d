//! The strict order as a tool: a race between nodes is found by trying seeds, and comes back.

use std::time::Duration;

use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::launch;
use dyad_launcher::sim::Setup;
use dyad_sim_model::config::Order;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::Kept;
use crate::times;

/// The race: a claim whose compare-and-swap was replaced by a load and a store.
const RACE: &str = "seeded_race_two_nodes_claim_a_word";
/// The test whose claim is a compare-and-swap.
const SOUND: &str = "one_of_all_nodes_claims_a_word";
/// Seeds within which it must be found.
const SEEDS: u64 = 200;
/// How often it is repeated. (More would take long; the long form of `explore` repeats it ten times.)
const REPEATS: u32 = 4;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let found = || -> Result<(), Failed> { race_is_found().map_err(Failed::from) };
    vec![times::test(
        Tiers::FULL,
        "explore::a_race_is_found_by_trying_seeds_and_comes_back",
        found,
    )]
}

/// What a run showed: whether the test passed, and the digest of the history.
fn run(test: &str, seed: u64) -> Result<(bool, String), String> {
    let config = RunConfig {
        work: Work::Ktest(vec![test.into()]),
        sim: Sim::Timing,
        setup: Setup {
            order: Order::Strict { seed },
            ..Setup::default()
        },
        timeout: Some(Duration::from_secs(120)),
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        ..RunConfig::default()
    };
    let mut kept = Kept::new(|_| {});
    let report = launch::run(&config, &mut kept);
    let passed = report.failure().is_none();
    let of_the_test = report
        .ktests
        .iter()
        .any(|k| k.name == test && k.state == "failed");
    if !passed && !of_the_test {
        let (why, text) = (report.failure(), kept.text(&report));
        return Err(format!("seed {seed}: {why:?}\n\nconsole:\n{text}"));
    }
    let hash = report.simulation.and_then(|s| s.trace_hash);
    Ok((passed, hash.ok_or("there is no digest of the history")?))
}

fn race_is_found() -> Result<(), String> {
    let mut found = None;
    for seed in 0..SEEDS {
        let (passed, hash) = run(RACE, seed)?;
        if !passed {
            found = Some((seed, hash));
            break;
        }
    }
    let (seed, hash) = found.ok_or_else(|| format!("no seed below {SEEDS} shows the race"))?;
    for turn in 1..=REPEATS {
        let again = run(RACE, seed)?;
        if again != (false, hash.clone()) {
            return Err(format!(
                "repetition {turn} of seed {seed} shows {again:?}, not a failure with {hash}"
            ));
        }
    }
    let sound = run(SOUND, seed)?;
    if !sound.0 {
        return Err(format!(
            "with its compare-and-swap the claim fails too, seed {seed}"
        ));
    }
    Ok(())
}
