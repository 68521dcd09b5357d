//! Runs whose output is held back, to be written down only if they fail: for commands that make
//! many.

use std::path::PathBuf;
use std::time::Instant;

use dyad_launcher::config::RunConfig;
use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{self, Event, RunReport, Sink};
use dyad_launcher::signals;

/// A run that has come to its end.
pub struct Done {
    /// What came out.
    pub report: RunReport,
    /// Host time.
    pub seconds: f64,
    log: Vec<u8>,
}

/// A run that failed, as it is written down.
#[derive(Debug, serde::Serialize)]
pub struct Failure {
    /// Why.
    pub failure: String,
    /// Where its logs are.
    pub logs: PathBuf,
}

/// Keeps what happens.
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

impl Done {
    /// Makes a run with its logs in `dir`; shows what is built, if it is the first.
    ///
    /// # Errors
    ///
    /// If the next run would fail for the same reason, or the user has had enough.
    pub fn run(config: &RunConfig, dir: PathBuf, first: bool) -> Result<Done, Error> {
        let start = Instant::now();
        let mut sink = Held {
            progress: first.then(|| Display::new(Verbosity::Normal)),
            log: Vec::new(),
        };
        let report = launch::run_in(config, Some(dir), &mut sink);
        if let Some(progress) = &mut sink.progress {
            progress.event(Event::Status(""));
        }
        if let Some(
            e @ (Error::Usage(_) | Error::Setup(_) | Error::Build(_) | Error::Interrupted),
        ) = report.error
        {
            return Err(e);
        }
        if signals::count() > 0 {
            return Err(Error::Interrupted);
        }
        Ok(Done {
            report,
            seconds: start.elapsed().as_secs_f64(),
            log: sink.log,
        })
    }

    /// Keeps the logs of a run that failed and says why it did; removes those of a good one.
    ///
    /// # Errors
    ///
    /// If logs cannot be written.
    pub fn settle(&self) -> Result<Option<Failure>, Error> {
        let dir = &self.report.dir;
        let Some(failure) = self.report.failure() else {
            // Only the logs of failures are of use.
            let _ = std::fs::remove_dir_all(dir);
            return Ok(None);
        };
        let merged = dir.join("merged.log");
        std::fs::write(&merged, &self.log)
            .map_err(|e| Error::io(format_args!("cannot write {}", merged.display()), e))?;
        let report = dir.join("report.json");
        std::fs::write(&report, format!("{:#}\n", self.report.json()))
            .map_err(|e| Error::io(format_args!("cannot write {}", report.display()), e))?;
        Ok(Some(Failure {
            failure,
            logs: dir.clone(),
        }))
    }
}
