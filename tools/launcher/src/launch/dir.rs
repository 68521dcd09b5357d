//! Directories of runs: what files in them are called, and how old ones go.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::paths;

/// Run directories kept; older ones are removed.
const RUNS_KEPT: usize = 100;

/// Where the configuration of the simulation is, for plugins and for readers of the logs.
pub(super) fn config_file(dir: &Path) -> PathBuf {
    dir.join("sim.json")
}

/// Where the plugin of a node's machine writes what is done to memory.
pub fn trace_file(dir: &Path, node: usize) -> PathBuf {
    dir.join(format!("node{node}.trace"))
}

/// Where the plugin of a node's machine leaves its report.
pub(super) fn sim_file(dir: &Path, node: usize) -> PathBuf {
    dir.join(format!("node{node}.sim.json"))
}

/// Where plugins that are not ours leave what they print.
pub(super) fn plugins_file(dir: &Path, node: usize) -> PathBuf {
    dir.join(format!("node{node}.plugins"))
}

/// Writes a file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|e| Error::io(format!("cannot write {}", path.display()), e))
}

/// Makes a directory, and those above it.
pub(super) fn make_dir(dir: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(dir)
        .map_err(|e| Error::io(format!("cannot create {}", dir.display()), e))
}

/// Keeps an image under its present contents in the run's directory, as a second name of the
/// file: it may be built anew while the run lasts, and addresses are given names at its end.
pub(super) fn keep(image: &Path, dir: &Path) -> PathBuf {
    let Some(name) = image.file_name() else {
        return image.into();
    };
    let kept = dir.join(name);
    match std::fs::hard_link(image, &kept) {
        Ok(()) => kept,
        // Another node of the same ISA has kept it.
        Err(_) if kept.exists() => kept,
        // Another file system: names may be those of a newer build.
        Err(_) => image.into(),
    }
}

/// Makes a directory for logs; its name is the time (UTC), after a prefix.
///
/// # Errors
///
/// If it cannot be made.
pub fn new_run_dir(prefix: &str) -> Result<PathBuf, Error> {
    let runs = paths::runs_dir();
    make_dir(&runs)?;
    prune(&runs);
    let seconds = std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs());
    let base = format!("{prefix}{}-{}", utc(seconds), std::process::id());
    for n in 0.. {
        let dir = match n {
            0 => runs.join(&base),
            n => runs.join(format!("{base}-{n}")),
        };
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io(format!("cannot create {}", dir.display()), e)),
        }
    }
    unreachable!("some number is free")
}

/// Removes the oldest run directories; their names sort by time.
fn prune(runs: &Path) {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = entries
        .map(|e| e.path())
        .filter(|p| {
            let name = p.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            name.starts_with(|c: char| c.is_ascii_digit()) && p.is_dir()
        })
        .collect();
    dirs.sort();
    let surplus = dirs.len().saturating_sub(RUNS_KEPT);
    for old in &dirs[..surplus] {
        // Another run may be removing it too.
        let _ = std::fs::remove_dir_all(old);
    }
}

/// Date and time as `YYYYMMDD-HHMMSS`.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that the leap day ends a year.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}{month:02}{day:02}-{:02}{:02}{:02}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_dates() {
        assert_eq!(utc(0), "19700101-000000");
        assert_eq!(utc(951_782_400), "20000229-000000");
        assert_eq!(utc(1_767_225_599), "20251231-235959");
    }
}
