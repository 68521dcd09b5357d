//! Validation of the simulator: what it counts, compared with what must come out and with what
//! others count.
//!
//! | group | compared with | must agree |
//! |---|---|---|
//! | `naive` | the model again, as simply as possible, on traces of real runs | exactly |
//! | `instructions` | QEMU's own inline counters, in the same run | exactly |
//! | `closed_form` | hits and misses that follow from sizes alone | 0.5 % |
//! | `calibration` | the constants of the profile | exactly |
//! | `coherence` | messages that follow from the pattern of sharing | exactly |
//! | `flushes` | messages and write-backs that follow from the pattern of flushes | exactly |
//! | `contrib` | QEMU's own cache model, in the same run | 0.1 % of misses |
//! | `cachegrind` | valgrind's cachegrind, on the same program as a host binary | 2 % |
//!
//! Every comparison is a [`Finding`] with a name, what was measured and what was expected.

mod cachegrind;
mod calibration;
mod closed_form;
mod coherence;
mod contrib;
mod finding;
mod instructions;
mod naive;
mod region;

pub use finding::{Finding, Findings, SCHEMA, Tolerance};

use std::time::{Duration, Instant};

use crate::qemu_plugins::{self, QemuPlugins};
use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{self, RunReport, Sink};
use dyad_launcher::setup;
use dyad_launcher::sim::Layer;

/// Everything a group works with.
pub struct Context<'a> {
    /// Shorter loads.
    pub quick: bool,
    /// QEMU's own plugins, if a group [needs](Group::needs) them.
    pub plugins: Option<&'a QemuPlugins>,
    /// What people who wait should see.
    pub say: &'a mut dyn FnMut(&str),
    /// Gets what happens in runs.
    pub sink: &'a mut dyn Sink,
}

/// A group of comparisons.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// What it compares with that is no part of this project.
    pub needs: Needs,
    /// Makes them.
    run: Compare,
}

/// Programs of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// None.
    Nothing,
    /// QEMU's own plugins, from the source of the QEMU that is installed.
    QemuPlugins,
    /// Valgrind.
    Valgrind,
}

impl Needs {
    /// Gets it, if it is not there. Gives QEMU's own plugins if it is those.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] if it cannot be had on this computer.
    pub fn ensure(self, say: &mut dyn FnMut(&str)) -> Result<Option<QemuPlugins>, Error> {
        match self {
            Needs::Nothing => Ok(None),
            Needs::QemuPlugins => qemu_plugins::ensure(say).map(Some),
            Needs::Valgrind => setup::ensure_tool("valgrind", "valgrind", say).map(|()| None),
        }
    }
}

/// All groups, in the order in which they are made.
pub const GROUPS: &[Group] = &[
    group("naive", Needs::Nothing, naive::compare),
    group("instructions", Needs::QemuPlugins, instructions::compare),
    group("closed-form", Needs::Nothing, closed_form::compare),
    group("calibration", Needs::Nothing, calibration::compare),
    group("coherence", Needs::Nothing, coherence::compare_sharing),
    group("flushes", Needs::Nothing, coherence::compare_flushes),
    group("contrib", Needs::QemuPlugins, contrib::compare),
    group("cachegrind", Needs::Valgrind, cachegrind::compare),
];

/// What makes the comparisons of a group.
type Compare = fn(&mut Context<'_>, &mut Findings) -> Result<(), Error>;

const fn group(name: &'static str, needs: Needs, run: Compare) -> Group {
    Group { name, needs, run }
}

/// Makes the comparisons of these groups. A group that cannot be made is a finding too.
///
/// # Errors
///
/// If the user interrupts it.
pub fn validate(groups: &[Group], cx: &mut Context<'_>) -> Result<Findings, Error> {
    let mut findings = Findings::default();
    for group in groups {
        (cx.say)(&format!("validating: {}", group.name));
        findings.begin(group.name);
        let start = Instant::now();
        match (group.run)(cx, &mut findings) {
            Ok(()) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(e) => findings.failed(&e.to_string()),
        }
        findings.end(start.elapsed());
    }
    Ok(findings)
}

impl Context<'_> {
    fn plugins(&self) -> Result<&QemuPlugins, Error> {
        let missing = || Error::Setup("QEMU's own plugins are needed".into());
        self.plugins.ok_or_else(missing)
    }

    /// Runs a program at a level; `change` changes the run.
    fn run(
        &mut self,
        sim: Sim,
        app: &str,
        args: &str,
        change: impl FnOnce(&mut RunConfig),
    ) -> Result<RunReport, Error> {
        let work = Work::App {
            app: app.into(),
            args: args.into(),
        };
        self.run_work(sim, work, change)
    }

    /// Does something at a level; `change` changes the run.
    fn run_work(
        &mut self,
        sim: Sim,
        work: Work,
        change: impl FnOnce(&mut RunConfig),
    ) -> Result<RunReport, Error> {
        let mut config = RunConfig {
            work,
            sim,
            timeout: Some(Duration::from_secs(1800)),
            ..RunConfig::default()
        };
        change(&mut config);
        let report = launch::run(&config, self.sink);
        match report.failure() {
            None => Ok(report),
            Some(_) if report.error == Some(Error::Interrupted) => Err(Error::Interrupted),
            Some(why) => {
                let what = match &config.work {
                    Work::App { app, args } => format!("{app} {args}"),
                    Work::Ktest(names) => names.join(","),
                };
                let dir = report.dir.display();
                Err(Error::Run(format!("{what}: {why}; logs in {dir}")))
            }
        }
    }
}

/// Settings as after `--set`, one after the other.
fn settings(text: &str) -> Layer {
    let entry = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (key.to_string(), value.to_string())
    };
    Layer {
        source: "the validation suite".into(),
        strict: true,
        entries: text.split_whitespace().map(entry).collect(),
    }
}
