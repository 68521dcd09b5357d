//! What was given up can be used again after a number of flush steps that depends on what was
//! touched, not on how much memory there is.

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_launcher::config::RunConfig;
use dyad_launcher::{pools, size};
use dyad_measure::bench::{self, Latencies};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::Kept;
use crate::times;

/// The least size of pools; the sizes that it is compared with, of which the largest is taken that
/// there is room for.
const LEAST: u64 = 64 << 20;
const LARGE: [u64; 3] = [4 << 30, 1 << 30, 256 << 20];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let trial = times::test(
        Tiers::FULL,
        "quiescence::steps_follow_lines_not_memory",
        steps,
    );
    vec![trial]
}

fn steps() -> Result<(), Failed> {
    let nodes = [X86_64, Aarch64];
    let room = pools::available(&RunConfig::default().shm_dir)?;
    let fits = |pool: &u64| pool * (nodes.len() as u64 + 1) <= room;
    let large = LARGE.into_iter().find(fits).ok_or("no room for pools")?;
    let figures = bench::quiescence(&nodes, &[LEAST, large], &mut Kept::new(|_| {}))?;
    let table = figures.table();
    let because = |why: String| Err(format!("{why}\n\n{table}").into());
    if let Some(why) = figures.problem() {
        return because(why);
    }
    // Whatever `problem` thinks of it: the figures themselves.
    for isa in nodes {
        for coherent in [true, false] {
            for lines in [1, 64, 500, 1000] {
                let find = |pool| find(&figures, (isa, coherent, pool, lines));
                let (small, same) = (find(LEAST)?, find(large)?);
                if small != same {
                    let large = size::show(large);
                    return because(format!(
                        "{isa}, {lines} lines: {small:?} steps and rounds with 64 MiB, {same:?} with {large}"
                    ));
                }
            }
        }
        // Of the two CPUs that there are: the page of the book has the parts.
        let (steps, _) = find(&figures, (isa, true, large, 1))?;
        if steps > 16 {
            return because(format!("{isa}: {steps} steps for two CPUs"));
        }
        let of = |lines| find(&figures, (isa, false, large, lines));
        if !(of(1)? < of(64)? && of(64)? < of(500)?) {
            return because(format!("{isa}: steps do not grow with lines"));
        }
    }
    Ok(())
}

fn find(figures: &Latencies, what: (dyad_abi::Isa, bool, u64, u64)) -> Result<(u64, u64), Failed> {
    let mut rows = figures.rows.iter();
    let row = rows.find(|r| (r.isa, r.coherent, r.pool, r.lines) == what);
    row.map(|r| (r.steps, r.rounds))
        .ok_or_else(|| format!("no figure for {what:?}").into())
}
