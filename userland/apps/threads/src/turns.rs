//! Two threads in turn, on two nodes: each turn is a wake-up.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dyad::prelude::*;
use dyad::sys::futex;
use dyad::{report, thread};

use crate::nodes;

/// Whose turn it is, and how often each has waited and woken the other.
struct Table {
    turn: AtomicU32,
    waits: AtomicU64,
    sends: AtomicU64,
}

static TABLE: Table = Table {
    turn: AtomicU32::new(0),
    waits: AtomicU64::new(0),
    sends: AtomicU64::new(0),
};

/// Longest wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Plays its turns; the other one plays as many.
fn play(me: u32, turns: u64) -> Result<(), dyad::sys::Error> {
    let (mut waits, mut sends) = (0, 0);
    for _ in 0..turns {
        while TABLE.turn.load(Ordering::Acquire) != me {
            waits += 1;
            let end = Instant::now() + PATIENCE;
            match futex::wait(&TABLE.turn, 1 - me, end.as_nanos()) {
                Ok(()) | Err(dyad::sys::Error::Again) => {}
                Err(e) => return Err(e),
            }
        }
        TABLE.turn.store(1 - me, Ordering::Release);
        sends += u64::from(futex::wake(&TABLE.turn, 1));
    }
    TABLE.waits.fetch_add(waits, Ordering::Relaxed);
    TABLE.sends.fetch_add(sends, Ordering::Relaxed);
    Ok(())
}

/// `--turns`: how often each of them has its turn.
pub fn futex(args: &Args) -> Result<()> {
    let turns: u64 = match args.value("--turns") {
        None => 1000,
        Some(n) => n
            .parse()
            .map_err(|_| Error::usage(format_args!("--turns is a number, not {n:?}")))?,
    };
    let nodes = nodes()?;
    let players: Vec<_> = [0, 1]
        .map(|me| thread::spawn_on(nodes[me % nodes.len()], move || play(me as u32, turns)))
        .into_iter()
        .collect::<Result<_>>()?;
    let start = Instant::now();
    for player in players {
        player.join()??;
    }
    let (waits, sends) = (
        TABLE.waits.load(Ordering::Relaxed),
        TABLE.sends.load(Ordering::Relaxed),
    );
    println!(
        "{} turns in {:?}: {waits} waits, {sends} contended wake-ups",
        2 * turns,
        start.elapsed()
    );
    report::counter("futex.turns", 2 * turns);
    report::counter("futex.sends", sends);
    // Each wake-up was for somebody who waited.
    report::check(
        "threads.futex",
        sends <= waits && sends <= 2 * turns,
        format_args!("{sends} for {waits}"),
    );
    // Nobody waits: nothing is sent.
    let idle: u32 = (0..100).map(|_| futex::wake_all(&TABLE.turn)).sum();
    report::check("threads.futex-idle", idle == 0, format_args!("{idle}"));
    Ok(())
}
