//! The runs of a plan that a table does not have yet.

use std::path::PathBuf;

use dyad_launcher::error::Error;
use dyad_launcher::{launch, paths, setup};
use serde::Serialize;

use super::{Planned, Table};
use crate::held::{Done, Failure};

/// A run that failed.
#[derive(Debug, Serialize)]
pub struct Failed {
    /// What is varied, with its values.
    pub varied: String,
    /// Which repetition it is.
    pub repeat: u32,
    /// Why, and where its logs are.
    #[serde(flatten)]
    pub failure: Failure,
}

/// What has become of a plan.
#[derive(Debug)]
pub struct Made {
    /// Runs that the table had already.
    pub skipped: usize,
    /// Runs that were made.
    pub done: usize,
    /// Runs that were not made.
    pub missing: usize,
    /// Runs that were made and failed.
    pub failed: Vec<Failed>,
    /// Whether the user has had enough.
    pub interrupted: bool,
}

impl Made {
    /// What has become of a plan whose runs jobs have made; `failed` are what is varied and why.
    pub fn by_jobs(
        skipped: usize,
        done: usize,
        missing: usize,
        failed: impl Iterator<Item = (String, String)>,
        interrupted: bool,
    ) -> Made {
        let failed = failed.map(|(varied, failure)| Failed {
            varied,
            repeat: 1,
            failure: Failure {
                failure,
                logs: PathBuf::new(),
            },
        });
        Made {
            skipped,
            done,
            missing,
            failed: failed.collect(),
            interrupted,
        }
    }

    /// Whether the table has good rows of all runs.
    pub fn is_complete(&self) -> bool {
        self.missing + self.failed.len() == 0
    }

    /// In one sentence.
    pub fn outcome(&self, table: &str) -> String {
        let more = match self.missing + self.failed.len() {
            0 => String::new(),
            n => format!("; --resume makes the {n} that are missing or failed"),
        };
        let there = self.skipped + self.done;
        format!(
            "{there} runs in {table}, {} failed{more}",
            self.failed.len()
        )
    }
}

/// Makes the runs that are missing, each into the table as soon as it is over, and says how far it has come. Logs of
/// failures are in a directory whose name begins with `prefix`.
///
/// # Errors
///
/// If the next run would fail for the same reason, or the table cannot be written.
pub fn make(
    plan: &[Planned],
    table: &mut Table,
    prefix: &str,
    say: &mut dyn FnMut(&str),
) -> Result<Made, Error> {
    let wanted: Vec<&Planned> = plan.iter().filter(|p| !table.has(p)).collect();
    let mut made = Made {
        skipped: plan.len() - wanted.len(),
        done: 0,
        missing: wanted.len(),
        failed: Vec::new(),
        interrupted: false,
    };
    if made.skipped > 0 {
        let (skipped, all) = (made.skipped, plan.len());
        println!("{skipped} of {all} runs are in {} already", table.name);
    }
    for config in wanted.iter().map(|p| &p.config) {
        setup::ensure(&setup::Requirements::to_run(config), say)?;
    }
    let logs = launch::new_run_dir(prefix)?;
    let is_repeated = plan.iter().any(|p| p.repeat > 1);
    let repeats = plan.iter().map(|p| p.repeat).max().unwrap_or(1);
    let mut spent = 0.0;
    for (i, planned) in wanted.iter().enumerate() {
        let run = match Done::run(&planned.config, logs.join(format!("run{i:04}")), i == 0) {
            Ok(run) => run,
            Err(Error::Interrupted) => {
                made.interrupted = true;
                break;
            }
            Err(e) => return Err(e),
        };
        made.done += 1;
        made.missing -= 1;
        spent += run.seconds;
        let failure = run.settle()?;
        table.add(planned, &run.report, run.seconds, failure.as_ref())?;
        let left = match made.missing {
            0 => String::new(),
            n => format!(
                "; {n} left, about {:.0} s",
                spent / made.done as f64 * n as f64
            ),
        };
        let verdict = match &failure {
            None => "ok".to_string(),
            Some(f) => format!("FAILED: {}; logs in {}", f.failure, paths::shown(&f.logs)),
        };
        println!(
            "run {} of {}: {}{}: {:.1} s, {verdict}{left}",
            made.done,
            wanted.len(),
            planned.varied,
            match is_repeated {
                false => String::new(),
                true => format!(" ({} of {repeats})", planned.repeat),
            },
            run.seconds
        );
        if let Some(failure) = failure {
            made.failed.push(Failed {
                varied: planned.varied.clone(),
                repeat: planned.repeat,
                failure,
            });
        }
    }
    if made.failed.is_empty() {
        // Nothing in it.
        let _ = std::fs::remove_dir(&logs);
    }
    Ok(made)
}
