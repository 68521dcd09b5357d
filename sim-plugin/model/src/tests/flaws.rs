//! Flaws of the simulator that this one takes the place of (EVALUATION, 1.3): one test each, which
//! it would fail.

use super::Pair;
use crate::coherent::{FlushKind, Kind, Storage};
use crate::config::*;
use crate::directory::{State, Word};
use crate::fixture;

fn system(config: &SimConfig, pattern: impl FnOnce(&mut Pair, &Storage, u64)) {
    let storage = Storage::new(config);
    let mut pair = Pair::new(config, &storage);
    let line = pair.cxl();
    pattern(&mut pair, &storage, line);
}

/// The directory's word of a line.
fn word(pair: &mut Pair, storage: &Storage, line: u64) -> Word {
    let place = pair.both.fast.core(0, 0).memory().locate(line).unwrap();
    crate::directory::read(storage.lines().word(place.index).expect("a fused line"))
}

/// c. A store that misses did not take the peer's copy away, and left the line shared.
#[test]
fn c_a_store_that_misses_is_a_request_for_ownership() {
    system(&fixture::config(2, 1), |pair, storage, line| {
        pair.load(1, line);
        let counts = pair.during(0, |pair| {
            pair.store(0, line);
        });
        assert_eq!((counts.l1d_misses, counts.snp_inv), (1, 1));
        assert_eq!(word(pair, storage, line).state(), State::Modified);
        assert_eq!(word(pair, storage, line).owner(), Some((0, 0)));
        let counts = pair.during(1, |pair| {
            pair.load(1, line);
        });
        assert_eq!((counts.snp_data, counts.forwarded), (1, 1));
    });
}

/// Hits above the last level do not make a line young there: a line that is used all the time was evicted.
#[test]
fn the_last_level_asks_before_it_evicts_what_is_used_above_it() {
    for query in [false, true] {
        let mut config = fixture::config(2, 1);
        config.nodes[0].l3_query = query;
        system(&config, |pair, _, line| {
            let hot = pair.latency(0).l1;
            pair.load(0, line);
            let mut again = 0;
            // One more than the set of the last level has ways.
            for i in 1..=16 {
                pair.load(0, line + 16 * i);
                again += u64::from(pair.load(0, line) != hot);
            }
            assert_eq!(again, u64::from(!query), "query: {query}");
        });
    }
}

/// d. An invalidation did not reach the peer's last level, where it hit its stale copy later.
#[test]
fn d_an_invalidation_reaches_the_last_level() {
    system(&fixture::config(2, 1), |pair, _, line| {
        pair.load(1, line);
        // Only the last level has it: out of the first (4 sets of 4) and the second (8 of 8).
        for i in 1..=8 {
            pair.load(1, line + 8 * i);
        }
        let latency = pair.latency(1);
        let counts = pair.during(1, |pair| {
            assert_eq!(pair.load(1, line), latency.l3);
        });
        assert_eq!((counts.l2_misses, counts.l3_misses), (1, 0));
        pair.store(0, line);
        let expected = pair.snoop(1).data + pair.snoop(1).writeback + latency.pool;
        let counts = pair.during(1, |pair| {
            assert_eq!(pair.load(1, line), expected);
        });
        assert_eq!((counts.l3_misses, counts.forwarded), (1, 1));
    });
}

/// e. A hit in the last level left the levels above with the state of the line evicted there: after
/// that of an invalid one the line was there, but missed for ever.
#[test]
fn e_a_line_from_the_last_level_is_good_in_all() {
    system(&fixture::config(2, 1), |pair, _, line| {
        // Fill a set of the first and of the second level of node 1, and take all of it away.
        for i in 0..8 {
            pair.load(1, line + 8 * i);
        }
        for i in 0..8 {
            pair.store(0, line + 8 * i);
        }
        // Another line of the set, over one of the dead copies, then out of the first two levels.
        let other = line + 8 * 8;
        pair.load(1, other);
        for i in 9..=16 {
            pair.load(1, line + 8 * i);
        }
        let latency = pair.latency(1);
        assert_eq!(pair.load(1, other), latency.l3);
        for _ in 0..3 {
            assert_eq!(pair.load(1, other), latency.l1);
        }
    });
}

