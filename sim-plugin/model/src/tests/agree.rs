//! The fast model and the naive one agree about every access: its latency and every counter.

use crate::system::NO_ACCESSES;
use proptest::prelude::*;
use std::cell::Cell;

use crate::account::Counters;
use crate::coherent::{FlushKind, Kind, Storage};
use crate::config::*;
use crate::fixture;
use crate::memory::{line_of, view_of};
use crate::naive::Both;
use crate::trace::{Event, Record};

fn shape(sets: std::ops::Range<u32>, ways: u32) -> impl Strategy<Value = CacheShape> {
    (sets, 1..=ways).prop_map(|(sets, ways)| CacheShape {
        size: (1 << sets) * u64::from(ways) * LINE_BYTES,
        ways,
    })
}

fn node(l3: CacheShape) -> impl Strategy<Value = NodeConfig> {
    (
        (shape(0..3, 4), shape(0..3, 4), shape(0..4, 6)),
        (
            1u64..9,
            10u64..20,
            20u64..60,
            100u64..200,
            200u64..400,
            200u64..400,
        ),
        (1u64..99, 1u64..99, 1u64..99, 1u64..99),
        proptest::option::of(1u64..500),
        (0u64..50, 0u64..99, 0u64..70, any::<bool>(), 0u64..30),
        any::<bool>(),
    )
        .prop_map(
            move |((l1i, l1d, l2), latency, snoop, forward, ways, l3_query)| NodeConfig {
                l1i,
                l1d,
                l2,
                l3,
                l3_query,
                latency: Latencies {
                    l1: latency.0,
                    l2: latency.1,
                    l3: latency.2,
                    local: latency.3,
                    remote: latency.4,
                    pool: latency.5,
                },
                snoop: SnoopCosts {
                    data: snoop.0,
                    inv: snoop.1,
                    back: snoop.2,
                    writeback: snoop.3,
                    forward,
                    per_sharer: ways.0,
                    hop: ways.1,
                    home: ways.2,
                    through_home: ways.3,
                    sibling: ways.4,
                },
                ..fixture::node(1)
            },
        )
}

/// Channels without a limit, with one that is met now and then, and with one that makes queues. No queue is as long as
/// the ring of a calendar.
fn bandwidths() -> impl Strategy<Value = Bandwidths> {
    let rate = || prop_oneof![Just(0u64), 1_000..4_000u64, 4_000..50_000u64];
    let limits = (rate(), rate(), rate()).prop_map(|(memory, device, link)| Bandwidths {
        memory,
        device,
        link,
    });
    prop_oneof![1 => Just(Bandwidths::default()), 3 => limits]
}

fn config(most_cpus: usize) -> impl Strategy<Value = SimConfig> {
    let model = prop_oneof![
        Just(MemoryModel::Separated),
        Just(MemoryModel::Shared),
        Just(MemoryModel::Pool),
        Just(MemoryModel::FullyShared),
    ];
    let coherence = prop_oneof![
        3 => Just(Coherence::Coherent),
        1 => Just(Coherence::Incoherent),
    ];
    // Last levels below, at, and well above what is above them.
    let l3 = prop_oneof![shape(0..3, 3), shape(1..5, 20)];
    let filter = prop_oneof![1 => Just(0u64), 3 => Just(8), 1 => Just(16), 1 => Just(32)];
    (1..=4usize, model, coherence, l3, filter, bandwidths())
        .prop_flat_map(move |(nodes, model, coherence, l3, filter, bandwidth)| {
            let node = (1..=most_cpus, node(l3));
            let nodes = proptest::collection::vec(node, nodes);
            // Other models have no device.
            let filter = if matches!(model, MemoryModel::Shared | MemoryModel::Pool) {
                filter
            } else {
                0
            };
            (nodes, Just((model, coherence, filter, bandwidth)))
        })
        .prop_map(
            |(nodes, (model, coherence, filter_entries, bandwidth))| SimConfig {
                model,
                coherence,
                filter_entries,
                bandwidth,
                nodes: nodes
                    .iter()
                    .map(|(cpus, node)| NodeConfig {
                        cpus: *cpus,
                        ..node.clone()
                    })
                    .collect(),
                ..fixture::config(nodes.len(), 1)
            },
        )
}

#[derive(Clone, Debug)]
struct Op {
    who: (usize, usize),
    what: u8,
    pool: usize,
    line: u64,
    size: u64,
    /// How much later than the slowest CPU this one is, in picoseconds.
    ahead: u64,
}

fn op(lines: u64) -> impl Strategy<Value = Op> {
    (
        (0..4usize, 0..2usize),
        0..32u8,
        0..8usize,
        0..lines,
        1..80u64,
        0..2_000_000u64,
    )
        .prop_map(|(who, what, pool, line, size, ahead)| Op {
            who,
            what,
            pool,
            line,
            size,
            ahead,
        })
}

