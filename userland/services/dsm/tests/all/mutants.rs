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

/// Both nodes have two messages to send and a ring for one. Returns whether all four pages arrive.
fn with_full_rings(weakening: Option<Weakening>) -> bool {
    let mut g = Group::new(weakening);
    for p in [5, 6] {
        g.access(1, p, Access::Write);
        g.access(0, p - 2, Access::Write);
    }
    g.ring = 1;
    for p in [5, 6] {
        g.event(0, fault(p, Access::Write)).unwrap();
        g.event(1, fault(p - 2, Access::Write)).unwrap();
    }
    let unsent = [g.nodes[0].unsent(node(1)), g.nodes[1].unsent(node(0))];
    let delayed = usize::from(weakening != Some(Weakening::OutboxDropped));
    assert_eq!(unsent, [delayed; 2]);
    for _ in 0..100 {
        g.now += 1_000_000;
        for (from, to) in [(0, 1), (1, 0)] {
            let _ = g.event(from, Event::Room { to: node(to) });
            // A message that is not accepted stays in its ring.
            if let Some(&message) = g.rings[from][to].front() {
                let from_node = node(from);
                let event = Event::Received {
                    from: from_node,
                    message,
                };
                if g.event(to, event) != Err(Refusal::Blocked) {
                    g.rings[from][to].pop_front();
                }
            }
            for p in 3..7 {
                let _ = g.event(to, Event::Expired { page: page(p) });
            }
        }
    }
    let has = |n: usize, p: u64| g.nodes[n].right(page(p)) == Right::Write;
    has(0, 5) && has(0, 6) && has(1, 3) && has(1, 4)
}

#[test]
fn nodes_receive_while_their_rings_are_full() {
    assert!(with_full_rings(None));
    assert!(!with_full_rings(Some(Weakening::FullRingBlocks)));
    assert!(!with_full_rings(Some(Weakening::OutboxDropped)));
}

#[test]
fn rules_are_whole_unless_a_test_says_so() {
    assert_ne!(Rules::default(), Rules::without(Weakening::NoBusy));
}
