//! Runs in which a machine is killed once the time has come.

use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dyad_abi::record::Level;
use dyad_launcher::config::RunConfig;
use dyad_launcher::console::{Line, Record};
use dyad_launcher::launch::{self, Event, RunReport};
use libtest_mimic::Failed;

use crate::console::{Kept, because};

/// How long a machine that is stopped first stands still.
const PAUSE: Duration = Duration::from_millis(200);

/// A machine, and how it is killed.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// Its node.
    pub node: usize,
    /// How long after its time has come.
    pub after: Duration,
    /// Whether it is stopped for a moment before.
    pub paused: bool,
}

impl Kill {
    /// Of that node, at once.
    pub fn of(node: usize) -> Kill {
        Kill::after(node, Duration::ZERO)
    }

    /// Of that node, somewhat later.
    pub fn after(node: usize, after: Duration) -> Kill {
        Kill {
            node,
            after,
            paused: false,
        }
    }

    /// Kills the process unless the run is over before; when it did.
    fn carry_out(self, pid: u32, is_over: &Receiver<()>) -> Option<Instant> {
        let goes_on = |time| is_over.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if !goes_on(self.after) {
            return None;
        }
        if self.paused {
            signal(pid, "STOP").ok()?;
            if !goes_on(PAUSE) {
                return None;
            }
        }
        signal(pid, "KILL").ok()?;
        Some(Instant::now())
    }
}

impl std::fmt::Display for Kill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paused = if self.paused { "stopped and " } else { "" };
        let Kill { node, after, .. } = self;
        write!(f, "node {node} {paused}killed after {after:?}")
    }
}

/// A run that has ended.
pub struct Ended {
    /// What was to be killed, if anything.
    pub kill: Option<Kill>,
    pub report: RunReport,
    /// What it printed.
    pub text: String,
    /// How long it went on after the machine had been killed; nothing if that was not killed.
    pub went_on: Option<Duration>,
    /// How long the program went on after the machine had been killed: until the check `app.exit`. Zero if it had
    /// ended before; nothing if no machine was killed, or the check did not come.
    pub program_went_on: Option<Duration>,
    /// How long the program went on after init had last said that a thread is lost with a node; nothing if init has not said so.
    pub program_outlived_thread: Option<Duration>,
}

impl Ended {
    /// How long it went on after the machine had been killed; fails if that was not killed.
    pub fn killed(&self) -> Result<Duration, Failed> {
        match self.went_on {
            Some(time) => Ok(time),
            None => self.because("nobody was killed"),
        }
    }

    /// Fails unless the machine was killed, and the run has ended soon after that.
    pub fn within(&self, limit: Duration) -> Result<(), Failed> {
        match self.killed()? {
            time if time <= limit => Ok(()),
            time => self.because(format_args!("the run went on for {time:?}")),
        }
    }

    /// Whether there is such a check, and it has passed.
    pub fn passed(&self, check: &str) -> bool {
        (self.report.checks.iter()).any(|c| c.name == check && c.ok)
    }

    /// Fails unless all frames came back, but for those that a machine can have been changing when it died.
    pub fn lost_no_more_than(&self, frames: u64) -> Result<(), Failed> {
        let check = (self.report.checks.iter()).find(|c| c.name == "frames.returned");
        match check.map(|c| missing(&c.detail)) {
            Some(Some(lost)) if lost <= frames => Ok(()),
            other => self.because(format_args!("frames missing: {other:?}")),
        }
    }

    /// Fails, with what the system printed.
    pub fn because<T>(&self, why: impl std::fmt::Display) -> Result<T, Failed> {
        match &self.kill {
            Some(kill) => because(&self.text, format_args!("{kill}: {why}")),
            None => because(&self.text, why),
        }
    }
}

/// Of "N of M frames": how many are missing.
pub fn missing(detail: &str) -> Option<u64> {
    let mut numbers = detail.split_whitespace().filter_map(|w| w.parse().ok());
    let (back, all): (u64, u64) = (numbers.next()?, numbers.next()?);
    all.checked_sub(back)
}

