//! Keeps what a system prints, as text.

use dyad_abi::Isa;
use dyad_launcher::config::{RunConfig, TestOptions, Work};
use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::launch::{self, Event, RunReport, Sink};
use libtest_mimic::Failed;

/// A sink that keeps everything and hands events on to a closure.
pub struct Kept<F> {
    display: Display<Vec<u8>>,
    each: F,
}

impl<F: FnMut(&Event<'_>)> Kept<F> {
    /// An empty one.
    pub fn new(each: F) -> Kept<F> {
        Kept {
            display: Display::to_buffer(Verbosity::Verbose),
            each,
        }
    }

    /// What was printed.
    pub fn text(self, report: &RunReport) -> String {
        let mut display = self.display;
        display.summary(report);
        String::from_utf8_lossy(&display.into_inner()).into_owned()
    }
}

impl<F: FnMut(&Event<'_>)> Sink for Kept<F> {
    fn event(&mut self, event: Event<'_>) {
        (self.each)(&event);
        self.display.event(event);
    }
}

/// Runs a system: how it ended, and what it printed.
pub fn run(config: &RunConfig) -> (RunReport, String) {
    let mut kept = Kept::new(|_| {});
    let report = launch::run(config, &mut kept);
    let text = kept.text(&report);
    (report, text)
}

/// A program with arguments.
pub fn app(app: impl Into<String>, args: impl Into<String>) -> Work {
    let (app, args) = (app.into(), args.into());
    Work::App { app, args }
}

/// A system for a program in the place of init. In the end all tables are compared.
pub fn bare(nodes: &[Isa], cpus: usize, coherent: bool, work: Work) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        coherent,
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        work,
        audit: true,
        test: TestOptions {
            bare: true,
            ..TestOptions::default()
        },
        ..RunConfig::default()
    }
}

/// Runs a system, and fails unless the run succeeds.
pub fn good(config: &RunConfig) -> Result<(RunReport, String), Failed> {
    let (report, text) = run(config);
    match report.failure() {
        Some(why) => because(&text, why),
        None => Ok((report, text)),
    }
}

/// Fails unless there are checks of these names, and they have passed.
pub fn passed<S: AsRef<str>>(
    (report, text): &(RunReport, String),
    names: impl IntoIterator<Item = S>,
) -> Result<(), Failed> {
    for name in names {
        let name = name.as_ref();
        if !report.checks.iter().any(|c| c.name == name && c.ok) {
            return because(text, format_args!("no check {name} has passed"));
        }
    }
    Ok(())
}

/// Fails with what the system printed.
pub fn because<T>(text: &str, why: impl std::fmt::Display) -> Result<T, Failed> {
    Err(format!("{why}\n\nconsole:\n{text}").into())
}
