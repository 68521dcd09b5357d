//! Peers as targets, with kernels that only exchange messages: operations of threads, words and memory in states and orders in
//! which no runtime makes them. What a peer keeps is its program's alone, so that the program still works is what is to be shown.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::sys::raw;
use dyad::{sys, thread};
use dyad_abi::cap::{SinvOp, call_word};
use dyad_abi::service::peer::{Counted, op};
use dyad_abi::service::{pager, process, slot};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE, stack_slot};
use dyad_random::SplitMix64;

use crate::services::{Attack, NO_NODES, request};
use sys::Error::{BadArgument, Denied, NoSuchNode, NotFound};

/// How long a thread may take for what it does at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it is looked whether something happens that must not.
const LOOK: Duration = Duration::from_millis(20);
/// Ranges that two threads give back at a time.
const RANGES: u64 = 10;

/// Threads that bring pages, one after the other.
const BRINGS: u64 = 4;

/// Threads on each node that wake another one.
const WAKERS: u64 = 3;

/// The thread that they wake; 0: none yet; the largest number: none any more.
static WOKEN: AtomicU64 = AtomicU64::new(0);
/// What a thread has come to that moves in its second life.
static LANDED: AtomicU64 = AtomicU64::new(0);
/// How often a call of `MOVE` has come back where nothing has come.
static TWICE: AtomicU64 = AtomicU64::new(0);
/// The range that two threads give back: its start.
static RANGE: AtomicU64 = AtomicU64::new(0);
/// How often a thread has given a range back, and how often it was refused.
static DONE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Waits until a word has a value. Whether it has.
fn becomes(word: &AtomicU64, value: u64) -> bool {
    let end = Instant::now() + PATIENCE;
    while word.load(Ordering::Acquire) != value {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_micros(50));
    }
    true
}

/// Invokes the process service, whatever it answers.
fn process(words: [u64; 4]) -> u64 {
    raw::request(call_word(slot::PROCESS, SinvOp::Invoke as u32), words).status
}

/// Where a thread goes on that has moved: it ends there.
extern "C" fn landed(argument: u64) -> ! {
    LANDED.store(argument, Ordering::Release);
    loop {
        process([process::END_THREAD, 0, 0, 0]);
    }
}

/// The calling thread moves to a node of the other ISA. It goes on there in `landed`.
fn go(node: NodeId, argument: u64) {
    leave(process::MOVE, node, argument);
}

/// As `go`, after the pages that this node has.
fn bring(node: NodeId, argument: u64) {
    leave(process::MOVE | process::AHEAD, node, argument);
}

fn leave(what: u64, node: NodeId, argument: u64) {
    let other = isa().other();
    let id = sys::thread::id().unwrap_or_default();
    let (_, top) = stack_slot(other, id);
    let sp = sys::group::empty_on(other, top);
    let words = [
        what | (node.index() as u64) << 8,
        landed as *const () as usize as u64 | process::WITH_ARGUMENT,
        sp,
        argument,
    ];
    process(words);
    // Nobody comes back here.
    TWICE.fetch_add(1, Ordering::Relaxed);
    loop {
        thread::sleep(PATIENCE);
    }
}

/// Gives back ranges as they are named in `RANGE`.
fn gives_back() {
    let mut last = 0;
    loop {
        let at = RANGE.load(Ordering::Acquire);
        if at == u64::MAX {
            return;
        }
        if at == last {
            sys::yield_now();
            continue;
        }
        last = at;
        let done = request(slot::PAGER, [pager::UNMAP, at, PAGE_SIZE, 0]);
        DONE[usize::from(done == Err(NotFound))].fetch_add(1, Ordering::Release);
    }
}

/// Wakes the thread that is named in `WOKEN`, whether there is one or not.
fn wakes() {
    loop {
        match WOKEN.load(Ordering::Acquire) {
            0 => sys::yield_now(),
            u64::MAX => return,
            n => drop(process([process::WAKE, n, 0, 0])),
        }
    }
}

