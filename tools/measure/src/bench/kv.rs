//! Stores of keys and values: one that all nodes read in place, one that is partitioned, one of replicas that agree by two-phase
//! commit, under the requests of YCSB and under a sweep of the part of puts, in coherent and in incoherent memory.
//!
//! ```text
//!  kv --store S --mix M ─▶ latencies of gets and puts (CH-F3)
//!  kv --store S --updates N ─▶ requests in a second, by the part of puts (CH-F4)
//!  kv --store lib --rounds N --items I ─▶ requests in a second, by rounds of quiescence and working set (CH-F2)
//! ```
//!
//! Four nodes of one CPU, two of each ISA: two serve, two ask. Each point is a run in strict order with simulated time, and its
//! history is checked.

mod judge;
mod picture;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use dyad_abi::Isa;
use dyad_abi::marker::WindowId;
use dyad_launcher::error::Error;
use dyad_launcher::launch::{RunReport, Sink};
use dyad_launcher::sim::Outcome;
use dyad_launcher::sim::outcome::Part;
use dyad_sim_model::report::Counters;

use super::faults;
pub use judge::Verdict;

/// The stores, as the program names them.
pub const STORES: [&str; 3] = ["lib", "partitioned", "2pc"];
/// Mixes of YCSB.
pub const MIXES: [&str; 5] = ["a", "b", "c", "d", "f"];
/// Parts of puts, in percent.
pub const UPDATES: [u64; 7] = [0, 1, 5, 10, 25, 50, 100];
/// Rounds of quiescence in a second, of each node.
pub const RATES: [u64; 4] = [0, 30, 300, 3000];
/// The part of puts when rates are measured, in percent: without puts nothing waits for rounds.
const RATE_UPDATES: u64 = 5;

/// Whether caches keep the memory of the store coherent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caches {
    /// They do.
    Coherent,
    /// The store writes lines back, and drops them.
    Incoherent,
}

impl Caches {
    /// Both.
    pub const ALL: [Caches; 2] = [Caches::Coherent, Caches::Incoherent];

    /// The name, as on the program's command line.
    pub const fn name(self) -> &'static str {
        match self {
            Caches::Coherent => "coherent",
            Caches::Incoherent => "incoherent",
        }
    }
}

/// What is measured in runs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Mixes of YCSB.
    Mixes,
    /// The sweep of the part of puts.
    Updates,
    /// The sweep of rounds of quiescence.
    Rates,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 3] = [Group::Mixes, Group::Updates, Group::Rates];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Mixes => "mixes",
            Group::Updates => "updates",
            Group::Rates => "rates",
        }
    }
}

/// One load on one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// A mix of YCSB.
    Mix(&'static str),
    /// A part of puts, in percent.
    Updates(u64),
}

impl Load {
    /// The name: that of the mix, or the part of puts.
    pub fn name(self) -> String {
        match self {
            Load::Mix(mix) => mix.into(),
            Load::Updates(n) => format!("{n} %"),
        }
    }

    fn args(self) -> String {
        match self {
            Load::Mix(mix) => format!("--mix {mix}"),
            Load::Updates(n) => format!("--updates {n}"),
        }
    }
}

/// A run of a store under a load.
pub type Point = (Caches, Load, &'static str);
/// A run of the store that is read in place: items, and rounds in a second.
pub type RatePoint = (Caches, u64, u64);

/// What is measured.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Stores under loads.
    pub points: Vec<Point>,
    /// The store that is read in place, by rounds of quiescence.
    pub rates: Vec<RatePoint>,
    /// Items that there are at the start, but for rates.
    pub items: u64,
    /// Requests of each client.
    pub requests: u64,
    /// Requests of each client when rates are measured.
    pub rate_requests: u64,
}

