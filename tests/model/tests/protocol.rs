//! The rows of the protocol have no violation within the bounds; each weakened row has one.

use dyad_model_tests::Kind::{
    Activate, Deactivate, Dispatch, Lookup, Map, Read, ToKernel, ToUntyped, ToUser, Unmap,
};
use dyad_model_tests::Weakening as W;
use dyad_model_tests::{Kind, Scenario, check};

const LIMIT: usize = 9_000_000;

const RETYPE: &[Kind] = &[ToUntyped, ToKernel];
const REUSE: &[Kind] = &[Unmap, ToUntyped, ToKernel];
const FRAMES: &[Kind] = &[Map, Unmap, ToUntyped, ToKernel, ToUser];
const OBJECTS: &[Kind] = &[Read, Dispatch, ToUntyped, ToKernel];
const SLOTS: &[Kind] = &[Activate, Deactivate, Lookup];

/// No violation, and what was meant to happen did happen.
fn holds(s: Scenario) {
    let report = check(&s, LIMIT);
    println!("{report}");
    assert!(report.violation.is_none(), "{s:?}\n{report}");
    assert!(report.reused > 0, "nothing was ever reused: {s:?}");
    assert!(
        s.crashes == 0 || report.recovered > 0,
        "nobody was recovered: {s:?}"
    );
}

/// Holds as it is, and is violated, as said, when weakened.
fn needs(w: W, s: Scenario, expected: &str) {
    let whole = check(&s, LIMIT);
    assert!(whole.violation.is_none(), "{s:?}\n{whole}");
    let weak = Scenario {
        weakening: Some(w),
        ..s
    };
    let report = check(&weak, LIMIT);
    println!("whole: {whole}\n{w:?}: {report}");
    match &report.violation {
        Some((what, _)) => assert_eq!(*what, expected, "{report}"),
        None => panic!("{w:?} goes unnoticed: {report}"),
    }
}

fn mapped(ops: u8, last_epoch: u8) -> Scenario {
    Scenario {
        mapped: true,
        ..Scenario::new(REUSE, ops, last_epoch)
    }
}

fn object(kinds: &'static [Kind], ops: u8, last_epoch: u8) -> Scenario {
    Scenario {
        kernel: true,
        ..Scenario::new(kinds, ops, last_epoch)
    }
}

const STALE_TLB: &str = "a TLB reaches a frame that was reused";
const STALE_LINE: &str = "a cached line has contents from before the reuse";

#[test]
fn frames_of_two_nodes() {
    holds(Scenario {
        mapped: true,
        ..Scenario::new(FRAMES, 5, 4)
    });
}

#[test]
fn frames_of_two_incoherent_nodes_that_sleep_and_die() {
    holds(Scenario {
        incoherent: true,
        idle: 0b10,
        crashes: 1,
        mapped: true,
        ..Scenario::new(FRAMES, 4, 3)
    });
}

#[test]
fn frames_of_a_node_of_two_cpus_that_sleep() {
    holds(Scenario {
        idle: 0b10,
        ..two_cpus()
    });
}

#[test]
fn a_node_dies_is_recovered_and_rejoins() {
    holds(Scenario {
        crashes: 1,
        joins: 1,
        ..Scenario::new(FRAMES, 3, 4)
    });
}

#[test]
fn objects_of_a_node_that_dies_and_rejoins() {
    holds(Scenario {
        crashes: 1,
        joins: 1,
        ..object(OBJECTS, 4, 5)
    });
}

#[test]
fn slots_of_three_nodes() {
    holds(Scenario {
        nodes: 3,
        ..Scenario::new(SLOTS, 4, 4)
    });
}

#[test]
fn slots_of_a_node_that_dies_and_rejoins() {
    holds(Scenario {
        crashes: 1,
        joins: 1,
        slot: true,
        ..Scenario::new(SLOTS, 4, 5)
    });
}

#[test]
fn the_recoverer_dies_too() {
    holds(Scenario {
        nodes: 3,
        crashes: 2,
        kernel: true,
        ..Scenario::new(RETYPE, 3, 4)
    });
}

#[test]
fn the_recoverer_of_a_mapping_dies_too() {
    const UNMAP: &[Kind] = &[Unmap];
    const MAP: &[Kind] = &[Map];
    for (mapped, kinds) in [(true, UNMAP), (false, MAP)] {
        let s = Scenario {
            nodes: 3,
            crashes: 2,
            actors: 0b001,
            mapped,
            ..Scenario::new(kinds, 1, 4)
        };
        let report = check(&s, LIMIT);
        println!("{report}");
        assert!(report.violation.is_none(), "{report}");
        assert!(report.recovered > 0);
    }
}

#[test]
fn a1b_published_must_exceed_the_stamp() {
    needs(W::A1bPublishedAsMuch, mapped(3, 3), STALE_TLB);
}

#[test]
fn a1d_the_stamp_comes_after_the_frame_is_taken() {
    needs(W::A1dStampBeforeRetyping, mapped(3, 3), STALE_TLB);
}

#[test]
fn b2_rounds_revalidate_current_threads() {
    let expected = "the current thread's frame was reused";
    needs(W::B2NoRevalidation, object(OBJECTS, 3, 3), expected);
}

#[test]
fn s3_slots_are_reserved_before_their_epoch_is_checked() {
    let s = Scenario {
        nodes: 3,
        ..Scenario::new(SLOTS, 4, 4)
    };
    let expected = "a slot was filled again under a reader";
    needs(W::S3CheckBeforeReserve, s, expected);
}

