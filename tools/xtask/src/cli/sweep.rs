//! `cargo xtask sweep`: a matrix of settings, into one table.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use clap::Args;

use super::held::{Done, Failure};
use super::result;
use super::shape::Shape;
use dyad_launcher::config::{Json, Number, RunConfig, Settings, Sim};
use dyad_launcher::csv;
use dyad_launcher::error::Error;
use dyad_launcher::launch::RunReport;
use dyad_launcher::sim::{keys, versions};
use dyad_launcher::{launch, paths, setup, suggest};

/// Name and version of the form of the table, in the first column of every row.
const CSV_SCHEMA: &str = "dyad.sweep.csv/1";
/// Columns before those of a run.
const HEAD: [&str; 6] = [
    "sweep_schema",
    "varied",
    "repeat",
    "fingerprint",
    "seconds",
    "logs",
];
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    shape: Shape,
    /// A setting and its values: a key of `cargo xtask sim keys`, or an option of a run such as
    /// model or class (nodes with + between the ISAs); every combination is run
    #[arg(long, value_name = "KEY=V1,V2", required = true)]
    over: Vec<String>,
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

/// A setting that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis {
    key: String,
    values: Vec<String>,
}

/// A run to be made.
struct Planned {
    /// What is varied, with its values.
    varied: String,
    repeat: u32,
    config: RunConfig,
    /// Digest of all settings.
    fingerprint: String,
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
    let axes: Vec<Axis> = args
        .over
        .iter()
        .map(|word| axis(word))
        .collect::<Result<_, _>>()
        .map_err(Error::Usage)?;
    if let Some(i) = (1..axes.len()).find(|&i| axes[..i].iter().any(|a| a.key == axes[i].key)) {
        return Err(Error::Usage(format!(
            "--over {} is given twice; give all its values at once",
            axes[i].key
        )));
    }
    let base = args.shape.gather()?;
    let plan = plan(args, &base, &axes)?;
    let mut table = Table::open(args, &plan)?;
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

/// Reads `KEY=V1,V2`.
fn axis(word: &str) -> Result<Axis, String> {
    let (key, values) = word
        .split_once('=')
        .ok_or_else(|| format!("--over {word}: write KEY=V1,V2, such as l3.size=4MiB,32MiB"))?;
    let values: Vec<String> = values.split(',').map(|v| v.trim().to_string()).collect();
    if let Some(i) = (0..values.len()).find(|&i| values[..i].contains(&values[i])) {
        return Err(format!("--over {word}: {:?} is given twice", values[i]));
    }
    if values.iter().any(String::is_empty) {
        return Err(format!("--over {word}: a value is empty"));
    }
    let words = Settings::words();
    if !words.iter().any(|word| word == key) {
        let names = words.iter().map(String::as_str);
        keys::find(key).map_err(|e| match suggest::nearest(key, names) {
            Some(near) if !e.contains("did you mean") => {
                format!("--over: {e}; did you mean {near:?}?")
            }
            _ => format!(
                "--over: {e}; besides those, possible are {}",
                words.join(", ")
            ),
        })?;
    }
    Ok(Axis {
        key: key.into(),
        values,
    })
}

/// All combinations, the last axis fastest, and each of them as often as it is to be repeated.
/// Checked, so that what is wrong is said before the first run.
fn plan(args: &SweepArgs, base: &Settings, axes: &[Axis]) -> Result<Vec<Planned>, Error> {
    let mut combinations: Vec<Vec<&str>> = vec![Vec::new()];
    for axis in axes {
        let longer = combinations.iter().flat_map(|c| {
            axis.values
                .iter()
                .map(|v| c.iter().copied().chain([v.as_str()]).collect())
        });
        combinations = longer.collect();
    }
    let words = Settings::words();
    let mut plan = Vec::new();
    for values in combinations {
        let pairs = || axes.iter().map(|a| a.key.as_str()).zip(&values);
        let varied: Vec<String> = pairs().map(|(k, v)| format!("{k}={v}")).collect();
        let varied = varied.join(" ");
        let wrong = |e| Error::Usage(format!("with {varied}: {e}"));
        let mut settings = base.clone();
        for (key, value) in pairs() {
            let value = match key {
                "nodes" => value.replace('+', ","),
                _ => value.to_string(),
            };
            match words.iter().any(|word| word == key) {
                true => settings = settings.with(key, &value).map_err(wrong)?,
                false => settings.set.push(Number {
                    source: "--over".into(),
                    key: key.into(),
                    value,
                }),
            }
        }
        let config = args.shape.finish(&settings);
        let config = config.map_err(|e| wrong(e.to_string()))?;
        if config.sim == Sim::Off {
            return Err(Error::Usage(
                "sweep collects what is simulated: add --sim count, cache or timing".into(),
            ));
        }
        let digest = versions::fnv1a(format!("{config:?}").into_bytes());
        for repeat in 1..=args.repeat {
            plan.push(Planned {
                varied: varied.clone(),
                repeat,
                config: config.clone(),
                fingerprint: format!("{digest:016x}"),
            });
        }
    }
    Ok(plan)
}

/// The table on disk. Every run is written as soon as it is over.
struct Table {
    file: File,
    name: String,
    regions: bool,
    /// Rows of good runs that are there already, by fingerprint and repetition.
    there: BTreeMap<(String, String), usize>,
}

impl Table {
    /// Makes a table, or opens one to go on with it.
    fn open(args: &SweepArgs, plan: &[Planned]) -> Result<Table, Error> {
        let name = args.csv.clone();
        let path = Path::new(&name);
        let cannot = |e: std::io::Error| Error::Usage(format!("cannot write {name}: {e}"));
        let header: Vec<String> = HEAD
            .iter()
            .map(ToString::to_string)
            .chain(csv::header())
            .collect();
        let mut rows = Vec::new();
        if path.exists() {
            if !args.resume {
                return Err(Error::Usage(format!(
                    "{name} exists already: add --resume to go on with it, or remove it"
                )));
            }
            rows = kept(path, &header)?;
        } else if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(cannot)?;
        }
        let mut there: BTreeMap<(String, String), usize> = BTreeMap::new();
        for row in &rows {
            *there.entry(Self::identity(row)).or_default() += 1;
        }
        let planned = |row: &Vec<String>| {
            let (fingerprint, repeat) = Self::identity(row);
            plan.iter()
                .any(|p| p.fingerprint == fingerprint && p.repeat.to_string() == repeat)
        };
        let others = rows.iter().filter(|row| !planned(row)).count();
        if others > 0 {
            println!("{name} has {others} rows of other settings, which stay");
        }
        // As a whole or not at all.
        let text: String = [&header]
            .into_iter()
            .chain(&rows)
            .map(|r| csv::line(r))
            .collect();
        let new = format!("{name}.new");
        std::fs::write(&new, text).map_err(cannot)?;
        std::fs::rename(&new, path).map_err(cannot)?;
        let file = File::options().append(true).open(path).map_err(cannot)?;
        Ok(Table {
            file,
            name,
            regions: args.regions,
            there,
        })
    }

