//! Page faults, and copies from and to user memory.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use std::boxed::Box;
use std::rc::Rc;
use std::thread;
use std::vec;
use std::vec::Vec;

use dyad_abi::cap::RegionKind;
use dyad_abi::user::{PAGE_SIZE, TRANSLATE_PA, USER_END};
use dyad_abi::{Error, Isa};
use dyad_pgtbl::{Level, Perms};
use dyad_quiesce::{DirtyEntry, LogWriter};
use dyad_retype::{FrameType, Use};
use dyad_shm::frame::{FrameRef, WeakRef};

use super::system::{PAIR, System, VA, cx, frame, frame_cap, memory_cap, this};
use super::{Did, Machine, MockA64, MockX86, crash};
use crate::syscall::ops::space::{harvest, map, protect, supply, supply_run, translate, unmap};
use dyad_machine::cpu::CpuLocal;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::FaultKind::{self, Execute, Read, Write};
use dyad_machine::platform::Interrupt;
use dyad_object::memory::Words;
use dyad_object::node::Node;
use dyad_object::space::{Region, Supply};
use dyad_space::copy::{MAX_COPY, copy_in, copy_out, exchange};
use dyad_space::resolve::{Outcome, resolve};

/// More frames than a fault tries.
const MANY: u64 = 5 * dyad_space::supply::TRIES as u64 + 3;
/// Supplies start here in each pool.
pub(super) const FIRST: u64 = 8;

/// A space with supplies of `frames` frames for each node, and a region from [`VA`] on.
pub(super) fn with_region(frames: u64, kind: RegionKind, write: bool) -> (System, WeakRef) {
    let s = System::new(400);
    let space = s.space();
    let c = cx(s.x());
    let t = this(&c, space);
    for node in 0..2 {
        let first = frame(node as usize, FIRST);
        supply(&t, node, Some(&memory_cap(first, frames))).unwrap();
    }
    let kind = kind as u64 | (write as u64) << 8;
    let region = Region::new(VA, 1 << 30, kind).unwrap();
    t.space.add_region(c.words(), c.node.id(), region).unwrap();
    (s, space)
}

pub(super) fn fault(
    m: Machine,
    space: WeakRef,
    va: u64,
    kind: FaultKind,
) -> dyad_abi::Result<Outcome> {
    let c = cx(m);
    match m.node().isa(m.node().id()) {
        Isa::X86_64 => resolve::<MockX86>(&c, space, va, kind),
        Isa::Aarch64 => resolve::<MockA64>(&c, space, va, kind),
    }
}

pub(super) fn seen(s: &System, space: WeakRef, isa: Isa, va: u64) -> Option<u64> {
    let c = cx(s.x());
    let seen = translate(&this(&c, space), isa, va).ok()?;
    Some(seen & TRANSLATE_PA)
}

pub(super) fn used_frames(s: &System, node: usize, frames: u64) -> Vec<(FrameType, u32)> {
    (FIRST..FIRST + frames)
        .map(|i| s.word(frame(node, i)))
        .filter(|w| w.ty.in_use().is_some())
        .map(|w| (w.ty, w.refs.get()))
        .collect()
}

#[test]
fn both_tables_get_the_page_whoever_faults() {
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    assert_eq!(fault(s.x(), space, VA + 5, Write), Ok(Outcome::Filled));
    assert_eq!(
        fault(s.a(), space, VA + PAGE_SIZE, Read),
        Ok(Outcome::Filled)
    );
    for page in 0..2 {
        let va = VA + page * PAGE_SIZE;
        let here = seen(&s, space, Isa::X86_64, va).unwrap();
        assert_eq!(seen(&s, space, Isa::Aarch64, va), Some(here));
        // From the pool of the node that touched it first.
        assert_eq!(here >> 34, page + 1);
        let frame = dyad_shm::FrameRef::of(dyad_shm::PhysAddr(here)).unwrap();
        assert_eq!(s.word(frame).refs.get(), 2);
    }
    // There already: only the TLB did not know.
    s.x().did();
    assert_eq!(fault(s.x(), space, VA, Write), Ok(Outcome::Present));
    assert_eq!(s.x().did(), [Did::FlushedTlb]);
    // One page and three tables for each ISA; then one page.
    assert_eq!(used_frames(&s, 0, 64).len(), 7);
    assert_eq!(used_frames(&s, 1, 64).len(), 1);
    let c = cx(s.x());
    assert_eq!(c.intents().read(), None);
}

