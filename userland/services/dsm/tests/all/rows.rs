//! Each row of the protocol's table, as a step and the actions that it gives.

use dyad_dsm::{
    Access, Action, Body, Cause, Copies, Event, Grant, Incarnation, Message, NodeSet, Outcome,
    Range, Refusal, Right, Seq, Source, Time, Txn,
};

use crate::group::{FRAMES, Group, NODES, config, fault, fault_at, node, page, range};

fn bodies(actions: &[(usize, Action)]) -> Vec<(usize, Body)> {
    let sent = actions.iter().filter_map(|(n, a)| match a {
        Action::Send { message, .. } => Some((*n, message.body)),
        _ => None,
    });
    sent.collect()
}

fn kinds(actions: &[(usize, Action)]) -> Vec<(usize, &'static str)> {
    let name = |b: &Body| match b {
        Body::Request { .. } => "request",
        Body::Pull { .. } => "pull",
        Body::Invalidate { .. } => "invalidate",
        Body::Ack { .. } => "ack",
        Body::Contents { .. } => "contents",
        Body::Grant { .. } => "grant",
        Body::Nak { .. } => "nak",
        Body::Drop { .. } => "drop",
        Body::Dropped { .. } => "dropped",
    };
    bodies(actions).iter().map(|(n, b)| (*n, name(b))).collect()
}

#[test]
fn o1_first_touch_is_exclusive_and_zero() {
    let mut g = Group::new(None);
    let all = g.access(1, 3, Access::Read);
    assert_eq!(kinds(&all), [(1, "request"), (0, "grant")]);
    let source = Source::Zero;
    assert!(all.contains(&(
        1,
        Action::Fill {
            page: page(3),
            source
        }
    )));
    assert_eq!(g.rights(3), [Right::None, Right::Write, Right::None]);
    assert_eq!(g.record(0, 3).copies, Copies::Exclusive(node(1)));
    // The origin's own first touch needs no message.
    assert!(kinds(&g.access(0, 4, Access::Write)).is_empty());
    assert_eq!(g.nodes[0].counters().local, 1);
}

#[test]
fn o2_o3_readers_share() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    let all = g.access(2, 3, Access::Read);
    let names = [(2, "request"), (0, "pull"), (1, "contents"), (0, "grant")];
    assert_eq!(kinds(&all), names);
    assert_eq!(g.rights(3), [Right::None, Right::Read, Right::Read]);
    let both = NodeSet::one(node(1)).with(node(2));
    assert_eq!(g.record(0, 3).copies, Copies::Shared(both));
    let all = g.access(0, 3, Access::Read);
    assert_eq!(kinds(&all), [(0, "pull"), (1, "contents")]);
    assert_eq!(g.rights(3), [Right::Read; 3]);
}

#[test]
fn o4_an_upgrade_has_no_contents() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.access(0, 3, Access::Read);
    let all = g.access(1, 3, Access::Write);
    assert_eq!(kinds(&all), [(1, "request"), (0, "grant")]);
    let granted = bodies(&all)[1].1;
    let same = Grant::Same;
    assert!(matches!(granted, Body::Grant { grant, right: Right::Write, .. } if grant == same));
    assert_eq!(g.rights(3), [Right::None, Right::Write, Right::None]);
    // The frame stays.
    assert!(g.record(0, 3).frame);
}

#[test]
fn o4_a_writer_without_a_copy_gets_contents_of_one_reader() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.access(0, 3, Access::Read);
    let all = g.access(2, 3, Access::Write);
    let names = [(2, "request"), (0, "invalidate"), (1, "ack"), (0, "grant")];
    assert_eq!(kinds(&all), names);
    assert_eq!(g.rights(3), [Right::None, Right::None, Right::Write]);
}

