//! Code and translations over the lives of frames: what a CPU of any node may still run, read or write of a page once its
//! mapping has changed, or its frame has another owner.
//!
//! The same functions are in each page of code, one for each ISA: they return a number, that of the round. What another
//! round has left behind returns another one.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_abi::cap::{CapType, CaptblOp, MemoryOp, ObjectKind, Rights, SpaceOp, TableAt};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_services::first::CXL;

use super::generic::{own_table, sample};
use super::memory::own_space;
use super::thread::{WITH_HELPER, begun_anew, control, resume_helper_at};
use super::{Case, IDLE};
use crate::me::{
    achieved, call, copy, here, nodes, note, odd, patient, place, run_code, tried, yield_now,
};
use crate::run::Scene;
use crate::shared::{NOWHERE, at, duty, word, word_of};
use crate::{refuse, work};

const MEMORY: u32 = at::full(CapType::Memory);
/// Where frames are written.
const WINDOW: u64 = NOWHERE;
/// Where frames are executed.
const CODE: u64 = NOWHERE + PAGE_SIZE;
/// Another page beside both.
const BESIDE: u64 = NOWHERE + 2 * PAGE_SIZE;
/// Where in a page the function of an ISA is, in words.
const FUNCTION: usize = 8;
/// Lives of a frame in one attack.
const LIVES: u64 = 10;
/// Permissions of pages.
const READ: u64 = 0;
const WRITE: u64 = 1;
const EXECUTE: u64 = 2;

/// The words by which attacker and helper speak: the order for the helper, the address that the order is about, and the
/// result.
const ORDER: usize = 0;
const WHERE: usize = 1;
const RESULT: usize = 2;
/// Not 0: helpers that are always at work rest.
const REST: usize = 4;

/// What the helper is to do.
mod order {
    /// Runs the function there.
    pub const RUN: u64 = 1;
    /// Reads a word.
    pub const READ: u64 = 2;
    /// Writes a word.
    pub const WRITE: u64 = 3;
}

/// The helper has not come so far: it has faulted.
const FAULTED: u64 = u64::MAX;
/// What a read of the helper is told as, so that it is no other result.
const SEEN: u64 = 1 << 62;

/// A function that returns a number below 2^16, as one word.
const fn function(isa: Isa, value: u64) -> u64 {
    match isa {
        // mov eax, value; ret
        Isa::X86_64 => 0xb8 | value << 8 | 0xc3 << 40,
        // movz w0, #value; ret
        Isa::Aarch64 => (0x5280_0000 | value << 5) | 0xd65f_03c0 << 32,
    }
}

/// The table of an ISA, at the level of pages.
fn table(isa: Isa) -> u64 {
    TableAt { isa, level: 1 }.bits()
}

/// Every ISA that the attacker's space has a root for, told by whether an operation is refused with `NoIsa`.
fn on_all(mut op: impl FnMut(u64) -> core::result::Result<u64, Error>) {
    for isa in Isa::ALL {
        match op(table(isa)) {
            Ok(_) | Err(Error::NoIsa) => {}
            Err(e) => odd(line!(), e.code()),
        }
    }
}

fn space(o: SpaceOp, args: [u64; 5]) -> core::result::Result<u64, Error> {
    call(at::SPACE, o as u32, args)
}

fn map(va: u64, slot: u32, how: u64) {
    on_all(|at| patient(|| space(SpaceOp::Map, [at, va, slot.into(), 0, how])));
}

fn unmap(va: u64) {
    on_all(|at| patient(|| space(SpaceOp::Unmap, [at, va, 0, 0, 0])));
}

fn protect(va: u64, how: u64) {
    on_all(|at| patient(|| space(SpaceOp::Protect, [at, va, how, 0, 0])));
}

/// Has all CPUs drop translations, and waits for that.
fn drop_translations(va: u64) {
    let Ok(ticket) = patient(|| space(SpaceOp::Shootdown, [va, PAGE_SIZE, 0, 0, 0])) else {
        return odd(line!(), 0);
    };
    for _ in 0..100_000 {
        match space(SpaceOp::Shootdown, [ticket, 0, 0, 0, 0]) {
            Ok(1) => return,
            Ok(_) | Err(Error::Again) => yield_now(),
            Err(e) => return odd(line!(), e.code()),
        }
    }
    odd(line!(), 1);
}

fn memory(o: MemoryOp, args: [u64; 3]) -> core::result::Result<u64, Error> {
    call(MEMORY, o as u32, [args[0], args[1], args[2], 0, 0])
}

