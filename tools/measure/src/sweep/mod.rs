//! A matrix of settings, into one table.

mod jobs;
mod make;
mod rows;
mod summary;
mod versions;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use dyad_launcher::config::{Number, RunConfig, Settings, Sim};
use dyad_launcher::csv;
use dyad_launcher::error::Error;
use dyad_launcher::launch::RunReport;
use dyad_launcher::sim::keys;
use dyad_launcher::sim::versions::{Versions, fnv1a};
use dyad_launcher::suggest;

use crate::held::Failure;
pub use jobs::{ARRAY, Jobs, Merged, Request};
pub use make::{Failed, Made, make};
pub use rows::{Row, Rows};
pub use summary::{Combination, Part, combinations};
use versions::Columns;
pub use versions::{Difference, OtherVersions};

/// Name and version of the form of the table, in the first column of every row.
const CSV_SCHEMA: &str = "dyad.sweep.csv/3";
/// Columns before those of a run.
const HEAD: [&str; 6] = [
    "sweep_schema",
    "varied",
    "repeat",
    "fingerprint",
    "seconds",
    "logs",
];
/// A setting that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its key.
    pub key: String,
    /// Its values, as they were written.
    pub values: Vec<String>,
}

/// A run to be made.
pub struct Planned {
    /// What is varied, with its values.
    pub varied: String,
    /// Which repetition it is, from 1.
    pub repeat: u32,
    /// The run.
    pub config: RunConfig,
    /// Digest of all settings.
    fingerprint: String,
}

impl Planned {
    /// A run, as the repetition of this number.
    pub fn new(varied: String, repeat: u32, config: RunConfig) -> Planned {
        let digest = fnv1a(format!("{config:?}").into_bytes());
        Planned {
            varied,
            repeat,
            config,
            fingerprint: format!("{digest:016x}"),
        }
    }

    /// What is varied, and which repetition it is unless it is the first.
    pub fn name(&self) -> String {
        match self.repeat {
            1 => self.varied.clone(),
            n => format!("{} ({n})", self.varied),
        }
    }

    /// Digest of all settings: runs of the same settings have the same.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl FromStr for Axis {
    type Err = String;

    fn from_str(word: &str) -> Result<Axis, String> {
        axis(word)
    }
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
/// `finish` makes a run of settings.
///
/// # Errors
///
/// If a combination is wrong, or an axis is given twice: said before the first run.
pub fn plan(
    base: &Settings,
    axes: &[Axis],
    repeat: u32,
    finish: impl Fn(&Settings) -> Result<RunConfig, Error>,
) -> Result<Vec<Planned>, Error> {
    if let Some(i) = (1..axes.len()).find(|&i| axes[..i].iter().any(|a| a.key == axes[i].key)) {
        return Err(Error::Usage(format!(
            "--over {} is given twice; give all its values at once",
            axes[i].key
        )));
    }
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
        let config = finish(&settings);
        let config = config.map_err(|e| wrong(e.to_string()))?;
        if config.sim == Sim::Off {
            return Err(Error::Usage(
                "sweep collects what is simulated: add --sim count, cache or timing".into(),
            ));
        }
        let repeats = 1..=repeat;
        plan.extend(repeats.map(|repeat| Planned::new(varied.clone(), repeat, config.clone())));
    }
    Ok(plan)
}

/// The table on disk. Every run is written as soon as it is over.
pub struct Table {
    file: File,
    name: String,
    regions: bool,
    /// Rows of good runs that are there already, by fingerprint and repetition.
    there: BTreeMap<(String, String), usize>,
    /// What those rows were made with, each once, and the settings of the runs that are planned.
    made_with: Vec<(Columns, Option<RunConfig>)>,
}