#[test]
fn o5_h6_protect_quiesce_copy_send_in_this_order() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    let all = g.access(0, 3, Access::Write);
    let of_owner: Vec<Action> = all.iter().filter(|(n, _)| *n == 1).map(|a| a.1).collect();
    let (p, txn) = (page(3), Txn(1));
    let (incarnation, body) = (Incarnation(1), Body::Contents { page: p, txn });
    let expected = [
        Action::Protect {
            page: p,
            right: Right::None,
        },
        Action::Quiesce {
            range: Range::one(p),
        },
        Action::CopyOut {
            page: p,
            to: node(0),
        },
        Action::Send {
            to: node(0),
            message: Message { incarnation, body },
        },
    ];
    assert_eq!(of_owner, expected);
}

#[test]
fn o7_requests_wait_while_the_page_is_busy() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.event(2, fault(3, Access::Write)).unwrap();
    g.deliver(2, 0).unwrap();
    g.event(0, fault(3, Access::Write)).unwrap();
    assert_eq!(g.record(0, 3).queue.len(), 1);
    g.settle_all();
    assert_eq!(g.rights(3), [Right::Write, Right::None, Right::None]);
    assert!(g.record(0, 3).queue.is_empty());
}

#[test]
fn h2_threads_wait_for_one_request() {
    let mut g = Group::new(None);
    g.event(1, fault_at(0, 3, Access::Read, 1)).unwrap();
    let all = g.event(1, fault_at(1, 3, Access::Write, 2)).unwrap();
    assert!(all.is_empty());
    let all = g.settle_all();
    let (threads, outcome) = (3, Outcome::Retry);
    assert!(all.contains(&(1, Action::Wake { threads, outcome })));
    assert_eq!(g.nodes[1].counters().joined, 1);
}

#[test]
fn h8_orders_wait_for_the_end_of_the_hold() {
    let mut g = Group::new(None);
    g.event(1, fault(3, Access::Write)).unwrap();
    g.deliver(1, 0).unwrap();
    g.deliver(0, 1).unwrap();
    g.event(0, fault(3, Access::Write)).unwrap();
    let until = Time(2_000);
    let defer = Action::Defer {
        page: page(3),
        until,
    };
    assert_eq!(g.deliver(0, 1).unwrap(), [defer]);
    g.now = 1_999;
    let early = g.event(1, Event::Expired { page: page(3) }).unwrap();
    assert_eq!(early, [defer]);
    g.now = 2_000;
    let all = g.event(1, Event::Expired { page: page(3) }).unwrap();
    assert_eq!(all.len(), 4);
}

#[test]
fn h10_regions_are_dropped_on_all_nodes_and_frames_come_back() {
    let mut g = Group::new(None);
    for n in 0..3 {
        g.access(n, 3, Access::Read);
        g.access(n, 4 + n as u64, Access::Write);
    }
    g.event(1, fault(9, Access::Read)).unwrap();
    let range = range(0, 16);
    g.event(0, Event::Unmap { range }).unwrap();
    assert_eq!(g.event(0, Event::Map { range }), Err(Refusal::Region));
    let all = g.settle_all();
    assert!(all.contains(&(0, Action::Unmapped { range })));
    for n in 0..3 {
        assert_eq!(g.nodes[n].free_frames(), FRAMES, "node {n}");
        assert_eq!(g.nodes[n].right(page(3)), Right::None);
    }
    // A request for a page that is gone is refused, and keeps no frame.
    let outcome = Outcome::Refused(Cause::Gone);
    let gone = (
        1,
        Action::Wake {
            threads: 1,
            outcome,
        },
    );
    assert!(g.access(1, 3, Access::Read).contains(&gone));
    assert_eq!(g.nodes[1].free_frames(), FRAMES);
    g.event(0, Event::Map { range }).unwrap();
    g.access(1, 3, Access::Read);
    assert_eq!(g.rights(3), [Right::None, Right::Write, Right::None]);
}

