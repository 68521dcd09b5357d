//! Every program runs to its end once, in the tier `quick` or `full`: with the arguments of its first line in the book's table of deaths, which
//! lists all programs (`dead_answer::the_book_lists_every_program`), and without a death.

use std::collections::BTreeSet;
use std::time::Duration;

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::RunConfig;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::dead_answer::{self, Row};
use crate::times;

/// Programs that the tier `full` runs: others of the tier `quick` are of the same kind.
const FULL: [&str; 13] = [
    "back-ends",
    "bench",
    "blocks",
    "emulate-begin",
    "emulate-tasks",
    "emulate-threads",
    "flood",
    "migrate-threads",
    "sim-loads",
    "sim-sharing",
    "sim-windows",
    "std-pieces",
    "victim",
];

/// How long a run may take, on a slow and busy host.
const LIMIT: Duration = Duration::from_secs(240);

/// One for each program.
pub fn trials() -> Vec<Trial> {
    let mut seen = BTreeSet::new();
    // A table that cannot be read fails a test of its own.
    let mut rows = dead_answer::rows().unwrap_or_default();
    rows.retain(|row| seen.insert(row.app.clone()));
    let trial = |row: Row| {
        let name = format!("programs::{}", row.app.replace('-', "_"));
        let tier = match FULL.contains(&row.app.as_str()) {
            true => Tiers::FULL,
            false => Tiers::QUICK,
        };
        times::test(tier, name, move || ends_well(&row))
    };
    rows.into_iter().map(trial).collect()
}

fn ends_well(row: &Row) -> Result<(), Failed> {
    let config = RunConfig {
        timeout: Some(LIMIT),
        ..dead_answer::config(row, OnDeath::End, vec![X86_64, Aarch64])
    };
    console::good(&config).map(drop)
}
