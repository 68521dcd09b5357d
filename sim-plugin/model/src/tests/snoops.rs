//! Patterns of several nodes, with the exact number and price of their messages.

use super::Pair;
use crate::coherent::{FlushKind, Kind, Storage};
use crate::config::MemoryModel;
use crate::fixture;

/// Runs a pattern on two nodes, with one of its lines in the CXL pool.
fn two(pattern: impl FnOnce(&mut Pair, u64)) {
    let config = fixture::config(2, 1);
    let storage = Storage::new(&config);
    let mut pair = Pair::new(&config, &storage);
    let line = pair.cxl();
    pattern(&mut pair, line);
}

#[test]
fn ping_pong_costs_a_snoop_and_a_forward_per_transfer() {
    two(|pair, line| {
        pair.store(0, line);
        let n = 1000;
        for i in 1..=n {
            let node = i % 2;
            let expected = pair.snoop(node).inv + pair.latency(node).pool;
            assert_eq!(pair.store(node, line), expected);
        }
        let sum = pair.counts(0) + pair.counts(1);
        assert_eq!(sum.snp_inv, n as u64, "invalidations are transfers");
        assert_eq!(sum.invalidations, n as u64);
        assert_eq!(sum.forwarded, n as u64);
        assert_eq!((sum.snp_data, sum.writebacks, sum.pool), (0, 0, 1));
    });
}

#[test]
fn a_configured_price_of_forwarding_is_used() {
    let mut config = fixture::config(2, 1);
    for node in &mut config.nodes {
        node.snoop.forward = Some(17);
    }
    let storage = Storage::new(&config);
    let mut pair = Pair::new(&config, &storage);
    let line = pair.cxl();
    pair.store(0, line);
    assert_eq!(pair.store(1, line), pair.snoop(1).inv + 17);
    let snoop = pair.snoop(0);
    assert_eq!(pair.load(0, line), snoop.data + snoop.writeback + 17);
    assert_eq!(pair.counts(0).forward_cycles, 17);
}

#[test]
fn false_sharing_is_ping_pong_and_different_lines_are_silent() {
    two(|pair, line| {
        // Two words of a line, each written by one node only.
        let n = 100;
        let round = |pair: &mut Pair, of: [u64; 2]| {
            for _ in 0..n {
                pair.store(0, of[0]);
                pair.store(1, of[1]);
            }
        };
        round(pair, [line; 2]);
        let sum = pair.counts(0) + pair.counts(1);
        assert_eq!(sum.snp_inv, 2 * n - 1);
        let before = sum;
        round(pair, [line + 1, line + 2]);
        let sum = pair.counts(0) + pair.counts(1) - before;
        assert_eq!((sum.snp_inv, sum.snp_data, sum.forwarded), (0, 0, 0));
        assert_eq!(sum.l1d_misses, 2);
    });
}

#[test]
fn a_producer_and_a_consumer_of_n_lines_send_n_snoops_of_each_kind() {
    two(|pair, line| {
        let n = 10;
        let round = |pair: &mut Pair| {
            (0..n).for_each(|i| {
                pair.store(0, line + i);
            });
            (0..n).for_each(|i| {
                pair.load(1, line + i);
            });
        };
        round(pair);
        for _ in 0..50 {
            let before = [pair.counts(0), pair.counts(1)];
            round(pair);
            let producer = pair.counts(0) - before[0];
            let consumer = pair.counts(1) - before[1];
            assert_eq!((producer.snp_inv, producer.snp_data), (n, 0));
            assert_eq!(producer.upgrades_snooped, n);
            assert_eq!((producer.l1d_misses, producer.writebacks), (0, 0));
            assert_eq!((consumer.snp_inv, consumer.snp_data), (0, n));
            assert_eq!((consumer.forwarded, consumer.writebacks), (n, n));
            assert_eq!(
                producer.snoop_cycles,
                n * pair.snoop(0).inv,
                "its copies are good: it pays the snoops only"
            );
        }
    });
}

#[test]
fn readers_do_not_invalidate() {
    let config = fixture::config(4, 1);
    let storage = Storage::new(&config);
    let mut pair = Pair::new(&config, &storage);
    let line = pair.cxl();
    for _ in 0..100 {
        for node in 0..4 {
            pair.load(node, line);
        }
    }
    let sum = (0..4).map(|n| pair.counts(n)).reduce(|a, b| a + b).unwrap();
    assert_eq!((sum.snp_inv, sum.invalidations, sum.writebacks), (0, 0, 0));
    // The second reader meets the first's exclusive copy; later ones meet shared ones.
    assert_eq!((sum.snp_data, sum.l1d_misses), (1, 4));
    // A writer asks each of the others.
    let counts = pair.during(2, |pair| {
        let cycles = pair.store(2, line);
        assert_eq!(cycles, pair.snoop(2).inv + pair.latency(2).l1);
    });
    assert_eq!((counts.snp_inv, counts.invalidations), (3, 1));
    assert_eq!((counts.upgrades_snooped, counts.l1d_misses), (1, 0));
}

