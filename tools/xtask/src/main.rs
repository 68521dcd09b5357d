//! `cargo xtask`: builds, runs and tests the system.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::cli::main()
}
