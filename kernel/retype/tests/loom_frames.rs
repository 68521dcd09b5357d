//! Model checks of rows that race: all interleavings with all weak orderings, and for each rule
//! that only races need, the race that breaks the protocol without it.

mod common;
#[path = "common/mutants.rs"]
#[allow(dead_code)]
mod mutants;

use std::sync::Arc;
use std::sync::atomic as plain;

use common::{Unrecorded, frame, initialise, node, pools, w0, w1};
use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_retype::{
    Epoch, EpochSource, FrameTable, FrameType, FrameWord, IntentRecord, Intents, KernelKind, Order,
    Refs, Refused, Row, Rules, StampWord, Use, Version, WeakRef,
};
use dyad_shm::pool::PhysAddr;
use loom::sync::atomic::Ordering;
use loom::thread;
use mutants::*;

const THREAD: Use = Use::Kernel(KernelKind::THREAD);
const EPOCH: PhysAddr = PhysAddr(0x1000);
/// What node 1 has published. Node 0 is always quiet.
const PUBLISHED: PhysAddr = PhysAddr(0x1040);

fn table<R: Rules>(mem: &LoomMem, n: u64) -> FrameTable<'_, LoomMem, R> {
    FrameTable::new(mem, pools(), node(n))
}

fn word(version: u32, ty: FrameType, refs: u32) -> u64 {
    FrameWord {
        version: Version(version),
        ty,
        refs: Refs::new(refs).unwrap(),
    }
    .bits()
}

const USER: FrameType = FrameType::User(Order::FRAME);
const UNTYPED: FrameType = FrameType::Untyped(Order::FRAME);

fn weak(at: u64, version: u32) -> WeakRef {
    WeakRef {
        frame: frame(at),
        version: Version(version),
    }
}

/// Frames 0, 1, ... with these words and no stamps. The others are RESERVED.
fn memory(words: &[u64]) -> Arc<LoomMem> {
    let mut tracked: Vec<_> = (0..).map(|i| w0(i).0).zip(words.iter().copied()).collect();
    tracked.extend((0..words.len() as u64).map(|i| (w1(i).0, 0)));
    let reserved: Vec<_> = (words.len() as u64..3).map(|i| w0(i).0).collect();
    Arc::new(LoomMem::new(Lacks::Nothing, &tracked, &reserved))
}

/// Every node has always just been quiet.
struct Quiet;

impl EpochSource for Quiet {
    fn now(&self) -> Epoch {
        Epoch::ZERO
    }

    fn quiesced(&self, _: Epoch) -> bool {
        true
    }
}

/// Nobody is quiet after epoch 4; it is 5.
struct Loud;

impl EpochSource for Loud {
    fn now(&self) -> Epoch {
        Epoch::new(5).unwrap()
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        stamp.get() < 5
    }
}

/// Both in parallel. `a` starts last: it should be the one that reads more and changes less.
fn race<A, B>(
    mem: &Arc<LoomMem>,
    a: impl FnOnce(&LoomMem) -> A + Send + 'static,
    b: impl FnOnce(&LoomMem) -> B,
) -> (A, B)
where
    A: Send + 'static,
{
    let other = mem.clone();
    let a = thread::spawn(move || a(&other));
    let b = b(mem);
    (a.join().unwrap(), b)
}

fn left(mem: &LoomMem, at: u64) -> FrameWord {
    table::<Selected>(mem, 0).read(frame(at)).unwrap().0
}

fn use_as<R: Rules>(
    mem: &LoomMem,
    n: u64,
    used: Use,
    epochs: &impl EpochSource,
) -> Result<WeakRef, Refused> {
    let t = table::<R>(mem, n);
    let mut claim = t.from_untyped_begin(frame(0), None, epochs, &Unrecorded)?;
    initialise(mem, &mut claim);
    t.from_untyped_finish(claim, used, &Unrecorded)
}

