//! Reuse against use on the back end of coherent machines, with the orders that kernels have:
//! threads on the host's CPUs, and under Miri on a machine that is as weak as the language allows,
//! once for each of many seeds (`cargo xtask miri`).

use crate::common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::*;
use dyad_coherence::{Coherent, GlobalMem};
use dyad_quiesce::{Idle, Progress, Quiescence, Round};
use dyad_shm::quiesce::QuiesceArea;
use dyad_shm::{FusedMap, PhysAddr};

/// Whether the object is there.
const THERE: PhysAddr = PhysAddr(AREA.0 - 4096);
/// The object: odd until it is reused.
const CONTENTS: PhysAddr = PhysAddr(AREA.0 - 2 * 4096);
const NEW: u64 = 2;
const TIMES: u64 = if cfg!(miri) { 3 } else { 5_000 };

type Mem<'m> = Coherent<'m>;

/// Superblock, object and area.
fn memory() -> FusedMap {
    let bytes = AREA.0 - SUPERBLOCK.0 + size_of::<QuiesceArea>() as u64;
    FusedMap::leaked(bytes.div_ceil(4096) as usize)
}

/// Looks whether the object is there, and then works with it for a while.
fn use_it(mem: &Mem<'_>) {
    if mem.load(THERE, Ordering::Acquire) == 1 {
        for _ in 0..3 {
            thread::yield_now();
            let seen = mem.load(CONTENTS, Ordering::Relaxed);
            assert_eq!(seen % 2, 1, "reused under a node that uses it");
            mem.store(CONTENTS, seen + 2, Ordering::Relaxed);
        }
    }
}

/// Node 0 takes the object away and reuses it as soon as it may; node 1 does `user`, and then goes
/// through rounds, so that this comes. Node 0 itself does not count: it knows what it does.
fn against(user: impl Fn(&Mem<'_>, &Quiescence<'_, Mem<'_>>, &mut Round) + Sync) {
    let map = memory();
    let mem = Coherent(&map);
    let q = Quiescence::new(&mem, SUPERBLOCK, AREA).unwrap();
    let mut round = q.join(node(1), cpu(0), &Hardware::default()).unwrap().0;
    for _ in 0..TIMES {
        mem.store(CONTENTS, 1, Ordering::Relaxed);
        mem.store(THERE, 1, Ordering::Release);
        let (start, reused) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|s| {
            let user = s.spawn(|| {
                start.wait();
                user(&mem, &q, &mut round);
                while !reused.load(Ordering::Relaxed) {
                    drive(&q, &mut round);
                    thread::yield_now();
                }
            });
            start.wait();
            mem.cas(THERE, 1, 0).unwrap();
            let stamp = q.now();
            while q.quiesced(stamp).is_err() {
                if user.is_finished() {
                    // It has failed, which the end of the scope says.
                    return;
                }
                thread::yield_now();
            }
            let seen = mem.load(CONTENTS, Ordering::Relaxed);
            let last = mem.swap(CONTENTS, NEW);
            reused.store(true, Ordering::Relaxed);
            assert_eq!(last, seen, "reused before the last use");
        });
        let after = mem.load(CONTENTS, Ordering::Relaxed);
        assert_eq!(after, NEW, "used after it was reused");
    }
}

/// A whole round of node 1, whose CPU 0 alone is awake.
fn drive(q: &Quiescence<'_, Mem<'_>>, round: &mut Round) {
    let hw = Hardware::default();
    loop {
        match round.flush_step(q, &hw, 1000).unwrap() {
            Progress::Working => {}
            Progress::Waiting(c) => assert!(q.acknowledge(node(1), c, &hw)),
            Progress::Published(_) => return,
        }
    }
}

#[test]
fn rounds_keep_reuse_away_from_users() {
    against(|mem, q, round| {
        use_it(mem);
        drive(q, round);
        use_it(mem);
    });
}

#[test]
fn a_node_that_sleeps_is_quiet_and_one_that_wakes_is_not() {
    against(|mem, q, round| {
        let hw = Hardware::default();
        use_it(mem);
        assert_eq!(
            round.idle_step(q, &hw, cpu(0), 1000, || false),
            Idle::Asleep
        );
        q.wake(node(1), cpu(0));
        use_it(mem);
    });
}
