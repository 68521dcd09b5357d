//! Entries from user mode, and returns to it, with all that user mode can have in its registers: flags of the kernel's
//! own business, program counters behind the last user address, instructions that maintain caches.
//!
//! Nothing of it may make the kernel fault, or give user mode more than is its own.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapType, Rights};
use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_pgtbl::{Leaf, Level, Perms, RemoteCpu};
use dyad_shm::PhysAddr;

use super::rig::{self, Rig};
use super::user_calls::{
    AREA, Answer, CODE, DATA, FLAGS, Pages, Room, TABLE, answered, at_fault, fault_of,
    kernel_flags_were_right, map, raised,
};
use super::user_real::{Probe, install};
use super::{Outcome, Stop, TestCtx, ensure, fail, gives, ktest, spaces};
use dyad_machine::platform::FaultKind;
use dyad_space::mapping::page;

/// Operation 3 of capability 5; operation 0 of it; the end of an invocation.
const WORDS: [u64; 3] = [3 << 32 | 5, 5, 0];
/// The last page of the user half.
const LAST: u64 = USER_END - PAGE_SIZE;

/// Runs `test` with the pages of the probe.
fn with_pages<'c>(
    cx: &TestCtx<'c>,
    test: impl FnOnce(&Room<'_, 'c>, &Pages) -> Outcome,
) -> Outcome {
    let room = Room::new(cx)?;
    let pages = map(cx, &room)?;
    cx.machine.switch_root(Some(pages.root));
    let outcome = test(&room, &pages);
    cx.machine.switch_root(None);
    outcome
}

/// Puts flags and the word of a call into the table of the probe.
fn fill(cx: &TestCtx<'_>, pages: &Pages, flags: u64, word: u64) {
    let at = |n: u64| cx.node.map.word(pages.data.add(TABLE - DATA + 8 * n));
    for n in 0..FLAGS {
        at(n).store(0, Ordering::Relaxed);
    }
    at(FLAGS).store(flags, Ordering::Relaxed);
    at(cx.machine.user_probe().call[0] as u64).store(word, Ordering::Relaxed);
}

/// Where user mode faults that goes on at an address that is none of its own: there, or at 0 if the return instruction
/// would fault in the kernel.
fn fails_at(cx: &TestCtx<'_>, at: u64) -> u64 {
    match cx.machine.user_probe().returns_to_user_addresses_only {
        true => 0,
        false => at,
    }
}

/// The last instruction of the user half is a system call: it comes back to an address that is not canonical on x86-64.
#[ktest]
fn a_call_at_the_end_of_the_user_half_comes_back_to_user_mode(cx: &TestCtx<'_>) -> Outcome {
    let probe = cx.machine.user_probe();
    let want = Some((fails_at(cx, USER_END), FaultKind::Execute as u64));
    with_pages(cx, |room, pages| {
        let frame = room.take()?;
        let table = RemoteCpu::new(cx.node.words, cx.machine.isa(), pages.root);
        let leaf = Leaf {
            accessed: true,
            ..Leaf::user(frame, Perms::EXECUTE)
        };
        let done = table.map(LAST, leaf, Level::L1, room);
        ensure!(done.is_ok(), "the last page cannot be mapped: {done:?}");
        let into = PAGE_SIZE - probe.trap.len() as u64;
        let fits = cx.node.map.write_bytes(frame.add(into), probe.trap);
        ensure!(fits, "the code does not fit");
        cx.machine.sync_code(frame, PAGE_SIZE);
        for word in WORDS {
            for answer in [Answer::AtOnce, Answer::Slowly] {
                cx.machine.init_regs(&AREA, LAST + into, TABLE, DATA);
                cx.machine.write_register(&AREA, probe.call[0] as u64, word);
                let end = answered(answer, || cx.machine.run_area(&AREA));
                ensure!(
                    end == want,
                    "it ends with {end:x?}, not {want:x?} ({answer:?}, {word:#x})"
                );
            }
        }
        Ok(None)
    })
}

/// Words of an area that nothing has looked at: of the pages of registers that programs write, or that another ISA has
/// left.
#[ktest]
fn user_mode_goes_on_at_user_addresses_only(cx: &TestCtx<'_>) -> Outcome {
    let probe = cx.machine.user_probe();
    let [pc, _, tp] = probe.raw;
    with_pages(cx, |_, pages| {
        let run = || cx.machine.run_user(CODE, TABLE, DATA);
        for bad in [USER_END, 1 << 63, u64::MAX] {
            fill(cx, pages, probe.flags[1], WORDS[0]);
            let end = raised((pc, bad), run).map(|(at, _)| at);
            gives!((bad, end), (bad, Some(fails_at(cx, bad))));
            let end = raised((tp, bad), run);
            ensure!(
                end.is_none(),
                "with thread pointer {bad:#x} it ends at {end:x?}"
            );
            let is = cx.machine.read_register(&AREA, probe.registers as u64 + 2);
            gives!((bad, is), (bad, Some(fails_at(cx, bad))));
        }
        Ok(None)
    })
}

