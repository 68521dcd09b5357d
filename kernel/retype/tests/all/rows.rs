//! Each row, one step at a time: what it does, what it refuses, and what it leaves behind when it
//! refuses.

use crate::common;
use crate::common::words;

use std::sync::atomic::Ordering::Relaxed;

use common::{Clock, FRAMES, Log, Unrecorded, frame, initialise, node, pools, retype, w0, w1};
use dyad_abi::Isa;
use dyad_abi::boot::CXL_BASE;
use dyad_coherence::{GlobalMem, HostMem};
use dyad_retype::{
    Epoch, FrameRef, FrameTable, FrameType, FrameWord, IntentRecord, KernelKind, Order, Refs,
    Refused, Row, Use, Version, WeakRef,
};
use dyad_shm::pool::{PhysAddr, PoolId};
use proptest::prelude::*;
use words::*;

const THREAD: Use = Use::Kernel(KernelKind::THREAD);
#[test]
fn a_frame_goes_round() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    let t = frames(&mem);
    set(&mem, 3, 7, FrameType::Untyped(Order::FRAME), 0);
    mem.store(w1(3), 0b101, Relaxed);
    let mut claim = t
        .from_untyped_begin(frame(3), Some(Version(7)), &clock, &log)
        .unwrap();
    assert_eq!(get(&mem, 3).ty, FrameType::Retyping(node(0)));
    let record = IntentRecord::frame(Row::FromUntyped, frame(3), Version(7));
    assert_eq!(log.open.get(), Some(record));
    initialise(&mem, &mut claim);
    let weak = t.from_untyped_finish(claim, THREAD, &log).unwrap();
    assert_eq!((weak.frame, weak.version), (frame(3), Version(7)));
    assert_eq!(t.check(weak, THREAD), Ok(()));
    assert_eq!(t.check(weak, Use::User), Err(Refused::WrongType));
    t.pin_kernel(weak, KernelKind::THREAD).unwrap();
    let give_up = || t.to_untyped(weak, THREAD, &clock, &log, &Unrecorded);
    assert_eq!(give_up(), Err(Refused::InUse));
    t.unpin(frame(3)).unwrap();
    clock.now.set(9);
    assert_eq!(give_up().map(Epoch::get), Ok(9));
    assert_eq!(give_up(), Err(Refused::Stale));
    assert_eq!(t.check(weak, THREAD), Err(Refused::Stale));
    let (word, stamp) = t.read(frame(3)).unwrap();
    assert_eq!(
        word,
        FrameWord::new(Version(8), FrameType::Untyped(Order::FRAME))
    );
    assert_eq!((stamp.epoch.get(), stamp.executed_on), (9, 0b101));
    assert_eq!(log.open.get(), None);
    let again = |v| t.from_untyped_begin(frame(3), Some(Version(v)), &clock, &log);
    assert_eq!(again(7).unwrap_err(), Refused::Stale);
    assert_eq!(again(8).unwrap_err(), Refused::NotQuiesced);
    clock.round(0);
    assert_eq!(again(8).unwrap_err(), Refused::NotQuiesced, "node 1");
    clock.round(1);
    assert!(again(8).is_ok());
}

#[test]
fn versions_run_out_and_stamps_never_go_back() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let t = frames(&mem);
    let last = set(&mem, 1, u32::MAX, FrameType::User(order(0)), 0);
    mem.store(w1(1), 77 << 8, Relaxed);
    t.to_untyped(last, Use::User, &clock, &Unrecorded, &Unrecorded)
        .unwrap();
    assert_eq!(get(&mem, 1).ty, FrameType::Retired);
    assert_eq!(t.read(frame(1)).unwrap().1.epoch.get(), 77);
    assert_eq!(
        t.from_untyped_begin(frame(1), None, &clock, &Unrecorded)
            .unwrap_err(),
        Refused::Retired
    );
}

