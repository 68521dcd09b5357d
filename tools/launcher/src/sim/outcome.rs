//! What came out of a simulated run: the reports of all machines together, and whether they are
//! consistent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dyad_abi::marker::{BenchWindow, WindowId};
use dyad_sim_model::config::{Order, SLACK_NS, SimConfig};
use dyad_sim_model::report::{
    Breakdown, ClockReport, Counters, CpuReport, Durations, MachineReport,
    SCHEMA as MACHINE_SCHEMA, ShareReport,
};
use dyad_sim_model::shared::LOOKS_PER_PUBLICATION;
use serde::{Deserialize, Serialize};

use super::sanitizer;
use super::versions::Versions;

/// A breakdown may differ from the clock by one part in this many.
const CLOSES_TO: u128 = 1000;

/// What a node did, in the whole run or in a region of interest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The node.
    pub node: usize,
    /// Its ISA.
    pub isa: String,
    /// The region, and nothing for the whole run.
    pub region: Option<u16>,
    /// What the region is called, and `run` for the whole run.
    pub name: String,
    /// Passes through the region; 1 for the whole run.
    pub passes: u64,
    /// Passes that began on another CPU. Their numbers are in [`Outcome::everywhere`] only.
    #[serde(default)]
    pub moved: u64,
    /// How long a pass took; nothing for the whole run.
    pub pass_ps: Option<Durations>,
    /// Simulated time, summed over CPUs.
    pub time_ps: u64,
    /// The same in cycles of the node.
    pub cycles: u64,
    /// What was counted.
    pub counters: Counters,
    /// Where the time went.
    pub breakdown_ps: Breakdown,
    /// The same in cycles of the node.
    pub breakdown_cycles: Breakdown,
    /// How much more time the breakdown explains than there was, in millionths.
    pub closure_ppm: i64,
}

/// A node in the whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeOutcome {
    /// What it did.
    pub total: Part,
    /// Version of QEMU's plugin interface.
    pub plugin_api: i32,
    /// Accesses to devices, which are in no other counter.
    pub devices: u64,
    /// Accesses and flushes of which the line could not be found out; in no other counter either.
    pub unknown: u64,
    /// Its clock.
    pub clock: Option<ClockReport>,
}

/// The outcome of a simulation: member `sim` of the JSON form of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// What was simulated.
    pub config: SimConfig,
    /// What the user has set beyond the profile, in the order of precedence.
    pub set: Vec<(String, String)>,
    /// The seed of the strict order.
    pub seed: Option<u64>,
    /// By what.
    pub versions: Versions,
    /// The nodes that have left a report.
    pub nodes: Vec<NodeOutcome>,
    /// Regions of interest, by region and node: what the CPU did on which a pass began and ended.
    pub regions: Vec<Part>,
    /// What all CPUs did during all passes, on whatever CPU they began and ended, by region and node.
    #[serde(default)]
    pub everywhere: Vec<Part>,
    /// Digest of the timed events of all nodes, if all have clocks.
    pub trace_hash: Option<String>,
    /// What happened that did not follow from simulated time alone. In strict order, a run without
    /// such things happens again in the same way.
    pub disturbances: Vec<String>,
    /// What kernels forgot to flush, if caches are not coherent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sanitizer: Option<sanitizer::Report>,
}

/// Whether something about the simulation itself is as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The check.
    pub name: &'static str,
    /// The node.
    pub node: usize,
    /// Whether it holds.
    pub ok: bool,
    /// More about it.
    pub detail: String,
}

impl Outcome {
    /// An outcome without results.
    pub fn new(config: SimConfig, set: Vec<(String, String)>, versions: Versions) -> Outcome {
        let seed = match config.clock.order {
            Order::Parallel => None,
            Order::Strict { seed } => Some(seed),
        };
        Outcome {
            config,
            set,
            seed,
            versions,
            nodes: Vec::new(),
            regions: Vec::new(),
            everywhere: Vec::new(),
            trace_hash: None,
            disturbances: Vec::new(),
            sanitizer: None,
        }
    }

    /// Explains what the machines' sanitizers have found. `images` are those of the nodes: the kernel's, and the program's if there is
    /// one.
    pub fn sanitize(
        &mut self,
        machines: &[Option<MachineReport>],
        images: &[[PathBuf; 2]],
    ) -> Option<Verdict> {
        let reports: Vec<_> = machines
            .iter()
            .map(|m| m.as_ref().and_then(|m| m.sanitizer.as_ref()))
            .collect();
        if reports.iter().all(Option::is_none) {
            return None;
        }
        let verdict = |ok, detail| Verdict {
            name: "sim.sanitizer",
            node: 0,
            ok,
            detail,
        };
        match sanitizer::explain(&self.config, &reports, images) {
            Ok(report) => {
                let verdict = verdict(report.ok(), report.summary());
                self.sanitizer = Some(report);
                Some(verdict)
            }
            Err(why) => Some(verdict(false, why)),
        }
    }

