//! Nodes that die.
//!
//! Nobody decides by itself that another node is dead: the launcher kills and reaps the machine,
//! then writes DEAD and rings the others. The live node with the lowest number recovers:
//!
//! ```text
//! DEAD ──CAS──▶ RECOVERING ──(threads)──▶ VACANT        a new machine may join now
//! ```
//!
//! A thread that was on its way to the dead node and had not been taken returns to where it came
//! from, with [`Error::NodeDead`] as the result of its call. A thread that ran there is lost, and
//! with it its program: its registers died with the machine.

use core::sync::atomic::Ordering;

use dyad_abi::boot::OnDeath;
use dyad_abi::{Error, NodeId};
use dyad_shm::superblock::{NodeState, NodeWord};

use crate::node::Node;
use crate::space::Space;
use crate::thread::{Owner, OwnerState, ThreadFrame};
use crate::{Platform, console, end, migrate, warn};

/// Looks for dead nodes and recovers them if that is this node's job.
pub fn look<P: Platform>(node: &'static Node) {
    for n in node.others() {
        let word = node.sb.node_word(n);
        if word.state != NodeState::Dead || node.first_live() != Some(node.id()) {
            continue;
        }
        let recovering = NodeWord {
            state: NodeState::Recovering,
            ..word
        };
        let won = node
            .sb
            .node(n)
            .state
            .compare_exchange(
                word.bits(),
                recovering.bits(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok();
        if !won {
            continue;
        }
        warn!(
            P,
            "node {n} is dead (incarnation {}), recovering", word.incarnation
        );
        console::counter::<P>("nodes_recovered", 1);
        recover_program::<P>(node, n, word.incarnation);
        let vacant = NodeWord {
            state: NodeState::Vacant,
            ..word
        };
        node.sb.node(n).doorbell.store(0, Ordering::Relaxed);
        node.sb
            .node(n)
            .state
            .store(vacant.bits(), Ordering::Release);
    }
}

fn recover_program<P: Platform>(node: &'static Node, dead: NodeId, incarnation: u32) {
    if node.sb.shutdown.load(Ordering::Acquire) != 0 {
        return;
    }
    let Some(program) = node.sb.program.load(Ordering::Acquire).checked_sub(1) else {
        if dead.index() == 0 {
            warn!(P, "node 0 died before it had started the program");
            // Started again, it will. Otherwise nobody does, and there is nothing to wait for.
            if node.params.on_death != OnDeath::Restart {
                end::program_failed::<P>(node, None);
            }
        }
        return;
    };
    let thread = Space::find(node, program).and_then(|s| {
        let main = s.frame().main_thread.load(Ordering::Acquire);
        ThreadFrame::find(&node.map, main.wrapping_sub(1))
    });
    let Ok(thread) = thread else {
        if node.sb.ending.load(Ordering::Acquire) == dead.index() as u64 + 1 {
            warn!(P, "node {dead} died while it was taking the program down");
            end::program_failed::<P>(node, None);
        }
        return;
    };
    let Some(owner) = thread.owner() else {
        return;
    };
    if owner.node != dead || owner.incarnation != incarnation & 0xff_ffff {
        return;
    }
    match owner.state {
        OwnerState::Transit => bring_back::<P>(node, thread, owner),
        OwnerState::Ready | OwnerState::Running => {
            console::log::<P>(
                dyad_abi::record::Level::Error,
                format_args!(
                    "program {:?} is lost: its thread {} was on node {dead}",
                    node.params.app,
                    thread.id.load(Ordering::Relaxed)
                ),
            );
            // The machine that ran it is gone, so its address space may be freed from here.
            end::program_failed::<P>(node, Some(thread));
        }
        OwnerState::None => {}
    }
}

/// Returns a thread that the dead node had not taken yet.
fn bring_back<P: Platform>(node: &'static Node, thread: &'static ThreadFrame, handed: Owner) {
    let ours = Owner {
        state: OwnerState::Ready,
        node: node.id(),
        incarnation: node.incarnation(),
        seq: handed.seq.wrapping_add(1),
    };
    if migrate::take(thread, handed, ours).is_err() {
        return;
    }
    let status = Error::NodeDead.code();
    let from = NodeId::new(thread.came_from.load(Ordering::Relaxed).wrapping_sub(1));
    match from {
        Some(n) if n != node.id() => {
            if migrate::give::<P>(node, thread, n, status).is_err() {
                end::program_failed::<P>(node, Some(thread));
            }
        }
        _ => migrate::arrive::<P>(node, P::local(), thread, status),
    }
}