/// f. Evicting a modified line marked the line that came instead as modified in the level below.
#[test]
fn f_what_is_written_back_is_the_line_that_was_written() {
    let mut config = fixture::config(2, 1);
    config.nodes[0].l3 = CacheShape {
        size: 16 * 64,
        ways: 1,
    };
    system(&config, |pair, storage, line| {
        pair.store(0, line);
        let evicted = pair.during(0, |pair| {
            pair.load(0, line + 16);
        });
        assert_eq!(evicted.writebacks, 1);
        assert_eq!(word(pair, storage, line).state(), State::Uncached);
        assert_eq!(word(pair, storage, line + 16).state(), State::Exclusive);
        // The line that came is clean: it leaves without a write-back.
        let clean = pair.during(0, |pair| {
            pair.load(0, line + 32);
            pair.flush(0, line + 32);
        });
        assert_eq!(clean.writebacks, 0);
        // And nobody has the line that left.
        let counts = pair.during(1, |pair| {
            pair.load(1, line);
        });
        assert_eq!((counts.snp_data, counts.forwarded, counts.pool), (0, 0, 1));
    });
}

/// g. Lines evicted from the lower levels stayed in those above.
#[test]
fn g_the_last_level_holds_what_is_above_it() {
    let mut config = fixture::config(2, 1);
    config.nodes[0].l3 = CacheShape {
        size: 16 * 64,
        ways: 1,
    };
    system(&config, |pair, _, line| {
        pair.access_by(0, 0, Kind::Fetch, line);
        pair.load(0, line);
        let snoop = pair.snoop(0);
        let latency = pair.latency(0);
        let counts = pair.during(0, |pair| {
            assert_eq!(pair.load(0, line + 16), latency.pool + snoop.back);
        });
        // Both first levels and the second.
        assert_eq!((counts.inclusion_snoops, counts.inclusion_victims), (1, 3));
        assert_eq!(counts.writebacks, 0);
        // The one of a modified line costs its write-back too.
        pair.store(0, line + 16);
        let expected = latency.pool + snoop.back + snoop.writeback;
        assert_eq!(pair.load(0, line), expected);
        assert_eq!(pair.load(0, line + 16), latency.pool + snoop.back);
        // A dead copy is evicted without a word.
        pair.store(1, line + 16);
        let counts = pair.during(0, |pair| {
            assert_eq!(pair.load(0, line), latency.pool);
        });
        assert_eq!((counts.inclusion_snoops, counts.inclusion_victims), (0, 0));
        // Private lines may stay above it.
        pair.load(0, 0);
        pair.load(0, 16);
        assert_eq!(pair.load(0, 0), latency.l1);
    });
}

/// h. A transfer from a dirty peer was counted as a miss twice in every level.
#[test]
fn h_a_forward_is_one_miss_of_each_level() {
    system(&fixture::config(2, 1), |pair, _, line| {
        pair.store(0, line);
        for access in [Kind::Load, Kind::Store, Kind::Fetch] {
            pair.store(0, line);
            let counts = pair.during(1, |pair| {
                pair.access_by(1, 0, access, line);
            });
            assert_eq!(counts.l1d_misses + counts.l1i_misses, 1);
            assert_eq!((counts.l2_misses, counts.l3_misses), (1, 1));
            assert_eq!((counts.forwarded, counts.local, counts.pool), (1, 0, 0));
            pair.flush(1, line);
        }
    });
}

/// i. The same memory had different addresses on the two machines, so their copies never met. Here
/// a line has one number, and one word, wherever its node sees it from.
#[test]
fn i_a_line_is_the_same_for_all_nodes() {
    let config = fixture::config(3, 1);
    system(&config, |pair, _, _| {
        for pool in 0..4 {
            for line in [pair.pool(pool), pair.pool(pool) + 511] {
                let places = [0, 1, 2].map(|node| {
                    let core = pair.both.fast.core(node, 0);
                    core.memory().locate(line).unwrap().index
                });
                assert!(places.iter().all(|&place| place == places[0]));
                for writer in 0..3 {
                    pair.store(writer, line);
                    let reader = (writer + 1) % 3;
                    let counts = pair.during(reader, |pair| {
                        pair.load(reader, line);
                    });
                    assert_eq!((counts.snp_data, counts.forwarded), (1, 1));
                }
                pair.flush_by(0, 0, FlushKind::Flush, line);
            }
        }
    });
}