    /// Takes the reports of the machines, by node, and judges them.
    pub fn take(&mut self, machines: &[Option<MachineReport>]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for (node, machine) in machines.iter().enumerate() {
            let Some(machine) = machine else { continue };
            let (counters, breakdown, time) = machine.sum();
            let total = self.part(node, None, 1, counters, breakdown, time);
            verdicts.push(self.closure(node, machine));
            verdicts.extend(machine.clock.map(|clock| self.skew(node, clock)));
            self.disturbances
                .extend(machine.clock.iter().flat_map(|c| disturbances(node, c)));
            self.nodes.push(NodeOutcome {
                total,
                plugin_api: machine.plugin_api,
                devices: machine.cpus.iter().map(|c| c.devices).sum(),
                unknown: machine.cpus.iter().map(|c| c.unknown).sum(),
                clock: machine.clock,
            });
            for (&id, region) in &machine.roi {
                let part = self.part(
                    node,
                    Some(id),
                    region.n,
                    region.counters,
                    region.breakdown_ps,
                    region.time_ps,
                );
                self.regions.push(Part {
                    pass_ps: Some(region.pass_ps),
                    moved: region.moved,
                    ..part
                });
            }
        }
        self.regions.sort_by_key(|part| (part.region, part.node));
        self.everywhere = self.all_cpus(machines);
        let hashes: Option<Vec<u64>> = machines
            .iter()
            .map(|m| Some(m.as_ref()?.clock?.trace_hash))
            .collect();
        self.trace_hash = hashes.map(|hashes| {
            let bytes = hashes.iter().flat_map(|h| h.to_le_bytes());
            format!("{:016x}", super::versions::fnv1a(bytes))
        });
        verdicts
    }

    /// What all CPUs did while regions were passed through.
    fn all_cpus(&self, machines: &[Option<MachineReport>]) -> Vec<Part> {
        let mut passes: BTreeMap<u16, u64> = BTreeMap::new();
        let mut shares: BTreeMap<(u16, usize), ShareReport> = BTreeMap::new();
        for (&id, region) in machines.iter().flatten().flat_map(|m| &m.roi) {
            *passes.entry(id).or_default() += region.n + region.moved;
            for share in &region.all {
                let sum = shares.entry((id, share.node)).or_default();
                sum.time_ps += share.time_ps;
                sum.counters += share.counters;
                sum.breakdown_ps += share.breakdown_ps;
            }
        }
        let known = |node: usize| node < self.config.nodes.len();
        let parts = shares.iter().filter(|((_, node), _)| known(*node));
        parts
            .map(|(&(id, node), share)| {
                let ShareReport {
                    counters,
                    breakdown_ps,
                    time_ps,
                    ..
                } = *share;
                self.part(node, Some(id), passes[&id], counters, breakdown_ps, time_ps)
            })
            .collect()
    }

