//! The model itself: that it is as stale as it says, and as fresh.

use super::mutant::{Flushes, Kind, try_each};
use super::*;
use dyad_abi::boot::CXL_BASE;
use std::boxed::Box;
use std::vec;

const A: PhysAddr = PhysAddr(CXL_BASE + 0x4000);
const B: PhysAddr = PhysAddr(CXL_BASE + 0x4008);
const FAR: PhysAddr = PhysAddr(CXL_BASE + 0x4040);
const RELAXED: Ordering = Ordering::Relaxed;

#[test]
fn stores_are_private_until_written_back_and_loads_stale_until_invalidated() {
    let mem = StaleMem::with_habits(2, 1, Habits::LAZY);
    let (one, two) = (mem.node(0), mem.node(1));
    assert_eq!(two.load(A, RELAXED), 0);
    one.store(A, 7, RELAXED);
    assert_eq!((one.load(A, RELAXED), mem.in_memory(A)), (7, 0));
    one.writeback(A, 8);
    assert_eq!(mem.in_memory(A), 7);
    assert_eq!(mem.faults(), []);
    assert_eq!(two.load(A, RELAXED), 0);
    let stale = Fault::StaleRead {
        node: 1,
        at: A,
        got: 0,
        memory: 7,
    };
    assert_eq!(mem.faults(), [stale]);
    assert!(mem.check().unwrap_err().contains("0x4000004000"));
    two.invalidate(A, 1);
    assert_eq!(two.load(A, RELAXED), 7);
    one.store_through(A, 8, RELAXED);
    assert_eq!(two.load_fresh(A, RELAXED), 8);
    assert_eq!(mem.faults().len(), 1);
}

#[test]
fn read_modify_writes_act_at_memory_and_leave_no_copy() {
    let mem = StaleMem::with_habits(2, 1, Habits::LAZY);
    let (one, two) = (mem.node(0), mem.node(1));
    one.store(B, 5, RELAXED);
    assert_eq!(one.add(A, 3), 0);
    assert_eq!((mem.in_memory(A), mem.in_memory(B)), (3, 5));
    assert_eq!(two.or(A, 4), 3);
    assert_eq!(one.load(A, RELAXED), 7);
    assert_eq!(two.cas(A, 7, 1), Ok(7));
    assert_eq!(one.cas(A, 7, 2), Err(1));
    assert_eq!(one.load(A, RELAXED), 1);
    assert_eq!(two.swap(A, 6), 1);
    assert_eq!(one.and(A, 2), 6);
    assert_eq!(mem.in_memory(A), 2);
    assert_eq!(mem.faults(), []);
}

#[test]
fn a_write_back_undoes_what_others_did_to_the_line() {
    let mem = StaleMem::with_habits(2, 1, Habits::LAZY);
    let (one, two) = (mem.node(0), mem.node(1));
    one.store(A, 1, RELAXED);
    two.or(B, 4);
    two.or(FAR, 4);
    one.writeback(A, 8);
    assert_eq!((mem.in_memory(A), mem.in_memory(B)), (1, 0));
    assert_eq!(mem.in_memory(FAR), 4);
    let undone = Fault::Undone {
        node: 0,
        at: B,
        old: 0,
        lost: 4,
    };
    assert_eq!(mem.faults(), [undone]);
    one.store(A, 2, RELAXED);
    two.store(A, 3, RELAXED);
    mem.evict_all(0);
    mem.evict_all(1);
    let overwritten = Fault::Overwritten {
        node: 1,
        at: A,
        lost: 2,
    };
    assert_eq!(mem.faults()[1..], [overwritten]);
}

