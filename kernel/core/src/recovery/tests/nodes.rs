//! The life of nodes: who recovers, who is suspected, who is told, who comes back.

use core::sync::atomic::Ordering;

use dyad_abi::service::{NODE_DIED, NODE_JOINED};
use dyad_shm::superblock::{NodeState, activity};

use super::{Trio, cpu, node};
use crate::death::{self, SUSPECT_NS};
use crate::host::{MockA64, MockX86};
use crate::object::endpoint::Endpoints;
use crate::object::find;
use crate::recovery::Pace;
use crate::{Platform, join, quiet};

fn look(s: &Trio, which: usize) {
    let c = s.cx(which);
    match which {
        1 => death::look::<MockA64>(&c),
        _ => death::look::<MockX86>(&c),
    }
}

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
    assert!(s.machines[0].node().recovery.lock().is_none());
}

#[test]
fn silent_nodes_are_suspected_and_trusted_again() {
    let s = Trio::new();
    look(&s, 0);
    assert_eq!(s.state(1).state, NodeState::Live);
    let start = MockX86::clock_ns();
    while MockX86::clock_ns() - start <= SUSPECT_NS {}
    look(&s, 0);
    assert_eq!(s.state(1).state, NodeState::Suspect);
    look(&s, 0);
    assert_eq!(s.state(1).state, NodeState::Suspect);
    // Its heart beats, and somebody sees it.
    let e = s.machines[0].node().sb.node(node(1));
    e.heartbeat.fetch_add(1, Ordering::Relaxed);
    look(&s, 0);
    assert_eq!(s.state(1).state, NodeState::Live);
    // Or it notices by itself.
    s.machines[0]
        .node()
        .tables
        .quiescence
        .suspect(node(1))
        .unwrap();
    look(&s, 1);
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

#[test]
fn deaths_and_returns_are_told_on_every_node() {
    let s = Trio::new();
    let object = s.object(Endpoints::KIND);
    let e: &'static Endpoints = find(s.machines[0].node(), object, Endpoints::KIND).unwrap();
    for which in [0, 2] {
        let n = s.machines[which].node();
        for (number, bit) in [(NODE_DIED, 1), (NODE_JOINED, 2)] {
            let bits = bit << (4 * which);
            *n.interrupts[number as usize].lock() = Some((object, 0, bits));
        }
        look(&s, which);
    }
    let taken = || e.line(0).unwrap().take(s.machines[0].node());
    assert_eq!(taken(), 0x202, "those that are there");
    s.dies(1);
    look(&s, 2);
    assert_eq!(taken(), 0, "not before it has been recovered");
    s.recover(0);
    look(&s, 0);
    look(&s, 2);
    assert_eq!(taken(), 0x101);
    look(&s, 0);
    assert_eq!(taken(), 0, "once");
    comes_back(&s);
    look(&s, 0);
    look(&s, 2);
    assert_eq!(taken(), 0x202);
}

/// As `boot` does it, on a new machine.
fn comes_back(s: &Trio) {
    let m = s.world.machine(1);
    let c = super::cx(m);
    assert_eq!(join::claim::<MockA64>(c.node, 7), Ok(2));
    crate::inbox::attach_outboxes(c.node);
    crate::inbox::attach_inboxes(c.node, c.local);
    quiet::attach(&c);
    quiet::join::<MockA64>(&c).unwrap();
    join::live(c.node);
    join::wait_for_all::<MockA64>(c.node).unwrap();
}

/// What its pool held is there still; its CPUs are idle; nothing of the older incarnation counts.
#[test]
fn a_node_comes_back_to_what_its_pool_holds() {
    let s = Trio::new();
    let held = s.object(Endpoints::KIND);
    let before = s.word(held.frame);
    let sb = s.machines[0].node().sb;
    let pool = dyad_shm::PoolId::Local(node(1));
    sb.pools[pool.index()].formatted.store(1, Ordering::Relaxed);
    let there = super::frame(1, 60);
    let c = s.cx(0);
    let (head, word) = c.frames().head(there).unwrap();
    s.dies(1);
    s.recover(0);
    let e = sb.node(node(1));
    assert_eq!(e.doorbell.load(Ordering::Relaxed), 0);
    let a = sb.cpu(node(1), cpu(0)).activity.load(Ordering::Relaxed);
    assert_eq!(a, activity::OFFLINE);
    comes_back(&s);
    assert_eq!(
        (s.state(1).state, s.state(1).incarnation),
        (NodeState::Live, 2)
    );
    assert_eq!(s.word(held.frame), before);
    assert_eq!(s.cx(0).frames().head(there).unwrap(), (head, word));
    assert_eq!(e.doorbell.load(Ordering::Relaxed), 8);
    assert_eq!(s.faults(), std::vec::Vec::<std::string::String>::new());
    // And dies again.
    s.dies(1);
    s.recover(0);
    assert_eq!(s.state(1).state, NodeState::Vacant);
}

/// A third node is dead and will not come back: the second does not wait for it.
#[test]
fn a_node_that_comes_back_does_not_wait_for_the_dead() {
    let s = Trio::new();
    s.dies(1);
    s.dies(2);
    s.recover(0);
    comes_back(&s);
}

/// The others have ended in good order while it was on its way back.
#[test]
fn a_node_that_comes_back_too_late_ends_as_they_did() {
    let s = Trio::new();
    s.dies(1);
    s.recover(0);
    for which in [0, 2] {
        s.world
            .set_state(s.machines[0].node(), which, NodeState::Left);
    }
    let m = s.world.machine(1);
    let c = super::cx(m);
    assert_eq!(join::claim::<MockA64>(c.node, 7), Ok(2));
    let nobody = Err(join::JoinError::ClockTimeout);
    assert_eq!(join::sync_clock::<MockA64>(c.node), nobody);
    c.node.sb.shutdown.store(1 + 1, Ordering::Relaxed);
    let ended = Err(join::JoinError::Ended { code: 1 });
    assert_eq!(join::sync_clock::<MockA64>(c.node), ended);
}
