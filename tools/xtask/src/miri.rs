//! Miri: the tests of the crates that have no machine in them, interpreted, so that undefined
//! behaviour, data races and leaks of provenance show.
//!
//! Miri needs a nightly toolchain, which nothing else here does. Of those installed the newest with
//! a date in its name is taken, since that one stays what it is, else `nightly`. What it lacks of
//! [`COMPONENTS`] is installed.
//!
//! | left out | why |
//! |---|---|
//! | `loom_*` | loom's threads switch stacks themselves, which Miri refuses; loom checks data races too |
//! | `incoherent` | thousands of runs of a simulation without any unsafe code: hours |
//! | `dyad-object` and all above it | memory is made of integers, at addresses that a boot loader says |
//!
//! Random tests run few cases there, and some loops are shorter (`cfg!(miri)`).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::paths;

/// What the toolchain needs besides the compiler.
pub const COMPONENTS: [&str; 2] = ["miri", "rust-src"];
/// Crates, by their folders in `kernel`.
pub const CRATES: [&str; 8] = [
    "abi",
    "shm",
    "coherence",
    "retype",
    "captbl",
    "quiesce",
    "pgtbl",
    "ring",
];
/// Tests allocate memory for ever, as kernels have it; addresses of shared memory are integers; and
/// Miri's own clock and files are not what is tested.
const FLAGS: &str = "-Zmiri-ignore-leaks -Zmiri-permissive-provenance -Zmiri-disable-isolation";

/// What has been run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tests that have passed.
    pub passed: u64,
    /// Tests that have failed.
    pub failed: u64,
    /// Tests that Miri cannot run.
    pub ignored: u64,
    /// All of it, building included.
    pub took: Duration,
}

/// Runs the tests of some crates ([`CRATES`] for all) under Miri, which prints to this process's
/// output; `say` is told what is done. Goes on with the next crate after a failure.
///
/// # Errors
///
/// [`Error::Setup`] with what to do if there is no nightly toolchain, or a component cannot be
/// installed; [`Error::Usage`] if there is no such crate; [`Error::Run`] if cargo does not start.
pub fn run(crates: &[&str], say: &mut dyn FnMut(&str)) -> Result<Report, Error> {
    if let Some(name) = crates.iter().find(|name| !CRATES.contains(name)) {
        let known = CRATES.join(", ");
        return Err(Error::Usage(format!(
            "no tests of {name} run under Miri; those of {known} do"
        )));
    }
    let toolchain = toolchain()?;
    say(&format!("toolchain: {toolchain}"));
    install(&toolchain, say)?;
    let mut report = Report::default();
    let start = Instant::now();
    for (i, name) in crates.iter().enumerate() {
        let began = Instant::now();
        say(&format!("[{}/{}] dyad-{name}", i + 1, crates.len()));
        let of_crate = tests_of(&toolchain, name)?;
        report.passed += of_crate.passed;
        report.failed += of_crate.failed;
        report.ignored += of_crate.ignored;
        say(&format!(
            "      {} passed, {} failed, {} ignored, {} s",
            of_crate.passed,
            of_crate.failed,
            of_crate.ignored,
            began.elapsed().as_secs()
        ));
    }
    report.took = start.elapsed();
    Ok(report)
}

/// The nightly toolchain to use.
///
/// # Errors
///
/// [`Error::Setup`].
pub fn toolchain() -> Result<String, Error> {
    let output = Command::new("rustup")
        .args(["toolchain", "list"])
        .output()
        .map_err(|e| Error::Setup(format!("Miri needs rustup, which does not start: {e}")))?;
    let list = String::from_utf8_lossy(&output.stdout);
    choose(&list).map(String::from).ok_or_else(|| {
        Error::Setup(
            "Miri needs a nightly toolchain, and none is installed. Nothing else here uses it.\n\
             remedy: rustup toolchain install nightly --profile minimal --component miri,rust-src"
                .into(),
        )
    })
}

/// The newest nightly with a date, or the one without.
fn choose(list: &str) -> Option<&str> {
    let names = list.lines().filter_map(|l| l.split_whitespace().next());
    let nightlies = names.filter(|n| *n == "nightly" || n.starts_with("nightly-"));
    // A date is greater than no date, and a later one greater than an earlier one.
    nightlies.max_by_key(|n| date(n))
}

/// The date in a name such as `nightly-2026-05-20-x86_64-unknown-linux-gnu`.
fn date(name: &str) -> Option<&str> {
    let date = name.strip_prefix("nightly-")?.get(..10)?;
    let digits = |c: (usize, char)| match c.0 {
        4 | 7 => c.1 == '-',
        _ => c.1.is_ascii_digit(),
    };
    date.char_indices().all(digits).then_some(date)
}

