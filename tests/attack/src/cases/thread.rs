//! Threads: registers, ids, schedulers, priorities, and what only the thread itself may do.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use dyad_abi::cap::{CapType, ComponentOp, ReceiveOp, Rights, ThreadOp};
use dyad_abi::emulation::{WORDS, general, stack_pointer};
use dyad_abi::user::{TEXT_BASE, USER_END};
use dyad_abi::{Error, Isa, Result};
use dyad_sys::cap::{Cap, Narrow, Send};

use super::{Case, IDLE};
use crate::me::{achieved, call, here, invoke, nodes, note, odd, tried, yield_now};
use crate::run::{ATTACKERS, Scene, VICTIMS};
use crate::sched;
use crate::shared::{
    ATTACKER, HEAP, MAILBOX, NOWHERE, SHOWN, at, call as ask, duty, report, word, word_of,
};
use crate::store::patiently;
use crate::{refuse, work};

/// Endpoints to be told of the helper at: the warden's, or the attacker's own.
pub const SCHEDULER: u32 = at::SUBJECT + 7;
/// Id of the helper.
const HELPER_ID: u64 = ATTACKERS.start as u64 + 1;
const SUBJECT: u32 = at::SUBJECT;

pub fn helper(o: ThreadOp, args: [u64; 3]) -> core::result::Result<u64, Error> {
    call(at::HELPER, o as u32, [args[0], args[1], args[2], 0, 0])
}

/// The ids of the attacker's threads.
fn own_ids(s: &mut Scene<'_>) -> Result<()> {
    let place = s.store.slot()?;
    let ids = crate::build::ids(place, ATTACKERS)?;
    s.attacker.give(at::IDS, ids, Rights::ALL)
}

/// All that there is to do with the helper: its thread, the attacker's own component, the warden's
/// endpoints as its scheduler's.
pub fn control(s: &mut Scene<'_>) -> Result<()> {
    let thread = s.thread(1)?;
    s.attacker.give(at::HELPER, thread, Rights::ALL)?;
    own_ids(s)?;
    let configure = ComponentOp::Configure.right();
    let rights = configure.or(ComponentOp::SetFaultHandler.right());
    s.attacker
        .give(at::COMPONENT, s.attacker.component, rights)?;
    s.attacker
        .give(SCHEDULER, sched::ENDPOINTS, ReceiveOp::Bind.right())
}

/// As [`control`], but the helper is the attacker's own to schedule.
pub fn control_alone(s: &mut Scene<'_>) -> Result<()> {
    let thread = s.thread(1)?;
    s.attacker.give(at::HELPER, thread, Rights::ALL)?;
    own_ids(s)?;
    let rights = ComponentOp::Configure.right();
    s.attacker
        .give(at::COMPONENT, s.attacker.component, rights)?;
    s.attacker
        .give(SCHEDULER, s.attacker.endpoints, ReceiveOp::Bind.right())
}

/// `Configure` of the helper: the one place that knows how attackers name ids.
pub fn configure_helper(
    component: u32,
    entry: u64,
    arg: u64,
    (id, tag): (u64, u64),
    scheduler: u32,
) -> core::result::Result<u64, Error> {
    let args = [
        component.into(),
        entry,
        arg,
        id | tag << 32,
        u64::from(scheduler) | u64::from(at::IDS) << 32,
    ];
    call(at::HELPER, ThreadOp::Configure as u32, args)
}

/// Makes the stopped helper begin anew, if the kernel lets it.
pub fn try_to_begin_helper() -> core::result::Result<u64, Error> {
    let case = report(word::NOTES - 1).load(Relaxed);
    let tag = u64::from(sched::TAG) + 2;
    let entry = crate::warden::entry_address();
    configure_helper(
        at::COMPONENT,
        entry,
        ATTACKER | case << 8 | 1,
        (HELPER_ID, tag),
        SCHEDULER,
    )
}

/// Makes the helper begin anew; it is stopped.
pub fn begin_helper() {
    work!(try_to_begin_helper());
}

/// Makes the helper begin anew as soon as it has ended, on whatever node that is; it is stopped.
pub fn begun_anew() {
    work!(crate::me::patient(try_to_begin_helper));
}

/// Makes the stopped helper ready on a CPU, if the kernel lets it.
pub fn try_to_resume_helper_at(node: u64, cpu: u64) -> core::result::Result<u64, Error> {
    helper(ThreadOp::Resume, [1 << 63 | cpu << 8 | node, 0, 0])
}

/// Makes the stopped helper ready on a CPU.
pub fn resume_helper_at(node: u64, cpu: u64) {
    work!(try_to_resume_helper_at(node, cpu));
}

/// An attempt: the helper begins on this CPU, and comes to its end.
pub fn play_helper() {
    begin_helper();
    resume_helper_at(here().0, 0);
    tried();
    until_helper_ends();
}

