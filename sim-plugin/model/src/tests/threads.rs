//! Nodes that run at the same time, as processes do, on one directory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::account::Counters;
use crate::coherent::{FlushKind, Kind, Storage};
use crate::config::*;
use crate::directory::{Agent, State, Step, Word, update};
use crate::first::Name;
use crate::fixture;
use crate::memory::LINE_BITS;

/// A small generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn version(word: Word) -> u64 {
    word.version() >> LINE_BITS
}

/// Every change of a word is made by exactly one agent, follows from the word before, and is booked
/// by it alone: the logs of all of them are one path from zero to the final word.
#[test]
fn transitions_of_all_nodes_are_one_history() {
    const NODES: usize = 4;
    const STEPS: u64 = 50_000;
    let word = AtomicU64::new(0);
    let logs = thread::scope(|scope| {
        let agents = (0..NODES).map(|node| {
            let word = &word;
            scope.spawn(move || {
                let me = Agent {
                    node,
                    cpu: 0,
                    alone: true,
                    one_last_level: false,
                    through_home: false,
                };
                let mut random = Random(node as u64 + 1);
                let mut log = Vec::new();
                for _ in 0..STEPS {
                    let what = random.below(8);
                    let taken = update(word, |seen| {
                        // Between looking and changing: so that others come between.
                        if random.below(16) == 0 {
                            thread::yield_now();
                        }
                        let step = match what {
                            0..4 => seen.load(me, seen.shared_by(node)),
                            4..6 => seen.store(me),
                            6 => seen.flush(me)?,
                            _ => seen.clean(me)?,
                        };
                        Some((step, ()))
                    });
                    if let Some((before, step, ())) = taken {
                        log.push((node, before, step));
                    }
                }
                log
            })
        });
        let agents = agents.collect::<Vec<_>>();
        let logs = agents.into_iter().map(|agent| agent.join().unwrap());
        logs.collect::<Vec<_>>()
    });

    // How often each word was left less how often it was reached.
    let mut balance = HashMap::<u64, i64>::new();
    let mut bumps = 0;
    for &(node, before, step) in logs.iter().flatten() {
        if before == step.next {
            continue;
        }
        *balance.entry(before.0).or_default() += 1;
        *balance.entry(step.next.0).or_default() -= 1;
        // Only the node that asks becomes the owner, and books that. An owner that is asked to clean its line stays the owner.
        let cleaned = before.owner().is_some() && step.next.owner() == before.owner();
        if let Some((owner, _)) = step.next.owner() {
            assert!(owner == node || cleaned);
            assert_eq!(
                step.next.sharers(),
                1 << owner,
                "an owner is the only sharer"
            );
        }
        let bumped = version(step.next) - version(before);
        assert_eq!(bumped, u64::from(step.inv != 0));
        bumps += bumped;
        let taken = matches!(before.owner(), Some((owner, _)) if owner != node);
        assert_eq!(
            taken,
            step.data + u32::from(taken && step.inv == 1) == 1,
            "{before:?}"
        );
        let dirty = before.state() == State::Modified;
        let gone = step.next.state() == State::Uncached;
        assert_eq!(step.forward, dirty && taken && !gone && !cleaned);
        let Step { back, sibling, .. } = step;
        assert!(!back && !sibling);
    }
    let last = Word(word.load(Ordering::Relaxed));
    assert_eq!(
        version(last),
        bumps,
        "each change of the version is booked once"
    );
    let open = balance.into_iter().filter(|&(_, n)| n != 0);
    let open = open.collect::<HashMap<_, _>>();
    let expected = match last.0 {
        0 => HashMap::new(),
        last => HashMap::from([(0, 1), (last, -1)]),
    };
    assert_eq!(open, expected);
    assert!(bumps > 100, "{bumps}: they did meet");
}