/// Flags of an area that nothing has looked at: user mode has no other level, and takes interrupts.
#[ktest]
fn user_mode_goes_on_with_its_own_flags_only(cx: &TestCtx<'_>) -> Outcome {
    let probe = cx.machine.user_probe();
    with_pages(cx, |_, pages| {
        for &flags in probe.raised_flags {
            fill(cx, pages, probe.flags[1], WORDS[0]);
            let end = raised((probe.raw[1], flags), || {
                cx.machine.run_user(CODE, TABLE, DATA);
            });
            ensure!(end.is_none(), "with flags {flags:#x} it ends at {end:x?}");
            // As its last call has found them.
            let is = cx.machine.read_register(&AREA, probe.registers as u64 + 1);
            let is = is.unwrap_or(u64::MAX);
            ensure!(
                is & probe.forbidden_flags == 0 && is & probe.no_flags == probe.no_flags,
                "with flags {flags:#x} it has {is:#x}"
            );
        }
        Ok(None)
    })
}

/// The trap that a program asks for behind each of its instructions comes when its call is back, not in the kernel.
#[ktest]
fn user_code_that_steps_itself_makes_a_call(cx: &TestCtx<'_>) -> Outcome {
    let probe = cx.machine.user_probe();
    if probe.step_flag == 0 {
        return Ok(None);
    }
    with_pages(cx, |_, pages| {
        for (word, answer) in [(WORDS[0], Answer::AtOnce), (WORDS[2], Answer::AtOnce)] {
            fill(cx, pages, probe.flags[1] | probe.step_flag, word);
            let end = answered(answer, || cx.machine.run_user(CODE, TABLE, DATA));
            let Some((at, kind)) = end else {
                return fail(format_args!("it has not been trapped"));
            };
            gives!(kind, FaultKind::Breakpoint as u64);
            let code = CODE..CODE + probe.entered;
            ensure!(code.contains(&at), "it has been trapped at {at:#x}");
            ensure!(kernel_flags_were_right(), "the kernel had its flag");
        }
        Ok(None)
    })
}

/// What the machine says of a fault, by the architecture's manual. Cache maintenance is always reported as a write on AArch64:
/// taken for one, it would be given a page that may be written to.
#[ktest]
fn faults_are_what_the_architecture_says(cx: &TestCtx<'_>) -> Outcome {
    for &(raw, kind) in cx.machine.user_probe().faults {
        gives!((raw, cx.machine.fault_kind(raw)), (raw, kind));
    }
    Ok(None)
}

/// Code that is written into a page, and run with the address of a page that may only be read.
fn maintains(
    rig: &Rig<'_>,
    probe: &Probe,
    code: PhysAddr,
    bytes: &[u8],
) -> Result<(u64, u64), Stop> {
    let cx = rig.cx;
    // Behind it there is one that faults.
    let mut text = [0; 16];
    text[..bytes.len()].copy_from_slice(bytes);
    ensure!(cx.node.map.write_bytes(code, &text), "no room");
    cx.machine.publish_here(code)?;
    let area = probe.thread.regs(cx.machine.isa());
    cx.machine.init_regs(area, CODE, TABLE, DATA);
    let first = cx.machine.user_probe().arguments[0] as u64;
    ensure!(cx.machine.write_register(area, first, READ), "no argument");
    fault_of(|| cx.machine.run_area(area))
}

/// Otherwise a program could enter the kernel where only the machine does, and bring its node down.
#[ktest]
fn privileged_instructions_are_faults_of_the_thread(cx: &TestCtx<'_>) -> Outcome {
    rig::with(cx, |rig| {
        let probe = install(rig)?;
        let code = spaces::look(&rig.k, rig.space, cx.machine.isa(), CODE);
        let (_, code) = code.ok_or(dyad_abi::Error::NotFound)?;
        for (n, bytes) in cx.machine.user_probe().privileged.iter().enumerate() {
            let (at, kind) = maintains(rig, &probe, code.pa, bytes)?;
            ensure!(at == CODE, "{n}: it faults at {at:#x}, as {kind}");
        }
        Ok(None)
    })
}

