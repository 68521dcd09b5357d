//! Model checks: what was unpublished is not reused while somebody uses it, in any interleaving
//! and with any weak ordering; and what this needs, shown by taking it away.
//!
//! One word says whether an object is there, another is its contents. Node 0 takes the object
//! away, stamps it, and writes new contents if node 1 has moved on; node 1 looks at the first word
//! and then at the second. Node 0 itself does not count: its own CPU knows what it does.

use core::mem::{offset_of, size_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dyad_abi::{CpuId, NodeId};
use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_quiesce::{Epoch, Idle, NodeHardware, Progress, Quiescence, Round};
use dyad_shm::PhysAddr;
use dyad_shm::quiesce::{FlushLog, QuiesceArea};
use dyad_shm::superblock::{NodeEntry, NodeState, NodeWord, Superblock};
use loom::sync::Notify;
use loom::sync::atomic::Ordering;
use loom::thread;

const SUPERBLOCK: u64 = 0x40_0000_0000;
const AREA: u64 = 0x50_0000_0000;
const THERE: PhysAddr = PhysAddr(0x60_0000_0000);
const CONTENTS: PhysAddr = PhysAddr(0x60_0000_1000);
const NEW: u64 = 2;
const LINE: u64 = 64;
const START: u64 = 5;

fn node1() -> NodeId {
    NodeId::new(1).unwrap()
}

fn cpu(c: u64) -> CpuId {
    CpuId::new(c).unwrap()
}

/// Node 1 is live, its CPU 0 awake, and it has published the present epoch.
fn memory(lacks: Lacks) -> Arc<LoomMem> {
    let area = |offset: usize| AREA + offset as u64;
    let requests = offset_of!(QuiesceArea, requests);
    let acks = offset_of!(QuiesceArea, acknowledgements);
    let tracked = [
        (SUPERBLOCK + offset_of!(Superblock, epoch) as u64, START),
        (AREA + LINE, START << 16 | 1),
        (area(requests) + LINE, START),
        (area(acks) + 8 * LINE, START),
        (THERE.0, 1),
        (CONTENTS.0, 1),
    ];
    let state = |n: u64| {
        let entry = offset_of!(Superblock, nodes) as u64 + n * size_of::<NodeEntry>() as u64;
        SUPERBLOCK + entry + offset_of!(NodeEntry, state) as u64
    };
    let mut plain = vec![SUPERBLOCK, AREA];
    plain.extend((0..8).map(state));
    let logs = area(offset_of!(QuiesceArea, logs));
    plain.extend((0..64).map(|i| logs + i * size_of::<FlushLog>() as u64));
    let mem = LoomMem::new(lacks, &tracked, &plain);
    let live = NodeWord {
        state: NodeState::Live,
        incarnation: 1,
    };
    mem.store(PhysAddr(state(1)), live.bits(), Ordering::SeqCst);
    Arc::new(mem)
}

fn words(mem: &LoomMem) -> Quiescence<'_, LoomMem> {
    Quiescence::new(mem, PhysAddr(SUPERBLOCK), PhysAddr(AREA)).unwrap()
}

struct NoHardware;

impl NodeHardware for NoHardware {
    fn writeback_invalidate(&self, _at: PhysAddr, _len: u64) {}
    fn flush_everything(&self, _piece: u64) -> bool {
        true
    }
    fn flush_tlb(&self) {}
    fn revalidate(&self) {}
    fn detach(&self) {}
    fn call(&self, _cpu: CpuId) {}
}

fn find(mem: &LoomMem) -> bool {
    mem.load(THERE, Ordering::Acquire) == 1
}

fn look(mem: &LoomMem) {
    let seen = mem.load(CONTENTS, Ordering::Relaxed);
    assert_eq!(seen, 1, "reused under a node that uses it");
}

fn use_it(mem: &LoomMem) {
    if find(mem) {
        look(mem);
    }
}

