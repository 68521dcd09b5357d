//! Nodes that die.
//!
//! Nobody decides by itself that another node is dead: the launcher kills and reaps the machine,
//! then writes DEAD and rings the others. The live node with the lowest number recovers:
//!
//! ```text
//! DEAD ──claim──▶ RECOVERING ──(intents, threads)──▶ VACANT        a new machine may join now
//! ```

use dyad_shm::superblock::NodeState;

use crate::cx::Cx;
use crate::{Platform, console, warn};

/// Looks for dead nodes and recovers them if that is this node's job.
pub fn look<P: Platform>(cx: &Cx) {
    let node = cx.node;
    for n in node.others() {
        let word = node.sb.node_word(n);
        if word.state != NodeState::Dead || node.first_live() != Some(node.id()) {
            continue;
        }
        let Ok(claim) = cx.epochs().recover(n, node.id()) else {
            continue;
        };
        warn!(
            P,
            "node {n} is dead (incarnation {}), recovering", word.incarnation
        );
        console::counter::<P>("nodes_recovered", 1);
        cx.words().replace(&node.sb.node(n).doorbell, 0);
        let _ = cx.epochs().recovered(claim);
    }
}
