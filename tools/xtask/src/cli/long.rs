//! `cargo xtask test`: all tests, or with `--long` their long forms, one part after the other.
//!
//! A part that fails does not keep the others from being run; what came out is said at the end, with
//! the command that runs the part alone.

use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use super::passthrough::wait_for;
use crate::error::Error;
use crate::setup::{self, Requirements};
use crate::{build, signals, suggest};

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Run the long forms: storms of ten million operations, a hundred machines killed in storms,
    /// deeper models, runs that are repeated. Takes hours
    #[arg(long)]
    long: bool,
    /// With --long: run only these parts
    #[arg(
        long,
        value_name = "PARTS",
        value_delimiter = ',',
        requires = "long",
        value_parser = part
    )]
    only: Vec<&'static Part>,
    /// With --long: how often each system is run in the part `soak`
    #[arg(long, value_name = "N", requires = "long", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Handed on to `cargo test` as they are
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS",
        conflicts_with = "long"
    )]
    args: Vec<String>,
}

/// What a part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// `cargo test` with these arguments and `DYAD_LONG=1`.
    Tests(&'static [&'static str]),
    /// `cargo xtask soak` with these arguments, and how often.
    Soak(&'static [&'static str]),
    /// `cargo xtask miri`.
    Miri,
}

/// A part of the long form.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    name: &'static str,
    what: What,
}

const fn tests(name: &'static str, args: &'static [&'static str]) -> Part {
    Part {
        name,
        what: What::Tests(args),
    }
}

const fn soak(name: &'static str, args: &'static [&'static str]) -> Part {
    Part {
        name,
        what: What::Soak(args),
    }
}

/// All parts, those first that fail soonest.
const PARTS: &[Part] = &[
    tests(
        "host",
        &[
            "--workspace",
            "--exclude",
            "dyad-qemu-tests",
            "--exclude",
            "dyad-model-tests",
        ],
    ),
    tests("model", &["--package", "dyad-model-tests"]),
    tests("storm", &["--package", "dyad-qemu-tests", "--", "storm::"]),
    tests(
        "adversary",
        &["--package", "dyad-qemu-tests", "--", "adversary::"],
    ),
    tests(
        "deaths",
        &["--package", "dyad-qemu-tests", "--", "deaths::"],
    ),
    tests(
        "dead_answer",
        &["--package", "dyad-qemu-tests", "--", "dead_answer::"],
    ),
    tests(
        "systems",
        &[
            "--package",
            "dyad-qemu-tests",
            "--",
            "--skip",
            "storm::",
            "--skip",
            "adversary::",
            "--skip",
            "deaths::",
            "--skip",
            "dead_answer::",
        ],
    ),
    Part {
        name: "miri",
        what: What::Miri,
    },
    soak("soak", &[]),
    soak("soak-two-cpus", &["--cpus", "2"]),
    soak("soak-three-nodes", &["--nodes", "x86_64,aarch64,x86_64"]),
    soak("soak-incoherent", &["--coherence", "incoherent"]),
];

fn part(name: &str) -> Result<&'static Part, String> {
    PARTS.iter().find(|p| p.name == name).ok_or_else(|| {
        let names: Vec<&str> = PARTS.iter().map(|p| p.name).collect();
        suggest::not_one_of("part", name, &names)
    })
}

impl Part {
    fn command(&self, runs: u32) -> Result<Command, Error> {
        Ok(match self.what {
            What::Tests(args) => {
                let mut cargo = build::cargo();
                cargo.arg("test").args(args).env("DYAD_LONG", "1");
                cargo
            }
            What::Miri => {
                let mut miri = myself()?;
                miri.arg("miri");
                miri
            }
            What::Soak(args) => {
                let mut soak = myself()?;
                soak.args(["soak", "--audit", "--runs", &runs.to_string()])
                    .args(args);
                soak
            }
        })
    }
}

fn myself() -> Result<Command, Error> {
    let me = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
    Ok(Command::new(me))
}

pub(super) fn test(args: &TestArgs) -> Result<u8, Error> {
    setup::ensure(&Requirements::ALL, &mut super::say)?;
    if !args.long {
        let mut cargo = build::cargo();
        cargo.arg("test").args(&args.args);
        return wait_for(cargo);
    }
    let parts: Vec<&Part> = PARTS
        .iter()
        .filter(|p| args.only.is_empty() || args.only.contains(p))
        .collect();
    let mut done: Vec<(&Part, u8, Duration)> = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        println!("\n=== part {} of {}: {}", n + 1, parts.len(), part.name);
        let start = Instant::now();
        let status = wait_for(part.command(args.runs)?)?;
        let took = start.elapsed();
        println!("=== {}: {}, {}", part.name, outcome(status), minutes(took));
        done.push((part, status, took));
        if signals::count() > 0 {
            return Err(Error::Interrupted);
        }
    }
    println!();
    for (part, status, took) in &done {
        println!(
            "{:>9}  {:<18} {}",
            minutes(*took),
            part.name,
            outcome(*status)
        );
    }
    let failed = done.iter().filter(|(_, status, _)| *status != 0);
    for (part, ..) in failed.clone() {
        println!("again: cargo xtask test --long --only {}", part.name);
    }
    Ok(u8::from(failed.count() > 0))
}

fn outcome(status: u8) -> &'static str {
    match status {
        0 => "ok",
        _ => "FAILED",
    }
}

fn minutes(took: Duration) -> String {
    let seconds = took.as_secs();
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_names_of_their_own_and_are_found_by_them() {
        for p in PARTS {
            assert_eq!(part(p.name), Ok(p));
        }
        let unknown = part("strom").unwrap_err();
        assert!(unknown.contains("storm"), "{unknown}");
    }
}
