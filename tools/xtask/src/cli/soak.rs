//! `cargo xtask soak`: the same run, many times.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use super::run::{ShapeArgs, write_json};
use crate::config::Settings;
use crate::display::{Display, Verbosity};
use crate::error::Error;
use crate::launch::{self, Event, Sink};
use crate::{paths, setup, signals};

#[derive(Debug, Args)]
pub(super) struct SoakArgs {
    #[command(flatten)]
    shape: ShapeArgs,
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Write what came out to this file
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// A run that failed.
#[derive(serde::Serialize)]
struct Failed {
    run: u32,
    failure: String,
    logs: PathBuf,
}

/// Keeps what happens, to be written down if the run fails.
struct Held {
    /// Shows what is built, which is of interest once.
    progress: Option<Display>,
    log: Vec<u8>,
}

impl Sink for Held {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Progress(_) = event {
            if let Some(progress) = &mut self.progress {
                progress.event(event);
            }
            return;
        }
        let mut copy = Display::to_buffer(Verbosity::Verbose);
        copy.event(event);
        self.log.extend(copy.into_inner());
    }
}

pub(super) fn soak(args: &SoakArgs) -> Result<u8, Error> {
    let (_, config) = args.shape.resolve(Settings::default())?;
    setup::ensure(&setup::Requirements::to_run(&config), &mut super::say)?;
    let base = launch::new_run_dir("soak-")?;
    let mut failed: Vec<Failed> = Vec::new();
    let mut times: Vec<f64> = Vec::new();
    for run in 1..=args.runs {
        let dir = base.join(format!("run{run:04}"));
        let start = Instant::now();
        let mut sink = Held {
            progress: (run == 1).then(|| Display::new(Verbosity::Normal)),
            log: Vec::new(),
        };
        let report = launch::run_in(&config, Some(dir.clone()), &mut sink);
        if let Some(progress) = &mut sink.progress {
            progress.event(Event::Status(""));
        }
        let seconds = start.elapsed().as_secs_f64();
        match report.failure() {
            None => {
                times.push(seconds);
                println!("run {run:4} of {}: ok, {seconds:.1} s", args.runs);
                // Only the logs of failures are of use.
                let _ = std::fs::remove_dir_all(&dir);
            }
            Some(failure) => {
                if matches!(report.error, Some(Error::Interrupted)) {
                    break;
                }
                if matches!(
                    report.error,
                    Some(Error::Usage(_) | Error::Setup(_) | Error::Build(_))
                ) {
                    // The next run would say the same.
                    return Err(report.error.unwrap_or(Error::Run(failure)));
                }
                keep(&dir, &sink.log, &report.json())?;
                println!(
                    "run {run:4} of {}: FAILED, {seconds:.1} s: {failure}; logs in {}",
                    args.runs,
                    paths::shown(&dir)
                );
                let logs = dir;
                failed.push(Failed { run, failure, logs });
            }
        }
        if signals::count() > 0 {
            break;
        }
    }
    summary(args, &base, &failed, &times)
}

fn keep(dir: &Path, merged: &[u8], json: &serde_json::Value) -> Result<(), Error> {
    let merged_log = dir.join("merged.log");
    std::fs::write(&merged_log, merged)
        .map_err(|e| Error::io(format_args!("cannot write {}", merged_log.display()), e))?;
    write_json(&dir.join("report.json").display().to_string(), json)
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
            f.failure,
            paths::shown(&f.logs)
        );
    }
    if failed.is_empty() {
        // Nothing in it.
        let _ = std::fs::remove_dir(base);
    }
    println!(
        "{} of {} runs failed{}",
        failed.len(),
        args.runs,
        if complete {
            String::new()
        } else {
            format!(", {} were not made", args.runs as usize - done)
        }
    );
    let ok = failed.is_empty() && complete;
    if let Some(file) = &args.json {
        let json = serde_json::json!({
            "schema": "dyad.soak/1", "ok": ok, "runs": args.runs, "done": done,
            "failed": failed, "seconds": times,
        });
        write_json(file, &json)?;
    }
    if signals::count() > 0 {
        return Err(Error::Interrupted);
    }
    Ok(u8::from(!ok))
}
