//! The command line.

mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Error;

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
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    if let Err(e) = crate::signals::install() {
        return fail(&Error::io("cannot handle signals", e));
    }
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(e) => fail(&e),
    }
}

fn fail(e: &Error) -> ExitCode {
    eprintln!("error: {e}");
    ExitCode::from(e.exit_status())
}