#[test]
fn no_frame_is_the_threads_error() {
    let mut g = Group::new(None);
    for p in 0..u64::from(FRAMES) {
        g.access(1, p, Access::Write);
    }
    let all = g.access(1, 15, Access::Write);
    let outcome = Outcome::Refused(Cause::NoMemory);
    assert_eq!(
        all,
        [(
            1,
            Action::Wake {
                threads: 1,
                outcome
            }
        )]
    );
}

#[test]
fn a_page_is_lost_with_its_owner_only() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.access(1, 4, Access::Write);
    g.access(2, 4, Access::Read);
    g.event(0, Event::Down { node: node(1) }).unwrap();
    let outcome = Outcome::Refused(Cause::Lost);
    let lost = (
        2,
        Action::Wake {
            threads: 1,
            outcome,
        },
    );
    assert!(g.access(2, 3, Access::Read).contains(&lost));
    // The copy of node 2 serves.
    g.access(0, 4, Access::Read);
    assert_eq!(g.nodes[0].right(page(4)), Right::Read);
}

#[test]
fn the_death_of_the_origin_ends_the_group() {
    let mut g = Group::new(None);
    g.event(1, fault(3, Access::Write)).unwrap();
    let all = g.event(1, Event::Down { node: node(0) }).unwrap();
    let outcome = Outcome::Ended;
    assert_eq!(
        all,
        [
            Action::Wake {
                threads: 1,
                outcome
            },
            Action::End
        ]
    );
    let again = g.event(1, fault(3, Access::Write)).unwrap();
    assert_eq!(
        again,
        [Action::Wake {
            threads: 1,
            outcome
        }]
    );
    let room = Event::Room { to: node(2) };
    assert_eq!(g.event(1, room), Err(Refusal::Ended));
}

#[test]
fn messages_are_counted_by_kind() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.access(0, 3, Access::Read);
    g.access(0, 3, Access::Write);
    g.access(1, 3, Access::Read);
    let (a, b) = (*g.nodes[0].counters(), *g.nodes[1].counters());
    assert_eq!((a.request, b.request), (1, 2));
    assert_eq!((a.contents, b.contents), (1, 1));
    assert_eq!((a.without, b.without), (1, 0));
    assert_eq!((a.invalidate, b.invalidate), (1, 1));
    assert_eq!(a.page_messages() + b.page_messages(), 8);
    assert_eq!(a.faults + b.faults, 4);
}

#[test]
fn full_rings_delay_messages_in_their_order() {
    let mut g = Group::new(None);
    g.ring = 0;
    for p in [3, 4, 5] {
        g.event(1, fault(p, Access::Write)).unwrap();
    }
    assert!(g.rings[1][0].is_empty());
    assert_eq!(g.nodes[1].unsent(node(0)), 3);
    g.ring = 9;
    g.event(1, Event::Room { to: node(0) }).unwrap();
    let pages: Vec<u64> = (g.rings[1][0].iter())
        .map(|m| m.body.range().first().number())
        .collect();
    assert_eq!(pages, [3, 4, 5]);
    g.settle_all();
    assert!([3, 4, 5].map(|p| g.rights(p)[1]) == [Right::Write; 3]);
}

#[test]
fn a_duplicate_request_takes_no_page_away() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    let (p, want, seq) = (page(3), Access::Write, Seq(1));
    let body = Body::Request {
        page: p,
        want,
        seq,
        since: Time(0),
    };
    g.access(0, 3, Access::Write);
    let (incarnation, from) = (Incarnation(1), node(1));
    let message = Message { incarnation, body };
    let again = g.event(0, Event::Received { from, message });
    assert_eq!(again, Err(Refusal::Stale));
    g.settle_all();
    assert_eq!(g.rights(3), [Right::Write, Right::None, Right::None]);
}

