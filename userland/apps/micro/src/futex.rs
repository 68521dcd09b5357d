//! Two threads, one on each side, that wake each other by turns: each waits for a word, changes it, and wakes the other one.
//!
//! Counters are `futex.N.ns` for a game of N turns of each thread, `futex.N.wakes` (how often a thread that slept was woken), and
//! `futex.N.messages` (all messages of the two nodes meanwhile; 0 over a fused kernel).

use core::sync::atomic::{AtomicU32, Ordering};

use dyad::prelude::thread::*;
use dyad::system::Traffic;
use dyad::{futex, report, thread};

use super::Nodes;

/// The word, on a page of its own.
#[repr(align(4096))]
struct Word(AtomicU32);

static WORD: Word = Word(AtomicU32::new(0));

/// How long a thread may sleep, in nanoseconds, before it looks again.
const PATIENCE: u64 = 1_000_000_000;

/// What a thread has counted in a game.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Threads that it has woken.
    wakes: u64,
    /// Messages about threads that its node has sent.
    sent: u64,
    /// Turns that were its own.
    turns: u32,
}

/// Waits until the word is this thread's, changes it, and wakes the other thread, so many times.
#[inline(never)]
fn play(me: u32, turns: u32) -> core::result::Result<Tally, dyad::sys::Error> {
    let before = Traffic::here()?.others;
    let mut tally = Tally::default();
    for _ in 0..turns {
        let now = loop {
            let now = WORD.0.load(Ordering::Acquire);
            if now % 2 == me {
                break now;
            }
            let deadline = Instant::now().as_nanos() + PATIENCE;
            // It looks at the word again, whatever has ended the wait.
            let _ = futex::wait(&WORD.0, now, deadline);
        };
        WORD.0.store(now + 1, Ordering::Release);
        tally.turns += 1;
        tally.wakes += u64::from(futex::wake(&WORD.0, 1));
    }
    tally.sent = Traffic::here()?.others - before;
    Ok(tally)
}

/// Plays a game, and tells.
#[inline(never)]
pub fn tell(turns: u32, nodes: Nodes) -> Result<bool> {
    WORD.0.store(0, Ordering::Release);
    let pages = Traffic::here()?.messages;
    let other = thread::spawn_on(nodes.remote, move || play(1, turns))?;
    // Both are there, and have the word's page and the code.
    thread::sleep(Duration::from_millis(1));
    let start = Instant::now();
    let here = play(0, turns)?;
    let ns = start.elapsed().as_nanos() as u64;
    let there = other.join()??;
    let pages = Traffic::here()?.messages - pages;
    let wakes = here.wakes + there.wakes;
    let messages = pages + here.sent + there.sent;
    println!("{turns:<10} {ns:>12} {wakes:>12} {messages:>12}");
    for (name, count) in [("ns", ns), ("wakes", wakes), ("messages", messages)] {
        report::counter(&format!("futex.{turns}.{name}"), count);
    }
    let all = here.turns + there.turns == 2 * turns;
    let last = WORD.0.load(Ordering::Acquire) == 2 * turns;
    Ok(report::check("futex.turns", all && last, ""))
}
