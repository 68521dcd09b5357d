//! `cargo xtask test`: the tests of a tier, one part after the other.
//!
//! A part that fails does not keep the others from being run. In the end the parts, the slowest tests and, for
//! each part that has failed, the command that repeats it are printed.

mod programs;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use dyad_tier::Tier;
use serde_json::{Value, json};

use self::programs::{Package, Programs};
use super::passthrough::wait_for;
use super::result;
use dyad_launcher::config::Json;
use dyad_launcher::error::Error;
use dyad_launcher::setup::{self, Requirements};
use dyad_launcher::{build, paths, signals, suggest, test_times};

/// How many of the slowest tests are printed.
const SLOWEST: usize = 10;
/// How often each system is run in the soak parts, if nothing else is asked for.
const RUNS: u32 = 50;
/// The package whose tests run on machines.
const MACHINES: &str = "dyad-qemu-tests";
/// The package of the exhaustive model.
const MODEL: &str = "dyad-model-tests";
/// The package by which others show that their tests have sizes.
const SIZES: &str = "dyad-tier";

#[derive(Debug, Args)]
#[command(after_help = TIERS)]
pub(super) struct TestArgs {
    /// quick, full or long [default: quick]
    #[arg(value_name = "TIER", value_parser = tier)]
    tier: Option<Tier>,
    /// Run only tests whose name contains this; `cargo test -- --list` lists names and tiers
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Run only these parts of the tier
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    only: Vec<String>,
    /// How often each system is run in the parts `soak` of the tier long [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    #[command(flatten)]
    json: Json,
    /// Handed on to the test programs as they are, such as --nocapture
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

const TIERS: &str = "\
Tiers, with times on 2 cores:
  quick  what `cargo test` runs: host tests, all in-kernel tests on the pair, every program once (10 min)
  full   what quick leaves out: other systems, deaths, attacks, simulation, the tutorial (27 min)
  long   storms of millions of operations, hundreds of killed machines, deep models, Miri, soaks (hours)

The exit status is 0 if every part has passed. Times of tests are kept in target/tests/TIER.";

fn tier(name: &str) -> Result<Tier, String> {
    let names = Tier::ALL.map(Tier::name);
    name.parse()
        .map_err(|_| suggest::not_one_of("tier", name, &names))
}

/// What a part runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// The test programs of these packages, or all; only tests that contain this, and do not contain these.
    Tests {
        packages: Option<Vec<String>>,
        filter: Option<&'static str>,
        skip: &'static [&'static str],
    },
    /// `cargo test --doc`.
    Examples,
    /// `cargo xtask soak` with these arguments.
    Soak(&'static [&'static str]),
    /// `cargo xtask miri`.
    Miri,
}

/// A part of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: &'static str,
    what: What,
}

fn tests(name: &'static str, packages: &[&str]) -> Part {
    machines(name, Some(packages), None, &[])
}

fn machines(
    name: &'static str,
    packages: Option<&[&str]>,
    filter: Option<&'static str>,
    skip: &'static [&'static str],
) -> Part {
    let owned = |all: &[&str]| all.iter().map(|&p| p.to_owned()).collect();
    Part {
        name,
        what: What::Tests {
            packages: packages.map(owned),
            filter,
            skip,
        },
    }
}

