//! `cargo xtask`: the command line.
//!
//! What the commands do is in libraries: `dyad-launcher` (building, running, asking) and `dyad-measure`
//! (measuring). This program reads options, calls them and says what came out.
#![forbid(unsafe_code)]

#[macro_use]
extern crate dyad_launcher;

mod cli;
mod miri;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
