//! In-kernel tests: one boot for all tests of a system.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::launch;
use dyad_launcher::sim::Setup;
use dyad_sim_model::config::Order;
use dyad_tier::Tiers;
use libtest_mimic::{Completion, Failed, Trial};

use crate::console::Kept;
use crate::times;

/// A kind of system that in-kernel tests run on.
struct System {
    name: &'static str,
    tiers: Tiers,
    config: RunConfig,
}

fn systems() -> Vec<System> {
    let base = RunConfig {
        timeout: Some(Duration::from_secs(180)),
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        ..RunConfig::default()
    };
    let with = |tiers, name, nodes, cpus| System {
        name,
        tiers,
        config: RunConfig {
            nodes,
            cpus,
            ..base.clone()
        },
    };
    let simulated = |tiers, name, cpus, order| {
        let pair: System = with(tiers, name, vec![X86_64, Aarch64], cpus);
        System {
            config: RunConfig {
                sim: Sim::Count,
                setup: Setup {
                    order,
                    ..Setup::default()
                },
                ..pair.config
            },
            ..pair
        }
    };
    vec![
        with(Tiers::QUICK, "pair", vec![X86_64, Aarch64], 1),
        with(
            Tiers::FULL,
            "pair_reversed_2_cpus",
            vec![Aarch64, X86_64],
            2,
        ),
        with(Tiers::FULL, "three_nodes", vec![X86_64, Aarch64, X86_64], 1),
        System {
            config: RunConfig {
                fastpaths: false,
                ..with(Tiers::LONG, "slowpath", vec![X86_64, Aarch64], 1).config
            },
            ..with(Tiers::LONG, "slowpath", vec![X86_64, Aarch64], 1)
        },
        simulated(Tiers::LONG, "simulated_time", 1, Order::Parallel),
        simulated(Tiers::FULL, "simulated_time_2_cpus", 2, Order::Parallel),
        simulated(Tiers::LONG, "strict_order", 1, Order::Strict { seed: 1 }),
    ]
}

type Results = HashMap<String, Result<String, String>>;

/// The tests of one system that are to run, and their results once they have.
struct Batch {
    config: RunConfig,
    names: Vec<String>,
    results: Mutex<Option<Results>>,
}

/// A trial per system and test.
pub fn trials(names: &[String]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for system in systems() {
        let full = |n: &String| format!("{}::{n}", system.name);
        let batch = Arc::new(Batch {
            names: names
                .iter()
                .filter(|n| times::is_selected(system.tiers, &full(n)))
                .cloned()
                .collect(),
            config: system.config.clone(),
            results: Mutex::new(None),
        });
        for n in names {
            let (batch, name) = (batch.clone(), n.clone());
            let test = move || batch.result(&name).map(|()| Completion::Completed);
            trials.push(times::of_kind("kernel", system.tiers, full(n), test));
        }
    }
    trials
}

impl Batch {
    fn result(&self, name: &str) -> Result<(), Failed> {
        let mut results = self
            .results
            .lock()
            .map_err(|_| "an earlier test panicked")?;
        match results.get_or_insert_with(|| self.run()).get(name) {
            Some(Ok(remark)) => {
                if !remark.is_empty() {
                    eprintln!("{name}: {remark}");
                }
                Ok(())
            }
            Some(Err(why)) => Err(why.into()),
            None => Err("the test did not run".into()),
        }
    }

    /// Runs all tests; a test that brings the system down is taken out and the others go on in a
    /// new one.
    fn run(&self) -> Results {
        let mut results = Results::new();
        while results.len() < self.names.len() {
            let left: Vec<String> = self
                .names
                .iter()
                .filter(|n| !results.contains_key(*n))
                .cloned()
                .collect();
            let before = results.len();
            self.boot(&left, &mut results);
            if results.len() == before {
                // Nothing came to an end: charge the first.
                results.insert(
                    left[0].clone(),
                    Err("the system did not get to this test; see its neighbours".into()),
                );
            }
        }
        results
    }

    fn boot(&self, names: &[String], results: &mut Results) {
        let config = RunConfig {
            work: Work::Ktest(names.to_vec()),
            ..self.config.clone()
        };
        let mut kept = Kept::new(|_| {});
        let report = launch::run(&config, &mut kept);
        let nodes = config.nodes.len();
        let failure = report.failure();
        let text = kept.text(&report);
        for name in names {
            let mine: Vec<_> = report.ktests.iter().filter(|k| &k.name == name).collect();
            let ended: Vec<_> = mine.iter().filter(|k| k.state != "start").collect();
            let failed: Vec<String> = ended
                .iter()
                .filter(|k| k.state == "failed")
                .map(|k| format!("node {}: {}", k.node, k.detail))
                .collect();
            if !failed.is_empty() {
                let why = format!("{}\n\nconsole:\n{text}", failed.join("\n"));
                results.insert(name.clone(), Err(why));
            } else if ended.len() == nodes {
                let remarks: Vec<String> = ended
                    .iter()
                    .filter(|k| !k.detail.is_empty())
                    .map(|k| format!("node {} {}: {}", k.node, k.state, k.detail))
                    .collect();
                results.insert(name.clone(), Ok(remarks.join("; ")));
            } else if !mine.is_empty() {
                let why = failure.clone().unwrap_or_default();
                let why = format!(
                    "ended on {} of {nodes} nodes: {why}\n\nconsole:\n{text}",
                    ended.len()
                );
                results.insert(name.clone(), Err(why));
            }
        }
        let all_ran = names.iter().all(|n| results.contains_key(n));
        if let (Some(why), true) = (failure, all_ran)
            && names.iter().all(|n| matches!(results.get(n), Some(Ok(_))))
            && let Some(last) = names.last()
        {
            // All tests passed, but the system did not end well: nobody else to charge.
            results.insert(
                last.clone(),
                Err(format!(
                    "the system did not end well: {why}\n\nconsole:\n{text}"
                )),
            );
        }
    }
}