#[test]
fn caches_evict_and_fetch_unasked_and_the_seed_decides_when() {
    let run = |habits| {
        let mem = StaleMem::with_habits(1, 9, habits);
        let node = mem.node(0);
        for i in 0..400 {
            node.store(PhysAddr(A.0 + 64 * (i % 20)), i, RELAXED);
        }
        let memory: Vec<_> = (0..20).map(|i| mem.in_memory(A.add(64 * i))).collect();
        (mem.counts(0), memory)
    };
    let eager = Habits {
        evict: 60,
        fetch: 60,
        switch: 0,
    };
    let (counts, memory) = run(eager);
    assert_eq!(run(eager), (counts, memory.clone()));
    assert!(counts.evictions > 40 && counts.fills > 20);
    assert!(memory.iter().any(|&w| w != 0), "dirty lines are evicted");
    let (counts, memory) = run(Habits::LAZY);
    assert_eq!(
        (counts.evictions, counts.fills, counts.stores),
        (0, 20, 400)
    );
    assert_eq!(memory, [0; 20]);
}

#[test]
fn addresses_outside_of_memory_are_refused() {
    let mem = StaleMem::new(1, 0);
    let node = mem.node(0);
    assert!(!node.contains(PhysAddr(CXL_BASE - 8), 8));
    for bad in [CXL_BASE - 8, CXL_BASE + 4, 0] {
        let touch = || node.load(PhysAddr(bad), RELAXED);
        assert!(std::panic::catch_unwind(touch).is_err(), "{bad:#x}");
    }
}

/// Two threads count by load and store: with turns taken somewhere, some seed loses a count.
fn count(seed: u64) -> (u64, Vec<u64>) {
    let mem = StaleMem::new(1, seed);
    let order = Mutex::new(vec![]);
    let task = |me: u64| -> Task<'_> {
        let (mem, order) = (&mem, &order);
        Box::new(move || {
            for _ in 0..10 {
                let n = mem.node(0).load(A, RELAXED);
                mem.node(0).store(A, n + 1, RELAXED);
                order.lock().unwrap().push(me);
            }
            Ok(())
        })
    };
    mem.interleave(1000, vec![task(0), task(1)]).unwrap();
    (mem.node(0).load(A, RELAXED), order.into_inner().unwrap())
}

#[test]
fn turns_are_taken_between_operations_as_the_seed_says() {
    assert!((0..20).any(|seed| count(seed).0 < 20), "no count lost");
    assert_eq!(count(3), count(3));
    assert!((0..20).any(|seed| count(seed).1 != count(3).1));
}

#[test]
fn who_waits_for_ever_and_who_fails_is_reported() {
    let mem = StaleMem::new(2, 5);
    let wait = || -> Task<'_> {
        Box::new(|| {
            while mem.node(0).load(A, RELAXED) == 0 {
                pause();
            }
            Ok(())
        })
    };
    let stuck = mem.interleave(500, vec![wait(), wait()]);
    assert!(stuck.unwrap_err().contains("never comes"));
    let fail: Task<'_> = Box::new(|| Err("on purpose".into()));
    let failed = mem.interleave(u64::MAX, vec![wait(), fail]);
    assert_eq!(failed, Err("on purpose".into()));
}

/// Publishes a word beside a flag, and reads it on another node.
fn publish(seed: u64, flushes: &Flushes) -> Result<(), String> {
    let mem = StaleMem::new(2, seed);
    let (one, two) = (flushes.on(mem.node(0)), flushes.on(mem.node(1)));
    two.load(FAR, RELAXED);
    two.load(A, RELAXED);
    one.store(FAR, 9, RELAXED);
    one.writeback(FAR, 8);
    one.writeback(FAR, 8);
    one.store_through(A, 1, RELAXED);
    two.invalidate(FAR, 8);
    let got = (two.load_fresh(A, RELAXED), two.load(FAR, RELAXED));
    if got == (1, 9) {
        Ok(())
    } else {
        Err(std::format!("{got:?}"))
    }
}

#[test]
fn mutants_lack_one_flush_each_and_redundant_ones_survive() {
    let verdict = try_each(8, publish).unwrap();
    // One of the two write-backs is enough, so each survives the loss of the other.
    let survived: Vec<_> = verdict.survived.iter().map(|s| s.kind).collect();
    assert_eq!(survived, [Kind::Writeback, Kind::Writeback]);
    let caught: Vec<_> = verdict.caught.iter().map(|c| c.site.kind).collect();
    assert_eq!(
        caught,
        [Kind::StoreThrough, Kind::Invalidate, Kind::LoadFresh]
    );
}
