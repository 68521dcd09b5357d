//! Migration points that no source line names: threads move in loops, and at system calls.
//!
//! `#[dyad::main(points = "syscalls")]` makes every system call a migration point, and
//! `#[dyad::points(loops)]` the loops of a function.
//!
//! | check | what happens |
//! |---|---|
//! | `implicit.syscalls` | the thread asks itself to go to the other ISA, and then sleeps, prints, allocates, starts and joins a thread, locks: it is there each time |
//! | `implicit.loops` | it computes without any call while another thread asks it to go to and fro; the result is that of a thread that stays |
//! | `implicit.iterators` | the same in the loops of iterators |

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dyad::prelude::thread::*;
use dyad::thread::Thread;
use dyad::{report, thread};

use crate::constructs::mix;

/// Moves in a loop.
const MOVES: u64 = 4;
/// Rounds of a loop after which nobody is waited for any longer.
const LIMIT: u64 = 1 << 32;

/// How often the first thread has found itself on another ISA in a loop.
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// Whether it is to be asked.
static ASK: AtomicBool = AtomicBool::new(false);

/// Counts a change of the ISA. No system call.
#[inline(always)]
fn look(last: &mut Isa) {
    let now = isa();
    if now != *last {
        *last = now;
        CHANGES.fetch_add(1, Ordering::Relaxed);
    }
}

/// Computes so many rounds, or until it has moved often enough. Gives the result and the rounds.
#[dyad::points(loops)]
fn nested(rounds: u64, moves: u64) -> (u64, u64) {
    let (mut hash, mut done, mut sum) = (1u64, 0, 0.5f64);
    let mut table = [0u64; 16];
    let mut last = isa();
    while done < rounds && CHANGES.load(Ordering::Relaxed) < moves {
        for i in 0..table.len() {
            table[i] = mix(table[(i + 7) % 16], hash);
            sum = sum * 0.5 + (table[i] & 0xff) as f64;
            hash = mix(hash, sum.to_bits());
        }
        look(&mut last);
        done += 1;
    }
    (table.iter().fold(hash, |h, v| mix(h, *v)), done)
}

/// A loop over iterators with migration points.
#[dyad::points(loops)]
fn iterators(rounds: u64, moves: u64) -> (u64, u64) {
    let mut last = isa();
    let mut done = 0;
    let hash = (0..rounds)
        .take_while(|_| CHANGES.load(Ordering::Relaxed) < moves)
        .map(|n| {
            look(&mut last);
            done += 1;
            black_box(n) ^ n >> 3
        })
        .filter(|n| n % 3 != 0)
        .fold(7, mix);
    (hash, done)
}

/// Asks the first thread to go to and fro, as long as it is to be asked.
fn ask(first: Thread, home: NodeId, away: NodeId) -> Result<()> {
    while ASK.load(Ordering::Relaxed) {
        let to = match CHANGES.load(Ordering::Relaxed) % 2 {
            0 => away,
            _ => home,
        };
        thread::request_migration(first, to)?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Runs a loop while another thread asks it to move, and once more undisturbed.
fn asked(name: &str, away: NodeId, work: fn(u64, u64) -> (u64, u64)) -> Result<()> {
    let (first, home) = (thread::current(), node());
    CHANGES.store(0, Ordering::Relaxed);
    ASK.store(true, Ordering::Relaxed);
    let asking = thread::spawn_on(away, move || ask(first, home, away))?;
    let (hash, rounds) = work(LIMIT, MOVES);
    let moves = CHANGES.load(Ordering::Relaxed);
    ASK.store(false, Ordering::Relaxed);
    asking.join()??;
    thread::withdraw_migration(first)?;
    let (still, again) = work(rounds, u64::MAX);
    report::check(
        name,
        moves == MOVES && (still, again) == (hash, rounds),
        format_args!("{moves} moves, {hash:016x} and {still:016x}"),
    );
    Ok(())
}

/// Where the thread is after something that makes system calls, if it was asked to go elsewhere before.
fn moved_by(what: &str, [home, away]: [NodeId; 2], f: impl FnOnce() -> Result<()>) -> Result<bool> {
    let before = isa();
    let to = if node() == home { away } else { home };
    thread::request_migration(thread::current(), to)?;
    f()?;
    // No system call.
    let moved = isa() != before;
    println!("{what}: {}", if moved { "moved" } else { "has not moved" });
    Ok(moved)
}

fn syscalls(nodes: [NodeId; 2]) -> Result<()> {
    let mut moved = 0;
    let mut count = |yes: Result<bool>| -> Result<()> {
        moved += u32::from(yes?);
        Ok(())
    };
    count(moved_by("sleeping", nodes, || {
        thread::sleep(Duration::from_micros(100));
        Ok(())
    }))?;
    count(moved_by("printing", nodes, || {
        println!("somewhere");
        Ok(())
    }))?;
    count(moved_by("allocating", nodes, || {
        black_box(vec![1u8; 8 << 20]);
        Ok(())
    }))?;
    count(moved_by("starting and joining", nodes, || {
        thread::spawn(|| ())?.join()
    }))?;
    count(moved_by("yielding", nodes, || {
        thread::yield_now();
        Ok(())
    }))?;
    report::check(
        "implicit.syscalls",
        moved == 5,
        format_args!("{moved} of 5"),
    );
    Ok(())
}

/// Moves at system calls, then in loops.
pub(crate) fn main(args: &Args) -> Result<()> {
    args.expect_options(&["--what"])?;
    let home = node();
    let system = dyad::system()?;
    let away = system
        .nearest(isa().other(), home)
        .ok_or_else(|| Error::msg("there is no node of the other ISA"))?;
    syscalls([home, away])?;
    dyad::thread::migrate_to(home)?;
    asked("implicit.loops", away, nested)?;
    dyad::thread::migrate_to(home)?;
    asked("implicit.iterators", away, iterators)
}
