#![no_std]
#![no_main]
extern crate alloc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use dyad::prelude::thread::*;
static EVERY: AtomicU64 = AtomicU64::new(0);
static POINTS: AtomicU64 = AtomicU64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);
static AWAY: AtomicBool = AtomicBool::new(false);
fn points() -> u64 { POINTS.load(Relaxed) }
/// Counts a point; whether it is time to move.
#[inline(never)]
fn due() -> bool {
    let count = POINTS.fetch_add(1, Relaxed) + 1;
    let every = EVERY.load(Relaxed);
    every != 0 && count.is_multiple_of(every)
}
/// Counts a move since the last look.
#[inline(never)]
fn look() {
    let away = isa() == Isa::X86_64;
    if AWAY.swap(away, Relaxed) != away {
        MOVES.fetch_add(1, Relaxed);
    }
}
/// A point at which the thread moves itself.
#[inline(always)]
fn point() {
    if due() { go(); }
}
/// Moves.
#[inline(never)]
fn go() {
    look();
    if let Err(e) = dyad::thread::migrate(isa().other()) { panic!("no move: {e:?}"); }
    look();
}
/// Asks for a move, which the next point makes: in functions with points in their loops, for example.
#[inline(never)]
fn ask() {
    look();
    if due() {
        let own = dyad::thread::current();
        let other = dyad::system().ok().and_then(|s| s.partner(dyad::node()));
        let asked = other.map(|to| dyad::thread::request_migration(own, to).is_ok());
        if asked != Some(true) { panic!("no move can be asked for: {asked:?}"); }
    }
}
/// A point at which the thread moves if it has been asked to.
#[inline(always)]
fn point_or_stay() {
    ask();
    dyad::thread::migrate_point();
    look();
}
macro_rules! extremes { ($($t:ident $min:ident $max:ident),*) => { $(
    fn $min(a: $t, b: $t) -> $t { a.min(b) }
    fn $max(a: $t, b: $t) -> $t { a.max(b) }
)* } }
extremes!(f32 min32 max32, f64 min64 max64);
/// Plays a program from an ISA, moving at every Nth point; gives the points that it passed.
fn play(way: &str, seed: u64, run: fn(&mut Trail), x86: bool, every: u64) -> u64 {
    EVERY.store(0, Relaxed);
    if (isa() == Isa::X86_64) != x86 { go(); }
    POINTS.store(0, Relaxed);
    EVERY.store(every, Relaxed);
    let mut trail = Trail::new();
    run(&mut trail);
    EVERY.store(0, Relaxed);
    trail.print(way, seed);
    points()
}
#[dyad::main]
fn main() -> Result<()> {
    let home = isa() == Isa::X86_64;
    AWAY.store(home, Relaxed);
    for (seed, run) in PROGRAMS {
        let points = play("unmoved", seed, run, home, 0);
        play("away", seed, run, !home, 0);
        for (way, n) in [("home", mix(seed, 1)), ("other", mix(seed, 2))] {
            // At most `MOST` moves, so that a batch ends in time, and often few.
            let every = 1 + points / MOST + n % (1 + (points / 3 >> ((n >> 32) % 8)));
            // Moves to where the program begins do not count.
            let start = home == (way == "home");
            if (isa() == Isa::X86_64) != start { go(); }
            let before = MOVES.load(Relaxed);
            play(way, seed, run, start, every);
            println!("moved {seed} {way} {every} {}", MOVES.load(Relaxed) - before);
        }
    }
    Ok(())
}