#[test]
fn a_node_joins_again_with_another_incarnation() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.event(0, Event::Down { node: node(1) }).unwrap();
    let up = |incarnation| Event::Up {
        node: node(1),
        incarnation,
    };
    let same = g.event(0, up(Incarnation(1)));
    assert_eq!(same, Err(Refusal::Incarnation));
    let stranger = Event::Up {
        node: node(NODES),
        incarnation: Incarnation(2),
    };
    assert_eq!(g.event(0, stranger), Err(Refusal::Sender));
    g.event(0, up(Incarnation(2))).unwrap();
    let mut config = config(1, None);
    config.incarnations[1] = Incarnation(2);
    g.nodes[1] = crate::group::Node::new(config);
    g.access(1, 4, Access::Write);
    assert_eq!(g.rights(4), [Right::None, Right::Write, Right::None]);
}

#[test]
fn chunks_are_found_until_the_table_is_full() {
    let mut table = dyad_dsm::Table::<dyad_dsm::Record<1>, 8, 4>::new();
    let pages: Vec<_> = (0..8).map(|i| page(i * 4 * 0x1000 + 3)).collect();
    for (i, &p) in pages.iter().enumerate() {
        table.get_or_insert(p).unwrap().waiters = i as u64 + 1;
    }
    assert!(table.get_or_insert(page(2)).is_ok(), "of the first chunk");
    assert!(table.get_or_insert(page(77)).is_err());
    for (i, &p) in pages.iter().enumerate() {
        assert_eq!(table.get(p).unwrap().waiters, i as u64 + 1);
    }
    table.erase(Range::one(pages[3]));
    assert!(table.get(pages[3]).is_none());
    for &i in &[0, 1, 2, 4, 5, 6, 7] {
        assert_eq!(table.get(pages[i]).unwrap().waiters, i as u64 + 1);
    }
    table.get_or_insert(page(77)).unwrap();
}

/// Page 3 is read by two nodes, and the origin wants to write it: one of the two is asked for contents.
#[test]
fn a_transaction_takes_one_answer_of_each_node_and_contents_of_the_one_it_has_asked() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.access(2, 3, Access::Read);
    g.event(0, fault(3, Access::Write)).unwrap();
    let busy = g.record(0, 3).busy.expect("both are asked");
    let source = busy.source.expect("one is asked for contents");
    let other = node(3 - source.index());
    let (page, txn) = (page(3), busy.txn);
    let mut say = |from, body| {
        let incarnation = Incarnation(1);
        let message = Message { incarnation, body };
        let done = g.event(0, Event::Received { from, message });
        done.map(|_| {
            g.record(0, 3)
                .busy
                .expect("the other one has not answered")
                .wait
        })
    };
    let contents = say(other, Body::Contents { page, txn });
    assert_eq!(
        contents,
        Err(Refusal::NotAwaited),
        "it was not asked for them"
    );
    let ack = Body::Ack { page, txn };
    assert_eq!(say(other, ack), Ok(NodeSet::one(source)));
    assert_eq!(say(other, ack), Err(Refusal::NotAwaited), "twice");
    let [from_source, from_other] = [source, other].map(|n| n.index());
    g.rings[0][from_other].clear();
    g.settle_all();
    assert_eq!(g.rights(3)[0], Right::Write);
    assert_eq!(g.rights(3)[from_source], Right::None);
}

/// What a dead node has not been told it is not told, and it is not waited for when a region is dropped.
#[test]
fn a_dead_node_is_told_nothing_and_not_waited_for() {
    let mut g = Group::new(None);
    g.access(2, 3, Access::Write);
    g.ring = 0;
    g.event(0, fault(3, Access::Write)).unwrap();
    assert_eq!(g.nodes[0].unsent(node(2)), 1);
    g.ring = 9;
    let range = range(0, 16);
    g.event(0, Event::Down { node: node(2) }).unwrap();
    assert_eq!(g.nodes[0].unsent(node(2)), 0);
    let up = Event::Up {
        node: node(2),
        incarnation: Incarnation(2),
    };
    g.event(0, up).unwrap();
    let all = dropped_without(&mut g, range, 2, 1);
    assert!(all.contains(&Action::Unmapped { range }), "{all:?}");
    // The dead node may also be the first one of which that is known.
    let mut g = Group::new(None);
    g.access(2, 3, Access::Write);
    let all = dropped_without(&mut g, range, 1, 1);
    assert!(all.contains(&Action::Unmapped { range }), "{all:?}");
}

