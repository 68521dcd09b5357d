//! Nodes that die in the middle of rows: what they leave is recovered, and no frame is lost.

use crate::common;
use crate::common::words;

use std::sync::atomic::Ordering::Relaxed;

use common::*;
use dyad_coherence::{GlobalMem, HostMem};
use dyad_retype::*;
use dyad_shm::pool::{PhysAddr, PoolId};
use words::*;

/// Memory in which a node stops being able to change anything after some modifications.
struct Dying<'m> {
    mem: &'m HostMem,
    left: std::cell::Cell<u32>,
}

impl GlobalMem for Dying<'_> {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.mem.contains(at, len)
    }
    fn load(&self, at: PhysAddr, order: std::sync::atomic::Ordering) -> u64 {
        self.mem.load(at, order)
    }
    fn store(&self, _: PhysAddr, _: u64, _: std::sync::atomic::Ordering) {}
    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        match self.left.get().checked_sub(1) {
            Some(n) => {
                self.left.set(n);
                self.mem.cas(at, old, new)
            }
            // Gone: what it thinks has happened does not matter any more.
            None => Ok(old),
        }
    }
    fn swap(&self, at: PhysAddr, _: u64) -> u64 {
        self.mem.load(at, Relaxed)
    }
    fn add(&self, at: PhysAddr, _: u64) -> u64 {
        self.mem.load(at, Relaxed)
    }
    fn or(&self, at: PhysAddr, _: u64) -> u64 {
        self.mem.load(at, Relaxed)
    }
    fn and(&self, at: PhysAddr, _: u64) -> u64 {
        self.mem.load(at, Relaxed)
    }
    fn fence(&self) {}
    fn writeback(&self, _: PhysAddr, _: u64) {}
    fn invalidate(&self, _: PhysAddr, _: u64) {}
}

#[test]
fn a_death_at_any_step_is_recovered_and_loses_no_frame() {
    type Op = fn(&FrameTable<'_, Dying<'_>>, &Dying<'_>, &Clock, WeakRef);
    let ops: [Op; 4] = [
        |t, _, clock, used| {
            let _ = t.to_untyped(used, Use::User, clock, &Unrecorded, &Unrecorded);
        },
        |t, mem, clock, _| {
            let claim = t.from_untyped_begin(frame(32), None, clock, &Unrecorded);
            if let Ok(mut claim) = claim {
                initialise(mem, &mut claim);
                let _ = t.from_untyped_finish(claim, Use::User, &Unrecorded);
            }
        },
        |t, _, _, _| {
            let _ = t.split(frame(48), &Unrecorded);
        },
        |t, _, _, _| {
            let _ = t.merge(frame(32), &Unrecorded);
        },
    ];
    for op in ops {
        for steps in 0..6 {
            let (mem, clock) = (HostMem::new(), Clock::default());
            let t = frames(&mem);
            t.format(PoolId::Cxl, &(0..64), 0..64).unwrap();
            t.split(frame(0), &Unrecorded).unwrap();
            t.split(frame(32), &Unrecorded).unwrap();
            let used = retype(&t, &mem, frame(0), Use::User, &clock).unwrap();
            let dying = Dying {
                mem: &mem,
                left: std::cell::Cell::new(steps),
            };
            op(
                &FrameTable::new(&dying, pools(), node(1)),
                &dying,
                &clock,
                used,
            );
            for i in 0..FRAMES {
                let version = get(&mem, i).version;
                let left = WeakRef {
                    frame: frame(i),
                    version,
                };
                for _ in 0..2 {
                    t.recover_frame(left, node(1), &clock, &Unrecorded).unwrap();
                }
            }
            // Every frame is in one block, and each block can be had again.
            let mut covered = 0;
            while covered < FRAMES {
                let head = frame(covered);
                let (word, _) = t.read(head).unwrap();
                let size = match word.ty {
                    FrameType::Untyped(o) | FrameType::User(o) => o,
                    _ => panic!("{covered}: {word}"),
                };
                for i in covered..covered + size.frames() {
                    assert_eq!(t.head(frame(i)).unwrap().0, head);
                }
                assert_eq!(t.order_by_tails(head), size);
                if matches!(word.ty, FrameType::Untyped(_)) {
                    clock.rounds();
                    retype(&t, &mem, head, Use::User, &clock).unwrap();
                }
                covered += size.frames();
            }
        }
    }
}

/// D4b: a node that is taken for dead while it runs loses its frame, and notices.
#[test]
fn a_frame_that_has_been_taken_away_is_not_published() {
    for again in [false, true] {
        let (mem, clock) = (HostMem::new(), Clock::default());
        let t = frames(&mem);
        let intent = set(&mem, 1, 1, FrameType::Untyped(order(0)), 0);
        let claim = || t.from_untyped_begin(frame(1), None, &clock, &Unrecorded);
        let mut lost = claim().unwrap();
        initialise(&mem, &mut lost);
        let survivor = table(&mem, 1);
        assert_eq!(
            survivor.recover_frame(intent, node(0), &clock, &Unrecorded),
            Ok(true)
        );
        if again {
            // The same node has it again, for something else.
            clock.rounds();
            let _ = claim().unwrap();
        }
        let before = get(&mem, 1);
        let done = t.from_untyped_finish(lost, Use::User, &Unrecorded);
        assert_eq!(done, Err(Refused::Lost));
        assert_eq!(get(&mem, 1), before);
    }
}
