//! A thread inside of a service that its owner controls: the service's, until it returns.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_abi::cap::{CapType, ComponentOp, HardwareOp, INTROSPECT, Rights, ThreadOp};
use dyad_abi::emulation::{WORDS, general, stack_pointer};
use dyad_abi::service::{INVOKE_DEPTH, INVOKE_STACKS};
use dyad_abi::user::{DATA_STACKS_BASE, TEXT_BASE};
use dyad_abi::{CpuId, Error, NodeId};
use dyad_services::first::HOME;
use dyad_services::rt;

use super::thread::{WITH_HELPER, begin_helper, control, helper, play_helper, resume_helper_at};
use super::{Case, IDLE};
use crate::me::{achieved, call, here, invoke, nodes, note, now, odd, tried, yield_now};
use crate::run::Scene;
use crate::shared::{
    BROKEN_INTO, HEAP, NOWHERE, SECRET, SERVICE, answer, at, call as ask, report, word, word_of,
};
use crate::{refuse, work};

/// Times that the helper is stopped in the service.
const TIMES: u64 = 60;
/// Attempts at that.
const ATTEMPTS: u64 = 200_000;
/// Fused time within which a thread that is scheduled returns from the service.
const GOES_ON_NS: u64 = 10_000_000_000;
/// Rounds of work in the service: longer than a slice.
const WORK: u64 = 60_000;
/// Words of a case here: the helper is about to be, or is, in the service.
const INSIDE: usize = 0;
/// Times it was found there.
const FOUND: usize = 1;
/// Calls of the service that the helper has made.
const CALLS: usize = 2;
/// The attacker's own entry.
const OWN: u32 = at::SUBJECT;

/// Code of the attacker's choice. In its own component it does no harm.
pub extern "C" fn gadget() {
    word_of(SECRET, 1).store(BROKEN_INTO, Release);
    loop {
        dyad_sys::raw::relax();
    }
}

/// The helper of most cases: it is in the service nearly all the time.
fn works_there(_: u64) {
    note(INSIDE).store(1, Release);
    match invoke(at::SERVICE, [ask::WORK, WORK, 0, 0]) {
        Ok([0, ..]) => {}
        Ok([status, ..]) => odd(line!(), status),
        Err(e) => odd(line!(), e.code()),
    }
    note(INSIDE).store(0, Release);
}

/// Stops the helper in the service again and again, and does something with it. It is to say whether the
/// helper can go on as it is.
fn each_time_inside(mut act: impl FnMut() -> bool) {
    let mut found = 0;
    for _ in 0..ATTEMPTS {
        // What has been achieved once need not be achieved again.
        if found == TIMES || report(word::ACHIEVED).load(Relaxed) != 0 {
            break;
        }
        match helper(ThreadOp::Stop, [0; 3]) {
            Ok(_) => {}
            Err(Error::NotReady | Error::Again) => {
                yield_now();
                continue;
            }
            Err(e) => odd(line!(), e.code()),
        }
        let mut goes_on = true;
        if note(INSIDE).load(Acquire) == 1 {
            found += 1;
            tried();
            goes_on = act();
        }
        if goes_on {
            let _ = helper(ThreadOp::Resume, [0; 3]);
        } else {
            note(INSIDE).store(0, Release);
            begin_helper();
            resume_helper_at(here().0, crate::me::cpus() - 1);
        }
        yield_now();
    }
    note(FOUND).store(found, Release);
}

/// Whether an address is in a stack of invocations.
fn is_of_service(sp: u64) -> bool {
    (INVOKE_STACKS..DATA_STACKS_BASE).contains(&sp)
}

