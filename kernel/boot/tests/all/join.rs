//! Joining: what an older incarnation has left behind.

use core::sync::atomic::Ordering;

use dyad_abi::{CpuId, Isa};
use dyad_shm::superblock::{NodeState, NodeWord, activity};

use dyad_boot::join::{self, JoinError};
use dyad_core::host::{Machine, MockA64, MockX86, World};

const THREE: [Isa; 3] = [Isa::X86_64, Isa::Aarch64, Isa::X86_64];

fn died(w: &World, m: Machine, which: usize) {
    w.set_state(m.node(), which, NodeState::Vacant);
}

/// The CPUs of the dead machine were asleep. If they counted as started, CPU 1 would not be
/// waited for, and a thread sent to it would be dropped when it attached its inboxes.
#[test]
fn a_node_that_comes_back_starts_with_all_cpus_off() {
    let w = World::new(&THREE, 8);
    let m = w.machine_as(1, 4);
    for c in CpuId::first(4) {
        let e = m.node().sb.cpu(m.node().id(), c);
        e.activity.store(activity::ASLEEP, Ordering::Relaxed);
        e.pending.store(5, Ordering::Relaxed);
    }
    died(&w, m, 1);
    m.enter();
    assert_eq!(join::claim::<MockA64>(m.node(), 3), Ok(2));
    for c in CpuId::first(4) {
        let e = m.node().sb.cpu(m.node().id(), c);
        assert_eq!(e.activity.load(Ordering::Relaxed), activity::OFFLINE);
        assert_eq!(e.pending.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_place_that_is_taken_is_not_claimed() {
    for state in [NodeState::Live, NodeState::Dead, NodeState::Left] {
        let w = World::new(&THREE, 8);
        let m = w.machine(0);
        w.set_state(m.node(), 0, state);
        assert_eq!(
            join::claim::<MockX86>(m.node(), 0),
            Err(JoinError::Taken { state })
        );
    }
}

/// Node 0 formatted, and with that owns the clock; it is dead and recovered. Node 1 comes back
/// and must ask node 2, which is live, instead of waiting for node 0.
#[test]
fn the_clock_is_asked_of_somebody_who_can_answer() {
    let w = World::new(&THREE, 8);
    let (back, live) = (w.machine(1), w.machine(2));
    back.node().sb.clock_owner.store(1, Ordering::Relaxed);
    died(&w, back, 0);
    died(&w, back, 1);
    back.enter();
    // No node answers here; what counts is which nodes were asked.
    assert_eq!(
        join::sync_clock::<MockA64>(back.node()),
        Err(JoinError::ClockTimeout)
    );
    let asked = back.node().entry().clock_request.load(Ordering::Relaxed) & 0xff;
    assert_eq!(asked, live.node().id().index() as u64 + 1);
    // The formatter that has not joined yet is asked all the same.
    let fresh = NodeWord {
        state: NodeState::Vacant,
        incarnation: 0,
    };
    let e = &back.node().sb.nodes[0];
    e.state.store(fresh.bits(), Ordering::Relaxed);
    let _ = join::sync_clock::<MockA64>(back.node());
    assert_eq!(
        back.node().entry().clock_request.load(Ordering::Relaxed) & 0xff,
        1
    );
}

/// A node that was started again just before the others left would wait for its place for ever.
#[test]
fn a_node_that_comes_back_to_an_ended_system_ends_too() {
    let w = World::new(&THREE, 8);
    let m = w.machine(1);
    w.set_state(m.node(), 1, NodeState::Dead);
    m.node().sb.shutdown.store(1 + 1, Ordering::Relaxed);
    m.enter();
    let ended = JoinError::Ended { code: 1 };
    assert_eq!(join::claim::<MockA64>(m.node(), 0), Err(ended));
    assert_eq!(join::sync_clock::<MockA64>(m.node()), Err(ended));
}

#[test]
fn the_second_node_finds_what_the_first_has_formatted() {
    let w = World::empty(&[Isa::X86_64, Isa::Aarch64], 8);
    let (a, b) = (w.machine(1), w.machine(0));
    a.enter();
    assert_eq!(join::superblock::<MockA64>(a.node()), Ok(true));
    b.enter();
    assert_eq!(join::superblock::<MockX86>(b.node()), Ok(false));
    a.node().sb.layout_hash.store(1, Ordering::Relaxed);
    let e = join::superblock::<MockX86>(b.node()).unwrap_err();
    assert!(
        matches!(
            e,
            JoinError::Mismatch {
                what: "layout hash",
                theirs: 1,
                ..
            }
        ),
        "{e}"
    );
}
