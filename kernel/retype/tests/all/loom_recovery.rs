//! Model checks of rows that race with a node's recovery: all interleavings with all weak orderings. The register of
//! mutants takes away each rule that only these races need.

use crate::common;
use crate::common::races;

use std::sync::Arc;

use common::{Unrecorded, frame, node, w0, w1};
use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_retype::{
    FrameType, IntentRecord, Intents, KernelKind, Order, Refused, Row, Use, Version,
};
use dyad_shm::pool::PhysAddr;
use loom::sync::atomic::Ordering;
use races::*;

#[test]
fn two_recoverers_give_a_frame_up_once() {
    explore_both(|by| {
        let mem = memory(&[word(1, FrameType::Retyping(node(2)), 0)]);
        let (a, b) = race(
            &mem,
            move |m| {
                let recovered = table(m, 1).recover_frame(weak(0, 1), node(2), &Quiet, &Unrecorded);
                // The first use of the frame does not suffer from the other recoverer.
                let used = by.uses(m, 1, THREAD, &Quiet);
                (recovered, used.is_ok())
            },
            |m| table(m, 0).recover_frame(weak(0, 1), node(2), &Quiet, &Unrecorded),
        );
        assert!(a.1);
        assert_eq!((a.0 == Ok(true)) as u32 + (b == Ok(true)) as u32, 1);
        let thread = FrameType::Kernel(KernelKind::THREAD);
        assert_eq!(left(&mem, 0).bits(), word(2, thread, 0));
    });
}

/// One recovers what node 2 left, and node 2 comes back and takes the same frame; the other
/// recoverer is late.
fn late_recoverer(by: By) {
    let mem = memory(&[word(1, FrameType::Retyping(node(2)), 0)]);
    let (_, used) = race(
        &mem,
        |m| table(m, 1).recover_frame(weak(0, 1), node(2), &Quiet, &Unrecorded),
        move |m| {
            let first = table(m, 0).recover_frame(weak(0, 1), node(2), &Quiet, &Unrecorded);
            first.and_then(|_| by.uses(m, 2, THREAD, &Quiet))
        },
    );
    assert!(used.is_ok(), "taken from a node that lives");
}

#[test]
fn a_late_recoverer_takes_nothing_from_the_next_incarnation() {
    explore_both(late_recoverer);
}

#[test]
fn nothing_is_mapped_after_a_freeze_and_nothing_is_lost() {
    explore(None, || {
        let mem = memory(&[word(1, USER, 1)]);
        let (pin, counts) = race(
            &mem,
            |m| {
                let t = table(m, 1);
                t.unpin(frame(0)).unwrap();
                t.pin_user(weak(0, 1), Order::FRAME)
            },
            |m| {
                let t = table(m, 0);
                assert_eq!(t.freeze(frame(0)), Ok(Use::User));
                let frozen = left(m, 0).refs;
                t.unfreeze(frame(0)).unwrap();
                frozen.get()
            },
        );
        assert!(counts <= 1);
        assert!(matches!(pin, Ok(_) | Err(Refused::Frozen)));
        assert_eq!(left(&mem, 0).bits(), word(1, USER, pin.is_ok() as u32));
    });
}

/// What the row unmap of node 1 is about: its intent, and an entry that has a reference.
const INTENT: PhysAddr = PhysAddr(0x1080);
const ENTRY: PhysAddr = PhysAddr(0x10c0);

struct Recorded<'m>(&'m LoomMem);

impl Intents for Recorded<'_> {
    fn begin(&self, _: &IntentRecord) {
        self.0.store_through(INTENT, 1, Ordering::Release);
    }

    fn clear(&self) {
        self.0.store_through(INTENT, 0, Ordering::Release);
    }
}

/// One unmaps; the other freezes the frame and, if it finds no row at work, counts.
fn unmap_and_recount() {
    let table_kind = FrameType::Kernel(KernelKind::ADDRESS_SPACE);
    let tracked = [
        (w0(0).0, word(1, USER, 1)),
        (w0(1).0, word(1, table_kind, 1)),
        (INTENT.0, 0),
        (ENTRY.0, 1),
    ];
    let mem = Arc::new(LoomMem::new(Lacks::Nothing, &tracked, &[w1(0).0]));
    let (counted, _) = race(
        &mem,
        |m| {
            let t = table(m, 0);
            assert_eq!(t.freeze(frame(0)), Ok(Use::User));
            if m.load_fresh(INTENT, Ordering::Acquire) != 0 {
                return None;
            }
            let entries = m.load_fresh(ENTRY, Ordering::Acquire);
            Some((entries, left(m, 0).refs.get() as u64))
        },
        |m| {
            let (t, intents) = (table(m, 1), Recorded(m));
            intents.begin(&IntentRecord::frame(Row::Unmap, frame(0), Version(1)));
            if t.may_unpin(frame(0), frame(1)).is_err() {
                return intents.clear();
            }
            m.swap(ENTRY, 0);
            t.unpin_head(frame(0)).unwrap();
            t.unpin_head(frame(1)).unwrap();
            intents.clear();
        },
    );
    if let Some((entries, refs)) = counted {
        assert_eq!(entries, refs, "counted while a row is at work");
    }
}

#[test]
fn a_row_that_gives_references_back_is_seen_or_refused_by_a_recount() {
    explore(None, unmap_and_recount);
}