fn found_inside(s: &mut Scene<'_>) -> Option<&'static str> {
    (s.note(FOUND) < TIMES / 4).then_some("the helper was hardly ever stopped in the service")
}

/// What a refusal must be, of registers of a thread that is in a service.
const REFUSED: [Error; 3] = [Error::TooDeep, Error::Denied, Error::NotReady];

fn is_refusal(line: u32, e: Error) {
    if !REFUSED.contains(&e) {
        odd(line, e.code());
    }
}

pub const CASES: [Case; 10] = [
    Case {
        name: "thread_write_register_in_service",
        helpers: 1,
        grant: control,
        act: || {
            let isa = here().1;
            let target = gadget as extern "C" fn() as usize as u64;
            let sp = HEAP + (16 << 12);
            each_time_inside(|| {
                let (i, pc) = (isa as u64, general(isa) as u64);
                let was = helper(ThreadOp::ReadRegister, [i, stack_pointer(isa) as u64, 0]);
                match helper(ThreadOp::WriteRegister, [i, pc, target]) {
                    Err(e) => {
                        is_refusal(line!(), e);
                        true
                    }
                    // Just before it went in, or after it came out: it is in its own component.
                    Ok(_) => {
                        let of_service = was.is_ok_and(is_of_service);
                        if of_service {
                            achieved(line!(), was.unwrap_or(0));
                            let _ =
                                helper(ThreadOp::WriteRegister, [i, stack_pointer(isa) as u64, sp]);
                            let _ = helper(ThreadOp::Resume, [0; 3]);
                            for _ in 0..8 {
                                yield_now();
                            }
                            for _ in 0..1000 {
                                if helper(ThreadOp::Stop, [0; 3]).is_ok() {
                                    break;
                                }
                                yield_now();
                            }
                        }
                        false
                    }
                }
            });
        },
        help: works_there,
        look: found_inside,
        ..IDLE
    },
    Case {
        name: "thread_read_register_in_service",
        helpers: 1,
        grant: control,
        act: || {
            let isa = here().1;
            each_time_inside(|| {
                let sp = stack_pointer(isa) as u64;
                match helper(ThreadOp::ReadRegister, [isa as u64, sp, 0]) {
                    Ok(sp) if is_of_service(sp) => achieved(line!(), sp),
                    Ok(_) => {}
                    Err(e) => is_refusal(line!(), e),
                }
                true
            });
        },
        help: works_there,
        look: found_inside,
        ..IDLE
    },
    Case {
        name: "thread_read_register_after_a_crossed_service",
        // The second helper is on the last node, and the service is at home on the attacker's.
        helpers: 2,
        far: true,
        grant: |s| {
            let thread = s.thread(2)?;
            s.attacker.give(at::HELPER, thread, Rights::ALL)?;
            s.victim.component.set_home([HOME])
        },
        act: || {
            let isa = here().1;
            let read = |n: usize| helper(ThreadOp::ReadRegister, [isa as u64, n as u64, 0]);
            let mut found = 0;
            for _ in 0..ATTEMPTS {
                if found == TIMES || report(word::ACHIEVED).load(Relaxed) != 0 {
                    break;
                }
                if note(CALLS).load(Acquire) == 0 || helper(ThreadOp::Stop, [0; 3]).is_err() {
                    yield_now();
                    continue;
                }
                // Outside of the service it is stopped where it is: on the other ISA.
                match read(stack_pointer(isa)) {
                    Ok(sp) if is_of_service(sp) => achieved(line!(), sp),
                    Ok(_) | Err(Error::NoIsa) => {
                        found += 1;
                        tried();
                    }
                    Err(e) => is_refusal(line!(), e),
                }
                let _ = helper(ThreadOp::Resume, [0; 3]);
                yield_now();
            }
            note(FOUND).store(found, Release);
        },
        help: |n| {
            if n != 2 {
                return yield_now();
            }
            match invoke(at::SERVICE, [ask::ECHO, 1, 2, 0]) {
                Ok(_) => drop(note(CALLS).fetch_add(1, Release)),
                Err(Error::Again | Error::Full) => yield_now(),
                Err(e) => odd(line!(), e.code()),
            }
            // Most of the time it is outside.
            for _ in 0..20_000 {
                dyad_sys::raw::relax();
            }
        },
        look: |s| (s.note(FOUND) == 0).then_some("the helper was never stopped after the service"),
        ..IDLE
    },
    Case {
        name: "thread_unload_in_service",
        helpers: 1,
        grant: control,
        act: || {
            let isa = here().1;
            each_time_inside(|| {
                match helper(ThreadOp::Unload, [isa as u64, HEAP, 0]) {
                    Ok(_) => {
                        let sp = word_of(HEAP, 4 + stack_pointer(isa)).load(Relaxed);
                        if is_of_service(sp) {
                            achieved(line!(), sp);
                        }
                    }
                    Err(e) => is_refusal(line!(), e),
                }
                for i in 0..WORDS {
                    word_of(HEAP, i).store(0, Relaxed);
                }
                true
            });
        },
        help: works_there,
        look: found_inside,
        ..IDLE
    },
    Case {
        name: "thread_moved_out_of_the_services_home",
        helpers: 1,
        far: true,
        grant: |s| {
            control(s)?;
            s.victim.component.set_home([HOME])?;
            s.tell_victim(word::HOME, 1);
            Ok(())
        },
        act: || {
            each_time_inside(|| {
                for node in (0..nodes()).rev() {
                    let place = 1 << 63 | node;
                    if node != here().0 && helper(ThreadOp::Resume, [place, 0, 0]).is_ok() {
                        // In its own component it may go; the service says if it is there.
                        for _ in 0..4 {
                            yield_now();
                        }
                        return true;
                    }
                }
                true
            });
        },
        help: works_there,
        look: found_inside,
        ..IDLE
    },
    Case {
        name: "thread_made_root_of_another_node_in_service",
        helpers: 1,
        far: true,
        grant: |s| {
            control(s)?;
            let last = NodeId::new(s.store.nodes - 1).ok_or(Error::NoSuchNode)?;
            s.victim.component.set_home([HOME])?;
            s.tell_victim(word::HOME, 1);
            // The attacker may not run there either: in whatever component the thread is, it stays at home.
            s.attacker.component.set_home([HOME])?;
            let rights = HardwareOp::StartCpu.right();
            s.attacker
                .give(at::full(CapType::Hardware), rt::hardware(last), rights)
        },
        act: || {
            each_time_inside(|| {
                let thread = at::HELPER.into();
                let start = HardwareOp::StartCpu as u32;
                // The last CPU of the last node, whose worker goes on. A message carries it there.
                let cpu = crate::me::cpus() - 1;
                let _ = call(at::full(CapType::Hardware), start, [cpu, thread, 0, 0, 0]);
                for _ in 0..50 {
                    yield_now();
                }
                // At home it goes on. A thread that belongs to the other CPU does not get it.
                let (calls, since) = (note(CALLS).load(Acquire), now());
                while note(CALLS).load(Acquire) == calls {
                    let _ = helper(ThreadOp::Resume, [0; 3]);
                    yield_now();
                    if now() > since + GOES_ON_NS {
                        achieved(line!(), calls);
                        break;
                    }
                }
                true
            });
        },
        help: |n| {
            works_there(n);
            note(CALLS).fetch_add(1, Release);
            let (node, _) = here();
            if node != HOME.index() as u64 {
                achieved(line!(), node);
            }
        },
        look: found_inside,
        ..IDLE
    },
    Case {
        name: "service_stacks_of_two_threads",
        // Two threads of the attacker, and the victim's own, in the service at the same time.
        helpers: 2,
        far: true,
        grant: control,
        act: || {
            for n in 0..40 {
                tried();
                match invoke(at::SERVICE, [ask::WORK, WORK / 8, n, 0]) {
                    Ok([0, token, ..]) if token >> 8 == crate::run::ATTACKERS.start.into() => {}
                    Ok([_, token, ..]) => achieved(line!(), token),
                    Err(e) => odd(line!(), e.code()),
                }
            }
        },
        help: |n| {
            let id = u64::from(crate::run::ATTACKERS.start) + n;
            match invoke(at::SERVICE, [ask::WORK, WORK / 8, 0, 0]) {
                Ok([0, token, ..]) if token >> 8 == id => {}
                Ok([_, token, ..]) => achieved(line!(), token),
                Err(e) => odd(line!(), e.code()),
            }
        },
        ..IDLE
    },
    Case {
        name: "sinv_badge_forged",
        grant: |s| {
            super::generic::own_table(s)?;
            let sinv = super::generic::sample(s, CapType::Sinv)?;
            s.attacker.give(OWN, sinv, Rights::ALL)
        },
        act: || {
            for words in [
                [ask::SECRET, crate::shared::OWNER, 0, 0],
                [ask::SECRET, 0, 0, crate::shared::OWNER],
                [ask::SECRET | SERVICE << 8, 1, 1, 1],
                [crate::shared::OWNER, ask::SECRET, 0, 0],
            ] {
                tried();
                match invoke(at::SERVICE, words) {
                    Ok([0, value, ..]) => achieved(line!(), value),
                    Ok(_) => {}
                    Err(e) => odd(line!(), e.code()),
                }
            }
            // Operations that the type does not have, and numbers beside the index.
            for number in (1..32).filter(|&n| n != INTROSPECT) {
                refuse!(
                    call(at::SERVICE, number, [ask::SECRET; 5]),
                    Denied | BadSyscall | Revoked
                );
            }
            refuse!(
                invoke(at::THREAD, [0; 4]).map(|w| w[0]),
                Denied | BadSyscall | WrongCap
            );
            refuse!(invoke(at::EMPTY, [0; 4]).map(|w| w[0]), NoCap);
        },
        ..IDLE
    },
    Case {
        name: "sinv_recursion_without_end",
        grant: |s| {
            let own = s.attacker.entry(s.store, s.image, 0)?;
            s.attacker.give(OWN, own, Rights::ALL)
        },
        act: || {
            for n in 0..4 {
                tried();
                match invoke(OWN, [0, n, 0, 0]) {
                    // As deep as there is room, and the service's answer was right on the way.
                    Ok([deepest, right, ..])
                        if deepest == INVOKE_DEPTH as u64 - 1 && right == deepest => {}
                    Ok([deepest, right, ..]) => achieved(line!(), deepest << 8 | right),
                    Err(e) => odd(line!(), e.code()),
                }
            }
        },
        serve: |call| {
            let [depth, n, ..] = call.words;
            let echoed = invoke(at::SERVICE, [ask::ECHO, depth, n, 0]);
            let right = match echoed {
                Ok([0, value, ..]) if value == answer(depth, n) => 1,
                Err(Error::TooDeep) => 0,
                _ => 100,
            };
            match invoke(OWN, [depth + 1, n, 0, 0]) {
                Ok([deepest, more, ..]) => [deepest, more + right, 0, 0],
                Err(Error::TooDeep) => [depth, right, 0, 0],
                Err(_) => [depth, 1000, 0, 0],
            }
        },
        ..IDLE
    },
    Case {
        name: "component_fault_in_its_fault_handler",
        grant: |s| {
            control(s)?;
            let own = s.attacker.entry(s.store, s.image, 0)?;
            s.attacker.give(OWN, own, Rights::ALL)
        },
        act: || {
            let set = ComponentOp::SetFaultHandler as u32;
            work!(call(at::COMPONENT, set, [OWN.into(), 0, 0, 0, 0]));
            // A handler that faults; one that has it try again and again; one that goes away in the middle.
            for how in 0..3 {
                note(2).store(how, Relaxed);
                play_helper();
            }
            work!(call(at::COMPONENT, set, [0; 5]));
        },
        help: |_| {
            core::hint::black_box(word_of(NOWHERE, 0).load(Relaxed));
            // Not reached.
            achieved(line!(), note(2).load(Relaxed));
            loop {
                let _ = helper(ThreadOp::Exit, [0; 3]);
            }
        },
        serve: |_| match note(2).load(Relaxed) {
            0 => [word_of(NOWHERE + 4096, 0).load(Relaxed), 0, 0, 0],
            // As often as it likes; this one likes it two thousand times.
            1 if note(3).fetch_add(1, Relaxed) < 2000 => [0; 4],
            1 => [1, 0, 0, 0],
            _ => {
                let _ = helper(ThreadOp::Exit, [0; 3]);
                [1, 0, 0, 0]
            }
        },
        ..WITH_HELPER
    },
];

const _: () = assert!(TEXT_BASE < INVOKE_STACKS);
const _: fn(u64) -> Option<CpuId> = CpuId::new;
