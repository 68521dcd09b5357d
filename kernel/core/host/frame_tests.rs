//! Tests of the fast paths of retyping: a fast path is taken where it applies, has the effect of the slow path, and
//! changes nothing where it does not apply.

use std::vec::Vec;

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::Error;
use dyad_abi::cap::ObjectKind;
use dyad_abi::user::PAGE_SIZE;
use dyad_coherence::GlobalMem;
use dyad_retype::{FrameRef, FrameType, FrameWord, KernelKind, Order, StampWord, Use, plain};
use dyad_shm::frame::{Epoch, Version};

use super::system::{System, cx, memory_cap};
use super::{Machine, MockX86, crash};
use crate::syscall::ops::memory::{claim, retype_kernel, to_untyped};
use dyad_machine::Platform;
use dyad_machine::capcache::frames::{OneFrame, Range};
use dyad_object::kinds;

const KIND: ObjectKind = ObjectKind::Time;
const KINDS: u32 = 1 << KernelKind::TIME.get() | 1 << KernelKind::LIVENESS.get();

fn one(m: Machine, frame: FrameRef) -> OneFrame {
    let c = cx(m);
    let cap = memory_cap(frame, 1);
    let range = Range::of(&c, &cap).expect("caches are coherent");
    assert!(range.frame(c.local, cap.payload[0], 1).is_none());
    range.frame(c.local, cap.payload[0], 0).unwrap()
}

fn retype(m: Machine, frame: FrameRef, used: Use) -> Option<()> {
    let c = cx(m);
    let f = one(m, frame);
    assert_eq!(f.address(), Some(frame.address()));
    f.retype(
        plain::used(used),
        |stamp| c.node.tables.quiesced(stamp),
        || MockX86::zero_frame(c.node.map, frame.address()),
    )
}

fn give_up(m: Machine, frame: FrameRef) -> Option<u64> {
    one(m, frame).untype(KINDS).map(|e| e.get())
}

fn record(m: Machine, frame: FrameRef) -> (FrameWord, StampWord) {
    cx(m).frames().read(frame).unwrap()
}

fn set(m: Machine, frame: FrameRef, word: FrameWord) {
    let c = cx(m);
    let at = c.frames().record_at(frame).unwrap();
    c.words().store(at, word.bits(), Ordering::Release);
}

/// What a frame may be when a row is to change it.
fn states(s: &System) -> Vec<FrameRef> {
    let c = cx(s.x());
    let given_up = |used| {
        let weak = s.take(0, used, 0);
        c.frames().to_untyped(weak, used, &c, &c, &c).unwrap();
        weak.frame
    };
    let quiet = given_up(Use::User);
    s.rounds();
    let mapped = s.take(0, Use::User, 0);
    c.frames().pin_user(mapped, Order::FRAME).unwrap();
    let oldest = s.take(0, Use::User, 0).frame;
    let last = FrameWord::new(Version(u32::MAX), FrameType::User(Order::FRAME));
    set(s.x(), oldest, last);
    let others = [
        FrameType::Retyping(super::system::node(1)),
        FrameType::Frozen(Use::User),
    ];
    let mut all = Vec::from([
        quiet,
        given_up(Use::User),
        given_up(Use::Kernel(KernelKind::LIVENESS)),
        s.untyped(0, 0),
        s.untyped(0, 1),
        s.take(0, Use::User, 0).frame,
        s.take(0, Use::User, 1).frame,
        s.object(KernelKind::LIVENESS).frame,
        mapped.frame,
        oldest,
    ]);
    for ty in others {
        let frame = s.take(0, Use::User, 0).frame;
        set(s.x(), frame, FrameWord::new(Version(3), ty));
        all.push(frame);
    }
    all
}

/// What becomes of a frame that is in each of the states, by an operation.
fn outcomes(act: impl Fn(&System, FrameRef)) -> Vec<(FrameWord, StampWord)> {
    let s = System::new(200);
    let frames = states(&s);
    frames
        .into_iter()
        .map(|frame| {
            act(&s, frame);
            assert_eq!(cx(s.x()).intents().read(), None);
            record(s.x(), frame)
        })
        .collect()
}

#[test]
fn frames_are_put_to_use_by_the_fast_path_as_by_the_long_one() {
    let used = Use::Kernel(kinds::of(KIND).kernel);
    let long = outcomes(|s, f| {
        let _ = retype_kernel::<MockX86>(&cx(s.x()), f, KIND);
    });
    let short = outcomes(|s, f| {
        let before = record(s.x(), f);
        let done = retype(s.x(), f, used).is_some();
        assert_eq!(
            done,
            record(s.x(), f) != before,
            "done is what has been said"
        );
    });
    // The slow path splits blocks; the fast path leaves that to it.
    let pairs = long.iter().zip(&short).enumerate();
    let differ: Vec<_> = pairs.filter(|(_, (l, s))| l != s).map(|(i, _)| i).collect();
    assert_eq!(differ, [4], "{long:#?} {short:#?}");
    let made = |all: &[(FrameWord, StampWord)]| {
        let object = |w: &&(FrameWord, StampWord)| w.0.ty == FrameType::Kernel(KernelKind::TIME);
        all.iter().filter(object).count()
    };
    assert_eq!((made(&long), made(&short)), (3, 2));
}

