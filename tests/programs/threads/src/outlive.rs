//! Threads that go on when another node dies. Each has pages of its own, which it alone writes, and threads of other nodes read
//! them: what they find is never older than what they have found before.
//!
//! Nothing that the first thread needs is left on another node: after all threads have begun it has the pages of the runtime itself.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::{report, sys, thread};

use crate::nodes;

/// Words of a page.
const WORDS: usize = 512;
/// Pages of a thread.
const PAGES: usize = 8;

#[repr(align(4096))]
struct Page([AtomicU64; WORDS]);

/// What the threads are told.
#[repr(align(4096))]
struct Told(AtomicBool);

/// How many have begun.
#[repr(align(4096))]
struct Begun(AtomicU64);

static STOP: Told = Told(AtomicBool::new(false));
static BEGUN: Begun = Begun(AtomicU64::new(0));

fn pages() -> Arc<[Page]> {
    let page = || Page([const { AtomicU64::new(0) }; WORDS]);
    (0..PAGES).map(|_| page()).collect()
}

/// Writes one number after the other to all words. Whether the words always were what this thread had written last.
fn writes(pages: &[Page]) -> bool {
    BEGUN.0.fetch_add(1, Ordering::Release);
    let mut last = 0;
    while !STOP.0.load(Ordering::Acquire) {
        for page in pages {
            for word in &page.0 {
                if word.load(Ordering::Relaxed) != last {
                    return false;
                }
                word.store(last + 1, Ordering::Relaxed);
            }
        }
        last += 1;
    }
    true
}

/// Reads the words of another thread. Whether none was older than before, or than a word that is written later.
fn reads(pages: &[Page]) -> bool {
    BEGUN.0.fetch_add(1, Ordering::Release);
    let mut seen = Box::new([[0; WORDS]; PAGES]);
    while !STOP.0.load(Ordering::Acquire) {
        for (page, seen) in pages.iter().zip(seen.iter_mut()) {
            for (word, seen) in page.0.iter().zip(seen) {
                let now = word.load(Ordering::Relaxed);
                if now < *seen {
                    return false;
                }
                *seen = now;
            }
        }
        sys::yield_now();
    }
    true
}

/// For `--seconds`, a thread on each node writes, and one on each node reads what another node's thread writes.
pub fn outlive(args: &Args) -> Result<()> {
    let seconds = args.number("--seconds", 1, 0..=1_000_000)?;
    let nodes = nodes()?;
    let all: Vec<Arc<[Page]>> = nodes.iter().map(|_| pages()).collect();
    let mut threads = Vec::new();
    for (n, &node) in nodes.iter().enumerate() {
        let (own, other) = (all[n].clone(), all[(n + 1) % nodes.len()].clone());
        threads.push(thread::spawn_on(node, move || writes(&own))?);
        threads.push(thread::spawn_on(node, move || reads(&other))?);
    }
    while BEGUN.0.load(Ordering::Acquire) < threads.len() as u64 {
        thread::sleep(Duration::from_millis(1));
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut begun = 0u64;
    let mut is_told = false;
    while Instant::now() < end {
        let short = thread::spawn(|| (1..=100u64).sum::<u64>())?.join()?;
        begun += u64::from(short == 5050);
        if !core::mem::replace(&mut is_told, true) {
            println!("threads: a node may die now");
        }
        thread::sleep(Duration::from_millis(5));
    }
    STOP.0.store(true, Ordering::Release);
    let (mut fine, mut lost, mut wrong) = (0, 0, 0);
    for thread in threads {
        match thread.join() {
            Ok(true) => fine += 1,
            Ok(false) => wrong += 1,
            Err(e) if e.system() == Some(sys::Error::NodeDead) => lost += 1,
            Err(e) => return Err(e),
        }
    }
    report::counter("threads.lost", lost);
    report::check(
        "threads.outlive",
        wrong == 0 && fine > 0 && begun > 0,
        format_args!("{fine} fine, {lost} lost, {wrong} have found old words, {begun} short ones"),
    );
    Ok(())
}
