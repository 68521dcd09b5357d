//! A small system for tests.

use crate::config::*;

/// A cache of so many sets.
pub fn shape(sets: u64, ways: u32) -> CacheShape {
    CacheShape {
        size: sets * u64::from(ways) * LINE_BYTES,
        ways,
    }
}

/// A node with caches that tests can fill.
pub fn node(cpus: usize) -> NodeConfig {
    NodeConfig {
        isa: "x86_64".into(),
        cpus,
        cycle_ps: 476,
        cpi_milli: 1000,
        l1i: shape(4, 4),
        l1d: shape(4, 4),
        l2: shape(8, 8),
        l3: shape(16, 16),
        l3_query: false,
        latency: Latencies {
            l1: 4,
            l2: 14,
            l3: 50,
            local: 300,
            remote: 640,
            pool: 650,
        },
        snoop: SnoopCosts {
            data: 70,
            inv: 71,
            back: 72,
            forward: None,
            writeback: 73,
            ..SnoopCosts::default()
        },
        cost: SystemCosts::default(),
        overlap: OverlapConfig::default(),
        tlb: TlbConfig::default(),
    }
}

/// `nodes` such nodes, pools of 32 KiB.
pub fn config(nodes: usize, cpus: usize) -> SimConfig {
    SimConfig {
        level: Level::Timing,
        model: MemoryModel::Shared,
        coherence: Coherence::Coherent,
        profile: "test".into(),
        nodes: vec![node(cpus); nodes],
        pools: (1..=nodes as u64 + 1)
            .map(|i| Pool {
                base: i << 20,
                size: 32 << 10,
            })
            .collect(),
        clock: ClockConfig {
            quantum_ns: 1000,
            lag_ns: 1000,
            ipi_ns: 4000,
            order: Order::Parallel,
        },
        message_ns: 75_000,
        message_kib_ns: 0,
        filter_entries: 0,
        bandwidth: Bandwidths::default(),
    }
}
