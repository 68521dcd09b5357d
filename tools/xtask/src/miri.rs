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
//! | tests that say so (`ignore`) | searches with many seeds, enumerations, foreign code, texts |
//! | `dyad-object` and all above it | memory is made of integers, at addresses that a boot loader says |
//!
//! Random tests run few cases there, and some loops are shorter (`cfg!(miri)`). Threads on the back
//! end that coherent machines have are in `weak.rs`; these tests run once for each of [`SEEDS`]
//! seeds, by which Miri chooses who goes on and which of the values that weak memory permits is read.
//!
//! Pointers that are made of integers are an error where a crate has no need of them
//! (`Provenance`).

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use dyad_launcher::error::Error;
use dyad_launcher::{paths, signals};

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
/// How long the tests of a crate may take, building included, before they are ended and count as
/// failed: several times what the slowest one needs on a machine with other work.
pub const LIMIT: Duration = Duration::from_secs(900);
/// Seeds for the tests of weak memory.
pub const SEEDS: u32 = 16;
/// Miri's own clock and files are not what is tested; and to print where a test panicked that is to
/// panic takes as long as a hundred tests.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-env-set=RUST_BACKTRACE=0";

/// Where pointers may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provenance {
    /// From other pointers; and nothing leaks.
    Strict,
    /// From integers too, as those to shared memory do, which is never given back.
    Exposed,
}

impl Provenance {
    /// What a crate's tests need: only the crates that make references to memory out of addresses,
    /// and those tests of others that use such a back end.
    fn of(name: &str, weak: bool) -> Provenance {
        match name {
            "shm" | "coherence" => Provenance::Exposed,
            _ if weak => Provenance::Exposed,
            _ => Provenance::Strict,
        }
    }

    fn flags(self) -> &'static str {
        match self {
            Provenance::Strict => "-Zmiri-strict-provenance",
            Provenance::Exposed => "-Zmiri-permissive-provenance -Zmiri-ignore-leaks",
        }
    }
}

/// What has been run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tests that have passed; with many seeds each counts once.
    pub passed: u64,
    /// Tests that have failed.
    pub failed: u64,
    /// Tests that are left out, as each says why.
    pub ignored: u64,
    /// All of it, building included.
    pub took: Duration,
}

impl Report {
    fn add(&mut self, part: Report) {
        self.passed += part.passed;
        self.failed += part.failed;
        self.ignored += part.ignored;
    }

    /// A crate none of whose tests has run has shown nothing.
    fn or_nothing_was_run(mut self) -> Report {
        if self.passed == 0 {
            self.failed = self.failed.max(1);
        }
        self
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} ignored, {} s",
            self.passed,
            self.failed,
            self.ignored,
            self.took.as_secs()
        )
    }
}