#[test]
fn only_accesses_that_a_region_allows_are_resolved() {
    let (s, space) = with_region(64, RegionKind::Anonymous, false);
    for (va, kind) in [
        (VA, Write),
        (VA, Execute),
        (VA - 1, Read),
        (VA + (1 << 30), Read),
        (0, Read),
        (USER_END, Read),
        (!0, Execute),
        (dyad_shm::FUSED_BASE, Read),
    ] {
        assert_eq!(
            fault(s.x(), space, va, kind),
            Err(Error::BadAddress),
            "{va:#x}"
        );
    }
    assert_eq!(fault(s.x(), space, VA, Read), Ok(Outcome::Filled));
    assert_eq!(fault(s.x(), space, VA, Write), Err(Error::BadAddress));
    for kind in [RegionKind::Guard, RegionKind::PerIsa, RegionKind::Shared] {
        let (s, space) = with_region(64, kind, true);
        for access in [Read, Write, Execute] {
            assert_eq!(fault(s.a(), space, VA, access), Err(Error::BadAddress));
        }
    }
}

/// Maps a page by capability on x86-64 only.
pub(super) fn map_on_x(s: &System, space: WeakRef, bits: Perms) -> WeakRef {
    s.tables(space, Isa::X86_64, VA, Level::L1);
    let frame = s.take(0, Use::User, 0);
    let c = cx(s.x());
    let at = dyad_abi::cap::TableAt {
        isa: Isa::X86_64,
        level: 1,
    };
    let cap = frame_cap(frame, 1);
    map::<MockX86>(&this(&c, space), at, VA, &cap, 0, Perms::READ | bits).unwrap();
    frame
}

#[test]
fn a_page_of_the_other_isa_is_shown() {
    let (s, space) = with_region(64, RegionKind::Shared, true);
    let frame = map_on_x(&s, space, Perms::WRITE);
    assert_eq!(fault(s.a(), space, VA + 9, Write), Ok(Outcome::Copied));
    let pa = Some(frame.frame.address().0);
    assert_eq!(seen(&s, space, Isa::Aarch64, VA), pa);
    assert_eq!(s.refs(frame), 2);
    // Only tables were taken for it.
    assert_eq!(used_frames(&s, 1, 64).len(), 3);
    let c = cx(s.x());
    let t = this(&c, space);
    assert_eq!(
        t.space
            .faults_copied
            .load(core::sync::atomic::Ordering::Relaxed),
        1
    );
    for isa in PAIR {
        unmap(&t, isa, VA).unwrap();
    }
    assert_eq!(s.refs(frame), 0);
    assert!(
        matches!(s.word(frame.frame).ty, FrameType::User(_)),
        "not the space's"
    );
    assert_eq!(fault(s.a(), space, VA, Read), Err(Error::BadAddress));
}

#[test]
fn what_one_isa_may_not_write_or_has_to_itself_the_other_does_not_get() {
    for (kind, perms, access) in [
        (RegionKind::Shared, Perms::READ, Write),
        (RegionKind::Anonymous, Perms::READ, Write),
        (RegionKind::Shared, Perms::EXECUTE, Execute),
        (RegionKind::Shared, Perms::EXECUTE, Read),
        (RegionKind::PerIsa, Perms::WRITE, Read),
    ] {
        let (s, space) = with_region(64, kind, true);
        let frame = map_on_x(&s, space, perms);
        assert_eq!(fault(s.a(), space, VA, access), Err(Error::BadAddress));
        assert_eq!(s.refs(frame), 1);
        assert_eq!(seen(&s, space, Isa::Aarch64, VA), None);
    }
}

#[test]
fn what_a_space_has_of_a_large_page_is_shown_in_small_ones() {
    let (s, space) = {
        let s = System::new(1700);
        let space = s.space();
        let c = cx(s.x());
        let t = this(&c, space);
        supply(&t, 1, Some(&memory_cap(frame(1, FIRST), 32))).unwrap();
        let region = Region::new(VA, 1 << 30, RegionKind::Shared as u64 | 1 << 8).unwrap();
        t.space.add_region(c.words(), c.node.id(), region).unwrap();
        (s, space)
    };
    s.tables(space, Isa::X86_64, VA, Level::L2);
    let block = s.user(9);
    let c = cx(s.x());
    let at = dyad_abi::cap::TableAt {
        isa: Isa::X86_64,
        level: 2,
    };
    let t = this(&c, space);
    map::<MockX86>(&t, at, VA, &block, 0, Perms::READ | Perms::WRITE).unwrap();
    let va = VA + 37 * PAGE_SIZE;
    assert_eq!(fault(s.a(), space, va, Write), Ok(Outcome::Copied));
    let pa = block.object.unwrap().frame.address().0 + 37 * PAGE_SIZE;
    assert_eq!(seen(&s, space, Isa::Aarch64, va), Some(pa));
    assert_eq!(seen(&s, space, Isa::Aarch64, va + PAGE_SIZE), None);
    assert_eq!(s.refs(block.object.unwrap()), 2);
    unmap(&t, Isa::Aarch64, va).unwrap();
    unmap(&t, Isa::X86_64, va).unwrap();
    assert_eq!(s.refs(block.object.unwrap()), 0);
}

