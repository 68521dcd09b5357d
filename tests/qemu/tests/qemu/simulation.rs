//! Simulated runs as users make them: memory models, settings, results that are consistent.

use std::time::Duration;

use dyad_abi::marker::WindowId;
use dyad_abi::service::peer::Kernels;
use dyad_launcher::config::{RunConfig, Sim};
use dyad_launcher::launch;
use dyad_launcher::sim::outcome::Part;
use dyad_launcher::sim::{Layer, Outcome, Setup};
use dyad_sim_model::config::{MemoryModel, Order};
use dyad_sim_model::report::ClockReport;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::{self, Kept};
use crate::times;

/// How often a run may be disturbed by other work on this computer.
const ATTEMPTS: usize = 3;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("simulation");
    vec![
        test(Tiers::FULL, "every_model_and_mode_explains_itself", models),
        test(
            Tiers::FULL,
            "nodes_of_two_cpus_explain_themselves",
            two_cpus,
        ),
        test(
            Tiers::FULL,
            "settings_take_effect_without_a_build",
            settings,
        ),
        test(
            Tiers::FULL,
            "a_seed_is_a_history_and_nearer_memory_is_faster",
            histories,
        ),
        test(
            Tiers::FULL,
            "regions_go_with_threads_that_move",
            moving_regions,
        ),
        test(Tiers::FULL, "pages_beyond_a_tlb_are_walked_for", walks),
    ]
}

/// The tour, simulated.
fn tour(sim: Sim) -> RunConfig {
    RunConfig {
        work: console::app("hop", ""),
        sim,
        timeout: Some(Duration::from_secs(200)),
        ..RunConfig::default()
    }
}

/// A run of it.
fn run(sim: Sim, coherent: bool, setup: Setup) -> Result<Outcome, String> {
    let config = RunConfig {
        coherent,
        setup,
        ..tour(sim)
    };
    let (report, text) = console::run(&config);
    if let Some(why) = report.failure() {
        return Err(format!("{why}\n\nconsole:\n{text}"));
    }
    let outcome = report.simulation.ok_or("nothing was simulated")?;
    match outcome.nodes.len() {
        2 => Ok(outcome),
        n => Err(format!("{n} nodes have left a report")),
    }
}

fn ensure(holds: bool, what: &str, part: &Part) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("{what}: {part:#?}")),
    }
}

fn models() -> Result<(), Failed> {
    for model in MemoryModel::ALL {
        let mut misses = Vec::new();
        for coherent in [true, false] {
            let setup = Setup {
                model,
                ..Setup::default()
            };
            let outcome = run(Sim::Timing, coherent, setup)?;
            let nodes = outcome.nodes.iter();
            misses.push(nodes.map(|n| n.total.counters.l3_misses).sum::<u64>());
            for node in &outcome.nodes {
                let (part, c) = (&node.total, &node.total.counters);
                let name = |what: &str| {
                    let mode = if coherent { "coherent" } else { "incoherent" };
                    format!("{}, {mode}, node {}: {what}", model.name(), part.node)
                };
                let sources = c.local + c.remote + c.pool + c.forwarded;
                ensure(
                    c.l3_misses > 0 && sources == c.l3_misses,
                    &name("every miss has a source"),
                    part,
                )?;
                let (remote, pool) = match model {
                    MemoryModel::Separated => (true, false),
                    MemoryModel::Shared => (true, true),
                    MemoryModel::Pool => (false, true),
                    MemoryModel::FullyShared => (false, false),
                };
                ensure(
                    (c.remote > 0, c.pool > 0) == (remote, pool),
                    &name("what is far is met, and nothing else"),
                    part,
                )?;
                let messages = c.snp_data + c.snp_inv;
                ensure(
                    messages > 0,
                    &name("the memory of programs is coherent in any case"),
                    part,
                )?;
                ensure(
                    (c.flushes > 0) != coherent,
                    &name("only incoherent caches are flushed"),
                    part,
                )?;
                ensure(
                    part.breakdown_ps.inst > 0 && part.breakdown_ps.l1 > 0,
                    &name("time went somewhere"),
                    part,
                )?;
            }
        }
        if misses[0] >= misses[1] {
            let name = model.name();
            return Err(format!("{name}: what is flushed is missed, but {misses:?} misses").into());
        }
    }
    Ok(())
}