/// Runs the tests of some crates ([`CRATES`] for all) under Miri, which prints what it finds to this
/// process's output; `say` is told what is done, a line for each crate. Goes on with the next crate
/// after a failure. A crate of which no test has run has failed.
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
        let of_crate = tests_of(&toolchain, name)?;
        report.add(of_crate);
        say(&format!(
            "[{}/{}] dyad-{name}: {of_crate} (limit {} s)",
            i + 1,
            crates.len(),
            LIMIT.as_secs()
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

/// What the names of models begin with, which Miri does not run.
const MODELS: &str = "loom_";

/// The module of tests that run once for each seed.
const WEAK: &str = "weak";

/// Whether a crate has tests of weak memory.
fn has_weak(name: &str) -> bool {
    let dir = paths::workspace_root().join("kernel").join(name);
    dir.join("tests/all")
        .join(WEAK)
        .with_extension("rs")
        .is_file()
}

/// Runs the tests of a crate.
fn tests_of(toolchain: &str, name: &str) -> Result<Report, Error> {
    let start = Instant::now();
    let mut report = Report::default();
    report.add(run_tests(cargo_miri(toolchain, name, None), start + LIMIT)?);
    for seed in (0..SEEDS).filter(|_| has_weak(name)) {
        let command = cargo_miri(toolchain, name, Some(seed));
        let mut part = run_tests(command, start + LIMIT)?;
        if part.failed > 0 {
            println!("-Zmiri-seed={seed}");
        } else if seed > 0 {
            part = Report::default();
        }
        report.add(part);
        if part.failed > 0 {
            break;
        }
    }
    report.took = start.elapsed();
    Ok(report.or_nothing_was_run())
}

/// The command that runs all tests but models and those of weak memory, or the latter with a seed.
fn cargo_miri(toolchain: &str, name: &str, seed: Option<u32>) -> Command {
    let mut flags = format!("{FLAGS} {}", Provenance::of(name, seed.is_some()).flags());
    let mut cargo = Command::new("rustup");
    cargo
        .current_dir(paths::workspace_root())
        .args(["run", toolchain, "cargo", "miri", "test", "--no-fail-fast"])
        .args(["--package", &format!("dyad-{name}")]);
    match seed {
        // Not `-Zmiri-many-seeds`, whose runs print at the same time.
        Some(seed) => {
            flags += &format!(" -Zmiri-seed={seed}");
            cargo.args(["--quiet", "--tests", "--", &format!("{WEAK}::")]);
        }
        None => {
            let skipped = ["--skip", MODELS, "--skip", &format!("{WEAK}::")];
            cargo.args(["--tests", "--"]).args(skipped);
        }
    }
    cargo
        .env("MIRIFLAGS", flags)
        // Those of the toolchain that builds this program.
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN");
    cargo
}

/// Runs tests to their end, or until a point in time.
fn run_tests(mut command: Command, until: Instant) -> Result<Report, Error> {
    // A group of its own, so that all of it can be ended.
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Error::Run(format!("cargo miri does not start: {e}")))?;
    let mut stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(out) = &mut stdout {
            // What was read before an error is as good as all.
            let _ = out.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let ended = wait_until(&mut child, until);
    if !matches!(ended, Ok(Some(_))) {
        end_group(&mut child);
    }
    let text = reader.join().unwrap_or_default();
    let mut report = results(&text);
    if signals::count() > 0 {
        return Err(Error::Interrupted);
    }
    match ended? {
        Some(true) => {}
        Some(false) => {
            print!("{text}");
            // Also if Miri has ended the whole program, without a result.
            report.failed = report.failed.max(1);
        }
        None => {
            print!("{text}\nended: the tests have not come to their end in time\n");
            report.failed = report.failed.max(1);
        }
    }
    Ok(report)
}

/// Whether the child has ended well; nothing if it has not ended by then, or the user does not want
/// to wait any longer.
fn wait_until(child: &mut Child, until: Instant) -> Result<Option<bool>, Error> {
    loop {
        let status = child
            .try_wait()
            .map_err(|e| Error::io("cannot wait for cargo miri", e))?;
        if let Some(status) = status {
            return Ok(Some(status.success()));
        }
        if Instant::now() >= until || signals::count() > 0 {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Ends a child and all that it has started.
fn end_group(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // Fails only if nobody is left.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
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

    fn counts(r: Report) -> (u64, u64, u64) {
        (r.passed, r.failed, r.ignored)
    }

    fn shell(script: &str, limit: Duration) -> Report {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]);
        run_tests(sh, Instant::now() + limit).unwrap()
    }

    #[test]
    fn what_ends_badly_or_not_at_all_has_failed() {
        let passed = "echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'";
        let long = Duration::from_secs(60);
        assert_eq!(counts(shell(passed, long)), (3, 0, 1));
        // Miri ends a program at the first finding.
        let found = format!("{passed}; echo 'error: Undefined Behavior'; exit 1");
        assert_eq!(counts(shell(&found, long)), (3, 1, 1));
        let start = Instant::now();
        let hangs = format!("{passed}; sleep 50 & wait");
        let ended = shell(&hangs, Duration::from_millis(300));
        assert_eq!(counts(ended), (3, 1, 1));
        let all = start.elapsed();
        assert!(all < Duration::from_secs(40), "a child goes on: {all:?}");
        assert_eq!(counts(Report::default().or_nothing_was_run()), (0, 1, 0));
    }

    #[test]
    fn only_who_makes_pointers_of_addresses_may() {
        for name in CRATES {
            let makes = matches!(name, "shm" | "coherence");
            let strict = Provenance::of(name, false) == Provenance::Strict;
            assert_eq!(strict, !makes, "{name}");
            assert_eq!(Provenance::of(name, true), Provenance::Exposed);
        }
    }

    #[test]
    fn crates_are_there_and_some_have_tests_of_weak_memory() {
        for name in CRATES {
            let dir = paths::workspace_root().join("kernel").join(name);
            assert!(dir.is_dir(), "{name}");
        }
        assert_eq!(CRATES.iter().filter(|c| has_weak(c)).count(), 3);
        let mut said = 0;
        let wrong = run(&["core"], &mut |_| said += 1);
        assert!(matches!(wrong, Err(Error::Usage(_))));
        assert_eq!(said, 0);
    }
}
