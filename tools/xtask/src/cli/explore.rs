//! `cargo xtask explore`: the same run in strict order with many seeds, until one fails.
//!
//! A seed fixes the order of everything, so a failure found once can be repeated as often as it
//! takes to understand it.

use std::collections::BTreeSet;

use clap::Args;

use super::result;
use super::shape::Shape;
use dyad_launcher::config::{Json, Named, OrderName, Settings, Sim, Whole};
use dyad_launcher::error::Error;
use dyad_launcher::{launch, paths, setup};
use dyad_measure::held::{Done, Failure};

/// Simulated unless told otherwise: the cheapest that has the clock.
const DEFAULT_SIM: Sim = Sim::Count;

#[derive(Debug, Args)]
pub(super) struct ExploreArgs {
    #[command(flatten)]
    shape: Shape,
    /// Which seeds: A..B without B, A..=B with it, or one
    #[arg(long, value_name = "A..B")]
    seeds: Seeds,
    /// Go on after a seed that fails
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    json: Json,
}

/// The first and the last seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seeds(u64, u64);

/// A seed that was tried.
#[derive(serde::Serialize)]
struct Tried {
    seed: u64,
    ok: bool,
    /// Digest of the history.
    trace_hash: Option<String>,
    /// What happened that a repetition would not show; normally nothing.
    disturbances: Vec<String>,
    seconds: f64,
}

/// A seed that failed.
#[derive(serde::Serialize)]
struct Failed {
    seed: u64,
    #[serde(flatten)]
    failure: Failure,
    /// The command that does it again.
    replay: String,
}

pub(super) fn explore(args: &ExploreArgs) -> Result<u8, Error> {
    result::open("explore", &args.json)?;
    let Seeds(first, last) = args.seeds;
    let mut settings = args.shape.gather()?;
    check(&settings).map_err(Error::Usage)?;
    let default_sim = settings.sim.is_none();
    settings.sim.get_or_insert(Named(DEFAULT_SIM));
    settings.order = Some(Named(OrderName::Strict));
    settings.seed = Some(Whole(first));
    let config = args.shape.finish(&settings)?;
    setup::ensure(&setup::Requirements::to_run(&config), &mut super::say)?;
    let line: Vec<String> = std::env::args().skip(2).collect();
    let base = launch::new_run_dir("explore-")?;
    let (mut tried, mut failed) = (Vec::new(), Vec::new());
    let mut interrupted = None;
    for seed in first..=last {
        settings.seed = Some(Whole(seed));
        let config = args.shape.finish(&settings)?;
        let done = match Done::run(&config, base.join(format!("seed{seed}")), seed == first) {
            Ok(done) => done,
            Err(Error::Interrupted) => {
                interrupted = Some(Error::Interrupted);
                break;
            }
            Err(e) => return Err(e),
        };
        let simulation = done.report.simulation.as_ref();
        let trace_hash = simulation.and_then(|s| s.trace_hash.clone());
        let disturbances = simulation.map_or(Vec::new(), |s| s.disturbances.clone());
        let failure = done.settle()?;
        let trace = trace_hash
            .as_ref()
            .map_or_else(|| "no trace".into(), |hash| format!("trace {hash}"));
        let verdict = failure.as_ref().map_or("ok", |_| "FAILED");
        println!("seed {seed}: {verdict}, {trace}, {:.1} s", done.seconds);
        for what in &disturbances {
            println!("  not exact: {what}");
        }
        tried.push(Tried {
            seed,
            ok: failure.is_none(),
            trace_hash,
            disturbances,
            seconds: done.seconds,
        });
        if let Some(failure) = failure {
            let replay = replay(&line, seed, default_sim);
            println!("  {}", failure.failure);
            println!("  logs in {}", paths::shown(&failure.logs));
            println!("  to see it again: {replay}");
            failed.push(Failed {
                seed,
                failure,
                replay,
            });
            if !args.keep_going {
                break;
            }
        }
    }
    if failed.is_empty() {
        // Nothing in it.
        let _ = std::fs::remove_dir(&base);
    }
    let status = summary((first, last), &tried, &failed)?;
    interrupted.map_or(Ok(status), Err)
}

