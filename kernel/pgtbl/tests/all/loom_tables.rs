//! Model checks of the remote CPU drivers, with weak ordering: a walk never meets a table that is
//! not zeroed yet, of two mappings one wins, and the stamp of an unmapping covers every CPU that
//! may still have used the translation. The register of mutants takes away each ordering.

use std::sync::Arc;

use dyad_abi::{Isa, NodeId};
use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_pgtbl::{Epoch, FrameSource, Leaf, Level, MapError, Perms, Pte, RemoteCpu, encode};
use dyad_shm::PhysAddr;
use loom::sync::Mutex;
use loom::sync::atomic::Ordering;
use loom::thread;

const ROOT: PhysAddr = PhysAddr(0x4_0000_0000);
const EPOCH: PhysAddr = PhysAddr(0x40_0000_0048);
const OLD_CONTENTS: u64 = 0xdead_beec;

/// Memory of a root and some frames that hold anything; tracked is what a 1 GiB page at address
/// 0 takes: the first entry of each.
fn memory(lacks: Lacks, first_entry: u64) -> Arc<LoomMem> {
    let tracked = [
        (ROOT.0, first_entry),
        (EPOCH.0, 5),
        (ROOT.0 + 4096, OLD_CONTENTS),
        (ROOT.0 + 8192, OLD_CONTENTS),
    ];
    Arc::new(LoomMem::new(lacks, &tracked, &[]))
}

fn leaf(n: u64) -> Leaf {
    Leaf::user(PhysAddr(n << 30), Perms::WRITE)
}

/// Two frames behind the root.
struct Frames {
    mem: Arc<LoomMem>,
    free: Mutex<Vec<PhysAddr>>,
}

impl Frames {
    fn new(mem: &Arc<LoomMem>) -> Arc<Frames> {
        Arc::new(Frames {
            mem: mem.clone(),
            free: Mutex::new(vec![ROOT.add(4096), ROOT.add(8192)]),
        })
    }
}

impl FrameSource for Frames {
    fn alloc_table(&self) -> Option<PhysAddr> {
        let frame = self.free.lock().unwrap().pop()?;
        self.mem.store(frame, 0, Ordering::Relaxed);
        Some(frame)
    }

    fn free_table(&self, pa: PhysAddr) {
        self.free.lock().unwrap().push(pa);
    }
}

/// One node makes a table and maps, another walks. (The walker is the thread that starts later:
/// see [`dyad_coherence::model`] on what loom skips.)
fn walk_while_a_table_is_made(lacks: Lacks, isa: Isa) {
    let mem = memory(lacks, 0);
    let frames = Frames::new(&mem);
    let other = mem.clone();
    let walker = thread::spawn(move || RemoteCpu::new(&*other, isa, ROOT).walk(0));
    let t = RemoteCpu::new(&*mem, isa, ROOT);
    t.map(0, leaf(1), Level::L3, &*frames).unwrap();
    match walker.join().unwrap().pte {
        Pte::Empty { epoch: Epoch::ZERO } => {}
        pte => assert_eq!(pte, Pte::Leaf(leaf(1)), "old contents of a table seen"),
    }
}

#[test]
fn tables_are_zero_before_they_are_seen() {
    for isa in Isa::ALL {
        explore(None, move || {
            walk_while_a_table_is_made(Lacks::Nothing, isa)
        });
    }
}

#[test]
#[should_panic(expected = "old contents of a table seen")]
fn mutant_tables_published_without_release() {
    explore(None, || {
        walk_while_a_table_is_made(Lacks::RmwOrder, Isa::X86_64);
    });
}

#[test]
fn of_two_mappings_one_wins_and_no_frame_is_lost() {
    explore(None, || {
        let mem = memory(Lacks::Nothing, 0);
        let frames = Frames::new(&mem);
        let (other, others) = (mem.clone(), frames.clone());
        let one = thread::spawn(move || {
            RemoteCpu::new(&*other, Isa::Aarch64, ROOT).map(0, leaf(1), Level::L3, &*others)
        });
        let t = RemoteCpu::new(&*mem, Isa::Aarch64, ROOT);
        let two = t.map(0, leaf(2), Level::L3, &*frames);
        let one = one.join().unwrap();
        let won = match (one, two) {
            (Ok(()), Err(MapError::Exists(l))) if l == leaf(1) => 1,
            (Err(MapError::Exists(l)), Ok(())) if l == leaf(2) => 2,
            other => panic!("{other:?}"),
        };
        assert_eq!(t.walk(0).pte, Pte::Leaf(leaf(won)));
        assert_eq!(frames.free.lock().unwrap().len(), 1);
    });
}

type Unmap = fn(&LoomMem) -> u64;

fn unmap(mem: &LoomMem) -> u64 {
    let t = RemoteCpu::new(mem, Isa::X86_64, ROOT);
    let mut stamp = 0;
    t.unmap(
        0,
        NodeId::new(1).unwrap(),
        |_, _| (),
        || {
            stamp = mem.load(EPOCH, Ordering::Relaxed);
            Epoch::saturating(stamp)
        },
    )
    .unwrap();
    stamp
}

/// One node unmaps; a CPU starts round `e` (takes a new epoch, fence, flushes its TLB) and uses
/// the page again. If it still gets the translation, publishing `e` must not let the frame be
/// reused: the stamp must not be older.
fn unmap_during_a_round(lacks: Lacks, unmap: Unmap) {
    let mem = memory(lacks, 0);
    // A table at the first frame, with the leaf; made by hand, so that nothing orders it but the
    // start of the other thread.
    let table = encode(Isa::X86_64, Pte::Table(ROOT.add(4096)), Level::L4).unwrap();
    let entry = encode(Isa::X86_64, Pte::Leaf(leaf(1)), Level::L3).unwrap();
    mem.store(ROOT, table, Ordering::Relaxed);
    mem.store(ROOT.add(4096), entry, Ordering::Relaxed);
    let other = mem.clone();
    let cpu = thread::spawn(move || {
        let e = other.add(EPOCH, 1) + 1;
        other.fence();
        let used = other.load(ROOT.add(4096), Ordering::Relaxed) == entry;
        (e, used)
    });
    let stamp = unmap(&mem);
    let (e, used) = cpu.join().unwrap();
    let reusable = e > stamp;
    assert!(!(used && reusable), "reused under a live translation");
}

#[test]
fn stamps_cover_every_cpu_that_may_use_the_translation() {
    explore(None, || unmap_during_a_round(Lacks::Nothing, unmap));
}

#[test]
#[should_panic(expected = "reused under a live translation")]
fn mutant_stamp_taken_before_the_entry_is_cleared() {
    explore(None, || {
        unmap_during_a_round(Lacks::Nothing, |mem| {
            let stamp = mem.load(EPOCH, Ordering::Relaxed);
            unmap(mem);
            stamp
        });
    });
}
