//! Boot self-test: are atomic operations atomic *between* machines?
//!
//! Stock QEMU emits non-atomic code for read-modify-writes unless it is started with more than
//! one possible CPU and multi-threaded TCG. A system run on such machines would corrupt its
//! shared tables silently, so every node hammers the same two words together with all others and
//! refuses to go on if the totals are not exact.
//!
//! The hammering goes on until each node has seen the others make progress between its own
//! chunks often enough: machines that happen to run one after the other would prove nothing. A node that has seen
//! enough goes on until all have, since without it others could not.

use core::sync::atomic::AtomicU64;

use dyad_abi::boot::ClockKind;
use dyad_core::run_loop::barrier::barrier;
use dyad_machine::Platform;
use dyad_object::node::Node;

/// Operations of each kind per chunk, and chunks every node does at least.
///
/// By the simulator's clock machines go on in step, so that a few chunks overlap as surely as many. Contended words are what
/// takes longest to simulate.
const fn amount(clock: ClockKind) -> (u64, u64) {
    match clock {
        ClockKind::Hardware => (500, 100),
        ClockKind::Fused => (50, 40),
    }
}

/// Chunks during which another node made progress, wanted before stopping.
const WANTED_OVERLAPS: u64 = 30;
/// Bound on the hammering.
const LIMIT_NS: u64 = 1_000_000_000;

/// What the self-test found.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Operations of each kind by all nodes together.
    pub expected: u64,
    /// What the word incremented by fetch-and-add holds.
    pub added: u64,
    /// What the word incremented by compare-and-swap holds.
    pub swapped: u64,
    /// Chunks of this node during which another node made progress.
    pub overlaps: u64,
    /// All nodes met at the barriers.
    pub complete: bool,
}

impl Report {
    /// Whether atomic operations are atomic, as far as can be told.
    pub fn ok(&self) -> bool {
        self.complete
            && self.added == self.expected
            && self.swapped == self.expected
            && self.overlaps > 0
    }
}

/// Runs the test together with all other nodes.
pub fn run<P: Platform>(node: &Node) -> Report {
    let line = |i: usize| -> &'static AtomicU64 { &node.sb.scratch[i].words[0] };
    let (add, cas) = (line(0), line(1));
    let done = |n: dyad_abi::NodeId| line(8 + n.index());
    let has_seen_enough = |n: dyad_abi::NodeId| &node.sb.scratch[8 + n.index()].words[1];
    let (limit, words) = (node.boot_limit(), node.words);
    let (chunk, at_least) = amount(node.params.clock);

    let mut complete = barrier::<P>(node, limit);
    let start = P::clock_ns();
    let (mut chunks, mut overlaps, mut seen) = (0, 0, 0);
    loop {
        for _ in 0..chunk {
            words.increase(add, 1);
            // Bounded: with broken atomics nothing can be relied on.
            for _ in 0..1_000_000 {
                let old = words.read(cas);
                if words.exchange(cas, old, old + 1) {
                    break;
                }
            }
        }
        chunks += 1;
        words.write(done(node.id()), chunks * chunk);
        let others: u64 = node
            .others()
            .map(|n| words.read(done(n)))
            .fold(0, u64::wrapping_add);
        if others != seen {
            overlaps += 1;
            seen = others;
        }
        let enough = chunks >= at_least && overlaps >= WANTED_OVERLAPS;
        if enough {
            words.write(has_seen_enough(node.id()), 1);
        }
        let all = enough && node.all().all(|n| words.read(has_seen_enough(n)) == 1);
        if all || P::clock_ns().wrapping_sub(start) > LIMIT_NS {
            break;
        }
    }
    complete &= barrier::<P>(node, limit);
    let report = Report {
        expected: node.all().map(|n| words.read(done(n))).sum(),
        added: words.read(add),
        swapped: words.read(cas),
        overlaps,
        complete,
    };
    // No node may go on (and perhaps end) before all have read the totals.
    let _ = barrier::<P>(node, limit);
    report
}