/// A frame of the attacker begins a life as user memory, with a capability in a slot of its own.
fn user_frame(n: u64) -> u32 {
    let slot = at::FREE + n as u32;
    work!(patient(|| memory(MemoryOp::RetypeUser, [0, 0, 0])));
    let all: u64 = u32::MAX.into();
    work!(patient(|| memory(
        MemoryOp::Activate,
        [0, place(slot), all]
    )));
    slot
}

fn hand_back() {
    work!(patient(|| memory(MemoryOp::RetypeUntyped, [0; 3])));
}

/// Writes functions that return a number into the page at an address.
fn write(va: u64, value: u64) {
    for isa in Isa::ALL {
        word_of(va, FUNCTION * isa.index()).store(function(isa, value), Release);
    }
}

/// Fills a frame with functions that return a number, by the window.
fn fill(slot: u32, value: u64) {
    map(WINDOW, slot, WRITE);
    write(WINDOW, value);
    unmap(WINDOW);
}

fn run_here(va: u64) -> u64 {
    run_code(va + 8 * FUNCTION as u64 * here().1.index() as u64)
}

/// Has the helper do something on a node, and waits until it has ended.
fn helper_does(node: u64, what: u64, va: u64) -> u64 {
    note(ORDER).store(what, Relaxed);
    note(WHERE).store(va, Relaxed);
    note(RESULT).store(FAULTED, Release);
    begun_anew();
    resume_helper_at(node, 0);
    begun_anew();
    note(RESULT).load(Acquire)
}

/// What the helper does.
fn do_it(_: u64) {
    let va = note(WHERE).load(Acquire);
    let result = match note(ORDER).load(Relaxed) {
        order::RUN => run_here(va),
        order::READ => SEEN | word_of(va, 0).load(Acquire) & (SEEN - 1),
        _ => {
            word_of(va, 0).store(0xbad, Release);
            SEEN
        }
    };
    note(RESULT).store(result, Release);
    loop {
        let _ = super::thread::helper(dyad_abi::cap::ThreadOp::Exit, [0; 3]);
    }
}

/// An attempt that must give this number.
fn expect(line: u32, got: u64, value: u64) {
    tried();
    if got != value {
        achieved(line, got);
    }
}

fn last() -> u64 {
    nodes() - 1
}

fn frames(s: &mut Scene<'_>) -> Result<()> {
    own_table(s)?;
    own_space(s)?;
    let (first, _) = s.attacker.scratch();
    let memory = s.store.memory(CXL, first, 4)?;
    s.attacker.give(MEMORY, memory, Rights::ALL)
}

const ALONE: Case = Case {
    grant: frames,
    ..IDLE
};

/// With a helper that may run on every node.
const FAR: Case = Case {
    far: true,
    grant: |s| {
        frames(s)?;
        control(s)
    },
    help: do_it,
    ..WITH_HELPER
};

