//! Contents of frames that change hands between nodes without coherent caches: once a
//! frame may be reused, no node finds in it what it held before, neither those that looked into it
//! nor those that filled it.

use crate::common;

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;

use common::{Unrecorded, frame, node, pools, w0};
use dyad_abi::user::PAGE_SIZE;
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::{Fault, Habits, StaleMem};
use dyad_retype::{
    Epoch, EpochSource, FrameRef, FrameTable, FrameType, FrameWord, KernelKind, Log, Refused, Use,
    WeakRef,
};
use dyad_shm::pool::{PhysAddr, PoolId};

const KIND: KernelKind = KernelKind::THREAD;
const THREAD: Use = Use::Kernel(KIND);
const FRAME: u64 = 1;
/// How much of the frame is filled.
const FILLED: u64 = if cfg!(miri) { 64 } else { PAGE_SIZE };

/// When the nodes go through rounds by themselves.
#[derive(Clone, Copy, PartialEq)]
enum Eager {
    Never,
    /// As soon as something is logged.
    AtTheLog,
    /// As soon as a stamp is taken.
    AtTheStamp,
}

/// Two nodes that go through rounds. Node 1 uses the object whenever its reference is good.
struct Rounds<'m> {
    mem: &'m StaleMem,
    eager: Eager,
    object: Cell<Option<WeakRef>>,
    now: Cell<u64>,
    published: [Cell<u64>; 2],
    lines: RefCell<Vec<PhysAddr>>,
    objects: RefCell<Vec<FrameRef>>,
    read: [Cell<(usize, usize)>; 2],
}

impl<'m> Rounds<'m> {
    fn new(mem: &'m StaleMem, eager: Eager) -> Rounds<'m> {
        Rounds {
            mem,
            eager,
            object: Cell::new(None),
            now: Cell::new(1),
            published: [Cell::new(1), Cell::new(1)],
            lines: RefCell::default(),
            objects: RefCell::default(),
            read: [Cell::new((0, 0)), Cell::new((0, 0))],
        }
    }

    /// What node 1 does with a reference that it checks first: what it reads of the object.
    fn look(&self) -> Option<u64> {
        let far = self.mem.node(1);
        let t: FrameTable<'_, _> = FrameTable::new(&far, pools(), node(1));
        let object = self.object.get().filter(|&o| t.is_object(o, KIND))?;
        Some(far.load(object.frame.address(), Relaxed))
    }

    fn round(&self, n: usize) {
        self.now.set(self.now.get() + 1);
        let epoch = self.now.get();
        let (mut line, mut object) = self.read[n].get();
        for &at in &self.lines.borrow()[line..] {
            self.mem.node(n).invalidate(at, 8);
            line += 1;
        }
        // Some CPU still is in the kernel.
        if n == 1 {
            self.look();
        }
        for f in &self.objects.borrow()[object..] {
            self.mem.node(n).invalidate(f.address(), PAGE_SIZE);
            object += 1;
        }
        self.read[n].set((line, object));
        self.published[n].set(epoch);
        if n == 1 {
            self.look();
        }
    }

    fn rounds(&self) {
        for n in [0, 1, 0] {
            self.round(n);
        }
    }
}

impl EpochSource for Rounds<'_> {
    fn now(&self) -> Epoch {
        let now = Epoch::new(self.now.get()).unwrap();
        if self.eager == Eager::AtTheStamp {
            self.rounds();
        }
        now
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        self.published.iter().all(|p| p.get() > stamp.get())
    }
}

impl Log for Rounds<'_> {
    fn line(&self, at: PhysAddr) {
        self.lines.borrow_mut().push(at);
    }

    fn object(&self, frame: FrameRef) {
        self.objects.borrow_mut().push(frame);
        if self.eager == Eager::AtTheLog {
            self.rounds();
        }
    }
}

fn memory() -> StaleMem {
    StaleMem::with_habits(2, 0, Habits::LAZY)
}

fn formatted<M: GlobalMem>(mem: &M, n: u64) -> FrameTable<'_, M> {
    let t = FrameTable::new(mem, pools(), node(n));
    if n == 0 {
        t.format(PoolId::Cxl, &(FRAME..FRAME + 1), FRAME..FRAME + 1)
            .unwrap();
    }
    t
}

