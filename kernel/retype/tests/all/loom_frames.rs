//! Model checks of rows that race: all interleavings with all weak orderings. The register
//! of mutants takes away each rule that only races need.

use crate::common;
use crate::common::races;

use std::sync::Arc;
use std::sync::atomic as plain;

use common::{Unrecorded, frame, initialise, w0, w1};
use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_retype::{
    Epoch, EpochSource, FrameType, KernelKind, Order, Refused, StampWord, Use, Version,
};
use dyad_shm::pool::PhysAddr;
use loom::sync::atomic::Ordering;
use loom::thread;
use races::*;

const THREAD: Use = Use::Kernel(KernelKind::THREAD);
const EPOCH: PhysAddr = PhysAddr(0x1000);
/// What node 1 has published. Node 0 is always quiet.
const PUBLISHED: PhysAddr = PhysAddr(0x1040);

/// A frame is mapped or given up, not both.
fn map_and_give_up(by: By) {
    let mem = memory(&[word(1, USER, 0)]);
    let (pin, up) = race(
        &mem,
        |m| table(m, 1).pin_user(weak(0, 1), Order::FRAME),
        |m| by.gives_up(m, 0, weak(0, 1), Use::User, &Quiet),
    );
    match (pin, up) {
        (Ok(_), Err(Refused::InUse)) => assert_eq!(left(&mem, 0).bits(), word(1, USER, 1)),
        (Err(Refused::Busy | Refused::Stale), Ok(_)) => {
            assert_eq!(left(&mem, 0).bits(), word(2, UNTYPED, 0))
        }
        other => panic!("mapped and given up: {other:?}"),
    }
}

#[test]
fn a_frame_is_mapped_or_given_up() {
    explore_both(map_and_give_up);
}

/// M1: the frame is untyped and gets another owner while an old capability is used.
fn map_and_change_hands(by: By) {
    let mem = memory(&[word(1, USER, 0)]);
    let (pin, _) = race(
        &mem,
        |m| table(m, 0).pin_user(weak(0, 1), Order::FRAME),
        move |m| {
            by.gives_up(m, 1, weak(0, 1), Use::User, &Quiet)?;
            by.uses(m, 1, Use::User, &Quiet)
        },
    );
    let after = left(&mem, 0);
    assert_eq!(after.refs.get(), pin.is_ok() as u32);
    assert!(
        pin.is_err() || after.version == Version(1),
        "foreign memory mapped"
    );
}

#[test]
fn an_old_capability_never_maps_what_belongs_to_somebody_else() {
    explore_both(map_and_change_hands);
}

/// Three at once: what two have mapped is not given up, and no reference is lost.
#[test]
fn two_map_while_a_third_gives_up() {
    explore(Some(3), || {
        let mem = memory(&[word(1, USER, 0)]);
        let pins: Vec<_> = (1..3)
            .map(|n| {
                let mem = mem.clone();
                thread::spawn(move || {
                    let t = table(&mem, n);
                    t.pin_user(weak(0, 1), Order::FRAME).is_ok()
                })
            })
            .collect();
        let t = table(&mem, 0);
        let up = t.to_untyped(weak(0, 1), Use::User, &Quiet, &Unrecorded, &Unrecorded);
        let pins = pins.into_iter().map(|p| p.join().unwrap());
        let pinned = pins.filter(|&ok| ok).count() as u32;
        match up {
            Ok(_) => assert_eq!((pinned, left(&mem, 0).bits()), (0, word(2, UNTYPED, 0))),
            Err(why) => {
                assert_eq!((why, pinned), (Refused::InUse, 2));
                assert_eq!(left(&mem, 0).bits(), word(1, USER, 2));
            }
        }
    });
}

#[test]
fn references_are_counted_exactly() {
    explore(None, || {
        let mem = memory(&[word(1, USER, 1)]);
        let (a, b) = race(
            &mem,
            |m| {
                let t = table(m, 1);
                t.pin_user(weak(0, 1), Order::FRAME)?;
                t.unpin(frame(0))
            },
            |m| {
                let t = table(m, 0);
                t.pin_user(weak(0, 1), Order::FRAME)?;
                t.unpin(frame(0))
            },
        );
        assert_eq!((a, b), (Ok(()), Ok(())));
        assert_eq!(left(&mem, 0).bits(), word(1, USER, 1));
    });
}

