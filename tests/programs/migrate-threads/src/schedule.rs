//! When threads move: migration points are counted for the whole program, and at some of them the thread that
//! passes moves. Points are passed by several threads, below functions that know nothing of a schedule, so the
//! account is static.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::thread::*;

/// When to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// At every Nth point; 0: never.
    pub every: u64,
    /// At the Nth point; 0: never.
    pub at: u64,
}

impl Schedule {
    /// What `--schedules` says: a list, in which `N` is at every Nth point, `@N` at the Nth.
    ///
    /// # Errors
    ///
    /// Says which word is wrong, and what is possible.
    pub fn list(list: &str) -> Result<Vec<Schedule>> {
        list.split(',').map(Schedule::parse).collect()
    }

    fn parse(word: &str) -> Result<Schedule> {
        let schedule = match word.strip_prefix('@') {
            Some(n) => n.parse().map(|at| Schedule { every: 0, at }),
            None => word.parse().map(|every| Schedule { every, at: 0 }),
        };
        schedule.map_err(|_| {
            Error::usage(format_args!(
                "--schedules cannot have {word:?}; possible: N for every Nth point, @N for the Nth, as in 0,7,@100"
            ))
        })
    }
}

static EVERY: AtomicU64 = AtomicU64::new(0);
static AT: AtomicU64 = AtomicU64::new(0);
static POINTS: AtomicU64 = AtomicU64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// The two nodes to move between.
static NODES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Moves are between this node and another one.
///
/// # Errors
///
/// If there is no other one.
pub fn use_two_nodes() -> Result<()> {
    let here = node();
    let other = dyad::system()?.partner(here);
    let other = other.ok_or_else(|| Error::msg("there is no other node"))?;
    for (word, node) in NODES.iter().zip([here, other]) {
        word.store(node.index() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// From now on threads move by this schedule. The calling thread begins at the first of the two nodes, or at the other one; points and moves
/// before do not count.
///
/// # Errors
///
/// If the node where it is to begin has died.
pub fn begin(schedule: &Schedule, away: bool) -> Result<()> {
    let start = node_in_turn(away.into());
    if node() != start {
        dyad::thread::migrate_to(start)?;
    }
    for (word, value) in [(&EVERY, schedule.every), (&AT, schedule.at)] {
        word.store(value, Ordering::Relaxed);
    }
    for count in [&POINTS, &MOVES, &FAILURES] {
        count.store(0, Ordering::Relaxed);
    }
    Ok(())
}

/// The node to go to from here.
fn elsewhere() -> Option<NodeId> {
    let here = node().index() as u64;
    let nodes = NODES.each_ref().map(|n| n.load(Ordering::Relaxed));
    NodeId::new(nodes.into_iter().find(|n| *n != here)?)
}

/// One of the two nodes: for threads that are started by turns on both.
pub fn node_in_turn(n: u64) -> NodeId {
    let index = NODES[n as usize % NODES.len()].load(Ordering::Relaxed);
    NodeId::new(index).unwrap_or_else(node)
}

/// Moves now. It is not counted.
///
/// # Errors
///
/// If the other node has died.
pub fn go() -> Result<()> {
    match elsewhere() {
        Some(there) => Ok(dyad::thread::migrate_to(there)?),
        None => Ok(()),
    }
}

/// A migration point at which it may be time to move.
#[inline(always)]
pub fn point() {
    let due = due();
    dyad::thread::migrate_point();
    if let Some(to) = due {
        arrived(to);
    }
}

/// Where to go at this point, if it is time; the request has been made then.
#[inline(never)]
fn due() -> Option<NodeId> {
    let n = POINTS.fetch_add(1, Ordering::Relaxed) + 1;
    let every = EVERY.load(Ordering::Relaxed);
    let due = (every != 0 && n.is_multiple_of(every)) || AT.load(Ordering::Relaxed) == n;
    let there = if due { elsewhere() } else { None };
    there.filter(|there| {
        let own = dyad::thread::current();
        dyad::thread::request_migration(own, *there).is_ok()
    })
}

#[inline(never)]
fn arrived(to: NodeId) {
    let counter = if node() == to { &MOVES } else { &FAILURES };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Points passed so far.
pub fn points() -> u64 {
    POINTS.load(Ordering::Relaxed)
}

/// Moves so far.
pub fn moves() -> u64 {
    MOVES.load(Ordering::Relaxed)
}

/// Moves that came to nothing.
pub fn failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}