#[test]
fn faults_take_no_more_than_there_is() {
    for frames in 1..16 {
        let (s, space) = with_region(frames, RegionKind::Anonymous, true);
        let mut filled = 0;
        for page in 0..frames + 2 {
            match fault(s.x(), space, VA + page * PAGE_SIZE, Write) {
                Ok(Outcome::Filled) => filled += 1,
                Err(Error::NoMemory) => {}
                // The deciding table had it; the other ISA's could not be extended.
                other => panic!("{other:?} with {frames} frames"),
            }
        }
        // Three tables for the deciding ISA and a page; then what is left is for the other's tables,
        // which may be short of one, and then stay empty.
        let most = match frames {
            0..4 => 0,
            4..7 => 1,
            n => n - 6,
        };
        assert_eq!(filled, most, "{frames}");
        let used = used_frames(&s, 0, frames);
        assert!(used.len() as u64 <= frames);
        for (ty, refs) in used {
            assert!(refs > 0, "{ty:?} is lost, with {frames} frames");
        }
        assert_eq!(
            fault(s.x(), space, VA + (1 << 20), Write),
            Err(Error::NoMemory)
        );
    }
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    let c = cx(s.x());
    supply(&this(&c, space), 0, None).unwrap();
    assert_eq!(fault(s.x(), space, VA, Write), Err(Error::NoMemory));
    assert!(
        fault(s.a(), space, VA, Write).is_ok(),
        "that node has its own"
    );
}

/// Pages come from the run that was added last, tables from the first one as long as there is room; a run
/// that is taken away is not used any more, nor are those behind it.
#[test]
fn supplies_of_several_runs_keep_the_first_for_tables() {
    let (s, space) = with_region(16, RegionKind::Anonymous, true);
    let c = cx(s.x());
    let t = this(&c, space);
    let memory = memory_cap(frame(0, FIRST), 200);
    let run = |run, at, frames| supply_run(&t, 0, Some(&memory), run, (at, frames));
    for (number, at, frames) in [(5, 16, 8), (1, 200, 1), (1, 193, 8), (1, 0, 201)] {
        assert_eq!(run(number, at, frames), Err(Error::BadArgument));
    }
    run(1, 40, 8).unwrap();
    run(2, 60, 8).unwrap();
    let total = t.space.supply(c.words(), c.node.id()).unwrap().frames();
    assert_eq!(total, 28, "four are for tables");
    let fill = |page| loop {
        match fault(s.x(), space, VA + page * PAGE_SIZE, Write) {
            Err(Error::Again) => {}
            done => return done,
        }
    };
    // What lies in a range of the memory: pages, tables.
    let used = |at: u64, frames: u64| {
        let all = (at..at + frames).map(|i| s.word(frame(0, FIRST + i)).ty);
        let pages = all.clone().filter(|ty| matches!(ty, FrameType::User(_)));
        let tables = all.clone().filter(|ty| matches!(ty, FrameType::Kernel(_)));
        (pages.count(), tables.count())
    };
    for page in 0..8 {
        assert_eq!(fill(page), Ok(Outcome::Filled));
    }
    assert_eq!(
        (used(0, 16), used(40, 8), used(60, 8)),
        ((0, 6), (0, 0), (8, 0))
    );
    assert_eq!(fill(8), Ok(Outcome::Filled));
    assert_eq!((used(40, 8), used(60, 8)), ((1, 0), (8, 0)));
    // Tables go on below those that there are, also if runs have been added since.
    let below = t.space.supplies[0]
        .tables
        .load(core::sync::atomic::Ordering::Relaxed);
    run(3, 70, 8).unwrap();
    supply_run(&t, 0, None, 3, (0, 0)).unwrap();
    let now = t.space.supplies[0]
        .tables
        .load(core::sync::atomic::Ordering::Relaxed);
    assert_eq!(now, below);
    // Without the second one there is only the first.
    supply_run(&t, 0, None, 1, (0, 0)).unwrap();
    for page in 9..19 {
        assert_eq!(fill(page), Ok(Outcome::Filled));
    }
    assert_eq!((used(0, 16), used(40, 8)), ((10, 6), (1, 0)));
    assert_eq!(fill(19), Err(Error::NoMemory));
    // One that becomes longer is gone on with behind what it was.
    run(0, 0, 20).unwrap();
    assert_eq!(c.words().read(&t.space.supplies[0].cursor), 16);
    assert_eq!(
        fault(s.x(), space, VA + 19 * PAGE_SIZE, Write),
        Ok(Outcome::Filled)
    );
    // Tables take what is free elsewhere if the first run is full.
    run(0, 0, 16).unwrap();
    run(1, 40, 8).unwrap();
    assert_eq!(fill(1 << 9), Ok(Outcome::Filled));
    assert_eq!(used(40, 8), (2, 2));
}

