//! Operations that are refused with `Again` for a moment, tried without a pause while threads of other nodes do the same; and
//! what is spent by doing things again and again, by one thread id after the other.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use dyad_abi::cap::{
    CapType, MemoryOp, ObjectKind, RegionKind, Rights, SpaceOp, TableAt, ThreadOp,
};
use dyad_abi::service::INVOKE_DEPTH;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_services::first::CXL;

use super::generic::sample;
use super::memory::own_space;
use super::race::far_service;
use super::thread::{
    SCHEDULER, WITH_HELPER, begun_anew, configure_helper, control, helper, resume_helper_at,
    try_to_begin_helper, try_to_resume_helper_at,
};
use super::{Case, IDLE};
use crate::build::INVOKE;
use crate::me::{
    achieved, call, here, invoke, nodes, note, odd, patient, step, tried, works, yield_now,
};
use crate::run::{ATTACKERS, Scene};
use crate::sched;
use crate::shared::{
    ATTACKER, HEAP, NOWHERE, answer, at, call as ask, duty, report, word, word_of,
};

const MEMORY: u32 = at::full(CapType::Memory);
const TABLE: u32 = at::full(CapType::PageTable);
const SUBJECT: u32 = at::SUBJECT;
/// Attempts of a thread.
const ROUNDS: u64 = 2000;
/// Not 0: helpers rest.
const REST: usize = 4;
/// Whether one thread has what no two may have.
const HAS: usize = 5;
/// Rounds that the helper of a case has come through.
const DONE: usize = 6;

fn rests() -> bool {
    let rests = note(REST).load(Acquire) != 0;
    if rests {
        yield_now();
    }
    rests
}

/// The result of an attempt that may be refused, but only so.
fn any_of(line: u32, result: core::result::Result<u64, Error>, with: &[Error]) -> bool {
    tried();
    match result {
        Ok(_) => true,
        Err(e) => {
            if !with.contains(&e) {
                odd(line, e.code());
            }
            false
        }
    }
}

/// Does `act` often enough, then has the helpers rest.
fn repeat(rounds: u64, mut act: impl FnMut(u64)) {
    for n in 0..rounds {
        act(n);
        if n % 64 == 63 {
            yield_now();
        }
    }
    note(REST).store(1, Release);
}

/// The victim crosses all the time.
fn victim_crosses(s: &mut Scene<'_>) -> Result<()> {
    far_service(s)?;
    s.tell_victim(word::DUTY, duty::CROSS);
    Ok(())
}

