//! Runs of a sweep as jobs of a batch system: a job makes one run and leaves one small table, which is merged later.
//!
//! ```text
//!  plan ─▶ built, set aside ─▶ script ─▶ batch system: one array, one job per run ─▶ points/0007.csv ─▶ merged into the table
//! ```
//!
//! A job that dies leaves no table. Its run is missing, and `--resume` submits the run again. A table is written as a whole.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use dyad_launcher::config::RunConfig;
use dyad_launcher::error::Error;
use dyad_sim_model::config::Order;

use super::{Planned, Rows, Table};

/// Jobs of one array: no cluster that has the usual settings takes more at once.
pub const ARRAY: usize = 1000;
/// What an emulator takes beside the memory of its machine, and the launcher.
const OVERHEAD: u64 = 512 << 20;
/// A job may take so much longer than the run in it.
const MARGIN_SECONDS: u64 = 120;

/// The files of a sweep's jobs.
#[derive(Clone, Debug)]
pub struct Jobs {
    dir: PathBuf,
}

/// What has been merged.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Runs whose rows have come into the table.
    pub taken: usize,
    /// Those of them that have failed, by what is varied, with the reasons.
    pub failed: Vec<(String, String)>,
    /// Runs without a table: what is varied, and where the job's output is.
    pub missing: Vec<(String, PathBuf)>,
    /// Tables that were refused, with the reasons.
    pub refused: Vec<String>,
}

/// What jobs ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The largest run's memory, in bytes.
    pub memory: u64,
    /// The largest run's processors.
    pub cpus: usize,
    /// The longest run's bound, in seconds; `None`: that of the cluster.
    pub seconds: Option<u64>,
}