/// The attacks.
pub const ATTACKS: [Attack; 11] = [
    Attack {
        name: "peer_losses_that_others_tell",
        act: |a| {
            // What peers tell init, and init peers.
            for threads in [0, 1, 2, 1 << 63, u64::MAX] {
                a.ask(slot::PROCESS, [process::LOST, threads, 0, 0], &[Denied]);
            }
            for node in NO_NODES.into_iter().chain([0, 1, 2]) {
                a.ask(slot::PAGER, [op::DIED, node, 0, 0], &[BadArgument, Denied]);
            }
            thread::sleep(LOOK);
            match sys::thread::lost() {
                0 => {}
                lost => a.found(format!("threads {lost:#x} are lost")),
            }
            for node in a.nodes.clone() {
                a.tries += 1;
                if thread::spawn_on(node, || ())
                    .and_then(|t| t.join())
                    .is_err()
                {
                    a.found("no thread".into());
                }
            }
        },
    },
    Attack {
        name: "peer_moves_to_nowhere",
        act: |a| {
            let here = dyad::node().index() as u64;
            let nodes = a.nodes.len() as u64;
            for node in NO_NODES.into_iter().chain([here, nodes, 255, 256 | here]) {
                let what = process::MOVE | (node << 8);
                // The own node has no bits beyond those of a number.
                a.ask(slot::PROCESS, [what, 16, 0, 0], &[NoSuchNode]);
            }
        },
    },
    Attack {
        name: "peer_brings_pages_to_nowhere",
        act: |a| {
            let here = dyad::node().index() as u64;
            let nodes = a.nodes.len() as u64;
            for node in NO_NODES.into_iter().chain([here, nodes, 255]) {
                for more in [process::AHEAD, 3 * process::AHEAD, process::AHEAD | 1 << 63] {
                    let what = process::MOVE | node << 8 | more;
                    // Bits beyond those of a number and of what goes before the thread mean nothing.
                    a.ask(slot::PROCESS, [what, 16, 0, 0], &[NoSuchNode, BadArgument]);
                }
            }
        },
    },
    Attack {
        name: "peer_brings_pages_that_are_given_back",
        act: |a| {
            let here = dyad::node();
            let Some(&other) = a.nodes.iter().find(|&&n| n != here) else {
                return;
            };
            for round in 1..=BRINGS {
                let mut ranges = [0; 8];
                for at in &mut ranges {
                    let asked = [pager::MAP_ANON, 8 * PAGE_SIZE, 0, 0];
                    let Ok(start) = request(slot::PAGER, asked) else {
                        return a.found("no memory".into());
                    };
                    *at = start;
                    for page in 0..8 {
                        let at = (start + page * PAGE_SIZE) as usize;
                        let word = with_exposed_provenance::<AtomicU64>(at);
                        // SAFETY: 1. Just mapped, aligned, and given back below only.
                        unsafe { (*word).store(round, Ordering::Relaxed) };
                    }
                }
                LANDED.store(0, Ordering::Relaxed);
                a.tries += 1;
                let brings = thread::spawn_on(here, move || bring(other, round));
                match brings {
                    Ok(brings) => core::mem::forget(brings),
                    Err(e) => return a.found(format!("no thread: {e}")),
                }
                // Its pages are on their way, or are asked for.
                for at in ranges {
                    if request(slot::PAGER, [pager::UNMAP, at, 8 * PAGE_SIZE, 0]).is_err() {
                        a.found("a range is not given back".into());
                    }
                    sys::yield_now();
                }
                if !becomes(&LANDED, round) {
                    return a.found("a thread that brings pages has not come".into());
                }
            }
            match TWICE.swap(0, Ordering::Relaxed) {
                0 => {}
                n => a.found(format!("{n} threads are on two nodes")),
            }
        },
    },
    Attack {
        name: "peer_counters_that_there_are_not",
        act: |a| {
            for n in [Counted::ALL.len() as u64, 64, 1 << 32, 1 << 63, u64::MAX] {
                a.ask(slot::PROCESS, [process::COUNTED, n, 0, 0], &[BadArgument]);
            }
        },
    },
    Attack {
        name: "peer_moves_in_a_second_life",
        act: |a| {
            let here = dyad::node();
            let Some(&other) = a.nodes.iter().find(|&&n| n != here) else {
                return;
            };
            LANDED.store(0, Ordering::Relaxed);
            // Its kernel thread here waits for the next thread with the number.
            let first = thread::spawn_on(here, || ());
            let first = first.and_then(|t| t.join());
            let second = thread::spawn_on(here, move || go(other, 7));
            a.tries += 1;
            match second.and_then(|t| first.map(|()| t)) {
                Ok(second) => core::mem::forget(second),
                Err(e) => a.found(format!("no thread: {e}")),
            }
            if !becomes(&LANDED, 7) {
                a.found("the thread has not come".into());
            }
            thread::sleep(LOOK);
            match TWICE.swap(0, Ordering::Relaxed) {
                0 => {}
                n => a.found(format!("{n} threads are on two nodes")),
            }
        },
    },
    Attack {
        name: "peer_memory_given_back_by_two",
        act: |a| {
            let nodes = a.nodes.iter().copied();
            let threads: Vec<_> = nodes.map(|n| thread::spawn_on(n, gives_back)).collect();
            let count = threads.len() as u64;
            for _ in 0..RANGES {
                for done in &DONE {
                    done.store(0, Ordering::Relaxed);
                }
                let Ok(at) = request(slot::PAGER, [pager::MAP_ANON, PAGE_SIZE, 0, 0]) else {
                    return a.found("no memory".into());
                };
                let word = with_exposed_provenance::<AtomicU64>(at as usize);
                // SAFETY: 1. Just mapped, aligned, and given back only when the word is not used any more.
                unsafe { (*word).store(at, Ordering::Relaxed) };
                RANGE.store(at, Ordering::Release);
                a.tries += count - 1;
                if !becomes(&DONE[0], 1) || !becomes(&DONE[1], count - 1) {
                    return a.found("a thread that gives memory back gets no answer".into());
                }
            }
            RANGE.store(u64::MAX, Ordering::Release);
            for thread in threads {
                if thread.and_then(|t| t.join()).is_err() {
                    a.found("no thread".into());
                }
            }
            RANGE.store(0, Ordering::Relaxed);
        },
    },
    Attack {
        name: "peer_words_in_odd_orders",
        act: |a| {
            for key in [0, 1, a.own, a.own + 1, 1 << 47, u64::MAX] {
                for what in [
                    [process::FUTEX_END, key, 0, 0],
                    [process::FUTEX_WAKE, key, u64::MAX, 0],
                    [process::FUTEX_BEGIN, key, 0, 0],
                    [process::FUTEX_BEGIN, !key, 0, 0],
                    [process::FUTEX_WAKE, key, 0, 0],
                    [process::FUTEX_WAKE, !key, u64::MAX, 0],
                    [process::FUTEX_END, key, 0, 0],
                    [process::FUTEX_END, key, 0, 0],
                ] {
                    if process(what) != 0 {
                        a.found(format!("{what:x?} is refused"));
                    }
                }
            }
            for n in [MAX_PROGRAM_THREADS, 255, 1 << 32, u64::MAX] {
                a.ask(
                    slot::PROCESS,
                    [process::WAKE, n, 0, 0],
                    &[NotFound, BadArgument],
                );
            }
        },
    },
    Attack {
        name: "peer_waits_for_words_and_ends",
        act: |a| {
            let word = a.own;
            for node in a.nodes.clone() {
                let waits = thread::spawn_on(node, move || {
                    process([process::FUTEX_BEGIN, word, 0, 0]);
                });
                a.tries += 1;
                if waits.and_then(|t| t.join()).is_err() {
                    a.found("no thread".into());
                }
            }
            process([process::FUTEX_WAKE, word, u64::MAX, 0]);
        },
    },
    Attack {
        name: "peer_wakes_of_a_thread_that_begins",
        act: |a| {
            WOKEN.store(0, Ordering::Relaxed);
            // The nodes where it does not begin are busy, so it begins late.
            let others = a.nodes.iter().cycle().take(2 * WAKERS as usize);
            let all: Vec<_> = others.map(|&n| thread::spawn_on(n, wakes)).collect();
            let numbers = all.iter().flatten().map(|t| t.thread().number() as u64);
            let next = numbers.max().unwrap_or_default() + 1;
            WOKEN.store(next, Ordering::Release);
            let nodes = a.nodes.clone();
            for &node in nodes.iter().cycle().take(2 * WAKERS as usize) {
                let since = Instant::now();
                a.tries += 1;
                if thread::spawn_on(node, || ())
                    .and_then(|t| t.join())
                    .is_err()
                {
                    a.found("no thread".into());
                }
                if Instant::now() - since > PATIENCE {
                    a.found("a thread begins late".into());
                    break;
                }
            }
            WOKEN.store(u64::MAX, Ordering::Release);
            for thread in all {
                if thread.and_then(|t| t.join()).is_err() {
                    a.found("no thread".into());
                }
            }
        },
    },
    Attack {
        name: "peer_arrives_again",
        act: |a| {
            for node in a.nodes.clone() {
                let waits = thread::spawn_on(node, || {
                    process([process::ARRIVED, 0, 0, 0]);
                });
                a.tries += 1;
                match waits {
                    // Nothing ever comes to it. It is there when the program ends.
                    Ok(waits) => core::mem::forget(waits),
                    Err(e) => a.found(format!("no thread: {e}")),
                }
            }
            thread::sleep(LOOK);
        },
    },
];

