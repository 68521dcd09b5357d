//! All registers of a thread as a page: what is read is what was there, and what is loaded is what user
//! mode finds.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapIndex, ObjectKind, Rights, ThreadOp, call_word};
use dyad_abi::emulation::{GENERAL, WORDS, general, initial_float_control, stack_pointer};
use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_abi::{Error, Isa};
use dyad_pgtbl::Perms;
use dyad_shm::PhysAddr;

use super::rig::Rig;
use super::user_calls::{FpWords, for_real};
use super::user_real::{CODE, DATA, TABLE, install};
use super::{Outcome, Stop, ensure, gives, ktest, spaces};
use crate::sched::dispatch::OpOutcome;
use dyad_object::thread::{Owner, State, Thread, begun};
use dyad_space::mapping::page;

const WRITE: u32 = ThreadOp::WriteRegister as u32;
const UNLOAD: u32 = ThreadOp::Unload as u32;
const LOAD: u32 = ThreadOp::Load as u32;

/// Where the rig's own memory is; it is not writable one page further on.
const MEMORY: u64 = 0x4300_0000;

/// First word of floating-point registers.
const FLOAT: usize = 4 + GENERAL;
const RELAXED: Ordering = Ordering::Relaxed;

/// Two pages of the rig's space, of which it may write the first.
fn memory(rig: &Rig<'_>) -> Result<PhysAddr, Stop> {
    spaces::furnish(rig, rig.space)?;
    pages(rig)
}

/// The same in a space that has tables.
fn pages(rig: &Rig<'_>) -> Result<PhysAddr, Stop> {
    let isa = rig.cx.machine.isa();
    let map = |va: u64, perms: Perms| -> Result<PhysAddr, Stop> {
        let pa = rig.user()?.frame.address();
        spaces::map(rig, rig.space, isa, va, page(pa, perms))?;
        Ok(pa)
    };
    map(MEMORY + PAGE_SIZE, Perms::READ)?;
    map(MEMORY, Perms::WRITE)
}

fn read(rig: &Rig<'_>, at: PhysAddr) -> [u64; WORDS] {
    core::array::from_fn(|i| rig.cx.node.map.word(at.add(8 * i as u64)).load(RELAXED))
}

fn write(rig: &Rig<'_>, at: PhysAddr, words: &[u64; WORDS]) {
    for (i, &w) in (0..).zip(words) {
        rig.cx.node.map.word(at.add(8 * i)).store(w, RELAXED);
    }
}

/// A stopped thread that has been on this ISA, and a capability for it.
fn stopped(rig: &Rig<'_>) -> Result<(CapIndex, &'static Thread), Stop> {
    let object = rig.thread_of(rig.component, State::Stopped)?;
    let t = rig.as_thread(object)?;
    t.set_begun(rig.cx.machine.isa(), begun::HERE);
    Ok((rig.cap(ObjectKind::Thread, object, Rights::ALL)?, t))
}

/// Words of a page that user mode may have in its registers, all different.
fn marked(isa: Isa) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = isa as u64;
    words[3] = 0x1_0000_0000;
    for n in 0..general(isa) {
        words[4 + n] = 0x5a5a_0000_0000_0000 + 0x1111 * n as u64;
    }
    words[1] = 0x4100_0040;
    words[4 + stack_pointer(isa)] = 0x4100_8000;
    words[FLOAT] = initial_float_control(isa);
    let vectors = match isa {
        Isa::X86_64 => 16,
        Isa::Aarch64 => 32,
    };
    for n in 0..2 * vectors {
        words[FLOAT + 2 + n] = 0xf00d_0000_0000_0000 + n as u64;
    }
    words
}

#[ktest(ops)]
fn unloading_gives_all_registers_of_a_stopped_thread(rig: &Rig<'_>) -> Outcome {
    let (isa, pa) = (rig.cx.machine.isa(), memory(rig)?);
    let (t, _) = stopped(rig)?;
    let here = isa as u64;
    let count = general(isa) as u64;
    for n in 0..count {
        gives!(rig.sys(t, WRITE, &[here, n, 0x1000 + n]), Ok(0));
    }
    gives!(rig.sys(t, WRITE, &[here, count + 2, 0x9_0000]), Ok(0));
    let node = rig.cx.node.id().index() as u64;
    gives!(rig.sys(t, UNLOAD, &[here, MEMORY + 8]), Ok(node));
    let words = read(rig, pa.add(8));
    for n in 0..count as usize {
        gives!((n, words[4 + n]), (n, 0x1000 + n as u64));
    }
    for n in count as usize..GENERAL {
        gives!((n, words[4 + n]), (n, 0));
    }
    gives!((words[0], words[3]), (here, 0x9_0000));
    // It has used no floating-point registers: they are as at the start.
    gives!(words[FLOAT], initial_float_control(isa));
    gives!(words[FLOAT + 1..].iter().all(|&w| w == 0), true);
    Ok(None)
}

