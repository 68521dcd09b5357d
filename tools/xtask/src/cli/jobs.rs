//! Runs of a sweep on a batch system.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::{build, kept, launch, paths, setup, signals};
use dyad_measure::sweep::{Jobs, Made, Merged, Planned, Request, Table, make};

/// How often it is looked whether jobs have come to their ends.
const LOOK: Duration = Duration::from_millis(500);

/// A batch system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Engine {
    /// Slurm, by `sbatch`
    Slurm,
}

#[derive(Debug, Args)]
pub(super) struct JobArgs {
    /// Make the runs as jobs of a batch system; the work tree, its target directory and the table have to be at the same place on all
    /// its computers
    #[arg(long, value_name = "ENGINE", help_heading = JOBS)]
    on: Option<Engine>,
    /// Print the scripts, and submit nothing
    #[arg(long, requires = "on", help_heading = JOBS)]
    dry_run: bool,
    /// An option of each job, such as --partition=short
    #[arg(long, value_name = "OPTION", requires = "on", allow_hyphen_values = true, help_heading = JOBS)]
    job_option: Vec<String>,
    /// Take what jobs have left into the table, and make no runs
    #[arg(long, requires = "resume", conflicts_with = "on", help_heading = JOBS)]
    merge: bool,
    /// This is the job of the run with this number
    #[arg(long, value_name = "N", hide = true)]
    pub(super) point: Option<usize>,
}

const JOBS: &str = "Batch systems";

/// The command line of a job, but for the number of its run: the one of this process.
fn words(jobs: &Jobs) -> Vec<String> {
    let program = jobs.program().display().to_string();
    let own = std::env::args_os().skip(1);
    let own = own.map(|word| word.to_string_lossy().into_owned());
    std::iter::once(program).chain(own).collect()
}

/// The places in a plan of the runs that a table does not have.
fn wanted(plan: &[Planned], table: &Table) -> Vec<usize> {
    let lacks = |n: &usize| !table.has(&plan[*n]);
    (0..plan.len()).filter(lacks).collect()
}

impl JobArgs {
    /// Whether runs are made by jobs, or have been.
    pub(super) fn uses_jobs(&self) -> bool {
        self.on.is_some() || self.merge
    }

    fn scripts(
        &self,
        jobs: &Jobs,
        plan: &[Planned],
        wanted: &[usize],
    ) -> Vec<(std::path::PathBuf, String)> {
        let request = Request::of(wanted.iter().map(|n| &plan[*n].config));
        jobs.scripts(wanted, &request, &words(jobs), &self.job_option)
    }

    /// What would be submitted, if only that is asked for.
    pub(super) fn dry_run(&self, plan: &[Planned], csv: &str) -> Result<Option<String>, Error> {
        if !self.dry_run {
            return Ok(None);
        }
        let there = match Path::new(csv).exists() {
            true => dyad_measure::sweep::Rows::read(Path::new(csv)).map(Some)?,
            false => None,
        };
        let good = |p: &Planned| {
            let rows = there
                .as_ref()
                .map_or(0, |rows| rows.of(p).filter(|row| row.is_good()).count());
            rows >= p.config.nodes.len()
        };
        let wanted: Vec<usize> = (0..plan.len()).filter(|n| !good(&plan[*n])).collect();
        let scripts = self.scripts(&Jobs::of(csv), plan, &wanted);
        let texts = scripts.iter().map(|(file, text)| {
            format!("# {}: sbatch --wait --parsable\n{text}\n", file.display())
        });
        let count = format!(
            "# {} runs, {} calls of the scheduler\n",
            wanted.len(),
            scripts.len()
        );
        Ok(Some(texts.chain([count]).collect()))
    }

    /// Takes what earlier jobs have left, makes the runs that are still missing, unless only that was asked for, and takes what their
    /// jobs have left.
    pub(super) fn make(
        &self,
        plan: &[Planned],
        table: &mut Table,
        csv: &str,
    ) -> Result<Made, Error> {
        let jobs = Jobs::of(csv);
        let skipped = plan.len() - wanted(plan, table).len();
        let mut merged = jobs.merge(plan, table)?;
        let mut interrupted = false;
        let mut done = merged.taken;
        if !self.merge {
            let wanted = wanted(plan, table);
            if done > 0 {
                println!("{done} runs have come from earlier jobs");
            }
            if !wanted.is_empty() {
                interrupted = !self.submit(&jobs, plan, &wanted)?;
                merged = jobs.merge(plan, table)?;
                done += merged.taken;
            }
        }
        say(&merged);
        let failed = merged
            .failed
            .iter()
            .map(|(varied, why)| (varied.clone(), why.clone()));
        Ok(Made::by_jobs(
            skipped,
            done,
            merged.missing.len(),
            failed,
            interrupted,
        ))
    }