/// Threads that move to places where no thread can go on: one for each wild word. The program does not survive it; the
/// kernels and the peers do, and all frames come back.
pub fn wild(seed: u64) -> dyad::Result<()> {
    const WILD: [u64; 8] = [
        0,
        8,
        1 << 47,
        (1 << 47) - 8,
        u64::MAX,
        1 << 63,
        0xffff_8000_0000_0000,
        0x4100_0001,
    ];
    let other = isa().other();
    let here = dyad::node();
    let node = system()?.nodes().map(|n| n.id).find(|&n| n != here);
    let node = node.ok_or(NoSuchNode)?;
    let n = seed as usize % (2 * WILD.len());
    let value = WILD[n / 2];
    let moved = thread::spawn_on(here, move || {
        let id = sys::thread::id().unwrap_or_default();
        let (_, top) = stack_slot(other, id);
        let sp = sys::group::empty_on(other, top);
        let pc = landed as *const () as usize as u64;
        let (pc, sp) = match n % 2 {
            0 => (value, sp),
            _ => (pc, value),
        };
        let what = process::MOVE | (node.index() as u64) << 8;
        let status = process([what, pc, sp, 0]);
        println!("wild {n}: pc {pc:#x} sp {sp:#x}: came back with {status}");
    })?;
    core::mem::forget(moved);
    thread::sleep(Duration::from_millis(200));
    println!("wild {n}: the program goes on");
    Ok(())
}