fn has_crossed(s: &mut Scene<'_>) -> Option<&'static str> {
    (s.victim_says(word::NOTES) < 3).then_some("the victim has hardly crossed")
}

/// With two helpers, one of them on the last node, beside a victim that crosses.
const BESIDE: Case = Case {
    helpers: 2,
    far: true,
    look: has_crossed,
    ..IDLE
};

fn retype(n: u64) {
    use MemoryOp::*;
    let kinds = [
        ObjectKind::CaptblLeaf,
        ObjectKind::PageTableX86L1,
        ObjectKind::Time,
    ];
    let kind = kinds[(n % 3) as usize] as u64;
    let frame = n % 4;
    for (o, args) in [
        (RetypeUser, [frame, 0]),
        (RetypeUser, [0, 2]),
        (RetypeKernel, [frame, kind]),
        (Split, [0, 0]),
        (RetypeUntyped, [frame, 0]),
        (RetypeUntyped, [0, 0]),
        (Merge, [frame & !1, 0]),
    ] {
        let result = call(MEMORY, o as u32, [args[0], args[1], 0, 0, 0]);
        use Error::*;
        // `NotFound`: the frame, or the neighbour that `Merge` wants, has been retyped between two looks at it.
        let refusals = [
            Again,
            NotReady,
            Exists,
            BadArgument,
            TooLarge,
            Denied,
            NotFound,
        ];
        any_of(line!(), result, &refusals);
    }
}

fn reclaim_or_fill(n: u64) {
    // Pages of a thread of its own; all are reclaimed by the first.
    for page in 0..8 {
        let word = word_of(HEAP + (n * 8 + page) * PAGE_SIZE, 0);
        let value = n << 32 | page | 1 << 63;
        word.store(value, Release);
        match word.load(Acquire) {
            // It was given back in between.
            0 => {}
            seen if seen == value => {}
            seen => achieved(line!(), seen),
        }
    }
}

fn region(n: u64) {
    let base = NOWHERE + (3 << 30);
    let kind = RegionKind::Anonymous as u64 | 1 << 8;
    let start = base + n % 8 * PAGE_SIZE;
    let add = call(
        at::SPACE,
        SpaceOp::AddRegion as u32,
        [start, 8 * PAGE_SIZE, kind, 0, 0],
    );
    if any_of(line!(), add, &[Error::Exists, Error::Again]) {
        if note(HAS).swap(1, AcqRel) != 0 {
            achieved(line!(), start);
        }
        note(HAS).store(0, Release);
        let remove = || call(at::SPACE, SpaceOp::RemoveRegion as u32, [start, 0, 0, 0, 0]);
        works(line!(), patient(remove));
    }
}

fn hang(n: u64) {
    let isa = Isa::X86_64;
    let place = TableAt { isa, level: 1 }.bits();
    let va = NOWHERE + ((1 + n % 4) << 21);
    let link = call(
        at::SPACE,
        SpaceOp::Link as u32,
        [place, va, TABLE.into(), 0, 0],
    );
    if any_of(line!(), link, &[Error::Exists, Error::Again]) {
        if note(HAS).swap(1, AcqRel) != 0 {
            achieved(line!(), va);
        }
        note(HAS).store(0, Release);
        let unlink = || call(at::SPACE, SpaceOp::Unlink as u32, [place, va, 0, 0, 0]);
        works(line!(), patient(unlink));
    }
}

/// Makes the helper begin somewhere, and stops it.
fn chase(n: u64) {
    use Error::*;
    let refusals = [NotReady, Again, TooDeep, NoIsa, Exists, NoCap, Denied];
    any_of(line!(), helper(ThreadOp::Stop, [0; 3]), &refusals);
    any_of(line!(), try_to_begin_helper(), &refusals);
    let node = n % nodes();
    any_of(line!(), try_to_resume_helper_at(node, 0), &refusals);
}

/// Asks a service, which must not answer anything else.
fn asks(service: u32, n: u64) {
    tried();
    match invoke(service, [ask::ECHO, n, 5, 0]) {
        Ok([0, value, ..]) if value == answer(n, 5) => {}
        Ok([status, value, ..]) => achieved(line!(), status << 32 | value),
        Err(Error::Again | Error::Full) => {}
        Err(e) => odd(line!(), e.code()),
    }
}

pub const CASES: [Case; 8] = [
    Case {
        name: "again_retypes_on_two_nodes",
        grant: |s| {
            let (first, _) = s.attacker.scratch();
            let memory = s.store.memory(CXL, first, 4)?;
            s.attacker.give(MEMORY, memory, Rights::ALL)?;
            victim_crosses(s)
        },
        act: || repeat(ROUNDS / 8, retype),
        help: |n| {
            if !rests() {
                retype(n + note(DONE).fetch_add(1, Relaxed));
            }
        },
        ..BESIDE
    },
    Case {
        name: "again_reclaims_against_faults",
        grant: |s| {
            own_space(s)?;
            victim_crosses(s)
        },
        act: || {
            repeat(ROUNDS / 4, |n| {
                reclaim_or_fill(0);
                let pages = 1 + n % 24;
                let args = [HEAP, pages, 0, 0, 0];
                let reclaimed = call(at::SPACE, SpaceOp::Reclaim as u32, args);
                any_of(line!(), reclaimed, &[Error::Again]);
            });
        },
        help: |n| {
            if !rests() {
                reclaim_or_fill(n);
            }
        },
        ..BESIDE
    },
    Case {
        name: "again_regions_on_two_nodes",
        grant: |s| {
            own_space(s)?;
            victim_crosses(s)
        },
        act: || repeat(ROUNDS, region),
        help: |n| {
            if !rests() {
                region(n + note(DONE).fetch_add(1, Relaxed));
            }
        },
        ..BESIDE
    },
    Case {
        name: "again_tables_hung_on_two_nodes",
        grant: |s| {
            own_space(s)?;
            let table = sample(s, CapType::PageTable)?;
            s.attacker.give(TABLE, table, Rights::ALL)?;
            victim_crosses(s)
        },
        act: || repeat(ROUNDS, hang),
        help: |n| {
            if !rests() {
                hang(n + note(DONE).fetch_add(1, Relaxed));
            }
        },
        ..BESIDE
    },
    Case {
        name: "again_stops_and_resumes_across_nodes",
        grant: |s| {
            control(s)?;
            victim_crosses(s)
        },
        act: || repeat(ROUNDS / 8, chase),
        help: |n| match n {
            1 => asks(at::SERVICE, 1),
            _ if rests() => {}
            _ => chase(note(DONE).fetch_add(1, Relaxed)),
        },
        ..BESIDE
    },
    Case {
        name: "again_invocations_of_a_far_home",
        grant: |s| {
            let far = far_service(s)?;
            s.attacker.give(SUBJECT, far, INVOKE)?;
            s.tell_victim(word::DUTY, duty::CROSS);
            Ok(())
        },
        act: || repeat(ROUNDS / 8, |n| asks(SUBJECT, n)),
        help: |n| {
            if !rests() {
                asks(SUBJECT, n << 32);
            }
        },
        ..BESIDE
    },
    Case {
        name: "service_stacks_of_many_ids",
        // A client that comes later has what it needs: the victim's own first call of its service on another node.
        far: true,
        grant: |s| {
            control(s)?;
            far_service(s)?;
            let own = s.attacker.entry(s.store, s.image, 0)?;
            s.attacker.give(SUBJECT, own, Rights::ALL)
        },
        act: || {
            let case = report(word::NOTES - 1).load(Relaxed);
            let entry = crate::warden::entry_address();
            let mut rounds = 0;
            for id in ATTACKERS.skip(1).chain(ATTACKERS.skip(1)) {
                for node in [here().0, nodes() - 1] {
                    tried();
                    works(
                        line!(),
                        patient(|| {
                            let tag = u64::from(sched::TAG) + 2;
                            let arg = ATTACKER | case << 8 | 1;
                            let names = (id.into(), tag);
                            configure_helper(at::COMPONENT, entry, arg, names, SCHEDULER)
                        }),
                    );
                    resume_helper_at(node, 0);
                    rounds += 1;
                    for _ in 0..200_000 {
                        if note(DONE).load(Acquire) == rounds {
                            break;
                        }
                        yield_now();
                    }
                    if note(DONE).load(Acquire) != rounds {
                        achieved(line!(), id.into());
                    }
                }
            }
            begun_anew();
            step();
        },
        step: |s, _| {
            s.tell_victim(word::DUTY, duty::CROSS);
            Ok(())
        },
        help: |_| {
            match invoke(SUBJECT, [0, 7, 0, 0]) {
                Ok([deepest, ..]) if deepest == INVOKE_DEPTH as u64 - 1 => {}
                Ok([deepest, ..]) => achieved(line!(), deepest),
                Err(e) => odd(line!(), e.code()),
            }
            note(DONE).fetch_add(1, Release);
            loop {
                let _ = helper(ThreadOp::Exit, [0; 3]);
            }
        },
        serve: |call| {
            let [depth, n, ..] = call.words;
            match invoke(at::SERVICE, [ask::ECHO, depth, n, 0]) {
                Ok([0, value, ..]) if value == answer(depth, n) => {}
                Err(Error::TooDeep) => {}
                Ok([status, ..]) => achieved(line!(), status),
                Err(e) => odd(line!(), e.code()),
            }
            match invoke(SUBJECT, [depth + 1, n, 0, 0]) {
                Ok(deepest) => deepest,
                Err(Error::TooDeep) => [depth, 0, 0, 0],
                Err(e) => {
                    odd(line!(), e.code());
                    [depth, 0, 0, 0]
                }
            }
        },
        look: |s| (s.victim_says(word::NOTES) == 0).then_some("the later client was not served"),
        ..WITH_HELPER
    },
    Case {
        name: "service_stacks_while_the_thread_ends_in_it",
        // Threads that end in the service, at every depth: what they had there is free for the next one with the id.
        far: true,
        grant: |s| {
            control(s)?;
            let own = s.attacker.entry(s.store, s.image, 0)?;
            s.attacker.give(SUBJECT, own, Rights::ALL)
        },
        act: || {
            for n in 0..12 {
                note(REST).store(1 + n, Relaxed);
                begun_anew();
                tried();
                resume_helper_at([here().0, nodes() - 1][n as usize % 2], 0);
            }
            begun_anew();
        },
        help: |_| {
            let _ = invoke(SUBJECT, [1, 0, 0, 0]);
            // Not reached.
            achieved(line!(), note(REST).load(Relaxed));
            loop {
                let _ = helper(ThreadOp::Exit, [0; 3]);
            }
        },
        serve: |call| {
            let [depth, ..] = call.words;
            match invoke(at::SERVICE, [ask::ECHO, depth, 1, 0]) {
                Ok([0, value, ..]) if value == answer(depth, 1) => {}
                Ok([status, ..]) => achieved(line!(), status),
                Err(e) => odd(line!(), e.code()),
            }
            if depth >= note(REST).load(Relaxed) {
                let _ = helper(ThreadOp::Exit, [0; 3]);
            }
            let _ = invoke(SUBJECT, [depth + 1, 0, 0, 0]);
            [depth, 0, 0, 0]
        },
        ..WITH_HELPER
    },
];
