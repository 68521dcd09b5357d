//! `cargo xtask sweep`: a matrix of settings, into one table.

use clap::Args;

use super::result;
use super::shape::Shape;
use dyad_launcher::config::Json;
use dyad_launcher::error::Error;
use dyad_launcher::{launch, paths, setup};
use dyad_measure::held::{Done, Failure};
use dyad_measure::sweep::{Axis, Planned, Table, plan};

#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    shape: Shape,
    /// A setting and its values: a key of `cargo xtask sim keys`, or an option of a run such as
    /// model or class (nodes with + between the ISAs); every combination is run
    #[arg(long, value_name = "KEY=V1,V2", required = true)]
    over: Vec<Axis>,
    /// How often each combination is run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// The table: a row per run and node
    #[arg(long, value_name = "FILE")]
    csv: String,
    /// Put regions of interest into the table too, in rows of their own
    #[arg(long)]
    regions: bool,
    /// Go on with a table that is there: make the runs that are missing or have failed
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    json: Json,
}

/// A run that failed.
#[derive(serde::Serialize)]
struct Failed {
    varied: String,
    repeat: u32,
    #[serde(flatten)]
    failure: Failure,
}

pub(super) fn sweep(args: &SweepArgs) -> Result<u8, Error> {
    result::open("sweep", &args.json)?;
    let base = args.shape.gather()?;
    let finish = |settings: &_| args.shape.finish(settings);
    let plan = plan(&base, &args.over, args.repeat, finish)?;
    let mut table = Table::open(&args.csv, args.regions, args.resume, &plan)?;
    let wanted: Vec<&Planned> = plan.iter().filter(|p| !table.has(p)).collect();
    let skipped = plan.len() - wanted.len();
    if skipped > 0 {
        println!(
            "{skipped} of {} runs are in {} already",
            plan.len(),
            args.csv
        );
    }
    for config in wanted.iter().map(|p| &p.config) {
        setup::ensure(&setup::Requirements::to_run(config), &mut super::say)?;
    }
    let logs = launch::new_run_dir("sweep-")?;
    let mut failed: Vec<Failed> = Vec::new();
    let (mut done, mut spent) = (0, 0.0);
    let mut interrupted = None;
    for (i, planned) in wanted.iter().enumerate() {
        let run = match Done::run(&planned.config, logs.join(format!("run{i:04}")), i == 0) {
            Ok(run) => run,
            Err(Error::Interrupted) => {
                interrupted = Some(Error::Interrupted);
                break;
            }
            Err(e) => return Err(e),
        };
        done += 1;
        spent += run.seconds;
        let failure = run.settle()?;
        table.add(planned, &run.report, run.seconds, failure.as_ref())?;
        let left = wanted.len() - done;
        let left = match left {
            0 => String::new(),
            n => format!("; {n} left, about {:.0} s", spent / done as f64 * n as f64),
        };
        let verdict = match &failure {
            None => "ok".to_string(),
            Some(f) => format!("FAILED: {}; logs in {}", f.failure, paths::shown(&f.logs)),
        };
        println!(
            "run {done} of {}: {}{}: {:.1} s, {verdict}{left}",
            wanted.len(),
            planned.varied,
            match args.repeat {
                1 => String::new(),
                _ => format!(" ({} of {})", planned.repeat, args.repeat),
            },
            run.seconds
        );
        if let Some(failure) = failure {
            failed.push(Failed {
                varied: planned.varied.clone(),
                repeat: planned.repeat,
                failure,
            });
        }
    }
    if failed.is_empty() {
        // Nothing in it.
        let _ = std::fs::remove_dir(&logs);
    }
    let missing = wanted.len() - done;
    let outcome = format!(
        "{} runs in {}, {} failed{}",
        plan.len() - missing,
        args.csv,
        failed.len(),
        match missing + failed.len() {
            0 => String::new(),
            n => format!("; --resume makes the {n} that are missing or failed"),
        }
    );
    println!("{outcome}");
    let ok = failed.is_empty() && missing == 0;
    result::write(&serde_json::json!({
        "schema": result::schema("sweep"), "ok": ok, "failure": (!ok).then_some(outcome),
        "runs": plan.len(), "done": done, "skipped": skipped, "failed": failed, "csv": args.csv,
    }))?;
    interrupted.map_or(Ok(u8::from(!ok)), Err)
}