/// A frame is mapped or given up, not both.
fn map_and_give_up<R: Rules>() {
    let mem = memory(&[word(1, USER, 0)]);
    let (pin, up) = race(
        &mem,
        |m| table::<R>(m, 1).pin_user(weak(0, 1), Order::FRAME),
        |m| table::<R>(m, 0).to_untyped(weak(0, 1), Use::User, &Quiet, &Unrecorded, &Unrecorded),
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
    explore(None, map_and_give_up::<Selected>);
}

#[test]
#[should_panic(expected = "mapped and given up")]
fn mutant_given_up_with_references() {
    explore(None, map_and_give_up::<GiveUpIgnoresRefs>);
}

/// M1: the frame is given up and belongs to somebody else while an old capability is used.
fn map_and_change_hands<R: Rules>() {
    let mem = memory(&[word(1, USER, 0)]);
    let (_, pin) = race(
        &mem,
        |m| {
            let t = table::<R>(m, 1);
            t.to_untyped(weak(0, 1), Use::User, &Quiet, &Unrecorded, &Unrecorded)?;
            use_as::<R>(m, 1, Use::User, &Quiet)
        },
        |m| table::<R>(m, 0).pin_user(weak(0, 1), Order::FRAME),
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
    explore(None, map_and_change_hands::<Selected>);
}

#[test]
#[should_panic(expected = "foreign memory mapped")]
fn mutant_m1_map_checks_the_type_only() {
    explore(None, map_and_change_hands::<PinIgnoresVersion>);
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
                    let t = table::<Selected>(&mem, n);
                    t.pin_user(weak(0, 1), Order::FRAME).is_ok()
                })
            })
            .collect();
        let t = table::<Selected>(&mem, 0);
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
                let t = table::<Selected>(m, 1);
                t.pin_user(weak(0, 1), Order::FRAME)?;
                t.unpin(frame(0))
            },
            |m| {
                let t = table::<Selected>(m, 0);
                t.pin_user(weak(0, 1), Order::FRAME)?;
                t.unpin(frame(0))
            },
        );
        assert_eq!((a, b), (Ok(()), Ok(())));
        assert_eq!(left(&mem, 0).bits(), word(1, USER, 1));
    });
}

/// There is room for one more reference, and two want it.
fn the_last_reference<R: Rules>() {
    let mem = memory(&[word(1, USER, 0xff_fffe)]);
    let pin = |m: &LoomMem| table::<R>(m, 0).pin_user(weak(0, 1), Order::FRAME);
    let (a, b) = race(&mem, pin, pin);
    assert!(a.is_ok() != b.is_ok(), "no room");
    assert_eq!(a.and(b), Err(Refused::TooManyRefs));
    assert_eq!(left(&mem, 0).bits(), word(1, USER, 0xff_ffff));
}

#[test]
fn one_of_two_gets_the_last_reference() {
    explore(None, the_last_reference::<Selected>);
}

#[test]
#[should_panic(expected = "no room")]
fn mutant_references_run_over() {
    explore(None, the_last_reference::<PinIgnoresRoom>);
}

#[test]
fn one_of_two_gets_an_untyped_frame() {
    explore(None, || {
        let mem = memory(&[word(1, UNTYPED, 0)]);
        let (a, b) = race(
            &mem,
            |m| use_as::<Selected>(m, 1, THREAD, &Quiet),
            |m| use_as::<Selected>(m, 0, Use::User, &Quiet),
        );
        assert!(a.is_ok() != b.is_ok());
        let used = if a.is_ok() { THREAD } else { Use::User };
        assert_eq!(left(&mem, 0).ty.in_use(), Some(used));
    });
}

#[test]
fn one_of_two_gives_a_frame_up() {
    explore(None, || {
        let mem = memory(&[word(1, USER, 0)]);
        let up = |n| {
            move |m: &LoomMem| {
                table::<Selected>(m, n).to_untyped(
                    weak(0, 1),
                    Use::User,
                    &Quiet,
                    &Unrecorded,
                    &Unrecorded,
                )
            }
        };
        let (a, b) = race(&mem, up(1), up(0));
        assert!(a.is_ok() != b.is_ok());
        assert_eq!(left(&mem, 0).bits(), word(2, UNTYPED, 0));
    });
}

/// One claims a frame while the other uses it and gives it up again, with a newer stamp.
fn claim_and_go_round<R: Rules>() {
    let mem = memory(&[word(1, UNTYPED, 0)]);
    let (round, claim) = race(
        &mem,
        |m| {
            let used = use_as::<R>(m, 1, Use::User, &Loud)?;
            table::<R>(m, 1).to_untyped(used, Use::User, &Loud, &Unrecorded, &Unrecorded)
        },
        |m| {
            table::<R>(m, 0)
                .from_untyped_begin(frame(0), None, &Loud, &Unrecorded)
                .map(|_| ())
        },
    );
    assert!(round.is_err() || claim.is_err(), "reused too early");
}

#[test]
fn a_claim_does_not_outlive_the_word_it_was_made_for() {
    explore(None, claim_and_go_round::<Selected>);
}