/// A page that may only be read.
const READ: u64 = 0x5100_0000;

/// It stays as it is, whether or not user mode may maintain caches.
#[ktest]
fn cache_maintenance_of_a_read_only_page_gives_no_other_page(cx: &TestCtx<'_>) -> Outcome {
    rig::with(cx, |rig| {
        let isa = cx.machine.isa();
        let probe = install(rig)?;
        let (_, code) =
            spaces::look(&rig.k, rig.space, isa, CODE).ok_or(dyad_abi::Error::NotFound)?;
        let user = rig.user()?.frame.address();
        spaces::map(rig, rig.space, isa, READ, page(user, Perms::READ))?;
        let before = spaces::look(&rig.k, rig.space, isa, READ).map(|(_, leaf)| leaf);
        for (n, &(bytes, may)) in cx.machine.user_probe().cache_maintenance.iter().enumerate() {
            let (at, kind) = maintains(rig, &probe, code.pa, bytes)?;
            let want = CODE + if may { bytes.len() as u64 } else { 0 };
            ensure!(at == want, "{n}: it faults at {at:#x}, not {want:#x}");
            ensure!(
                may || kind == FaultKind::Illegal as u64,
                "{n}: it has been executed, and is fault {kind}"
            );
            let now = spaces::look(&rig.k, rig.space, isa, READ).map(|(_, leaf)| leaf);
            let same = |leaf: Option<Leaf>| leaf.map(|l| (l.pa, l.perms));
            ensure!(same(now) == same(before), "{n}: the page is {now:?}");
        }
        Ok(None)
    })
}

/// Prepares a run of the probe in the rig's component, outside of invocations.
fn afresh(rig: &Rig<'_>, probe: &Probe, word: u64) -> Result<(), Stop> {
    let cx = rig.cx;
    let numbers = cx.machine.user_probe().call;
    let at = |i: u64| cx.node.map.word(probe.data.add(TABLE - DATA + 8 * i));
    for i in 0..FLAGS + 1 {
        at(i).store(0, Ordering::Relaxed);
    }
    at(numbers[0] as u64).store(word, Ordering::Relaxed);
    probe.thread.depth.store(0, Ordering::Relaxed);
    probe
        .thread
        .component
        .store(rig.component.bits(), Ordering::Relaxed);
    cx.machine.enter_component(&rig.k, rig.component.bits())?;
    let area = probe.thread.regs(cx.machine.isa());
    cx.machine.init_regs(area, CODE, TABLE, DATA);
    Ok(())
}

/// The first time by the slow path, then by the fast one, if there is any.
const TIMES: usize = 4;

/// A caller on the other ISA can have left such an address behind: the one behind its last instruction.
#[ktest]
fn a_return_behind_the_last_user_address_faults_in_user_mode(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let probe = install(rig)?;
    let (callee, _, _) = rig.other_component()?;
    let area = probe.thread.regs(cx.machine.isa());
    for time in 0..TIMES {
        afresh(rig, &probe, 0)?;
        let to = dyad_object::component::Entry {
            component: callee,
            address: CODE,
            badge: 0,
        };
        cx.machine.enter(&rig.k, to, [0; 4])?;
        cx.machine.init_regs(area, CODE, TABLE, DATA);
        let (_, frame) = probe.thread.top().ok_or(dyad_abi::Error::NotFound)?;
        frame.pc.store(USER_END, Ordering::Relaxed);
        let at = at_fault(|| cx.machine.run_area(area))?;
        // The slow path makes it 0 on both ISAs.
        ensure!(
            at == 0 || at == fails_at(cx, USER_END),
            "it faults at {at:#x} the {time}. time"
        );
        gives!(probe.thread.depth.load(Ordering::Relaxed), 0);
    }
    Ok(None)
}

/// The entry point of a capability is the program's choice.
#[ktest]
fn an_invocation_behind_the_last_user_address_faults_in_user_mode(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let probe = install(rig)?;
    let (callee, _, _) = rig.other_component()?;
    let area = probe.thread.regs(cx.machine.isa());
    for address in [USER_END, 1 << 63, u64::MAX] {
        let sinv = rig.put(CapType::Sinv, Rights::ALL, Some(callee), [address, 0, 0])?;
        for _ in 0..TIMES {
            afresh(rig, &probe, sinv.get().into())?;
            let at = at_fault(|| cx.machine.run_area(area))?;
            gives!((address, at), (address, 0));
            gives!(probe.thread.depth.load(Ordering::Relaxed), 1);
        }
    }
    afresh(rig, &probe, 0)?;
    Ok(None)
}
