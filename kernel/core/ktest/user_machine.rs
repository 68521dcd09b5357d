//! What the machine does at the border of user mode, for real: flags of programs at a trap, address spaces that are
//! switched, translations that are dropped. The probe loads its registers from a table at its stack pointer and stores what
//! it finds afterwards 64 words behind.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{ObjectKind, RegionKind};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Leaf, Level, Perms, Pte, encode};
use dyad_shm::PhysAddr;
use dyad_shm::frame::WeakRef;

use super::rig::{self, Rig};
use super::user_calls::{self, for_real};
use super::user_real::{CODE, Probe, install};
use super::{Outcome, Stop, TestCtx, ensure, gives, ktest, spaces};
use dyad_object::component::Component;
use dyad_object::find;
use dyad_space::mapping::page;

/// Where pages with tables of the probe are, and where in such a page: below its table it has a little stack.
const VA: u64 = 0x5000_0000;
const TABLE: u64 = 0x400;
/// Words of the table: flags; the first of what the probe stores; the flags among that.
const FLAGS: u64 = 32;
const OUT: u64 = 64;
const OUT_FLAGS: u64 = 96;

fn word(rig: &Rig<'_>, at: PhysAddr, n: u64) -> &'static core::sync::atomic::AtomicU64 {
    rig.cx.node.map.word(at.add(8 * n))
}

/// Runs the probe with its table at `sp`.
fn run(rig: &Rig<'_>, probe: &Probe, sp: u64) {
    let area = probe.thread.regs(rig.cx.machine.isa());
    rig.cx.machine.init_regs(area, CODE, sp, VA);
    for_real(|| rig.cx.machine.run_area(area));
}

/// A table in which every register is `fill`, and which has never been written to by the probe.
fn fill(rig: &Rig<'_>, table: PhysAddr, fill: u64) {
    for n in 0..OUT {
        word(rig, table, n).store(fill, Ordering::Relaxed);
    }
    for n in OUT..OUT + 34 {
        word(rig, table, n).store(!0, Ordering::Relaxed);
    }
    // The flags of a program that has set none.
    let [_, left] = rig.cx.machine.user_probe().flags;
    word(rig, table, FLAGS).store(left, Ordering::Relaxed);
    // A call that there is not.
    let call = rig.cx.machine.user_probe().call[0] as u64;
    word(rig, table, call).store(u64::MAX, Ordering::Relaxed);
}

/// A register that calls preserve, as the probe has found it.
fn found(rig: &Rig<'_>, table: PhysAddr) -> u64 {
    let n = rig.cx.machine.user_probe().preserved[0] as u64;
    word(rig, table, OUT + n).load(Ordering::Relaxed)
}

/// The program has set all flags that it may set, among them those by which strings go downwards and accesses to its pages
/// are permitted. Then it touches a page that is not there.
#[ktest]
fn user_code_that_faults_leaves_its_flags_behind(cx: &TestCtx<'_>) -> Outcome {
    const BEFORE: u64 = 0x180;
    rig::with(cx, |rig| {
        let probe = install(rig)?;
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        spaces::region(&rig.k, rig.space, VA + PAGE_SIZE, 2 * PAGE_SIZE, kind)?;
        let user = rig.user()?.frame.address();
        let isa = cx.machine.isa();
        spaces::map(rig, rig.space, isa, VA, page(user, Perms::WRITE))?;
        let table = user.add(PAGE_SIZE - BEFORE);
        for n in 0..BEFORE / 8 {
            word(rig, table, n).store(0, Ordering::Relaxed);
        }
        let [set, left] = cx.machine.user_probe().flags;
        word(rig, table, FLAGS).store(set, Ordering::Relaxed);
        let call = cx.machine.user_probe().call[0] as u64;
        word(rig, table, call).store(u64::MAX, Ordering::Relaxed);
        user_calls::faults();
        run(rig, &probe, VA + PAGE_SIZE - BEFORE);
        let [faults, wrong] = user_calls::faults();
        ensure!(faults > 0, "it has not faulted");
        gives!(wrong, 0);
        // What it stores begins in the page that was not there: all of that page was zero.
        let there = spaces::look(&rig.k, rig.space, isa, VA + PAGE_SIZE);
        let pa = there.ok_or(Error::NotFound)?.1.pa;
        let flags = word(rig, pa, OUT_FLAGS - BEFORE / 8).load(Ordering::Relaxed);
        ensure!(flags & left == left, "its flags are {flags:#x}");
        for n in (OUT_FLAGS - BEFORE / 8 + 2)..PAGE_SIZE / 8 {
            let is = word(rig, pa, n).load(Ordering::Relaxed);
            ensure!(is == 0, "word {n} is {is:#x}");
        }
        Ok(None)
    })
}

/// Another component, in a space of its own, that has the code of the probe and a frame at [`VA`].
fn elsewhere(rig: &Rig<'_>, isa: Isa, frame: PhysAddr) -> Result<WeakRef, Stop> {
    let space = spaces::create(rig)?;
    let (_, code) = spaces::look(&rig.k, rig.space, isa, CODE).ok_or(Error::NotFound)?;
    spaces::map(rig, space, isa, CODE, page(code.pa, Perms::EXECUTE))?;
    spaces::map(rig, space, isa, VA, page(frame, Perms::WRITE))?;
    let component = rig.object(ObjectKind::Component)?;
    let c: &Component = find(rig.cx.node, component, Component::KIND)?;
    crate::syscall::ops::component::set_parts(&rig.k, c, rig.root, space)?;
    Ok(component)
}

/// No round, and nothing that drops translations but the switch itself.
#[ktest]
fn user_code_finds_its_own_page_after_each_switch_of_spaces(rig: &Rig<'_>) -> Outcome {
    let probe = install(rig)?;
    let isa = rig.cx.machine.isa();
    let frames = [rig.user()?.frame.address(), rig.user()?.frame.address()];
    let tables = frames.map(|f| f.add(TABLE));
    spaces::map(rig, rig.space, isa, VA, page(frames[0], Perms::WRITE))?;
    let other = elsewhere(rig, isa, frames[1])?;
    let components = [rig.component, other];
    for time in 1..5 {
        for (which, component) in components.into_iter().enumerate() {
            for (n, table) in tables.into_iter().enumerate() {
                fill(rig, table, 16 * time + n as u64);
            }
            rig.cx.machine.enter_component(&rig.k, component.bits())?;
            run(rig, &probe, VA + TABLE);
            gives!(found(rig, tables[which]), 16 * time + which as u64);
            gives!(found(rig, tables[1 - which]), !0);
        }
    }
    rig.cx
        .machine
        .enter_component(&rig.k, rig.component.bits())?;
    Ok(None)
}

/// The entry of a page is changed behind the machine's back: it finds the new page once translations are dropped.
#[ktest]
fn user_code_finds_the_new_page_after_a_flush(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let probe = install(rig)?;
    let isa = cx.machine.isa();
    let frames = [rig.user()?.frame.address(), rig.user()?.frame.address()];
    let tables = frames.map(|f| f.add(TABLE));
    spaces::map(rig, rig.space, isa, VA, page(frames[0], Perms::WRITE))?;
    let (place, leaf) = spaces::look(&rig.k, rig.space, isa, VA).ok_or(Error::NotFound)?;
    let entry = cx.node.map.word(place.entry);
    let old = entry.load(Ordering::Relaxed);
    let used = Leaf {
        accessed: true,
        dirty: true,
        ..leaf
    };
    let mut outcome = Ok(None);
    for time in 1..6 {
        let which = time % 2;
        let pa = frames[which];
        let raw = encode(isa, Pte::Leaf(Leaf { pa, ..used }), Level::L1);
        let raw = raw.map_err(|_| Error::Corrupt)?;
        entry.store(raw, Ordering::SeqCst);
        rig.k.words().writeback(place.entry, 8);
        cx.machine.flush_tlb();
        for (n, table) in tables.into_iter().enumerate() {
            fill(rig, table, 16 * time as u64 + n as u64);
        }
        run(rig, &probe, VA + TABLE);
        let is = [found(rig, tables[which]), found(rig, tables[1 - which])];
        if is != [(16 * time + which) as u64, !0] {
            outcome = Err(Stop::Failed(super::Text::new(format_args!(
                "{is:x?} the {time}. time"
            ))));
            break;
        }
    }
    // As it was, so that the page can be given back.
    entry.store(old, Ordering::SeqCst);
    cx.machine.flush_tlb();
    outcome
}