/// Whether a node prints these words.
pub fn says(words: &str) -> impl FnMut(&Event<'_>) -> bool + use<'_> {
    move |event| match event {
        Event::Line {
            line: Line::Log { text, .. },
            ..
        } => text.contains(words),
        _ => false,
    }
}

/// Whether a program says anything.
pub fn speaks(event: &Event<'_>) -> bool {
    match event {
        Event::Line {
            line: Line::Log { level, .. },
            ..
        } => *level == Level::User,
        _ => false,
    }
}

/// Runs a system and kills a machine once it is time: from the first event on that `is_time` tells.
pub fn run(config: &RunConfig, kill: Kill, is_time: impl FnMut(&Event<'_>) -> bool) -> Ended {
    run_each(config, vec![(kill, is_time)])
}

/// A machine that is to be killed.
struct Doomed<F> {
    kill: Kill,
    is_time: F,
    pid: Option<u32>,
    is_over: Option<Receiver<()>>,
    killer: Option<JoinHandle<Option<Instant>>>,
}

/// Kills several machines, each at its own time. The run goes on after the last one has been killed.
pub fn run_each<F>(config: &RunConfig, kills: Vec<(Kill, F)>) -> Ended
where
    F: FnMut(&Event<'_>) -> bool,
{
    let mut over = Vec::new();
    let mut all: Vec<_> = kills
        .into_iter()
        .map(|(kill, is_time)| {
            let (say, is_over) = mpsc::channel();
            over.push(say);
            Doomed {
                kill,
                is_time,
                pid: None,
                is_over: Some(is_over),
                killer: None,
            }
        })
        .collect();
    let (mut program_ended, mut thread_lost) = (None, None);
    let mut is_lost = says("lost with ");
    let mut kept = Kept::new(|event: &Event<'_>| {
        if let Event::Line {
            line: Line::Record(Record::Check { name, .. }),
            ..
        } = event
            && name == "app.exit"
        {
            program_ended = Some(Instant::now());
        }
        if is_lost(event) {
            thread_lost = Some(Instant::now());
        }
        for doomed in &mut all {
            let kill = doomed.kill;
            match event {
                Event::Started { node, pid, .. } if *node == kill.node => doomed.pid = Some(*pid),
                _ => {}
            }
            if (doomed.is_time)(event)
                && let Some(pid) = doomed.pid
                && let Some(is_over) = doomed.is_over.take()
            {
                doomed.killer = Some(std::thread::spawn(move || kill.carry_out(pid, &is_over)));
            }
        }
    });
    let report = launch::run(config, &mut kept);
    let ended = Instant::now();
    let text = kept.text(&report);
    drop(over);
    let kill = all.last().map(|d| d.kill);
    let killed: Option<Vec<Instant>> = all
        .into_iter()
        .map(|d| d.killer.and_then(|k| k.join().ok()).flatten())
        .collect();
    let killed = killed.and_then(|all| all.into_iter().max());
    let since = |end: Instant| killed.map(|at| end.saturating_duration_since(at));
    Ended {
        kill,
        report,
        text,
        went_on: since(ended),
        program_went_on: program_ended.and_then(since),
        program_outlived_thread: program_ended
            .zip(thread_lost)
            .map(|(end, lost)| end.saturating_duration_since(lost)),
    }
}

pub use dyad_random::mix;

/// The seed of a test that kills at random moments: that of `DYAD_SEED`, or 1.
pub fn seed() -> u64 {
    let given = std::env::var("DYAD_SEED").ok();
    given.and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// Sends a process a signal of that name.
pub fn signal(pid: u32, name: &str) -> Result<(), String> {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status();
    match status {
        Ok(s) if s.success() => Ok(()),
        other => Err(format!("kill -{name} {pid}: {other:?}")),
    }
}
