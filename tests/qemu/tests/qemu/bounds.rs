//! No stretch with interrupts masked is longer than [`BOUND`] instructions: of every operation with its worst
//! arguments, and of what a survivor does when a node dies; on both ISAs, with and without coherent caches.

use std::fmt::Write as _;
use std::time::Duration;

use dyad_abi::Isa;
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::{RunConfig, Sim, TestOptions};
use dyad_launcher::launch::RunReport;
use dyad_measure::bench::longest::{self, BOUND, Longest};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::kill::{self, Kill};
use crate::times;

/// Moments at which the node is killed, in milliseconds after a program has begun to speak.
const MOMENTS: [u64; 3] = [400, 1100, 1900];
/// More of them for a short storm: recovery has tables frozen when the survivor's faults need more of them.
const AT_THE_START: [u64; 4] = [24, 28, 32, 36];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (prefix, coherent) in [("", true), ("incoherent_", false)] {
        for nodes in [[Isa::X86_64, Isa::Aarch64], [Isa::Aarch64, Isa::X86_64]] {
            let name = format!("bounds::{prefix}operations_of_{}", nodes[0]);
            let test = move || operations(nodes, coherent);
            trials.push(times::test(Tiers::FULL, &name, test));
        }
        for nodes in [[Isa::X86_64, Isa::Aarch64], [Isa::Aarch64, Isa::X86_64]] {
            let name = format!("bounds::{prefix}recovery_by_{}", nodes[0]);
            let test = move || recovery(nodes, coherent);
            // Each order in one of the two modes is enough every day.
            let tiers = match coherent == (nodes[0] == Isa::Aarch64) {
                true => Tiers::FULL.and(Tiers::LONG),
                false => Tiers::LONG,
            };
            trials.push(times::test(tiers, &name, test));
        }
    }
    trials
}

/// Every operation of the ABI, by the first node.
fn operations(nodes: [Isa; 2], coherent: bool) -> Result<(), Failed> {
    let config = longest::of_operations(&nodes, coherent);
    let (report, _) = console::good(&config)?;
    let longest = collect(&report, None)?;
    let mut problems = longest.missing(nodes[0]);
    for missing in &mut problems {
        missing.push_str(": the program bounds does not perform it");
    }
    judge(&longest, problems)
}

/// One of two nodes dies, and the other recovers it: with as much as a piece of recovery could look into, and,
/// where caches are coherent, also in a storm.
fn recovery(nodes: [Isa; 2], coherent: bool) -> Result<(), Failed> {
    let mut longest = Longest::default();
    let mut recovered = 0;
    for moment in MOMENTS {
        let config = RunConfig {
            nodes: nodes.to_vec(),
            cpus: 2,
            mem_local: 64 << 20,
            mem_cxl: 64 << 20,
            on_death: OnDeath::Survive,
            timeout: Some(Duration::from_secs(180)),
            ..longest::of_deaths(&nodes, coherent)
        };
        let kill = Kill::after(1, Duration::from_millis(moment / 4));
        let ended = kill::run(&config, kill, kill::says("may die now"));
        if let Some(why) = ended.report.failure() {
            return ended.because(why);
        }
        recovered += usize::from(ended.text.contains("is recovered"));
        longest.take(&collect(&ended.report, Some(0))?);
        if !coherent {
            continue;
        }
        let kill = Kill::after(1, Duration::from_millis(moment));
        recovered += usize::from(storm(nodes, kill, 60_000, &mut longest)?);
    }
    if coherent {
        for moment in AT_THE_START {
            let kill = Kill::after(1, Duration::from_millis(moment));
            storm(nodes, kill, 3_000, &mut longest)?;
        }
    }
    let runs = MOMENTS.len();
    let none = match recovered {
        n if n < runs => vec![format!(
            "{n} of {runs} runs and more recovered the dead node"
        )],
        _ => Vec::new(),
    };
    judge(&longest, none)
}

/// A storm in which a node dies, and which ends. Gives whether the node was recovered by then.
fn storm(nodes: [Isa; 2], kill: Kill, ops: u64, longest: &mut Longest) -> Result<bool, Failed> {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        sim: Sim::Count,
        windows: true,
        work: console::app("storm", format!("--deaths --ops {ops}")),
        on_death: OnDeath::Survive,
        timeout: Some(Duration::from_secs(120)),
        test: TestOptions {
            bare: true,
            ..TestOptions::default()
        },
        ..RunConfig::default()
    };
    let ended = kill::run(&config, kill, kill::speaks);
    let text = &ended.text;
    for wrong in ["panic", "the time limit of"] {
        if text.contains(wrong) {
            return Err(format!("{wrong}:\n{text}").into());
        }
    }
    longest.take(&collect(&ended.report, Some(0))?);
    Ok(text.contains("is recovered"))
}

/// What the plugins of a run report, or of one node.
fn collect(report: &RunReport, only: Option<usize>) -> Result<Longest, Failed> {
    let mut longest = Longest::default();
    for (n, node) in report.nodes.iter().enumerate() {
        if only.is_some_and(|o| o != n) {
            continue;
        }
        let sim = node.sim.as_ref();
        let sim = sim.ok_or_else(|| format!("node {n} has left no report of its plugin"))?;
        longest.add(sim)?;
    }
    Ok(longest)
}

fn judge(longest: &Longest, mut problems: Vec<String>) -> Result<(), Failed> {
    eprint!("{}", longest.table());
    problems.extend(longest.too_long());
    if problems.is_empty() {
        return Ok(());
    }
    let mut text = format!("beyond the bound of {BOUND} instructions, or not measured:\n");
    for problem in problems {
        let _ = writeln!(text, "  {problem}");
    }
    Err(text.into())
}
