//! Building what runs: kernels, and programs through `migrate-rt`.
//!
//! Whether anything has to be rebuilt is cargo's decision; a build with nothing to do takes a
//! fraction of a second.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use dyad_abi::Isa;

use crate::apps::{Program, Source};
use crate::error::Error;
use crate::{apps, paths, signals};

/// Gets one line for each step of a build.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// Package, target triple of the kernel of an ISA.
pub const fn kernel_package(isa: Isa) -> (&'static str, &'static str) {
    match isa {
        Isa::X86_64 => ("kernel-x86_64", "x86_64-unknown-none"),
        Isa::Aarch64 => ("kernel-aarch64", "aarch64-unknown-none-softfloat"),
    }
}

/// Builds the kernel of an ISA, with the in-kernel tests if `ktest`, and returns its image.
///
/// # Errors
///
/// If cargo fails; the message has its output.
pub fn kernel(isa: Isa, ktest: bool, progress: Progress<'_>) -> Result<PathBuf, Error> {
    let (package, triple) = kernel_package(isa);
    let dir = paths::target_dir().join(if ktest { "kernel-ktest" } else { "kernel" });
    let mut c = cargo();
    c.args(["build", "--package", package, "--target", triple]);
    c.args(["--profile", "kernel", "--target-dir"]).arg(&dir);
    if ktest {
        c.args(["--features", "ktest"]);
    }
    let what = format!("{package}{}", if ktest { " with its tests" } else { "" });
    run_cargo(c, &what, progress)?;
    let image = dir.join(triple).join("kernel").join(package);
    if image.is_file() {
        return Ok(image);
    }
    let image = image.display();
    Err(Error::Build(format!(
        "cargo built {what} but there is no {image}"
    )))
}

/// Cargo in the workspace, without the settings of the environment that would change what it
/// builds: flags in variables replace those of the workspace's own configuration.
pub fn cargo() -> Command {
    let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    c.current_dir(paths::workspace_root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let changes_build = text.ends_with("RUSTFLAGS") || text == "CARGO_BUILD_TARGET";
        // What cargo has set for this very program.
        let ours = text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_");
        if changes_build || ours {
            c.env_remove(&name);
        }
    }
    c
}

/// Runs a cargo command, reporting what it compiles.
fn run_cargo(mut c: Command, what: &str, progress: Progress<'_>) -> Result<(), Error> {
    progress(&format!("building {what}"));
    let mut child = c
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Error::Build(format!("cannot start cargo: {e}")))?;
    let mut output = String::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if let Some(step) = line.trim_start().strip_prefix("Compiling ") {
                let step = step.split(" (").next().unwrap_or(step);
                progress(&format!("building {what}: {step}"));
            }
            output.push_str(&line);
            output.push('\n');
        }
    }
    let status = child
        .wait()
        .map_err(|e| Error::Build(format!("cannot wait for cargo: {e}")))?;
    if status.success() {
        Ok(())
    } else if signals::count() > 0 {
        Err(Error::Interrupted)
    } else {
        Err(Error::Build(format!(
            "{output}{what} does not build (cargo: {status})"
        )))
    }
}

/// Builds a program, or reads a finished bundle.
///
/// # Errors
///
/// If it does not build, or the bundle is not valid.
pub fn app(source: &Source, progress: Progress<'_>) -> Result<Program, Error> {
    let (path, elfs) = match source {
        Source::Bundle(path) => (path.clone(), apps::elfs_beside(path)),
        Source::Package(dir) => {
            progress(&format!("building {}", paths::shown(dir)));
            return Err(Error::Build(
                "the pipeline for programs is not there yet".into(),
            ));
        }
    };
    let bundle = apps::read_bundle(&path)?;
    Ok(Program { bundle, path, elfs })
}
