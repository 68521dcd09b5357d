//! The test programs of the crates, and one test in them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dyad_mutants::Test;
use serde_json::Value;

/// The build side of programs: its mutants are in a build of their own, so that no tool has them.
const BUILD_SIDE: &str = "migrate-rt";
/// Crates of the kernel whose tests catch mutants.
pub const CRATES: [&str; 9] = [
    "captbl",
    "coherence",
    "core",
    "mapping",
    "pgtbl",
    "quiesce",
    "recovery",
    "retype",
    "ring",
];
/// The program of a package with several files of tests.
const ALL: &str = "all";
/// Longer than any of the tests takes, on a slow and busy computer.
const LIMIT: Duration = Duration::from_secs(300);

/// How a test has ended.
#[derive(Debug)]
pub enum Ended {
    /// As it should.
    Passed,
    /// With what it has printed.
    Failed(String),
}

/// The workspace.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A command that builds in the workspace.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).stdin(Stdio::null());
    cargo
}

type Programs = BTreeMap<(String, String), PathBuf>;

/// All test programs, by crate and file. Builds what is not built: nothing, after `cargo test` of
/// the workspace, whose packages are named here too: with others, the features of dependencies would be others.
pub fn programs() -> Result<&'static Programs, String> {
    static PROGRAMS: OnceLock<Result<Programs, String>> = OnceLock::new();
    let built = PROGRAMS.get_or_init(|| {
        let of_the_kernel = |krate: &str| CRATES.contains(&krate);
        let mut programs = build(&[], &of_the_kernel)?;
        let own = ["--package", BUILD_SIDE, "--features", "mutants"];
        programs.extend(build(&own, &|krate| krate == BUILD_SIDE)?);
        Ok(programs)
    });
    built.as_ref().map_err(Clone::clone)
}

/// The test programs of some crates, among those that cargo builds with these arguments.
fn build(arguments: &[&str], is_wanted: &dyn Fn(&str) -> bool) -> Result<Programs, String> {
    let mut cargo = cargo();
    cargo.args([
        "test",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let output = cargo
        .args(arguments)
        .output()
        .map_err(|e| format!("cannot start cargo: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let values = messages
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let programs = values.filter_map(|v| program(&v));
    Ok(programs.filter(|p| is_wanted(&p.0.0)).collect())
}

/// The directory of a crate.
pub fn directory(krate: &str) -> PathBuf {
    match krate {
        BUILD_SIDE => root().join(krate),
        _ => root().join("kernel").join(krate),
    }
}

fn program(message: &Value) -> Option<((String, String), PathBuf)> {
    let exe = message["executable"].as_str()?;
    let target = &message["target"];
    let crate_dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    let krate = crate_dir.file_name()?.to_str()?.to_string();
    if crate_dir.canonicalize().ok()? != directory(&krate).canonicalize().ok()? {
        return None;
    }
    let is_test = target["kind"][0] == "test";
    let file = if is_test {
        target["name"].as_str()?
    } else {
        "unit"
    };
    Some(((krate, file.to_string()), exe.into()))
}

/// The test program that has a test, and the test's name in it: packages with several files of tests have one
/// program, in which each file is a module.
fn locate(test: Test) -> Result<(&'static Path, String), String> {
    let programs = programs()?;
    let program = |file: &str| programs.get(&(test.krate.to_string(), file.to_string()));
    if let Some(exe) = program(test.file) {
        return Ok((exe, test.name.to_string()));
    }
    let exe = program(ALL).ok_or_else(|| format!("{test}: no such program"))?;
    Ok((exe, format!("{}::{}", test.file, test.name)))
}

/// A test program, as it is run for one test. Tests that draw lots always draw the same ones, and
/// nothing is written down about those that fail.
fn command(test: Test) -> Result<Command, String> {
    let (exe, name) = locate(test)?;
    let mut command = Command::new(exe);
    command
        .args(["--exact", &name])
        .current_dir(directory(test.krate))
        .env_remove(dyad_tier::VARIABLE)
        .env_remove("DYAD_MUTANT")
        .env("PROPTEST_RNG_SEED", "1")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// Runs one test, as a mutant or as it is.
pub fn run(test: Test, mutant: Option<&str>) -> Result<Ended, String> {
    let mut command = command(test)?;
    if let Some(name) = mutant {
        command.env("DYAD_MUTANT", name);
    }
    let (code, out, _) = finish(command, &test.to_string())?;
    match code {
        Some(0) if out.contains("test result: ok. 1 passed; 0 failed") => Ok(Ended::Passed),
        // What the test harness ends with: it has not crashed.
        Some(101) if out.contains("test result: FAILED. 0 passed; 1 failed") => {
            Ok(Ended::Failed(out))
        }
        Some(0) => Err(format!("{test}: no such test")),
        _ => Err(format!("{test} ended with {code:?}:\n{out}")),
    }
}

/// Runs a whole program with everything on its way to be listed; what it has printed to stderr.
pub fn places(test: Test, class: &str) -> Result<String, String> {
    let mut command = command(test)?;
    command.env("DYAD_MUTANT", format!("{class}/?"));
    command.arg("--nocapture");
    let (code, out, err) = finish(command, &test.to_string())?;
    match code {
        Some(0) => Ok(err),
        _ => Err(format!("{test} ended with {code:?}:\n{out}")),
    }
}

fn finish(mut command: Command, what: &str) -> Result<(Option<i32>, String, String), String> {
    let mut child = command
        .spawn()
        .map_err(|e| format!("cannot start {what}: {e}"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    // Read while it runs: a full pipe would stop it.
    let readers = (
        std::thread::spawn(move || all_of(out)),
        std::thread::spawn(move || all_of(err)),
    );
    let end = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().map_err(|e| format!("{what}: {e}"))? {
            Some(status) => break status,
            None if Instant::now() > end => {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{what} has not ended after {LIMIT:?}"));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Ok((status.code(), text(readers.0), text(readers.1)))
}

fn all_of(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What has been read so far is better than nothing.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
