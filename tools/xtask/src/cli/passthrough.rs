//! `cargo xtask ci`, and commands whose status is that of another one.

use std::process::Command;

use clap::Args;

use dyad_launcher::error::Error;
use dyad_launcher::paths;

#[derive(Debug, Args)]
pub(super) struct PassArgs {
    /// Handed on as they are
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<String>,
}

pub(super) fn ci(args: &PassArgs) -> Result<u8, Error> {
    let script = paths::workspace_root().join(".ci/run");
    if !script.is_file() {
        return Err(Error::Setup(format!("there is no {}", script.display())));
    }
    let mut ci = Command::new(&script);
    ci.current_dir(paths::workspace_root()).args(&args.args);
    wait_for(ci)
}

/// Signals of the terminal reach the child too; its status is what counts.
pub(super) fn wait_for(mut command: Command) -> Result<u8, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|e| Error::Setup(format!("cannot start {program}: {e}")))?;
    Ok(match status.code() {
        Some(0) => 0,
        Some(code) => u8::try_from(code).unwrap_or(1),
        None => Error::Interrupted.exit_status(),
    })
}
