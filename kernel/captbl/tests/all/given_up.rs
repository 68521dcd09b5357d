//! Leaves that are given up with capabilities in them, on machines without
//! coherent caches, with frames and rounds as they are: no lookup finds an old capability in a new leaf in the
//! same frame, wherever it hangs.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

use dyad_abi::boot::CXL_BASE;
use dyad_abi::cap::{CapIndex, CapType, Rights};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Error, NodeId};
use dyad_captbl::{Contents, Owner, Parts, Pins, Refused, SlotPlace, Table};
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::{Habits, StaleMem, StaleNode};
use dyad_quiesce::{DirtyEntry, LogWriter, NodeHardware, Progress, Quiescence, Round};
use dyad_retype::{FrameRef, FrameTable, KernelKind, Log, PoolTables, Use, WeakRef};
use dyad_shm::pool::{PhysAddr, PoolId};
use dyad_shm::protocol::Intents;

type Mem<'m> = StaleNode<'m>;

const SUPERBLOCK: PhysAddr = PhysAddr(CXL_BASE);
const AREA: PhysAddr = PhysAddr(CXL_BASE + 0x100_0000);
const RECORDS: PhysAddr = PhysAddr(CXL_BASE + 0x200_0000);
/// Untyped frames.
const FIRST: u64 = 0x3000;

/// How much of a new table is zeroed: all, or what is looked at.
const ZEROED: u64 = if cfg!(miri) { 512 } else { PAGE_SIZE };

fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

fn cpu() -> CpuId {
    CpuId::new(0).unwrap()
}

fn kind(level: u8) -> KernelKind {
    KernelKind::captbl(level).unwrap()
}

struct Caches<'m>(Mem<'m>);

impl NodeHardware for Caches<'_> {
    fn writeback_invalidate(&self, at: PhysAddr, len: u64) {
        self.0.invalidate(at, len);
    }
    fn flush_everything(&self, _: u64) -> bool {
        true
    }
    fn flush_tlb(&self) {}
    fn revalidate(&self) {}
    fn detach(&self) {}
    fn call(&self, _: CpuId) {}
}

/// One node.
struct View<'m> {
    mem: &'m Mem<'m>,
    node: NodeId,
    frames: FrameTable<'m, Mem<'m>>,
    table: Table<'m, Mem<'m>>,
    q: Quiescence<'m, Mem<'m>>,
    log: RefCell<LogWriter>,
    round: RefCell<Round>,
    /// A mutant logs no objects.
    logs_objects: bool,
}

impl<'m> View<'m> {
    fn new(mem: &'m Mem<'m>, n: usize, logs_objects: bool) -> View<'m> {
        let pools = PoolTables::new().with(PoolId::Cxl, RECORDS, FIRST + 8);
        let q = Quiescence::new(mem, SUPERBLOCK, AREA).unwrap();
        let (round, incarnation) = q.join(node(n), cpu(), &Caches(*mem)).unwrap();
        let owner = Owner {
            node: node(n),
            incarnation,
        };
        View {
            mem,
            node: node(n),
            frames: FrameTable::new(mem, pools, node(n)),
            table: Table::new(mem, owner),
            q,
            log: RefCell::new(LogWriter::attach(&q, node(n), cpu())),
            round: RefCell::new(round),
            logs_objects,
        }
    }

    fn round(&self) {
        let hardware = Caches(*self.mem);
        let mut round = self.round.borrow_mut();
        loop {
            match round.flush_step(&self.q, &hardware, 64).unwrap() {
                Progress::Working => {}
                Progress::Waiting(c) => assert!(self.q.acknowledge(self.node, c, &hardware)),
                Progress::Published(_) => return,
            }
        }
    }

    fn with<R>(
        &self,
        f: impl FnOnce(&Parts<'_, Quiescence<'m, Mem<'m>>, Here<'_, 'm>, Self>) -> R,
    ) -> R {
        f(&Parts {
            epochs: &self.q,
            intents: &Here(self),
            log: self,
        })
    }

    fn make(&self, n: u64, level: u8) -> WeakRef {
        let frame = frame(n);
        let here = Here(self);
        let mut claim = self
            .frames
            .from_untyped_begin(frame, None, &self.q, &here)
            .unwrap();
        for i in 0..ZEROED / 8 {
            self.mem.store(frame.address().add(8 * i), 0, Relaxed);
        }
        claim.frame_done(&self.frames).unwrap();
        self.frames
            .from_untyped_finish(claim, Use::Kernel(kind(level)), &here)
            .unwrap()
    }
}