#[test]
fn frames_that_nobody_may_have_are_refused_by_every_row() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    let t = frames(&mem);
    for (ty, why) in [
        (FrameType::Reserved, Refused::Reserved),
        (FrameType::Retired, Refused::Retired),
        (FrameType::Retyping(node(1)), Refused::Busy),
    ] {
        let weak = set(&mem, 2, 0, ty, 0);
        let f = weak.frame;
        assert_eq!(t.check(weak, THREAD), Err(why));
        assert_eq!(t.pin_kernel(weak, KernelKind::THREAD), Err(why));
        assert_eq!(t.pin_user(weak, order(0)), Err(why));
        assert_eq!(t.unpin(f), Err(why));
        assert_eq!(
            t.to_untyped(weak, Use::User, &clock, &log, &Unrecorded),
            Err(why)
        );
        assert_eq!(
            t.from_untyped_begin(f, None, &clock, &log).unwrap_err(),
            why
        );
        assert_eq!(t.split(f, &log), Err(why));
        assert_eq!(t.merge(f, &log), Err(why));
        assert_eq!(t.freeze(f), Err(why));
        assert_eq!(t.unfreeze(f), Err(why));
        assert_eq!(t.recount(f, Refs::ZERO), Err(Refused::WrongType));
        assert_eq!(
            t.recover_frame(weak, node(0), &clock, &Unrecorded),
            Ok(false)
        );
        set(&mem, 1, 0, FrameType::Untyped(order(0)), 0);
        assert_eq!(get(&mem, 2), FrameWord::new(Version(0), ty));
    }
    // An untyped block does not swallow such a neighbour.
    set(&mem, 2, 0, FrameType::Untyped(order(0)), 0);
    set(&mem, 3, 0, FrameType::Reserved, 0);
    assert_eq!(t.merge(frame(2), &log), Err(Refused::Reserved));
    assert_eq!(log.open.get(), None);
    let beyond = frame(FRAMES);
    assert_eq!(t.read(beyond), Err(Refused::NoFrame));
    assert_eq!(t.unpin(beyond), Err(Refused::NoFrame));
}

#[test]
fn references_stop_at_the_largest_number() {
    let mem = HostMem::new();
    let t = frames(&mem);
    let weak = set(&mem, 4, 1, FrameType::User(order(0)), 0xff_fffe);
    assert_eq!(t.pin_user(weak, order(0)), Ok(frame(4)));
    assert_eq!(t.pin_user(weak, order(0)), Err(Refused::TooManyRefs));
    assert_eq!(get(&mem, 4).refs, Refs::MAX);
    set(&mem, 4, 1, FrameType::User(order(0)), 0);
    assert_eq!(t.unpin(frame(4)), Err(Refused::Corrupt));
    assert_eq!(get(&mem, 4).refs, Refs::ZERO);
}

#[test]
fn a_pool_is_formatted_into_blocks_as_large_as_they_can_be() {
    let mem = HostMem::new();
    let t = frames(&mem);
    let usable = 3..62;
    t.format(PoolId::Cxl, &usable, 3..30).unwrap();
    t.format(PoolId::Cxl, &usable, 30..62).unwrap();
    assert_eq!(
        t.format(PoolId::Cxl, &usable, 60..63),
        Err(Refused::NoFrame)
    );
    let mut heads = Vec::new();
    for i in 0..FRAMES {
        let (head, word) = t.head(frame(i)).unwrap();
        if !usable.contains(&i) {
            assert_eq!((head, word.ty), (frame(i), FrameType::Reserved));
        } else if let FrameType::Untyped(o) = word.ty {
            assert!((head.index()..head.index() + o.frames()).contains(&i));
            assert_eq!(t.order_by_tails(head), o);
            heads.push((head.index(), o.get()));
        } else {
            panic!("{i}: {word}");
        }
    }
    heads.dedup();
    let expected = [
        (3, 0),
        (4, 2),
        (8, 3),
        (16, 4),
        (32, 4),
        (48, 3),
        (56, 2),
        (60, 1),
    ];
    assert_eq!(heads, expected);
}

