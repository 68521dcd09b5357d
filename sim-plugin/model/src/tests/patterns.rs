//! Patterns of one node whose counts have a closed form. Fused and private lines alike.

use super::Pair;
use crate::coherent::{Kind, Storage};
use crate::config::*;
use crate::directory::Word;
use crate::fixture;

/// Nodes with caches of the usual proportions, a sixteenth of the usual size.
fn sixteenth() -> SimConfig {
    let mut config = fixture::config(2, 1);
    let shape = |size, ways| CacheShape { size, ways };
    for node in &mut config.nodes {
        node.l1i = shape(2 << 10, 8);
        node.l1d = shape(2 << 10, 8);
        node.l2 = shape(64 << 10, 16);
        node.l3 = shape(256 << 10, 16);
    }
    for (i, pool) in config.pools.iter_mut().enumerate() {
        *pool = Pool {
            base: (i as u64 + 1) << 28,
            size: 4 << 20,
        };
    }
    config
}

/// Runs a pattern on private, local and remote lines. The argument is the first line, and what
/// memory costs there.
fn everywhere(pattern: impl Fn(&mut Pair, u64, u64)) {
    let config = sixteenth();
    let latency = config.nodes[0].latency;
    for (base, memory) in [
        (1 << 20, latency.local),
        (config.pools[0].base, latency.local),
        (config.pools[1].base, latency.remote),
        (config.pools[2].base, latency.pool),
    ] {
        let storage = Storage::new(&config);
        pattern(&mut Pair::new(&config, &storage), base / LINE_BYTES, memory);
    }
}

fn lines(bytes: u64) -> u64 {
    bytes / LINE_BYTES
}

#[test]
fn a_stream_misses_once_per_line_and_pass() {
    everywhere(|pair, base, _| {
        let n = lines(1 << 20);
        for _ in 0..2 {
            // Eight words of every line.
            for line in 0..n {
                for _ in 0..8 {
                    pair.load(0, base + line);
                }
            }
        }
        let counts = pair.counts(0);
        assert_eq!(counts.loads, 16 * n);
        assert_eq!(counts.l1d_misses, 2 * n);
        assert_eq!(counts.l2_misses, 2 * n);
        assert_eq!(counts.l3_misses, 2 * n);
        assert_eq!(counts.local + counts.remote + counts.pool, 2 * n);
    });
}

#[test]
fn random_accesses_to_w_bytes_miss_a_cache_of_c_bytes_as_one_less_c_by_w() {
    everywhere(|pair, base, _| {
        let (w, n) = (lines(1 << 20), 200_000);
        let mut x = 1u64;
        let mut round = |pair: &mut Pair| {
            for _ in 0..n {
                x = x
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                pair.load(0, base + (x >> 33) % w);
            }
        };
        round(pair);
        let counts = pair.during(0, |pair| round(pair));
        for (misses, c) in [
            (counts.l1d_misses, 2 << 10),
            (counts.l2_misses, 64 << 10),
            (counts.l3_misses, 256 << 10),
        ] {
            let expected = f64::from(n) * (1.0 - f64::from(c) / f64::from(1 << 20));
            let error = (misses as f64 / expected - 1.0).abs();
            assert!(error <= 0.005, "{misses} misses, {expected} expected");
        }
    });
}

#[test]
fn as_many_lines_of_a_set_as_ways_hit_and_one_more_misses_always() {
    everywhere(|pair, base, _| {
        // Lines of the same set of the first level. They spread over enough sets of the others.
        for (ways, misses) in [(8, 0), (9, 9)] {
            let round = |pair: &mut Pair| {
                for way in 0..ways {
                    pair.load(0, base + way * 4);
                }
            };
            round(pair);
            for _ in 0..5 {
                let counts = pair.during(0, round);
                assert_eq!(counts.l1d_misses, misses);
                assert_eq!(counts.l2_misses, 0);
            }
        }
    });
    // The same of the second level, which has 64 sets, and of the last, which has 256.
    for (stride, ways, l2, l3) in [(64, 16, 0, 0), (64, 17, 17, 0), (256, 17, 17, 17)] {
        everywhere(|pair, base, _| {
            let round = |pair: &mut Pair| {
                for way in 0..ways {
                    pair.load(0, base + 7 + way * stride);
                }
            };
            round(pair);
            for _ in 0..5 {
                let counts = pair.during(0, round);
                assert_eq!((counts.l2_misses, counts.l3_misses), (l2, l3));
            }
        });
    }
}