fn summary((first, last): (u64, u64), tried: &[Tried], failed: &[Failed]) -> Result<u8, Error> {
    let traces: BTreeSet<&String> = tried.iter().filter_map(|t| t.trace_hash.as_ref()).collect();
    let outcome = format!(
        "{} of {} seeds tried, {} failed, {} different histories",
        tried.len(),
        u128::from(last - first) + 1,
        failed.len(),
        traces.len()
    );
    println!("{outcome}");
    let untraced = tried.iter().filter(|t| t.trace_hash.is_none()).count();
    if untraced > 0 {
        println!("{untraced} of them left no digest of their history");
    }
    let complete = u128::from(last - first) + 1 == tried.len() as u128;
    let ok = failed.is_empty() && complete;
    result::write(&serde_json::json!({
        "schema": result::schema("explore"), "ok": ok, "failure": (!ok).then_some(outcome),
        "first": first, "last": last, "histories": traces.len(), "seeds": tried, "failed": failed,
    }))?;
    Ok(u8::from(!ok))
}

/// Refuses settings that contradict what this command does.
fn check(settings: &Settings) -> Result<(), String> {
    if settings
        .order
        .is_some_and(|order| order.0 != OrderName::Strict)
    {
        return Err("explore runs in strict order: leave out --order".into());
    }
    if settings.seed.is_some() {
        return Err("explore chooses the seeds: leave out --seed and use --seeds A..B".into());
    }
    Ok(())
}

impl std::str::FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        seeds(text).map(|(first, last)| Seeds(first, last))
    }
}

/// First and last seed.
fn seeds(text: &str) -> Result<(u64, u64), String> {
    let bad = || {
        format!(
            "seeds cannot be {text:?}; write 0..200 (without 200), 0..=199 or 17, and at least one"
        )
    };
    let number = |word: &str| word.trim().parse::<u64>().map_err(|_| bad());
    let (first, last) = match text.split_once("..") {
        None => (number(text)?, number(text)?),
        Some((a, b)) => match b.strip_prefix('=') {
            Some(b) => (number(a)?, number(b)?),
            None => (number(a)?, number(b)?.checked_sub(1).ok_or_else(bad)?),
        },
    };
    (first <= last).then_some((first, last)).ok_or_else(bad)
}

/// The command that repeats the run of a seed, from the words after `explore`.
fn replay(line: &[String], seed: u64, default_sim: bool) -> String {
    let own = |word: &str| word == "--keep-going";
    let own_with_value = |word: &str| matches!(word, "--seeds" | "--json" | "--order");
    let (mut kept, mut words) = (Vec::new(), line.iter().peekable());
    let mut program = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            program = words.map(String::as_str).collect();
            break;
        }
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        if own_with_value(name) {
            // `--json` may stand alone.
            if !word.contains('=') {
                words.next_if(|next| name != "--json" || !next.starts_with("--"));
            }
        } else if !own(word) {
            kept.push(word.as_str());
        }
    }
    let seed = seed.to_string();
    if default_sim {
        kept.extend(["--sim", DEFAULT_SIM.name()]);
    }
    kept.extend(["--order", "strict", "--seed", &seed]);
    if !program.is_empty() {
        kept.push("--");
        kept.extend(program);
    }
    let quoted: Vec<String> = kept.into_iter().map(quoted).collect();
    format!("cargo xtask run {}", quoted.join(" "))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,/:@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_seeds() {
        assert_eq!(seeds("0..200"), Ok((0, 199)));
        assert_eq!(seeds("3..=3"), Ok((3, 3)));
        assert_eq!(seeds("17"), Ok((17, 17)));
        assert_eq!(seeds("0..=18446744073709551615"), Ok((0, u64::MAX)));
        for text in ["", "a..b", "5..5", "0..0", "6..=5", "1...3", "..9", "-1..3"] {
            let e = seeds(text).unwrap_err();
            assert!(e.contains("0..200"), "{text}: {e}");
        }
    }

    #[test]
    fn the_command_that_repeats_a_seed() {
        let of = |line: &str, default_sim| {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            replay(&words, 42, default_sim)
        };
        assert_eq!(
            of("--seeds 0..200 --app hop --json x --keep-going", true),
            "cargo xtask run --app hop --sim count --order strict --seed 42"
        );
        assert_eq!(
            of("--seeds 0..200 --json --app hop --order=strict", true),
            "cargo xtask run --app hop --sim count --order strict --seed 42"
        );
        assert_eq!(
            of(
                "--ktest race --sim timing --json=x --seeds=0..9 --order strict --cpus 1 -- --a b",
                false
            ),
            "cargo xtask run --ktest race --sim timing --cpus 1 --order strict --seed 42 -- --a b"
        );
        let words = ["--seeds", "1", "--", "it's"].map(String::from);
        assert_eq!(
            replay(&words, 1, false),
            "cargo xtask run --order strict --seed 1 -- 'it'\\''s'"
        );
    }
}
