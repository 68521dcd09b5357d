//! Nodes that sleep, and nodes of several CPUs.

use dyad_model_tests::Scenario;
use dyad_model_tests::Weakening as W;

use crate::{
    FRAMES, HELD, OBJECTS, REUSE, STALE, bound, fails, holds_with_reuse, mapped, needs, object,
};

fn incoherent() -> Scenario {
    Scenario {
        incoherent: true,
        idle: 0b10,
        ..mapped(REUSE, 3, 3)
    }
}

/// Node 1, which maps the frame, has two CPUs; node 0 reuses it.
fn two_cpus() -> Scenario {
    Scenario {
        cpus: 2,
        actors: 0b01,
        idle: 0,
        ..incoherent()
    }
}

#[test]
fn frames_of_a_node_that_sleeps() {
    holds_with_reuse(&Scenario {
        incoherent: true,
        idle: 0b10,
        ..mapped(FRAMES, bound(3, 4), bound(3, 4))
    });
}

#[test]
fn l2_who_wakes_withdraws_before_use() {
    let s = Scenario {
        idle: 0b10,
        ..mapped(REUSE, 3, 3)
    };
    needs(W::L2UseBeforeWithdrawal, &s, STALE);
}

#[test]
fn z3_who_sleeps_flushes_caches() {
    needs(W::Z3IdleWithoutCacheFlush, &incoherent(), STALE);
}

#[test]
fn who_sleeps_flushes_more_than_what_is_logged_by_then() {
    let s = Scenario {
        actors: 0b01,
        ..incoherent()
    };
    needs(W::IdleFlushesLoggedOnly, &s, STALE);
}

#[test]
fn weak_references_of_nodes_that_sleep() {
    let s = Scenario {
        idle: 0b11,
        ..object(OBJECTS, 3, bound(3, 4))
    };
    needs(W::AcknowledgeInKernel, &s, HELD);
}

#[test]
fn every_cpu_acknowledges() {
    needs(W::OneCpuAcknowledges, &two_cpus(), STALE);
}

/// CPU 1 comes up while its node is in the middle of a round.
#[test]
fn who_is_awake_is_asked_after_lines_are_dropped() {
    let s = Scenario {
        idle: 0b10,
        idle_cpus: 0b10,
        ..two_cpus()
    };
    needs(W::AsksBeforeLines, &s, STALE);
}

#[test]
fn a_visit_during_the_last_flush_counts() {
    let s = Scenario {
        idle: 0b10,
        last_epoch: 2,
        ..two_cpus()
    };
    needs(W::VisitForgotten, &s, STALE);
}

#[test]
fn who_wakes_has_acknowledged_nothing() {
    let s = Scenario {
        idle: 0b10,
        idle_cpus: bound(0b10, 0b11),
        ..two_cpus()
    };
    holds_with_reuse(&s);
    fails(W::WakeAcknowledges, &s, STALE);
}

/// Where one CPU is all there is, it may; but it does not have to.
#[test]
fn who_wakes_beside_others_publishes_nothing() {
    let one = Scenario {
        idle: 0b10,
        ..mapped(REUSE, 3, 3)
    };
    holds_with_reuse(&Scenario {
        weakening: Some(W::WakePublishes),
        ..one.clone()
    });
    let two = Scenario {
        cpus: 2,
        actors: 0b01,
        idle_cpus: 0b10,
        ..one
    };
    needs(W::WakePublishes, &two, STALE);
}
