//! The audit at the end of a run, for runs that ask for one.
//!
//! Each node that leaves stops its other CPUs and calls [`at_end`]. The node with the lowest number of those
//! that have not left waits for the others to leave and compares everything; the other nodes leave at once.
//! The waits are bounded.

use core::sync::atomic::Ordering;

use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock, console, error, info};
use dyad_object::node::Node;
use dyad_shm::superblock::NodeState;

use crate::walk;

/// How long the last node waits for the other nodes, and a node for its CPUs, before an audit.
const AUDIT_WAIT_NS: u64 = 5_000_000_000;
/// Faults that an audit names.
const NAMED_FAULTS: u64 = 16;

/// Compares all tables with each other once all other nodes have left and all other CPUs of this node are
/// parked, which it waits for. Only the node that stays last does so. It reports the check `tables.agree`,
/// which also fails if a node or CPU does not stop in time: the tables cannot be compared then.
pub fn at_end<P: Platform>(node: &'static Node) {
    const CHECK: &str = dyad_abi::record::name::TABLES;
    let others = node.params.cpus as u64 - 1;
    let parked = || node.reported.load(Ordering::Acquire) >= others;
    if !clock::wait_until::<P>(AUDIT_WAIT_NS, parked) {
        console::check::<P>(CHECK, false, format_args!("a CPU of this node goes on"));
        return;
    }
    let there = |n| {
        matches!(
            node.word_of(n).state,
            NodeState::Joining | NodeState::Live | NodeState::Suspect
        )
    };
    // Every node that leaves asks itself; the node with the lowest number does it. That one waits for
    // those above it, so no two do.
    if node.all().any(|n| n < node.id() && there(n)) {
        return;
    }
    let alone = || node.all().all(|n| n == node.id() || !there(n));
    if !clock::wait_until::<P>(AUDIT_WAIT_NS, alone) {
        console::check::<P>(CHECK, false, format_args!("another node goes on"));
        return;
    }
    let mut named = 0;
    let sum = walk(&KernelCtx::here::<P>(), &mut |fault| {
        named += 1;
        if named <= NAMED_FAULTS {
            error!(P, "audit: {fault}");
        }
    });
    // No fault: the holder of a capability may still use it. But at the end of a run there should be little.
    if let Some(first) = sum.first_unreferenced {
        let word = KernelCtx::here::<P>()
            .frames()
            .read(first.frame)
            .map(|(w, _)| w.ty);
        info!(
            P,
            "audit: nothing refers to {}: {word:?}",
            first.frame.address()
        );
    }
    console::check::<P>(
        CHECK,
        sum.faults == 0,
        format_args!(
            "{} faults; {} blocks in use, {} of memory and tables without references, {} references, \
             {} capabilities, {} threads",
            sum.faults, sum.blocks, sum.unreferenced, sum.references, sum.capabilities, sum.threads
        ),
    );
}
