//! Nodes that die and come back: who is told, what they find, whom they wait for.

use core::sync::atomic::Ordering;

use dyad_abi::service::{NODE_DIED, NODE_JOINED};
use dyad_boot::join::{self, JoinError};
use dyad_core::host::MockA64;
use dyad_core::host::system::{cpu, cx, frame, node};
use dyad_core::sched::quiet;
use dyad_machine::inbox;
use dyad_object::endpoint::Endpoints;
use dyad_object::find;
use dyad_recovery::host::Trio;
use dyad_shm::PoolId;
use dyad_shm::superblock::{NodeState, activity};

#[test]
fn deaths_and_returns_are_told_on_every_node() {
    let s = Trio::new();
    let object = s.object(Endpoints::KIND);
    let e: &'static Endpoints = find(s.x().node(), object, Endpoints::KIND).unwrap();
    for which in [0, 2] {
        for (number, bit) in [(NODE_DIED, 1), (NODE_JOINED, 2)] {
            s.sends(which, number, object, bit << (4 * which));
        }
        s.look(which);
    }
    let taken = || e.line(0).unwrap().take(s.x().node());
    assert_eq!(taken(), 0x202, "those that are there");
    s.dies(1);
    s.look(2);
    assert_eq!(taken(), 0, "not before it has been recovered");
    s.recover(0);
    s.look(0);
    s.look(2);
    assert_eq!(taken(), 0x101);
    s.look(0);
    assert_eq!(taken(), 0, "once");
    comes_back(&s);
    s.look(0);
    s.look(2);
    assert_eq!(taken(), 0x202);
}

/// A node is back before another one has looked: its death is told all the same. Locks of its threads are open from then on.
#[test]
fn the_death_of_a_node_that_is_back_already_is_told() {
    let s = Trio::new();
    let object = s.object(Endpoints::KIND);
    let e: &'static Endpoints = find(s.x().node(), object, Endpoints::KIND).unwrap();
    for (number, bit) in [(NODE_DIED, 1), (NODE_JOINED, 2)] {
        s.sends(0, number, object, bit);
    }
    let taken = || e.line(0).unwrap().take(s.x().node());
    s.look(0);
    assert_eq!(taken(), 2, "those that are there");
    s.dies(1);
    s.recover(0);
    comes_back(&s);
    s.look(0);
    assert_eq!(taken(), 3);
}

/// As `boot` does it, on a new machine.
fn comes_back(s: &Trio) {
    let m = s.world.machine(1);
    let c = cx(m);
    assert_eq!(join::claim::<MockA64>(c.node, 7), Ok(2));
    inbox::attach_outboxes(c.node);
    inbox::attach_inboxes(c.node, c.local);
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
    let sb = s.x().node().sb;
    let pool = PoolId::Local(node(1));
    sb.pools[pool.index()].formatted.store(1, Ordering::Relaxed);
    let there = frame(1, 60);
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
    assert_eq!(s.faults(), Vec::<String>::new());
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
        s.world.set_state(s.x().node(), which, NodeState::Left);
    }
    let m = s.world.machine(1);
    let c = cx(m);
    assert_eq!(join::claim::<MockA64>(c.node, 7), Ok(2));
    let unanswered = Err(JoinError::ClockTimeout);
    assert_eq!(join::sync_clock::<MockA64>(c.node), unanswered);
    c.node.sb.shutdown.store(1 + 1, Ordering::Relaxed);
    let ended = Err(JoinError::Ended { code: 1 });
    assert_eq!(join::sync_clock::<MockA64>(c.node), ended);
}