/// Fills the frame with a word and puts it to use.
fn fill<M: GlobalMem>(
    (t, mem): (&FrameTable<'_, M>, &M),
    word: u64,
    used: Use,
    epochs: &impl EpochSource,
) -> Result<WeakRef, Refused> {
    let mut claim = t.from_untyped_begin(frame(FRAME), None, epochs, &Unrecorded)?;
    for i in 0..FILLED / 8 {
        mem.store(frame(FRAME).address().add(8 * i), word, Relaxed);
    }
    claim.frame_done(t)?;
    t.from_untyped_finish(claim, used, &Unrecorded)
}

/// An object that node 1 uses is given up, and its frame holds another one as soon as it may.
fn object_given_up(eager: Eager) {
    let mem = memory();
    let rounds = Rounds::new(&mem, eager);
    let zero = mem.node(0);
    let t = formatted(&zero, 0);
    let old = fill((&t, &zero), 7, THREAD, &rounds).unwrap();
    rounds.object.set(Some(old));
    assert_eq!(rounds.look(), Some(7));
    t.to_untyped(old, THREAD, &rounds, &Unrecorded, &rounds)
        .unwrap();
    if eager != Eager::AtTheStamp {
        rounds.rounds();
    }
    reused(&rounds, (&t, &zero));
}

/// A node dies in the middle of giving an object up, and is recovered.
fn object_recovered() {
    let mem = memory();
    let rounds = Rounds::new(&mem, Eager::AtTheStamp);
    let zero = mem.node(0);
    let t = formatted(&zero, 0);
    let old = fill((&t, &zero), 7, THREAD, &rounds).unwrap();
    rounds.object.set(Some(old));
    assert_eq!(rounds.look(), Some(7));
    let dying = FrameWord::new(old.version, FrameType::Retyping(node(2)));
    zero.swap(w0(FRAME), dying.bits());
    let recovered = t.recover_frame(old, node(2), &rounds, &rounds);
    assert_eq!(recovered, Ok(true));
    reused(&rounds, (&t, &zero));
}

fn reused<M: GlobalMem>(rounds: &Rounds<'_>, (t, mem): (&FrameTable<'_, M>, &M)) {
    let new = fill((t, mem), 8, THREAD, rounds).unwrap();
    assert_eq!(rounds.look(), None, "an old reference is good for ever");
    rounds.object.set(Some(new));
    assert_eq!(rounds.look(), Some(8), "what the frame held before");
}

#[test]
fn objects_that_are_given_up_are_forgotten() {
    for eager in [Eager::Never, Eager::AtTheLog, Eager::AtTheStamp] {
        object_given_up(eager);
    }
    object_recovered();
}

/// A node that had done its change may have died before its log.
#[test]
fn a_frame_is_logged_by_whoever_recovers_it_in_each_case() {
    let mem = memory();
    let rounds = Rounds::new(&mem, Eager::Never);
    let zero = mem.node(0);
    let t = formatted(&zero, 0);
    let old = fill((&t, &zero), 7, THREAD, &rounds).unwrap();
    t.to_untyped(old, THREAD, &rounds, &Unrecorded, &Unrecorded)
        .unwrap();
    let recovered = t.recover_frame(old, node(0), &rounds, &rounds);
    assert_eq!(recovered, Ok(false), "it was over");
    assert_eq!(*rounds.objects.borrow(), [frame(FRAME)]);
    assert_eq!(*rounds.lines.borrow(), [w0(FRAME)]);
}

/// User memory is logged by the rows that unmap it. What has never been mapped is not, and who has
/// filled it must not remember.
#[test]
fn who_initialises_a_frame_keeps_no_copy() {
    let mem = memory();
    let rounds = Rounds::new(&mem, Eager::Never);
    let (zero, one) = (mem.node(0), mem.node(1));
    let (a, b) = (formatted(&zero, 0), formatted(&one, 1));
    let user = fill((&a, &zero), 7, Use::User, &rounds).unwrap();
    a.to_untyped(user, Use::User, &rounds, &Unrecorded, &rounds)
        .unwrap();
    rounds.rounds();
    fill((&b, &one), 8, THREAD, &rounds).unwrap();
    let seen = zero.load(frame(FRAME).address(), Relaxed);
    assert_eq!(seen, 8, "what it had filled the frame with before");
}

/// What a node had stored before it abandoned a claim does not come to memory later.
#[test]
fn who_abandons_a_claim_keeps_no_stores() {
    let mem = memory();
    let rounds = Rounds::new(&mem, Eager::Never);
    let (zero, one) = (mem.node(0), mem.node(1));
    let (a, b) = (formatted(&zero, 0), formatted(&one, 1));
    let at = frame(FRAME).address();
    let claim = a.from_untyped_begin(frame(FRAME), None, &rounds, &Unrecorded);
    zero.store(at, 7, Relaxed);
    a.from_untyped_abandon(claim.unwrap(), &Unrecorded).unwrap();
    fill((&b, &one), 8, THREAD, &rounds).unwrap();
    mem.evict_all(0);
    assert_eq!(mem.in_memory(at), 8, "undone");
    let lost = |f: &Fault| !matches!(f, Fault::StaleRead { .. });
    assert!(!mem.faults().iter().any(lost));
}
