//! The gallery (`tests/programs/gallery`): programs on widely used crates print on a pair what they print on the host, byte for
//! byte, while they move below the crates' frames.
//!
//! One trial for each program and order of nodes. The tier `full` has some programs in one of the orders, in turn, and the
//! tier `long` all: for who changes the pipeline, or the runtime of programs.

use dyad_abi::Isa;
use dyad_abi::service::peer::Kernels;
use dyad_launcher::launch::Quiet;
use dyad_measure::gallery::{ORDERS, Program, programs};
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::times;

/// The programs of the tier `full`: together they move in closures, iterators, callbacks of traits and `Drop`, with floating
/// point, integers of 128 bits and state machines below. The others resemble one of these, or build for minutes.
const FULL: [&str; 5] = ["chrono", "nom", "postcard", "serde-json", "smoltcp"];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let programs = match programs() {
        Ok(programs) => programs,
        Err(e) => {
            let name = "gallery::has_its_programs";
            return vec![times::test(Tiers::QUICK, name, move || Err(e.into()))];
        }
    };
    let all = programs.into_iter().enumerate().flat_map(|(n, program)| {
        let is_full = FULL.contains(&program.name.as_str());
        ORDERS.map(move |nodes| {
            let tiers = match nodes == ORDERS[n % ORDERS.len()] {
                true if is_full => Tiers::FULL.and(Tiers::LONG),
                _ => Tiers::LONG,
            };
            let name = format!("gallery::{}_{}_first", program.name, nodes[0]);
            let program = program.clone();
            times::test(tiers, name, move || play(&program, nodes))
        })
    });
    all.collect()
}

fn play(program: &Program, nodes: [Isa; 2]) -> Result<(), Failed> {
    if let Some(why) = &program.refused {
        return match program.build() {
            Err(e) if e.to_string().contains(why) => Ok(()),
            Err(e) => Err(format!("{e}\ninstead of: {why}").into()),
            Ok(_) => Err(format!("it builds, although its manifest says: {why}").into()),
        };
    }
    let expected = program.on_host()?;
    // Several kernels in the tier `long`: each program runs over them as it is.
    let kernels = [Kernels::Fused, Kernels::Multiple];
    for kernels in &kernels[..size(1, 1, 2)] {
        let run = program.play((nodes, *kernels), &expected, &mut Quiet);
        if let Some(why) = run.failure {
            return Err(format!("{kernels:?}: {why}").into());
        }
    }
    Ok(())
}
