//! What survivors do for a dead node: alone, at the same time, one after the other, and while a
//! third node goes on.

use dyad_model_tests::Kind::{Dispatch, Map, MapPeer, Read, ToKernel, ToUntyped, Unmap, UnmapAll};
use dyad_model_tests::Scenario;
use dyad_model_tests::Weakening as W;

use crate::{
    FRAMES, HELD, LOST, MAPPED_AGAIN, MISCOUNTED, READ, RETYPE, REUSE, STALE, bound, fails, holds,
    holds_with_reuse, mapped, needs, object,
};

#[test]
fn frames_of_two_incoherent_nodes_that_sleep_and_die() {
    holds_with_reuse(&Scenario {
        incoherent: true,
        idle: 0b10,
        victims: &[0],
        ..mapped(FRAMES, bound(3, 4), 3)
    });
}

#[test]
fn d1_recovery_changes_the_version() {
    let s = Scenario {
        victims: &[0],
        ..object(RETYPE, 3, 3)
    };
    let expected = "an old reference resolves to a new object";
    needs(W::D1RecoverWithoutVersion, &s, &[expected]);
}

/// The dead node took the frame and died before its stamp.
#[test]
fn recovery_stamps_frames() {
    let s = Scenario {
        victims: &[0],
        roles: &[(0, ToUntyped), (1, Dispatch), (1, ToKernel)],
        ..object(&[Dispatch, ToUntyped, ToKernel], 3, 3)
    };
    needs(W::RecoverWithoutStamp, &s, HELD);
}

fn dies_mapping() -> Scenario {
    Scenario {
        victims: &[0],
        ..mapped(&[Map, Unmap], bound(2, 3), 3)
    }
}

#[test]
fn d2_recovery_repairs_mappings() {
    needs(W::D2RecoverWithoutMappings, &dies_mapping(), MISCOUNTED);
}

#[test]
fn d2_recovery_counts_the_pins_of_tables_too() {
    fails(W::D2RecoverWithoutTable, &dies_mapping(), MISCOUNTED);
}

#[test]
fn a_node_of_two_cpus_dies_in_the_middle_of_two_rows() {
    holds(&Scenario {
        cpus: 2,
        victims: &[1],
        ..mapped(&[Map, Unmap], 3, bound(2, 3))
    });
}

#[test]
fn edges_of_a_node_that_dies() {
    let s = Scenario {
        edge: true,
        kernel: true,
        ..dies_mapping()
    };
    needs(W::D2RecoverWithoutMappings, &s, MISCOUNTED);
}

/// The recoverer logs the frame even if the dead node had emptied the entry by then.
#[test]
fn recovery_logs_what_it_makes_unmapped() {
    let s = Scenario {
        roles: &[(0, Unmap), (1, ToUntyped), (0, ToKernel)],
        victims: &[0],
        joins: 1,
        incoherent: true,
        ..mapped(REUSE, 3, 4)
    };
    needs(W::RecoveryLogsClosedOnly, &s, STALE);
}

#[test]
fn recovery_logs_what_it_makes_untyped() {
    let s = Scenario {
        nodes: 3,
        roles: &[(0, ToUntyped), (1, Read), (2, ToKernel)],
        victims: &[0],
        incoherent: true,
        ..object(READ, 3, 3)
    };
    needs(W::RecoverFrameWithoutLog, &s, STALE);
}

/// A node dies after it has installed what its peer maps, and before it looks again.
#[test]
fn recovery_undoes_maps_from_peers_that_were_not_over() {
    let s = Scenario {
        victims: &[0],
        ..mapped(&[MapPeer, UnmapAll], 2, 3)
    };
    needs(W::RecoveryKeepsHalfMaps, &s, MAPPED_AGAIN);
}

#[test]
fn the_recoverer_dies_too() {
    holds_with_reuse(&Scenario {
        nodes: 3,
        victims: &[0, 2],
        actors: bound(0b101, 0b111),
        ..object(RETYPE, 2, bound(3, 4))
    });
}

#[test]
fn the_recoverer_of_a_mapping_dies_too() {
    for s in [mapped(&[Unmap], 1, 3), Scenario::new(&[Map], 1, 3)] {
        holds(&Scenario {
            nodes: 3,
            victims: &[0, 2],
            actors: 0b001,
            last_epoch: bound(3, 4),
            ..s
        });
    }
}

/// Two nodes recover the same one at once, and it comes back meanwhile. Its intent was about the
/// version that the frame still has: comparing versions does not help.
#[test]
fn one_node_recovers_at_a_time() {
    let s = Scenario {
        nodes: 3,
        victims: &[0],
        joins: 1,
        actors: 0b001,
        untyped: true,
        ..Scenario::new(&[ToKernel], 2, bound(2, 3))
    };
    needs(W::RecoverWithoutClaim, &s, LOST);
}

/// Node 1 has two CPUs, which recover nodes 0 and 2.
#[test]
fn one_cpu_of_the_system_recovers_mappings_at_a_time() {
    let s = Scenario {
        nodes: 3,
        cpus: 2,
        victims: &[0, 2],
        ..Scenario::new(&[Map], 3, bound(2, 3))
    };
    needs(W::ClaimPerVictim, &s, MISCOUNTED);
}

/// Two CPUs of a node recover the same one.
#[test]
fn claims_are_those_of_a_cpu() {
    let s = Scenario {
        cpus: 2,
        victims: &[0],
        ..Scenario::new(&[Map], 2, bound(2, 3))
    };
    needs(W::ClaimPerNode, &s, MISCOUNTED);
}

fn bystander() -> Scenario {
    Scenario {
        nodes: 3,
        victims: &[0],
        actors: 0b011,
        ..Scenario::new(&[Map, Unmap], 2, 3)
    }
}

#[test]
fn a_recount_waits_for_a_round() {
    needs(W::RecountWithoutRound, &bystander(), MISCOUNTED);
}

#[test]
fn a_third_node_maps_and_unmaps_during_a_recount() {
    let maps = Scenario {
        actors: 0b101,
        ..bystander()
    };
    needs(W::MapIgnoresFrozen, &maps, MISCOUNTED);
    let unmaps = Scenario {
        mapped: true,
        kinds: &[Unmap],
        ..maps
    };
    needs(W::UnmapIgnoresFrozen, &unmaps, MISCOUNTED);
}

#[test]
fn a_third_node_sleeps_and_wakes_during_a_recount() {
    holds(&Scenario {
        idle: 0b100,
        actors: 0b101,
        ..bystander()
    });
}

#[test]
fn a_third_node_dies_and_rejoins_during_a_recount() {
    holds(&Scenario {
        victims: &[2, 0],
        joins: 1,
        actors: 0b001,
        ops: 1,
        last_epoch: bound(3, 4),
        ..bystander()
    });
}
