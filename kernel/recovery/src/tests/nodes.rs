//! The life of nodes: who recovers, who is suspected. Who comes back is tested in `dyad-boot`.

use core::sync::atomic::Ordering;

use dyad_shm::superblock::NodeState;

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