/// Runs all CPUs of all nodes at once on few lines. Returns their counters and the final words.
fn run(config: &SimConfig, steps: u64) -> (Vec<Counters>, Vec<Word>) {
    let storage = Storage::new(config);
    let counts = thread::scope(|scope| {
        let mut cores = Vec::new();
        for (node, shape) in config.nodes.iter().enumerate() {
            for cpu in 0..shape.cpus {
                let storage = &storage;
                cores.push(scope.spawn(move || {
                    let mut core = storage.core(config, node, cpu);
                    let mut random = Random((node * 8 + cpu) as u64 + 1);
                    let mut cycles = 0;
                    for i in 0..steps {
                        // On a busy host too they run by turns, not one after the other.
                        if i % 64 == 0 {
                            thread::yield_now();
                        }
                        let pool = config.pools[random.below(3) as usize];
                        let line = pool.base / LINE_BYTES + random.below(64);
                        let index = core.memory().index_base(line).wrapping_add(line) as usize;
                        let name = Name(line);
                        cycles += match random.below(16) {
                            0 => core.flush(FlushKind::Flush, line, index),
                            1 => core.flush(FlushKind::Clean, line, index),
                            // As plugins do.
                            4..10 if core.quick_load(name) => shape.latency.l1,
                            10..14 if core.quick_store(name) => shape.latency.l1,
                            14.. if core.quick_rmw(name) => shape.latency.l1,
                            2..4 => core.access(Kind::Fetch, name, line, index),
                            4..10 => core.access(Kind::Load, name, line, index),
                            10..14 => core.access(Kind::Store, name, line, index),
                            _ => core.access(Kind::Rmw, name, line, index),
                        };
                    }
                    let counts = core.counts();
                    assert_eq!(counts.memory_cycles(shape.latency.l1), cycles);
                    assert_eq!(
                        counts.local + counts.remote + counts.pool + counts.forwarded,
                        counts.l3_misses
                    );
                    core
                }));
            }
        }
        let cores = cores.into_iter().map(|core| core.join().unwrap());
        let cores = cores.collect::<Vec<_>>();
        cores
            .into_iter()
            .map(|mut core| {
                // Nobody changes anything any more, so what is promised is so.
                assert_eq!(core.broken_promises(), 0);
                core.counts()
            })
            .collect::<Vec<_>>()
    });
    (counts, storage.lines().iter().collect())
}

#[test]
fn cores_on_one_directory_book_every_change_of_ownership_once() {
    for model in [MemoryModel::Separated, MemoryModel::Shared] {
        let mut config = fixture::config(4, 1);
        config.model = model;
        // Small, so that lines are evicted all the time too.
        for node in &mut config.nodes {
            node.l3 = CacheShape {
                size: 64 * LINE_BYTES,
                ways: 4,
            };
        }
        let (counts, words) = run(&config, 100_000);
        let sum = counts.iter().copied().reduce(|a, b| a + b).unwrap();
        let versions = words.iter().map(|&word| version(word)).sum::<u64>();
        assert_eq!(versions, sum.invalidations, "nobody else changes versions");
        assert!(
            sum.invalidations > 100 && sum.inclusion_snoops > 100,
            "{sum:?}"
        );
        for word in words {
            if let Some((owner, _)) = word.owner() {
                assert_eq!(word.sharers(), 1 << owner);
            }
        }
        // Each line written back was modified by one before.
        assert!(sum.writebacks <= sum.stores + sum.rmws);
        assert!(sum.forwarded <= sum.stores + sum.rmws);
    }
}

/// The same with last levels that several share, which are memory with locks.
#[test]
fn cores_on_one_last_level_come_to_an_end_with_counters_that_add_up() {
    for (model, cpus) in [(MemoryModel::FullyShared, 1), (MemoryModel::Shared, 2)] {
        let mut config = fixture::config(3, cpus);
        config.model = model;
        for node in &mut config.nodes {
            node.l3 = CacheShape {
                size: 64 * LINE_BYTES,
                ways: 4,
            };
        }
        let (counts, words) = run(&config, 50_000);
        let sum = counts.iter().copied().reduce(|a, b| a + b).unwrap();
        assert!(sum.l3_hits() > 100 && sum.invalidations > 100, "{sum:?}");
        for word in words {
            if let Some((owner, _)) = word.owner() {
                assert_eq!(word.sharers(), 1 << owner);
            }
        }
    }
}
