//! A store of keys and values under the requests of a benchmark: `cargo xtask run --app kv --nodes x86_64,aarch64,x86_64,aarch64`.
//! The first half of the nodes serve, the others ask, one thread each.
//!
//! | `--store` | |
//! |---|---|
//! | `lib` | clients read in place, in memory that all nodes share; a put goes to the server that has the key's shard |
//! | `partitioned` | each server has a part of the keys; gets and puts go there |
//! | `2pc` | each server has all keys; gets are local to a client's server, puts are agreed on by all servers |
//!
//! | option | values | default |
//! |---|---|---|
//! | `--mix` | `a`, `b`, `c`, `d`, `f`: those of YCSB | `a` |
//! | `--updates` | percentage of puts, in the place of a mix | |
//! | `--choice` | `zipfian`, `uniform` | `zipfian` |
//! | `--items` | keys that there are at the start, 2 to 1,000,000 | 10000 |
//! | `--requests` | of each client | 5000 |
//! | `--value` | bytes of a value, 8 to 4096 | 32 |
//! | `--rounds` | of quiescence, each second and node | 300 |
//! | `--seed` | of the requests | 0 |
//! | `--order` | by what it is known which operation came first: `count`, a word that all count up, which costs each operation two accesses to it; `time`, the fused clock, which is exact with a simulator only | `count` |
//! | `--caches` | of the store that is read in place: `coherent`; `incoherent`: it writes back what others read, and drops what it has read; `no-write-back`, `no-drop`: it forgets the one or the other, for the sanitizer to find | `coherent` |
//!
//! A node may die, but for the first one (`--on-death survive`). What a server had alone is lost with it, and a put under way may
//! be made or not. In the store that is read in place the next server takes the shards over; of replicas the others go on, with what
//! the log of the dead one says.
//!
//! It checks that what clients have read and written could have happened one after the other (`kv.linearizable`), and reports
//! the time that gets and puts took: mean and percentiles in nanoseconds of fused time (`kv.get-mean-ns`, `kv.get-p50-ns`,
//! ...), and how many requests all clients made in a second (`kv.per-second`); how many had no answer (`kv.unanswered`), and how many
//! threads were lost with their nodes (`kv.lost`). No line of a store may be lost (`kv.lines`).
//!
//! `kv.messages` counts calls, their answers and what servers send to each other; `kv.rounds` the rounds of all threads; `kv.reclaimed` the
//! blocks that could be reused after they had been retired, and `kv.reclaim-mean-ns`, `-p50-`, `-p99-`, `-p999-` the time between the two.
//! `kv.working-set` is how many bytes of buckets and items readers use. All that a client asks is a pass of window [`ASKING`] of
//! the simulator.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod client;
mod log;
mod memory;
mod replicas;
mod server;

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::msg::{Config, Endpoint, Error as MsgError, Mode, Network};
use dyad::prelude::task::*;
use dyad::thread::JoinHandle;
use dyad::{heap, report, thread};
use dyad_abi::marker::WindowId;
use dyad_coherence::LINE_BYTES;
use dyad_store::{Key, Layout, SHARDS, Shard};
use dyad_ycsb::{Choice, Mix};

use client::Asked;
use log::Log;
use memory::{Memory, Mistake};
use server::Served;

/// The window of the simulator in which a client asks.
pub const ASKING: u16 = WindowId::FREE;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lib,
    Partitioned,
    TwoPhase,
}

/// Values of `--caches`.
const CACHES: [&str; 4] = ["coherent", "incoherent", "no-write-back", "no-drop"];

/// Who keeps caches coherent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caches {
    Coherent,
    Incoherent(Option<Mistake>),
}

/// What a run is made of.
#[derive(Clone, Copy)]
struct Plan {
    kind: Kind,
    mix: Mix,
    choice: Choice,
    items: u64,
    requests: u64,
    value: usize,
    rounds: u64,
    seed: u64,
    /// Whether caches are coherent of the store that is read in place; if not, what it forgets.
    caches: Caches,
    /// Whether operations are in the order of the clock.
    by_time: bool,
    servers: usize,
    clients: usize,
}

