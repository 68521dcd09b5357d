//! The deliberately simple model, on what machines have done: each access of a run in strict order
//! is recorded, in the order in which they were done, and replayed. The plugin, the model it uses
//! and the simple one must agree about every counter.

use dyad_sim_model::account::Counters;
use dyad_sim_model::config::Order;
use dyad_sim_model::naive::replay_files;
use dyad_sim_model::system::NO_ACCESSES;

use super::{Context, Findings, region};
use dyad_launcher::config::Sim;
use dyad_launcher::error::Error;
use dyad_launcher::launch;

/// Runs that are recorded: program, arguments, settings, whether caches are coherent. Small caches evict more.
const RUNS: &[(&str, &str, &str, bool)] = &[
    (
        "sim-sharing",
        "--lines 32 --rounds 2 --evict 1",
        SMALL,
        true,
    ),
    ("npb", "--class S", "", true),
    (
        "sim-loads",
        "--load conflict:1:128 --stride 4160 --home x86_64,aarch64",
        WALKS,
        true,
    ),
    ("hop", "", SMALL, false),
];
/// Small TLBs: the loads and stores of walks are in traces as those of programs are.
const WALKS: &str =
    "tlb.entries=16 tlb.ways=4 tlb.l2-entries=64 tlb.l2-ways=4 tlb.l2-latency=7 tlb.walk-entries=4";
const SMALL: &str =
    "l1.size=4K l1.ways=2 l2.size=16K l2.ways=4 l3.size=128K l3.ways=8 aarch64.l3.query=1";

/// Small pools: the directory has a word for each line.
const LOCAL: u64 = 64 << 20;
const CXL: u64 = 256 << 20;

pub(super) fn compare(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    let runs = if cx.quick { &RUNS[..1] } else { RUNS };
    for (i, &(app, args, settings, coherent)) in runs.iter().enumerate() {
        let mut sim = Err(Error::Run("the run was not configured".into()));
        let report = cx.run(Sim::Cache, app, args, |c| {
            c.setup.set.push(super::settings(settings));
            c.setup.order = Order::Strict { seed: i as u64 + 1 };
            c.memory_trace = true;
            c.coherent = coherent;
            (c.mem_local, c.mem_cxl) = (LOCAL, CXL);
            sim = c.simulation();
        })?;
        let sim = sim?.ok_or_else(|| Error::Run("nothing is simulated".into()))?;
        let files: Vec<_> = (0..sim.nodes.len())
            .map(|node| launch::trace_file(&report.dir, node))
            .collect();
        let replayed = replay_files(&sim, &files);
        // They are large, and have served their purpose.
        for file in &files {
            std::fs::remove_file(file)
                .map_err(|e| Error::io(format_args!("cannot remove {}", file.display()), e))?;
        }
        let replayed = replayed.map_err(|e| Error::Run(format!("trace of {app}: {e}")))?;
        if let Some(difference) = replayed.difference {
            return Err(Error::Run(format!("{app}: {difference}")));
        }
        findings.at_least(
            format!("{app}: accesses replayed"),
            replayed.records,
            1_000_000,
        );
        for (node, isa) in report.config.nodes.iter().enumerate() {
            let mut naive = Counters::default();
            for cpu in &replayed.counts[node] {
                naive += *cpu;
            }
            let (ours, ..) = region::machine(&report, *isa)?.sum();
            let naive = naive.report();
            let names = dyad_sim_model::report::Counters::NAMES.iter();
            let pairs = names.zip(ours.values().into_iter().zip(naive.values()));
            // Traces do not have these either.
            let others = ["instructions", "ipis_sent", "ipis_received"];
            let is_other = |name: &str| others.contains(&name) || NO_ACCESSES.contains(&name);
            for (name, (ours, naive)) in pairs.filter(|(name, _)| !is_other(name)) {
                findings.exact(format!("{app}: {name}, {isa}"), ours, naive);
            }
        }
    }
    Ok(())
}