#[test]
fn a_block_is_one_operation_on_its_head() {
    let (mem, clock, log) = (HostMem::new(), Clock::default(), Log::default());
    let t = frames(&mem);
    t.format(PoolId::Cxl, &(0..64), 0..64).unwrap();
    let whole = retype(&t, &mem, frame(0), Use::User, &clock).unwrap();
    // Entries of several sizes anywhere in the block are references to its head.
    for (at, span, expected) in [
        (0, 6, Ok(frame(0))),
        (37, 0, Ok(frame(0))),
        (36, 2, Ok(frame(0))),
        (38, 2, Err(Refused::WrongOrder)),
        (0, 7, Err(Refused::WrongOrder)),
    ] {
        let weak = WeakRef {
            frame: frame(at),
            ..whole
        };
        assert_eq!(t.pin_user(weak, order(span)), expected, "{at} {span}");
    }
    assert_eq!(get(&mem, 0).refs.get(), 3);
    assert_eq!(t.split(frame(0), &log), Err(Refused::WrongType));
    for at in [63, 1, 0] {
        t.unpin(frame(at)).unwrap();
    }
    t.to_untyped(whole, Use::User, &clock, &log, &Unrecorded)
        .unwrap();
    // Too large for a kernel object: the claim is given up.
    clock.rounds();
    assert_eq!(
        retype(&t, &mem, frame(0), THREAD, &clock),
        Err(Refused::WrongOrder)
    );
    assert_eq!(t.split(frame(0), &log), Ok(frame(32)));
    assert_eq!(t.split(frame(32), &log), Ok(frame(48)));
    assert_eq!(t.read(frame(48)).unwrap().1, t.read(frame(0)).unwrap().1);
    assert_eq!(t.merge(frame(0), &log), Err(Refused::WrongOrder));
    assert_eq!(t.merge(frame(48), &log), Err(Refused::WrongOrder));
    let middle = retype(&t, &mem, frame(48), Use::User, &clock).unwrap();
    assert_eq!(t.merge(frame(32), &log), Err(Refused::WrongType));
    t.to_untyped(middle, Use::User, &clock, &log, &Unrecorded)
        .unwrap();
    assert_eq!(t.merge(frame(32), &log), Ok(order(5)));
    assert_eq!(t.merge(frame(0), &log), Ok(order(6)));
    assert_eq!(t.order_by_tails(frame(0)), order(6));
    // What was referred to is gone for good, and its stamp counts for the whole block.
    assert_eq!(t.check(middle, Use::User), Err(Refused::Stale));
    let claim = || t.from_untyped_begin(frame(0), None, &clock, &log);
    assert_eq!(claim().unwrap_err(), Refused::NotQuiesced);
    clock.rounds();
    let claim = claim().unwrap();
    let early = t.from_untyped_finish(claim, Use::User, &log);
    assert_eq!(early, Err(Refused::Unfinished));
    assert_eq!(get(&mem, 0).ty, FrameType::Untyped(order(6)));
    assert_eq!(log.open.get(), None);
}