fn record(config: &SimConfig, op: &Op) -> Record {
    let node = op.who.0 % config.nodes.len();
    let cpu = op.who.1 % config.nodes[node].cpus;
    // Beyond the pools is private memory.
    let base = config.pools.get(op.pool).map_or(0, |pool| pool.base);
    let mut line = line_of(base) + op.line;
    // Programs have even lines in the view of all, kernels odd ones in their node's.
    if config.coherence == Coherence::Incoherent && base != 0 && op.line % 2 == 1 {
        line = view_of(node, line);
    }
    let address = line * LINE_BYTES;
    let access = |kind| Event::Access {
        kind,
        address,
        // Most accesses are to one line.
        size: if op.size > 64 { op.size } else { 1 },
    };
    let event = match op.what {
        0..4 => access(Kind::Fetch),
        4..16 => access(Kind::Load),
        16..24 => access(Kind::Store),
        24..28 => access(Kind::Rmw),
        28..30 => Event::Flush {
            kind: match op.size {
                1..5 => FlushKind::Everything,
                _ => FlushKind::Flush,
            },
            address,
        },
        _ => Event::Flush {
            kind: FlushKind::Clean,
            address,
        },
    };
    Record { node, cpu, event }
}

/// Few lines, which stay in the caches, or many, which do not.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![1..4u64, 1..100u64]
        .prop_flat_map(|lines| proptest::collection::vec(op(lines), 0..800))
}

/// What must hold of the counters of any run.
fn sane(counts: &Counters, config: &NodeConfig, cycles: u64) {
    assert_eq!(
        counts.local + counts.remote + counts.pool + counts.forwarded,
        counts.l3_misses,
        "every miss is served once"
    );
    assert_eq!(
        counts.memory_cycles(config.latency.l1),
        cycles,
        "every cycle is explained"
    );
    assert_eq!(counts.l2_cycles, counts.l2_hits() * config.latency.l2);
    assert_eq!(counts.local_cycles, counts.local * config.latency.local);
    assert_eq!(counts.remote_cycles, counts.remote * config.latency.remote);
    assert_eq!(counts.pool_cycles, counts.pool * config.latency.pool);
    assert!(counts.snp_inv >= counts.invalidations);
    assert!(counts.forwarded <= counts.snp_data + counts.invalidations);
    assert!(counts.l2_misses <= counts.l1i_misses + counts.l1d_misses);
}

thread_local! {
    static TIME: Cell<u64> = const { Cell::new(0) };
}

fn now(_: u32) -> u64 {
    TIME.get()
}

/// Runs operations on both models. Returns the sum of the counters of all CPUs.
fn run(config: &SimConfig, ops: &[Op]) -> Counters {
    let storage = Storage::new(config);
    let mut both = Both::new(config, &storage);
    // Every other run.
    if let Some(op) = ops.first()
        && op.size % 2 == 0
    {
        both.fast.vary_names(op.size << 32 | op.line);
    }
    both.heed_queues(config, &storage, now);
    // Between no time at all and 256 ns from one operation to the next.
    let step = ops.first().map_or(0, |op| (1 << (op.ahead % 19)) - 1);
    for (i, op) in ops.iter().enumerate() {
        TIME.set(i as u64 * step + op.ahead);
        if let Err(difference) = both.step(&record(config, op)).unwrap() {
            panic!("{difference}\n{config:#?}");
        }
    }
    let mut sum = Counters::default();
    for (n, node) in config.nodes.iter().enumerate() {
        for cpu in 0..node.cpus {
            let counts = both.fast.counts(n, cpu);
            sane(&counts, node, both.cycles(n, cpu));
            assert_eq!(both.fast.core(n, cpu).stolen_locks(), 0);
            sum += counts;
        }
    }
    sum
}

proptest! {
    #[test]
    fn one_cpu_per_node(
        config in config(1),
        ops in ops(),
    ) {
        run(&config, &ops);
    }

    #[test]
    fn several_cpus_per_node(
        config in config(2),
        ops in ops(),
    ) {
        run(&config, &ops);
    }
}

/// The comparisons above mean something: in runs of their kind every counter counts, often.
#[test]
fn everything_happens() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut sum = Counters::default();
    for _ in 0..400 {
        let config = config(2).new_tree(&mut runner).unwrap().current();
        let ops = ops().new_tree(&mut runner).unwrap().current();
        sum += run(&config, &ops);
    }
    // The driver of the model counts instructions and operations of the system, and here CPUs have no times.
    let others = [
        "instructions",
        "doorbells",
        "system_cycles",
        "release_cycles",
    ];
    let is_other = |name: &str| others.contains(&name) || NO_ACCESSES.contains(&name);
    for (name, value) in sum.values().filter(|(name, _)| !is_other(name)) {
        assert!(value > 100, "{name}: {value}");
    }
}