pub const CASES: [Case; 12] = [
    Case {
        name: "code_of_the_former_owner_here",
        act: || {
            for n in 1..=LIVES {
                let slot = user_frame(n);
                fill(slot, n);
                map(CODE, slot, EXECUTE);
                expect(line!(), run_here(CODE), n);
                unmap(CODE);
                hand_back();
            }
        },
        ..ALONE
    },
    Case {
        name: "code_of_the_former_owner_on_another_node",
        act: || {
            for n in 1..=LIVES {
                let slot = user_frame(n);
                fill(slot, n);
                map(CODE, slot, EXECUTE);
                expect(line!(), helper_does(last(), order::RUN, CODE), n);
                expect(line!(), run_here(CODE), n);
                unmap(CODE);
                hand_back();
            }
        },
        ..FAR
    },
    Case {
        name: "code_rewritten_in_its_place",
        // One frame, one address: written and executed in turn.
        act: || {
            let slot = user_frame(0);
            map(CODE, slot, WRITE);
            for n in 1..=LIVES {
                write(CODE, n);
                protect(CODE, EXECUTE);
                expect(line!(), run_here(CODE), n);
                expect(line!(), helper_does(last(), order::RUN, CODE), n);
                protect(CODE, WRITE);
            }
        },
        ..FAR
    },
    Case {
        name: "code_asked_for_without_a_pause",
        // A loader that tries again at once, while a thread of another node does the same with another frame.
        helpers: 2,
        far: true,
        grant: |s| {
            frames(s)?;
            let (first, _) = s.attacker.scratch();
            let memory = s.store.memory(CXL, first + 8, 4)?;
            s.attacker.give(at::SUBJECT, memory, Rights::ALL)?;
            super::race::far_service(s)?;
            s.tell_victim(word::DUTY, duty::CROSS);
            Ok(())
        },
        act: || {
            let slot = user_frame(0);
            map(CODE, slot, WRITE);
            for n in 1..=4 * LIVES {
                write(CODE, n);
                at_once(CODE, EXECUTE);
                expect(line!(), run_here(CODE), n);
                at_once(CODE, WRITE);
            }
            note(REST).store(1, Release);
        },
        help: |n| {
            if note(REST).load(Acquire) != 0 {
                return yield_now();
            }
            // Whatever comes of that: requests, and answers of `Again`.
            let slot = at::FREE + 64 + n as u32;
            let page = BESIDE + n * PAGE_SIZE;
            let all: u64 = u32::MAX.into();
            let own = [n - 1, 0, 0, 0, 0];
            let _ = call(at::SUBJECT, MemoryOp::RetypeUser as u32, own);
            let made = [n - 1, place(slot), all, 0, 0];
            let _ = call(at::SUBJECT, MemoryOp::Activate as u32, made);
            for isa in Isa::ALL {
                for how in [EXECUTE, WRITE, EXECUTE] {
                    let _ = space(SpaceOp::Map, [table(isa), page, slot.into(), 0, how]);
                    let _ = space(SpaceOp::Protect, [table(isa), page, how, 0, 0]);
                }
            }
        },
        look: |s| (s.victim_says(word::NOTES) < 3).then_some("the victim has hardly crossed"),
        ..IDLE
    },
    Case {
        name: "code_request_that_finds_a_kernel_object",
        // The request is queued, and the frame is a leaf of a table when it comes.
        grant: |s| {
            frames(s)?;
            control(s)?;
            let time = sample(s, CapType::Time)?;
            s.attacker.give(at::full(CapType::Time), time, Rights::ALL)
        },
        act: || {
            for n in 1..=LIVES / 2 {
                let slot = user_frame(n);
                fill(slot, n);
                map(CODE, slot, EXECUTE);
                expect(line!(), helper_does(last(), order::RUN, CODE), n);
                protect(CODE, WRITE);
                write(CODE, n + 100);
                // Asked for, and not waited for.
                for isa in Isa::ALL {
                    let _ = space(SpaceOp::Protect, [table(isa), CODE, EXECUTE, 0, 0]);
                }
                unmap(CODE);
                hand_back();
                let leaf = ObjectKind::CaptblLeaf as u64;
                work!(patient(|| memory(MemoryOp::RetypeKernel, [0, leaf, 0])));
                let leaf = at::FREE + 32 + n as u32;
                let made = [0, place(leaf), u32::MAX.into()];
                work!(patient(|| memory(MemoryOp::Activate, made)));
                let all: u64 = u32::MAX.into();
                for i in 0..8 {
                    let time = at::full(CapType::Time).into();
                    let args = [i, time, all, 0, 0];
                    work!(patient(|| call(leaf, CaptblOp::CopyIn as u32, args)));
                }
                let reads = || call(leaf, CaptblOp::Read as u32, [3, 0, 0, 0, 0]);
                let before = work!(reads());
                for _ in 0..20 {
                    yield_now();
                    expect(line!(), work!(reads()), before);
                }
                hand_back();
            }
        },
        ..FAR
    },
    Case {
        name: "code_writable_and_executable",
        act: || {
            let slot = user_frame(0);
            let page = table(here().1);
            for how in [3, 7, u64::MAX] {
                refuse!(
                    space(SpaceOp::Map, [page, CODE, slot.into(), 0, how]),
                    BadArgument
                );
            }
            fill(slot, 7);
            map(CODE, slot, EXECUTE);
            for how in [3, 7, u64::MAX] {
                refuse!(
                    space(SpaceOp::Protect, [page, CODE, how, 0, 0]),
                    BadArgument
                );
            }
            for node in [here().0, last()] {
                expect(line!(), helper_does(node, order::WRITE, CODE), FAULTED);
                expect(line!(), helper_does(node, order::RUN, CODE), 7);
            }
            // What may be written is not executed, and neither is what may only be read.
            for how in [WRITE, READ] {
                protect(CODE, how);
                drop_translations(CODE);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::RUN, CODE), FAULTED);
                }
            }
        },
        ..FAR
    },
    Case {
        name: "code_frame_given_up_while_another_node_runs_it",
        act: || {
            let slot = user_frame(0);
            fill(slot, 9);
            // In the tables of the other ISAs only.
            map(CODE, slot, EXECUTE);
            expect(line!(), helper_does(last(), order::RUN, CODE), 9);
            if Isa::ALL.len() > 1 {
                work!(patient(|| space(
                    SpaceOp::Unmap,
                    [table(here().1), CODE, 0, 0, 0]
                )));
            }
            let other = table(here().1.other());
            let looked = space(SpaceOp::Translate, [other, CODE, 0, 0, 0]);
            tried();
            if looked.is_ok() {
                for _ in 0..8 {
                    refuse!(memory(MemoryOp::RetypeUntyped, [0; 3]), Exists);
                    let leaf = ObjectKind::CaptblLeaf as u64;
                    refuse!(memory(MemoryOp::RetypeKernel, [0, leaf, 0]), Exists);
                }
            }
        },
        ..FAR
    },
    Case {
        name: "translation_of_an_unmapped_page",
        act: || {
            for n in 1..=3 {
                let slot = user_frame(n);
                map(CODE, slot, WRITE);
                word_of(CODE, 0).store(n, Release);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::READ, CODE), SEEN | n);
                }
                unmap(CODE);
                drop_translations(CODE);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::READ, CODE), FAULTED);
                    expect(line!(), helper_does(node, order::WRITE, CODE), FAULTED);
                }
                hand_back();
            }
        },
        ..FAR
    },
    Case {
        name: "translation_of_a_page_made_read_only",
        act: || {
            let slot = user_frame(0);
            map(CODE, slot, WRITE);
            for n in 1..=3 {
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::WRITE, CODE), SEEN);
                }
                word_of(CODE, 0).store(n, Release);
                protect(CODE, READ);
                drop_translations(CODE);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::WRITE, CODE), FAULTED);
                    expect(line!(), helper_does(node, order::READ, CODE), SEEN | n);
                }
                protect(CODE, WRITE);
            }
        },
        ..FAR
    },
    Case {
        name: "translation_of_code_unmapped",
        act: || {
            for n in 1..=3 {
                let slot = user_frame(n);
                fill(slot, n);
                map(CODE, slot, EXECUTE);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::RUN, CODE), n);
                }
                unmap(CODE);
                drop_translations(CODE);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::RUN, CODE), FAULTED);
                }
                hand_back();
            }
        },
        ..FAR
    },
    Case {
        name: "translation_of_a_frame_with_another_owner",
        // Nothing is asked to drop translations: a frame that is used again must have been quiet.
        act: || {
            for n in 1..=4 {
                let slot = user_frame(n);
                map(CODE, slot, WRITE);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::WRITE, CODE), SEEN);
                }
                unmap(CODE);
                hand_back();
                // Its next life: at another address.
                let slot = user_frame(n + 16);
                map(WINDOW, slot, WRITE);
                expect(line!(), word_of(WINDOW, 0).load(Acquire), 0);
                word_of(WINDOW, 0).store(n, Release);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::READ, CODE), FAULTED);
                    expect(line!(), helper_does(node, order::WRITE, CODE), FAULTED);
                }
                expect(line!(), word_of(WINDOW, 0).load(Acquire), n);
                unmap(WINDOW);
                hand_back();
            }
        },
        ..FAR
    },
    Case {
        name: "translation_of_the_page_before",
        // Two frames that change places at one address.
        act: || {
            let first = user_frame(0);
            let second = at::FREE + 1;
            work!(patient(|| memory(MemoryOp::RetypeUser, [1, 0, 0])));
            let all: u64 = u32::MAX.into();
            work!(patient(|| memory(
                MemoryOp::Activate,
                [1, place(second), all]
            )));
            work!(copy(at::FREE + 2, first, Rights::ALL));
            for (slot, value) in [(first, 21), (second, 22)] {
                map(WINDOW, slot, WRITE);
                word_of(WINDOW, 0).store(value, Release);
                unmap(WINDOW);
            }
            for n in 0..6 {
                let (slot, value) = [(first, 21), (second, 22)][n % 2];
                map(CODE, slot, READ);
                for node in [here().0, last()] {
                    expect(line!(), helper_does(node, order::READ, CODE), SEEN | value);
                }
                unmap(CODE);
                drop_translations(CODE);
            }
        },
        ..FAR
    },
];

/// Changes permissions, and tries again at once as long as that is refused with `Again`.
fn at_once(va: u64, how: u64) {
    on_all(|at| {
        for _ in 0..200_000 {
            match space(SpaceOp::Protect, [at, va, how, 0, 0]) {
                Err(Error::Again) => {}
                done => return done,
            }
        }
        Err(Error::TimedOut)
    });
}