const fn soak(name: &'static str, args: &'static [&'static str]) -> Part {
    Part {
        name,
        what: What::Soak(args),
    }
}

/// Groups of the tier `long` that are parts of their own.
const GROUPS: [(&str, &str); 4] = [
    ("storm", "storm::"),
    ("adversary", "adversary::"),
    ("deaths", "deaths::"),
    ("dead_answer", "dead_answer::"),
];

/// The parts of a tier, those first that fail soonest. `sized` are packages with host tests that are larger in
/// later tiers.
fn parts(tier: Tier, sized: &[&str], is_filtered: bool) -> Vec<Part> {
    let host: Vec<&str> = sized.iter().copied().filter(|&p| p != MODEL).collect();
    match tier {
        // What `cargo test` runs.
        Tier::Quick => vec![
            machines("all", None, None, &[]),
            Part {
                name: "examples",
                what: What::Examples,
            },
        ],
        Tier::Full => vec![tests("host", sized), tests("machines", &[MACHINES])],
        Tier::Long if is_filtered => vec![
            tests("host", &host),
            tests("model", &[MODEL]),
            tests("machines", &[MACHINES]),
        ],
        Tier::Long => {
            let mut parts = vec![tests("host", &host), tests("model", &[MODEL])];
            for (name, filter) in GROUPS {
                parts.push(machines(name, Some(&[MACHINES]), Some(filter), &[]));
            }
            const SKIPPED: [&str; 4] = [GROUPS[0].1, GROUPS[1].1, GROUPS[2].1, GROUPS[3].1];
            parts.push(machines("machines", Some(&[MACHINES]), None, &SKIPPED));
            parts.push(Part {
                name: "miri",
                what: What::Miri,
            });
            parts.push(soak("soak", &[]));
            parts.push(soak("soak-two-cpus", &["--cpus", "2"]));
            parts.push(soak(
                "soak-three-nodes",
                &["--nodes", "x86_64,aarch64,x86_64"],
            ));
            parts.push(soak("soak-incoherent", &["--coherence", "incoherent"]));
            parts
        }
    }
}

/// Packages whose tests have sizes: those that depend on [`SIZES`], but for the tests on machines.
fn sized(packages: &[Package]) -> Vec<&str> {
    let sized = packages.iter().filter(|p| p.has_sizes);
    let names = sized.map(|p| p.name.as_str());
    names.filter(|&n| n != MACHINES && n != SIZES).collect()
}

impl Part {
    /// Runs the part, and returns its status.
    fn run(&self, programs: &Programs, tier: Tier, args: &TestArgs) -> Result<u8, Error> {
        match &self.what {
            What::Tests {
                packages,
                filter,
                skip,
            } => {
                let mut given: Vec<&str> = args.filter.as_deref().or(*filter).into_iter().collect();
                given.extend(skip.iter().flat_map(|s| ["--skip", s]));
                given.extend(args.args.iter().map(String::as_str));
                programs.run(packages.as_deref(), tier, &given)
            }
            What::Examples => {
                let mut cargo = build::cargo();
                cargo.args(["test", "--quiet", "--doc", "--no-fail-fast", "--"]);
                cargo.args(args.filter.as_deref());
                wait_for(cargo)
            }
            What::Miri => {
                let mut miri = Command::new(me()?);
                miri.arg("miri");
                wait_for(miri)
            }
            What::Soak(options) => {
                let runs = args.runs.unwrap_or(RUNS).to_string();
                let mut soak = Command::new(me()?);
                soak.args(["soak", "--audit", "--runs", &runs])
                    .args(*options);
                wait_for(soak)
            }
        }
    }
}

fn me() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))
}

/// How a part has ended.
struct Done {
    name: &'static str,
    status: u8,
    took: Duration,
}

