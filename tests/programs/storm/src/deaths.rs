//! Nodes that die in the middle of the storm, if that is to be expected (`--deaths`): nobody waits
//! for their workers, and those of a node that has come back begin again.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::INFO_BASE;
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_hostile::workers;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Thread};

use crate::actor::WORKERS;
use crate::setup::{self, HOME};
use crate::world::WORLD;

static EXPECTED: AtomicBool = AtomicBool::new(false);
/// The thread of each worker.
static THREADS: [AtomicU64; WORKERS] = [const { AtomicU64::new(0) }; WORKERS];
/// The life of each node whose workers work.
static LIVES: [AtomicU64; MAX_NODES] = [const { AtomicU64::new(1) }; MAX_NODES];
/// Times that the workers of a node have begun again.
pub static AGAIN: AtomicU64 = AtomicU64::new(0);

/// From now on.
pub fn expect() {
    EXPECTED.store(true, Ordering::Relaxed);
}

/// Whether nodes may die.
pub fn are_expected() -> bool {
    EXPECTED.load(Ordering::Relaxed)
}

fn nodes() -> impl Iterator<Item = NodeId> {
    NodeId::first(WORLD.nodes.load(Ordering::Relaxed) as usize).filter(|&n| n != HOME)
}

/// Workers that can be waited for, by bit.
pub fn alive() -> u64 {
    let cpus = WORLD.cpus.load(Ordering::Relaxed);
    let workers = |n: NodeId| ((1 << cpus) - 1) << (8 * n.index());
    nodes()
        .filter(|&n| !are_expected() || lives(n))
        .fold(workers(HOME), |bits, n| bits | workers(n))
}

/// Whether a node is in the life whose workers work.
pub fn lives(n: NodeId) -> bool {
    let life = LIVES[n.index()].load(Ordering::Relaxed);
    rt::hardware(HOME)
        .node_state(n)
        .is_ok_and(|now| now.is_live() && u64::from(now.incarnation) == life)
}

/// Makes the thread of a worker begin, for the first time or again, as the root of its CPU.
///
/// # Errors
///
/// As the kernel says.
pub fn begin(node: NodeId, cpu: CpuId, thread: Cap<Thread>) -> Result<()> {
    let n = (node.index() * 8 + cpu.index()) as u64;
    THREADS[n as usize].store(thread.index().get().into(), Ordering::Relaxed);
    workers::begin(node, cpu, thread, (setup::entry()?, INFO_BASE | n))
}

/// Has workers of nodes that have come back begin again.
pub fn look() {
    if !are_expected() {
        return;
    }
    for node in nodes() {
        let Ok(now) = rt::hardware(HOME).node_state(node) else {
            continue;
        };
        let known = &LIVES[node.index()];
        let life = u64::from(now.incarnation);
        if !now.is_live() || known.load(Ordering::Relaxed) == life {
            continue;
        }
        let begun = CpuId::first(WORLD.cpus.load(Ordering::Relaxed) as usize).try_for_each(|cpu| {
            let n = node.index() * 8 + cpu.index();
            let index = THREADS[n].load(Ordering::Relaxed);
            let thread = dyad_abi::cap::CapIndex::new(index).ok_or(Error::NotFound)?;
            WORLD.stopped.fetch_and(!(1 << n), Ordering::AcqRel);
            match begin(node, cpu, Cap::at(thread)) {
                // It has begun at an earlier attempt.
                Err(Error::NotReady) => Ok(()),
                other => other,
            }
        });
        if begun.is_ok() {
            known.store(life, Ordering::Relaxed);
            AGAIN.fetch_add(1, Ordering::Relaxed);
        }
    }
}
