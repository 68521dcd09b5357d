//! Moves of threads wherever they are, with words of their pages that the program forges while init is at it.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::sys::raw;
use dyad::{report, sys, thread};
use dyad_abi::cap::{SinvOp, call_word};
use dyad_abi::emulation::{Page, page, ready, status};
use dyad_abi::service::{process, slot};
use dyad_random::SplitMix64;

/// How long init may have no time for a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Moves that are asked for.
const MOVES: u64 = 40;
/// How long the words of a move are forged.
const FORGED: Duration = Duration::from_millis(2);
/// How long a thread that computes may not be seen to do so.
const STILL: Duration = Duration::from_secs(3);

/// How often the thread that is moved has counted.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Whether it is to end.
static OVER: AtomicBool = AtomicBool::new(false);

fn ask(words: [u64; 4]) -> sys::Result<u64> {
    let answer = raw::request(call_word(slot::PROCESS, SinvOp::Invoke as u32), words);
    match sys::Error::from_code(answer.status) {
        Some(e) => Err(e),
        None => Ok(answer.value),
    }
}

/// Asks until init has had the time, and has done with what was asked before.
fn patiently(words: [u64; 4]) -> sys::Result<u64> {
    let end = Instant::now() + PATIENCE;
    loop {
        match ask(words) {
            Err(sys::Error::Again | sys::Error::Exists) if Instant::now() < end => {
                thread::sleep(Duration::from_micros(100));
            }
            done => return done,
        }
    }
}

/// A word of the page of a thread, which is mapped.
fn word(n: u64, offset: usize) -> &'static AtomicU64 {
    // SAFETY: 1. Init has had the page mapped, writable, for as long as the program lives. 2. All who use it use whole words.
    unsafe { &*with_exposed_provenance::<AtomicU64>(page(n) as usize + offset) }
}

/// A moment, which is another one for each move.
fn pause(n: u64) {
    for _ in 0..n % 16 * 20 {
        raw::relax();
    }
}

