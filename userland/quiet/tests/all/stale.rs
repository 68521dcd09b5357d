//! A writer and readers on nodes whose caches are as stale as can be, and fetch and evict what they like. Each flush is
//! needed, shown by leaving out one after the other.

use std::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::NodeId;
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::mutant::{Flushes, try_each};
use dyad_coherence::stale::{StaleMem, Task, pause};
use dyad_quiet::section::BYTES;
use dyad_quiet::{Blocks, Heap, HeapError, PAYLOAD, Root, Rounds, Sections, heap};
use dyad_random::SplitMix64;
use dyad_shm::PhysAddr;

const NODES: usize = 3;
const SEEDS: u64 = if cfg!(miri) { 1 } else { 24 };
const ROOT: PhysAddr = PhysAddr(dyad_abi::boot::CXL_BASE);
const SECTIONS: PhysAddr = PhysAddr(ROOT.0 + 64);
const BLOCKS: PhysAddr = PhysAddr(SECTIONS.0 + BYTES);
const LINES: u64 = 12;
const KEYS: usize = 4;
const PUTS: u64 = 30;
const GETS: u64 = 30;

fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

/// What version `version` of a key is.
fn value(key: usize, version: u64) -> Vec<u64> {
    let mut random = SplitMix64(version * 8 + key as u64);
    let words = 2 + random.below(2 * PAYLOAD as u64 - 2) as usize;
    let rest = (2..words).map(|_| random.next());
    [key as u64, version].into_iter().chain(rest).collect()
}

/// The newest version of each key whose writer has returned.
type Latest = [AtomicU64; KEYS];

fn write(mem: &impl GlobalMem, latest: &Latest, seed: u64) -> Result<(), String> {
    let (sections, root) = (Sections::new(SECTIONS), Root::at(ROOT));
    let mut heap = Heap::new(Blocks::new(BLOCKS, LINES), sections, node(0), 1..LINES + 1);
    let mut random = SplitMix64(seed);
    let mut length = [0; KEYS];
    for version in 1..=PUTS {
        let key = random.below(KEYS as u64) as usize;
        let words = value(key, version);
        let new = loop {
            match heap.publish(mem, &words) {
                Ok(new) => break new,
                Err(HeapError::Again) => {
                    pause();
                    // Its own node has no readers.
                    heap.collect(mem, NodeId::first(NODES).skip(1));
                }
                Err(e) => return Err(format!("{e:?}")),
            }
        };
        let old = root.own(mem)[key];
        root.write(mem, key, Some(new));
        latest[key].store(version, Ordering::SeqCst);
        if let Some(old) = old {
            heap.retire(mem, old, length[key]);
        }
        length[key] = words.len();
    }
    Ok(())
}

fn read(mem: &impl GlobalMem, latest: &Latest, (me, seed): (usize, u64)) -> Result<(), String> {
    let (sections, root) = (Sections::new(SECTIONS), Root::at(ROOT));
    let blocks = Blocks::new(BLOCKS, LINES);
    let mut rounds = Rounds::new(sections, node(me));
    let mut random = SplitMix64(seed + me as u64);
    let mut last = [0; KEYS];
    let newest = || latest.iter().map(|l| l.load(Ordering::SeqCst)).max();
    let mut n = 0;
    // Rounds go on as long as the writer waits for them.
    while n < GETS || newest() < Some(PUTS) {
        n += 1;
        rounds.step(mem);
        let key = random.below(KEYS as u64) as usize;
        let before = latest[key].load(Ordering::SeqCst).max(last[key]);
        let section = sections.begin(mem, node(me), 0);
        let Some(found) = root.read(mem)[key] else {
            match before {
                0 => continue,
                _ => return Err(format!("key {key} is lost")),
            }
        };
        let gone = |_| format!("key {key}: its block has gone");
        let first = blocks.read(mem, found, 0).map_err(gone)?;
        let version = first[1];
        if first[0] != key as u64 || version < before || version > PUTS {
            return Err(format!("key {key}: {first:x?} after version {before}"));
        }
        let expected = value(key, version);
        let mut words = first.to_vec();
        for line in 1..heap::lines_for(expected.len()) {
            words.extend(blocks.read(mem, found, line).map_err(gone)?);
        }
        drop(section);
        words.truncate(expected.len());
        if words != expected {
            return Err(format!("key {key}, version {version}: {words:x?}"));
        }
        last[key] = version;
    }
    Ok(())
}

fn scenario(seed: u64, flushes: &Flushes) -> Result<(), String> {
    let mem = StaleMem::new(NODES, seed);
    let latest = Latest::default();
    let nodes: Vec<_> = (0..NODES).map(|n| flushes.on(mem.node(n))).collect();
    let (nodes, latest) = (&nodes, &latest);
    let mut tasks: Vec<Task<'_>> = vec![Box::new(move || write(&nodes[0], latest, seed))];
    for (me, reader) in nodes.iter().enumerate().skip(1) {
        tasks.push(Box::new(move || read(reader, latest, (me, seed))));
    }
    mem.interleave(400_000, tasks)?;
    // Stamps may be read old; nothing is undone or overwritten.
    mem.check_writes()
}

#[test]
fn readers_find_what_was_published_and_each_flush_is_needed() {
    let verdict = try_each(SEEDS, scenario).unwrap_or_else(|why| panic!("{why}"));
    let survived: Vec<_> = verdict.survived.iter().map(ToString::to_string).collect();
    for caught in &verdict.caught {
        println!("{}: seed {}: {}", caught.site, caught.seed, caught.why);
    }
    assert!(survived.is_empty() || cfg!(miri), "{survived:#?}");
    assert!(
        verdict.caught.len() >= 8 || cfg!(miri),
        "{}",
        verdict.caught.len()
    );
}
