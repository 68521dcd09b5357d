//! The rows of one frame, as the fast path does them: what the slow path does, or nothing.

use crate::common;

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use common::{Clock, Log, Unrecorded, frame, node, table, w0, w1};
use dyad_coherence::{GlobalMem, HostMem, Word};
use dyad_retype::row::{self, Record, RecordAt};
use dyad_retype::{
    Epoch, EpochSource, FrameTable, FrameType, FrameWord, IntentRecord, KernelKind, Order, Refs,
    Refused, Row, StampWord, Use, Version, WeakRef, plain,
};
use dyad_shm::protocol::Parts;

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

/// Row `untyped -> Y` of frame 4, as the fast path does it. Whether zeros were asked for.
fn retype(
    mem: &HostMem,
    used: Use,
    epochs: &impl EpochSource,
    log: &Log,
    zero: bool,
) -> (Result<WeakRef, Refused>, bool) {
    let services = Parts {
        epochs,
        intents: log,
        log: &Unrecorded,
    };
    let words = (plain::retyping(node(0)), plain::used(used));
    let (record, asked) = (frames(mem).record_of(frame(4)).unwrap(), Cell::new(false));
    let zeros = || {
        let word = frames(mem).look(frame(4)).unwrap();
        assert_eq!(word.ty, FrameType::Retyping(node(0)));
        let open = IntentRecord::frame(Row::FromUntyped, frame(4), Version(7));
        assert_eq!(log.open.get(), Some(open));
        asked.set(true);
        zero
    };
    let done = row::retype(&record, frame(4), words, zeros, &services);
    assert_eq!(log.open.get(), None);
    (done, asked.get())
}

#[test]
fn an_untyped_frame_is_put_to_use_and_zeroed_if_it_has_been_used() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    clock.rounds();
    for (stamp, used) in [(0, Use::User), (1, Use::User), (0, THREAD), (1, THREAD)] {
        set(&mem, FrameType::Untyped(Order::FRAME), 0);
        mem.store(w1(4), stamp << 8 | 0b11, Relaxed);
        let done = retype(&mem, used, &clock, &log, true);
        let object = WeakRef {
            frame: frame(4),
            version: Version(7),
        };
        assert_eq!(done, (Ok(object), stamp != 0));
        assert_eq!(frames(&mem).current(frame(4)), Ok(object));
        assert_eq!(frames(&mem).look(frame(4)).unwrap().ty.in_use(), Some(used));
    }
}

#[test]
fn a_frame_that_cannot_be_zeroed_is_untyped_again_with_the_next_version() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    clock.rounds();
    set(&mem, FrameType::Untyped(Order::FRAME), 0);
    mem.store(w1(4), 1 << 8, Relaxed);
    let done = retype(&mem, THREAD, &clock, &log, false);
    assert_eq!(done, (Err(Refused::NoFrame), true));
    let again = FrameWord::new(Version(8), FrameType::Untyped(Order::FRAME));
    assert_eq!(frames(&mem).look(frame(4)).unwrap(), again);
}

#[test]
fn everything_else_is_left_to_the_slow_path() {
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
        let (done, zeroed) = retype(&mem, Use::User, &clock, &log, true);
        assert!(done.is_err() && !zeroed, "{ty:?}: {done:?}");
        assert_eq!(mem.load(w0(4), Relaxed), before, "{ty:?}");
    }
    assert_eq!(log.begun.get(), 0);
    let beyond = frames(&mem).record_of(frame(common::FRAMES));
    assert_eq!(beyond.err(), Some(Refused::NoFrame));
}

#[test]
fn what_is_not_quiet_is_refused_and_stays() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    let before = set(&mem, FrameType::Untyped(Order::FRAME), 0);
    mem.store(w1(4), 1 << 8, Relaxed);
    let refused = retype(&mem, THREAD, &clock, &log, true);
    assert_eq!(refused, (Err(Refused::NotQuiesced), false));
    assert_eq!(mem.load(w0(4), Relaxed), before);
    assert_eq!(log.begun.get(), 0);
}

/// Another node uses the frame and unmaps it again between the look at its stamp and the claim.
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
    let refused = retype(&mem, THREAD, &Meanwhile(&mem), &log, true);
    assert_eq!(refused, (Err(Refused::Contended), false));
    let word = frames(&mem).look(frame(4)).unwrap();
    assert_eq!(
        word,
        FrameWord::new(Version(8), FrameType::Untyped(Order::FRAME))
    );
}

/// A record whose first word others change just before it is replaced for the first time.
struct Others<'m> {
    record: RecordAt<'m, HostMem>,
    to: &'m Cell<Option<u64>>,
    mem: &'m HostMem,
}

#[derive(Clone, Copy)]
struct Changed<'o, 'm>(&'o Others<'m>);

impl Word for Changed<'_, '_> {
    fn load(&self) -> u64 {
        self.0.record.w0().load()
    }

    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        if let Some(to) = self.0.to.take() {
            self.0.mem.store(w0(4), to, Relaxed);
        }
        self.0.record.w0().replace(old, new)
    }

    fn add(&self, n: u64) -> u64 {
        self.0.record.w0().add(n)
    }

    fn fence(&self) {}
}

impl Record for Others<'_> {
    fn w0(&self) -> impl Word {
        Changed(self)
    }

    fn w1(&self) -> impl Word {
        self.record.w1()
    }
}