/// There is room for one more reference, and two want it.
fn the_last_reference() {
    let mem = memory(&[word(1, USER, 0xff_fffe)]);
    let pin = |m: &LoomMem| table(m, 0).pin_user(weak(0, 1), Order::FRAME);
    let (a, b) = race(&mem, pin, pin);
    assert!(a.is_ok() != b.is_ok(), "no room");
    assert_eq!(a.and(b), Err(Refused::TooManyRefs));
    assert_eq!(left(&mem, 0).bits(), word(1, USER, 0xff_ffff));
}

#[test]
fn one_of_two_gets_the_last_reference() {
    explore(None, the_last_reference);
}

#[test]
fn one_of_two_gets_an_untyped_frame() {
    explore_both(|by| {
        let mem = memory(&[word(1, UNTYPED, 0)]);
        let (a, b) = race(
            &mem,
            |m| By::Table.uses(m, 1, THREAD, &Quiet),
            |m| by.uses(m, 0, Use::User, &Quiet),
        );
        assert!(a.is_ok() != b.is_ok());
        let used = if a.is_ok() { THREAD } else { Use::User };
        assert_eq!(left(&mem, 0).ty.in_use(), Some(used));
    });
}

#[test]
fn one_of_two_gives_a_frame_up() {
    explore_both(|by| {
        let mem = memory(&[word(1, USER, 0)]);
        let up = |by: By, n| move |m: &LoomMem| by.gives_up(m, n, weak(0, 1), Use::User, &Quiet);
        let (a, b) = race(&mem, up(By::Table, 1), up(by, 0));
        assert!(a.is_ok() != b.is_ok());
        assert_eq!(left(&mem, 0).bits(), word(2, UNTYPED, 0));
    });
}

/// One claims a frame while the other uses it and gives it up again, with a newer stamp.
fn claim_and_go_round(by: By) {
    let mem = memory(&[word(1, UNTYPED, 0)]);
    let (round, claim) = race(
        &mem,
        move |m| {
            let used = by.uses(m, 1, Use::User, &Loud)?;
            by.gives_up(m, 1, used, Use::User, &Loud)
        },
        |m| by.uses(m, 0, THREAD, &Loud),
    );
    assert!(round.is_err() || claim.is_err(), "reused too early");
}

#[test]
fn a_claim_does_not_outlive_the_word_it_was_made_for() {
    explore_both(claim_and_go_round);
}

/// The epoch word and node 1's publication, in the memory of the model.
struct Shared<'m> {
    mem: &'m LoomMem,
    /// A1b: `>=` in place of `>`.
    or_equal: bool,
}

impl EpochSource for Shared<'_> {
    fn now(&self) -> Epoch {
        self.mem.fence();
        Epoch::saturating(self.mem.load(EPOCH, Ordering::Relaxed))
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        let published = self.mem.load(PUBLISHED, Ordering::Acquire);
        published > stamp.get() || self.or_equal && published == stamp.get()
    }
}

/// A1: one CPU of node 1 flushes its TLB in a round, but another CPU of the node maps the frame before it is ready
/// and the round is published, and user code fills the TLB again; then the page is unmapped. Node 0
/// gives the frame up and wants to use it for something else. It must wait for the next round.
///
/// Counts the executions in which the frame was reused.
fn reuse_under_a_stale_translation(by: By, or_equal: bool, reused: &plain::AtomicU32) {
    let words = [
        (w0(0).0, word(1, USER, 0)),
        (w1(0).0, StampWord::default().bits()),
        (EPOCH.0, 1),
        (PUBLISHED.0, 1),
    ];
    let mem = Arc::new(LoomMem::new(Lacks::Nothing, &words, &[]));
    let stale = Arc::new(plain::AtomicBool::new(false));
    let seen = stale.clone();
    let node0 = move |m: &LoomMem| -> bool {
        let epochs = Shared { mem: m, or_equal };
        let up = by.gives_up(m, 0, weak(0, 1), Use::User, &epochs);
        let claim = up.and_then(|_| by.uses(m, 0, THREAD, &epochs));
        if claim.is_ok() {
            let stale = seen.load(plain::Ordering::SeqCst);
            assert!(!stale, "reused under a live TLB entry");
        }
        claim.is_ok()
    };
    let (claimed, ()) = race(&mem, node0, |m| {
        let first = m.add(EPOCH, 1) + 1;
        m.fence();
        if table(m, 1).pin_user(weak(0, 1), Order::FRAME).is_ok() {
            stale.store(true, plain::Ordering::SeqCst);
            table(m, 1).unpin(frame(0)).unwrap();
        }
        m.store(PUBLISHED, first, Ordering::Release);
        let second = m.add(EPOCH, 1) + 1;
        m.fence();
        stale.store(false, plain::Ordering::SeqCst);
        m.store(PUBLISHED, second, Ordering::Release);
    });
    reused.fetch_add(claimed as u32, plain::Ordering::Relaxed);
}