#[test]
fn c1b_slots_are_stamped_after_they_are_closed() {
    let s = Scenario {
        slot: true,
        ..Scenario::new(SLOTS, 4, 3)
    };
    let expected = "a slot was filled again under a reader";
    needs(W::C1bSlotStampBeforeClosing, s, expected);
}

fn incoherent(ops: u8, last_epoch: u8) -> Scenario {
    Scenario {
        incoherent: true,
        ..mapped(ops, last_epoch)
    }
}

#[test]
fn i5_caches_come_before_tlbs() {
    needs(W::I5TlbBeforeCache, incoherent(3, 3), STALE_TLB);
}

#[test]
fn unmapped_user_frames_are_dropped_after_tlbs() {
    needs(W::FramesBeforeTlb, incoherent(3, 3), STALE_LINE);
}

#[test]
fn unmapped_user_frames_are_logged_before_they_are_given_up() {
    needs(W::LogAfterReference, incoherent(3, 4), STALE_LINE);
}

#[test]
fn l2_who_wakes_withdraws_before_use() {
    let s = Scenario {
        idle: 0b10,
        ..mapped(3, 3)
    };
    needs(W::L2UseBeforeWithdrawal, s, STALE_TLB);
}

#[test]
fn z3_who_sleeps_flushes_caches() {
    let s = Scenario {
        idle: 0b10,
        ..incoherent(3, 3)
    };
    needs(W::Z3IdleWithoutCacheFlush, s, STALE_LINE);
}

#[test]
fn who_sleeps_flushes_more_than_what_is_logged_by_then() {
    let s = Scenario {
        idle: 0b10,
        actors: 0b01,
        ..incoherent(3, 3)
    };
    needs(W::IdleFlushesLoggedOnly, s, STALE_LINE);
}

fn two_cpus() -> Scenario {
    Scenario {
        cpus: 2,
        actors: 0b01,
        ..incoherent(3, 3)
    }
}

#[test]
fn every_cpu_acknowledges() {
    needs(W::OneCpuAcknowledges, two_cpus(), STALE_TLB);
}

#[test]
fn a_visit_during_the_last_flush_counts() {
    let s = Scenario {
        idle: 0b10,
        last_epoch: 2,
        ..two_cpus()
    };
    needs(W::VisitForgotten, s, STALE_LINE);
}

#[test]
fn who_wakes_has_acknowledged_nothing() {
    let s = Scenario {
        idle: 0b10,
        ..two_cpus()
    };
    needs(W::WakeAcknowledges, s, STALE_TLB);
}

#[test]
fn d1_recovery_changes_the_version() {
    let s = Scenario {
        crashes: 1,
        ..object(RETYPE, 3, 3)
    };
    let expected = "an old reference resolves to a new object";
    needs(W::D1RecoverWithoutVersion, s, expected);
}

#[test]
fn d2_recovery_repairs_mappings() {
    let s = Scenario {
        crashes: 1,
        mapped: true,
        ..Scenario::new(&[Map, Unmap], 3, 3)
    };
    let expected = "references and entries differ when nothing is in progress";
    needs(W::D2RecoverWithoutMappings, s, expected);
}

#[test]
fn d3_recovery_repairs_slots() {
    let s = Scenario {
        crashes: 1,
        slot: true,
        ..Scenario::new(SLOTS, 3, 3)
    };
    needs(W::D3RecoverWithoutSlots, s, "a slot is stuck");
}

#[test]
fn d4_only_what_does_not_run_is_dead() {
    let s = Scenario {
        crashes: 1,
        mapped: true,
        ..Scenario::new(&[Unmap, Map], 2, 3)
    };
    let w = W::D4DeclaredDeadWhileRunning;
    needs(w, s, "fewer than no references");
}

#[test]
fn d4b_who_initialises_is_not_dead() {
    let s = Scenario {
        crashes: 1,
        ..object(RETYPE, 2, 3)
    };
    let w = W::D4DeclaredDeadWhileRunning;
    needs(w, s, "a node initialises a frame that it has lost");
}

#[test]
fn a_recount_waits_for_a_round() {
    let s = Scenario {
        nodes: 3,
        crashes: 1,
        actors: 0b011,
        ..Scenario::new(&[Map, Unmap], 2, 3)
    };
    let expected = "references and entries differ when nothing is in progress";
    needs(W::RecountWithoutRound, s, expected);
}

#[test]
fn one_node_recovers_at_a_time() {
    let s = Scenario {
        nodes: 3,
        crashes: 1,
        actors: 0b011,
        ..Scenario::new(&[Map, Unmap], 2, 3)
    };
    let expected = "references and entries differ when nothing is in progress";
    needs(W::RecoverWithoutClaim, s, expected);
}

fn rejoin() -> Scenario {
    Scenario {
        crashes: 1,
        joins: 1,
        ..object(OBJECTS, 3, 4)
    }
}

#[test]
fn who_joins_publishes_before_it_is_live() {
    let expected = "an object was reused between check and use";
    needs(W::JoinBeforePublication, rejoin(), expected);
}

#[test]
fn who_joins_is_live_before_it_uses_anything() {
    let expected = "an object was reused between check and use";
    needs(W::UseBeforeLive, rejoin(), expected);
}

#[test]
fn only_vacant_places_are_taken() {
    needs(W::JoinFromDead, rejoin(), "a frame or entry is stuck");
}