/// The second CPU of a node is halted when the first one ends the machine.
fn two_cpus() -> Result<(), Failed> {
    for sim in [Sim::Count, Sim::Timing] {
        let report = launch::run(
            &RunConfig {
                cpus: 2,
                ..tour(sim)
            },
            &mut Kept::new(|_| {}),
        );
        // A computer that has fewer processors than the system keeps some waiting for longer than
        // the others wait for them.
        let bad = |c: &&launch::Check| !c.ok && c.name != "sim.skew";
        if let Some(check) = report.checks.iter().find(bad) {
            return Err(format!("{check:?}").into());
        }
        let closed = report.checks.iter().filter(|c| c.name == "sim.closure");
        if closed.count() != 2 {
            return Err(format!("not every node has a breakdown: {:?}", report.failure()).into());
        }
    }
    Ok(())
}

fn settings() -> Result<(), Failed> {
    // In strict order, so that both runs wait for each other alike.
    let order = Order::Strict { seed: 1 };
    let set = |words: &[(&str, &str)]| Setup {
        order,
        set: vec![Layer {
            source: "test".into(),
            strict: true,
            entries: words
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        }],
        ..Setup::default()
    };
    let usual = run(Sim::Cache, true, set(&[]))?;
    let small = run(
        Sim::Cache,
        true,
        set(&[("arm.l1d.size", "1KiB"), ("arm.l1d.ways", "1")]),
    )?;
    // Nothing was built: the same files.
    if usual.versions.kernel != small.versions.kernel
        || usual.versions.plugin != small.versions.plugin
        || usual.versions.programs != small.versions.programs
    {
        return Err("something was built".into());
    }
    let ratio = |outcome: &Outcome, node: usize| {
        let c = &outcome.nodes[node].total.counters;
        c.l1d_misses * 1000 / (c.l1d_hits + c.l1d_misses)
    };
    // Misses per thousand. Many are for lines that the other node has changed, whatever the size.
    if ratio(&small, 1) < 2 * ratio(&usual, 1).max(1) {
        return Err(format!(
            "a first level of 16 lines misses {} of 1000 times, one of 512 lines {}",
            ratio(&small, 1),
            ratio(&usual, 1)
        )
        .into());
    }
    if ratio(&small, 0) > 3 * ratio(&usual, 0).max(1) {
        return Err("the other node's caches have changed too".into());
    }
    let free = [("cost.trap", "0"), ("cost.fence", "0")];
    let priced = [("cost.trap", "1000"), ("cost.fence", "1000")];
    operations(0, &run(Sim::Timing, true, set(&free))?)?;
    operations(1000, &run(Sim::Timing, true, set(&priced))?)?;
    Ok(())
}

/// Checks that traps and fences took so many cycles each, and all other operations of the system none.
fn operations(each: u64, outcome: &Outcome) -> Result<(), String> {
    for node in &outcome.nodes {
        let (part, c) = (&node.total, &node.total.counters);
        ensure(
            c.traps > 0 && c.returns > 0,
            "there are traps and returns",
            part,
        )?;
        ensure(
            part.breakdown_cycles.system == each * (c.traps + c.fences),
            &format!("a trap and a fence take {each} cycles"),
            part,
        )?;
        ensure(part.closure_ppm == 0, "the account closes", part)?;
    }
    match outcome.nodes.iter().map(|n| n.total.counters.fences).sum() {
        // The kernel of x86-64 has no fence of its own.
        0u64 => Err("there is no fence".into()),
        _ => Ok(()),
    }
}

