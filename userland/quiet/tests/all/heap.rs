//! What a heap gives and takes back, on memory without caches.

use std::collections::{BTreeMap, BTreeSet};

use dyad_abi::NodeId;
use dyad_coherence::HostMem;
use dyad_quiet::section::BYTES;
use dyad_quiet::{Blocks, Heap, HeapError, PAYLOAD, Ref, Rounds, Sections, block, heap};
use dyad_random::SplitMix64;
use dyad_shm::PhysAddr;

const BASE: PhysAddr = PhysAddr(dyad_abi::boot::CXL_BASE);

fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

fn both() -> impl Iterator<Item = NodeId> {
    NodeId::first(2)
}

fn new(lines: u64) -> (HostMem, Sections, Blocks, Heap) {
    let sections = Sections::new(BASE);
    let blocks = Blocks::new(BASE.add(BYTES), lines);
    let heap = Heap::new(blocks, sections, node(0), 1..lines + 1);
    (HostMem::new(), sections, blocks, heap)
}

fn read(mem: &HostMem, blocks: Blocks, block: Ref, words: usize) -> Result<Vec<u64>, block::Gone> {
    let mut all = Vec::new();
    for n in 0..heap::lines_for(words) {
        all.extend(blocks.read(mem, block, n)?);
    }
    all.truncate(words);
    Ok(all)
}

#[test]
fn a_block_is_what_was_published_until_it_is_reused() {
    let (mem, sections, blocks, mut heap) = new(2);
    let words: Vec<u64> = (1..=PAYLOAD as u64 + 2).collect();
    let first = heap.publish(&mem, &words).unwrap();
    assert_eq!(read(&mem, blocks, first, words.len()), Ok(words.clone()));
    assert_eq!(heap.publish(&mem, &[1]), Err(HeapError::Full));
    heap.retire(&mem, first, words.len());
    assert_eq!(heap.publish(&mem, &[1]), Err(HeapError::Again));
    // No node has gone through a round since.
    assert_eq!(heap.collect(&mem, both()), 0);
    let mut rounds = [0, 1].map(|n| Rounds::new(sections, node(n)));
    assert!(rounds[0].step(&mem));
    assert_eq!(heap.collect(&mem, both()), 0, "node 1 may still read");
    assert!(rounds[1].step(&mem));
    assert_eq!(read(&mem, blocks, first, words.len()), Ok(words));
    assert_eq!(heap.collect(&mem, both()), 1);
    let second = heap.publish(&mem, &[7]).unwrap();
    assert_eq!(second.line(), first.line());
    assert_eq!(blocks.read(&mem, first, 0), Err(block::Gone));
    assert_eq!(read(&mem, blocks, second, 1), Ok(vec![7]));
}

#[test]
fn an_open_section_keeps_what_was_retired_in_it() {
    let (mem, sections, _, mut heap) = new(1);
    let block = heap.publish(&mem, &[5]).unwrap();
    let mut rounds = [0, 1].map(|n| Rounds::new(sections, node(n)));
    let section = sections.begin(&mem, node(1), 3);
    heap.retire(&mem, block, 1);
    heap.collect(&mem, both());
    assert!(rounds[0].step(&mem));
    for _ in 0..3 {
        assert!(!rounds[1].step(&mem), "the section is open");
        assert_eq!(heap.collect(&mem, both()), 0);
    }
    // Another section of the same reader is not waited for.
    drop(section);
    let _later = sections.begin(&mem, node(1), 3);
    assert!(rounds[1].step(&mem));
    assert_eq!(heap.collect(&mem, both()), 1);
}

#[test]
fn readers_and_nodes_that_die_keep_nothing() {
    let (mem, sections, _, mut heap) = new(1);
    let mut rounds = Rounds::new(sections, node(1));
    for died in 0..3 {
        let block = heap.publish(&mem, &[5]).unwrap();
        core::mem::forget(sections.begin(&mem, node(1), 3));
        heap.retire(&mem, block, 1);
        heap.collect(&mem, both());
        match died {
            // The reader.
            0 => {
                assert!(!rounds.step(&mem));
                sections.reader_died(&mem, node(1), 3);
                assert!(rounds.step(&mem));
                assert!(Rounds::new(sections, node(0)).step(&mem));
                assert_eq!(heap.collect(&mem, both()), 1);
            }
            // Its node: it is not asked.
            1 => {
                assert!(Rounds::new(sections, node(0)).step(&mem));
                assert_eq!(heap.collect(&mem, NodeId::first(1)), 1);
            }
            // It comes back.
            _ => {
                sections.node_joins(&mem, node(1));
                assert!(Rounds::new(sections, node(1)).step(&mem));
                assert!(Rounds::new(sections, node(0)).step(&mem));
                assert_eq!(heap.collect(&mem, both()), 1);
            }
        }
    }
}

/// No two blocks have a line in common, lines come back, and no reference is given twice.
#[test]
fn lines_are_in_one_block_at_a_time() {
    let (mem, sections, blocks, mut heap) = new(200);
    let mut random = SplitMix64(1);
    let mut live = BTreeMap::<u64, (Ref, usize, u64)>::new();
    let mut given = BTreeSet::new();
    let (mut published, mut refused) = (0, 0);
    for n in 0..20_000u64 {
        if random.below(2) == 0 {
            let words = 1 + random.below(60) as usize;
            match heap.publish(&mem, &vec![n; words]) {
                Ok(block) => {
                    assert!(given.insert(block.word()), "given twice");
                    let lines = heap::lines_for(words);
                    let range = block.line()..block.line() + lines;
                    assert!(live.range(range.clone()).next().is_none());
                    if let Some((&at, &(_, words, _))) = live.range(..range.start).next_back() {
                        assert!(at + heap::lines_for(words) <= range.start);
                    }
                    live.insert(block.line(), (block, words, n));
                    published += 1;
                }
                Err(_) => refused += 1,
            }
        } else if !live.is_empty() {
            let nth = random.below(live.len() as u64) as usize;
            let at = *live.keys().nth(nth).unwrap();
            let (block, words, n) = live.remove(&at).unwrap();
            assert_eq!(read(&mem, blocks, block, words), Ok(vec![n; words]));
            heap.retire(&mem, block, words);
        }
        if random.below(8) == 0 {
            for n in 0..2 {
                assert!(Rounds::new(sections, node(n)).step(&mem));
            }
            heap.collect(&mem, both());
        }
    }
    assert!(published > 5000 && refused > 100, "{published}, {refused}");
    let used: u64 = live
        .values()
        .map(|&(_, words, _)| heap::lines_for(words))
        .sum();
    let (free, retired) = heap.room();
    assert_eq!(used + free + retired, 200, "no line is lost");
}

#[test]
fn forged_references_lead_nowhere() {
    let (mem, _, blocks, mut heap) = new(4);
    heap.publish(&mem, &[1]).unwrap();
    assert_eq!(Ref::from_word(0), None);
    assert_eq!(Ref::from_word(0xff_ffff), None, "line 0");
    for word in [u64::MAX, 5 << 24 | 1, 1 << 24 | 9] {
        let forged = Ref::from_word(word).unwrap();
        assert_eq!(blocks.read(&mem, forged, 0), Err(block::Gone), "{word:#x}");
        assert_eq!(blocks.read(&mem, forged, u64::MAX >> 30), Err(block::Gone));
    }
    assert_eq!(
        heap.publish(&mem, &[0; 97 * PAYLOAD]),
        Err(HeapError::TooLarge)
    );
}
