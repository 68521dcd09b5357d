//! Runs the tests that must catch each mutant of the register: with it they fail, without it they
//! pass. Each is a test by the mutant's name; the completeness of the register is tested as well.
//!
//! In the tier `quick` only that is tested; a filter reaches all mutants. The tier `full` has all mutants, each with its first test, and the tier `long` runs every test
//! of each.

mod complete;
mod programs;

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use dyad_mutants::{Mutant, Test};
use dyad_tier::Tier;
use libtest_mimic::{Arguments, Failed, Trial};
use programs::{Ended, run};

/// Whether everything is to be run.
pub fn long() -> bool {
    Tier::now() == Tier::Long
}

type Baseline = Arc<OnceLock<Result<(), String>>>;

/// Whether a test passes as things are; found out once.
fn passes(test: Test) -> Result<(), String> {
    static KNOWN: LazyLock<Mutex<HashMap<Test, Baseline>>> = LazyLock::new(Mutex::default);
    let known = {
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(test).or_default().clone()
    };
    let outcome = known.get_or_init(|| match run(test, None)? {
        Ended::Passed => Ok(()),
        Ended::Failed(text) => Err(format!("{test} fails without any mutant:\n{text}")),
    });
    outcome.clone()
}

/// All tests of a mutant, or the first, fail with it and pass without.
fn is_caught(mutant: &'static Mutant) -> Result<(), Failed> {
    let count = if long() { mutant.caught_by.len() } else { 1 };
    for text in mutant.caught_by.iter().take(count) {
        let test = Test::parse(text).ok_or_else(|| format!("{text} is no test"))?;
        passes(test)?;
        if let Ended::Passed = run(test, Some(&mutant.name))? {
            let lacks = &mutant.lacks;
            return Err(format!("{test} passes although this is not so any more: {lacks}").into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let asked = args.list || args.filter.is_some();
    let mutants: Vec<&Mutant> = match Tier::now() {
        // Each test program is built anew for its mutants: the tier `full` does that.
        Tier::Quick if !asked => Vec::new(),
        _ => dyad_mutants::all().collect(),
    };
    let mut trials: Vec<Trial> = mutants
        .into_iter()
        .map(|m| {
            Trial::test(m.name.clone(), move || is_caught(m)).with_kind(format!("{:?}", m.class))
        })
        .collect();
    trials.extend(complete::trials());
    libtest_mimic::run(&args, trials).exit_code()
}
