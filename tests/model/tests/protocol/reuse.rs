//! Frames that become something else, and who still looks at them: weak references, current
//! threads, nodes that do nothing.

use dyad_model_tests::Kind::{Activate, Deactivate, Dispatch, Map, ToKernel, ToUntyped, Unmap};
use dyad_model_tests::Scenario;
use dyad_model_tests::Weakening as W;

use crate::{
    HELD, OBJECTS, READ, REUSE, STALE, WRONG_TYPE, bound, fails, holds, holds_with_reuse, mapped,
    needs, object,
};

#[test]
fn objects_of_two_nodes() {
    holds_with_reuse(&object(OBJECTS, bound(4, 6), bound(3, 4)));
}

#[test]
fn a1d_the_stamp_comes_after_the_frame_is_taken() {
    needs(W::A1dStampBeforeRetyping, &mapped(REUSE, 3, 3), STALE);
}

#[test]
fn weak_references_are_good_until_the_cpu_leaves_the_kernel() {
    let s = object(READ, 3, 3);
    needs(W::AcknowledgeInKernel, &s, HELD);
    fails(W::A1bPublishedAsMuch, &s, HELD);
}

#[test]
fn b2_rounds_revalidate_current_threads() {
    needs(W::B2NoRevalidation, &object(OBJECTS, 3, 3), HELD);
}

#[test]
fn weak_references_of_a_node_of_two_cpus() {
    let s = Scenario {
        cpus: 2,
        ..object(OBJECTS, 3, 3)
    };
    needs(W::OneCpuAcknowledges, &s, HELD);
}

/// Node 1 does nothing at all. What node 0 does goes on, up to reuse.
#[test]
fn a_node_that_stalls_keeps_others_from_reuse_only() {
    let kinds = &[Map, Unmap, ToUntyped, ToKernel, Activate, Deactivate];
    let s = Scenario {
        stalled: 0b10,
        slot: true,
        ..mapped(kinds, bound(5, 7), bound(4, 5))
    };
    let report = holds(&s);
    assert!(!report.reused, "{report}");
    assert!(report.untyped && report.freed, "{report}");
}

#[test]
fn a_node_that_stalled_and_was_killed_keeps_nobody_from_reuse() {
    holds_with_reuse(&Scenario {
        stalled: 0b10,
        victims: &[1],
        ..mapped(REUSE, 3, 4)
    });
}

#[test]
fn suspects_count() {
    let s = Scenario {
        suspicion: true,
        ..mapped(REUSE, 3, 3)
    };
    needs(W::SuspectsDoNotCount, &s, STALE);
}

#[test]
fn frames_are_given_up_without_references_only() {
    needs(W::GiveUpIgnoresRefs, &mapped(REUSE, 3, 3), WRONG_TYPE);
}

/// Node 0 claims a frame which node 1 claims, uses and gives up meanwhile.
#[test]
fn claims_replace_the_word_that_was_loaded_before_the_stamp() {
    let s = Scenario {
        untyped: true,
        roles: &[(0, ToKernel), (1, ToKernel), (1, Dispatch), (1, ToUntyped)],
        ..Scenario::new(&[ToKernel, Dispatch, ToUntyped], 4, 3)
    };
    needs(W::ClaimTypeOnly, &s, HELD);
    fails(W::ClaimLoadsStampFirst, &s, HELD);
}