/// A space whose supply is in use but for one frame, just before which the search begins; and the first page that is
/// not there.
fn one_frame_left(frames: u64) -> (System, WeakRef, u64) {
    let (s, space) = with_region(frames, RegionKind::Anonymous, true);
    let mut page = 0;
    while attempts(&s, space, VA + page * PAGE_SIZE).0 == Ok(Outcome::Filled) {
        page += 1;
    }
    let beyond = VA + page * PAGE_SIZE;
    assert_eq!(attempts(&s, space, beyond).0, Err(Error::NoMemory));
    let c = cx(s.x());
    let t = this(&c, space);
    for isa in Isa::ALL {
        unmap(&t, isa, VA + 20 * PAGE_SIZE).unwrap();
    }
    s.rounds();
    let free = (0..frames).find(|&i| s.word(frame(0, FIRST + i)).ty.in_use().is_none());
    // The cursor has just passed it.
    let cursor = &t.space.supplies[0].cursor;
    c.words().replace(cursor, free.unwrap() + 1);
    (s, space, beyond)
}

/// A fault, tried again as often as it asks for that; and how often.
fn attempts(s: &System, space: WeakRef, va: u64) -> (Result<Outcome, Error>, u32) {
    let mut n = 0;
    loop {
        n += 1;
        match fault(s.x(), space, va, Write) {
            Err(Error::Again) => assert!(n < 10, "no end"),
            done => return (done, n),
        }
    }
}

/// More frames in use in a row than a fault tries are no reason to say that there is no memory; that
/// all of them are is.
#[test]
fn a_fault_finds_the_only_free_frame_of_its_supply() {
    let (s, space, beyond) = one_frame_left(MANY);
    let (done, n) = attempts(&s, space, beyond);
    assert_eq!(done, Ok(Outcome::Filled));
    assert!(n > 1, "the frame was not behind the cursor");
    let next = beyond + PAGE_SIZE;
    assert_eq!(attempts(&s, space, next).0, Err(Error::NoMemory));
}

/// A copy whose fault takes several stretches takes interrupts in between, and may end in user mode without the run
/// loop. The timer is not forgotten: the thread would run for as long as it likes.
#[test]
fn a_timer_that_fires_within_a_copy_interrupts_user_mode_at_once() {
    for comes in [None, Some(Interrupt::Timer), Some(Interrupt::Doorbell)] {
        let (s, space, beyond) = one_frame_left(MANY);
        let c = cx(s.x());
        c.local.timer_at.set(77);
        crate::host::interrupted_by(comes);
        copy_out::<MockX86>(&c, space, beyond, &[1]).unwrap();
        assert!(
            !crate::host::interrupts_are_pending(),
            "the copy was one stretch"
        );
        let expected = comes.map_or(77, |_| CpuLocal::AT_ONCE);
        assert_eq!(c.local.timer_at.get(), expected, "{comes:?}");
    }
}

