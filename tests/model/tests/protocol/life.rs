//! Nodes that die and come back.

use dyad_model_tests::Kind::{Map, Unmap};
use dyad_model_tests::Scenario;
use dyad_model_tests::Weakening as W;

use crate::{
    FRAMES, HELD, LOST, MISCOUNTED, OBJECTS, RETYPE, STUCK, bound, fails, holds_with_reuse, mapped,
    needs, object,
};

fn rejoin() -> Scenario {
    Scenario {
        victims: &[0],
        joins: 1,
        ..object(OBJECTS, 3, 4)
    }
}

#[test]
fn a_node_dies_is_recovered_and_rejoins() {
    holds_with_reuse(&Scenario {
        victims: &[0],
        joins: 1,
        ..mapped(FRAMES, 3, bound(3, 5))
    });
}

/// What is mapped in its table stays mapped; its caches and TLBs are gone.
#[test]
fn the_owner_of_the_table_dies_and_rejoins() {
    holds_with_reuse(&Scenario {
        victims: &[1],
        joins: 1,
        incoherent: crate::long(),
        ..mapped(FRAMES, 3, bound(3, 4))
    });
}

#[test]
fn objects_of_a_node_that_dies_and_rejoins() {
    holds_with_reuse(&Scenario {
        ops: bound(3, 5),
        last_epoch: bound(4, 5),
        ..rejoin()
    });
}

#[test]
fn a_node_dies_again_while_it_joins() {
    holds_with_reuse(&Scenario {
        victims: &[0, 0],
        joins: bound(1, 2),
        ..object(RETYPE, 3, bound(4, 5))
    });
}

#[test]
fn who_joins_publishes_before_it_is_live() {
    needs(W::JoinBeforePublication, &rejoin(), HELD);
}

#[test]
fn who_joins_is_live_before_it_uses_anything() {
    fails(W::UseBeforeLive, &rejoin(), HELD);
}

#[test]
fn only_vacant_places_are_taken() {
    fails(W::JoinFromDead, &rejoin(), STUCK);
}

#[test]
fn d4_only_what_does_not_run_is_dead() {
    let s = Scenario {
        victims: &[0],
        ..mapped(&[Unmap, Map], 2, 3)
    };
    needs(W::D4DeclaredDeadWhileRunning, &s, MISCOUNTED);
}

#[test]
fn d4b_who_initialises_is_not_dead() {
    let s = Scenario {
        victims: &[0],
        ..object(RETYPE, 2, 3)
    };
    let w = W::D4DeclaredDeadWhileRunning;
    needs(w, &s, LOST);
}
