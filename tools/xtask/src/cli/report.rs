//! `cargo xtask report`.

use std::time::Duration;

use clap::Args;

use super::result::{self, write_file, write_json};
use dyad_launcher::config::{Json, Whole};
use dyad_launcher::error::Error;
use dyad_launcher::paths;
use dyad_report::bounds::Bounds;
use dyad_report::document::{Basis, Report};
use dyad_report::make::Plan;
use dyad_report::measurements::Size;
use dyad_report::records::Fingerprint;
use dyad_report::{glob, rows};

/// Minutes of a quick report.
const QUICK_MINUTES: u64 = 10;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Class {
    /// The default: what one machine measures in two hours.
    #[value(name = "W")]
    W,
    /// As in the papers.
    #[value(name = "A")]
    A,
}

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// What fits into ten minutes on two cores; rows that do not are incomplete
    #[arg(long, conflicts_with = "class")]
    quick: bool,
    /// Size of NPB
    #[arg(long, value_name = "CLASS", default_value = "W")]
    class: Class,
    /// These rows, in which * stands for any characters: ST-F9,FL-* [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Reuse records of this version: measure what is missing
    #[arg(long)]
    resume: bool,
    /// Measure nothing: make the document from the records that are there
    #[arg(long)]
    offline: bool,
    /// Show records of other versions, too, and say so
    #[arg(long)]
    mixed: bool,
    /// End measuring after this many minutes [default: with --quick 10]
    #[arg(long, value_name = "MINUTES")]
    limit: Option<Whole<1, { 7 * 24 * 60 }>>,
    #[command(flatten)]
    json: Json,
}

impl ReportArgs {
    fn size(&self) -> Size {
        match (self.quick, self.class) {
            (true, _) => Size::Quick,
            (false, Class::W) => Size::W,
            (false, Class::A) => Size::A,
        }
    }

    fn rows(&self) -> Result<Vec<rows::Row>, Error> {
        for pattern in &self.only {
            if !rows::all().any(|row| glob::matches(pattern, row.id)) {
                let ids: Vec<&str> = rows::all().map(|row| row.id).collect();
                return Err(Error::Usage(format!(
                    "no row is called {pattern:?}; possible: {}",
                    ids.join(", ")
                )));
            }
        }
        let is_chosen = |row: &rows::Row| {
            self.only.is_empty() || self.only.iter().any(|p| glob::matches(p, row.id))
        };
        Ok(rows::all().filter(is_chosen).collect())
    }
}

/// What the document says of this machine.
fn machine() -> Vec<(&'static str, String)> {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| Some(line.split_once(':')?.1.trim().to_string()))
            .unwrap_or_else(|| "unknown".into())
    };
    vec![
        ("CPUs", cpus.to_string()),
        ("Processor", value(&text("/proc/cpuinfo"), "model name")),
        ("Memory", value(&text("/proc/meminfo"), "MemTotal")),
        ("Kernel", text("/proc/sys/kernel/osrelease").trim().into()),
    ]
}

pub(super) fn report(args: &ReportArgs) -> Result<u8, Error> {
    result::open("report", &args.json)?;
    let rows = args.rows()?;
    let bounds = Bounds::of_sources().map_err(|e| Error::Run(format!("bounds.toml: {e}")))?;
    let size = args.size();
    let minutes = args.limit.map(|limit| limit.0);
    let minutes = minutes.or(args.quick.then_some(QUICK_MINUTES));
    let dir = paths::target_dir().join("report").join(size.name());
    let plan = Plan {
        size,
        dir: dir.clone(),
        resume: args.resume,
        offline: args.offline,
        mixed: args.mixed,
        limit: minutes.map(|minutes| Duration::from_secs(60 * minutes)),
    };
    let fingerprint = Fingerprint::of_this();
    let (records, interrupted) = plan.records(&rows, &bounds, &fingerprint, &mut super::say)?;
    let basis = Basis {
        size,
        bounds: &bounds,
        fingerprint: &fingerprint,
        mixed: args.mixed,
    };
    let report = Report::of(&rows, basis, &records, machine());
    for entry in &report.entries {
        println!("{:<14} {}", entry.row.id, entry.verdict);
    }
    println!("{}", report.summary());
    let page = dir.join("report.html");
    write_file(&page.display().to_string(), &report.html())?;
    write_file(&dir.join("report.csv").display().to_string(), &report.csv())?;
    let document = report.json();
    write_json(&dir.join("report.json"), &document)?;
    println!("the document is {}", paths::shown(&page));
    result::write(&document)?;
    match interrupted {
        true => Err(Error::Interrupted),
        false => Ok(u8::from(!report.is_complete())),
    }
}
