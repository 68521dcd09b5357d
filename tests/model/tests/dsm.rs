//! Page-level distributed shared memory: the step function of `dyad-dsm` in all interleavings of three nodes.

use dyad_dsm::Weakening as W;
use dyad_model_tests::dsm::{DsmScenario, check_dsm};
use dyad_tier::size;

fn scenario() -> DsmScenario {
    DsmScenario {
        ops: size([1; 3], [2, 1, 2], [2; 3]),
        ring: 4,
        victim: None,
        unmaps: 0,
        weakening: None,
        limit: size(40_000, 3_000_000, 20_000_000),
    }
}

fn passes(s: &DsmScenario) {
    let report = check_dsm(s);
    println!("{s:?}: {report}");
    assert!(report.violation.is_none(), "{report}");
    assert!(report.done || !report.complete, "{report}");
}

fn fails(w: W, s: DsmScenario, expected: &[&str]) {
    let report = check_dsm(&DsmScenario {
        weakening: Some(w),
        ..s
    });
    println!("{w:?}: {report}");
    match &report.violation {
        Some((what, _)) => assert!(expected.contains(what), "{report}"),
        None => panic!("{w:?} goes unnoticed: {report}"),
    }
}

const BESIDE: &str = "a writer beside another user";
const STALE: &str = "a read does not give the last write";
const EVER: &str = "a thread waits for ever";
const LOST: &str = "lost without a death";
const DISAGREE: &str = "directory and holders disagree";

#[test]
fn dsm_three_nodes_use_one_page() {
    passes(&scenario());
}

#[test]
fn dsm_rings_of_one_message() {
    passes(&DsmScenario {
        ring: 1,
        ops: size([2, 1, 0], [2, 1, 1], [2; 3]),
        ..scenario()
    });
}

#[test]
fn dsm_a_node_dies() {
    for victim in size(&[1][..], &[1, 2], &[1, 2]).iter().copied() {
        passes(&DsmScenario {
            victim: Some(victim),
            ops: size([1, 1, 0], [2, 1, 1], [2; 3]),
            ..scenario()
        });
    }
}

#[test]
fn dsm_a_region_is_dropped_and_used_again() {
    passes(&DsmScenario {
        unmaps: 1,
        ops: size([1, 1, 0], [1; 3], [2; 3]),
        ..scenario()
    });
}

#[test]
fn dsm_two_nodes_use_one_page_often() {
    passes(&DsmScenario {
        ops: size([2, 2, 0], [4, 4, 0], [6, 6, 0]),
        ..scenario()
    });
}

fn two_writers() -> DsmScenario {
    DsmScenario {
        ops: [2, 2, 0],
        limit: 2_000_000,
        ..scenario()
    }
}

#[test]
fn dsm_grants_have_a_sequence_number() {
    let s = DsmScenario {
        ops: [1, 2, 0],
        unmaps: 1,
        ..two_writers()
    };
    fails(W::SeqIgnored, s, &[EVER, DISAGREE]);
}

#[test]
fn dsm_pages_are_protected_before_they_are_copied() {
    fails(W::CopyBeforeProtect, two_writers(), &[STALE]);
}

#[test]
fn dsm_old_translations_are_waited_for() {
    fails(W::NoQuiesce, two_writers(), &[BESIDE, STALE]);
}

#[test]
fn dsm_pages_are_protected_before_that_is_acknowledged() {
    fails(W::AckBeforeProtect, two_writers(), &[BESIDE]);
}

#[test]
fn dsm_contents_are_sent_if_they_are_missing_when_the_request_is_served() {
    fails(W::ContentsOnRequest, two_writers(), &[EVER, LOST]);
}

#[test]
fn dsm_one_request_of_a_page_is_served_at_a_time() {
    fails(W::NoBusy, two_writers(), &[BESIDE, EVER, DISAGREE, STALE]);
}

#[test]
fn dsm_regions_are_free_after_all_nodes_have_dropped_them() {
    let s = DsmScenario {
        unmaps: 1,
        ..two_writers()
    };
    let gone = "a page is used after its region is gone";
    fails(W::DropNotAwaited, s, &[gone]);
}

#[test]
fn dsm_an_older_frame_never_serves() {
    let s = DsmScenario {
        ops: [2, 1, 0],
        victim: Some(1),
        ..two_writers()
    };
    fails(W::StaleFrame, s, &[STALE]);
}

#[test]
fn dsm_what_finds_a_full_ring_is_sent_later() {
    let s = DsmScenario {
        ring: 1,
        ops: [1, 1, 1],
        ..two_writers()
    };
    fails(W::OutboxDropped, s, &[EVER]);
}

#[test]
fn dsm_orders_during_a_hold_are_obeyed_later() {
    fails(W::DeferredForgotten, two_writers(), &[EVER]);
}