/// A case with a second thread that the attacker controls, and that ends at once.
pub const WITH_HELPER: Case = Case {
    helpers: 1,
    starts_helpers: false,
    grant: control,
    help: |_| {
        let _ = helper(ThreadOp::Exit, [0; 3]);
    },
    ..IDLE
};

/// Waits until the helper has ended: its registers can be read then.
pub fn until_helper_ends() {
    let isa = here().1 as u64;
    for _ in 0..1_000_000 {
        match helper(ThreadOp::ReadRegister, [isa, 0, 0]) {
            // One that has ended in a service, or in a handler, is there still.
            Ok(_) | Err(Error::TooDeep) => return,
            Err(_) => yield_now(),
        }
    }
    odd(line!(), 0);
}

pub const CASES: [Case; 10] = [
    Case {
        name: "thread_id_of_another_thread",
        grant: |s| {
            super::generic::own_table(s)?;
            control(s)
        },
        act: || {
            let entry = crate::warden::entry_address();
            // Init's, a worker's, the victim's, its own first thread's, and numbers that are none.
            let ids = [
                0,
                1,
                VICTIMS.start.into(),
                ATTACKERS.start.into(),
                4096,
                u32::MAX.into(),
                // Beside its own.
                u64::from(ATTACKERS.start) - 1,
                ATTACKERS.end.into(),
            ];
            for id in ids {
                refuse!(
                    configure_helper(at::COMPONENT, entry, 0, (id, 1), SCHEDULER),
                    Denied | BadArgument | Exists | NoCap
                );
            }
            // A part of its own ids is no way to the others, and its first thread lives.
            let all: u64 = u32::MAX.into();
            let first: u64 = at::FREE.into();
            for (from, count) in [(0, 5), (4, 1), (u64::MAX, 1), (u64::MAX - 71, 2)] {
                let args = [first, at::IDS.into(), all, from, count];
                refuse!(call(at::TABLE, 2, args), BadArgument);
            }
        },
        ..WITH_HELPER
    },
    Case {
        name: "thread_events_at_lines_of_others",
        // Endpoints of the victim, but for line 63 only.
        grant: |s| {
            control(s)?;
            let rights = ReceiveOp::Bind.right().or(ReceiveOp::Receive.right());
            let part = Narrow::range(63, 1);
            s.attacker
                .give_part(at::full(CapType::Receive), s.victim.endpoints, rights, part)
        },
        act: || {
            let entry = crate::warden::entry_address();
            let lines = at::full(CapType::Receive);
            for tag in [1, 0xffff_ffff] {
                tried();
                match configure_helper(at::COMPONENT, entry, 0, (HELPER_ID, tag), lines) {
                    // It is told of there, on the line of this CPU.
                    Ok(_) => {
                        let _ = helper(ThreadOp::Resume, [1 << 63 | here().0, 0, 0]);
                        achieved(line!(), tag);
                    }
                    Err(Error::Denied | Error::BadArgument) => {}
                    Err(e) => odd(line!(), e.code()),
                }
            }
        },
        ..WITH_HELPER
    },
    Case {
        name: "thread_operations_of_the_thread_itself",
        grant: |s| {
            let own = [
                ThreadOp::Migrate,
                ThreadOp::Jump,
                ThreadOp::Load,
                ThreadOp::Yield,
                ThreadOp::Exit,
            ];
            let rights = own.iter().fold(Rights::NONE, |all, o| all.or(o.right()));
            s.attacker.give(SUBJECT, s.victim_thread, rights)
        },
        act: || {
            for o in [
                ThreadOp::Migrate,
                ThreadOp::Jump,
                ThreadOp::Load,
                ThreadOp::Yield,
                ThreadOp::Exit,
            ] {
                refuse!(call(SUBJECT, o as u32, [0, TEXT_BASE, HEAP, 0, 0]), Denied);
                refuse!(call(SUBJECT, o as u32, [HEAP, 0, 0, 0, 0]), Denied);
            }
            refuse!(call(SUBJECT, ThreadOp::Stop as u32, [0; 5]), Denied);
        },
        ..IDLE
    },
    Case {
        name: "thread_registers_of_the_kernel",
        act: || {
            let isa = here().1;
            let (i, pc) = (isa as u64, general(isa) as u64);
            let write = |n: u64, v: u64| helper(ThreadOp::WriteRegister, [i, n, v]);
            let read = |n: u64| helper(ThreadOp::ReadRegister, [i, n, 0]);
            for n in [pc + 3, pc + 4, 64, 255, 1 << 32, u64::MAX] {
                refuse!(write(n, 0), BadArgument);
                refuse!(read(n), BadArgument);
            }
            for other in [2, 3, 1 << 32, u64::MAX] {
                refuse!(helper(ThreadOp::WriteRegister, [other, 0, 0]), BadArgument);
                refuse!(helper(ThreadOp::ReadRegister, [other, 0, 0]), BadArgument);
                refuse!(helper(ThreadOp::Unload, [other, HEAP, 0]), BadArgument);
            }
            refuse!(helper(ThreadOp::ReadRegister, [1 - i, 0, 0]), NoIsa);
            // Flags that are not a program's, and addresses that are not: they are left out.
            for (n, (bad, mine)) in [
                (pc, (u64::MAX, USER_END - 1)),
                (pc, (0xffff_8000_0000_0000, USER_END - 1)),
                (pc + 1, (u64::MAX, 0xf000_0ed7)),
                (pc + 2, (0xffff_8000_0000_0000, USER_END - 1)),
            ] {
                begin_helper();
                work!(write(n, bad));
                tried();
                let now = work!(read(n));
                if now & !mine != 0 {
                    achieved(line!(), now);
                }
                // It goes on with that, or ends; nothing else happens.
                resume_helper_at(here().0, 0);
                until_helper_ends();
            }
        },
        ..WITH_HELPER
    },
    Case {
        name: "thread_registers_written_to_memory_of_others",
        act: || {
            begin_helper();
            resume_helper_at(here().0, 0);
            until_helper_ends();
            let isa = here().1 as u64;
            for address in [
                0,
                NOWHERE,
                SHOWN,
                TEXT_BASE,
                USER_END - 8,
                USER_END,
                0xffff_8000_0000_0000,
                u64::MAX - 7,
                u64::MAX,
            ] {
                refuse!(helper(ThreadOp::Unload, [isa, address, 0]), BadAddress);
            }
            tried();
            if word_of(SHOWN, 0).load(Relaxed) != crate::shared::SHOWN_WORD {
                achieved(line!(), 0);
            }
        },
        ..WITH_HELPER
    },
    Case {
        name: "thread_goes_on_in_the_kernel",
        grant: |s| {
            let own = [ThreadOp::Jump, ThreadOp::Load, ThreadOp::Migrate];
            let rights = own.iter().fold(Rights::NONE, |all, o| all.or(o.right()));
            let first = s.thread(0)?;
            s.attacker.give(SUBJECT, first, rights)
        },
        act: || {
            let (node, isa) = here();
            let jump = |node: u64, pc: u64, sp: u64| {
                call(SUBJECT, ThreadOp::Jump as u32, [node, pc, sp, 0, 0])
            };
            let load =
                |from: u64, node: u64| call(SUBJECT, ThreadOp::Load as u32, [from, node, 0, 0, 0]);
            for to in [node, (node + 1) % nodes()] {
                for pc in [0, USER_END, 1 << 63, 0xffff_8000_0000_0000, u64::MAX] {
                    refuse!(jump(to, pc, HEAP), BadAddress);
                }
                for sp in [USER_END, 0xffff_8000_0000_0000, u64::MAX] {
                    refuse!(jump(to, TEXT_BASE, sp), BadAddress);
                }
            }
            for to in [nodes(), 8, 255, u64::MAX] {
                refuse!(jump(to, TEXT_BASE, HEAP), NoSuchNode);
                refuse!(load(HEAP, to), NoSuchNode);
                refuse!(
                    call(SUBJECT, ThreadOp::Migrate as u32, [to, 0, 0, 0, 0]),
                    NoSuchNode
                );
            }
            for from in [
                0,
                NOWHERE,
                USER_END - 8,
                USER_END,
                0xffff_8000_0000_0000,
                u64::MAX,
            ] {
                refuse!(load(from, node), BadAddress);
            }
            // A page of registers of this ISA, with addresses that are none.
            for (pc, sp) in [
                (0, HEAP),
                (USER_END, HEAP),
                (u64::MAX, HEAP),
                (TEXT_BASE, USER_END),
                (TEXT_BASE, u64::MAX),
            ] {
                for i in 0..WORDS {
                    word_of(HEAP + 4096 * (i as u64 / 512), i).store(0, Relaxed);
                }
                word_of(HEAP, 0).store(isa as u64, Relaxed);
                word_of(HEAP, 1).store(pc, Relaxed);
                word_of(HEAP, 4 + stack_pointer(isa)).store(sp, Relaxed);
                refuse!(load(HEAP, node), BadAddress);
            }
            // Of an ISA that the node does not have.
            word_of(HEAP, 0).store(2, Relaxed);
            refuse!(load(HEAP, node), NoIsa);
        },
        ..IDLE
    },
    Case {
        name: "thread_priority_above_the_dispatchers",
        grant: |s| {
            control_alone(s)?;
            let place = s.store.slot()?;
            let send: Cap<Send> = patiently(|| s.attacker.endpoints.make_send(50, place, 1))?;
            s.victim.give(crate::victim::SEND, send, Rights::ALL)?;
            s.tell_victim(word::DUTY, duty::SEND);
            Ok(())
        },
        act: || {
            begin_helper();
            resume_helper_at(here().0, 0);
            let most_urgent = 255 << 56 | 100_000;
            // Until it waits, and again whenever the victim has sent.
            let mut dispatched = 0;
            while report(word::ACHIEVED).load(Relaxed) == 0 && dispatched < 200 {
                tried();
                if helper(ThreadOp::Dispatch, [most_urgent, 0, 0]).is_ok() {
                    dispatched += 1;
                }
                yield_now();
            }
        },
        help: |_| {
            let receive = ReceiveOp::Receive as u32;
            let _ = call(at::ENDPOINTS, receive, [50, 0, 0, 0, 0]);
            word_of(MAILBOX, word::COUNT).fetch_add(1, Relaxed);
        },
        look: |s| {
            let (sent, ran) = (s.victim_says(word::NOTES), s.victim_says(word::NOTES + 1));
            match (sent, ran) {
                (0..50, _) => Some("the victim has hardly sent"),
                // Once in a while the victim's slice ends just there.
                _ if ran * 2 > sent => Some("the attacker has run in the victim's slices"),
                _ => None,
            }
        },
        ..WITH_HELPER
    },
    Case {
        name: "thread_returns_without_an_invocation",
        act: || {
            for _ in 0..3 {
                note(0).store(0, Relaxed);
                // It goes on behind the call, or faults there.
                play_helper();
            }
        },
        help: |_| {
            leave([0, u64::MAX, NOWHERE, 7]);
            leave([1, 2, 3, 4]);
            note(0).store(1, Relaxed);
            let _ = helper(ThreadOp::Exit, [0; 3]);
        },
        ..WITH_HELPER
    },
    Case {
        name: "thread_flags_carried_into_the_service",
        // Direction, trap and alignment flags: of a program that invokes, none is on in the service.
        act: || {
            for flags in [
                0,
                1 << 10,
                1 << 8,
                1 << 18,
                1 << 14,
                3 << 12,
                0xf << 28,
                u64::MAX,
            ] {
                note(0).store(flags, Relaxed);
                note(1).store(0, Relaxed);
                play_helper();
                if note(1).load(Acquire) != 1 {
                    odd(line!(), flags);
                }
            }
        },
        help: |_| {
            let (node, isa) = here();
            for i in 0..WORDS {
                word_of(HEAP, i).store(0, Relaxed);
            }
            let pc = with_flags as extern "C" fn() as usize as u64;
            word_of(HEAP, 0).store(isa as u64, Relaxed);
            word_of(HEAP, 1).store(pc, Relaxed);
            word_of(HEAP, 2).store(note(0).load(Relaxed), Relaxed);
            // As after a call.
            word_of(HEAP, 4 + stack_pointer(isa))
                .store(HEAP + (32 << 12) - 8 * (1 - isa as u64), Relaxed);
            let control = dyad_abi::emulation::initial_float_control(isa);
            word_of(HEAP, 36).store(control, Relaxed);
            let _ = helper(ThreadOp::Load, [HEAP, node, 0]);
        },
        ..WITH_HELPER
    },
    Case {
        name: "thread_configured_while_it_runs",
        helpers: 1,
        grant: control,
        act: || {
            let entry = crate::warden::entry_address();
            for n in 0..200 {
                // It runs, is ready or waits: nobody's to configure.
                refuse!(
                    configure_helper(at::COMPONENT, entry, 0, (HELPER_ID, n), SCHEDULER),
                    NotReady
                );
                refuse!(
                    helper(ThreadOp::WriteRegister, [here().1 as u64, 0, 0]),
                    NotReady
                );
                refuse!(
                    helper(ThreadOp::Unload, [here().1 as u64, HEAP, 0]),
                    NotReady
                );
                // The attacker's first thread, which makes this call.
                if n % 8 == 0 {
                    yield_now();
                }
            }
        },
        help: |_| {
            let _ = invoke(at::SERVICE, [ask::ECHO, 1, 2, 0]);
        },
        ..IDLE
    },
];

/// Ends an invocation that there is none of.
#[allow(unsafe_code)]
fn leave(words: [u64; 4]) {
    // SAFETY: 1. The thread is in no invocation: the kernel refuses, and the thread goes on.
    unsafe { dyad_sys::raw::end_invocation(words) }
}

/// Where the helper goes on with flags of the attacker's choice.
extern "C" fn with_flags() {
    let copied = invoke(at::SERVICE, [ask::COPY, 0, 0, 0]);
    note(1).store(copied.is_ok().into(), core::sync::atomic::Ordering::Release);
    loop {
        let _ = helper(ThreadOp::Exit, [0; 3]);
    }
}

const _: () = assert!(Isa::X86_64 as u64 == 0);