#[test]
fn frames_are_given_up_by_the_fast_path_as_by_the_long_one() {
    let long = outcomes(|s, f| {
        let _ = to_untyped(&cx(s.x()), f);
    });
    let short = outcomes(|s, f| {
        let before = record(s.x(), f);
        let done = give_up(s.x(), f);
        assert_eq!(done.is_some(), record(s.x(), f) != before);
        if let Some(stamp) = done {
            assert_eq!(record(s.x(), f).1.epoch.get(), stamp);
        }
    });
    // Larger blocks, and the last version, are for the slow path.
    let pairs = long.iter().zip(&short).enumerate();
    let differ: Vec<_> = pairs.filter(|(_, (l, s))| l != s).map(|(i, _)| i).collect();
    assert_eq!(differ, [6, 9], "{long:#?} {short:#?}");
}

/// Only the kinds that are asked for: others have to be looked into.
#[test]
fn objects_that_refer_to_others_are_for_the_long_way() {
    let s = System::new(120);
    for kind in [
        KernelKind::COMPONENT,
        KernelKind::THREAD,
        KernelKind::ENDPOINTS,
    ] {
        let frame = s.object(kind).frame;
        assert_eq!(give_up(s.x(), frame), None);
        assert_eq!(record(s.x(), frame).0.ty, FrameType::Kernel(kind));
    }
}

#[test]
fn frames_that_were_used_are_put_to_use_zeroed_and_once_everybody_has_been_quiet() {
    let s = System::new(120);
    let m = s.x();
    let frame = s.take(0, Use::User, 0).frame;
    let word = cx(m).node.map.word(frame.address().add(8 * 511));
    word.store(7, Ordering::Relaxed);
    give_up(m, frame).unwrap();
    assert_eq!(retype(m, frame, Use::User), None, "not quiesced");
    assert_eq!(retype(s.a(), frame, Use::User), None, "nor elsewhere");
    s.rounds();
    retype(s.a(), frame, Use::User).unwrap();
    assert_eq!(word.load(Ordering::Relaxed), 0);
    assert_eq!(retype(m, frame, Use::User), None, "it is used");
}

/// A node that has executed a frame has to rewrite it before it executes it again, whichever program uses it then.
#[test]
fn who_has_executed_a_frame_stays_noted() {
    let s = System::new(120);
    let m = s.x();
    let frame = s.take(0, Use::User, 0).frame;
    let entry =
        dyad_object::tables::record(cx(m).node.map, &cx(m).node.tables, frame.address()).unwrap();
    entry.w1.fetch_or(0b10, Ordering::Relaxed);
    give_up(m, frame).unwrap();
    assert_eq!(entry.w1.load(Ordering::Relaxed) as u8, 0b10);
}

/// Another node changes what is noted of a frame before each step from here on.
fn changes(word: &'static AtomicU64) {
    crash::later(0, move || {
        word.fetch_xor(0x80, Ordering::Relaxed);
        changes(word);
    });
}

/// A block is claimed while another node changes, at each attempt, what is noted of its second frame: the claim is refused,
/// and the block is untyped as before.
#[test]
fn a_block_that_cannot_be_claimed_to_its_end_is_untyped_again() {
    let s = System::new(120);
    let block = s.take(0, Use::User, 1);
    let c = cx(s.x());
    c.frames().to_untyped(block, Use::User, &c, &c, &c).unwrap();
    s.rounds();
    let c = cx(s.x());
    let order = Order::new(1).unwrap();
    let second = block.frame.address().add(PAGE_SIZE);
    let entry = dyad_object::tables::record(c.node.map, &c.node.tables, second).unwrap();
    let rewritten = StampWord {
        epoch: Epoch::ZERO,
        executed_on: 0,
        asked: 0b10,
    };
    entry.w1.fetch_or(rewritten.bits(), Ordering::Relaxed);
    changes(&entry.w1);
    let claimed = claim::<MockX86>(&c, block.frame, order).err();
    crash::later(0, || {});
    crash::now();
    assert_eq!(claimed, Some(Error::Again));
    assert_eq!(s.word(block.frame).ty, FrameType::Untyped(order));
    assert_eq!(c.intents().read(), None);
    assert!(claim::<MockX86>(&c, block.frame, order).is_ok());
}

/// A program asks how much memory it has: a range of 64 GiB or more is told exactly, with type and rights.
#[test]
fn introspection_tells_of_the_largest_ranges() {
    use dyad_abi::cap::Introspection;
    let first = dyad_shm::FrameRef::of(dyad_shm::PoolId::Cxl.base()).unwrap();
    for frames in [1, (1 << 24) - 1, 1 << 24, (1 << 25) + 3, (1 << 27) - 1] {
        let memory = super::system::memory_cap(first, frames);
        let told =
            Introspection::from_bits(crate::syscall::ops::captbl::describe(&memory)).unwrap();
        assert_eq!(
            (told.kind, told.rights, told.detail),
            (memory.ty, memory.rights, frames)
        );
    }
}