#[test]
fn frozen_frames_take_no_references_but_give_them_back() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let t = frames(&mem);
    t.format(PoolId::Cxl, &(0..64), 0..64).unwrap();
    let weak = retype(&t, &mem, frame(0), Use::User, &clock).unwrap();
    t.pin_user(weak, order(0)).unwrap();
    t.pin_user(weak, order(0)).unwrap();
    assert_eq!(t.recount(frame(9), Refs::ZERO), Err(Refused::WrongType));
    assert_eq!(t.freeze(frame(9)), Ok(Use::User));
    assert_eq!(t.freeze(frame(9)), Ok(Use::User));
    assert_eq!(t.pin_user(weak, order(0)), Err(Refused::Frozen));
    let up = t.to_untyped(weak, Use::User, &clock, &Unrecorded, &Unrecorded);
    assert_eq!(up, Err(Refused::Frozen));
    assert_eq!(t.check(weak, Use::User), Ok(()));
    set(&mem, 63, 1, FrameType::Kernel(KernelKind::THREAD), 1);
    let no = Err(Refused::Frozen);
    assert_eq!(t.may_unpin(frame(5), frame(63)), no, "the block");
    assert_eq!(t.may_unpin(frame(63), frame(5)), no, "the table");
    assert_eq!(t.may_unpin(frame(63), frame(63)), Ok(()));
    // A row that has asked before.
    t.unpin(frame(5)).unwrap();
    assert_eq!(get(&mem, 0).refs.get(), 1);
    t.recount(frame(9), Refs::new(4).unwrap()).unwrap();
    t.unfreeze(frame(9)).unwrap();
    t.unfreeze(frame(9)).unwrap();
    assert_eq!(t.may_unpin(frame(5), frame(63)), Ok(()));
    let word = get(&mem, 0);
    assert_eq!((word.ty, word.refs.get()), (FrameType::User(order(6)), 4));
    let kernel = set(&mem, 1, 1, FrameType::Kernel(KernelKind::THREAD), 2);
    assert_eq!(t.freeze(kernel.frame), Ok(THREAD));
    t.unfreeze(kernel.frame).unwrap();
    assert_eq!(get(&mem, 1).ty, FrameType::Kernel(KernelKind::THREAD));
}

#[test]
fn walkers_pin_what_is_as_expected_and_nothing_else() {
    let mem = HostMem::new();
    let t = frames(&mem);
    let kind = KernelKind::page_table(Isa::X86_64, 0).unwrap();
    let table = set(&mem, 3, 7, FrameType::Kernel(kind), 1);
    let head = set(&mem, 8, 5, FrameType::User(order(2)), 0);
    set(&mem, 10, 0, FrameType::Tail(order(1)), 0);
    let refs = || (get(&mem, 3).refs.get(), get(&mem, 8).refs.get());
    assert_eq!(t.head_now(frame(10)), Ok((head, true)));
    assert_eq!(t.head_now(frame(3)), Ok((table, true)));

    let (raw, found) = t.as_found(frame(3)).unwrap();
    assert_eq!(found, table);
    t.pin_table(frame(3), raw, kind).unwrap();
    // By the word of before it was pinned, too: references are not what it is.
    t.pin_table(frame(3), raw, kind).unwrap();
    assert_eq!(refs(), (3, 0));
    t.unpin_head(frame(3)).unwrap();
    t.unpin_head(frame(3)).unwrap();
    let other = KernelKind::page_table(Isa::Aarch64, 0).unwrap();
    let wrong = t.pin_table(frame(3), raw, other);
    assert_eq!(wrong, Err(Refused::WrongType));
    // It has changed hands since it was found.
    set(&mem, 3, 8, FrameType::Kernel(kind), 1);
    let late = t.pin_table(frame(3), raw, kind);
    assert_eq!(late, Err(Refused::Stale));

    t.pin_block(head, frame(10), order(0)).unwrap();
    t.pin_block(head, frame(10), order(1)).unwrap();
    assert_eq!(refs(), (1, 2));
    t.unpin_head(head.frame).unwrap();
    t.unpin_head(head.frame).unwrap();
    let old = WeakRef {
        version: Version(4),
        ..head
    };
    for (head, at, span, why) in [
        (old, 10, 0, Refused::Stale),
        (head, 12, 0, Refused::WrongOrder),
        (head, 7, 0, Refused::WrongOrder),
        (head, 9, 1, Refused::WrongOrder),
        (head, 8, 3, Refused::WrongOrder),
        // An old capability says so first.
        (old, 12, 0, Refused::Stale),
    ] {
        let done = t.pin_block(head, frame(at), order(span));
        assert_eq!(done, Err(why), "{at} {span}");
        assert_eq!(refs(), (1, 0));
    }
    for (ty, refs, why) in [
        (
            FrameType::User(order(2)),
            Refs::MAX.get(),
            Refused::TooManyRefs,
        ),
        (FrameType::Frozen(Use::User), 0, Refused::Frozen),
        (FrameType::Reserved, 0, Refused::Reserved),
        (FrameType::Kernel(kind), 0, Refused::WrongType),
        (FrameType::Retyping(node(1)), 0, Refused::Busy),
    ] {
        set(&mem, 8, 5, ty, refs);
        let done = t.pin_block(head, frame(8), order(0));
        assert_eq!(done, Err(why), "{ty:?}");
        assert_eq!(get(&mem, 8).refs.get(), refs);
    }
}