/// What all threads share. The stations of servers have the lowest numbers.
#[derive(Clone)]
struct Shared {
    plan: Plan,
    nodes: Arc<[NodeId]>,
    network: Network,
    /// Of the store that is read in place; and of each server alone.
    common: Memory,
    /// The word that orders operations.
    count: Arc<AtomicU64>,
    /// Servers that have put all that they have at the start, by bit.
    ready: Arc<AtomicU64>,
    /// Clients that have asked all that they ask, by bit.
    finished: Arc<AtomicU64>,
    /// Stations whose thread could not begin, because its node had died, by bit.
    absent: Arc<AtomicU64>,
    /// What each client has asked. It outlives the client. It is not freed, since the lock of the heap that it is in may have been lost
    /// with its node.
    logs: &'static [Log],
}

impl Shared {
    fn node(&self, station: usize) -> NodeId {
        self.nodes[station % self.nodes.len()]
    }

    /// The server that has a shard at the start.
    fn first_server_of(&self, shard: Shard) -> usize {
        let nodes = (0..self.plan.servers).map(|n| self.node(n));
        let at = dyad_store::owner(shard, nodes);
        (0..self.plan.servers)
            .find(|&n| Some(self.node(n)) == at)
            .unwrap_or(0)
    }

    /// The server that has the shards now that a server had at the start: the next one that is not lost, if one is left.
    fn heir(&self, end: &Endpoint, server: usize) -> usize {
        let servers = self.plan.servers;
        let mut from = (0..servers).map(|n| (server + n) % servers);
        from.find(|&n| !self.is_lost(end, n)).unwrap_or(server)
    }

    /// The server that has a key.
    fn server_of(&self, end: &Endpoint, key: Key) -> usize {
        let first = self.first_server_of(key.shard());
        match self.plan.kind {
            Kind::Partitioned => first,
            _ => self.heir(end, first),
        }
    }

    /// The nodes of threads that are not lost, each of which drives the rounds of its node.
    fn nodes_left<'s>(&'s self, end: &'s Endpoint) -> impl Iterator<Item = NodeId> + 's {
        let stations = 0..self.plan.servers + self.plan.clients;
        let left = stations.filter(|&n| !self.is_lost(end, n));
        left.map(|n| self.node(n))
    }

    /// Whether all threads of these stations have set their bits, or are lost.
    fn all(&self, end: &Endpoint, bits: &AtomicU64, stations: Range<usize>) -> bool {
        let set = bits.load(Ordering::Acquire);
        let mut all = stations.enumerate();
        all.all(|(n, station)| set >> n & 1 != 0 || self.is_lost(end, station))
    }

    /// A moment in the order of operations, now.
    fn moment(&self) -> u64 {
        match self.plan.by_time {
            true => Instant::now().as_nanos(),
            false => 1 + self.count.fetch_add(1, Ordering::SeqCst),
        }
    }

    /// How stations wait for messages. Threads poll if each has a node for itself; on one node they sleep, and let each other run.
    fn mode(&self) -> Mode {
        match self.nodes.len() {
            1 => Mode::Doorbell,
            _ => Mode::Polling,
        }
    }

    /// Whether a station's thread is lost with its node, or its node was lost before.
    fn is_lost(&self, end: &Endpoint, station: usize) -> bool {
        self.absent.load(Ordering::Relaxed) >> station & 1 != 0
            || matches!(end.check_peer(station), Err(MsgError::NodeDead { .. }))
    }

    /// Waits until all servers are ready.
    fn wait(&self, end: &Endpoint) {
        while !self.all(end, &self.ready, 0..self.plan.servers) {
            thread::yield_now();
        }
    }
}

/// Room for twice the items that there are at the start, which puts and inserts take until others have gone on.
fn layout(plan: &Plan) -> Result<Layout> {
    let per_item = 1 + (3 + plan.value.div_ceil(8)) as u64 / 7;
    let lines = (2 * plan.items + 4 * plan.requests / 10 + 4096) * per_item;
    let buckets = (plan.items / 256).max(4);
    Layout::new(dyad_shm::PhysAddr(0), buckets, lines).map_err(|e| Error::msg(format!("{e}")))
}

