//! Threads that use services all the time, on nodes that may die: whoever is left goes on being served.
//!
//! Threads on all nodes but the first map and unmap memory, write, and ask init for the state of memory, so that a node
//! that dies mostly takes one of them in a service, with a lock of that service. The first thread does the same and
//! measures how long each takes.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::report;
use dyad::sys;
use dyad::thread;
use dyad_abi::service::memory::Question;

/// Bytes of a mapping.
const BYTES: u64 = 1 << 16;
/// How long a service may take for the first thread: much longer than others hold a lock, and shorter than a test waits.
const PROMPT: Duration = Duration::from_secs(2);
/// Threads on each other node.
const EACH: usize = 2;

/// What a thread has done.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

/// One request of each kind.
fn round(n: u64) -> sys::Result<()> {
    let at = sys::map_anon(BYTES)?;
    // SAFETY: 1. The mapping is this thread's, and as long as that. 2. Nothing refers to it afterwards.
    unsafe {
        at.as_ptr().cast::<u64>().write_volatile(n);
        sys::unmap(at, BYTES)?;
    }
    // Never `Again`: whichever threads ask, or have ended while they did.
    sys::memory_state(Question::Free, dyad::node())?;
    if n.is_multiple_of(200) {
        // The console may be dead, and refuses those who write too much.
        let _ = sys::write("threads: served\n");
    }
    Ok(())
}

/// A thread that is in services all the time.
fn client(end: Instant) {
    let mut n = 0;
    while Instant::now() < end {
        if round(n).is_ok() {
            ROUNDS.fetch_add(1, Ordering::Relaxed);
        }
        n += 1;
    }
}

/// All of it, for `--seconds`.
pub fn served(args: &Args) -> Result<()> {
    let seconds = args.number("--seconds", 2, 1..=1_000_000)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    for &node in super::nodes()?.iter().filter(|&&n| n != dyad::node()) {
        for _ in 0..EACH {
            drop(thread::spawn_on(node, move || client(end))?);
        }
    }
    println!("threads: in services");
    let (mut n, mut worst, mut refused) = (0u64, Duration::ZERO, None);
    while Instant::now() < end {
        let before = Instant::now();
        if let Err(e) = round(n) {
            refused = Some(e);
        }
        worst = worst.max(Instant::now() - before);
        n += 1;
    }
    report::check(
        "threads.served",
        refused.is_none() && worst < PROMPT,
        format!(
            "{n} rounds, the longest {worst:?}, refused: {refused:?}; {} rounds of others",
            ROUNDS.load(Ordering::Relaxed)
        ),
    );
    Ok(())
}
