//! Slots of capability tables.

use dyad_model_tests::Kind::{Activate, Deactivate, Lookup};
use dyad_model_tests::Scenario;
use dyad_model_tests::Weakening as W;

use crate::{REFILLED, SLOTS, STUCK, bound, fails, holds_with_reuse, needs};

fn slots(ops: u8, last_epoch: u8) -> Scenario {
    Scenario::new(SLOTS, ops, last_epoch)
}

#[test]
fn slots_of_two_nodes() {
    holds_with_reuse(&slots(bound(5, 7), 4));
}

#[test]
fn s3_slots_are_reserved_before_their_epoch_is_checked() {
    let s = Scenario {
        nodes: 3,
        ..slots(4, bound(3, 4))
    };
    holds_with_reuse(&s);
    fails(W::S3CheckBeforeReserve, &s, REFILLED);
}

#[test]
fn c1b_slots_are_stamped_after_they_are_closed() {
    let s = Scenario {
        slot: true,
        ..slots(4, 3)
    };
    needs(W::C1bSlotStampBeforeClosing, &s, REFILLED);
}

#[test]
fn readers_of_slots_leave_the_kernel_before_they_acknowledge() {
    let s = Scenario {
        slot: true,
        ..slots(3, 3)
    };
    needs(W::AcknowledgeInKernel, &s, REFILLED);
}

#[test]
fn slots_of_a_node_of_two_cpus() {
    let s = Scenario {
        cpus: 2,
        slot: true,
        ..slots(bound(3, 5), 3)
    };
    holds_with_reuse(&s);
    fails(W::OneCpuAcknowledges, &s, REFILLED);
}

#[test]
fn slots_have_their_contents_before_they_are_active() {
    needs(W::ActiveBeforeFill, &slots(3, 3), REFILLED);
}

/// Lookups go by each node's copy of the slot.
fn copies(ops: u8, last_epoch: u8) -> Scenario {
    Scenario {
        incoherent: true,
        slot: true,
        ..slots(ops, last_epoch)
    }
}

#[test]
fn slots_of_incoherent_nodes() {
    let s = copies(bound(4, 5), 3);
    holds_with_reuse(&s);
    fails(W::SlotLoggedLate, &s, REFILLED);
}

#[test]
fn slots_of_an_incoherent_node_that_sleeps() {
    let s = Scenario {
        idle: 0b10,
        ..copies(bound(3, 4), 3)
    };
    needs(W::Z3IdleWithoutCacheFlush, &s, REFILLED);
}

#[test]
fn slots_that_recovery_frees_are_logged() {
    let s = Scenario {
        victims: &[0],
        joins: 1,
        roles: &[(0, Deactivate), (1, Lookup), (0, Activate)],
        ..copies(3, bound(3, 4))
    };
    needs(W::RecoverSlotWithoutLog, &s, REFILLED);
}

/// The dead node closed the slot and died before its stamp.
#[test]
fn recovery_stamps_slots() {
    let s = Scenario {
        nodes: 3,
        victims: &[0],
        roles: &[(0, Deactivate), (1, Lookup), (2, Activate)],
        slot: true,
        ..slots(3, 3)
    };
    needs(W::RecoverSlotWithoutStamp, &s, REFILLED);
}

#[test]
fn d3_recovery_repairs_slots() {
    let s = Scenario {
        victims: &[0],
        slot: true,
        ..slots(3, 3)
    };
    needs(W::D3RecoverWithoutSlots, &s, STUCK);
}

/// The slot is freed for good: a third node fills it again after the recovery.
#[test]
fn slots_of_three_nodes_one_of_which_dies() {
    holds_with_reuse(&Scenario {
        nodes: 3,
        victims: &[0],
        slot: true,
        ..slots(3, bound(3, 4))
    });
}

#[test]
fn slots_of_two_nodes_that_die_one_after_the_other() {
    holds_with_reuse(&Scenario {
        nodes: 3,
        victims: &[0, 2],
        actors: bound(0b101, 0b111),
        slot: true,
        ..slots(3, 3)
    });
}

#[test]
fn slots_of_a_node_that_dies_and_rejoins() {
    holds_with_reuse(&Scenario {
        victims: &[0],
        joins: 1,
        slot: true,
        ..slots(4, bound(4, 5))
    });
}

#[test]
fn slots_are_not_refilled_under_readers_of_a_third_node() {
    let s = Scenario {
        nodes: 3,
        actors: 0b101,
        slot: true,
        ..Scenario::new(&[Deactivate, Lookup, Activate], 3, 3)
    };
    needs(W::A1bPublishedAsMuch, &s, REFILLED);
}
