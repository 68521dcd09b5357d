//! How long tests take: where the time of a whole run goes is said at its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

/// How many of each are named.
const NAMED: usize = 12;

static TAKEN: Mutex<BTreeMap<String, Duration>> = Mutex::new(BTreeMap::new());

/// A test whose time is kept.
pub fn test(
    name: impl Into<String>,
    f: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let name = name.into();
    let kept = name.clone();
    Trial::test(name, move || {
        let start = Instant::now();
        let outcome = f();
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(kept, start.elapsed());
        outcome
    })
}

/// The groups and the tests that took longest, or nothing if few tests ran.
///
/// The first test of a kind of system includes the run of all in-kernel tests there.
pub fn report() -> String {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    if taken.len() <= NAMED {
        return text;
    }
    let mut groups: BTreeMap<&str, Duration> = BTreeMap::new();
    for (name, &time) in taken.iter() {
        let group = name.split("::").next().unwrap_or(name);
        *groups.entry(group).or_default() += time;
    }
    let tests = taken.iter().map(|(n, &t)| (n.as_str(), t)).collect();
    for (what, mut all) in [
        ("groups", groups.into_iter().collect::<Vec<_>>()),
        ("tests", tests),
    ] {
        all.sort_by_key(|&(_, time)| std::cmp::Reverse(time));
        let _ = writeln!(text, "{what} that took longest:");
        for (name, time) in all.into_iter().take(NAMED) {
            let _ = writeln!(text, "{:8.1} s  {name}", time.as_secs_f64());
        }
    }
    text
}
