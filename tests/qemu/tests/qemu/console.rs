//! Keeps what a system prints, as text.

use dyad_launcher::config::RunConfig;
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

/// Fails with what the system printed.
pub fn because<T>(text: &str, why: impl std::fmt::Display) -> Result<T, Failed> {
    Err(format!("{why}\n\nconsole:\n{text}").into())
}
