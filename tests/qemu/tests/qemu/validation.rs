//! The quick form of `cargo xtask validate-sim`, a test for each group of comparisons.

use dyad_launcher::error::Error;
use dyad_launcher::launch::Quiet;
use dyad_measure::validate::{self, Context, GROUPS, Group, Needs};
use dyad_tier::Tiers;
use libtest_mimic::{Completion, Failed, Trial};

use crate::times;

/// One for each group.
pub fn trials() -> Vec<Trial> {
    let trial = |group: &Group| {
        let group = *group;
        let name = format!("validation::{}", group.name.replace('-', "_"));
        // Foreign tools have to be installed or built, which only a change of the model is worth.
        let tiers = match group.needs {
            Needs::Nothing => Tiers::FULL.and(Tiers::LONG),
            _ => Tiers::LONG,
        };
        times::of_kind("system", tiers, name, move || compare(group))
    };
    GROUPS.iter().map(trial).collect()
}

/// A computer that is offline can lack what a group compares with; then the test is reported as
/// ignored, with the reason. `cargo xtask validate-sim` fails in that case.
fn compare(group: Group) -> Result<Completion, Failed> {
    let mut say = |text: &str| eprintln!("{text}");
    let plugins = match group.needs.ensure(&mut say) {
        Ok(plugins) => plugins,
        Err(Error::Setup(why)) => return Ok(Completion::ignored_with(why)),
        Err(e) => return Err(e.to_string().into()),
    };
    let mut cx = Context {
        quick: true,
        plugins: plugins.as_ref(),
        say: &mut |_| {},
        sink: &mut Quiet,
    };
    let findings = validate::validate(&[group], &mut cx).map_err(|e| e.to_string())?;
    match findings.problem() {
        None => Ok(Completion::Completed),
        Some(why) => Err(format!("{why}\n\n{}", findings.table(false)).into()),
    }
}
