//! Rules that are taken away, each noticed by a test here, in `progress` or in the model (`tests/model/tests/dsm.rs`).

use dyad_dsm::weakening::Rules;
use dyad_dsm::{Access, Body, Event, Grant, Incarnation, Message, Refusal, Right, Seq, Weakening};

use crate::group::{Group, Node, config, fault, node, page};

/// A node in its second life gets a grant for its first one, with the number of a request that it has made again.
fn late_grant(weakening: Option<Weakening>) -> (Result<(), Refusal>, Right) {
    let mut g = Group::new(weakening);
    let mut config = config(1, weakening);
    config.incarnations[1] = Incarnation(2);
    g.nodes[1] = Node::new(config);
    g.event(1, fault(3, Access::Write)).unwrap();
    let body = Body::Grant {
        page: page(3),
        seq: Seq(1),
        grant: Grant::Zero,
        right: Right::Write,
    };
    let (incarnation, from) = (Incarnation(1), node(0));
    let message = Message { incarnation, body };
    let done = g.event(1, Event::Received { from, message });
    (done.map(|_| ()), g.nodes[1].right(page(3)))
}

#[test]
fn grants_of_an_earlier_life_do_not_count() {
    let refused = Err(Refusal::Incarnation);
    assert_eq!(late_grant(None), (refused, Right::None));
    let weak = late_grant(Some(Weakening::IncarnationIgnored));
    assert_eq!(weak, (Ok(()), Right::Write), "the check is not tested");
}

/// A grant whose request the node has given up.
fn old_grant(weakening: Option<Weakening>) -> Right {
    let mut g = Group::new(weakening);
    g.event(1, fault(3, Access::Write)).unwrap();
    let body = Body::Grant {
        page: page(3),
        seq: Seq(77),
        grant: Grant::Zero,
        right: Right::Write,
    };
    let (incarnation, from) = (Incarnation(1), node(0));
    let message = Message { incarnation, body };
    let _ = g.event(1, Event::Received { from, message });
    g.nodes[1].right(page(3))
}

#[test]
fn grants_of_other_requests_do_not_count() {
    assert_eq!(old_grant(None), Right::None);
    assert_eq!(old_grant(Some(Weakening::SeqIgnored)), Right::Write);
}

#[test]
fn rules_are_whole_unless_a_test_says_so() {
    assert_ne!(Rules::default(), Rules::without(Weakening::NoBusy));
}