impl Plan {
    /// What is measured of these groups, in memory of these kinds.
    pub fn new(groups: &[Group], caches: &[Caches], items: u64, requests: u64) -> Plan {
        let mixes = MIXES.map(Load::Mix);
        let updates = UPDATES.map(Load::Updates);
        let has = |group| groups.contains(&group);
        let loads = mixes.iter().filter(|_| has(Group::Mixes));
        let loads = loads.chain(updates.iter().filter(|_| has(Group::Updates)));
        let loads: Vec<Load> = loads.copied().collect();
        let each = |of: &dyn Fn(Caches) -> Vec<Point>| caches.iter().flat_map(|&c| of(c)).collect();
        let points = each(&|caches| {
            let of = |load: &Load| STORES.map(|store| (caches, *load, store));
            loads.iter().flat_map(of).collect()
        });
        let rates = caches.iter().filter(|_| has(Group::Rates));
        let rates = rates.flat_map(|&c| {
            let sets = [1_000, 50_000];
            sets.into_iter()
                .flat_map(move |n| RATES.map(|rate| (c, n, rate)))
        });
        Plan {
            points,
            rates: rates.collect(),
            items,
            requests,
            // Three rounds and more at 30 in a second.
            rate_requests: 5 * requests,
        }
    }

    /// Few points and requests, to see that everything works.
    pub fn quick() -> Plan {
        let (coherent, incoherent) = (Caches::Coherent, Caches::Incoherent);
        let sweep = [0, 100].map(|n| STORES.map(|store| (coherent, Load::Updates(n), store)));
        let mut points = sweep.concat();
        points.push((incoherent, Load::Mix("a"), STORES[0]));
        Plan {
            points,
            // Of slower rates so short a run would not see a second round.
            rates: [0, 3000].map(|rate| (coherent, 100, rate)).into(),
            items: 100,
            requests: 50,
            rate_requests: 300,
        }
    }
}

/// Nanoseconds of one kind of request, or of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// The mean.
    pub mean: u64,
    /// The median, and the time that all but a hundredth, or a thousandth, took no more than.
    pub parts: [u64; 3],
}

/// What was counted, of each request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Messages: calls, answers, and what servers send to each other.
    pub messages: f64,
    /// On CPUs of clients.
    pub client: Work,
    /// On CPUs of servers, which poll while they have nothing to do.
    pub server: Work,
}

/// What CPUs did, of each request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Instructions.
    pub instructions: f64,
    /// Misses of the last level of caches.
    pub misses: f64,
    /// Flushes and write-backs of a line by instructions.
    pub flushes: f64,
}

