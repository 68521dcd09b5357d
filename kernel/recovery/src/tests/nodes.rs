//! The life of nodes: who recovers, who is suspected. Who comes back is tested in `dyad-boot`.

use core::sync::atomic::Ordering;

use dyad_shm::superblock::{NodeState, activity};

use super::{Trio, node};
use crate::Pace;
use crate::life::SUSPECT_NS;
use dyad_core::host::MockX86;
use dyad_machine::Platform;

#[test]
fn the_first_live_node_recovers_and_one_at_a_time() {
    let s = Trio::new();
    s.dies(1);
    assert_eq!(s.step(2), Pace::Idle, "node 0 does it");
    assert_eq!(s.step(0), Pace::Soon);
    // Node 0 is slow by now: whoever is first instead does not take its office.
    let q = &s.machines[0].node().tables.quiescence;
    q.suspect(node(0)).unwrap();
    assert_eq!(s.step(2), Pace::Idle);
    assert_eq!(s.state(1).state, NodeState::Recovering);
    q.trust(node(0)).unwrap();
    // It is dead: then they do.
    s.dies(0);
    s.recover(2);
    assert_eq!(s.state(0).state, NodeState::Vacant);
    assert_eq!(s.state(1).state, NodeState::Vacant);
    let sb = s.machines[2].node().sb;
    assert_eq!(sb.recoverer.load(Ordering::Relaxed), 0);
}

/// A recoverer that others have taken for dead finds that it has lost its office.
#[test]
fn a_recoverer_without_office_stops() {
    let s = Trio::new();
    s.dies(1);
    assert_eq!(s.step(0), Pace::Soon);
    s.dies(0);
    s.recover(2);
    assert_eq!(s.step(0), Pace::Soon, "gives up");
    assert!(!s.recovers(0));
}

#[test]
fn silent_nodes_are_suspected_and_trusted_again() {
    let s = Trio::new();
    s.look(0);
    assert_eq!(s.state(1).state, NodeState::Live);
    let start = MockX86::clock_ns();
    while MockX86::clock_ns() - start <= SUSPECT_NS {}
    s.look(0);
    assert_eq!(s.state(1).state, NodeState::Suspect);
    s.look(0);
    assert_eq!(s.state(1).state, NodeState::Suspect);
    // Its heart beats, and another node sees it.
    let e = s.machines[0].node().sb.node(node(1));
    e.heartbeat.fetch_add(1, Ordering::Relaxed);
    s.look(0);
    assert_eq!(s.state(1).state, NodeState::Live);
    // Or it notices by itself.
    s.machines[0]
        .node()
        .tables
        .quiescence
        .suspect(node(1))
        .unwrap();
    s.look(1);
    assert_eq!(s.state(1).state, NodeState::Live);
}

/// A suspect node holds reuse up and nothing else.
#[test]
fn suspicion_blocks_reuse() {
    let s = Trio::new();
    let c = s.cx(0);
    let stamp = c.epochs().now();
    c.epochs().suspect(node(1)).unwrap();
    assert!(!c.node.tables.quiesced(stamp));
    s.rounds();
    assert!(!c.node.tables.quiesced(stamp), "it has made no round");
    c.epochs().trust(node(1)).unwrap();
    s.rounds();
    assert!(c.node.tables.quiesced(stamp));
}

/// No node gives work to a CPU of a node that has died, or looks whether it sleeps.
#[test]
fn cpus_of_a_dead_node_are_offline() {
    let s = Trio::new();
    let sb = s.machines[0].node().sb;
    let activity = |which, cpu| &sb.cpu(node(which), super::cpu(cpu)).activity;
    for cpu in 0..2 {
        activity(1, cpu).store(activity::ATTENTIVE, Ordering::Relaxed);
    }
    s.dies(1);
    s.recover(0);
    for cpu in 0..2 {
        assert_eq!(activity(1, cpu).load(Ordering::Relaxed), activity::OFFLINE);
    }
}
