//! Fused time: one time line for all nodes.
//!
//! Each machine has a clock of its own ([`Platform::clock_ns`]). A node adds an offset that it measures when
//! it joins, so that all nodes agree within about the time that a shared word takes to travel. Fused time 0
//! is when the first node formatted the superblock.
//!
//! With the [simulator's clock](crate::fused) on, every machine reads the same time line already:
//! offsets are 0, nothing is measured, and fused time 0 is when the machines were started.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Platform;
use crate::node::Node;

/// A point in fused time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FusedTime(pub u64);

impl FusedTime {
    /// The point `ns` nanoseconds later.
    #[must_use]
    pub const fn after(self, ns: u64) -> FusedTime {
        FusedTime(self.0.saturating_add(ns))
    }
}

/// How long a CPU pauses between two looks at what takes long.
const PAUSE_NS: u64 = 10_000;

/// Fused minus local time, wrapping; 0 until known.
static OFFSET: AtomicU64 = AtomicU64::new(0);

/// Fused time now.
pub fn now<P: Platform>() -> FusedTime {
    FusedTime(P::clock_ns().wrapping_add(OFFSET.load(Ordering::Relaxed)))
}

/// The local clock's reading at a point in fused time.
pub fn to_local(t: FusedTime) -> u64 {
    t.0.wrapping_sub(OFFSET.load(Ordering::Relaxed))
}

/// Declares that local time `local` is fused time `fused`. With the simulator's clock the two are equal, and
/// this does nothing.
pub fn set(local: u64, fused: FusedTime) {
    if crate::fused::is_on() {
        return;
    }
    OFFSET.store(fused.0.wrapping_sub(local), Ordering::Relaxed);
}

/// Answers clock exchanges addressed to this node.
///
/// A node that joins publishes a request (the asked node in the low byte, a number above) and waits until
/// `clock_answer` equals the request; the time is stored before that, with release. A request is answered
/// once: a second answer would change the time after the asker has stopped its watch.
pub fn answer<P: Platform>(node: &Node) {
    for n in node.others() {
        let (e, words) = (node.sb.node(n), node.words);
        let request = words.read(&e.clock_request);
        if request & 0xff == node.id().index() as u64 + 1 && words.read(&e.clock_answer) != request
        {
            // The asker changes other words of this line.
            words.replace(&e.clock_time, now::<P>().0);
            words.replace(&e.clock_answer, request);
        }
    }
}

/// Waits with a bound: calls `done` until it returns true or `limit_ns` have passed.
///
/// Returns whether `done` returned true. `done` is called once more after the time is up, so that a CPU that
/// was stopped for long does not report a time-out for an event that has happened.
pub fn wait_until<P: Platform>(limit_ns: u64, done: impl FnMut() -> bool) -> bool {
    wait_with::<P>(limit_ns, done, P::relax)
}

/// Like [`wait_until`], for what another node takes long to do and before this CPU can be rung. Simulated, a CPU that pauses costs
/// nothing, and one that looks all the time costs as much as one that works.
pub fn wait_long_until<P: Platform>(limit_ns: u64, done: impl FnMut() -> bool) -> bool {
    wait_with::<P>(limit_ns, done, || {
        P::relax();
        crate::fused::pause::<P>(PAUSE_NS);
    })
}

fn wait_with<P: Platform>(
    limit_ns: u64,
    mut done: impl FnMut() -> bool,
    between: impl Fn(),
) -> bool {
    let start = P::clock_ns();
    loop {
        if done() {
            return true;
        }
        if P::clock_ns().wrapping_sub(start) > limit_ns {
            return done();
        }
        between();
    }
}