pub(super) fn test(args: &TestArgs) -> Result<u8, Error> {
    result::open("test", &args.json)?;
    let tier = args.tier.unwrap_or(Tier::Quick);
    if args.runs.is_some() && tier != Tier::Long {
        return Err(Error::Usage("--runs is for the tier long".into()));
    }
    let packages = programs::packages()?;
    let sized = sized(&packages);
    let parts = chosen(parts(tier, &sized, args.filter.is_some()), &args.only)?;
    setup::ensure(&Requirements::ALL, &mut super::say)?;
    let programs = Programs::build(&packages)?;
    // Times of tests that are not run now would be those of another version.
    let _ = std::fs::remove_dir_all(test_times::dir(tier));
    let mut done: Vec<Done> = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        let name = part.name;
        println!("\n=== {tier}, part {} of {}: {name}", n + 1, parts.len());
        let start = Instant::now();
        let status = part.run(&programs, tier, args)?;
        let took = start.elapsed();
        println!("=== {name}: {}, {}", outcome(status), minutes(took));
        done.push(Done { name, status, took });
        if signals::count() > 0 {
            return Err(Error::Interrupted);
        }
    }
    let times = test_times::slowest(tier);
    result::write(&results(tier, &done, &times))?;
    println!("\nslowest tests:");
    for (name, t) in times.iter().take(SLOWEST) {
        println!("{:8.1} s  {name}", t.seconds);
    }
    println!("parts:");
    for part in &done {
        let outcome = outcome(part.status);
        println!("{:>10}  {:<18} {outcome}", minutes(part.took), part.name);
    }
    println!(
        "times of all tests: {}",
        paths::shown(&test_times::dir(tier))
    );
    for part in done.iter().filter(|p| p.status != 0) {
        let filter = args
            .filter
            .iter()
            .fold(String::new(), |_, f| format!(" {f}"));
        println!(
            "again: cargo xtask test {tier}{filter} --only {}",
            part.name
        );
    }
    Ok(u8::from(done.iter().any(|p| p.status != 0)))
}

/// The parts that the command line names, or all.
fn chosen(parts: Vec<Part>, only: &[String]) -> Result<Vec<Part>, Error> {
    let names: Vec<&str> = parts.iter().map(|p| p.name).collect();
    if let Some(unknown) = only.iter().find(|o| !names.contains(&o.as_str())) {
        return Err(Error::Usage(suggest::not_one_of("part", unknown, &names)));
    }
    let is_chosen = |p: &Part| only.is_empty() || only.iter().any(|o| o == p.name);
    Ok(parts.into_iter().filter(is_chosen).collect())
}

fn results(tier: Tier, done: &[Done], times: &[(String, test_times::Taken)]) -> Value {
    let part =
        |p: &Done| json!({ "name": p.name, "ok": p.status == 0, "seconds": p.took.as_secs_f64() });
    let test = |(name, t): &(String, test_times::Taken)| json!({ "name": name, "ok": t.ok, "seconds": t.seconds, "cpu_seconds": t.cpu_seconds });
    let failed: Vec<&str> = (done.iter().filter(|p| p.status != 0))
        .map(|p| p.name)
        .collect();
    json!({
        "schema": result::schema("test"),
        "tier": tier.name(),
        "ok": failed.is_empty(),
        "failure": (!failed.is_empty()).then(|| format!("parts that failed: {}", failed.join(", "))),
        "parts": done.iter().map(part).collect::<Vec<_>>(),
        "tests": times.iter().map(test).collect::<Vec<_>>(),
    })
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
    fn parts_of_a_tier_have_names_of_their_own() {
        for tier in Tier::ALL {
            for is_filtered in [false, true] {
                let parts = parts(tier, &["dyad-msg", MODEL], is_filtered);
                let mut names: Vec<&str> = parts.iter().map(|p| p.name).collect();
                names.sort_unstable();
                let all = names.len();
                names.dedup();
                assert_eq!(names.len(), all, "{tier}: {names:?}");
            }
        }
    }

    #[test]
    fn parts_are_chosen_by_name_and_unknown_ones_refused() {
        let all = || parts(Tier::Long, &[], false);
        let two = chosen(all(), &["deaths".into(), "storm".into()]).unwrap();
        let names: Vec<&str> = two.iter().map(|p| p.name).collect();
        assert_eq!(names, ["storm", "deaths"]);
        let unknown = chosen(all(), &["strom".into()]).unwrap_err().to_string();
        assert!(unknown.contains("did you mean \"storm\"?"), "{unknown}");
        assert!(tier("ful").unwrap_err().contains("did you mean \"full\"?"));
    }
}
