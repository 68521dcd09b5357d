//! A thread that crosses between nodes is never lost and never runs twice, whichever nodes die.

use dyad_model_tests::ThreadWeakening as W;
use dyad_model_tests::{ThreadScenario, check_threads};
use dyad_tier::Tier;

fn scenario() -> ThreadScenario {
    let long = Tier::now() == Tier::Long;
    ThreadScenario {
        crossings: if long { 4 } else { 2 },
        victims: if long { &[0, 1, 0] } else { &[0, 1] },
        joins: if long { 2 } else { 1 },
        weakening: None,
    }
}

fn fails(w: W, s: ThreadScenario, expected: &[&str]) {
    let report = check_threads(&ThreadScenario {
        weakening: Some(w),
        ..s
    });
    println!("{w:?}: {report}");
    match &report.violation {
        Some((what, _)) => assert!(expected.contains(what), "{report}"),
        None => panic!("{w:?} goes unnoticed: {report}"),
    }
}

const LOST: &[&str] = &["a thread is lost"];
const TWICE: &[&str] = &[
    "a thread runs twice",
    "a thread runs where it does not belong",
];

#[test]
fn a_thread_crosses_while_nodes_die_and_come_back() {
    for victims in [scenario().victims, &[1, 2], &[1, 1]] {
        let s = ThreadScenario {
            victims,
            ..scenario()
        };
        let report = check_threads(&s);
        println!("{victims:?}: {report}");
        assert!(report.violation.is_none(), "{report}");
        assert!(report.complete, "{report}");
    }
}

#[test]
fn threads_are_offered_before_they_change_hands() {
    fails(W::OwnerBeforeOffer, scenario(), LOST);
}

#[test]
fn entries_are_removed_after_the_owner_is_changed() {
    let s = ThreadScenario {
        victims: &[1],
        ..scenario()
    };
    fails(W::RemoveBeforeOwner, s, LOST);
}

#[test]
fn who_offers_looks_again() {
    let s = ThreadScenario {
        victims: &[1],
        ..scenario()
    };
    fails(W::NoSecondLook, s, LOST);
}

#[test]
fn the_inbox_of_the_dead_is_drained() {
    let s = ThreadScenario {
        victims: &[1],
        ..scenario()
    };
    fails(W::InboxNotDrained, s, LOST);
}

#[test]
fn threads_of_the_dead_are_taken() {
    fails(W::OwnedNotTaken, scenario(), LOST);
}

#[test]
fn owner_words_have_a_sequence_number() {
    fails(W::NoSequence, scenario(), TWICE);
}

#[test]
fn incarnations_are_compared() {
    let expected = "a thread comes back to a node that knows nothing of it";
    fails(W::NoIncarnation, scenario(), &[expected]);
}