/// Installs what the toolchain lacks.
fn install(toolchain: &str, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let list = ["component", "list", "--installed", "--toolchain", toolchain];
    let output = Command::new("rustup").args(list).output();
    let output = output.map_err(|e| Error::Setup(format!("rustup does not start: {e}")))?;
    let installed = String::from_utf8_lossy(&output.stdout);
    let missing: Vec<_> = missing(&installed);
    if missing.is_empty() {
        return Ok(());
    }
    say(&format!(
        "installing {} for {toolchain}",
        missing.join(", ")
    ));
    let status = Command::new("rustup")
        .args(["component", "add", "--toolchain", toolchain])
        .args(&missing)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Error::Setup(format!(
            "this nightly has no {0}: not every one has Miri.\n\
             remedy: rustup update nightly, or install another one: \
             rustup toolchain install nightly-YYYY-MM-DD --profile minimal --component miri,rust-src",
            missing.join(", ")
        ))),
    }
}

fn missing(installed: &str) -> Vec<&'static str> {
    let has = |name: &&str| {
        let line = |l: &str| l == *name || l.starts_with(&format!("{name}-"));
        installed.lines().any(line)
    };
    COMPONENTS.into_iter().filter(|c| !has(c)).collect()
}

/// Files in `tests/` that Miri is to run.
fn files(dir: &Path) -> Result<Vec<String>, Error> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Error::io(dir.display(), e))?.path();
        if path.extension().is_some_and(|e| e == "rs")
            && let Some(stem) = path.file_stem().and_then(|s| s.to_str())
            && !is_left_out(stem)
        {
            files.push(stem.to_string());
        }
    }
    files.sort();
    Ok(files)
}

fn is_left_out(file: &str) -> bool {
    file.starts_with("loom_") || file == "incoherent"
}

/// Runs the tests of a crate.
fn tests_of(toolchain: &str, name: &str) -> Result<Report, Error> {
    let root = paths::workspace_root();
    let mut cargo = Command::new("rustup");
    cargo
        .current_dir(&root)
        .args(["run", toolchain, "cargo", "miri", "test", "--no-fail-fast"])
        .args(["--package", &format!("dyad-{name}"), "--lib"])
        .env("MIRIFLAGS", FLAGS)
        // Those of the toolchain that builds this program.
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN");
    for file in files(&root.join("kernel").join(name).join("tests"))? {
        cargo.args(["--test", &file]);
    }
    let output = cargo
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| Error::Run(format!("cargo miri does not start: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut report = results(&text);
    if !output.status.success() {
        print!("{text}");
        // Also if Miri has ended the whole program, without a result.
        report.failed = report.failed.max(1);
    }
    Ok(report)
}

/// Adds up lines such as `test result: ok. 5 passed; 0 failed; 1 ignored; ...`.
fn results(text: &str) -> Report {
    let mut report = Report::default();
    for line in text.lines().filter(|l| l.starts_with("test result: ")) {
        let words: Vec<_> = line.split([' ', ';']).collect();
        let before = |what| {
            let at = words.iter().position(|w| *w == what)?;
            words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
        };
        report.passed += before("passed").unwrap_or(0);
        report.failed += before("failed").unwrap_or(0);
        report.ignored += before("ignored").unwrap_or(0);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_nightly_with_a_date_is_taken() {
        let linux = "-x86_64-unknown-linux-gnu";
        let all = format!(
            "stable{linux} (default)\nnightly{linux}\nnightly-2026-05-20{linux}\n\
             nightly-2025-12-31{linux}\n1.95.0{linux} (active)\n"
        );
        let newest = format!("nightly-2026-05-20{linux}");
        assert_eq!(choose(&all), Some(newest.as_str()));
        let plain = format!("nightly{linux} (default)\nstable{linux}\n");
        assert_eq!(choose(&plain), Some(&plain[..7 + linux.len()]));
        assert_eq!(choose("stable-x\nmy-nightly\n"), None);
        assert_eq!(choose(""), None);
    }

    #[test]
    fn what_is_not_installed_is_missing() {
        let all = "cargo-x86_64\nmiri-preview-x86_64\nrust-src\n";
        assert!(missing(all).is_empty());
        assert_eq!(missing("cargo-x86_64\nmirix\nrust-std-x\n"), COMPONENTS);
    }

    #[test]
    fn results_are_added_up() {
        let text = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n\
                    test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured\n";
        let report = results(text);
        assert_eq!((report.passed, report.failed, report.ignored), (5, 4, 1));
        assert_eq!(results("error: undefined behaviour"), Report::default());
    }

    #[test]
    fn every_crate_has_tests_and_models_are_left_out() {
        for name in CRATES {
            let dir = paths::workspace_root().join("kernel").join(name);
            assert!(dir.is_dir(), "{name}");
            let files = files(&dir.join("tests")).unwrap();
            assert!(files.iter().all(|f| !f.starts_with("loom")), "{files:?}");
        }
        let mut said = 0;
        let wrong = run(&["core"], &mut |_| said += 1);
        assert!(matches!(wrong, Err(Error::Usage(_))));
        assert_eq!(said, 0);
    }
}
