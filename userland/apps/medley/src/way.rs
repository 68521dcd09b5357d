//! Where the program moves, and the account of it.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::*;

/// When to move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// At every Nth point; 0: never.
    pub every: u64,
    /// Whether it begins on the other node.
    pub away: bool,
}

/// What a scene has written on one way, and how it got there.
pub struct Run {
    /// What it has written.
    pub text: String,
    /// Points that it has passed.
    pub points: u64,
    /// Moves it has made.
    pub moves: u64,
    /// Moves that came to nothing.
    pub mishaps: u64,
}

static EVERY: AtomicU64 = AtomicU64::new(0);
static POINTS: AtomicU64 = AtomicU64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);
static MISHAPS: AtomicU64 = AtomicU64::new(0);
/// The two nodes to move between: home, and the other one.
static NODES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Makes this node the home.
pub fn settle() -> Result<()> {
    let home = node();
    let away = dyad::system()?.partner(home);
    let away = away.ok_or_else(|| Error::msg("there is no other node"))?;
    for (word, node) in NODES.iter().zip([home, away]) {
        word.store(node.index() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Goes through a scene.
#[inline(never)]
pub fn through(scene: fn(&mut String), way: Way) -> Result<Run> {
    let start = NODES[usize::from(way.away)].load(Ordering::Relaxed);
    if let Some(start) = NodeId::new(start).filter(|n| *n != node()) {
        dyad::thread::migrate_to(start)?;
    }
    for counter in [&POINTS, &MOVES, &MISHAPS] {
        counter.store(0, Ordering::Relaxed);
    }
    EVERY.store(way.every, Ordering::Relaxed);
    let mut text = String::new();
    scene(&mut text);
    EVERY.store(0, Ordering::Relaxed);
    Ok(Run {
        text,
        points: POINTS.load(Ordering::Relaxed),
        moves: MOVES.load(Ordering::Relaxed),
        mishaps: MISHAPS.load(Ordering::Relaxed),
    })
}

/// A migration point at which it may be time to move.
#[inline(always)]
pub fn point() {
    let due = due();
    dyad::migrate_point();
    if let Some(to) = due {
        arrived(to);
    }
}

/// The node to go to from here.
#[inline(never)]
fn elsewhere() -> Option<NodeId> {
    let here = node().index() as u64;
    let nodes = NODES.each_ref().map(|n| n.load(Ordering::Relaxed));
    NodeId::new(nodes.into_iter().find(|n| *n != here)?)
}

/// Where to go at this point, if it is time; the request has been made then.
#[inline(never)]
fn due() -> Option<NodeId> {
    let n = POINTS.fetch_add(1, Ordering::Relaxed) + 1;
    let every = EVERY.load(Ordering::Relaxed);
    let due = every != 0 && n.is_multiple_of(every);
    let there = if due { elsewhere() } else { None };
    there.inspect(|there| dyad::plain::request(*there))
}

#[inline(never)]
fn arrived(to: NodeId) {
    let counter = if node() == to { &MOVES } else { &MISHAPS };
    counter.fetch_add(1, Ordering::Relaxed);
}