/// The origin drops a region, and node 2 dies in step `dies`, of the two in which node `other` answers. Gives what the origin
/// does in the last step.
fn dropped_without(g: &mut Group, range: Range, dies: usize, other: usize) -> Vec<Action> {
    g.event(0, Event::Unmap { range }).unwrap();
    let mut all = Vec::new();
    for step in 1..=2 {
        assert!(
            !all.contains(&Action::Unmapped { range }),
            "a node has not answered"
        );
        all = match step == dies {
            true => g.event(0, Event::Down { node: node(2) }).unwrap(),
            false => {
                while !g.rings[0][other].is_empty() {
                    g.deliver(0, other).unwrap();
                }
                let answers = g.rings[other][0].len();
                (0..answers)
                    .flat_map(|_| g.deliver(other, 0).unwrap())
                    .collect()
            }
        };
    }
    all
}

#[test]
fn requests_of_dead_nodes_are_not_served() {
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.now += 1_000_000;
    g.event(0, fault(3, Access::Write)).unwrap();
    g.event(2, fault(3, Access::Write)).unwrap();
    g.deliver(2, 0).unwrap();
    assert_eq!(g.record(0, 3).queue.len(), 1);
    for n in [0, 1] {
        g.event(n, Event::Down { node: node(2) }).unwrap();
    }
    g.deliver(0, 1).unwrap();
    g.deliver(1, 0).unwrap();
    assert!(g.record(0, 3).queue.is_empty() && g.record(0, 3).busy.is_none());
    assert_eq!(g.record(0, 3).copies, Copies::Exclusive(node(0)));
}

/// The holder that is asked for contents says that it has none. It is not asked again; a reader gets contents of another
/// holder.
#[test]
fn a_source_that_has_nothing_grants_nothing() {
    let has_nothing = |g: &mut Group| {
        let busy = g.record(0, 3).busy.expect("a holder is asked");
        let (from, txn) = (busy.source.expect("for contents"), busy.txn);
        let (incarnation, page) = (Incarnation(1), page(3));
        let body = Body::Ack { page, txn };
        let message = Message { incarnation, body };
        (from, g.event(0, Event::Received { from, message }).unwrap())
    };
    let (threads, outcome) = (1, Outcome::Refused(Cause::Lost));
    let lost = Action::Wake { threads, outcome };
    let mut g = Group::new(None);
    g.access(1, 3, Access::Write);
    g.access(2, 3, Access::Read);
    g.event(0, fault(3, Access::Read)).unwrap();
    let (first, done) = has_nothing(&mut g);
    let other = node(3 - first.index());
    assert!(
        matches!(done[..], [Action::Send { to, .. }] if to == other),
        "{done:?}"
    );
    assert_eq!(g.record(0, 3).copies, Copies::Shared(NodeSet::one(other)));
    // Nor has that one.
    assert_eq!(has_nothing(&mut g), (other, vec![lost]));
    assert_eq!(g.record(0, 3).copies, Copies::Lost);
    for want in [Access::Read, Access::Write] {
        let mut g = Group::new(None);
        g.access(1, 3, Access::Write);
        g.event(0, fault(3, want)).unwrap();
        assert_eq!(has_nothing(&mut g), (node(1), vec![lost]), "{want:?}");
        assert_eq!(g.record(0, 3).copies, Copies::Lost);
        assert_eq!(g.nodes[0].right(page(3)), Right::None);
    }
}
