//! The constants of a profile, from what a run has paid: a pointer chase through memory of each
//! level, and accesses to what other nodes have.
//!
//! All of them are cycles per event, so they come out exactly: what interrupts do in between is
//! paid at the same prices. The time of a step of the chase as a whole is near the latency and its
//! instructions.

use dyad_abi::Isa;
use dyad_abi::marker::WindowId;
use dyad_sim_model::config::{MemoryModel, NodeConfig, SimConfig};
use dyad_sim_model::report::{MachineReport, RoiReport};

use super::{Context, Findings, region};
use dyad_launcher::config::{RunConfig, Sim};
use dyad_launcher::error::Error;
use dyad_launcher::sim::Profile;

/// How far the time of a step may be from what it is made of.
const PART: f64 = 0.005;
/// How far the time of a doorbell may be off, handlers included.
const IPI_PART: f64 = 0.02;
/// Profiles with constants of their own.
const PROFILES: [&str; 3] = ["paper-big", "paper-small", "artifact"];
/// Prices of messages that cannot be mistaken for each other. Two have none: data from another
/// cache, which is booked together with memory; and write-backs, of which only those are paid that
/// evictions and flushes cause.
const PRICES: &str = "snoop.data=71 snoop.inv=73 snoop.back=79 snoop.forward=0 snoop.writeback=0";
/// Write-backs alone have a price.
const WRITEBACKS: &str = "snoop.data=0 snoop.inv=0 snoop.back=0 snoop.forward=0 snoop.writeback=83";

/// The first window of `sim-sharing`, and the numbers of two of its patterns, which have two windows
/// each. The program has the same numbers.
const WINDOWS: u16 = WindowId::FREE + 0x20;
const PING_PONG: u16 = 0;
const PRODUCER: u16 = 4;

/// Bytes that are found in the first, second and last level, and in memory.
const SIZES: [(&str, &str); 4] = [
    ("16K", "L1"),
    ("512K", "L2"),
    ("2M", "L3"),
    ("32M", "memory"),
];

pub(super) fn compare(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    let profiles = if cx.quick { &PROFILES[..1] } else { &PROFILES };
    for &profile in profiles {
        // The program's memory is near the node that uses it first, and is used again on the other.
        chase(cx, findings, profile, Isa::X86_64, &SIZES)?;
        chase(
            cx,
            findings,
            profile,
            Isa::Aarch64,
            &SIZES[SIZES.len() - 1..],
        )?;
        snoops(cx, findings, profile)?;
    }
    writebacks(cx, findings)?;
    doorbells(cx, findings)?;
    Ok(())
}

/// The change of a run to a profile; gives what is then simulated.
fn setup(config: &mut RunConfig, profile: &str) -> Result<SimConfig, Error> {
    config.setup.profile = Profile::load(profile).map_err(Error::Usage)?;
    config.setup.model = MemoryModel::Shared;
    config.setup.set.push(super::settings(PRICES));
    config.rounds = 1;
    let resolved = config.simulation()?;
    resolved.ok_or_else(|| Error::Run("nothing is simulated".into()))
}

fn node(sim: &SimConfig, isa: Isa) -> Result<&NodeConfig, Error> {
    let node = sim.nodes.iter().find(|n| n.isa() == Some(isa));
    node.ok_or_else(|| Error::Run(format!("{isa} is not simulated")))
}

fn chase(
    cx: &mut Context<'_>,
    findings: &mut Findings,
    profile: &str,
    first: Isa,
    sizes: &[(&str, &str)],
) -> Result<(), Error> {
    let list: Vec<String> = sizes.iter().map(|(s, _)| format!("chase:1:{s}")).collect();
    let args = format!("--load {} --home {first},{}", list.join(","), first.other());
    let mut sim = Err(Error::Run("the run was not configured".into()));
    let report = cx.run(Sim::Timing, "sim-loads", &args, |c| {
        sim = setup(c, profile);
    })?;
    let sim = sim?;
    for isa in Isa::ALL {
        let node = node(&sim, isa)?;
        for (place, &(size, level)) in sizes.iter().enumerate() {
            let roi = region::of(&report, isa, place)?;
            let (c, b, n) = (roi.counters, roi.breakdown_ps, node.latency);
            let mut price = |what: &str, ps: u64, events: u64, constant: u64| {
                let cycles = ps as f64 / (events * node.cycle_ps) as f64;
                let name = format!("{profile}: {what}, {isa}");
                findings.near(name, cycles, constant as f64, 0.0);
                constant
            };
            let latency = match level {
                "L1" => price("latency.l1", b.l1, c.l1d_hits, n.l1),
                "L2" => price("latency.l2", b.l2, c.l2_hits, n.l2),
                "L3" => price("latency.l3", b.l3, c.l3_hits, n.l3),
                // Where the kernel has put the memory is its business; what is near and what is
                // far has its price.
                _ if c.local > c.remote.max(c.pool) => {
                    price("latency.local", b.mem_local, c.local, n.local)
                }
                _ if c.remote > c.pool => price("latency.remote", b.mem_remote, c.remote, n.remote),
                _ => price("latency.pool", b.mem_pool, c.pool, n.pool),
            };
            let steps = region::steps(&report, isa, place, "chase")?;
            let step = |ps: u64| ps as f64 / (steps * node.cycle_ps) as f64;
            findings.near(
                format!("{profile}: a step in {size}, {first} first, {isa}"),
                step(roi.time_ps),
                latency as f64 + step(b.inst),
                PART,
            );
        }
    }
    Ok(())
}

