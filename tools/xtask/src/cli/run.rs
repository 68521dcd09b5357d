//! `cargo xtask run`.

use clap::Args;

use super::result::{self, check_file, write_file};
use super::shape::Shape;
use dyad_launcher::config::{Json, Output, Sim};
use dyad_launcher::csv;
use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::{apps, launch, setup};

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(args: &RunArgs) -> Result<u8, Error> {
    let shape = &args.shape;
    if shape.settings.asks_for_keys() {
        return super::sim::print_keys(shape.settings.profile.as_deref());
    }
    if shape.settings.app.as_deref() == Some(apps::HELP) {
        print!("{}", apps::help());
        return Ok(0);
    }
    result::open("run", &args.json)?;
    let file = shape.file()?;
    if args.json.json.is_none() {
        result::open("run", &file.json)?;
    }
    let output = args.output.clone().or(file.output);
    let settings = shape.settings.clone().or(file.settings);
    let mut config = shape.finish(&settings)?;
    if output.csv.is_some() && config.sim == Sim::Off {
        return Err(Error::Usage(
            "csv is about what is simulated: add --sim count, cache or timing".into(),
        ));
    }
    config.gdb = output.gdb;
    if config.gdb {
        config.timeout = None;
    }
    output.csv.as_deref().map_or(Ok(()), check_file)?;
    let verbosity = match (output.quiet, output.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    };
    setup::ensure(&setup::Requirements::to_run(&config), &mut super::say)?;
    let mut display = Display::new(verbosity);
    let report = launch::run(&config, &mut display);
    display.summary(&report);
    result::write(&report.json())?;
    if let Some(file) = &output.csv {
        write_csv(file, &report)?;
    }
    Ok(report.exit_status())
}

fn write_csv(file: &str, report: &launch::RunReport) -> Result<(), Error> {
    let rows = std::iter::once(csv::header()).chain(csv::rows(report));
    let text: String = rows.map(|row| csv::line(&row)).collect();
    write_file(file, &text)
}