#[test]
fn a_table_is_pinned_by_one_link_only() {
    let mem = HostMem::new();
    let t = frames(&mem);
    let kind = KernelKind::page_table(Isa::X86_64, 0).unwrap();
    let table = set(&mem, 3, 7, FrameType::Kernel(kind), 0);
    t.pin_only(table, kind).unwrap();
    assert_eq!(t.pin_only(table, kind), Err(Refused::InUse));
    assert_eq!(get(&mem, 3).refs.get(), 1);
    t.unpin(table.frame).unwrap();
    let epoch = Epoch::new(9).unwrap();
    t.stamp_unlinked(table.frame, epoch).unwrap();
    assert_eq!(t.read(table.frame).unwrap().1.epoch, epoch);
    assert_eq!(get(&mem, 3).ty, FrameType::Kernel(kind));
    let old = WeakRef {
        version: Version(6),
        ..table
    };
    assert_eq!(t.pin_only(old, kind), Err(Refused::Stale));
    assert_eq!(
        t.pin_only(table, KernelKind::THREAD),
        Err(Refused::WrongType)
    );
}

proptest! {
    #![proptest_config(common::cases(256, 4))]

    /// Damaged memory is refused or worked with, and nothing hangs or panics.
    #[test]
    fn any_words_are_survived(
        words in prop::collection::vec((any::<u64>(), any::<u64>(), 0..4u8), 8),
        at in 0..8u64,
        version in any::<u32>(),
    ) {
        let (mem, clock, log) = (HostMem::new(), Clock::default(), Unrecorded);
        let t: FrameTable<'_, _> =
            FrameTable::new(&mem, pools().with(PoolId::Cxl, PhysAddr(CXL_BASE), 8), node(0));
        for (i, (a, b, sound)) in words.iter().enumerate() {
            // Most words are nearly sound, so that more than the first check is reached.
            let a = if *sound == 0 { *a } else { a & 0xffff_ffff_e700_0003 };
            mem.store(w0(i as u64), a, Relaxed);
            mem.store(w1(i as u64), *b, Relaxed);
        }
        let f = frame(at);
        let version = t.current(f).map_or(Version(version), |w| w.version);
        let weak = WeakRef { frame: f, version };
        let _ = t.check(weak, Use::User);
        let _ = t.pin_user(weak, order(1));
        let _ = t.pin_kernel(weak, KernelKind::THREAD);
        let _ = t.split(f, &log);
        let _ = t.merge(f, &log);
        let _ = t.freeze(f);
        let _ = t.recount(f, Refs::MAX);
        let _ = t.unfreeze(f);
        let _ = t.unpin(f);
        let _ = t.recover_frame(weak, node(0), &clock, &Unrecorded);
        let _ = t.to_untyped(weak, Use::User, &clock, &log, &Unrecorded);
        if let Ok(claim) = t.from_untyped_begin(f, None, &clock, &log) {
            let _ = t.from_untyped_abandon(claim, &log);
        }
        let _: Option<FrameRef> = t.head(f).ok().map(|(h, _)| h);
    }
}