/// Cycles for messages, of what was counted.
fn messages(sim: &SimConfig, machine: &MachineReport, isa: Isa) -> Result<(u64, u64), Error> {
    let node = node(sim, isa)?;
    let s = node.snoop;
    let (c, b, _) = machine.sum();
    let taken = c.invalidations + c.back_invalidations;
    let cycles = c.snp_data * s.data + taken * s.inv + c.inclusion_snoops * s.back;
    Ok((b.snoop / node.cycle_ps, cycles))
}

/// Prices of messages, in a run with all kinds of them.
fn snoops(cx: &mut Context<'_>, findings: &mut Findings, profile: &str) -> Result<(), Error> {
    let mut sim = Err(Error::Run("the run was not configured".into()));
    let report = cx.run(Sim::Timing, "sim-sharing", "", |c| {
        sim = setup(c, profile);
    })?;
    let sim = sim?;
    for isa in Isa::ALL {
        let machine = region::machine(&report, isa)?;
        let (paid, counted) = messages(&sim, &machine, isa)?;
        findings.exact(
            format!("{profile}: cycles for messages, {isa}"),
            paid,
            counted,
        );
        let snoop = node(&sim, isa)?.snoop;
        for (what, pattern, step, events, constant) in [
            (
                "snoop.inv",
                PING_PONG,
                1,
                invalidations as fn(&RoiReport) -> u64,
                snoop.inv,
            ),
            ("snoop.data", PRODUCER, 1, snp_data, snoop.data),
        ] {
            // The first node is the one of x86-64.
            let step = if isa == Isa::X86_64 { 1 - step } else { step };
            let id = WINDOWS + 2 * pattern + step;
            let Ok(roi) = region::window(&report, isa, id) else {
                continue;
            };
            let n = events(&roi);
            if n == 0 {
                continue;
            }
            let cycle = node(&sim, isa)?.cycle_ps;
            let cycles = roi.breakdown_ps.snoop as f64 / (n * cycle) as f64;
            findings.near(
                format!("{profile}: {what}, {isa}"),
                cycles,
                constant as f64,
                0.0,
            );
        }
    }
    Ok(())
}

/// The price of a write-back, in a stream that evicts lines as fast as it modifies others.
fn writebacks(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    let args = "--load stream --home x86_64,aarch64";
    let mut sim = Err(Error::Run("the run was not configured".into()));
    let report = cx.run(Sim::Timing, "sim-loads", args, |c| {
        c.setup.set.push(super::settings(WRITEBACKS));
        sim = c.simulation();
    })?;
    let sim = sim?.ok_or_else(|| Error::Run("nothing is simulated".into()))?;
    for isa in Isa::ALL {
        let node = node(&sim, isa)?;
        let roi = region::of(&report, isa, 0)?;
        let (c, price) = (roi.counters, node.snoop.writeback);
        let paid = roi.breakdown_ps.snoop / node.cycle_ps;
        // Those that reads of other nodes' lines cause are counted and cost nothing.
        let least = c.writebacks.saturating_sub(c.snp_data);
        let number = (paid / price).clamp(least, c.writebacks);
        findings.exact(format!("snoop.writeback, {isa}"), paid, number * price);
    }
    Ok(())
}

/// The time of a doorbell between nodes: moving a program to a node whose CPUs sleep rings one, so a move
/// takes longer by what a doorbell takes longer. A CPU that the program has left just now does not sleep yet: so it
/// stays for a while on each node.
fn doorbells(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    const MORE_NS: u64 = 10_000;
    let rounds = if cx.quick { 50 } else { 200 };
    let args = format!("--pattern readers --rounds {rounds} --rest 300");
    let mut times = [0.0; 2];
    for (time, setting) in times
        .iter_mut()
        .zip(["ipi.latency=2us", "ipi.latency=12us"])
    {
        let report = cx.run(Sim::Timing, "sim-sharing", &args, |c| {
            c.setup.set.push(super::settings(setting));
            c.rounds = 1;
        })?;
        let counter = |what: &str| {
            let name = format!("sim-sharing.readers.{what}");
            let n = report.counters.get(&name).copied();
            n.ok_or_else(|| Error::Run(format!("the program does not report {name}")))
        };
        *time = counter("ns")? as f64 / counter("moves")? as f64;
    }
    let more = times[1] - times[0];
    findings.near(
        "ipi.latency, by moves between nodes, ns",
        more,
        MORE_NS as f64,
        IPI_PART,
    );
    Ok(())
}

fn invalidations(roi: &RoiReport) -> u64 {
    roi.counters.invalidations
}

fn snp_data(roi: &RoiReport) -> u64 {
    roi.counters.snp_data
}