fn explore_reuse(or_equal: bool, by: &[By]) {
    for &by in by {
        let reused = Arc::new(plain::AtomicU32::new(0));
        let count = reused.clone();
        explore(None, move || {
            reuse_under_a_stale_translation(by, or_equal, &count)
        });
        assert_ne!(reused.load(plain::Ordering::Relaxed), 0, "never reused");
    }
}

#[test]
fn a_frame_is_not_reused_under_a_stale_translation() {
    explore_reuse(false, &BOTH);
}

#[test]
#[should_panic(expected = "reused under a live TLB entry")]
fn mutant_a1b_published_may_equal_the_stamp() {
    explore_reuse(true, &[By::FastPath]);
}

/// A thread that sees that a frame is in use also sees its contents.
fn publish_and_look(lacks: Lacks) {
    let contents = frame(1).address();
    let words = [(w0(1).0, word(1, UNTYPED, 0)), (contents.0, 0)];
    let mem = Arc::new(LoomMem::new(lacks, &words, &[w1(1).0]));
    let (seen, used) = race(
        &mem,
        move |m| {
            let checked = table(m, 0).check(weak(1, 1), THREAD);
            checked.map(|()| m.load(contents, Ordering::Relaxed))
        },
        |m| {
            let t = table(m, 1);
            let mut claim = t.from_untyped_begin(frame(1), None, &Quiet, &Unrecorded)?;
            m.store(contents, 7, Ordering::Relaxed);
            claim.frame_done(&t)?;
            t.from_untyped_finish(claim, THREAD, &Unrecorded)
        },
    );
    assert_eq!(used, Ok(weak(1, 1)));
    assert!(seen.is_err() || seen == Ok(7), "old contents");
}

#[test]
fn contents_come_before_the_type() {
    explore(None, || publish_and_look(Lacks::Nothing));
}

#[test]
#[should_panic(expected = "old contents")]
fn mutant_cas_that_does_not_release() {
    explore(None, || publish_and_look(Lacks::RmwOrder));
}

#[test]
fn a_half_is_merged_or_used() {
    explore(None, || {
        let mem = memory(&[word(1, UNTYPED, 0), word(1, UNTYPED, 0)]);
        let (merged, used) = race(
            &mem,
            |m| table(m, 1).merge(frame(0), &Unrecorded),
            |m| {
                table(m, 0)
                    .from_untyped_begin(frame(1), None, &Quiet, &Unrecorded)
                    .map(|_| ())
            },
        );
        assert!(merged.is_ok() != used.is_ok());
        let order = merged.unwrap_or(Order::FRAME);
        assert_eq!(left(&mem, 0).ty, FrameType::Untyped(order));
    });
}

#[test]
fn a_block_is_split_or_used_and_walks_to_its_head_are_safe() {
    explore(None, || {
        let order = Order::new(1).unwrap();
        let mem = memory(&[
            word(1, FrameType::Untyped(order), 0),
            word(1, FrameType::Tail(Order::FRAME), 0),
        ]);
        let (split, used) = race(
            &mem,
            |m| table(m, 1).split(frame(0), &Unrecorded),
            |m| {
                let t = table(m, 0);
                let (head, _) = match t.head(frame(1)) {
                    Ok(found) => found,
                    Err(why) => return Err(why),
                };
                let mut claim = t.from_untyped_begin(head, None, &Quiet, &Unrecorded)?;
                initialise(m, &mut claim);
                let order = claim.order();
                t.from_untyped_finish(claim, Use::User, &Unrecorded)
                    .map(|w| (w, order))
            },
        );
        match (split, used) {
            (Err(_), Ok((w, o))) => assert_eq!((w.frame, o), (frame(0), order)),
            (Ok(other), Ok((_, o))) => assert_eq!((other, o), (frame(1), Order::FRAME)),
            (Ok(_), Err(_)) => {}
            both => panic!("nobody got it: {both:?}"),
        }
    });
}