fn plan(args: &Args) -> Result<Plan> {
    args.expect_options(&[
        "--store",
        "--mix",
        "--updates",
        "--choice",
        "--items",
        "--requests",
        "--value",
        "--rounds",
        "--seed",
        "--order",
        "--caches",
    ])?;
    let kind = match args.one_of("--store", &["lib", "partitioned", "2pc"], "lib")? {
        "lib" => Kind::Lib,
        "partitioned" => Kind::Partitioned,
        _ => Kind::TwoPhase,
    };
    let mix = match args.one_of("--mix", &["a", "b", "c", "d", "f"], "a")? {
        "a" => Mix::A,
        "b" => Mix::B,
        "c" => Mix::C,
        "d" => Mix::D,
        _ => Mix::F,
    };
    let mix = match args.value("--updates") {
        Some(_) => Mix::Updates(args.number("--updates", 0, 0..=100)? as u8),
        None => mix,
    };
    let choice = match args.one_of("--choice", &["zipfian", "uniform"], "zipfian")? {
        "zipfian" => Choice::Zipfian,
        _ => Choice::Uniform,
    };
    let nodes = dyad::system()?.nodes().filter(|n| n.live).count();
    let servers = (nodes / 2).max(1);
    Ok(Plan {
        kind,
        mix,
        choice,
        items: args.number("--items", 10_000, 2..=1_000_000)?,
        requests: args.number("--requests", 5_000, 1..=10_000_000)?,
        value: args.number("--value", 32, 8..=4096)? as usize,
        rounds: args.number("--rounds", 300, 0..=100_000)?,
        seed: args.number("--seed", 0, 0..=u64::MAX)?,
        caches: match args.one_of("--caches", &CACHES, CACHES[0])? {
            "coherent" => Caches::Coherent,
            "incoherent" => Caches::Incoherent(None),
            "no-write-back" => Caches::Incoherent(Some(Mistake::NoWriteBack)),
            _ => Caches::Incoherent(Some(Mistake::NoDrop)),
        },
        by_time: args.one_of("--order", &["count", "time"], "count")? == "time",
        servers,
        clients: (nodes - nodes / 2).max(1),
    })
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let plan = plan(&args)?;
    let nodes: Vec<NodeId> = dyad::system()?
        .nodes()
        .filter(|n| n.live)
        .map(|n| n.id)
        .collect();
    let bytes = layout(&plan)?.bytes();
    let node = |station: usize| nodes[station % nodes.len()];
    let logs = (0..plan.clients).map(|n| on(node(plan.servers + n), || Log::new(&plan)));
    let logs: Vec<Log> = logs.collect();
    let shared = Shared {
        plan,
        network: Network::new(Config::new(plan.servers + plan.clients))?,
        common: match plan.caches {
            Caches::Coherent => Memory::new(bytes),
            Caches::Incoherent(mistake) => Memory::incoherent(bytes, mistake)?,
        },
        count: Arc::new(AtomicU64::new(0)),
        ready: Arc::new(AtomicU64::new(0)),
        finished: Arc::new(AtomicU64::new(0)),
        absent: Arc::new(AtomicU64::new(0)),
        logs: logs.leak(),
        nodes: nodes.into(),
    };
    let mut servers = Vec::new();
    for n in 0..plan.servers {
        servers.push(begin(&shared, n, move |all| server::serve(all, n))?);
    }
    let mut clients = Vec::new();
    for n in 0..plan.clients {
        clients.push(begin(&shared, plan.servers + n, move |all| {
            client::ask(all, n)
        })?);
    }
    let asked = all_of(clients)?;
    let served = all_of(servers)?;
    conclude(&shared, asked, served)
}

/// A thread that has begun.
type Begun<T> = JoinHandle<Result<Option<T>>>;

/// Calls `f`, which allocates on a node while that lives.
fn on<R>(node: NodeId, f: impl FnOnce() -> R) -> R {
    match heap::on(node) {
        Ok(there) => there.run(f),
        Err(_) => f(),
    }
}

