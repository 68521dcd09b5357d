//! `cargo xtask soak`: the same run, many times.

use std::path::Path;

use clap::Args;

use super::result;
use super::shape::Shape;
use dyad_launcher::config::Json;
use dyad_launcher::error::Error;
use dyad_launcher::{launch, paths, setup};
use dyad_measure::held::{Done, Failure};

#[derive(Debug, Args)]
pub(super) struct SoakArgs {
    #[command(flatten)]
    shape: Shape,
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    #[command(flatten)]
    json: Json,
}

/// A run that failed.
#[derive(serde::Serialize)]
struct Failed {
    run: u32,
    #[serde(flatten)]
    failure: Failure,
}

pub(super) fn soak(args: &SoakArgs) -> Result<u8, Error> {
    result::open("soak", &args.json)?;
    let config = args.shape.resolve()?;
    setup::ensure(&setup::Requirements::to_run(&config), &mut super::say)?;
    let base = launch::new_run_dir("soak-")?;
    let mut failed: Vec<Failed> = Vec::new();
    let mut times: Vec<f64> = Vec::new();
    let mut interrupted = None;
    for run in 1..=args.runs {
        let dir = base.join(format!("run{run:04}"));
        let done = match Done::run(&config, dir, run == 1) {
            Ok(done) => done,
            Err(Error::Interrupted) => {
                interrupted = Some(Error::Interrupted);
                break;
            }
            Err(e) => return Err(e),
        };
        let seconds = done.seconds;
        match done.settle()? {
            None => {
                times.push(seconds);
                println!("run {run:4} of {}: ok, {seconds:.1} s", args.runs);
            }
            Some(failure) => {
                println!(
                    "run {run:4} of {}: FAILED, {seconds:.1} s: {}; logs in {}",
                    args.runs,
                    failure.failure,
                    paths::shown(&failure.logs)
                );
                failed.push(Failed { run, failure });
            }
        }
    }
    let status = summary(args, &base, &failed, &times)?;
    interrupted.map_or(Ok(status), Err)
}

fn summary(args: &SoakArgs, base: &Path, failed: &[Failed], times: &[f64]) -> Result<u8, Error> {
    let done = failed.len() + times.len();
    let complete = done == args.runs as usize;
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    if let (Some(first), Some(last)) = (sorted.first(), sorted.last()) {
        let median = sorted[sorted.len() / 2];
        println!(
            "{} good runs took {first:.1} to {last:.1} s, median {median:.1} s",
            sorted.len()
        );
    }
    for f in failed {
        println!(
            "run {} failed: {}; logs in {}",
            f.run,
            f.failure.failure,
            paths::shown(&f.failure.logs)
        );
    }
    if failed.is_empty() {
        // Nothing in it.
        let _ = std::fs::remove_dir(base);
    }
    let outcome = format!(
        "{} of {} runs failed{}",
        failed.len(),
        args.runs,
        if complete {
            String::new()
        } else {
            format!(", {} were not made", args.runs as usize - done)
        }
    );
    println!("{outcome}");
    let ok = failed.is_empty() && complete;
    result::write(&serde_json::json!({
        "schema": result::schema("soak"), "ok": ok, "failure": (!ok).then_some(outcome),
        "runs": args.runs, "done": done, "failed": failed, "seconds": times,
    }))?;
    Ok(u8::from(!ok))
}