/// A chain through all lines of a range, which visits every line once per round.
fn chase(pair: &mut Pair, kind: Kind, base: u64, bytes: u64) -> Vec<u64> {
    let n = lines(bytes);
    (0..n)
        .map(|i| pair.access_by(0, 0, kind, base + i * 7919 % n))
        .collect()
}

#[test]
fn a_pointer_chase_returns_every_constant() {
    everywhere(|pair, base, memory| {
        let latency = pair.latency(0);
        for (bytes, cycles) in [
            (1 << 10, latency.l1),
            (32 << 10, latency.l2),
            (128 << 10, latency.l3),
            (1 << 20, memory),
        ] {
            for kind in [Kind::Load, Kind::Store, Kind::Rmw] {
                chase(pair, kind, base, bytes);
                chase(pair, kind, base, bytes); // From the second round on the caches are settled.
                let round = chase(pair, kind, base, bytes);
                // Of memory, evicting a line that is modified costs too; what is above it is not.
                let fused = pair.config.pools.iter().any(|p| lines(p.base) == base);
                let extra = match kind {
                    Kind::Store | Kind::Rmw if fused && bytes == 1 << 20 => pair.snoop(0).writeback,
                    _ => 0,
                };
                assert!(
                    round.iter().all(|&c| c == cycles + extra),
                    "{kind:?} {bytes}"
                );
            }
        }
    });
}

#[test]
fn instructions_in_the_first_level_cost_nothing() {
    everywhere(|pair, base, memory| {
        let latency = pair.latency(0);
        for (bytes, cycles) in [
            (1 << 10, 0),
            (32 << 10, latency.l2),
            (128 << 10, latency.l3),
            (1 << 20, memory),
        ] {
            chase(pair, Kind::Fetch, base, bytes);
            chase(pair, Kind::Fetch, base, bytes);
            let round = chase(pair, Kind::Fetch, base, bytes);
            assert!(round.iter().all(|&c| c == cycles), "{bytes}");
        }
        let counts = pair.counts(0);
        assert_eq!((counts.l1d_misses, counts.data()), (0, 0));
        assert!(counts.l1i_misses > 0);
    });
}

/// Which pool costs what, by model and node: local pools of nodes 0 and 1, then the CXL pool.
#[test]
fn every_range_returns_its_latency() {
    for (model, places) in [
        (MemoryModel::Separated, ["LRL", "RLR"]),
        (MemoryModel::Shared, ["LRP", "RLP"]),
        (MemoryModel::Pool, ["PPP", "PPP"]),
        (MemoryModel::FullyShared, ["LLL", "LLL"]),
    ] {
        let config = SimConfig {
            model,
            ..fixture::config(2, 1)
        };
        for (node, places) in places.into_iter().enumerate() {
            for (pool, place) in places.chars().enumerate() {
                let storage = Storage::new(&config);
                let mut pair = Pair::new(&config, &storage);
                let line = pair.pool(pool);
                let latency = pair.latency(node);
                let cycles = pair.load(node, line);
                let counts = pair.counts(node);
                let expected = match place {
                    'L' => (latency.local, [1, 0, 0]),
                    'R' => (latency.remote, [0, 1, 0]),
                    _ => (latency.pool, [0, 0, 1]),
                };
                let served = [counts.local, counts.remote, counts.pool];
                assert_eq!((cycles, served), expected);
                // A machine's own memory is local to it.
                assert_eq!(pair.load(node, 3), latency.local);
            }
        }
    }
}

/// Private lines of two machines with the same number are different lines, even in one last level.
#[test]
fn machines_do_not_share_their_own_memory() {
    let config = SimConfig {
        model: MemoryModel::FullyShared,
        ..fixture::config(2, 1)
    };
    let storage = Storage::new(&config);
    let mut pair = Pair::new(&config, &storage);
    for node in 0..2 {
        assert_eq!(pair.store(node, 5), pair.latency(node).local);
        assert_eq!(pair.load(node, 5), pair.latency(node).l1);
    }
    assert_eq!(pair.counts(1).snp_inv + pair.counts(1).snp_data, 0);
    // What is fused they do share.
    let line = pair.cxl();
    assert_eq!(pair.load(0, line), pair.latency(0).local);
    assert_eq!(
        pair.load(1, line),
        pair.snoop(1).data + pair.latency(1).l3,
        "exclusive in the other's levels, but the last one has it"
    );
    let words = storage.lines().iter();
    let known = words.filter(|&word| word != Word::default());
    assert_eq!(
        known.count(),
        1,
        "of private lines the directory knows nothing"
    );
}