    /// All rows: the nodes, then the regions.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.nodes.iter().map(|n| &n.total).chain(&self.regions)
    }

    fn part(
        &self,
        node: usize,
        region: Option<u16>,
        passes: u64,
        counters: Counters,
        breakdown_ps: Breakdown,
        time_ps: u64,
    ) -> Part {
        let config = &self.config.nodes[node];
        Part {
            node,
            isa: config.isa.clone(),
            region,
            name: region.map_or_else(|| "run".into(), region_name),
            passes,
            moved: 0,
            pass_ps: None,
            time_ps,
            cycles: time_ps / config.cycle_ps,
            counters,
            breakdown_ps,
            breakdown_cycles: breakdown_ps.map(|ps| ps / config.cycle_ps),
            closure_ppm: ppm(breakdown_ps.total(), time_ps),
        }
    }

    /// Whether no process of a group has used a page of another node: where the machines found the pages of its heap and
    /// stacks, whatever the kernels' tables say in the end.
    pub fn separation(&self, machines: &[Option<MachineReport>]) -> Vec<Verdict> {
        let nodes = machines.iter().enumerate();
        let judged = nodes.filter_map(|(node, machine)| {
            let mut own = 0;
            let mut others = Vec::new();
            for (pool, &n) in machine
                .as_ref()?
                .cpus
                .iter()
                .flat_map(|c| c.program_pages.iter().enumerate())
            {
                match pool == node {
                    true => own += n,
                    false if n > 0 => others.push(format!("{n} in pool {pool}")),
                    false => {}
                }
            }
            Some(Verdict {
                name: "sim.separation",
                node,
                ok: others.is_empty(),
                detail: match others.is_empty() {
                    true => format!("{own} looks at pages, all in the node's own pool"),
                    false => format!(
                        "pages of the process were found elsewhere: {}",
                        others.join(", ")
                    ),
                },
            })
        });
        judged.collect()
    }

    /// Whether the breakdown explains the time: of every CPU, of every region, and of the clock.
    fn closure(&self, node: usize, machine: &MachineReport) -> Verdict {
        let open = |what: String, explained: u64, time: u64| {
            let wide = u128::from(explained.abs_diff(time)) * CLOSES_TO;
            (wide > u128::from(time))
                .then(|| format!("{what}: the breakdown explains {explained} ps of {time} ps"))
        };
        let cpu = |c: &CpuReport| open(format!("cpu {}", c.cpu), c.breakdown_ps.total(), c.time_ps);
        let regions = machine.roi.iter().filter_map(|(&id, r)| {
            let what = format!("region {}", region_name(id));
            open(what, r.breakdown_ps.total(), r.time_ps)
        });
        // What other CPUs did is known, at either end of a pass, to what passes between two publications, and the lag.
        let clock = &self.config.clock;
        let looks = match clock.order {
            Order::Parallel => u64::from(LOOKS_PER_PUBLICATION),
            Order::Strict { .. } => 1,
        };
        let edge = (looks * clock.quantum_ns + clock.lag_ns) * 1000;
        let shares = machine.roi.iter().flat_map(|(&id, r)| {
            let most = 2 * edge * (r.n + r.moved);
            r.all.iter().filter_map(move |share| {
                let what = format!("region {} on node {}", region_name(id), share.node);
                let explained = share.breakdown_ps.total();
                let is_off = explained.abs_diff(share.time_ps) > most;
                open(what, explained, share.time_ps).filter(|_| is_off)
            })
        });
        let furthest = machine.cpus.iter().map(|c| c.time_ps).max();
        let clock = match (machine.clock, furthest) {
            (None, _) => Some("there is no clock".into()),
            (Some(clock), Some(t)) => {
                let differ = u128::from(t.abs_diff(clock.total_ps)) * CLOSES_TO;
                (differ > u128::from(t)).then(|| {
                    format!(
                        "the furthest CPU is at {t} ps, the clock at {} ps",
                        clock.total_ps
                    )
                })
            }
            (Some(_), None) => Some("there is no CPU".into()),
        };
        let why: Vec<String> = machine
            .cpus
            .iter()
            .filter_map(cpu)
            .chain(regions)
            .chain(shares)
            .chain(clock)
            .collect();
        Verdict {
            name: "sim.closure",
            node,
            ok: why.is_empty(),
            detail: why.join("; "),
        }
    }

    /// Whether the node was never too far ahead.
    fn skew(&self, node: usize, clock: ClockReport) -> Verdict {
        let c = self.config.clock;
        let most = (c.lag_ns + c.quantum_ns + SLACK_NS) * 1000;
        // Nodes with several CPUs promise no more than to try: a CPU that has waited for long for a
        // sibling goes on, and that is counted.
        let excused = self.config.nodes[node].cpus > 1 && clock.given_up > 0;
        Verdict {
            name: "sim.skew",
            node,
            ok: clock.max_skew_ps <= most || excused,
            detail: match clock.max_skew_ps <= most {
                true => String::new(),
                false => format!(
                    "it was ahead by {} ps, allowed are {most} ps (lag, quantum and {SLACK_NS} ns)",
                    clock.max_skew_ps
                ),
            },
        }
    }
}

/// What has disturbed a node's clock.
fn disturbances(node: usize, clock: &ClockReport) -> Vec<String> {
    let counts = [
        (
            clock.handshake_timeouts,
            "interrupts were not confirmed in time",
        ),
        (
            clock.turns_taken,
            "turns were taken from a CPU that did not go on",
        ),
        (clock.given_up, "waits for other nodes were given up"),
        (
            clock.outside,
            "wake-ups came from outside of simulated time",
        ),
        (clock.followed_ps, "ps were jumped over after a stop"),
    ];
    let said = counts.iter().filter(|(n, _)| *n > 0);
    said.map(|(n, what)| format!("node {node}: {n} {what}"))
        .collect()
}

/// Reads the report of a machine. Nothing, if it is of another kind.
///
/// # Errors
///
/// If it is of this kind and cannot be understood.
pub fn machine_report(value: &serde_json::Value) -> Result<Option<MachineReport>, String> {
    if value["schema"] != MACHINE_SCHEMA {
        return Ok(None);
    }
    MachineReport::deserialize(value)
        .map(Some)
        .map_err(|e| format!("the plugin's report cannot be read: {e}"))
}

/// What a region is called: the operation of the kernel's benchmark, or its number.
fn region_name(id: u16) -> String {
    match BenchWindow::from_id(WindowId(id)) {
        Some(w) if id < WindowId::FREE => match w.part {
            0 => format!("{}.{}", w.op.name(), w.memory.name()),
            part => format!("{}.{}.{part}", w.op.name(), w.memory.name()),
        },
        _ => format!("{id:#x}"),
    }
}

/// How much larger `a` is than `b`, in millionths of `b`.
fn ppm(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    match (difference, b) {
        (0, _) => 0,
        (_, 0) => i64::MAX,
        (d, b) => i64::try_from(d * 1_000_000 / i128::from(b)).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
pub(crate) mod tests;
