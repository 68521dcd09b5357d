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
//!
//! It checks that what clients have read and written could have happened one after the other (`kv.linearizable`), and reports
//! the time that gets and puts took: mean and percentiles in nanoseconds of fused time (`kv.get-mean-ns`, `kv.get-p50-ns`,
//! ...), and how many requests all clients made in a second (`kv.per-second`).
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod client;
mod memory;
mod replicas;
mod server;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::msg::{Config, Network};
use dyad::prelude::task::*;
use dyad::{report, thread};
use dyad_store::Layout;
use dyad_ycsb::{Choice, Mix};

use client::Asked;
use memory::Memory;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lib,
    Partitioned,
    TwoPhase,
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
    /// Servers that have put all that they have at the start.
    ready: Arc<AtomicU64>,
    /// Clients that have asked all that they ask.
    finished: Arc<AtomicU64>,
}

impl Shared {
    fn node(&self, station: usize) -> NodeId {
        self.nodes[station % self.nodes.len()]
    }

    fn server_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.plan.servers).map(|n| self.node(n))
    }

    /// The server that has a key.
    fn server_of(&self, key: dyad_store::Key) -> usize {
        let at = dyad_store::owner(key.shard(), self.server_nodes());
        (0..self.plan.servers)
            .find(|&n| Some(self.node(n)) == at)
            .unwrap_or(0)
    }

    /// A moment in the order of operations, now.
    fn moment(&self) -> u64 {
        match self.plan.by_time {
            true => Instant::now().as_nanos(),
            false => 1 + self.count.fetch_add(1, Ordering::SeqCst),
        }
    }

    /// Waits until all servers are ready.
    fn wait(&self) {
        while self.ready.load(Ordering::Acquire) < self.plan.servers as u64 {
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
    let shared = Shared {
        plan,
        nodes: nodes.into(),
        network: Network::new(Config::new(plan.servers + plan.clients))?,
        common: Memory::new(bytes),
        count: Arc::new(AtomicU64::new(0)),
        ready: Arc::new(AtomicU64::new(0)),
        finished: Arc::new(AtomicU64::new(0)),
    };
    let mut servers = Vec::new();
    for n in 0..plan.servers {
        let all = shared.clone();
        let server = thread::spawn_on(shared.node(n), move || server::serve(&all, n))?;
        shared.network.reserve(n, server.thread())?;
        servers.push(server);
    }
    let mut clients = Vec::new();
    for n in 0..plan.clients {
        let (all, station) = (shared.clone(), plan.servers + n);
        let client = thread::spawn_on(shared.node(station), move || client::ask(&all, n))?;
        shared.network.reserve(station, client.thread())?;
        clients.push(client);
    }
    let asked: Result<Vec<Asked>> = clients.into_iter().map(|c| c.join()?).collect();
    let asked = asked?;
    let mut served = 0;
    for server in servers {
        served += server.join()??;
    }
    conclude(&plan, asked, served)
}

/// Reports what clients have found.
fn conclude(plan: &Plan, asked: Vec<Asked>, served: u64) -> Result<()> {
    let slowest = asked
        .iter()
        .map(|a| a.elapsed.as_nanos() as u64)
        .max()
        .unwrap_or(1)
        .max(1);
    let (mut gets, mut puts, mut history) = (Vec::new(), Vec::new(), Vec::new());
    let mut again = 0;
    for part in asked {
        gets.extend(part.gets);
        puts.extend(part.puts);
        history.extend(part.history);
        again += part.again;
    }
    let requests = gets.len() + puts.len();
    for (name, mut times) in [("get", gets), ("put", puts)] {
        if times.is_empty() {
            continue;
        }
        times.sort_unstable();
        let mean = times.iter().map(|&t| u64::from(t)).sum::<u64>() / times.len() as u64;
        report::counter(&format!("kv.{name}s"), times.len() as u64);
        report::counter(&format!("kv.{name}-mean-ns"), mean);
        for (part, of) in [("p50", 500), ("p99", 990), ("p999", 999)] {
            let at = (times.len() * of / 1000).min(times.len() - 1);
            report::counter(&format!("kv.{name}-{part}-ns"), times[at].into());
        }
    }
    let per_second = requests as u128 * 1_000_000_000 / u128::from(slowest);
    report::counter("kv.per-second", per_second as u64);
    report::counter("kv.served", served);
    report::counter("kv.tried-again", again);
    let checked = dyad_linear::check(&history);
    let what = match &checked {
        Ok(()) => format!("{} operations", history.len()),
        Err(e) => format!("{e}"),
    };
    report::check("kv.linearizable", checked.is_ok(), what);
    report::check(
        "kv.requests",
        requests as u64 >= plan.requests * plan.clients as u64,
        format_args!("{requests} answered"),
    );
    Ok(())
}
