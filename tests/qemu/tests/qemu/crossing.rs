//! Crossing calls on real machines: everything they carry, many of them, and machines that die while a call
//! is there. The tier `long` makes half a million calls with random delays; `DYAD_SEED` gives others.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_abi::record::name;
use dyad_launcher::config::RunConfig;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::kill::{self, Ended, Kill, says};
use crate::times;

const PAIR: &[Isa] = &[X86_64, Aarch64];
const REVERSED: &[Isa] = &[Aarch64, X86_64];
const THREE: &[Isa] = &[Aarch64, X86_64, Aarch64];

/// How soon a caller hears that its machine has died, and the run ends.
const PROMPT: Duration = Duration::from_secs(20);

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("crossing");
    vec![
        test(Tiers::FULL, "carries_everything", || all(PAIR, 1, true)),
        test(Tiers::FULL, "carries_everything_reversed_on_2_cpus", || {
            all(REVERSED, 2, true)
        }),
        test(Tiers::FULL, "carries_everything_on_three_nodes", || {
            all(THREE, 1, true)
        }),
        test(Tiers::FULL, "carries_everything_without_coherence", || {
            all(PAIR, 1, false)
        }),
        test(Tiers::FULL, "ten_thousand_calls_keep_canaries", || {
            let args = "--scene ping-pong --calls 10000";
            let ended = run(PAIR, 1, true, args, None)?;
            done(&ended, &["ping_pong"], &Isa::ALL)?;
            // The scene runs on each ISA.
            let counted = ended.report.counters.get(name::CROSSINGS);
            if counted != Some(&20_000) {
                return Err(
                    format!("{counted:?} crossing calls were counted\n{}", ended.text).into(),
                );
            }
            Ok(())
        }),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "calls_with_random_delays_come_back",
            || {
                let calls = size(10_000, 10_000, 500_000);
                let seed = std::env::var("DYAD_SEED").unwrap_or_else(|_| "1".into());
                let args = format!("--scene delays --calls {calls} --seed {seed}");
                done(&run(PAIR, 1, true, &args, None)?, &["delays"], &Isa::ALL)
            },
        ),
        test(Tiers::FULL, "to_a_machine_that_dies_are_lost", || {
            for nodes in [PAIR, REVERSED] {
                let ended = run(nodes, 1, true, "--scene lost", Some(1))?;
                let checks = ["lost", "lost_again", "goes_on"];
                done(&ended, &checks, &nodes[..1])?;
                ended.within(PROMPT)?;
            }
            Ok(())
        }),
        test(
            Tiers::FULL,
            "to_a_machine_that_dies_end_programs_that_do_not_ask",
            || {
                let ended = run(PAIR, 1, true, "--scene lost-plain", Some(1))?;
                let told = ended.text.contains("a crossing call is lost");
                if !told || ended.report.failure().is_none() {
                    return Err(format!("it goes on, or does not say why:\n{}", ended.text).into());
                }
                ended.within(PROMPT)
            },
        ),
        test(
            Tiers::FULL,
            "within_each_other_have_a_limit_with_a_name",
            deep,
        ),
        test(
            Tiers::FULL,
            "of_a_machine_that_dies_lead_to_its_caller",
            || {
                // What it has called is here, and comes to its end: whom it would return to is lost, and whoever
                // has called that is told.
                let ended = run(PAIR, 1, true, "--scene lost-nested", Some(1))?;
                let told = ended.text.contains("a crossing call is lost");
                if !told || ended.text.contains("it came back") {
                    return Err(format!("it goes on, or does not say why:\n{}", ended.text).into());
                }
                ended.within(PROMPT)
            },
        ),
    ]
}

fn all(nodes: &[Isa], cpus: usize, coherent: bool) -> Result<(), Failed> {
    const CHECKS: [&str; 17] = [
        "runs_there",
        "runs_here",
        "integers",
        "floats",
        "references",
        "ackermann",
        "depth_64",
        "tables",
        "services",
        "try_call",
        "try_call_here",
        "local",
        "local_results",
        "always",
        "local_thread",
        "cross_again",
        "heaps",
    ];
    let ended = run(nodes, cpus, coherent, "--scene all", None)?;
    done(&ended, &CHECKS, &Isa::ALL)
}

/// Whether all is well, and the program has made these checks on these ISAs.
fn done(ended: &Ended, checks: &[&str], isas: &[Isa]) -> Result<(), Failed> {
    if let Some(why) = ended.report.failure() {
        return Err(format!("{why}\n\nconsole:\n{}", ended.text).into());
    }
    for check in checks {
        for isa in isas {
            let name = format!("crossing.{check}.{isa}");
            if !ended.report.checks.iter().any(|c| c.name == name && c.ok) {
                return Err(format!("{name} was not made\n\nconsole:\n{}", ended.text).into());
            }
        }
    }
    Ok(())
}

/// Runs the program; if there is a victim, that is killed once a call stays where it is.
fn run(
    nodes: &[Isa],
    cpus: usize,
    coherent: bool,
    args: &str,
    victim: Option<usize>,
) -> Result<Ended, Failed> {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        coherent,
        work: console::app("crossing", args),
        on_death: OnDeath::Survive,
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    };
    Ok(match victim {
        // The call is on its way round: give it time to be where it stays.
        Some(node) => {
            let kill = Kill::after(node, Duration::from_millis(300));
            kill::run(&config, kill, says("it stays on"))
        }
        None => {
            let (report, text) = console::run(&config);
            Ended {
                kill: None,
                report,
                text,
                program_went_on: None,
                program_outlived_thread: None,
                went_on: None,
            }
        }
    })
}

/// As many calls as possible come back; one more ends the program, with the limit in the report.
fn deep() -> Result<(), Failed> {
    for nodes in [PAIR, REVERSED] {
        let most = run(nodes, 1, true, "--scene deep --calls 255", None)?;
        if !most.text.contains("255 more calls within the first") || most.report.failure().is_some()
        {
            return Err(format!("256 calls do not come back:\n{}", most.text).into());
        }
        let over = run(nodes, 1, true, "--scene deep --calls 256", None)?;
        let limit = ": at most 256 crossing calls can be within each other";
        if !over.text.contains(limit) || over.report.failure().is_none() {
            return Err(format!("the limit is not named:\n{}", over.text).into());
        }
    }
    Ok(())
}
