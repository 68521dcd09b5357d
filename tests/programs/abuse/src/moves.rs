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