/// Begins the thread of a station, whose memory is in the heap of its node: who dies while it allocates leaves the heaps of others
/// alone. `None` if the node is dead.
fn begin<T: Send + 'static>(
    shared: &Shared,
    station: usize,
    work: impl FnOnce(&Shared) -> Result<T> + Send + 'static,
) -> Result<Option<Begun<T>>> {
    let all = shared.clone();
    let node = shared.node(station);
    let is_absent =
        move |shared: &Shared| _ = shared.absent.fetch_or(1 << station, Ordering::Relaxed);
    let work = move || {
        if dyad::node() == node {
            return on(node, || work(&all)).map(Some);
        }
        // Its node has died before it began. Elsewhere it would keep another one from its work.
        is_absent(&all);
        Ok(None)
    };
    let there = match thread::spawn_on(node, work) {
        Ok(there) => there,
        Err(_) if dyad::system()?.node(node).is_none_or(|n| !n.live) => {
            is_absent(shared);
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    shared.network.reserve(station, there.thread())?;
    Ok(Some(there))
}

/// What threads have come to; `None` of one that was lost.
fn all_of<T>(threads: Vec<Option<Begun<T>>>) -> Result<Vec<Option<T>>> {
    let ends = threads.into_iter().map(|t| {
        let Some(t) = t else { return Ok(None) };
        let lost = t.thread();
        match t.join() {
            Ok(end) => end,
            Err(_) if lost.is_lost() => Ok(None),
            Err(e) => Err(e),
        }
    });
    ends.collect()
}

/// Reports how many times there are, their mean and percentiles, if there are any.
fn times<T: Copy + Ord + Into<u64>>(name: &str, count: &str, mut times: Vec<T>) {
    if times.is_empty() {
        return;
    }
    times.sort_unstable();
    let sum = times.iter().map(|&t| t.into()).sum::<u64>();
    report::counter(&format!("kv.{count}"), times.len() as u64);
    report::counter(&format!("kv.{name}-mean-ns"), sum / times.len() as u64);
    for (part, of) in [("p50", 500), ("p99", 990), ("p999", 999)] {
        let at = (times.len() * of / 1000).min(times.len() - 1);
        report::counter(&format!("kv.{name}-{part}-ns"), times[at].into());
    }
}

/// Reports what clients have found.
fn conclude(shared: &Shared, asked: Vec<Option<Asked>>, served: Vec<Option<Served>>) -> Result<()> {
    let plan = &shared.plan;
    let lost = |all: &mut dyn Iterator<Item = bool>| all.filter(|is| *is).count() as u64;
    let lost_clients = lost(&mut asked.iter().map(Option::is_none));
    let lost_servers = lost(&mut served.iter().map(Option::is_none));
    let (mut gets, mut puts) = (Vec::new(), Vec::new());
    let (mut again, mut unanswered, mut slowest, mut rounds) = (0, 0, 1, 0);
    for part in asked.into_iter().flatten() {
        slowest = slowest.max(part.elapsed.as_nanos());
        gets.extend(part.gets);
        puts.extend(part.puts);
        again += part.again;
        unanswered += part.unanswered;
        rounds += part.rounds;
    }
    let history: Vec<_> = shared.logs.iter().flat_map(Log::operations).collect();
    let requests = gets.len() + puts.len();
    times("get", "gets", gets);
    times("put", "puts", puts);
    let per_second = requests as u128 * 1_000_000_000 / slowest;
    let served = || served.iter().flatten();
    report::counter("kv.per-second", per_second as u64);
    let calls: u64 = served().map(|s| s.calls).sum();
    report::counter("kv.served", calls);
    let sent: u64 = served().map(|s| s.sent).sum();
    report::counter("kv.messages", 2 * calls + sent);
    rounds += served().map(|s| s.rounds).sum::<u64>();
    report::counter("kv.rounds", rounds);
    let waited = served().flat_map(|s| s.reclaimed.iter().copied());
    times("reclaim", "reclaimed", waited.collect());
    let in_use = served().map(|s| s.in_use).sum::<u64>() + layout(plan)?.buckets() * SHARDS;
    report::counter("kv.working-set", in_use * LINE_BYTES);
    report::counter("kv.tried-again", again);
    report::counter("kv.unanswered", unanswered);
    report::counter("kv.lost", lost_clients + lost_servers);
    let checked = dyad_linear::check(&history);
    let what = match &checked {
        Ok(()) => format!("{} operations", history.len()),
        Err(e) => format!("{e}"),
    };
    report::check("kv.linearizable", checked.is_ok(), what);
    let asked = requests as u64 + unanswered;
    report::check(
        "kv.requests",
        asked >= plan.requests * (plan.clients as u64 - lost_clients)
            && (unanswered == 0 || lost_servers != 0),
        format_args!("{asked}, {unanswered} of them without an answer"),
    );
    let [found, all] = [|s: &Served| s.lines_found, |s: &Served| s.lines];
    let (found, all): (u64, u64) = (served().map(found).sum(), served().map(all).sum());
    report::check(
        "kv.lines",
        found == all,
        format_args!("{found} of {all} lines are in use, free, or wait for readers"),
    );
    Ok(())
}