impl Work {
    fn add(&mut self, counters: &Counters, requests: f64) {
        self.instructions += counters.instructions as f64 / requests;
        self.misses += counters.l3_misses as f64 / requests;
        self.flushes += counters.flushes as f64 / requests;
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Of gets, and of puts.
    pub kinds: [Option<Latency>; 2],
    /// Requests of all clients in a second of simulated time.
    pub per_second: u64,
    /// What explains that.
    pub counts: Counts,
    /// Rounds of quiescence, of all nodes together.
    pub rounds: u64,
    /// From retiring a block to its reuse; `None` if none could be reused.
    pub reclaim: Option<Latency>,
    /// Bytes of buckets and items.
    pub working_set: u64,
    /// The smallest second level of caches, in bytes.
    pub l2: u64,
}

/// All figures.
#[derive(Clone, Debug, Default)]
pub struct Kv {
    /// Stores under loads.
    pub rows: BTreeMap<Point, Row>,
    /// By rounds of quiescence.
    pub rates: BTreeMap<RatePoint, Row>,
    /// Why there are no more, if there should be.
    pub failure: Option<String>,
    plan: Plan,
}

/// Measures.
///
/// # Errors
///
/// If a run could not be made, or was interrupted. Runs that fail otherwise are in the result.
pub fn kv(plan: &Plan, sink: &mut dyn Sink) -> Result<Kv, Error> {
    let mut all = Kv {
        plan: plan.clone(),
        ..Kv::default()
    };
    for &(caches, load, store) in &plan.points {
        let Plan {
            items, requests, ..
        } = plan;
        let args = format!(
            "--store {store} {} --items {items} --requests {requests}",
            load.args()
        );
        match one(caches, &args, sink)? {
            Ok(row) => _ = all.rows.insert((caches, load, store), row),
            Err(why) => {
                let (caches, load) = (caches.name(), load.name());
                all.failure = Some(format!("{caches}, {store}, {load}: {why}"));
                return Ok(all);
            }
        }
    }
    for &(caches, items, rate) in &plan.rates {
        let (load, requests) = (Load::Updates(RATE_UPDATES), plan.rate_requests);
        let args = format!(
            "--store lib {} --items {items} --requests {requests} --rounds {rate}",
            load.args()
        );
        match one(caches, &args, sink)? {
            Ok(row) => _ = all.rates.insert((caches, items, rate), row),
            Err(why) => {
                let caches = caches.name();
                all.failure = Some(format!("{caches}, {items} items, {rate} rounds/s: {why}"));
                return Ok(all);
            }
        }
    }
    Ok(all)
}

/// One run. `Err` in the result: why it says nothing.
fn one(caches: Caches, args: &str, sink: &mut dyn Sink) -> Result<Result<Row, String>, Error> {
    let nodes = [Isa::X86_64, Isa::Aarch64, Isa::X86_64, Isa::Aarch64];
    let args = format!("{args} --order time --caches {}", caches.name());
    let mut config = faults::strict(&nodes, "kv", args, 3600);
    config.coherent = caches == Caches::Coherent;
    config.sanitize_users = !config.coherent;
    Ok(faults::run(&config, sink)?.and_then(|report| row(&report)))
}

/// What a run says.
fn row(report: &RunReport) -> Result<Row, String> {
    let counter = |name: &str| report.counters.get(&format!("kv.{name}")).copied();
    let must = |name: &str| counter(name).ok_or_else(|| format!("the program has not said {name}"));
    let latency = |count: &str, kind: &str| {
        Some(Latency {
            count: counter(count)?,
            mean: counter(&format!("{kind}-mean-ns"))?,
            parts: [
                counter(&format!("{kind}-p50-ns"))?,
                counter(&format!("{kind}-p99-ns"))?,
                counter(&format!("{kind}-p999-ns"))?,
            ],
        })
    };
    let outcome = (report.simulation.as_ref()).ok_or("nothing was simulated")?;
    let kinds = [latency("gets", "get"), latency("puts", "put")];
    let requests: u64 = kinds.iter().flatten().map(|l| l.count).sum();
    let l2 = outcome.config.nodes.iter().map(|node| node.l2.size).min();
    Ok(Row {
        kinds,
        per_second: must("per-second")?,
        counts: counts(outcome, requests, must("messages")?)?,
        rounds: must("rounds")?,
        reclaim: latency("reclaimed", "reclaim"),
        working_set: must("working-set")?,
        l2: l2.unwrap_or(0),
    })
}

/// What CPUs did while clients asked, which is a window of the simulator. A client's CPU is counted from its first request to its last.
/// That of a server is counted in the window of each client: the mean of these is taken, since clients ask at the same time.
fn counts(outcome: &Outcome, requests: u64, messages: u64) -> Result<Counts, String> {
    let requests = requests.max(1) as f64;
    let mut counts = Counts {
        messages: messages as f64 / requests,
        ..Counts::default()
    };
    let of_window = |part: &&Part| part.region == Some(WindowId::FREE);
    let clients = outcome.regions.iter().filter(of_window);
    let clients: Vec<_> = clients.filter(|part| part.passes != 0).collect();
    if clients.is_empty() {
        return Err("no client's window was counted".into());
    }
    for part in &clients {
        counts.client.add(&part.counters, requests);
    }
    let is_server = |node| clients.iter().all(|part| part.node != node);
    let servers = outcome.everywhere.iter().filter(of_window);
    for part in servers.filter(|part| is_server(part.node)) {
        let windows = part.passes.max(1) as f64;
        counts.server.add(&part.counters, requests * windows);
    }
    Ok(counts)
}