/// A run in strict order that nothing has disturbed.
fn strict(model: MemoryModel, seed: u64) -> Result<Outcome, String> {
    let mut disturbances = Vec::new();
    for _ in 0..ATTEMPTS {
        let setup = Setup {
            model,
            order: Order::Strict { seed },
            ..Setup::default()
        };
        let outcome = run(Sim::Timing, true, setup)?;
        if outcome.disturbances.is_empty() {
            return Ok(outcome);
        }
        disturbances.extend(outcome.disturbances);
    }
    Err(format!("no run was undisturbed: {disturbances:?}"))
}

/// A thread that moves inside of a timed phase, by shared memory and by messages: the pass ends on the other node, and all CPUs
/// of the system are accounted for in it as long as it took.
fn moving_regions() -> Result<(), Failed> {
    for kernels in [Kernels::Fused, Kernels::Multiple] {
        let config = RunConfig {
            work: console::app("npb", "--bench is --style thread --at 40"),
            kernels,
            setup: Setup {
                order: Order::Strict { seed: 0 },
                ..Setup::default()
            },
            ..tour(Sim::Timing)
        };
        let (report, text) = console::run(&config);
        if let Some(why) = report.failure() {
            return Err(format!("{why}\n\nconsole:\n{text}").into());
        }
        let mut outcome = report.simulation.ok_or("nothing was simulated")?;
        for parts in [&mut outcome.regions, &mut outcome.everywhere] {
            parts.retain(|p| p.region == Some(WindowId::FREE));
        }
        let moved: u64 = outcome.regions.iter().map(|p| p.moved).sum();
        let passes: u64 = outcome.regions.iter().map(|p| p.passes).sum();
        if moved != 1 || outcome.everywhere.len() != outcome.nodes.len() {
            return Err(format!("{moved} passes have moved: {:#?}", outcome.everywhere).into());
        }
        let on_one: u64 = outcome.regions.iter().map(|p| p.time_ps).sum();
        let longest = outcome
            .regions
            .iter()
            .filter_map(|p| p.pass_ps)
            .map(|d| d.max);
        // The pass that moves is the longest one.
        let time = on_one + longest.max().unwrap_or(0);
        let edge = (outcome.config.clock.quantum_ns + outcome.config.clock.lag_ns) * 1000;
        for part in &outcome.everywhere {
            ensure(part.passes == passes + 1, "all passes are in it", part)?;
            ensure(part.closure_ppm.abs() <= 1000, "the account closes", part)?;
            let off = part.time_ps.abs_diff(time);
            ensure(
                off <= 2 * part.passes * edge,
                &format!("as long as {time} ps"),
                part,
            )?;
        }
        let done = |parts: &[Part]| parts.iter().map(|p| p.counters.instructions).sum::<u64>();
        let part = &outcome.everywhere[0];
        let more = done(&outcome.everywhere) > done(&outcome.regions);
        ensure(more, "the pass that moved is in it", part)?;
    }
    Ok(())
}