impl Request {
    /// For all of these runs: an array asks for the same for each job.
    pub fn of<'a>(runs: impl Iterator<Item = &'a RunConfig> + Clone) -> Request {
        let memory = |c: &RunConfig| {
            let nodes = c.nodes.len() as u64;
            nodes * (c.mem_local + OVERHEAD) + c.mem_cxl + OVERHEAD
        };
        // In strict order one CPU executes at a time, and the others' threads wait.
        let cpus = |c: &RunConfig| match c.setup.order {
            Order::Strict { .. } => 2,
            Order::Parallel => c.nodes.len() * c.cpus,
        };
        let limits = runs
            .clone()
            .map(|c| Some(c.timeout?.as_secs() + MARGIN_SECONDS));
        Request {
            memory: runs.clone().map(memory).max().unwrap_or(OVERHEAD),
            cpus: runs.map(cpus).max().unwrap_or(1),
            seconds: limits.reduce(|a, b| Some(a?.max(b?))).flatten(),
        }
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Numbers in the form of Slurm's arrays, such as `0-3,7`.
fn ranges(numbers: &[usize]) -> String {
    let mut all: Vec<(usize, usize)> = Vec::new();
    for &n in numbers {
        match all.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => all.push((n, n)),
        }
    }
    let texts = all.iter().map(|&(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

impl Jobs {
    /// The jobs whose runs go into a table.
    pub fn of(csv: &str) -> Jobs {
        let dir = PathBuf::from(format!("{csv}.jobs"));
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        Jobs { dir }
    }

    /// What was built for them.
    pub fn built(&self) -> PathBuf {
        self.dir.join("built")
    }

    /// The program that jobs run.
    pub fn program(&self) -> PathBuf {
        self.dir.join("xtask")
    }

    /// The table of a run, by its place in the plan.
    pub fn point(&self, n: usize) -> PathBuf {
        self.dir.join(format!("points/{n:04}.csv"))
    }

    fn log(&self, n: usize) -> PathBuf {
        self.dir
            .join(format!("logs/{}-{}.log", n / ARRAY, n % ARRAY))
    }

    /// Makes the directories.
    ///
    /// # Errors
    ///
    /// If they cannot be made.
    pub fn prepare(&self) -> Result<(), Error> {
        for part in ["points", "logs"] {
            let dir = self.dir.join(part);
            std::fs::create_dir_all(&dir)
                .map_err(|e| Error::Usage(format!("cannot make {}: {e}", dir.display())))?;
        }
        Ok(())
    }

    /// How many of these runs have left a table.
    pub fn come(&self, wanted: &[usize]) -> usize {
        wanted.iter().filter(|n| self.point(**n).is_file()).count()
    }

    /// The scripts for the batch system Slurm, one for each array, with the files that they are for. `words` is the command line of a
    /// job but for the run's number, `more` are further options for each array.
    pub fn scripts(
        &self,
        wanted: &[usize],
        request: &Request,
        words: &[String],
        more: &[String],
    ) -> Vec<(PathBuf, String)> {
        let arrays = wanted.chunk_by(|a, b| a / ARRAY == b / ARRAY);
        let script = |array: &[usize]| {
            let number = array.first().map_or(0, |n| n / ARRAY);
            let tasks: Vec<usize> = array.iter().map(|n| n % ARRAY).collect();
            let mut text = String::from("#!/bin/sh\n");
            let mut option = |line: &str| {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "#SBATCH {line}");
            };
            option("--job-name=dyad-sweep");
            option(&format!("--array={}", ranges(&tasks)));
            option(&format!("--mem={}M", request.memory.div_ceil(1 << 20)));
            option(&format!("--cpus-per-task={}", request.cpus));
            if let Some(seconds) = request.seconds {
                option(&format!("--time={}", seconds.div_ceil(60)));
            }
            option(&format!(
                "--output={}/logs/{number}-%a.log",
                quoted(&self.dir.display().to_string())
            ));
            more.iter().for_each(|line| option(line));
            let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let _ = writeln!(
                text,
                "exec {} --point $(({} + SLURM_ARRAY_TASK_ID))",
                line.join(" "),
                number * ARRAY
            );
            (self.dir.join(format!("job-{number}.sh")), text)
        };
        arrays.map(script).collect()
    }

    /// Takes the tables of the runs that the sweep's table does not have.
    ///
    /// # Errors
    ///
    /// If the sweep's table cannot be written.
    pub fn merge(&self, plan: &[Planned], table: &mut Table) -> Result<Merged, Error> {
        let mut merged = Merged::default();
        for (n, planned) in plan.iter().enumerate() {
            if table.has(planned) {
                continue;
            }
            let file = self.point(n);
            if !file.is_file() {
                merged.missing.push((planned.name(), self.log(n)));
                continue;
            }
            match self.take(&file, planned, table)? {
                Ok(failure) => {
                    // A table is taken once, also one of a run that has failed.
                    self.forget(&[n]);
                    merged.taken += 1;
                    let failure = failure.map(|why| (planned.name(), why));
                    merged.failed.extend(failure);
                }
                Err(why) => {
                    merged.refused.push(format!("{}: {why}", file.display()));
                    merged.missing.push((planned.name(), self.log(n)));
                }
            }
        }
        Ok(merged)
    }

    /// Takes one table; gives why its run failed, or why the table is refused.
    fn take(
        &self,
        file: &Path,
        planned: &Planned,
        table: &mut Table,
    ) -> Result<Result<Option<String>, String>, Error> {
        let rows = match Rows::read(file) {
            Ok(rows) => rows,
            Err(e) => return Ok(Err(e.to_string())),
        };
        if rows.all().count() != rows.of(planned).count() || rows.all().next().is_none() {
            return Ok(Err("its rows are not of this run".into()));
        }
        let bad = rows.all().find(|row| !row.is_good());
        let failure = bad.map(|row| row.cell("failure").to_string());
        match table.take(planned, &rows) {
            Ok(()) => Ok(Ok(failure)),
            Err(Error::Usage(why)) => Ok(Err(why)),
            Err(e) => Err(e),
        }
    }

    /// Removes the tables of runs.
    pub fn forget(&self, wanted: &[usize]) {
        for n in wanted {
            // One that is not there need not be removed.
            let _ = std::fs::remove_file(self.point(*n));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_launcher::config::Settings;

    fn planned(seconds: u64) -> Planned {
        let settings = Settings {
            app: Some("hello".into()),
            timeout: Some(dyad_launcher::config::Whole(seconds)),
            ..Settings::default()
        };
        Planned::new(format!("timeout={seconds}"), 1, settings.resolve().unwrap())
    }

    #[test]
    fn arrays_name_their_jobs_and_ask_for_what_the_largest_run_takes() {
        let runs = [planned(60), planned(600)];
        let request = Request::of(runs.iter().map(|p| &p.config));
        assert_eq!(request.seconds, Some(720));
        let pools = 2 * (256 << 20) + (512 << 20);
        assert_eq!(request.memory, pools + 3 * OVERHEAD);
        let jobs = Jobs::of("a b.csv");
        let wanted: Vec<usize> = (0..4).chain([7]).chain(1000..1002).collect();
        let words = ["./x".to_string(), "--app=it's".into()];
        let scripts = jobs.scripts(&wanted, &request, &words, &["--partition=p".into()]);
        assert_eq!(scripts.len(), 2);
        for line in [
            "#SBATCH --array=0-3,7\n",
            "#SBATCH --mem=2560M\n",
            "#SBATCH --time=12\n",
            "#SBATCH --partition=p\n",
            "exec ./x '--app=it'\\''s' --point $((0 + SLURM_ARRAY_TASK_ID))\n",
        ] {
            assert!(
                scripts[0].1.contains(line),
                "{line:?} not in {}",
                scripts[0].1
            );
        }
        assert!(scripts[1].1.contains("--array=0-1\n"));
        assert!(scripts[1].1.contains("$((1000 + SLURM_ARRAY_TASK_ID))"));
        // A run without a bound has that of the cluster.
        let mut config = runs[0].config.clone();
        config.timeout = None;
        let without = [runs[1].config.clone(), config];
        assert_eq!(Request::of(without.iter()).seconds, None);
    }

    #[test]
    fn tables_of_other_runs_are_refused_and_those_that_are_not_there_are_missing() {
        let dir = std::env::temp_dir().join(format!("dyad-jobs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let csv = dir.join("t.csv").display().to_string();
        let plan = [planned(1), planned(2), planned(3)];
        let mut table = Table::open(&csv, false, false, &plan).unwrap();
        let jobs = Jobs::of(&csv);
        jobs.prepare().unwrap();
        let header = super::super::rows::header();
        let row = |p: &Planned, ok: &str| {
            let cell = |name: &String| match name.as_str() {
                "fingerprint" => p.fingerprint().to_string(),
                "repeat" => "1".into(),
                "ok" => ok.into(),
                "failure" if ok == "false" => "it fell".into(),
                _ => String::new(),
            };
            header.iter().map(cell).collect::<Vec<_>>()
        };
        let write = |n: usize, rows: &[Vec<String>]| {
            let lines = [&header].into_iter().chain(rows);
            let text: String = lines.map(|r| dyad_launcher::csv::line(r)).collect();
            std::fs::write(jobs.point(n), text).unwrap();
        };
        write(0, &[row(&plan[0], "true"), row(&plan[0], "true")]);
        write(1, &[row(&plan[2], "true")]);
        let merged = jobs.merge(&plan, &mut table).unwrap();
        assert_eq!((merged.taken, merged.failed.len()), (1, 0));
        assert_eq!(merged.refused.len(), 1, "{merged:?}");
        let missing: Vec<&str> = merged
            .missing
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(missing, ["timeout=2", "timeout=3"]);
        // What has been taken is there, and what failed is said.
        write(1, &[row(&plan[1], "false")]);
        let merged = jobs.merge(&plan, &mut table).unwrap();
        assert_eq!(merged.taken, 1);
        assert_eq!(
            merged.failed,
            [("timeout=2".to_string(), "it fell".to_string())]
        );
        assert_eq!(Rows::read(Path::new(&csv)).unwrap().all().count(), 3);
        // A cut table has no rows left.
        std::fs::write(jobs.point(2), "sweep_schema,var").unwrap();
        assert_eq!(jobs.merge(&plan, &mut table).unwrap().refused.len(), 1);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
