//! Where the program moves, and the account of it.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::*;

/// When to move.
pub struct Way {
    /// At every Nth point; 0: never.
    pub every: u64,
    /// At the Nth point; 0: never.
    pub at: u64,
}

static EVERY: AtomicU64 = AtomicU64::new(0);
static AT: AtomicU64 = AtomicU64::new(0);
static POINTS: AtomicU64 = AtomicU64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);
static MISHAPS: AtomicU64 = AtomicU64::new(0);
/// The two nodes to move between.
static NODES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// What a part of the program has to say: a hash of what it has computed, or what is wrong.
pub type Line = (&'static str, Result<u64, &'static str>);

/// Decides when to move.
pub fn set(way: Way) -> Result<()> {
    EVERY.store(way.every, Ordering::Relaxed);
    AT.store(way.at, Ordering::Relaxed);
    let here = node();
    let other = dyad::system()?.partner(here);
    let other = other.ok_or_else(|| Error::msg("there is no other node"))?;
    for (word, node) in NODES.iter().zip([here, other]) {
        word.store(node.index() as u64, Ordering::Relaxed);
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
pub fn nodes(n: u64) -> NodeId {
    let index = NODES[n as usize % NODES.len()].load(Ordering::Relaxed);
    NodeId::new(index).unwrap_or_else(node)
}

/// Moves now.
pub fn go() -> Result<()> {
    if let Some(there) = elsewhere() {
        dyad::thread::migrate_to(there)?;
        MOVES.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
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

/// Where to go at this point, if it is time; the request has been made then.
#[inline(never)]
fn due() -> Option<NodeId> {
    let n = POINTS.fetch_add(1, Ordering::Relaxed) + 1;
    let every = EVERY.load(Ordering::Relaxed);
    let due = (every != 0 && n.is_multiple_of(every)) || AT.load(Ordering::Relaxed) == n;
    let there = if due { elsewhere() } else { None };
    there.inspect(|there| dyad::plain::request(*there))
}

#[inline(never)]
fn arrived(to: NodeId) {
    let counter = if node() == to { &MOVES } else { &MISHAPS };
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
pub fn mishaps() -> u64 {
    MISHAPS.load(Ordering::Relaxed)
}

/// One more value in a hash.
pub fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}
