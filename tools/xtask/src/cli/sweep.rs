//! `cargo xtask sweep`: a matrix of settings, into one table.

use std::path::Path;

use clap::Args;

use super::jobs::{self, JobArgs};
use super::result;
use super::shape::Shape;
use dyad_launcher::config::Json;
use dyad_launcher::error::Error;
use dyad_measure::sweep::{Axis, Combination, Rows, Table, combinations, make, plan};

#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    shape: Shape,
    /// A setting and its values: a key of `cargo xtask sim keys`, or an option of a run such as
    /// model or class (nodes with + between the ISAs); every combination is run
    #[arg(long, value_name = "KEY=V1,V2", required = true)]
    over: Vec<Axis>,
    /// How often each combination is run; more than once: mean, standard deviation and 95 % confidence are printed
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
    pub(super) jobs: JobArgs,
    #[command(flatten)]
    json: Json,
}

pub(super) fn sweep(args: &SweepArgs) -> Result<u8, Error> {
    result::open("sweep", &args.json)?;
    let base = args.shape.gather()?;
    let finish = |settings: &_| args.shape.finish(settings);
    let plan = plan(&base, &args.over, args.repeat, finish)?;
    if let Some(n) = args.jobs.point {
        return jobs::point(&plan, n, &args.csv, args.regions);
    }
    if let Some(outcome) = args.jobs.dry_run(&plan, &args.csv)? {
        print!("{outcome}");
        return Ok(0);
    }
    let mut table = Table::open(&args.csv, args.regions, args.resume, &plan)?;
    let made = match args.jobs.uses_jobs() {
        true => args.jobs.make(&plan, &mut table, &args.csv)?,
        false => make(&plan, &mut table, "sweep-", &mut super::say)?,
    };
    let statistics = combinations(&plan, &Rows::read(Path::new(&args.csv))?, args.regions);
    if args.repeat > 1 {
        let tables: Vec<String> = statistics.iter().map(Combination::table).collect();
        print!("{}", tables.concat());
    }
    let outcome = made.outcome(&args.csv);
    println!("{outcome}");
    let ok = made.is_complete();
    result::write(&serde_json::json!({
        "schema": result::schema("sweep"), "ok": ok, "failure": (!ok).then_some(outcome),
        "runs": plan.len(), "done": made.done, "skipped": made.skipped, "failed": made.failed,
        "csv": args.csv, "statistics": statistics,
    }))?;
    match made.interrupted {
        true => Err(Error::Interrupted),
        false => Ok(u8::from(!ok)),
    }
}