#[test]
fn copies_fault_pages_in_and_check_every_page() {
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    let bytes: Vec<u8> = (0..9000u32).map(|i| i as u8).collect();
    let c = cx(s.x());
    let at = VA + PAGE_SIZE - 100;
    copy_out::<MockX86>(&c, space, at, &bytes).unwrap();
    let other = cx(s.a());
    let mut back = vec![0; bytes.len()];
    copy_in::<MockA64>(&other, space, at, &mut back).unwrap();
    assert_eq!(back, bytes);
    let c = cx(s.x());
    assert_eq!(copy_in::<MockX86>(&c, space, 0, &mut []), Ok(()));
    for va in [0, USER_END - 4, VA - 4, dyad_shm::FUSED_BASE, !3] {
        let mut eight = [0; 8];
        assert_eq!(
            copy_in::<MockX86>(&c, space, va, &mut eight),
            Err(Error::BadAddress),
            "{va:#x}"
        );
    }
    let mut large = vec![0; MAX_COPY + 1];
    assert_eq!(
        copy_in::<MockX86>(&c, space, VA, &mut large),
        Err(Error::TooLarge)
    );
    let t = this(&c, space);
    protect::<MockX86>(&t, Isa::X86_64, VA, Perms::READ).unwrap();
    assert_eq!(
        copy_out::<MockX86>(&c, space, VA, &[1]),
        Err(Error::BadAddress)
    );
    let nothing = s.take(0, Use::User, 0);
    assert_eq!(
        copy_out::<MockX86>(&c, nothing, VA, &[1]),
        Err(Error::Revoked)
    );
}

#[test]
fn of_two_who_exchange_a_word_one_is_first() {
    const TURNS: u64 = 2000;
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    let worlds = [s.world.twin(), s.world.twin()];
    thread::scope(|scope| {
        for (which, w) in worlds.into_iter().enumerate() {
            scope.spawn(move || {
                let c = cx(w.machine(which));
                let change = |old, new| match which {
                    0 => exchange::<MockX86>(&c, space, VA + 8, old, new),
                    _ => exchange::<MockA64>(&c, space, VA + 8, old, new),
                };
                let (mut won, mut last) = (0, 0);
                while won < TURNS {
                    match change(last, last + 1) {
                        Ok(was) if was == last => won += 1,
                        Ok(was) => last = was,
                        Err(e) => assert_eq!(e, Error::Again),
                    }
                }
            });
        }
    });
    let c = cx(s.x());
    let change = |va, old| exchange::<MockX86>(&c, space, va, old, 1);
    assert_eq!(change(VA + 8, u64::MAX), Ok(2 * TURNS));
    assert_eq!(change(VA + 4, 0), Err(Error::BadArgument));
    assert_eq!(change(VA - 8, 0), Err(Error::BadAddress));
    protect::<MockX86>(&this(&c, space), Isa::X86_64, VA, Perms::READ).unwrap();
    assert_eq!(change(VA + 8, 2 * TURNS), Err(Error::BadAddress));
}

/// A word that another node may have changed is looked at in memory, where caches are not coherent: by an access of the
/// kernel to shared memory, of which this host takes note.
#[test]
fn a_word_that_is_not_exchanged_is_looked_at_in_memory() {
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    let c = cx(s.x());
    let change = || exchange::<MockX86>(&c, space, VA + 8, 5, 6);
    assert_eq!(change(), Ok(0));
    let at = translate(&this(&c, space), Isa::X86_64, VA).unwrap() & TRANSLATE_PA;
    let (was, steps) = crash::traced(change);
    assert_eq!(was, Ok(0));
    let line = (at + 8) / dyad_coherence::LINE_BYTES;
    assert!(steps.iter().any(|s| s.line == line && !s.is_change));
}

/// A machine's first CPU, on a machine whose caches are not coherent. `None`: this host cannot flush lines.
pub(super) fn incoherent(m: Machine) -> Option<KernelCtx> {
    let plain = cx(m);
    let words = Words::incoherent(plain.node.map).ok()?;
    let words = Box::leak(Box::new(words));
    let node = Node::new(plain.node.params.clone(), words).unwrap();
    Some(KernelCtx {
        node: Box::leak(Box::new(node)),
        local: plain.local,
    })
}

