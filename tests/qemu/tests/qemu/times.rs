//! Tests with their tiers, and how long they take.
//!
//! Every test is made by [`test`], which names its tiers. The duration of each test is written to
//! `target/tests/TIER/qemu.json`, and the slowest ones are named at the end of a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use dyad_launcher::paths;
use dyad_launcher::test_times::{self, Taken, cpu_time};
use dyad_tier::{Tier, Tiers};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// How many of each are named.
const NAMED: usize = 10;

/// Groups whose tests run two at a time. They compare outputs, counts and simulated time, none of which depends
/// on what else the host does, and leave a core idle while a system boots, waits or takes turns.
///
/// All other tests have the host to themselves: they need CPUs that really overlap, or kill and pause machines at
/// moments of the host's time.
const BESIDE: &[&str] = &[
    "back_ends",
    "classes",
    "crossing",
    "emulation",
    "explore",
    "fuzz",
    "gallery",
    "memory",
    "messages",
    "migrate_threads",
    "migration",
    "multiple",
    "programs",
    "simulation",
    "std_pieces",
    "translations",
    "windows",
    "workloads",
];

/// How many tests run at a time at most.
pub const TOGETHER: usize = 2;

/// Held by each test while it runs, for itself if its group is not in [`BESIDE`].
static HOST: RwLock<()> = RwLock::new(());

/// Tests by name, with what they have taken.
static TAKEN: Mutex<BTreeMap<String, Taken>> = Mutex::new(BTreeMap::new());
/// What the command line asks for.
static ARGUMENTS: OnceLock<Arguments> = OnceLock::new();
/// Tests by name, with their tiers.
static TIERS: Mutex<BTreeMap<String, Tiers>> = Mutex::new(BTreeMap::new());

/// Says what the command line asks for, before the first test is made.
pub fn begin(args: &Arguments) {
    ARGUMENTS.get_or_init(|| args.clone());
}

/// A test of whole systems.
pub fn test(
    tiers: Tiers,
    name: impl Into<String>,
    f: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    of_kind("system", tiers, name.into(), move || {
        f().map(|()| Completion::Completed)
    })
}

/// What a test does.
pub type Test = fn() -> Result<(), Failed>;

/// Makes tests of whole systems whose names begin alike.
pub fn of(group: &str) -> impl Fn(Tiers, &str, Test) -> Trial {
    move |tiers, name, f| test(tiers, format!("{group}::{name}"), f)
}

/// A test of a kind. It may find that it cannot be run here.
pub fn of_kind(
    kind: &str,
    tiers: Tiers,
    name: String,
    f: impl FnOnce() -> Result<Completion, Failed> + Send + 'static,
) -> Trial {
    let mut all = TIERS.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(name.clone(), tiers);
    let own = name.clone();
    let beside = runs_beside(&name);
    let trial = Trial::ignorable_test(name, move || {
        let (_shared, _alone);
        if beside {
            _shared = HOST.read().unwrap_or_else(PoisonError::into_inner);
        } else {
            _alone = HOST.write().unwrap_or_else(PoisonError::into_inner);
        }
        let (start, cpu) = (Instant::now(), cpu_time());
        let outcome = f();
        let taken = Taken {
            seconds: start.elapsed().as_secs_f64(),
            // Of the whole process, so that it is a test's only if the test is alone.
            cpu_seconds: (!beside).then(|| (cpu_time() - cpu).max(0.0)),
            ok: outcome.is_ok(),
        };
        let mut all = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(own, taken);
        outcome
    });
    trial
        .with_kind(format!("{kind} {tiers}"))
        .with_ignored_flag(is_ignored(tiers))
}

/// Whether a test runs while another one does.
fn runs_beside(name: &str) -> bool {
    let group = name.split("::").next().unwrap_or(name);
    BESIDE.contains(&group)
}

/// Whether a test is not run unless it is asked for by `--ignored`.
///
/// A filter names tests, so it reaches those of the tier `full` as well; tests of hours are run in their own
/// tier only.
fn is_ignored(tiers: Tiers) -> bool {
    let now = Tier::now();
    let named = ARGUMENTS.get().is_some_and(|args| args.filter.is_some());
    !(tiers.has(now) || named && (now == Tier::Long || !tiers.only_long()))
}

/// Whether this run includes a test.
pub fn is_selected(tiers: Tiers, name: &str) -> bool {
    let Some(args) = ARGUMENTS.get() else {
        return true;
    };
    let matches = |f: &String| match args.exact {
        true => name == f,
        false => name.contains(f.as_str()),
    };
    let asked = args.include_ignored || args.ignored == is_ignored(tiers);
    asked && args.filter.as_ref().is_none_or(matches) && !args.skip.iter().any(matches)
}

/// Leaves out what belongs to other tiers, so that a run prints what it does and nothing else.
/// Returns the tests, and how many are left out.
pub fn of_this_run(trials: Vec<Trial>) -> (Vec<Trial>, usize) {
    let asked = |args: &Arguments| args.list || args.ignored || args.include_ignored;
    if ARGUMENTS.get().is_some_and(asked) {
        return (trials, 0);
    }
    let all = trials.len();
    let tiers = TIERS.lock().unwrap_or_else(PoisonError::into_inner);
    let runs = |t: &Trial| tiers.get(t.name()).is_none_or(|&t| !is_ignored(t));
    let mut kept: Vec<Trial> = trials.into_iter().filter(runs).collect();
    // One that needs the host to itself waits for its neighbours, so those come last.
    kept.sort_by_key(|t| runs_beside(t.name()));
    let left = all - kept.len();
    (kept, left)
}

/// Writes what the tests have taken, and returns the slowest groups and tests as text: nothing if few
/// tests ran.
///
/// The first test of a kind of system includes the run of all in-kernel tests there.
pub fn report() -> String {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    if taken.len() <= NAMED {
        return text;
    }
    match test_times::write(Tier::now(), "dyad-qemu-tests::qemu", &taken) {
        Ok(path) => {
            let _ = writeln!(text, "times of all tests: {}", paths::shown(&path));
        }
        Err(e) => {
            let _ = writeln!(text, "times of tests are not kept: {e}");
        }
    }
    let mut groups: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, t) in taken.iter() {
        let group = name.split("::").next().unwrap_or(name);
        *groups.entry(group).or_default() += t.seconds;
    }
    let tests = taken.iter().map(|(n, t)| (n.as_str(), t.seconds)).collect();
    for (what, mut all) in [
        ("groups", groups.into_iter().collect::<Vec<_>>()),
        ("tests", tests),
    ] {
        all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let _ = writeln!(text, "slowest {what} of the tier {}:", Tier::now());
        for (name, seconds) in all.into_iter().take(NAMED) {
            let _ = writeln!(text, "{seconds:8.1} s  {name}");
        }
    }
    text
}

/// How long a run may take in the tier of this run, from seconds in quick and in long form.
pub fn limit(quick: u64, long: u64) -> Duration {
    Duration::from_secs(dyad_tier::size(quick, quick, long))
}
