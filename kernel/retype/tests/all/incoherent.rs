//! Frames between nodes without coherent caches: every row sees what is so in memory,
//! whatever the caches hold. The register of mutants leaves out each flush.

use crate::common;

use std::sync::atomic::Ordering::Relaxed;

use common::{Clock, Unrecorded, frame, node, pools, w0};
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::mutant::Flushes;
use dyad_coherence::stale::{StaleMem, Task, pause};
use dyad_retype::{FrameTable, FrameType, KernelKind, Order, Refused, Use};
use dyad_shm::pool::PoolId;

const THREAD: Use = Use::Kernel(KernelKind::THREAD);
const SEEDS: u64 = if cfg!(miri) { 2 } else { 40 };
const STEPS: u64 = 40_000;

type Outcome = Result<(), String>;

/// Memory of which every node has old copies.
fn memory(seed: u64) -> StaleMem {
    let mem = StaleMem::new(2, seed);
    for n in 0..2 {
        for at in [w0(0), w0(4), frame(1).address()] {
            mem.node(n).load(at, Relaxed);
        }
    }
    mem
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: {found:?}, not {expected:?}"))
    }
}

fn table<M: GlobalMem>(mem: &M, n: u64) -> FrameTable<'_, M> {
    FrameTable::new(mem, pools(), node(n))
}

/// A frame goes from node to node, each of which must see what the other has done.
fn hand_over(mem: &StaleMem, flushes: &Flushes) -> Outcome {
    let (zero, one) = (flushes.on(mem.node(0)), flushes.on(mem.node(1)));
    let (a, b) = (table(&zero, 0), table(&one, 1));
    let clock = Clock::default();
    let text = |r: Refused| r.to_string();
    a.format(PoolId::Cxl, &(0..8), 0..8).map_err(text)?;
    let order = |n| Order::new(n).unwrap();
    let half = |h: u64| b.split(frame(h), &Unrecorded).map_err(text);
    for (h, other) in [(0, 4), (0, 2), (0, 1)] {
        same("split", half(h)?, frame(other))?;
    }
    let left = a.head(frame(3)).map_err(text)?;
    let right = (frame(2), FrameType::Untyped(order(1)));
    same("after the splits", (left.0, left.1.ty), right)?;
    let claim = a.from_untyped_begin(frame(1), None, &clock, &Unrecorded);
    let mut claim = claim.map_err(text)?;
    let contents = frame(1).address();
    for i in 0..512 {
        zero.store(contents.add(8 * i), 7, Relaxed);
    }
    claim.frame_done(&a).map_err(text)?;
    let done = a.from_untyped_finish(claim, THREAD, &Unrecorded);
    let weak = done.map_err(text)?;
    same("check", b.check(weak, THREAD), Ok(()))?;
    same("contents", one.load_fresh(contents, Relaxed), 7)?;
    b.pin_kernel(weak, KernelKind::THREAD).map_err(text)?;
    let up = || {
        a.to_untyped(weak, THREAD, &clock, &Unrecorded, &Unrecorded)
            .map(|_| ())
    };
    same("give up", up(), Err(Refused::InUse))?;
    // It has a copy of the word with the reference.
    same("check", a.check(weak, THREAD), Ok(()))?;
    b.unpin(frame(1)).map_err(text)?;
    // It has a copy of the word of the object.
    same("check", b.check(weak, THREAD), Ok(()))?;
    same("give up", up(), Ok(()))?;
    let claim = b.from_untyped_begin(frame(1), None, &clock, &Unrecorded);
    same("claim", claim.map(|_| ()), Err(Refused::NotQuiesced))?;
    same("check", b.check(weak, THREAD), Err(Refused::Stale))?;
    same("merge", b.merge(frame(0), &Unrecorded), Ok(order(1)))?;
    same("merge", a.merge(frame(0), &Unrecorded), Ok(order(2)))
}

/// Both nodes take and give back references at the same time, in any order of steps.
fn counted(mem: &StaleMem, flushes: &Flushes) -> Outcome {
    let text = |r: Refused| r.to_string();
    let start = flushes.on(mem.node(0));
    let (t, clock) = (table(&start, 0), Clock::default());
    t.format(PoolId::Cxl, &(0..1), 0..1).map_err(text)?;
    let weak = common::retype(&t, &start, frame(0), Use::User, &clock).map_err(text)?;
    let task = |n: usize| -> Task<'_> {
        Box::new(move || {
            let mem = flushes.on(mem.node(n));
            let t = table(&mem, n as u64);
            for _ in 0..8 {
                t.pin_user(weak, Order::FRAME).map_err(text)?;
                pause();
                t.unpin(frame(0)).map_err(text)?;
            }
            t.pin_user(weak, Order::FRAME).map(|_| ()).map_err(text)
        })
    };
    mem.interleave(STEPS, vec![task(0), task(1)])?;
    let word = t.read(frame(0)).map_err(text)?.0;
    same("references", word.refs.get(), 2)
}

type Scenario = fn(&StaleMem, &Flushes) -> Outcome;
const SCENARIOS: [Scenario; 2] = [hand_over, counted];

#[test]
fn every_row_sees_what_is_so_in_memory() {
    for scenario in SCENARIOS {
        for seed in 0..SEEDS {
            let mem = memory(seed);
            let outcome = scenario(&mem, &Flushes::all()).and_then(|()| mem.check());
            assert_eq!(outcome, Ok(()), "seed {seed}");
        }
    }
}

/// Accesses to memory that a row takes.
fn steps<T>(mem: &StaleMem, row: impl FnOnce() -> Result<T, Refused>) -> u64 {
    let count = || {
        let c = mem.counts(0);
        c.loads + c.stores + c.rmws
    };
    let before = count();
    row().map(|_| ()).unwrap();
    count() - before
}

#[test]
fn rows_take_as_many_steps_for_a_large_block_as_for_a_frame() {
    let order = |n| Order::new(n).unwrap();
    let rows = |size: u64| {
        let mem = StaleMem::new(1, 0);
        let (zero, clock) = (mem.node(0), Clock::default());
        let t = table(&zero, 0);
        t.format(PoolId::Cxl, &(0..64), 0..64).unwrap();
        for n in (size + 1..6).rev() {
            t.split(frame(0), &Unrecorded).unwrap();
            assert_eq!(t.order_by_tails(frame(0)), order(n));
        }
        let split = steps(&mem, || t.split(frame(0), &Unrecorded));
        let merge = steps(&mem, || t.merge(frame(0), &Unrecorded));
        t.split(frame(0), &Unrecorded).unwrap();
        let mut claim = None;
        let begin = steps(&mem, || {
            claim = Some(t.from_untyped_begin(frame(0), None, &clock, &Unrecorded)?);
            Ok(())
        });
        let mut claim = claim.unwrap();
        common::initialise(&zero, &mut claim);
        let mut weak = None;
        let finish = steps(&mem, || {
            weak = Some(t.from_untyped_finish(claim, Use::User, &Unrecorded)?);
            Ok(())
        });
        let weak = weak.unwrap();
        let pin = steps(&mem, || t.pin_user(weak, order(size)));
        let unpin = steps(&mem, || t.unpin(frame(0)));
        let up = steps(&mem, || {
            t.to_untyped(weak, Use::User, &clock, &Unrecorded, &Unrecorded)
        });
        [split, merge, begin, finish, pin, unpin, up]
    };
    assert_eq!(rows(0), rows(5));
    assert!(rows(5).iter().all(|&n| n <= 9), "{:?}", rows(5));
}