    /// Fingerprint and repetition of a row.
    fn identity(row: &[String]) -> (String, String) {
        let cell = |name| HEAD.iter().position(|h| *h == name).map(|i| row[i].clone());
        (
            cell("fingerprint").unwrap_or_default(),
            cell("repeat").unwrap_or_default(),
        )
    }

    /// Whether the rows of all nodes are there.
    fn has(&self, planned: &Planned) -> bool {
        let key = (planned.fingerprint.clone(), planned.repeat.to_string());
        self.there
            .get(&key)
            .is_some_and(|n| *n >= planned.config.nodes.len())
    }

    fn add(
        &mut self,
        planned: &Planned,
        report: &RunReport,
        seconds: f64,
        failure: Option<&Failure>,
    ) -> Result<(), Error> {
        let head = [
            CSV_SCHEMA.to_string(),
            planned.varied.clone(),
            planned.repeat.to_string(),
            planned.fingerprint.clone(),
            format!("{seconds:.3}"),
            failure.map_or(String::new(), |f| f.logs.display().to_string()),
        ];
        let region = csv::header().iter().position(|h| h == "region");
        let rows = csv::rows(report).into_iter();
        let rows = rows.filter(|r| self.regions || region.is_some_and(|at| r[at] == csv::WHOLE));
        let text: String = rows
            .map(|row| csv::line(&[&head[..], &row].concat()))
            .collect();
        self.file
            .write_all(text.as_bytes())
            .map_err(|e| Error::io(format_args!("cannot write {}", self.name), e))
    }
}

/// The rows of good runs in a table.
fn kept(path: &Path, header: &[String]) -> Result<Vec<Vec<String>>, Error> {
    let name = path.display();
    let usage = |why: String| Error::Usage(format!("cannot go on with {name}: {why}"));
    let text = std::fs::read_to_string(path).map_err(|e| usage(e.to_string()))?;
    // A row that was being written when the sweep was killed has no line end.
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let mut rows = csv::parse(whole).map_err(usage)?.into_iter();
    if rows.next().as_deref() != Some(header) {
        return Err(usage(
            "its columns are not those that this version writes; name another file".into(),
        ));
    }
    let ok = header.iter().position(|h| h == "ok");
    let good =
        |row: &Vec<String>| row.len() == header.len() && ok.is_some_and(|at| row[at] == "true");
    Ok(rows.filter(good).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_read() {
        let a = axis("l3.size=4MiB,32MiB").unwrap();
        assert_eq!((a.key.as_str(), a.values.len()), ("l3.size", 2));
        assert_eq!(
            axis("model=shared, separated").unwrap().values[1],
            "separated"
        );
        for (word, message) in [
            ("l3.size", "write KEY=V1,V2"),
            ("l3.sise=1", "did you mean \"l3.size\"?"),
            ("modell=shared", "did you mean \"model\"?"),
            ("l3.size=4MiB,4MiB", "is given twice"),
            ("l3.size=", "a value is empty"),
            ("colour-of-the-sky=blue", "possible are nodes, cpus"),
        ] {
            let e = axis(word).unwrap_err();
            assert!(e.contains(message), "{word}: {e}");
        }
    }
}
