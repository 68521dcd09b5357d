//! The short way to claim one frame does what the long way does, or leaves it to it.

mod common;

use std::sync::atomic::Ordering::Relaxed;

use common::{Clock, Log, frame, initialise, node, table, w0, w1};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_retype::{
    Epoch, EpochSource, FrameTable, FrameType, FrameWord, IntentRecord, KernelKind, Order, Refs,
    Refused, Row, Use, Version,
};

const THREAD: Use = Use::Kernel(KernelKind::THREAD);

fn set(mem: &HostMem, ty: FrameType, refs: u32) -> u64 {
    let (version, refs) = (Version(7), Refs::new(refs).unwrap());
    let word = FrameWord { version, ty, refs }.bits();
    mem.store(w0(4), word, Relaxed);
    word
}

fn frames(mem: &HostMem) -> FrameTable<'_, HostMem> {
    table(mem, 0)
}

#[test]
fn an_untyped_frame_is_claimed_and_its_stamp_told() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    clock.rounds();
    for stamp in [0, 1] {
        set(&mem, FrameType::Untyped(Order::FRAME), 0);
        mem.store(w1(4), stamp << 8 | 0b11, Relaxed);
        let t = frames(&mem);
        let (mut claim, told) = t.claim_frame(frame(4), &clock, &log).unwrap().unwrap();
        assert_eq!(told, Epoch::new(stamp).unwrap());
        assert_eq!(t.look(frame(4)).unwrap().ty, FrameType::Retyping(node(0)));
        let record = IntentRecord::frame(Row::FromUntyped, frame(4), Version(7));
        assert_eq!(log.open.get(), Some(record));
        initialise(&mem, &mut claim);
        let object = t.from_untyped_finish(claim, THREAD, &log).unwrap();
        assert_eq!((object.frame, object.version), (frame(4), Version(7)));
        assert_eq!(log.open.get(), None);
        assert_eq!(t.check(object, THREAD), Ok(()));
    }
}

#[test]
fn a_claim_of_one_frame_is_unfinished_until_that_is_initialised() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    set(&mem, FrameType::Untyped(Order::FRAME), 0);
    let t = frames(&mem);
    let (claim, _) = t.claim_frame(frame(4), &clock, &log).unwrap().unwrap();
    assert_eq!(claim.next_frame(), Some(frame(4)));
    let refused = t.from_untyped_finish(claim, THREAD, &log);
    assert_eq!(refused, Err(Refused::Unfinished));
    let word = t.look(frame(4)).unwrap();
    assert_eq!(
        word,
        FrameWord::new(Version(8), FrameType::Untyped(Order::FRAME))
    );
}

#[test]
fn everything_else_is_left_to_the_long_way() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    let one = Order::new(1).unwrap();
    let others = [
        (FrameType::Reserved, 0),
        (FrameType::Untyped(one), 0),
        (FrameType::Retyping(node(1)), 0),
        (FrameType::Frozen(THREAD), 1),
        (FrameType::User(Order::FRAME), 0),
        (FrameType::Kernel(KernelKind::THREAD), 0),
        (FrameType::Tail(Order::new(2).unwrap()), 0),
        (FrameType::Retired, 0),
        // Damage: an untyped frame with references.
        (FrameType::Untyped(Order::FRAME), 1),
    ];
    for (ty, refs) in others {
        let before = set(&mem, ty, refs);
        let none = frames(&mem).claim_frame(frame(4), &clock, &log);
        assert!(matches!(none, Ok(None)), "{ty:?}: {none:?}");
        assert_eq!(mem.load(w0(4), Relaxed), before, "{ty:?}");
    }
    assert_eq!(log.begun.get(), 0);
    let beyond = frames(&mem).claim_frame(frame(common::FRAMES), &clock, &log);
    assert_eq!(beyond.err(), Some(Refused::NoFrame));
}

#[test]
fn what_is_not_quiet_is_refused_and_stays() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    let before = set(&mem, FrameType::Untyped(Order::FRAME), 0);
    mem.store(w1(4), 1 << 8, Relaxed);
    let refused = frames(&mem).claim_frame(frame(4), &clock, &log).err();
    assert_eq!(refused, Some(Refused::NotQuiesced));
    assert_eq!(mem.load(w0(4), Relaxed), before);
    assert_eq!(log.begun.get(), 0);
}

/// Somebody else uses the frame and gives it up again between the look at its stamp and the claim.
struct Meanwhile<'m>(&'m HostMem);

impl EpochSource for Meanwhile<'_> {
    fn now(&self) -> Epoch {
        Epoch::ZERO
    }

    fn quiesced(&self, _: Epoch) -> bool {
        let again = FrameWord::new(Version(8), FrameType::Untyped(Order::FRAME));
        self.0.store(w0(4), again.bits(), Relaxed);
        self.0.store(w1(4), 99 << 8, Relaxed);
        true
    }
}

#[test]
fn a_frame_that_has_a_newer_stamp_is_not_claimed_by_the_older_one() {
    let (mem, log) = (HostMem::new(), Log::default());
    set(&mem, FrameType::Untyped(Order::FRAME), 0);
    let t = frames(&mem);
    let none = t.claim_frame(frame(4), &Meanwhile(&mem), &log);
    assert!(matches!(none, Ok(None)), "{none:?}");
    assert_eq!(log.open.get(), None, "its intent is cleared");
    let word = t.look(frame(4)).unwrap();
    assert_eq!(
        word,
        FrameWord::new(Version(8), FrameType::Untyped(Order::FRAME))
    );
}