#[test]
fn the_only_reader_becomes_writer_without_asking() {
    two(|pair, line| {
        assert_eq!(pair.load(0, line), pair.latency(0).pool);
        assert_eq!(pair.store(0, line), pair.latency(0).l1);
        let counts = pair.counts(0);
        assert_eq!((counts.upgrades_silent, counts.upgrades_snooped), (1, 0));
        assert_eq!((counts.snp_inv, counts.snp_data), (0, 0));
        // And it did become the writer.
        pair.load(1, line);
        assert_eq!(pair.counts(1).forwarded, 1);
    });
}

#[test]
fn a_flush_writes_back_exactly_once_if_dirty() {
    two(|pair, line| {
        let latency = pair.latency(0);
        for flush in [FlushKind::Flush, FlushKind::Clean, FlushKind::Everything] {
            // Dirty.
            pair.store(0, line);
            let counts = pair.during(0, |pair| {
                assert_eq!(pair.flush_by(0, 0, flush, line), pair.snoop(0).writeback);
                assert_eq!(pair.flush_by(0, 0, flush, line), 0);
            });
            assert_eq!((counts.writebacks, counts.flushes), (1, 2));
            assert_eq!(counts.inclusion_snoops, 0);
            // Afterwards it is gone, or it is there and clean.
            let expected = match flush {
                FlushKind::Flush | FlushKind::Everything => latency.pool,
                FlushKind::Clean => latency.l1,
            };
            assert_eq!(pair.load(0, line), expected);
            // Clean.
            let counts = pair.during(0, |pair| {
                assert_eq!(pair.flush_by(0, 0, flush, line), 0);
            });
            assert_eq!(counts.writebacks, 0);
            let counts = pair.during(1, |pair| {
                pair.load(1, line);
                pair.flush(1, line);
            });
            assert_eq!(counts.forwarded, 0, "memory has it");
        }
        // A reader's flush reaches the other reader.
        pair.store(0, line);
        pair.load(1, line);
        let counts = pair.during(1, |pair| {
            assert_eq!(
                pair.flush_by(1, 0, FlushKind::Flush, line),
                pair.snoop(1).inv
            );
        });
        assert_eq!((counts.snp_inv, counts.writebacks), (1, 0));
        assert_eq!(pair.load(0, line), latency.pool);
        // And a dirty line is written back, whichever node has it: it is gone, or still there and clean.
        let snoop = pair.snoop(1);
        for (flush, ask, expected) in [
            (FlushKind::Clean, snoop.data, latency.l1),
            (FlushKind::Flush, snoop.inv, latency.pool),
        ] {
            pair.store(0, line);
            let counts = pair.during(1, |pair| {
                assert_eq!(pair.flush_by(1, 0, flush, line), ask + snoop.writeback);
                assert_eq!(pair.flush_by(1, 0, FlushKind::Clean, line), 0);
            });
            assert_eq!((counts.writebacks, counts.flushes), (1, 2));
            assert_eq!(pair.load(0, line), expected);
        }
    });
}

#[test]
fn a_read_modify_write_is_one_request() {
    two(|pair, line| {
        pair.load(1, line);
        let cycles = pair.access_by(0, 0, Kind::Rmw, line);
        assert_eq!(cycles, pair.snoop(0).inv + pair.latency(0).pool);
        let counts = pair.counts(0);
        assert_eq!((counts.rmws, counts.loads, counts.stores), (1, 0, 0));
        assert_eq!(
            (counts.snp_inv, counts.snp_data, counts.l1d_misses),
            (1, 0, 1)
        );
        assert_eq!(pair.access_by(0, 0, Kind::Rmw, line), pair.latency(0).l1);
    });
}

/// The writer's own copies of a line stay good, where they are and for instructions too.
#[test]
fn a_writer_keeps_its_own_copies() {
    two(|pair, line| {
        pair.access_by(0, 0, Kind::Fetch, line);
        pair.load(0, line);
        pair.load(1, line);
        pair.store(0, line);
        assert_eq!(pair.access_by(0, 0, Kind::Fetch, line), 0);
        // Out of the first level: as many lines of its set as there are ways.
        for i in 1..=4 {
            pair.load(0, line + 4 * i);
        }
        assert_eq!(pair.store(0, line), pair.latency(0).l2);
        assert_eq!(pair.counts(0).upgrades_snooped, 1);
    });
}

/// Where all nodes have one last level, that has what any of them has modified: no memory, and no way over a link.
#[test]
fn one_last_level_serves_what_another_node_has_modified() {
    let mut config = fixture::config(2, 1);
    config.model = MemoryModel::FullyShared;
    for node in &mut config.nodes {
        (node.snoop.hop, node.snoop.home) = (1_000, 2_000);
    }
    let storage = Storage::new(&config);
    let mut pair = Pair::new(&config, &storage);
    let line = pair.cxl();
    pair.store(1, line);
    let (latency, snoop) = (pair.latency(0), pair.snoop(0));
    let counts = pair.during(0, |pair| {
        let read = pair.load(0, line);
        assert_eq!(read, snoop.data + snoop.writeback + latency.l3);
    });
    assert_eq!(
        (counts.l2_misses, counts.l3_misses, counts.forwarded),
        (1, 0, 0)
    );
    pair.store(1, line);
    let counts = pair.during(0, |pair| {
        assert_eq!(pair.store(0, line), snoop.inv + latency.l3);
    });
    assert_eq!(
        (counts.l3_misses, counts.forwarded, counts.link_cycles),
        (0, 0, 0)
    );
}
