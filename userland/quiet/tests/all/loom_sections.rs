//! In any interleaving and with weak ordering: what a reader has found within a section is not reused before it ends; and what
//! that needs, shown by taking fences and orders away, one place in the source after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_coherence::LINE_BYTES;
use dyad_coherence::model::mutant::{Orders, Site, try_each};
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_quiet::section::{BYTES, READERS};
use dyad_quiet::{Blocks, Root, Rounds, Sections};
use dyad_shm::PhysAddr;
use loom::thread;

const ROOT: u64 = dyad_abi::boot::CXL_BASE;
const SECTIONS: u64 = ROOT + LINE_BYTES;
const BLOCKS: u64 = SECTIONS + BYTES;
/// The word of reader 0 of node 1.
const READER: u64 = SECTIONS + 2 * MAX_NODES as u64 * LINE_BYTES + READERS as u64 * 8;
/// What node 1 has seen of node 0.
const SEEN: u64 = SECTIONS + (MAX_NODES as u64 + 1) * LINE_BYTES;

fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

fn memory(lacks: Lacks, orders: &Orders) -> Arc<LoomMem> {
    let tracked = [ROOT, SECTIONS, SEEN, READER, BLOCKS, BLOCKS + 8];
    let lines = (ROOT..BLOCKS + LINE_BYTES).step_by(8);
    let plain: Vec<u64> = lines.filter(|at| !tracked.contains(at)).collect();
    Arc::new(LoomMem::new(lacks, &tracked.map(|at| (at, 0)), &plain).with_orders(orders))
}

/// What the model does not show. Orders of stamps matter to caches that give lines away, and to those that are not coherent. Other
/// orders keep loads before what is stored after them elsewhere, which loom does not explore, or are those of words that one
/// thread of this model reads and writes.
const SPARE: &[&str] = &[
    "order/quiet::block::publish::store#2",
    "order/quiet::block::read::load_permitted",
    "order/quiet::section::advance::store_through",
    "order/quiet::section::drop::store",
    "order/quiet::section::passed::load_fresh",
    "order/quiet::section::step::load",
    "order/quiet::section::step::load#2",
    "order/quiet::section::step::load_fresh",
    "order/quiet::section::step::store",
];

const OLD: u64 = 7;
const NEW: u64 = 8;

/// The writer takes a block away from its root, goes through a round of the reader's node, and reuses the block if it may; a
/// reader uses it meanwhile.
fn reuse(lacks: Lacks, orders: &Orders) {
    let reused = Arc::new(AtomicBool::new(false));
    let (seen, orders) = (reused.clone(), orders.clone());
    explore(None, move || {
        let mem = memory(lacks, &orders);
        let (sections, root) = (Sections::new(PhysAddr(SECTIONS)), Root::at(PhysAddr(ROOT)));
        let blocks = Blocks::new(PhysAddr(BLOCKS), 1);
        let block = blocks.publish(&*mem, (1, 1), 1, &[OLD]);
        root.write(&*mem, 0, Some(block));
        let m = mem.clone();
        // The one that changes less starts last.
        let reader = thread::spawn(move || {
            let _section = sections.begin(&*m, node(1), 0);
            if let Some(found) = root.read(&*m)[0] {
                let read = blocks.read(&*m, found, 0).map(|words| words[0]);
                assert_eq!(read, Ok(OLD), "used after it was reused");
            }
        });
        root.write(&*mem, 0, None);
        sections.advance(&*mem, node(0));
        Rounds::new(sections, node(1)).step(&*mem);
        if sections.passed(&*mem, node(0), [node(1)].into_iter()) > 0 {
            blocks.publish(&*mem, (1, 1), 2, &[NEW]);
            seen.store(true, Relaxed);
        }
        reader.join().unwrap();
    });
    assert!(reused.load(Relaxed), "nothing was ever reused");
}

/// Who finds a reference finds the block.
fn publish(lacks: Lacks, orders: &Orders) {
    let found = Arc::new(AtomicBool::new(false));
    let (seen, orders) = (found.clone(), orders.clone());
    explore(None, move || {
        let mem = memory(lacks, &orders);
        let root = Root::at(PhysAddr(ROOT));
        let blocks = Blocks::new(PhysAddr(BLOCKS), 1);
        let m = mem.clone();
        let writer = thread::spawn(move || {
            let block = blocks.publish(&*m, (1, 1), 1, &[NEW]);
            root.write(&*m, 0, Some(block));
        });
        if let Some(block) = root.read(&*mem)[0] {
            let read = blocks.read(&*mem, block, 0).map(|words| words[0]);
            assert_eq!(read, Ok(NEW));
            seen.store(true, Relaxed);
        }
        writer.join().unwrap();
    });
    assert!(found.load(Relaxed), "nothing was ever found");
}

#[test]
fn what_a_section_has_found_is_not_reused() {
    reuse(Lacks::Nothing, &Orders::all());
}

#[test]
fn what_is_found_is_published() {
    publish(Lacks::Nothing, &Orders::all());
}

#[test]
#[should_panic(expected = "used after it was reused")]
fn mutant_without_fences() {
    reuse(Lacks::Fences, &Orders::all());
}

#[test]
fn each_fence_and_order_is_needed() {
    let mut needed = BTreeSet::new();
    let mut spare = BTreeSet::new();
    for scenario in [reuse, publish] {
        let verdict = try_each(move |orders| scenario(Lacks::Nothing, orders));
        needed.extend(verdict.caught.iter().filter_map(Site::name));
        spare.extend(verdict.survived.iter().filter_map(Site::name));
    }
    println!("{needed:#?}");
    let spare: Vec<_> = spare.difference(&needed).map(String::as_str).collect();
    assert_eq!(spare, SPARE);
}
