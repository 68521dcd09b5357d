//! The command line.

mod bench;
mod build;
mod compare;
mod doctor;
mod explore;
mod gallery;
mod jobs;
mod migrate;
mod miri;
mod new;
mod passthrough;
mod ps;
mod report;
mod result;
mod run;
mod sensitivity;
mod shape;
mod sim;
mod soak;
mod sweep;
mod symbolize;
mod test;
mod validate;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use dyad_launcher::error::Error;
use dyad_launcher::suggest;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build everything, start a system of machines and run a program on it
    Run(Box<run::RunArgs>),
    /// Move a thread of a running system to another node, and wait until it has moved
    Migrate(migrate::MigrateArgs),
    /// List the threads of a system that runs: where they are, what they do
    Ps(ps::PsArgs),
    /// Run the same system many times and keep the logs of the runs that fail
    Soak(Box<soak::SoakArgs>),
    /// Run every combination of some settings and collect what is simulated in one table
    Sweep(Box<sweep::SweepArgs>),
    /// Run in strict order with many seeds until one fails, and say how to repeat that
    Explore(Box<explore::ExploreArgs>),
    /// Say what can be simulated: keys, profiles; and which conclusions depend on it
    Sim(sim::SimArgs),
    /// Measure and print the results beside those of other systems
    Bench(bench::BenchArgs),
    /// Measure every figure of five papers and write one document with verdicts
    Report(report::ReportArgs),
    /// Build and play the programs on crates from the registry; compare what they print with the host
    Gallery(gallery::GalleryArgs),
    /// Compare what the simulator counts with what must come out and with what others count
    ValidateSim(validate::ValidateArgs),
    /// Build kernels and programs without running them
    Build(build::BuildArgs),
    /// Make a new program that builds, runs and hops
    New(new::NewArgs),
    /// Check that this computer has what is needed, and say what to do if not
    Doctor(doctor::DoctorArgs),
    /// Give names to the addresses in a raw console log
    Symbolize(symbolize::SymbolizeArgs),
    /// Run the tests of a tier: quick (what `cargo test` runs), full or long
    Test(test::TestArgs),
    /// Run the tests of the pure kernel crates under Miri
    Miri(miri::MiriArgs),
    /// Run what continuous integration runs
    Ci(passthrough::PassArgs),
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) if e.use_stderr() => return unreadable(&e),
        // What was asked for: help, or the version.
        Err(e) => {
            // Nobody to tell if the terminal is gone.
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
    };
    if let Err(e) = dyad_launcher::signals::install() {
        return fail(&Error::io("cannot handle signals", e));
    }
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Migrate(args) => migrate::migrate(&args),
        Command::Ps(args) => ps::ps(&args),
        Command::Soak(args) => soak::soak(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Explore(args) => explore::explore(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Report(args) => report::report(&args),
        Command::Gallery(args) => gallery::gallery(&args),
        Command::ValidateSim(args) => validate::validate(&args),
        Command::Build(args) => build::build(&args),
        Command::New(args) => new::new(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Symbolize(args) => symbolize::symbolize(&args),
        Command::Test(args) => test::test(&args),
        Command::Miri(args) => miri::miri(&args),
        Command::Ci(args) => passthrough::ci(&args),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(e) => fail(&e),
    }
}

/// Says what is wrong with a command line, and what is possible.
fn unreadable(e: &clap::Error) -> ExitCode {
    let text = |kind| match e.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    let possible = match e.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(possible)) => &possible[..],
        _ => &[],
    };
    let mut why = e.render().to_string();
    if e.kind() == ErrorKind::InvalidValue && !possible.is_empty() {
        let option = text(ContextKind::InvalidArg).unwrap_or_default();
        let option = option.split(' ').next().unwrap_or_default();
        let possible: Vec<&str> = possible.iter().map(String::as_str).collect();
        let word = text(ContextKind::InvalidValue).unwrap_or_default();
        why = match word {
            "" => format!(
                "{option} needs a value, not \"\" (possible: {})",
                possible.join(", ")
            ),
            word => suggest::not_one_of(&format!("value of {option}"), word, &possible),
        };
        eprintln!("error: {why}");
    } else {
        let _ = e.print();
    }
    if let Some(word) = text(ContextKind::InvalidSubcommand) {
        let cli = Cli::command();
        // The command whose part is wrong, which may be a part itself.
        let whose = words
            .iter()
            .try_fold(&cli, |at, word| at.find_subcommand(word).ok_or(at));
        let (Ok(whose) | Err(whose)) = whose;
        let names = whose.get_subcommands().map(clap::Command::get_name);
        let names: Vec<&str> = names.collect();
        eprintln!("{}", suggest::not_one_of("command", word, &names));
    }
    let command = words.first().map_or("", String::as_str);
    let wrong = Error::Usage(why.trim_end().into());
    if result::open(command, &result::asked(&words)).is_ok() {
        result::fail(&wrong);
    }
    ExitCode::from(wrong.exit_status())
}

fn fail(e: &Error) -> ExitCode {
    result::fail(e);
    eprintln!("error: {e}");
    ExitCode::from(e.exit_status())
}

/// Prints set-up messages where they do not mix with what the command was asked for.
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help of a command and of its parts.
    fn helps(command: &mut clap::Command, into: &mut Vec<String>) {
        into.push(command.render_long_help().to_string());
        for part in command.get_subcommands_mut() {
            helps(part, into);
        }
    }

    #[test]
    fn no_help_has_a_placeholder_of_a_format() {
        let mut all = Vec::new();
        helps(&mut Cli::command(), &mut all);
        assert!(all.len() > 16, "{}", all.len());
        for help in all {
            assert!(!help.contains('{'), "{help}");
        }
    }
}
