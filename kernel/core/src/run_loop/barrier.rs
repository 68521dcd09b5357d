//! Waits of nodes for each other outside of the run loop: while joining, in the self-test, before and after
//! in-kernel tests.
//!
//! Every wait is bounded, and a waiting CPU keeps answering clock exchanges: otherwise two nodes could wait
//! for each other's clock in silence. A node that has died or has left is not waited for. A node that is only
//! slow is waited for until the time is up.

use dyad_shm::superblock::NodeState;

use crate::run_loop::shutdown;
use dyad_machine::{Platform, clock};
use dyad_object::node::{Node, node};

/// Serves other nodes while this CPU waits for them: answers clock exchanges, and reports and stops if the
/// launcher asks for that.
pub fn while_waiting<P: Platform>(of: &Node) {
    if shutdown::stop_requested(of) {
        shutdown::stop::<P>(node(), P::local());
    }
    clock::answer::<P>(of);
}

/// Waits until every participating node has reached this barrier as often as this node. Returns `false` if
/// that did not happen in time.
///
/// The counters only grow, so a node that runs ahead is not missed. Stores of other nodes before the barrier
/// are visible after it: each node adds with release and reads with acquire.
pub fn barrier<P: Platform>(node: &Node, limit_ns: u64) -> bool {
    let mine = node.words.increase(&node.entry().barrier, 1) + 1;
    clock::wait_until::<P>(limit_ns, || {
        while_waiting::<P>(node);
        node.others().all(|n| {
            node.words.read(&node.sb.node(n).barrier) >= mine
                || matches!(
                    node.word_of(n).state,
                    NodeState::Dead | NodeState::Left | NodeState::Vacant
                )
        })
    })
}