/// Where caches are not coherent, a round of another node that begins at any moment of a `Protect` finds the table in the
/// log, or does not count for the stamp.
#[test]
fn what_may_be_done_with_a_page_is_logged_before_it_is_stamped() {
    for steps in 0.. {
        let (s, space) = with_region(64, RegionKind::Anonymous, true);
        let Some(c) = incoherent(s.x()) else {
            return; // This host cannot flush lines.
        };
        let log = LogWriter::attach(c.epochs(), c.node.id(), c.cpu());
        *c.local.log.borrow_mut() = Some(log);
        resolve::<MockX86>(&c, space, VA, Write).unwrap();
        let t = this(&c, space);
        let head = super::word(
            c.node,
            dyad_shm::PoolId::Cxl
                .base()
                .add(dyad_shm::superblock::QUIESCE_OFFSET)
                .add(core::mem::offset_of!(dyad_shm::quiesce::QuiesceArea, logs) as u64)
                .add(core::mem::offset_of!(dyad_shm::quiesce::FlushLog, head) as u64),
        );
        let before = head.load(Relaxed);
        let seen = Rc::new(Cell::new((0, false)));
        let sees = seen.clone();
        let epoch = &c.node.sb.epoch;
        let begins = move || {
            let begun = epoch.fetch_add(1, Relaxed) + 1;
            sees.set((begun, head.load(Relaxed) != before));
        };
        let mut stamp = 0;
        let came = crash::between(steps, begins, || {
            stamp = protect::<MockX86>(&t, Isa::X86_64, VA, Perms::READ).unwrap();
        });
        *c.local.log.borrow_mut() = None;
        let (begun, is_logged) = seen.get();
        assert!(!came || is_logged || stamp >= begun, "step {steps}");
        if !came {
            assert!(head.load(Relaxed) != before);
            return;
        }
    }
}

/// Where caches are not coherent, leaves have accessed and dirty preset, and what others may hold
/// copies of is in the log before it is stamped.
#[test]
fn without_coherent_caches_entries_are_preset_and_changes_are_logged() {
    let (s, space) = with_region(64, RegionKind::Anonymous, true);
    let Some(c) = incoherent(s.x()) else {
        return; // This host cannot flush lines.
    };
    let node = c.node;
    let log = LogWriter::attach(c.epochs(), node.id(), c.cpu());
    *c.local.log.borrow_mut() = Some(log);
    resolve::<MockX86>(&c, space, VA, Write).unwrap();
    let t = this(&c, space);
    for isa in PAIR {
        assert_eq!(harvest(&t, isa, VA), Ok(3));
        assert_eq!(harvest(&t, isa, VA), Ok(3), "nothing is cleared");
    }
    let pa = translate(&t, Isa::X86_64, VA).unwrap() & TRANSLATE_PA;
    let log_words = || {
        let log = dyad_shm::PoolId::Cxl
            .base()
            .add(dyad_shm::superblock::QUIESCE_OFFSET)
            .add(core::mem::offset_of!(dyad_shm::quiesce::QuiesceArea, logs) as u64);
        let entries = core::mem::offset_of!(dyad_shm::quiesce::FlushLog, entries) as u64;
        (0..dyad_shm::quiesce::LOG_ENTRIES as u64)
            .map(move |i| super::word(node, log.add(entries + i * 8)))
    };
    let logged = |what: DirtyEntry| {
        let (at, _) = what.range();
        let kind = match what {
            DirtyEntry::Line(_) => 1,
            DirtyEntry::Table(_) => 2,
            DirtyEntry::User(_) => 3,
            DirtyEntry::Object(_) => 4,
            DirtyEntry::LargeUser(_) => 5,
        };
        log_words().any(|w| w.load(core::sync::atomic::Ordering::Relaxed) == at.0 | kind)
    };
    let forget = || log_words().for_each(|w| w.store(0, core::sync::atomic::Ordering::Relaxed));
    let is_logged = |isa: Isa, level: Level| {
        let place = t.driver(isa).unwrap().find(VA, level).unwrap();
        logged(DirtyEntry::Table(place.table()))
    };
    let frame = DirtyEntry::User(dyad_shm::PhysAddr(pa));
    assert!(!logged(frame));
    for isa in PAIR {
        assert!(is_logged(isa, Level::L2), "a table has been linked there");
        assert!(is_logged(isa, Level::L1));
    }
    let range = Supply {
        first: FrameRef::of(dyad_shm::PhysAddr(pa)).unwrap(),
        frames: 1,
    };
    forget();
    t.park(VA, &range).unwrap();
    assert_eq!(PAIR.map(|isa| is_logged(isa, Level::L1)), [true; 2]);
    t.unpark(VA, &range).unwrap();
    for isa in PAIR {
        forget();
        protect::<MockX86>(&t, isa, VA, Perms::READ).unwrap();
        assert!(is_logged(isa, Level::L1));
        unmap(&t, isa, VA).unwrap();
    }
    assert!(logged(frame));
    *c.local.log.borrow_mut() = None;
}
