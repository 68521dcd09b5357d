//! Rounds between nodes whose caches nobody keeps coherent: after one nothing is stale, and the
//! protocol's own words are not read stale, whatever the caches do.

mod common;

use std::sync::atomic::Ordering;

use common::{AREA, SUPERBLOCK, cpu, node};
use dyad_abi::CpuId;
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::{Habits, StaleMem};
use dyad_quiesce::{
    Idle, IntentRecord, Intents, LogWriter, NodeHardware, Progress, Quiescence, Round, Row, Touched,
};
use dyad_shm::{FrameRef, PhysAddr, Version};

const OBJECT: PhysAddr = PhysAddr(AREA.0 + 0x100_0000);
const FRAME: PhysAddr = PhysAddr(AREA.0 + 0x200_0000);

/// The caches of one node.
struct Caches<'m> {
    mem: &'m StaleMem,
    node: usize,
    /// A mutant drops nothing that logs name.
    drops: bool,
}

impl NodeHardware for Caches<'_> {
    fn writeback_invalidate(&self, at: PhysAddr, len: u64) {
        if self.drops {
            self.mem.node(self.node).invalidate(at, len);
        }
    }
    fn flush_everything(&self, _piece: u64) -> bool {
        self.mem.evict_all(self.node);
        true
    }
    fn flush_tlb(&self) {}
    fn revalidate(&self) {}
    fn detach(&self) {}
    fn call(&self, _cpu: CpuId) {}
}

type Outcome = Result<(), String>;

fn check(holds: bool, why: &str) -> Outcome {
    if holds { Ok(()) } else { Err(why.to_string()) }
}

fn whole_round<M: GlobalMem>(
    q: &Quiescence<'_, M>,
    n: u64,
    r: &mut Round,
    c: &Caches<'_>,
) -> Outcome {
    for _ in 0..100 {
        match r.flush_step(q, c, 64).map_err(|e| e.to_string())? {
            Progress::Working => {}
            Progress::Waiting(cpu) => check(q.acknowledge(node(n), cpu, c), "no request seen")?,
            Progress::Published(_) => return Ok(()),
        }
    }
    Err("the round never ends".to_string())
}

/// Node 0 changes an object and a user frame, again and again; node 1 holds copies.
fn changes(mem: &StaleMem, drops: bool) -> Outcome {
    let [zero, one] = [0, 1].map(|n| mem.node(n));
    let q0 = Quiescence::new(&zero, SUPERBLOCK, AREA).map_err(|e| e.to_string())?;
    let q1 = Quiescence::new(&one, SUPERBLOCK, AREA).map_err(|e| e.to_string())?;
    let [c0, c1] = [0, 1].map(|node| Caches { mem, node, drops });
    let (mut r0, _) = q0.join(node(0), cpu(0), &c0).map_err(|e| e.to_string())?;
    let (mut r1, _) = q1.join(node(1), cpu(0), &c1).map_err(|e| e.to_string())?;
    let mut log = LogWriter::attach(&q0, node(0), cpu(0));
    for n in 1..6 {
        for at in [OBJECT, FRAME] {
            one.load(at, Ordering::Relaxed);
            zero.swap(at, n);
        }
        log.record(&q0, Touched::Line(OBJECT));
        log.record(&q0, Touched::User(FRAME));
        let stamp = q0.now();
        check(q0.quiesced(stamp).is_err(), "quiesced before any round")?;
        // Node 0's own round would write back what it has failed to.
        whole_round(&q1, 1, &mut r1, &c1)?;
        let early = q0.quiesced(stamp).is_ok();
        check(!early, "quiesced before node 0's round")?;
        whole_round(&q0, 0, &mut r0, &c0)?;
        check(q0.quiesced(stamp).is_ok(), "not quiesced after all rounds")?;
        for at in [OBJECT, FRAME] {
            let seen = one.load(at, Ordering::Relaxed);
            check(seen == n, "stale after a round")?;
        }
        if n % 2 == 0 {
            let idle = r1.idle_step(&q1, &c1, cpu(0), 1000, || false);
            check(idle == Idle::Asleep, "does not fall asleep")?;
            check(q0.publication(node(1)).awake() == 0, "not seen asleep")?;
            q1.wake(node(1), cpu(0));
            check(q0.publication(node(1)).awake() == 1, "not seen awake")?;
        }
        let frame = FrameRef::of(FRAME).ok_or("no frame")?;
        let intent = IntentRecord::frame(Row::Unmap, frame, Version(n as u32));
        let [theirs, seen] = [q1.intents(node(1), cpu(0)), q0.intents(node(1), cpu(0))];
        theirs.begin(&intent);
        check(seen.read() == Some(intent), "intent not seen")?;
        theirs.clear();
        check(seen.read().is_none(), "intent still seen")?;
    }
    q0.die(node(1)).map_err(|e| e.to_string())?;
    let claim = q0.recover(node(1), node(0)).map_err(|e| e.to_string())?;
    q0.recovered(claim).map_err(|e| e.to_string())?;
    q1.join(node(1), cpu(0), &c1).map_err(|e| e.to_string())?;
    Ok(())
}

#[test]
fn nothing_is_stale_after_a_round() {
    for seed in 0..40 {
        let mem = StaleMem::new(2, seed);
        changes(&mem, true).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn mutant_that_drops_nothing() {
    let mem = StaleMem::with_habits(2, 0, Habits::LAZY);
    let why = changes(&mem, false).unwrap_err();
    assert_eq!(why, "stale after a round");
}