    /// Builds, submits and waits. Gives whether all jobs have ended.
    fn submit(&self, jobs: &Jobs, plan: &[Planned], wanted: &[usize]) -> Result<bool, Error> {
        jobs.prepare()?;
        jobs.forget(wanted);
        let mut display = Display::new(Verbosity::Normal);
        for config in wanted.iter().map(|n| &plan[*n].config) {
            setup::ensure(&setup::Requirements::to_run(config), &mut super::say)?;
            launch::build(config, &mut display)?;
        }
        kept::keep(&build::built(), &jobs.built())?;
        let program =
            std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
        copy(&program, &jobs.program())?;
        let scripts = self.scripts(jobs, plan, wanted);
        println!("{} jobs, {} calls of sbatch", wanted.len(), scripts.len());
        let mut waiting = Vec::new();
        for (file, text) in &scripts {
            super::result::write_file(&file.display().to_string(), text)?;
            waiting.push(sbatch(file)?);
        }
        wait(&mut waiting, jobs, wanted)
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    // A job may still run what is there: that stays until the new file is whole.
    let new = to.with_extension("new");
    let cannot = |e| Error::io(format_args!("cannot write {}", to.display()), e);
    std::fs::copy(from, &new).map_err(cannot)?;
    std::fs::rename(&new, to).map_err(cannot)
}

/// Submits a script; the process ends when its jobs have.
fn sbatch(script: &Path) -> Result<Child, Error> {
    let mut c = Command::new("sbatch");
    c.args(["--wait", "--parsable"]).arg(script);
    c.stdin(Stdio::null()).stdout(Stdio::null());
    c.spawn().map_err(|e| {
        Error::Setup(format!(
            "cannot start sbatch: {e}; --on slurm needs the client programs of Slurm, without which the same sweep runs here"
        ))
    })
}

/// Waits until all jobs have ended, or the user has had enough.
fn wait(waiting: &mut Vec<Child>, jobs: &Jobs, wanted: &[usize]) -> Result<bool, Error> {
    let begin = Instant::now();
    let mut said = usize::MAX;
    loop {
        let come = jobs.come(wanted);
        if come != said {
            said = come;
            let left = match come {
                0 => String::new(),
                n => {
                    let each = begin.elapsed().as_secs_f64() / n as f64;
                    format!(", about {:.0} s left", each * (wanted.len() - n) as f64)
                }
            };
            println!(
                "{come} of {} jobs have left their tables{left}",
                wanted.len()
            );
        }
        let mut still = Vec::new();
        for mut child in waiting.drain(..) {
            // What its jobs have come to is in their tables, or in that there is none.
            let ended = child
                .try_wait()
                .map_err(|e| Error::io("cannot wait for sbatch", e))?;
            if ended.is_none() {
                still.push(child);
            }
        }
        *waiting = still;
        if waiting.is_empty() {
            return Ok(true);
        }
        if signals::count() > 0 {
            println!(
                "the jobs go on; --resume with --merge takes what they have left, scancel ends them"
            );
            for child in waiting.iter_mut() {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
            }
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
}

fn say(merged: &Merged) {
    for (varied, why) in &merged.failed {
        println!("FAILED: {varied}: {why}");
    }
    for why in &merged.refused {
        println!("refused: {why}");
    }
    for (varied, log) in &merged.missing {
        println!(
            "missing: {varied}; its job's output is in {}",
            paths::shown(log)
        );
    }
}

/// A job: makes the run with this number, and leaves a table.
pub(super) fn point(plan: &[Planned], n: usize, csv: &str, regions: bool) -> Result<u8, Error> {
    let jobs = Jobs::of(csv);
    let Some(one) = plan.get(n..=n) else {
        return Err(Error::Usage(format!(
            "there is no run {n}: there are {}",
            plan.len()
        )));
    };
    kept::use_kept(&jobs.built())?;
    let file = jobs.point(n);
    let part = file.with_extension("part");
    // One that a job which has died has left.
    let _ = std::fs::remove_file(&part);
    let mut table = Table::open(&part.display().to_string(), regions, false, one)?;
    let made = make(one, &mut table, &format!("job{n:04}-"), &mut super::say)?;
    if made.interrupted || made.done == 0 {
        return Err(Error::Interrupted);
    }
    let cannot = |e| Error::io(format_args!("cannot write {}", file.display()), e);
    std::fs::rename(&part, &file).map_err(cannot)?;
    Ok(u8::from(!made.is_complete()))
}
