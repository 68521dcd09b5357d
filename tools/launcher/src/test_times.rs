//! How long tests take: one file for each test program, in `target/tests/TIER/`.
//!
//! `cargo xtask test` writes a file about each program as a whole ([`write_whole`]). A program that times its tests
//! itself writes the file with [`write()`], and `cargo xtask test` leaves that file alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use dyad_tier::Tier;
use serde_json::{Value, json};

use crate::error::Error;
use crate::paths;

/// The schema of the files.
const SCHEMA: &str = "dyad.tests/1";
/// Clock ticks of `/proc`, per second. Linux has the same number on all machines.
const TICKS: f64 = 100.0;

/// What a test has taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// Wall time.
    pub seconds: f64,
    /// Processor time of the test and of all it has started and waited for. Not known of a test beside which
    /// another one ran.
    pub cpu_seconds: Option<f64>,
    /// Whether the test has passed.
    pub ok: bool,
}

/// Processor time of this process and of all its children that have ended, in seconds; 0 if it cannot be
/// read.
pub fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&stat).unwrap_or(0) as f64 / TICKS
}

/// The sum of utime, stime, cutime and cstime, the fields 14 to 17 of `/proc/PID/stat`.
fn ticks(stat: &str) -> Option<u64> {
    // The second field is a name in parentheses, and can have spaces.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields = rest.split(' ').skip(14 - 3).take(4);
    let numbers: Vec<u64> = fields.map_while(|f| f.parse().ok()).collect();
    (numbers.len() == 4).then(|| numbers.iter().sum())
}

/// The directory of a tier's files.
pub fn dir(tier: Tier) -> PathBuf {
    paths::target_dir().join("tests").join(tier.name())
}

fn file(tier: Tier, program: &str) -> PathBuf {
    dir(tier).join(format!("{}.json", program.replace("::", ".")))
}

/// Writes what the tests of a program have taken, and returns the file. The program is named by its package and
/// target, such as `dyad-ring::wake`.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write(tier: Tier, program: &str, tests: &BTreeMap<String, Taken>) -> Result<PathBuf, Error> {
    let tests: Vec<Value> = tests
        .iter()
        .map(|(name, t)| {
            json!({ "name": name, "seconds": t.seconds, "cpu_seconds": t.cpu_seconds, "ok": t.ok })
        })
        .collect();
    let text = json!({ "schema": SCHEMA, "tier": tier.name(), "program": program, "tests": tests });
    let path = file(tier, program);
    let failed = |e| Error::io(format_args!("cannot write {}", path.display()), e);
    std::fs::create_dir_all(dir(tier)).map_err(failed)?;
    std::fs::write(&path, format!("{text:#}\n")).map_err(failed)?;
    Ok(path)
}

/// All tests of a tier whose times are kept, the slowest first.
pub fn slowest(tier: Tier) -> Vec<(String, Taken)> {
    let files = std::fs::read_dir(dir(tier)).into_iter().flatten().flatten();
    let mut all: Vec<(String, Taken)> = files
        .filter_map(|f| std::fs::read(f.path()).ok())
        .filter_map(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
        .flat_map(|value| tests(&value))
        .collect();
    all.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    all
}

/// The tests of a file. One without a name is the program as a whole.
fn tests(value: &Value) -> Vec<(String, Taken)> {
    let program = value["program"].as_str().unwrap_or_default();
    let one = |test: &Value| {
        let taken = Taken {
            seconds: test["seconds"].as_f64()?,
            cpu_seconds: test["cpu_seconds"].as_f64(),
            ok: test["ok"].as_bool()?,
        };
        match test["name"].as_str()? {
            "" => Some((program.to_owned(), taken)),
            name => Some((name.to_owned(), taken)),
        }
    };
    let tests = value["tests"].as_array();
    tests.into_iter().flatten().filter_map(one).collect()
}

/// Writes what a program has taken as a whole, unless it has written about its tests since it began.
pub fn write_whole(tier: Tier, program: &str, began: SystemTime, taken: Taken) {
    let own = std::fs::metadata(file(tier, program)).and_then(|m| m.modified());
    if own.is_ok_and(|at| at >= began) {
        return;
    }
    // A test is not worse because its time is not kept.
    let _ = write(tier, program, &BTreeMap::from([(String::new(), taken)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_whatever_the_program_is_called() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1";
        assert_eq!(ticks(&format!("17 (a) b) c) {fields}")), Some(127));
        assert_eq!(ticks("17 (cut) S 1 2"), None);
        assert!(cpu_time() >= 0.0);
    }

    #[test]
    fn a_program_without_tests_of_its_own_is_one() {
        let value = json!({ "program": "p::q", "tests": [
            { "name": "", "seconds": 2.0, "cpu_seconds": 1.0, "ok": true },
            { "name": "a::b", "seconds": 1.0, "cpu_seconds": null, "ok": false },
            { "name": "damaged" },
        ] });
        let read = tests(&value);
        let names: Vec<&str> = read.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["p::q", "a::b"]);
        assert!(read[0].1.ok && !read[1].1.ok);
    }
}
