//! Results as JSON, in the same way for all commands.
//!
//! A command with `--json` leaves a document in every case: if it has not written one when it fails, this
//! module writes one with `schema`, `ok` and `failure`. `ok` agrees with exit status 0.

use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};

use dyad_launcher::config::Json;
use dyad_launcher::error::Error;
use dyad_launcher::{launch, out};
use dyad_measure::{bench, sensitivity, validate};

/// The schema of each command's document, by the command's name.
const SCHEMAS: [(&str, &str); 12] = [
    ("run", launch::SCHEMA),
    ("soak", "dyad.soak/1"),
    ("sweep", "dyad.sweep/1"),
    ("explore", "dyad.explore/1"),
    ("sim", sensitivity::SCHEMA),
    ("ps", "dyad.threads/1"),
    ("migrate", "dyad.migrate/1"),
    ("bench", bench::SCHEMA),
    ("report", dyad_report::document::SCHEMA),
    ("validate-sim", validate::SCHEMA),
    ("doctor", "dyad.doctor/1"),
    ("test", "dyad.test/1"),
];

/// The name of a file that stands for standard output.
const STDOUT: &str = "-";

/// Where the document goes: the command and the file.
static OPEN: OnceLock<(String, String)> = OnceLock::new();
static IS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Takes note of where the document of a command goes, if it is to leave one.
///
/// # Errors
///
/// If it cannot be written there: for commands that will have worked for long when they come to that.
pub(super) fn open(command: &str, to: &Json) -> Result<(), Error> {
    let Some(file) = &to.json else {
        return Ok(());
    };
    match file == STDOUT {
        true => out::leave_stdout_to_results(),
        false => check_file(file)?,
    }
    // A command leaves one document; options of the command line come first.
    let _ = OPEN.set((command.into(), file.clone()));
    Ok(())
}

/// Writes the document, if there is to be one.
///
/// # Errors
///
/// If it cannot be written.
pub(super) fn write(document: &Value) -> Result<(), Error> {
    let Some((_, file)) = OPEN.get() else {
        return Ok(());
    };
    IS_WRITTEN.store(true, Relaxed);
    match file == STDOUT {
        true => std::io::stdout()
            .lock()
            .write_all(format!("{document:#}\n").as_bytes())
            .map_err(|e| Error::io("cannot write the results to standard output", e)),
        false => write_json(Path::new(file), document),
    }
}

/// Writes the document of a command that has failed, unless it has written one.
pub(super) fn fail(e: &Error) {
    let Some((command, _)) = OPEN.get().filter(|_| !IS_WRITTEN.load(Relaxed)) else {
        return;
    };
    let document = match command.as_str() {
        "run" => launch::unusable(e),
        _ => json!({ "schema": schema(command), "ok": false, "failure": e.to_string() }),
    };
    // The exit status tells, too.
    let _ = write(&document);
}

/// The schema of a command's document.
pub(super) fn schema(command: &str) -> &'static str {
    let found = SCHEMAS.iter().find(|(name, _)| *name == command);
    found.map_or("dyad.failure/1", |(_, schema)| schema)
}

/// Where the result document goes, by the words of a command line that cannot be parsed.
pub(super) fn asked(words: &[String]) -> Json {
    let own: Vec<&String> = words.iter().take_while(|word| *word != "--").collect();
    let json = own.iter().enumerate().find_map(|(i, word)| {
        let rest = word.strip_prefix("--json")?;
        let next = || {
            own.get(i + 1)
                .filter(|w| w.as_str() == STDOUT || !w.starts_with('-'))
        };
        match rest.strip_prefix('=') {
            Some(file) => Some(file.to_string()),
            None if rest.is_empty() => Some(next().map_or(STDOUT.into(), ToString::to_string)),
            None => None,
        }
    });
    Json { json }
}

/// Writes a value as JSON to a file.
pub(super) fn write_json(file: &Path, value: &Value) -> Result<(), Error> {
    write_file(&file.display().to_string(), &format!("{value:#}\n"))
}

/// Makes the directory of a file if need be.
fn make_room(file: &str) -> Result<(), String> {
    let dir = Path::new(file).parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))
}

/// Writes a file, in a directory that is made if need be.
pub(super) fn write_file(file: &str, text: &str) -> Result<(), Error> {
    make_room(file).map_err(Error::Run)?;
    std::fs::write(file, text).map_err(|e| Error::io(format_args!("cannot write {file}"), e))
}

/// Checks that a file can be written. What is in it stays.
pub(super) fn check_file(file: &str) -> Result<(), Error> {
    make_room(file).map_err(Error::Usage)?;
    let path = Path::new(file);
    let there = path.exists();
    // A pipe or a device would be told that something comes.
    if there && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    opened.map_err(|e| Error::Usage(format!("cannot write {file}: {e}")))?;
    if !there {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_read_says_where_its_failure_goes() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            asked(&words).json
        };
        assert_eq!(of("run --cpus 9 --json a.json").as_deref(), Some("a.json"));
        assert_eq!(of("run --json=a.json --cpus 9").as_deref(), Some("a.json"));
        for line in [
            "run --cpus 9 --json",
            "run --json --cpus 9",
            "run --json - --cpus 9",
        ] {
            assert_eq!(of(line).as_deref(), Some(STDOUT), "{line}");
        }
        assert_eq!(of("run --cpus 9 -- --json a.json"), None);
        assert_eq!(of("run --jsn a.json"), None);
    }
}