#[test]
#[should_panic(expected = "reused too early")]
fn mutant_claim_compares_a_newer_word() {
    explore(None, claim_and_go_round::<ClaimComparesNewerWord>);
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

/// A1: one CPU of node 1 flushes its TLB in a round, but user code fills it again before another
/// CPU of the node is ready and the round is published; then the page is unmapped, and node 0
/// gives the frame up and wants to use it for something else. It must wait for the next round.
///
/// Counts the executions in which the frame was reused.
fn reuse_under_a_stale_translation<R: Rules>(or_equal: bool, reused: &plain::AtomicU32) {
    let words = [
        (w0(0).0, word(1, USER, 1)),
        (w1(0).0, StampWord::default().bits()),
        (EPOCH.0, 1),
        (PUBLISHED.0, 1),
    ];
    let mem = Arc::new(LoomMem::new(Lacks::Nothing, &words, &[]));
    let stale = Arc::new(plain::AtomicBool::new(false));
    let seen = stale.clone();
    let node0 = move |m: &LoomMem| -> bool {
        let (t, epochs) = (table::<R>(m, 0), Shared { mem: m, or_equal });
        let up = t.to_untyped(weak(0, 1), Use::User, &epochs, &Unrecorded, &Unrecorded);
        let claim = up.and_then(|_| t.from_untyped_begin(frame(0), None, &epochs, &Unrecorded));
        if claim.is_ok() {
            let stale = seen.load(plain::Ordering::SeqCst);
            assert!(!stale, "reused under a live TLB entry");
        }
        claim.is_ok()
    };
    let (claimed, ()) = race(&mem, node0, |m| {
        let first = m.add(EPOCH, 1) + 1;
        m.fence();
        stale.store(true, plain::Ordering::SeqCst);
        table::<R>(m, 1).unpin(frame(0)).unwrap();
        m.store(PUBLISHED, first, Ordering::Release);
        let second = m.add(EPOCH, 1) + 1;
        m.fence();
        stale.store(false, plain::Ordering::SeqCst);
        m.store(PUBLISHED, second, Ordering::Release);
    });
    reused.fetch_add(claimed as u32, plain::Ordering::Relaxed);
}

fn explore_reuse<R: Rules>(or_equal: bool) {
    let reused = Arc::new(plain::AtomicU32::new(0));
    let count = reused.clone();
    explore(None, move || {
        reuse_under_a_stale_translation::<R>(or_equal, &count)
    });
    assert_ne!(reused.load(plain::Ordering::Relaxed), 0, "never reused");
}

#[test]
fn a_frame_is_not_reused_under_a_stale_translation() {
    explore_reuse::<Selected>(false);
}

#[test]
#[should_panic(expected = "reused under a live TLB entry")]
fn mutant_a1b_published_may_equal_the_stamp() {
    explore_reuse::<Selected>(true);
}

#[test]
#[should_panic(expected = "reused under a live TLB entry")]
fn mutant_a1d_stamp_read_before_the_cas() {
    explore_reuse::<GiveUpStampsEarly>(false);
}

#[test]
#[should_panic(expected = "reused under a live TLB entry")]
fn mutant_given_up_without_a_stamp() {
    explore_reuse::<GiveUpWithoutStamp>(false);
}

/// Whoever sees that a frame is in use sees its contents.
fn publish_and_look(lacks: Lacks) {
    let contents = frame(1).address();
    let words = [(w0(1).0, word(1, UNTYPED, 0)), (contents.0, 0)];
    let mem = Arc::new(LoomMem::new(lacks, &words, &[w1(1).0]));
    let (seen, used) = race(
        &mem,
        move |m| {
            let checked = table::<Selected>(m, 0).check(weak(1, 1), THREAD);
            checked.map(|()| m.load(contents, Ordering::Relaxed))
        },
        |m| {
            let t = table::<Selected>(m, 1);
            let mut claim = t.from_untyped_begin(frame(1), None, &Quiet, &Unrecorded)?;
            m.store(contents, 7, Ordering::Relaxed);
            claim.frame_done(m);
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
#[should_panic(expected = "old contents")]
fn mutant_check_that_does_not_acquire() {
    explore(None, || publish_and_look(Lacks::Acquire));
}

#[test]
fn two_recoverers_give_a_frame_up_once() {
    explore(None, || {
        let mem = memory(&[word(1, FrameType::Retyping(node(2)), 0)]);
        let (a, b) = race(
            &mem,
            |m| {
                let recovered =
                    table::<Selected>(m, 1).recover_frame(weak(0, 1), node(2), &Quiet, &Unrecorded);
                // The first use of the frame does not suffer from the other recoverer.
                let used = use_as::<Selected>(m, 1, THREAD, &Quiet);
                (recovered, used.is_ok())
            },
            |m| table::<Selected>(m, 0).recover_frame(weak(0, 1), node(2), &Quiet, &Unrecorded),
        );
        assert!(a.1);
        assert_eq!((a.0 == Ok(true)) as u32 + (b == Ok(true)) as u32, 1);
        let thread = FrameType::Kernel(KernelKind::THREAD);
        assert_eq!(left(&mem, 0).bits(), word(2, thread, 0));
    });
}

/// One recovers what node 2 left, and node 2 comes back and takes the same frame; the other
/// recoverer is late.
fn late_recoverer<R: Rules>() {
    let mem = memory(&[word(1, FrameType::Retyping(node(2)), 0)]);
    let (_, used) = race(
        &mem,
        |m| table::<R>(m, 1).recover_frame(weak(0, 1), node(2), &Quiet, &Unrecorded),
        |m| {
            let first = table::<R>(m, 0).recover_frame(weak(0, 1), node(2), &Quiet, &Unrecorded);
            first.and_then(|_| use_as::<R>(m, 2, THREAD, &Quiet))
        },
    );
    assert!(used.is_ok(), "taken from a node that lives");
}

#[test]
fn a_late_recoverer_takes_nothing_from_the_next_incarnation() {
    explore(None, late_recoverer::<Selected>);
}

#[test]
#[should_panic(expected = "taken from a node that lives")]
fn mutant_recovered_whatever_the_version() {
    explore(None, late_recoverer::<RecoveryIgnoresVersion>);
}

#[test]
fn nothing_is_mapped_after_a_freeze_and_nothing_is_lost() {
    explore(None, || {
        let mem = memory(&[word(1, USER, 1)]);
        let (pin, counts) = race(
            &mem,
            |m| {
                let t = table::<Selected>(m, 1);
                t.unpin(frame(0)).unwrap();
                t.pin_user(weak(0, 1), Order::FRAME)
            },
            |m| {
                let t = table::<Selected>(m, 0);
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
fn unmap_and_recount<R: Rules>(lacks: Lacks) {
    let table_kind = FrameType::Kernel(KernelKind::ADDRESS_SPACE);
    let tracked = [
        (w0(0).0, word(1, USER, 1)),
        (w0(1).0, word(1, table_kind, 1)),
        (INTENT.0, 0),
        (ENTRY.0, 1),
    ];
    let mem = Arc::new(LoomMem::new(lacks, &tracked, &[w1(0).0]));
    let (counted, _) = race(
        &mem,
        |m| {
            let t = table::<R>(m, 0);
            assert_eq!(t.freeze(frame(0)), Ok(Use::User));
            if m.load_fresh(INTENT, Ordering::Acquire) != 0 {
                return None;
            }
            let entries = m.load_fresh(ENTRY, Ordering::Acquire);
            Some((entries, left(m, 0).refs.get() as u64))
        },
        |m| {
            let (t, intents) = (table::<R>(m, 1), Recorded(m));
            intents.begin(&IntentRecord::frame(Row::Unmap, frame(0), Version(1)));
            if t.may_unpin(frame(0), frame(1)).is_err() {
                return intents.clear();
            }
            m.swap(ENTRY, 0);
            t.unmap_unpin_at(frame(0), frame(1), &intents).unwrap();
        },
    );
    if let Some((entries, refs)) = counted {
        assert_eq!(entries, refs, "counted while a row is at work");
    }
}

#[test]
fn a_row_that_gives_references_back_is_seen_or_refused_by_a_recount() {
    explore(None, || unmap_and_recount::<Selected>(Lacks::Nothing));
}

#[test]
#[should_panic(expected = "counted while a row is at work")]
fn mutant_unmapped_whatever_is_frozen() {
    explore(None, || {
        unmap_and_recount::<UnpinIgnoresFrozen>(Lacks::Nothing);
    });
}

#[test]
#[should_panic(expected = "counted while a row is at work")]
fn mutant_frozen_without_fences() {
    explore(None, || unmap_and_recount::<Selected>(Lacks::Fences));
}

#[test]
fn a_half_is_merged_or_used() {
    explore(None, || {
        let mem = memory(&[word(1, UNTYPED, 0), word(1, UNTYPED, 0)]);
        let (merged, used) = race(
            &mem,
            |m| table::<Selected>(m, 1).merge(frame(0), &Unrecorded),
            |m| {
                table::<Selected>(m, 0)
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
            |m| table::<Selected>(m, 1).split(frame(0), &Unrecorded),
            |m| {
                let t = table::<Selected>(m, 0);
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
