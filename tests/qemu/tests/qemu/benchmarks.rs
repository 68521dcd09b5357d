//! Benchmarks on the pair: their results are the official ones while they migrate with each phase,
//! and the same bits as on one node and as on the host.

use std::time::Duration;

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_launcher::config::RunConfig;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::times;

/// A program, the benchmark that it runs, the checksum of its results, and migrations of a run that hops.
struct Case {
    app: &'static str,
    bench: &'static str,
    args: &'static str,
    sum: &'static str,
    hops: u64,
}

const CASES: &[Case] = &[
    Case {
        app: "npb",
        bench: "cg",
        args: "--bench cg --class S",
        sum: "8fd83f5f1a27475f",
        hops: 32,
    },
    Case {
        app: "npb",
        bench: "mg",
        args: "--bench mg --class S",
        sum: "5ef8485012fa56c1",
        hops: 20,
    },
    Case {
        app: "npb",
        bench: "ft",
        args: "--bench ft --class S",
        sum: "5d147d9fdfd6e9c1",
        hops: 34,
    },
    Case {
        app: "bfs",
        bench: "bfs",
        args: "--scale 10",
        sum: "2ec33349d4123c9d",
        hops: 20,
    },
];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let all = CASES.iter().map(|case| {
        let name = format!("benchmarks::{}_verifies_wherever_it_runs", case.bench);
        times::test(Tiers::FULL, name, move || everywhere(case))
    });
    all.collect()
}

fn everywhere(case: &Case) -> Result<(), Failed> {
    run(case, "", case.hops)?;
    run(case, "--home aarch64", case.hops)?;
    run(case, "--hop off --home aarch64", 0)
}

fn run(case: &Case, mode: &str, hops: u64) -> Result<(), Failed> {
    let config = RunConfig {
        nodes: vec![X86_64, Aarch64],
        work: console::app(case.app, format!("{} {mode}", case.args)),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    let (report, text) = console::run(&config);
    let because = |why: String| Err(format!("{mode}: {why}\n\nconsole:\n{text}").into());
    if let Some(why) = report.failure() {
        return because(why);
    }
    let verified = |name: &str| name.ends_with(".verification");
    if !report.checks.iter().any(|c| c.ok && verified(&c.name)) {
        return because("there is no check of the verification".into());
    }
    // What the kernels count may be more: the program is not at home where it prints.
    let counters = &report.json()["counters"];
    let counted = counters[format!("{}.hops", case.bench)].as_u64();
    let migrations = counters["migrations"].as_u64().unwrap_or(0);
    if counted != Some(hops) || migrations < hops {
        return because(format!(
            "{counted:?} hops, {migrations} migrations instead of {hops}"
        ));
    }
    let line = text
        .lines()
        .rfind(|l| l.contains("Checksum of all results"));
    match line.and_then(|l| l.split_whitespace().last()) {
        Some(sum) if sum == case.sum => Ok(()),
        other => because(format!("checksum {other:?} instead of {}", case.sum)),
    }
}