/// A ring of 32 pages and one of 128, with a TLB of 64 entries and without: on both ISAs each step of the second one is a walk, and
/// nearly none of the first. All that it takes is the walks.
fn walks() -> Result<(), Failed> {
    const PAGES: [u64; 2] = [32, 128];
    const TLB: &[(&str, &str)] = &[("tlb.entries", "64"), ("tlb.ways", "4")];
    let run = |set: &[(&str, &str)]| -> Result<_, String> {
        let entries = set.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        let config = RunConfig {
            // A line more than a page, so that lines are in all sets of the first level.
            work: console::app(
                "sim-loads",
                "--load conflict:2:32,conflict:2:128 --stride 4160 --home x86_64,aarch64",
            ),
            setup: Setup {
                order: Order::Strict { seed: 1 },
                set: vec![Layer {
                    source: "test".into(),
                    strict: true,
                    entries: entries.collect(),
                }],
                ..Setup::default()
            },
            ..tour(Sim::Timing)
        };
        let (report, text) = console::run(&config);
        if let Some(why) = report.failure() {
            return Err(format!("{why}\n\nconsole:\n{text}"));
        }
        let outcome = report.simulation.ok_or("nothing was simulated")?;
        Ok((report.counters, outcome))
    };
    let (steps, with) = run(TLB)?;
    let (_, without) = run(&[])?;
    for (place, pages) in PAGES.into_iter().enumerate() {
        let of = |outcome: &Outcome, node: usize| {
            let id = WindowId::FREE + place as u16;
            let mut parts = outcome.regions.iter();
            let part = parts.find(|p| p.region == Some(id) && p.node == node);
            part.cloned()
                .ok_or(format!("no region {place} on node {node}"))
        };
        for node in &with.nodes {
            let (part, free) = (of(&with, node.total.node)?, of(&without, node.total.node)?);
            let name = format!("sim-loads.{place}.conflict.{}.steps", part.isa);
            let steps = *steps.get(&name).ok_or(format!("no {name}"))?;
            let c = &part.counters;
            ensure(part.closure_ppm == 0, "the account closes", &part)?;
            ensure(c.walks_unknown == 0, "all tables are read", &part)?;
            ensure(
                c.walk_loads > 3 * c.walks && c.walk_loads <= 4 * c.walks,
                "pages of programs have four levels of tables",
                &part,
            )?;
            let expected = if pages > 64 { steps } else { 0 };
            // Interrupts of the kernel's clock evict some pages.
            ensure(
                c.walks >= expected && c.walks - expected < steps / 100,
                &format!("of {steps} steps in {pages} pages {expected} walk"),
                &part,
            )?;
            let own = |p: &Part| p.breakdown_cycles.l1;
            ensure(
                own(&part).abs_diff(own(&free)) * 100 < own(&free),
                &format!("loads of walks are no hits of the program: {}", own(&free)),
                &part,
            )?;
            let c = &free.counters;
            let translated = [c.walks, c.tlb_l2_hits, c.walk_loads, c.walks_unknown];
            ensure(
                translated == [0; 4] && free.breakdown_cycles.walk == 0,
                "translations are free by default",
                &free,
            )?;
        }
    }
    Ok(())
}

fn histories() -> Result<(), Failed> {
    let clocks = |outcome: &Outcome| -> Result<Vec<ClockReport>, String> {
        let clocks: Option<Vec<_>> = outcome.nodes.iter().map(|n| n.clock).collect();
        let mut clocks = clocks.ok_or("a node without a clock")?;
        // How often the host made it wait for its turn.
        clocks.iter_mut().for_each(|c| c.waits = 0);
        Ok(clocks)
    };
    // What is simulated once the clock has ended is not part of the history.
    let lines = |outcome: &Outcome| -> Vec<[u64; 5]> {
        let of = |n: &dyad_launcher::sim::outcome::NodeOutcome| {
            let c = &n.total.counters;
            [c.l3_misses, c.remote, c.forwarded, c.snp_data, c.snp_inv]
        };
        outcome.nodes.iter().map(of).collect()
    };
    // Two at a time: machines in strict order take turns, so a run keeps one processor busy.
    let (near, first, again, other) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let near = strict(MemoryModel::FullyShared, 1)?;
            Ok::<_, String>((near, strict(MemoryModel::Shared, 1)?))
        });
        let again = strict(MemoryModel::Shared, 1);
        let other = strict(MemoryModel::Shared, 2);
        let (near, first) = beside.join().map_err(|_| "a run has panicked")??;
        Ok::<_, String>((near, first, again?, other?))
    })?;
    if first.trace_hash != again.trace_hash
        || clocks(&first)? != clocks(&again)?
        || lines(&first) != lines(&again)
    {
        return Err(format!("the same seed, another history:\n{first:#?}\n{again:#?}").into());
    }
    if other.trace_hash == first.trace_hash {
        return Err("another seed, the same history".into());
    }
    let end = |outcome: &Outcome| clocks(outcome).map(|c| c.iter().map(|c| c.total_ps).max());
    if end(&near)? >= end(&first)? {
        return Err(format!(
            "near memory is no faster: {:?} ps, far memory {:?} ps",
            end(&near)?,
            end(&first)?
        )
        .into());
    }
    Ok(())
}