#[ktest(ops)]
fn unloading_is_refused_where_registers_are_not_the_threads(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (isa, pa) = (cx.machine.isa(), memory(rig)?);
    write(rig, pa, &[7; WORDS]);
    let here = isa as u64;
    let args = [here, MEMORY];
    for state in [State::Ready, State::Running, State::Blocked, State::None] {
        let object = rig.thread_of(rig.component, state)?;
        let t = rig.cap(ObjectKind::Thread, object, Rights::ALL)?;
        gives!(rig.sys(t, UNLOAD, &args), Err(Error::NotReady));
    }
    let (cap, t) = stopped(rig)?;
    for other in Isa::ALL.into_iter().filter(|&i| i != isa) {
        let other = other as u64;
        gives!(rig.sys(cap, UNLOAD, &[other, MEMORY]), Err(Error::NoIsa));
    }
    gives!(rig.sys(cap, UNLOAD, &[9, MEMORY]), Err(Error::BadArgument));
    t.depth.store(1, RELAXED);
    gives!(rig.sys(cap, UNLOAD, &args), Err(Error::TooDeep));
    t.depth.store(0, RELAXED);
    t.result.store(2, RELAXED);
    gives!(rig.sys(cap, UNLOAD, &args), Err(Error::NotReady));
    t.result.store(0, RELAXED);
    for (what, error) in [
        (begun::NOT, Error::NoIsa),
        (begun::PARKED, Error::NoIsa),
        (begun::LOST, Error::NodeDead),
    ] {
        t.set_begun(isa, what);
        gives!(rig.sys(cap, UNLOAD, &args), Err(error));
    }
    t.set_begun(isa, begun::HERE);
    // It has left something here when a service worked for it, and is on another node.
    let owner = t.owner(rig.k.words()).ok_or(Error::Corrupt)?;
    if cx.node.isa(cx.next()) != isa {
        let elsewhere = Owner {
            node: cx.next(),
            ..owner
        };
        rig.k.words().replace(&t.owner, elsewhere.bits());
        gives!(rig.sys(cap, UNLOAD, &args), Err(Error::NoIsa));
        rig.k.words().replace(&t.owner, owner.bits());
    }
    // Memory that is not there, is read-only, begins before it ends, or is the kernel's.
    for bad in [
        0,
        MEMORY + PAGE_SIZE,
        MEMORY + 2 * PAGE_SIZE,
        MEMORY - 8,
        USER_END - 8,
        u64::MAX - 8,
    ] {
        gives!(rig.sys(cap, UNLOAD, &[here, bad]), Err(Error::BadAddress));
    }
    gives!(read(rig, pa), [7; WORDS]);
    gives!(
        t.owner(rig.k.words()).map(|o| o.state),
        Some(State::Stopped)
    );
    ensure!(rig.sys(cap, UNLOAD, &args).is_ok(), "refused");
    Ok(None)
}

#[ktest(ops)]
fn a_call_that_has_ended_is_in_the_registers_that_are_unloaded(rig: &Rig<'_>) -> Outcome {
    memory(rig)?;
    let (cap, t) = stopped(rig)?;
    t.set_result(Error::TimedOut.code(), 0);
    let args = [rig.cx.machine.isa() as u64, MEMORY];
    ensure!(rig.sys(cap, UNLOAD, &args).is_ok(), "refused");
    gives!(t.result.load(RELAXED), 0);
    Ok(None)
}

#[ktest(ops)]
fn loading_is_refused_where_a_thread_could_not_go_on(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (isa, pa) = (cx.machine.isa(), memory(rig)?);
    let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    let here = cx.node.id().index() as u64;
    let load = |at: u64, node: u64| rig.call(me, LOAD, &[at, node]);
    let good = marked(isa);
    let other = rig.thread_of(rig.component, State::Stopped)?;
    let other = rig.cap(ObjectKind::Thread, other, Rights::ALL)?;
    write(rig, pa, &good);
    gives!(rig.call(other, LOAD, &[MEMORY, here]), Err(Error::Denied));
    for bad in [cx.node.params.node_count as u64, 8, u64::MAX] {
        gives!(load(MEMORY, bad), Err(Error::NoSuchNode));
    }
    for bad in [0, MEMORY + 2 * PAGE_SIZE - 8, USER_END - 8, u64::MAX - 8] {
        gives!(load(bad, here), Err(Error::BadAddress));
    }
    let with = |i: usize, value: u64| {
        let mut words = good;
        words[i] = value;
        write(rig, pa, &words);
        load(MEMORY, here)
    };
    gives!(with(0, 1 - isa as u64), Err(Error::NoIsa));
    gives!(with(0, 2), Err(Error::NoIsa));
    for bad in [0, USER_END, u64::MAX] {
        gives!(with(1, bad), Err(Error::BadAddress));
    }
    for bad in [USER_END, u64::MAX] {
        gives!(with(4 + stack_pointer(isa), bad), Err(Error::BadAddress));
    }
    rig.as_thread(rig.thread)?.depth.store(1, RELAXED);
    gives!(with(0, isa as u64), Err(Error::TooDeep));
    rig.as_thread(rig.thread)?.depth.store(0, RELAXED);
    // It has no scheduler there.
    write(rig, pa, &marked(cx.node.isa(cx.next())));
    let there = cx.next().index() as u64;
    gives!(load(MEMORY, there), Err(Error::NotReady));
    gives!(rig.as_thread(rig.thread)?.begun(isa), begun::HERE);
    gives!(rig.state(rig.thread), Some(State::Running));
    // What may not be in a register is left out.
    gives!(with(3, u64::MAX), Ok(OpOutcome::Switched));
    gives!(rig.state(rig.thread), Some(State::Running));
    Ok(None)
}

