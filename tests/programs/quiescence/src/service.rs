//! The measurement.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::Rights;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::record::EXIT_FAILED;
use dyad_abi::service::slot;
use dyad_abi::user::{PAGE_SIZE, ReportKind};
use dyad_abi::{Error, NodeId, Result};
use dyad_hostile::{check, first};
use dyad_services::first::{HOME, TABLE, shut_down};
use dyad_services::rt;
use dyad_services::text::Text;
use dyad_sys::cap::{Cap, Narrow, Time};

use crate::setup::{self, SLOTS, touched};

/// Lines that are touched. The last number is more than a log keeps.
const LINES: [u32; 6] = [1, 16, 64, 256, 500, 1000];
const _: () = assert!(LINES[LINES.len() - 1] <= SLOTS);
/// Rounds until no log has anything that a node has not read: one that reads what came during the
/// last measurement, and one more for what was given up in it.
const SETTLING: u64 = 3;
/// Looks at a partner between two looks at whether its node lives.
const LOOKS: u32 = 1000;
/// More steps than any round has.
const TOO_MANY: u64 = 1 << 20;
/// More rounds than anything takes.
const TOO_MANY_ROUNDS: u64 = 8;

/// Steps that each node has been told to take, and has taken, and rounds it has published.
static TOLD: [AtomicU64; MAX_NODES] = [const { AtomicU64::new(0) }; MAX_NODES];
static TAKEN: [AtomicU64; MAX_NODES] = [const { AtomicU64::new(0) }; MAX_NODES];
static ROUNDS: [AtomicU64; MAX_NODES] = [const { AtomicU64::new(0) }; MAX_NODES];
/// The code of the error that a partner has met.
static TROUBLE: AtomicU64 = AtomicU64::new(0);

dyad_services::entry!(start);

fn start(arg: u64) -> ! {
    match NodeId::new(arg % PAGE_SIZE) {
        Some(node) if node != HOME => partner(node),
        _ => {}
    }
    first("quiescence", lead)
}

/// Whether the life of a node has ended that all this was started for.
fn is_dead(node: NodeId) -> Result<bool> {
    let now = rt::hardware(node).node_state(node)?;
    let life = rt::info()?.system.nodes[node.index()].incarnation;
    Ok(!now.is_live() || now.incarnation != life)
}

fn partner(node: NodeId) -> ! {
    let n = node.index();
    let mut looks = 0u32;
    loop {
        if TOLD[n].load(Ordering::Acquire) == TAKEN[n].load(Ordering::Relaxed) {
            looks = looks.wrapping_add(1);
            // Without the leader nobody ends the run.
            if looks.is_multiple_of(LOOKS) && is_dead(HOME) != Ok(false) {
                shut_down(EXIT_FAILED);
            }
            dyad_sys::raw::relax();
            continue;
        }
        if let Err(e) = step(node) {
            TROUBLE.store(e.code(), Ordering::Relaxed);
        }
        TAKEN[n].fetch_add(1, Ordering::Release);
    }
}

/// One step of the node this thread is on.
fn step(node: NodeId) -> Result<()> {
    if rt::hardware(node).flush_step(1)?.is_some() {
        ROUNDS[node.index()].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// One step of any node.
fn step_of(node: NodeId) -> Result<()> {
    if node == HOME {
        return step(node);
    }
    let n = node.index();
    let told = TOLD[n].fetch_add(1, Ordering::Release) + 1;
    let mut looks = 0u32;
    while TAKEN[n].load(Ordering::Acquire) != told {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS) && is_dead(node)? {
            return Err(Error::NodeDead);
        }
        dyad_sys::raw::relax();
    }
    match Error::from_code(TROUBLE.load(Ordering::Relaxed)) {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

fn rounds(node: NodeId) -> u64 {
    ROUNDS[node.index()].load(Ordering::Relaxed)
}

fn lead() -> Result<bool> {
    let info = rt::info()?;
    setup::build(info)?;
    let nodes = info.system.node_count as usize;
    let mut good = true;
    for lines in LINES {
        let outcome = measure(nodes, lines)?;
        for (n, &(steps, rounds)) in outcome.nodes[..nodes].iter().enumerate() {
            for (what, value) in [("steps", steps), ("rounds", rounds)] {
                let name = Text::<64>::of(format_args!("quiescence.{lines}.node{n}.{what}"));
                // Without it the run has no result, and the host says so.
                let _ = rt::hardware(HOME).report(ReportKind::Counter, value, name.as_str(), "");
            }
        }
        good &= check(
            Text::<64>::of(format_args!("quiescence.{lines}")).as_str(),
            outcome.early == 0 && outcome.free == lines,
            format_args!("{} free, {} too early", outcome.free, outcome.early),
        );
    }
    Ok(good)
}

struct Outcome {
    /// Steps and rounds.
    nodes: [(u64, u64); MAX_NODES],
    /// Attempts that should have been refused.
    early: u64,
    /// Slots that could be used afterwards.
    free: u32,
}

/// Uses a slot.
fn fill(n: u32) -> Result<()> {
    let time: Cap<Time> = Cap::at(slot::TIME);
    let copied = TABLE.copy_in(touched(n), time, Rights::ALL, None, Narrow::ALL);
    copied.map(drop)
}

/// Drives every node until it has just published, and has nothing more to drop.
fn settle(nodes: usize) -> Result<()> {
    for _ in 0..SETTLING {
        for node in NodeId::first(nodes) {
            round(node)?;
        }
    }
    Ok(())
}

/// One round of one node, from where it is.
fn round(node: NodeId) -> Result<()> {
    let before = rounds(node);
    for _ in 0..TOO_MANY {
        if rounds(node) != before {
            return Ok(());
        }
        step_of(node)?;
    }
    Err(Error::TimedOut)
}

fn measure(nodes: usize, lines: u32) -> Result<Outcome> {
    for n in 0..lines {
        fill(n)?;
    }
    settle(nodes)?;
    for n in 0..lines {
        TABLE.deactivate(touched(n))?;
    }
    let mut outcome = Outcome {
        nodes: [(0, 0); MAX_NODES],
        early: 0,
        free: 0,
    };
    let last = lines - 1;
    // All nodes go through a round side by side, and through another one if that was not enough.
    for _ in 0..TOO_MANY_ROUNDS {
        let before: [u64; MAX_NODES] = core::array::from_fn(|n| ROUNDS[n].load(Ordering::Relaxed));
        let waits = |node: &NodeId| rounds(*node) == before[node.index()];
        for _ in 0..TOO_MANY {
            if !NodeId::first(nodes).any(|node| waits(&node)) {
                break;
            }
            match fill(last) {
                Err(Error::Again) => {}
                Ok(()) => outcome.early += 1,
                Err(e) => return Err(e),
            }
            for node in NodeId::first(nodes).filter(waits) {
                step_of(node)?;
                outcome.nodes[node.index()].0 += 1;
            }
        }
        for node in NodeId::first(nodes) {
            outcome.nodes[node.index()].1 += 1;
        }
        match fill(last) {
            Err(Error::Again) => {}
            Ok(()) => {
                outcome.free = 1;
                break;
            }
            Err(e) => return Err(e),
        }
    }
    outcome.free += (0..last).filter(|&n| fill(n).is_ok()).count() as u32;
    for n in 0..lines {
        TABLE.deactivate(touched(n))?;
    }
    settle(nodes)?;
    Ok(outcome)
}