/// Whether the thread counts on.
fn counts() -> bool {
    let was = COUNT.load(Ordering::Relaxed);
    let end = Instant::now() + STILL;
    while COUNT.load(Ordering::Relaxed) == was {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// A thread on another node is to be moved, and its page says meanwhile that it has been stopped, at a place that there
/// is not: it goes on all the same. Whether it does.
pub fn play() -> Result<bool> {
    let here = dyad::node();
    let other = system()?.nodes().map(|n| n.id).find(|&n| n != here);
    let other = other.ok_or(sys::Error::NoSuchNode)?;
    patiently([process::EMULATE, 0, u64::MAX, 0])?;
    word(0, core::mem::offset_of!(Page, ready)).store(ready::ALL, Ordering::Release);
    let counter = thread::spawn_on(other, || {
        while !OVER.load(Ordering::Relaxed) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    })?;
    let n = counter.thread().number() as u64;
    let (status, origin) = (
        word(n, core::mem::offset_of!(Page, status)),
        word(n, core::mem::offset_of!(Page, origin)),
    );
    let (mut asked, mut still) = (0, false);
    while asked < MOVES && !still {
        // Where it is already: so nothing is interpreted.
        patiently([process::EMULATE, n, other.index() as u64, 0])?;
        asked += 1;
        let end = Instant::now() + FORGED;
        while Instant::now() < end {
            origin.store(u64::MAX, Ordering::Relaxed);
            status.store(status::PENDING, Ordering::Relaxed);
            pause(asked);
            status.store(status::ASKED, Ordering::Relaxed);
            pause(asked);
        }
        status.store(status::IDLE, Ordering::Relaxed);
        still = !counts();
    }
    let detail = format!("{asked} moves");
    let ok = report::check("abuse.moves.goes-on", !still, &detail);
    OVER.store(true, Ordering::Relaxed);
    if !still {
        counter.join()?;
    }
    Ok(ok)
}

/// Threads of the storm, on all nodes by turns.
const STORM: usize = 24;
/// How long it lasts before the program ends in the middle of it.
const STORMY: Duration = Duration::from_secs(2);

/// What a thread does in the storm: whatever comes next, to itself and to others, until the program ends.
fn storms(mut random: SplitMix64, nodes: u64) {
    let mut own: Vec<u64> = Vec::new();
    loop {
        let n = 1 + random.below(STORM as u64);
        let node = random.below(nodes);
        match random.below(10) {
            // To where it is: by a page that makes sense a thread would begin anew.
            0 | 1 => {
                let at = match random.below(3) {
                    0 => 0,
                    ahead => Instant::now().as_nanos() + ahead * 200_000,
                };
                let _ = ask([process::EMULATE, n, (n - 1) % nodes, at]);
            }
            2 | 3 => {
                let status = word(n, core::mem::offset_of!(Page, status));
                let isa = word(n, core::mem::offset_of!(Page, registers));
                let origin = word(n, core::mem::offset_of!(Page, origin));
                isa.store(2 + random.below(2) * 7, Ordering::Relaxed);
                origin.store(random.below(2 * nodes + 8), Ordering::Relaxed);
                status.store(random.below(8), Ordering::Relaxed);
            }
            4 => {
                let old = random.below(3);
                let _ = ask([process::REQUEST, n + STORM as u64, old, 0]);
            }
            5 => {
                let len = 4096 << random.below(5);
                if own.len() < 2
                    && let Ok(at) = sys::map_anon(len)
                {
                    // SAFETY: 1. Just mapped, and used by nothing else.
                    unsafe { at.write_volatile(1) };
                    own.push(at.as_ptr() as u64);
                    own.push(len);
                }
            }
            6 => {
                if let (Some(len), Some(at)) = (own.pop(), own.pop()) {
                    let word = call_word(slot::PAGER, SinvOp::Invoke as u32);
                    if raw::request(word, [dyad_abi::service::pager::UNMAP, at, len, 0]).status != 0
                    {
                        own.extend([at, len]);
                    }
                }
            }
            7 => thread::sleep(Duration::from_micros(random.below(300))),
            8 => {
                let _ = ask([process::EMULATE, 0, u64::MAX, 0]);
            }
            _ => {
                COUNT.fetch_add(node, Ordering::Relaxed);
            }
        }
    }
}

/// Threads on all nodes do all of this at once, and the program ends in the middle of it.
pub fn storm(seed: u64) -> Result<()> {
    patiently([process::EMULATE, 0, u64::MAX, 0])?;
    word(0, core::mem::offset_of!(Page, ready)).store(ready::ALL, Ordering::Release);
    let nodes: Vec<NodeId> = system()?.nodes().map(|n| n.id).collect();
    let count = nodes.len() as u64;
    for n in 0..STORM {
        let random = SplitMix64(seed << 8 | n as u64);
        let thread = thread::spawn_on(nodes[n % nodes.len()], move || storms(random, count))?;
        core::mem::forget(thread);
    }
    thread::sleep(STORMY);
    report::check("abuse.moves.storm", true, "ends in the middle of it");
    Ok(())
}

/// Threads that ask for moves of each other.
const KNOT: u64 = 6;
/// How long no request may be answered.
const TIED: Duration = Duration::from_millis(700);

/// Threads on each node ask for moves of each other, and of themselves, to where they are. One that is to be moved has the list
/// of requests then. The program ends in the middle of it.
pub fn knot(seed: u64) -> Result<()> {
    patiently([process::EMULATE, 0, u64::MAX, 0])?;
    word(0, core::mem::offset_of!(Page, ready)).store(ready::ALL, Ordering::Release);
    let nodes: Vec<NodeId> = system()?.nodes().map(|n| n.id).collect();
    let count = nodes.len() as u64;
    for n in 0..KNOT {
        let mut random = SplitMix64(seed << 8 | n);
        let thread = thread::spawn_on(nodes[n as usize % nodes.len()], move || {
            loop {
                let to = 1 + random.below(KNOT);
                let asked = ask([process::EMULATE, to, (to - 1) % count, 0]);
                if asked != Err(sys::Error::Again) {
                    COUNT.fetch_add(1, Ordering::Relaxed);
                }
            }
        })?;
        core::mem::forget(thread);
    }
    let end = Instant::now() + STORMY;
    let (mut last, mut at) = (0, Instant::now());
    while Instant::now() < end && at.elapsed() < TIED {
        thread::sleep(Duration::from_millis(20));
        let now = COUNT.load(Ordering::Relaxed);
        if now != last {
            (last, at) = (now, Instant::now());
        }
    }
    let goes_on = at.elapsed() < TIED;
    report::check(
        "abuse.moves.knot",
        goes_on,
        format_args!("{last} requests answered"),
    );
    Ok(())
}