/// Row `X -> untyped` of frame 4, as the fast path does it; meanwhile its word becomes `to`.
fn give_up_while(mem: &HostMem, to: Option<u64>, kinds: u32) -> Result<Epoch, Refused> {
    let (clock, log, to) = (Clock::default(), Log::default(), Cell::new(to));
    let services = Parts {
        epochs: &clock,
        intents: &log,
        log: &Unrecorded,
    };
    let record = Others {
        record: frames(mem).record_of(frame(4)).unwrap(),
        to: &to,
        mem,
    };
    let retyping = plain::retyping(node(0));
    let done = row::give_up_frame(&record, frame(4), retyping, kinds, &services);
    assert_eq!(log.open.get(), None);
    done
}

#[test]
fn a_frame_is_given_up_unless_others_have_changed_it() {
    const KINDS: u32 = 1 << KernelKind::THREAD.get();
    let mem = HostMem::new();
    let user = FrameType::User(Order::FRAME);
    let word = |version, ty, refs| {
        let (version, refs) = (Version(version), Refs::new(refs).unwrap());
        FrameWord { version, ty, refs }.bits()
    };
    let given_up = word(8, FrameType::Untyped(Order::FRAME), 0);
    for ty in [user, FrameType::Kernel(KernelKind::THREAD)] {
        set(&mem, ty, 0);
        assert_eq!(give_up_while(&mem, None, KINDS), Ok(Clock::default().now()));
        assert_eq!(mem.load(w0(4), Relaxed), given_up, "{ty:?}");
        let others = [
            // A reference has come.
            (word(7, ty, 1), Refused::InUse),
            // Another node has given it up, and it has a new owner, of the same kind.
            (word(8, ty, 0), Refused::Stale),
            (word(8, FrameType::Untyped(Order::FRAME), 0), Refused::Stale),
            (word(7, FrameType::Retyping(node(1)), 0), Refused::InUse),
        ];
        for (to, why) in others {
            set(&mem, ty, 0);
            assert_eq!(give_up_while(&mem, Some(to), KINDS), Err(why), "{ty:?}");
            assert_eq!(mem.load(w0(4), Relaxed), to, "{ty:?}");
        }
    }
    // What it is not for.
    let oldest = word(u32::MAX, user, 0);
    mem.store(w0(4), oldest, Relaxed);
    assert_eq!(give_up_while(&mem, None, KINDS), Err(Refused::InUse));
    for (ty, refs) in [
        (FrameType::Kernel(KernelKind::TIME), 0),
        (FrameType::User(Order::new(1).unwrap()), 0),
        (FrameType::Reserved, 0),
        (user, 1),
    ] {
        let before = set(&mem, ty, refs);
        assert_eq!(give_up_while(&mem, None, KINDS), Err(Refused::InUse));
        assert_eq!(mem.load(w0(4), Relaxed), before, "{ty:?}");
    }
}

/// A record whose second word another node changes whenever it is about to be replaced.
struct Restless<'m>(RecordAt<'m, HostMem>);

#[derive(Clone, Copy)]
struct Changing<W>(W);

impl<W: Word> Word for Changing<W> {
    fn load(&self) -> u64 {
        self.0.load()
    }

    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        let now = self.0.load();
        self.0.replace(now, now ^ 0x80)?;
        self.0.replace(old, new)
    }

    fn add(&self, n: u64) -> u64 {
        self.0.add(n)
    }

    fn fence(&self) {}
}

impl Record for Restless<'_> {
    fn w0(&self) -> impl Word {
        self.0.w0()
    }

    fn w1(&self) -> impl Word {
        Changing(self.0.w1())
    }
}

/// Others are faster at each attempt to change the second word: the row is refused, and nothing stays in RETYPING.
#[test]
fn rows_that_are_refused_in_retyping_undo_what_they_have_begun() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    clock.rounds();
    let services = Parts {
        epochs: &clock,
        intents: &log,
        log: &Unrecorded,
    };
    let record = Restless(frames(&mem).record_of(frame(4)).unwrap());
    let retyping = plain::retyping(node(0));
    // A node has rewritten the frame for its former owner, which is to be noted first.
    set(&mem, FrameType::Untyped(Order::FRAME), 0);
    let w1_of = StampWord {
        epoch: Epoch::new(1).unwrap(),
        executed_on: 0,
        asked: 0b10,
    };
    mem.store(w1(4), w1_of.bits(), Relaxed);
    let words = (retyping, plain::used(THREAD));
    let claimed = row::retype(&record, frame(4), words, || true, &services);
    assert_eq!(claimed, Err(Refused::Contended));
    let again = FrameWord::new(Version(8), FrameType::Untyped(Order::FRAME));
    assert_eq!(frames(&mem).look(frame(4)), Ok(again));
    assert_eq!((log.begun.get(), log.open.get()), (1, None));
    let before = set(&mem, FrameType::User(Order::FRAME), 0);
    let given_up = row::give_up_frame(&record, frame(4), retyping, 0, &services);
    assert_eq!(given_up, Err(Refused::Contended));
    assert_eq!(mem.load(w0(4), Relaxed), before);
    assert_eq!((log.begun.get(), log.open.get()), (2, None));
}