/// What node 0 does. Two attempts, so that the round may come in between.
fn take_and_reuse(mem: &LoomMem, quiet: impl Fn(&Quiescence<'_, LoomMem>, Epoch) -> bool) -> bool {
    let q = words(mem);
    mem.cas(THERE, 1, 0).unwrap();
    let stamp = q.now();
    let reuse = quiet(&q, stamp);
    if reuse {
        mem.store(CONTENTS, NEW, Ordering::Relaxed);
    }
    reuse
}

fn by_protocol(q: &Quiescence<'_, LoomMem>, stamp: Epoch) -> bool {
    q.quiesced(stamp).is_ok()
}

/// Runs `reuser` against `user`; the thread that only reads starts last. The model must have
/// come to a reuse, or it has shown nothing.
fn against(
    lacks: Lacks,
    preemptions: Option<usize>,
    reuser: impl Fn(&LoomMem) -> bool + Clone + Send + Sync + 'static,
    user: impl Fn(&LoomMem) + Clone + Send + Sync + 'static,
) {
    let reused = Arc::new(AtomicBool::new(false));
    let seen = reused.clone();
    explore(preemptions, move || {
        let mem = memory(lacks);
        let (m, u) = (mem.clone(), user.clone());
        let other = thread::spawn(move || u(&m));
        if reuser(&mem) {
            seen.store(true, Relaxed);
        }
        other.join().unwrap();
    });
    assert!(reused.load(Relaxed), "nothing was ever reused");
}

fn use_round_use(mem: &LoomMem) {
    let q = words(mem);
    let mut round = Round::new(&q, node1());
    use_it(mem);
    let waiting = round.flush_step(&q, &NoHardware, 1000).unwrap();
    assert_eq!(waiting, Progress::Waiting(cpu(0)));
    q.acknowledge(node1(), cpu(0), &NoHardware);
    let done = round.flush_step(&q, &NoHardware, 1000).unwrap();
    assert!(matches!(done, Progress::Published(_)));
    use_it(mem);
}

#[test]
fn a_round_keeps_reuse_away_from_users() {
    let reuser = |m: &LoomMem| take_and_reuse(m, by_protocol);
    against(Lacks::Nothing, None, reuser, use_round_use);
}

#[test]
#[should_panic(expected = "reused under a node that uses it")]
fn mutant_without_fences() {
    let reuser = |m: &LoomMem| take_and_reuse(m, by_protocol);
    against(Lacks::Fences, None, reuser, use_round_use);
}

/// A1b.
#[test]
#[should_panic(expected = "reused under a node that uses it")]
fn mutant_published_as_much_instead_of_more() {
    let at_least = |q: &Quiescence<'_, LoomMem>, s| q.publication(node1()).epoch() >= s;
    let reuser = move |m: &LoomMem| take_and_reuse(m, at_least);
    against(Lacks::Nothing, None, reuser, use_round_use);
}

/// A1c.
#[test]
#[should_panic(expected = "reused under a node that uses it")]
fn mutant_stamp_taken_before_unpublishing() {
    let reuser = |m: &LoomMem| {
        let early = words(m).now();
        take_and_reuse(m, move |q, _| by_protocol(q, early))
    };
    against(Lacks::Nothing, None, reuser, use_round_use);
}

fn use_sleep_use(mem: &LoomMem) {
    let q = words(mem);
    let mut round = Round::new(&q, node1());
    use_it(mem);
    let idle = round.idle_step(&q, &NoHardware, cpu(0), 1000, || false);
    assert_eq!(idle, Idle::Asleep);
    q.wake(node1(), cpu(0));
    use_it(mem);
}

#[test]
fn a_node_that_sleeps_is_quiet_and_one_that_wakes_is_not() {
    let reuser = |m: &LoomMem| take_and_reuse(m, by_protocol);
    against(Lacks::Nothing, None, reuser, use_sleep_use);
}

#[test]
#[should_panic(expected = "reused under a node that uses it")]
fn mutant_woken_without_a_fence() {
    let reuser = |m: &LoomMem| take_and_reuse(m, by_protocol);
    against(Lacks::Fences, None, reuser, use_sleep_use);
}

/// L2.
#[test]
#[should_panic(expected = "reused under a node that uses it")]
fn mutant_use_before_withdrawal() {
    let reuser = |m: &LoomMem| take_and_reuse(m, by_protocol);
    against(Lacks::Nothing, None, reuser, |mem| {
        let q = words(mem);
        let mut round = Round::new(&q, node1());
        round.idle_step(&q, &NoHardware, cpu(0), 1000, || false);
        use_it(mem);
        q.wake(node1(), cpu(0));
    });
}

/// The node's round is driven by another of its CPUs than the one that uses the object; here the
/// driver is also who reuses it. `held`: the user acknowledges with the object in hand.
///
/// The driver is told when to look at the acknowledgement again, because loom does not try to
/// look later by itself: the user loads that word before it stores it.
fn driven_by_another_cpu(held: bool) {
    let reused = Arc::new(AtomicBool::new(false));
    let seen = reused.clone();
    explore(None, move || {
        let mem = memory(Lacks::Nothing);
        let passed = Arc::new(Notify::new());
        let (m, p) = (mem.clone(), passed.clone());
        let user = thread::spawn(move || {
            let found = find(&m);
            if found && !held {
                look(&m);
            }
            words(&m).acknowledge(node1(), cpu(0), &NoHardware);
            p.notify();
            if found && held {
                look(&m);
            }
            use_it(&m);
        });
        let q = words(&mem);
        let mut round = Round::new(&q, node1());
        mem.cas(THERE, 1, 0).unwrap();
        let stamp = q.now();
        let asked = round.flush_step(&q, &NoHardware, 1000).unwrap();
        if matches!(asked, Progress::Waiting(_)) {
            passed.wait();
            let _ = round.flush_step(&q, &NoHardware, 1000).unwrap();
        }
        if by_protocol(&q, stamp) {
            mem.store(CONTENTS, NEW, Ordering::Relaxed);
            seen.store(true, Relaxed);
        }
        user.join().unwrap();
    });
    assert!(reused.load(Relaxed), "nothing was ever reused");
}

#[test]
fn acknowledgements_of_another_cpu_are_enough() {
    driven_by_another_cpu(false);
}

#[test]
#[should_panic(expected = "reused under a node that uses it")]
fn mutant_acknowledged_with_a_reference_in_hand() {
    driven_by_another_cpu(true);
}