struct Here<'v, 'm>(&'v View<'m>);

impl Intents for Here<'_, '_> {
    fn begin(&self, record: &dyad_shm::intent::IntentRecord) {
        self.0.q.intents(self.0.node, cpu()).begin(record);
    }

    fn clear(&self) {
        self.0.q.intents(self.0.node, cpu()).clear();
    }
}

impl Log for View<'_> {
    fn line(&self, at: PhysAddr) {
        self.log.borrow_mut().record(&self.q, DirtyEntry::Line(at));
    }

    fn object(&self, frame: FrameRef) {
        if self.logs_objects {
            let what = DirtyEntry::Object(frame.address());
            self.log.borrow_mut().record(&self.q, what);
        }
    }
}

impl Pins for View<'_> {
    fn pin_leaf(&self, leaf: WeakRef) -> Result<(), Error> {
        Ok(self.frames.pin_kernel(leaf, kind(0))?)
    }

    fn pin_root(&self, root: WeakRef) -> Result<(), Error> {
        Ok(self.frames.pin_kernel(root, kind(1))?)
    }

    fn unpin(&self, frame: FrameRef) -> Result<(), Error> {
        Ok(self.frames.unpin(frame)?)
    }

    fn may_unpin(&self, leaf: FrameRef, root: FrameRef) -> Result<(), Error> {
        Ok(self.frames.may_unpin(leaf, root)?)
    }

    fn current(&self, frame: FrameRef) -> Result<WeakRef, Error> {
        Ok(self.frames.current(frame)?)
    }
}

fn frame(n: u64) -> FrameRef {
    FrameRef::of(PhysAddr(CXL_BASE + (FIRST + n) * PAGE_SIZE)).unwrap()
}

fn index(entry: u64, slot: u64) -> CapIndex {
    CapIndex::new(entry * 64 + slot).unwrap()
}

/// A leaf goes from one root to another, is given up with a capability in it, and its frame becomes
/// another leaf, under the first root. Node 1 looks all the time.
fn leaf_after_leaf(logs_objects: bool) -> Result<(), String> {
    let mem = StaleMem::with_habits(2, 0, Habits::LAZY);
    let (zero, one) = (mem.node(0), mem.node(1));
    let a = View::new(&zero, 0, logs_objects);
    let b = View::new(&one, 1, logs_objects);
    let rounds = || [&a, &b, &a].map(View::round);
    for n in 0..4 {
        let at = FIRST + n;
        a.frames
            .format(PoolId::Cxl, &(at..at + 1), at..at + 1)
            .unwrap();
    }
    let (root, other) = (a.make(0, 1), a.make(1, 1));
    let leaf = a.make(2, 0);
    let found = |root: WeakRef, entry| b.table.lookup(root.frame.address(), index(entry, 5));
    let contents = Contents {
        ty: CapType::Thread,
        rights: Rights(1),
        object: None,
        guard: None,
        payload: [0; 3],
    };
    let at = SlotPlace::new(leaf, 5).unwrap();
    a.with(|s| a.table.cons(root, 3, leaf, &a, s)).unwrap();
    a.with(|s| a.table.slot_activate(at, &contents, s)).unwrap();
    rounds();
    assert!(found(root, 3).is_ok());
    // The same leaf under another root: what is in it stays, and what is taken out is gone.
    a.with(|s| a.table.decons(root, 3, &a, s)).unwrap();
    a.with(|s| a.table.cons(other, 4, leaf, &a, s)).unwrap();
    rounds();
    assert_eq!(found(root, 3), Err(Refused::NoCap));
    assert!(found(other, 4).is_ok());
    a.with(|s| a.table.decons(other, 4, &a, s)).unwrap();
    a.with(|s| {
        let used = Use::Kernel(kind(0));
        a.frames.to_untyped(leaf, used, &a.q, s, s)
    })
    .unwrap();
    rounds();
    let new = a.make(2, 0);
    a.with(|s| a.table.cons(root, 5, new, &a, s)).unwrap();
    rounds();
    match found(root, 5) {
        Err(Refused::NoCap) => Ok(()),
        other => Err(format!("in a new leaf: {other:?}")),
    }
}

#[test]
fn a_new_leaf_in_an_old_frame_is_empty() {
    assert_eq!(leaf_after_leaf(true), Ok(()));
}

#[test]
fn mutant_given_up_without_its_lines_in_the_log() {
    let found = leaf_after_leaf(false).unwrap_err();
    assert!(found.contains("in a new leaf"));
}
