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
        limit: size(400_000, 8_000_000, 60_000_000),
    }
}

fn holds(s: &DsmScenario) {
    let report = check_dsm(s);
    println!("{s:?}: {report}");
    assert!(report.violation.is_none(), "{report}");
    assert!(report.done, "{report}");
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
const DISAGREE: &str = "directory and holders disagree";

#[test]
fn dsm_three_nodes_use_one_page() {
    holds(&scenario());
}

#[test]
fn dsm_rings_of_one_message() {
    holds(&DsmScenario {
        ring: 1,
        ..scenario()
    });
}

#[test]
fn dsm_a_node_dies() {
    for victim in [1, 2] {
        holds(&DsmScenario {
            victim: Some(victim),
            ..scenario()
        });
    }
}

#[test]
fn dsm_a_region_is_dropped_and_used_again() {
    holds(&DsmScenario {
        unmaps: 1,
        ..scenario()
    });
}

#[test]
fn dsm_two_nodes_use_one_page_often() {
    holds(&DsmScenario {
        ops: size([2, 2, 0], [4, 4, 0], [6, 6, 0]),
        ..scenario()
    });
}