#[ktest]
fn user_mode_finds_the_registers_that_were_loaded(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (isa, probe) = (cx.machine.isa(), install(rig)?);
    let (p, pa) = (cx.machine.user_probe(), pages(rig)?);
    let mut words = marked(isa);
    words[1] = CODE + p.entered;
    words[3] = DATA;
    words[4 + stack_pointer(isa)] = TABLE;
    let [_, flags] = p.flags;
    // And those that it must not choose.
    words[2] = flags | p.forbidden_flags;
    write(rig, pa, &words);
    let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    let call = [call_word(me, LOAD), MEMORY, cx.node.id().index() as u64];
    let at = |i: u64| cx.node.map.word(probe.data.add(TABLE - DATA + 8 * i));
    cx.node.map.word(probe.data).store(0x7070, RELAXED);
    for i in 0..98 {
        at(i).store(0, RELAXED);
    }
    for (&n, v) in p.call.iter().zip(call) {
        at(n as u64).store(v, RELAXED);
    }
    let area = probe.thread.regs(isa);
    cx.machine.init_regs(area, CODE, TABLE, 0x4400_0000);
    for_real(|| cx.machine.run_area(area));
    for n in 0..p.registers {
        let is = at(64 + n as u64).load(RELAXED);
        ensure!(
            is == words[4 + n],
            "register {n} is {is:#x}, must be {:#x}",
            words[4 + n]
        );
    }
    gives!(at(96).load(RELAXED), flags);
    // What it does not see: its level, and whether it takes interrupts.
    let is = cx.machine.read_register(area, p.registers as u64 + 1);
    let raised = is.unwrap_or(u64::MAX) & p.forbidden_flags;
    ensure!(raised == 0, "it has flags {raised:#x}");
    ensure!(
        at(97).load(RELAXED) == 0x7070,
        "the thread pointer is another"
    );
    Ok(None)
}

#[ktest]
fn user_mode_finds_the_floating_point_registers_that_were_loaded(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (isa, probe) = (cx.machine.isa(), install(rig)?);
    let (p, pa) = (cx.machine.user_probe(), pages(rig)?);
    let control = p.fp_control[2];
    let mut words = marked(isa);
    words[1] = CODE + p.fp;
    words[3] = DATA;
    words[4 + stack_pointer(isa)] = TABLE;
    // Everything that could be in a control word.
    words[FLOAT] = control | !0xffff_ffff;
    write(rig, pa, &words);
    let me = rig.cap(ObjectKind::Thread, rig.thread, Rights::ALL)?;
    let here = cx.node.id().index() as u64;
    let at = |i: u64| cx.node.map.word(probe.data.add(TABLE - DATA + 8 * i));
    let last = match isa {
        Isa::X86_64 => 15,
        Isa::Aarch64 => 31,
    };
    // The first time by the code that loads, which has registers of its own then.
    for time in 0..2 {
        for i in 0..98 {
            at(i).store(0, RELAXED);
        }
        // The code's own call, once it has been loaded, is refused.
        at(p.call[0] as u64).store(call_word(me, 31), RELAXED);
        at(FpWords::ADDRESS).store(DATA, RELAXED);
        at(FpWords::CONTROL).store(p.fp_control[1], RELAXED);
        rig.switches(me, LOAD, &[MEMORY, here])?;
        for_real(|| cx.machine.run_area(probe.thread.regs(isa)));
        let shown: [u64; 5] =
            core::array::from_fn(|i| at(FpWords::BEFORE + i as u64).load(RELAXED));
        let vector = |n: usize| [words[FLOAT + 2 + 2 * n], words[FLOAT + 3 + 2 * n]];
        let ([a, b], [c, d]) = (vector(0), vector(last));
        gives!((time, shown), (time, [a, b, c, d, control]));
    }
    Ok(None)
}