impl Table {
    /// Makes a table, or opens one to go on with it if that is asked for; `regions` have rows of their own in it if
    /// that is.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or is there already, has other columns, or rows of other versions to which runs would
    /// be added.
    pub fn open(name: &str, regions: bool, resume: bool, plan: &[Planned]) -> Result<Table, Error> {
        let path = Path::new(name);
        let cannot = |e: std::io::Error| Error::Usage(format!("cannot write {name}: {e}"));
        let header = rows::header();
        let mut rows = Vec::new();
        if path.exists() {
            if !resume {
                return Err(Error::Usage(format!(
                    "{name} exists already: add --resume to go on with it, or remove it"
                )));
            }
            let good = Rows::read(path)?;
            let good = good.all().filter(|row| row.is_good());
            rows = good.map(|row| row.cells().to_vec()).collect();
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
                .find(|p| p.fingerprint == fingerprint && p.repeat.to_string() == repeat)
        };
        // A run of which a part was written is made again: its rows would be there twice.
        rows.retain(|row| planned(row).is_none_or(|p| is_there(&there, p)));
        let others = rows.iter().filter(|row| planned(row).is_none()).count();
        if others > 0 {
            println!("{name} has {others} rows of other settings, which stay");
        }
        let mut made_with: Vec<(Columns, Option<RunConfig>)> = Vec::new();
        let first = header.iter().position(|h| *h == Versions::COLUMNS[0]);
        for row in &rows {
            let at = |i: usize| row[first.unwrap_or_default() + i].clone();
            let columns: Columns = std::array::from_fn(at);
            let of = plan.iter().find(|p| p.fingerprint == Self::identity(row).0);
            let entry = (columns, of.map(|p| p.config.clone()));
            if !made_with.contains(&entry) {
                made_with.push(entry);
            }
        }
        let lacks = |p: &Planned| !is_there(&there, p);
        if let Some(p) = plan.iter().find(|p| lacks(p)) {
            // More is known when it has been built.
            check_versions(
                name,
                &made_with,
                &Versions::of_sources().columns(),
                &p.config,
            )?;
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
            name: name.into(),
            regions,
            there,
            made_with,
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
    pub fn has(&self, planned: &Planned) -> bool {
        is_there(&self.there, planned)
    }

    /// Adds the rows of a run.
    ///
    /// # Errors
    ///
    /// If they cannot be written, or the table has rows of other versions.
    pub fn add(
        &mut self,
        planned: &Planned,
        report: &RunReport,
        seconds: f64,
        failure: Option<&Failure>,
    ) -> Result<(), Error> {
        if let Some(outcome) = &report.simulation {
            let here = outcome.versions.columns();
            check_versions(&self.name, &self.made_with, &here, &planned.config)?;
        }
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
        self.append(&text)
    }

    fn append(&mut self, text: &str) -> Result<(), Error> {
        self.file
            .write_all(text.as_bytes())
            .map_err(|e| Error::io(format_args!("cannot write {}", self.name), e))
    }

    /// Adds the rows of a run that another table has.
    ///
    /// # Errors
    ///
    /// If they cannot be written, or were made with other versions than the rows that are there.
    pub fn take(&mut self, planned: &Planned, from: &Rows) -> Result<(), Error> {
        let rows: Vec<Row<'_>> = from.of(planned).collect();
        let versions = rows
            .iter()
            .map(|row| Versions::COLUMNS.map(|c| row.cell(c).to_string()));
        let mut versions: Vec<Columns> = versions.collect();
        versions.dedup();
        for here in &versions {
            check_versions(&self.name, &self.made_with, here, &planned.config)?;
        }
        self.append(
            &rows
                .iter()
                .map(|row| csv::line(row.cells()))
                .collect::<String>(),
        )?;
        if rows.iter().all(|row| row.is_good()) {
            let key = (planned.fingerprint.clone(), planned.repeat.to_string());
            *self.there.entry(key).or_default() += rows.len();
        }
        let made_with = versions
            .into_iter()
            .map(|v| (v, Some(planned.config.clone())));
        self.made_with.extend(made_with);
        Ok(())
    }
}

/// Whether the rows of all nodes of a run are there.
fn is_there(there: &BTreeMap<(String, String), usize>, planned: &Planned) -> bool {
    let key = (planned.fingerprint.clone(), planned.repeat.to_string());
    let rows = there.get(&key);
    rows.is_some_and(|n| *n >= planned.config.nodes.len())
}

/// Refuses a run that was made with other versions than the rows of a table.
fn check_versions(
    table: &str,
    made_with: &[(Columns, Option<RunConfig>)],
    here: &Columns,
    config: &RunConfig,
) -> Result<(), OtherVersions> {
    let mut all = made_with
        .iter()
        .map(|(row, of)| versions::differences((row, of.as_ref()), (here, config)));
    match all.find(|differences| !differences.is_empty()) {
        None => Ok(()),
        Some(differences) => Err(OtherVersions {
            table: table.into(),
            differences,
        }),
    }
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
