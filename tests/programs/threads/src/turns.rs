//! Two threads in turn, on two nodes: each turn is a wake-up. The game is that of
//! [`workloads::micro::pingpong`], as earlier systems measured it.

use alloc::vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dyad::futex;
use dyad::prelude::task::*;
use dyad::{report, thread};
use workloads::micro::pingpong::{Futex, Played, Player, Table};

use crate::nodes;

static TABLE: Table = Table::new();

/// The system's, with counts.
#[derive(Default)]
struct Counted {
    /// Waits that ended because another thread woke the waiter, or for no reason.
    woken: AtomicU64,
    /// Waits that were none: the word had changed.
    in_time: AtomicU64,
    /// Wake-ups that found a waiter: each is one `Send`.
    sends: AtomicU64,
}

/// Longest wait; nobody waits that long.
const PATIENCE: Duration = Duration::from_secs(20);

impl Futex for Counted {
    fn wait(&self, word: &AtomicU32, value: u32) {
        let end = Instant::now() + PATIENCE;
        let count = match futex::wait(word, value, end.as_nanos()) {
            Ok(()) => &self.woken,
            Err(dyad::sys::Error::Again) => &self.in_time,
            Err(e) => panic!("a turn is not taken: {e}"),
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn wake(&self, word: &AtomicU32) {
        let woken = futex::wake(word, 1);
        self.sends.fetch_add(woken.into(), Ordering::Relaxed);
    }
}

/// `--turns`: how often each of them has its turn.
pub fn futex(args: &Args) -> Result<()> {
    let turns = args.number("--turns", 1000, 1..=1_000_000_000)?;
    let nodes = nodes()?;
    let counted = Counted::default();
    let before = TABLE.sum();
    let start = Instant::now();
    let played = thread::scope(|s| -> Result<Vec<Played>> {
        let players = vec![Player::Locker, Player::Unlocker];
        let mut playing = Vec::new();
        for (n, player) in players.into_iter().enumerate() {
            let counted = &counted;
            let node = nodes[n % nodes.len()];
            playing.push(s.spawn_on(node, move || TABLE.play(player, turns, counted))?);
        }
        playing.into_iter().map(|p| p.join()).collect()
    })?;
    let time = start.elapsed();
    let [woken, in_time, sends] =
        [&counted.woken, &counted.in_time, &counted.sends].map(|c| c.load(Ordering::Relaxed));
    println!(
        "{} turns in {time:?}: {woken} waits that were woken, {in_time} that were none, {sends} sends",
        2 * turns
    );
    report::counter("futex.turns", 2 * turns);
    report::counter("futex.sends", sends);
    let whole = TABLE.sum() - before == 2 * turns && played.iter().all(|p| p.turns == turns);
    report::check(
        "threads.turns",
        whole,
        format_args!("{}", TABLE.sum() - before),
    );
    // A `Send` for each sleeper that was woken, and none for nobody.
    report::check(
        "threads.futex",
        sends == woken,
        format_args!("{sends} sends for {woken} sleepers"),
    );
    let idle: u32 = (0..100).map(|_| futex::wake_all(&counted_word())).sum();
    report::check("threads.futex-idle", idle == 0, format_args!("{idle}"));
    deadline()
}

/// A word that nobody waits for.
fn counted_word() -> AtomicU32 {
    AtomicU32::new(0)
}

/// A wait ends at its deadline, and not before; what is sent to a thread that does not wait is kept, and
/// ends no later wait for another word.
fn deadline() -> Result<()> {
    let word = counted_word();
    let mut late = Duration::ZERO;
    for _ in 0..5 {
        if let Some(me) = dyad::sys::thread::number() {
            dyad::sys::thread::wake(me)?;
        }
        let start = Instant::now();
        let end = start + Duration::from_millis(2);
        let waited = futex::wait(&word, 0, end.as_nanos());
        let now = Instant::now();
        if waited != Err(dyad::sys::Error::TimedOut) || now < end {
            report::check("threads.futex-deadline", false, format_args!("{waited:?}"));
            return Ok(());
        }
        late = late.max(now - end);
    }
    let changed = futex::wait(&word, 1, u64::MAX) == Err(dyad::sys::Error::Again);
    report::check(
        "threads.futex-deadline",
        changed,
        format_args!("at most {late:?} late"),
    );
    Ok(())
}
