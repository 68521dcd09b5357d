//! Nodes with several CPUs: a write kills the copies of siblings, also of those that the directory
//! knows nothing about.

use super::Pair;
use crate::coherent::{Kind, Storage};
use crate::config::*;
use crate::fixture;

/// Node 0 with two CPUs, node 1 with one; a line of the CXL pool.
fn system(model: MemoryModel, pattern: impl FnOnce(&mut Pair, u64)) {
    let mut config = fixture::config(2, 1);
    config.model = model;
    config.nodes[0].cpus = 2;
    let storage = Storage::new(&config);
    let mut pair = Pair::new(&config, &storage);
    let line = pair.cxl();
    pattern(&mut pair, line);
}

fn load(pair: &mut Pair, cpu: usize, line: u64) -> u64 {
    pair.access_by(0, cpu, Kind::Load, line)
}

fn store(pair: &mut Pair, cpu: usize, line: u64) -> u64 {
    pair.access_by(0, cpu, Kind::Store, line)
}

#[test]
fn ping_pong_within_a_node_costs_the_last_level_and_no_snoop() {
    system(MemoryModel::Shared, |pair, line| {
        store(pair, 0, line);
        let l3 = pair.latency(0).l3;
        for i in 1..100 {
            assert_eq!(store(pair, i % 2, line), l3);
        }
        let sum = pair.counts(0) + pair.both.fast.counts(0, 1);
        assert_eq!((sum.sibling_writes, sum.l3_hits()), (99, 99));
        assert_eq!((sum.snp_inv, sum.snp_data, sum.l3_misses), (0, 0, 1));
    });
}

#[test]
fn a_writer_sees_that_a_sibling_has_read() {
    system(MemoryModel::Shared, |pair, line| {
        let latency = pair.latency(0);
        store(pair, 0, line);
        for _ in 0..10 {
            // Alone it writes in its first level.
            assert_eq!(store(pair, 0, line), latency.l1);
            assert_eq!(load(pair, 1, line), latency.l3);
            assert_eq!(load(pair, 1, line), latency.l1);
            // Its copy is near, but the sibling has to be told.
            let counts = pair.during(0, |pair| {
                assert_eq!(store(pair, 0, line), latency.l3);
            });
            assert_eq!((counts.sibling_writes, counts.l1d_misses), (1, 0));
            assert_eq!(counts.l3_cycles, latency.l3 - latency.l1);
        }
    });
}

/// The line is shared, so the directory knows nodes only: the last level is asked for copies of siblings.
#[test]
fn a_writer_of_a_shared_line_kills_its_siblings_copies() {
    system(MemoryModel::Shared, |pair, line| {
        load(pair, 0, line);
        pair.load(1, line);
        load(pair, 1, line);
        let latency = pair.latency(0);
        assert_eq!(load(pair, 1, line), latency.l1);
        let counts = pair.during(0, |pair| {
            assert_eq!(store(pair, 0, line), pair.snoop(0).inv + latency.l3);
        });
        assert_eq!((counts.sibling_writes, counts.upgrades_snooped), (1, 1));
        assert_eq!(load(pair, 1, line), latency.l3);
    });
}

/// A flush of another node reaches the copies of all CPUs, also those that the directory does not know.
#[test]
fn a_flush_of_another_node_kills_all_copies() {
    system(MemoryModel::Shared, |pair, line| {
        load(pair, 0, line);
        pair.load(1, line);
        load(pair, 1, line);
        pair.flush(1, line);
        let latency = pair.latency(0);
        assert_eq!(load(pair, 1, line), latency.pool);
        assert_eq!(load(pair, 0, line), latency.l3);
    });
}

#[test]
fn a_flush_kills_the_siblings_copies() {
    system(MemoryModel::Shared, |pair, line| {
        let memory = pair.latency(0).pool;
        // Of a modified line.
        store(pair, 1, line);
        let counts = pair.during(0, |pair| {
            pair.flush(0, line);
        });
        assert_eq!((counts.writebacks, counts.inclusion_snoops), (1, 1));
        assert_eq!(load(pair, 1, line), memory);
        // Of a shared one.
        load(pair, 0, line);
        pair.load(1, line);
        pair.flush(1, line);
        pair.flush(0, line);
        assert_eq!(load(pair, 1, line), memory);
    });
}

/// All nodes share the last level: a line that it evicts is nowhere.
#[test]
fn an_eviction_kills_the_siblings_copies() {
    for reader in [1, 0] {
        system(MemoryModel::FullyShared, |pair, line| {
            let latency = pair.latency(0);
            load(pair, 0, line);
            pair.load(1, line);
            load(pair, 1, line);
            if reader == 1 {
                // Only node 0 is left, with two CPUs.
                pair.flush(1, line);
                load(pair, 0, line);
                load(pair, 1, line);
            }
            // 16 sets of 16 ways: push it out. CPU 0 loses its copy; CPU 1 does too, though the
            // evictor cannot reach it.
            for i in 1..=16 {
                load(pair, 0, line + 16 * i);
            }
            assert_eq!(pair.counts(0).inclusion_snoops, 1);
            // It comes back in the place of another that CPU 0 has to give up.
            let expected = latency.local + pair.snoop(0).back;
            assert_eq!(load(pair, 1, line), expected);
        });
    }
}
