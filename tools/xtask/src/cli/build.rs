//! `cargo xtask build`.

use std::time::Duration;

use clap::Args;
use dyad_abi::Isa;

use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{Event, Sink};
use dyad_launcher::setup::{self, Requirements};
use dyad_launcher::{apps, build, paths};
use migrate_rt::build::Report;

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    /// Build this program only (a name or a directory) [default: kernels, services and
    /// all programs]
    #[arg(long, value_name = "NAME")]
    app: Vec<String>,
    /// Build the kernels with the in-kernel tests, and no programs
    #[arg(long, conflicts_with = "app")]
    ktest: bool,
    /// Show what the stages of each program's build took: the clock's time and processor time
    #[arg(long, conflicts_with = "ktest")]
    timings: bool,
}

pub(super) fn build(args: &BuildArgs) -> Result<u8, Error> {
    setup::ensure(&Requirements::BUILD, &mut super::say)?;
    let mut display = Display::new(Verbosity::Normal);
    let mut progress = |said: build::Said<'_>| display.event(said.into());
    let names = if args.app.is_empty() && !args.ktest {
        apps::available()
    } else {
        args.app.clone()
    };
    let sources = names
        .iter()
        .map(|n| apps::find(n))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut built, mut verified) = (Vec::new(), Vec::new());
    let mut timings = String::new();
    let mut time = |name: &str, report: &Option<Report>| {
        if let Some(report) = report.as_ref().filter(|_| args.timings) {
            timings.push_str(&stages(name, report));
        }
    };
    if args.app.is_empty() {
        let kind = match args.ktest {
            true => build::Kernel::Ktest,
            false => build::Kernel::Plain,
        };
        for isa in Isa::ALL {
            built.push(build::kernel(isa, kind, &mut progress)?);
        }
        if !args.ktest {
            let services = build::services(&mut progress)?;
            for (name, service) in build::SERVICES.iter().zip(services) {
                time(name, &service.report);
                built.push(service.path);
            }
        }
    }
    for (name, source) in names.iter().zip(&sources) {
        let program = build::app(source, &mut progress)?;
        time(name, &program.report);
        built.push(program.path);
        let text = program.report.and_then(|r| r.figures.verified_text());
        verified.extend(text.map(|what| format!("{name}: {what}")));
    }
    display.event(Event::Status(""));
    for path in built {
        display.event(Event::Note(&paths::shown(&path)));
    }
    for what in verified {
        display.event(Event::Note(&what));
    }
    print!("{timings}");
    Ok(0)
}

/// A table of the stages of a build.
fn stages(name: &str, report: &Report) -> String {
    let mut text = format!("{name:<44}{:>8} {:>10}\n", "clock", "processor");
    let mut row = |what: &str, wall: Duration, processor: Duration| {
        let (wall, processor) = (wall.as_secs_f64(), processor.as_secs_f64());
        text.push_str(&format!("  {what:<42}{wall:>6.2} s {processor:>8.2} s\n"));
    };
    let (mut wall, mut processor) = (Duration::ZERO, Duration::ZERO);
    for stage in &report.stages {
        match stage.isa {
            // A part of the stage before.
            Some(isa) => row(&format!("  {isa}"), stage.wall, stage.processor),
            None => {
                row(stage.stage.text(), stage.wall, stage.processor);
                wall += stage.wall;
                processor += stage.processor;
            }
        }
    }
    row("all", wall, processor);
    if report.up_to_date {
        text.push_str("  nothing has changed since it was built\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use migrate_rt::build::{Figures, Stage, StageTime};

    #[test]
    fn stages_are_shown_with_their_sum_and_parts_are_not_counted_twice() {
        let time = |stage, isa, wall, processor| StageTime {
            stage,
            isa,
            wall: Duration::from_millis(wall),
            processor: Duration::from_millis(processor),
        };
        let report = Report {
            up_to_date: false,
            stages: vec![
                time(Stage::FrontEnd, None, 1500, 2000),
                time(Stage::BackEnds, None, 1000, 1900),
                time(Stage::BackEnds, Some(Isa::X86_64), 900, 900),
                time(Stage::BackEnds, Some(Isa::Aarch64), 1000, 1000),
            ],
            figures: Figures::default(),
        };
        let text = stages("hello", &report);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["compiling", "to", "IR", "1.50", "s", "2.00", "s"]);
        assert_eq!(rows[3], ["x86_64", "0.90", "s", "0.90", "s"]);
        assert_eq!(rows[5], ["all", "2.50", "s", "3.90", "s"]);
        assert_eq!(rows.len(), 6);
    }
}