/// Threads of the storm of requests, on both nodes.
const STORM: usize = 12;
/// How long it lasts before the program ends in the middle of it.
const STORMY: Duration = Duration::from_secs(3);

/// What a thread of the storm asks: any operation, about anything, with numbers that mean something to peers.
fn storms(mut random: SplitMix64, own: u64) {
    const ODD: [u64; 10] = [0, 1, 2, 63, 64, 255, 1 << 32, 1 << 47, 1 << 63, u64::MAX];
    let mut last = own;
    while GO.load(Ordering::Acquire) == 0 {
        sys::yield_now();
    }
    loop {
        let mut number = || match random.below(5) {
            0 => ODD[random.below(ODD.len() as u64) as usize],
            1 => random.below(STORM as u64 + 4),
            2 => own + random.below(4) * 8,
            3 => last,
            _ => random.next(),
        };
        let (a, b, c) = (number(), number(), number());
        let status = match random.below(16) {
            0 => process([process::WAKE, a, b, c]),
            1 => process([process::FUTEX_WAKE, a, b, c]),
            2 => process([process::FUTEX_END, a, b, c]),
            3 => {
                // Nobody but the others wakes it, and `WAKE` ends the wait.
                process([process::FUTEX_BEGIN, a, b, c]);
                process([process::FUTEX_END, a, 0, 0])
            }
            4 => process([process::REQUEST, a, b, c & 3]),
            // Of threads that live: one that does not would begin without anything to do.
            5 | 6 => process([process::START, 1 + random.below(STORM as u64), a & 3, b]),
            7 => process([process::MOVE | (2 + random.below(200)) << 8, a, b, c]),
            8 => process([process::MEMORY_STATE, a, b, c]),
            9 => process([process::EMULATE, a, b, c]),
            10 => process([random.below(64) & !1 | 32, a, b, c]),
            11 | 12 => match request(
                slot::PAGER,
                [pager::MAP_ANON, PAGE_SIZE << random.below(6), 0, 0],
            ) {
                Ok(at) => {
                    last = at;
                    let word = with_exposed_provenance::<AtomicU64>(at as usize);
                    // SAFETY: 1. Just mapped, aligned. If another thread gives it back the program ends, which it may.
                    unsafe { (*word).store(at, Ordering::Relaxed) };
                    0
                }
                Err(_) => 1,
            },
            13 => request(
                slot::PAGER,
                [pager::UNMAP, last, PAGE_SIZE << random.below(6), 0],
            )
            .map_or(1, |_| 0),
            14 => request(slot::CONSOLE, [random.below(5), a, b, c]).map_or(1, |_| 0),
            _ => request(slot::PAGER, [pager::FAULT | random.below(512), a, b, c]).map_or(1, |_| 0),
        };
        COUNT[usize::from(status != 0)].fetch_add(1, Ordering::Relaxed);
    }
}

/// All threads of the storm have begun.
static GO: AtomicU64 = AtomicU64::new(0);
/// How many requests were granted, and refused.
static COUNT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Threads on both nodes ask their peers for anything, and the program ends in the middle of it.
pub fn storm(seed: u64) -> dyad::Result<()> {
    let own = sys::map_anon(2 * PAGE_SIZE)?.as_ptr() as u64;
    let nodes: Vec<NodeId> = system()?.nodes().map(|n| n.id).collect();
    for n in 0..STORM {
        let random = SplitMix64(seed << 8 | n as u64);
        let thread = thread::spawn_on(nodes[n % nodes.len()], move || storms(random, own))?;
        core::mem::forget(thread);
    }
    GO.store(1, Ordering::Release);
    thread::sleep(STORMY);
    let [granted, refused] = COUNT.each_ref().map(|n| n.load(Ordering::Relaxed));
    println!("storm of peers: {granted} granted, {refused} refused");
    Ok(())
}
